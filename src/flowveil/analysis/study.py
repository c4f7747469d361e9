"""The experiments of the papers: segments x methods x protections x bases, or many matrices x methods. Private.

Every run is a task of a process with a time limit; one that passes it is killed and recorded as N/A, as in the papers.
Every result is stored in its own file as soon as it exists, named after everything that decides it, so an interrupted
study continues. Measures are exact.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from flowveil import __version__
from flowveil.analysis.presets import Preset
from flowveil.analysis.runs import DONE, attempt, exact_measures, run_all, warm_up
from flowveil.analysis.study_data import chosen_matrices, data_of
from flowveil.analysis.study_folder import RUNS, is_done, open_folder, store
from flowveil.analysis.study_setting import Setting
from flowveil.analysis.study_tables import write_study
from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy
from flowveil.progress import lines_every
from flowveil.slices import SlicedFlows
from flowveil.zoning.steps import over_own_tiles

#: Seconds a run may take; two hours, as in the papers.
TIME_LIMIT = 7200.0


@dataclass(frozen=True)
class Run:
    """One run of the grid.

    Attributes:
        by: the attribute that segments are made by; None for the whole data set.
        segment: its value; None for the whole data set.
        method: name of the method.
        protect: the protected units.
    """

    by: str | None
    segment: str | None
    method: str
    protect: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Study:
    """All results of a study.

    Attributes:
        rows: one for each run and basis: the run, ``status`` (``done``, ``timed out``, ``infeasible``, ``failed``),
            ``seconds``, and the measures, the planner's errors first.
        by: the attributes; the time where there is a matrix for each step.
        setting: what was run.
        time_limit: seconds that a run could take.
        every: the step of time, where there is a matrix for each.
        data: numbers of the data set.
    """

    rows: tuple[dict[str, Any], ...]
    by: tuple[str, ...]
    setting: Setting
    time_limit: float
    every: str | None = None
    data: Mapping[str, float] = field(default_factory=dict)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in order."""
        return tuple(self.setting.methods)

    @property
    def protections(self) -> tuple[tuple[str, ...], ...]:
        """The protections, in order."""
        return self.setting.protections

    @property
    def k(self) -> int:
        """The k."""
        return self.setting.k

    @property
    def preset(self) -> Preset | None:
        """The paper whose tables are made, if any."""
        return self.setting.preset


def run_study(
    flows: SlicedFlows,
    directory: str | PathLike[str],
    *,
    preset: str | None = None,
    methods: Any = None,
    protections: Sequence[str] | None = None,
    k: int | None = None,
    k_population: float | None = None,
    max_suppressed: float | None = None,
    limits: Mapping[str, float] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    trees: str | None = None,
    time_limit: float = TIME_LIMIT,
    hierarchy: str | None = None,
    fewest_trips: int | None = None,
    sample: int | None = None,
    workers: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Study:
    """Run the grid, or what is left of it, and write the tables.

    Args:
        flows: the flows by all attributes, or by the steps of time; what `flowveil.read_slices` returns.
        directory: where results go: a new folder, an empty one, or an earlier study of the same data, which is
            continued. Refused inside a release.
        preset: the set-up of a paper, see `flowveil.analysis.presets`; what is given besides goes before it.
        methods: names of methods, or methods of one's own; all that keep a k by default.
        protections: each a unit, or several joined by ``+`` (``trips+population``); by default trips and, where there
            are weights, the population.
        k: how many every cell must hide; 10 by default.
        k_population: threshold of the population; by default k times the mean weight of a trip.
        max_suppressed: share that may be suppressed; 0.1 by default.
        limits: the same by method, where it differs.
        options: options by method. A ``v_target`` is in trips, and like k taken times the mean weight of a trip where
            the population is protected.
        trees: ``common``: segments are over the trees of the whole data set, so their errors can be compared; ``own``:
            each is over the trees of its own tiles, as in the papers.
        time_limit: seconds that one run may take.
        hierarchy: ``h3`` or ``halves`` for all methods that work on a tree; by default what each one's page says.
        fewest_trips: leave out steps of time with fewer trips.
        sample: so many steps of time, drawn at random (the same ones every time).
        workers: processes that run side by side. Times are most comparable with one.
        progress: called with the share that is done.

    Returns:
        The results; the folder has them as ``results.parquet``, ``results.csv``, ``tables.md``, ``tables.tex`` and
        ``study.html``.

    Raises:
        ParameterError: a name or number is not allowed.
        DataError: the data has no persons or weights that a protection needs.
        OutputError: the folder cannot be used, or holds a study of other data.
    """
    what: dict[str, Any] = {"methods": methods, "protections": protections, "k": k, "options": options}
    what["k_population"] = k_population
    bounds: dict[str, Any] = {"max_suppressed": max_suppressed, "limits": limits, "time_limit": time_limit}
    over: dict[str, Any] = {"trees": trees, "hierarchy": hierarchy}
    setting = Setting.of(flows, preset=preset, **what, **bounds, **over)
    if workers < 1:
        raise ParameterError(f"workers must be at least 1; found {workers}.")
    steps = _steps(flows, setting.preset, fewest_trips, sample)
    studied = _fingerprint(flows)
    folder = open_folder(directory, studied)
    runs = _results(_Shared(flows, setting), steps, folder / RUNS, studied, time_limit, workers, progress)
    study = Study(
        rows=tuple(row for run, outcome in runs for row in _rows(run, outcome, setting)),
        by=flows.columns,
        setting=setting,
        time_limit=time_limit,
        every=None if flows.every is None else flows.every.name,
        data=data_of(flows, setting.k, steps),
    )
    write_study(study, folder)
    return study


def segment_flows(flows: SlicedFlows, by: str | None, value: str | None) -> Flows:
    """The flows of one segment, over the common hierarchies; of everybody where no attribute is named."""
    if by is None:
        return flows.whole
    at = flows.columns.index(by)
    return flows.together([m for m, key in enumerate(flows.keys) if key[at] == value])


# ---- the grid ----------------------------------------------------------------------------------------------


def _steps(flows: SlicedFlows, paper: Preset | None, fewest_trips: int | None, sample: int | None) -> tuple[str, ...]:
    """The steps of time that are run; none where the study is by attributes.

    Raises:
        ParameterError: times and attributes are mixed, or what chooses among steps is given where there are none.
    """
    if flows.every is None:
        if fewest_trips is not None or sample is not None:
            raise ParameterError("fewest_trips and sample choose among steps of time. Hint: give --time and --every.")
        return ()
    if len(flows.columns) > 1:
        raise ParameterError("A study is by attributes or by steps of time, not by both. Hint: leave --by out.")
    usual = 0 if paper is None else paper.fewest_trips
    return chosen_matrices(flows, fewest_trips=usual if fewest_trips is None else fewest_trips, sample=sample)


def _segments(flows: SlicedFlows, steps: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """The whole, then the values of each attribute; or the steps of time."""
    if steps:
        return [(flows.columns[0], step) for step in steps]
    named: list[tuple[str | None, str | None]] = [(None, None)]
    for at, by in enumerate(flows.columns):
        named += [(by, value) for value in sorted({key[at] for key in flows.keys})]
    return named


def _results(
    shared: _Shared,
    steps: Sequence[str],
    folder: Path,
    studied: str,
    time_limit: float,
    workers: int,
    progress: Callable[[float], None] | None,
) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Every run of the grid with what came of it; those that are not stored yet are run first."""
    flows, setting = shared.flows, shared.setting
    grid = [
        Run(by, value, name, protect)
        for by, value in _segments(flows, steps)
        for name in setting.methods
        for protect in setting.protections
    ]
    of_all = {"input": studied, "version": __version__}
    paths = [folder / f"{_name(run, {**setting.named(run.method), **of_all})}.json" for run in grid]
    left = [i for i, path in enumerate(paths) if not is_done(path, time_limit)]
    told, before = progress or lines_every("Studying"), len(paths) - len(left)

    def tell(share: float) -> None:
        told((before + share * len(left)) / len(paths))

    how: dict[str, Any] = {"prepare": _prepare, "time_limit": time_limit, "progress": tell, "n_workers": workers}
    for number, result in run_all(_outcome, shared, [grid[i] for i in left], **how):
        store(paths[left[number]], {**result, "limit": time_limit})
    for run, path in zip(grid, paths, strict=True):
        yield run, json.loads(path.read_text("utf-8"))


def _fingerprint(flows: SlicedFlows) -> str:
    """A hash of all that decides a result: segments, flows, trees, and where their nodes lie."""
    found = hashlib.sha256(repr((flows.columns, flows.keys)).encode())
    for tree in (flows.origins, flows.destinations):
        found.update(repr((tree.kind, tree.base_level, tree.n_nodes)).encode())
        found.update(np.ascontiguousarray(tree.parent).tobytes())
        found.update("\n".join(map(str, tree.code.tolist())).encode())
        _add_places(found, tree)
    for part in flows.slices:
        for column in (part.origin, part.destination, part.trips, *part.added().values()):
            if column is not None:
                found.update(np.ascontiguousarray(column).tobytes())
        if part.people is not None:
            found.update(part.people.cell.tobytes() + part.people.person.tobytes())
    return found.hexdigest()


def _add_places(found: Any, tree: Hierarchy) -> None:
    """Add where the nodes lie: centres decide distances and boxes, areas the grid of boxes. H3 codes say both."""
    if tree.geography is None or tree.kind == "h3":
        return
    centers = tree.geography.centers(np.arange(tree.n_nodes, dtype=np.int32))
    for places in (*centers, tree.geography.areas_km2(tree.leaf_node)):
        found.update(np.ascontiguousarray(places, dtype=np.float64).tobytes())


def _name(run: Run, setting: dict[str, Any]) -> str:
    what = {"by": run.by, "segment": run.segment, "method": run.method, "protect": run.protect, **setting}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


def _rows(run: Run, outcome: dict[str, Any], setting: Setting) -> Iterator[dict[str, Any]]:
    for basis in ("trips", "weight"):
        measures = outcome.get("measures", {})
        if outcome["status"] == DONE and basis not in measures:
            continue
        yield {
            "by": run.by,
            "segment": run.segment,
            "method": run.method,
            "protect": "+".join(run.protect),
            "basis": basis,
            "status": outcome["status"],
            "seconds": outcome.get("seconds"),
            "reason": outcome.get("reason"),
            "limit": setting.share_of(run.method) if setting.methods[run.method].promises == "k" else None,
            **outcome.get("notes", {}),
            **measures.get(basis, {}),
        }


# ---- one run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Shared:
    """What every run of a study needs."""

    flows: SlicedFlows
    setting: Setting


def _prepare(shared: _Shared, run: Run) -> None:
    """In a process: get ready for a run."""
    warm_up(*_asked(shared, run))


def _outcome(shared: _Shared, run: Run) -> dict[str, Any]:
    """In a process: one run."""
    made = attempt(*_asked(shared, run))
    if made.release is None:
        return {"status": made.status, "reason": made.error}
    return {
        "status": made.status,
        "seconds": made.seconds,
        "measures": exact_measures(made.release),
        "notes": {name: float(value) for name, value in made.release.plan.notes.items() if name == "v_target"},
    }


def _asked(shared: _Shared, run: Run) -> tuple[Flows, dict[str, Any]]:
    """The flows of a run, and what is asked of them."""
    flows, setting = segment_flows(shared.flows, run.by, run.segment), shared.setting
    if setting.trees == "own" and run.by is not None:
        flows = over_own_tiles(flows)
    return flows, setting.asked(shared.flows.whole, run.method, run.protect)
