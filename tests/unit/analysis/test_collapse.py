"""A map that collapses is reported to the operator, with the next limit at which it does not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import flowveil
from flowveil.analysis.release_analysis import collapse_lines
from unit.apps.cli.test_cli import run

SECTORS, ZONES = 5, 6


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Trips within and, rarely, between sectors.

    Pairs of sectors are below k unless more is suppressed.
    """
    place, rng = tmp_path_factory.mktemp("collapse"), np.random.default_rng(4)
    zones = [f"s{s}z{z}" for s in range(SECTORS) for z in range(ZONES)]
    csv.write_csv(
        pa.table({"zone": zones, "sector": [zone[:2] for zone in zones]}), place / "map.csv"
    )
    inside = [(s, s) for s in range(SECTORS) for _ in range(60)]
    between = [(s, t) for s in range(SECTORS) for t in range(SECTORS) if s != t for _ in range(5)]
    pairs = [
        (f"s{s}z{rng.integers(ZONES)}", f"s{t}z{rng.integers(ZONES)}") for s, t in inside + between
    ]
    csv.write_csv(
        pa.table({"o": [o for o, _ in pairs], "d": [d for _, d in pairs]}), place / "trips.csv"
    )
    return place


def release_of(files, method, **limit):
    zones = flowveil.read_zones(files / "map.csv", levels="sector,zone")
    flows = flowveil.read_trips(
        files / "trips.csv", zones=zones, origin_tile="o", destination_tile="d"
    )
    return flowveil.anonymize(flows, method, k=10, protect="trips", **limit)


def test_the_next_limit_is_named_and_is_not_collapsed(files, capsys):
    release = release_of(files, "twincut", max_suppressed=0.1)
    lines = collapse_lines(release)
    assert any("collapsed: 1 " in line for line in lines)
    limit = float(lines[-1].split("--max-suppressed ")[1].split()[0])
    # A quarter of the trips go from sector to sector.
    assert limit == pytest.approx(0.25)
    better = release_of(files, "twincut", max_suppressed=limit)
    assert collapse_lines(better) == []
    assert len(np.unique(better.cells.origin)) >= SECTORS
    words = [
        "--zones",
        str(files / "map.csv"),
        "--set",
        "zones.zones_levels=sector,zone",
        "--origin-tile",
        "o",
    ]
    words += [
        "--destination-tile",
        "d",
        "--k",
        "10",
        "--method",
        "twincut",
        "--out",
        str(files / "out"),
    ]
    assert run("anonymize", str(files / "trips.csv"), *words) == 0
    assert f"--max-suppressed {limit:g}" in capsys.readouterr().err


def test_layercut_does_not_collapse_there(files):
    release = release_of(files, "layercut")
    assert collapse_lines(release) == []
    assert release.cells.trips.sum() >= 0.99 * release.input.trips.sum()
    assert (
        min(len(np.unique(number)) for number in (release.cells.origin, release.cells.destination))
        >= SECTORS
    )
