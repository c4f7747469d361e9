"""An independent recount of a written release.

Nothing here is shared with the methods, the engines or the writers: the files are read with DuckDB, the raw
flows are a plain table of tile codes, and which tile lies in which zone is worked out anew in SQL, for H3
from the bits of the codes and for other maps by following parent codes. What a method believed to have
published plays no part.

Findings never quote a value below the guarantee: they count cells, flows and zones.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.errors import GuaranteeError
from flowveil.slices import Every, SlicedFlows
from flowveil.verify.binaries import Tables, check_binaries
from flowveil.verify.boxes import Rectangles, flows_inside
from flowveil.verify.carriers import check_carriers
from flowveil.verify.differences import check_differences
from flowveil.verify.exports import EXPORTS, check_exports
from flowveil.verify.files import check_folder, read_json
from flowveil.verify.measures import check_measures
from flowveil.verify.noisy import claims_noise, verify_noise
from flowveil.verify.outlines import check_outlines
from flowveil.verify.parquet import check_layouts, check_rewriting, check_text, whole_table
from flowveil.verify.rendering import check_rendering
from flowveil.verify.unlisted import count_pairs, reaches_all_pairs, slices_within_reach

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

#: Sums of weights may differ by this share: they pass through decimal text and other people's tools.
TOLERANCE = 1e-9

_TABLES = ("flows.parquet", "zones.parquet")
#: A matrix has no more cells than raw flows; a family one for each level of its slice columns, and of its times.
_FEWEST_ROWS, _LEVELS_OF_TIME = 1_000, 8
_FLOW_COLUMNS: dict[str, str | None] = {
    "origin_zone": "VARCHAR",
    "destination_zone": "VARCHAR",
    "trips": "BIGINT",
    "weight": "DOUBLE",
}
_ZONE_COLUMNS: dict[str, str | None] = {
    "zone": "VARCHAR",
    "role": "VARCHAR",
    "level": "INTEGER",
    "tiles": "BIGINT",
    "area_km2": "DOUBLE",
    "lat": "DOUBLE",
    "lon": "DOUBLE",
    # Bytes or a type of its own, by the version of DuckDB; not looked into.
    "geometry": None,
}
_UNITS = ("trips", "people", "population")
#: Base cells of H3 that are pentagons.
_PENTAGONS = (4, 14, 24, 38, 49, 58, 63, 72, 83, 97, 107, 117)
#: Measures that tell the suppressed volume to whoever has the published cells.
_TELL_SUPPRESSED = (
    "c_dm",
    "distribution_distance",
    "floor_generalization_error",
    "floor_ratio",
    "reconstruction_loss",
    "suppressed_share",
)
#: Below this many flows or cells, a total would tell single values.
_FEWEST_SUPPRESSED = 3
#: Measures that tell how trips are spread inside a cell, where few cells cover more than one pair of tiles.
_TELL_INSIDE = ("reconstruction_loss", "distribution_distance", "generalization_distance_m")
_FEWEST_MERGED = 10
#: Measures that tell how many tiles were seen in a zone, where few zones may hold more than one.
_TELL_SEEN = ("floor_ratio", "mean_generalization_error")


def check(folder: str | PathLike[str], flows: Flows | SlicedFlows) -> None:
    """Raise unless the release in a folder holds against the flows it was made from.

    Raises:
        GuaranteeError: the recount contradicts the release; ``findings`` has one line for each contradiction.
    """
    findings = verify_release(folder, flows)
    if findings:
        raise GuaranteeError(
            f"The release in '{folder}' does not hold against a recount:\n" + "\n".join(f"- {f}" for f in findings),
            findings=findings,
        )


def verify_release(
    folder: str | PathLike[str],
    flows: Flows | SlicedFlows,
    *,
    expect: Mapping[str, Any] | None = None,
    unread: list[str] | None = None,
    law: bool = True,
    strict: bool = False,
) -> list[str]:
    """Recount a release, or a family of releases, from its files and the raw flows.

    Args:
        folder: the release.
        flows: the flows it was made from, at tile level; for a family the flows of its slices.
        expect: what the guarantee must be at the least (``k``, ``protect``, ``k_population``, ``l``); without it the
            release is held against the guarantee that it claims.
        unread: gets a line for each part of a file that could not be compared, because another version of a library
            wrote it; see `flowveil.verify.binaries.UNREAD`.
        law: whether the numbers of a noisy release are held against the law of its noise. Not while it is being
            published: a release that were refused for what its noise happens to be would not keep its promise.
        strict: whether it is a finding that another version made the release, so that its page, its texts and its
            text exports cannot be made again.

    Returns:
        One plain line for each contradiction; empty when everything holds: the files are those of the
        manifest, each published cell is exactly the sum of the raw flows that belong to it and reaches the
        guarantee, outlines and measures are those of the recount, nothing has entries or metadata that no release
        has, and the page, the texts and the text exports are, to the byte, what the tables and the report come to.
        Of a noisy release, whose counts nobody can recount, the form is checked, that the report tells nothing
        without noise, and that the counts can be noise of the stated law on the raw ones.
    """
    try:
        findings = _verify(Path(folder), flows, expect or {}, [] if unread is None else unread, law=law)
        # Last, and only where all else holds: what is rendered is then sound.
        return findings or list(check_rendering(Path(folder), strict=strict))
    except (TypeError, LookupError, AttributeError, ValueError, ArithmeticError):
        return ["report.json: not the report of a release; it cannot be checked"]
    except (OSError, ImportError, MemoryError):
        # What the machine lacks is no fault of the folder.
        raise
    except Exception as problem:
        # Whatever else a folder makes a reader raise may quote its content.
        return [f"a file of the folder is not what a release has; it cannot be checked ({type(problem).__name__})"]


def _verify(
    place: Path, flows: Flows | SlicedFlows, expect: Mapping[str, Any], unread: list[str], *, law: bool
) -> list[str]:
    if not place.is_dir():
        return ["there is no such folder"]
    # Until every file is known to be a regular one that the manifest lists and hashes, none is parsed.
    findings = check_folder(place, exports=EXPORTS)
    if findings:
        return findings
    raw = _Raw.of(flows)
    noisy = claims_noise(place)
    findings = check_layouts(place, most_rows=None if noisy else raw.most_rows)
    if findings:
        return findings
    if noisy:
        if isinstance(flows, SlicedFlows):
            return ["report.json: a noisy release has no slices"]
        return list(_verify_noisy(place, flows, expect, unread, law=law))
    report, problems = _read_report(place)
    findings += problems
    if report is None:
        return findings
    if report.slice_columns != raw.columns:
        return [*findings, "report.json: its slice columns are not those of the input as it was read"]
    report = _with_exact_population(report, raw.whole)
    findings += _check_guarantee(report, raw.whole)
    findings += _check_expected(report, expect, raw.whole)
    with _database(place) as db:
        findings += _load_published(db, place, raw)
        if not _one(db, "SELECT count(*) = 2 FROM duckdb_tables() WHERE table_name IN ('published', 'zones')"):
            return findings
        findings += check_carriers(place)
        findings += check_exports(place, _present_exports(place), db, slice_columns=raw.columns)
        findings += _check_bytes(db, place, unread)
        findings += _load_slices(db, report, raw)
        _load_raw(db, raw)
        findings += _check_slices(db, report, raw)
        if isinstance(flows, SlicedFlows):
            findings += _check_family(report, flows)
        if report.boxes is not None:
            if raw.columns:
                return [*findings, "report.json: slices have boxes, which cannot be recounted"]
            findings += _load_boxes(db, place, report.boxes, raw.whole)
        findings += _check_zones(db, report)
        _assign_flows(db, report, raw.whole)
        findings += _check_outlines(place, raw.whole, boxes=report.boxes is not None)
        findings += _check_cells(db, report, raw.whole)
        findings += _check_measures(db, report, raw.whole, sound=not findings)
        if raw.columns and not report.shared:
            findings += check_differences(
                db,
                _run,
                columns=raw.columns,
                safe=_safe(report),
                tiles=report.threshold("locations") is not None,
                people=raw.whole.people is not None,
                admitted=report.short_differences,
                unsettled=report.unsettled,
            )
    return findings


def _check_bytes(db: Any, place: Path, unread: list[str]) -> Iterator[str]:
    """Whether the tables, and the exports that are not text, are to the last byte what their rows make."""
    yield from check_rewriting(db, place, unread)
    binaries = [name for name in _present_exports(place) if name.endswith((".gpkg", ".omx", ".arrow"))]
    if binaries:
        flows, zones = (whole_table(db, place / name) for name in _TABLES)
        tables = Tables(flows=flows.table, zones=zones.table, written_by=flows.written_by, unread=unread)
        yield from check_binaries(place, binaries, tables)


def _verify_noisy(
    place: Path, flows: Flows, expect: Mapping[str, Any], unread: list[str], *, law: bool
) -> Iterator[str]:
    missing = [name for name, value in expect.items() if value]
    if missing:
        yield f"report.json: a noisy release promises no smallest cell, so {', '.join(missing)} cannot hold"
    with _database(place) as db:
        findings = [finding for name in _TABLES for finding in check_text(db, place / name)]
        findings = findings or list(verify_noise(place, flows, db, law=law))
        if not findings:
            # How many tiles a zone has is not told where only the data knows.
            findings += _load_table(db, place / "zones.parquet", "zones", _ZONE_COLUMNS, may_be_empty="tiles")
        if not findings:
            findings += _check_outlines(place, flows, noisy=True)
        yield from findings
        if findings:
            return
        yield from _check_bytes(db, place, unread)
        exports = _present_exports(place)
        if not exports:
            return
        columns = {name: kind for name, kind in _FLOW_COLUMNS.items() if name != "weight"}
        yield from _load_table(db, place / "flows.parquet", "published", columns)
        yield from check_exports(place, exports, db)


@dataclass(frozen=True, eq=False)
class _Raw:
    """The raw flows: of one matrix, or of slices.

    Attributes:
        columns: the slice columns; none for one matrix.
        keys: the values of each slice.
        slices: the flows of each slice.
        whole: all of them together.
    """

    columns: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    slices: tuple[Flows, ...]
    whole: Flows

    @property
    def most_rows(self) -> int:
        """More cells than any release of these flows has: each holds a flow of its own slice, at some level."""
        flows = sum(len(part) for part in self.slices)
        return _FEWEST_ROWS + flows * (_LEVELS_OF_TIME * 2 ** len(self.columns) if self.columns else 1)

    @classmethod
    def of(cls, flows: Flows | SlicedFlows) -> _Raw:
        if isinstance(flows, SlicedFlows):
            return cls(flows.columns, flows.keys, flows.slices, flows.whole)
        return cls((), ((),), (flows,), flows)


# ---- the folder --------------------------------------------------------------------------------------------


def _present_exports(place: Path) -> list[str]:
    return sorted(name for name in EXPORTS if (place / name).is_file())


@dataclass(frozen=True)
class _SliceClaims:
    """What report.json claims of one slice of a family."""

    key: tuple[str | None, ...]
    measures: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class _Claims:
    """What report.json claims, as far as it can be recounted."""

    guarantee: Mapping[str, Any]
    parameters: Mapping[str, Any]
    homogeneous: bool
    boxes: Mapping[str, Any] | None
    suppression: Mapping[str, Any]
    measures: Mapping[str, Mapping[str, Any]]
    withheld: bool
    slice_columns: tuple[str, ...] = ()
    slices: tuple[_SliceClaims, ...] = ()
    short_differences: int = 0
    unsettled: bool = False
    comparisons: int = 0
    unpublished: int = 0

    @property
    def shared(self) -> bool:
        """Whether all slices have the same zones, and coarser matrices are sums of published cells of finer ones."""
        return bool(self.slice_columns) and (self.parameters.get("slices") or {}).get("common_zones") is True

    @property
    def overlapping(self) -> bool:
        """Whether a flow may lie in several published cells, so that nobody can tell in which it is counted."""
        return self.boxes is not None and not self.boxes["disjoint"]

    @property
    def population_is_given(self) -> bool:
        """Whether the population's threshold was given as a number, which is then never called k."""
        return _number(self.parameters.get("k_population")) is not None

    @property
    def k(self) -> float:
        """What measures are held against: the k that is claimed or, where none is, the one that was asked for."""
        return _number(self.guarantee.get("k")) or _number(self.parameters.get("k")) or 0

    def threshold(self, unit: str) -> float | None:
        """What every cell must reach in a unit, or None where the unit is not protected."""
        return self.guarantee.get(unit)


def _read_report(place: Path) -> tuple[_Claims | None, list[str]]:
    try:
        content = read_json(place / "report.json")
        claims = _Claims(
            guarantee=dict(content["guarantee"]),
            parameters=dict(content["parameters"]),
            homogeneous=content["homogeneous"],
            boxes=None if content.get("boxes") is None else dict(content["boxes"]),
            suppression=dict(content["suppression"]),
            measures={basis: dict(values) for basis, values in content["measures"].items()},
            withheld=content.get("withheld") is not None
            or any(part.get("withheld") is not None for part in content.get("slices", ())),
            slice_columns=tuple(content.get("slice_columns", ())),
            slices=tuple(
                _SliceClaims(
                    key=tuple(part["slice"][name] for name in content["slice_columns"]),
                    measures={basis: dict(values) for basis, values in part["measures"].items()},
                )
                for part in content.get("slices", ())
            ),
            short_differences=int(content["differencing"]["short"]) if "slices" in content else 0,
            unsettled=bool(content["differencing"]["unchecked"]) if "slices" in content else False,
            comparisons=int(content["differencing"]["comparisons"]) if "slices" in content else 0,
            unpublished=content["unpublished_slices"] if "slices" in content else 0,
        )
    except OSError:
        return None, []
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, ["report.json: not readable, or not the report of a release"]
    problems = list(_malformed(claims))
    return (None if problems else claims), problems


def _malformed(claims: _Claims) -> Iterator[str]:
    if not isinstance(claims.homogeneous, bool):
        yield "report.json: 'homogeneous' is neither true nor false"
    if claims.boxes is not None and (
        claims.homogeneous
        or not isinstance(claims.boxes.get("disjoint"), bool)
        or not all((_number(claims.boxes.get(name)) or 0) > 0 for name in ("grid_lon", "grid_lat"))
    ):
        yield "report.json: 'boxes' does not say their grid and whether they are disjoint"
    for unit in ("k", *_UNITS, "locations"):
        empty = claims.guarantee.get(unit) is None
        left_open = empty and (claims.population_is_given if unit == "k" else unit == "population" and claims.withheld)
        if unit in claims.guarantee and not left_open and _number(claims.guarantee[unit]) is None:
            yield f"report.json: the guarantee in {unit} is not a number"
    rule, levels = claims.suppression.get("rule"), claims.suppression.get("levels")
    beta = _number(claims.suppression.get("beta"))
    if rule not in ("short cells", "hopeless flows"):
        yield "report.json: the suppression rule is not known"
    elif rule == "hopeless flows" and (
        isinstance(levels, bool) or not isinstance(levels, int) or levels < 0 or beta is None or not 0 <= beta < 1
    ):
        yield "report.json: the suppression rule 'hopeless flows' has no valid levels or beta"


def _number(value: Any) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value


# ---- the guarantee -----------------------------------------------------------------------------------------


def _with_exact_population(claims: _Claims, flows: Flows) -> _Claims:
    """Fill in a population threshold that is k times the mean weight.

    Where the suppressed volume is withheld, such a threshold is not told as a number; the cells were held
    against it all the same, so the recount must be too.
    """
    if "population" not in claims.guarantee or claims.threshold("population") is not None:
        return claims
    exact = _mean_population(flows, claims.k)
    return replace(claims, guarantee={**claims.guarantee, "population": exact})


def _mean_population(flows: Flows, k: float) -> float | None:
    """The k-fold mean weight of a trip."""
    trips = int(np.sum(flows.trips))
    return None if flows.weight is None or trips == 0 else float(k * np.sum(flows.weight) / trips)


def _check_guarantee(claims: _Claims, flows: Flows) -> Iterator[str]:
    protected = [unit for unit in _UNITS if claims.threshold(unit) is not None]
    if not protected:
        yield "report.json: the guarantee protects no unit"
    if sorted(claims.guarantee.get("protect", protected)) != sorted(protected):
        yield "report.json: the guarantee has thresholds for other units than it says it protects"
    if "people" in protected and flows.people is None:
        yield "report.json: the guarantee protects people, but the input has no persons to count"
    if "population" in protected and flows.weight is None:
        yield "report.json: the guarantee protects the population, but the input has no weights to count"
    if protected == ["population"] and claims.population_is_given:
        if claims.guarantee.get("k") is not None:
            yield "report.json: the guarantee calls k what is a population given as a number"
    elif (_number(claims.guarantee.get("k")) or 0) < 1:
        yield "report.json: the guarantee has no k of at least 1"
    asked = claims.parameters.get("protect") or ()
    if sorted({asked} if isinstance(asked, str) else set(asked)) != sorted(protected):
        yield "report.json: the parameters protect other units than the guarantee"
    for unit, least in _asked_for(claims, flows).items():
        if (claims.threshold(unit) or 0) < least * (1 - TOLERANCE):
            yield f"report.json: the guarantee in {unit} is weaker than the parameters ask for"


def _check_expected(claims: _Claims, expect: Mapping[str, Any], flows: Flows) -> Iterator[str]:
    """Compare the guarantee that the release claims with the one its reader asks for.

    k is asked of every unit that the reader names, or of one at the least where none is named; of the population it
    asks k times the mean weight of the input, unless the reader says how much is enough.
    """
    k, named = expect.get("k"), tuple(expect.get("protect") or ())
    for unit in named:
        if claims.threshold(unit) is None:
            yield f"report.json: the release does not protect {unit}"
    if k is not None:
        enough = expect.get("k_population")
        asked = {"trips": k, "people": k, "population": enough or _mean_population(flows, k) or math.inf}
        claimed = [unit for unit in named or _UNITS if claims.threshold(unit) is not None]
        short = [unit for unit in claimed if (claims.threshold(unit) or 0) < asked[unit] * (1 - TOLERANCE)]
        if short and (named or short == claimed):
            yield f"report.json: the release claims a k of less than {k} in {', '.join(short)}"
    for unit, name in (("population", "k_population"), ("locations", "l")):
        least = expect.get(name)
        if least is not None and (claims.threshold(unit) or 0) < least:
            yield f"report.json: the release claims less than {least} in {unit}"


def _asked_for(claims: _Claims, flows: Flows) -> dict[str, float]:
    """The least thresholds that the parameters, and the guarantee's own k, ask for."""
    asked_k = _number(claims.parameters.get("k"))
    k = max(claims.k, asked_k or 0)
    protect = claims.parameters.get("protect") or ()
    units = {protect} if isinstance(protect, str) else set(protect)
    asked = {unit: k for unit in ("trips", "people") if unit in units or claims.threshold(unit) is not None}
    absolute = _number(claims.parameters.get("k_population"))
    mean = _mean_population(flows, k)
    if absolute is not None:
        asked["population"] = absolute
    elif "population" in units and mean is not None:
        asked["population"] = mean
    locations = _number(claims.parameters.get("l"))
    if locations is not None:
        asked["locations"] = locations
    return asked


def _safe(claims: _Claims, *, locations: bool = True) -> str:
    """SQL: whether a group with trips, people, weight, begin_tiles, end_tiles reaches every threshold."""
    column = {"trips": "trips", "people": "people", "population": "weight"}
    terms = ["true"]
    for unit, name in column.items():
        if claims.threshold(unit) is not None:
            terms.append(f"coalesce({name}, 0) >= {_literal(claims.threshold(unit))}")
    if locations and claims.threshold("locations") is not None:
        least = _literal(claims.threshold("locations"))
        terms.append(f"begin_tiles >= {least} AND end_tiles >= {least}")
    return "(" + " AND ".join(terms) + ")"


def _literal(value: float | None) -> str:
    # As text and cast: a bare number would be a DECIMAL, and a comparison with one rounds.
    return f"CAST('{value!r}' AS DOUBLE)"


# ---- tables ------------------------------------------------------------------------------------------------


@contextmanager
def _database(place: Path) -> Iterator[Any]:
    """An empty database that may read the files of one folder and no others, nor change its settings.

    What does not fit into memory goes to a private folder that is removed.
    """
    import duckdb

    with tempfile.TemporaryDirectory(prefix="flowveil-") as spill:
        db = duckdb.connect(":memory:", config={"temp_directory": spill})
        try:
            _run(db, "SET autoinstall_known_extensions = false")
            _run(db, "SET enable_progress_bar = false")
            _run(db, f"SET allowed_directories = [{_text(str(place))}]")
            _run(db, "SET enable_external_access = false")
            _run(db, "SET lock_configuration = true")
            yield db
        finally:
            db.close()


def _run(db: Any, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run to the end: newer versions of DuckDB refuse other work while a result is only half read."""
    rows: list[tuple[Any, ...]] = db.execute(query, list(values)).fetchall()
    return rows


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _one(db: Any, query: str) -> Any:
    return _run(db, query)[0][0]


def _load_published(db: Any, place: Path, raw: _Raw) -> list[str]:
    """Read the two tables into ``published`` and ``zones``; what is not as it should be is returned."""
    columns = {name: kind for name, kind in _FLOW_COLUMNS.items() if name != "weight" or raw.whole.weight is not None}
    return [
        *_load_table(db, place / "flows.parquet", "published", columns, raw.columns),
        # How many tiles a zone could hold is not known of boxes, nor without a map.
        *_load_table(db, place / "zones.parquet", "zones", _ZONE_COLUMNS, may_be_empty="tiles"),
    ]


def _load_table(
    db: Any,
    path: Path,
    table: str,
    columns: Mapping[str, str | None],
    slice_columns: Sequence[str] = (),
    *,
    may_be_empty: str | None = None,
) -> Iterator[str]:
    """Read a table. Its slice columns, text that may be empty, become c0, c1, ..."""
    import duckdb

    # The folder's name is a name, not a pattern, and 'k=10' in it is not a column.
    source = "read_parquet(?, file_row_number = true, hive_partitioning = false)"
    expected = {**columns, **dict.fromkeys(slice_columns, "VARCHAR")}
    problems = check_text(db, path)
    if problems:
        yield from problems
        return
    try:
        found = _run(db, f"DESCRIBE SELECT * FROM {source}", [escape(str(path))])
        kinds = {name: kind for name, kind, *_ in found if name != "file_row_number"}
        same_kinds = all(kind is None or kinds.get(name) == kind for name, kind in expected.items())
        if list(kinds) != list(expected) or not same_kinds:
            yield f"{path.name}: its columns are not {', '.join(expected)} in their types"
            return
        picked = [name for name, kind in columns.items() if kind is not None]
        picked += [f"{_quoted(name)} AS c{i}" for i, name in enumerate(slice_columns)]
        _run(
            db,
            f"CREATE TABLE {table} AS SELECT {', '.join(picked)}, file_row_number AS row FROM {source}",
            [escape(str(path))],
        )
    except duckdb.Error:
        yield f"{path.name}: cannot be read"
        return
    keys = list(columns)[:2]
    filled = [name for name, kind in columns.items() if kind in ("VARCHAR", "BIGINT") and name != may_be_empty]
    empty = " OR ".join(f"{name} IS NULL" for name in filled)
    if _one(db, f"SELECT count(*) FROM {table} WHERE {empty}"):
        yield f"{path.name}: has empty fields"
    of_slice = [f"c{i} IS NOT NULL, coalesce(c{i}, '')" for i in range(len(slice_columns))]
    row = f"row({', '.join((*of_slice, *keys))})"
    before = f"lag({row}) OVER (ORDER BY row)"
    if _one(db, f"SELECT count(*) FROM (SELECT {row} AS key, {before} AS before FROM {table}) WHERE key < before"):
        yield f"{path.name}: not sorted by {' and '.join((*slice_columns, *keys))}"
    twice = _one(db, f"SELECT count(*) - count(DISTINCT {row}) FROM {table}")
    if twice:
        yield f"{path.name}: {twice} rows stand twice"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _load_slices(db: Any, claims: _Claims, raw: _Raw) -> Iterator[str]:
    """``slice``: the published slices; ``part``: the raw slices that each is made of. Numbers ``published`` by them.

    A value of a slice column stands for the raw slices that have it, an empty one for all. The time of a longer step is
    how the times of its shorter steps begin.
    """
    import pyarrow as pa

    names = [f"c{i}" for i in range(len(raw.columns))]
    keys = {name: pa.array([key[i] for key in raw.keys], pa.string()) for i, name in enumerate(names)}
    _store(db, "raw_slice", pa.table({**keys, "m": np.arange(len(raw.keys), dtype=np.int32)}))
    listed = ", ".join(names)
    order = ", ".join(f"{name} NULLS FIRST" for name in names) or "1"
    distinct = f"SELECT DISTINCT {listed} FROM published" if names else "SELECT 0 AS nothing"
    _run(db, f"CREATE TABLE slice AS SELECT *, row_number() OVER (ORDER BY {order}) - 1 AS s FROM ({distinct})")
    matches = ["true"]
    for name, column in zip(names, raw.columns, strict=True):
        same = f"starts_with(m.{name}, p.{name})" if column == "time" else f"p.{name} = m.{name}"
        matches.append(f"(p.{name} IS NULL OR {same})")
    _run(db, f"CREATE TABLE part AS SELECT s, m FROM slice p JOIN raw_slice m ON {' AND '.join(matches)}")
    same = " AND ".join(["true", *(f"p.{name} IS NOT DISTINCT FROM q.{name}" for name in names)])
    _run(db, f"CREATE TABLE numbered AS SELECT p.*, s FROM published p JOIN slice q ON {same}")
    _run(db, "DROP TABLE published")
    _run(db, "ALTER TABLE numbered RENAME TO published")
    exact = " AND ".join(["true", *(f"p.{name} = m.{name}" for name in names)])
    _run(db, f"CREATE TABLE finest AS SELECT s, m FROM slice p JOIN raw_slice m ON {exact}")
    strange = _one(db, "SELECT count(*) FROM slice ANTI JOIN part USING (s)")
    if strange:
        yield f"flows.parquet: {strange} slices are not in the input"
    if names:
        published = sorted(_run(db, f"SELECT {listed} FROM slice"), key=str)
        if published != sorted((part.key for part in claims.slices), key=str):
            yield "report.json: its slices are not those of flows.parquet"


def _load_raw(db: Any, raw: _Raw) -> None:
    """The raw flows of each published slice by tile code (``raw``), their persons (``who``), the map (``up_*``)."""
    import pyarrow as pa

    flows = raw.whole
    origin, destination = _leaf_codes(flows.origins), _leaf_codes(flows.destinations)
    start = np.concatenate(([0], np.cumsum([len(part) for part in raw.slices]))).astype(np.int32)
    weight = [pa.nulls(len(p), pa.float64()) if p.weight is None else pa.array(p.weight) for p in raw.slices]
    rows = pa.table(
        {
            "row": np.arange(start[-1], dtype=np.int32),
            "m": np.repeat(np.arange(len(raw.slices), dtype=np.int32), np.diff(start)),
            "o": _codes(origin).take(pa.array(np.concatenate([p.origin for p in raw.slices]))),
            "d": _codes(destination).take(pa.array(np.concatenate([p.destination for p in raw.slices]))),
            "trips": np.concatenate([p.trips for p in raw.slices]),
            "weight": pa.chunked_array(weight, pa.float64()),
        }
    )
    _store(db, "rows", rows)
    people = [(part.people, first) for part, first in zip(raw.slices, start[:-1], strict=True)]
    none = np.zeros(0, np.int32)
    persons = pa.table(
        {
            "row": np.concatenate([none, *(who.cell + first for who, first in people if who is not None)]),
            "person": np.concatenate([none, *(who.person for who, _ in people if who is not None)]),
        }
    )
    _store(db, "persons", persons)
    # Flows of one matrix keep their place in the input, by which boxes find them.
    number = "row_number() OVER (ORDER BY s, o, d) - 1" if raw.columns else "row"
    _run(
        db,
        f"CREATE TABLE raw AS SELECT {number} AS flow, * EXCLUDE (row) FROM (SELECT s, o, d, min(row) AS row, "
        "sum(trips)::BIGINT AS trips, sum(weight) AS weight FROM rows JOIN part USING (m) GROUP BY s, o, d)",
    )
    _run(
        db,
        "CREATE TABLE who AS SELECT DISTINCT flow, person FROM persons JOIN rows USING (row) JOIN part USING (m) "
        "JOIN raw ON raw.s = part.s AND raw.o = rows.o AND raw.d = rows.d",
    )
    for end, tree, tiles in (("o", flows.origins, origin), ("d", flows.destinations, destination)):
        _store(db, f"tile_{end}", pa.table({"tile": _codes(tiles)}))
        if tree.kind == "h3" and tiles.dtype == np.uint64:
            _climb_h3(db, end, tiles, tree.base_level)
        else:
            _climb_tree(db, end, tree)
        text = "node" if tiles.dtype.kind == "U" else "CASE WHEN node = 0 THEN 'all' ELSE format('{:x}', node) END"
        _run(
            db,
            f"CREATE TABLE node_{end} AS SELECT node, {text} AS text, count(*) AS tiles, "
            f"any_value(top - step) + {tree.base_level} AS level FROM up_{end} GROUP BY node",
        )
        _count_possible(db, end, tiles, flows.whole_map)


def _check_slices(db: Any, claims: _Claims, raw: _Raw) -> Iterator[str]:
    """A published slice names its values: where persons are known, k of them must be in it."""
    if not raw.columns or raw.whole.people is None:
        return
    k = _literal(claims.k)
    few = f"SELECT s FROM raw JOIN who USING (flow) GROUP BY s HAVING count(DISTINCT person) >= {k}"
    n = _one(db, f"SELECT count(*) FROM slice ANTI JOIN ({few}) USING (s)")
    if n:
        yield f"flows.parquet: {n} slices have fewer than k people"


def _check_family(claims: _Claims, flows: SlicedFlows) -> Iterator[str]:
    """What the report says of its slices as a whole: how many are missing, and whether some can be subtracted."""
    asked = claims.parameters["slices"]
    coarser = flows.coarser_keys([Every.parse(step) for step in asked["also_every"]], total=asked["total"])
    if claims.unpublished != len(coarser) + len(flows.keys) - len(claims.slices):
        yield "report.json: the number of slices that are not published contradicts the recount"
    last = [len(part.key[-1] or "") if "time" in claims.slice_columns else 0 for part in claims.slices]
    kinds = {(*(v is None for v in part.key), n) for part, n in zip(claims.slices, last, strict=True)}
    if (claims.comparisons > 0) != (len(kinds) > 1):
        yield "report.json: whether matrices of the same trips stand beside each other contradicts the recount"


def _leaf_codes(tree: Hierarchy) -> Any:
    """The code of each tile: the nodes that are nobody's parent, in node order."""
    return tree.code[np.bincount(tree.parent[1:], minlength=len(tree.parent)) == 0]


def _codes(codes: Any) -> Any:
    import pyarrow as pa

    return pa.array(codes.tolist(), type=pa.string()) if codes.dtype.kind == "U" else pa.array(codes)


def _store(db: Any, name: str, table: Any) -> None:
    db.register("arriving", table)
    _run(db, f"CREATE TABLE {name} AS SELECT * FROM arriving")
    db.unregister("arriving")


def _climb_h3(db: Any, end: str, tiles: Any, base_level: int) -> None:
    """``up``: every cell above a tile, from its bits: 3 for each resolution, all set below the cell's own."""
    finest = int(tiles[0]) >> 52 & 15
    top = finest - base_level
    parts = []
    for r in range(finest, max(base_level, 0) - 1, -1):
        kept, added = 0xFFFFFFFFFFFFFFFF ^ (15 << 52), (r << 52) | ((1 << 3 * (15 - r)) - 1)
        node = f"(tile & {kept}::UBIGINT) | {added}::UBIGINT"
        parts.append(f"SELECT tile, {node} AS node, {finest - r} AS step, {top} AS top FROM tile_{end}")
    if base_level < 0:
        parts.append(f"SELECT tile, 0::UBIGINT, {top}, {top} FROM tile_{end}")
    _run(db, f"CREATE TABLE up_{end} AS " + " UNION ALL ".join(parts))


def _climb_tree(db: Any, end: str, tree: Hierarchy) -> None:
    """``up``: every node above a tile, by following parent codes one step at a time."""
    import pyarrow as pa

    has_parent = tree.parent >= 0
    child, parent = tree.code[has_parent], tree.code[tree.parent[has_parent]]
    _store(db, f"parent_{end}", pa.table({"child": _codes(child), "parent": _codes(parent)}))
    _run(db, f"CREATE TABLE climb AS SELECT tile, tile AS node, 0 AS step FROM tile_{end}")
    step = 0
    while _one(db, f"SELECT count(*) FROM climb WHERE step = {step}"):
        _run(
            db,
            f"INSERT INTO climb SELECT tile, parent, {step + 1} FROM climb JOIN parent_{end} ON node = child "
            f"WHERE step = {step}",
        )
        step += 1
    _run(db, f"CREATE TABLE up_{end} AS SELECT *, max(step) OVER (PARTITION BY tile) AS top FROM climb")
    _run(db, "DROP TABLE climb")


def _count_possible(db: Any, end: str, tiles: Any, whole_map: Hierarchy | None) -> None:
    """Add to ``node``: ``possible``, the tiles below it, seen or not; ``coarse``, whether there may be several.

    Below an H3 cell there are seven times as many with each resolution; below a pentagon, a pentagon and five hexagons
    each time. Tiles of a map are counted on the whole map. Without a map, ``possible`` is not known.
    """
    if tiles.dtype.kind != "U":
        finest = int(tiles[0]) >> 52 & 15
        below = {r: 7 ** (finest - r) for r in range(finest + 1)}
        pentagon = (
            f"((node >> 45) & 127) IN {_PENTAGONS} "
            "AND (node & ((1::UBIGINT << 45) - 1)) = ((1::UBIGINT << (3 * (15 - level))) - 1)"
        )
        by_level = " ".join(
            f"WHEN level = {r} THEN CASE WHEN {pentagon} THEN {1 + 5 * (n - 1) // 6} ELSE {n} END"
            for r, n in below.items()
        )
        counted = f"SELECT node, CASE WHEN node = 0 THEN {2 + 120 * below[0]} {by_level} END AS n FROM node_{end}"
    elif whole_map is not None:
        if end == "o":
            _store(db, "tile_map", _table_of_tiles(whole_map))
            _climb_tree(db, "map", whole_map)
        counted = "SELECT node, count(*) AS n FROM up_map GROUP BY node"
    else:
        counted = f"SELECT node, NULL::BIGINT AS n FROM node_{end}"
    _run(
        db,
        f"CREATE OR REPLACE TABLE node_{end} AS SELECT v.*, n::BIGINT AS possible, "
        f"coalesce(n > 1, node NOT IN (SELECT tile FROM tile_{end})) AS coarse "
        f"FROM node_{end} v LEFT JOIN ({counted}) USING (node)",
    )


def _table_of_tiles(tree: Hierarchy) -> Any:
    import pyarrow as pa

    return pa.table({"tile": _codes(_leaf_codes(tree))})


# ---- zones -------------------------------------------------------------------------------------------------


def _check_zones(db: Any, claims: _Claims) -> Iterator[str]:
    """Compare zones.parquet with the map; leaves the tables ``zone_*`` and ``member_*`` (tile, zone) behind."""
    strange = _one(db, "SELECT count(*) FROM zones WHERE role NOT IN ('origin', 'destination', 'both')")
    if strange:
        yield f"zones.parquet: {strange} rows have another role than origin, destination or both"
    for end, role in (("o", "origin"), ("d", "destination")):
        listed = f"(SELECT * FROM zones WHERE role IN ('{role}', 'both'))"
        used = f"(SELECT DISTINCT {role}_zone AS zone FROM published)"
        if claims.boxes is None:
            # A zone of one slice is not that of another: cells of different slices never count as one.
            _run(
                db,
                f"CREATE TABLE zone_{end} AS SELECT row_number() OVER (ORDER BY s, zone) AS z, s, zone, node, n.tiles, "
                f"n.level, possible, coarse FROM (SELECT DISTINCT s, {role}_zone AS zone FROM published) "
                f"SEMI JOIN {listed} USING (zone) LEFT JOIN node_{end} n ON zone = text",
            )
            _run(db, f"CREATE TABLE member_{end} AS SELECT s, tile, z FROM up_{end} JOIN zone_{end} USING (node)")
            compared = f"{listed} l LEFT JOIN node_{end} r ON l.zone = r.text"
        else:
            compared = f"{listed} l LEFT JOIN zone_{end} r USING (zone)"
        counts = {
            f"{role} zones of flows.parquet are missing": f"{used} ANTI JOIN {listed} USING (zone)",
            f"{role} zones are not used by any published flow": f"{listed} ANTI JOIN {used} USING (zone)",
            f"{role} zones cover no tile of the input": f"{compared} WHERE node IS NULL",
            f"{role} zones stand twice": f"(SELECT zone FROM {listed} GROUP BY zone HAVING count(*) > 1)",
            f"{role} zones have another number of possible tiles than the map": (
                f"{compared} WHERE node IS NOT NULL AND l.tiles IS DISTINCT FROM r.possible"
            ),
            f"{role} zones have another level than the map": (
                f"{compared} WHERE node IS NOT NULL AND l.level IS DISTINCT FROM r.level"
            ),
        }
        for problem, rows in counts.items():
            n = _one(db, f"SELECT count(*) FROM {rows}")
            if n:
                yield f"zones.parquet: {n} {problem}"
        overlaps = _one(
            db, f"SELECT count(*) FROM (SELECT s, tile FROM member_{end} GROUP BY s, tile HAVING count(*) > 1)"
        )
        if overlaps and claims.homogeneous:
            yield (
                f"zones.parquet: {role} zones overlap in {overlaps} tiles, "
                "but report.json says that they are homogeneous"
            )


def _load_boxes(db: Any, place: Path, claims: Mapping[str, Any], flows: Flows) -> Iterator[str]:
    """Boxes from their published shapes: ``zone_*`` with the tiles in them, ``inside`` (flow, cell) pairs.

    ``member_*`` stays empty: it tells where zones overlap, and boxes do.
    """
    import pyarrow as pa

    rectangles: dict[str, Rectangles] = {}
    codes: dict[str, list[str]] = {}
    centers: dict[str, tuple[Any, Any]] = {}
    for end, role, tree in (("o", "origin", flows.origins), ("d", "destination", flows.destinations)):
        rows = _run(
            db,
            "SELECT zone, CAST(any_value(geometry) AS BLOB) FROM read_parquet(?, hive_partitioning = false) "
            f"WHERE role IN ('{role}', 'both') GROUP BY zone ORDER BY zone",
            [escape(str(place / "zones.parquet"))],
        )
        codes[end], found = [zone for zone, _ in rows], Rectangles.of([shape for _, shape in rows])
        centers[end] = _tile_centers(tree)
        if centers[end][0] is None:
            yield f"the input does not say where its {role} tiles lie, so nothing in boxes can be recounted"
            centers[end] = (np.full(tree.n_tiles, np.nan), np.full(tree.n_tiles, np.nan))
        counts = {
            f"{role} zones are not made of rectangles": int(np.sum(~found.sound)),
            f"{role} zones have edges off the declared grid": found.off_grid(claims["grid_lon"], claims["grid_lat"]),
            f"{role} zones have a code that does not say their bounds": found.misnamed(codes[end]),
        }
        for problem, n in counts.items():
            if n:
                yield f"zones.parquet: {n} {problem}"
        tiles = found.tile_counts(*centers[end])
        table = {
            "z": np.arange(len(rows)),
            "s": np.zeros(len(rows), dtype=np.int64),
            "zone": pa.array(codes[end], type=pa.string()),
            "node": pa.array(codes[end], type=pa.string(), mask=tiles == 0),
            "tiles": tiles,
            "level": np.zeros(len(rows), dtype=np.int32),
            # Not counted: what a box could hold cannot be listed.
            "possible": pa.nulls(len(rows), pa.int64()),
            "coarse": np.ones(len(rows), dtype=np.bool_),
        }
        _store(db, f"zone_{end}", pa.table(table))
        _run(
            db, f"CREATE TABLE member_{end} AS SELECT 0::BIGINT AS s, NULL::VARCHAR AS tile, z FROM zone_{end} LIMIT 0"
        )
        rectangles[end] = found
    pairs = _run(
        db,
        "SELECT DISTINCT o.z AS a, d.z AS b FROM published JOIN zone_o o ON origin_zone = o.zone "
        "JOIN zone_d d ON destination_zone = d.zone ORDER BY a, b",
    )
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    (lat_o, lon_o), (lat_d, lon_d) = centers["o"], centers["d"]
    flow, cell = flows_inside(
        rectangles["o"],
        rectangles["d"],
        (a, b),
        (lat_o[flows.origin], lon_o[flows.origin]),
        (lat_d[flows.destination], lon_d[flows.destination]),
    )
    _store(db, "inside", pa.table({"flow": flow.astype(np.int32), "a": a[cell], "b": b[cell]}))


def _tile_centers(tree: Hierarchy) -> tuple[Any, Any]:
    if tree.geography is None:
        return None, None
    leaves = np.flatnonzero(np.bincount(tree.parent[1:], minlength=len(tree.parent)) == 0)
    return tree.geography.centers(leaves.astype(np.int32))


# ---- cells -------------------------------------------------------------------------------------------------


def _group(db: Any, name: str, rows: str, *, people: bool, tiles: bool = False) -> None:
    """Count groups: ``rows`` has (flow, s, a, b, trips, weight), ``name`` gets (s, a, b, trips, weight) and more.

    ``people`` are the distinct persons, ``begin_tiles`` and ``end_tiles`` the distinct tiles in which the trips begin
    and end; each is empty where it is not asked for.
    """
    found = f"SELECT s, a, b, sum(trips)::BIGINT AS trips, sum(weight) AS weight FROM {rows} GROUP BY s, a, b"
    counted = (
        ("people", "person", "who", people),
        ("begin_tiles", "o", "(SELECT flow, o FROM raw)", tiles),
        ("end_tiles", "d", "(SELECT flow, d FROM raw)", tiles),
    )
    for column, member, source, asked in counted:
        if not asked:
            found = f"SELECT *, NULL::BIGINT AS {column} FROM ({found})"
            continue
        # Distinct rows first, then a plain count: a set of persons for each of a million cells is far slower.
        distinct = f"SELECT DISTINCT s, a, b, {member} FROM {rows} JOIN {source} USING (flow)"
        numbers = f"SELECT s, a, b, count(*) AS n FROM ({distinct}) GROUP BY s, a, b"
        found = f"SELECT g.*, coalesce(n, 0) AS {column} FROM ({found}) g LEFT JOIN ({numbers}) USING (s, a, b)"
    _run(db, f"CREATE OR REPLACE TABLE {name} AS {found}")


def _leave_out_hopeless(db: Any, claims: _Claims) -> None:
    """``rest``: the raw flows without those that the suppression rule takes out before cells are counted."""
    _run(db, "CREATE VIEW rest AS SELECT * FROM raw")
    if claims.suppression["rule"] != "hopeless flows":
        return
    _run(db, "CREATE TABLE lost AS SELECT flow FROM raw")
    top = max(_one(db, f"SELECT coalesce(max(top), 0) FROM up_{end}") for end in "od")
    for level in range(min(claims.suppression["levels"], top) + 1):
        _run(
            db,
            "CREATE OR REPLACE TABLE lifted AS SELECT flow, s, a.node AS a, b.node AS b, trips, weight FROM raw "
            f"JOIN (SELECT * FROM up_o WHERE step = least({level}, top)) a ON raw.o = a.tile "
            f"JOIN (SELECT * FROM up_d WHERE step = least({level}, top)) b ON raw.d = b.tile",
        )
        people, tiles = (claims.threshold(unit) is not None for unit in ("people", "locations"))
        _group(db, "lifted_cell", "lifted", people=people, tiles=tiles)
        _run(db, f"CREATE OR REPLACE TABLE good AS SELECT s, a, b FROM lifted_cell WHERE {_safe(claims)}")
        _run(
            db,
            "CREATE OR REPLACE TABLE lost AS SELECT flow FROM (SELECT * FROM lost JOIN lifted USING (flow)) "
            "ANTI JOIN good USING (s, a, b)",
        )
    volume = "trips" if claims.threshold("population") is None else "weight"
    # Python's product and floor, so that a share of rows is rounded as the method rounds it.
    limits = [
        (s, math.floor(n * claims.suppression["beta"])) for s, n in _run(db, "SELECT s, count(*) FROM raw GROUP BY s")
    ]
    _run(db, "CREATE TABLE allowance (s BIGINT, most BIGINT)")
    _run(db, f"INSERT INTO allowance VALUES {', '.join(f'({s}, {most})' for s, most in limits)}")
    _run(
        db,
        f"CREATE OR REPLACE TABLE lost AS SELECT flow FROM (SELECT flow, s, row_number() OVER (PARTITION BY s ORDER BY "
        f"{volume}, o, d) AS rank FROM raw SEMI JOIN lost USING (flow)) JOIN allowance USING (s) WHERE rank <= most",
    )
    _run(db, "CREATE OR REPLACE VIEW rest AS SELECT * FROM raw ANTI JOIN lost USING (flow)")


def _assign_flows(db: Any, claims: _Claims, flows: Flows) -> None:
    """``assigned``: the published cell of each raw flow; ``recount``: what each published cell holds."""
    _leave_out_hopeless(db, claims)
    _run(
        db,
        "CREATE TABLE cells AS SELECT DISTINCT o.z AS a, d.z AS b FROM published p "
        "JOIN zone_o o ON origin_zone = o.zone AND p.s = o.s JOIN zone_d d ON destination_zone = d.zone AND p.s = d.s",
    )
    if claims.shared:
        _leave_out_what_slices_hide(db)
    if claims.boxes is None:
        _run(
            db,
            "CREATE VIEW located AS SELECT flow, rest.s AS s, mo.z AS a, md.z AS b, trips, weight FROM rest "
            "JOIN member_o mo ON rest.o = mo.tile AND rest.s = mo.s "
            "JOIN member_d md ON rest.d = md.tile AND rest.s = md.s",
        )
    else:
        _run(db, "CREATE VIEW located AS SELECT flow, s, a, b, trips, weight FROM rest JOIN inside USING (flow)")
    _run(db, "CREATE TABLE assigned AS SELECT * FROM located SEMI JOIN cells USING (a, b)")
    tiles = claims.threshold("locations") is not None
    _group(db, "counted", "assigned", people=flows.people is not None, tiles=tiles)
    _run(
        db,
        "CREATE TABLE recount AS SELECT p.*, a, b, c.trips AS true_trips, c.weight AS true_weight, c.people, "
        "begin_tiles, end_tiles, "
        "o.tiles AS tiles_o, d.tiles AS tiles_d, o.coarse AS coarse_o, d.coarse AS coarse_d FROM published p "
        "JOIN zone_o o ON origin_zone = o.zone AND p.s = o.s "
        "JOIN zone_d d ON destination_zone = d.zone AND p.s = d.s LEFT JOIN counted c ON c.a = o.z AND c.b = d.z",
    )


def _leave_out_what_slices_hide(db: Any) -> None:
    """Coarser matrices over common zones are held against the rows that published cells of the finest slices count."""
    _run(
        db,
        "CREATE TABLE shown AS SELECT row FROM (SELECT row, mo.z AS a, md.z AS b FROM rows JOIN finest f USING (m) "
        "JOIN member_o mo ON rows.o = mo.tile AND f.s = mo.s JOIN member_d md ON rows.d = md.tile AND f.s = md.s) "
        "SEMI JOIN cells USING (a, b)",
    )
    _run(db, "DELETE FROM who WHERE flow IN (SELECT flow FROM raw ANTI JOIN finest USING (s))")
    _run(db, "DELETE FROM raw WHERE s NOT IN (SELECT s FROM finest)")
    _run(
        db,
        "INSERT INTO raw BY NAME SELECT row_number() OVER (ORDER BY s, o, d) + "
        "(SELECT coalesce(max(flow), 0) FROM raw) AS flow, * FROM (SELECT s, o, d, sum(trips)::BIGINT AS trips, "
        "sum(weight) AS weight FROM rows SEMI JOIN shown USING (row) "
        "JOIN (SELECT * FROM part ANTI JOIN finest USING (s)) USING (m) GROUP BY s, o, d)",
    )
    _run(
        db,
        "INSERT INTO who BY NAME SELECT DISTINCT flow, person FROM persons SEMI JOIN shown USING (row) JOIN rows "
        "USING (row) JOIN (SELECT * FROM part ANTI JOIN finest USING (s)) p USING (m) "
        "JOIN raw ON raw.s = p.s AND raw.o = rows.o AND raw.d = rows.d",
    )


def _check_outlines(place: Path, flows: Flows, *, boxes: bool = False, noisy: bool = False) -> Iterator[str]:
    # Zones of a noisy release are chosen from the whole map, whether somebody was seen in them or not.
    whole = flows.whole_map if noisy else None
    yield from check_outlines(place, whole or flows.origins, whole or flows.destinations, boxes=boxes, chosen=noisy)


def _check_cells(db: Any, claims: _Claims, flows: Flows) -> Iterator[str]:
    if claims.overlapping:
        yield from _check_overlapping_cells(db, claims, flows)
        return
    conditions = {
        "cells hold no flow of the input": "true_trips IS NULL",
        "cells have another number of trips than the recount": "true_trips <> trips",
    }
    if flows.weight is not None:
        conditions["cells have another weight than the recount"] = (
            f"true_trips IS NOT NULL AND (weight IS NULL OR isnan(weight) OR "
            f"abs(weight - true_weight) > {TOLERANCE} * greatest(1, true_weight))"
        )
    conditions |= {f"cells {shortfall}": f"true_trips IS NOT NULL AND {test}" for shortfall, test in _short(claims)}
    for problem, test in conditions.items():
        n = _one(db, f"SELECT count(*) FROM recount WHERE {test}")
        if n:
            yield f"flows.parquet: {n} {problem}"
    double = _one(db, "SELECT count(*) FROM (SELECT flow FROM assigned GROUP BY flow HAVING count(*) > 1)")
    if double:
        yield f"flows.parquet: {double} flows of the input fall into two published cells"
    if claims.homogeneous:
        _run(db, "CREATE TABLE elsewhere AS SELECT * FROM located ANTI JOIN cells USING (a, b)")
        tiles = claims.threshold("locations") is not None
        _group(db, "unpublished", "elsewhere", people=flows.people is not None, tiles=tiles)
        missing = _one(db, f"SELECT count(*) FROM unpublished WHERE {_safe(claims)}")
        if missing:
            yield f"flows.parquet: {missing} cells that reach the guarantee are missing"


def _check_overlapping_cells(db: Any, claims: _Claims, flows: Flows) -> Iterator[str]:
    """What must hold wherever the flows that lie in several boxes are counted.

    A cell holds no more than lies in its boxes. What lies in the boxes of one cell only is counted there or
    suppressed, so all that cells lack of it is no more than what is suppressed in total.
    """
    bases = ["trips"] if flows.weight is None else ["trips", "weight"]
    conditions = {"cells hold no flow of the input": "true_trips IS NULL"}
    for basis in bases:
        slack = f"{TOLERANCE} * greatest(1, true_{basis})" if basis == "weight" else "0"
        conditions[f"cells have more {basis} than lie in their boxes"] = f"{basis} - true_{basis} > {slack}"
    if flows.weight is not None:
        conditions["cells have no weight"] = "weight IS NULL OR isnan(weight)"
    _run(db, "CREATE TABLE box AS SELECT * FROM recount")
    # From here on a cell holds what it says: that it lies within its boxes is checked above.
    weight = "NULL::DOUBLE" if flows.weight is None else "weight"
    _run(
        db,
        f"CREATE OR REPLACE TABLE recount AS SELECT * REPLACE (trips AS true_trips, {weight} AS true_weight) FROM box",
    )
    for problem, test in conditions.items():
        n = _one(db, f"SELECT count(*) FROM box WHERE {test}")
        if n:
            yield f"flows.parquet: {n} {problem}"
    for shortfall, test in _short(claims):
        n = _one(db, f"SELECT count(*) FROM recount WHERE {test}")
        if n:
            yield f"flows.parquet: {n} cells {shortfall}"
    _run(
        db,
        "CREATE TABLE alone AS SELECT a, b, sum(trips) AS trips, sum(weight) AS weight FROM assigned SEMI JOIN "
        "(SELECT flow FROM assigned GROUP BY flow HAVING count(*) = 1) USING (flow) GROUP BY a, b",
    )
    for basis in bases:
        left = _one(db, f"SELECT (SELECT sum({basis}) FROM raw) - (SELECT sum({basis}) FROM published)") or 0
        lacking = _one(
            db,
            f"SELECT coalesce(sum(greatest(alone.{basis} - recount.{basis}, 0)), 0) FROM recount "
            "JOIN alone USING (a, b)",
        )
        whole = float(_one(db, f"SELECT coalesce(sum({basis}), 0) FROM raw"))
        rounding = TOLERANCE * max(1.0, whole) if basis == "weight" else 0.0
        if left < -rounding:
            yield f"flows.parquet: more {basis} are published than the input has"
        elif lacking > left + rounding:
            yield f"flows.parquet: cells lack more {basis} than are suppressed"


def _short(claims: _Claims) -> Iterator[tuple[str, str]]:
    """For each protected unit, how a cell falls short of it: in words and in SQL."""
    trips, people = claims.threshold("trips"), claims.threshold("people")
    population, locations = claims.threshold("population"), claims.threshold("locations")
    if trips is not None:
        yield f"have fewer than {trips} trips", f"true_trips < {_literal(trips)}"
    if people is not None:
        yield f"have fewer than {people} people", f"coalesce(people, 0) < {_literal(people)}"
    if population is not None:
        least = _literal(population * (1 - TOLERANCE))
        yield "have less than the population of the guarantee", f"coalesce(true_weight, 0) < {least}"
    if locations is not None:
        least = _literal(locations)
        yield (
            f"have trips that begin, or end, in fewer than {locations} tiles",
            f"coalesce(least(begin_tiles, end_tiles), 0) < {least}",
        )


# ---- the report --------------------------------------------------------------------------------------------


def _check_measures(db: Any, claims: _Claims, flows: Flows, *, sound: bool) -> Iterator[str]:
    """Hold the measures against the recount: those of each slice, and those of all finest slices together.

    Args:
        db: the database of the recount.
        claims: the report.
        flows: everything that was read.
        sound: whether tables and cells are those of a release; if not, losses of them mean nothing.
    """
    expected = ["trips"] if flows.weight is None else ["trips", "weight"]
    hopeless = claims.suppression["rule"] == "hopeless flows"
    count_pairs(
        lambda query: _run(db, query),
        boxes=claims.boxes is not None,
        lifted=claims.suppression["levels"] if hopeless else None,
    )
    if claims.overlapping:
        secret = {0} if _must_withhold_overlapping(db, claims) else set()
    else:
        _list_suppressed(db)
        secret = _must_withhold(db, claims, flows)
    if not claims.slices:
        yield from _check_bases(db, claims, claims.measures, expected, where="true", withhold=bool(secret))
        few = _few_coarse_zones(db, "true")
        yield from _check_error(claims.measures, secret=few)
        if sound:
            yield from check_measures(db, claims, flows, secret=secret, of_totals=bool(secret), few_zones=(few, few))
        return
    # What slices keep to themselves for having merged few cells must not follow from the losses of all.
    _run(
        db,
        "CREATE TABLE few_merged AS SELECT s FROM recount GROUP BY s HAVING bool_or(coarse_o OR coarse_d) "
        f"AND count(*) FILTER (tiles_o * tiles_d > 1) < {_FEWEST_MERGED}",
    )
    numbers = {tuple(key): s for *key, s in _run(db, "SELECT * FROM slice")}
    finest = {s for (s,) in _run(db, "SELECT s FROM finest")}
    if len(finest) < len(numbers):
        # Beside coarser matrices a suppressed volume is one more number to subtract cells from: none may be told.
        absent = _one(db, "SELECT count(*) FROM raw_slice ANTI JOIN finest USING (m)")
        of_totals = bool(absent or _one(db, "SELECT count(*) FROM suppressed"))
        secret = set(numbers.values()) if of_totals else set()
    else:
        closed = {
            numbers[part.key]
            for part in claims.slices
            if part.key in numbers and part.measures.get("trips", {}).get("suppressed_share") is None
        }
        of_totals = _must_withhold_overall(db, claims, flows, secret | closed)
    for part in claims.slices:
        s = numbers.get(part.key)
        if s is not None:
            yield from _check_bases(db, claims, part.measures, expected, where=f"s = {s}", withhold=s in secret)
    # Each slice adds an equation between the numbers of tiles seen in the same zones.
    few = any(_few_coarse_zones(db, f"s = {s}") for s in numbers.values())
    few = few or _few_coarse_zones(db, "true", errors=len(numbers))
    for part in claims.slices:
        yield from _check_error(part.measures, secret=few)
    where = "s IN (SELECT s FROM finest)" if finest else "true"
    few_overall = _few_coarse_zones(db, where)
    yield from _check_error(claims.measures, secret=few_overall)
    yield from _check_bases(
        db,
        claims,
        claims.measures,
        expected,
        where=where,
        withhold=of_totals,
        among=f"{where} AND s IN (SELECT s FROM few_merged)",
        unpublished="SELECT trips, weight FROM rows ANTI JOIN finest USING (m)",
    )
    if sound:
        yield from check_measures(
            db, claims, flows, secret=secret, of_totals=of_totals, few_zones=(few, few_overall), numbers=numbers
        )


def _check_bases(
    db: Any,
    claims: _Claims,
    measures: Mapping[str, Mapping[str, Any]],
    expected: Sequence[str],
    *,
    where: str,
    withhold: bool,
    among: str | None = None,
    unpublished: str = "SELECT 0 AS trips, 0 AS weight WHERE false",
) -> Iterator[str]:
    if sorted(measures) != expected:
        yield f"report.json: measures are not given by {' and by '.join(expected)}"
    counted = _recounted_measures(db, claims, where)
    merged, coarse = _run(
        db,
        "SELECT count(*) FILTER (tiles_o * tiles_d > 1), count(*) FILTER (coarse_o OR coarse_d) FROM recount "
        f"WHERE {among or where}",
    )[0]
    few_merged = coarse > 0 and merged < _FEWEST_MERGED
    for basis in sorted(set(expected) & set(measures)):
        said = measures[basis]
        if claims.overlapping:
            most = counted["k_people"]
            if (_number(said.get("k_people")) or 0) > (most or 0):
                yield f"report.json: k_people by {basis} is more than lie in the boxes of a cell"
        for name, value in counted.items():
            if claims.overlapping and name in ("k_people", "cells_under_k_people"):
                continue
            if not _agrees(said.get(name), value):
                yield f"report.json: {name} by {basis} contradicts the recount"
        share = said.get("suppressed_share")
        if share is not None and not _agrees(share, _suppressed_share(db, basis, where, unpublished)):
            yield f"report.json: suppressed_share by {basis} contradicts the recount"
        if few_merged and any(said.get(name) is not None for name in _TELL_INSIDE):
            yield f"report.json: too few cells are merged to tell losses and distances by {basis}; withhold them"
        told = [name for name in _TELL_SUPPRESSED if said.get(name) is not None]
        if withhold and told:
            yield f"report.json: too little is suppressed to tell {', '.join(told)} by {basis}; withhold them"


def _few_coarse_zones(db: Any, where: str, *, errors: int = 1) -> bool:
    """Whether few zones of a role may hold several tiles: then so many mean errors would tell how many were seen."""
    found = _run(
        db,
        "SELECT count(DISTINCT origin_zone) FILTER (coarse_o), count(DISTINCT destination_zone) FILTER (coarse_d) "
        f"FROM recount WHERE {where}",
    )[0]
    return any(0 < n < _FEWEST_MERGED * errors for n in found)


def _check_error(measures: Mapping[str, Mapping[str, Any]], *, secret: bool) -> Iterator[str]:
    """The mean generalisation error counts tiles that were seen: four digits, and nothing of it where zones are few."""
    for basis, said in sorted(measures.items()):
        told = [name for name in _TELL_SEEN if said.get(name) is not None]
        if secret and told:
            yield (
                f"report.json: too few zones may hold more than one tile to tell {', '.join(told)} by {basis}; "
                "withhold them"
            )
        error = _number(said.get("mean_generalization_error"))
        if error is not None and error != float(f"{error:.4g}"):
            yield f"report.json: the mean generalisation error by {basis} has more than four digits"


def _recounted_measures(db: Any, claims: _Claims, where: str) -> dict[str, float | None]:
    k = _literal(claims.k)
    names = {
        "n_cells": "count(*)",
        "n_origin_zones": "count(DISTINCT origin_zone)",
        "n_destination_zones": "count(DISTINCT destination_zone)",
        "k_trips": "min(true_trips)",
        "cells_under_k_trips": f"count(*) FILTER (true_trips < {k})",
        "k_people": "min(people)",
        "cells_under_k_people": f"CASE WHEN count(people) > 0 THEN count(*) FILTER (people < {k}) END",
        "k_population": "min(true_weight)",
    }
    row = _run(db, f"SELECT {', '.join(names.values())} FROM recount WHERE {where}")[0]
    return dict(zip(names, row, strict=True))


def _agrees(said: Any, counted: float | None) -> bool:
    if said is None or counted is None:
        return said is None and counted is None
    number = _number(said)
    return number is not None and abs(number - counted) <= TOLERANCE * max(1.0, abs(counted))


def _suppressed_share(db: Any, basis: str, where: str, unpublished: str) -> float:
    outside = _one(db, f"SELECT coalesce(sum({basis}), 0)::DOUBLE FROM ({unpublished})")
    whole = _one(db, f"SELECT coalesce(sum({basis}), 0)::DOUBLE FROM raw WHERE {where}") + outside
    part = _one(db, f"SELECT coalesce(sum({basis}), 0)::DOUBLE FROM suppressed WHERE {where}") + outside
    return float(part / whole) if whole else 0.0


def _list_suppressed(db: Any) -> None:
    """``suppressed``: the raw flows of published slices that are in no published cell."""
    _run(
        db,
        "CREATE TABLE suppressed AS SELECT flow, s, 0 AS a, 0 AS b, trips, weight, o, d FROM raw "
        "ANTI JOIN assigned USING (flow)",
    )


def _must_withhold(db: Any, claims: _Claims, flows: Flows) -> set[int]:
    """The slices in which too little is suppressed to tell its total.

    Too little is: less than a safe cell, or fewer than three flows or cells. Too much is as bad, where it fills the
    pairs that are not listed; see `flowveil.verify.unlisted`.
    """
    _group(db, "together", "suppressed", people=flows.people is not None)
    counts = f"SELECT s, count(*) < {_FEWEST_SUPPRESSED} AS few FROM suppressed GROUP BY s"
    short = f"SELECT s FROM together JOIN ({counts}) USING (s) WHERE few OR NOT {_safe(claims, locations=False)}"
    found = {s for (s,) in _run(db, short)} | slices_within_reach(lambda query: _run(db, query), _thresholds(claims))
    if claims.suppression["rule"] == "short cells" and claims.homogeneous:
        # Cells can be counted only where the zones of both ends are published.
        found |= {
            s
            for (s,) in _run(
                db,
                "SELECT u.s FROM suppressed u LEFT JOIN member_o mo ON o = mo.tile AND u.s = mo.s "
                "LEFT JOIN member_d md ON d = md.tile AND u.s = md.s GROUP BY u.s "
                "HAVING bool_and(mo.z IS NOT NULL AND md.z IS NOT NULL) "
                f"AND count(DISTINCT (mo.z, md.z)) < {_FEWEST_SUPPRESSED}",
            )
        }
    return found


def _must_withhold_overall(db: Any, claims: _Claims, flows: Flows, secret: set[int]) -> bool:
    """Whether a total of slices would tell what slices withhold: their sum follows by subtraction.

    Where persons are known, that sum must be k people's like any slice.
    """
    listed = ", ".join(map(str, sorted(secret))) or "-1"
    _run(
        db,
        "CREATE TABLE pool AS SELECT row, 0 AS s, 0 AS a, 0 AS b, trips, weight FROM rows ANTI JOIN finest USING (m) "
        "UNION ALL SELECT row, 0, 0, 0, rows.trips, rows.weight FROM rows JOIN finest USING (m) "
        f"JOIN suppressed u ON u.s = finest.s AND u.o = rows.o AND u.d = rows.d WHERE finest.s IN ({listed})",
    )
    n = _one(db, "SELECT count(*) FROM pool")
    if n == 0:
        return False
    _run(db, "DROP TABLE who")
    _run(db, "CREATE TABLE who AS SELECT row AS flow, person FROM persons")
    _run(db, "ALTER TABLE pool RENAME COLUMN row TO flow")
    _group(db, "together", "pool", people=flows.people is not None)
    enough = _safe(claims, locations=False)
    if flows.people is not None:
        enough = f"{enough} AND people >= {_literal(claims.k)}"
    absent = _one(db, "SELECT count(*) FROM raw_slice ANTI JOIN finest USING (m)")
    pairs = _one(db, f"SELECT coalesce(sum(c), 0) FROM unlisted WHERE s IN ({listed})")
    reaches = reaches_all_pairs(_thresholds(claims), str(absent + pairs))
    if not secret:
        # Unpublished slices alone: more than each can hold, if it were short, is certain of none.
        reaches = f"{reaches} AND NOT {reaches_all_pairs(_thresholds(claims), str(absent + 1))}"
    return bool(n < _FEWEST_SUPPRESSED or _one(db, f"SELECT NOT ({enough}) OR ({reaches}) FROM together"))


def _must_withhold_overlapping(db: Any, claims: _Claims) -> bool:
    """The same as far as totals tell it: which flows are suppressed, or whose, cannot be known."""
    weight = "weight" if _one(db, "SELECT count(weight) FROM raw") else "NULL::DOUBLE AS weight"
    _run(
        db,
        "CREATE TABLE suppressed AS SELECT 0 AS s, r.trips - p.trips AS trips, r.weight - p.weight AS weight, "
        f"{_literal(math.inf)} AS people FROM (SELECT sum(trips) AS trips, sum(weight) AS weight FROM raw) r, "
        f"(SELECT sum(trips) AS trips, sum(weight) AS weight FROM (SELECT trips, {weight} FROM published)) p",
    )
    trips = _one(db, "SELECT trips FROM suppressed")
    if not trips:
        return False
    _run(db, "CREATE TABLE together AS SELECT * REPLACE (NULL::DOUBLE AS people) FROM suppressed")
    filled = slices_within_reach(lambda query: _run(db, query), _thresholds(claims))
    return bool(filled or not _one(db, f"SELECT {_safe(claims, locations=False)} FROM suppressed"))


def _thresholds(claims: _Claims) -> dict[str, str | None]:
    known = {unit: claims.threshold(unit) for unit in _UNITS}
    return {"k": _literal(max(claims.k, 1)), **{u: None if v is None else _literal(v) for u, v in known.items()}}
