"""The runner of comparisons and studies: one run of a method in a process, how it ended, and its exact measures."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil import workers
from flowveil.analysis.areas import area_accuracy, default_levels, main_level
from flowveil.anonymization import anonymize
from flowveil.errors import FlowveilError, InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee, check_max_suppressed
from flowveil.methods import Method, find_method, k_methods
from flowveil.release.confirmation import SmallKWarning

if TYPE_CHECKING:
    from flowveil.release.release import Release

#: How a run may end. Only the first has a release; the last was stopped at the time limit.
DONE, INFEASIBLE, FAILED, TIMED_OUT = "done", "infeasible", "failed", "timed out"
#: The planner's errors, first in every table.
PLANNER = ("area_error", "production_error", "attraction_error", "trip_length_ratio", "accessibility_error")
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
) -> None:
    """Refuse what cannot be run, before anything is.

    Raises:
        ParameterError: a name or number is not allowed.
        DataError: the data has no persons or weights that a protection needs.
    """
    for method in methods:
        method.planner(flows)
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


def run_all(
    work: Callable[[Any, Any], Any],
    shared: Any,
    tasks: Sequence[Any],
    *,
    prepare: Callable[[Any, Any], None],
    time_limit: float,
    progress: Callable[[float], None],
    n_workers: int = 1,
    fresh: bool = False,
) -> Iterator[tuple[int, Any]]:
    """Run tasks in processes; yield the number of each as it ends, and its result.

    A task that passes the time limit, or whose process ends, has the result ``{"status": ..., "reason": ...}``.

    Args:
        work: ``work(shared, task)``, a function of a module.
        shared: what all tasks need.
        tasks: the tasks.
        prepare: run before each task, outside its time.
        time_limit: seconds that a task may take.
        progress: called with the share of the tasks that ended.
        n_workers: processes at once. Times are most comparable with one.
        fresh: whether every task gets a new process, so that no task makes another faster.
    """
    how: dict[str, Any] = {"workers": n_workers, "time_limit": time_limit, "prepare": prepare, "fresh": fresh}
    ended = {
        workers.LATE: {"status": TIMED_OUT, "reason": f"stopped after {time_limit:,g} seconds"},
        workers.LOST: {
            "status": FAILED,
            "reason": "the process did not start, or ended without a result; memory may have run out",
        },
    }
    with closing(workers.run_tasks(work, shared, tasks, **how)) as running:
        for count, one in enumerate(running, 1):
            yield one.number, ended.get(one.how, one.result)
            progress(count / len(tasks))


def exact_measures(release: Any) -> dict[str, dict[str, float | int | None]]:
    """All measures by basis, exact, the planner's errors at one level first (see `flowveil.analysis.areas`)."""
    measures: dict[str, dict[str, float | int | None]] = {}
    level = main_level(default_levels(release.input))
    for basis, values in release.metrics().items():
        found = [] if level is None else area_accuracy(release, levels=[level], basis=basis)
        planner = {name: getattr(one, name) for one in found for name in PLANNER}
        measures[basis] = {name: _plain(value) for name, value in {**planner, **values}.items()}
    return measures


def _plain(value: Any) -> float | int | None:
    """A number that JSON can hold; None for others."""
    if value is None:
        return None
    number: float | int = value.item() if isinstance(value, np.generic) else value
    return number if np.isfinite(number) else None


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
