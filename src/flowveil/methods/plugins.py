"""Methods from outside flowveil: a function, a `Method`, or an entry point of the group ``flowveil.methods``.

Plans of such methods are applied and recounted like any other, and refused if a cell is below the threshold.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from flowveil.errors import ParameterError
from flowveil.methods.method import Method

GROUP = "flowveil.methods"
#: Valid names of methods; the name is used in reports and commands.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")


def method_of(given: Any, *, name: str | None = None) -> Method:
    """Returns a method from a function, named after it by default, or from a `Method`.

    Raises:
        ParameterError: it is neither, or its name is invalid.
    """
    if isinstance(given, Method):
        method = given
    elif callable(given):
        function_name = str(getattr(given, "__name__", type(given).__name__)).strip("_").replace("_", "-")
        summary = (getattr(given, "__doc__", None) or "").strip().partition("\n")[0]
        method = Method(name or function_name, given, summary or "a user-defined method")
    else:
        raise ParameterError(f"method must be a name, a function or a Method; found {type(given).__name__}.")
    if NAME.fullmatch(method.name) is None:
        raise ParameterError(
            "Invalid name of a method: letters, digits, '-', '_' and '.' are allowed, starting with a letter. "
            "Hint: wrap a lambda or a partial function: Method('my-name', function, 'what it does')."
        )
    return method


@cache
def _registered() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def registered_names() -> tuple[str, ...]:
    """Returns the names that other packages registered, sorted; nothing is loaded."""
    return tuple(sorted(_registered()))


@cache
def registered(name: str) -> Method | None:
    """Returns the method that another package registered under a name; None if the name is unknown.

    Raises:
        ParameterError: it cannot be loaded, or is not a method.
    """
    if (entry := _registered().get(name)) is None:
        return None
    try:
        loaded = entry.load()
    except Exception as problem:
        raise ParameterError(
            f"Method '{name}' is registered by another package, but cannot be loaded: {type(problem).__name__}. "
            "Hint: install that package again, or remove it."
        ) from None
    if isinstance(loaded, Method) and loaded.name != name:
        raise ParameterError(f"Method '{name}' is registered under a different name than its own, '{loaded.name}'.")
    return method_of(loaded, name=name)
