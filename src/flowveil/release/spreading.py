"""Published cells spread over areas of choice, from the folder of a release alone.

The same estimate as `flowveil.release.reconstruction` with one difference: which tiles have trips is not published, so
a cell is spread evenly over all tiles that its zones could hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_int
import h3.api.basic_str as h3_str
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.hierarchy import OUTSIDE
from flowveil.release.folder import ReleaseFolder

if TYPE_CHECKING:
    from flowveil.zoning.files import ZoneMap

#: More rows than this in between are refused: the areas asked for are too fine for cells that coarse.
MOST_ROWS = 100_000_000
_VOLUMES = ("trips", "weight")


def reconstruct_folder(folder: ReleaseFolder, zones: int | ZoneMap) -> pa.Table:
    """Estimate the flows between areas of choice from a published folder.

    Args:
        folder: a release whose zones are H3 cells, or zones of a map of one's own.
        zones: for H3 a resolution, at most that of the tiles; for a map of one's own that map, whose tiles are the
            areas.

    Returns:
        ``origin``, ``destination``, slice columns, and the estimated ``trips`` and, where known, ``weight``; sorted.

    Raises:
        ParameterError: the areas do not fit the release, or are too fine for its cells.
    """
    report, flows = folder.report, folder.flows
    if report["kind"] == "boxed":
        raise ParameterError("Boxes cannot be spread over areas: only zones of a tree can.")
    shares = [_shares(folder, zones, end) for end in ("origin", "destination")]
    return _spread(flows, shares[0], shares[1], report["statement"]["slice_columns"])


def spread_over_cells(flows: pa.Table, zones: pa.Table, *, level: int, resolution: int) -> pa.Table:
    """The same estimate for one matrix, from its two tables, between H3 cells of one level.

    Args:
        flows: ``origin_zone``, ``destination_zone`` and volumes.
        zones: the published zones, with their ``h3_cells``.
        level: the resolution of the areas.
        resolution: that of the tiles.
    """
    shares = [_shares_of_cells(zones, level, resolution, end) for end in ("origin", "destination")]
    return _spread(flows, shares[0], shares[1], ())


def rows_of_spreading(flows: pa.Table, zones: pa.Table, level: int) -> tuple[int, int]:
    """What `spread_over_cells` would need: rows in between, and areas of the end that has more; both at most."""
    rows = np.ones(len(flows))
    areas = 0.0
    for end in ("origin", "destination"):
        listed = zones.filter(pc.is_in(zones["role"], value_set=pa.array([end, "both"])))
        finer = [[level - h3_str.get_resolution(cell) for cell in cells] for cells in listed["h3_cells"].to_pylist()]
        length = np.array([sum(7.0 ** max(steps, 0) for steps in cells) for cells in finer])
        at = pc.index_in(flows[f"{end}_zone"], value_set=listed["zone"].combine_chunks()).to_numpy()
        rows *= length[at]
        areas = max(areas, _areas_at(listed, level))
    return int(rows.sum()), int(areas)


def _areas_at(zones: pa.Table, level: int) -> float:
    """How many cells of a level the zones lie in: those of coarser ones are counted, not listed."""
    cells = {cell for cells in zones["h3_cells"].to_pylist() for cell in cells}
    fine = {h3_str.cell_to_parent(cell, level) for cell in cells if h3_str.get_resolution(cell) >= level}
    coarse = (level - h3_str.get_resolution(cell) for cell in cells if h3_str.get_resolution(cell) < level)
    return float(len(fine) + sum(7.0**steps for steps in coarse))


def _spread(flows: pa.Table, origin: _Shares, destination: _Shares, slice_columns: Sequence[str]) -> pa.Table:
    """Repeat every cell over the areas of its origin, what comes of it over those of its destination, and add up."""
    keys: list[Any] = [flows[name].to_numpy(zero_copy_only=False) for name in slice_columns]
    row, area_o, share_o = origin.spread(flows["origin_zone"].to_pylist())
    more, area_d, share_d = destination.spread(np.array(flows["destination_zone"].to_pylist())[row].tolist())
    row, area_o, share = row[more], area_o[more], share_o[more] * share_d
    values = {name: flows[name].to_numpy()[row] * share for name in _VOLUMES if name in flows.column_names}
    return _summed(area_o, area_d, {n: k[row] for n, k in zip(slice_columns, keys, strict=True)}, values)


def _summed(origin: Any, destination: Any, slices: dict[str, Any], values: dict[str, Any]) -> pa.Table:
    """One row for each pair of areas and slice; sums are taken in one order, so that they repeat."""
    texts = {"origin": origin, "destination": destination}
    texts |= {name: np.array([v or "" for v in column.tolist()], dtype=np.str_) for name, column in slices.items()}
    order = np.lexsort([*reversed(list(texts.values()))])
    change = np.zeros(len(order), dtype=np.bool_)
    change[:1] = True
    for column in texts.values():
        change[1:] |= column[order][1:] != column[order][:-1]
    first = np.flatnonzero(change)
    columns = {
        name: pa.array([t or None for t in column[order][first].tolist()], pa.string())
        for name, column in texts.items()
    }
    columns |= {name: pa.array(np.add.reduceat(column[order], first)) for name, column in values.items()}
    return pa.table(columns)


@dataclass(frozen=True, eq=False)
class _Shares:
    """For each zone of an end, the areas it lies in and how much of it."""

    of_zone: dict[str, tuple[NDArray[np.str_], NDArray[np.float64]]]

    def spread(self, zone: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.str_], NDArray[np.float64]]:
        """Repeat rows over the areas of their zones: which row, which area, which share."""
        length = np.array([len(self.of_zone[code][0]) for code in zone], dtype=np.int64)
        if int(length.sum()) > MOST_ROWS:
            raise ParameterError(
                f"The areas are too fine for these cells: {int(length.sum()):,} rows would be needed, allowed are "
                f"{MOST_ROWS:,}. Hint: use larger areas."
            )
        areas = np.concatenate([self.of_zone[code][0] for code in zone])
        return np.repeat(np.arange(len(zone)), length), areas, np.concatenate([self.of_zone[code][1] for code in zone])


def _shares(folder: ReleaseFolder, zones: int | ZoneMap, end: str) -> _Shares:
    listed = folder.zones
    resolution = folder.report["parameters"].get("resolution")
    if not isinstance(zones, int):
        of_end = listed.filter(pc.is_in(listed["role"], value_set=pa.array([end, "both"])))
        return _Shares(dict(_of_map(folder, zones, end, of_end["zone"].to_pylist())))
    if resolution is None or not 0 <= zones <= resolution:
        raise ParameterError(
            "A number is an H3 resolution, from 0 to that of the release's tiles"
            + (", but this release is on a map of its own. Hint: name the map." if resolution is None else ".")
        )
    return _shares_of_cells(listed, zones, resolution, end)


def _shares_of_cells(zones: pa.Table, level: int, resolution: int, end: str) -> _Shares:
    listed = zones.filter(pc.is_in(zones["role"], value_set=pa.array([end, "both"])))
    codes = listed["zone"].to_pylist()
    # A part of a cell lists the cells that it is made of.
    parts = listed["h3_cells"].to_pylist() if "h3_cells" in listed.column_names else [[code] for code in codes]
    return _Shares({code: _of_cells(cells, level, resolution) for code, cells in zip(codes, parts, strict=True)})


def _of_cells(cells: Sequence[str], level: int, resolution: int) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    """The cells of a level that a zone lies in, or that lie in it, by their tiles; `outside` stays what it is."""
    if not cells:
        return np.array([OUTSIDE]), np.ones(1)
    tiles: dict[int, float] = {}
    for code in cells:
        try:
            cell = int(code, 16)
            coarse = h3_int.get_resolution(cell) >= level
        except ValueError:
            raise ParameterError("Some zones of this release are not H3 cells; they cannot be spread.") from None
        for area in [h3_int.cell_to_parent(cell, level)] if coarse else h3_int.cell_to_children(cell, level):
            within = cell if coarse else area
            tiles[area] = tiles.get(area, 0) + h3_int.cell_to_children_size(within, resolution)
    areas = sorted(tiles)
    counts = np.array([tiles[area] for area in areas], dtype=np.float64)
    return np.array([format(area, "x") for area in areas]), counts / counts.sum()


def _of_map(folder: ReleaseFolder, zones: ZoneMap, end: str, codes: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The tiles of each zone, by the release's own table of them: each has an equal share."""
    tiles: dict[str, list[str]] = {}
    for row in folder.lookup.to_pylist():
        if row["role"] in (end, "both"):
            tiles.setdefault(row["zone"], []).append(row["tile"])
    known = set(zones.tile_codes.astype(np.str_).tolist())
    if folder.report["parameters"].get("outside") == "keep":
        known.add(OUTSIDE)
    strange = {tile for below in tiles.values() for tile in below} - known
    if strange or set(codes) - set(tiles):
        raise ParameterError(
            "The release has tiles that this map does not have. Hint: name the map that the release was made on, with "
            "the same columns."
        )
    for code in codes:
        below = sorted(tiles[code])
        yield code, (np.array(below), np.full(len(below), 1 / len(below)))
