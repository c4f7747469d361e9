"""One run of a method on flows, for comparisons and studies: how it ended, how long it took, what it made."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.anonymization import anonymize
from flowveil.errors import FlowveilError, InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee, check_max_suppressed
from flowveil.methods import Method, find_method, k_methods
from flowveil.release.confirmation import SmallKWarning

if TYPE_CHECKING:
    from flowveil.release.release import Release

#: How a run may end by itself. Only the first has a release.
DONE, INFEASIBLE, FAILED = "done", "infeasible", "failed"
#: Flows of the run that comes before a measured one.
WARM_UP_FLOWS = 50


@dataclass(frozen=True)
class Attempt:
    """How a run ended.

    Attributes:
        status: ``done``, ``infeasible`` or ``failed``.
        seconds: what the method and its recount took; None unless it is done.
        release: what it made; None unless it is done.
        error: the kind of the error; None where it is done.
        reason: why it is not done, without anything of the input; None where it is.
    """

    status: str
    seconds: float | None = None
    release: Release | None = None
    error: str | None = None
    reason: str | None = None


def check_runs(
    flows: Flows,
    methods: Sequence[Method],
    *,
    k: Sequence[int],
    protect: Sequence[Sequence[str]],
    max_suppressed: Sequence[float],
    time_limit: float,
    noisy: bool = False,
) -> None:
    """Refuse what cannot be run, before anything is.

    Args:
        flows: all that is there.
        methods, k, protect, max_suppressed, time_limit: what is asked for.
        noisy: whether methods that promise no k may be among them: their measures are against the true counts, and for
            the data holder alone.

    Raises:
        ParameterError: a name or number is not allowed.
        DataError: the data has no persons or weights that a protection needs.
    """
    for method in methods:
        method.planner(flows)
        if method.promises != "k" and not noisy:
            raise ParameterError(
                f"Method '{method.name}' cannot be compared: it promises no k, and its measures may not be published. "
                "Hint: run it alone; Release.metrics() has its measures for you."
            )
        _check_sendable(method)
    if not methods or not k or not protect:
        raise ParameterError("There is nothing to compare: name at least one method, one k and one protection.")
    for step in k:
        for units in protect:
            Guarantee.resolve(flows, k=step, protect=units)
    for share in max_suppressed:
        check_max_suppressed(share)
    if not (np.isfinite(time_limit) and time_limit > 0):
        raise ParameterError(f"The time limit must be above 0 seconds; found {time_limit!r}.")


def _check_sendable(method: Method) -> None:
    """Refuse a function that another process could not find.

    Raises:
        ParameterError: it cannot be pickled, or stands in the program that was started.
    """
    where = getattr(method.plan, "__module__", None)
    try:
        if where == "__main__":
            raise pickle.PicklingError
        pickle.dumps(method)
    except (pickle.PicklingError, AttributeError, TypeError):
        raise ParameterError(
            f"Method '{method.name}' cannot be run in a process of its own: its function must stand in a module that "
            "can be imported. Hint: move it into a file and import it from there; anonymize takes it as it is."
        ) from None


def methods_of(names: Any, *, same_zones: bool = False) -> list[Method]:
    """The methods that are named, separated by commas or in a sequence; ``all`` and None are those that keep a k.

    A function or a `Method` may stand for a name, alone or among names.

    Args:
        names: the names.
        same_zones: whether all are only those that can give both ends the same zones.

    Raises:
        ParameterError: one is not known, or two have the same name.
    """
    if names is None or names == "all":
        names = [name for name in k_methods() if not same_zones or find_method(name).same_zones_plan is not None]
    parts = listed(names) if isinstance(names, str) else names if isinstance(names, Sequence) else [names]
    chosen: dict[str, Method] = {}
    for method in map(find_method, parts):
        if chosen.setdefault(method.name, method) != method:
            raise ParameterError(
                f"Two different methods are called '{method.name}'. Hint: Method('another-name', ...)."
            )
    return list(chosen.values())


def listed(names: str | Sequence[str], separator: str = ",") -> list[str]:
    """The names in a text, or in a sequence."""
    parts = names.split(separator) if isinstance(names, str) else names
    return [part.strip() for part in parts if part.strip()]


def on_tree(method: Method, hierarchy: str | None) -> dict[str, str]:
    """What to ask of a method where a tree is asked of all: nothing of those that work on no tree."""
    return {} if hierarchy is None or method.hierarchy is None else {"hierarchy": hierarchy}


def attempt(flows: Flows, asked: Mapping[str, Any]) -> Attempt:
    """Anonymise, whatever happens."""
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallKWarning)
            # Nothing that is tried here is published.
            confirmed = {"allow_small_k": True, "population_only": True} if keeps_k(asked) else {}
            release = anonymize(flows, **{**confirmed, **asked})
    except Exception as problem:
        error = type(problem).__name__
        # The message of a foreign error may quote the input: name its kind and nothing else.
        reason = str(problem) if isinstance(problem, FlowveilError) else f"unexpected {error}"
        status = INFEASIBLE if isinstance(problem, InfeasibleError) else FAILED
        return Attempt(status, error=error, reason=reason)
    return Attempt(DONE, time.perf_counter() - begun, release)


def keeps_k(asked: Mapping[str, Any]) -> bool:
    """Whether what is asked for is a method that keeps a k; to others thresholds mean nothing."""
    return find_method(asked["method"]).promises == "k"


def exact_error(release: Release, basis: str) -> float:
    """The mean generalisation error with all its digits, and never withheld: what methods are compared by."""
    plan, cells = release.plan, release.cells
    size = plan.origin_zones.size[cells.origin].astype(np.float64) + plan.destination_zones.size[cells.destination]
    return float(np.average(size, weights=cells.volume(basis)))


def warm_up(flows: Flows, asked: Mapping[str, Any]) -> None:
    """Run the same on a few flows: what is imported or compiled at the first call costs no measured time.

    What goes wrong with a few flows says nothing about all of them.
    """
    cells = flows.select(np.arange(len(flows)) < WARM_UP_FLOWS)
    small = Flows(
        cells.origin,
        cells.destination,
        cells.trips,
        people=cells.people,
        **cells.added(),
        origins=flows.origins,
        destinations=flows.destinations,
        intake=flows.intake,
        whole_map=flows.whole_map,
        times=flows.times,
        time=None if flows.time is None else flows.time[: len(cells)],
    )
    attempt(small, {**asked, "k": 2} if keeps_k(asked) else asked)
