"""The commands for looking: describe, compare, picture, exports and the internal report."""

from __future__ import annotations

import json
import shlex

import pytest

from flowveil.published.exports import FORMATS
from samples.processes import in_this_process
from unit.apps.cli.test_cli import run, snapshot

READ = ("--resolution", 8)


def test_describe_speaks_and_says_that_it_is_internal(trips_csv, capsys):
    assert run("describe", trips_csv, "--k", 5, *READ) == 0
    said = capsys.readouterr().out
    assert said.startswith("Internal")
    assert "Where to start" in said
    assert "SECRET" not in said
    assert run("describe", trips_csv, "--k", 5, *READ, "--json") == 0
    assert json.loads(capsys.readouterr().out)["trips"] == 400


def test_every_export_is_written_and_verified(trips_csv, tmp_path, capsys):
    out = tmp_path / "out"
    assert (
        run(
            "anonymize",
            trips_csv,
            "--k",
            5,
            *READ,
            "--out",
            out,
            "--set",
            "output.contact=Office",
            "--format",
            ",".join(["parquet", *FORMATS]),
        )
        == 0
    )
    assert {name for f in FORMATS.values() for name in f.files} < {p.name for p in out.iterdir()}
    assert run("verify", out, "--against", trips_csv) == 0
    assert run("anonymize", trips_csv, "--out", tmp_path / "x", "--format", "shapefile") == 2
    assert "found 'shapefile'" in capsys.readouterr().err


def test_the_command_of_a_report_makes_the_same_files(trips_csv, tmp_path):
    first = tmp_path / "first"
    asked = ("--method", "odkanon", "--option", "budget=volume", "--format", "csv")
    assert run("anonymize", trips_csv, "--k", 5, *READ, *asked, "--out", first) == 0
    words = shlex.split(
        json.loads((first / "report.json").read_text(encoding="utf-8"))["published"]["command"]
    )
    again = tmp_path / "again"
    replaced = [{"INPUT": str(trips_csv), "DIR": str(again)}.get(word, word) for word in words[1:]]
    assert run(*replaced) == 0
    assert snapshot(again) == snapshot(first)


def test_the_background_map_is_off_by_default(trips_csv, tmp_path):
    usual = ("anonymize", trips_csv, "--k", 5, *READ, "--out", tmp_path / "out")
    assert run(*usual) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    # Metadata for search engines name a vocabulary, which no browser requests.
    assert "https:" not in page.replace("https://schema.org/", "")
    assert run(*usual, "--set", "output.basemap=https://tiles.example/{z}/{x}/{y}.png") == 0
    assert "https://tiles.example" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert run(*usual, "--set", "output.basemap=http://tiles.example/") == 2


def test_compare_writes_tables_and_a_page(trips_csv, tmp_path, capsys):
    out = tmp_path / "out"
    words = (
        "compare",
        trips_csv,
        *READ,
        "--methods",
        "odkanon,suppression",
        "--k",
        "3,5",
        "--out",
        out,
    )
    with in_this_process():
        assert run(*words, "--option", "odkanon.budget=volume", "--json") == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(r["method"], r["k"]) for r in runs] == [
        (m, k) for k in (3, 5) for m in ("odkanon", "suppression")
    ]
    assert (out / "comparison.html").is_file()
    assert run("compare", trips_csv, "--k", "ten", "--out", tmp_path / "x") == 2
    assert run("compare", trips_csv, "--option", "budget=volume", "--out", tmp_path / "x") == 2


@pytest.mark.slow
def test_a_picture_needs_the_published_folder_only(trips_csv, tmp_path):
    pytest.importorskip("matplotlib")
    assert run("anonymize", trips_csv, "--k", 5, *READ, "--out", tmp_path / "out") == 0
    for show in ("origins", "flows"):
        assert (
            run("picture", tmp_path / "out", "--show", show, "--out", tmp_path / f"{show}.svg") == 0
        )
        assert (tmp_path / f"{show}.svg").is_file()
    assert run("picture", tmp_path, "--out", tmp_path / "map.svg") == 2
    for place in ("48.85", "north,east", "-48.85,2.35"):
        assert (
            run("picture", tmp_path / "out", "--place", place, "--out", tmp_path / "map.svg") == 2
        )
    assert not (tmp_path / "map.svg").exists()
