"""Posterior as a method: its districts, its unit, what it refuses, and what verify finds."""

from __future__ import annotations

import json

import h3
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from conftest import trip_table
from flowveil import Flows, ParameterError, anonymize, anonymize_slices, read_slices, read_trips
from flowveil.apps.cli import main
from flowveil.reading.areas import cells_within, parse_area
from samples.drafts import unchecked
from samples.releases import rehash
from samples.verified import findings_of
from unit.methods.test_topdown_method import map_flows

AREA = "2.2,48.75,2.5,48.95"
REGION = h3.latlng_to_cell(48.85, 2.35, 5)
ASKED = {"epsilon": 1.0, "bound": 5}


@pytest.fixture(scope="module")
def flows() -> Flows:
    return read_trips(trip_table(1500), resolution=9, within=AREA, max_dropped=0.9)


def centers_in_area(resolution: int) -> list[str]:
    around = h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, resolution), 20)
    points = {cell: h3.cell_to_latlng(cell) for cell in around}
    return sorted(
        cell for cell, (lat, lon) in points.items() if 48.75 <= lat <= 48.95 and 2.2 <= lon <= 2.5
    )


def test_districts_are_the_cells_whose_centres_lie_in_the_study_area(flows):
    release = anonymize(flows, "posterior", **ASKED)
    zones = release.plan.origin_zones
    expected = centers_in_area(7)
    assert zones.codes(np.arange(len(zones), dtype=np.int32)).tolist() == expected
    domain = release.guarantee.domain
    assert domain["zones"] == len(expected)
    assert domain["within"] == AREA
    assert not domain["zones_from_data"]
    finer = anonymize(flows, "posterior", districts=8, **ASKED).plan
    assert len(finer.origin_zones) == len(centers_in_area(8))


@pytest.mark.parametrize(
    "area", ["178,-5,-178,5", "-180,-90,180,90", "0,45,5,50", h3.cell_to_parent(REGION, 1)]
)
def test_cells_within_an_area_are_those_whose_centres_it_holds(area):
    given = parse_area(area)
    cells = [c for base in h3.get_res0_cells() for c in h3.cell_to_children(base, 3)]
    every = np.array(sorted(int(c, 16) for c in cells), dtype=np.uint64)
    expected = every[given.holds_cells(every)]
    assert len(expected)
    assert cells_within(given, 3, most=10**6).tolist() == expected.tolist()


def test_the_true_counts_return_where_there_is_hardly_any_noise(flows):
    release = anonymize(flows, "posterior", epsilon=20.0, protect="trips", unsafe_seed_for_tests=1)
    plan, cells = release.plan, release.cells
    n = len(plan.origin_zones)
    true, found = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
    kept = plan.kept
    np.add.at(true, (plan.origin_zone[kept], plan.destination_zone[kept]), flows.trips[kept])
    found[cells.origin, cells.destination] = cells.trips
    assert true.sum() > 200
    # Only the noise of the distance classes is left, of scale 2.5.
    assert np.abs(found - true).sum() < 40
    again = anonymize(flows, "posterior", epsilon=20.0, protect="trips", unsafe_seed_for_tests=1)
    assert again.cells.trips.tolist() == cells.trips.tolist()


def test_the_unit_is_a_person_unless_trips_are_chosen(flows):
    people = anonymize(flows, "posterior", protect="people", **ASKED)
    assert (people.guarantee.unit, people.guarantee.bound) == ("person", 5)
    trips = anonymize(flows, "posterior", epsilon=1.0, protect="trips")
    assert (trips.guarantee.unit, trips.guarantee.bound) == ("trip", 1)
    with pytest.raises(ParameterError, match="either trips or people"):
        anonymize(flows, "posterior", protect=["trips", "population"], **ASKED)
    with pytest.raises(ParameterError, match="bound is given"):
        anonymize(flows, "posterior", protect="trips", **ASKED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": None}, "needs epsilon"),
        ({"bound": 100}, "leaves nothing to estimate"),
        ({"districts": 10}, "from 0 to that of the tiles, 9"),
        ({"districts": 0}, "No H3 cell of resolution 0 has its centre"),
        ({"region": "observed"}, "needs a public tree"),
        ({"region": h3.cell_to_parent(REGION, 2), "districts": 7}, "at most 30,000,000"),
        ({"budget": "0.5,0.4"}, "budget must be 2 shares"),
    ],
)
def test_what_cannot_be_done_is_refused(flows, change, message):
    with pytest.raises(ParameterError, match=message):
        anonymize(flows, "posterior", **{**ASKED, **change})


def test_a_public_region_or_map_is_needed_and_places():
    anywhere = read_trips(trip_table(100), resolution=9, max_dropped=0.9)
    with pytest.raises(ParameterError, match="give region"):
        anonymize(anywhere, "posterior", **ASKED)
    with pytest.raises(ParameterError, match="needs the places of the districts"):
        anonymize(map_flows(), "posterior", epsilon=1.0)
    with pytest.raises(ParameterError, match="People cannot be protected"):
        anonymize(map_flows(), "posterior", epsilon=1.0, protect="people")


def test_slices_share_one_epsilon_and_say_how(tmp_path):
    table = trip_table(600)
    mode = pa.array([("bus", "car")[i % 2] for i in range(len(table))])
    flows = read_slices(
        table.append_column("mode", mode), resolution=9, by=["mode"], within=AREA, max_dropped=0.9
    )
    release = anonymize_slices(
        flows, "posterior", values={"mode": ["bus", "car"]}, **{**ASKED, "epsilon": 4.0}
    )
    assert release.guarantee.epsilon == 4.0
    assert release.keys == (("bus",), ("car",))
    steps = release.guarantee.steps
    assert [step.epsilon for step in steps] == pytest.approx([0.08, 1.52, 2.4])
    folder = release.write(tmp_path / "out")
    report = json.loads((folder / "report.json").read_text("utf-8"))
    (noisy,) = (line for line in report["published"]["sentences"] if line.startswith("Noisy"))
    assert "standard deviation 4.63, and" in noisy
    assert "once more in each slice, with noise of standard deviation 2.92" in noisy
    assert findings_of(folder, flows) == []


# ---- the folder ----------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["trips", "people"])
def test_the_command_writes_what_verify_accepts(unit, tmp_path, capsys):
    csv.write_csv(trip_table(1500), tmp_path / "trips.csv")
    asked = ["anonymize", str(tmp_path / "trips.csv"), "--method", "posterior", "--option"]
    asked += ["epsilon=2", "--districts", "7", "--within", AREA, "--protect", unit]
    asked += ["--option", "bound=3"] * (unit == "people")
    out = tmp_path / "out"
    main([*asked, "--max-dropped", "0.9", "--out", str(out)])
    report = json.loads((out / "report.json").read_text("utf-8"))
    assert report["kind"] == "noisy"
    assert report["parameters"]["options"]["districts"] == 7
    assert report["statement"]["shares"] is None
    odds = "a probability between 11.9 and 88.1 %"
    assert any(odds in sentence for sentence in report["published"]["sentences"])
    assert odds in (out / "report.html").read_text("utf-8")
    main(["verify", str(out), "--against", str(tmp_path / "trips.csv")])
    assert "holds" in capsys.readouterr().out


def test_districts_are_refused_by_methods_that_do_not_use_them(tmp_path, capsys):
    asked = ["anonymize", "trips.csv", "--districts", "7", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match="2"):
        main([*asked, "--method", "twincut"])
    assert "--districts cannot be combined with" in capsys.readouterr().err


FORGED = {
    "more ε": lambda r: r["guarantee"]["steps"][0].update(epsilon=0.9, scale=5.6),
    "less noise": lambda r: r["guarantee"]["steps"][1].update(scale=1.0),
    "the unit": lambda r: r["guarantee"].update(unit="trip", bound=1),
    "no steps": lambda r: r["guarantee"].pop("steps"),
    "more districts": lambda r: r["guarantee"]["domain"].update(zones=8),
    "a share": lambda r: r["statement"].update(
        shares={"basis": "trips", "step": 0.01, "dropped": 0.01, "outside": 0, "suppressed": 0}
    ),
}


@pytest.fixture(scope="module")
def written(flows, tmp_path_factory):
    return anonymize(flows, "posterior", **ASKED).write(tmp_path_factory.mktemp("posterior") / "o")


@pytest.mark.parametrize("name", FORGED)
def test_a_report_that_does_not_add_up_is_found(name, written, flows):
    before = {path: path.read_bytes() for path in written.iterdir()}
    report = json.loads((written / "report.json").read_text(encoding="utf-8"))
    FORGED[name](report)
    (written / "report.json").write_text(json.dumps(report), encoding="utf-8")
    rehash(written)
    found = findings_of(written, flows)
    for path, content in before.items():
        path.write_bytes(content)
    assert found
    assert findings_of(written, flows) == []


def test_exact_counts_are_not_taken_for_noise(tmp_path, monkeypatch):
    """Where counts are large, posterior publishes the noisy ones."""
    rng = np.random.default_rng(3)
    lat, lon = rng.uniform(48.8, 48.9, (2, 60_000)), rng.uniform(2.25, 2.45, (2, 60_000))
    ends = {"o_lat": lat[0], "o_lon": lon[0], "d_lat": lat[1], "d_lon": lon[1]}
    flows = read_trips(
        pa.table(ends), resolution=8, within=AREA, origin="o_lat,o_lon", destination="d_lat,d_lon"
    )
    release = anonymize(flows, "posterior", epsilon=1.0, districts=6)
    assert findings_of(release.write(tmp_path / "noisy"), flows) == []
    draw = "flowveil.methods.discrete_noise.DiscreteLaplace.draw"
    monkeypatch.setattr(draw, lambda _self, n, _bits: np.zeros(n, dtype=np.int64))
    exact = anonymize(flows, "posterior", epsilon=1.0, districts=6)
    with unchecked():
        folder = exact.write(tmp_path / "exact")
    assert any("too many are exact" in line for line in findings_of(folder, flows))
