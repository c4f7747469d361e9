"""The map of a release's page as plain data: every published cell, every zone, and what lies around them.

What a page draws is a pure function of the rows of ``flows.parquet`` and ``zones.parquet``, so that nothing can be read
out of the page that is not in those files. Numbers are columns of bytes in base64, which the page reads as typed
arrays: a page of 36,000 cells holds all of them. Coordinates are Web Mercator in whole units of a frame around the
zones.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from flowveil.hierarchy import OUTSIDE, Floats
from flowveil.published.basemap_context import CREDIT, area_name, context_of, nearest_towns, own_names, world
from flowveil.published.maps import BASES, ENDS, Frame, Geometries, geometries, part_bounds
from flowveil.published.user_outlines import Outline
from flowveil.times import TIME, TIME_COLUMNS, Every

#: A page holds at most this many cells, the largest; a larger release says on its map how many are not on the page.
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
    """Returns what the page's script draws.

    Args:
        report: the content of report.json.
        flows: the published cells.
        zones: the published zones.
        outlines: what the publisher brought for orientation.

    Returns:
        ``bases``, ``frame`` (None if no zone has a place), ``zones``, ``cells``, ``slices`` or ``times`` where cells
        differ in them, ``context``, and ``area``: what the area is called.
    """
    bases = [basis for basis in BASES if basis in flows.column_names]
    held = flows if len(flows) <= MAX_CELLS else _largest(flows, bases[-1])
    shapes = geometries(zones)
    frame = _frame(zones, shapes)
    data: dict[str, Any] = {
        "bases": bases,
        "homogeneous": report["statement"]["homogeneous"],
        "frame": None if frame is None else frame.to_dict(),
        "zones": _zones(zones, shapes, frame),
        "cells": {
            "count": len(flows),
            **{end: pack(_zone_numbers(held, zones, end)) for end in ENDS},
            **{basis: pack(held[basis].to_numpy()) for basis in bases},
        },
        "context": _context(zones, shapes, frame, outlines),
        "area": _area(flows, zones),
    }
    if report["statement"]["slice_columns"]:
        data["slices"] = _slices(report, held)
    elif report["kind"] == "folded":
        data["times"] = _times(report, held)
    return data


def pack(values: NDArray[Any]) -> dict[str, str]:
    """Returns a column as the smallest type that holds it exactly, little-endian, in base64.

    Whole numbers become u1, u2, u4 or i4; others, and larger ones, f8.
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


# ---- zones and cells ---------------------------------------------------------------------------------------------


def _largest(flows: pa.Table, basis: str) -> pa.Table:
    order = np.argsort(-flows[basis].to_numpy(), kind="stable")[:MAX_CELLS]
    return flows.take(pa.array(np.sort(order)))


def _zone_numbers(flows: pa.Table, zones: pa.Table, end: str) -> NDArray[np.int64]:
    found = pc.index_in(flows[f"{end}_zone"], value_set=zones["zone"].combine_chunks())
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)


def _floats(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=np.float64)


def _placed(shapes: Geometries) -> NDArray[np.bool_]:
    return ~np.asarray(shapely.is_missing(shapes) | shapely.is_empty(shapes), dtype=np.bool_)


def _frame(zones: pa.Table, shapes: Geometries) -> Frame | None:
    lon, lat = _floats(zones, "lon"), _floats(zones, "lat")
    known = ~(np.isnan(lon) | np.isnan(lat))
    points = np.column_stack((lon, lat, lon, lat))[known]
    bounds = np.concatenate((part_bounds(shapes[_placed(shapes)]), points))
    return Frame.around(bounds) if len(bounds) else None


def _zones(zones: pa.Table, shapes: Geometries, frame: Frame | None) -> dict[str, Any]:
    lat, lon, area = (_floats(zones, name) for name in ("lat", "lon", "area_km2"))
    units = np.full((len(zones), 2), NOWHERE, dtype=np.int64)
    known = ~(np.isnan(lat) | np.isnan(lon))
    if frame is not None:
        units[known] = np.rint(frame.units(np.column_stack((lon, lat))[known])).astype(np.int64)
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


def _area(flows: pa.Table, zones: pa.Table) -> str | None:
    volume = np.zeros(len(zones))
    for end in ENDS:
        at = _zone_numbers(flows, zones, end)
        volume += np.bincount(at, weights=np.maximum(flows["trips"].to_numpy(), 0), minlength=len(zones))
    return area_name(_floats(zones, "lat"), _floats(zones, "lon"), volume)


# ---- shapes ------------------------------------------------------------------------------------------------------


def pack_shapes(shapes: Geometries, frame: Frame | None, *, most: int = MAX_CORNERS) -> dict[str, Any]:
    """Returns polygons and lines as bytes in base64, and the number of bytes of each.

    A shape is a row of whole numbers: how many rings or lines, and for each how many corners, then x and y of the first
    corner and the differences from corner to corner. Numbers are zigzag varints of 1 to 5 bytes; the last corner of a
    ring, which is its first again, is not written.
    """
    there = _placed(shapes)
    if frame is None or not there.any():
        return {"sizes": pack(np.zeros(len(shapes), dtype=np.int64)), "bytes": ""}
    fitted = np.asarray(shapely.transform(shapes[there], frame.units), dtype=object)
    tolerance = 0.5
    while shapely.get_num_coordinates(fitted).sum() > most and tolerance < 4000:
        fitted = shapely.simplify(fitted, tolerance, preserve_topology=True)
        tolerance *= 2
    parts, shape_of_part = shapely.get_parts(fitted, return_index=True)
    is_area = shapely.get_type_id(parts) == 3
    rings, part_of_ring = shapely.get_rings(parts[is_area], return_index=True)
    lines = np.concatenate((rings, parts[~is_area & (shapely.get_type_id(parts) == 1)]))
    owner = np.concatenate(
        (shape_of_part[is_area][part_of_ring], shape_of_part[~is_area & (shapely.get_type_id(parts) == 1)])
    )
    order = np.argsort(owner, kind="stable")
    sizes = np.zeros(len(shapes), dtype=np.int64)
    content, lengths = _varints(lines[order], owner[order], len(fitted))
    sizes[there] = lengths
    return {"sizes": pack(sizes), "bytes": base64.b64encode(content).decode()}


def _varints(lines: Geometries, owner: NDArray[np.int64], n: int) -> tuple[bytes, NDArray[np.int64]]:
    """Returns the lines of ``n`` shapes as bytes, and how many bytes each shape has."""
    points, line = shapely.get_coordinates(lines, return_index=True)
    units = np.rint(points).astype(np.int64)
    first = np.ones(len(units), dtype=np.bool_)
    first[1:] = line[1:] != line[:-1]
    steps = np.diff(units, axis=0, prepend=units[:1])
    steps[first] = units[first]
    closed = np.asarray(shapely.get_type_id(lines) == 2, dtype=np.bool_)
    last = np.append(first[1:], True)
    kept = first | (steps.any(axis=1) & ~(last & closed[line]))
    corners = np.bincount(line[kept], minlength=len(lines))
    # Heads go in front of their lines: the number of corners, and in front of the first line that of the lines.
    line_at = 2 * (np.cumsum(corners) - corners)
    lines_of = np.bincount(owner, minlength=n)
    shape_at = np.append(line_at, 2 * corners.sum())[np.cumsum(lines_of) - lines_of]
    values = np.insert(steps[kept].ravel(), np.concatenate((shape_at, line_at)), np.concatenate((lines_of, corners)))
    owners = np.insert(
        np.repeat(owner[line[kept]], 2), np.concatenate((shape_at, line_at)), np.concatenate((np.arange(n), owner))
    )
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
    return content.tobytes(), np.bincount(owners, weights=length, minlength=n).astype(np.int64)


# ---- slices and times --------------------------------------------------------------------------------------------


def _slices(report: Mapping[str, Any], flows: pa.Table) -> dict[str, Any]:
    """Returns which matrix each cell is in: ``keys`` of the matrices, whether each is one of the finest, and the axis.

    A sum over the finest matrices counts every trip once; the others are totals of them.
    """
    columns: Sequence[str] = report["statement"]["slice_columns"]
    every = report["parameters"]["slices"].get("every")
    keys = [[part["slice"][name] for name in columns] for part in report["published"]["slices"]]
    number = {tuple(key): i for i, key in enumerate(keys)}
    rows = zip(*(flows[name].to_pylist() for name in columns), strict=True)
    finest = [None not in key and _is_shortest(key, columns, every) for key in keys]
    return {
        "columns": list(columns),
        "time": list(columns).index(TIME) if TIME in columns else -1,
        "keys": keys,
        "finest": finest if any(finest) else [True] * len(keys),
        "of": pack(np.array([number[row] for row in rows], dtype=np.int64)),
    }


def _is_shortest(key: Sequence[Any], columns: Sequence[str], every: str | None) -> bool:
    if every is None or TIME not in columns:
        return True
    return len(key[list(columns).index(TIME)]) == Every.parse(every).label_length


def _times(report: Mapping[str, Any], flows: pa.Table) -> dict[str, Any]:
    """Returns the interval of each cell, in hours since the first hour, and the labels of both ends."""
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
        "intervals": [[_hour(a, every) - begin, _hour(b, every) - begin, f"{a} to {b}"] for a, b in spans],
        "of": pack(np.array([spans[pair] for pair in zip(start, stop, strict=True)], dtype=np.int64)),
    }


def _hour(text: str, every: str) -> float:
    """Returns hours since the beginning of the day or the week, or of the calendar."""
    if every == "hour":
        return float(int(text[:2]))
    if every == "weekday-hour":
        return float((int(text[0]) - 1) * 24 + int(text[6:8]))
    return (datetime.strptime(text, _TIME_FORMS[len(text)]) - datetime(1, 1, 1)).total_seconds() / 3600


# ---- what lies around --------------------------------------------------------------------------------------------


def _context(
    zones: pa.Table, shapes: Geometries, frame: Frame | None, outlines: Sequence[Outline]
) -> dict[str, Any] | None:
    """Returns water, borders, rivers and towns around the zones; None across the 180th meridian."""
    if frame is None or frame.shifted:
        return None
    lon, lat = _floats(zones, "lon"), _floats(zones, "lat")
    corners = np.vstack((shapely.bounds(shapes), np.column_stack((lon, lat, lon, lat))))
    bounds = np.concatenate((np.nanmin(corners[:, :2], axis=0), np.nanmax(corners[:, 2:], axis=0)))
    around, here = context_of(bounds), world()
    units = np.rint(frame.units(np.column_stack((here.lon[around.towns], here.lat[around.towns])))).astype(np.int64)
    lines = [shapely.multilinestrings([shapely.linestrings(line) for line in outline.lines]) for outline in outlines]
    return {
        "water": pack_shapes(around.water, frame),
        **{name: pack_shapes(parts, frame) for name, parts in around.lines.items()},
        "towns": [[here.names[i], *xy] for i, xy in zip(around.towns.tolist(), units.tolist(), strict=True)],
        "ownLines": pack_shapes(np.array(lines, dtype=object), frame),
        "ownNames": own_names(outlines, frame),
        "credit": CREDIT,
    }
