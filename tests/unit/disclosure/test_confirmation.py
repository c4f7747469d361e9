"""What is refused unless it is confirmed, and that confirmations are published with the release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import flowveil
from conftest import trip_table
from flowveil.cli import main
from flowveil.release.confirmation import SmallKWarning, weaker_in
from samples.drafts import unchecked
from samples.processes import in_this_process
from samples.releases import edit_report, read_json


def run(*words: object) -> int:
    try:
        main([str(word) for word in words])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def flows():
    return flowveil.read_trips(trip_table(), resolution=7, weight="weight")


def test_people_are_protected_where_persons_are_known_and_trips_elsewhere(flows):
    assert flowveil.anonymize(flows, k=5).guarantee.units == ("people",)
    nobody = flowveil.read_trips(trip_table(), resolution=7, person="")
    assert flowveil.anonymize(nobody, k=5).guarantee.units == ("trips",)
    with in_this_process():
        (run,) = flowveil.compare(flows, methods="suppression", k=5).runs
    assert run.protect == ("people",)


def test_a_chosen_protection_of_trips_is_repeated_in_the_report(flows):
    chosen = [
        line for line in flowveil.anonymize(flows, k=5, protect="trips").summary()["statement"] if "Chosen" in line
    ]
    assert len(chosen) == 1
    assert "--protect trips" in chosen[0]
    assert not any("Chosen" in line for line in flowveil.anonymize(flows, k=5).summary()["statement"])


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--k", 2], "--yes-k-below-3"),
        (["--k", 5, "--protect", "population", "--weight", "weight"], "--population-only"),
        (["--k", 2, "--by", "sex", "--by-many"], "--yes-k-below-3"),
    ],
)
def test_what_hides_too_few_is_refused_until_it_is_confirmed(tmp_path: Path, trips_csv, capsys, words, flag):
    from pyarrow import csv

    table = csv.read_csv(trips_csv)
    csv.write_csv(table.append_column("sex", [["f", "m"] * 200]), trips_csv)
    asked = ["anonymize", trips_csv, "--resolution", 7, "--method", "odkanon", "--out", tmp_path / "r", *words]
    assert run(*asked) == 2
    assert flag in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
    assert run(*asked, flag) == 0
    said = capsys.readouterr().err
    assert ("Weak: k = 2" in said) == (2 in words)
    report = read_json(tmp_path / "r" / "report.json")
    assert report["parameters"]["confirmed"] == [flag[2:]]
    assert flag in report["command"]
    assert run("verify", tmp_path / "r", "--against", trips_csv) == 0, capsys.readouterr().err
    edit_report(tmp_path / "r", lambda report: report["parameters"].pop("confirmed"))
    assert run("verify", tmp_path / "r", "--against", trips_csv) == 3
    assert "confirmed" in capsys.readouterr().err


def test_a_k_below_five_is_warned_of(flows):
    with pytest.warns(SmallKWarning, match="k = 4 is below 5"):
        release = flowveil.anonymize(flows, k=4)
    assert any(line.startswith("Weak: k = 4") for line in release.summary()["statement"])
    with pytest.raises(flowveil.ParameterError, match="allow_small_k"):
        flowveil.anonymize(flows, k=2)
    with pytest.raises(flowveil.ParameterError, match="population_only"):
        flowveil.anonymize(flows, protect="population")


def test_a_given_population_below_k_mean_weights_is_warned_of_and_not_recorded(flows):
    asked = {"k": 5, "protect": ["people", "population"]}
    with pytest.warns(SmallKWarning, match="fewer than 5 trips"):
        release = flowveil.anonymize(flows, k_population=0.001, **asked)
    assert release.parameters["confirmed"] == []


def test_a_confirmation_nobody_needed_is_not_published(flows):
    release = flowveil.anonymize(flows, k=5, allow_small_k=True, population_only=True)
    assert release.summary()["parameters"]["confirmed"] == []


def test_a_stronger_release_is_not_replaced_by_a_weaker_one(flows, tmp_path):
    out = tmp_path / "r"
    flowveil.anonymize(flows, k=10, protect=("people", "trips")).write(out)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    for weaker, why in (
        ({"k": 9, "protect": ("people", "trips")}, "lower"),
        ({"k": 20, "protect": "trips"}, "people not"),
    ):
        with pytest.raises(flowveil.OutputError, match=f"{why}.*--replace-stronger"):
            flowveil.anonymize(flows, **weaker).write(out)
        assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    flowveil.anonymize(flows, k=11, protect=("people", "trips")).write(out)
    flowveil.anonymize(flows, k=5).write(out, replace_stronger=True)
    assert "--replace-stronger" in json.loads((out / "report.json").read_text(encoding="utf-8"))["command"]
    assert flowveil.verify_folder(out, against=trip_table()) == []


def counted(k=10, k_population=None, kind="plain", **thresholds):
    return {"kind": kind, "guarantee": {"k": k, **thresholds}, "parameters": {"k_population": k_population}}


def noisy(epsilon=1.0, delta=0.0, unit="person"):
    return {"kind": "noisy", "guarantee": {"epsilon": epsilon, "delta": delta, "unit": unit}, "parameters": {}}


@pytest.mark.parametrize(
    ("earlier", "now", "weaker"),
    [
        (counted(trips=10), counted(trips=10), False),
        (counted(trips=10), counted(trips=9), True),
        (counted(trips=10, locations=2), counted(trips=10), True),
        # Ten people made ten trips at least.
        (counted(trips=10), counted(people=10), False),
        (counted(trips=10), counted(people=9), True),
        (counted(people=10), counted(trips=100), True),
        (counted(trips=10), counted(trips=10, locations=2), False),
        # The mean weight of another month is another one; k is what was asked for.
        (counted(population=1000.0), counted(population=998.0), False),
        (counted(population=1000.0), counted(k=9, population=None), True),
        (counted(population=1000.0), counted(population=5000.0, k_population=5000.0), True),
        (counted(population=9.0, k_population=9.0), counted(population=8.0, k_population=8.0), True),
        (noisy(), noisy(), False),
        (noisy(), noisy(epsilon=1.1), True),
        (noisy(), noisy(delta=1e-9), True),
        (noisy(), noisy(unit="trip"), True),
        (noisy(), counted(people=100), True),
        (counted(people=100), noisy(), False),
    ],
)
def test_what_weaker_means(earlier, now, weaker):
    assert bool(weaker_in(earlier, now)) == weaker
