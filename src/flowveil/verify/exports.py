"""The recount of exports that are text: whether each holds the rows of the release, no more and no less.

Shares nothing with the writers: files are read with DuckDB and plain JSON. Findings name files and count
rows; they quote no value. GeoPackage, OMX and Arrow are compared in `flowveil.verify.binaries`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from flowveil.paths import read_json
from flowveil.verify.database import Database

#: Files that a release may hold beside its own, and what rows they carry.
EXPORTS: Mapping[str, tuple[str, ...]] = {
    "flows.csv": ("flows",),
    "zones.csv": ("zones",),
    "flows.geojson": ("flows",),
    "zones.geojson": ("zones",),
    "release.gpkg": ("flows", "zones"),
    "flows.omx": ("flows",),
    "omx_zones.csv": ("codes",),
    "flowmap_locations.csv": ("codes",),
    "flowmap_flows.csv": ("flows",),
    "kepler.json": ("flows", "zones"),
    "flows.arrow": ("flows",),
    "zones.arrow": ("zones",),
}

_KEYS = {"flows": ("origin_zone", "destination_zone"), "zones": ("zone", "role"), "codes": ("zone",)}
_NUMBERS = {"flows": ("trips", "weight"), "zones": ("level", "tiles"), "codes": ()}
#: Columns an export may have, beside keys and numbers: all are functions of the published zones.
_ALSO = {
    "flows": {"revised", "geometry", "geom", "fid", "origin_lat", "origin_lng", "destination_lat", "destination_lng"},
    "zones": {"geometry", "geom", "fid", "area_km2", "lat", "lon", "h3_cells", "name", "_geojson"},
    "codes": {"index", "name", "lat", "lon"},
}
_TOLERANCE = 1e-9
#: An export has settings of its own, names and numbers in each row, and texts and corners that are longer written out.
_BYTES_AT_LEAST, _BYTES_PER_ROW, _BYTES_WRITTEN = 1 << 20, 1 << 10, 8
#: Outlines are packed in zones.parquet, and longer when they are written out.
_BYTES_UNPACKED = 100

Columns = dict[str, Any]


def present_exports(place: Path) -> list[str]:
    """The exports that a folder holds."""
    return sorted(name for name in EXPORTS if (place / name).is_file())


def check_exports(place: Path, db: Database, *, slice_columns: Sequence[str] = ()) -> Iterator[str]:
    """Compare exports with the tables ``published_rows`` and ``zones`` of a database.

    Args:
        place: the release folder.
        db: where the recount has loaded the release's own tables.
        slice_columns: the slice columns of a family; in the database they are c0, c1, ...
    """
    most = _most_bytes(db, (place / "zones.parquet").stat().st_size, len(slice_columns))
    published = {kind: _expected(db, kind, slice_columns if kind == "flows" else ()) for kind in _KEYS}
    for name in (name for name in present_exports(place) if Path(name).suffix in _READERS):
        if (place / name).stat().st_size > most:
            yield f"{name}: is larger than the rows of a release make it"
            continue
        try:
            found = _READERS[Path(name).suffix](place / name, db)
        except Exception:
            # Whatever a broken file makes a reader raise may quote its content.
            yield f"{name}: cannot be read"
            continue
        for kind in EXPORTS[name]:
            slices = tuple(slice_columns) if kind == "flows" else ()
            expected = published[kind]
            if name.endswith(".csv"):
                slices = tuple(map(csv_text, slices))
                expected = {csv_text(column): _csv_texts(values) for column, values in expected.items()}
            yield from (f"{name}: {finding}" for finding in _compare(kind, found.get(kind), expected, slices))


def _most_bytes(db: Database, zones_file: int, n_slice_columns: int) -> int:
    """More bytes than a text export of these tables has: what is read into memory grows with the tables alone."""
    codes = ["origin_zone", "destination_zone", *(f"coalesce(c{i}, '')" for i in range(n_slice_columns))]
    flows, zones = (
        db.rows(f"SELECT count(*), coalesce(sum({' + '.join(f'strlen({c})' for c in texts)}), 0) FROM {table}")[0]
        for table, texts in (("published_rows", codes), ("zones", ["zone"]))
    )
    return int(
        _BYTES_AT_LEAST
        + _BYTES_PER_ROW * (flows[0] + zones[0])
        + _BYTES_WRITTEN * (flows[1] + zones[1])
        + _BYTES_UNPACKED * zones_file
    )


def _expected(db: Database, kind: str, slice_columns: Sequence[str]) -> Columns:
    query = {
        "flows": "SELECT * EXCLUDE (row) FROM published_rows",
        "zones": "SELECT zone, role, level, tiles FROM zones",
        "codes": "SELECT DISTINCT zone FROM zones",
    }[kind]
    columns = _fetched(db, query)
    for i, name in enumerate(slice_columns):
        columns[name] = columns.pop(f"c{i}")
    return columns


def csv_text(text: str) -> str:
    """How a text must stand in a CSV file: an apostrophe wherever a spreadsheet could begin a cell that it runs.

    A cell can begin at the start and after a semicolon, a tab or a line break. It is marked if it begins with an
    apostrophe, a tab or a line break, or, after blanks and quotation marks, with a sign that starts a formula.
    """
    written = []
    for at, sign in enumerate(text):
        if at == 0 or text[at - 1] in ";\t\r\n":
            first = next((s for s in text[at:] if s != '"' and not s.isspace()), "")
            if sign in "'\t\r\n" or (first and first in "=+-@\uff1d\uff0b\uff0d\uff20"):
                written.append("'")
        written.append(sign)
    return "".join(written)


def _csv_texts(values: Any) -> Any:
    if np.asarray(values).dtype.kind not in "OU":
        return values
    texts = {value: csv_text(value) for value in set(values.tolist()) if isinstance(value, str)}
    return np.array([texts.get(value, value) for value in values.tolist()], dtype=object)


def _fetched(db: Database, query: str, values: list[Any] | None = None) -> Columns:
    return {name: _without_mask(column) for name, column in db.masked(query, values or []).items()}


def _without_mask(column: Any) -> Any:
    """Empty fields as None: a mask would be dropped, and what lies below it taken for a value."""
    if not np.ma.is_masked(column):
        return np.ma.getdata(column)
    values = np.ma.getdata(column).astype(object)
    values[np.ma.getmaskarray(column)] = None
    return values


def _compare(kind: str, found: Columns | None, expected: Columns, slice_columns: tuple[str, ...] = ()) -> Iterator[str]:
    if found is None:
        yield f"has no {kind}"
        return
    found = {name if name in slice_columns else _RENAMED.get(name, name): v for name, v in found.items()}
    keys = (*_KEYS[kind], *slice_columns)
    strange = sorted(set(found) - set(keys) - set(_NUMBERS[kind]) - _ALSO[kind])
    if strange:
        yield f"has {len(strange)} columns that a release does not have"
    if any(key not in found for key in keys):
        yield f"has no column {' or '.join(key for key in keys if key not in found)}"
        return
    try:
        ours, theirs = (_sorted(columns, keys) for columns in (found, expected))
    except (ValueError, TypeError):
        # Codes that are lists, or columns of different lengths.
        yield f"its {kind} are not those of the release"
        return
    if len(ours[0]) != len(theirs[0]) or any(np.any(ours[0][:, i] != theirs[0][:, i]) for i in range(len(keys))):
        yield f"its {kind} are not those of the release"
        return
    if "revised" in expected:
        a, b = (np.char.lower(np.asarray(c.get("revised", "")).astype(np.str_)) for c in (found, expected))
        if a.shape != b.shape or np.any(a[ours[1]] != b[theirs[1]]):
            yield f"its {kind} are marked as revised otherwise than the release"
    for name in _NUMBERS[kind]:
        if name not in found or name not in expected:
            continue
        try:
            a = np.asarray(found[name], dtype=np.float64)[ours[1]]
        except (ValueError, TypeError, OverflowError):
            yield f"its {name} are not numbers"
            continue
        b = np.asarray(expected[name], dtype=np.float64)[theirs[1]]
        same = (np.abs(a - b) <= _TOLERANCE * np.maximum(1, np.abs(b))) | (np.isnan(a) & np.isnan(b))
        n = int(np.sum(~same))
        if n:
            yield f"{n} of its {kind} have another {name} than the release"


_RENAMED = {"origin": "origin_zone", "dest": "destination_zone", "count": "trips", "id": "zone"}


def _sorted(columns: Columns, keys: tuple[str, ...]) -> tuple[Any, Any]:
    text = [np.asarray(columns[key]).astype(np.str_) for key in keys]
    order = np.lexsort(text[::-1])
    return np.column_stack([column[order] for column in text]), order


# ---- readers: what a file holds, by kind -------------------------------------------------------------------------


def _read_csv(path: Path, db: Database) -> dict[str, Columns]:
    query = (
        "SELECT * FROM read_csv(?, header = true, all_varchar = true, delim = ',', quote = '\"', nullstr = '', "
        "hive_partitioning = false)"
    )
    columns = _fetched(db, query, [escape(str(path))])
    return dict.fromkeys(EXPORTS[path.name], columns)


def _objects(values: Iterable[Any]) -> Any:
    """Values as they are: an array made of lists would have more axes than one."""
    return np.fromiter(values, dtype=object)


def _read_geojson(path: Path, db: Database) -> dict[str, Columns]:  # noqa: ARG001  # every reader gets the database
    features = read_json(path)["features"]
    names = sorted({name for feature in features for name in feature["properties"]})
    columns = {name: _objects(f["properties"].get(name) for f in features) for name in names}
    return dict.fromkeys(EXPORTS[path.name], columns)


def _read_kepler(path: Path, db: Database) -> dict[str, Columns]:  # noqa: ARG001
    found = {}
    for entry in read_json(path)["datasets"]:
        names = [field["name"] for field in entry["data"]["fields"]]
        rows = entry["data"]["allData"]
        found[entry["data"]["id"]] = {
            name: _objects(row[i] for row in rows) for i, name in enumerate(names) if name != "_geojson"
        }
    return found


_READERS: dict[str, Callable[[Path, Database], dict[str, Columns]]] = {
    ".csv": _read_csv,
    ".geojson": _read_geojson,
    ".json": _read_kepler,
}
