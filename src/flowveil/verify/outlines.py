"""Whether the zones of a release lie where their codes say: outline, centre and area, derived anew.

For H3 from the library h3 and the codes alone (`flowveil.verify.h3_outlines`); for a map of one's own from the tiles of
the map that was given with the input; for boxes from the bounds in their codes. Nothing here is shared with what wrote
the table.

Tolerances: centres of H3 cells and corners of boxes 10⁻⁹ degrees (a tenth of a millimetre); corners of H3 cells half of
their seventh decimal; centres on other maps 10⁻⁷ degrees; areas a millionth; the outline of several tiles of a map may
differ from their union in a millionth of its area, because libraries dissolve outlines in different orders. A cell
across 180 degrees or around a pole is cut at the edge of the map: its corners must be those of the cell, or lie on that
edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_int
import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.verify.boxes import bounds_in
from flowveil.verify.h3_outlines import are_drawn, area_tolerances, areas_km2, finest_level
from flowveil.verify.h3_parts import cells_in
from flowveil.verify.raw import leaf_codes
from flowveil.zoning.geometry import ZoneGeography
from flowveil.zoning.outside import has_outside, inside_of

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

Floats = NDArray[np.float64]

#: The zone of everything outside the area, and what says where a zone lies; a list of no cells says nothing.
OUTSIDE = "outside"
_PLACE = ("lat", "lon", "area_km2", "geometry", "h3_cells")
_CORNER = 1e-9
_CENTER = 1e-7
_SHARE = 1e-6
#: The ellipsoid of WGS 84.
_EQUATOR_KM = 6378.137
_FLATTENING = 1 / 298.257223563


@dataclass(frozen=True, eq=False)
class _Expected:
    """Where zones must lie; one entry each.

    Attributes:
        lat, lon, area: centre in degrees and area in km²; NaN where the code is of no zone.
        wrong: whether each published outline, given as an array, is another one.
        center_tolerance: in degrees.
        area_tolerance: as a share of the area.
    """

    lat: Floats
    lon: Floats
    area: Floats
    wrong: NDArray[np.bool_]
    center_tolerance: float = _CORNER
    area_tolerance: Floats | float = _SHARE


def check_outlines(zones: Any, flows: Flows, kind: str) -> Iterator[str]:
    """Compare the places in zones.parquet with those that the codes mean.

    Args:
        zones: its rows.
        flows: the input, with the map it is on.
        kind: that of the release. Zones of a noisy one are chosen from the whole map, whether somebody was seen in them
            or not: H3 cells need not be in the trees.
    """
    import pyarrow.compute as pc

    boxes, chosen = kind == "boxed", kind == "noisy"
    finest = finest_level([cells_in(code) for code in zones["zone"].to_pylist()])
    whole = flows.whole_map if chosen else None
    for role, tree in (("origin", whole or flows.origins), ("destination", whole or flows.destinations)):
        # A zone of both ends is one area: it is looked at once.
        of_end = pc.equal(zones["role"], "destination")
        rows = zones.filter(pc.invert(of_end) if role == "origin" else of_end)
        if has_outside(tree) or OUTSIDE in tree.code:
            is_outside = pc.equal(rows["zone"], OUTSIDE)
            listed = rows.filter(is_outside).to_pylist()
            if any(row.get(name) not in (None, []) for row in listed for name in _PLACE):
                yield f"zones.parquet: '{OUTSIDE}' has a place, though it is everything outside the area"
            rows, tree = rows.filter(pc.invert(is_outside)), inside_of(tree)
        if len(rows):
            yield from (
                f"zones.parquet: {n} {role} zones {what}" for what, n in _wrong(rows, tree, boxes, chosen, finest)
            )


def _wrong(rows: Any, tree: Hierarchy, boxes: bool, chosen: bool, finest: int) -> Iterator[tuple[str, int]]:
    codes = rows["zone"].to_pylist()
    raw = rows["geometry"].to_numpy(zero_copy_only=False)
    lat, lon, area = (rows[c].to_numpy(zero_copy_only=False).astype(np.float64) for c in ("lat", "lon", "area_km2"))
    if not boxes and tree.geography is None:
        n = int(np.sum(~(np.isnan(lat) & np.isnan(lon) & np.isnan(area) & np.array([g is None for g in raw]))))
        if n:
            yield "have a place, though the map of the input has none", n
        return
    published = np.asarray(shapely.from_wkb(raw, on_invalid="ignore"), dtype=object)
    plain = shapely.to_wkb(published, output_dimension=2, byte_order=1)
    odd = np.array([a != b or a is None for a, b in zip(raw, plain, strict=True)], dtype=np.bool_)
    if boxes:
        expected = _boxes(codes, published)
    elif _in_cells(tree) or (chosen and tree.kind == "h3"):
        expected, made_of = _cells(codes, published, tree, finest)
        if "h3_cells" in rows.column_names:
            listed = rows["h3_cells"].to_pylist()
            n = sum(found != cells for found, cells in zip(listed, made_of, strict=True))
            if n:
                yield "list other H3 cells than their code means", n
    else:
        expected = _nodes(codes, published, tree)
    near = expected.center_tolerance
    around = np.abs(lon - expected.lon)
    counts = {
        "have another outline than their code means": odd | expected.wrong,
        "have another centre than their code means": ~(
            (np.abs(lat - expected.lat) <= near) & (np.minimum(around, np.abs(360 - around)) <= near)
        ),
        "have another area than their code means": ~(
            np.abs(area - expected.area) <= expected.area_tolerance * expected.area
        ),
    }
    yield from ((what, int(np.sum(wrong))) for what, wrong in counts.items() if wrong.any())


def made_of_cells(flows: Flows) -> bool:
    """Whether zones of both ends are H3 cells or parts of them, and known to lie somewhere."""
    return all(_in_cells(tree) and tree.geography is not None for tree in (flows.origins, flows.destinations))


def _in_cells(tree: Hierarchy) -> bool:
    return tree.kind == "halves" or (tree.kind == "h3" and tree.code.dtype == np.uint64)


# ---- H3 ------------------------------------------------------------------------------------------------------


def _cells(
    codes: Sequence[str], published: NDArray[Any], tree: Hierarchy, finest: int
) -> tuple[_Expected, list[list[str]]]:
    """Where zones lie and the cells that they are made of.

    Each zone is a cell or some children of one; ``all`` is every base cell that holds a tile of the tree.
    """
    below = [_base_cells(tree) if code == "all" else cells_in(code) for code in codes]
    lat, lon, area = (np.full(len(codes), np.nan) for _ in range(3))
    loose = np.full(len(codes), _SHARE)
    wrong = np.ones(len(codes), dtype=np.bool_)
    known = np.array([i for i, cells in enumerate(below) if cells], dtype=np.int64)
    lat[known], lon[known] = _centers([below[i] for i in known])
    wrong[known] = ~are_drawn(published[known], [below[i] for i in known], finest)
    right = np.flatnonzero(~wrong)
    area[right] = areas_km2(published[right], [below[i] for i in right])
    loose[right] = area_tolerances(published[right])
    return _Expected(lat, lon, area, wrong, area_tolerance=loose), [
        [format(cell, "x") for cell in cells] for cells in below
    ]


def _centers(zones: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
    """The mean direction of the centres of each zone's cells."""
    points = np.array([h3_int.cell_to_latlng(cell) for cells in zones for cell in cells]).reshape(-1, 2)
    zone = np.repeat(np.arange(len(zones)), [len(cells) for cells in zones])
    x, y, z = (np.bincount(zone, weights=axis, minlength=len(zones)) for axis in _direction(*points.T))
    # Cells all around the globe have no centre.
    near = np.sqrt(x**2 + y**2 + z**2) >= 1e-3 * np.bincount(zone, minlength=len(zones))
    x, y, z = (np.where(near, axis, default) for axis, default in ((x, 1.0), (y, 0.0), (z, 0.0)))
    return np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))


def _base_cells(tree: Hierarchy) -> list[int]:
    codes = (code for code in leaf_codes(tree).tolist() if code != OUTSIDE)
    tiles = (int(code, 16) if isinstance(code, str) else code for code in codes)
    return sorted({h3_int.cell_to_parent(cell, 0) for cell in tiles})


def _direction(lat: Any, lon: Any) -> tuple[Any, Any, Any]:
    a, b = np.radians(lat), np.radians(lon)
    return np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)


# ---- boxes and other maps ------------------------------------------------------------------------------------


def _boxes(codes: Sequence[str], published: NDArray[Any]) -> _Expected:
    """Across 180 degrees a box is two rectangles; their bounds are held against the code where they are read."""
    west, south, east, north = np.array([bounds_in(code) for code in codes]).reshape(-1, 4).T
    width = np.where(east < west, east + 360, east) - west
    lon = west + width / 2
    area = width / 360 * (_area_below(north) - _area_below(south))
    plain = shapely.equals_exact(shapely.normalize(published), shapely.normalize(shapely.box(west, south, east, north)))
    wrong = np.where(east < west, shapely.get_num_coordinates(published) > 10, ~plain)
    return _Expected((south + north) / 2, np.where(lon >= 180, lon - 360, lon), area, wrong)


def _area_below(lat: Floats) -> Floats:
    """km² of the ellipsoid between the equator and a parallel."""
    e = np.sqrt(_FLATTENING * (2 - _FLATTENING))
    s = np.sin(np.radians(lat))
    polar = _EQUATOR_KM * (1 - _FLATTENING)
    area: Floats = np.pi * polar**2 * (s / (1 - (e * s) ** 2) + np.arctanh(e * s) / e)
    return area


def _nodes(codes: Sequence[str], published: NDArray[Any], tree: Hierarchy) -> _Expected:
    """Zones of a map of one's own are the unions of its tiles."""
    where: Any = tree.geography
    number = {code: i for i, code in enumerate(tree.code_text(np.arange(len(tree.code), dtype=np.int32)).tolist())}
    node = np.array([number.get(code, -1) for code in codes], dtype=np.int64)
    known = node >= 0
    if not isinstance(where, ZoneGeography):
        return _as_mapped(where, node, published)
    start, stop = np.asarray(where.start)[node], np.asarray(where.stop)[node]
    places = where.places
    outlines, area_of_tile = places.cells
    weight = np.ones(len(places.lat)) if places.drawn_km2 is None else places.drawn_km2
    towards = np.array([*_direction(places.lat, places.lon)]) * weight
    x, y, z = (_sums(axis, start, stop) for axis in towards)
    lat, lon = np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))
    one = stop - start == 1
    lat, lon = np.where(one, places.lat[start], lat), np.where(one, places.lon[start], lon)
    smallest = float(shapely.area(outlines).min()) / 10
    wrong = np.array(
        [
            not _is_union(shape, outlines[a:b], smallest)
            for shape, a, b in zip(published, start.tolist(), stop.tolist(), strict=True)
        ]
    )
    area = _sums(area_of_tile, start, stop)
    return _Expected(
        np.where(known, lat, np.nan), np.where(known, lon, np.nan), area, wrong | ~known, center_tolerance=_CENTER
    )


def _as_mapped(where: Any, node: NDArray[Any], published: NDArray[Any]) -> _Expected:
    """Of a map that is not made of tiles, what it says itself."""
    at = np.maximum(node, 0).astype(np.int32)
    (lat, lon), area, outline = where.centers(at), where.areas_km2(at), where.polygons(at)
    wrong = (node < 0) | ~shapely.equals_exact(published, outline, _CORNER)
    return _Expected(lat, lon, area, wrong, center_tolerance=_CENTER)


def _sums(values: Any, start: Any, stop: Any) -> Floats:
    before = np.concatenate(([0.0], np.cumsum(values)))
    total: Floats = before[stop] - before[start]
    return total


def _is_union(outline: Any, tiles: Any, largest_gap: float) -> bool:
    """Whether an outline is the union of tiles, small holes between them closed."""
    if outline is None:
        return False
    if len(tiles) == 1:
        return bool(shapely.equals_exact(outline, tiles[0], _CORNER))
    parts = []
    for part in shapely.get_parts(shapely.union_all(tiles)):
        holes = [ring for ring in part.interiors if shapely.Polygon(ring).area > largest_gap]
        parts.append(shapely.Polygon(part.exterior, holes))
    whole = shapely.MultiPolygon(parts)
    if shapely.equals_exact(shapely.normalize(whole), shapely.normalize(shapely.MultiPolygon(_polygons(outline))), 0):
        return True
    if not shapely.is_valid(outline):
        return False
    return bool(shapely.symmetric_difference(outline, whole).area <= _SHARE * whole.area)


def _polygons(outline: Any) -> list[Any]:
    return [part for part in shapely.get_parts(outline) if part.geom_type == "Polygon"]
