"""The page of a comparison: table, charts and maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flowveil.analysis.pages.trade_offs import frontier_part, joint_part, marks_of, share_in_words
from flowveil.analysis.tables import SHARES, html_part
from flowveil.published import maps
from flowveil.published.charts import Line, Mark, line_chart
from flowveil.published.document import Figure, PagePart, fill, number, page

if TYPE_CHECKING:
    from flowveil.analysis.comparison import Comparison
    from flowveil.analysis.experiment import MeasuredRun

#: Largest number of zones of one end of one run, and of maps on the page.
_MAX_ZONES = 4_000
_MAX_MAPS = 60

#: Measure, title, note, and whether the axis is logarithmic.
_CHARTS = (
    (
        "misplaced",
        "Misplaced between areas (%)",
        "Of all trips, between areas of a few kilometres.",
        False,
    ),
    (
        "mean_generalization_error",
        "Mean generalisation error",
        "Tiles of both zones of a trip; less is finer.",
        True,
    ),
    (
        "mean_time_width_h",
        "Mean width of time (h)",
        "Of the interval of a cell, where time is folded.",
        True,
    ),
    ("reconstruction_loss", "Reconstruction loss", "0 is perfect, 2 is the worst.", False),
    (
        "generalization_distance_m",
        "Distance moved (GDM, m)",
        "From a trip's ends to the centres of their zones.",
        True,
    ),
    ("suppressed_share", "Suppressed (%)", "Of the volume.", False),
    (
        "seconds",
        "Time (s)",
        "The method and its recount, one run; starting and compiling are not counted.",
        True,
    ),
)


def render_comparison(comparison: Comparison, *, internal: str) -> str:
    """Returns the page: trade-offs, the table, and maps on one colour scale.

    ``internal`` says why it is private.
    """
    runs, every = comparison.runs, (*comparison.runs, *comparison.noisy)
    done = sum(run.status == "done" for run in every)
    methods, steps = _distinct(run.name for run in runs), _distinct(run.k for run in runs)
    failures = [
        f"{run.name}, {run.guarantee}: {run.status}. {run.reason}" for run in every if run.reason
    ]
    table = html_part("table", "All runs", [comparison.sheet], notes=failures)
    parts = [table]
    limit, marks = comparison.max_suppressed, _marks(runs, methods)
    if runs:
        parts.insert(0, joint_part(marks, max_suppressed=limit))
        parts.append(_charts_part(runs, methods, limit))
    if comparison.frontiers:
        frontiers = (
            (f"Error against suppression, {title}", one.points, marks.get(title, []))
            for one in comparison.frontiers
            for title in [f"k = {one.k}, protecting {'+'.join(one.protect)}"]
        )
        parts.append(frontier_part(frontiers, max_suppressed=limit))
    drawn = _maps_part(runs)
    if drawn is not None:
        parts.append(drawn)
    return page(
        title="Comparison of methods",
        heading="Comparison of methods",
        lead=(f"{len(methods)} methods, k = {', '.join(map(str, steps))}; " if runs else "")
        + f"{done} of {len(every)} runs gave a release. "
        f"Up to {limit:.0%} may be suppressed; a run was stopped after "
        f"{number(comparison.time_limit)} seconds.",
        parts=parts,
        footer="Measures are exact. Frontiers are computed from all flows, and rounded.",
        internal=internal,
    )


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _marks(runs: Sequence[MeasuredRun], methods: Sequence[str]) -> dict[str, list[Mark]]:
    """Returns the suppressed share and error of each run that has both, by k and protection."""
    groups: dict[str, list[Mark]] = {}
    for run in runs:
        marks = groups.setdefault(f"k = {run.k}, protecting {run.protection}", [])
        marks += marks_of(run.name, run.measures, methods.index(run.name))
    return groups


def _charts_part(
    runs: Sequence[MeasuredRun], methods: Sequence[str], max_suppressed: float
) -> PagePart:
    drawn = []
    for protection in _distinct(run.protection for run in runs):
        here = [run for run in runs if run.protection == protection]
        ticks = sorted({float(run.k) for run in here if run.k is not None})
        figures = []
        for key, title, note, log in _CHARTS:
            if key == "mean_time_width_h" and not any(run.measures.get(key) for run in here):
                continue
            lines = [
                _line(
                    method,
                    [run for run in here if run.name == method],
                    key,
                    methods.index(method),
                    max_suppressed,
                )
                for method in _distinct(run.name for run in here)
            ]
            chart = line_chart(lines, title=title, x_label="k", ticks=ticks, log=log)
            figures.append(Figure(title, note, [("", chart)]))
        drawn.append((protection, figures))
    missing = [
        f"{run.name} at k = {run.k} protecting {run.protection} ({run.status})"
        for run in runs
        if run.status != "done"
    ]
    return PagePart(
        "charts", "What each k costs", fill("trade_offs.html", charts=drawn, missing=missing)
    )


def _line(
    method: str, runs: Sequence[MeasuredRun], key: str, place: int, max_suppressed: float
) -> Line:
    """Returns the line of a method; one above the limit of suppression is marked and faded."""
    most = max((float(run.measures.get("suppressed_share") or 0) for run in runs), default=0.0)
    over = most > max_suppressed + 1e-3
    name = f"{method} (−{share_in_words(most)})" if over else method
    values = [(run.k, run.seconds if key == "seconds" else run.measures.get(key)) for run in runs]
    unit = 100 if key in SHARES else 1
    points = tuple(
        (float(k), None if v is None else unit * float(v)) for k, v in values if k is not None
    )
    return Line(name, points, place, faded=over)


def _maps_part(runs: Sequence[MeasuredRun]) -> PagePart | None:
    """Returns maps of both ends of every run, coloured by volume per km² on one scale."""
    shown = [
        run
        for run in runs
        if run.zones is not None and run.zones["lat"].null_count < len(run.zones)
    ]
    # If not all fit, the largest k are kept: they are the hardest.
    for k in sorted({run.k for run in shown if run.k is not None})[:-1]:
        if len(shown) * 2 > _MAX_MAPS:
            shown = [run for run in shown if run.k != k]
    shown = shown[: _MAX_MAPS // 2]
    if not shown:
        return None
    basis = "weight" if all(run.basis == "weight" for run in shown) else "trips"
    layers, outlines = {}, []
    for i, run in enumerate(shown):
        assert run.flows is not None
        assert run.zones is not None
        for end in maps.ENDS:
            zones = maps.largest_zones(
                run.flows, maps.placed(run.zones), end, basis, most=_MAX_ZONES
            )
            drawn = {
                **maps.look(end, f"{basis} per km²", scale="main"),
                "overlap": not run.homogeneous,
            }
            layers[f"run{i}_{end}"] = maps.zone_layer(run.flows, zones, end, basis) | drawn
            outlines.append(maps.geometries(zones))
    frame, shapes = maps.place_layers(layers, outlines)
    if frame is None:
        return None
    data = {
        "frame": frame.to_dict(),
        "context": maps.around(
            [maps.placed(run.zones) for run in shown if run.zones is not None], frame
        ),
        "shapes": shapes,
        "layers": layers,
    }

    def listed(protection: str, k: int | None, end: str) -> Iterator[tuple[str, str, str, str]]:
        for i, run in enumerate(shown):
            if (run.protection, run.k) == (protection, k):
                n_zones = number(len(layers[f"run{i}_{end}"]["code"]))
                yield f"run{i}_{end}", run.name, f"{n_zones} {end}s", end

    groups = [
        {
            "protection": protection,
            "k": k,
            "maps": [list(listed(protection, k, end)) for end in maps.ENDS],
        }
        for protection, k in _distinct((run.protection, run.k) for run in shown)
    ]
    return PagePart(
        "maps", "Maps of all runs", fill("compared_maps.html", basis=basis, groups=groups), data
    )
