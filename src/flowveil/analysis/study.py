"""The experiments of the papers: segments x methods x protections, or time steps x methods.

Private.

Every run has a time limit; one that exceeds it is shown as N/A, as in the papers. Every result is
stored in a separate file as soon as it exists, named after everything that decides it, so that an
interrupted study continues.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from flowveil import __version__
from flowveil.analysis.experiment import (
    DONE,
    FAILED,
    TIMED_OUT,
    MeasuredRun,
    RunTask,
    Settings,
    Source,
    methods_of,
    run_tasks,
)
from flowveil.analysis.paper_results import find_data_set
from flowveil.analysis.papers import Preset, find_preset
from flowveil.analysis.random_groups import person_weights
from flowveil.analysis.study_tables import write_study
from flowveil.core.errors import InfeasibleError, OutputError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import UNITS
from flowveil.methods import METHODS, Method
from flowveil.system import output
from flowveil.system.output import make_private_folder
from flowveil.system.paths import named_path
from flowveil.system.progress import lines_every

#: Seconds that a run may take; two hours, as in the papers.
TIME_LIMIT = 7200.0
#: In the folder of a study: its marker, and the results of its runs.
MARKER, RUNS = "study.json", "runs"
FORMAT = "flowveil study"
#: Fields of a run that its file holds.
_STORED = ("status", "reason", "seconds", "by_basis", "notes")


@dataclass(frozen=True, eq=False)
class Study:
    """All results of a study."""

    # One for each run and basis: the run, ``status``, ``seconds``, and the measures, the planner's
    # errors first.
    rows: tuple[dict[str, Any], ...]
    by: tuple[str, ...]  # the attributes of segments; the time if there is a matrix for each step
    settings: Settings  # what was run
    every: str | None = None  # the time step, if there is a matrix for each
    data: Mapping[str, float] = field(default_factory=dict)  # numbers of the data set

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods, in order."""
        return tuple(self.settings.methods)

    @property
    def protections(self) -> tuple[str, ...]:
        """The protections, in order; units joined by ``+``."""
        return tuple("+".join(units) for units in self.settings.protections)

    @property
    def k(self) -> int:
        """The k."""
        return int(self.settings.k[0])

    @property
    def preset(self) -> Preset | None:
        """The paper whose tables are made, if any."""
        paper: Preset | None = self.settings.preset
        return paper


def run_study(
    flows: Flows,
    directory: str | PathLike[str],
    *,
    workers: int = 1,
    progress: Callable[[float], None] | None = None,
    **choices: Any,
) -> Study:
    """Runs all tasks that have no stored result, and writes the tables; see `flowveil.run_study`.

    ``flows`` are by all attributes, or by time steps. An earlier study of the same data in the
    folder is continued. Times are most comparable with one of ``workers``. ``choices`` are
    `flowveil.analysis.experiment.Settings`, and override the preset.
    """
    given = {name: value for name, value in choices.items() if value is not None}
    settings = study_settings(flows, Settings(**{"time_limit": TIME_LIMIT, **given}))
    if settings.random_groups and not flows.slice_columns:
        raise ParameterError("Random groups are of the sizes of segments. Hint: give --by.")
    if workers < 1:
        raise ParameterError(f"workers must be at least 1; found {workers}.")
    steps = _steps(flows, settings)
    fingerprint = _fingerprint(flows)
    folder = open_folder(directory, fingerprint)
    runs = _results(
        flows,
        settings,
        steps,
        folder / RUNS,
        fingerprint,
        workers,
        progress or lines_every("Studying"),
    )
    study = Study(
        rows=tuple(row for run in runs for row in _rows(run, settings)),
        by=flows.slice_columns,
        settings=settings,
        every=None if flows.every is None else flows.every.name,
        data=describe_data(flows, settings.k[0], steps),
    )
    write_study(study, folder)
    return study


def study_settings(flows: Flows, choices: Settings) -> Settings:
    """Returns the settings of a study: what was chosen, then the preset, then defaults."""
    preset = find_preset(choices.preset)
    if preset is not None and preset.is_of_matrices != (flows.every is not None):
        raise ParameterError(
            f"The preset '{preset.name}' compares methods over "
            + (
                "many matrices. Hint: give --time and --every."
                if preset.is_of_matrices
                else "segments, not times."
            )
        )
    if choices.k is not None and not isinstance(choices.k, int):
        raise ParameterError(f"A study has one k; found {choices.k!r}.")
    paper = Preset("", "", (), trees="common") if preset is None else preset
    wanted = (
        choices.methods
        if choices.methods is not None and choices.methods != "all"
        else paper.methods or None
    )
    methods = methods_of(wanted, same_zones=flows.intake.same_zones)
    if wanted is None and flows.every is not None:
        methods.append(METHODS["laplace"])
    # Over many matrices trips alone, as in the paper.
    with_weights = flows.whole.weight is not None and flows.every is None
    if choices.published is not None:
        if flows.every is None:
            raise ParameterError(
                "published names a data set of matrices. Hint: --time and --every."
            )
        find_data_set(choices.published, {})
    protections = ("trips", "population") if with_weights else ("trips",)
    settings = choices.resolve(flows, methods, paper=paper, protections=protections)
    return replace(
        settings, preset=preset, options=_merge_options(flows.whole, methods, paper, choices)
    )


def _merge_options(
    flows: Flows, methods: Sequence[Method], paper: Preset, choices: Settings
) -> dict[str, dict[str, Any]]:
    """Returns the options of each method: those given, then those of the preset.

    Laplace must have its bound.
    """
    given = choices.options
    merged = {m.name: {**paper.options.get(m.name, {}), **given.get(m.name, {})} for m in methods}
    if "laplace" in merged:
        # Nothing is published, so the zones may come from the data and the noise may be repeatable.
        domain = {"region": "observed"} if flows.whole_map is None else {}
        merged["laplace"] = {
            "epsilon": 1.0,
            "unsafe_seed_for_tests": 0,
            **domain,
            **merged["laplace"],
        }
        if flows.people is None and "bound" not in given.get("laplace", {}):
            # Without persons the unit is a trip, which needs no bound.
            merged["laplace"].pop("bound", None)
        if flows.people is not None and "bound" not in merged["laplace"]:
            raise ParameterError(
                "laplace needs a bound where persons are known: the largest number of trips of a"
                " person that count. Hint: --option laplace.bound=4, or name methods without it."
            )
    return {name: options for name, options in merged.items() if options}


def _steps(flows: Flows, settings: Settings) -> tuple[str, ...]:
    """Returns the time steps with enough trips, or a sample of them, in order.

    Empty if the study is by attributes.
    """
    fewest, sample = settings.fewest_trips, settings.sample
    if flows.every is None:
        if fewest is not None or sample is not None:
            raise ParameterError(
                "fewest_trips and sample choose among time steps. Hint: give --time and --every."
            )
        return ()
    if len(flows.slice_columns) > 1:
        raise ParameterError(
            "A study is by attributes or by time steps, not by both. Hint: leave --by out."
        )
    if sample is not None and sample < 1:
        raise ParameterError(f"sample must be at least 1; found {sample}.")
    if fewest is None:
        fewest = 0 if settings.preset is None else int(settings.preset.fewest_trips)
    volume = [int(part.trips.sum()) for part in flows.slices]
    large = [key[0] for key, trips in zip(flows.slice_keys, volume, strict=True) if trips >= fewest]
    if not large:
        raise InfeasibleError(
            f"None of {len(volume):,} time steps has {fewest:,} trips. Hint: lower --fewest-trips,"
            " or use longer steps."
        )
    if sample is not None and sample < len(large):
        drawn = np.random.default_rng(0).choice(len(large), size=sample, replace=False)
        large = [large[i] for i in sorted(drawn.tolist())]
    return tuple(large)


def _results(
    flows: Flows,
    settings: Settings,
    steps: Sequence[str],
    folder: Path,
    fingerprint: str,
    workers: int,
    progress: Callable[[float], None],
) -> Iterator[MeasuredRun]:
    """Yields all runs in order, on the whole and each segment or step, after making those that are
    not stored.
    """
    segments: list[tuple[str | None, str | None]] = [
        (flows.slice_columns[0], step) for step in steps
    ] or [
        (None, None),
        *(
            (by, value)
            for at, by in enumerate(flows.slice_columns)
            for value in sorted({key[at] for key in flows.slice_keys})
        ),
    ]
    splits: list[tuple[str | None, str | None, int | None]] = [
        (by, value, None) for by, value in segments
    ]
    if not steps:
        splits += [
            (by, value, split)
            for split in range(settings.random_groups)
            for by, value in segments
            if by is not None
        ]
    grid = [
        (
            RunTask(
                settings.arguments(method, settings.k[0], protect, flows.whole),
                by,
                value,
                split=split,
            ),
            protect,
        )
        for by, value, split in splits
        for method in settings.methods.values()
        for protect in settings.protections
    ]
    paths = [
        folder / f"{_key(task, protect, settings, fingerprint)}.json" for task, protect in grid
    ]
    left = [i for i, path in enumerate(paths) if not _is_stored(path, settings.time_limit)]
    stored = len(paths) - len(left)
    for number, run in run_tasks(
        Source(
            flows,
            str(settings.trees),
            str(settings.reading),
            authors=_shows_authors(settings),
            k_population=_authors_threshold(flows, settings),
        ),
        [grid[i][0] for i in left],
        time_limit=settings.time_limit,
        progress=lambda share: progress((stored + share * len(left)) / len(paths)),
        n_workers=workers,
    ):
        _store(
            paths[left[number]],
            {name: getattr(run, name) for name in _STORED} | {"limit": settings.time_limit},
        )
    for (task, protect), path in zip(grid, paths, strict=True):
        outcome = json.loads(path.read_text("utf-8"))
        run = replace(task.to_run(outcome["status"]), **{name: outcome[name] for name in _STORED})
        yield replace(run, protect=protect)


def _shows_authors(settings: Settings) -> bool:
    """Returns whether runs have the authors' reading: if chosen, and next to ours in Table P."""
    preset: Preset | None = settings.preset
    of_odkanon = preset is not None and preset.name.startswith("odkanon")
    return settings.reading == "authors" or of_odkanon


def _authors_threshold(flows: Flows, settings: Settings) -> float | None:
    """Returns the population's threshold of all segments; None without weights."""
    if settings.k_population is not None or flows.whole.weight is None:
        return settings.k_population
    return UNITS["population"].threshold(flows.whole, settings.k[0])


def _key(task: RunTask, protect: Sequence[str], settings: Settings, fingerprint: str) -> str:
    """Returns a hash of everything that decides the result of a run."""
    method = task.arguments["method"]
    code = ""
    if METHODS.get(method.name) != method:
        # The version identifies our methods; a user's is identified by its source.
        try:
            code = inspect.getsource(method.plan)
        except (OSError, TypeError):
            code = f"{method.plan.__module__}:{getattr(method.plan, '__qualname__', '')}"
    named = {name: value for name, value in task.arguments.items() if name != "method"}
    content = {
        "by": task.by,
        "segment": task.segment,
        "split": task.split,
        "method": method.name,
        "protect": protect,
        "arguments": named,
        "trees": settings.trees,
        "reading": settings.reading,
        "authors": [_shows_authors(settings), settings.k_population],
        "input": fingerprint,
        "version": __version__,
        "code": code,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _rows(run: MeasuredRun, settings: Settings) -> Iterator[dict[str, Any]]:
    """Yields the row of each basis."""
    for basis in ("trips", "weight"):
        if run.status == DONE and basis not in run.by_basis:
            continue
        limit = (
            settings.limit_of(run.method)
            if settings.methods[run.method].counts == "exact"
            else None
        )
        row = {
            name: getattr(run, name)
            for name in ("by", "segment", "method", "status", "seconds", "reason")
        }
        row |= {"protect": run.protection, "basis": basis, "limit": limit}
        yield {**row, **run.notes, **run.by_basis.get(basis, {})}


def check_folder(directory: str | PathLike[str]) -> None:
    """Refuse a folder that cannot be written, holds something else, or lies in a release, before
    anything is read.
    """
    output.check_private_folder(directory, "a study", lambda names: MARKER in names)


def open_folder(directory: str | PathLike[str], fingerprint: str) -> Path:
    """Returns the folder, created or checked: an earlier study of the same data is continued."""
    folder = named_path(directory, what="the study")
    check_folder(folder)
    marker, note = (
        folder / MARKER,
        {
            "format": FORMAT,
            "input": fingerprint,
            "use": "not for publication",
        },
    )
    if marker.exists() and _read(marker) != note:
        raise OutputError(
            f"'{directory}' holds a study of other data: of other trips, segments or zones. Nothing"
            " was written. Hint: name a new folder."
        )
    make_private_folder(make_private_folder(folder) / RUNS)
    if not marker.exists():
        _store(marker, note)
    return folder


def _read(path: Path) -> Any:
    """Returns the content of a JSON file; empty if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _is_stored(path: Path, time_limit: float) -> bool:
    """Returns whether there is a result.

    A run that was stopped after a shorter time is repeated.
    """
    outcome = _read(path)
    status = outcome.get("status", FAILED)
    return bool(status not in (TIMED_OUT, FAILED) or outcome.get("limit", 0) >= time_limit)


def _store(path: Path, outcome: dict[str, Any]) -> None:
    output.write_files({path: json.dumps(outcome, sort_keys=True)}, private=True)


def _fingerprint(flows: Flows) -> str:
    """Returns a hash of everything that decides a result.

    Segments, flows, trees, and places of their nodes.
    """
    digest = hashlib.sha256(repr((flows.slice_columns, flows.slice_keys)).encode())
    for tree in (flows.origins, flows.destinations):
        digest.update(repr((tree.kind, tree.base_level, tree.n_nodes, tree.code.tolist())).encode())
        columns: list[Any] = [tree.parent]
        # Centres and areas decide distances and boxes. H3 codes determine both.
        if tree.geography is not None and not tree.is_whole_h3:
            columns += tree.geography.centers(np.arange(tree.n_nodes, dtype=np.int32))
            columns.append(tree.geography.areas_km2(tree.leaf_node))
        for column in columns:
            digest.update(np.ascontiguousarray(column).tobytes())
    for part in flows.slices:
        people = () if part.people is None else (part.people.cell, part.people.person)
        for column in (part.origin, part.destination, part.trips, *part.added().values(), *people):
            if column is not None:
                digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def describe_data(flows: Flows, k: int, steps: Sequence[str]) -> dict[str, float]:
    """Returns the numbers of the data set that the papers tabulate.

    Of matrices if there is one for each time step.
    """
    if flows.every is not None:
        return _describe_matrices(flows, k, steps)
    whole = flows.whole
    ends = [tree.code[tree.leaf_node] for tree in (whole.origins, whole.destinations)]
    found: dict[str, float] = {"trips": int(whole.trips.sum()), "od_pairs": len(whole)}
    found |= {
        "origin_tiles": len(ends[0]),
        "destination_tiles": len(ends[1]),
        "tiles": len(np.union1d(*ends)),
    }
    if whole.people is not None:
        found["people"] = len(np.unique_values(whole.people.person))
    if whole.weight is not None:
        represented = _represented_population(flows)
        found |= {"weight": float(whole.weight.sum())} | (
            {} if represented is None else {"population": represented}
        )
    return found


def _represented_population(flows: Flows) -> float | None:
    """Returns the sum of the persons' weights, as the papers define it.

    None unless every weight is determined.
    """
    weights = person_weights(flows)
    return None if weights is None else float(np.nansum(weights))


def _describe_matrices(flows: Flows, k: int, steps: Sequence[str]) -> dict[str, float]:
    """Returns means over all matrices, including those that are not run."""
    first = flows.slices[0]
    # Without a map, the tiles with a trip end.
    ends = [tree.code[tree.leaf_node] for tree in (first.origins, first.destinations)]
    n_tiles = len(np.union1d(*ends)) if first.whole_map is None else first.whole_map.n_tiles
    trips, pairs = (
        [int(part.trips.sum()) for part in flows.slices],
        [len(part) for part in flows.slices],
    )
    safe = [part.trips >= k for part in flows.slices]
    parts = zip(flows.slices, safe, trips, strict=True)
    return {
        "matrices": len(flows),
        "matrices_run": len(steps),
        "tiles": n_tiles,
        "mean_od_pairs": float(np.mean(pairs)),
        "density": float(np.mean(pairs)) / n_tiles**2,
        "mean_trips": float(np.mean(trips)),
        "safe_od_pairs": float(np.mean([part.mean() for part in safe])),
        "safe_trips": float(np.mean([part.trips[is_safe].sum() / n for part, is_safe, n in parts])),
    }
