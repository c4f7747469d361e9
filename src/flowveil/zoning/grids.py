"""Grids whose cells have codes: geohash, quadkey, S2 and the INSPIRE grid of Europe.

Place, outline and parents of a cell follow from its code by arithmetic, so a map needs no file: its
text ``GRID:SIZE:WEST,SOUTH,EAST,NORTH`` names all cells of a size whose centres lie in a box,
with or without trips. Such a map is public, like one from a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Texts
from flowveil.core.errors import ParameterError
from flowveil.request.settings import GRID

#: Cells of one map, so that it is built in seconds.
MOST_CELLS = 200_000
#: A share of a sample has codes of a grid.
_MOST = 0.9
_BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"
_INSPIRE_SHORT = re.compile(r"([0-9]+k?m)N([0-9]+)E([0-9]+)")
_INSPIRE_LONG = re.compile(r"CRS3035RES([0-9]+)mN([0-9]+)E([0-9]+)")
#: Sizes of coarser cells of the INSPIRE grid, in metres.
_COARSER = (500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000)

Bounds = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class GridCells:
    """Cells of one size in a box.

    ``levels`` are the codes of each level, coarsest first; the last are the cells.
    """

    levels: tuple[Texts, ...]
    lat: Floats
    lon: Floats
    outlines: NDArray[np.object_]


@dataclass(frozen=True)
class GridMap:
    """A map of all cells of a size in a box, by its text."""

    grid: str
    size: str
    box: Bounds

    @property
    def text(self) -> str:
        """The text of the map."""
        return f"{self.grid}:{self.size}:{','.join(f'{edge:g}' for edge in self.box)}"

    def cells(self) -> GridCells:
        """Returns the cells.

        Raises ParameterError for an unknown size, or if there are too few or too many.
        """
        made: GridCells = _MADE[self.grid](self.size, self.box)
        if len(made.lat) == 0:
            raise ParameterError(f"There are no cells of '{self.grid}:{self.size}' in the box.")
        return made


def parse_grid(source: Any) -> GridMap | None:
    """Returns the map that a text names; None for anything else, such as a path."""
    found = GRID.fullmatch(source) if isinstance(source, str) else None
    if found is None:
        return None
    west, south, east, north = map(float, found[3].split(","))
    if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
        raise ParameterError(
            f"The box of the grid must be west,south,east,north in degrees; found '{found[3]}'."
        )
    return GridMap(found[1], found[2], (west, south, east, north))


def stated_grid(columns: Any) -> str | None:
    """Returns the grid that the parameters of a release name as its map; None for another map.

    ParameterError for a text that is no grid: a release must not name a file.
    """
    text = columns.get("grid") if isinstance(columns, Mapping) else None
    if text is not None and parse_grid(text) is None:
        raise ParameterError("report.json names a grid that does not exist.")
    return text


def is_on_file(columns: Any) -> bool:
    """Returns whether a release needs the file of a map: it is neither on H3 cells nor a grid."""
    return bool(columns) and stated_grid(columns) is None


def proposed_grid(values: Sequence[str]) -> GridMap | None:
    """Returns a map that holds the cells of a sample of codes; None if they are of no grid.

    Its box is larger than the sample, and rounded to tenths of a degree.
    """
    codes = sorted({value.strip() for value in values if value.strip()})
    for grid, read in _READ.items():
        read_codes = [(code, read(code)) for code in codes]
        sizes = Counter(found[0] for _, found in read_codes if found is not None)
        # Numbers of zones are digits too.
        digits = grid in ("s2", "geohash") and all(code.isdecimal() for code in codes)
        if not sizes or digits:
            continue
        (size, times), *_ = sizes.most_common(1)
        if times < _MOST * len(codes):
            continue
        places = [found[1:] for _, found in read_codes if found is not None and found[0] == size]
        lat, lon = np.array(places, dtype=np.float64).T
        return GridMap(grid, size, _around(lat, lon))
    return None


def _around(lat: Floats, lon: Floats) -> Bounds:
    edges = []
    for values, limit in ((lon, 180.0), (lat, 90.0)):
        low, high = float(values.min()), float(values.max())
        more = 0.1 + 0.2 * (high - low)
        edges.append((max(np.floor((low - more) * 10) / 10, -limit),
                      min(np.ceil((high + more) * 10) / 10, limit)))  # fmt: skip
    (west, east), (south, north) = edges
    return west, south, east, north


def _refuse_many(n: float) -> None:
    if n > MOST_CELLS:
        raise ParameterError(
            f"The box has about {n:,.0f} cells; at most {MOST_CELLS:,} are allowed. Hint: a smaller"
            " box, or coarser cells."
        )


def _whole(size: str, low: int, high: int, what: str) -> int:
    if not size.isdecimal() or not low <= int(size) <= high:
        raise ParameterError(f"{what} are from {low} to {high}; found '{size}'.")
    return int(size)


def _joined(digits: NDArray[Any], alphabet: str) -> Texts:
    """Returns rows of digits as texts."""
    signs = np.array(list(alphabet), dtype="U1")[digits]
    return np.ascontiguousarray(signs).view(f"U{digits.shape[1]}").ravel()


def _prefixes(codes: Texts, shortest: int, longest: int) -> tuple[Texts, ...]:
    """Returns the codes cut to each length: those of the levels above, and themselves."""
    return tuple(codes.astype(f"U{length}") for length in range(shortest, longest + 1))


# ---- geohash -------------------------------------------------------------------------------------


def _geohash_cells(size: str, box: Bounds) -> GridCells:
    length = _whole(size, 1, 9, "Lengths of geohashes")
    bits = 5 * length
    n_lon, n_lat = 1 << (bits + 1) // 2, 1 << bits // 2
    west, south, east, north = box
    x = _numbers_between((west + 180) / 360, (east + 180) / 360, n_lon)
    y = _numbers_between((south + 90) / 180, (north + 90) / 180, n_lat)
    _refuse_many(len(x) * len(y))
    x, y = (grid.ravel() for grid in np.meshgrid(x, y))
    mixed = _interleaved(x, y, (bits + 1) // 2, bits // 2)
    digits = (mixed[:, None] >> (5 * np.arange(length - 1, -1, -1))) & 31
    codes = _joined(digits, _BASE32)
    return GridCells(
        levels=_prefixes(codes, 1, length),
        lat=(y + 0.5) / n_lat * 180 - 90,
        lon=(x + 0.5) / n_lon * 360 - 180,
        outlines=shapely.box(
            x / n_lon * 360 - 180,
            y / n_lat * 180 - 90,
            (x + 1) / n_lon * 360 - 180,
            (y + 1) / n_lat * 180 - 90,
        ),
    )


def _numbers_between(low: float, high: float, n: int) -> NDArray[np.int64]:
    """Returns the cells of ``n`` between 0 and 1 whose middle is between two numbers."""
    first, last = int(np.ceil(low * n - 0.5)), int(np.floor(high * n - 0.5))
    _refuse_many(last - first)
    return np.arange(max(first, 0), min(last, n - 1) + 1, dtype=np.int64)


def _interleaved(
    x: NDArray[np.int64], y: NDArray[np.int64], bits_x: int, bits_y: int
) -> NDArray[np.int64]:
    """Returns the bits of two numbers in turn, beginning with the highest of the first."""
    mixed = np.zeros(len(x), dtype=np.int64)
    for turn in range(bits_x + bits_y):
        number, bits = (x, bits_x) if turn % 2 == 0 else (y, bits_y)
        mixed = mixed << 1 | (number >> (bits - 1 - turn // 2)) & 1
    return mixed


def _read_geohash(code: str) -> tuple[str, float, float] | None:
    if not 4 <= len(code) <= 9 or not set(code) <= set(_BASE32):
        return None
    bits = "".join(f"{_BASE32.index(sign):05b}" for sign in code)
    x, y = bits[0::2], bits[1::2]
    lon = (int(x, 2) + 0.5) / 2 ** len(x) * 360 - 180
    return str(len(code)), (int(y, 2) + 0.5) / 2 ** len(y) * 180 - 90, lon


# ---- quadkey -------------------------------------------------------------------------------------


def _mercator(lat: Any) -> Any:
    """Returns the share of a square map of the world above a latitude."""
    return 0.5 - np.arcsinh(np.tan(np.radians(np.clip(lat, -85.0511, 85.0511)))) / (2 * np.pi)


def _latitude(share: Any) -> Any:
    return np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * share))))


def _quadkey_cells(size: str, box: Bounds) -> GridCells:
    zoom = _whole(size, 1, 23, "Lengths of quadkeys")
    n = 1 << zoom
    west, south, east, north = box
    x = _numbers_between((west + 180) / 360, (east + 180) / 360, n)
    y = _numbers_between(float(_mercator(north)), float(_mercator(south)), n)
    _refuse_many(len(x) * len(y))
    x, y = (grid.ravel() for grid in np.meshgrid(x, y))
    shifts = np.arange(zoom - 1, -1, -1)
    digits = (x[:, None] >> shifts & 1) + 2 * (y[:, None] >> shifts & 1)
    return GridCells(
        levels=_prefixes(_joined(digits, "0123"), 1, zoom),
        lat=_latitude((y + 0.5) / n),
        lon=(x + 0.5) / n * 360 - 180,
        outlines=shapely.box(
            x / n * 360 - 180, _latitude((y + 1) / n), (x + 1) / n * 360 - 180, _latitude(y / n)
        ),
    )


def _read_quadkey(code: str) -> tuple[str, float, float] | None:
    if not 8 <= len(code) <= 23 or not set(code) <= set("0123"):
        return None
    x = int("".join(str(int(sign) & 1) for sign in code), 2)
    y = int("".join(str(int(sign) >> 1) for sign in code), 2)
    n = 2 ** len(code)
    return str(len(code)), float(_latitude((y + 0.5) / n)), (x + 0.5) / n * 360 - 180


# ---- S2 ------------------------------------------------------------------------------------------

#: Along the Hilbert curve in each of four orientations: the child (2 i + j) at each position, and
#: the change of orientation.
_CHILD = np.array([[0, 1, 3, 2], [0, 2, 3, 1], [3, 2, 0, 1], [3, 1, 0, 2]])
_TURN = np.array([1, 0, 0, 3])
#: The largest distance of a point of a cell of level 0 from its middle, in degrees.
_RADIUS = np.degrees(2.4387) / 2


def _s2_point(face: Any, s: Any, t: Any) -> tuple[Any, Any]:
    """Returns latitude and longitude of a point of a face of the cube."""
    u, v = (
        np.where(a >= 0.5, (4 * a * a - 1) / 3, (1 - 4 * (1 - a) * (1 - a)) / 3) for a in (s, t)
    )
    one = np.ones_like(u)
    x = np.choose(face, [one, -u, -u, -one, v, v])
    y = np.choose(face, [u, one, -v, -v, -one, u])
    z = np.choose(face, [v, v, one, -u, -u, -one])
    return np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))


def _s2_tokens(face: NDArray[Any], position: NDArray[Any], level: int) -> Texts:
    ids = face.astype(np.uint64) << np.uint64(61)
    ids |= position.astype(np.uint64) << np.uint64(61 - 2 * level)
    ids |= np.uint64(1) << np.uint64(60 - 2 * level)
    return np.array([f"{number:016x}".rstrip("0") for number in ids.tolist()], dtype=np.str_)


def _s2_cells(size: str, box: Bounds) -> GridCells:
    level = _whole(size, 1, 24, "Levels of S2 cells")
    west, south, east, north = box
    face, turn = np.arange(6), np.arange(6) & 1
    i = j = position = np.zeros(6, dtype=np.int64)
    for depth in range(1, level + 1):
        child = _CHILD[turn].ravel()
        i, j = 2 * np.repeat(i, 4) + (child >> 1), 2 * np.repeat(j, 4) + (child & 1)
        position = 4 * np.repeat(position, 4) + np.tile(np.arange(4), len(face))
        face, turn = np.repeat(face, 4), (turn[:, None] ^ _TURN).ravel()
        lat, lon = _s2_point(face, (i + 0.5) / 2**depth, (j + 0.5) / 2**depth)
        up = 0.0 if depth == level else float(_RADIUS) / 2**depth
        aside = up / np.cos(np.radians(np.minimum(np.abs(lat) + up, 89.9)))
        apart = np.abs((lon - (west + east) / 2 + 180) % 360 - 180)
        near = (lat >= south - up) & (lat <= north + up)
        near &= (apart <= (east - west) / 2 + aside) | (np.abs(lat) + up > 89)
        face, turn, i, j, position = (a[near] for a in (face, turn, i, j, position))
        _refuse_many(len(face))
    lat, lon = _s2_point(face, (i + 0.5) / 2**level, (j + 0.5) / 2**level)
    corners = [
        np.stack(_s2_point(face, (i + a) / 2**level, (j + b) / 2**level)[::-1], axis=1)
        for a, b in ((0, 0), (1, 0), (1, 1), (0, 1))
    ]
    return GridCells(
        levels=tuple(_s2_tokens(face, position >> 2 * (level - up), up) for up in range(level + 1)),
        lat=lat,
        lon=lon,
        outlines=shapely.polygons(np.stack(corners, axis=1)),
    )


def _read_s2(code: str) -> tuple[str, float, float] | None:
    if not re.fullmatch(r"[0-9a-f]{2,16}", code) or code[-1] == "0":
        return None
    number = int(code.ljust(16, "0"), 16)
    zeros = (number & -number).bit_length() - 1
    level, face = (60 - zeros) // 2, number >> 61
    if zeros % 2 or face > 5 or not 4 <= level <= 24:
        return None
    turn, i, j = face & 1, 0, 0
    for step in range(level):
        at = number >> (61 - 2 * (step + 1)) & 3
        child = int(_CHILD[turn][at])
        i, j, turn = 2 * i + (child >> 1), 2 * j + (child & 1), turn ^ int(_TURN[at])
    lat, lon = _s2_point(np.array(face), *(np.array((a + 0.5) / 2**level) for a in (i, j)))
    return str(level), float(lat), float(lon)


# ---- INSPIRE -------------------------------------------------------------------------------------


def _inspire_metres(size: str) -> int:
    found = re.fullmatch(r"(?:RES)?([0-9]{1,3})(k?)m|RES([0-9]{2,6})m", size)
    metres = 0
    if found is not None:
        metres = int(found[3] or found[1]) * (1000 if found[2] else 1)
    if metres < 100 or _COARSER[-1] % metres:
        raise ParameterError(
            "Sizes of the INSPIRE grid are such as 1km, 200m or RES1000m (codes that begin with"
            f" CRS3035RES); found '{size}'."
        )
    return metres


def _inspire_code(north: NDArray[Any], east: NDArray[Any], metres: int, *, long: bool) -> Texts:
    """Returns codes of the cells with these lower left corners, in metres."""
    if long:
        head, unit = f"CRS3035RES{metres}m", 1
    else:
        head = f"{metres // 1000}km" if metres % 1000 == 0 else f"{metres}m"
        unit = 10 ** int(np.log10(metres))
    pairs = zip((north // unit).tolist(), (east // unit).tolist(), strict=True)
    return np.array([f"{head}N{n}E{e}" for n, e in pairs], dtype=np.str_)


def _laea() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the functions from degrees to the projection of the grid, and back."""
    from pyproj import Transformer

    there = Transformer.from_crs("EPSG:4326", "EPSG:3035", always_xy=True)
    back = Transformer.from_crs("EPSG:3035", "EPSG:4326", always_xy=True)
    return there.transform, back.transform


def _inspire_cells(size: str, box: Bounds) -> GridCells:
    metres, long = _inspire_metres(size), size.startswith("RES")
    west, south, east, north = box
    there, back = _laea()
    along = np.linspace(0, 1, 41)
    edge_lon = west + (east - west) * np.concatenate((along, along, 0 * along, 0 * along + 1))
    edge_lat = south + (north - south) * np.concatenate((0 * along, 0 * along + 1, along, along))
    x, y = there(edge_lon, edge_lat)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ParameterError("The INSPIRE grid covers Europe; the box is elsewhere.")
    low = np.floor(np.array([x.min(), y.min()]) / metres).astype(int) - 1
    high = np.ceil(np.array([x.max(), y.max()]) / metres).astype(int) + 1
    _refuse_many(float(np.prod(high - low)) / 2)
    columns, rows = np.meshgrid(np.arange(low[0], high[0]), np.arange(low[1], high[1]))
    e, n = columns.ravel() * metres, rows.ravel() * metres
    lon, lat = back(e + metres / 2, n + metres / 2)
    inside = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north) & (e >= 0) & (n >= 0)
    e, n, lon, lat = (values[inside] for values in (e, n, lon, lat))
    _refuse_many(len(e))
    sizes = [metres]
    for coarser in _COARSER:
        if coarser > sizes[-1] and coarser % sizes[-1] == 0:
            sizes.append(coarser)
    corners = [back(e + a * metres, n + b * metres) for a, b in ((0, 0), (1, 0), (1, 1), (0, 1))]
    rings = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
    return GridCells(
        levels=tuple(_inspire_code(n // s * s, e // s * s, s, long=long) for s in reversed(sizes)),
        lat=lat,
        lon=lon,
        outlines=shapely.polygons(rings),
    )


def _read_inspire(code: str) -> tuple[str, float, float] | None:
    long, short = _INSPIRE_LONG.fullmatch(code), _INSPIRE_SHORT.fullmatch(code)
    found = long or short
    if found is None:
        return None
    size = f"RES{found[1]}m" if long else found[1]
    try:
        metres = _inspire_metres(size)
    except ParameterError:
        return None
    unit = 1 if long else 10 ** int(np.log10(metres))
    _, back = _laea()
    lon, lat = back(int(found[3]) * unit + metres / 2, int(found[2]) * unit + metres / 2)
    return (size, lat, lon) if np.isfinite(lat + lon) else None


_MADE: dict[str, Callable[[str, Bounds], GridCells]] = {
    "geohash": _geohash_cells,
    "quadkey": _quadkey_cells,
    "s2": _s2_cells,
    "inspire": _inspire_cells,
}
#: How codes are recognised; the first that fits most of a sample. Quadkeys are S2 tokens too.
_READ: dict[str, Callable[[str], tuple[str, float, float] | None]] = {
    "inspire": _read_inspire,
    "quadkey": _read_quadkey,
    "s2": _read_s2,
    "geohash": _read_geohash,
}
