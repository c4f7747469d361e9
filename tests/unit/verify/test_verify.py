"""The recount finds every way in which a folder can contradict its input; each change has a finding of its own.

A recount takes a quarter of a second, so what is found by different lines is changed in the same copy.
"""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowveil.verify
from flowveil.anonymization import anonymize
from flowveil.errors import DataError, GuaranteeError, InfeasibleError
from flowveil.release.plan import Plan
from flowveil.release.release import Release
from flowveil.verify import check
from flowveil.verify.claims import Claims, check_expected
from samples.drafts import unchecked
from samples.releases import (
    city_flows,
    edit_report,
    edit_table,
    nested_release,
    read_json,
    region_flows,
    rehash,
    release_of,
)
from samples.remembered import desk, verify_release
from samples.strategies import flow_tables

GOOD = {
    "hopeless flows, limited": lambda: release_of(city_flows(), levels=0, beta=0.02),
    "people and population": lambda: release_of(city_flows(), protect=["people", "population"], l=2, budget="volume"),
    "absolute population": lambda: release_of(city_flows(), protect="population", k_population=5000, levels=1),
    "people, prefiltered": lambda: release_of(city_flows(), protect=["trips", "people"], levels=1, l=2),
    "no weights, no persons": lambda: release_of(city_flows(weights=False, persons=False), budget="volume"),
    "codes of one's own, prefiltered": lambda: release_of(region_flows(), levels=1, beta=0.2),
    "nested": nested_release,
    "nested, one cell suppressed": lambda: nested_release(short_cell=True),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two releases, written once, each with its flows; tests tamper with copies."""
    releases = {
        "city": release_of(city_flows(), protect=["trips", "people"], budget="volume"),
        "nested": nested_release(),
    }
    place = tmp_path_factory.mktemp("written")
    with unchecked():
        return {name: (release.write(place / name), release.input) for name, release in releases.items()}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """Where only the report is changed, most of what verify asks was asked before."""
    with desk(tmp_path_factory.mktemp("desk") / "release") as copied:
        yield copied


@pytest.fixture
def city(written, copied):
    """A release with suppressed cells, its folder and its flows."""
    folder, flows = written["city"]
    return copied(folder), flows


@pytest.fixture
def nested(written, copied):
    folder, flows = written["nested"]
    return copied(folder), flows


def assert_found(folder, flows, *words: str) -> list[str]:
    findings = verify_release(folder, flows)
    assert any(all(word in line for word in words) for line in findings), (words, findings)
    assert all("\n" not in line for line in findings)
    return findings


@pytest.mark.parametrize("case", GOOD)
def test_a_good_release_has_no_findings(case, tmp_path):
    # What is written is verified before it is there: see `test_check_raises_with_the_findings` for the call itself.
    assert GOOD[case]().write(tmp_path / "release").is_dir()


def test_the_cases_above_do_suppress():
    suppressed = [case for case, make in GOOD.items() if (make().cell_of_flow < 0).any()]
    assert set(GOOD) - set(suppressed) == {"nested"}


def test_check_raises_with_the_findings(city):
    folder, flows = city
    check(folder, flows)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(GuaranteeError) as raised:
        check(folder, flows)
    assert raised.value.exit_code == 3
    assert raised.value.findings == tuple(verify_release(folder, flows))
    assert "notes.txt" in str(raised.value)


# ---- the folder ---------------------------------------------------------------------------------------------


def test_no_folder(tmp_path):
    assert verify_release(tmp_path / "nowhere", city_flows()) == ["there is no such folder"]


@pytest.mark.parametrize("name", ["flows.parquet", "zones.parquet", "report.json", "report.html", "manifest.json"])
def test_a_missing_file(city, name):
    folder, flows = city
    (folder / name).unlink()
    assert_found(folder, flows, name, "missing")


def test_an_extra_file_even_if_the_manifest_lists_it(city):
    folder, flows = city
    (folder / "raw.csv").write_text("x")
    assert_found(folder, flows, "raw.csv", "extra")
    rehash(folder)
    assert_found(folder, flows, "manifest.json", "raw.csv")


@pytest.mark.parametrize("name", ["flows.parquet", "report.html"])
def test_a_changed_file(city, name):
    folder, flows = city
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    assert_found(folder, flows, name, "sha256")


@pytest.mark.parametrize("name", ["flows.parquet", "zones.parquet", "report.json", "manifest.json"])
def test_garbage_is_a_finding_not_a_crash(city, name):
    folder, flows = city
    (folder / name).write_bytes(b"garbage")
    if name != "manifest.json":
        rehash(folder)
    assert_found(folder, flows, name, "not a Parquet file" if name.endswith("parquet") else "read")


# ---- the matrix ---------------------------------------------------------------------------------------------


def changed(name, change, row=3):
    def edit(rows):
        rows[row][name] = change(rows[row][name])
        return rows

    return edit


def test_cells_that_are_not_the_recounted_ones(city):
    folder, flows = city
    weights = [lambda v: v + 0.01, lambda _: float("nan"), lambda _: None, lambda v: -v]

    def change(rows):
        rows[2]["trips"] -= 1
        rows[3]["trips"] += 1
        for row, weigh in zip(rows[4:], weights, strict=False):
            row["weight"] = weigh(row["weight"])
        return [*rows[:2], rows[1], *rows[2:10], *rows[11:]]

    edit_table(folder, "flows.parquet", change)
    findings = verify_release(folder, flows)
    assert findings[:4] == [
        "flows.parquet: 1 duplicate rows",
        "flows.parquet: 2 cells have another number of trips than the recount",
        "flows.parquet: 4 cells have another weight than the recount",
        "flows.parquet: 1 cells that reach the guarantee are missing",
    ]


def test_a_missing_row(city):
    folder, flows = city
    edit_table(folder, "flows.parquet", lambda rows: rows[:4] + rows[5:])
    findings = assert_found(folder, flows, "flows.parquet: 1 cells that reach the guarantee are missing")
    assert {"n_cells", "suppressed_share"} <= {line.removeprefix("report.json: ").split()[0] for line in findings}


def test_an_extra_row_of_nobody(tmp_path):
    release = release_of(region_flows(), budget="volume")
    # What is written is verified before it is there: codes of one's own hold.
    folder = release.write(tmp_path / "release")
    gone = release.cell_of_flow == release.cell_of_flow.max()
    rest = release.input.select(~gone)
    without = dataclasses.replace(
        release.input, origin=rest.origin, destination=rest.destination, trips=rest.trips, weight=rest.weight
    )
    assert_found(folder, without, "flows.parquet: 1 cells hold no flow of the input")


def test_an_extra_row_that_is_short(city):
    folder, flows = city
    release = release_of(flows, protect=["trips", "people"], budget="volume")
    code_o, code_d = release.plan.origin_zones.codes, release.plan.destination_zones.codes
    rows = pq.read_table(folder / "flows.parquet").to_pylist()
    published = {(r["origin_zone"], r["destination_zone"]) for r in rows}
    listed = {r["zone"] for r in pq.read_table(folder / "zones.parquet").to_pylist()}
    lost = np.flatnonzero(release.cell_of_flow < 0)
    pairs = [
        (str(code_o(release.plan.origin_zone[i : i + 1])[0]), str(code_d(release.plan.destination_zone[i : i + 1])[0]))
        for i in lost
    ]
    pair = next(p for p in pairs if p not in published and set(p) <= listed)
    inside = [i for i, p in zip(lost, pairs, strict=True) if p == pair]
    row = {"origin_zone": pair[0], "destination_zone": pair[1]}
    row["trips"], row["weight"] = int(flows.trips[inside].sum()), float(flows.weight[inside].sum())
    edit_table(
        folder,
        "flows.parquet",
        lambda rows: sorted([*rows, row], key=lambda r: (r["origin_zone"], r["destination_zone"])),
    )
    findings = assert_found(folder, flows, "flows.parquet: 1 cells have fewer than 5 trips")
    assert not any("another number" in line for line in findings)


def test_unsorted_rows(city):
    folder, flows = city
    edit_table(folder, "flows.parquet", lambda rows: [rows[1], rows[0], *rows[2:]])
    assert verify_release(folder, flows) == ["flows.parquet: not sorted by origin_zone and destination_zone"]


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.append_column("person", pa.array(range(len(table)))),
        lambda table: table.drop_columns(["weight"]),
        lambda table: table.select(["destination_zone", "origin_zone", "trips", "weight"]),
        lambda table: table.set_column(2, "trips", table["trips"].cast(pa.float64())),
    ],
)
def test_unknown_columns(city, change):
    folder, flows = city
    table = pq.read_table(folder / "flows.parquet")
    edit_table(folder, "flows.parquet", lambda _: change(table))
    assert_found(folder, flows, "flows.parquet: its columns are not origin_zone, destination_zone, trips, weight")


def weaker_cells(**thresholds):
    """Raise what report.json promises (and was asked for), so that the cells fall short of it."""

    def change(report):
        report["guarantee"].update(thresholds)
        report["guarantee"]["protect"] = [u for u in ("trips", "people", "population") if u in report["guarantee"]]
        report["parameters"] = {}

    return change


def tiles_of_cells(release) -> np.ndarray:
    """Of the tiles in which the trips of a cell begin, and those in which they end, the fewer."""
    cell, flows = release.cell_of_flow, release.input
    ends = [{(c, t) for c, t in zip(cell, tile, strict=True) if c >= 0} for tile in (flows.origin, flows.destination)]
    counts = [np.bincount([c for c, _ in end], minlength=len(release.cells)) for end in ends]
    return np.minimum(*counts)


def test_a_cell_below_the_guarantee_in_any_unit(city):
    folder, flows = city
    edit_report(folder, weaker_cells(trips=40, people=40, population=20000.0, locations=3))
    findings = verify_release(folder, flows)
    cells = release_of(flows, protect=["trips", "people"], budget="volume")
    for words, short in {
        "have fewer than 40 trips": cells.cells.trips < 40,
        "have fewer than 40 people": cells.cells.n_people() < 40,
        "have less than the population of the guarantee": cells.cells.weight < 20000.0,
        "have trips that begin, or end, in fewer than 3 tiles": tiles_of_cells(cells) < 3,
    }.items():
        assert short.any()
        assert f"flows.parquet: {short.sum()} cells {words}" in findings


@pytest.mark.parametrize(
    ("protect", "share"), [("population", 1e-6), (["trips", "population"], 1e-6), ("population", 1.0)], ids=str
)
def test_a_population_given_as_a_number_is_never_called_k(tmp_path, protect, share):
    """A threshold of next to nothing is met by a single trip: neither the files nor verify may speak of k there."""
    flows = city_flows()
    wanted = 5 * float(flows.weight.sum() / flows.trips.sum())
    release = release_of(flows, protect=protect, k_population=share * wanted, budget="volume")
    with unchecked():
        folder = release.write(tmp_path / "out")
    report, page = read_json(folder / "report.json"), (folder / "report.html").read_text(encoding="utf-8")
    assert report["guarantee"]["k"] == (5 if "trips" in protect else None)
    words = [page.partition(begin)[2].partition("</")[0] for begin in ("<title>", "<h1>", "</strong>, ")]
    assert all(words)
    assert "k = 5 on trips; a population of" in words[-1] if "trips" in protect else "k =" not in " ".join(words)
    assert "given as a number; it is not k times the mean weight" in report["statement"][0]
    asked = {"k": 5, "protect": ("population",)}
    short = ["report.json: the release claims a k of less than 5 in population"]
    assert verify_release(folder, flows, expect=asked) == (short if share < 1 else [])
    # The rest of the recount is the same.
    claims = Claims.of(report, flows)
    assert list(check_expected(claims, {**asked, "k_population": share * wanted}, flows)) == []
    enough = share == 1 or "trips" in protect
    assert list(check_expected(claims, {"k": 5}, flows)) == ([] if enough else short)


def test_a_release_that_calls_a_given_population_k(tmp_path):
    flows = city_flows()
    release = release_of(flows, protect="population", k_population=0.001, budget="volume")
    with unchecked():
        folder = release.write(tmp_path / "out")
    edit_report(folder, lambda r: r["guarantee"].update(k=5))
    assert_found(folder, flows, "calls k what is a population given as a number")
    edit_report(folder, lambda r: r["parameters"].update(k_population=None))
    assert_found(folder, flows, "guarantee in population is weaker than the parameters ask for")


def test_a_population_is_short_by_a_millionth(city):
    folder, flows = city
    smallest = float(release_of(flows, protect=["trips", "people"], budget="volume").cells.weight.min())
    edit_report(folder, weaker_cells(population=smallest))
    assert not any("population" in line for line in verify_release(folder, flows))
    edit_report(folder, weaker_cells(population=round(smallest + 1e-6, 6)))
    assert_found(folder, flows, "1 cells have less than the population")


def test_people_are_counted_distinct_not_added_up(tmp_path):
    """Each flow of the cell has its own people, but they are the same five."""
    release = release_of(city_flows(), protect="trips", budget="volume")
    flows = release.input
    few = dataclasses.replace(flows, people=dataclasses.replace(flows.people, person=flows.people.person % 5))
    with unchecked():
        folder = release_of(few, protect="trips", budget="volume").write(tmp_path / "release")
    edit_report(folder, weaker_cells(people=6))
    assert_found(folder, few, f"{len(release.cells)} cells have fewer than 6 people")


# ---- the zones ----------------------------------------------------------------------------------------------


def test_overlapping_zones_where_homogeneous_is_claimed(nested):
    folder, flows = nested
    edit_report(folder, lambda report: report.update(homogeneous=True))
    assert_found(folder, flows, "zones.parquet: destination zones overlap in 2 tiles")


def test_a_flow_in_two_published_cells(nested):
    folder, flows = nested

    def add(rows):
        rows.append({"origin_zone": "X", "destination_zone": "X", "trips": 18})
        return sorted(rows, key=lambda r: (r["origin_zone"], r["destination_zone"]))

    edit_table(folder, "flows.parquet", add)
    findings = assert_found(folder, flows, "flows.parquet: 3 flows of the input fall into two published cells")
    assert not any("another number" in line for line in findings)


def test_a_missing_row_of_a_nested_release(nested):
    folder, flows = nested
    edit_table(folder, "flows.parquet", lambda rows: rows[1:])
    edit_table(folder, "zones.parquet", lambda rows: [r for r in rows if r["zone"] != "x1"])
    assert {"n_cells", "suppressed_share"} <= {
        line.removeprefix("report.json: ").split()[0] for line in verify_release(folder, flows)
    }


def test_a_zone_that_is_not_listed(city):
    folder, flows = city
    edit_table(folder, "zones.parquet", lambda rows: rows[1:])
    assert_found(folder, flows, "zones.parquet: 1", "of flows.parquet are missing")


def test_zones_that_are_not_those_of_the_map(city):
    folder, flows = city
    root = {"zone": "861fb4667ffffff", "role": "origin", "level": 6, "tiles": 49}

    def change(rows):
        assert [row["role"] for row in rows[6:10]] == ["destination"] * 4
        rows[7]["tiles"] += 1
        rows[8]["level"] -= 1
        rows[9]["role"] = "transit"
        return [{**rows[0], **root}, rows[0], *rows]

    edit_table(folder, "zones.parquet", change)
    found = verify_release(folder, flows)
    assert {
        "zones.parquet: 1 duplicate rows",
        "zones.parquet: 1 origin zones are listed twice",
        "zones.parquet: 1 origin zones are not used by any published flow",
        "zones.parquet: 1 rows have another role than origin or destination or both",
        "zones.parquet: 1 destination zones have another number of possible tiles than the map",
        "zones.parquet: 1 destination zones have another level than the map",
    } <= set(found)


def test_zones_that_are_not_on_the_map(city):
    folder, flows = city

    def change(rows):
        for row, zone in zip(rows[6:], ["8a1fb466118ffff", "nonsense", "all"], strict=False):
            row["zone"] = zone
        return rows

    edit_table(folder, "zones.parquet", change)
    assert_found(folder, flows, "zones.parquet: 3 destination zones cover no tile of the input")


def test_a_number_of_the_method_that_says_more_than_three_digits(tmp_path):
    flows = city_flows()
    with unchecked():
        folder = anonymize(flows, "paircut", k=5, protect="trips").write(tmp_path / "out")
    edit_report(folder, lambda r: r["notes"].update(proven_gap=0.12345))
    assert_found(folder, flows, "1 notes have more than three digits")


@pytest.mark.parametrize(
    ("table", "column"), [("flows.parquet", "origin_zone"), ("flows.parquet", "trips"), ("zones.parquet", "zone")]
)
def test_an_empty_field(city, table, column):
    """What is empty names nothing and counts nothing: no further step looks at such a table."""
    folder, flows = city
    edit_table(folder, table, changed(column, lambda _: None))
    assert verify_release(folder, flows) == [f"{table}: has empty fields"]


def test_a_count_beyond_all_counts(city):
    """Products of such a number would overflow in later steps."""
    folder, flows = city
    edit_table(folder, "flows.parquet", changed("trips", lambda _: 2**63 - 1))
    assert verify_release(folder, flows) == ["flows.parquet: has numbers larger than any count"]


# ---- the report ---------------------------------------------------------------------------------------------


def test_measures_that_contradict_the_recount(city):
    folder, flows = city
    names = (
        "n_cells",
        "n_origin_zones",
        "n_destination_zones",
        "suppressed_share",
        "k_trips",
        "k_people",
        "k_population",
    )

    def change(report):
        for basis, name in product(("trips", "weight"), names):
            value = report["measures"][basis][name]
            report["measures"][basis][name] = value + 1 if isinstance(value, int) else value * 1.0001

    edit_report(folder, change)
    assert sorted(verify_release(folder, flows)) == sorted(
        f"report.json: {name} by {basis} contradicts the recount" for basis, name in product(("trips", "weight"), names)
    )


def test_a_floor_that_is_not_recounted_is_said_to_be_not(tmp_path, monkeypatch):
    flows = city_flows()
    with unchecked():
        folder = anonymize(flows, k=5).write(tmp_path / "release")
    unread: list[str] = []
    assert verify_release(folder, flows, unread=unread) == unread == []
    monkeypatch.setattr("flowveil.verify.floor.MOST_WORK", 0)
    assert verify_release(folder, flows, unread=unread) == []
    assert ["floor" in line and "not recounted" in line for line in unread] == [True]


def weaker_in_every_unit(report):
    report["guarantee"].update(trips=4, people=4, k=None)
    report["parameters"].update(k_population=1e9, l=2)
    report["measures"]["trips"].update(suppressed_share=None)
    report["measures"].pop("weight")
    report["notes"].update(steps=7)


def other_units(report):
    report["guarantee"].pop("people")
    report["parameters"].update(k=6, protect=["trips"])
    # An error that tells how many tiles were seen.
    report["measures"]["trips"].update(mean_generalization_error=12.3456)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            weaker_in_every_unit,
            [
                "the guarantee has no k of at least 1",
                "the guarantee in trips is weaker than the parameters ask for",
                "the guarantee in people is weaker than the parameters ask for",
                "the guarantee in population is weaker than the parameters ask for",
                "the guarantee in locations is weaker than the parameters ask for",
                "1 notes are numbers, although measures are withheld",
                "measures are not given by trips and by weight",
                "suppressed_share by trips is withheld without a reason",
            ],
        ),
        (
            other_units,
            [
                "the guarantee has thresholds for other units than it says it protects",
                "the guarantee in trips is weaker than the parameters ask for",
                "too few zones may hold more than one tile to disclose mean_generalization_error by trips; "
                "withhold them",
                "the mean generalisation error by trips has more than four digits",
            ],
        ),
        (
            lambda r: r["parameters"].update(protect=["people"]),
            ["the parameters protect other units than the guarantee"],
        ),
        (
            lambda r: [r["guarantee"].pop(unit, None) for unit in ("trips", "people")],
            ["the guarantee protects no unit"],
        ),
    ],
)
def test_a_report_that_contradicts_itself(city, change, said):
    folder, flows = city
    edit_report(folder, change)
    findings = verify_release(folder, flows)
    assert [line for line in said if f"report.json: {line}" not in findings] == [], findings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["guarantee"].update(trips="many"), "'guarantee/trips' is not what report.schema.json asks for"),
        (lambda r: r["suppression"].update(rule="by hand"), "'suppression'"),
        (lambda r: r.update(suppression={"rule": "hopeless flows"}), "'suppression'"),
        (lambda r: r.update(homogeneous="yes"), "'homogeneous'"),
        (lambda r: r.pop("measures"), "it is not what report.schema.json asks for"),
        (lambda r: r["measures"]["weight"].pop("c_dm"), "'measures/weight'"),
        (lambda r: r["measures"]["trips"].update(c_avg=float("nan")), "not readable"),
        (lambda r: r.update(overlapping_outlines=-0.0), "'overlapping_outlines'"),
    ],
)
def test_a_report_of_another_form(city, change, words):
    folder, flows = city
    edit_report(folder, change)
    assert_found(folder, flows, "report.json", words)


def test_units_that_the_input_does_not_know(tmp_path):
    release = release_of(city_flows(weights=False, persons=False), budget="volume")
    with unchecked():
        folder = release.write(tmp_path / "release")
    edit_report(folder, weaker_cells(people=5, population=10.0))
    findings = assert_found(folder, release.input, "report.json", "no persons")
    assert any("report.json" in line and "no weights" in line for line in findings)


def test_the_wrong_suppression_rule(tmp_path):
    release = release_of(city_flows(), levels=0, beta=0.02)
    with unchecked():
        folder = release.write(tmp_path / "release")
    edit_report(folder, lambda report: report["suppression"].update(levels=1))
    assert_found(folder, release.input, "cells have another number of trips")
    edit_report(folder, lambda report: report.update(suppression={"rule": "short cells"}))
    assert_found(folder, release.input, "cells have another number of trips")


def test_a_suppressed_volume_that_had_to_be_withheld(tmp_path):
    release = nested_release(short_cell=True)
    with unchecked():
        folder = release.write(tmp_path / "release")
    assert read_json(folder / "report.json")["measures"]["trips"]["suppressed_share"] is None
    edit_report(folder, lambda r: r["measures"]["trips"].update(c_dm=release.metrics()["trips"]["c_dm"]))
    assert_found(folder, release.input, "report.json: what is suppressed would follow from c_dm by trips")


# ---- in general ---------------------------------------------------------------------------------------------


# Each is a release that is written and recounted; the contract tests try all methods.
@settings(max_examples=6, deadline=None)
@given(
    flows=flow_tables(min_rows=4),
    k=st.integers(1, 4),
    protect=st.sampled_from(["trips", ("trips", "people"), "population"]),
    budget=st.sampled_from(["rows", "volume"]),
    levels=st.integers(0, 3),
    share=st.sampled_from([0.0, 0.1, 0.4]),
)
def test_whatever_odkanon_publishes_verifies(tmp_path_factory, flows, k, protect, budget, levels, share):
    options = {"budget": budget, "max_suppressed": share, "levels": levels}
    try:
        release = release_of(flows, k=k, protect=protect, **options)
    except (InfeasibleError, DataError):
        return
    # What is written is verified before it is there.
    assert release.write(tmp_path_factory.mktemp("any") / "release").is_dir()


def test_a_method_that_counts_wrongly_is_stopped_before_anything_is_published(tmp_path):
    """A plan that leaves a flow out of a cell for no reason passes the thresholds but not the recount."""
    flows = city_flows()
    good = release_of(flows, budget="volume")
    kept = good.plan.kept.copy()
    largest = np.flatnonzero(good.cell_of_flow == good.cells.trips.argmax())
    kept[largest[0]] = False
    plan: Plan = dataclasses.replace(good.plan, kept=kept)
    bad = Release.from_plan(flows, plan, good.guarantee, method="odkanon", parameters={})
    with pytest.raises(GuaranteeError, match="another number of trips"):
        bad.write(tmp_path / "release")
    assert list(tmp_path.iterdir()) == []


def test_methods_and_writers_do_not_use_what_only_checks():
    source = Path(flowveil.__file__).parent
    for file in (*(source / "methods").glob("*.py"), source / "publish" / "tables.py", source / "release" / "boxes.py"):
        assert "flowveil.zoning.covering" not in file.read_text(encoding="utf-8")
