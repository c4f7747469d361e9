"""Independent reader of trips from CSV and Parquet files, with the settings of a report.

Follows docs/reading.md. A file, a folder with its subfolders, or a pattern is one table. Ends are coordinates, H3
cells, codes of a map, or coordinates inside the outlines of a map. Rows are dropped if an end is missing, off the earth
or at 0,0, if its tile is unknown (and such rows may be skipped) or in no zone, or if a count, weight, time or attribute
is missing. Rows with an end outside the study area are counted separately, and kept with that end as the tile `outside`
if the report says so. Rows of 0 trips do not count at all. Persons are the same if they differ in blanks, invisible
characters, a decimal point or (unless the report keeps it) case; placeholders are no persons.

Other inputs (other file formats, times in unusual forms, dendrograms, invalid outlines) are refused with
`UnreadableInputError`. The caller then takes the flows of the engine and says so.
"""

from __future__ import annotations

import csv
import gzip
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from itertools import repeat
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

from .inputs import MILLION, PersonRows, Trips
from .maps import DrawnMap, UnreadableInputError, cells_in_area, points_in_area, read_map, read_places
from .tree import OUTSIDE, OUTSIDE_CELL, parent_cells, resolution_of

__all__ = ["UnreadableInputError", "files_of", "read_trips"]

Mask = NDArray[np.bool_]

_CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_PARQUET = (".parquet", ".pq", ".parq")
#: What tables write for a missing value, without case and outer blanks.
_MISSING = ("", "na", "n/a", "nan", "<na>", "null", "none", "nil", "\\n")
#: Words and patterns that are placeholders for a missing person; docs/reading.md lists them.
_PLACEHOLDERS = (
    "unknown", "unk", "missing", "anonymous", "anon", "undefined", "unspecified", "unidentified", "not available",
    "not applicable", "not known", "no id", "noid", "no_id", "nobody", "guest", "n.a.", "n.d.", "#n/a", "(null)",
    "(none)", "(blank)", "(empty)", "<null>", "<none>", "[null]", "tbd", "test", "inconnu", "unbekannt", "desconocido",
    "sconosciuto", "desconhecido",
)  # fmt: skip
_NO_PERSON = re.compile(
    "|".join(re.escape(word) for word in (*_MISSING, *_PLACEHOLDERS))
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
    """Reads trips as the parameters of a report say.

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
    given = [path for path in (source, zones, area, stricter, l_places) if path is not None]
    if not all(isinstance(path, str | PathLike) for path in given):
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
    lists = {}
    for name, path, once in (("stricter", stricter, True), ("l_places", l_places, False)):
        if path is not None:
            lists[name] = read_places(path, resolution=parameters.get("resolution"), of_map=of_map, once=once)
    columns = parameters.get("columns", {})
    alone = not columns.get("trips") and not columns.get("weight")
    return _Reader(parameters, of_map, area if area is not None else within).trips(rows, rows_are_trips=alone, **lists)


# ---- files and columns -----------------------------------------------------------------------------------------------


def files_of(source: str | Path) -> list[Path]:
    """Returns the files of an input, sorted: of a folder the Parquet files, else the text files.

    Raises:
        UnreadableInputError: no files are found, or they are of another kind.
    """
    here = Path(source).expanduser()
    if here.is_dir():
        names = [path for path in here.rglob("*") if not re.search(r"(^|/)[._]", path.relative_to(here).as_posix())]
    elif here.exists() or not has_magic(str(here)):
        names = [here]
    else:
        names = [Path(name) for name in glob(str(here), recursive=True)]
    every = [path for path in names if path.is_file()]
    for endings in (_PARQUET, _CSV):
        found = sorted(path for path in every if path.name.casefold().endswith(endings))
        if found and (here.is_dir() or len(found) == len(every)):
            return found
    raise UnreadableInputError("the input is neither CSV nor Parquet")


def _literal(path: Path) -> str:
    return _quoted("".join(f"[{c}]" if c in "*?[" else c for c in str(path)))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _relation(files: Sequence[Path], partitions: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Returns a FROM clause over files, and the SQL of each column."""
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
    """Returns SQL for the value of a partition column: that of the folder ``name=value`` of each file."""
    cases = []
    for path in files:
        values = [part.removeprefix(f"{name}=") for part in path.parent.parts if part.startswith(f"{name}=")]
        if len(values) != 1:
            raise UnreadableInputError("a partition column is not in the path of every file")
        value = "NULL" if values[0] == "__HIVE_DEFAULT_PARTITION__" else _quoted(unquote(values[0]))
        cases.append(f"WHEN recount_path = {_quoted(str(path))} THEN {value}")
    return f"CAST(CASE {' '.join(cases)} END AS VARCHAR)"


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of all rows.

    Attributes:
        points: latitude and longitude of both ends; NaN where missing. Empty if ends are tiles.
        tiles: the two columns of tiles; empty if ends are points.
        trips, weight: NaN where missing; None without such a column.
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
        query = con.sql(f"SELECT {', '.join(f'{sql} AS s{i}' for i, sql in enumerate(select))} FROM {relation}")
        # Named differently by versions of DuckDB.
        reader = getattr(query, "to_arrow_reader", None) or query.fetch_arrow_reader
        table = reader(1 << 17).read_all()
        found = [table.column(i).combine_chunks() for i in range(len(select))]
        n_ends = n_points or 2
        ends, (trips, weight, person), attributes = found[:n_ends], found[n_ends : n_ends + 3], found[n_ends + 3 :]
        return cls(
            tuple(map(_floats, ends[:n_points])),
            tuple(ends[n_points:]),
            _floats(trips) if "trips" in roles else None,
            _floats(weight) if "weight" in roles else None,
            person if "person" in roles else None,
            tuple(attributes),
        )

    def __len__(self) -> int:
        return len((*self.points, *self.tiles)[0])


def _floats(column: Any) -> NDArray[np.float64]:
    found: NDArray[np.float64] = pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy(zero_copy_only=False)
    return found


def _nulls(column: Any) -> Mask:
    found: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return found


def _encoded(column: Any) -> tuple[Any, list[Any]]:
    """Returns the number of each value among the distinct values, and these followed by None, the number of nulls."""
    encoded = column.dictionary_encode()
    number = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return number, [*encoded.dictionary.to_pylist(), None]


def _every(parameters: Mapping[str, Any]) -> str | None:
    """Returns the step of time by which trips are cut; of a month or day that alone was read, that step."""
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


def _tile_sql(column: str, _kind: str) -> str:
    text = f"CAST({column} AS VARCHAR)"
    return f"CASE WHEN regexp_full_match(lower(trim({text})), {_MISSING_SQL}) THEN NULL ELSE {text} END"


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
    """Returns SQL for microseconds since 1970 in the local time of the trips; NULL where missing."""
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
        units = [u for u in (1, 1_000, MILLION) if always(f"{number} >= {_UNIX[0] * u} AND {number} < {_UNIX[1] * u}")]
        if not units:
            raise UnreadableInputError("times have a form that this reader does not know")
        zoned, moment = True, f"CAST(floor({number} * {MILLION // units[0]}) AS BIGINT)"
    if timezone is not None and zoned:
        moment = f"epoch_us(timezone('{timezone}', make_timestamptz({moment})))"
    inside = f"{moment} >= {_YEARS[0]} AND {moment} < {_YEARS[1]}"
    return f"CASE WHEN {present} THEN CASE WHEN {inside} THEN {moment} ELSE error('year') END END"


def _label_sql(moment: str, every: str) -> str:
    step = re.fullmatch(r"(\d+)(min|h)", every)
    if step is not None:
        length = int(step[1]) * (60 if step[2] == "h" else 1) * 60 * MILLION
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

    def trips(self, rows: _Columns, **more: Any) -> Trips:
        """Drops rows, finds their tiles and groups the others."""
        dropped = np.zeros(len(rows), dtype=np.bool_)
        for values in (rows.trips, rows.weight):
            if values is not None:
                if np.any((values < 0) | np.isinf(values)):
                    raise UnreadableInputError("counts or weights are negative or infinite")
                dropped |= np.isnan(values)
        count = np.ones(len(rows), dtype=np.int64)
        if rows.trips is not None:
            count = np.nan_to_num(rows.trips, nan=1).astype(np.int64)
            if np.any(np.nan_to_num(rows.trips, nan=1) != count):
                raise UnreadableInputError("numbers of trips are not whole")
        weight = None if rows.weight is None else np.rint(np.nan_to_num(rows.weight) * MILLION).astype(np.int64)
        for column in rows.attributes:
            dropped |= _nulls(column)
        tiles, lost = self._tiles(rows, ~dropped & (count > 0))
        dropped |= lost
        usable = ~dropped & (count > 0)
        outside = self._outside(tiles, usable)
        counted = count > 0
        during = self.parameters.get("during")
        if during is not None:
            counted &= pc.fill_null(pc.equal(rows.attributes[-1], during), True).to_numpy(zero_copy_only=False)
        kept = np.flatnonzero(usable & ~outside & counted)
        if len(kept) == 0:
            raise UnreadableInputError("no row of the input can be used")
        return Trips(
            **self._flows(
                rows, [end[kept] for end in tiles], kept, count[kept], None if weight is None else weight[kept]
            ),
            dropped=int(np.sum(dropped & counted)),
            outside=int(np.sum(outside & usable & counted)),
            **more,
        )

    def _tiles(self, rows: _Columns, wanted: Mask) -> tuple[list[Any], Mask]:
        """Returns the tile of both ends, and rows to drop.

        A tile is an H3 cell, or the number of a tile of the map; -1 for an end in no zone that is kept as outside.
        """
        lost = np.zeros(len(wanted), dtype=np.bool_)
        if rows.points:
            ends = self._tiles_of_points(rows, wanted, lost)
        else:
            ends, keep = [], self.keep_outside and self.of_map is not None
            for column in rows.tiles:
                lost |= _nulls(column)
            for column in rows.tiles:
                found, unknown = self._tiles_named(column)
                if np.any(unknown & wanted & ~lost) and not self.parameters.get("skip_unknown") and not keep:
                    raise UnreadableInputError("tiles are not on the map, or not H3 cells")
                if not keep:
                    lost |= unknown
                ends.append(found)
        if self.of_map is not None and not self.keep_outside:
            for end in ends:
                lost |= (end < 0) & wanted
        return ends, lost

    def _tiles_of_points(self, rows: _Columns, wanted: Mask, lost: Mask) -> list[Any]:
        """Returns the tiles of coordinates; each distinct point is looked up once. Marks rows off the earth as lost."""
        lat, lon = (np.concatenate(rows.points[axis::2]) for axis in (0, 1))
        wrong = ~((np.abs(lat) <= 90) & (np.abs(lon) <= 180)) | ((lat == 0) & (lon == 0))
        n = len(wanted)
        lost |= wrong[:n] | wrong[n:]
        at = np.flatnonzero(np.tile(wanted & ~lost, 2))
        y, x = (pa.array(values[at]).dictionary_encode() for values in (lat, lon))
        key = y.indices.to_numpy().astype(np.int64) * len(x.dictionary) + x.indices.to_numpy()
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        lat, lon = lat[at[first]], lon[at[first]]
        if self.of_map is not None:
            tiles = np.full(2 * n, -1, dtype=np.int64)
            tiles[at] = self.of_map.tiles_at(lat, lon)[place]
        else:
            tiles = np.zeros(2 * n, dtype=np.uint64)
            cells = map(h3_int.latlng_to_cell, lat.tolist(), lon.tolist(), repeat(self.parameters["resolution"]))
            tiles[at] = np.fromiter(cells, dtype=np.uint64, count=len(first))[place]
        return [tiles[:n], tiles[n:]]

    def _tiles_named(self, column: Any) -> tuple[Any, Mask]:
        """Returns tiles given by name, and which are unknown. Each distinct name is looked up once."""
        index, names = _encoded(column)
        if self.of_map is not None:
            number = {code: i for i, code in enumerate(self.of_map.tiles.tolist())}
            whole = re.compile(r"^(-?[0-9]+)\.0+$")
            found = np.array([number.get(n, number.get(whole.sub(r"\1", n), -1)) if n else -1 for n in names])
            return found[index], (found < 0)[index]
        cells = np.array([_cell_of(name) for name in names], dtype=np.uint64)
        unknown, resolution = cells == 0, int(self.parameters["resolution"])
        known = resolution_of(cells[~unknown])
        if len(known) and known.min() != known.max():
            raise UnreadableInputError("tiles have several H3 resolutions")
        finer = ~unknown & (resolution_of(cells) > resolution)
        cells = np.where(finer, parent_cells(cells, resolution), cells)
        return cells[index], unknown[index]

    def _outside(self, ends: list[Any], usable: Mask) -> Mask:
        """Returns rows outside the study area: with an end outside, or with both if the other is kept as `outside`."""
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
        if self.of_map is None:
            return cells_in_area(tiles, self.area)
        zones = self.of_map.zones
        order = np.argsort(zones.code)
        at = order[np.searchsorted(zones.code[order], self.of_map.tiles[tiles])]
        return points_in_area(zones.lat[at], zones.lon[at], self.area)

    def _flows(self, rows: _Columns, tiles: list[Any], kept: Any, count: Any, weight: Any) -> dict[str, Any]:
        """Returns the flows of the kept rows: one for each slice, origin and destination."""
        ends, codes = [], []
        for end in tiles:
            distinct, number = np.unique(end, return_inverse=True)
            ends.append(number)
            codes.append(
                distinct.astype(np.uint64) if self.of_map is None else np.append(self.of_map.tiles, OUTSIDE)[distinct]
            )
        if self.parameters.get("same_zones"):
            both = np.union1d(*codes)
            ends = [np.searchsorted(both, own)[number] for own, number in zip(codes, ends, strict=True)]
            codes = [both, both]
        whole = self.parameters.get("during") is None
        columns = rows.attributes if whole else rows.attributes[:-1]
        keys, of_slice = _slices([column.take(pa.array(kept)) for column in columns], len(kept))
        key = (of_slice * len(codes[0]) + ends[0]) * len(codes[1]) + ends[1]
        distinct, first, row = np.unique(key, return_index=True, return_inverse=True)
        names = [name for name in (self.parameters["columns"].get("by") or "").split(",") if name]
        every = _every(self.parameters) if whole else None
        zones = None if self.of_map is None else self.of_map.zones
        added = [
            None if values is None else np.bincount(row, weights=values).astype(np.int64) for values in (count, weight)
        ]
        return {
            "origin": ends[0][first].astype(np.int32),
            "destination": ends[1][first].astype(np.int32),
            "trips": added[0],
            "weight": added[1],
            "persons": None if rows.person is None else self._persons(rows.person.take(pa.array(kept)), row, count),
            "origins": codes[0],
            "destinations": codes[1],
            "origin_map": zones,
            "destination_map": zones,
            "slice_columns": (*names, *(("time",) if every is not None else ())),
            "slices": keys,
            "slice": of_slice[first].astype(np.int32) if columns else None,
            "every": every,
        }

    def _persons(self, column: Any, row: Any, count: Any) -> PersonRows:
        """Returns the distinct persons of each flow, with their trips; each spelling is looked at once."""
        index, names = _encoded(column)
        known: dict[str, int] = {}
        number = np.array(
            [
                -1 if n is None or _NO_PERSON.fullmatch(n.lower()) else known.setdefault(self._folded(n), len(known))
                for n in names
            ],
            dtype=np.int64,
        )
        who, size = number[index], max(1, len(known))
        real = np.flatnonzero(who >= 0)
        pair, place = np.unique(row[real].astype(np.int64) * size + who[real], return_inverse=True)
        made = np.bincount(place, weights=count[real], minlength=len(pair)).astype(np.int64)
        return PersonRows((pair // size).astype(np.int32), (pair % size).astype(np.int32), made)

    def _folded(self, name: str) -> str:
        if not self.fold or name.isascii():
            return name.lower() if self.fold else name
        return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _cell_of(name: str | None) -> int:
    """Returns an H3 cell from text: 18 decimal or 15 hexadecimal digits; 0 for other texts."""
    text = (name or "").strip().lower()
    try:
        cell = int(text) if len(text) == 18 and text.isdigit() else int(text.removeprefix("0x"), 16)
    except ValueError:
        return 0
    return cell if 0 < cell < 1 << 63 and h3_int.is_valid_cell(cell) else 0


def _slices(columns: list[Any], n: int) -> tuple[tuple[tuple[str, ...], ...], Any]:
    """Returns the distinct combinations of values, sorted, and the number of that of each row."""
    key, values = np.zeros(n, dtype=np.int64), []
    for column in columns:
        number, names = _encoded(column)
        order = sorted(range(len(names) - 1), key=names.__getitem__)
        rank = np.argsort(order)
        key = key * len(order) + rank[number]
        values.append([names[i] for i in order])
    distinct, place = np.unique(key, return_inverse=True)
    keys = []
    for one in distinct.tolist():
        found: tuple[str, ...] = ()
        for own in reversed(values):
            one, at = divmod(one, len(own))
            found = (own[at], *found)
        keys.append(found)
    return tuple(keys), place
