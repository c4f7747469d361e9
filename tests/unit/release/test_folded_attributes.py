"""Attributes that fold, alone and with time: published, recounted, derived, or refused."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil import anonymize, read_slices, read_tree
from flowveil.analysis.attach import attach
from flowveil.core.errors import ParameterError
from flowveil.core.guarantee import Guarantee
from flowveil.methods import safe_pairs
from flowveil.methods.paircut import paircut
from flowveil.publishing.ledger.trip_facts import trip_facts
from flowveil.system.limits import limits
from flowveil.verify.from_flows import recount_flows
from samples.drafts import unchecked
from samples.hourly import PURPOSES, hourly_trips
from samples.releases import edit_report, edit_table, read_json
from samples.verified import findings_of

TREE = read_tree(PURPOSES)
HOW = {"by": "purpose", "resolution": 7, "weight": "w", "person": "who"}
TIMED = {"time": "start", "every": "hour"}


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


def folded(trips: pa.Table, **reading) -> flowveil.Flows:
    return read_slices(trips, **HOW, **reading).folded({"purpose": TREE})


@pytest.fixture(scope="module")
def trips() -> pa.Table:
    return hourly_trips()


@pytest.fixture(scope="module")
def written(trips, tmp_path_factory):
    flows = folded(trips)
    release = anonymize(flows, "paircut", k=5, protect="people", fold_weight=3.0)
    assert {"work or study", "free time", "shop", "work"} <= set(
        release.flows["purpose"].to_pylist()
    )
    return (
        release.write(tmp_path_factory.mktemp("purposes") / "release", formats="csv,kepler"),
        flows,
    )


EXACT = {"secret_thresholds": False}
#: Alone and with time; trips, people, weights, locations; in layers or not.
CASES = {
    "alone": ({}, "paircut", {"k": 5, "protect": ("people", "population"), "hierarchy": "h3"}),
    "layers": ({}, "layercut", {"k": 5, "protect": ("trips", "people"), "fold_weight": 9.0}),
    "with time": (TIMED, "paircut", {"k": 5, "l": 2, "max_suppressed": 0.3, "fold_weight": 30.0}),
    "with time, layers": (TIMED, "layercut", {"k": 5, "protect": "people", "time_weight": 2.0}),
    "cells": (TIMED, "paircut", {"k": 6, "objective": "cells", "max_suppressed": 0.0, **EXACT}),
    "even": ({}, "paircut", {"k": 6, "objective": "reconstruction", **EXACT}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_every_case_is_published_recounted_and_measured(trips, case, tmp_path):
    reading, method, asked = CASES[case]
    flows = folded(trips, **reading)
    release = anonymize(flows, method, **asked)
    place = release.write(tmp_path / "release")
    assert findings_of(place, flows) == []
    table, report = pq.read_table(place / "flows.parquet"), read_json(place / "report.json")
    columns = ["purpose", "time_from", "time_to"] if reading else ["purpose"]
    layer = ["layer"] * (method == "layercut")
    assert table.column_names == [
        "origin_zone",
        "destination_zone",
        "trips",
        "weight",
        *layer,
        *columns,
    ]
    assert (report["kind"], set(report["parameters"]["fold"])) == ("folded", {"purpose"})
    groups = set(table["purpose"].to_pylist())
    assert groups <= set(report["parameters"]["fold"]["purpose"])
    # Both sides of the tree occur somewhere.
    assert case in ("cells", "with time, layers") or len(groups) > 1
    measured, want = attach(place, trips).metrics(), release.metrics()
    for basis in ("trips", "weight"):
        known = {name: value for name, value in want[basis].items() if value is not None}
        assert {name: measured[basis][name] for name in known} == pytest.approx(known, rel=1e-9)


def moved(rows, old: str, new: str) -> list[dict]:
    """The largest cell of a purpose gets another one."""
    largest = max((row for row in rows if row["purpose"] == old), key=lambda row: row["trips"])
    changed = [{**row, "purpose": new} if row is largest else row for row in rows]
    return sorted(
        changed, key=lambda row: (row["purpose"], row["origin_zone"], row["destination_zone"])
    )


def a_trip_moved(rows) -> list[dict]:
    """One trip of a cell is counted for another purpose."""
    one, two = (
        next(i for i, row in enumerate(rows) if row["purpose"] == name) for name in ("work", "shop")
    )
    change = {one: -1, two: 1}
    return [{**row, "trips": row["trips"] + change.get(i, 0)} for i, row in enumerate(rows)]


TAMPERED = {
    "a trip moved to another purpose": a_trip_moved,
    "a cell of another purpose": lambda rows: moved(rows, "work", "study"),
    "a cell of a group": lambda rows: moved(rows, "work", "work or study"),
    "a cell of everything": lambda rows: moved(rows, "work", "all"),
    "no group of the tree": lambda rows: moved(rows, "work", "travel"),
    "no group at all": lambda rows: [{**rows[0], "purpose": None}, *rows[1:]],
}


@pytest.mark.parametrize("what", TAMPERED)
def test_the_recount_finds_changed_groups(written, what, tmp_path):
    place = shutil.copytree(written[0], tmp_path / "release")
    edit_table(place, "flows.parquet", TAMPERED[what])
    assert recount_flows(place, written[1]).findings


@pytest.mark.parametrize(
    "parents", [{"work": "free time"}, {"all": "work"}, {"work or study": None}, {"shop": "none"}]
)
def test_the_recount_finds_another_tree(written, parents, tmp_path):
    place = shutil.copytree(written[0], tmp_path / "release")
    edit_report(place, lambda report: report["parameters"]["fold"]["purpose"].update(parents))
    assert recount_flows(place, written[1]).findings


def one_early_student(trips: pa.Table) -> flowveil.Flows:
    """One person makes all trips for study in the morning, more than k of them.

    Others study later, or work then.
    """
    hours, purposes = (
        pa.compute.hour(trips["start"]).to_numpy(),
        np.array(trips["purpose"].to_pylist()),
    )
    alone = (purposes == "study") & (hours < 10)
    who = np.where(alone, "STUDENT", np.array(trips["who"].to_pylist()))
    assert alone.sum() > 50
    return folded(trips.set_column(trips.column_names.index("who"), "who", pa.array(who)), **TIMED)


ALONE = {"k": 10, "protect": "trips", "fold_weight": 1000.0, "time_weight": 50.0}


def test_a_combination_of_few_people_is_not_named(trips):
    rows = anonymize(one_early_student(trips), "paircut", **ALONE).flows.to_pylist()
    assert any(row["purpose"] == "study" for row in rows)
    assert not any(row["purpose"] == "study" and row["time_to"] <= "10:00" for row in rows)


def test_the_recount_finds_combinations_of_a_weaker_rule(trips, tmp_path, monkeypatch):
    monkeypatch.setattr(safe_pairs, "_nameable", lambda *columns: columns[-1])
    flows = one_early_student(trips)
    place = anonymize(flows, "paircut", **ALONE).write(tmp_path / "release")
    findings = recount_flows(place, flows).findings
    assert any("fewer than k people" in finding for finding in findings)


@pytest.mark.slow
def test_a_sum_over_a_folded_attribute_follows_from_the_folder(trips, written, tmp_path):
    release = flowveil.read_release(written[0])
    derived = release.derive(tmp_path / "sum", sum=["purpose"])
    assert derived.report["kind"] == "plain"
    assert "purpose" not in derived.flows.column_names
    assert sum(derived.flows["trips"].to_pylist()) == sum(release.flows["trips"].to_pylist())
    assert flowveil.verify_derived(tmp_path / "sum", written[0]).holds
    both = anonymize(folded(trips, **TIMED), "layercut", k=5).write(tmp_path / "both")
    timed = flowveil.read_release(both).derive(sum=["purpose"])
    assert (timed.report["kind"], "fold" in timed.report["parameters"]) == ("folded", False)
    whole = flowveil.read_release(both).derive(sum=["purpose", "time"])
    assert whole.flows.column_names == ["origin_zone", "destination_zone", "trips", "weight"]
    coarse = release.derive(tmp_path / "coarse", level=6)
    assert (coarse.report["kind"], "purpose" in coarse.flows.column_names) == ("folded", True)
    assert any(line.startswith("Folded:") for line in coarse.report["published"]["sentences"])
    assert flowveil.verify_derived(tmp_path / "coarse", written[0]).holds
    picked = release.derive(tmp_path / "work", pick={"purpose": "work"})
    assert set(picked.flows["purpose"].to_pylist()) == {"work"}
    assert any("wider purpose" in line for line in picked.report["published"]["sentences"])
    assert flowveil.verify_derived(tmp_path / "work", written[0]).holds
    with pytest.raises(ParameterError, match="no slice with purpose = 'Q'"):
        release.derive(pick={"purpose": "Q"})


def test_a_folded_attribute_proves_nothing_in_a_ledger(written):
    ledger = SimpleNamespace(keyed_hash=lambda *parts: " ".join(parts))
    assert trip_facts(written[1], ledger)["attributes"] == {}


def test_folds_that_do_not_fit_into_memory_are_refused_with_a_figure(trips):
    flows = folded(trips, **TIMED)
    guarantee = Guarantee.resolve(flows, k=5, protect="trips")
    wanted = (
        r"dividing cells by origin, destination and purpose, time needs about 0\.4 GB.*fold fewer"
        r" columns"
    )
    with limits(memory="382MB"), pytest.raises(ParameterError, match=wanted):
        paircut(flows, guarantee)


@pytest.mark.parametrize("rule", [{"dominance": 0.5}, {"t": 0.5}], ids=str)
def test_rules_that_folds_do_not_have_are_refused(written, rule):
    with pytest.raises(ParameterError):
        anonymize(written[1], "paircut", k=5, **rule)
