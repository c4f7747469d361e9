"""The zones of a release compared with the zone map that it states (`zones_of`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import h3.api.basic_int as h3
import numpy as np

from flowveil.errors import ParameterError
from flowveil.release.folder import ReleaseFolder
from flowveil.release.zone_map import CELLS, TILES, FrozenMap
from flowveil.verify.recount import Trips, ZoneMap
from flowveil.verify.recount.tree import ALL, OUTSIDE_CELL, build_tree

NOT_COMPARED = "its zones were not compared with those of the earlier release. Hint: give it with --zones-of."
_ENDS = ("origin", "destination")


def check_zones_of(release: ReleaseFolder, zones_of: Any, trips: Trips) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns findings and notes on the zones of a release that was made over a given zone map.

    Args:
        release: the release.
        zones_of: the earlier release, or its zone map; None if it is not given.
        trips: the raw trips; the operator's map is taken from them.
    """
    stated = release.statement.zones_of
    if zones_of is None:
        return (), () if stated is None or release.statement.revision_of else (NOT_COMPARED,)
    frozen = FrozenMap.read(zones_of)
    if stated is None:
        return ("report.json: does not say that the zones are those of the given zone map",), ()
    if stated != frozen.sha256:
        return ("report.json: states another zone map than the one that is given",), ()
    try:
        return tuple(_compare(release, frozen, trips)), ()
    except (ValueError, KeyError, ParameterError):
        return ("zones.parquet: its zones cannot be compared with those of the earlier release",), ()


def _compare(release: ReleaseFolder, frozen: FrozenMap, trips: Trips) -> Iterator[str]:
    stated = {**release.statement.parameters, "homogeneous": release.statement.homogeneous}
    for name in ("homogeneous", "hierarchy", "resolution", "same_zones"):
        if (stated.get(name) or None) != (frozen.about[name] or None):
            yield f"report.json: '{name}' is not that of the given zone map"
    maps = {"origin": trips.origin_map, "destination": trips.destination_map}
    here, there = _parts(release.zones, release), _parts(frozen.table, None)
    for end in _ENDS:
        new = [zone for zone in here[end] if zone not in there[end]]
        strange = len(new) - (_count_fills(new, here[end], there[end], frozen, maps[end]) if frozen.homogeneous else 0)
        if strange:
            yield f"zones.parquet: {strange} {end} zones are not on the given zone map, nor fill its gaps"
        moved = sum(sorted(parts) != sorted(there[end].get(zone, parts)) for zone, parts in here[end].items())
        if moved:
            yield f"zones.parquet: {moved} {end} zones have other tiles than on the given zone map"
    if not frozen.homogeneous:
        flows = release.flows
        layers = flows["layer"].to_pylist() if frozen.in_layers else [0] * len(flows)
        cells = zip(*(flows[f"{end}_zone"].to_pylist() for end in _ENDS), layers, strict=True)
        unknown = len(set(cells) - set(frozen.cells))
        if unknown:
            yield f"flows.parquet: {unknown} cells are not on the given zone map"


def _parts(zones: Any, release: ReleaseFolder | None) -> dict[str, dict[str, list[str]]]:
    """Returns the H3 cells of the zones of each end, or their tiles on the operator's map."""
    names, roles = zones["zone"].to_pylist(), zones["role"].to_pylist()
    if CELLS in zones.column_names:
        parts = zones[CELLS].to_pylist()
    elif release is None:
        parts = zones[TILES].to_pylist()
    else:
        tiles: dict[tuple[str, str], list[str]] = {}
        for row in release.lookup.to_pylist():
            tiles.setdefault((row["zone"], row["role"]), []).append(row["tile"])
        parts = [tiles[key] for key in zip(names, roles, strict=True)]
    rows = list(zip(names, roles, parts, strict=True))
    return {end: {zone: own for zone, role, own in rows if role in (end, "both")} for end in _ENDS}


def _count_fills(
    new: Sequence[str],
    here: Mapping[str, list[str]],
    there: Mapping[str, list[str]],
    frozen: FrozenMap,
    zone_map: ZoneMap | None,
) -> int:
    """Counts new zones that overlap no earlier one and lie directly in a node that contains one."""
    if not new or ALL in there:
        return 0
    zones = {**{zone: here[zone] for zone in new}, **there}
    tiles = [_first_tile(parts, zone_map, frozen.about["resolution"]) for parts in zones.values()]
    kind = np.uint64 if zone_map is None else np.str_
    seen, number = np.unique(np.array(tiles, dtype=kind), return_inverse=True)
    tree = build_tree(seen, zone_map, halves=frozen.hierarchy == "halves")
    ways = {}
    for zone, tile in zip(zones, number.ravel().tolist(), strict=True):
        way = list(dict.fromkeys(tree.code[tree.up[:, tile]].tolist()))
        ways[zone] = way[way.index(zone) :]
    holding = {node for zone in there for node in ways[zone]}
    return sum(
        zone not in holding and ways[zone][1] in holding and not any(node in there for node in ways[zone])
        for zone in new
        if len(ways[zone]) > 1
    )


def _first_tile(parts: list[str], zone_map: ZoneMap | None, resolution: int) -> int | str:
    if zone_map is not None:
        return parts[0]
    return int(h3.cell_to_center_child(int(parts[0], 16), resolution)) if parts else OUTSIDE_CELL
