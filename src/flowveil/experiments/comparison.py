"""Several methods, several k and several protections on the same input, side by side.

Every run is a process of its own, so that one that takes too long can be stopped, one that uses too much memory
takes nobody along, and times are not mixed up. A run hands back what it would publish and nothing else: measures as
`flowveil.report.summary` publishes them, the matrix and its zones. Even so a comparison is for the data holder:
releases of the same data with different k can be subtracted from each other. Where TwinCut is among the methods, the
frontier of error against suppression is drawn beside them, rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowveil import workers
from flowveil.errors import InfeasibleError
from flowveil.experiments.attempts import FAILED, attempt, check_runs, exact_error, listed, methods_of, on_tree, warm_up
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee, default_units
from flowveil.methods import Method, find_method
from flowveil.methods.paircut import usual_time_weight
from flowveil.progress import lines_every
from flowveil.report.frontier import rounded_points
from flowveil.report.slices import overview
from flowveil.report.summary import summarize
from flowveil.times import TIME_COLUMNS
from flowveil.zoning.refinement import refined

#: How a run may end besides those of an attempt.
TIMED_OUT = "timed out"
#: Where time is folded: what an hour is worth, in terms of what it is worth by default.
WEIGHTS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)


@dataclass(frozen=True)
class Run:
    """One method with one k and one protection.

    Attributes:
        method, k, protect: what was run.
        time_weight: where time is folded, how many tiles an hour is worth; else None.
        status: ``done``, ``infeasible``, ``timed out`` or ``failed``.
        reason: why it is not done; None where it is.
        seconds: what the method and its recount took, without starting a process and compiling; None where it is not
            done.
        basis: what its volume counts: trips, or weight where the population is protected.
        measures: as published, on that basis; None where a measure is withheld or not known.
        withheld: names of the measures that are withheld.
        flows, zones: what would be published; None where nothing would.
        homogeneous: whether its zones never overlap.
    """

    method: str
    k: int
    protect: tuple[str, ...]
    status: str
    reason: str | None = None
    seconds: float | None = None
    basis: str = "trips"
    measures: Mapping[str, float | int | None] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    flows: pa.Table | None = None
    zones: pa.Table | None = None
    homogeneous: bool = True
    time_weight: float | None = None

    @property
    def name(self) -> str:
        """The method and, where time is folded, what an hour is worth."""
        return self.method if self.time_weight is None else f"{self.method}, 1 h = {self.time_weight:g} tiles"

    @property
    def protection(self) -> str:
        """The protected units in one word."""
        return "+".join(self.protect)

    def __repr__(self) -> str:
        return f"<Run {self.method}, k = {self.k}, {self.protection}: {self.status}>"


@dataclass(frozen=True)
class Frontier:
    """How fine homogeneous zones can be for every share suppressed, for one k and one protection.

    Attributes:
        k, protect: what was asked.
        points: share suppressed, and mean generalisation error, both rounded; shares rise.
    """

    k: int
    protect: tuple[str, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Comparison:
    """All runs, in the order protection, k, method.

    Attributes:
        runs: the runs.
        time_limit: seconds that each could take, once its process was ready.
        max_suppressed: share that each could suppress.
        frontiers: where TwinCut is among the methods, one for each protection and k that has any.
    """

    runs: tuple[Run, ...]
    time_limit: float
    max_suppressed: float
    frontiers: tuple[Frontier, ...] = ()

    @property
    def table(self) -> pa.Table:
        """One row a run, with all digits: what comparison.csv has. Not for publication."""
        from flowveil.experiments.comparison_tables import to_table

        return to_table(self)

    def write(self, directory: str | PathLike[str]) -> Path:
        """Write comparison.csv, .md, .tex and .html into a folder that is new, empty or an earlier comparison."""
        from flowveil.experiments.comparison_tables import write_comparison

        return write_comparison(self, directory)

    def _repr_html_(self) -> str:
        from flowveil.experiments.comparison_tables import to_html
        from flowveil.report.document import frame

        return frame(to_html(self))


def compare_flows(
    flows: Flows,
    *,
    methods: Any = "all",
    k: int | Sequence[int] = (5, 10, 20),
    protect: str | Sequence[str | Sequence[str]] | None = None,
    max_suppressed: float = 0.1,
    time_limit: float = 300.0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    hierarchy: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Run every combination on the same flows; see `flowveil.compare`.

    Raises:
        ParameterError: a method, unit, option or number is wrong; nothing was run.
        DataError: the data has no persons or weights that a protection needs.
    """
    wanted_methods = methods_of(methods, same_zones=flows.same_zones)
    if methods == "all" and flows.times is not None:
        wanted_methods = [method for method in wanted_methods if method.folds]
    for method in wanted_methods:
        method.check_times(flows)
    steps = sorted({k} if isinstance(k, int) else set(k))
    wanted = default_units(flows) if protect is None else protect
    protections = [tuple(listed(p, "+")) for p in ([wanted] if isinstance(wanted, str) else wanted)]
    of_name = {method.name: method for method in wanted_methods}
    options = options or {}
    for name, chosen in options.items():
        (of_name.get(name) or find_method(name)).check_options(chosen)
    limits = {"max_suppressed": max_suppressed, "time_limit": time_limit}
    check_runs(flows, wanted_methods, k=steps, protect=protections, **limits)
    # What cannot be refined is refused before anything is run.
    refined(flows, hierarchy)

    def of_method(method: Method) -> Flows:
        """The flows on the tree that the method works on, where what an hour is worth is asked of them."""
        return flows if flows.times is None else method.on_hierarchy(flows, hierarchy)[0]

    asked = [
        {
            "method": m,
            "k": step,
            "protect": units,
            "max_suppressed": max_suppressed,
            **on_tree(m, hierarchy),
            **own,
        }
        for units in protections
        for step in steps
        for m in wanted_methods
        for own in _weighed(of_method(m), step, units, max_suppressed, options.get(m.name, {}))
    ]
    swept = [{"k": a["k"], "protect": a["protect"]} for a in asked if a["method"].name == "twincut"]
    tasks: list[dict[str, Any]] = [*asked, *({**s, "hierarchy": hierarchy} for s in swept)]
    progress = progress or lines_every("Comparing")
    ended = []
    # One at a time, each in a process of its own: what one leaves behind would make another faster.
    running = workers.run_tasks(_work, flows, tasks, time_limit=time_limit, prepare=_prepare, fresh=True, in_order=True)
    with closing(running):
        for one in running:
            ended.append(one)
            progress(len(ended) / len(tasks))
    runs, sweeps = ended[: len(asked)], ended[len(asked) :]
    return Comparison(
        runs=tuple(_run(task, one, time_limit) for task, one in zip(asked, runs, strict=True)),
        time_limit=float(time_limit),
        max_suppressed=max_suppressed,
        frontiers=tuple(Frontier(**s, points=one.result) for s, one in zip(swept, sweeps, strict=True) if one.result),
    )


def _weighed(
    flows: Flows, k: int, protect: Sequence[str], max_suppressed: float, options: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The options of a method; where time is folded and nobody says what an hour is worth, with several weights.

    They show what finer places cost in wider times: the weight that a run takes by itself on the tree of these flows,
    and parts and multiples of it.
    """
    if flows.times is None or options.get("time_weight") is not None:
        return [options]
    guarantee = Guarantee.resolve(flows, k=k, protect=protect)
    try:
        own = usual_time_weight(*guarantee.in_millionths(guarantee.prepare(flows)), max_suppressed)
    except InfeasibleError:
        return [options]
    return [{**options, "time_weight": own * factor} for factor in WEIGHTS]


# ---- one run -----------------------------------------------------------------------------------------------------


def _run(asked: Mapping[str, Any], ended: workers.Ended, time_limit: float) -> Run:
    """What came of a task."""
    named = {"method": asked["method"].name, **{name: asked.get(name) for name in ("k", "protect", "time_weight")}}
    if ended.how == workers.LATE:
        return Run(**named, status=TIMED_OUT, reason=f"stopped after {time_limit:,g} seconds")
    if ended.how == workers.LOST:
        reason = "the process did not start, or ended without a result; memory may have run out"
        return Run(**named, status=FAILED, reason=reason)
    return Run(**named, **ended.result)


def _prepare(flows: Flows, task: Mapping[str, Any]) -> None:
    """In a process: get ready for a task."""
    if "method" in task:
        warm_up(flows, task)


def _work(flows: Flows, task: Mapping[str, Any]) -> Any:
    """In a process: a run, or the points of a frontier."""
    return _result(flows, task) if "method" in task else _points(flows, **task)


def _points(flows: Flows, *, k: int, protect: Sequence[str], hierarchy: str | None) -> tuple[tuple[float, float], ...]:
    from flowveil.methods.twincut import frontier

    flows, _ = find_method("twincut").on_hierarchy(flows, hierarchy)
    guarantee = Guarantee.resolve(flows, k=k, protect=protect)
    return rounded_points(frontier(*guarantee.in_millionths(guarantee.prepare(flows)), objective="error"))


def _result(flows: Flows, asked: Mapping[str, Any]) -> dict[str, Any]:
    made = attempt(flows, asked)
    release = made.release
    if release is None:
        return {"status": made.status, "reason": made.reason}
    report = summarize(release)
    flows_table = release.flows
    if release.kind == "folded":
        flows_table = overview(flows_table, TIME_COLUMNS, None)
    basis, error = release.guarantee.basis, "mean_generalization_error"
    return {
        "status": made.status,
        "seconds": made.seconds,
        "basis": basis,
        # This page is for the data holder: the error by which methods are compared is on it whatever it reveals.
        "measures": {**report["measures"][basis], error: exact_error(release, basis)},
        "withheld": tuple(n for n in (report["withheld"] or {}).get("measures", {}).get(basis, ()) if n != error),
        "flows": flows_table,
        "zones": release.zones,
        "homogeneous": release.plan.homogeneous,
    }
