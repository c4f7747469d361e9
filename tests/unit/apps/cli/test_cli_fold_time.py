"""``--fold-time`` on the command line: from trips to a folder that verify accepts, and what is
refused."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from flowveil.apps.cli import main
from samples.drafts import unchecked
from samples.hourly import hourly_trips
from samples.releases import read_json


@pytest.fixture(scope="module")
def trips():
    return hourly_trips(900)


def test_the_command_line_folds_and_verifies(trips, tmp_path, capsys):
    pq.write_table(trips, tmp_path / "trips.parquet")
    asked = [
        "--method",
        "paircut",
        "--time",
        "start",
        "--every",
        "hour",
        "--fold-time",
        "--resolution",
        "7",
    ]
    out = str(tmp_path / "out")
    # It is verified below.
    with unchecked():
        main(["anonymize", str(tmp_path / "trips.parquet"), *asked, "--k", "6", "--out", out])
    assert "--every hour" in read_json(tmp_path / "out" / "report.json")["published"]["command"]
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert '"intervals":[[' in page
    main(["verify", out, "--against", str(tmp_path / "trips.parquet")])
    assert "holds: every cell was recounted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--every", "hour", "--separate"], "--separate cannot be combined with folds"),
        (["--every", "day", "--every", "1h"], "--every can be given once"),
        (["--every", "weekday"], "cannot be folded"),
        (
            ["--every", "hour", "--method", "twincut"],
            "--fold-time cannot be combined with method 'twincut'",
        ),
        (["--every", "hour", "--format", "flowmap"], "no place for the times"),
    ],
    ids=lambda more: " ".join(more) if isinstance(more, list) else "",
)
def test_what_does_not_fold_is_refused(trips, more, words, tmp_path, capsys):
    pq.write_table(trips, tmp_path / "trips.parquet")
    asked = ["--time", "start", "--fold-time", "--resolution", "7", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as ended:
        main(["anonymize", str(tmp_path / "trips.parquet"), *asked, *more])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
