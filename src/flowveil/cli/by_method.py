"""Options of commands that run several methods: METHOD.NAME=VALUE and METHOD=SHARE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from flowveil.errors import ParameterError
from flowveil.methods import find_method


def bbox_of(text: str) -> list[float]:
    """Returns west, south, east and north from a text with commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(f"--bbox must be four numbers, comma-separated; found '{text}'.") from None


def method_options(method: str, texts: Sequence[str]) -> dict[str, Any]:
    """Returns the options of a method from NAME=VALUE."""
    parsed = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ParameterError(f"--option must be NAME=VALUE; found '{text}'.")
        parsed[name.strip()] = find_method(method).parse_option(name.strip(), value.strip())
    return parsed


def options_by_method(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the options of several methods from METHOD.NAME=VALUE."""
    chosen: dict[str, dict[str, Any]] = {}
    for text in texts:
        method, dot, rest = text.partition(".")
        if not dot:
            raise ParameterError(f"--option must be METHOD.NAME=VALUE here; found '{text}'.")
        chosen.setdefault(method, {}).update(method_options(method, [rest]))
    return chosen


method_option = click.option(
    "--option", "options", multiple=True, metavar="METHOD.NAME=VALUE", help="Option of a method (repeatable)."
)
method_limits = click.option(
    "--max-suppressed",
    multiple=True,
    metavar="SHARE|METHOD=SHARE",
    help="Share that may be suppressed, of all methods or of one (repeatable) [default: 0.1].",
)


def limits_of(texts: Sequence[str]) -> dict[str, Any]:
    """Returns ``max_suppressed``, if a share for all methods is given, and ``limits`` by method."""
    found: dict[str, Any] = {"limits": {}}
    for text in texts:
        method, equals, share = text.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            raise ParameterError(f"--max-suppressed must be SHARE or METHOD=SHARE; found '{text}'.") from None
        if equals:
            found["limits"][find_method(method.strip()).name] = number
        else:
            found["max_suppressed"] = number
    return found
