"""The certificate of a verification."""

from __future__ import annotations

import hashlib
import json

import pytest

from flowveil.apps.cli import main
from samples.drafts import unchecked


def run(*words: object) -> int:
    try:
        main([str(word) for word in words])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.fixture
def release(tmp_path, trips_csv):
    # What it says is what is verified afterwards.
    with unchecked():
        assert (
            run(
                "anonymize",
                trips_csv,
                "--k",
                5,
                "--resolution",
                7,
                "--method",
                "odkanon",
                "--out",
                tmp_path / "r",
            )
            == 0
        )
    return tmp_path / "r"


def test_a_certificate_says_what_was_verified(release, trips_csv, tmp_path):
    files = [tmp_path / "c.json", tmp_path / "c.html"]
    asked = [
        "verify",
        release,
        "--against",
        trips_csv,
        "--k",
        5,
        "--certificate",
        files[0],
        "--certificate",
        files[1],
    ]
    assert run(*asked) == 0
    said = json.loads(files[0].read_text("utf-8"))
    assert (said["holds"], said["findings"], said["expected"]) == (True, [], {"k": 5})
    assert said["guarantee"] == {"k": 5, "people": 5, "protect": ["people"]}
    assert said["columns"]["person"] == "person_id"
    assert said["input_sha256"] == {
        trips_csv.name: hashlib.sha256(trips_csv.read_bytes()).hexdigest()
    }
    assert said["release_sha256"] == {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(release.iterdir())
    }
    page = files[1].read_text("utf-8")
    assert "The release holds" in page
    assert said["release_sha256"]["flows.parquet"] in page
    assert str(tmp_path) not in page + files[0].read_text("utf-8")
    before = [file.read_bytes() for file in files]
    assert run(*asked) == 0
    assert [file.read_bytes() for file in files] == before
    assert "date" not in said
    assert run(*asked, "--certificate-date", "2026-01-31") == 0
    assert json.loads(files[0].read_text("utf-8"))["date"] == "2026-01-31"


def test_a_release_that_does_not_hold_gets_a_certificate_of_that(release, trips_csv, tmp_path):
    (release / "flows.parquet").write_bytes(b"")
    files = [tmp_path / "c.json", tmp_path / "c.html"]
    words = [word for file in files for word in ("--certificate", file)]
    assert run("verify", release, "--against", trips_csv, *words) == 3
    said = json.loads(files[0].read_text("utf-8"))
    assert said["holds"] is False
    assert said["guarantee"] is None
    assert any("flows.parquet" in line for line in said["findings"])
    assert "does NOT hold" in files[1].read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "match"), [("c.pdf", ".json or .html"), ("r/c.json", "inside a release")]
)
def test_a_certificate_in_a_wrong_place_is_refused(
    release, trips_csv, tmp_path, capsys, name, match
):
    assert run("verify", release, "--against", trips_csv, "--certificate", tmp_path / name) == 2
    assert match in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_a_certificate_of_a_pattern_has_the_hash_of_each_file(trips_csv, tmp_path):
    lines = trips_csv.read_text("utf-8").splitlines(keepends=True)
    files = [tmp_path / f"month={month}" / "part.csv" for month in (1, 2)]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text("".join([lines[0], *lines[1 + number :: 2]]), encoding="utf-8")
    pattern = tmp_path / "month=*" / "part.csv"
    certificate = tmp_path / "c.json"
    assert run("anonymize", pattern, "--k", 5, "--resolution", 7, "--out", tmp_path / "r") == 0
    assert run("verify", tmp_path / "r", "--against", pattern, "--certificate", certificate) == 0
    assert json.loads(certificate.read_text("utf-8"))["input_sha256"] == {
        f"month={month}/part.csv": hashlib.sha256(file.read_bytes()).hexdigest()
        for month, file in zip((1, 2), files, strict=True)
    }
