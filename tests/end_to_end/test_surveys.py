"""Weighted household surveys, from the command line to a verified folder.

Real respondents: none may show.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flowveil.apps.cli import main
from samples.drafts import unchecked
from samples.parts import first_rows
from samples.processes import in_this_process

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _no_draft_is_recounted() -> Iterator[None]:
    """What is published here is verified by the command, which recounts more."""
    with unchecked():
        yield


@pytest.fixture
def montpellier(shared_data: Path, tmp_path: Path) -> list[str]:
    folder = shared_data / "montpellier_emd"
    levels = ["--set", "zones.zones_tile=zone", "--set", "zones.zones_levels=sector,zone"]
    zones = ["--zones", str(folder / "zone_hierarchy.csv"), *levels]
    ends = ["--origin-tile", "o_zone", "--destination-tile", "d_zone"]
    legs = first_rows(folder / "legs.parquet", 15_000, tmp_path)
    return [str(legs), *zones, *ends, "--person", "person_id", "--weight", "w_person_COEP"]


def code_of(arguments: list[str]) -> int:
    try:
        main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_participants_and_population_of_montpellier_by_sex(montpellier, tmp_path: Path, capsys):
    out = str(tmp_path / "release")
    protect = [
        "--protect",
        "people",
        "--protect",
        "population",
        "--max-suppressed",
        "0.2",
        "--method",
        "atg-dual",
    ]
    assert code_of(["anonymize", *montpellier, "--by", "sex", *protect, "--out", out]) == 0
    against = ["--against", montpellier[0], *montpellier[1:3]]
    assert (
        code_of(
            ["verify", out, *against, "--k", "10", "--protect", "people", "--protect", "population"]
        )
        == 0
    )
    assert code_of(["verify", out, *against, "--k", "11"]) == 3
    report = json.loads((tmp_path / "release" / "report.json").read_text("utf-8"))
    assert {part["slice"]["sex"] for part in report["published"]["slices"]} == {"F", "M"}
    everything = b"".join(path.read_bytes() for path in (tmp_path / "release").iterdir()).decode(
        "utf-8", "replace"
    )
    everything += "".join(capsys.readouterr())
    persons = set(pq.read_table(montpellier[0], columns=["person_id"])["person_id"].to_pylist())
    long = [person for person in persons if len(person) > 6]
    assert long
    assert not any(person in everything for person in long)


def test_a_total_of_the_sexes_is_derived_from_common_zones(montpellier, tmp_path: Path, capsys):
    asked = ["anonymize", *montpellier, "--by", "sex", "--protect", "people"]
    asked += ["--max-suppressed", "0.2", "--out", str(tmp_path / "release")]
    assert code_of([*asked, "--total"]) == 2
    assert "flowveil derive RELEASE --sum COLUMN --out TOTAL" in capsys.readouterr().err
    assert not (tmp_path / "release").exists()
    assert code_of([*asked, "--common-zones"]) == 0
    total = ["derive", str(tmp_path / "release"), "--sum", "sex", "--out", str(tmp_path / "total")]
    total += montpellier[montpellier.index("--zones") : montpellier.index("--origin-tile")]
    assert code_of(total) == 0


def test_the_study_of_montpellier(montpellier, tmp_path: Path):
    out = tmp_path / "study"
    runs = [
        "--methods",
        "odkanon,oigh",
        "--protect",
        "people",
        "--protect",
        "population",
        "--population-only",
        "--set",
        "resources.workers=1",
    ]
    with in_this_process():
        assert code_of(["study", *montpellier, "--by", "sex", *runs, "--out", str(out)]) == 0
    table = pq.read_table(out / "results.parquet").to_pylist()
    assert len(table) == 3 * 2 * 2 * 2
    assert {row["status"] for row in table} == {"done"}
    safe = [row for row in table if row["protect"] == "people"]
    assert min(row["k_people"] for row in safe) >= 10


def test_the_population_of_sao_paulo_by_motive(shared_data: Path, tmp_path: Path):
    # The expansion factor is a weight, not a number of trips.
    trips = first_rows(shared_data / "saopaulo_od2023" / "trips.parquet", 40_000, tmp_path)
    source = [str(trips), "--weight", "trips", "--trips", ""]
    out = str(tmp_path / "release")
    asked = [
        "--resolution",
        "8",
        "--by",
        "motive_name",
        "--protect",
        "population",
        "--method",
        "oigh",
    ]
    assert code_of(["anonymize", *source, *asked, "--out", out]) == 0
    assert code_of(["verify", out, "--against", source[0], "--protect", "population"]) == 0
    assert code_of(["anonymize", *source, *asked, "--protect", "people", "--out", out]) == 2
