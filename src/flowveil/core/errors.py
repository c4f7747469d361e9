"""Exceptions of flowveil, and the exit code of each.

Messages have one form: what is wrong, what was found, what is allowed, a hint. They never contain a
person or a value below the guarantee: an error is printed, logged and pasted into tickets.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches


class FlowveilError(Exception):
    """Base of all errors flowveil raises on purpose.

    ``exit_code`` is what the command line returns.
    """

    exit_code = 1


class ParameterError(FlowveilError, ValueError):
    """A parameter is out of its range or names something that does not exist."""

    exit_code = 2


class DataError(FlowveilError, ValueError):
    """The input cannot be used. One message lists all problems found."""

    exit_code = 2


class HierarchyError(DataError):
    """The tree over the tiles is not a tree: a cycle, two roots, an orphan."""


class OutputError(FlowveilError, OSError):
    """The output cannot be written. What was there before is untouched."""

    exit_code = 2


class InfeasibleError(FlowveilError):
    """No release can meet the guarantee.

    Attributes:
        best: what could be reached instead, by unit (only values that are safe to show to the data
            holder).
    """

    exit_code = 3

    def __init__(self, message: str, *, best: Mapping[str, float] | None = None) -> None:
        super().__init__(message)
        self.best = dict(best or {})


class MissingExtraError(FlowveilError, ImportError):
    """An optional library is needed; the message names the extra that installs it."""

    exit_code = 2


class GuaranteeError(FlowveilError):
    """A recount contradicts the release. Nothing was written.

    Attributes:
        findings: one plain line for each contradiction.
    """

    exit_code = 3

    def __init__(self, message: str, *, findings: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


#: How options are called in messages: as arguments of Python, or as flags once the command line has
#: said so.
_flags: ContextVar[bool] = ContextVar("flags", default=False)
#: Paths of the settings that the command line takes with ``--set`` only, by name; filled by
#: `flowveil.request.request`.
SET_ONLY: dict[str, str] = {}
#: Flags of settings that are not made of their names; filled like `SET_ONLY`.
FLAGS: dict[str, str] = {}


@contextmanager
def speaking_of_flags() -> Iterator[None]:
    """Call options by their flags in messages, as the command line does."""
    before = _flags.set(True)
    try:
        yield
    finally:
        _flags.reset(before)


def option(name: str, *, flag: str | None = None) -> str:
    """Returns what an option is called in the interface that is used.

    An argument of Python, or a flag.
    """
    if not _flags.get():
        return name
    usual = FLAGS.get(name, f"--{name.replace('_', '-')}")
    return f"--set {SET_ONLY[name]}" if name in SET_ONLY else flag or usual


def with_value(name: str, value: str | float) -> str:
    """How an option is given a value in the interface that is used.

    ``--person id`` or ``person='id'``.
    """
    if not _flags.get():
        return f"{name}={value!r}"
    return f"{option(name)}{'=' if name in SET_ONLY else ' '}{shlex.quote(str(value))}"


def switched_on(name: str) -> str:
    """How a switch is set in the interface that is used.

    ``--same-zones`` or ``same_zones=True``.
    """
    return (
        f"{option(name)}{'=true' if name in SET_ONLY else ''}" if _flags.get() else f"{name}=True"
    )


def without_value(name: str) -> str:
    """Returns how to give an option no value: ``--no-person`` or ``person=''``."""
    return f"--no-{name.replace('_', '-')}" if _flags.get() else f"{name}=''"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known name, or an empty string."""
    by_folded = {k.casefold(): k for k in known}
    near = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return f" Did you mean '{by_folded[near[0]]}'?" if near else ""
