"""The page of a series: one map, a slider over the steps, and what each step publishes.

A pure function of the published tables of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from flowveil.published.document import Part, fill, number, page

#: Width of the map in units of the drawing; corners are rounded to a tenth of a unit.
_WIDTH = 720
#: Cells that are listed for each step.
_LARGEST = 10


def render_series(index: Mapping[str, Any], steps: Mapping[str, tuple[pa.Table, pa.Table]]) -> str:
    """The page.

    Args:
        index: the content of index.json.
        steps: flows and zones of each published step, by its label.
    """
    shapes, height = _drawn(steps)
    codes = list(shapes)
    values = {step: _trips_of_origins(flows, codes) for step, (flows, _) in steps.items()}
    largest = {step: _largest(flows) for step, (flows, _) in steps.items()}
    data = {"steps": list(steps), "values": values, "largest": largest, "codes": codes}
    rows = [(row["step"], _folder(row), [number(row["trips"]), number(row["cells"])]) for row in index["steps"]]
    over_time = fill("series.html", shapes=shapes, width=_WIDTH, height=height, data=data, first=next(iter(steps)))
    listed = fill("series_steps.html", rows=rows)
    return page(
        title="Series of releases",
        heading="Series of releases",
        lead=f"{len(steps)} steps (every {index['every']}) over the same zones; each is a release with its own page.",
        parts=[Part("maps", "Over time", over_time), Part("steps", "Steps", listed)],
        notices=[("Totals", " are sums of what the steps publish: cells that a step suppresses are not in them.")],
    )


def _folder(row: Mapping[str, Any]) -> str:
    """The folder of the newest release of a step."""
    return f"{row['step']}-r{row['revisions']}" if row["revisions"] else str(row["step"])


def _drawn(steps: Mapping[str, tuple[pa.Table, pa.Table]]) -> tuple[dict[str, str], int]:
    """The outline of each origin zone as a path, by code; and the height of the drawing."""
    outlines: dict[str, Any] = {}
    for _, zones in steps.values():
        listed = zip(*(zones[name].to_pylist() for name in ("zone", "role", "geometry")), strict=True)
        outlines |= {zone: shape for zone, role, shape in listed if role != "destination" and shape is not None}
    if not outlines:
        return {}, 0
    codes = sorted(outlines)
    shapes = shapely.from_wkb([outlines[code] for code in codes])
    west, south, east, north = shapely.total_bounds(shapes).tolist()
    narrowing = float(np.cos(np.radians((south + north) / 2)))
    scale = _WIDTH / max((east - west) * narrowing, 1e-9)
    height = round((north - south) * scale)
    at = np.array([west, north])
    paths = {
        code: " ".join(
            "M" + " ".join(f"{x:.1f},{y:.1f}" for x, y in ((ring - at) * [narrowing * scale, -scale]).tolist()) + "Z"
            for polygon in shapely.get_parts(shape)
            for ring in [shapely.get_coordinates(shapely.get_exterior_ring(polygon))]
        )
        for code, shape in zip(codes, shapes, strict=True)
    }
    return paths, height


def _trips_of_origins(flows: pa.Table, codes: Sequence[str]) -> list[int]:
    summed = dict.fromkeys(codes, 0)
    for zone, trips in zip(flows["origin_zone"].to_pylist(), flows["trips"].to_pylist(), strict=True):
        if zone in summed:
            summed[zone] += trips
    return list(summed.values())


def _largest(flows: pa.Table) -> list[tuple[str, str, int]]:
    rows = zip(*(flows[name].to_pylist() for name in ("origin_zone", "destination_zone", "trips")), strict=True)
    return sorted(rows, key=lambda row: (-row[2], row[0], row[1]))[:_LARGEST]
