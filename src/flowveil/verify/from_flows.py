"""Recount with flows as the engine read them, and the zones of a release compared with its stated
zone map.

The recount has its own reader (`flowveil.verify.recount.trips`). Inside `anonymize`, and for inputs
that reader does not know, it takes these flows instead, and its result says ``engine``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.core.errors import ParameterError
from flowveil.core.flows import MILLION, Flows, People, to_fixed_point
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.remote_people import RemotePeople
from flowveil.core.times import TIME_COLUMNS, Every, fold_times
from flowveil.release.folder import ReleaseFolder
from flowveil.release.zone_map import CELLS, TILES, FrozenMap
from flowveil.verify.recount import PersonRows, Places, Result, Trips, ValueRows, ZoneMap, recount
from flowveil.zoning.geometry import ZoneGeography
from flowveil.zoning.halves import halved_map
from flowveil.zoning.outside import inside_of
from flowveil.zoning.public_map import H3Map, zone_chains

if TYPE_CHECKING:
    from flowveil.zoning.places import Places as ListedPlaces

NOT_COMPARED = (
    "its zones were not compared with those of the earlier release. Hint: give it with --zones-of."
)
_ENDS = ("origin", "destination")


def recount_flows(
    folder: Path, flows: Flows, *, stricter: ListedPlaces | None = None, **given: Any
) -> Result:
    """Recounts a release from flows as the engine read them.

    ``stricter`` and ``given`` as for the functions below.
    """
    release = ReleaseFolder(folder)
    hierarchy = release.statement.parameters.get("hierarchy")
    return recount_trips(
        release, trips_from_flows(flows, stricter=stricter, hierarchy=hierarchy), **given
    )


def recount_trips(
    release: ReleaseFolder,
    trips: Trips,
    *,
    zones_of: Any = None,
    revision: Sequence[Any] = (),
    **how: Any,
) -> Result:
    """Recounts a release, and compares its zones with the zone map that it states.

    ``zones_of`` is the zone map that was given, ``revision`` the folders of the releases that it
    revises, the oldest first; ``how`` as for `recount`.
    """
    result = recount(release.path, trips, earlier=list(revision), **how)
    notes: list[str] = []
    findings = (*_check_spans(release, trips), *_check_zones_of(release, zones_of, trips, notes))
    return replace(result, findings=(*findings, *result.findings), notes=(*notes, *result.notes))


def _check_spans(release: ReleaseFolder, trips: Trips) -> Iterator[str]:
    """Yields a finding if steps of time do not fold into the published spans."""
    if not release.statement.facets.folds or trips.every is None:
        return
    with suppress(ParameterError, ValueError, KeyError):
        every = Every.parse(trips.every)
        times = fold_times(every.name, every.minutes, [key[-1] for key in trips.slices]).columns
        spans = set(zip(*(release.flows[name].to_pylist() for name in TIME_COLUMNS), strict=True))
        if spans <= set(zip(*(times[name].tolist() for name in TIME_COLUMNS), strict=True)):
            return
    yield "flows.parquet: spans of time cannot be made of folded steps"


def trips_from_flows(
    flows: Flows,
    *,
    stricter: ListedPlaces | None = None,
    hierarchy: str | None = None,
) -> Trips:
    """Returns the raw trips of a recount, from flows as read.

    ``stricter`` has the listed places by their tiles.
    """
    columns: dict[str, Any] = {}
    if flows.dimensions:
        shape = [one.tree.n_tiles for one in flows.dimensions]
        used, slice_of_flow = np.unique(
            np.ravel_multi_index(flows.leaves, shape), return_inverse=True
        )
        leaves = np.unravel_index(used, shape)
        values = [
            one.labels[leaf].tolist() for one, leaf in zip(flows.dimensions, leaves, strict=True)
        ]
        columns = {
            "slice_columns": tuple(one.name for one in flows.dimensions),
            "slices": tuple(zip(*values, strict=True)),
            "slice": slice_of_flow.astype(np.int32),
            "every": None if flows.every is None else flows.every.name,
        }
    for end, tree in zip(_ENDS, (flows.origins, flows.destinations), strict=True):
        columns[f"{end}s"] = tree.code[tree.leaf_node]
        if tree.code.dtype != np.uint64:
            columns[f"{end}_map"] = zone_map(flows.whole_map or tree, hierarchy)
    if stricter is not None:
        columns["stricter"] = Places(stricter.tile, stricter.k, stricter.l)  # type: ignore[arg-type]
    if flows.l_places is not None:
        tile = np.repeat(flows.l_places.code, flows.l_places.count)
        columns["l_places"] = Places(
            tile, np.zeros(len(tile), np.int64), np.zeros(len(tile), np.int64)
        )
    summary, rows = flows.intake, flows.values

    def whole_numbers(name: str) -> Any:
        """Returns a column in whole numbers; None without it."""
        values = getattr(flows, name)
        return values if values is None or values.dtype.kind == "i" else to_fixed_point(values)

    return Trips(
        **{name: whole_numbers(name) for name in ("origin", "destination", "trips", "weight")},
        unit=MILLION if flows.trips.dtype.kind == "f" else 1,
        persons=_persons(flows.people),
        read_by="engine",
        values=rows and ValueRows(rows.flow, rows.person, rows.weight, rows.values),
        rows=summary.rows - summary.empty_rows,
        dropped=sum(summary.dropped.values()),
        outside=summary.outside_rows,
        unread={
            "trips": (Fraction(summary.dropped_trips), Fraction(summary.outside_trips)),
            "weight": (
                Fraction(summary.dropped_weight or 0),
                Fraction(summary.outside_weight or 0),
            ),
        },
        **columns,
    )


def zone_map(tree: Hierarchy, hierarchy: str | None) -> ZoneMap:
    """Returns a map for the recount, with parts of zones if the release is on ``halves``."""
    if hierarchy == "halves" and tree.levels is None:
        tree = halved_map(tree)
    lat, lon = np.full(tree.n_nodes, np.nan), np.full(tree.n_nodes, np.nan)
    if tree.geography is not None:
        lat[tree.leaf_node], lon[tree.leaf_node] = tree.geography.centers(tree.leaf_node)
    inside, outlines = inside_of(tree), None
    where = inside.geography
    if isinstance(where, ZoneGeography) and where.places.drawn is not None:
        outlines = np.full(tree.n_nodes, None, dtype=object)
        outlines[tree.leaf_node[: inside.n_tiles]] = where.places.drawn[
            where.start[inside.leaf_node]
        ]
    return ZoneMap(tree.code, tree.parent.astype(np.int64), lat, lon, outlines)


def _persons(people: People | None) -> Any:
    if isinstance(people, RemotePeople):
        # The cluster counts them.
        remote = people
        return SimpleNamespace(count=lambda group, n: remote.merge(group).count(n))
    return people and PersonRows(people.cell, people.person, people.trips)


def _check_zones_of(
    release: ReleaseFolder, zones_of: Any, trips: Trips, notes: list[str]
) -> Iterator[str]:
    """Yields findings on the zones of a release that was made over a given zone map (None if it is
    not given).
    """
    stated = release.statement.zones_of
    if zones_of is None:
        notes += [] if stated is None or release.statement.revision_of else [NOT_COMPARED]
        return
    frozen = FrozenMap.read(zones_of)
    if stated is None:
        yield "report.json: does not say that the zones are those of the given zone map"
    elif stated != frozen.sha256:
        yield "report.json: states another zone map than the one that is given"
    else:
        try:
            yield from _compare_zones(release, frozen, trips)
        except (ValueError, KeyError, ParameterError):
            yield "zones.parquet: its zones cannot be compared with those of the earlier release"


def _compare_zones(release: ReleaseFolder, frozen: FrozenMap, trips: Trips) -> Iterator[str]:
    stated = {**release.statement.parameters, "homogeneous": release.statement.homogeneous}
    for name in ("homogeneous", "hierarchy", "resolution", "same_zones"):
        if (stated.get(name) or None) != (frozen.about[name] or None):
            yield f"report.json: '{name}' is not that of the given zone map"
    tiles: dict[tuple[str, str], list[str]] = {}
    for row in () if CELLS in release.zones.column_names else release.lookup.to_pylist():
        tiles.setdefault((row["zone"], row["role"]), []).append(row["tile"])
    listed = (
        dict(zip(_keys(frozen.table), frozen.table[TILES].to_pylist(), strict=True))
        if tiles
        else {}
    )
    moved = sum(sorted(here) != sorted(listed.get(key, here)) for key, here in tiles.items())
    if moved:
        yield f"zones.parquet: {moved} zones have other tiles than on the given zone map"
    for end, of_map in zip(_ENDS, (trips.origin_map, trips.destination_map), strict=True):
        both = (release.zones, frozen.table)
        here, there = (
            {zone for zone, role in _keys(zones) if role in (end, "both")} for zones in both
        )
        strange = len(here - there) - (
            _count_fills(here, there, frozen, of_map) if frozen.homogeneous else 0
        )
        if strange:
            yield (
                f"zones.parquet: {strange} {end} zones are not on the given zone map, nor fill its"
                " gaps"
            )
    if not frozen.homogeneous:
        flows = release.flows
        layers = flows["layer"].to_pylist() if frozen.in_layers else [0] * len(flows)
        cells = zip(*(flows[f"{end}_zone"].to_pylist() for end in _ENDS), layers, strict=True)
        unknown = len(set(cells) - set(frozen.cells))
        if unknown:
            yield f"flows.parquet: {unknown} cells are not on the given zone map"


def _keys(zones: Any) -> list[tuple[str, str]]:
    return list(zip(zones["zone"].to_pylist(), zones["role"].to_pylist(), strict=True))


def _count_fills(here: set[str], there: set[str], frozen: FrozenMap, of_map: ZoneMap | None) -> int:
    """Counts new zones that overlap no earlier one and lie directly in a node that contains one."""
    zones, halves, ways = list(here | there), frozen.hierarchy == "halves", dict[str, list[str]]()
    if of_map is None:
        for zone, chain in zip(zones, zone_chains(H3Map(0), zones), strict=True):
            # Parts of cells have a dot in their codes.
            ways[zone] = [code for code, _ in chain if halves or "." not in code]
    else:
        codes = of_map.code.tolist()
        above = {
            code: codes[up]
            for code, up in zip(codes, of_map.parent.tolist(), strict=True)
            if up >= 0
        }
        for zone in zones:
            ways[zone] = [zone]
            while ways[zone][-1] in above:
                ways[zone].append(above[ways[zone][-1]])
    holding = {node for zone in there for node in ways[zone]}
    return sum(
        zone not in holding and ways[zone][1] in holding and there.isdisjoint(ways[zone])
        for zone in here - there
        if len(ways[zone]) > 1
    )
