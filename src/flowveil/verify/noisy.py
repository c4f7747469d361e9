"""The check of a written noisy release: its form, and that it tells nothing without noise.

Noisy counts cannot be recounted: whoever could tell the noise from the count would have broken the promise. What can be
checked is that the folder is the one that was written, that it has the form of its promise, that its report tells
nothing that only the true counts could tell, and, for whoever has the raw trips, that what was added to them can be
noise of the stated law (`flowveil.verify.law`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.verify.files import read_json
from flowveil.verify.law import check_law

if TYPE_CHECKING:
    from flowveil.flows import Flows

_FLOW_COLUMNS = {"origin_zone": "VARCHAR", "destination_zone": "VARCHAR", "trips": "BIGINT"}
_ZONE_COLUMNS = ("zone", "role", "level", "tiles", "area_km2", "lat", "lon", "geometry")
#: The measures that follow from the published table; any other number would tell about the true counts.
_TOLD = {
    "n_cells": "rows",
    "n_origin_zones": "origins",
    "n_destination_zones": "destinations",
    "published_trips": "trips",
}
#: What a report, its promise and its domain may hold: each of these follows from the table or from what was chosen.
_REPORT_KEYS = {
    "version", "kind", "method", "parameters", "guarantee", "homogeneous", "boxes", "suppression", "measures",
    "withheld", "statement", "notes", "command", "basemap",
}  # fmt: skip
_PROMISE_KEYS = {
    "unit", "epsilon", "delta", "bound", "mechanism", "scale", "deviation", "threshold", "domain",
}  # fmt: skip
_DOMAIN_KEYS = {"level", "region", "pairs", "zones", "zones_from_data"}
_TOLERANCE = 1e-9
#: With a larger ε hardly a count gets any noise.
_LARGEST_EPSILON = 20
_BATCH_ROWS = 1 << 18
#: Splits of a person's trips are tried up to this many; beyond, the two that can be worst.
_MOST_SPLITS = 100_000


def claims_noise(folder: Path) -> bool:
    """Whether the report of a folder promises differential privacy."""
    try:
        report = read_json(folder / "report.json")
        return "epsilon" in report["guarantee"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def verify_noise(folder: Path, flows: Flows, database: Any, *, law: bool = True) -> Iterator[str]:
    """Check the form of a noisy release, and whether its numbers can be noise on the raw counts.

    Args:
        folder: the release; its report can be read.
        flows: the flows it was made from.
        database: an empty DuckDB database.
        law: whether the numbers are looked at.

    Yields:
        One plain line for each contradiction.
    """
    report = read_json(folder / "report.json")
    promise = report["guarantee"]
    problems = list(_check_promise(promise, flows))
    yield from problems
    if problems:
        return
    found = list(_check_columns(database, folder))
    yield from found
    if found:
        return
    seen, problems = _read_flows(database, folder, promise)
    problems += _check_zones(database, folder, promise, seen)
    problems += _check_report(report, seen)
    yield from problems
    if law and not problems:
        yield from check_law(folder, promise, flows, database)


def _check_promise(promise: Mapping[str, Any], flows: Flows) -> Iterator[str]:
    numbers: list[Any] = [promise.get(name) for name in ("epsilon", "delta", "bound", "scale")]
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in numbers):
        yield "report.json: ε, δ, the bound or the scale of the noise is missing or not a number"
        return
    if not isinstance(promise.get("domain"), dict) or not isinstance(promise.get("mechanism"), str):
        yield "report.json: the domain or the mechanism is not told"
        return
    epsilon, delta, bound, scale = numbers
    if epsilon <= 0 or not 0 <= delta < 1 or bound < 1 or scale <= 0:
        yield "report.json: ε, δ, the bound or the scale of the noise is out of its range"
        return
    if epsilon > _LARGEST_EPSILON:
        yield f"report.json: ε is above {_LARGEST_EPSILON}: noise that small hides nothing"
    if epsilon * scale < bound * (1 - _TOLERANCE):
        yield "report.json: noise of this scale does not keep the ε that is promised"
    expected = "trip" if flows.people is None else "person"
    if promise.get("unit") != expected:
        yield f"report.json: the unit is not '{expected}', which is what the input allows"
    if expected == "trip" and bound != 1:
        yield "report.json: the unit is a trip, but the bound is not 1"
    threshold = promise.get("threshold")
    if delta == 0:
        if threshold is not None:
            yield "report.json: a threshold is told, though δ is 0"
    elif isinstance(threshold, bool) or not isinstance(threshold, int):
        yield "report.json: δ is above 0, but no threshold is told"
    elif _chance_of_showing(threshold, int(bound), scale) > delta * (1 + _TOLERANCE):
        yield "report.json: the threshold lets a person's pairs show more often than δ"


def _chance_of_showing(threshold: int, bound: int, scale: float) -> float:
    """The largest sum of P(c + X >= threshold) over pairs that one person can fill alone, split by split."""
    q = math.exp(-1 / scale)

    def tail(least: Any) -> Any:
        m = np.asarray(least, dtype=np.float64)
        up, down = q ** np.maximum(m, 1), q ** np.maximum(1 - m, 1)
        return np.where(m >= 1, up / (1 + q), 1 - down / (1 + q))

    pairs = np.arange(1, bound + 1) if bound <= _MOST_SPLITS else np.array([1, bound])
    return float(np.max((pairs - 1) * tail(threshold - 1) + tail(threshold - (bound - pairs + 1))))


def _check_columns(db: Any, folder: Path) -> Iterator[str]:
    import duckdb

    for name, columns in (("flows.parquet", list(_FLOW_COLUMNS)), ("zones.parquet", list(_ZONE_COLUMNS))):
        try:
            rows = db.execute(f"DESCRIBE SELECT * FROM {_SOURCE}", [escape(str(folder / name))]).fetchall()
        except duckdb.Error:
            yield f"{name}: cannot be read"
            continue
        kinds = {column: kind for column, kind, *_ in rows}
        wrong = [c for c, kind in _FLOW_COLUMNS.items() if c in columns and kinds.get(c) != kind]
        if list(kinds) != columns or wrong:
            yield f"{name}: its columns are not {', '.join(columns)} in their types"


#: The folder's name is a name, not a pattern, and 'k=10' in it is not a column.
_SOURCE = "read_parquet(?, hive_partitioning = false)"


class _Seen:
    """What the published table came to, read once from the first row to the last."""

    def __init__(self) -> None:
        self.rows = 0
        self.trips = 0
        self.codes: dict[str, set[str]] = {"origin": set(), "destination": set()}

    def counted(self) -> dict[str, int]:
        return {
            "rows": self.rows,
            "trips": self.trips,
            "origins": len(self.codes["origin"]),
            "destinations": len(self.codes["destination"]),
        }


def _read_flows(db: Any, folder: Path, promise: Mapping[str, Any]) -> tuple[_Seen, list[str]]:
    """Read the table a batch at a time: it may have many millions of rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    least = promise["threshold"] or 1
    seen, unsorted, short, empty = _Seen(), 0, 0, 0
    last: Any = None
    relation = db.sql(f"SELECT * FROM {_SOURCE}", params=[escape(str(folder / "flows.parquet"))])
    reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    for batch in reader(_BATCH_ROWS):
        rows = pa.Table.from_batches([batch])
        seen.rows += rows.num_rows
        empty += sum(column.null_count for column in rows.columns)
        short += pc.sum(pc.less(rows["trips"], least)).as_py() or 0
        seen.trips += pc.sum(rows["trips"]).as_py() or 0
        for role, codes in seen.codes.items():
            codes.update(pc.unique(rows[f"{role}_zone"]).to_pylist())
        ends = rows.select(["origin_zone", "destination_zone"])
        ends = ends if last is None else pa.concat_tables([last, ends])
        (a, b), n = (ends.column(i).combine_chunks() for i in (0, 1)), len(ends)
        if n > 1:
            up = pc.or_(pc.less(a[:-1], a[1:]), pc.and_(pc.equal(a[:-1], a[1:]), pc.less(b[:-1], b[1:])))
            unsorted += n - 1 - (pc.sum(up).as_py() or 0)
        last = ends.slice(n - 1) if n else last
    problems = []
    if empty:
        problems.append("flows.parquet: has empty fields")
    if short:
        problems.append(f"flows.parquet: {short} rows have fewer trips than may be published")
    if unsorted:
        problems.append("flows.parquet: not sorted by origin_zone and destination_zone, or rows stand twice")
    return seen, problems


def _check_zones(db: Any, folder: Path, promise: Mapping[str, Any], seen: _Seen) -> Iterator[str]:
    query = f"SELECT zone, role FROM {_SOURCE}"
    rows = db.execute(query, [escape(str(folder / "zones.parquet"))]).fetchall()
    for role, used in seen.codes.items():
        listed = [zone for zone, r in rows if r in (role, "both")]
        if len(listed) != len(set(listed)):
            yield f"zones.parquet: {role} zones stand twice"
        if used - set(listed):
            yield f"zones.parquet: {len(used - set(listed))} {role} zones of flows.parquet are missing"
        if set(listed) - used:
            yield f"zones.parquet: {len(set(listed) - used)} {role} zones are not used by any published flow"
    strange = [role for _, role in rows if role not in ("origin", "destination", "both")]
    if strange:
        yield f"zones.parquet: {len(strange)} rows have another role than origin, destination or both"
    yield from _check_region(promise, {str(zone) for zone, _ in rows})


def _check_region(promise: Mapping[str, Any], zones: set[str]) -> Iterator[str]:
    """Whether H3 zones have the level and lie in the region that the report tells."""
    region, level = promise["domain"].get("region"), promise["domain"].get("level")
    try:
        cells = [int(zone, 16) for zone in zones]
        places = {int(place, 16) for place in region or ()}
    except (TypeError, ValueError):
        return
    if not isinstance(level, int) or not places or not all(c >> 59 == 1 for c in places):
        return
    if any(c >> 52 & 15 != level for c in cells):
        yield "zones.parquet: zones have another resolution than the report says"
        return
    steps = {place >> 52 & 15 for place in places}
    outside = sum(all(_lifted(c, r) not in places for r in steps) for c in cells)
    if outside:
        yield f"zones.parquet: {outside} zones lie outside the region"


def _lifted(cell: int, resolution: int) -> int:
    """The cell's ancestor: its resolution replaced, and all digits below set."""
    return cell & ~(15 << 52) | resolution << 52 | (1 << 3 * (15 - resolution)) - 1


def _check_report(report: Mapping[str, Any], seen: _Seen) -> Iterator[str]:
    measures = report.get("measures")
    if not isinstance(measures, dict) or list(measures) != ["trips"] or not isinstance(measures["trips"], dict):
        yield "report.json: measures are not given by trips alone"
        return
    counted = seen.counted()
    for name, of in _TOLD.items():
        if measures["trips"].get(name) != counted[of]:
            yield f"report.json: {name} contradicts the published table"
    told = sorted(name for name, value in measures["trips"].items() if value is not None and name not in _TOLD)
    if told:
        yield f"report.json: {', '.join(told)} would tell about the true counts; withhold them"
    promise = report["guarantee"]
    known = ((report, _REPORT_KEYS), (promise, _PROMISE_KEYS), (promise["domain"], _DOMAIN_KEYS))
    strange = sum(len(set(told) - allowed) for told, allowed in known)
    if strange:
        yield f"report.json: {strange} entries that a noisy release does not have may depend on the true counts"
    if promise["domain"].get("zones_from_data") and "zones" in promise["domain"]:
        yield "report.json: the number of zones with trips is told, which is a count without noise"
    if report.get("notes"):
        yield "report.json: notes are told, which may depend on the true counts"
    if report.get("parameters", {}).get("options", {}).get("unsafe_seed_for_tests") is not None:
        yield "report.json: the noise was drawn from a seed and hides nothing"
