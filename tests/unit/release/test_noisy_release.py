"""A noisy release from the input to the folder.

What is written, what is not, what the check finds.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from conftest import trip_table
from flowveil import NoisyRelease, ParameterError, anonymize, read_trips, verify_release
from flowveil.apps.cli import main
from flowveil.published.html import render
from flowveil.published.sentences import promise_of_noise
from flowveil.publishing.publish import publish
from flowveil.verify.from_flows import recount_flows
from samples.drafts import unchecked
from samples.releases import edit_report, edit_table, rehash, write_table
from samples.verified import findings_of

REGION = h3.latlng_to_cell(48.85, 2.35, 5)
ASKED = {"epsilon": 1.0, "bound": 5, "region": REGION, "level": 7}


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def trips() -> pa.Table:
    return trip_table(1500)


@pytest.fixture(scope="module")
def release(trips) -> NoisyRelease:
    return anonymize(read_trips(trips, resolution=9), "laplace", **ASKED)


@pytest.fixture(scope="module")
def written(tmp_path_factory, release) -> Path:
    return release.write(tmp_path_factory.mktemp("written") / "release")


@pytest.fixture
def folder(written, tmp_path) -> Path:
    return shutil.copytree(written, tmp_path / "release")


# ---- what is written -----------------------------------------------------------------------------


def test_the_folder_holds_the_release(folder, release, trips):
    table = pq.read_table(folder / "flows.parquet")
    assert table.column_names == ["origin_zone", "destination_zone", "trips"]
    assert table == release.flows
    assert verify_release(folder, against=trips).findings == ()
    assert sorted(p.name for p in folder.iterdir()) == [
        *("README.txt", "datapackage.json", "flows.parquet", "manifest.json"),
        *("report.html", "report.json", "zones.parquet"),
    ]


def test_the_table_is_streamed_in_row_groups(tmp_path, release, monkeypatch):
    monkeypatch.setattr("flowveil.published.folder.ROWS_PER_GROUP", 100)
    folder = release.write(tmp_path / "release")
    written = pq.ParquetFile(folder / "flows.parquet")
    assert written.num_row_groups == -(-len(release.flows) // 100)
    assert findings_of(folder, release.input) == []
    assert written.read() == release.flows


def test_the_report_states_the_promise(folder):
    report = json.loads((folder / "report.json").read_text())
    promise = report["guarantee"]
    assert {k: promise[k] for k in ("unit", "epsilon", "delta", "bound")} == {
        "unit": "person", "epsilon": 1.0, "delta": 0.0, "bound": 5,
    }  # fmt: skip
    assert "discrete Laplace" in promise["mechanism"]
    assert promise["domain"]["region"] == [REGION]
    said = report["published"]["sentences"]
    assert "Protected: people, by differential privacy" in said[0]
    assert "at most 5 trips" in " ".join(said)
    assert json.loads((folder / "manifest.json").read_text())["statement"] == said
    page = (folder / "report.html").read_text()
    assert "ε = 1, δ = 0, for each person" in page


def test_without_persons_the_report_says_that_the_unit_is_a_trip(trips, tmp_path):
    flows = read_trips(trips.drop(["person_id"]), resolution=9)
    release = anonymize(flows, "laplace", epsilon=1, region=REGION, level=7)
    report = release.summary()
    assert report["guarantee"]["unit"] == "trip"
    assert "The unit is a trip" in report["published"]["sentences"][0]
    assert report["published"]["sentences"][1].startswith("Not protected: people")
    assert "for each trip, not each person" in render(report)
    folder = release.write(tmp_path / "release")
    assert verify_release(folder, against=trips.drop(["person_id"])).findings == ()


@pytest.mark.parametrize("unit", ["person", "trip"])
def test_observed_zones_are_said_to_be_unprotected(trips, unit):
    table = trips if unit == "person" else trips.drop(["person_id"])
    flows = read_trips(table, resolution=9)
    bound = {"bound": 5} if unit == "person" else {}
    report = anonymize(flows, "laplace", epsilon=1, region="observed", level=7, **bound).summary()
    assert report["guarantee"]["unit"] == unit
    assert any(
        line.startswith("Not protected: the list of zones")
        for line in report["published"]["sentences"]
    )
    # The first line and the heading alone must not claim more than the guarantee.
    condition = "the list of zones, which comes from the data"
    assert condition in report["published"]["sentences"][0].split(". ")[0]
    assert condition in promise_of_noise(report["guarantee"])
    given = anonymize(flows, "laplace", epsilon=1, region=REGION, level=7, **bound).summary()
    assert "list of zones" not in given["published"]["sentences"][0] + promise_of_noise(
        given["guarantee"]
    )


def test_the_threshold_is_told_and_kept(trips, tmp_path):
    release = anonymize(
        read_trips(trips, resolution=9), "laplace", epsilon=4, bound=5, delta=1e-4, level=6
    )
    folder = release.write(tmp_path / "release")
    report = json.loads((folder / "report.json").read_text())
    least = report["guarantee"]["threshold"]
    assert least > 5
    assert min(pq.read_table(folder / "flows.parquet")["trips"].to_pylist()) >= least
    assert report["guarantee"]["delta"] == 1e-4
    assert verify_release(folder, against=trips).findings == ()


def test_nothing_in_the_report_and_the_zones_depends_on_the_true_counts(release):
    """Another input and the same options give the same report but for what the noisy table says of
    itself."""
    other = anonymize(read_trips(trip_table(700, seed=9), resolution=9), "laplace", **ASKED)
    one, two = release.summary(), other.summary()
    figures = [report.pop("published") for report in (one, two)]
    assert one == two
    assert [each["sentences"] for each in figures] == [figures[0]["sentences"]] * 2
    assert other.zones == release.zones


def test_no_exact_number_is_in_any_text_of_the_folder(tmp_path):
    """Counts that are unlike any other number: rows, trips, flows, persons, tiles."""
    table = trip_table(7919)
    flows = read_trips(table, resolution=9)
    release = anonymize(flows, "laplace", **ASKED)
    folder = release.write(tmp_path / "release")
    secret = {
        len(table),
        len(flows),
        int(flows.trips.sum()),
        flows.origins.n_tiles,
        flows.destinations.n_tiles,
    }
    secret |= set(release.left_out.values()) - {0}
    numbers = {str(n) for n in secret if n > 500} | {f"{n:,}" for n in secret if n > 1000}
    message = {str(v) for v in release.summary()["published"].values()}
    for name in ("report.json", "report.html", "manifest.json"):
        text = (folder / name).read_text()
        assert not {n for n in numbers - message if f" {n}" in text or f">{n}<" in text}
        assert "SECRET" not in text
    assert "SECRET" not in repr(release)


def test_measures_for_the_data_holder_are_all_there(release):
    m = release.metrics()["trips"]
    assert list(release.metrics()) == ["trips"]
    for name in (
        "reconstruction_loss",
        "distribution_distance",
        "suppressed_share",
        "generalization_distance_m",
    ):
        assert m[name] is not None


# ---- seeds ---------------------------------------------------------------------------------------


def test_noise_from_a_seed_is_never_written(trips, tmp_path):
    release = anonymize(
        read_trips(trips, resolution=9), "laplace", **ASKED, unsafe_seed_for_tests=3
    )
    for write in (release.write, lambda place: publish(release, place)):
        with pytest.raises(ParameterError, match="seed"):
            write(tmp_path / "release")
    assert list(tmp_path.iterdir()) == []


# ---- the check -----------------------------------------------------------------------------------


def change_flows(folder: Path, change) -> None:
    """Same bytes as the release: only the content is wrong."""
    write_table(change(pq.read_table(folder / "flows.parquet")), folder / "flows.parquet")
    rehash(folder)


def with_trips(table: pa.Table, trips: list[int]) -> pa.Table:
    return table.set_column(2, "trips", pa.array(trips, pa.int64()))


TAMPERED = {
    "a zero": lambda f: change_flows(f, lambda t: with_trips(t, [0, *t["trips"].to_pylist()[1:]])),
    "a row twice": lambda f: change_flows(f, lambda t: pa.concat_tables([t[:1], t])),
    "weights": lambda f: change_flows(
        f, lambda t: t.append_column("weight", pa.array([1.0] * len(t)))
    ),
    "an empty field": lambda f: change_flows(
        f, lambda t: with_trips(t, [None, *t["trips"].to_pylist()[1:]])
    ),
    "a zone less": lambda f: edit_table(f, "zones.parquet", lambda rows: rows[1:]),
    "another unit": lambda f: edit_report(f, lambda r: r["guarantee"].update(unit="trip")),
    "too little noise": lambda f: edit_report(f, lambda r: r["guarantee"].update(scale=1.0)),
    "more noise than there is": lambda f: edit_report(
        f, lambda r: r["guarantee"].update(scale=r["guarantee"]["scale"] * 1.5)
    ),
    "another deviation": lambda f: edit_report(
        f, lambda r: r["guarantee"].update(deviation=r["guarantee"]["deviation"] + 1e-6)
    ),
    "a low threshold": lambda f: edit_report(
        f, lambda r: r["guarantee"].update(delta=1e-6, threshold=20)
    ),
    "no threshold": lambda f: edit_report(f, lambda r: r["guarantee"].update(delta=1e-6)),
    "a threshold too many": lambda f: edit_report(f, lambda r: r["guarantee"].update(threshold=3)),
    "another region": lambda f: edit_report(
        f, lambda r: r["guarantee"]["domain"].update(region=["851f8d3bfffffff"])
    ),
    "another level": lambda f: edit_report(f, lambda r: r["guarantee"]["domain"].update(level=6)),
    "a seed": lambda f: edit_report(
        f, lambda r: r["parameters"]["options"].update(unsafe_seed_for_tests=3)
    ),
}
#: Found before anything is counted.
FORM = {
    "another order": lambda f: change_flows(f, lambda t: t.take(np.arange(len(t))[::-1])),
    "rows less": lambda f: change_flows(f, lambda t: t[:-5]),
    "an unknown entry": lambda f: edit_report(f, lambda r: r.update(input_rows=1500)),
    "an unknown promise": lambda f: edit_report(f, lambda r: r["guarantee"].update(people=75)),
    "an unknown domain": lambda f: edit_report(
        f, lambda r: r["guarantee"]["domain"].update(empty_pairs=75)
    ),
    "how many zones have trips": lambda f: edit_report(
        f, lambda r: r["guarantee"]["domain"].update(zones_from_data=True)
    ),
    "no bound": lambda f: edit_report(f, lambda r: r["guarantee"].pop("bound")),
    "no domain": lambda f: edit_report(f, lambda r: r["guarantee"].pop("domain")),
    "a file changed after the fact": lambda f: (f / "report.html").write_text("x"),
    "not a table": lambda f: ((f / "flows.parquet").write_bytes(b"x"), rehash(f)),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_the_recount_finds(kind, folder, release):
    TAMPERED[kind](folder)
    assert recount_flows(folder, release.input).findings
    assert findings_of(folder, release.input)


@pytest.mark.parametrize("kind", FORM)
def test_the_rebuild_finds(kind, folder, release):
    FORM[kind](folder)
    assert findings_of(folder, release.input)


# ---- the command line ----------------------------------------------------------------------------


def run(*arguments: object) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.fixture
def source(tmp_path, trips) -> Path:
    csv.write_csv(trips, tmp_path / "trips.csv")
    return tmp_path / "trips.csv"


def command(source: Path, out: Path, *more: object, **options: object) -> list[object]:
    given = {"epsilon": 1, "bound": 5, "level": 7, "region": REGION, **options}
    flags = [
        word
        for name, value in given.items()
        if value is not None
        for word in ("--option", f"{name}={value}")
    ]
    return [
        "anonymize",
        source,
        "--method",
        "laplace",
        "--resolution",
        9,
        "--out",
        out,
        *flags,
        *more,
    ]


def test_the_command_line_publishes_and_says_the_unit(source, tmp_path, capsys):
    assert run(*command(source, tmp_path / "r")) == 0
    said = capsys.readouterr().out
    assert "Protected: people, by differential privacy" in said
    assert "noisy counts" in said
    assert "1,500" not in said
    assert run("verify", tmp_path / "r", "--against", source) == 0
    assert "holds: it has the form of its promise" in capsys.readouterr().out


def test_json_tells_no_exact_count(source, tmp_path, capsys):
    assert run(*command(source, tmp_path / "r", "--json")) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["guarantee"]["unit"] == "person"
    assert "rows" not in result
    assert "left_out" not in result


@pytest.mark.parametrize(
    ("more", "options", "words"),
    [
        (["--k", 10], {}, "--k"),
        (["--max-suppressed", 0.1], {}, "--max-suppressed"),
        (["--l", 2], {}, "--l"),
        (["--seed", 1], {}, "--seed"),
        ([], {"epsilon": None}, "needs epsilon"),
        ([], {"bound": None}, "needs a bound"),
        ([], {"region": None}, "delta above 0"),
        ([], {"unsafe_seed_for_tests": 1}, "seed"),
    ],
    ids=str,
)
def test_the_command_line_refuses(source, tmp_path, capsys, more, options, words):
    assert run(*command(source, tmp_path / "r", *more, **options)) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
