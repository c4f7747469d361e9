"""Recipes repeat a run byte by byte; the command line has three tiers and few options."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import click
import h5py
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import csv

from conftest import trip_table
from flowveil.apps.cli import cli, main
from flowveil.apps.cli.anonymize import _verify_words
from flowveil.request.recipe import read_recipe
from flowveil.request.request import Request, settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Trips with persons, times and attributes, also between zones of a map; a matrix; an area.

    Listed places.
    """
    place = tmp_path_factory.mktemp("recipes")
    n = 240
    zone = [f"z{i * i % 9}" for i in range(n)]
    columns = {
        "sex": ["f", "m"] * (n // 2),
        "minutes": [5 + i * 7 % 50 for i in range(n)],
        "t": [f"2024-03-0{4 + i % 2}T0{7 + i % 3}:15:00" for i in range(n)],
    }
    trips = trip_table(n)
    for name, values in {**columns, "from": zone, "to": zone[::-1]}.items():
        trips = trips.append_column(name, pa.array(values))
    csv.write_csv(trips, place / "trips.csv")
    y, x = np.divmod(np.arange(9), 3)
    codes = {"code": [f"z{i}" for i in range(9)], "row": [f"r{i}" for i in y]}
    csv.write_csv(pa.table({**codes, "lat": y / 50, "lon": x / 40}), place / "map.csv")
    with h5py.File(place / "trips.omx", "w") as file:
        file.attrs["OMX_VERSION"], file.attrs["SHAPE"] = b"0.2", np.array([9, 9], np.int32)
        file["lookup/zone"] = np.array([f"z{i}".encode() for i in range(9)])
        for name, number in (("car", 12), ("bus", 30)):
            file[f"data/{name}"] = np.full((9, 9), float(number))
    ring = [[2.2, 48.7], [2.5, 48.7], [2.5, 49.0], [2.2, 49.0], [2.2, 48.7]]
    (place / "area.geojson").write_text(
        json.dumps({"type": "Polygon", "coordinates": [ring]}), encoding="utf-8"
    )
    return place


#: The commands of the documentation, on small files.
EXAMPLES = {
    "plain": "trips.csv --k 4 --resolution 7 --format csv,geojson --title Trips",
    "units": "trips.csv --k 4 --resolution 7 --weight weight --protect people --protect population --method odkanon "
    "--option budget=volume",
    "area": "trips.csv --k 4 --resolution 7 --within area.geojson",
    "hours": "trips.csv --k 3 --resolution 6 --time t --every hour --method oigh",
    "folded": "trips.csv --k 5 --resolution 6 --time t --every hour --fold-time",
    "numbers": "trips.csv --k 4 --resolution 7 --median minutes --between minutes=0,60 --set numbers.p_percent=15",
    "groups": "trips.csv --k 5 --resolution 6 --by sex --common-zones",
    "month": "trips.csv --k 5 --resolution 6 --time t --set slices.during=2024-03",
    "map": "trips.csv --k 4 --origin-tile from --destination-tile to --zones map.csv --zones-levels row,code",
    "matrix": "trips.omx --k 4 --set input.matrix=car --zones map.csv --zones-tile code --same-zones",
}


def files(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.slow
def test_a_recipe_repeats_the_run(name, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    first, again = tmp_path / "first", tmp_path / "deep" / "again"
    words = [
        *EXAMPLES[name].split(),
        "--out",
        str(first),
        "--save-recipe",
        str(tmp_path / "r.toml"),
        "--quiet",
    ]
    main(["anonymize", *words])
    # From anywhere: the paths of a recipe are relative to it.
    monkeypatch.chdir(tmp_path)
    main(["run", "r.toml", "--out", str(again), "--quiet"])
    assert files(first) == files(again)


def test_a_recipe_is_run_with_other_values(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = [
        "--k",
        "4",
        "--resolution",
        "7",
        "--out",
        str(tmp_path / "a"),
        "--save-recipe",
        str(tmp_path / "r.toml"),
    ]
    main(["anonymize", "trips.csv", *words, "--quiet"])
    text = (tmp_path / "r.toml").read_text(encoding="utf-8")
    assert "# How many every cell must hide. Default: 10." in text.replace("\n#   ", " ")
    assert str(folder) not in text
    main(
        [
            "run",
            str(tmp_path / "r.toml"),
            "--out",
            str(tmp_path / "b"),
            "--set",
            "protection.k=6",
            "--quiet",
        ]
    )
    report = json.loads((tmp_path / "b" / "report.json").read_text(encoding="utf-8"))
    assert report["parameters"]["k"] == 6
    with pytest.raises(SystemExit):
        main(["run", str(tmp_path / "r.toml"), "--set", "protection.max_supressed=1"])
    assert "Did you mean 'protection.max_suppressed'" in capsys.readouterr().err


def test_options_win_over_a_recipe(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(folder)
    (tmp_path / "r.toml").write_text(
        "[protection]\nk = 7\n[zones]\nresolution = 7\n", encoding="utf-8"
    )
    done = CliRunner().invoke(
        cli, ["describe", "trips.csv", "--recipe", str(tmp_path / "r.toml"), "--json"]
    )
    assert json.loads(done.output)["k"] == 7
    words = ["describe", "trips.csv", "--recipe", str(tmp_path / "r.toml"), "--k", "3", "--json"]
    assert json.loads(CliRunner().invoke(cli, words).output)["k"] == 3
    assert read_recipe(tmp_path / "r.toml").zones.resolution == 7


# ---- tiers ---------------------------------------------------------------------------------------


def run(*words: str) -> str:
    return CliRunner().invoke(cli, words).output


def test_help_of_anonymize_fits_on_a_screen():
    text = run("anonymize", "--help")
    assert len(text.splitlines()) <= 39
    common = (
        "out k protect origin destination person trips weight time every timezone zones method"
        " max-suppressed"
    )
    for flag in f"{common} format title".split():
        assert f"--{flag} " in text
    assert "INPUT" in text


def test_all_help_lists_every_setting_once():
    text = run("anonymize", "--help-all")
    for one in settings():
        if one.name != "input":
            shown = f"--set {one.path}=" if one.tier == "recipe" else f"  {one.flag}"
            assert shown in text, one.name


#: DESIGN, section 8.
NAMED = [
    "k",
    "out",
    "method",
    "option",
    "hierarchy",
    "same-zones",
    "protect",
    "k-population",
    "l",
    "max-suppressed",
    "resolution",
    "seed",
    "origin",
    "destination",
    "origin-tile",
    "destination-tile",
    "zones",
    "trips",
    "weight",
    "person",
    "time",
    "every",
    "timezone",
    "by",
    "fold-time",
    "within",
    "zones-of",
    "ledger",
    "title",
    "source",
    "period",
    "format",
    "engine",
    "memory-limit",
    "save-recipe",
]


def every_command(command=cli):
    yield command
    if isinstance(command, click.Group):
        for name in command.list_commands(None):
            yield from every_command(command.get_command(None, name))


def test_options_are_few_and_those_that_scripts_rely_on_are_there():
    # Commands that read trips share the options of reading, so distinct ones are counted.
    options = {
        one.opts[0]
        for command in every_command()
        for one in command.params
        if isinstance(one, click.Option)
    }
    assert len(options) < 175
    flags = {flag for one in cli.get_command(None, "anonymize").params for flag in one.opts}
    assert {f"--{name}" for name in NAMED} <= flags


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("anonymize x.csv --person-case keep", "--set people.person_case=fold|keep"),
        ("describe x.csv --licence CC0", "--set output.licence=TEXT"),
        (
            "series x.csv --mean minutes",
            "one by one with `anonymize`, --during and --zones-of",
        ),
        ("anonymize x.csv --internal-report page.html", "flowveil analyze"),
        ("anonymize x.csv --nonsense", "No such option"),
    ],
)
def test_a_setting_that_is_no_option_is_explained(words, message, capsys):
    with pytest.raises(SystemExit):
        main(words.split())
    assert message in capsys.readouterr().err


def test_the_printed_verification_names_every_release_that_was_revised():
    given = {"input": "t.csv", "out": "r2", "revision": ("r0", "r1"), "stricter": "clinics.csv"}
    named = (
        "--set protection.stricter=clinics.csv --set method.revision=r0 --set method.revision=r1"
    )
    assert (
        shlex.join(_verify_words(Request.from_flat(given)))
        == f"flowveil verify r2 --against t.csv {named}"
    )


def test_json_and_quiet_are_taken_anywhere(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    words = [
        "anonymize",
        "trips.csv",
        "--k",
        "4",
        "--resolution",
        "7",
        "--out",
        str(tmp_path / "r"),
    ]
    told = [
        CliRunner().invoke(cli, line).stdout for line in (["--json", *words], [*words, "--json"])
    ]
    assert json.loads(told[0]) == json.loads(told[1])
    assert CliRunner().invoke(cli, [*words, "--quiet"]).stdout == ""


# ---- refusals before reading ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--time t --every hour --format flowmap", "times or groups of cells"),
        ("--time t --every hour --dominance 0.5", "--set protection.dominance"),
        (
            "--by sex --set protection.dominance=0.5",
            "--set protection.dominance cannot be combined with folds",
        ),
        (
            "--method laplace --set protection.t=0.5",
            "--set protection.t cannot be combined with noise",
        ),
        (
            "--by sex --set slices.values=sex=f,m",
            "--set slices.values cannot be combined with exact counts",
        ),
        ("--zones-tile code", "without --zones"),
        ("--method laplace --k 5", "no smallest cell"),
        ("--method twincat", "Did you mean 'twincut'"),
        ("--period 2024", "first and the last day"),
        ("--set nonsense", "NAME=VALUE"),
    ],
)
def test_what_is_known_before_reading_is_refused_before_reading(words, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["anonymize", "/absent.csv", "--out", str(tmp_path / "r"), *words.split()])
    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message in told
    assert "/absent.csv" not in told


def test_out_makes_parents(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    main(
        [
            "anonymize",
            "trips.csv",
            "--k",
            "4",
            "--resolution",
            "7",
            "--out",
            str(tmp_path / "a" / "b"),
            "--quiet",
        ]
    )
    assert (tmp_path / "a" / "b" / "report.json").is_file()


# ---- start-up ------------------------------------------------------------------------------------


def seconds(*words: str) -> float:
    """The shortest of several runs, which is the least disturbed one."""
    found = []
    for _ in range(4):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, *words], check=True, capture_output=True, env=dict(os.environ)
        )
        found.append(time.perf_counter() - start)
    return min(found)


def test_help_starts_fast():
    assert seconds("-m", "flowveil", "--help") <= 1.5 * seconds("-c", "import numpy, pyarrow")


def test_the_package_names_few_things_and_loads_them_late():
    import flowveil

    # Besides the types that these take and return.
    functions = [name for name in dir(flowveil) if name.islower() and not name.startswith("_")]
    assert len(functions) <= 30
    assert all(getattr(flowveil, name) is not None for name in dir(flowveil))
    with pytest.raises(AttributeError, match="verify_release"):
        flowveil.verify_folder("x", against="y")


def test_a_release_is_read_back(folder, tmp_path, monkeypatch):
    import flowveil

    monkeypatch.chdir(folder)
    out = tmp_path / "r"
    main(["anonymize", "trips.csv", "--k", "4", "--resolution", "7", "--out", str(out), "--quiet"])
    found = flowveil.read_release(out)
    zones, flows = found.zones_frame(), found.flows_frame()
    assert set(zones["zone"]) >= set(flows["origin_zone"])
    assert (zones.crs, len(flows)) == ("EPSG:4326", found.report["published"]["cells"])
    assert flows.geometry.notna().all()
    assert found.picture(tmp_path / "map.png").is_file()
    assert "<iframe" in found.map
