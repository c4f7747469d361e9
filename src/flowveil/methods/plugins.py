"""Methods from elsewhere: a function, a `Method`, or one that another package registers.

A package registers a method by an entry point of the group ``flowveil.methods``:

    [project.entry-points."flowveil.methods"]
    quarters = "my_package:quarters"

Whoever wrote it: a plan is applied and recounted like any other, and refused where a cell falls short.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from flowveil.errors import ParameterError
from flowveil.methods.method import Method

GROUP = "flowveil.methods"
#: What a method may be called: the name stands in reports and commands.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")


def method_of(given: Any, *, name: str | None = None) -> Method:
    """A method from a function, or from a `Method`.

    Args:
        given: a function ``(flows, guarantee, *, max_suppressed, **options) -> Plan``, or a `Method`.
        name: what to call it; by default the function's own name.

    Raises:
        ParameterError: it is neither, or its name cannot be that of a method.
    """
    if isinstance(given, Method):
        made = given
    elif callable(given):
        own = str(getattr(given, "__name__", type(given).__name__)).strip("_").replace("_", "-")
        said = (getattr(given, "__doc__", None) or "").strip().partition("\n")[0]
        made = Method(name or own, given, said or "a method of one's own")
    else:
        raise ParameterError(f"method must be a name, a function or a Method; found {type(given).__name__}.")
    if NAME.fullmatch(made.name) is None:
        raise ParameterError(
            "A method's name has letters, digits, '-', '_' and '.', and begins with a letter; this one has not. "
            "Hint: wrap a lambda or a partial function: Method('my-name', function, 'what it does')."
        )
    return made


@cache
def _registered() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def registered_names() -> tuple[str, ...]:
    """The names that other packages registered, in text order; nothing of them is loaded."""
    return tuple(sorted(_registered()))


@cache
def registered(name: str) -> Method | None:
    """The method that another package registered under a name; None where there is none.

    Raises:
        ParameterError: it cannot be loaded, or is no method.
    """
    entry = _registered().get(name)
    if entry is None:
        return None
    try:
        found = entry.load()
    except Exception as problem:
        raise ParameterError(
            f"Method '{name}' is registered by another package, but cannot be loaded: {type(problem).__name__}. "
            "Hint: install that package again, or remove it."
        ) from None
    if isinstance(found, Method) and found.name != name:
        raise ParameterError(f"Method '{name}' is registered under another name than its own, '{found.name}'.")
    return method_of(found, name=name)
