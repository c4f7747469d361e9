"""Zones of several runs as one static picture with one extent; zones of two runs are drawn over each other.

Figure 3 of the ODkAnon report and figures 5.1 and 5.2 of the thesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import pyarrow as pa

from flowveil.analysis.experiment import Run
from flowveil.errors import ParameterError
from flowveil.output import write_files
from flowveil.private_files import check_place
from flowveil.published.maps import ENDS, placed, shifted_eastward, zones_of
from flowveil.published.pictures import (
    Extent,
    check_picture,
    draw_over,
    draw_zones,
    framed,
    load_matplotlib,
    rendered,
    size_of,
)

SHOWS = ("origins", "destinations", "both")
#: Largest number of maps; more cannot be read.
MOST_MAPS = 12


def draw_zones_of_runs(
    runs: Sequence[Run],
    path: str | PathLike[str],
    *,
    caption: str,
    show: str = "origins",
    bbox: Sequence[float] | None = None,
    zoom: float = 1.0,
    dpi: int = 200,
) -> Path:
    """Draw the zones of all runs that have tables into a file; never inside a release.

    Args:
        runs: the runs, a column each.
        path: the file; ``.png``, ``.svg`` or ``.pdf``.
        caption: text below the maps.
        show: ``origins``, ``destinations``, or ``both`` in two rows.
        bbox: west, south, east and north in degrees; the extent of nearly all trips by default.
        zoom: magnification around the centre.
        dpi: of a PNG.

    Raises:
        ParameterError: an argument is wrong, or there is nothing to draw.
        MissingExtraError: matplotlib is not installed.
        OutputError: the file cannot be written, or is inside a release.
    """
    target, ends = Path(path), _ends(show)
    k = {run.k for run in runs}
    maps: list[tuple[str, pa.Table, pa.Table]] = [
        (f"{run.name}, {run.protection}" + (f", k = {run.k}" if len(k) > 1 else ""), run.flows, run.zones)
        for run in runs
        if run.flows is not None and run.zones is not None
    ]
    if not 0 < len(maps) * len(ends) <= MOST_MAPS:
        raise ParameterError(
            f"A picture has 1 to {MOST_MAPS} maps; these runs would make {len(maps) * len(ends)}. "
            "Hint: fewer methods, protections or k."
        )
    for _, flows, zones in maps:
        check_picture(flows, zones, target, show, "trips")
    maps = [(name, flows, shifted_eastward(placed(zones))) for name, flows, zones in maps]
    check_place(path)
    matplotlib, figure_of = load_matplotlib()
    with matplotlib.rc_context({"svg.hashsalt": "flowveil", "svg.fonttype": "none", "font.size": 8}):
        extent = (Extent.of(*maps[0][1:], "trips") if bbox is None else Extent.given(bbox)).nearer(zoom)
        width, height = size_of(extent, len(maps), None)
        figure = figure_of(figsize=(width, height * len(ends)), layout="constrained", dpi=dpi)
        places = figure.subplots(len(ends), len(maps), squeeze=False)
        text = []
        for row, end in zip(places, ends, strict=True):
            for place, (name, flows, zones) in zip(row, maps, strict=True):
                text += [f"{name}.", *draw_zones(figure, [place], flows, zones, "trips", (end,))]
                place.set_title(f"{name}: {end}s", loc="left")
                others = [other for _, _, other in maps if other is not zones] if len(maps) == 2 else []
                notes = [draw_over(place, zones_of(other, end)) for other in others]
                text += framed(place, extent, extent.outside(zones_of(zones, end)), notes)
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=6.5, color="#566274", parse_math=False, wrap=True)
        content = rendered(figure, target.suffix.lower(), "Zones of several runs", " ".join([*text, caption]))
    write_files({path: lambda file: file.write_bytes(content)})
    return target


def _ends(show: str) -> tuple[str, ...]:
    if show not in SHOWS:
        raise ParameterError(f"Cannot show '{show}'; allowed: {', '.join(SHOWS)}.")
    return ENDS if show == "both" else (show.removesuffix("s"),)
