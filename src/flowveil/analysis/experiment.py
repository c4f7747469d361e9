"""Settings, tasks and the runner of comparisons and studies.

One method on one set of flows, in time. Private.
"""

from __future__ import annotations

import math
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.analysis.areas import area_accuracy, default_levels, main_level, planner_values
from flowveil.analysis.papers import READINGS, TREES, Preset
from flowveil.analysis.random_groups import random_groups, random_label
from flowveil.core.errors import FlowveilError, InfeasibleError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import UNITS, Guarantee, SmallKWarning, check_max_suppressed, confirmed
from flowveil.methods import Method, find_method, k_methods
from flowveil.published.tables import overview
from flowveil.publishing.anonymization import anonymize
from flowveil.system import workers
from flowveil.zoning.restriction import over_own_tiles, refined

Value = float | int | None
#: Measures by name.
Values = Mapping[str, Value]

#: Status of a run. Only the first has a release.
DONE, INFEASIBLE, FAILED, TIMED_OUT = "done", "infeasible", "failed", "timed out"
#: Flows of the run that precedes a measured one.
WARM_UP_FLOWS = 50


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """What a comparison or a study runs.

    As chosen, None takes the default or the value of the preset.
    """

    methods: Any = (
        None  # names, methods, or ``all``: those that guarantee a k. Resolved, methods by name
    )
    k: Any = None  # one or, for a comparison, several. Resolved, a tuple
    # each a unit, units joined by ``+``, or a sequence of units. Resolved, tuples of units
    protections: Any = None
    k_population: float | None = (
        None  # threshold of the population; by default k times the mean weight of a trip
    )
    population_only: bool = (
        False  # confirms a protection of the population alone where persons are known
    )
    max_suppressed: Any = None  # share that may be suppressed; 0.1 by default
    limits: Mapping[str, float] = field(
        default_factory=dict
    )  # the same by method, where it differs
    options: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # by method. A ``v_target`` is in trips
    hierarchy: str | None = (
        None  # ``h3`` or ``halves`` for all methods on trees; by default that of each method
    )
    time_limit: float = 300.0  # seconds that one run may take
    epsilon: float | Sequence[float] = ()  # ε of methods that add noise; comparisons only
    preset: Any = (
        None  # the settings of a paper, by name or resolved; studies only, like all that follow
    )
    trees: str | None = (
        None  # ``common``: segments use the trees of the whole data set; ``own``: of their tiles
    )
    reading: str | None = (
        None  # ``ours`` or ``authors``: how measures are defined, see `papers.READINGS`
    )
    published: str | None = (
        None  # the data set of the paper that a study of matrices is compared with
    )
    fewest_trips: int | None = None  # skips time steps with fewer trips
    random_groups: int = 0  # splits into random groups of the sizes of segments
    sample: int | None = None  # number of time steps to draw; the same ones every time

    def resolve(
        self,
        flows: Flows,
        methods: Sequence[Method],
        *,
        paper: Preset,
        protections: Sequence[str],
        noisy: Sequence[Method] = (),
    ) -> Settings:
        """Returns the complete settings: what was chosen, then those of a paper, then defaults.

        ``protections`` are those of a caller who names none; ``noisy`` are the methods of a
        comparison by ε. Raises ParameterError for a wrong name or number, DataError if the data
        lack the persons or weights of a protection.
        """
        whole = flows.whole
        chosen = {method.name: method for method in (*methods, *noisy)}
        for name, options in self.options.items():
            (chosen.get(name) or find_method(name)).check_options(options)
        k = paper.k if self.k is None else self.k
        units = self.protections or protections
        complete = replace(
            self,
            methods={method.name: method for method in methods},
            protections=tuple(
                tuple(listed(one, "+")) for one in ([units] if isinstance(units, str) else units)
            ),
            k=tuple(sorted({k} if isinstance(k, int) else set(k))),
            max_suppressed=(
                paper.max_suppressed if self.max_suppressed is None else self.max_suppressed
            ),
            limits={**paper.limits, **self.limits},
            trees=self.trees or paper.trees,
            reading=self.reading or "ours",
        )
        if methods or not noisy:
            # Only protections that the caller names need a confirmation; those of a paper are its
            # subject.
            complete.check(whole, confirm=self.protections is not None and self.preset is None)
        return complete

    def check(self, flows: Flows, *, confirm: bool) -> None:
        """Refuses what these flows do not allow.

        ``confirm``: also the population alone where persons are known.
        """
        for allowed, chosen, name in (
            (TREES, self.trees, "trees"),
            (READINGS, self.reading, "reading"),
        ):
            if chosen not in allowed:
                raise ParameterError(f"{name} must be {' or '.join(allowed)}; found {chosen!r}.")
        for method in self.methods.values():
            method.planner(flows)
            _check_sendable(method)
        if not self.methods or not self.k or not self.protections:
            raise ParameterError(
                "There is nothing to compare: name at least one method, one k and one protection."
            )
        for name in (*self.limits, *self.options):
            find_method(self.methods.get(name, name))
        guarantees = [
            Guarantee.resolve(flows, k=k, protect=units)
            for k in self.k
            for units in self.protections
        ]
        for share in (self.max_suppressed, *self.limits.values()):
            check_max_suppressed(share)
        if not isinstance(self.random_groups, int) or not 0 <= self.random_groups <= 1000:
            raise ParameterError(
                f"random_groups must be a number from 0 to 1000; found {self.random_groups!r}."
            )
        for name, number in (
            ("k_population", self.k_population),
            ("The time limit in seconds", self.time_limit),
        ):
            if number is not None and not (math.isfinite(number) and number > 0):
                raise ParameterError(f"{name} must be above 0; found {number!r}.")
        # A tree that cannot be refined is refused before any run.
        refined(flows, self.hierarchy)
        for guarantee in guarantees if confirm else ():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SmallKWarning)
                confirmed(
                    guarantee, flows, allow_small_k=True, population_only=self.population_only
                )

    def limit_of(self, method: str) -> float:
        """Returns the share that a method may suppress."""
        return float(self.limits.get(method, self.max_suppressed))

    def arguments(
        self, method: Method, k: int, protect: Sequence[str], whole: Flows
    ) -> dict[str, Any]:
        """Returns the arguments of `anonymize` for one run.

        The whole data set decides the population's threshold.
        """
        options = dict(self.options.get(method.name, {}))
        if method.counts == "noisy":
            return {"method": method, **options}
        given: dict[str, Any] = {"method": method, "k": k, "protect": tuple(protect)}
        given |= {"max_suppressed": self.limit_of(method.name), **on_tree(method, self.hierarchy)}
        if "population" in protect:
            usual = UNITS["population"].threshold(whole, k)
            given["k_population"] = usual if self.k_population is None else self.k_population
            if isinstance(options.get("v_target"), int | float):
                # In trips, like k: multiplied by the mean weight of a trip.
                options["v_target"] = given["k_population"] / k * options["v_target"]
        return given | options


def _check_sendable(method: Method) -> None:
    """Refuse a function that a worker process cannot import."""
    try:
        if getattr(method.plan, "__module__", None) == "__main__":
            raise pickle.PicklingError
        pickle.dumps(method)
    except (pickle.PicklingError, AttributeError, TypeError):
        raise ParameterError(
            f"Method '{method.name}' cannot run in a worker process: its function must be defined"
            " in a module that can be imported. Hint: move it into a file and import it from"
            " there; anonymize accepts any function."
        ) from None


def methods_of(names: Any, *, same_zones: bool = False) -> list[Method]:
    """Returns the named methods.

    ``all`` and None are those that guarantee a k, and with it the same zones.

    A function or a `Method` may replace a name. Raises ParameterError if one is unknown, or two
    have the same name.
    """
    if names is None or names == "all":
        names = [
            name
            for name in k_methods()
            if not same_zones or find_method(name).same_zones_plan is not None
        ]
    parts = (
        listed(names)
        if isinstance(names, str)
        else names
        if isinstance(names, Sequence)
        else [names]
    )
    chosen: dict[str, Method] = {}
    for method in map(find_method, parts):
        if chosen.setdefault(method.name, method) != method:
            raise ParameterError(
                f"Two different methods are called '{method.name}'. Hint: Method('another-name',"
                " ...)."
            )
    return list(chosen.values())


def listed(names: str | Sequence[str], separator: str = ",") -> list[str]:
    """Returns the names in a text, or in a sequence, without blanks."""
    parts = names.split(separator) if isinstance(names, str) else names
    return [part.strip() for part in parts if part.strip()]


def on_tree(method: Method, hierarchy: str | None) -> dict[str, str]:
    """Returns the argument ``hierarchy`` for methods that use a tree."""
    return {} if hierarchy is None or method.hierarchy is None else {"hierarchy": hierarchy}


@dataclass(frozen=True)
class MeasuredRun:
    """One run and its result."""

    method: str
    k: int | None
    protect: tuple[str, ...]
    status: str  # ``done``, ``infeasible``, ``timed out`` or ``failed``
    reason: str | None = None  # why the run has no release. Contains nothing of the input
    seconds: float | None = (
        None  # of the method and its recount, without starting and compiling; None without release
    )
    basis: str = (
        "trips"  # what the volume counts: trips, or weight where the population is protected
    )
    # Exact measures by basis, the planner's errors first. None where a measure is unknown.
    by_basis: Mapping[str, Values] = field(default_factory=dict)
    # The tables that would be published; None if they were not kept.
    flows: pa.Table | None = field(default=None, repr=False)
    zones: pa.Table | None = field(default=None, repr=False)
    homogeneous: bool = True  # zones never overlap
    time_weight: float | None = None  # where time is folded, how many tiles an hour is worth
    epsilon: float | None = None  # of a method that adds noise; it has no k
    by: str | None = None  # attribute and value of the segment; None for the whole data set
    segment: str | None = None
    notes: Values = field(default_factory=dict)  # further numbers of the plan

    @property
    def measures(self) -> Values:
        """The measures on the basis of the guarantee."""
        return self.by_basis.get(self.basis, {})

    @property
    def name(self) -> str:
        """The method and, where time is folded, the weight of an hour."""
        return (
            self.method
            if self.time_weight is None
            else f"{self.method}, 1 h = {self.time_weight:g} tiles"
        )

    @property
    def guarantee(self) -> str:
        """The guarantee in a few words."""
        if self.epsilon is not None:
            return f"ε = {self.epsilon:g}" + (
                f" for each {self.protection}" if self.protect else ""
            )
        return f"k = {self.k} {self.protection}"

    @property
    def protection(self) -> str:
        """The protected units in one word."""
        return "+".join(self.protect)


@dataclass(frozen=True, eq=False)
class RunTask:
    """One run to make."""

    arguments: Mapping[str, Any]  # of `flowveil.anonymize`, the method included
    by: str | None = None  # attribute and value of the segment; None for the whole data set
    segment: str | None = None
    split: int | None = None  # a random group of this split, of the size of the segment
    frontier: str | None = (
        None  # compute the points of the frontier instead, on this tree or, with "", the method's
    )

    def to_run(self, status: str, reason: str | None = None) -> MeasuredRun:
        """Returns the run without measures."""
        given = self.arguments
        protect, names = given.get("protect", ()), ("time_weight", "epsilon")
        is_drawn = self.by is not None and self.split is not None
        further: dict[str, Any] = {name: given.get(name) for name in names} | {
            "by": random_label(str(self.by), int(self.split or 0)) if is_drawn else self.by,
            "segment": self.segment,
        }
        return MeasuredRun(given["method"].name, given.get("k"), protect, status, reason, **further)


@dataclass(frozen=True, eq=False)
class Source:
    """The flows that all tasks of an experiment run on.

    ``keep_tables``: runs keep what would be published.
    """

    flows: Flows
    trees: str = "common"
    reading: str = "ours"
    authors: bool = False  # whether runs have the authors' reading
    k_population: float | None = None  # the population's threshold of that reading
    keep_tables: bool = False

    def select(self, task: RunTask) -> Flows:
        """Returns the flows of a task."""
        if task.by is None:
            return self.flows.whole
        if task.split is not None:
            drawn = random_groups(self.flows, task.by, task.split)[str(task.segment)]
            return over_own_tiles(drawn) if self.trees == "own" else drawn
        at = self.flows.slice_columns.index(task.by)
        flows = self.flows.together(
            [m for m, key in enumerate(self.flows.slice_keys) if key[at] == task.segment]
        )
        return over_own_tiles(flows) if self.trees == "own" else flows


def execute(source: Source, task: RunTask) -> Any:
    """Make one run, or compute a frontier; called in a worker process."""
    if task.frontier is not None:
        from flowveil.methods.twincut import frontier

        flows, _ = find_method("twincut").on_hierarchy(source.select(task), task.frontier or None)
        guarantee = Guarantee.resolve(
            flows, k=task.arguments["k"], protect=task.arguments["protect"]
        )
        return frontier(*guarantee.to_fixed_point(guarantee.prepare(flows)), objective="error")
    flows, begun = source.select(task), time.perf_counter()
    release = attempt(flows, task.arguments)
    seconds = time.perf_counter() - begun
    if isinstance(release, FlowveilError):
        return task.to_run(
            INFEASIBLE if isinstance(release, InfeasibleError) else FAILED, str(release)
        )
    noisy = release.facets.is_noisy
    measures = exact_measures(release)
    if source.authors and not noisy:
        from flowveil.analysis.papers import authors_measures

        # Next to our reading, or instead of it.
        prefix = "" if source.reading == "authors" else "authors_"
        for basis, values in measures.items():
            theirs = authors_measures(release, basis, source.k_population)
            measures[basis] = {**values, **{prefix + name: v for name, v in theirs.items()}}
    run = task.to_run(DONE)
    run = replace(
        run,
        seconds=seconds,
        basis="trips" if noisy else release.guarantee.basis,
        by_basis=measures,
        homogeneous=release.plan.homogeneous,
        notes=_notes(release),
        protect=(release.guarantee.unit,) if noisy else run.protect,
    )
    if not source.keep_tables:
        return run
    folded = release.plan.folded
    table = release.flows if folded is None else overview(release.flows)
    return replace(run, flows=table, zones=release.zones)


def _notes(release: Any) -> dict[str, Value]:
    """Returns further numbers of a run: its ``v_target``, and the share that its limit is about."""
    notes: dict[str, Value] = {
        name: float(value) for name, value in release.plan.notes.items() if name == "v_target"
    }
    if release.facets.is_noisy:
        return notes
    suppressed = release.cell_of_flow < 0
    if release.method == "odkanon" and release.parameters.get("budget", "rows") == "rows":
        # The pre-filter of ODkAnon suppresses pairs of tiles.
        share = float(suppressed.mean())
    else:
        basis = release.guarantee.basis
        total = float(release.input.total(basis))
        share = 1 - float(release.cells.total(basis)) / total if total else 0.0
    return {**notes, "limited_share": share}


def prepare(source: Source, task: RunTask) -> None:
    """Run the same on a few flows, so that imports and compilation are not timed.

    Errors are ignored.
    """
    if task.frontier is not None:
        return
    flows = source.select(task)
    cells = flows.select(np.arange(len(flows)) < WARM_UP_FLOWS)
    shared = {
        name: getattr(flows, name)
        for name in ("origins", "destinations", "intake", "whole_map", "dimensions")
    }
    few = Flows.of_cells(cells, **shared, leaves=tuple(leaf[: len(cells)] for leaf in flows.leaves))
    attempt(few, {**task.arguments, "k": 2} if _guarantees_k(task.arguments) else task.arguments)


def run_tasks(
    source: Source,
    tasks: Sequence[RunTask],
    *,
    time_limit: float,
    progress: Callable[[float], None],
    n_workers: int = 1,
    fresh: bool = False,
) -> Iterator[tuple[int, Any]]:
    """Run tasks in worker processes; yields the number of each as it ends, and its result.

    A task that exceeds the time limit, or whose process ends, has the result ``task.to_run(status,
    reason)``. Times are most comparable with one worker. With ``fresh`` every task gets a new
    process, so that no task speeds up another.
    """
    how: dict[str, Any] = {
        "workers": n_workers,
        "time_limit": time_limit,
        "prepare": prepare,
        "fresh": fresh,
    }
    ended = {
        workers.LATE: (TIMED_OUT, f"stopped after {time_limit:,g} seconds"),
        workers.LOST: (
            FAILED,
            "the process did not start, or ended without a result; memory may have run out",
        ),
    }
    with closing(workers.run_tasks(execute, source, tasks, **how)) as running:
        for count, one in enumerate(running, 1):
            yield (
                one.number,
                (tasks[one.number].to_run(*ended[one.how]) if one.how in ended else one.result),
            )
            progress(count / len(tasks))


def attempt(flows: Flows, arguments: Mapping[str, Any]) -> Any:
    """Returns the release that `flowveil.anonymize` makes, or the FlowveilError.

    It quotes nothing of the input.

    Nothing is published, so nothing needs a confirmation.
    """
    confirmations = (
        {"allow_small_k": True, "population_only": True} if _guarantees_k(arguments) else {}
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallKWarning)
            return anonymize(flows, **{**confirmations, **arguments})
    except FlowveilError as problem:
        return problem
    except Exception as problem:
        # The message of a foreign error may quote the input: only its class is named.
        return FlowveilError(f"unexpected {type(problem).__name__}")


def _guarantees_k(arguments: Mapping[str, Any]) -> bool:
    return find_method(arguments["method"]).counts == "exact"


def planner_errors(release: Any, basis: str, districts: Any = None) -> dict[str, Value]:
    """Returns the planner's errors of a release between districts (a level, or a ZoneMap), or at
    the level of tables.

    Empty if they are unknown.
    """
    if districts is not None and not isinstance(districts, int):
        errors = area_accuracy(release, districts=districts, levels=(), basis=basis)[-1:]
    else:
        level = main_level(default_levels(release.input)) if districts is None else districts
        # Without a level: clusters of the map's dendrogram, if it has one.
        levels = None if level is None else [level]
        errors = area_accuracy(release, levels=levels, basis=basis)
    return {name: value for one in errors for name, value in planner_values(one).items()}


def exact_measures(release: Any) -> dict[str, dict[str, Value]]:
    """Returns all measures by basis, the planner's errors first, as numbers that JSON can hold."""

    def plain(value: Any) -> Value:
        number: Value = value.item() if isinstance(value, np.generic) else value
        return number if number is not None and np.isfinite(number) else None

    return {
        basis: {
            name: plain(value)
            for name, value in {**planner_errors(release, basis), **values}.items()
        }
        for basis, values in release.metrics().items()
    }
