"""Read trips as a report says that they were read: an independent reader of CSV and Parquet files.

Follows docs/reading.md. A file, a folder with its subfolders, or a pattern is one table. Ends are coordinates, H3
cells, codes of a map, or coordinates inside the outlines of a map. Rows are dropped if an end is missing, off the earth
or at 0,0, if its tile is unknown (and such rows may be skipped) or in no zone, or if a count, weight, time or attribute
is missing. Rows with an end outside the study area are counted separately, and kept with that end as the tile `outside`
if the report says so. Rows of 0 trips do not count at all. Persons are the same if they differ in blanks, invisible
characters, a decimal point or (unless the report keeps it) case; placeholders are nobody.

What this reader does not know (other file formats, times in unusual forms, dendrograms, invalid outlines) it refuses
with `UnreadableInputError`, so that the caller takes the flows of the engine and says so.
"""

from __future__ import annotations

import csv
import gzip
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from .maps import DrawnMap, UnreadableInputError, cells_in_area, points_in_area, read_map, read_places
from .table import PersonRows, Trips
from .tree import OUTSIDE, OUTSIDE_CELL, Codes, parent_cells, resolution_of

__all__ = ["UnreadableInputError", "files_of", "read_trips"]

Mask = NDArray[np.bool_]

_CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_PARQUET = (".parquet", ".pq", ".parq")
_MILLION = 1_000_000
#: What tables write for a missing value, without case and outer blanks.
_MISSING = ("", "na", "n/a", "nan", "<na>", "null", "none", "nil", "\\n")
#: Words and patterns that stand for nobody; docs/reading.md lists them.
_NOBODY = (
    "unknown", "unk", "missing", "anonymous", "anon", "undefined", "unspecified", "unidentified", "not available",
    "not applicable", "not known", "no id", "noid", "no_id", "nobody", "guest", "n.a.", "n.d.", "#n/a", "(null)",
    "(none)", "(blank)", "(empty)", "<null>", "<none>", "[null]", "tbd", "test", "inconnu", "unbekannt", "desconocido",
    "sconosciuto", "desconhecido",
)  # fmt: skip
_NOBODY_PATTERN = re.compile(
    "|".join(re.escape(word) for word in (*_MISSING, *_NOBODY))
    + r"|[?]+|-+|[.]+|[*]+|_+|x+|-1|-9+|0[0-]*0|-(?:32768|2147483648|9223372036854775808)"
    r"|2147483647|4294967295|9223372036854775807|18446744073709551615"
)
_MISSING_SQL = "'(" + "|".join(re.escape(word) for word in _MISSING) + ")'"
_LABELS = {"month": "%Y-%m", "week": "%G-W%V", "day": "%Y-%m-%d", "hour": "%H:00"}
#: Microseconds of the years 1900 to 2100; numbers count from 1980 on.
_YEARS = (-2_208_988_800_000_000, 4_133_980_800_000_000)
_UNIX = (315_532_800, 4_133_980_800)
_ISO = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?"
_ZONED = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})"


def read_trips(
    source: Any,
    parameters: Mapping[str, Any],
    *,
    zones: Any = None,
    area: Any = None,
    stricter: Any = None,
    l_places: Any = None,
) -> Trips:
    """Read trips as the parameters of a report say.

    Args:
        source: path of a file or a folder, or a pattern.
        parameters: ``parameters`` of report.json; a reader who does not trust the release with case gives another
            ``person_case``.
        zones: path of the map, if the tiles are zones of a map.
        area: path of the study area, if it came from a file.
        stricter, l_places: paths of the lists of places, if the report names some.

    Raises:
        UnreadableInputError: this reader does not know the input.
    """
    if any(
        not isinstance(path, str | PathLike) for path in (source, zones, area, stricter, l_places) if path is not None
    ):
        raise UnreadableInputError("the input is not a file")
    if parameters.get("matrix") or parameters.get("wide") or parameters.get("lookup"):
        raise UnreadableInputError("the input is a matrix file")
    if bool(parameters.get("zones")) != (zones is not None):
        raise UnreadableInputError("the release was made on a map, which was not given, or on none")
    within = parameters.get("within")
    if within == "AREA" and area is None:
        raise UnreadableInputError("the study area came from a file, which was not given")
    keep_outside = parameters.get("outside") == "keep"
    of_map = None if zones is None else read_map(zones, parameters["zones"], keep_outside=keep_outside)
    if of_map is not None and parameters.get("hierarchy") == "halves" and not of_map.has_centres:
        raise UnreadableInputError("zones are divided by their centres, which the map does not list")
    try:
        with duckdb.connect(":memory:") as connection:
            rows = _Columns.select(connection, source, parameters)
    except (duckdb.Error, pa.ArrowException, OSError, KeyError):
        # Messages of the database may quote rows.
        raise UnreadableInputError("the input cannot be read with the columns that the report names") from None
    trips = _Reader(parameters, of_map, area if area is not None else within).trips(rows)
    lists = {}
    for name, path, once in (("stricter", stricter, True), ("l_places", l_places, False)):
        if path is not None:
            lists[name] = read_places(path, resolution=parameters.get("resolution"), of_map=of_map, once=once)
    columns = parameters.get("columns", {})
    return Trips(**{**trips, **lists}, rows_are_trips=not columns.get("trips") and not columns.get("weight"))


# ---- files and columns -----------------------------------------------------------------------------------------------


def files_of(source: str | Path) -> list[Path]:
    """The files of an input, sorted: of a folder the Parquet files, else the text files, bookkeeping left out.

    Raises:
        UnreadableInputError: there are none, or they are of another kind.
    """
    here = Path(source).expanduser()
    if here.is_dir():
        every = [
            path
            for path in here.rglob("*")
            if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(here).parts)
        ]
    elif here.is_file():
        every = [here]
    else:
        every = [Path(p) for p in glob(str(here), recursive=True) if Path(p).is_file()] if has_magic(str(here)) else []
    for endings in (_PARQUET, _CSV):
        found = sorted(path for path in every if path.name.casefold().endswith(endings))
        if found and (here.is_dir() or len(found) == len(every)):
            return found
    raise UnreadableInputError("the input is neither CSV nor Parquet")


def _literal(path: Path) -> str:
    pattern = "".join(f"[{c}]" if c in "*?[" else c for c in str(path))
    return "'" + pattern.replace("'", "''") + "'"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _relation(files: Sequence[Path], partitions: Sequence[str]) -> tuple[str, dict[str, str]]:
    """A FROM clause over files, and the SQL of each column."""
    paths = f"[{', '.join(_literal(path) for path in files)}]"
    if files[0].name.casefold().endswith(_PARQUET):
        union = ", union_by_name = true" if len(files) > 1 else ""
        names = [field.name for path in files for field in pq.read_schema(path)]
        columns = {name: _name(name) for name in names}
        relation = f"read_parquet({paths}{union}, hive_partitioning = false, filename = 'recount_path')"
    else:
        head = _first_line(files[0])
        delimiter = "\t" if ".tsv" in files[0].name.casefold() else max(",;\t|", key=head.count)
        names = next(csv.reader([head], delimiter=delimiter))
        columns = {name: f"c{i}" for i, name in reversed(list(enumerate(names)))}
        types = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
        relation = (
            f"read_csv({paths}, auto_detect = false, header = true, delim = '{delimiter}', quote = '\"', "
            f"escape = '\"', nullstr = '', columns = {{{types}}}, hive_partitioning = false, filename = 'recount_path')"
        )
        if any(_first_line(path) != head for path in files):
            raise UnreadableInputError("the text files have different columns")
    for name in partitions:
        columns[name] = _partition(files, name)
    return relation, columns


def _first_line(path: Path) -> str:
    opener: Any = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig") as file:
        return str(file.readline()).rstrip("\r\n")


def _partition(files: Sequence[Path], name: str) -> str:
    """SQL: the value of a partition column, from the folder ``name=value`` of each file."""
    cases = []
    for path in files:
        values = [part.removeprefix(f"{name}=") for part in path.parent.parts if part.startswith(f"{name}=")]
        if len(values) != 1:
            raise UnreadableInputError("a partition column is not in the path of every file")
        value = (
            "NULL" if values[0] == "__HIVE_DEFAULT_PARTITION__" else "'" + unquote(values[0]).replace("'", "''") + "'"
        )
        cases.append(f"WHEN recount_path = '{str(path).replace(chr(39), chr(39) * 2)}' THEN {value}")
    return f"CAST(CASE {' '.join(cases)} END AS VARCHAR)"


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of all rows.

    Attributes:
        points: latitude and longitude of both ends; NaN where missing. Empty if ends are tiles.
        tiles: the two columns of tiles; empty if ends are points.
        trips, weight: NaN where missing; None if there is no such column.
        person: text; None without persons.
        attributes: the slice columns as text, null where missing; the time is the last.
    """

    points: tuple[NDArray[np.float64], ...]
    tiles: tuple[Any, ...]
    trips: NDArray[np.float64] | None
    weight: NDArray[np.float64] | None
    person: Any
    attributes: tuple[Any, ...]

    @classmethod
    def select(cls, con: Any, source: str | Path, parameters: Mapping[str, Any]) -> _Columns:
        """Read the columns that the report names."""
        roles = {role: name for role, name in parameters["columns"].items() if name}
        relation, columns = _relation(files_of(source), parameters.get("partition_columns") or ())
        kinds = {name: str(kind) for name, kind, *_ in con.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()}

        def column(name: str) -> tuple[str, str]:
            found = columns.get(name) or {n.strip(): sql for n, sql in columns.items()}.get(name.strip())
            if found is None:
                raise UnreadableInputError("the input has no column of a name that the report names")
            return found, kinds.get(found.strip('"'), "VARCHAR")

        select = []
        for role in ("origin", "destination"):
            select += [_number_sql(*column(name)) for name in roles.get(role, "").split(",") if name]
        n_points = len(select)
        if not n_points:
            select += [_tile_sql(*column(roles[f"{role}_tile"])) for role in ("origin", "destination")]
        select += [_number_sql(*column(roles[role])) if role in roles else "NULL" for role in ("trips", "weight")]
        select.append(_person_sql(*column(roles["person"])) if "person" in roles else "NULL")
        select += [_attribute_sql(*column(name)) for name in roles.get("by", "").split(",") if name]
        every = _every(parameters)
        if every is not None:
            select.append(_label_sql(_moment_sql(con, relation, *column(roles["time"]), parameters), every))
        listed = ", ".join(f"{sql} AS s{i}" for i, sql in enumerate(select))
        query = con.sql(f"SELECT {listed} FROM {relation}")
        # Named differently by versions of DuckDB.
        reader = getattr(query, "to_arrow_reader", None) or query.fetch_arrow_reader
        table = reader(1 << 17).read_all()
        found = [table.column(i).combine_chunks() for i in range(len(select))]
        ends, rest = found[: max(n_points, 2)], found[max(n_points, 2) :]
        numbers = [pc.fill_null(one, float("nan")).to_numpy(zero_copy_only=False) for one in (ends if n_points else [])]
        amounts = [
            pc.fill_null(one.cast(pa.float64()), float("nan")).to_numpy(zero_copy_only=False) if role in roles else None
            for role, one in zip(("trips", "weight"), rest, strict=False)
        ]
        person = rest[2] if "person" in roles else None
        return cls(tuple(numbers), () if n_points else tuple(ends), amounts[0], amounts[1], person, tuple(rest[3:]))


def _every(parameters: Mapping[str, Any]) -> str | None:
    """The step of time by which trips are cut; of a month or day that alone was read, that step."""
    during = parameters.get("during")
    if during is not None:
        return "month" if len(during) == 7 else "day"
    found = (parameters.get("slices") or {}).get("every")
    return None if found is None else str(found)


def _number_sql(column: str, kind: str) -> str:
    if not kind.startswith(("VARCHAR", "ENUM")):
        return f"CAST({column} AS DOUBLE)"
    text = f"CAST({column} AS VARCHAR)"
    number = f"CASE WHEN NOT contains({text}, '_') THEN TRY_CAST({text} AS DOUBLE) END"
    missing = f"{column} IS NULL OR regexp_full_match(lower(trim({text})), {_MISSING_SQL})"
    return f"CASE WHEN {missing} THEN NULL WHEN ({number}) IS NULL THEN error('text') ELSE {number} END"


def _tile_sql(column: str, kind: str) -> str:
    """A tile as text: without blanks only where nothing else would be left."""
    text = f"CAST({column} AS VARCHAR)"
    return (
        f"CASE WHEN regexp_full_match(lower(trim({text})), {_MISSING_SQL}) THEN NULL ELSE {text} END" if kind else text
    )


def _person_sql(column: str, kind: str) -> str:
    text = f"CAST({column} AS VARCHAR)"
    text = f"CASE WHEN NOT isnan({column}) THEN {text} END" if kind in ("FLOAT", "DOUBLE") else text
    seen = rf"regexp_replace({text}, '^[\s\p{{Z}}\p{{C}}]+|[\s\p{{Z}}\p{{C}}]+$|\p{{C}}+', '', 'g')"
    return rf"regexp_replace({seen}, '^(-?[0-9]+)\.0+$', '\1')"


def _attribute_sql(column: str, kind: str) -> str:
    text = f"trim(CAST({column} AS VARCHAR))"
    if kind in ("FLOAT", "DOUBLE"):
        whole = f"CAST(CAST({column} AS HUGEINT) AS VARCHAR)"
        is_whole = f"{column} = trunc({column}) AND abs({column}) < 1e15"
        return f"CASE WHEN isnan({column}) OR isinf({column}) THEN NULL WHEN {is_whole} THEN {whole} ELSE {text} END"
    return f"CASE WHEN regexp_full_match(lower({text}), {_MISSING_SQL}) THEN NULL ELSE {text} END"


def _moment_sql(con: Any, relation: str, column: str, kind: str, parameters: Mapping[str, Any]) -> str:
    """SQL: microseconds since 1970 in the local time of the trips; NULL where missing."""
    form, timezone = parameters.get("time_format"), parameters.get("timezone")
    text = f"trim(CAST({column} AS VARCHAR))"
    present = f"{column} IS NOT NULL AND NOT regexp_full_match(lower({text}), {_MISSING_SQL})"

    def always(test: str) -> bool:
        query = f"SELECT count(*) FROM {relation} WHERE {present} AND NOT coalesce({test}, false)"
        return bool(con.execute(query).fetchall()[0][0] == 0)

    if kind.startswith(("TIMESTAMP", "DATE")):
        zoned = kind.startswith("TIMESTAMP WITH")
        moment = f"epoch_us({column})" if zoned else f"epoch_us(CAST({column} AS TIMESTAMP))"
    elif form is not None:
        zoned, moment = "%z" in form, f"epoch_us(strptime({text}, '{form}'))"
    elif always(f"regexp_full_match({text}, '{_ISO}')"):
        zoned, moment = False, f"epoch_us(CAST({text} AS TIMESTAMP))"
    elif always(f"regexp_full_match({text}, '{_ZONED}')"):
        zoned, moment = True, f"epoch_us(CAST({text} AS TIMESTAMPTZ))"
    else:
        number = f"TRY_CAST({text} AS DOUBLE)"
        units = [u for u in (1, 1_000, _MILLION) if always(f"{number} >= {_UNIX[0] * u} AND {number} < {_UNIX[1] * u}")]
        if not units:
            raise UnreadableInputError("times have a form that this reader does not know")
        zoned, moment = True, f"CAST(floor({number} * {_MILLION // units[0]}) AS BIGINT)"
    if timezone is not None and zoned:
        moment = f"epoch_us(timezone('{timezone}', make_timestamptz({moment})))"
    inside = f"{moment} >= {_YEARS[0]} AND {moment} < {_YEARS[1]}"
    return f"CASE WHEN {present} THEN CASE WHEN {inside} THEN {moment} ELSE error('year') END END"


def _label_sql(moment: str, every: str) -> str:
    step = re.fullmatch(r"(\d+)(min|h)", every)
    if step is not None:
        length = int(step[1]) * (60 if step[2] == "h" else 1) * 60 * _MILLION
        return (
            f"strftime(make_timestamp(({moment}) - ((({moment}) % {length}) + {length}) % {length}), '%Y-%m-%dT%H:%M')"
        )
    if every in ("weekday", "weekday-hour"):
        form = " %a" if every == "weekday" else " %a %H:00"
        return f"CAST(isodow(make_timestamp({moment})) AS VARCHAR) || strftime(make_timestamp({moment}), '{form}')"
    return f"strftime(make_timestamp({moment}), '{_LABELS[every]}')"


# ---- rows to flows ---------------------------------------------------------------------------------------------------


class _Reader:
    """Turns columns into flows."""

    def __init__(self, parameters: Mapping[str, Any], of_map: DrawnMap | None, area: Any) -> None:
        self.parameters, self.of_map, self.area = parameters, of_map, area
        self.keep_outside = parameters.get("outside") == "keep"
        self.fold = (parameters.get("person_case") or "fold") == "fold"

    def trips(self, rows: _Columns) -> dict[str, Any]:
        """The arguments of `Trips`."""
        n = len(rows.points[0] if rows.points else rows.tiles[0])
        dropped = np.zeros(n, dtype=np.bool_)
        for values in (rows.trips, rows.weight):
            if values is not None:
                if np.any((values < 0) | np.isinf(values)):
                    raise UnreadableInputError("counts or weights are negative or infinite")
                dropped |= np.isnan(values)
        if rows.trips is not None and np.any(np.nan_to_num(rows.trips) % 1 != 0):
            raise UnreadableInputError("numbers of trips are not whole")
        no_trips = np.zeros(n, dtype=np.bool_) if rows.trips is None else rows.trips == 0
        for column in rows.attributes:
            dropped |= column.is_null().to_numpy(zero_copy_only=False)
        other_period = self._other_period(rows)
        tiles, lost = self._tiles(rows, ~(dropped | no_trips))
        dropped |= lost
        usable = ~(dropped | no_trips)
        outside = self._outside(tiles, usable)
        weight = None if rows.weight is None else np.rint(np.nan_to_num(rows.weight) * _MILLION).astype(np.int64)
        count = np.ones(n, dtype=np.int64) if rows.trips is None else np.nan_to_num(rows.trips).astype(np.int64)
        counted = ~no_trips & ~other_period
        unread = {
            name: int(np.sum(mask & counted)) for name, mask in (("dropped", dropped), ("outside", outside & usable))
        }
        kept = np.flatnonzero(usable & ~outside & ~other_period)
        if len(kept) == 0:
            raise UnreadableInputError("no row of the input can be used")
        flows = self._grouped(rows, tiles, kept, count, weight)
        return {**flows, **unread}

    def _other_period(self, rows: _Columns) -> Mask:
        during = self.parameters.get("during")
        if during is None:
            return np.zeros(len(rows.points[0] if rows.points else rows.tiles[0]), dtype=np.bool_)
        same = pc.fill_null(pc.equal(rows.attributes[-1], during), True)
        other: Mask = ~same.to_numpy(zero_copy_only=False)
        return other

    def _tiles(self, rows: _Columns, wanted: Mask) -> tuple[list[Any], Mask]:
        """The tile of both ends: an H3 cell, or the number of a tile of the map; and rows to drop.

        In no zone of a map is -1 for a row that is kept although its end lies outside.
        """
        lost = np.zeros(len(wanted), dtype=np.bool_)
        ends: list[Any] = []
        if rows.points:
            lat, lon = rows.points[0::2], rows.points[1::2]
            for y, x in zip(lat, lon, strict=True):
                lost |= ~((np.abs(y) <= 90) & (np.abs(x) <= 180)) | ((y == 0) & (x == 0))
            at = np.flatnonzero(wanted & ~lost)
            for y, x in zip(lat, lon, strict=True):
                ends.append(self._tiles_at(y[at], x[at], at, len(wanted)))
        else:
            for column in rows.tiles:
                lost |= column.is_null().to_numpy(zero_copy_only=False)
            for column in rows.tiles:
                found, unknown = self._tiles_named(column)
                kept = self.keep_outside and self.of_map is not None
                if np.any(unknown & wanted & ~lost) and not self.parameters.get("skip_unknown") and not kept:
                    raise UnreadableInputError("tiles are not on the map, or not H3 cells")
                if not kept:
                    lost |= unknown
                ends.append(found)
        if self.of_map is not None and not self.keep_outside:
            for end in ends:
                lost |= (end < 0) & wanted
        return ends, lost

    def _tiles_at(self, lat: Any, lon: Any, at: Any, n: int) -> Any:
        if self.of_map is not None:
            found = np.full(n, -1, dtype=np.int64)
            found[at] = self.of_map.tiles_at(lat, lon)
            return found
        resolution, index = self.parameters["resolution"], h3_int.latlng_to_cell
        cells = np.zeros(n, dtype=np.uint64)
        pairs = zip(lat.tolist(), lon.tolist(), strict=True)
        cells[at] = np.fromiter((index(y, x, resolution) for y, x in pairs), dtype=np.uint64, count=len(at))
        return cells

    def _tiles_named(self, column: Any) -> tuple[Any, Mask]:
        """Numbers of tiles given by name, and which are unknown. Each distinct name is looked up once."""
        encoded = column.dictionary_encode()
        index = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        names = [*encoded.dictionary.to_pylist(), None]
        if self.of_map is not None:
            number = {code: i for i, code in enumerate(self.of_map.tiles.tolist())}
            whole = re.compile(r"^(-?[0-9]+)\.0+$")
            found = np.array([number.get(n, number.get(whole.sub(r"\1", n), -1)) if n else -1 for n in names])
            return found[index], (found < 0)[index]
        cells = np.array([_cell_of(name) for name in names], dtype=np.uint64)
        unknown = cells == 0
        resolution = int(self.parameters["resolution"])
        known = resolution_of(cells[~unknown])
        if len(known) and known.min() != known.max():
            raise UnreadableInputError("tiles have several H3 resolutions")
        finer = ~unknown & (resolution_of(cells) > resolution)
        cells = np.where(finer, parent_cells(cells, resolution), cells)
        return cells[index], unknown[index]

    def _outside(self, ends: list[Any], usable: Mask) -> Mask:
        """Rows outside the study area: with an end outside, or with both if the other is kept as `outside`."""
        beyond = []
        for i, end in enumerate(ends):
            away = np.zeros(len(end), dtype=np.bool_)
            rows = np.flatnonzero(usable & (end >= 0))
            if self.area is not None:
                distinct, number = np.unique(end[rows], return_inverse=True)
                away[rows] = ~self._in_area(distinct)[number]
            if self.of_map is not None:
                away |= usable & (end < 0)
            if self.keep_outside:
                ends[i] = np.where(away, np.uint64(OUTSIDE_CELL) if self.of_map is None else -1, end)
            beyond.append(away)
        return beyond[0] & beyond[1] if self.keep_outside else beyond[0] | beyond[1]

    def _in_area(self, tiles: Any) -> Mask:
        assert self.area is not None
        if self.of_map is None:
            return cells_in_area(tiles, self.area)
        zones = self.of_map.zones
        order = np.argsort(zones.code)
        at = order[np.searchsorted(zones.code[order], self.of_map.tiles[tiles])]
        return points_in_area(zones.lat[at], zones.lon[at], self.area)

    def _grouped(self, rows: _Columns, tiles: list[Any], kept: Any, count: Any, weight: Any) -> dict[str, Any]:
        """Flows of the kept rows: one for each slice, origin and destination."""
        ends, codes = [], []
        for end in tiles:
            distinct, number = np.unique(end[kept], return_inverse=True)
            ends.append(number)
            codes.append(self._codes(distinct))
        if self.parameters.get("same_zones"):
            both = np.union1d(*codes)
            ends = [np.searchsorted(both, own)[number] for own, number in zip(codes, ends, strict=True)]
            codes = [both, both]
        columns = rows.attributes if self.parameters.get("during") is None else rows.attributes[:-1]
        keys, of_slice = _slices([column.take(pa.array(kept)) for column in columns], len(kept))
        key = (of_slice.astype(np.int64) * len(codes[0]) + ends[0]) * len(codes[1]) + ends[1]
        distinct, first, row = np.unique(key, return_index=True, return_inverse=True)
        names = [name for name in (self.parameters["columns"].get("by") or "").split(",") if name]
        timed = _every(self.parameters) is not None and self.parameters.get("during") is None
        zones = None if self.of_map is None else self.of_map.zones
        n = len(distinct)
        sliced = bool(columns)
        return {
            "origin": ends[0][first].astype(np.int32),
            "destination": ends[1][first].astype(np.int32),
            "trips": np.bincount(row, weights=count[kept], minlength=n).astype(np.int64),
            "weight": None if weight is None else np.bincount(row, weights=weight[kept], minlength=n).astype(np.int64),
            "persons": None if rows.person is None else self._persons(rows.person, kept, row, count),
            "origins": codes[0],
            "destinations": codes[1],
            "origin_map": zones,
            "destination_map": zones,
            "slice_columns": (*names, *(("time",) if timed else ())),
            "slices": keys,
            "slice": of_slice[first].astype(np.int32) if sliced else None,
            "every": _every(self.parameters) if timed else None,
        }

    def _codes(self, distinct: Any) -> Codes:
        found: Codes = distinct.astype(np.uint64)
        if self.of_map is not None:
            found = np.append(self.of_map.tiles, OUTSIDE)[distinct]
        return found

    def _persons(self, column: Any, kept: Any, row: Any, count: Any) -> PersonRows:
        """Distinct persons of each flow, with their trips; each spelling is looked at once."""
        encoded = column.take(pa.array(kept)).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        known: dict[str, int] = {}
        number = np.array(
            [
                -1 if _NOBODY_PATTERN.fullmatch(n.lower()) else known.setdefault(self._folded(n), len(known))
                for n in names
            ]
            + [-1],
            dtype=np.int64,
        )
        who = number[pc.fill_null(encoded.indices, len(names)).to_numpy(zero_copy_only=False)]
        real = np.flatnonzero(who >= 0)
        size = max(1, len(known))
        pair, place = np.unique(row[real].astype(np.int64) * size + who[real], return_inverse=True)
        made = np.bincount(place, weights=count[kept[real]], minlength=len(pair)).astype(np.int64)
        return PersonRows((pair // size).astype(np.int32), (pair % size).astype(np.int32), made)

    def _folded(self, name: str) -> str:
        if not self.fold:
            return name
        return name.lower() if name.isascii() else _fold(name)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _cell_of(name: str | None) -> int:
    """An H3 cell from text: 18 decimal or 15 hexadecimal digits; 0 where it is none."""
    text = (name or "").strip().lower()
    try:
        cell = int(text) if len(text) == 18 and text.isdigit() else int(text.removeprefix("0x"), 16)
    except ValueError:
        return 0
    return cell if 0 < cell < 1 << 63 and h3_int.is_valid_cell(cell) else 0


def _slices(columns: list[Any], n: int) -> tuple[tuple[tuple[str, ...], ...], Any]:
    """The distinct combinations of values in their order, and that of each row."""
    if not columns:
        return ((),), np.zeros(n, dtype=np.int64)
    encoded = [column.dictionary_encode() for column in columns]
    key = np.zeros(n, dtype=np.int64)
    for one in encoded:
        key = key * len(one.dictionary) + one.indices.to_numpy()
    distinct, first, number = np.unique(key, return_index=True, return_inverse=True)
    values = [one.dictionary.take(one.indices.take(pa.array(first))).to_pylist() for one in encoded]
    keys = list(zip(*values, strict=True))
    order = sorted(range(len(keys)), key=lambda i: keys[i])
    place = np.empty(len(distinct), dtype=np.int64)
    place[order] = np.arange(len(distinct))
    return tuple(keys[i] for i in order), place[number]
