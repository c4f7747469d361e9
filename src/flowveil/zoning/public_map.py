"""Places of published zones: functions of zone codes and of the map, never of trips.

Boxes are in 10⁻⁷ degrees.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import h3.api.basic_int as h3_int
import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, Numbers
from flowveil.core.errors import DataError
from flowveil.core.hierarchy import (
    H3_PART_SHIFT,
    H3_PARTS,
    OUTSIDE,
    OUTSIDE_CELL,
    VIRTUAL_ROOT,
    Hierarchy,
)
from flowveil.zoning.h3 import (
    PART_BITS,
    H3Geography,
    is_h3,
    n_descendants,
    parent_of,
    resolution_of,
)
from flowveil.zoning.halves import enclosing_parts
from flowveil.zoning.table import positions

#: Edges of boxes are multiples of this part of a degree (a centimetre), so that their codes are
#: short and exact.
UNITS_PER_DEGREE = 10_000_000
FULL_TURN = 360 * UNITS_PER_DEGREE
_EQUATOR_M = 6_378_137.0
_ECCENTRICITY = 0.0818191908426215
_DEGREES = r"(-?[0-9]{1,3}(?:\.[0-9]{1,7})?)"
_CODE = re.compile(f"box_{_DEGREES}_{_DEGREES}_{_DEGREES}_{_DEGREES}")

_H3_CODE = re.compile(rf"([0-9a-f]{{15}})({'|'.join(map(re.escape, H3_PARTS[1:]))})?")


@dataclass(frozen=True, eq=False)
class ZonePlaces:
    """Properties of zones, in the order of their codes; None if unknown for all.

    ``tiles`` are those that a zone could hold, seen or not; centres are NaN for `outside`; areas
    and outlines are None where the outlines of ``h3_cells`` decide, which are as few as possible;
    ``names`` are empty where the map has none.
    """

    level: Ints
    tiles: NDArray[np.int64] | None = None
    lat: Floats | None = None
    lon: Floats | None = None
    area_km2: Floats | None = None
    polygons: NDArray[np.object_] | None = None
    names: NDArray[np.str_] | None = None
    h3_cells: list[list[str]] | None = None


class PublicMap(Protocol):
    """Places of zones by code."""

    def places(self, codes: Sequence[str]) -> ZonePlaces:
        """Returns what is known of distinct zones.

        Raises DataError if a code is not one of this map.
        """
        ...


@dataclass(frozen=True)
class H3Map:
    """H3 cells, and parts of them, with tiles of a resolution."""

    resolution: int

    def places(self, codes: Sequence[str]) -> ZonePlaces:
        """Returns the places of cells, parts, ``outside`` and ``all``, which covers the base cells
        of the others.
        """
        code = np.array([_h3_number(text) for text in codes], dtype=np.uint64)
        is_outside = code == np.uint64(OUTSIDE_CELL)
        inside = code[(code != 0) & ~is_outside]
        base = np.unique(parent_of(inside & ~PART_BITS, 0)).tolist() or sorted(
            h3_int.get_res0_cells()
        )
        where, nodes = H3Geography(code, tuple(base)), np.arange(len(code), dtype=np.int32)
        lat, lon = where.centers(nodes)
        level = np.where(code == 0, -1, np.where(is_outside, 0, resolution_of(code))).astype(
            np.int32
        )
        tiles = n_descendants(code, self.resolution)
        return ZonePlaces(
            level=level, tiles=tiles, lat=lat, lon=lon, h3_cells=where.h3_cells(nodes)
        )


@dataclass(frozen=True, eq=False)
class TreeMap:
    """A map of the operator: a tree over all tiles, with parts of zones and ``outside`` where the
    release has them.
    """

    tree: Hierarchy

    def places(self, codes: Sequence[str]) -> ZonePlaces:
        """Returns the places of nodes of the tree."""
        nodes = self.nodes(codes)
        where, names = self.tree.geography, self.tree.names
        lat, lon = (None, None) if where is None else where.centers(nodes)
        return ZonePlaces(
            level=self.tree.level[nodes],
            tiles=self.tree.size[nodes].astype(np.int64),
            lat=lat,
            lon=lon,
            area_km2=None if where is None else where.areas_km2(nodes),
            polygons=None if where is None else where.polygons(nodes),
            names=None if names is None else names[nodes],
        )

    def nodes(self, codes: Sequence[str]) -> Ints:
        """Returns the node of each code; raises DataError if one is not on the map."""
        nodes = np.array([self.tree.node_of_code.get(code, -1) for code in codes], dtype=np.int32)
        missing = int(np.sum(nodes < 0))
        if missing:
            raise DataError(
                f"{missing} zones of the release are not on the map. Hint: give the map it was"
                " made on."
            )
        return nodes


@dataclass(frozen=True, eq=False)
class TwoTreesMap:
    """Trees of the two ends that belong to no map.

    Codes and levels, and places where the trees know them.
    """

    origins: Hierarchy
    destinations: Hierarchy

    def places(self, codes: Sequence[str]) -> ZonePlaces:
        """Returns the places of nodes; the tree of the origins decides where both have a code."""
        at_origin = np.array([code in self.origins.node_of_code for code in codes], dtype=np.bool_)
        rows = [np.flatnonzero(at) for at in (at_origin, ~at_origin)]
        trees = zip((self.origins, self.destinations), rows, strict=True)
        parts = [TreeMap(tree).places([codes[row] for row in own.tolist()]) for tree, own in trees]
        order = np.argsort(np.concatenate(rows))
        columns: dict[str, Any] = {}
        for name in ("level", "lat", "lon", "area_km2", "polygons", "names"):
            values = [getattr(part, name) for part in parts]
            columns[name] = (
                None if any(v is None for v in values) else np.concatenate(values)[order]
            )
        return ZonePlaces(**columns)


def tiles_of_nodes(tree: Hierarchy, whole_map: Hierarchy | None) -> Floats:
    """Returns the number of tiles below each node on the public map, with or without trips.

    A tree that belongs to no map is public itself.
    """
    if is_h3(tree):
        resolution = int(resolution_of(tree.code[tree.leaf_node[:1]])[0])
        return n_descendants(tree.code, resolution).astype(np.float64)
    if whole_map is None:
        return tree.size.astype(np.float64)
    return whole_map.size[positions(whole_map.code, tree.code)].astype(np.float64)


#: A zone and everything that contains it, nearest first, each with its level; a part of a zone is
#: half a level finer.
Chain = list[tuple[str, float]]


def zone_chains(places: PublicMap, codes: Sequence[str]) -> list[Chain]:
    """Returns each zone and its ancestors on a map, up to the root.

    On a map without a tree, the zone alone.
    """
    if isinstance(places, H3Map):
        return [_h3_chain(text) for text in codes]
    if not isinstance(places, TreeMap):
        return [[(code, 0.0)] for code in codes]
    tree = places.tree
    text = list(tree.node_of_code)
    level, parent = tree.level.tolist(), tree.parent.tolist()
    chains: list[Chain] = []
    for node in places.nodes(codes).tolist():
        chain: Chain = []
        while node >= 0:
            # A part of a zone has the level of the zone.
            is_part = parent[node] >= 0 and level[parent[node]] == level[node]
            chain.append((text[node], level[node] + 0.5 * is_part))
            node = parent[node]
        chains.append(chain)
    return chains


def _h3_chain(text: str) -> Chain:
    number = _h3_number(text)
    if number in (0, OUTSIDE_CELL):
        return [(text, -1.0)] if number == 0 else [(text, -1.0), (VIRTUAL_ROOT, -1.0)]
    chain: Chain = []
    for code in enclosing_parts(number):
        part = code >> H3_PART_SHIFT & 7
        cell = code ^ part << H3_PART_SHIFT
        chain.append((f"{cell:x}{H3_PARTS[part]}", h3_int.get_resolution(cell) + 0.5 * (part > 0)))
    return [*chain, (VIRTUAL_ROOT, -1.0)]


def _h3_number(text: str) -> int:
    if text == VIRTUAL_ROOT:
        return 0
    if text == OUTSIDE:
        return OUTSIDE_CELL
    code = _H3_CODE.fullmatch(text)
    if code is None or not h3_int.is_valid_cell(int(code[1], 16)):
        raise DataError("A zone is not an H3 cell, nor a part of one.")
    return int(code[1], 16) | H3_PARTS.index(code[2] or "") << H3_PART_SHIFT


# ---- boxes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rectangles:
    """Boxes by their edges in units; west is above east where a box crosses 180 degrees."""

    west: Numbers
    south: Numbers
    east: Numbers
    north: Numbers

    @classmethod
    def from_codes(cls, codes: Sequence[str]) -> Rectangles:
        """Reads the edges from codes ``box_west_south_east_north``.

        Raises DataError for other codes.
        """
        edges = []
        for code in codes:
            box = _CODE.fullmatch(code)
            if box is None:
                raise DataError("A zone of a release of boxes has the code of no box.")
            edges.append([round(float(text) * UNITS_PER_DEGREE) for text in box.groups()])
        return cls(*np.array(edges, dtype=np.int64).reshape(-1, 4).T)

    def codes(self) -> NDArray[np.str_]:
        """Returns ``box_west_south_east_north`` in degrees."""
        edges = np.stack((self.west, self.south, self.east, self.north), axis=1) / UNITS_PER_DEGREE
        text = [
            "_".join(["box", *(f"{e:.7f}".rstrip("0").rstrip(".") for e in box)])
            for box in edges.tolist()
        ]
        return np.array(text, dtype=np.str_).reshape(len(self.west))

    def centers(self) -> tuple[Floats, Floats]:
        """Returns latitude and longitude of the middle of each box."""
        east = np.where(self.east < self.west, self.east + FULL_TURN, self.east)
        lon = (self.west + east) / (2 * UNITS_PER_DEGREE)
        return (self.south + self.north) / (2 * UNITS_PER_DEGREE), np.where(
            lon >= 180.0, lon - 360.0, lon
        )

    def areas_km2(self) -> Floats:
        """Returns the area of each box on the ellipsoid of WGS 84, exactly."""
        width = np.where(self.east < self.west, self.east + FULL_TURN, self.east) - self.west
        between = _area_below(self.north) - _area_below(self.south)
        return width / UNITS_PER_DEGREE / 360 * between

    def polygons(self) -> NDArray[np.object_]:
        """Returns the rectangles (longitude, latitude); two where a box crosses 180 degrees."""
        west, south, east, north = (
            u / UNITS_PER_DEGREE for u in (self.west, self.south, self.east, self.north)
        )
        out = np.asarray(shapely.box(west, south, east, north), dtype=object)
        for i in np.flatnonzero(east < west).tolist():
            out[i] = shapely.box(west[i], south[i], 180, north[i])
            if east[i] > -180:
                out[i] = shapely.multipolygons(
                    [out[i], shapely.box(-180, south[i], east[i], north[i])]
                )
        return out


@dataclass(frozen=True)
class BoxMap:
    """Boxes; their codes contain their edges."""

    def places(self, codes: Sequence[str]) -> ZonePlaces:
        """Returns the places of boxes, which have no level, name or number of tiles."""
        boxes = Rectangles.from_codes(codes)
        lat, lon = boxes.centers()
        level = np.zeros(len(codes), dtype=np.int32)
        return ZonePlaces(
            level=level, lat=lat, lon=lon, area_km2=boxes.areas_km2(), polygons=boxes.polygons()
        )


def _area_below(lat_units: Numbers) -> Floats:
    """Returns the area of the ellipsoid between the equator and a parallel in km², negative in the
    south.
    """
    e = _ECCENTRICITY
    s = np.sin(np.radians(lat_units / UNITS_PER_DEGREE))
    half = s / (1 - (e * s) ** 2) + np.arctanh(e * s) / e
    area: Floats = np.pi * (_EQUATOR_M / 1000) ** 2 * (1 - e * e) * half
    return area
