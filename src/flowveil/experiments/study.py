"""The experiment of the ODkAnon papers: segments x methods x protections x bases, each run bounded in time.

Every run is a process's task with a deadline; one that passes it is killed and recorded as N/A, as in the papers. Every
result is a file of its own as soon as it is there, named after everything that decides it, so an interrupted study goes
on where it was. What is stored are measures as they may be published: those that would reveal a suppressed value, alone
or beside another method's on the same trips, are withheld, and segments that hold too little to be named are counted
and left out of every run.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil import __version__
from flowveil.errors import InfeasibleError, OutputError, ParameterError
from flowveil.experiments.attempts import FAILED, INFEASIBLE, attempt, check_runs, listed, methods_of, on_tree, warm_up
from flowveil.experiments.study_tables import write_study
from flowveil.flows import Flows
from flowveil.guarantee import UNITS
from flowveil.hierarchy import Hierarchy
from flowveil.methods import METHODS, Method
from flowveil.output import real_place, try_place, write_files
from flowveil.paths import named_path
from flowveil.progress import lines_every
from flowveil.slices import SlicedFlows
from flowveil.workers import LATE, LOST, run_tasks
from flowveil.zoning.refinement import refined

if TYPE_CHECKING:
    from flowveil.release.release import Release

#: Seconds a run may take; two hours, as in the papers.
TIME_LIMIT = 7200.0
MARKER = "study.json"
RUNS = "runs"
FORMAT = "flowveil study"

#: What is stored of a run that did not end by itself.
_ENDED = {LATE: {"status": "timeout"}, LOST: {"status": FAILED, "reason": "the process ended"}}

#: Measures that reveal how much a run published. Another method that suppresses nothing, or says what it suppresses,
#: reveals how much there is, so beside each other they reveal what is suppressed.
_REVEAL_PUBLISHED = ("c_avg", "cells_under_k_population")
#: With a single cell, what the smallest cell holds is all that is published.
_REVEAL_ONLY_CELL = ("k_trips", "k_people", "k_population")
#: Digits of the mean generalisation error where the suppressed volume is withheld: exact, it is a fraction whose
#: denominator is the published volume, and can be taken apart.
_DIGITS = 3


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
        rows: one for each run and basis: the run, ``status`` (``done``, ``timeout``, ``infeasible``, ``failed``),
            ``seconds``, ``withheld`` (names), and the measures.
        by: the attributes.
        methods: the methods, in order.
        protections: the protections, in order.
        k: the k.
        n_hidden: segments that hold too little to be named and were left out, by attribute.
        time_limit: seconds that a run could take.
        max_suppressed: share that a run could suppress.
    """

    rows: tuple[dict[str, Any], ...]
    by: tuple[str, ...]
    methods: tuple[str, ...]
    protections: tuple[tuple[str, ...], ...]
    k: int
    n_hidden: dict[str, int]
    time_limit: float
    max_suppressed: float = 0.1


def run_study(
    flows: SlicedFlows,
    directory: str | PathLike[str],
    *,
    methods: Any = None,
    protections: Sequence[str] = ("trips", "population"),
    k: int = 10,
    max_suppressed: float = 0.1,
    time_limit: float = TIME_LIMIT,
    hierarchy: str | None = None,
    workers: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Study:
    """Run the grid, or what is left of it, and write the tables.

    Args:
        flows: the flows by all attributes; what `flowveil.read_slices` returns.
        directory: where results go: a new folder, an empty one, or an earlier study of the same data, which is
            continued.
        methods: names of methods, or methods of one's own; all that keep a k by default.
        protections: each a unit, or several joined by ``+`` (``trips+population``).
        k: how many every cell must hide.
        max_suppressed: share that may be suppressed.
        time_limit: seconds that one run may take.
        hierarchy: ``h3`` or ``halves`` for all methods that work on a tree; by default what each one's page says.
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
    chosen = tuple(methods_of(methods, same_zones=flows.intake.same_zones))
    units = tuple(tuple(listed(text, "+")) for text in protections)
    own = {method.name: method for method in chosen}
    check_runs(flows.whole, chosen, k=[k], protect=units, max_suppressed=max_suppressed, time_limit=time_limit)
    if workers < 1:
        raise ParameterError(f"workers must be at least 1; found {workers}.")
    # What cannot be refined is refused before anything is run.
    refined(flows, hierarchy)
    flows, hidden = _nameable(flows, k)
    studied = _fingerprint(flows)
    folder = _opened(directory, studied)
    grid = [Run(by, value, name, protect) for by, value in _segments(flows) for name in own for protect in units]
    setting = {"k": k, "max_suppressed": max_suppressed, "hierarchy": hierarchy}
    setting |= {"input": studied, "version": __version__}
    paths = [folder / RUNS / f"{_name(run, {**setting, **_code(own[run.method])})}.json" for run in grid]
    left = [i for i, path in enumerate(paths) if not _is_done(path, time_limit)]
    shared, todo = _Shared(flows, k, max_suppressed, own, hierarchy), [grid[i] for i in left]
    progress = progress or lines_every("Studying")
    running = run_tasks(_outcome, shared, todo, workers=workers, time_limit=time_limit, prepare=_prepare)
    with closing(running):
        for ended in running:
            _store(paths[left[ended.number]], ended.result or {**_ENDED[ended.how], "limit": time_limit})
            progress(sum(map(Path.exists, paths)) / len(paths))
    rows = [
        row for run, path in zip(grid, paths, strict=True) for row in _rows(run, json.loads(path.read_text("utf-8")))
    ]
    study = Study(tuple(rows), flows.columns, tuple(own), units, k, hidden, time_limit, max_suppressed)
    write_study(study, folder)
    return study


def segment_flows(flows: SlicedFlows, by: str | None, value: str | None) -> Flows:
    """The flows of one segment, over the common hierarchies; of everybody where no attribute is named."""
    if by is None:
        return flows.whole
    at = flows.columns.index(by)
    return flows.together([m for m, key in enumerate(flows.keys) if key[at] == value])


# ---- the grid ----------------------------------------------------------------------------------------------


def _nameable(flows: SlicedFlows, k: int) -> tuple[SlicedFlows, dict[str, int]]:
    """The flows without those of segments that fewer than k people have (or trips, where persons are not known).

    Such a segment is not named, and its trips are in no run at all: with them, the whole minus all segments that are
    named would reveal how much it holds. Leaving trips out may make another segment too small, so this is repeated
    until all are large enough.

    Returns:
        What is left, and how many segments are not named, by attribute.

    Raises:
        InfeasibleError: nothing is left.
    """
    hidden: dict[str, int] = {}
    while True:
        small = [
            (at, value)
            for at in range(len(flows.columns))
            for value in sorted({key[at] for key in flows.keys})
            if _size(segment_flows(flows, flows.columns[at], value)) < k
        ]
        if not small:
            return flows, hidden
        for at, _ in small:
            hidden[flows.columns[at]] = hidden.get(flows.columns[at], 0) + 1
        gone = [m for m, key in enumerate(flows.keys) if any(key[at] == value for at, value in small)]
        if len(gone) == len(flows):
            raise InfeasibleError(
                f"No segment holds k = {k} people or trips, so none can be studied. "
                "Hint: lower k, or use larger classes."
            )
        flows = flows.without(gone)


def _size(part: Flows) -> int:
    people = part.people
    return int(part.trips.sum()) if people is None else int(np.count_nonzero(np.bincount(people.person)))


def _segments(flows: SlicedFlows) -> list[tuple[str | None, str | None]]:
    """The whole, then the values of each attribute."""
    named: list[tuple[str | None, str | None]] = [(None, None)]
    for at, by in enumerate(flows.columns):
        named += [(by, value) for value in sorted({key[at] for key in flows.keys})]
    return named


def _fingerprint(flows: SlicedFlows) -> str:
    """A hash of all that decides a result: segments, flows, trees, and where their nodes lie."""
    found = hashlib.sha256(repr((flows.columns, flows.keys)).encode())
    for tree in (flows.origins, flows.destinations):
        found.update(repr((tree.kind, tree.base_level, tree.n_nodes)).encode())
        found.update(np.ascontiguousarray(tree.parent).tobytes())
        found.update("\n".join(map(str, tree.code.tolist())).encode())
        _add_places(found, tree)
    for part in flows.slices:
        for column in (part.origin, part.destination, part.trips, part.weight):
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


def _code(method: Method) -> dict[str, str]:
    """What decides the results of a method of one's own; of ours it is the version."""
    if METHODS.get(method.name) == method:
        return {}
    try:
        source = inspect.getsource(method.plan)
    except (OSError, TypeError):
        source = ""
    return {"code": f"{method.plan.__module__}:{getattr(method.plan, '__qualname__', '')}:{source}"}


def check_folder(directory: str | PathLike[str]) -> None:
    """Refuse a folder that cannot be written, before anything is read; folders above it may be missing.

    Raises:
        OutputError: it is a file, its name cannot be, or what is above it is not writable.
    """
    target = real_place(directory)
    if target.exists() and not target.is_dir():
        raise OutputError(f"'{directory}' is a file; a folder is needed. Hint: name a new folder.")
    there = next(place for place in (target, *target.parents) if place.is_dir())
    try_place(there / MARKER)


def _opened(directory: str | PathLike[str], studied: str) -> Path:
    """The folder, ready for results of these data; runs of other data in it would be beside tables they are not of."""
    folder = named_path(directory, what="the study")
    check_folder(folder)
    marker = folder / MARKER
    try:
        if folder.exists() and any(folder.iterdir()):
            if not marker.exists():
                raise OutputError(f"'{directory}' is not empty and holds no study. Hint: name a new folder.")
            if _marked(marker) != {"format": FORMAT, "input": studied}:
                raise OutputError(
                    f"'{directory}' holds a study of other data: of other trips, segments or zones, or with other "
                    "segments too small to be named. Nothing was written. Hint: name a new folder."
                )
        else:
            folder.mkdir(parents=True, exist_ok=True)
            _store(marker, {"format": FORMAT, "input": studied})
        (folder / RUNS).mkdir(exist_ok=True)
    except OutputError:
        raise
    except OSError as problem:
        raise OutputError(f"'{directory}' cannot be written: {problem.strerror}.") from problem
    return folder


def _marked(marker: Path) -> Any:
    try:
        return json.loads(marker.read_text(encoding="utf-8"))
    except ValueError:
        return None


def _is_done(path: Path, time_limit: float) -> bool:
    """Whether there is a result; a run that was stopped after a shorter time is tried again."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return bool(found["status"] not in ("timeout", "failed") or found.get("limit", 0) >= time_limit)
    except (OSError, ValueError, KeyError):
        return False


def _store(path: Path, outcome: dict[str, Any]) -> None:
    write_files({path: json.dumps(outcome, sort_keys=True)})


def _rows(run: Run, outcome: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for basis in ("trips", "weight"):
        measures = outcome.get("measures", {})
        if outcome["status"] == "done" and basis not in measures:
            continue
        yield {
            "by": run.by,
            "segment": run.segment,
            "method": run.method,
            "protect": "+".join(run.protect),
            "basis": basis,
            "status": outcome["status"],
            "seconds": outcome.get("seconds"),
            "withheld": sorted(outcome.get("withheld", {}).get(basis, [])),
            **measures.get(basis, {}),
        }


# ---- one run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Shared:
    """What every run of a study needs."""

    flows: SlicedFlows
    k: int
    max_suppressed: float
    methods: Mapping[str, Method]
    hierarchy: str | None


def _prepare(shared: _Shared, run: Run) -> None:
    """In a process: get ready for a run."""
    warm_up(*_asked(shared, run))


def _outcome(shared: _Shared, run: Run) -> dict[str, Any]:
    """In a process: one run."""
    made = attempt(*_asked(shared, run))
    if made.release is None:
        return {"status": made.status} if made.status == INFEASIBLE else {"status": FAILED, "reason": made.error}
    measures, hidden = _publishable(made.release)
    plain = {basis: {name: _plain(value) for name, value in values.items()} for basis, values in measures.items()}
    return {"status": made.status, "seconds": made.seconds, "measures": plain, "withheld": hidden}


def _asked(shared: _Shared, run: Run) -> tuple[Flows, dict[str, Any]]:
    """The flows of a run, and what is asked of them."""
    flows, k = shared.flows, shared.k
    method = shared.methods[run.method]
    asked = {"method": method, "k": k, "protect": run.protect, "max_suppressed": shared.max_suppressed}
    asked |= on_tree(method, shared.hierarchy)
    if "population" in run.protect:
        # One threshold for all segments, so that they can be compared: k times the mean weight of everybody's trips.
        asked["k_population"] = UNITS["population"].threshold(flows.whole, k)
    return segment_flows(flows, run.by, run.segment), asked


def _publishable(
    release: Release,
) -> tuple[dict[str, dict[str, float | int | None]], dict[str, list[str]]]:
    """The measures of a run as they may stand beside those of other methods, and which are withheld, by basis.

    All methods run on the same trips, so the volume there is must be taken as known. Where the suppressed volume is
    withheld, the published volume is too, on both bases. The threshold of the population counts the suppressed trips,
    whatever was given for it: here it always comes from the mean weight of all trips.
    """
    from flowveil.disclosure.withholding import reason_to_withhold, withhold

    reason = reason_to_withhold(release)
    # No cells are published beside a study: the error is not one equation with known volumes.
    withheld = withhold([release], reason=reason, few_coarse=False)
    measures = withheld.published(release.metrics())
    hidden = {basis: set(names) for basis, names in withheld.hidden.items()} if withheld.reasons else {}
    if reason is not None:
        for basis, values in measures.items():
            more = _REVEAL_PUBLISHED + (_REVEAL_ONLY_CELL if len(release.cells) == 1 else ())
            hidden[basis].update(name for name in more if values.get(name) is not None)
            values.update(dict.fromkeys(hidden[basis]))
            error = values["mean_generalization_error"]
            values["mean_generalization_error"] = None if error is None else float(f"{error:.{_DIGITS}g}")
    return measures, {basis: sorted(names) for basis, names in hidden.items()}


def _plain(value: Any) -> float | int | None:
    if value is None:
        return None
    number = value.item() if isinstance(value, np.generic) else value
    return number if np.isfinite(number) else None
