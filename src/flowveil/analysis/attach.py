"""Raw trips assigned to the cells of a published folder, as a release object.

The plan is read from the published tables, never from the method. A flow belongs to the published cell that contains
it; in a layered release, to that of the first such layer. Flows that the stated pre-filter removes belong to no cell.
Overlapping boxes do not determine the box of a flow: none is assigned, and measures that need it are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.analysis.cell_lookup import Tree, cells_around
from flowveil.audit.trips import nodes_of
from flowveil.engines import read_flows
from flowveil.errors import ParameterError
from flowveil.flows import Cells, Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Ints
from flowveil.methods.levels import public_domain
from flowveil.methods.odkanon import hopeless
from flowveil.methods.pair_domain import pair_domain
from flowveil.methods.public_tree import PublicTree
from flowveil.paths import named_path
from flowveil.reading import Reading
from flowveil.release.boxes import Boxes, BoxZones, Frame
from flowveil.release.folder import ReleaseFolder, taken_at_its_word
from flowveil.release.noisy import NoisyCounts, NoisyRelease, NoisySlices, PrivacyLoss
from flowveil.release.plan import Plan, Suppression
from flowveil.release.release import Release
from flowveil.release.sliced import SlicedRelease
from flowveil.release.subtraction import Differencing
from flowveil.release.zones import NodeZones, TimedZones
from flowveil.slices import Key, SlicedFlows
from flowveil.times import TIME_COLUMNS
from flowveil.zoning.covering import pairs_inside
from flowveil.zoning.public_map import FULL_TURN, UNITS_PER_DEGREE
from flowveil.zoning.refinement import refined
from flowveil.zoning.restriction import to_the_top

LAYER = "layer"
_ENDS = ("origin_zone", "destination_zone")


Attached = Release | NoisyRelease | SlicedRelease | NoisySlices


def attach(folder: str | PathLike[str] | ReleaseFolder, against: Any, **reading: Any) -> Attached:
    """Rebuild the release of a folder from the trips that it was made from.

    Args:
        folder: a release folder.
        against: the trips, in any form `flowveil.read_trips` takes.
        **reading: how to read them, where it differs from the report; ``zones`` for a release on the user's own map,
            ``within`` for a study area from a file; ``engine``, ``progress``.

    Raises:
        ParameterError: the folder cannot be read, or was not made from these trips.
    """
    place = folder if isinstance(folder, ReleaseFolder) else ReleaseFolder(named_path(folder, what="the release"))
    report = place.report
    if stated(report, "derived_from") is not None:
        raise ParameterError("The release was computed from another one, not from trips. Hint: analyze its source.")
    flows = _read(report, against, reading)
    with taken_at_its_word(place.path):
        columns = tuple(stated(report, "slice_columns") or ())
        if columns:
            return _attach_slices(place, flows, columns)
        one = flows.folded() if report["kind"] == "folded" else flows.whole
        return _attach_matrix(report, place.flows, one, _guarantee(report, one))


def stated(report: Mapping[str, Any], name: str) -> Any:
    """Returns an entry of a report's statement; of a report of version 0.2, the entry of that name."""
    statement = report.get("statement")
    return statement.get(name) if isinstance(statement, Mapping) else report.get(name)


def _read(report: Mapping[str, Any], against: Any, reading: dict[str, Any]) -> SlicedFlows:
    parameters = report["parameters"]
    how = {name: reading.pop(name) for name in ("engine", "progress") if name in reading}
    flows = read_flows(against, Reading.from_parameters(parameters, **reading), **how)
    if report["kind"] == "noisy":
        return flows
    flows = refined(flows, parameters.get("hierarchy"))[0]
    kept_zones = stated(report, "zones_of") or parameters.get("zones_of")
    return to_the_top(flows) if kept_zones else flows


def _guarantee(report: Mapping[str, Any], flows: Flows) -> Guarantee | None:
    """Returns the guarantee with the thresholds of these flows; None for noise.

    Places of a private list (`l_places`) are not in the folder, so `l` is not part of it then.
    """
    if report["kind"] == "noisy":
        return None
    asked = report["parameters"]
    by_tiles = asked.get("l") if asked.get("l_places") is None else None
    wanted = {"k": asked["k"], "protect": asked["protect"], "k_population": asked.get("k_population")}
    return Guarantee.resolve(flows, l=by_tiles, **wanted)


def _attach_slices(place: ReleaseFolder, flows: SlicedFlows, columns: tuple[str, ...]) -> SlicedRelease | NoisySlices:
    report = place.report
    if columns != flows.columns:
        raise ParameterError("The slices of the release are not those of the trips. Hint: name the trips it is from.")
    guarantee = _guarantee(report, flows.whole)
    parts: dict[Key, Any] = {}
    for key, table in _tables_of_slices(place.flows, columns):
        members = flows.members(key)
        if members:
            parts[key] = _attach_matrix(report, table, flows.together(members), guarantee)
        elif report["kind"] != "noisy":
            raise ParameterError("The release has slices that are not in the trips. Hint: name the trips it is from.")
    keys, releases = tuple(parts), tuple(parts.values())
    parameters = MappingProxyType(dict(report["parameters"]))
    if guarantee is None:
        return NoisySlices(flows, keys, releases, _promise(report), report["method"], parameters)
    common = bool((report["parameters"].get("slices") or {}).get("common_zones"))
    none: Any = {"n_unpublished": 0, "differencing": Differencing(), "common_zones": common}
    return SlicedRelease(flows, keys, releases, guarantee, report["method"], parameters, **none)


def _tables_of_slices(table: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[Key, pa.Table]]:
    """Yields the key and table of each slice; a missing value means all values of the column."""
    keys = list(zip(*(table[name].to_pylist() for name in columns), strict=True))
    for key in dict.fromkeys(keys):
        mask = pa.array(np.ones(len(table), dtype=np.bool_))
        for name, value in zip(columns, key, strict=True):
            here = pc.is_null(table[name]) if value is None else pc.fill_null(pc.equal(table[name], value), False)
            mask = pc.and_(mask, here.combine_chunks())
        yield key, table.filter(mask)


def _attach_matrix(
    report: Mapping[str, Any], table: pa.Table, flows: Flows, guarantee: Guarantee | None
) -> Release | NoisyRelease:
    if guarantee is None:
        return _attach_noise(report, table, flows)
    flows = guarantee.prepare(flows)
    rule = Suppression(**stated(report, "suppression"))
    boxes = stated(report, "boxes")
    if boxes is not None:
        found = _in_boxes(report, table, flows, Boxes(**boxes))
    elif report["kind"] == "folded":
        found = _in_timed_cells(table, flows)
    else:
        found = _in_cells(table, flows)
    homogeneous = bool(stated(report, "homogeneous")) and LAYER not in table.column_names
    if homogeneous:
        found = _in_published_zones(found, flows)
    kept = found.cell >= 0
    if rule.rule == "hopeless flows":
        assert rule.levels is not None
        assert rule.beta is not None
        kept &= ~hopeless(*guarantee.to_fixed_point(flows), levels=rule.levels, share=rule.beta)
    plan = Plan(
        origin_zone=found.origin_zone,
        destination_zone=found.destination_zone,
        kept=kept,
        origin_zones=found.origin_zones,
        destination_zones=found.destination_zones,
        homogeneous=homogeneous,
        boxes=None if boxes is None else Boxes(**boxes),
        suppression=rule,
    )
    return _released(report, table, flows, plan, guarantee, found)


@dataclass(frozen=True, eq=False)
class _Found:
    """Cells and zones of flows.

    Attributes:
        cell: row of the published table that contains each flow; -1 without one.
        origin_zone, destination_zone: the zones of each flow, published or not.
        origin_zones, destination_zones: the zones of those numbers.
        row_origin, row_destination: the zones of each published row.
        ambiguous: whether cells overlap, so that no flow is assigned.
    """

    cell: Ints
    origin_zone: Ints
    destination_zone: Ints
    origin_zones: Any
    destination_zones: Any
    row_origin: Ints
    row_destination: Ints
    ambiguous: bool = False


def _released(
    report: Mapping[str, Any], table: pa.Table, flows: Flows, plan: Plan, guarantee: Guarantee, found: _Found
) -> Release:
    """Returns the release with the published counts.

    Raises:
        ParameterError: the number of trips of a cell differs from the published one.
    """
    order = np.lexsort((found.row_destination, found.row_origin))
    published = Cells(
        found.row_origin[order],
        found.row_destination[order],
        table["trips"].to_numpy()[order],
        weight=table["weight"].to_numpy()[order] if "weight" in table.column_names else None,
    )
    named = {"method": report["method"], "parameters": MappingProxyType(dict(report["parameters"]))}
    if found.ambiguous:
        nowhere = np.full(len(flows), -1, dtype=np.int32)
        return Release(flows, plan, guarantee, **named, cells=published, cell_of_flow=nowhere)
    origin = np.where(plan.kept, plan.origin_zone, np.int32(-1))
    merged = flows.merge(origin, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones))
    counted = merged.cells
    same_cells = len(counted) == len(published) and bool(
        np.all((counted.origin == published.origin) & (counted.destination == published.destination))
    )
    revised = "revised" in table.column_names
    wrong = 0 if revised or not same_cells else int(np.count_nonzero(counted.trips != published.trips))
    if not same_cells or wrong:
        raise ParameterError(
            "The release was not made from these trips"
            + (f": {wrong:,} of {len(published):,} cells count others." if same_cells else ": cells are without trips.")
            + " Hint: name the input that it was made from, read in the same way."
        )
    cells = replace(counted, trips=published.trips, weight=published.weight) if revised else counted
    return Release(flows, plan, guarantee, **named, cells=cells, cell_of_flow=merged.row)


# ---- nodes of trees ----------------------------------------------------------------------------------------------


def _in_cells(table: pa.Table, flows: Flows) -> _Found:
    """Cells of a plain or layered release: pairs of nodes, layer by layer."""
    row_o = nodes_of(flows.origins, tuple(table["origin_zone"].to_pylist())).astype(np.int32)
    row_d = nodes_of(flows.destinations, tuple(table["destination_zone"].to_pylist())).astype(np.int32)
    layered = LAYER in table.column_names
    layer = table[LAYER].to_numpy().astype(np.int32) if layered else np.ones(len(table), dtype=np.int32)
    cell = np.full(len(flows), -1, dtype=np.int32)
    trees = (
        Tree.from_hierarchy(flows.origins, flows.origin),
        Tree.from_hierarchy(flows.destinations, flows.destination),
    )
    for number in np.unique(layer).tolist():
        rows, left = np.flatnonzero(layer == number), np.flatnonzero(cell < 0)
        found = cells_around([tree.select(left) for tree in trees], [row_o[rows], row_d[rows]])
        cell[left] = np.where(found >= 0, rows[found], -1)
    inside, tile_o, tile_d = cell >= 0, flows.origins.leaf_node[flows.origin], flows.destinations.leaf_node
    node_o = np.where(inside, row_o[cell], tile_o)
    node_d = np.where(inside, row_d[cell], tile_d[flows.destination])
    # A flow in no cell stays in its own tile, which is a zone of layer 0.
    pair = np.concatenate((np.where(inside, layer[cell], 0), layer)).astype(np.int64)
    pair = (
        pair * flows.origins.n_nodes + np.concatenate((node_o, row_o)) if layered else np.concatenate((node_o, row_o))
    )
    used, number_o = np.unique(pair, return_inverse=True)
    nodes = (used % flows.origins.n_nodes).astype(np.int32)
    zones_d, number_d = np.unique(np.concatenate((node_d, row_d)), return_inverse=True)
    origins: NodeZones = NodeZones(flows.origins, nodes)
    if layered:
        origins = NodeZones(flows.origins, nodes, layer=(used // flows.origins.n_nodes).astype(np.int8))
    n = len(flows)
    zone_o: Ints = number_o.astype(np.int32)
    zone_d: Ints = number_d.astype(np.int32)
    destinations = NodeZones(flows.destinations, zones_d.astype(np.int32))
    return _Found(cell, zone_o[:n], zone_d[:n], origins, destinations, zone_o[n:], zone_d[n:])


def _in_timed_cells(table: pa.Table, flows: Flows) -> _Found:
    """Assigns flows to cells of zones and time intervals."""
    assert flows.times is not None
    assert flows.time is not None
    times, trees = flows.times, (flows.origins, flows.destinations)
    rows = [
        nodes_of(tree, tuple(table[name].to_pylist())).astype(np.int32)
        for tree, name in zip(trees, ("origin_zone", "destination_zone"), strict=True)
    ]
    interval = [" ".join(pair) for pair in zip(*(table[name].to_pylist() for name in TIME_COLUMNS), strict=True)]
    rows.append(nodes_of(times.tree, tuple(interval)).astype(np.int32))
    where = [flows.origin, flows.destination, flows.time]
    own = [Tree.from_hierarchy(tree, leaf) for tree, leaf in zip((*trees, times.tree), where, strict=True)]
    cell = cells_around(own, rows)
    inside = cell >= 0
    leaves = [tree.leaf_node[leaf] for tree, leaf in zip((*trees, times.tree), where, strict=True)]
    node_o, node_d, time = (np.where(inside, row[cell], leaf) for row, leaf in zip(rows, leaves, strict=True))
    n_times = times.tree.n_nodes
    pair = np.concatenate((node_o, rows[0])).astype(np.int64) * n_times + np.concatenate((time, rows[2]))
    used, number_o = np.unique(pair, return_inverse=True)
    zones_d, number_d = np.unique(np.concatenate((node_d, rows[1])), return_inverse=True)
    n, nodes = len(flows), (used // n_times).astype(np.int32)
    zone_o: Ints = number_o.astype(np.int32)
    zone_d: Ints = number_d.astype(np.int32)
    origins = TimedZones(flows.origins, nodes, times, (used % n_times).astype(np.int32))
    destinations = NodeZones(flows.destinations, zones_d.astype(np.int32))
    return _Found(cell, zone_o[:n], zone_d[:n], origins, destinations, zone_o[n:], zone_d[n:])


def _in_published_zones(found: _Found, flows: Flows) -> _Found:
    """Gives suppressed flows of a homogeneous release the published zones that contain their tiles."""
    ends = []
    for zones, tree, tile, rows, number in (
        (found.origin_zones, flows.origins, flows.origin, found.row_origin, found.origin_zone),
        (found.destination_zones, flows.destinations, flows.destination, found.row_destination, found.destination_zone),
    ):
        used = np.unique(rows)
        zone_of_leaf = np.full(tree.n_tiles, -1, dtype=np.int32)
        for zone, node in zip(used.tolist(), zones.nodes[used].tolist(), strict=True):
            zone_of_leaf[tree.leaf_start[node] : tree.leaf_stop[node]] = zone
        around = zone_of_leaf[tile]
        ends.append(np.where((found.cell < 0) & (around >= 0), around, number).astype(np.int32))
    return replace(found, origin_zone=ends[0], destination_zone=ends[1])


# ---- boxes -------------------------------------------------------------------------------------------------------


def _in_boxes(report: Mapping[str, Any], table: pa.Table, flows: Flows, boxes: Boxes) -> _Found:
    options = report["parameters"].get("options") or {}
    frame = Frame.of(flows, grid_m=options.get("grid_m"))
    if frame.grid.degrees != (boxes.grid_lon, boxes.grid_lat):
        raise ParameterError("The boxes have another grid. Hint: name the input that the release was made from.")
    ends = []
    for name, squares, tiles in (
        ("origin_zone", frame.origin_squares, frame.origin_tiles),
        ("destination_zone", frame.destination_squares, frame.destination_tiles),
    ):
        ends.append(BoxZones.of(frame.grid, squares, tiles, *_bounds(table[name].to_pylist(), frame)))
    (origins, row_o), (destinations, row_d) = ends
    nothing = np.zeros(len(flows), dtype=np.int32)
    if not boxes.disjoint:
        # No measure needs the zones of unpublished flows.
        nowhere = np.full(len(flows), -1, dtype=np.int32)
        return _Found(nowhere, nothing, nothing, origins, destinations, row_o, row_d, ambiguous=True)
    low = np.stack([origins.x0[row_o], origins.y0[row_o], destinations.x0[row_d], destinations.y0[row_d]])
    high = np.stack([origins.x1[row_o], origins.y1[row_o], destinations.x1[row_d], destinations.y1[row_d]]) + 1
    cell = np.full(len(flows), -1, dtype=np.int32)
    for flow, row in pairs_inside(frame.point, low, high):
        cell[flow] = row
    zone_o, zone_d = (np.where(cell >= 0, row[cell], 0).astype(np.int32) for row in (row_o, row_d))
    return _Found(cell, zone_o, zone_d, origins, destinations, row_o, row_d)


def _bounds(codes: list[str], frame: Frame) -> tuple[Ints, Ints, Ints, Ints]:
    """Returns first and last column and row of boxes, from their codes."""
    degrees = np.array([[float(part) for part in code.removeprefix("box_").split("_")] for code in codes])
    west, south, east, north = np.round(degrees.T * UNITS_PER_DEGREE).astype(np.int64)
    if frame.grid.across:
        west, east = np.where(west < 0, west + FULL_TURN, west), np.where(east <= 0, east + FULL_TURN, east)
    # Edges at the poles and at 180 degrees are clipped; rounding outward gives the whole square.
    lon, lat = frame.grid.lon_units, frame.grid.lat_units
    bounds = (west // lon, south // lat, -(-east // lon) - 1, -(-north // lat) - 1)
    x0, y0, x1, y1 = (bound.astype(np.int32) for bound in bounds)
    return x0, y0, x1, y1


# ---- noise -------------------------------------------------------------------------------------------------------


def _attach_noise(report: Mapping[str, Any], table: pa.Table, flows: Flows) -> NoisyRelease:
    """Returns the noisy counts over the zones that the method's options declare."""
    options = report["parameters"].get("options") or {}
    place = (flows, options.get("level"), options.get("region"))
    if report["method"] == "laplace":
        domain = pair_domain(*place, listed=not options.get("delta"))
    else:
        domain = public_domain(report["method"], *place)
    ends = domain.origins, domain.destinations
    zone = [end.zone[tile] for end, tile in zip(ends, (flows.origin, flows.destination), strict=True)]
    inside = (zone[0] >= 0) & (zone[1] >= 0)
    zones = [end.zones for end in ends]
    if report["method"] == "privtree":
        tree = PublicTree.from_domain(domain)
        zones = [tree.zones, tree.zones]
        zone = [np.where(number >= 0, tree.node_of_zone[number], -1) for number in zone]
    rows = [_numbers(own, table[name].to_pylist()) for own, name in zip(zones, _ENDS, strict=True)]
    order = np.lexsort((rows[1], rows[0]))
    if report["method"] == "privtree":
        cell = cells_around([Tree.from_parents(tree.parent, number) for number in zone], rows)
        zone = [np.where(cell >= 0, row[cell], number) for row, number in zip(rows, zone, strict=True)]
    plan = Plan(
        origin_zone=zone[0].astype(np.int32),
        destination_zone=zone[1].astype(np.int32),
        kept=inside,
        origin_zones=zones[0],
        destination_zones=zones[1],
        homogeneous=report["method"] != "privtree",
        suppression=Suppression("noise"),
    )
    cells = Cells(rows[0][order], rows[1][order], table["trips"].to_numpy()[order])
    counts = NoisyCounts(plan, cells, _promise(report), {}, domain.public, repeatable=False)
    return NoisyRelease(flows, counts, report["method"], MappingProxyType(dict(report["parameters"])))


def _numbers(zones: Any, codes: list[str]) -> Ints:
    """Returns the numbers of zones with these codes."""
    known = {code: i for i, code in enumerate(zones.codes(np.arange(len(zones), dtype=np.int32)).tolist())}
    try:
        return np.array([known[code] for code in codes], dtype=np.int32)
    except KeyError:
        raise ParameterError("The release has zones that its options do not declare. Hint: give --zones.") from None


def _promise(report: Mapping[str, Any]) -> PrivacyLoss:
    """Returns the guarantee of the noise, as the report states it, without its steps."""
    names = ("unit", "epsilon", "delta", "bound", "mechanism", "scale", "deviation", "threshold", "domain")
    return PrivacyLoss(**{name: report["guarantee"].get(name) for name in names})
