"""Times that fold: one matrix of cells (origin, destination, interval), published and recounted, or
refused."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil import anonymize, read_slices
from flowveil.core.times import fold_times
from flowveil.verify.from_flows import recount_flows
from samples.drafts import unchecked
from samples.hourly import hourly_trips
from samples.releases import edit_report, edit_table, read_json
from samples.verified import findings_of

EXPORTS = "csv,geojson,gpkg,kepler,arrow"


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def trips() -> pa.Table:
    return hourly_trips()


HOW = {"time": "start", "resolution": 7, "weight": "w"}


def folded(trips, every="hour", **reading):
    return read_slices(trips, every=every, **HOW, **reading).folded()


@pytest.fixture(scope="module")
def written(trips, tmp_path_factory):
    flows = folded(trips, person="who")
    release = anonymize(flows, "paircut", **CASES["hour"])
    return (
        release.write(tmp_path_factory.mktemp("folded") / "release", formats=EXPORTS),
        flows,
        release,
    )


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written[0], tmp_path / "release"), written[1]


EXACT = {"secret_thresholds": False}
#: Of a day, of a week, of a calendar with parts of hours, and one without days.
CASES = {
    "hour": {"k": 6, "protect": ("trips", "people")},
    "weekday-hour": {"k": 5, "protect": ("population", "people"), "max_suppressed": 0.0},
    "30min": {"k": 8, "max_suppressed": 0.4, "objective": "cells", "l": 2, **EXACT},
    "month": {"k": 5, "protect": "people", "objective": "reconstruction", **EXACT},
}


@pytest.mark.parametrize("every", CASES)
def test_every_step_is_published_and_recounted(trips, written, every, tmp_path):
    if every == "hour":
        # With all its exports.
        place, flows, release = written
    else:
        flows = folded(trips.slice(0, 900), every, person="who")
        release = anonymize(flows, "paircut", **CASES[every])
        place = release.write(tmp_path / "release")
    assert findings_of(place, flows) == []
    table = pq.read_table(place / "flows.parquet")
    assert table.column_names == [
        "origin_zone",
        "destination_zone",
        "trips",
        "weight",
        "time_from",
        "time_to",
    ]
    assert all(
        a < b
        for a, b in zip(
            *(table[name].to_pylist() for name in ("time_from", "time_to")), strict=True
        )
    )
    # Every cell from the raw rows again, by text alone.
    labels = flows.folds[0].labels[flows.leaves[0]]
    shown = sum(
        int(flows.trips[(labels >= a) & (labels < b)].sum())
        for a, b in {(row["time_from"], row["time_to"]) for row in table.to_pylist()}
    )
    assert shown >= sum(table["trips"].to_pylist())
    assert read_json(place / "report.json")["kind"] == "folded"
    assert release.metrics()["trips"]["mean_time_width_h"] > 0


def test_people_are_counted_once_over_the_hours_of_a_cell(written):
    _, _, release = written
    flows = release.input
    person = dict(zip(range(len(flows)), [set() for _ in range(len(flows))], strict=True))
    for row, who in zip(flows.people.cell.tolist(), flows.people.person.tolist(), strict=True):
        person[row].add(who)
    for cell in range(len(release.cells)):
        rows = np.flatnonzero(release.cell_of_flow == cell)
        assert len(set().union(*(person[row] for row in rows.tolist()))) >= 6


def test_a_time_of_few_people_is_not_named(trips):
    """One person makes all trips of the night, more than k of them.

    No interval has these hours alone.
    """
    night = trips.slice(0, 40)
    moved = night.set_column(
        night.column_names.index("start"),
        "start",
        pa.array([np.datetime64("2022-10-24T03:10:00")] * 40),
    ).set_column(night.column_names.index("who"), "who", pa.array(["NIGHT"] * 40))
    day = trips.filter(pa.compute.greater_equal(pa.compute.hour(trips["start"]), 8))
    flows = folded(pa.concat_tables([day, moved.cast(day.schema)]), person="who")
    release = anonymize(flows, "paircut", k=10, protect="trips", time_weight=50.0)
    named = {(row["time_from"], row["time_to"]) for row in release.flows.to_pylist()}
    assert all(not (a <= "03:00" and b <= "08:00" and b > "03:00") for a, b in named)
    without = anonymize(
        folded(pa.concat_tables([day, moved.cast(day.schema)])), "paircut", k=10, time_weight=50.0
    )
    assert any(row["time_to"] <= "08:00" for row in without.flows.to_pylist()), (
        "persons alone make the difference"
    )


# ---- what verify finds ---------------------------------------------------------------------------


def renamed(text: str, other: str):
    """Changes the end of every interval that ends at this time."""
    return lambda rows: in_order(
        {**row, "time_to": other} if row["time_to"] == text else row for row in rows
    )


def in_order(rows) -> list[dict]:
    keys = ("time_from", "time_to", "origin_zone", "destination_zone")
    return sorted(rows, key=lambda row: tuple(row[key] for key in keys))


TAMPERED = {
    # An hour more, and a text that cannot be read as a time.
    "no intervals of the tree": lambda rows: renamed("12:00", "12:00 ")(
        renamed("10:00", "11:00")(rows)
    ),
    "no time": lambda rows: [{**rows[0], "time_from": None}, *rows[1:]],
    "another interval of the tree": renamed("10:00", "12:00"),
    "a trip more": lambda rows: [{**rows[0], "trips": rows[0]["trips"] + 1}, *rows[1:]],
    # The whole day again for a pair that is published by the hour: its flows would be counted
    # twice.
    "flows in two cells": lambda rows: in_order(
        [*rows, {**rows[-1], "time_from": "00:00", "time_to": "24:00"}]
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_the_recount_finds_changed_cells(folder, what):
    place, flows = folder
    assert recount_flows(place, flows).findings == ()
    edit_table(place, "flows.parquet", TAMPERED[what])
    assert recount_flows(place, flows).findings
    assert findings_of(place, flows)


def test_another_step_and_another_kind_are_found(folder):
    place, flows = folder
    edit_report(place, lambda report: report["parameters"]["slices"].update(every="weekday-hour"))
    assert findings_of(place, flows)
    edit_report(place, lambda report: report.update(kind="plain"))
    assert findings_of(place, flows)


# ---- the tree ------------------------------------------------------------------------------------


def test_attributes_without_a_tree_have_their_values_below_one_root(trips):
    flows = read_slices(trips, by="who", by_many=True, every="hour", **HOW).folded()
    who = flows.dimensions[0]
    assert who.parents == {"all": None, **dict.fromkeys(who.labels.tolist(), "all")}
    # A release states the published ones alone.
    assert who.stated(who.tree.leaf_node[:1]).keys() == {"all", who.labels[0]}


def test_weeks_end_with_their_month_and_a_day_at_24():
    times = fold_times("1h", 60, ["2022-10-31T08:00", "2022-11-01T09:00", "2022-11-06T23:00"])
    spans = set(zip(*(texts.tolist() for texts in times.columns.values()), strict=True))
    assert ("2022-10-01T00:00", "2022-12-01T00:00") in spans
    assert ("2022-10-31T00:00", "2022-11-01T00:00") in spans
    assert ("2022-11-01T00:00", "2022-11-07T00:00") in spans
    week = fold_times("weekday-hour", None, [])
    assert [texts[0] for texts in week.columns.values()] == ["1 Mon 00:00", "7 Sun 24:00"]
    assert sorted(set(week.width.tolist())) == [1.0, 2.0, 4.0, 8.0, 24.0, 48.0, 120.0, 168.0]
    assert week.tree.n_tiles == 168
