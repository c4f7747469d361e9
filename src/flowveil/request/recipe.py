"""Recipes: a request as a TOML file that people keep, and that repeats the run byte by byte.

Settings that were given are lines; all others are comments with their default. Paths are relative
to the file. A recipe holds no secrets: an input with a password is refused before it gets here.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flowveil.core.errors import DataError, OutputError, ParameterError
from flowveil.request.database_address import database_address
from flowveil.request.request import SECTIONS, Request, find_setting, settings
from flowveil.request.settings import Setting, is_area, is_given, is_grid, section_settings

#: Key of the version that wrote the recipe.
_VERSION = "flowveil"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def recipe_text(request: Request, *, version: str) -> str:
    """The recipe of a request: every setting with its meaning, those that were not given as
    comments.
    """
    lines = [
        "# A recipe of flowveil. Repeat the run with: flowveil run FILE",
        f"{_VERSION} = {_toml(version)}",
    ]
    for name, section in SECTIONS.items():
        lines += ["", f"[{name}]"]
        pairs = []
        for one in section_settings(section):
            value = getattr(getattr(request, name), one.name)
            lines += textwrap.wrap(
                _comment(one), 116, initial_indent="# ", subsequent_indent="#   "
            )
            if one.is_pairs:
                pairs += [f"{name}.{one.name}", value] if value else []
                lines += [] if value else [f"# [{name}.{one.name}]"]
            else:
                lines.append(
                    f"{one.name} = {_toml(value)}"
                    if is_given(value)
                    else f"# {one.name} = {_default(one)}"
                )
        if pairs:
            lines += [
                "",
                f"[{pairs[0]}]",
                *(f"{_key(key)} = {_toml(value)}" for key, value in pairs[1].items()),
            ]
    return "\n".join(lines) + "\n"


def write_recipe(request: Request, path: str | os.PathLike[str], *, version: str) -> Path:
    """Write the recipe of a request; its paths become relative to the file."""
    target = Path(path)
    there = target.absolute().parent
    moved = request.with_values(**_moved(request, lambda place: os.path.relpath(place, there)))
    try:
        there.mkdir(parents=True, exist_ok=True)
        target.write_text(recipe_text(moved, version=version), encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"The recipe '{target.name}' cannot be written: {error.strerror}."
        ) from None
    return target


def read_recipe(path: str | os.PathLike[str], *, changes: Sequence[str] = ()) -> Request:
    """Read a recipe.

    Its paths are taken from the folder of the file, those of the changes from the working folder.
    """
    source = Path(path)
    try:
        content = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError:
        raise ParameterError(f"There is no recipe '{source.name}' that can be read.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"'{source.name}' is not TOML: {error}.") from None
    except RecursionError:
        raise DataError(
            f"'{source.name}' is nested too deeply for a recipe. Hint: use a file that"
            " --save-recipe wrote."
        ) from None
    content.pop(_VERSION, None)
    request = Request.from_sections(content)
    here = os.path.relpath(source.absolute().parent)
    request = request.with_values(
        **_moved(request, lambda place: os.path.normpath(os.path.join(here, place)))
    )
    return changed(request, changes)


def changed(request: Request, changes: Sequence[str]) -> Request:
    """The request with settings replaced: ``protection.k=20``, ``method.options.effort=2``."""
    values: dict[str, Any] = {}
    for text in changes:
        name, equals, value = text.partition("=")
        if not equals:
            raise ParameterError(
                f"--set must be NAME=VALUE, such as protection.k=20; found '{text}'."
            )
        name = name.strip()
        pairs = next(
            (one for one in settings() if one.is_pairs and name.startswith(f"{one.path}.")),
            None,
        )
        if pairs is not None:
            kept = values.get(pairs.name, request.given.get(pairs.name, {}))
            values[pairs.name] = {**kept, name.removeprefix(f"{pairs.path}."): value.strip()}
        else:
            one = find_setting(name)
            # An empty name says that there is no such column; elsewhere an empty value removes the
            # setting.
            is_value = value.strip() or "COLUMN" in one.metavar
            parsed = one.parse(value) if is_value else None
            # A list whose parts may have commas: every --set adds one part.
            if parsed is not None and one.is_list and not one.commas:
                parsed = (*(values.get(one.name) or ()), *parsed)
            values[one.name] = parsed
    return request.with_values(**values)


def given_by_hand(
    request: Request, recipe: str | os.PathLike[str] | None, changes: Sequence[str]
) -> Request:
    """A request whose settings come from a recipe unless they are given.

    Options win over the recipe.
    """
    if recipe is not None:
        request = read_recipe(recipe).with_values(**request.given)
    return changed(request, changes)


def _moved(request: Request, move: Any) -> dict[str, Any]:
    """The given paths of a request, each moved; databases and addresses keep theirs."""
    moved: dict[str, Any] = {}
    for one, value in request:
        # Resources are of this machine: a folder for temporary tables stays where it is.
        if one.section == "resources" or not is_given(value):
            continue
        if one.form == "path" or (one.form == "area" and not is_area(value)):
            if isinstance(value, Mapping):
                moved[one.name] = {
                    name: _moved_path(str(place), move) for name, place in value.items()
                }
            elif isinstance(value, tuple):
                moved[one.name] = tuple(_moved_path(place, move) for place in value)
            else:
                moved[one.name] = _moved_path(value, move)
    return moved


def _moved_path(place: str, move: Any) -> str:
    address = database_address(place)
    if address is not None:
        return address.moved(move)
    return place if "://" in place or is_grid(place) else str(move(place))


def _comment(one: Setting) -> str:
    allowed = f" Allowed: {', '.join(one.choices)}." if one.allowed else ""
    usual = (
        f"{one.default:,}" if isinstance(one.default, int) and one.default >= 10**6 else one.default
    )
    default = f" Default: {usual}." if usual is not None else ""
    return f"{one.meaning}{allowed}{default}"


def _default(one: Setting) -> str:
    """Returns the value in a commented line: the example, or the default of a flag."""
    return "true" if one.is_flag else _toml(one.parse(one.example))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    # A JSON text is a TOML text, except that TOML has no escape for the delete character but
    # \u007f.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)
