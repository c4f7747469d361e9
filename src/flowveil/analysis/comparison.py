"""Several methods, several k and several protections on the same flows. Private.

Every run has its own process, so that it can be stopped and nothing of an earlier run speeds it up.
With TwinCut among the methods, the frontier of error against suppression is computed too. Methods
that add noise have no k: they run once for each ε.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowveil.analysis.areas import PLANNER, TOGETHER
from flowveil.analysis.experiment import (
    MeasuredRun,
    RunTask,
    Settings,
    Source,
    methods_of,
    run_tasks,
)
from flowveil.analysis.pages.trade_offs import rounded_points
from flowveil.analysis.papers import Preset
from flowveil.analysis.tables import (
    HEADS,
    NOT_FOR_PUBLICATION,
    Sheet,
    latex,
    markdown,
    measure_entry,
)
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import default_units
from flowveil.methods import METHODS, Method
from flowveil.methods.epsilon import check_epsilon
from flowveil.methods.paircut import usual_weight
from flowveil.published.spreadsheets import write_csv
from flowveil.request import support
from flowveil.system.output import (
    check_place,
    check_private_folder,
    make_private_folder,
    write_private_files,
)
from flowveil.system.paths import named_path
from flowveil.system.progress import lines_every

FILES = ("comparison.csv", "comparison.md", "comparison.tex", "comparison.html")
INTERNAL = (
    "measures are exact and computed from raw trips, and releases with different k can be"
    " subtracted."
)
#: k of a comparison that names none.
DEFAULT_K = (5, 10, 20)
#: Where time is folded: weights of an hour, as multiples of the default.
TIME_WEIGHTS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
#: Measures of comparison.csv, in order; two of them are not on pages.
COLUMNS = (
    *PLANNER,
    TOGETHER,
    "n_cells",
    "n_origin_zones",
    "n_destination_zones",
    "mean_generalization_error",
    "mean_time_width_h",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "reconstruction_loss",
    "distribution_distance",
    "suppressed_share",
    "c_dm",
    "c_avg",
    "k_people",
)
_FOLDED_ONLY = (TOGETHER, "mean_time_width_h")
_CSV_ONLY = ("generalization_distance_median_m", "generalization_distance_std_m")


@dataclass(frozen=True)
class Frontier:
    """How fine homogeneous zones can be for every share suppressed.

    Rounded shares, which rise, and mean errors.
    """

    k: int
    protect: tuple[str, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Comparison:
    """The runs of a comparison."""

    runs: tuple[
        MeasuredRun, ...
    ]  # of methods that guarantee a k, in the order protection, k, method
    time_limit: float
    max_suppressed: float
    frontiers: tuple[Frontier, ...] = ()  # of each protection and k, with TwinCut among the methods
    noisy: tuple[MeasuredRun, ...] = ()  # of methods that add noise, by ε

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.runs) + len(self.noisy)} runs, private>"

    @property
    def table(self) -> pa.Table:
        """One row for each run, with all digits: the content of comparison.csv.

        Not for publication.
        """
        runs = (*self.runs, *self.noisy)
        return pa.table(
            {
                "method": [run.name for run in runs],
                "k": pa.array([run.k for run in runs], pa.int64()),
                **(
                    {"epsilon": [run.epsilon for run in runs]}
                    if any(run.epsilon for run in runs)
                    else {}
                ),
                "protect": [run.protection for run in runs],
                "status": [run.status for run in runs],
                "seconds": [None if run.seconds is None else round(run.seconds, 3) for run in runs],
                "basis": [run.basis for run in runs],
                **{key: [run.measures.get(key) for run in runs] for key in self._columns()},
                "reason": [run.reason for run in runs],
                "use": [NOT_FOR_PUBLICATION] * len(runs),
            }
        )

    @property
    def sheet(self) -> Sheet:
        """The table as pages show it.

        A run without a release shows its status instead of its time.
        """
        columns = [key for key in self._columns() if key not in _CSV_ONLY]
        rows = tuple(
            (
                (run.name, run.guarantee, run.status, *("" for _ in columns))
                if run.seconds is None
                else (
                    run.name,
                    run.guarantee,
                    run.seconds,
                    *(measure_entry(key, run.measures.get(key)) for key in columns),
                )
            )
            for run in (*self.runs, *self.noisy)
        )
        heads = ("method", "guarantee", "seconds", *(HEADS[key] for key in columns))
        return Sheet(heads, rows)

    def _columns(self) -> list[str]:
        """The measures of these runs, without those of folded time where none folds."""
        folded = any(run.time_weight is not None for run in self.runs)
        return [key for key in COLUMNS if folded or key not in _FOLDED_ONLY]

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
        """Write comparison.csv, .md, .tex and .html into a folder that is new, empty or an earlier
        comparison.
        """
        folder = named_path(directory, what="the comparison")
        check_folder(folder)
        content = (self.to_csv(), self.to_markdown(), self.to_latex(), self.to_html())
        write_private_files(make_private_folder(folder), dict(zip(FILES, content, strict=True)))
        return folder

    def picture(self, path: str | PathLike[str], **style: Any) -> Path:
        """Draw the zones of a run, those of a second one over them.

        ``style`` as `flowveil.picture`. Private.
        """
        from flowveil.published.pictures import draw

        check_place(path)
        drawn = [run for run in self.runs if run.flows is not None]
        if not 1 <= len(drawn) <= 2:
            raise ParameterError(
                "A picture has the zones of one run, or of two over each other; found"
                f" {len(drawn)}. Hint: fewer methods, protections or k; comparison.html has maps of"
                " all runs."
            )
        title = " and, outlined, ".join(f"{run.name}, {run.guarantee}" for run in drawn)
        about = {"title": title, "caption": f"Not for publication: {INTERNAL}"}
        over = drawn[1].zones if len(drawn) == 2 else None
        return draw(drawn[0].flows, drawn[0].zones, path, over=over, **about, **style)

    def _repr_html_(self) -> str:
        from flowveil.published.document import frame

        return frame(self.to_html())


def check_folder(directory: str | PathLike[str]) -> None:
    """Refuse a folder that holds anything but a comparison or cannot be written, before anything is
    run.
    """
    check_private_folder(directory, "a comparison", lambda names: names <= set(FILES))


def compare_flows(
    flows: Flows,
    choices: Settings | None = None,
    *,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Run every combination on the same flows; see `flowveil.compare`.

    Everything is checked before anything is run.
    """
    choices = choices or Settings()
    with_k, by_noise = _methods(flows, choices)
    noisy = list(_noisy_tasks(by_noise, choices))
    several = Preset("", "", (), trees="common", k=DEFAULT_K)
    settings = choices.resolve(
        flows, with_k, paper=several, protections=default_units(flows), noisy=by_noise
    )
    runs = [
        task
        for units, k, method in product(settings.protections, settings.k, with_k)
        for task in _with_time_weights(flows, RunTask(settings.arguments(method, k, units, flows)))
    ]
    sweeps = [
        replace(task, frontier=settings.hierarchy or "")
        for task in runs
        if task.arguments["method"].name == "twincut"
    ]
    source, report = Source(flows, keep_tables=True), progress or lines_every("Comparing")
    tasks, limit = [*runs, *noisy, *sweeps], choices.time_limit
    results = [
        result
        for _, result in sorted(
            run_tasks(source, tasks, time_limit=limit, progress=report, fresh=True)
        )
    ]
    n_runs, n_all = len(runs), len(runs) + len(noisy)
    frontiers = tuple(
        Frontier(task.arguments["k"], task.arguments["protect"], rounded_points(points))
        for task, points in zip(sweeps, results[n_all:], strict=True)
        if points and not isinstance(points, MeasuredRun)
    )
    made, with_noise = tuple(results[:n_runs]), tuple(results[n_runs:n_all])
    return Comparison(made, float(limit), settings.max_suppressed, frontiers, with_noise)


def _methods(flows: Flows, choices: Settings) -> tuple[list[Method], list[Method]]:
    """Returns the methods that guarantee a k, and those that add noise.

    Refuses those that cannot fold.
    """
    named = methods_of(choices.methods, same_zones=flows.same_zones)
    with_k, with_noise = (
        [m for m in named if (m.counts == "noisy") == noisy] for noisy in (False, True)
    )
    if choices.methods in (None, "all"):
        if flows.folds:
            with_k = [method for method in with_k if method.folds]
        elif not flows.same_zones:
            wanted = [] if choices.epsilon == () else list(METHODS.values())
            with_noise = [method for method in wanted if method.counts == "noisy"]
    for method in (*with_k, *with_noise):
        if flows.folds:
            support.check({"fold"}, method.expected)
    return with_k, with_noise


def _noisy_tasks(methods: Sequence[Method], choices: Settings) -> Iterator[RunTask]:
    """Yields one task for each method that adds noise and each ε, of the comparison or of the
    method's options.
    """
    given = choices.epsilon
    epsilons: set[Any] = {given} if isinstance(given, int | float) else set(given)
    for method in methods:
        options: Mapping[str, Any] = choices.options.get(method.name, {})
        for epsilon in sorted(epsilons or [options.get("epsilon")], key=lambda e: e or 0):
            if epsilon is None:
                raise ParameterError(
                    f"Method '{method.name}' adds noise and is compared by ε. Hint: --epsilon 0.1,1"
                    " (epsilon=...)."
                )
            yield RunTask({"method": method, **options, "epsilon": check_epsilon(epsilon)})


def _with_time_weights(flows: Flows, task: RunTask) -> list[RunTask]:
    """Returns the task.

    Where time is folded without a weight, once for each of `TIME_WEIGHTS` to show the choice.
    """
    given = task.arguments
    if not any(fold.every for fold in flows.folds) or given.get("time_weight") is not None:
        return [task]
    default = usual_weight(flows)
    return [
        replace(task, arguments={**given, "time_weight": default * factor})
        for factor in TIME_WEIGHTS
    ]
