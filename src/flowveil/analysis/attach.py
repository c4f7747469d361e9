"""Raw trips assigned to the cells of a published folder, as a release object.

The plan is read from the published tables, never from the method. A flow belongs to the published
cell that contains it; in a layered release, to that of the first such layer. Flows that the stated
pre-filter removes belong to no cell. Overlapping boxes do not determine the box of a flow: none is
assigned, and measures that need it are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from types import MappingProxyType
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from flowveil.analysis.covering import box_bounds, nodes_of_flows
from flowveil.core.arrays import Ints
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Cells, Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.slices import Key
from flowveil.methods.odkanon import hopeless
from flowveil.methods.public_domain import PublicTree, district_domain, pair_domain, public_domain
from flowveil.published.tables import split_slices
from flowveil.publishing.release import NoisyRelease, Release, SlicedRelease
from flowveil.reading import Reading
from flowveil.reading.engines import read_flows
from flowveil.release.boxes import Boxes, BoxZones, Frame
from flowveil.release.folder import ReleaseFolder, taken_at_its_word
from flowveil.release.noisy import NoisyCounts, PrivacyLoss
from flowveil.release.plan import FoldedZones, NodeZones, Plan, Suppression
from flowveil.release.statement import Statement
from flowveil.request.keywords import ReadingKeywords
from flowveil.system.paths import named_path
from flowveil.verify.audit.trips import nodes_of
from flowveil.zoning.covering import cells_by_layer, containing_cells, pairs_inside
from flowveil.zoning.public_map import Rectangles
from flowveil.zoning.restriction import refined, to_the_top

LAYER = "layer"
_ENDS = ("origin_zone", "destination_zone")
Attached = Release | NoisyRelease | SlicedRelease


def attach(
    folder: str | PathLike[str], against: Any, **reading: Unpack[ReadingKeywords]
) -> Attached:
    """Rebuild the release of a folder from the trips that it was made from.

    Arguments as for `flowveil.analyze`.
    """
    place = ReleaseFolder(named_path(folder, what="the release"))
    statement = place.statement
    if statement.derived_from is not None:
        raise ParameterError(
            "The release was computed from another one, not from trips. Hint: analyze its source."
        )
    given: dict[str, Any] = {**reading}
    how = {name: given.pop(name) for name in ("engine", "progress") if name in given}
    flows = read_flows(against, Reading.from_parameters(statement.parameters, **given), **how)
    if not statement.facets.is_noisy:
        flows = refined(flows, statement.parameters.get("hierarchy"))[0]
        secret = statement.thresholds == "k plus a secret amount"
        if secret or statement.zones_of or statement.parameters.get("zones_of"):
            flows = to_the_top(flows)
    with taken_at_its_word(place.path):
        if statement.slice_columns:
            return _attach_slices(statement, place.flows, flows)
        one = flows.folded(statement.fold_trees) if statement.facets.folds else flows
        return _attach_matrix(statement, place.flows, one, _guarantee(statement, one))


def _guarantee(statement: Statement, flows: Flows) -> Guarantee | None:
    """Returns the guarantee with the thresholds of these flows; None for noise."""
    if statement.facets.is_noisy:
        return None
    given = statement.parameters
    # Places of a private list are not in the folder, so ``l`` is not part of the guarantee then.
    by_tiles = given.get("l") if given.get("l_places") is None else None
    return Guarantee.resolve(
        flows,
        k=given["k"],
        protect=given["protect"],
        k_population=given.get("k_population"),
        l=by_tiles,
    )


def _attach_slices(statement: Statement, table: pa.Table, flows: Flows) -> SlicedRelease:
    if statement.slice_columns != flows.slice_columns:
        raise ParameterError(
            "The slices of the release are not those of the trips. Hint: name the trips it is from."
        )
    guarantee = _guarantee(statement, flows.whole)
    known: dict[Key, Flows] = dict(flows.split())
    parts: dict[Key, Any] = {}
    for values, part in split_slices(table, flows.slice_columns):
        key = tuple(value or "" for value in values.values())
        if key in known:
            parts[key] = _attach_matrix(statement, part, known[key], guarantee)
        elif not statement.facets.is_noisy:
            raise ParameterError(
                "The release has slices that are not in the trips. Hint: name the trips it is from."
            )
    keys, releases, parameters = (
        tuple(parts),
        tuple(parts.values()),
        MappingProxyType(dict(statement.parameters)),
    )
    if guarantee is None:
        return SlicedRelease(
            flows, keys, releases, _privacy_loss(statement), statement.method, parameters
        )
    return SlicedRelease(flows, keys, releases, guarantee, statement.method, parameters)


@dataclass(frozen=True, eq=False)
class _Found:
    """Cells and zones of flows; pairs are by end."""

    cell: Ints  # row of the published table that contains each flow; -1 without one
    zone: tuple[Ints, Ints]  # the zones of each flow, published or not
    zones: tuple[Any, Any]  # the zones of those numbers
    rows: tuple[Ints, Ints]  # the zones of each published row
    ambiguous: bool = False  # cells overlap, so that no flow is assigned


def _attach_matrix(
    statement: Statement, table: pa.Table, flows: Flows, guarantee: Guarantee | None
) -> Release | NoisyRelease:
    if guarantee is None:
        return _attach_noise(statement, table, flows)
    flows = guarantee.prepare(flows)
    rule = Suppression(**statement.suppression)
    boxes = None if statement.boxes is None else Boxes(**statement.boxes)
    found = _in_cells(table, flows) if boxes is None else _in_boxes(statement, table, flows, boxes)
    homogeneous = statement.homogeneous and LAYER not in table.column_names
    if homogeneous:
        found = _in_published_zones(found, flows)
    kept = found.cell >= 0
    if rule.rule == "hopeless flows":
        assert rule.levels is not None
        assert rule.beta is not None
        kept &= ~hopeless(*guarantee.to_fixed_point(flows), levels=rule.levels, share=rule.beta)
    plan = Plan(
        *found.zone,
        kept=kept,
        origin_zones=found.zones[0],
        destination_zones=found.zones[1],
        homogeneous=homogeneous,
        boxes=boxes,
        suppression=rule,
    )
    return _released(statement, table, flows, plan, guarantee, found)


def _released(
    statement: Statement,
    table: pa.Table,
    flows: Flows,
    plan: Plan,
    guarantee: Guarantee,
    found: _Found,
) -> Release:
    """Returns the release with the published counts.

    Raises ParameterError if a cell has other trips.
    """
    published = _cells(table, found.rows)
    named: Any = {
        "method": statement.method,
        "parameters": MappingProxyType(dict(statement.parameters)),
    }
    if found.ambiguous:
        return Release(flows, plan, guarantee, **named, cells=published, cell_of_flow=found.cell)
    origin = np.where(plan.kept, plan.origin_zone, np.int32(-1))
    merged = flows.merge(
        origin, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones)
    )
    counted = merged.cells
    same_cells = len(counted) == len(published) and bool(
        np.all(
            (counted.origin == published.origin) & (counted.destination == published.destination)
        )
    )
    revised = "revised" in table.column_names
    wrong = (
        0 if revised or not same_cells else int(np.count_nonzero(counted.trips != published.trips))
    )
    if not same_cells or wrong:
        raise ParameterError(
            "The release was not made from these trips"
            + (
                f": {wrong:,} of {len(published):,} cells count others."
                if same_cells
                else ": cells are without trips."
            )
            + " Hint: name the input that it was made from, read in the same way."
        )
    cells = replace(counted, trips=published.trips, weight=published.weight) if revised else counted
    return Release(flows, plan, guarantee, **named, cells=cells, cell_of_flow=merged.row)


def _cells(table: pa.Table, rows: Sequence[Ints]) -> Cells:
    """Returns the published cells sorted by zones, given the zones of each row by end."""
    order = np.lexsort(rows[::-1])
    columns = {
        name: table[name].to_numpy()[order]
        for name in ("trips", "weight")
        if name in table.column_names
    }
    return Cells(rows[0][order], rows[1][order], **columns)


def _in_cells(table: pa.Table, flows: Flows) -> _Found:
    """Assigns flows to cells of nodes, layer by layer; where columns fold, with a node of each."""
    # Codes of times are the texts of both columns.
    columns = [(name,) for name in _ENDS] + [tuple(fold.columns) for fold in flows.folds]
    names = [
        map(" ".join, zip(*(table[name].to_pylist() for name in own), strict=True))
        for own in columns
    ]
    rows = [
        nodes_of(tree, tuple(codes)).astype(np.int32)
        for (tree, _), codes in zip(flows.ends, names, strict=True)
    ]
    layered, (parents, points) = LAYER in table.column_names, nodes_of_flows(flows)
    layer = (
        table[LAYER].to_numpy().astype(np.int32) if layered else np.ones(len(table), dtype=np.int32)
    )
    cell = cells_by_layer(parents, rows, points, layer).astype(np.int32)
    inside = cell >= 0
    # A flow in no cell stays in its own tile and values, a zone of layer 0. Published rows follow
    # the flows.
    node = [
        np.concatenate((np.where(inside, row[cell], point), row)).astype(np.int64)
        for point, row in zip(points, rows, strict=True)
    ]
    levels = np.concatenate((np.where(inside, layer[cell], 0), layer)) * int(layered)
    key = (levels, node[0], *node[2:])
    shape = tuple(int(column.max(initial=0)) + 1 for column in key)
    used, number_o = np.unique(np.ravel_multi_index(key, shape), return_inverse=True)
    level, *nodes = (part.astype(np.int32) for part in np.unravel_index(used, shape))
    marked: Any = {"layer": level.astype(np.int8)} if layered else {}
    origins = NodeZones(flows.origins, nodes[0], **marked)
    if flows.folds:
        origins = FoldedZones(flows.origins, nodes[0], flows.folds, tuple(nodes[1:]), **marked)
    zones_d, number_d = np.unique(node[1], return_inverse=True)
    zone_o, zone_d, n = number_o.astype(np.int32), number_d.astype(np.int32), len(flows)
    zones = origins, NodeZones(flows.destinations, zones_d.astype(np.int32))
    return _Found(cell, (zone_o[:n], zone_d[:n]), zones, (zone_o[n:], zone_d[n:]))


def _in_published_zones(found: _Found, flows: Flows) -> _Found:
    """Gives suppressed flows of a homogeneous release the published zones that contain their
    tiles.
    """
    ends = []
    trees, tiles = (flows.origins, flows.destinations), (flows.origin, flows.destination)
    for zones, tree, tile, rows, number in zip(
        found.zones, trees, tiles, found.rows, found.zone, strict=True
    ):
        used = np.unique(rows)
        at = containing_cells([tree.parent], [zones.nodes[used]], [tree.leaf_node[tile]])
        ends.append(np.where((found.cell < 0) & (at >= 0), used[at], number).astype(np.int32))
    return replace(found, zone=(ends[0], ends[1]))


def _in_boxes(statement: Statement, table: pa.Table, flows: Flows, boxes: Boxes) -> _Found:
    frame = Frame.of(flows, grid_m=(statement.parameters.get("options") or {}).get("grid_m"))
    if frame.grid.degrees != (boxes.grid_lon, boxes.grid_lat):
        raise ParameterError(
            "The boxes have another grid. Hint: name the input that the release was made from."
        )
    squares = frame.origin_squares, frame.destination_squares
    (origins, row_o), (destinations, row_d) = (
        BoxZones.of(frame.grid, squares[end], *_bounds(table[name].to_pylist(), frame))
        for end, name in enumerate(_ENDS)
    )
    cell = np.full(len(flows), -1, dtype=np.int32)
    if boxes.disjoint:
        for flow, row in pairs_inside(
            frame.point, *box_bounds(origins, row_o, destinations, row_d)
        ):
            cell[flow] = row
    # No measure needs the zones of unpublished flows.
    zone_o, zone_d = (np.where(cell >= 0, row[cell], 0).astype(np.int32) for row in (row_o, row_d))
    return _Found(
        cell,
        (zone_o, zone_d),
        (origins, destinations),
        (row_o, row_d),
        ambiguous=not boxes.disjoint,
    )


def _bounds(codes: list[str], frame: Frame) -> tuple[Ints, Ints, Ints, Ints]:
    """Returns first and last column and row of boxes, from their codes."""
    box = Rectangles.from_codes(codes)
    west, south, east, north = box.west, box.south, box.east, box.north
    # Edges at the poles and at 180 degrees are clipped; rounding outward gives the whole square.
    lon, lat = frame.grid.lon_units, frame.grid.lat_units
    first, last = (frame.grid.in_order(x) for x in (west // lon, -(-east // lon) - 1))
    bounds = (first, south // lat, last, -(-north // lat) - 1)
    x0, y0, x1, y1 = (bound.astype(np.int32) for bound in bounds)
    return x0, y0, x1, y1


def _attach_noise(statement: Statement, table: pa.Table, flows: Flows) -> NoisyRelease:
    """Returns the noisy counts over the zones that the method's options declare."""
    options, method = statement.parameters.get("options") or {}, statement.method
    place = (flows, options.get("level"), options.get("region"))
    if method == "laplace":
        domain = pair_domain(*place, listed=not options.get("delta"))
    elif method == "posterior":
        domain = district_domain(method, flows, options.get("districts"), options.get("region"))
    else:
        domain = public_domain(method, *place)
    plan = domain.plan(flows)
    zones = [plan.origin_zones, plan.destination_zones]
    nested = method == "privtree" or (method == "topdown" and not statement.homogeneous)
    if nested:
        tree = PublicTree.from_domain(domain)
        zones = [tree.zones, tree.zones]
        ends = plan.origin_zone, plan.destination_zone
        zone = [np.where(number >= 0, tree.node_of_zone[number], -1) for number in ends]
    rows = [_numbers(own, table[name].to_pylist()) for own, name in zip(zones, _ENDS, strict=True)]
    if nested:
        cell = containing_cells([tree.tree.parent] * 2, rows, zone)
        zone = [
            np.where(cell >= 0, row[cell], number) for row, number in zip(rows, zone, strict=True)
        ]
        plan = replace(
            plan,
            origin_zone=zone[0].astype(np.int32),
            destination_zone=zone[1].astype(np.int32),
            origin_zones=tree.zones,
            destination_zones=tree.zones,
            homogeneous=False,
        )
    counts = NoisyCounts(
        plan, _cells(table, rows), _privacy_loss(statement), left_out={}, repeatable=False
    )
    return NoisyRelease.of(flows, counts, method=method, parameters=statement.parameters)


def _numbers(zones: Any, codes: list[str]) -> Ints:
    """Returns the numbers of zones with these codes."""
    known = {
        code: i
        for i, code in enumerate(zones.codes(np.arange(len(zones), dtype=np.int32)).tolist())
    }
    try:
        return np.array([known[code] for code in codes], dtype=np.int32)
    except KeyError:
        raise ParameterError(
            "The release has zones that its options do not declare. Hint: give --zones."
        ) from None


def _privacy_loss(statement: Statement) -> PrivacyLoss:
    """Returns the guarantee of the noise, as the release states it, without its steps."""
    names = (
        "unit",
        "epsilon",
        "delta",
        "bound",
        "mechanism",
        "scale",
        "deviation",
        "threshold",
        "domain",
    )
    stated: dict[str, Any] = {name: statement.guarantee.get(name) for name in names}
    return PrivacyLoss(**stated)
