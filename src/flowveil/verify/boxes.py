"""The part of the verification that boxes need: rectangles read from published shapes, and what lies in them.

Nothing here is shared with the methods or with the zones they make: edges are the published degrees, tiles are where
the map of the input says. A rectangle holds its west and south edges, not its east and north ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.verify.claims import Claims
from flowveil.verify.database import Database
from flowveil.verify.raw import leaves
from flowveil.zoning.covering import pairs_inside

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

#: Edges are published in whole numbers of this part of a degree.
_UNITS_PER_DEGREE = 10_000_000


@dataclass(frozen=True, eq=False)
class Rectangles:
    """The rectangles of zones: one each, or two where a zone lies across 180 degrees.

    Attributes:
        zone: position of the zone that a rectangle belongs to; in increasing order.
        bounds: west, south, east, north in degrees, one row each.
        sound: whether each zone's shape is made of rectangles and nothing else.
    """

    zone: Places
    bounds: Floats
    sound: NDArray[np.bool_]

    @classmethod
    def of(cls, shapes: Sequence[bytes | None]) -> Rectangles:
        """Read shapes in WKB; what is not a rectangle has none."""
        shape = shapely.from_wkb(np.array(shapes, dtype=object), on_invalid="ignore")
        part, zone = shapely.get_parts(shape, return_index=True)
        bounds = shapely.bounds(part).reshape(-1, 4)
        is_rectangle = shapely.equals(part, shapely.box(*bounds.T)) & (shapely.area(part) > 0)
        sound = np.bincount(zone, minlength=len(shapes)) > 0
        sound[zone[~is_rectangle]] = False
        kept = sound[zone]
        return cls(zone[kept], bounds[kept], sound)

    def tile_counts(self, lat: Floats, lon: Floats) -> Places:
        """How many of these points lie in each zone."""
        count = np.zeros(len(self.sound), dtype=np.int64)
        for _, rectangle in pairs_inside(_plane(lat, lon), self.bounds[:, :2].T, self.bounds[:, 2:].T):
            count += np.bincount(self.zone[rectangle], minlength=len(count))
        return count

    def off_grid(self, grid_lon: float, grid_lat: float) -> int:
        """How many zones have an edge beside the lines of a grid; the ends of the map are lines as well."""
        off = np.zeros(len(self.zone), dtype=np.bool_)
        for column, grid, end in ((0, grid_lon, 180), (1, grid_lat, 90), (2, grid_lon, 180), (3, grid_lat, 90)):
            step = max(1, round(grid * _UNITS_PER_DEGREE))
            units = np.rint(self.bounds[:, column] * _UNITS_PER_DEGREE).astype(np.int64)
            exact = units / _UNITS_PER_DEGREE == self.bounds[:, column]
            # East of 180 degrees a map goes on counting.
            on_line = (units % step == 0) | ((units + 360 * _UNITS_PER_DEGREE) % step == 0)
            off |= ~exact | ~(on_line | (np.abs(self.bounds[:, column]) == end))
        return len(np.unique_values(self.zone[off]))

    def misnamed(self, codes: Sequence[str]) -> int:
        """How many zones have a code that does not say their bounds."""
        n = len(self.sound)
        west, south, east, north = (np.full(n, np.nan) for _ in range(4))
        # Across 180 degrees, the western part is the one with the larger longitude.
        np.fmax.at(west, self.zone, self.bounds[:, 0])
        np.fmin.at(east, self.zone, self.bounds[:, 2])
        np.fmin.at(south, self.zone, self.bounds[:, 1])
        np.fmax.at(north, self.zone, self.bounds[:, 3])
        bounds = np.stack((west, south, east, north), axis=1)[self.sound]
        named = [bounds_in(code) for code, sound in zip(codes, self.sound, strict=True) if sound]
        return int(np.sum(np.any(np.array(named).reshape(-1, 4) != bounds, axis=1)))


def bounds_in(code: str) -> list[float]:
    """West, south, east and north that the code of a box says; not numbers where it says none."""
    try:
        head, west, south, east, north = code.split("_")
        return [float(v) for v in (west, south, east, north)] if head == "box" else [np.nan] * 4
    except ValueError:
        return [np.nan] * 4


def _plane(lat: Floats, lon: Floats) -> Floats:
    return np.stack((np.where(lon >= 180.0, lon - 360.0, lon), lat))


def flows_inside(
    origins: Rectangles,
    destinations: Rectangles,
    cells: tuple[Places, Places],
    origin: tuple[Floats, Floats],
    destination: tuple[Floats, Floats],
) -> tuple[Places, Places]:
    """All pairs of a flow and a cell that holds both of its ends.

    Args:
        origins, destinations: the rectangles of the zones.
        cells: origin zone and destination zone of each cell.
        origin, destination: latitude and longitude of both ends of each flow.

    Returns:
        Numbers of flows, and of the cells that hold them.
    """
    cell, one, other = _rectangle_pairs(origins, destinations, *cells)
    sides = origins.bounds[one].T, destinations.bounds[other].T
    low, high = np.vstack([s[:2] for s in sides]), np.vstack([s[2:] for s in sides])
    point = np.vstack((_plane(*origin), _plane(*destination)))
    found = [(flow, cell[box]) for flow, box in pairs_inside(point, low, high)]
    nothing = np.zeros(0, dtype=np.int64)
    return np.concatenate([nothing, *(f for f, _ in found)]), np.concatenate([nothing, *(c for _, c in found)])


def _rectangle_pairs(one: Rectangles, other: Rectangles, a: Places, b: Places) -> tuple[Places, Places, Places]:
    """For each cell, all pairs of a rectangle of its origin zone and one of its destination zone."""
    first_a, n_a = _slices(one, a)
    first_b, n_b = _slices(other, b)
    count = n_a * n_b
    cell = np.repeat(np.arange(len(a)), count)
    step = np.arange(len(cell)) - np.repeat(np.cumsum(count) - count, count)
    return cell, first_a[cell] + step // n_b[cell], first_b[cell] + step % n_b[cell]


def _slices(rectangles: Rectangles, zone: Places) -> tuple[Any, Any]:
    first = np.searchsorted(rectangles.zone, zone)
    return first, np.searchsorted(rectangles.zone, zone, side="right") - first


# ---- into the tables of the recount ------------------------------------------------------------------------------


def load_boxes(db: Database, zones: Any, claims: Claims, flows: Flows) -> Iterator[str]:
    """``zone_*`` with the tiles in each box, and ``inside`` (flow, a, b): which cells hold which flows.

    ``member_*`` stays empty: it is for finding zones that overlap, and boxes always may.

    Args:
        db: with ``published``.
        zones: the rows of zones.parquet, as Arrow.
        claims: the report, which names the grid.
        flows: the input.
    """
    import pyarrow as pa

    found: dict[str, Rectangles] = {}
    centers: dict[str, tuple[Floats, Floats]] = {}
    for end, role, tree in (("o", "origin", flows.origins), ("d", "destination", flows.destinations)):
        shapes = _shapes(zones, role)
        boxes = found[end] = Rectangles.of(list(shapes.values()))
        centers[end] = _tile_centers(tree)
        if tree.geography is None:
            yield f"the input does not say where its {role} tiles lie, so nothing in boxes can be recounted"
        grid = claims.report["boxes"]
        for problem, n in {
            f"{role} zones are not made of rectangles": int(np.sum(~boxes.sound)),
            f"{role} zones have edges off the declared grid": boxes.off_grid(grid["grid_lon"], grid["grid_lat"]),
            f"{role} zones have a code that does not say their bounds": boxes.misnamed(list(shapes)),
        }.items():
            if n:
                yield f"zones.parquet: {n} {problem}"
        tiles, n = boxes.tile_counts(*centers[end]), len(shapes)
        table = {
            "z": np.arange(n),
            "s": np.zeros(n, dtype=np.int64),
            "i": np.zeros(n, dtype=np.int64),
            "zone": pa.array(list(shapes), type=pa.string()),
            "node": pa.array(list(shapes), type=pa.string(), mask=tiles == 0),
            "tiles": tiles,
            "level": np.zeros(n, dtype=np.int32),
            # Not counted: what a box could hold cannot be listed.
            "possible": pa.nulls(n, pa.int64()),
            "coarse": np.ones(n, dtype=np.bool_),
        }
        db.store(f"zone_{end}", pa.table(table))
        db.create(
            f"member_{end}", f"SELECT 0::BIGINT AS s, 0::BIGINT AS i, NULL::VARCHAR AS tile, z FROM zone_{end} LIMIT 0"
        )
    pairs = db.rows(
        "SELECT DISTINCT o.z AS a, d.z AS b FROM published JOIN zone_o o ON origin_zone = o.zone "
        "JOIN zone_d d ON destination_zone = d.zone ORDER BY a, b"
    )
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    ends = [
        (lat[tile], lon[tile]) for (lat, lon), tile in ((centers["o"], flows.origin), (centers["d"], flows.destination))
    ]
    flow, cell = flows_inside(found["o"], found["d"], (a, b), ends[0], ends[1])
    db.store("inside", pa.table({"flow": flow.astype(np.int32), "a": a[cell], "b": b[cell]}))


def _shapes(zones: Any, role: str) -> dict[str, bytes | None]:
    """The outline of each zone of an end, by code."""
    rows = zip(*(zones[name].to_pylist() for name in ("zone", "role", "geometry")), strict=True)
    return dict(sorted((zone, shape) for zone, of, shape in rows if of in (role, "both")))


def _tile_centers(tree: Hierarchy) -> tuple[Floats, Floats]:
    if tree.geography is None:
        return np.full(tree.n_tiles, np.nan), np.full(tree.n_tiles, np.nan)
    return tree.geography.centers(leaves(tree))
