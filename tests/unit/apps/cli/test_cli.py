"""The command line: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from conftest import trip_table
from flowveil.apps.cli import main
from samples.drafts import unchecked


def run(*arguments: object) -> int:
    """Runs a command; verifies its release on request."""
    try:
        with unchecked():
            main([str(a) for a in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("written")
    csv.write_csv(trip_table(), place / "trips.csv")
    asked = ("--k", 5, "--protect", "trips", "--resolution", 8, "--weight", "weight")
    assert run("anonymize", place / "trips.csv", *asked, "--out", place / "release") == 0
    return place / "release"


@pytest.fixture
def release(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "release")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_anonymize_publishes_and_verify_agrees(release, trips_csv, capsys):
    assert sorted(p.name for p in release.iterdir()) == [
        "README.txt",
        "datapackage.json",
        "estimate.parquet",
        "flows.parquet",
        "manifest.json",
        "report.html",
        "report.json",
        "zones.parquet",
    ]
    flows = pq.read_table(release / "flows.parquet")
    assert flows.column_names == ["origin_zone", "destination_zone", "trips", "weight", "layer"]
    assert min(flows["trips"].to_pylist()) >= 5
    assert run("verify", release, "--against", trips_csv) == 0
    assert "holds" in capsys.readouterr().out


def test_json_is_one_object(tmp_path, trips_csv, capsys):
    assert (
        run("anonymize", trips_csv, "--k", 5, "--resolution", 8, "--out", tmp_path / "r", "--json")
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["method"] == "layercut"
    assert result["published"]["smallest_cell"] >= 5
    assert run("verify", tmp_path / "r", "--against", trips_csv, "--json") == 0
    assert json.loads(capsys.readouterr().out)["holds"] is True
    assert run("anonymize", trips_csv, "--k", 0, "--out", tmp_path / "x", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "ParameterError"


def test_prose_is_quiet_about_progress_when_not_in_a_terminal(tmp_path, trips_csv, capsys):
    run(
        "anonymize",
        trips_csv,
        "--k",
        5,
        "--protect",
        "trips",
        "--resolution",
        8,
        "--out",
        tmp_path / "r",
    )
    said = capsys.readouterr()
    # One line of what was read, rounded.
    assert said.err.startswith("Read 400 rows: 400 trips by ")
    assert said.err.count("\n") == 1
    assert "every published cell holds at least 5 trips" in said.out
    assert "People are not protected." in said.out
    assert "SECRET" not in said.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--protect", "people", "--seed", 3],
        [
            "--protect",
            "trips",
            "--protect",
            "people",
            "--protect",
            "population",
            "--weight",
            "weight",
        ],
        [
            "--protect",
            "population",
            "--population-only",
            "--k-population",
            700,
            "--weight",
            "weight",
        ],
        ["--l", 2, "--max-suppressed", 0],
        ["--method", "twincut", "--option", "effort=0", "--option", "objective=metres"],
        ["--method", "odkanon", "--option", "budget=volume"],
        ["--method", "odkanon", "--option", "levels=1", "--option", "beta=0.2"],
    ],
)
def test_every_guarantee_publishes_and_verifies(tmp_path, trips_csv, arguments, capsys):
    out = tmp_path / "r"
    assert (
        run("anonymize", trips_csv, "--k", 5, "--resolution", 8, "--out", out, *arguments) == 0
    ), capsys.readouterr()
    assert run("verify", out, "--against", trips_csv) == 0, capsys.readouterr().err


def write(path: Path, **columns: object) -> Path:
    csv.write_csv(pa.table(columns), path)
    return path


def good_columns(n: int = 40) -> dict[str, object]:
    table = trip_table(n).select(["start_lat", "start_lon", "end_lat", "end_lon"])
    return {name: table[name] for name in table.column_names}


def bad_input(kind: str, folder: Path) -> tuple[Path, list[object]]:
    """A bad file, and the arguments that go with it."""
    path, columns, n = folder / "bad.csv", good_columns(), 40
    if kind == "empty file":
        path.write_text("")
        return path, []
    if kind == "no file":
        return folder / "nowhere.csv", []
    if kind == "missing column":
        return write(path, **columns), [
            "--origin",
            "start_latt,start_lon",
            "--destination",
            "end_lat,end_lon",
        ]
    if kind == "text in a number column":
        return write(path, **{**columns, "start_lat": ["SECRET"] * n}), []
    if kind == "all latitudes at 95":
        return write(path, **{**columns, "start_lat": [95.0] * n}), []
    if kind == "swapped axes that leave the earth":
        return write(path, **{**columns, "start_lat": [-118.2] * n, "start_lon": [34.0] * n}), []
    if kind == "negative counts":
        return write(path, **columns, trips=[-1] * n), ["--trips", "trips"]
    if kind == "mixed H3 resolutions":
        cells = ["8a1fb46622dffff", "891fb46622fffff"] * (n // 2)
        return write(path, start_h3=cells, end_h3=cells), []
    if kind == "an invalid H3 cell":
        cells = ["8a1fb46622dffff"] * (n - 1) + ["8a1fb46622dfff0"]
        return write(path, start_h3=cells, end_h3=cells), []
    if kind == "k = 0":
        return write(path, **columns), ["--k", 0]
    if kind == "unknown method":
        return write(path, **columns), ["--method", "odkannon"]
    if kind == "unknown option":
        return write(path, **columns), ["--method", "odkanon", "--option", "lvels=2"]
    if kind == "people without persons":
        return write(path, **columns), ["--protect", "people"]
    assert kind == "suppression above 1"
    return write(path, **columns), ["--max-suppressed", 1.5]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty file", ["empty"]),
        ("no file", ["nowhere.csv"]),
        ("missing column", ["start_latt", "Did you mean 'start_lat'"]),
        ("text in a number column", ["start_lat", "40"]),
        ("all latitudes at 95", ["off the earth", "40"]),
        ("swapped axes that leave the earth", ["off the earth", "swapped"]),
        ("negative counts", ["negative"]),
        ("mixed H3 resolutions", ["resolutions"]),
        ("an invalid H3 cell", ["H3"]),
        ("k = 0", ["k must be"]),
        ("unknown method", ["Did you mean 'odkanon'"]),
        ("unknown option", ["Did you mean 'levels'"]),
        ("people without persons", ["person"]),
        ("suppression above 1", ["--max-suppressed must be at most 1"]),
    ],
)
def test_bad_input_says_why_and_leaves_the_old_release_alone(
    kind, words, tmp_path, release, capsys
):
    before = snapshot(release)
    path, extra = bad_input(kind, tmp_path)
    capsys.readouterr()
    assert run("anonymize", path, "--k", 5, "--out", release, *extra) == 2
    said = capsys.readouterr().err
    for word in words:
        assert word in said, said
    assert "SECRET" not in said
    assert snapshot(release) == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_a_k_above_all_trips_is_refused_and_the_earlier_release_stays(release, trips_csv, capsys):
    before = snapshot(release)
    assert run("anonymize", trips_csv, "--k", 100_000, "--out", release) == 3
    assert "lower k" in capsys.readouterr().err
    assert snapshot(release) == before


def test_folders_that_are_not_ours_are_refused(tmp_path, trips_csv, capsys):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    assert run("anonymize", trips_csv, "--out", mine) == 2
    assert (mine / "thesis.txt").read_text() == "years of work"
    file = tmp_path / "file"
    file.write_text("x")
    assert run("anonymize", trips_csv, "--out", file) == 2
    assert run("anonymize", trips_csv, "--out", file / "no" / "parent") == 2
    assert "Error:" in capsys.readouterr().err


def test_an_unexpected_error_tells_its_kind_and_nothing_of_the_data(
    tmp_path, trips_csv, capsys, monkeypatch
):
    import flowveil.reading.engines

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("row 7 of SECRET0001")

    monkeypatch.setattr(flowveil.reading.engines, "read_trips", broken)
    assert run("anonymize", trips_csv, "--out", tmp_path / "r") == 1
    said = capsys.readouterr()
    assert "RuntimeError" in said.err
    assert "SECRET" not in said.err + said.out


def test_usage_errors_exit_with_2(capsys):
    assert run("anonymize") == 2
    assert run("nonsense") == 2
    assert run("anonymize", "x.csv", "--out", "y", "--k", "ten") == 2
    assert run("--help") == 0
    assert run("--version") == 0
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="interrupts are sent as POSIX signals")
def test_ctrl_c_leaves_the_old_release_alone(tmp_path, release):
    """Interrupt a run at several moments.

    Whatever it was doing, the old folder is whole or the new one is.
    """
    big = tmp_path / "big.csv"
    csv.write_csv(pa.concat_tables([trip_table(20_000, seed=s) for s in range(5)]), big)
    # An interrupt while Python itself is starting is not ours to answer: the clock starts when
    # flowveil is imported.
    code = "import flowveil.apps.cli; print('ready', flush=True); flowveil.apps.cli.main()"
    command = [
        sys.executable,
        "-c",
        code,
        "anonymize",
        big,
        "--k",
        "5",
        "--out",
        release,
        "--quiet",
    ]
    interrupted = 0
    for wait in (0.05, 0.5):
        before = snapshot(release)
        process = subprocess.Popen(
            [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout.readline() == b"ready\n"
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        if process.returncode == 0:
            continue
        interrupted += 1
        assert process.returncode in (130, -signal.SIGINT), said
        assert snapshot(release) == before
        assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    assert interrupted


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a separate file system")
def test_a_full_disk_leaves_the_old_release_alone(trips_csv, capsys):
    """A real full disk where one can be mounted; elsewhere the writers' tests fake it."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=768k", "tmpfs", place],
            capture_output=True,
            check=False,
        )
        if mounted.returncode:
            pytest.skip("cannot mount a small file system here")
        try:
            out = Path(place) / "release"
            assert run("anonymize", trips_csv, "--k", 5, "--resolution", 8, "--out", out) == 0
            before = snapshot(out)
            (Path(place) / "ballast").write_bytes(
                b"x" * (os.statvfs(place).f_bavail * os.statvfs(place).f_bsize)
            )
            capsys.readouterr()
            assert run("anonymize", trips_csv, "--k", 6, "--resolution", 8, "--out", out) == 2
            assert "space" in capsys.readouterr().err.lower()
            assert snapshot(out) == before
            assert sorted(p.name for p in Path(place).iterdir()) == ["ballast", "release"]
        finally:
            subprocess.run(["umount", place], check=True)


def test_the_console_does_not_count_what_is_suppressed(tmp_path, capsys):
    """Rows read minus trips published would be the one suppressed cell."""
    cells = ["8a1fb46622dffff"] * 20 + ["8a1fb466651ffff"] * 20 + ["8a2a1072b59ffff"] * 3
    path = write(tmp_path / "t.csv", start_h3=cells, end_h3=cells)
    out = tmp_path / "r"
    assert run("anonymize", path, "--k", 10, "--method", "suppression", "--out", out) == 0
    said = capsys.readouterr().out
    assert "43" not in said.replace(str(tmp_path), "")
    assert run("anonymize", path, "--k", 10, "--method", "suppression", "--out", out, "--json") == 0
    assert "rows" not in json.loads(capsys.readouterr().out)


def test_verify_can_be_told_what_the_guarantee_must_be(release, trips_csv, capsys):
    assert run("verify", release, "--against", trips_csv, "--k", 5, "--protect", "trips") == 0
    assert "at least 5 trips" in capsys.readouterr().out
    assert run("verify", release, "--against", trips_csv, "--k", 6) == 3
    assert "k of less than 6" in capsys.readouterr().err
    assert run("verify", release, "--against", trips_csv, "--protect", "people") == 3
    assert "does not protect people" in capsys.readouterr().err


def test_verify_finds_that_zones_are_not_said_to_be_kept_and_that_there_is_no_release(
    release, trips_csv, capsys
):
    earlier = release.parent / "earlier"
    asked = ("--k", 5, "--resolution", 8, "--method", "twincut")
    assert run("anonymize", trips_csv, *asked, "--out", earlier) == 0
    assert run("verify", release, "--against", trips_csv, "--zones-of", earlier) == 3
    assert "does not say that the zones are those of the given zone map" in capsys.readouterr().err
    assert run("verify", release.parent / "nowhere", "--against", trips_csv) == 2
    assert "There is no release" in capsys.readouterr().err


def test_a_release_is_verified_with_the_reading_it_was_made_with(tmp_path, trips, capsys):
    path = tmp_path / "gaps.csv"
    gaps = pa.table(
        {name: trips[name].slice(0, 100).combine_chunks() for name in trips.column_names}
    )
    gaps = gaps.set_column(0, "start_lat", pa.array([None] * 100, pa.float64()))
    csv.write_csv(pa.concat_tables([trips, gaps]), path)
    out = tmp_path / "r"
    how = ["--max-dropped", 0.5, "--person", "", "--weight", ""]
    assert run("anonymize", path, "--k", 5, "--resolution", 8, "--out", out, *how) == 0, (
        capsys.readouterr().err
    )
    assert run("verify", out, "--against", path) == 0, capsys.readouterr().err


def test_a_first_line_of_data_is_not_repeated(tmp_path, capsys):
    path = tmp_path / "nohead.csv"
    path.write_text("someone@example.org,48.85,2.35,48.86,2.36\n" * 5)
    assert run("anonymize", path, "--out", tmp_path / "r") == 2
    said = capsys.readouterr().err
    assert "looks like data" in said
    assert "someone" not in said


def test_write_then_verify_in_one_session(tmp_path, trips):
    import flowveil

    flows = flowveil.read_trips(trips, resolution=8)
    folder = flowveil.anonymize(flows, k=5).write(tmp_path / "r")
    found = flowveil.verify_release(folder, against=trips)
    assert (found.holds, found.findings) == (True, ())
