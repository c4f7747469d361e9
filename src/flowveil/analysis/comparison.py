"""Several methods, several k and several protections on the same flows. Private.

Every run has its own process, so that it can be stopped and nothing of an earlier run speeds it up. With TwinCut among
the methods, the frontier of error against suppression is computed too. Methods that add noise have no k: they run once
for each ε.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowveil import output
from flowveil.analysis import experiment
from flowveil.analysis.areas import PLANNER
from flowveil.analysis.experiment import (
    Choices,
    Run,
    Settings,
    Source,
    Task,
    confirm_protections,
    execute,
    methods_of,
    parse_protections,
    run_tasks,
)
from flowveil.analysis.pages.trade_offs import rounded_points
from flowveil.analysis.tables import HEADS, NOT_FOR_PUBLICATION, Sheet, latex, markdown, measure_entry
from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee, default_units
from flowveil.methods import METHODS, Method, find_method
from flowveil.methods.epsilon import check_epsilon
from flowveil.methods.paircut import usual_time_weight
from flowveil.paths import named_path
from flowveil.private_files import make_private_folder, refuse_inside_release, write_private_files
from flowveil.progress import lines_every
from flowveil.published.spreadsheets import write_csv

FILES = ("comparison.csv", "comparison.md", "comparison.tex", "comparison.html")
INTERNAL = "measures are exact and computed from raw trips, and releases with different k can be subtracted."
#: k of a comparison that names none.
DEFAULT_K = (5, 10, 20)
#: Where time is folded: weights of an hour, as multiples of the default.
TIME_WEIGHTS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
#: Measures of comparison.csv, in order; two of them are not on pages.
COLUMNS = (
    *PLANNER, "n_cells", "n_origin_zones", "n_destination_zones", "mean_generalization_error", "mean_time_width_h",
    "generalization_distance_m", "generalization_distance_median_m", "generalization_distance_std_m",
    "reconstruction_loss", "distribution_distance", "suppressed_share", "c_dm", "c_avg", "k_people",
)  # fmt: skip
_CSV_ONLY = ("generalization_distance_median_m", "generalization_distance_std_m")


@dataclass(frozen=True)
class Frontier:
    """How fine homogeneous zones can be for every share suppressed, for one k and one protection.

    Attributes:
        k, protect: the guarantee.
        points: share suppressed and mean generalisation error, both rounded; shares rise.
    """

    k: int
    protect: tuple[str, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Comparison:
    """All runs, in the order protection, k, method.

    Attributes:
        runs: the runs of methods that guarantee a k.
        time_limit: seconds that each could take, once its process was ready.
        max_suppressed: share that each could suppress.
        frontiers: with TwinCut among the methods, one for each protection and k that has any.
        noisy: the runs of methods that add noise, by ε.
    """

    runs: tuple[Run, ...]
    time_limit: float
    max_suppressed: float
    frontiers: tuple[Frontier, ...] = ()
    noisy: tuple[Run, ...] = ()

    @property
    def table(self) -> pa.Table:
        """One row for each run, with all digits: the content of comparison.csv. Not for publication."""
        runs = (*self.runs, *self.noisy)
        columns = {
            "method": [run.name for run in runs],
            "k": pa.array([run.k for run in runs], pa.int64()),
            **({"epsilon": [run.epsilon for run in runs]} if self.noisy else {}),
            "protect": [run.protection for run in runs],
            "status": [run.status for run in runs],
            "seconds": [None if run.seconds is None else round(run.seconds, 3) for run in runs],
            "basis": [run.basis for run in runs],
            **{key: [run.measures.get(key) for run in runs] for key in self._columns()},
            "reason": [run.reason for run in runs],
            "use": [NOT_FOR_PUBLICATION] * len(runs),
        }
        return pa.table(columns)

    @property
    def sheet(self) -> Sheet:
        """The table as pages show it. A run without a release shows its status instead of its time."""
        columns = [key for key in self._columns() if key not in _CSV_ONLY]
        rows: list[tuple[Any, ...]] = []
        for run in (*self.runs, *self.noisy):
            values = [measure_entry(key, run.measures.get(key)) for key in columns]
            if run.seconds is None:
                rows.append((run.name, run.guarantee, run.status, *("" for _ in columns)))
            else:
                rows.append((run.name, run.guarantee, run.seconds, *values))
        heads = ("method", "guarantee", "seconds", *(HEADS[key] for key in columns))
        return Sheet(heads, tuple(rows), right=frozenset(range(2, len(heads))))

    def _columns(self) -> list[str]:
        """The measures of these runs: intervals of time have a width only where time is folded."""
        folded = any(run.time_weight is not None for run in self.runs)
        return [key for key in COLUMNS if folded or key != "mean_time_width_h"]

    def to_csv(self) -> str:
        """Returns comparison.csv."""
        content = io.BytesIO()
        write_csv(self.table, content)
        return content.getvalue().decode("utf-8")

    def to_markdown(self) -> str:
        """Returns comparison.md."""
        return f"Not for publication: {INTERNAL}\n\n{markdown(self.sheet)}"

    def to_latex(self) -> str:
        """Returns comparison.tex."""
        return f"% Not for publication: {INTERNAL}\n{latex(self.sheet)}"

    def to_html(self) -> str:
        """Returns comparison.html."""
        from flowveil.analysis.pages.comparison import render_comparison

        return render_comparison(self, internal=INTERNAL)

    def write(self, directory: str | PathLike[str]) -> Path:
        """Write comparison.csv, .md, .tex and .html into a folder that is new, empty or an earlier comparison.

        Raises:
            OutputError: the folder holds anything else, or cannot be written.
        """
        folder = named_path(directory, what="the comparison")
        check_folder(folder)
        content = (self.to_csv(), self.to_markdown(), self.to_latex(), self.to_html())
        write_private_files(make_private_folder(folder), dict(zip(FILES, content, strict=True)))
        return folder

    def picture(self, path: str | PathLike[str], **style: Any) -> Path:
        """Draw the zones of all runs, of two runs over each other; see `flowveil.analysis.pages.zone_pictures`.

        Not for publication: these would be releases of the same data.
        """
        from flowveil.analysis.pages.zone_pictures import draw_zones_of_runs

        return draw_zones_of_runs(self.runs, path, caption=f"Not for publication: {INTERNAL}", **style)

    def _repr_html_(self) -> str:
        from flowveil.published.document import frame

        return frame(self.to_html())


def check_folder(directory: str | PathLike[str]) -> None:
    """Refuse a folder that holds anything but a comparison, before anything is run.

    Raises:
        OutputError: it is a file, holds something else, lies inside a release, or cannot be written.
    """

    def refuse(folder: Path) -> str | None:
        strangers = set(os.listdir(folder)) - set(FILES)
        return f"holds {len(strangers)} entries that are not part of a comparison" if strangers else None

    refuse_inside_release(directory)
    output.check_folder(directory, refuse=refuse)


def compare_flows(
    flows: Flows, choices: Choices | None = None, *, progress: Callable[[float], None] | None = None
) -> Comparison:
    """Run every combination on the same flows; see `flowveil.compare`.

    Raises:
        ParameterError: a method, unit, option or number is wrong; nothing was run.
        DataError: the data lack the persons or weights that a protection needs.
    """
    choices = choices or Choices()
    settings, runs, noisy = _plan(flows, choices)
    sweeps = [
        Sweep(task.arguments["k"], task.arguments["protect"], settings.hierarchy)
        for task in runs
        if task.arguments["method"].name == "twincut"
    ]
    results: dict[int, Any] = dict(
        run_tasks(
            _work,
            Source(flows, keep_tables=True),
            [*runs, *noisy, *sweeps],
            prepare=_prepare,
            time_limit=choices.time_limit,
            progress=progress or lines_every("Comparing"),
            fresh=True,
        )
    )
    ordered = [results[number] for number in range(len(results))]
    n_runs, n_all = len(runs), len(runs) + len(noisy)
    return Comparison(
        runs=tuple(ordered[:n_runs]),
        time_limit=float(choices.time_limit),
        max_suppressed=settings.max_suppressed,
        frontiers=tuple(frontier for frontier in ordered[n_all:] if frontier is not None and frontier.points),
        noisy=tuple(ordered[n_runs:n_all]),
    )


@dataclass(frozen=True)
class Sweep:
    """A task that computes a frontier."""

    k: int
    protect: tuple[str, ...]
    hierarchy: str | None

    def to_run(self, *_: Any) -> None:
        """A sweep that is stopped has no result."""


def _prepare(source: Source, task: Task | Sweep) -> None:
    if isinstance(task, Task):
        experiment.prepare(source, task)


def _work(source: Source, task: Task | Sweep) -> Any:
    if isinstance(task, Task):
        return execute(source, task)
    from flowveil.methods.twincut import frontier

    assert isinstance(source.flows, Flows)
    flows, _ = find_method("twincut").on_hierarchy(source.flows, task.hierarchy)
    guarantee = Guarantee.resolve(flows, k=task.k, protect=task.protect)
    points = frontier(*guarantee.to_fixed_point(guarantee.prepare(flows)), objective="error")
    return Frontier(task.k, task.protect, rounded_points(points))


# ---- tasks -------------------------------------------------------------------------------------------------------


def _plan(flows: Flows, choices: Choices) -> tuple[Settings, list[Task], list[Task]]:
    """Returns the settings, the tasks of methods that guarantee a k, and those of methods that add noise."""
    with_k, with_noise = _methods(flows, choices)
    given = DEFAULT_K if choices.k is None else choices.k
    steps = tuple(sorted({given} if isinstance(given, int) else set(given)))
    protections = parse_protections(default_units(flows) if choices.protections is None else choices.protections)
    chosen = {method.name: method for method in (*with_k, *with_noise)}
    for name, options in choices.options.items():
        (chosen.get(name) or find_method(name)).check_options(options)
    settings = Settings(
        methods={method.name: method for method in with_k},
        protections=protections,
        k=steps,
        k_population=choices.k_population,
        max_suppressed=0.1 if choices.max_suppressed is None else choices.max_suppressed,
        limits=choices.limits,
        options=choices.options,
        hierarchy=choices.hierarchy,
        time_limit=choices.time_limit,
    )
    noisy = list(_noisy_tasks(with_noise, choices))
    if with_k or not with_noise:
        settings.check(flows)
        confirm_protections(flows, choices, protections, steps[0])
    tasks = [
        task
        for units in protections
        for k in steps
        for method in with_k
        for task in _with_time_weights(flows, Task(settings.arguments(method, k, units, flows)), choices.hierarchy)
    ]
    return settings, tasks, noisy


def _methods(flows: Flows, choices: Choices) -> tuple[list[Method], list[Method]]:
    """Returns the methods that guarantee a k, and those that add noise.

    Raises:
        ParameterError: one is unknown, or cannot fold the times of the flows.
    """
    named = methods_of(choices.methods, same_zones=flows.same_zones)
    with_k, with_noise = ([m for m in named if (m.promises == "epsilon") == noisy] for noisy in (False, True))
    if choices.methods in (None, "all"):
        if flows.times is not None:
            with_k = [method for method in with_k if method.folds]
        elif choices.epsilon != ():
            with_noise = [method for method in METHODS.values() if method.promises == "epsilon"]
    for method in (*with_k, *with_noise):
        method.check_times(flows)
    return with_k, with_noise


def _noisy_tasks(methods: Sequence[Method], choices: Choices) -> Iterator[Task]:
    """Yields one task for each method that adds noise and each ε, of the comparison or of the method's options."""
    given = choices.epsilon
    epsilons: set[Any] = {given} if isinstance(given, int | float) else set(given)
    for method in methods:
        options: Mapping[str, Any] = choices.options.get(method.name, {})
        for epsilon in sorted(epsilons or [options.get("epsilon")], key=lambda e: e or 0):
            if epsilon is None:
                raise ParameterError(
                    f"Method '{method.name}' adds noise and is compared by ε. Hint: --epsilon 0.1,1 (epsilon=...)."
                )
            yield Task({"method": method, **options, "epsilon": check_epsilon(epsilon)})


def _with_time_weights(flows: Flows, task: Task, hierarchy: str | None) -> list[Task]:
    """Returns the task; where time is folded and no weight is given, once for each of `TIME_WEIGHTS`.

    They show what finer places cost in wider times. The default is the method's weight on the tree of these flows.
    """
    given = task.arguments
    if flows.times is None:
        return [task]
    flows, _ = given["method"].on_hierarchy(flows, hierarchy)
    if given.get("time_weight") is not None:
        return [task]
    guarantee = Guarantee.resolve(flows, k=given["k"], protect=given["protect"])
    try:
        default = usual_time_weight(*guarantee.to_fixed_point(guarantee.prepare(flows)), given["max_suppressed"])
    except InfeasibleError:
        return [task]
    return [replace(task, arguments={**given, "time_weight": default * factor}) for factor in TIME_WEIGHTS]
