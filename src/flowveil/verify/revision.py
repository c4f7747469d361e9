"""A revised release: which cells may have a new value, recounted, and the others held against the earlier releases.

The earlier trips are not at hand, only what was published of them. So the fewest persons and tiles that can be behind a
change are worked out from the trips as they are now: trips that were added are among them.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.paths import open_regular
from flowveil.verify.claims import Claims, read_report
from flowveil.verify.database import Database, literal
from flowveil.verify.exports import EXPORTS
from flowveil.verify.files import check_folder
from flowveil.verify.units import SUMMED, UNITS, UNSHOWN

if TYPE_CHECKING:
    from flowveil.flows import Flows

#: What is said where the earlier releases are not at hand.
NOT_COMPARED = (
    "flows.parquet: cells that are not revised are said to be those of an earlier release, which was not given, so "
    "they were not compared with it. Hint: --revision EARLIER."
)
#: What a revision has in common with the releases that it revises.
_SAME = (
    "k", "protect", "k_population", "l", "resolution", "same_zones", "within", "outside", "during",
    "timezone", "hierarchy",)  # fmt: skip
#: The measures that follow from the published table.
_COUNTED = {
    "n_cells": "count(*)",
    "n_origin_zones": "count(DISTINCT origin_zone)",
    "n_destination_zones": "count(DISTINCT destination_zone)",
    "k_trips": "min(trips)",
    "cells_under_k_trips": "count(*) FILTER (trips < {k})",
}
#: All others: of trips that are not all published.
WITHHELD = {
    "c_avg",
    "c_dm",
    "distribution_distance",
    "floor_generalization_error",
    "floor_ratio",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "mean_generalization_error",
    "reconstruction_loss",
    "suppressed_share",
    *(f"cells_under_k_{name}" for name in UNITS if name != "trips"),
    *(f"k_{name}" for name in UNSHOWN),
}


def releases_of(entry: Mapping[str, Any]) -> list[str]:
    """The folders of a step: its first release, then its revisions."""
    return [entry["step"], *(f"{entry['step']}-r{n + 1}" for n in range(entry["revisions"]))]


def check_revision(
    db: Database, claims: Claims, flows: Flows, earlier: Sequence[Any] | None, unread: list[str]
) -> Iterator[str]:
    """Hold the marks of a revision, the values that were kept and the measures against the earlier releases.

    Args:
        db: with ``held``: each published cell, and what lies in its zones.
        claims: the report.
        flows: the trips as they are now.
        earlier: the folders of the releases that are revised, the oldest first; None where they are not at hand.
        unread: gets a line where they are not.
    """
    if (
        claims.kind != "plain"
        or claims.levels is not None
        or not claims.homogeneous
        or _has_rules(claims.parameters)
        or claims.report.get("closeness") is not None
        or claims.report.get("between_areas") is not None
    ):
        yield "report.json: this release cannot be a revision"
        return
    weighed = flows.weight is not None
    if ("weight" in claims.measures) != weighed or (claims.threshold("population") is not None and not weighed):
        yield "report.json: a revision says weights, or says none, other than its input"
        return
    if claims.threshold("population") is not None and not claims.population_is_given:
        yield "report.json: a revision cannot have a threshold of k mean weights"
    if any(column in SUMMED and claims.threshold(name) is not None for name, column in UNSHOWN.items()):
        yield "report.json: a revision cannot protect what the earlier release does not show"
    yield from _check_measures(db, claims)
    short = {
        "trips": claims.threshold("trips"),
        "weight": claims.threshold("population"),
    }
    tests = " OR ".join(f"{name} < {literal(least)}" for name, least in short.items() if least is not None)
    n = db.one(f"SELECT count(*) FROM published WHERE revised IS NULL OR {tests or 'false'}")
    if n:
        yield f"flows.parquet: {n} cells fall short, or do not say whether they are revised"
    if earlier is None:
        unread.append(NOT_COMPARED)
        return
    if claims.threshold("people") is not None and flows.people is None:
        return  # A finding already.
    problems, tables = _read_all(claims, [Path(folder) for folder in earlier])
    yield from problems
    if not problems:
        yield from _check_against(db, claims, flows, tables)


def _check_measures(db: Database, claims: Claims) -> Iterator[str]:
    said = claims.measures
    queries = {name: query.format(k=literal(claims.k)) for name, query in _COUNTED.items()}
    if "weight" in said:
        queries["k_population"] = "min(weight)"
    counted = dict(zip(queries, db.rows(f"SELECT {', '.join(queries.values())} FROM published")[0], strict=True))
    for basis, measures in said.items():
        wrong = [name for name, value in measures.items() if value != counted.get(name)]
        if wrong:
            yield f"report.json: {', '.join(sorted(wrong))} by {basis} are not what a revision says"
    if claims.report["notes"] or any(set(names) != WITHHELD for names in claims.withheld().values()):
        yield "report.json: a revision withholds other measures than it says, or has notes"
    if not claims.withheld():
        yield "report.json: a revision does not say what it withholds"


def _read_all(claims: Claims, folders: Sequence[Path]) -> tuple[list[str], list[Any]]:
    """The cells of the earlier releases; or why they are not those of this revision."""
    import pyarrow.parquet as pq

    hashes: list[str] = []
    tables: list[Any] = []
    for n, folder in enumerate(folders):
        if not folder.is_dir() or check_folder(folder, exports=EXPORTS):
            return [f"earlier release {n + 1}: is not as it was published"], []
        report, findings = read_report(folder)
        if report is None or findings:
            return [f"earlier release {n + 1}: cannot be read"], []
        if _differs(report, claims.report) or list(report["parameters"].get("revision_of", ())) != hashes:
            return [f"earlier release {n + 1}: is none that this one can revise"], []
        with open_regular(folder / "flows.parquet") as file:
            content = file.read()
        hashes.append(hashlib.sha256(content).hexdigest())
        tables.append(pq.read_table(io.BytesIO(content)))
    if hashes != list(claims.parameters["revision_of"]):
        return ["report.json: revises other releases than those that were given"], []
    if any(("weight" in table.column_names) != ("weight" in claims.measures) for table in tables):
        return ["report.json: revises releases of other units"], []
    return [], tables


def _differs(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    same = all(before["parameters"].get(name) == now["parameters"].get(name) for name in _SAME)
    plain = before["kind"] == "plain" and before["homogeneous"] and before["suppression"]["rule"] == "short cells"
    return not (same and plain and not _has_rules(before["parameters"]))


def _has_rules(parameters: Mapping[str, Any]) -> bool:
    """Whether cells were suppressed, or locations counted, by what a change cannot be held against."""
    return any(name in parameters for name in ("dominance", "stricter", "l_places"))


def _check_against(db: Database, claims: Claims, flows: Flows, tables: Sequence[Any]) -> Iterator[str]:
    """Compare every cell with each earlier release, and recount whether it may be revised."""
    weighed = "weight" in claims.measures
    for n, table in enumerate(tables):
        columns = {
            "origin_zone": table["origin_zone"],
            "destination_zone": table["destination_zone"],
            "was": table["trips"],
        }
        db.store(f"earlier_{n}", table.from_pydict(columns | ({"weighed": table["weight"]} if weighed else {})))
    lost = db.one(
        f"SELECT count(*) FROM earlier_{len(tables) - 1} ANTI JOIN held USING (origin_zone, destination_zone)"
    )
    if lost:
        yield f"flows.parquet: {lost} cells of the earlier release are missing"
    _count_members(db, claims, flows)
    # What is published now is safe; a cell that was never published has no change that anybody could compute.
    may = [f"coalesce(true_trips, 0) > 0 AND {_reaches(claims)}"]
    joined, last = "held LEFT JOIN most USING (a, b)", len(tables) - 1
    for n in range(len(tables)):
        joined += f" LEFT JOIN earlier_{n} e{n} USING (origin_zone, destination_zone)"
        same = _same(n, weighed=weighed)
        may.append(f"(e{n}.was IS NULL OR {same} OR {_safe_change(claims, n)})")
    may.append(f"NOT coalesce(e{last}.was IS NOT NULL AND {_same(last, weighed=weighed)}, false)")
    allowed = " AND ".join(f"coalesce({test}, false)" for test in may)
    kept = f"e{last}.was = trips" + (f" AND e{last}.weighed = weight" if weighed else "")
    for problem, test in {
        "cells are revised although the change by itself falls short, or not although it does not": (
            f"revised <> ({allowed})"
        ),
        "cells are not revised and have another value than in the earlier release": (
            f"NOT revised AND NOT coalesce({kept}, false)"
        ),
    }.items():
        found = db.one(f"SELECT count(*) FROM {joined} WHERE {test}")
        if found:
            yield f"flows.parquet: {found} {problem}"


def _same(n: int, *, weighed: bool) -> str:
    return f"(true_trips = e{n}.was" + (f" AND true_weight = e{n}.weighed)" if weighed else ")")


def _safe_change(claims: Claims, n: int) -> str:
    """SQL: whether the change since an earlier release reaches every threshold."""
    more = f"(true_trips - e{n}.was)"
    terms = [f"{more} <> 0"]
    if claims.threshold("trips") is not None:
        terms.append(f"abs({more}) >= {literal(claims.threshold('trips'))}")
    if claims.threshold("population") is not None:
        heavier = f"abs(round(true_weight * 1e6) - round(e{n}.weighed * 1e6)) / 1e6"
        terms.append(f"{heavier} >= {literal(claims.threshold('population'))}")
    terms += [f"{column} < {more}" for column in _bounded(claims)]
    return f"({' AND '.join(terms)})"


def _reaches(claims: Claims) -> str:
    """SQL: whether what lies in the zones of a cell now reaches the guarantee."""
    terms = [
        f"coalesce({unit.recounted}, 0) >= {literal(claims.threshold(name))}"
        for name, unit in UNITS.items()
        if claims.threshold(name) is not None
    ]
    if claims.threshold("locations") is not None:
        terms.append(f"least(begin_tiles, end_tiles) >= {literal(claims.threshold('locations'))}")
    # A report that protects nothing is a finding already.
    return " AND ".join(terms) or "false"


def _bounded(claims: Claims) -> list[str]:
    """The columns of ``most``: the most trips of a cell that too few members can have made."""
    people = ["by_people"] if claims.threshold("people") is not None else []
    return people + (["by_begin", "by_end"] if claims.threshold("locations") is not None else [])


def _count_members(db: Database, claims: Claims, flows: Flows) -> None:
    """``most`` (a, b, ...): the most trips of a cell that one member fewer than the guarantee asks for can make."""
    import pyarrow as pa

    made: dict[str, tuple[str, float]] = {}
    if claims.threshold("people") is not None:
        people = flows.people
        assert people is not None
        assert people.trips is not None
        db.store("person_trips", pa.table({"flow": people.cell, "member": people.person, "made": people.trips}))
        made["by_people"] = ("person_trips", claims.threshold("people") or 0)
    if claims.threshold("locations") is not None:
        least = claims.threshold("locations") or 0
        made["by_begin"] = ("(SELECT flow, o AS member, trips AS made FROM raw)", least)
        made["by_end"] = ("(SELECT flow, d AS member, trips AS made FROM raw)", least)
    found = "SELECT a, b, sum(trips) AS held FROM assigned GROUP BY a, b"
    for column, (rows, least) in made.items():
        each = f"SELECT a, b, member, sum(made) AS made FROM assigned JOIN {rows} USING (flow) GROUP BY a, b, member"
        ranked = f"SELECT *, row_number() OVER (PARTITION BY a, b ORDER BY made DESC) AS rank FROM ({each})"
        # Trips of nobody known may be anybody's, so they are counted as made by those few.
        top = f"coalesce(sum(made) FILTER (rank < {literal(least)}), 0)"
        few = f"SELECT a, b, {top} - sum(made) AS rest FROM ({ranked}) GROUP BY a, b"
        found = (
            f"SELECT f.*, f.held + coalesce(m.rest, 0) AS {column} FROM ({found}) f LEFT JOIN ({few}) m USING (a, b)"
        )
    db.create("most", found)
