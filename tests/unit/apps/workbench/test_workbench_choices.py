"""What the page chose, as a call, as a command and as lines of Python.

One release, whatever was chosen.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from pyarrow import parquet as pq

from conftest import trip_table
from flowveil import anonymize, read_trips, verify_release
from flowveil.analysis.areas import area_accuracy, main_accuracy
from flowveil.apps.cli import main
from flowveil.apps.workbench import work
from flowveil.apps.workbench.choices import (
    _BY_SCRIPT,
    FORMAT_NAMES,
    cell_choices,
    choices_in_recipe,
    choices_of,
    defaults_of,
    index,
    page_request,
    page_settings,
    python_code,
    unavailable,
)
from flowveil.apps.workbench.figures import sign_off_sentence
from flowveil.apps.workbench.work import WORK, Task
from flowveil.core.errors import DataError, InfeasibleError, ParameterError
from flowveil.core.flows import Cells
from flowveil.published.exports import FORMATS
from flowveil.publishing import run
from flowveil.publishing.run import anonymize_request
from flowveil.release.noisy import NothingLeftError
from flowveil.request.recipe import recipe_text
from flowveil.request.request import Request, command_line
from samples.drafts import unchecked

#: What a person signs.
SIGNED = {"signer": "Data protection office", "audit": {"compared": [], "not_compared": []}}


class Silent:
    def label(self, text: str) -> None: ...

    def share(self, done: float) -> None: ...


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Trips with persons, weights, times and attributes, also between zones of a map.

    And matrices.
    """
    folder = tmp_path_factory.mktemp("asking")
    n = 240
    times = pa.array([f"2024-03-0{4 + i % 2}T0{7 + i % 3}:15:00" for i in range(n)])
    zone = pa.array([f"z{i * i % 9}" for i in range(n)])
    trips = (
        trip_table(n)
        .append_column("sex", pa.array(["f", "m"] * (n // 2)))
        .append_column("t", times)
    )
    trips = trips.append_column("from", zone).append_column("to", pa.array(zone.to_pylist()[::-1]))
    csv.write_csv(trips, folder / "trips.csv")
    y, x = np.divmod(np.arange(9), 3)
    codes = {"code": [f"z{i}" for i in range(9)], "row": [f"r{i}" for i in y]}
    csv.write_csv(pa.table({**codes, "lat": y / 50, "lon": x / 40}), folder / "map.csv")
    with h5py.File(folder / "trips.omx", "w") as file:
        file.attrs["OMX_VERSION"], file.attrs["SHAPE"] = b"0.2", np.array([9, 9], np.int32)
        file["lookup/zone"] = np.array([f"z{i}".encode() for i in range(9)])
        for name, number in (("car", 12), ("bus", 30)):
            file[f"data/{name}"] = np.full((9, 9), float(number))
    return folder


BETWEEN = {"origin_tile": "from", "destination_tile": "to"}
#: The file, whether there is a map, and what is chosen.
CASES: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "default": ("trips.csv", False, {"resolution": 7, "dominance": 0.9}),
    "units": (
        "trips.csv",
        False,
        {
            "resolution": 7,
            "weight": "weight",
            "protect": ["people", "population"],
            "k": 4,
            "l": 1,
            "method": "odkanon",
            "options": {"budget": "volume"},
            "max_suppressed": 0,
            "formats": ["csv", "geojson"],
            "title": "A 'title'",
        },
    ),
    "nobody": (
        "trips.csv",
        False,
        {
            "resolution": 7,
            "person": "",
            "hierarchy": "h3",
            "same_zones": True,
            "within": "2.2,48.7,2.5,49.0",
        },
    ),
    "groups": (
        "trips.csv",
        False,
        {
            "resolution": 6,
            "by": ["sex"],
            "k": 5,
            "method": "odkanon",
            "common_zones": True,
        },
    ),
    "times": (
        "trips.csv",
        False,
        {
            "resolution": 6,
            "time": "t",
            "every": "hour",
            "k": 3,
            "method": "oigh",
        },
    ),
    "folded": (
        "trips.csv",
        False,
        {"resolution": 6, "time": "t", "every": "hour", "fold_time": True, "k": 5},
    ),
    "map": ("trips.csv", True, {**BETWEEN, "zones_levels": ["row", "code"], "k": 4}),
    "matrices": (
        "trips.omx",
        True,
        {"zones_tile": "code", "by": ["matrix"], "by_many": True, "method": "odkanon"},
    ),
}


def stamp(path: Path) -> list[Any]:
    now = os.stat(path)
    return [str(path), now.st_size, now.st_mtime_ns]


def published(folder: Path, room: Path, name: str) -> tuple[Path, Request]:
    """Publish as a worker does."""
    file, mapped, chosen = CASES[name]
    (room / "files").mkdir()
    choices = json.loads(json.dumps(choices_of(chosen)))
    task = {
        "room": str(room),
        "source": stamp(folder / file),
        "zones": stamp(folder / "map.csv") if mapped else None,
        "choices": choices,
        "out": str(room / "out"),
        **SIGNED,
    }
    WORK["publish"](Task(task, Silent()))
    named = {
        "input": str(folder / file),
        "zones": str(folder / "map.csv") if mapped else None,
        "out": "release",
    }
    return room / "out", page_request(choices_of(choices)).with_values(**named)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_call_command_and_lines_make_one_release(name, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A worker recounts from the file what it has published; the others have its bytes.
    with unchecked():
        out, request = published(folder, tmp_path, name)
        main([*shlex.split(command_line(request))[1:], "--quiet"])
        exec(python_code(request).replace("write('release'", "write('again'"), {})
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    assert first == {path.name: path.read_bytes() for path in Path("release").iterdir()}
    assert first == {path.name: path.read_bytes() for path in Path("again").iterdir()}


def test_matrices_of_a_file_are_seen_before_anything_is_chosen(folder, tmp_path):
    task = {
        "room": str(tmp_path),
        "source": stamp(folder / "trips.omx"),
        "zones": stamp(folder / "map.csv"),
    }
    found = WORK["inspect"](Task({**task, "choices": {"zones_tile": "code"}}, Silent()))
    assert (found["matrices"], found["problem"]) == (["bus", "car"], None)
    assert "matrix" in [column["name"] for column in found["columns"]]
    # A map that cannot be read without settings: its columns are offered, with the problem.
    found = WORK["inspect"](Task({**task, "choices": {"zones_tile": "nowhere"}}, Silent()))
    assert "nowhere" in found["problem"]
    assert found["map_columns"] == ["code", "row", "lat", "lon"]


def test_noise_is_the_same_mechanism_with_new_draws(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = {"resolution": 7, "method": "topdown", "k": 10}
    chosen["options"] = {"epsilon": "20", "bound": "2", "level": "7", "region": "841fb47ffffffff"}
    monkeypatch.setitem(CASES, "noisy", ("trips.csv", False, chosen))
    out, request = published(folder, tmp_path, "noisy")
    command = command_line(request)
    assert "--k" not in command
    main([*shlex.split(command)[1:], "--quiet"])
    reports = [
        json.loads((place / "report.json").read_text("utf-8")) for place in (out, Path("release"))
    ]
    assert reports[0]["parameters"] == reports[1]["parameters"]
    assert (out / "flows.parquet").read_bytes() != Path("release/flows.parquet").read_bytes()
    task = {
        "room": str(tmp_path),
        "source": stamp(folder / "trips.csv"),
        "zones": None,
        "choices": chosen,
        **SIGNED,
    }
    found = WORK["check"](Task({**task, "releases": [("First", str(out))]}, Silent()))
    assert any("add up" in line for line in found["audit"]["failures"])


def noisy_task(folder: Path, room: Path, **options: str) -> dict[str, Any]:
    chosen = {
        "resolution": 7,
        "method": "topdown",
        "options": {"bound": "2", "level": "7", **options},
    }
    (room / "files").mkdir(exist_ok=True)
    task = {
        "room": str(room),
        "source": stamp(folder / "trips.csv"),
        "zones": None,
        "choices": chosen,
    }
    return {**task, "releases": [], **SIGNED}


def test_what_noise_happens_to_be_does_not_decide_whether_it_is_published(
    folder, tmp_path, monkeypatch
):
    """As on the command line: a draw that looks unlikely is a draw, and leaving it out would change
    the law."""
    monkeypatch.setattr(
        "flowveil.verify.recount.noise.check_counts", lambda *_: iter(["this is an unlikely draw"])
    )
    task = noisy_task(folder, tmp_path, epsilon="5", region="841fb47ffffffff")
    found = WORK["publish"](Task({**task, "out": str(tmp_path / "out")}, Silent()))
    assert "report.json" in found["files"]
    found = verify_release(tmp_path / "out", against=folder / "trips.csv")
    assert list(found.findings) == ["this is an unlikely draw"]


def test_noise_under_a_total_is_refused_at_sign_off_and_recorded_where_nothing_is_left(
    folder, tmp_path, monkeypatch
):
    ledger = tmp_path / "ledger"
    recorded = {"out": str(tmp_path / "out"), "ledger": str(ledger)}
    task = {**noisy_task(folder, tmp_path, epsilon="5", region="841fb47ffffffff"), **recorded}
    nothing = Cells(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64))
    with monkeypatch.context() as unlucky:
        unlucky.setattr(
            sys.modules["flowveil.methods.topdown"], "count_top_down", lambda *_, **__: nothing
        )
        with pytest.raises(NothingLeftError):
            WORK["publish"](Task(task, Silent()))
    assert json.loads((ledger / "ledger.jsonl").read_text("utf-8"))["spent"]["epsilon"] == 5
    budget = WORK["check"](Task(task, Silent()))["audit"]["budget"]
    assert budget == {"releases": 1, "epsilon": 10.0, "delta": 0.0, "epsilon_total": None}
    # Few, large zones: something is left after any likely noise.
    release = anonymize(
        read_trips(folder / "trips.csv", resolution=7),
        "topdown",
        epsilon=1,
        bound=2,
        level=5,
        region="841fb47ffffffff",
    )
    release.write(tmp_path / "under", ledger=ledger, epsilon_total=8)
    with pytest.raises(InfeasibleError, match="would sum to 11, and the total is 8; 2 is left"):
        WORK["check"](Task(task, Silent()))
    assert not (tmp_path / "out").exists()


def test_the_chart_has_a_point_for_each_method_and_k(folder, tmp_path):
    """Computed with the chosen slices; the result grows while it is computed."""
    (tmp_path / "files").mkdir()
    heard: list[float] = []
    progress = Silent()
    progress.share = heard.append
    place = tmp_path / "errors.json"
    task = {
        "room": str(tmp_path),
        "source": stamp(folder / "trips.csv"),
        "zones": None,
        "choices": {"resolution": 6, "k": 7, "time": "t", "every": "hour"},
        "result": str(place),
    }
    found = WORK["errors"](Task(task, progress))
    assert found["methods"][0] == "layercut"  # the recommended one
    assert {(p["method"], p["k"]) for p in found["points"]} == {
        (name, k) for name in found["methods"] for k in (5, 10, 20, 50)
    }
    assert json.loads(place.read_text("utf-8"))["points"] == found["points"]
    # Methods that do not merge times are compared, too.
    known = {p["method"] for p in found["points"] if p["error"] is not None}
    assert known == {"layercut", "paircut", "twincut", "odkanon"}
    assert heard[-1] == 1
    release = anonymize(
        read_trips(folder / "trips.csv", resolution=6, time="t", every="hour"), "odkanon", k=5
    )
    (point,) = [p for p in found["points"] if (p["method"], p["k"]) == ("odkanon", 5)]
    assert point["error"] == main_accuracy(area_accuracy(release)).misplaced


def test_a_release_is_computed_once(folder, tmp_path, monkeypatch):
    """What was tried is what is checked and published; noise alone is drawn again."""
    (tmp_path / "files").mkdir()
    made = []

    def counted(request, flows, **how):
        made.append(request)
        return anonymize_request(request, flows, **how)

    monkeypatch.setattr(work, "anonymize_request", counted)
    task = {
        "room": str(tmp_path),
        "source": stamp(folder / "trips.csv"),
        "zones": None,
        "choices": {"resolution": 7, "k": 4},
        "releases": [],
        "result": str(tmp_path / "run.json"),
        **SIGNED,
    }
    shown = WORK["run"](Task(task, Silent()))
    checked = WORK["check"](Task({**task, "choices": {**task["choices"], "title": "T"}}, Silent()))
    WORK["publish"](Task({**task, "out": str(tmp_path / "out")}, Silent()))
    assert len(made) == 1
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))["published"]
    for figures in (shown["figures"], checked["figures"]):
        assert figures[0]["number"] == report["cells"]
    assert f"{report['cells']:,} cells with {report['trips']:,} trips" in checked["sentence"]
    page = (tmp_path / "run.html").read_text("utf-8")
    assert page == (tmp_path / "out" / "report.html").read_text("utf-8")
    # Another file, or another choice, is another release.
    WORK["check"](Task({**task, "choices": {"resolution": 7, "k": 5}}, Silent()))
    (tmp_path / "other.csv").write_bytes((folder / "trips.csv").read_bytes())
    WORK["check"](Task({**task, "source": stamp(tmp_path / "other.csv")}, Silent()))
    assert len(made) == 3
    noisy = noisy_task(folder, tmp_path, epsilon="20", region="841fb47ffffffff")
    for _ in range(2):
        WORK["check"](Task(noisy, Silent()))
    assert len(made) == 5


@pytest.mark.parametrize(
    "chosen",
    [{"method": "laplace", "by": ["sex"]}, {"fold_time": True}, {"fold_time": True, "every": "hour", "by": ["sex"]},
     {"method": "privtree", "options": {"epsilon": "1", "unsafe_seed_for_tests": "1"}},
     {"dominance": 0.5, "by": ["sex"]}],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(chosen):
    with pytest.raises(ParameterError):
        page_request(choices_of(chosen))


def test_a_time_without_a_step_is_kept_and_makes_no_slices():
    pending = {"time": "t", "timezone": "Europe/Oslo"}
    assert page_request(choices_of(pending)) == page_request(choices_of({}))
    assert cell_choices(pending) == {}
    sliced = page_request(choices_of({**pending, "every": "hour"}))
    assert sliced.slices.timezone == "Europe/Oslo"


@pytest.mark.parametrize("zone", ["Europe/Olso", "CEST"])
def test_a_wrong_time_zone_is_refused_before_anything_is_read(zone):
    with pytest.raises(ParameterError, match="--timezone"):
        page_request(choices_of({"time": "t", "timezone": zone}))


def test_every_setting_of_the_page_has_one_field():
    placed = re.findall(r'data-choice="(\w+)"', index())
    fields = {name for name in placed if placed.count(name) == 1 or name in ("protect", "formats")}
    assert {one.name for one in page_settings()} == fields | set(_BY_SCRIPT)


def test_a_recipe_of_the_page_is_opened_again():
    for _, _, chosen in CASES.values():
        choices = choices_of(chosen)
        request = page_request(choices)
        again = choices_in_recipe(recipe_text(request.with_values(input="trips.csv"), version="0"))
        assert page_request(again) == request
    with pytest.raises(DataError, match="not a recipe"):
        choices_in_recipe("[")
    # What only the command line may say is not taken over.
    assert choices_in_recipe("[output]\nout = '/etc'\n[input]\ninput = '/etc/passwd'\n") == {}


def test_hours_of_unix_times_are_shown_in_the_chosen_zone(tmp_path):
    """Ten trips at 06:30 UTC are at half past eight in Oslo in summer.

    Without a zone the page says that it is UTC.
    """
    trips = trip_table(10).append_column("started", pa.array([1_720_161_000] * 10))
    pq.write_table(trips, tmp_path / "trips.parquet")
    task = {"room": str(tmp_path), "source": stamp(tmp_path / "trips.parquet"), "zones": None}
    how = {"time": "started", "every": "hour"}
    local = WORK["inspect"](
        Task({**task, "choices": {**how, "timezone": "Europe/Oslo"}}, Silent())
    )["hours"]
    assert (local["counts"][8], sum(local["counts"]), local["zone"]) == (10, 10, "Europe/Oslo")
    utc = WORK["inspect"](Task({**task, "choices": how}, Silent()))["hours"]
    assert utc["counts"][6] == 10
    assert utc["needs_timezone"]


def test_a_column_that_looks_like_persons_is_a_question_before_anything_is_read(tmp_path):
    """Without it, the page would take a missing person column for the answer that no column
    identifies persons."""
    trips = (
        trip_table(60)
        .drop_columns(["person_id"])
        .append_column("card_no", pa.array([f"c{i % 20}" for i in range(60)]))
    )
    pq.write_table(trips, tmp_path / "trips.parquet")
    task = {"room": str(tmp_path), "source": stamp(tmp_path / "trips.parquet"), "zones": None}
    found = WORK["inspect"](Task({**task, "choices": {}}, Silent()))
    assert "like persons (card_no)" in found["problem"]
    assert (found["asks_person"], found["persons"]) == (True, ("card_no",))
    assert "origin" in found["roles"]
    for answer in ("", "card_no"):
        assert (
            WORK["inspect"](Task({**task, "choices": {"person": answer}}, Silent()))["problem"]
            is None
        )


def test_the_page_knows_the_recommended_method_and_its_limit():
    for choices in ({}, {"by": ["sex"]}):
        defaults = defaults_of(page_request(choices_of(choices)))
        assert (defaults["method"], defaults["max_suppressed"]) == ("layercut", 0.01)


def test_vehicles_are_offered_as_vehicles_and_counts_are_no_persons(tmp_path):
    n = 60
    zones = pa.table(
        {
            "from": [f"z{i // 8}" for i in range(n)],
            "to": [f"y{i % 8}" for i in range(n)],
            "car_driver": [0 if i % 2 else i % 7 for i in range(n)],
        }
    )
    cabs = (
        trip_table(n)
        .drop_columns(["person_id"])
        .append_column("cab_id", pa.array([f"c{i % 20}" for i in range(n)]))
    )
    found = {}
    for name, table in {"zones": zones, "cabs": cabs}.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        task = {"room": str(tmp_path), "source": stamp(tmp_path / f"{name}.parquet")}
        choices = {"origin_tile": "from", "destination_tile": "to"} if name == "zones" else {}
        found[name] = WORK["inspect"](Task({**task, "zones": None, "choices": choices}, Silent()))
    assert (found["cabs"]["vehicles"], found["cabs"]["persons"]) == (("cab_id",), ())
    assert found["cabs"]["asks_person"]
    # Each pair of zones occurs once: is a row a trip, or a number of trips?
    assert (found["zones"]["persons"], found["zones"]["counts"]) == ((), ("car_driver",))
    assert found["cabs"]["counts"] == ()


def test_fields_that_do_not_apply_follow_from_the_support_table():
    """Whatever is offered next to the choices is not refused with them, and the other way round."""
    examples: dict[str, Any] = {
        "by": ["sex"],
        "every": ["hour"],
        "common_zones": True,
        "fold_time": True,
        "dominance": 0.5,
        "same_zones": True,
    }
    bases: list[dict[str, Any]] = [
        {},
        {"time": "t"},
        {"time": "t", "every": "hour"},
        {"by": ["sex"]},
        {"method": "mondrian"},
        {"method": "paircut", "time": "t", "every": "hour"},
        {"time": "t", "every": "hour", "fold_time": True},
    ]
    for base in bases:
        hidden = unavailable(base, facts={}, mapped=False)
        for name in examples.keys() - hidden.keys() - base.keys():
            page_request(choices_of({**base, name: examples[name]}))
        for name in {"by", "dominance", "every"} & hidden.keys() - base.keys():
            with pytest.raises(ParameterError):
                refused_as_by_command(choices_of({**base, name: examples[name]}))
    noisy = {"method": "topdown", "options": {"epsilon": "1"}}
    assert {"k", "protect", "every", "by"} <= unavailable(noisy, facts={}, mapped=False).keys()
    assert "protect=people" in unavailable({}, facts={"people": False}, mapped=False)


def refused_as_by_command(choices: dict[str, Any]) -> None:
    """Refuses as the command line does: also a step without a time, which the page ignores."""
    run.check_request(Request.from_flat(choices))


def test_what_is_safe_is_one_sentence(folder, tmp_path):
    (tmp_path / "files").mkdir()
    task = {"room": str(tmp_path), "source": stamp(folder / "trips.csv"), "zones": None}
    found = WORK["describe"](Task({**task, "choices": {"resolution": 8, "k": 3}}, Silent()))
    assert re.fullmatch(
        r"Without any change, at 920 m, (fewer than 1|\d) in 10 trips are safe \(in pairs of places"
        r" with at least 3 people\); at [\d.]+ km, (all|9 in 10)( trips)?\.",
        found["sentence"],
    ), found["sentence"]


def test_every_format_has_a_name():
    assert FORMAT_NAMES.keys() == FORMATS.keys()


def test_the_signed_sentence_says_who_when_where_and_what_was_compared():
    report = {
        "kind": "sliced",
        "guarantee": {"k": 10, "people": 10, "protect": ["people"]},
        "parameters": {"resolution": 9, "slices": {"every": "hour"}},
        "published": {"cells": 9480, "trips": 120000, "slices": [{}] * 24},
        "statement": {
            "about": {"title": "Trips of June", "period": "2024-06-01/2024-06-30"},
            "slice_columns": ["time"],
            "timezone": "Europe/Oslo",
        },
    }
    audit = {
        "compared": ["May", "leeds.zip"],
        "not_compared": ["this release and leeds.zip: they are of different areas."],
        "failures": ["3 trips follow."],
    }
    text = sign_off_sentence(report, audit, place="Oslo, Norway", signer="Data protection office")
    for part in (
        "‘Trips of June’, Oslo, Norway, 1 June 2024 to 30 June 2024.",
        "at least 10 people",
        "9,480 cells",
        "24 slices by hour of the day in Europe/Oslo time",
        "resolution 9",
        "It was compared with May.",
        "Accepted although the comparison found: 3 trips follow.",
        "Accepted although this was not compared: this release and leeds.zip",
        "Signed by Data protection office",
    ):
        assert part in text
    assert "compared with May, leeds.zip" not in text
