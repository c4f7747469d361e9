"""Which matrices the maps of a page show: one, the slices of a release one at a time, or a common zoning.

Slices have zones of their own, and the zones of a nested release overlap, so neither can be added up on one map as they
are. Their sum is shown on common areas instead, hexagons of one resolution: every cell is spread evenly over the tiles
that its zones could hold, as `flowveil reconstruct` does it. That is an estimate, and the page says so. Everything here
follows from the published tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from flowveil.hierarchy import VIRTUAL_ROOT
from flowveil.published.maps import ENDS, MAX_FLOWS, View, hexagons
from flowveil.published.noise import is_noisy
from flowveil.published.reconstruction import rows_of_spreading, spread_over_cells, typical_level
from flowveil.published.slices import overview, zones_in
from flowveil.published.times import times_of
from flowveil.times import TIME, TIME_COLUMNS, Every

#: Slices that a page holds; report.json and the tables have all.
MOST_SLICES = 400
#: Flows of all slices together, and zones of one end: each slice has an equal part, its largest.
_FLOWS_OF_SLICES = 60_000
_ZONES_OF_SLICES = 100_000
#: Common areas of an end, and rows on the way to them: more would be slow, and nobody sees more.
_MOST_AREAS = 2_500
_MOST_ROWS = 2_000_000


@dataclass(frozen=True)
class Views:
    """What the maps of a page show.

    Attributes:
        own: what the page has whichever further views there are.
        further: slices, or the zones as published beside common areas.
        said: how a reader chooses among them, for the page's script; empty where there is nothing to choose.
        slices: which slice is which, for the page's script.
    """

    own: View
    further: Sequence[View] = ()
    said: Mapping[str, Any] = field(default_factory=dict)
    slices: Mapping[str, Any] | None = None


def views_of(report: Mapping[str, Any], flows: pa.Table, zones: pa.Table, *, common: bool = True) -> Views:
    """The views of a release; see `Views`.

    Args:
        report, flows, zones: what is published.
        common: whether zones that overlap are spread over common areas first.
    """
    if report["statement"]["slice_columns"]:
        return _sliced(report, flows, zones)
    folded = report["kind"] == "folded"
    shown = overview(flows, TIME_COLUMNS, None) if folded else flows
    times = times_of(report, flows) if folded else None
    published = View(shown, zones, homogeneous=report["statement"]["homogeneous"], times=times)
    if report["statement"]["homogeneous"] or report["statement"]["boxes"] is not None or is_noisy(report):
        return Views(published)
    areas = _common(report, shown, zones) if common else None
    if areas is None:
        return Views(published)
    said = {
        "kind": "nested",
        "first": -1,
        "own": f"common areas (estimated, H3 resolution {areas.level})",
        "ownNote": "The zones of this release overlap, so the maps show common areas: every published cell is spread "
        "evenly over the tiles that its zones could hold, and added up. These numbers are estimates. Choose a place to "
        "see the published zones that hold it, from fine to coarse."
        + (" Choose the published zones to see when a pair is published." if folded else ""),
        "titles": ["zones as published"],
        "notes": ["Small zones are drawn on top of large ones; a place is held by several."],
    }
    return Views(areas, [published], said)


# ---- slices ------------------------------------------------------------------------------------------------------


def _sliced(report: Mapping[str, Any], flows: pa.Table, zones: pa.Table) -> Views:
    columns: Sequence[str] = report["statement"]["slice_columns"]
    every = report["parameters"]["slices"].get("every")
    common = report["parameters"]["slices"].get("common_zones") is True or is_noisy(report)
    shared = common and report["statement"]["homogeneous"]
    keys = [[part["slice"][name] for name in columns] for part in report["published"]["slices"]]
    held = [(key, table) for key, table in _tables(flows, columns, keys) if len(table)][:MOST_SLICES]
    parts = [View(table, zones_in(table, zones), homogeneous=report["statement"]["homogeneous"]) for _, table in held]
    bases = [name for name in ("trips", "weight") if name in flows.column_names]
    volumes = {basis: [float(pc.sum(table[basis]).as_py()) for _, table in held] for basis in bases}
    summed = overview(flows, columns, every)
    if not held:
        return Views(View(summed, zones, homogeneous=False))
    finest = [_is_finest(key, columns, every) for key, _ in held]
    first = int(np.argmax(np.array(volumes["trips"]) * finest))
    own = View(summed, zones, homogeneous=True) if shared else _common(report, summed, zones)
    said: dict[str, Any] = {"kind": "slices", "first": first, "common": shared}
    if shared:
        said |= {"own": "all slices added up", "ownNote": "All slices added up: they have the same zones."}
    elif own is not None:
        said |= {
            "own": f"all slices on common areas (estimated, H3 resolution {own.level})",
            "ownNote": "Slices have zones of their own, so their sum is shown on common areas: every published cell is "
            "spread evenly over the tiles that its zones could hold. These numbers are estimates.",
        }
    slices = {
        "columns": list(columns),
        "time": list(columns).index(TIME) if TIME in columns else -1,
        "keys": [key for key, _ in held],
        "volumes": volumes,
        "count": len(keys),
    }
    return Views(own or parts[first], parts, said, slices)


def _is_finest(key: Sequence[Any], columns: Sequence[str], every: str | None) -> bool:
    """Whether a slice has a value in every column, and a time of the shortest step."""
    if None in key:
        return False
    return every is None or len(key[list(columns).index(TIME)]) == Every.parse(every).label_length


def _tables(
    flows: pa.Table, columns: Sequence[str], keys: Sequence[Sequence[Any]]
) -> Iterator[tuple[Sequence[Any], pa.Table]]:
    """The rows of each slice, without the columns that name it."""
    number = np.zeros(len(flows), dtype=np.int64)
    wanted = np.zeros(len(keys), dtype=np.int64)
    for at, name in enumerate(columns):
        coded = pc.dictionary_encode(flows[name].combine_chunks(), null_encoding="encode")
        values = {value: i for i, value in enumerate(coded.dictionary.to_pylist())}
        number = number * (len(values) + 1) + coded.indices.to_numpy()
        # A slice without a row has a number of its own.
        found = np.array([values.get(key[at], len(values)) for key in keys], dtype=np.int64)
        wanted = wanted * (len(values) + 1) + found
    order = np.argsort(number, kind="stable")
    starts, stops = (np.searchsorted(number[order], wanted, side=side) for side in ("left", "right"))
    bare = flows.drop_columns(list(columns)).combine_chunks()
    for key, start, stop in zip(keys, starts, stops, strict=True):
        yield key, bare.take(pa.array(order[start:stop]))


def limits(views: Views, most_flows: int | None) -> dict[str, int]:
    """How many flows, and zones of an end, each further view may hold."""
    n = max(len(views.further), 1)
    if views.slices is None:
        return {"max_flows": most_flows or MAX_FLOWS}
    return {"max_flows": max(20, (most_flows or _FLOWS_OF_SLICES) // n), "max_zones": max(50, _ZONES_OF_SLICES // n)}


# ---- common areas ------------------------------------------------------------------------------------------------


def _common(report: Mapping[str, Any], flows: pa.Table, zones: pa.Table) -> View | None:
    """The flows between hexagons of one resolution, or None where the zones are no H3 cells.

    The resolution is the one that half of the trips' ends are known at, or coarser where that would be too many.
    """
    resolution = report["parameters"].get("resolution")
    codes = zones["zone"].to_pylist()
    if not isinstance(resolution, int) or "h3_cells" not in zones.column_names or VIRTUAL_ROOT in codes:
        return None
    if zones["lat"].null_count or zones["h3_cells"].null_count or not len(flows):
        return None
    for level in range(min(typical_level(flows, zones), resolution), -1, -1):
        rows, areas = rows_of_spreading(flows, zones, level)
        if rows <= _MOST_ROWS and areas <= _MOST_AREAS:
            spread = spread_over_cells(flows, zones, level=level, resolution=resolution)
            table = spread.rename_columns([{e: f"{e}_zone" for e in ENDS}.get(n, n) for n in spread.column_names])
            return View(table, _hexagons_as_zones(table, resolution), homogeneous=True, level=level)
    return None


def _hexagons_as_zones(flows: pa.Table, resolution: int) -> pa.Table:
    """The common areas in the form of published zones."""
    import h3.api.basic_str as h3

    ends = [set(flows[f"{end}_zone"].to_pylist()) for end in ENDS]
    cells = sorted(ends[0] | ends[1])
    roles = [ENDS[0] if c not in ends[1] else ENDS[1] if c not in ends[0] else "both" for c in cells]
    centers = np.array([h3.cell_to_latlng(cell) for cell in cells])
    return pa.table(
        {
            "zone": cells,
            "role": roles,
            "level": [h3.get_resolution(cell) for cell in cells],
            "tiles": [h3.cell_to_children_size(cell, resolution) for cell in cells],
            "area_km2": [h3.cell_area(cell, unit="km^2") for cell in cells],
            "lat": centers[:, 0],
            "lon": centers[:, 1],
            "geometry": shapely.to_wkb(hexagons(cells)),
        }
    )
