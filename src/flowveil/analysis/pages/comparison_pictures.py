"""Zones of several runs as one static picture, side by side on one extent; of two runs, over each other.

Figures 3 of the ODkAnon report and 5.1 and 5.2 of the thesis: where zones differ between two protections or methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import pyarrow as pa

from flowveil.errors import ParameterError
from flowveil.output import check_file, write_files
from flowveil.private_files import refuse_inside_release
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
#: More maps than this cannot be read.
MOST_MAPS = 12


@dataclass(frozen=True, eq=False)
class Shown:
    """One run of a picture.

    Attributes:
        name: above its maps.
        flows, zones: what it would publish.
    """

    name: str
    flows: pa.Table
    zones: pa.Table


def draw_compared(
    runs: Sequence[Shown],
    path: str | PathLike[str],
    *,
    caption: str,
    show: str = "origins",
    bbox: Sequence[float] | None = None,
    zoom: float = 1.0,
    dpi: int = 200,
) -> Path:
    """Draw the zones of all runs into a file; never inside a release.

    Args:
        runs: what to draw, a column each.
        path: the file; ``.png``, ``.svg`` or ``.pdf``.
        caption: text below the maps.
        show: ``origins``, ``destinations``, or ``both`` in two rows.
        bbox: west, south, east and north of what to show, in degrees; what holds nearly all trips by default.
        zoom: how many times nearer than that, around its middle.
        dpi: of a PNG.

    Raises:
        ParameterError: an argument is wrong, or there is nothing to draw.
        MissingExtraError: matplotlib is not installed.
        OutputError: the file cannot be written, or would lie in a release.
    """
    target, ends = Path(path), _ends(show)
    if not 0 < len(runs) * len(ends) <= MOST_MAPS:
        raise ParameterError(
            f"A picture has 1 to {MOST_MAPS} maps; these runs would make {len(runs) * len(ends)}. "
            "Hint: fewer methods, protections or k."
        )
    for run in runs:
        check_picture(run.flows, run.zones, target, show, "trips")
    runs = [replace(run, zones=shifted_eastward(placed(run.zones))) for run in runs]
    refuse_inside_release(path)
    check_file(path)
    matplotlib, figure_of = load_matplotlib()
    with matplotlib.rc_context({"svg.hashsalt": "flowveil", "svg.fonttype": "none", "font.size": 8}):
        first = runs[0]
        extent = (Extent.of(first.flows, first.zones, "trips") if bbox is None else Extent.given(bbox)).nearer(zoom)
        across, high = size_of(extent, len(runs), None)
        figure = figure_of(figsize=(across, high * len(ends)), layout="constrained", dpi=dpi)
        places = figure.subplots(len(ends), len(runs), squeeze=False)
        said = []
        for row, end in zip(places, ends, strict=True):
            for place, run in zip(row, runs, strict=True):
                said += [f"{run.name}.", *draw_zones(figure, [place], run.flows, run.zones, "trips", (end,))]
                place.set_title(f"{run.name}: {end}s", loc="left")
                others = [other for other in runs if other is not run] if len(runs) == 2 else []
                notes = [draw_over(place, zones_of(other.zones, end)) for other in others]
                said += framed(place, extent, extent.outside(zones_of(run.zones, end)), notes)
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=6.5, color="#566274", parse_math=False, wrap=True)
        content = rendered(figure, target.suffix.lower(), "Zones of several runs", " ".join([*said, caption]))
    write_files({path: lambda file: file.write_bytes(content)})
    return target


def _ends(show: str) -> tuple[str, ...]:
    if show not in SHOWS:
        raise ParameterError(f"Cannot show '{show}'; allowed: {', '.join(SHOWS)}.")
    return ENDS if show == "both" else (show.removesuffix("s"),)
