"""Cells that are mostly one person's: suppressed where that is asked for, and recounted."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from flowveil import anonymize, read_trips, verify_folder
from flowveil.audit.dominance import dominance
from flowveil.audit.published import read_release
from flowveil.audit.trips import place_trips
from flowveil.cli import main
from flowveil.release.dominance import without_dominated
from flowveil.errors import DataError, GuaranteeError, InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy
from flowveil.release.plan import Plan
from samples.drafts import unchecked

PLACES = [(48.85, 2.35), (48.87, 2.37), (48.83, 2.31)]


def trips():
    """Three crowded pairs; in a fourth, one commuter makes 12 of 20 trips."""
    crowd = [(o, d, f"p{i}") for o, d in ((0, 1), (1, 0), (1, 2)) for i in range(60)]
    rows = [*crowd, *[(0, 2, "commuter")] * 12, *[(0, 2, f"q{i}") for i in range(8)]]
    places = {"start": [PLACES[o] for o, _, _ in rows], "end": [PLACES[d] for _, d, _ in rows]}
    ends = {f"{end}_{axis}": [p[i] for p in at] for end, at in places.items() for i, axis in enumerate(("lat", "lon"))}
    return pa.table({**ends, "person": [person for _, _, person in rows]})


@cache
def usual_flows():
    return read_trips(trips(), person="person")


def released(share, **asked):
    return anonymize(usual_flows(), "suppression", k=5, max_suppressed=0.3, dominance=share, **asked)


def test_a_dominated_cell_is_suppressed_and_no_other(tmp_path):
    assert sorted(released(None).cells.trips.tolist()) == [20, 60, 60, 60]
    assert sorted(released(0.6).cells.trips.tolist()) == [20, 60, 60, 60]
    release = released(0.5)
    assert sorted(release.cells.trips.tolist()) == [60, 60, 60]
    with unchecked():
        release.write(tmp_path / "release")
    assert verify_folder(tmp_path / "release", against=trips()) == []
    published = read_release(tmp_path / "release")
    assert published.most_unlisted is None
    found = dominance(place_trips(published, read_trips(trips(), person="person")))
    assert found.one == 0
    report = json.loads((tmp_path / "release" / "report.json").read_text("utf-8"))
    assert "--dominance 0.5" in report["command"]
    assert any("more than 50% of the trips" in line for line in report["statement"])


def test_the_trips_of_a_person_are_added_up_over_the_tiles_of_a_cell():
    """Six trips from each of two tiles are twelve of the twenty of the zone."""
    tree, _ = Hierarchy.from_parents([-1, 0, 0], np.array(["all", "a", "b"]))
    rows = [
        *[(0, 0, 0)] * 6,
        *[(1, 0, 0)] * 6,
        *[(n % 2, 0, n + 1) for n in range(8)],
        *[(n % 2, 1, n) for n in range(40)],
    ]
    origin, destination, person = np.array(rows).T
    flows = Flows.from_pairs(origin, destination, origins=tree, destinations=tree, person=person)
    plan = Plan.from_cuts(flows, np.array([0], np.int32), tree.leaf_node, np.ones(len(flows), np.bool_))
    kept = without_dominated(flows, plan, 0.5, max_suppressed=0.5, basis="trips").kept
    assert kept.tolist() == (flows.destination == 1).tolist()
    assert without_dominated(flows, plan, 0.6, max_suppressed=0.5, basis="trips").kept.all()


def test_cells_of_zones_that_halve_are_recounted_as_well(tmp_path):
    release = anonymize(usual_flows(), "twincut", k=5, max_suppressed=0.3, dominance=0.5)
    assert release.parameters["hierarchy"] == "halves"
    # What is written is verified before it is there.
    release.write(tmp_path / "release")


def test_verify_finds_a_dominated_cell_and_one_that_is_missing_without_reason(tmp_path):
    for share, said, finding in ((None, 0.5, "rule of dominance"), (0.5, None, "are missing")):
        folder = tmp_path / f"release-{share}"
        release = released(share)
        changed = {**release.parameters, "dominance": said}
        if said is None:
            del changed["dominance"]
        object.__setattr__(release, "parameters", changed)
        with pytest.raises(GuaranteeError, match=finding):
            release.write(folder)
        assert not folder.exists()


def test_what_cannot_be_had_is_refused():
    with pytest.raises(InfeasibleError, match="within the limit of 5%"):
        anonymize(usual_flows(), "suppression", k=5, dominance=0.5, max_suppressed=0.05)
    with pytest.raises(DataError, match="needs persons"):
        anonymize(read_trips(trips().drop(["person"])), "suppression", k=5, dominance=0.5)
    with pytest.raises(ParameterError, match="above 0 and below 1"):
        released(1.0)
    with pytest.raises(ParameterError, match="not in boxes"):
        anonymize(usual_flows(), "odkanon", k=5, dominance=0.5, max_suppressed=0.5)


def test_slices_are_refused_on_the_command_line(tmp_path):
    table = trips().append_column("sex", pa.array(np.resize(["f", "m"], len(trips()))))
    csv.write_csv(table, tmp_path / "trips.csv")
    asked = ["anonymize", str(tmp_path / "trips.csv"), "--k", "5", "--dominance", "0.5", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as ended:
        main([*asked, "--by", "sex"])
    assert ended.value.code == 2
    with unchecked():
        main([*asked, "--max-suppressed", "0.3", "--method", "suppression"])
    assert (tmp_path / "out" / "report.json").exists()
