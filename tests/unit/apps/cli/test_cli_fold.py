"""``--fold`` on the command line: from trips to a folder that verify accepts, and what is
refused."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil.apps.cli import main
from samples.drafts import unchecked
from samples.hourly import PURPOSES, hourly_trips
from samples.releases import read_json


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(hourly_trips(900), "trips.parquet")
    rows = "".join(f"{value},{parent}\n" for value, parent in PURPOSES.items())
    (tmp_path / "purposes.csv").write_text(f"value,parent\n{rows}", encoding="utf-8")
    return tmp_path


ASKED = [
    "anonymize",
    "trips.parquet",
    "--resolution",
    "7",
    "--k",
    "6",
    "--person",
    "who",
    "--quiet",
]


@pytest.mark.slow
def test_the_command_line_folds_verifies_and_repeats(here, capsys):
    # Verified below.
    with unchecked():
        fold = [
            "--fold",
            "purpose=purposes.csv",
            "--time",
            "start",
            "--every",
            "hour",
            "--fold-time",
        ]
        main([*ASKED, *fold, "--out", "out", "--save-recipe", "recipes/r.toml"])
        main(["run", "recipes/r.toml", "--out", "again", "--quiet"])
    report = read_json(here / "out" / "report.json")
    assert report["parameters"]["fold"]["purpose"]["work"] == "work or study"
    assert "--every hour --fold purpose=TREE" in report["published"]["command"]
    assert (here / "out" / "flows.parquet").read_bytes() == (
        here / "again" / "flows.parquet"
    ).read_bytes()
    page = (here / "out" / "report.html").read_text("utf-8")
    assert '"columns":["purpose","time"]' in page
    # The tree is public: verify needs no file.
    (here / "purposes.csv").unlink()
    capsys.readouterr()
    main(["verify", "out", "--against", "trips.parquet"])
    assert "holds: every cell was recounted" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(
            [
                "series",
                "trips.parquet",
                "--recipe",
                "recipes/r.toml",
                "--every",
                "month",
                "--out",
                "series",
            ]
        )
    assert "A series cannot be asked for --fold" in capsys.readouterr().err
    main(["derive", "out", "--sum", "purpose", "--out", "sum", "--quiet"])
    main(["reconstruct", "out", "--zones", "6", "--out", "areas.csv", "--quiet"])
    assert read_json(here / "sum" / "report.json")["kind"] == "folded"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["--fold", "purpose=purposes.csv", "--separate"],
            "--separate cannot be combined with folds",
        ),
        (
            ["--fold", "purpose=purposes.csv", "--zones-of", "earlier"],
            "--zones-of cannot be combined with folds",
        ),
        (
            ["--fold", "purpose=purposes.csv", "--set", "protection.dominance=0.5"],
            "combined with folds",
        ),
        (
            ["--fold", "purpose=purposes.csv", "--method", "twincut"],
            "--fold cannot be combined with method 'twincut'",
        ),
        (["--fold", "purpose=purposes.csv", "--format", "flowmap"], "times or groups of cells"),
        (["--fold", "purpose=missing.csv"], "does not exist"),
        (["--fold", "purposes.csv"], "NAME=FILE|name=value|NAME=VALUE"),
        (["--fold", "porpuse=purposes.csv"], "- 'porpuse'."),
        (
            ["--fold", "purpose=purposes.csv", "--set", "resources.memory_limit=382MB"],
            "does not suffice",
        ),
    ],
    ids=lambda more: " ".join(more) if isinstance(more, list) else "",
)
def test_what_does_not_fold_is_refused(here, more, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*ASKED, "--out", "out", *more])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert any(word in said for word in words.split("|"))
    assert not (here / "out").exists()


@pytest.mark.usefixtures("here")
def test_values_are_not_quoted(capsys):
    trips = hourly_trips(900)
    values = ["SECRET" if i == 7 else value for i, value in enumerate(trips["purpose"].to_pylist())]
    changed = trips.set_column(trips.column_names.index("purpose"), "purpose", pa.array(values))
    pq.write_table(changed, "trips.parquet")
    with pytest.raises(SystemExit) as ended:
        main([*ASKED, "--fold", "purpose=purposes.csv", "--out", "out"])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "does not list 1 of the values" in said
    assert "SECRET" not in said
