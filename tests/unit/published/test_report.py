"""What the report says."""

from __future__ import annotations

import json

import numpy as np

from samples.releases import city_flows, nested_release, release_of, tile_release


def test_the_report_has_its_keys_and_is_strict_json():
    report = release_of(city_flows(), budget="volume").summary()
    assert sorted(report) == sorted(
        [
            "version",
            "kind",
            "method",
            "parameters",
            "guarantee",
            "homogeneous",
            "overlapping_outlines",
            "about",
            "boxes",
            "suppression",
            "measures",
            "cross_check",
            "closeness",
            "between_areas",
            "withheld",
            "statement",
            "notes",
            "command",
        ]
    )
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert sorted(report["measures"]) == ["trips", "weight"]
    seen = ["floor_generalization_error", "floor_ratio", "mean_generalization_error"]
    assert report["withheld"]["measures"]["trips"] == seen


def test_notes_carry_no_number_where_something_is_withheld():
    notes = {"suppressed": 4, "share": np.float64(0.2), "roots_reached": True, "rule": "x", "list": [4]}
    assert tile_release([9, 8, 4], notes=notes).summary()["notes"] == {"roots_reached": True, "rule": "x"}
    assert tile_release([9, 8, 7], notes=notes).summary()["notes"] == {**notes, "share": 0.2}


def test_the_number_of_rows_read_is_not_published():
    release = tile_release([9, 8, 4])
    assert release.input.intake.rows == 3
    assert "intake" not in json.dumps(release.summary())


# ---- the statement ------------------------------------------------------------------------------------------


def test_trips_are_not_people():
    said = release_of(city_flows(), protect="trips", budget="volume").summary()["statement"]
    assert said[0] == "Protected: every published cell holds at least 5 trips."
    assert said[1].startswith("Not protected: people.")
    assert "one person may be behind several trips" in said[1]
    measures = release_of(city_flows(), protect="trips", budget="volume").summary()["measures"]["trips"]
    assert measures["k_people"] >= 1


def test_people_are_people():
    said = release_of(city_flows(), protect=["trips", "people"], budget="volume").summary()["statement"]
    assert said[0].endswith("at least 5 trips and 5 people.")
    assert not any("one person may be behind" in line for line in said)


def test_a_population_may_be_one_participant():
    said = release_of(city_flows(), protect="population", budget="volume").summary()["statement"]
    assert any("single participant" in line for line in said)


def test_locations_and_nesting():
    with_l = release_of(city_flows(), l=2, budget="volume").summary()["statement"]
    assert any("begin in at least 2 different tiles, and end in at least 2" in line for line in with_l)
    assert any(line.startswith("Zones are nested") for line in nested_release().summary()["statement"])


def test_paths_and_odd_values_in_parameters(tmp_path):
    parameters = {
        "zones": tmp_path / "z.csv",
        "input": "C:\\data\\trips.csv",
        "share": np.float32(0.5),
        "nothing": float("inf"),
        "levels": np.arange(2),
        "by": ("sex", "age"),
        "columns": {"origin": "from/lat,from/lon"},
        "options": {"map": str(tmp_path), "levels": 3},
    }
    assert tile_release([9, 8, 7], parameters=parameters).summary()["parameters"] == {
        "zones": "(a path; not published)",
        "input": "(a path; not published)",
        "share": 0.5,
        "nothing": None,
        "levels": [0, 1],
        "by": ["sex", "age"],
        "columns": {"origin": "from/lat,from/lon"},
        "options": {"map": "(a path; not published)", "levels": 3},
    }
