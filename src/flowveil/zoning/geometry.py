"""Geometry of the zones of a user's map, and the zone of a point.

A zone is the union of its tiles: all tiles of the map, also those without trips, so that an outline
reveals nothing about trips. Outlines are dissolved on demand; centres and areas are differences of
prefix sums in leaf order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from pyproj import CRS, Transformer
from pyproj.exceptions import CRSError

from flowveil.core.arrays import Floats, Ints, Outlines, Texts
from flowveil.core.errors import DataError
from flowveil.zoning.table import examples

#: Result of `zones_at` for a point outside all zones.
NOWHERE = -1

_WGS84 = CRS.from_epsg(4326)
_GEOCENTRIC = CRS.from_epsg(4978)
#: Half the width given to a lone point on the map, in metres.
_LONE_RADIUS_M = 500.0
#: Of the azimuthal plane, well within the earth's 12,700 km: its rim is one point.
_LAEA_RADIUS_M = 12_000_000.0
POLYGONAL = (shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON)


@dataclass(frozen=True, eq=False)
class TilePlaces:
    """Centres of tiles in degrees (WGS 84); outlines and their areas if they are drawn."""

    lat: Floats
    lon: Floats
    drawn: Outlines | None = None
    drawn_km2: Floats | None = None

    def take(self, order: NDArray[Any]) -> TilePlaces:
        """Returns the places of these tiles, in this order."""
        drawn = None if self.drawn is None else self.drawn[order]
        area = None if self.drawn_km2 is None else self.drawn_km2[order]
        return TilePlaces(lat=self.lat[order], lon=self.lon[order], drawn=drawn, drawn_km2=area)

    @cached_property
    def cells(self) -> tuple[Outlines, Floats]:
        """Outline and area (km²) of each tile.

        Where none is drawn, what is nearer to it than to other tiles.
        """
        if self.drawn is not None and self.drawn_km2 is not None:
            return self.drawn, self.drawn_km2
        return _nearest_cells(self.lat, self.lon)


@dataclass(frozen=True, eq=False)
class ZoneGeography:
    """The geography of a hierarchy over a user's tiles.

    ``places`` are the tiles of the whole map in leaf order; ``start`` and ``stop`` the slice of
    them below each node.
    """

    places: TilePlaces
    start: Ints
    stop: Ints
    # Origins and destinations are restrictions of one map: what one dissolved serves the other.
    _dissolved: dict[tuple[int, int], Any] = field(default_factory=dict, repr=False)

    def take(self, nodes: Ints) -> ZoneGeography:
        """Returns the same map for a hierarchy that has only these nodes."""
        return ZoneGeography(self.places, self.start[nodes], self.stop[nodes], self._dissolved)

    def centers(self, nodes: Ints) -> tuple[Floats, Floats]:
        """Returns latitude and longitude of each node's centre, in degrees.

        The centre is the mean of the tiles' centres, weighted with their areas where outlines are
        drawn: the centroid. That of a crescent may lie outside it.
        """
        start, stop = self.start[nodes], self.stop[nodes]
        lat, lon = _lat_lon(self._center_sums[:, stop] - self._center_sums[:, start])
        one = stop - start == 1
        lat[one], lon[one] = self.places.lat[start[one]], self.places.lon[start[one]]
        return lat, lon

    def areas_km2(self, nodes: Ints) -> Floats:
        """Returns the area of each node in square kilometres: the sum over its tiles."""
        start, stop = self.start[nodes], self.stop[nodes]
        area = self.places.cells[1]
        before = np.concatenate(([0.0], np.cumsum(area)))
        return np.where(stop - start == 1, area[start], before[stop] - before[start])

    def polygons(self, nodes: Ints) -> Outlines:
        """Returns the outline of each node (longitude, latitude), dissolved from its tiles.

        Holes smaller than a tenth of the smallest tile are closed: no tile fits in, so they are
        gaps between outlines that were simplified or reprojected one by one.
        """
        out = np.empty(len(nodes), dtype=object)
        cells = self.places.cells[0]
        # In square degrees; the tenth leaves room for their change with latitude.
        largest_gap = float(shapely.area(cells).min()) / 10
        for i, (start, stop) in enumerate(
            zip(self.start[nodes].tolist(), self.stop[nodes].tolist(), strict=True)
        ):
            if stop - start == 1:
                out[i] = cells[start]
                continue
            if (start, stop) not in self._dissolved:
                # Not coverage_union: it is faster, but wrong where neighbours do not meet to the
                # last digit.
                whole = _without_gaps(shapely.union_all(cells[start:stop]), largest_gap)
                self._dissolved[start, stop] = shapely.normalize(whole)
            out[i] = self._dissolved[start, stop]
        return out

    @cached_property
    def _center_sums(self) -> Floats:
        weight = (
            np.ones(len(self.places.lat))
            if self.places.drawn_km2 is None
            else self.places.drawn_km2
        )
        towards = directions(self.places.lat, self.places.lon) * weight
        return np.concatenate((np.zeros((3, 1)), np.cumsum(towards, axis=1)), axis=1)


def places_from_outlines(codes: Texts, outlines: Outlines) -> TilePlaces:
    """Returns the places of tiles with outlines in degrees; invalid outlines are repaired.

    Areas and centroids are those in an equal-area projection around the middle of the map. Raises
    DataError if an outline is missing, off the earth, or encloses no area.
    """
    repaired = np.array(outlines, dtype=object)
    broken = ~shapely.is_valid(repaired) & ~shapely.is_missing(repaired)
    if broken.any():
        repaired[broken] = _repaired(repaired[broken])
    whole = _joined_at_date_line(repaired)
    west, south, east, north = shapely.bounds(whole).T
    lat, lon = (south + north) / 2, _normal_longitude((west + east) / 2)
    refuse_places(codes, lat, lon)
    beyond = (
        (np.abs(np.stack((west, east))).max(axis=0) > 360) | (south < -90.001) | (north > 90.001)
    )
    plane = _Plane.around(lat, lon)
    flat = shapely.transform(whole, plane.from_degrees)
    area = shapely.area(flat) / 1e6
    unusable = beyond | ~(area > 0) | ~np.isfinite(area)
    if unusable.any():
        raise DataError(
            f"{int(unusable.sum())} tiles have an outline that encloses no area on the earth:"
            f" {examples(codes[unusable])}. Hint: outlines must be polygons in a known coordinate"
            " reference system."
        )
    middle = plane.to_degrees(shapely.get_coordinates(shapely.centroid(flat)))
    for i in np.flatnonzero((west < -180) | (east > 180)).tolist():
        repaired[i] = _split_at_date_line(whole[i])
    return TilePlaces(
        lat=middle[:, 1], lon=_normal_longitude(middle[:, 0]), drawn=repaired, drawn_km2=area
    )


def in_degrees(geometry: Outlines, crs: Any, *, label: str) -> Outlines:
    """Returns geometry reprojected to longitude and latitude on WGS 84.

    Raises DataError if its system is unknown.

    Without a reference system (None) coordinates are taken for degrees if they can be.
    """
    flat: Outlines = shapely.force_2d(geometry)
    if crs is None:
        west, south, east, north = shapely.total_bounds(flat).tolist()
        if not (west >= -180 and east <= 180 and south >= -90 and north <= 90):
            raise DataError(
                f"{label} does not say its coordinate reference system, and its coordinates are not"
                " degrees. Hint: a shapefile needs its .prj file; other formats are best written"
                " in WGS 84."
            )
        return flat
    try:
        system = CRS.from_user_input(crs)
    except CRSError:
        raise DataError(
            f"{label} has a coordinate reference system that is not known to PROJ."
        ) from None
    if system.equals(_WGS84, ignore_axis_order=True):
        return flat
    to_wgs84 = Transformer.from_crs(system, _WGS84, always_xy=True)
    return np.asarray(
        shapely.transform(flat, lambda xy: np.column_stack(to_wgs84.transform(*xy.T))), dtype=object
    )


def dissolve_rows(geometry: Outlines, row_groups: Sequence[NDArray[np.int64]]) -> Outlines:
    """Returns one outline for each group of rows: rows with the same code are parts of one tile."""
    out = np.empty(len(row_groups), dtype=object)
    for i, rows in enumerate(row_groups):
        parts = geometry[rows]
        if len(rows) > 1:
            parts = _repaired(parts)
            parts = parts[
                np.argsort(
                    shapely.to_wkt(parts, rounding_precision=-1).astype(np.str_), kind="stable"
                )
            ]
        out[i] = parts[0] if len(rows) == 1 else shapely.normalize(shapely.union_all(parts))
    return out


def mean_points(
    lat: Floats, lon: Floats, group: NDArray[Any], n_groups: int
) -> tuple[Floats, Floats]:
    """Returns the mean of each group of points; a single point is returned unchanged."""
    # Sums depend on their order; the order of the rows must not show.
    order = np.lexsort((lon, lat, group))
    lat, lon, group = lat[order], lon[order], group[order]
    mean_lat, mean_lon = _lat_lon(
        np.array([np.bincount(group, axis, n_groups) for axis in directions(lat, lon)])
    )
    lone = np.bincount(group, minlength=n_groups)[group] == 1
    mean_lat[group[lone]], mean_lon[group[lone]] = lat[lone], lon[lone]
    return mean_lat, mean_lon


def on_earth(lat: Floats, lon: Floats) -> Floats:
    """Points on the ellipsoid in metres from the centre of the earth, one row each."""
    to_metres = Transformer.from_crs(_WGS84.to_3d(), _GEOCENTRIC, always_xy=True)
    return np.column_stack(to_metres.transform(lon, lat, np.zeros(len(lat))))


def refuse_places(codes: Texts, lat: Floats, lon: Floats) -> None:
    """Raises DataError for tiles without coordinates or with such as are not on the earth.

    Both are counted.
    """
    missing = ~(np.isfinite(lat) & np.isfinite(lon))
    off = ~missing & ((np.abs(lat) > 90) | (np.abs(lon) > 180))
    wrong = {
        "have no coordinates": missing,
        "lie off the earth (latitude -90 to 90, longitude -180 to 180)": off,
    }
    problems = [
        f"{int(at.sum())} {what}: {examples(codes[at])}" for what, at in wrong.items() if at.any()
    ]
    if problems:
        raise DataError(
            f"Of {len(codes)} tiles {'; '.join(problems)}. Hint: fill them in or remove those rows;"
            " coordinates must be degrees; a table with parents needs none (lat='' and lon=''"
            " leave them out)."
        )


def directions(lat: Floats, lon: Floats) -> Floats:
    """Returns points as unit vectors from the centre of a sphere, one column each."""
    a, b = np.radians(lat), np.radians(lon)
    return np.stack((np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), np.sin(a)))


def _lat_lon(towards: Floats) -> tuple[Floats, Floats]:
    x, y, z = towards
    return np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))


@dataclass(frozen=True)
class _Plane:
    """An equal-area plane in metres, its part on the earth, and whether the 180th meridian is an
    edge of it.
    """

    transform: Transformer
    extent: Any
    has_seam: bool

    @classmethod
    def around(cls, lat: Floats, lon: Floats) -> _Plane:
        """Azimuthal around the middle of these points.

        Cylindrical if they span more than a hemisphere.
        """
        towards = directions(lat, lon)
        middle = _lat_lon(towards.sum(axis=1, keepdims=True))
        if float((directions(*middle).T @ towards).min()) > 0:
            place = f"+lat_0={float(middle[0][0])!r} +lon_0={float(middle[1][0])!r}"
            to_plane = Transformer.from_crs(
                _WGS84, f"+proj=laea {place} +datum=WGS84 +units=m", always_xy=True
            )
            return cls(to_plane, shapely.Point(0, 0).buffer(_LAEA_RADIUS_M), has_seam=False)
        to_plane = Transformer.from_crs(
            _WGS84, "+proj=cea +datum=WGS84 +units=m +over", always_xy=True
        )
        east, north = to_plane.transform(180, 90)
        return cls(to_plane, shapely.box(-east, -north, east, north), has_seam=True)

    def from_degrees(self, xy: Floats) -> Floats:
        return np.column_stack(self.transform.transform(xy[:, 0], xy[:, 1]))

    def to_degrees(self, xy: Floats) -> Floats:
        return np.column_stack(self.transform.transform(xy[:, 0], xy[:, 1], direction="INVERSE"))


def _repaired(geometry: Outlines) -> Outlines:
    return _polygonal(shapely.make_valid(geometry))


def _polygonal(geometry: Outlines) -> Outlines:
    """Returns the polygons of each geometry: repairing may add lines and points."""
    out = np.array(geometry, dtype=object)
    for i in np.flatnonzero(
        ~np.isin(shapely.get_type_id(out), POLYGONAL) & ~shapely.is_missing(out)
    ).tolist():
        parts = shapely.get_parts(out[i])
        out[i] = shapely.union_all(parts[np.isin(shapely.get_type_id(parts), POLYGONAL)])
    return out


def _without_gaps(outline: Any, largest: float) -> Any:
    """Returns the outline without its holes up to this area."""
    parts = shapely.get_parts(outline)
    if not shapely.get_num_interior_rings(parts).any():
        return outline
    closed = []
    for part in parts:
        holes = np.array(part.interiors, dtype=object)
        closed.append(
            shapely.polygons(part.exterior, holes[shapely.area(shapely.polygons(holes)) > largest])
        )
    return closed[0] if len(closed) == 1 else shapely.multipolygons(closed)


def _nearest_cells(lat: Floats, lon: Floats) -> tuple[Outlines, Floats]:
    """Voronoi cells of the tiles, cut off near their convex hull.

    Tiles at one place divide the area of a cell.
    """
    plane = _Plane.around(lat, lon)
    flat = plane.from_degrees(np.column_stack((lon, lat)))
    place, number = np.unique(flat, axis=0, return_inverse=True)
    number = number.ravel()
    points = shapely.points(place)
    if len(place) == 1:
        pieces = shapely.buffer(points, _LONE_RADIUS_M)
    else:
        tree = shapely.STRtree(points)
        _, apart = tree.query_nearest(
            points, exclusive=True, return_distance=True, all_matches=False
        )
        frame = shapely.buffer(
            shapely.convex_hull(shapely.multipoints(points)), float(np.median(apart)) / 2
        )
        frame = shapely.intersection(frame, plane.extent)
        diagram = shapely.get_parts(
            shapely.voronoi_polygons(shapely.multipoints(points), extend_to=frame)
        )
        cell, point = shapely.STRtree(points).query(diagram, predicate="intersects")
        pieces = np.empty(len(points), dtype=object)
        # A cell that touches the frame shares a line with it as well.
        pieces[point] = shapely.normalize(_polygonal(shapely.intersection(diagram[cell], frame)))
    area = shapely.area(pieces) / 1e6 / np.bincount(number)
    degrees = np.asarray(shapely.transform(pieces, plane.to_degrees), dtype=object)
    west, _, east, _ = shapely.bounds(degrees).T
    wide = (east - west > 180) & (not plane.has_seam)
    for i in np.flatnonzero(wide).tolist():
        degrees[i] = _split_at_date_line(degrees[i])
    return degrees[number], area[number]


def _joined_at_date_line(outlines: Outlines) -> Outlines:
    """Outlines whose parts on both sides of 180 degrees are joined.

    Western longitudes become 180 to 360.
    """
    whole = np.array(outlines, dtype=object)
    parts, of = shapely.get_parts(whole, return_index=True)
    west, _, east, _ = shapely.bounds(parts).T
    torn = np.zeros(len(whole), dtype=np.bool_)
    torn[of[(west < 0) & (east >= 0)]] = True
    wide = np.ptp(np.nan_to_num(shapely.bounds(whole))[:, [0, 2]], axis=1) > 180
    for i in np.flatnonzero(wide & ~torn).tolist():
        east_of_greenwich = shapely.transform(whole[i], _eastward)
        if np.ptp(shapely.bounds(east_of_greenwich)[[0, 2]]) <= 180:
            whole[i] = shapely.union_all(shapely.get_parts(east_of_greenwich))
    return whole


def _eastward(xy: Floats) -> Floats:
    return np.column_stack((np.where(xy[:, 0] < 0, xy[:, 0] + 360, xy[:, 0]), xy[:, 1]))


def _normal_longitude(lon: Floats) -> Floats:
    """Longitudes beyond 180 degrees as those between -180 and 180."""
    return np.where(np.abs(lon) > 180, (lon + 180) % 360 - 180, lon)


def _split_at_date_line(outline: Any) -> Any:
    """An outline that goes on beyond 180 degrees, or is torn there, in parts between -180 and
    180.
    """
    west, _, east, _ = shapely.bounds(outline)
    beyond = outline if west < -180 or east > 180 else shapely.transform(outline, _eastward)
    parts = []
    for turn in (-360.0, 0.0, 360.0):
        part = shapely.intersection(beyond, shapely.box(turn - 180, -90, turn + 180, 90))
        parts.append(shapely.transform(part, lambda xy, turn=turn: xy - [turn, 0.0]))
    return shapely.union_all([*_polygonal(np.array(parts, dtype=object))])


def zones_at(outlines: Outlines, codes: NDArray[Any], lat: Floats, lon: Floats) -> Ints:
    """Returns the outline that contains each point, or `NOWHERE`.

    Of several, the one with the smallest code.
    """
    order = np.argsort(codes, kind="stable")
    tree = shapely.STRtree(shapely.points(lon, lat))
    zone, point = tree.query(outlines[order], predicate="intersects")
    rank = np.full(len(lat), len(outlines), dtype=np.int64)
    np.minimum.at(rank, point, zone)
    return np.append(order, NOWHERE)[rank].astype(np.int32)
