"""A series: steps over one map, continued as trips are added, and refused where published steps
have changed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import trip_table
from flowveil import (
    InfeasibleError,
    ParameterError,
    publish_series,
    read_trips,
    verify_release,
    verify_series,
)
from flowveil.publishing.series.derived import complete_periods
from flowveil.verify.verification import PrivateFiles
from samples.drafts import unchecked
from unit.apps.cli.test_cli import run, snapshot

K = {"k": 5, "max_suppressed": 0.9}


def months(n: int) -> pa.Table:
    """Trips of n months, 200 in each; a month has the same trips whatever follows."""
    parts = []
    for month in range(n):
        table = trip_table(200, seed=month)
        times = [f"2024-{month + 1:02d}-{i % 28 + 1:02d} 08:00:00" for i in range(len(table))]
        parts.append(table.append_column("time", pa.array(times)))
    return pa.concat_tables(parts)


def published(trips: pa.Table, place: Path, **asked):
    return publish_series(
        trips, place, time="time", resolution=7, weight="weight", asked={**K, **asked}
    )


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is recounted where a test verifies the series, and what stays as it was is
    known by then."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    place = tmp_path_factory.mktemp("written") / "series"
    published(months(2), place)
    return place


@pytest.fixture
def series(written):
    """Two months, to be continued or tampered with; always in the same place."""
    place = written.parent / "copy"
    shutil.rmtree(place, ignore_errors=True)
    return shutil.copytree(written, place)


@pytest.mark.slow
def test_a_series_is_continued_and_its_steps_stay_what_they_were(series):
    before = snapshot(series / "2024-01"), snapshot(series / "2024-02")
    made = published(months(3), series)
    assert made.published == ("2024-03",)
    assert (snapshot(series / "2024-01"), snapshot(series / "2024-02")) == before
    assert verify_series(series, against=months(3)).findings == ()
    reports = [json.loads((series / f"2024-0{m}" / "report.json").read_text()) for m in (1, 2, 3)]
    assert [r["parameters"]["during"] for r in reports] == ["2024-01", "2024-02", "2024-03"]
    assert {r["statement"]["zones_of"] for r in reports[1:]} == {made.index["map_sha256"]}


def test_totals_are_sums_of_what_the_steps_publish(series):
    expected: dict[tuple[str, str], int] = {}
    for step in ("2024-01", "2024-02"):
        for row in pq.read_table(series / step / "flows.parquet").to_pylist():
            cell = row["origin_zone"], row["destination_zone"]
            expected[cell] = expected.get(cell, 0) + row["trips"]
    totals = pq.read_table(series / "totals.parquet").to_pylist()
    assert {
        (row["origin_zone"], row["destination_zone"]): row["trips"] for row in totals
    } == expected


def test_longer_periods_are_derived_from_the_published_steps_and_verified(series):
    made = published(months(3), series)
    assert sorted(path.name for path in (series / "derived").iterdir()) == ["2024-Q1", "total"]
    expected: Counter[tuple[str, str]] = Counter()
    for step in ("2024-01", "2024-02", "2024-03"):
        for row in pq.read_table(series / step / "flows.parquet").to_pylist():
            expected[row["origin_zone"], row["destination_zone"]] += row["trips"]
    for period in ("2024-Q1", "total"):
        rows = pq.read_table(series / "derived" / period / "flows.parquet").to_pylist()
        assert {
            (row["origin_zone"], row["destination_zone"]): row["trips"] for row in rows
        } == expected
    report = json.loads((series / "derived" / "2024-Q1" / "report.json").read_text())
    assert report["statement"]["about"]["period"] == "2024-01-01/2024-03-31"
    assert report["statement"]["derived_from"] is not None
    assert report["statement"]["shares"] is None
    assert [loss.period for loss in made.losses] == ["2024-Q1", "total"]
    assert all(0 < loss.published <= loss.direct <= 1 for loss in made.losses)
    assert verify_series(series, against=months(3)).findings == ()
    (series / "derived" / "2024-Q1" / "report.html").write_text("changed")
    assert verify_series(series, against=months(3)).findings


def test_a_series_with_a_publisher_is_a_series_in_data_portals(tmp_path):
    place, rdflib = tmp_path / "series", pytest.importorskip("rdflib")
    base = "https://data.example.org/trips"
    about = {"publisher": "City of Paris", "base_url": base, "language": "fr"}
    publish_series(
        months(2), place, time="time", resolution=7, about=about, formats="dcat", asked={**K}
    )
    graph = rdflib.Graph().parse(data=(place / "dcat.jsonld").read_text("utf-8"), format="json-ld")
    dcat = rdflib.Namespace("http://www.w3.org/ns/dcat#")
    series = rdflib.URIRef(f"{base}/")
    assert list(graph.subjects(rdflib.RDF.type, dcat.DatasetSeries)) == [series]
    members = {str(one) for one in graph.subjects(dcat.inSeries, series)}
    # Each step is the data set that its own metadata describe.
    own = {
        json.loads((place / m / "dcat.jsonld").read_text())["@id"] for m in ("2024-01", "2024-02")
    }
    assert members == own == {f"{base}/2024-01/", f"{base}/2024-02/"}
    assert {str(day) for day in graph.objects(None, dcat.startDate)} == {"2024-01-01"}
    languages = {
        str(one).rpartition("/")[2] for one in graph.objects(series, rdflib.DCTERMS.language)
    }
    assert languages == {"ENG", "FRA"}
    assert verify_series(place, against=months(2)).findings == ()
    total = json.loads((place / "derived" / "total" / "report.json").read_text())
    assert total["statement"]["about"]["base_url"] == f"{base}/derived/total"
    changed = (place / "dcat.jsonld").read_text().replace("City", "Town")
    (place / "dcat.jsonld").write_text(changed)
    assert "dcat.jsonld" in str(verify_series(place, against=months(2)).findings)


def test_only_complete_periods_are_derived():
    days = [f"2024-02-{day:02}" for day in range(1, 30)]
    assert complete_periods(days[:1]) == {}
    assert list(complete_periods(days)) == ["2024-02", "total"]
    assert list(complete_periods(days[1:])) == ["total"]
    assert list(complete_periods(["2024-01", "2024-03", "2024-04", "2024-05", "2024-06"])) == [
        "2024-Q2"
    ]


def test_a_late_correction_is_refused_and_nothing_is_written(series):
    later = months(3)
    late = pa.concat_tables([later, later.slice(0, 40)])
    before = {path: path.read_bytes() for path in series.rglob("*") if path.is_file()}
    with pytest.raises(InfeasibleError, match=r"1 published steps contradict .*2024-01"):
        published(late, series)
    assert {path: path.read_bytes() for path in series.rglob("*") if path.is_file()} == before


def test_another_guarantee_map_or_step_is_refused(series, tmp_path):
    with pytest.raises(ParameterError, match="another guarantee"):
        published(months(3), series, k=6)
    published(months(1), tmp_path / "other", k=20)
    with pytest.raises(ParameterError, match="other zones"):
        publish_series(
            months(3),
            series,
            time="time",
            resolution=7,
            zones_of=tmp_path / "other" / "2024-01",
            asked=K,
        )
    with pytest.raises(ParameterError, match="steps of a month or a day"):
        publish_series(months(3), tmp_path / "new", time="time", every="weekday", asked=K)


@pytest.mark.parametrize(
    "name", ["totals.parquet", "index.html", "index.json", "map.parquet", "2024-02/manifest.json"]
)
def test_verify_finds_every_change_outside_the_steps(series, name):
    path = series / name
    if name == "totals.parquet":
        totals = pq.read_table(path)
        pq.write_table(
            totals.set_column(2, "trips", pa.array([t + 1 for t in totals["trips"].to_pylist()])),
            path,
        )
    elif name == "map.parquet":
        frozen = pq.read_table(path)
        pq.write_table(frozen.slice(1), path)
    else:
        path.write_text(
            path.read_text().replace("2024-02", "2024-02 ", 1)
            if name == "index.html"
            else path.read_text() + " "
        )
    assert verify_series(series, against=months(2)).findings


def test_one_month_of_a_table_is_the_step_of_its_series(series):
    private = PrivateFiles(zones_of=series / "map.parquet")
    assert verify_release(series / "2024-02", against=months(2), private=private).findings == ()
    alone = read_trips(months(2), time="time", during="2024-02", resolution=7)
    same = read_trips(months(2).slice(200), resolution=7)
    assert alone.trips.tolist() == same.trips.tolist()
    assert alone.origins.code.tolist() == same.origins.code.tolist()
    with pytest.raises(ParameterError, match="during"):
        read_trips(months(1), time="time", during="January")


def test_the_command_line_publishes_and_verifies_a_series(tmp_path, capsys):
    pq.write_table(months(2), tmp_path / "trips.parquet")
    asked = ("--k", 5, "--max-suppressed", 0.9, "--resolution", 7, "--weight", "weight")
    trips, out = tmp_path / "trips.parquet", tmp_path / "out"
    assert run("series", trips, "--time", "time", *asked, "--out", out) == 0
    assert "2 steps are published over one map" in capsys.readouterr().out
    assert run("verify", out, "--against", trips) == 0
    again = (
        "anonymize",
        trips,
        "--time",
        "time",
        "--set",
        "slices.during=2024-02",
        *asked,
        "--zones-of",
        out / "map.parquet",
    )
    assert run(*again, "--out", tmp_path / "again") == 0
    assert snapshot(tmp_path / "again") == snapshot(out / "2024-02")


def test_months_of_a_series_share_no_trips_and_pass_the_ledger(tmp_path):
    writing = {"time": "time", "resolution": 7, "ledger": tmp_path / "ledger", "asked": K}
    made = publish_series(months(2), tmp_path / "series", **writing)
    assert made.published == ("2024-01", "2024-02")
    assert len((tmp_path / "ledger" / "ledger.jsonl").read_bytes().splitlines()) == 2


@pytest.mark.parametrize(
    "rule", [{"dominance": 0.5}, {"stricter": "places.csv"}, {"l": 2, "l_places": "places.csv"}]
)
def test_a_rule_that_later_steps_would_not_follow_is_refused(rule, tmp_path):
    with pytest.raises(ParameterError, match="cannot be asked for"):
        published(months(2), tmp_path / "series", **rule)
    assert not (tmp_path / "series").exists()


def test_a_month_of_too_few_trips_looks_like_a_month_without_any(tmp_path):
    whole = months(2)
    without = months(1)
    few = pa.concat_tables([without, whole.slice(200, 2)])
    made = [published(trips, tmp_path / name) for name, trips in (("none", without), ("few", few))]
    assert [run.unpublished for run in made] == [0, 1]
    none, some = (
        {
            path.relative_to(run.place): path.read_bytes()
            for path in run.place.rglob("*")
            if path.is_file()
        }
        for run in made
    )
    assert none == some
    assert verify_series(tmp_path / "few", against=few).findings == ()


def test_a_step_that_cannot_be_published_leaves_a_series_that_holds_and_advice_that_works(
    tmp_path, capsys
):
    later = months(2)
    pq.write_table(later, tmp_path / "trips.parquet")
    trips, out = tmp_path / "trips.parquet", tmp_path / "out"
    asked = ("series", trips, "--time", "time", "--k", 5, "--resolution", 7, "--out", out)
    assert run(*asked, "--max-suppressed", 0.02) == 3
    said = capsys.readouterr().err
    assert "Step 2024-02 cannot be published; steps before it stay" in said
    assert "--max-suppressed" in said
    assert "leaving --zones-of out" not in said
    assert run("verify", out, "--against", trips) == 0
    assert run(*asked, "--max-suppressed", 0.9) == 0
    assert run("verify", out, "--against", trips) == 0


def test_nothing_can_be_hidden_in_the_files_outside_the_steps(series):
    """Rows and columns as they were, and a message in places that no row reaches."""
    paths = [series / name for name in ("totals.parquet", "map.parquet")]
    kept = [path.read_bytes() for path in paths]
    assert verify_series(series, against=months(2), strict=True).findings == ()
    note = {b"note": b"p1 lives at N1"}

    def noted(table):
        return table.replace_schema_metadata({**(table.schema.metadata or {}), **note})

    def in_column(table):
        return table.cast(table.schema.set(0, table.schema.field(0).with_metadata(note)))

    for path, whole in zip(paths, kept, strict=True):
        for change, how in (
            (noted, {}),
            (in_column, {}),
            (lambda table: table, {"row_group_size": 1}),
        ):
            pq.write_table(
                change(pq.read_table(path)), path, compression="zstd", version="2.6", **how
            )
            # Where anything outside the steps is wrong, no step is checked.
            assert any(
                path.name in line for line in verify_series(series, against=months(2)).findings
            )
            path.write_bytes(whole)


def test_a_page_that_another_version_claims_to_have_made_is_not_passed_over(series):
    index = json.loads((series / "index.json").read_text())
    index["version"] = "0.0.1"
    (series / "index.json").write_text(json.dumps(index))
    (series / "index.html").write_text("<p>p1 lives at N1</p>")
    assert any("index.html" in line for line in verify_series(series, against=months(2)).findings)


def test_a_step_of_which_no_cell_can_be_published_is_left_out(tmp_path):
    """As at the end of a year of trips: a few begin in the next one, more than k and each
    elsewhere."""
    whole = months(3)
    cells = sorted(zip(whole["start_lat"].to_pylist(), range(len(whole)), strict=True))
    last = [at for _, at in cells if at >= 400][::20]
    few = pa.concat_tables([months(2), whole.take(last)])
    made = published(few, tmp_path / "series", k=8)
    assert made.published == ("2024-01", "2024-02")
    assert made.unpublished == 1
    assert len(last) >= 8


def test_layers_are_kept_by_later_steps(tmp_path):
    place = tmp_path / "series"
    made = published(months(2), place, method="layercut", max_suppressed=0.5)
    assert made.published == ("2024-01", "2024-02")
    cells = [pq.read_table(place / step / "flows.parquet") for step in made.published]
    names = ("origin_zone", "destination_zone", "layer")
    first, second = (
        set(zip(*(table[name].to_pylist() for name in names), strict=True)) for table in cells
    )
    assert second < first
    assert len({layer for *_, layer in second}) > 1
    assert verify_series(place, against=months(2)).findings == ()
