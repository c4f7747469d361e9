"""Several methods, several k and several protections on the same input. Private.

Every run has a process to itself, so that it can be stopped, and its memory and time are its own. Measures are exact.
Where TwinCut is among the methods, the frontier of error against suppression is computed too.

Methods that add noise have no k. They run once for each ε, and are compared by what a reader gets of the flows between
areas (`flowveil.analysis.square_errors`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowveil.analysis.grid import Grid
from flowveil.analysis.pages.frontier import rounded_points
from flowveil.analysis.runs import attempt, exact_measures, run_all, warm_up
from flowveil.analysis.square_errors import usefulness
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.methods import find_method
from flowveil.progress import lines_every
from flowveil.published.slices import overview
from flowveil.times import TIME_COLUMNS


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
        measures: on that basis, exact; the planner's errors first. None where a measure is not known.
        flows, zones: what would be published; None where nothing would.
        homogeneous: whether its zones never overlap.
        epsilon: of a method that adds noise; it has no k then, and protects its unit.
        useful: what is left for a reader, by measure and size of the areas; exact, never published.
    """

    method: str
    k: int | None
    protect: tuple[str, ...]
    status: str
    reason: str | None = None
    seconds: float | None = None
    basis: str = "trips"
    measures: Mapping[str, float | int | None] = field(default_factory=dict)
    flows: pa.Table | None = None
    zones: pa.Table | None = None
    homogeneous: bool = True
    time_weight: float | None = None
    epsilon: float | None = None
    useful: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The method and, where time is folded, what an hour is worth."""
        return self.method if self.time_weight is None else f"{self.method}, 1 h = {self.time_weight:g} tiles"

    @property
    def promise(self) -> str:
        """What it promises, in a few words."""
        if self.epsilon is not None:
            return f"ε = {self.epsilon:g}" + (f" for each {self.protection}" if self.protect else "")
        return f"k = {self.k} {self.protection}"

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
        noisy: the runs of methods that add noise, by ε.
    """

    runs: tuple[Run, ...]
    time_limit: float
    max_suppressed: float
    frontiers: tuple[Frontier, ...] = ()
    noisy: tuple[Run, ...] = ()

    @property
    def table(self) -> pa.Table:
        """One row a run, with all digits: what comparison.csv has. Not for publication."""
        from flowveil.analysis.comparison_tables import to_table

        return to_table(self)

    def write(self, directory: str | PathLike[str]) -> Path:
        """Write comparison.csv, .md, .tex and .html into a folder that is new, empty or an earlier comparison."""
        from flowveil.analysis.comparison_tables import write_comparison

        return write_comparison(self, directory)

    def picture(self, path: str | PathLike[str], **style: Any) -> Path:
        """Draw the zones of all runs, of two runs over each other; see `flowveil.analysis.pages.comparison_pictures`.

        Not for publication: these are would-be releases of the same data.
        """
        from flowveil.analysis.comparison_tables import INTERNAL
        from flowveil.analysis.pages.comparison_pictures import Shown, draw_compared

        several = len({run.k for run in self.runs}) > 1
        shown = [
            Shown(f"{run.name}, {run.protection}" + (f", k = {run.k}" if several else ""), run.flows, run.zones)
            for run in self.runs
            if run.flows is not None and run.zones is not None
        ]
        return draw_compared(shown, path, caption=f"Not for publication: {INTERNAL}", **style)

    def _repr_html_(self) -> str:
        from flowveil.analysis.comparison_tables import to_html
        from flowveil.published.document import frame

        return frame(to_html(self))


def compare_flows(
    flows: Flows,
    *,
    methods: Any = "all",
    k: int | Sequence[int] = (5, 10, 20),
    protect: str | Sequence[str | Sequence[str]] | None = None,
    max_suppressed: float = 0.1,
    limits: Mapping[str, float] | None = None,
    time_limit: float = 300.0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    hierarchy: str | None = None,
    epsilon: float | Sequence[float] = (),
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Run every combination on the same flows; see `flowveil.compare`.

    Raises:
        ParameterError: a method, unit, option or number is wrong; nothing was run.
        DataError: the data has no persons or weights that a protection needs.
    """
    bounds: dict[str, Any] = {"max_suppressed": max_suppressed, "limits": limits or {}, "time_limit": time_limit}
    what: dict[str, Any] = {"k": k, "protect": protect, "epsilon": epsilon, "options": options or {}}
    grid = Grid.of(flows, methods=methods, hierarchy=hierarchy, **what, **bounds)
    progress = progress or lines_every("Comparing")
    how: dict[str, Any] = {"prepare": _prepare, "time_limit": time_limit, "progress": progress, "fresh": True}
    ended = dict(run_all(_work, flows, grid.tasks, **how))
    results = iter([ended[number] for number in range(len(grid.tasks))])
    runs, noisy = (tuple(_run(task, next(results)) for task in tasks) for tasks in (grid.runs, grid.noisy))
    points = [(sweep["k"], sweep["protect"], next(results)) for sweep in grid.sweeps]
    return Comparison(
        runs=runs,
        time_limit=float(time_limit),
        max_suppressed=max_suppressed,
        frontiers=tuple(Frontier(*one) for one in points if isinstance(one[-1], tuple) and one[-1]),
        noisy=noisy,
    )


# ---- one run -----------------------------------------------------------------------------------------------------


def _run(asked: Mapping[str, Any], result: Mapping[str, Any]) -> Run:
    """The run of a task."""
    named = {"method": asked["method"].name, **{name: asked.get(name) for name in ("k", "time_weight", "epsilon")}}
    return Run(**{**named, "protect": asked.get("protect", ()), **result})


def _prepare(flows: Flows, task: Mapping[str, Any]) -> None:
    """In a process: get ready for a task."""
    if "method" in task:
        warm_up(flows, {name: value for name, value in task.items() if name != "useful_in"})


def _work(flows: Flows, task: Mapping[str, Any]) -> Any:
    """In a process: a run, or the points of a frontier."""
    return _result(flows, task) if "method" in task else _points(flows, **task)


def _points(flows: Flows, *, k: int, protect: Sequence[str], hierarchy: str | None) -> tuple[tuple[float, float], ...]:
    from flowveil.methods.twincut import frontier

    flows, _ = find_method("twincut").on_hierarchy(flows, hierarchy)
    guarantee = Guarantee.resolve(flows, k=k, protect=protect)
    return rounded_points(frontier(*guarantee.to_fixed_point(guarantee.prepare(flows)), objective="error"))


def _result(flows: Flows, asked: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in asked.items() if name != "useful_in"}
    made = attempt(flows, own)
    release: Any = made.release
    if release is None:
        return {"status": made.status, "reason": made.reason}
    useful: dict[str, float] = {}
    if release.kind in ("plain", "noisy"):
        for size in usefulness(release, region=asked.get("useful_in")):
            useful |= size.to_dict()
    noisy = release.kind == "noisy"
    basis = "trips" if noisy else release.guarantee.basis
    return {
        "status": made.status,
        "seconds": made.seconds,
        "useful": useful,
        "flows": overview(release.flows, TIME_COLUMNS, None) if release.kind == "folded" else release.flows,
        "zones": release.zones,
        "homogeneous": release.plan.homogeneous,
        "basis": basis,
        "measures": exact_measures(release)[basis],
        **({"protect": (release.guarantee.unit,)} if noisy else {}),
    }
