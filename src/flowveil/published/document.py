"""Pages that need nothing but themselves: style, script and data are inside.

Every page and drawing is a Jinja2 template of the folder ``page``, which escapes whatever it is
given, so a name from outside adds no markup. The content security policy forbids requests, except
to a tile server that the operator chose and the reader switches on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@dataclass(frozen=True)
class PagePart:
    """A section of a page."""

    name: str  # its anchor
    title: str  # its heading
    content: Markup  # what a template made
    # What its maps draw, see `flowveil.published.maps`; at most one part of a page has it.
    map_data: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Figure:
    """Drawings with a caption."""

    title: str  # the caption
    note: str
    drawings: Sequence[
        tuple[str, Markup]
    ] = ()  # a name, or nothing, above each drawing, and the drawing


def page(
    *,
    title: str,
    heading: str,
    lead: str,
    parts: Sequence[PagePart],
    notices: Sequence[tuple[str, str]] = (),
    footer: str = "",
    internal: str | None = None,
) -> str:
    """Returns sections as one document; the page of a release is `flowveil.published.html.render`.

    Notices are what a reader must know first: a head, and the rest. ``internal`` says why this page
    must not be published; it is shown at the top of the screen and of every printed page.
    """
    maps = [part.map_data for part in parts if part.map_data is not None]
    return str(fill("page.html", **locals() | {"map_data": maps[0] if maps else None}))


def fill(name: str, **values: Any) -> Markup:
    """A template with its values; every value that is not markup is escaped."""
    from markupsafe import Markup

    return Markup(_templates().get_template(name).render(values))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # `tojson` writes <, > and & as escapes, so that nothing in a text ends the script element; what
    # is not ASCII too.
    made.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"),
        "ensure_ascii": True,
        "allow_nan": False,
    }
    # Style and scripts of our own.
    made.globals["asset"] = lambda name: Markup(asset(name))
    made.globals["module"] = lambda folder: Markup(module(folder))
    return made


@cache
def asset(name: str) -> str:
    """Returns the text of a file of the folder ``page``."""
    return (files("flowveil.published") / "page" / name).read_text(encoding="utf-8")


#: The scripts of pages: the parts of each, every one after those that it imports, and what it
#: exports.
_MODULES = {
    "flows": (
        (
            "columns",
            "clusters",
            "model",
            "paint",
            "panel",
            "pens",
            "hours",
            "search",
            "take",
            "mount",
            "estimate",
            "question",
            "areas",
            "picture",
            "answer",
            "viewport",
            "page",
        ),
        "mountPage",
    ),
    "map": (("geometry", "scale", "colours", "context", "draw", "mount"), "mount"),
}
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./[a-z]+\.mjs";\n', re.M)
_EXPORT = re.compile(r"^export (?=const |function )", re.M)


@cache
def module(folder: str) -> str:
    """Returns a script of pages as one JavaScript module that imports nothing.

    ``flows`` is the map of a release's page, ``map`` the small maps of private pages and of the
    workbench. A page from a file cannot import, so its script has to be one text.
    """
    names, exported = _MODULES[folder]
    parts = (asset(f"{folder}/{name}.mjs") for name in names)
    return (
        "\n".join(_EXPORT.sub("", _IMPORT.sub("", part)) for part in parts)
        + f"\nexport {{ {exported} }};\n"
    )


def frame(document: str, *, height: int = 800) -> str:
    """A whole page inside another, as a notebook shows it.

    It can neither reach the notebook nor be reached.
    """
    return str(fill("frame.html", document=document, height=height))


def number(value: Any, *, digits: int = 6) -> str:
    """A measure for people: thousands separated, few digits of what is not a count."""
    if value is None:
        return "not known"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"
