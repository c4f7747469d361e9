"""The map of a release's page as plain data.

Every published cell, every zone, and what lies around them.

What a page draws is a pure function of the rows of ``flows.parquet`` and ``zones.parquet``, so that
nothing can be read out of the page that is not in those files. Numbers are columns of bytes in
base64, which the page reads as typed arrays: a page of 36,000 cells holds all of them. Coordinates
are Web Mercator in whole units of a frame around the zones.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray

from flowveil.core.arrays import Outlines
from flowveil.core.hierarchy import OUTSIDE
from flowveil.core.times import TIME, TIME_COLUMNS
from flowveil.core.values import value_columns
from flowveil.published import maps
from flowveil.published.basemap_context import CREDIT, area_name, nearest_towns
from flowveil.published.maps import (
    ENDS,
    MapFrame,
    floats,
    geometries,
    is_drawn,
    volume_of,
    zone_of_flow,
)
from flowveil.published.user_outlines import Outline
from flowveil.release.facets import Facets

#: A page holds at most this many cells, the largest; a larger release says on its map how many are
#: not on the page.
MAX_CELLS = 2_000_000
#: Corners of all outlines together; finer outlines are simplified until they fit.
MAX_CORNERS = 400_000
#: The coordinate of a zone without a place.
NOWHERE = -(2**31)
_CLOCKS = {"hour": ("00:00", "24:00"), "weekday-hour": ("1 Mon 00:00", "7 Sun 24:00")}
_TIME_FORMS = {7: "%Y-%m", 10: "%Y-%m-%d", 16: "%Y-%m-%dT%H:%M"}


def flow_map(
    report: Mapping[str, Any], flows: pa.Table, zones: pa.Table, *, outlines: Sequence[Outline] = ()
) -> dict[str, Any]:
    """Returns what the page's script draws, from report.json, the published tables and the
    publisher's outlines.

    ``bases``, ``frame`` (None if no zone has a place), ``zones``, ``cells``, ``numbers`` where
    cells have means, totals or medians, ``slices`` or ``times`` where cells differ in them,
    ``context``, and ``area``: what the area is called.
    """
    bases = [basis for basis in maps.BASES if basis in flows.column_names]
    held = flows
    if len(flows) > MAX_CELLS:
        held = flows.take(
            pa.array(np.sort(np.argsort(-flows[bases[-1]].to_numpy(), kind="stable")[:MAX_CELLS]))
        )
    shapes, frame = geometries(zones), frame_of(zones)
    data: dict[str, Any] = {
        "bases": bases,
        "homogeneous": report["statement"]["homogeneous"],
        "frame": None if frame is None else frame.to_dict(),
        "zones": _zones(zones, shapes, frame),
        "cells": {
            "count": len(flows),
            **{end: pack(zone_of_flow(held, zones, end)) for end in ENDS},
            **{basis: pack(held[basis].to_numpy()) for basis in bases},
        },
        "context": _context(zones, shapes, frame, outlines),
        "area": place_name(flows, zones),
    }
    numbers = [
        name
        for name in value_columns(report["parameters"].get("columns", {}))
        if name in held.column_names
    ]
    if numbers:
        data["numbers"] = {name: pack(held[name].to_numpy()) for name in numbers}
    if report["statement"]["slice_columns"]:
        data["slices"] = _slices(report, held)
    elif report["parameters"].get("fold"):
        data["slices"] = _folds(report, held)
    elif Facets.from_report(report).folds:
        data["times"] = _times(report, held)
    return data


def frame_of(zones: pa.Table) -> MapFrame | None:
    """The frame of the map; None if no zone has a place."""
    points = np.column_stack((floats(zones, "lon"), floats(zones, "lat")))
    return MapFrame.around_places(geometries(zones), points)


def pack(values: NDArray[Any]) -> dict[str, str]:
    """Returns a column in the smallest of u1, u2, u4, i4 and f8 that holds it exactly,
    little-endian, in base64.
    """
    values = np.asarray(values)
    kind = "f8"
    if len(values) == 0:
        kind = "u1"
    elif values.dtype.kind in "iub" or bool(np.all(values == np.rint(values))):
        low, high = int(values.min()), int(values.max())
        if low >= 0 and high < 2**32:
            kind = "u1" if high < 2**8 else "u2" if high < 2**16 else "u4"
        elif low >= -(2**31) and high < 2**31:
            kind = "i4"
    return {"type": kind, "bytes": base64.b64encode(values.astype(f"<{kind}").tobytes()).decode()}


def unpack(column: Mapping[str, str]) -> NDArray[Any]:
    """Returns the values of a packed column."""
    return np.frombuffer(base64.b64decode(column["bytes"]), dtype=f"<{column['type']}")


def _zones(zones: pa.Table, shapes: Outlines, frame: MapFrame | None) -> dict[str, Any]:
    lat, lon, area = (floats(zones, name) for name in ("lat", "lon", "area_km2"))
    units = np.full((len(zones), 2), NOWHERE, dtype=np.int64)
    known = ~(np.isnan(lat) | np.isnan(lon))
    if frame is not None:
        units[known] = frame.whole_units(np.column_stack((lon, lat))[known])
    towns = nearest_towns(lat, lon, area)
    roles = {"origin": 1, "destination": 2, "both": 3}
    words = [*towns.words, "outside the study area"]
    outside = np.array([code == OUTSIDE for code in zones["zone"].to_pylist()]) & ~known
    return {
        "code": zones["zone"].to_pylist(),
        "name": zones["name"].to_pylist() if "name" in zones.column_names else None,
        "role": pack(np.array([roles[role] for role in zones["role"].to_pylist()], dtype=np.uint8)),
        "x": pack(units[:, 0]),
        "y": pack(units[:, 1]),
        "area": pack(np.array([float(f"{a:.4g}") for a in np.nan_to_num(area, nan=-1.0).tolist()])),
        "words": words,
        "word": pack(np.where(outside, len(words) - 1, towns.word)),
        "number": pack(towns.number),
        "hectometres": pack(np.rint(10 * np.nan_to_num(towns.km, nan=0.0)).astype(np.int64)),
        "shapes": pack_shapes(shapes, frame),
    }


def place_name(flows: pa.Table, zones: pa.Table) -> str | None:
    """Returns the name of the place where most published trips start and end; None if unknown."""
    trips = pa.array(np.maximum(flows["trips"].to_numpy(), 0))
    counted = pa.table({**{f"{end}_zone": flows[f"{end}_zone"] for end in ENDS}, "trips": trips})
    volume = volume_of(counted, zones, "origin", "trips") + volume_of(
        counted, zones, "destination", "trips"
    )
    return area_name(floats(zones, "lat"), floats(zones, "lon"), volume)


def pack_shapes(
    shapes: Outlines, frame: MapFrame | None, *, most: int = MAX_CORNERS
) -> dict[str, Any]:
    """Returns polygons and lines as bytes in base64, and the number of bytes of each.

    A shape is a row of whole numbers: how many rings or lines, and for each how many corners, then
    x and y of the first corner and the differences from corner to corner. Numbers are zigzag
    varints of 1 to 5 bytes; the last corner of a ring, which is its first again, is not written.
    """
    there = is_drawn(shapes)
    sizes = np.zeros(len(shapes), dtype=np.int64)
    if frame is None or not there.any():
        return {"sizes": pack(sizes), "bytes": ""}
    rings, n = maps.Rings.from_shapes(shapes[there], frame, most), int(there.sum())
    # Heads go in front of their lines: the number of corners, and in front of the first line that
    # of the lines.
    line_at = 2 * (np.cumsum(rings.corners) - rings.corners)
    lines_of = np.bincount(rings.owner, minlength=n)
    shape_at = np.append(line_at, 2 * rings.corners.sum())[np.cumsum(lines_of) - lines_of]
    heads = np.concatenate((shape_at, line_at))
    values = np.insert(rings.steps.ravel(), heads, np.concatenate((lines_of, rings.corners)))
    owners = np.insert(
        np.repeat(rings.owner[rings.line], 2), heads, np.concatenate((np.arange(n), rings.owner))
    )
    content, length = _varints(values)
    sizes[there] = np.bincount(owners, weights=length, minlength=n).astype(np.int64)
    return {"sizes": pack(sizes), "bytes": base64.b64encode(content).decode()}


def _varints(values: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
    """Returns whole numbers as zigzag varints, and how many bytes each has."""
    zigzag = np.where(values < 0, -2 * values - 1, 2 * values).astype(np.uint64)
    length = np.ones(len(zigzag), dtype=np.int64)
    for i in range(1, 5):
        length += zigzag >= np.uint64(1) << np.uint64(7 * i)
    start = np.cumsum(length) - length
    content = np.zeros(int(length.sum()), dtype=np.uint8)
    for i in range(5):
        more = length > i
        low = (zigzag[more] >> np.uint64(7 * i)) & np.uint64(127)
        content[start[more] + i] = low + np.where(length[more] > i + 1, 128, 0).astype(np.uint64)
    return content.tobytes(), length


def _slices(report: Mapping[str, Any], flows: pa.Table) -> dict[str, Any]:
    """Returns which matrix each cell is in, the ``keys`` of the matrices, and the axis."""
    columns: Sequence[str] = report["statement"]["slice_columns"]
    keys = [[part["slice"][name] for name in columns] for part in report["published"]["slices"]]
    number = {tuple(key): i for i, key in enumerate(keys)}
    rows = zip(*(flows[name].to_pylist() for name in columns), strict=True)
    at = list(columns).index(TIME) if TIME in columns else -1
    of = pack(np.array([number[row] for row in rows], dtype=np.int64))
    return {"columns": list(columns), "time": at, "keys": keys, "of": of}


def _folds(report: Mapping[str, Any], flows: pa.Table) -> dict[str, Any]:
    """Returns the group and interval of each cell in the form of slices."""
    fold = report["parameters"].get("fold") or {}
    columns = {name: flows[name].to_pylist() for name in flows.column_names if name in fold}
    trees: list[Any] = [_preorder(fold[name]) for name in columns]
    if TIME_COLUMNS[0] in flows.column_names:
        spans = zip(*(flows[name].to_pylist() for name in TIME_COLUMNS), strict=True)
        columns[TIME] = [" to ".join(span) for span in spans]
        trees.append(None)
    rows = list(zip(*columns.values(), strict=True))
    number = {key: i for i, key in enumerate(sorted(set(rows)))}
    of = pack(np.array([number[row] for row in rows], dtype=np.int64))
    keys = [list(key) for key in number]
    return {
        "columns": list(columns),
        "time": -1,
        "keys": keys,
        "of": of,
        "trees": trees,
    }


def _preorder(parents: Mapping[str, str | None]) -> list[tuple[str, str | None]]:
    """Returns the nodes of a tree with their parents, each before its children."""
    children: dict[str | None, list[str]] = {}
    for node, parent in sorted(parents.items()):
        children.setdefault(parent, []).append(node)
    found, waiting = [], children[None]
    while waiting:
        node = waiting.pop(0)
        found.append((node, parents[node]))
        waiting = children.get(node, []) + waiting
    return found


def _times(report: Mapping[str, Any], flows: pa.Table) -> dict[str, Any]:
    """Returns the interval of each cell, in hours since the first hour, and the labels of both
    ends.
    """
    every = report["parameters"]["slices"]["every"]
    start, stop = (flows[name].to_pylist() for name in TIME_COLUMNS)
    ends = _CLOCKS.get(every) or (min(start, default=""), max(stop, default=""))
    spans = {pair: i for i, pair in enumerate(sorted(set(zip(start, stop, strict=True))))}
    begin = _hour(ends[0], every)
    return {
        "from": ends[0],
        "to": ends[1],
        "hours": _hour(ends[1], every) - begin,
        "every": every,
        "intervals": [
            [_hour(a, every) - begin, _hour(b, every) - begin, f"{a} to {b}"] for a, b in spans
        ],
        "of": pack(
            np.array([spans[pair] for pair in zip(start, stop, strict=True)], dtype=np.int64)
        ),
    }


def _hour(text: str, every: str) -> float:
    """Returns hours since the beginning of the day or the week, or of the calendar."""
    if every == "hour":
        return float(int(text[:2]))
    if every == "weekday-hour":
        return float((int(text[0]) - 1) * 24 + int(text[6:8]))
    return (
        datetime.strptime(text, _TIME_FORMS[len(text)]) - datetime(1, 1, 1)
    ).total_seconds() / 3600


def _context(
    zones: pa.Table, shapes: Outlines, frame: MapFrame | None, outlines: Sequence[Outline]
) -> dict[str, Any] | None:
    """Returns water, borders, rivers and towns around the zones; None across the 180th meridian."""
    if frame is None or frame.shifted:
        return None
    around, towns = maps.surroundings(zones, shapes, frame)
    lines = [
        (
            shapely.multilinestrings([shapely.linestrings(line) for line in outline.lines])
            if outline.lines
            else None
        )
        for outline in outlines
    ]
    named = []
    for outline in outlines:
        if outline.name is not None and outline.label is not None:
            width = float(np.ptp(np.vstack(outline.lines), axis=0).max()) if outline.lines else 0.0
            named.append(
                (-width, outline.name, *frame.whole_units(np.array([outline.label]))[0].tolist())
            )
    return {
        "water": pack_shapes(around.water, frame),
        **{name: pack_shapes(parts, frame) for name, parts in around.lines.items()},
        "towns": towns,
        "ownLines": pack_shapes(np.array(lines, dtype=object), frame),
        # The names of the largest first.
        "ownNames": [list(rest) for _, *rest in sorted(named)],
        "credit": CREDIT,
    }
