"""Lists of sensitive places (clinics, shelters, places of worship), with the thresholds of cells
around them.

A list is a table with one place per row: its tile, or latitude and longitude. It is never
published: a release contains only the number of places and the highest threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Floats, Numbers, Texts
from flowveil.core.errors import DataError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.headers import plain_name
from flowveil.core.hierarchy import Hierarchy, PlaceCounts
from flowveil.zoning.files import ZoneMap, degrees_of, load_table, text_column
from flowveil.zoning.h3 import is_cell, is_h3, parent_of, resolution_of
from flowveil.zoning.outside import inside_of
from flowveil.zoning.points import index_points
from flowveil.zoning.restriction import tree_of_tiles, tree_over
from flowveil.zoning.table import positions

_NAMES = {
    "tile": ("tile", "zone", "cell", "code", "h3"),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "longitude"),
    "k": ("k",),
    "l": ("l",),
}
#: Largest threshold that is accepted.
MOST = 10**12
_ALLOWED = "a column 'tile', or 'lat' and 'lon'"


@dataclass(frozen=True, eq=False)
class Places:
    """A list of places, by the published codes of their tiles or by coordinates.

    ``k`` and ``l`` are the thresholds of cells around each place, 0 if not given.
    """

    tile: Texts | None
    lat: Floats | None
    lon: Floats | None
    k: Numbers
    l: Numbers  # noqa: E741  # the papers' letter

    def __len__(self) -> int:
        return len(self.k)

    def tiles_on(self, resolution: int | None, whole_map: Hierarchy | None) -> Texts:
        """Returns the tile of each place, in H3 or on a map.

        DataError if off the map, ParameterError without one.
        """
        return _map_codes(self, whole_map) if resolution is None else _h3_codes(self, resolution)

    def located(self, resolution: int | None, whole_map: Hierarchy | None) -> Places:
        """Returns the distinct tiles of the places, each with its highest thresholds.

        Raises like `tiles_on`.
        """
        distinct, place = np.unique(self.tiles_on(resolution, whole_map), return_inverse=True)
        highest = {}
        for name, thresholds in (("k", self.k), ("l", self.l)):
            highest[name] = np.zeros(len(distinct), np.int64)
            np.maximum.at(highest[name], place, thresholds)
        return replace(self, tile=distinct, lat=None, lon=None, **highest)

    def counted_on(self, flows: Flows) -> PlaceCounts:
        """Returns the number of places in each tile of these flows' map; raises like `tiles_on`."""
        return PlaceCounts(*np.unique(self.tiles_on(*tiling(flows)), return_counts=True))

    @cached_property
    def highest(self) -> dict[str, int | None]:
        """The highest k and l of the list; None if not given."""
        return {
            name: int(values.max(initial=0)) or None
            for name, values in (("k", self.k), ("l", self.l))
        }

    def thresholds_of_nodes(
        self, tree: Hierarchy, whole_map: Hierarchy | None, name: str
    ) -> Numbers:
        """Returns the threshold of each node of a tree.

        The highest of its places, 0 without places.

        Places in tiles without trips count too: otherwise a published cell below the higher
        threshold would reveal that no trip went to the place. The threshold is that of ``k`` or
        ``l``; H3 trees need no map.
        """
        assert self.tile is not None, "places are located by their tiles"
        thresholds: Numbers = self.k if name == "k" else self.l
        tiles: NDArray[Any] = self.tile
        if is_h3(tree):
            tiles = _cells(self.tile)
            holding = tree_over(tiles, tree.kind)
        else:
            assert whole_map is not None
            holding = tree_of_tiles(whole_map, self.tile, to_the_top=True)
        of_tile = np.append(thresholds[positions(tiles, holding.code[holding.leaf_node])], 0)
        edges = np.column_stack((holding.leaf_start, holding.leaf_stop)).ravel()
        highest = np.maximum.reduceat(of_tile, edges)[::2]
        at = positions(holding.code, tree.code)
        of_tree = np.where(at >= 0, highest[at], 0)
        if tree.code.dtype == np.uint64:
            # The virtual root contains all places.
            of_tree[tree.code == 0] = thresholds.max(initial=0)
        return of_tree.astype(np.int64)


def read_places(source: Any, *, asking: bool) -> Places:
    """Reads a list of places: a CSV, Parquet or GeoJSON file (points), a table, or a result of this
    function.

    Raises DataError if columns are missing, or rows have no place or, if ``asking``, neither k nor
    l.
    """
    if isinstance(source, Places):
        return source
    table, drawn, _ = load_table(source, what="the places")
    # The file's name may be confidential.
    label = "The list of places"
    named = {
        role: [c for c in table.column_names if plain_name(c) in names]
        for role, names in _NAMES.items()
    }
    double = [role for role, found in named.items() if len(found) > 1]
    if double:
        raise DataError(
            f"{label} has several columns that could be '{double[0]}'. Hint: leave one of them."
        )
    column = {role: table[found[0]] for role, found in named.items() if found}
    if drawn is not None and "tile" not in column:
        import shapely

        if np.any(shapely.get_type_id(drawn) != shapely.GeometryType.POINT):
            raise DataError(
                f"{label} has outlines that are not points; places are points, or tiles."
            )
        column |= {"lat": pa.array(shapely.get_y(drawn)), "lon": pa.array(shapely.get_x(drawn))}
    if len(table) == 0:
        raise DataError(f"{label} is empty.")
    thresholds = [_thresholds(column.get(name), len(table), label, name) for name in ("k", "l")]
    missing = int(np.sum((thresholds[0] == 0) & (thresholds[1] == 0)))
    if asking and missing:
        raise DataError(
            f"{label} has {missing} places without a threshold. Hint: give each a 'k', an 'l', or"
            " both."
        )
    if "tile" in column:
        texts = text_column(column["tile"], name="tile")
        if texts.null_count:
            raise DataError(f"{label} has {texts.null_count} places without a tile.")
        return Places(np.array(texts.to_pylist(), dtype=np.str_), None, None, *thresholds)
    if "lat" not in column or "lon" not in column:
        raise DataError(f"{label} does not say where its places are. Allowed: {_ALLOWED}.")
    return Places(None, *_coordinates(column, label), *thresholds)


def _thresholds(column: Any, n: int, label: str, name: str) -> Numbers:
    """Returns integers of at least 1; 0 for missing ones."""
    if column is None:
        return np.zeros(n, np.int64)
    try:
        given = [
            None if text is None else int(text)
            for text in text_column(column, name=name).to_pylist()
        ]
        wrong = any(number is not None and not 1 <= number <= MOST for number in given)
    except (ValueError, pa.ArrowException):
        wrong = True
    if wrong:
        raise DataError(f"{label} has a '{name}' that is not a whole number of at least 1.")
    return np.array([number or 0 for number in given], dtype=np.int64)


def _coordinates(column: dict[str, Any], label: str) -> tuple[Floats, Floats]:
    ends = []
    for name, most in (("lat", 90.0), ("lon", 180.0)):
        values = degrees_of(column[name], name)
        wrong = int(np.sum(~(np.abs(values) <= most)))
        if wrong:
            raise DataError(
                f"{label} has {wrong} places whose '{name}' is missing or off the earth."
            )
        ends.append(values)
    return ends[0], ends[1]


# ---- which tile ----------------------------------------------------------------------------------


def tiling(flows: Flows) -> tuple[int | None, Hierarchy | None]:
    """Returns the resolution of H3 tiles, and the map of others."""
    tree = flows.origins
    if is_h3(tree):
        return int(resolution_of(tree.code[tree.leaf_node[:1]])[0]), None
    return None, flows.whole_map


def _h3_codes(places: Places, resolution: int) -> Texts:
    if places.lat is not None and places.lon is not None:
        cells = index_points(places.lat, places.lon, resolution)
    else:
        assert places.tile is not None, "a list has tiles or coordinates"
        cells = _cells(places.tile)
        coarse = int(np.sum(resolution_of(cells) < resolution))
        if coarse:
            raise DataError(
                f"{coarse} of the listed places are H3 cells coarser than the tiles, which have"
                f" resolution {resolution}. Hint: list cells of that resolution, or coordinates."
            )
        cells = parent_of(cells, resolution)
    return np.array([f"{cell:x}" for cell in cells.tolist()], dtype=np.str_)


def _cells(texts: Texts) -> Cells64:
    try:
        cells = np.array([int(text, 16) for text in texts.tolist()], dtype=np.uint64)
    except (ValueError, OverflowError):
        raise DataError(
            "A listed place is not an H3 cell, and the tiles are. Hint: list H3 cells."
        ) from None
    wrong = int(np.sum(~is_cell(cells)))
    if wrong:
        raise DataError(f"{wrong} of the listed places are not valid H3 cells.")
    return cells


def _map_codes(places: Places, whole: Hierarchy | None) -> Texts:
    if whole is None:
        raise ParameterError(
            "Listed places need a map of the tiles: without it, places without trips cannot be"
            " located. Hint: give the map with --zones, or use H3."
        )
    zone_map = ZoneMap(inside_of(whole), {})
    if places.tile is not None:
        tile = zone_map.tiles_of(places.tile)
    elif zone_map.outlines is None:
        raise ParameterError(
            "The map has no outlines, so places cannot be found by coordinates. Hint: list tiles."
        )
    else:
        assert places.lat is not None, "a list has tiles or coordinates"
        assert places.lon is not None
        tile = zone_map.tiles_at(places.lat, places.lon)
    missing = int(np.sum(tile < 0))
    if missing:
        raise DataError(
            f"{missing} of the listed places are on no tile of the map. Hint: leave out those that"
            " are elsewhere, and check that latitude and longitude are not exchanged."
        )
    return np.asarray(zone_map.tile_codes[tile], dtype=np.str_)
