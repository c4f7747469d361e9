"""The rule of the ledger: a release from raw trips shares no trip with earlier ones, repeats one,
or revises it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from flowveil import (
    InfeasibleError,
    ParameterError,
    anonymize,
    anonymize_slices,
    derive,
    read_slices,
    read_trips,
)
from flowveil.publishing.ledger.ledger import list_entries, withdraw
from flowveil.publishing.ledger.ledger_file import LEDGER, open_ledger
from samples.drafts import unchecked
from unit.apps.cli.test_cli import run

#: Two villages far from each other, a day of each month.
NORTH, SOUTH = (48.90, 2.30), (48.60, 2.30)


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    with unchecked():
        yield


def trips(*, months=(1,), sexes="fm", places=(NORTH,), n=40):
    """About n trips in each month, of each sex and in each place; each month has others."""
    rows = [
        (place, month, sex, i)
        for place in places
        for month in months
        for sex in sexes
        for i in range(n + month)
    ]
    lat, lon = (
        np.array([place[axis] + 0.001 * (i % 4) for place, _, _, i in rows]) for axis in (0, 1)
    )
    times = [f"2024-{month:02}-{1 + i % 28:02} 08:00:00" for _, month, _, i in rows]
    columns = {"start_lat": lat, "start_lon": lon, "end_lat": lat, "end_lon": lon, "t": times}
    columns |= {
        "sex": [sex for _, _, sex, _ in rows],
        "age": [("young", "old")[i % 2] for *_, i in rows],
    }
    return pa.table(columns)


def write(table, ledger, name, *, k=5, accept=False, revision=None, **reading):
    """Publish one matrix, or slices with ``by``."""
    reading = {"resolution": 7, **reading}
    asked = {"method": "twincut", "k": k, "protect": "trips", "max_suppressed": 0.3}
    if "by" in reading or "every" in reading:
        release = anonymize_slices(read_slices(table, by_many=True, **reading), **asked)
    elif revision is not None:
        release = anonymize(read_trips(table, **reading), k=k, protect="trips", revision=revision)
    else:
        release = anonymize(read_trips(table, **reading), **asked)
    return release.write(ledger.parent / name, ledger=ledger, accept_differencing=accept)


def refused(table, ledger, name, match, **asked):
    with pytest.raises(InfeasibleError, match=match):
        write(table, ledger, name, **asked)
    assert not (ledger.parent / name).exists()


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


def statement(folder):
    return json.loads((folder / "report.json").read_text())["statement"]


# ---- the attack of the issue ---------------------------------------------------------------------


def test_sex_then_age_is_refused_and_names_what_to_derive(ledger):
    write(trips(), ledger, "by-sex", by="sex")
    refused(
        trips(),
        ledger,
        "by-age",
        r"same trips as 'by-sex'.*publish sex,age first .*and derive both",
        by="age",
    )
    refused(trips(), ledger, "by-age", r"flowveil derive by-sex --out by-age --sum sex", by="age")


def test_sex_then_sex_and_age_is_refused(ledger):
    write(trips(), ledger, "by-sex", by="sex")
    refused(trips(), ledger, "both", r"publish sex,age first", by="sex,age")


def test_sex_and_age_then_sex_is_refused_and_can_be_derived(ledger):
    write(trips(), ledger, "both", by="sex,age")
    refused(trips(), ledger, "by-sex", r"flowveil derive both --out by-sex --sum age", by="sex")


def test_a_matrix_then_slices_on_coarser_zones_is_refused(ledger):
    write(trips(), ledger, "fine")
    refused(trips(), ledger, "coarse", "'fine'", by="sex", resolution=6)


def test_a_quarter_then_its_months_is_refused(ledger):
    write(trips(months=(1, 2, 3)), ledger, "quarter", time="t")
    for month in (1, 3):
        refused(trips(months=(month,)), ledger, f"month-{month}", "'quarter'", time="t")


# ---- disjoint trips ------------------------------------------------------------------------------


def test_other_days_of_the_same_time_column_are_accepted(ledger):
    for month in (1, 2):
        folder = write(trips(months=(month,)), ledger, f"month-{month}", time="t")
    assert statement(folder)["ledger"] == {"overlapping": 0}
    # The column only proves days: it leaves no trace in the release.
    assert "time" not in json.loads((folder / "report.json").read_text())["parameters"]["columns"]
    write(trips(months=(3,)), ledger, "by-hour", time="t", every="hour")
    write(trips(months=(4,), n=150), ledger, "by-day", time="t", every="day")
    write(trips(months=(5,)), ledger, "one-month", time="t", during="2024-05")
    refused(trips(months=(4, 6)), ledger, "again", "'by-day'", time="t")


def test_a_declared_period_proves_nothing_and_the_message_asks_for_the_time(ledger, tmp_path):
    january, february = (
        anonymize(read_trips(trips(months=(m,)), resolution=7), k=5, protect="trips")
        for m in (1, 2)
    )
    january.write(tmp_path / "january", ledger=ledger, period="2024-01-01/2024-01-31")
    with pytest.raises(InfeasibleError, match=r"period proves nothing.*--time COLUMN"):
        february.write(tmp_path / "february", ledger=ledger, period="2024-02-01/2024-02-29")


@pytest.mark.parametrize(
    "change", [{"time": "other"}, {"time": "t", "time_format": "%Y-%d-%m %H:%M:%S"}]
)
def test_days_of_another_column_or_reading_prove_nothing(ledger, change):
    table = trips(months=(2,))
    # Read with day and month exchanged, these days would be others.
    table = (
        table.append_column("other", table["t"])
        if change["time"] == "other"
        else trips(months=(1,), n=11)
    )
    write(trips(months=(1,)), ledger, "first", time="t")
    refused(table, ledger, "second", "Nothing proves|same trips", **change)


def test_a_trip_without_a_time_proves_nothing(ledger):
    table = trips(months=(1,))
    times = table["t"].to_pylist()
    times[0] = None
    write(table.set_column(4, "t", pa.array(times)), ledger, "first", time="t")
    refused(trips(months=(2,)), ledger, "second", "Some trips have no time in column 't'", time="t")


def test_other_values_of_an_attribute_are_accepted_in_any_spelling(ledger):
    write(trips(sexes="f"), ledger, "women", by="sex")
    write(trips(sexes="m", n=41), ledger, "men", by="sex")
    table = trips(sexes="F")
    refused(table, ledger, "again", "'women'", by="sex")


@pytest.mark.parametrize("names", [("1", "2"), ("fe\u0301minin", "Ⓜ")])
def test_other_names_of_the_same_values_prove_nothing(ledger, names):
    def named(values):
        table = trips()
        sexes = [values["fm".index(sex)] for sex in table["sex"].to_pylist()]
        return table.set_column(table.column_names.index("sex"), "sex", pa.array(sexes))

    write(named(("f\u00e9minin", "m")), ledger, "first", by="sex")
    refused(named(names), ledger, "renamed", "same trips as 'first'", by="sex", k=6)
    if names[0] != "1":
        # Accents are spelled in two ways, and so are compatible letters: also known by part of the
        # trips.
        refused(named(names).slice(3), ledger, "part", "'first'", by="sex")


def test_matrices_of_a_file_are_no_attribute_of_trips(ledger):
    for name, value in (("morning", "am"), ("day", "all")):
        table = trips()
        table = table.append_column("matrix", pa.array([value] * len(table)))
        if name == "morning":
            write(table, ledger, name, by="matrix")
    refused(table, ledger, "day", "'morning'", by="matrix")


def test_disjoint_areas_are_accepted_unless_one_keeps_the_outside(ledger, tmp_path):
    table = trips(places=(NORTH, SOUTH))
    north, south = "2.0,48.8,2.6,49.0", "2.0,48.5,2.6,48.7"
    write(table, ledger, "north", within=north)
    write(table, ledger, "south", within=south)
    refused(table, ledger, "wider", "'north'", within="2.0,48.7,2.6,49.0")
    other = tmp_path / "other" / "ledger"
    other.parent.mkdir()
    write(table, other, "north", within=north, outside="keep")
    refused(table, other, "south", "'north'", within=south)


def test_tiles_of_another_size_prove_nothing_about_areas(ledger):
    table = trips(places=(NORTH, SOUTH))
    write(table, ledger, "north", within="2.0,48.8,2.6,49.0")
    refused(table, ledger, "south", "'north'", within="2.0,48.5,2.6,48.7", resolution=6)


# ---- the same again, revisions, overruling -------------------------------------------------------


def test_the_same_release_again_is_accepted_and_recorded_once(ledger):
    folder = write(trips(), ledger, "first")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write(trips(), ledger, "first")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert len((ledger / LEDGER).read_bytes().splitlines()) == 1
    refused(trips(), ledger, "second", "same trips as 'first'", k=6)


def test_a_revision_is_accepted_of_all_releases_of_its_trips_alone(ledger, tmp_path):
    write(trips(months=(2,)), ledger, "february", time="t")
    first = write(trips(), ledger, "first", time="t")
    more = pa.concat_tables([trips(), trips(n=20)])
    write(more, ledger, "first-r1", revision=[first], time="t")
    most = pa.concat_tables([more, trips(n=20)])
    refused(most, ledger, "first-r2", "'first-r1'", revision=[first], time="t")
    last = write(most, ledger, "first-r2", revision=[first, tmp_path / "first-r1"], time="t")
    assert "the same trips but those that this one revises." in (last / "report.json").read_text()


def test_overruling_is_stated_to_readers_and_kept_when_it_is_repeated(ledger):
    write(trips(), ledger, "first")
    for _ in range(2):
        folder = write(trips(), ledger, "second", k=6, accept=True)
        stated = statement(folder)
        assert stated["ledger"] == {"overlapping": 1}
        assert stated["differencing_accepted"]
    published = json.loads((folder / "report.json").read_text())["published"]
    assert any(
        "may count the same trips, and the operator accepted it" in line
        for line in published["sentences"]
    )
    # Without the flag, a repetition still says so.
    assert statement(write(trips(), ledger, "second", k=6))["differencing_accepted"]
    assert len((ledger / LEDGER).read_bytes().splitlines()) == 2


def test_a_withdrawn_release_still_counts(ledger):
    write(trips(), ledger, "first")
    with open_ledger(ledger) as book:
        assert withdraw(book, "first") == 1
        assert [row["withdrawn"] for row in list_entries(book)] == [True]
        with pytest.raises(ParameterError, match="already"):
            withdraw(book, "first")
        with pytest.raises(ParameterError, match="it is neither"):
            withdraw(book, "second")
    refused(trips(), ledger, "second", "same trips as 'first'", k=6)


def test_an_entry_without_a_sketch_proves_nothing(ledger):
    write(trips(), ledger, "first", time="t")
    with open_ledger(ledger) as book:
        entry = {name: own for name, own in book.entries[0].items() if name != "sketch"}
        book.append({**entry, "content": ""})
    refused(trips(months=(2,)), ledger, "second", "an earlier version recorded it", time="t")


def test_a_derived_release_is_listed_if_its_source_is(ledger, tmp_path):
    source = write(trips(), ledger, "both", by="sex,age")
    derive(source, tmp_path / "coarse", level=5, ledger=ledger)
    # Derived from a derived one.
    derive(tmp_path / "coarse", tmp_path / "young", pick={"age": "young"}, ledger=ledger)
    with open_ledger(ledger) as book:
        assert [row["from_trips"] for row in list_entries(book)] == [True, False, False]
    foreign = write(trips(months=(2,)), tmp_path / "other-ledger", "foreign")
    before = (tmp_path / "young" / "manifest.json").read_bytes()
    for out in ("third", "young"):
        with pytest.raises(InfeasibleError, match="is not in the ledger"):
            derive(foreign, tmp_path / out, level=5, ledger=ledger)
    assert not (tmp_path / "third").exists()
    assert (tmp_path / "young" / "manifest.json").read_bytes() == before
    # A derived release does not count as a second release of the trips: its source may be repeated.
    write(trips(), ledger, "both", by="sex,age")


def test_of_two_runs_at_once_the_second_is_checked_against_the_first(ledger):
    def attempt(k):
        try:
            write(trips(), ledger, f"release-{k}", k=k)
        except InfeasibleError:
            return "refused"
        return "written"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(attempt, (5, 6))) == ["refused", "written"]


def test_the_ledger_stores_no_value_of_a_trip(ledger):
    write(trips(sexes=["SECRETLY"], n=150), ledger, "first", by="sex", time="t", every="day")
    stored = (ledger / LEDGER).read_text()
    entry = json.loads(stored)
    assert entry["facts"]["time"]["column"] == "t"
    assert len(entry["facts"]["time"]["days"]) == 28
    assert list(entry["facts"]["attributes"]) == ["sex"]
    assert "SECRETLY" not in stored
    assert "2024-01" not in stored


def test_the_command_line_refuses_with_exit_code_3_and_lists(trips_csv, tmp_path, capsys):
    ledger = tmp_path / "ledger"
    asked = (
        "anonymize",
        trips_csv,
        "--resolution",
        8,
        "--protect",
        "trips",
        "--max-suppressed",
        0.3,
        "--ledger",
        ledger,
    )
    assert run(*asked, "-v", "--k", 5, "--out", tmp_path / "a") == 0
    assert "holds no other exact release" in capsys.readouterr().out
    assert run(*asked, "--k", 8, "--out", tmp_path / "b") == 3
    assert "same trips as 'a'" in capsys.readouterr().err
    assert run("ledger", ledger, "--withdraw", "a", "--backup", tmp_path / "backup.tar") == 0
    assert "a: layered, layercut, withdrawn" in capsys.readouterr().out
    assert run("ledger", tmp_path / "nowhere") == 2
