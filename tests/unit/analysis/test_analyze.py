"""`analyze` finds in a folder what the release in memory has, for every kind, and keeps it
private."""

from __future__ import annotations

import json
import re
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowveil
from flowveil.analysis.areas import PLANNER, TOGETHER
from flowveil.analysis.attach import attach
from flowveil.analysis.audit import audit
from flowveil.analysis.release_analysis import analyze, analyze_release, summary_lines
from flowveil.apps.cli import main
from flowveil.core.errors import OutputError, ParameterError
from flowveil.zoning.covering import containing_cells
from samples.strategies import hierarchies

READ = {"person": "person", "weight": "w", "resolution": 8}
REGION = "851fb467fffffff"


@pytest.fixture(scope="module")
def trips() -> pa.Table:
    rng, n = np.random.default_rng(1), 1500
    places = rng.normal(size=(n, 4)) * 0.02 + [48.85, 2.35, 48.85, 2.35]
    names = ("start_lat", "start_lon", "end_lat", "end_lon")
    return pa.table(
        {
            **dict(zip(names, places.T, strict=True)),
            "person": [f"P{i}" for i in rng.integers(0, 300, n)],
            "w": rng.integers(1, 50, n) / 10,
            "time": [f"2024-01-0{1 + i % 3}T{(i * 7) % 24:02d}:10" for i in range(n)],
            "sex": [("f", "m")[i % 2] for i in range(n)],
        }
    )


def _released(trips: pa.Table, kind: str):
    if kind == "folded":
        flows = flowveil.read_slices(trips, time="time", every="hour", **READ).folded()
        return flowveil.anonymize(flows, "paircut", k=5, protect="trips")
    if kind == "sliced":
        flows = flowveil.read_slices(trips, time="time", every="day", **READ)
        return flowveil.anonymize_slices(flows, k=5, protect="people")
    if kind in ("laplace", "topdown", "privtree", "posterior"):
        flows = flowveil.read_trips(trips, resolution=7, person="person")
        return flowveil.anonymize(flows, kind, epsilon=5.0, bound=5, region=REGION)
    return flowveil.anonymize(flowveil.read_trips(trips, **READ), kind, k=5, protect="trips")


KINDS = (
    "twincut",
    "odkanon",
    "oigh",
    "suppression",
    "atg-dual",
    "atg-soft",
    "paircut",
    "mondrian",
    "folded",
    "sliced",
    "laplace",
    "topdown",
    "privtree",
    "posterior",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_measures_of_a_folder_are_those_of_the_release_in_memory(kind, trips, tmp_path):
    release = _released(trips, kind)
    folder = release.write(tmp_path / "release")
    found, expected = analyze(folder, against=trips), analyze_release(release)
    assert _flat(found.to_dict()) == pytest.approx(_flat(expected.to_dict()))
    if not release.slice_columns:
        assert _flat(_without_planner(found.measures)) == pytest.approx(_flat(release.metrics()))


def _without_planner(measures):
    return {
        b: {n: v for n, v in values.items() if n not in (*PLANNER, TOGETHER)}
        for b, values in measures.items()
    }


def _flat(value, path: tuple = ()) -> dict:
    """Numbers and texts by their path."""
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return {
            name: leaf for key, part in parts for name, leaf in _flat(part, (*path, key)).items()
        }
    return {path: value}


def test_overlapping_boxes_leave_open_in_which_box_a_trip_was_counted(trips, tmp_path):
    release = _released(trips, "curvecut")
    found = analyze(release.write(tmp_path / "release"), against=trips)
    unknown = {name for name, value in found.measures["trips"].items() if value is None}
    assert {"k_people", "generalization_distance_m"} <= unknown
    exact = release.metrics()["trips"]
    known = _without_planner(found.measures)["trips"]
    assert {n: v for n, v in known.items() if n not in unknown} == pytest.approx(
        {n: v for n, v in exact.items() if n not in unknown}
    )
    assert any("overlap" in note for note in found.notes)


def test_a_trip_of_a_layered_release_is_in_the_first_layer_around_it(trips, tmp_path):
    """Two layers of PairCut: the second on the trips that the first leaves."""
    flows = flowveil.read_trips(trips, **READ)
    asked = {"k": 5, "protect": "trips", "max_suppressed": 0.3}
    first = flowveil.anonymize(flows, "paircut", **asked)
    folder = first.write(tmp_path / "release")
    left = first.cell_of_flow < 0
    rest = flowveil.Flows.of_cells(
        first.input.select(left),
        origins=first.input.origins,
        destinations=first.input.destinations,
        intake=first.input.intake,
        whole_map=None,
    )
    second = flowveil.anonymize(rest, "paircut", **{**asked, "max_suppressed": 0.5})
    layers = [part.flows.append_column("layer", pa.array([i] * len(part.flows), pa.int8()))
              for i, part in enumerate((first, second), 1)]  # fmt: skip
    pq.write_table(pa.concat_tables(layers), folder / "flows.parquet")
    report = json.loads((folder / "report.json").read_text("utf-8"))
    (folder / "report.json").write_text(json.dumps({**report, "kind": "layered"}), "utf-8")
    found = attach(folder, trips)
    assert found.cells.trips.sum() == first.cells.trips.sum() + second.cells.trips.sum()
    assert np.array_equal(found.cell_of_flow[left] >= 0, second.cell_of_flow >= 0)
    assert (found.cell_of_flow[~left] >= 0).all()
    measures = found.metrics()["trips"]
    assert measures["n_cells"] == len(first.cells) + len(second.cells)
    assert measures["reconstruction_loss"] == pytest.approx(_slow_loss(found))
    assert measures["suppressed_share"] == pytest.approx(
        1 - found.cells.trips.sum() / flows.trips.sum()
    )


def _slow_loss(release) -> float:
    """Every layer spread over its own pairs of tiles, and all layers summed."""
    flows, plan, cells = release.input, release.plan, release.cells
    estimate = np.zeros((flows.origins.n_tiles, flows.destinations.n_tiles))
    for a, b, trips in zip(
        cells.origin.tolist(), cells.destination.tolist(), cells.trips.tolist(), strict=True
    ):
        o, d = plan.origin_zones.nodes[a], plan.destination_zones.nodes[b]
        rows = slice(flows.origins.leaf_start[o], flows.origins.leaf_stop[o])
        columns = slice(flows.destinations.leaf_start[d], flows.destinations.leaf_stop[d])
        estimate[rows, columns] += trips / estimate[rows, columns].size
    estimate[flows.origin, flows.destination] -= flows.trips
    return float(np.abs(estimate).sum() / flows.trips.sum())


@settings(max_examples=60, deadline=None)
@given(hierarchies(), hierarchies(), st.randoms(use_true_random=False))
def test_the_cell_around_each_flow_is_found(origins, destinations, random):
    """Cells from random divisions of (root, root), some of them unpublished, against a search over
    all cells."""
    cells, open_cells = [], [(0, 0)]
    children = [
        [np.flatnonzero(tree.parent == v).tolist() for v in range(tree.n_nodes)]
        for tree in (origins, destinations)
    ]
    while open_cells:
        o, d = open_cells.pop()
        end = random.randrange(3)
        below = children[end][(o, d)[end]] if end < 2 else []
        if below:
            open_cells += [(v, d) if end == 0 else (o, v) for v in below]
        elif random.random() < 0.7:
            cells.append((o, d))
    tiles = [(i, j) for i in range(origins.n_tiles) for j in range(destinations.n_tiles)]
    at = np.array(tiles)
    points = [tree.leaf_node[at[:, end]] for end, tree in enumerate((origins, destinations))]
    rows = [np.array([c[end] for c in cells], dtype=np.int32) for end in (0, 1)]
    found = containing_cells([origins.parent, destinations.parent], rows, points).tolist()

    def holds(tree, node, tile):
        return tree.leaf_start[node] <= tile < tree.leaf_stop[node]

    for (i, j), cell in zip(tiles, found, strict=True):
        expected = [
            n
            for n, (o, d) in enumerate(cells)
            if holds(origins, o, i) and holds(destinations, d, j)
        ]
        assert expected == ([cell] if cell >= 0 else [])


def test_other_trips_than_those_of_the_release_are_refused(trips, tmp_path):
    folder = _released(trips, "twincut").write(tmp_path / "release")
    with pytest.raises(ParameterError, match="not made from these trips"):
        analyze(folder, against=trips.slice(3))


def test_what_is_written_is_private_and_outside_every_release(trips, tmp_path, capsys):
    pq.write_table(trips, tmp_path / "trips.parquet")
    release = _released(trips, "twincut")
    folder = release.write(tmp_path / "release")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    command = ["analyze", str(folder), "--against", str(tmp_path / "trips.parquet")]
    main([*command, "--json", "--out", str(tmp_path / "private")])
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["measures"]) == {"trips", "weight"}
    assert _without_planner(printed["measures"])["trips"] == release.metrics()["trips"]
    # The planner's errors are those of the level that tables show.
    level = next(one for one in printed["areas"] if (one["level"], one["basis"]) == (7, "trips"))
    assert {name: printed["measures"]["trips"][name] for name in PLANNER} == {
        name: level[name] for name in PLANNER
    }
    assert {path.name for path in (tmp_path / "private").iterdir()} == {
        "measures.json",
        "before-after.html",
    }
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "private").iterdir()} == {
        0o600
    }
    assert "NOT FOR PUBLICATION" in (tmp_path / "private" / "before-after.html").read_text("utf-8")
    for place in (folder, folder / "private"):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--out", str(place)])
        assert ended.value.code == OutputError.exit_code
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_summary_says_what_a_planner_asks(trips):
    lines = summary_lines(_released(trips, "twincut"))
    assert "a reader misplaces" in lines[0]
    assert any(line.startswith("Published: ") for line in lines)
    assert sum("a reader misplaces" in line for line in lines) == 2
    assert any("Smallest number of people" in line for line in lines)
    noisy = summary_lines(_released(trips, "topdown"))
    assert any("noise included" in line for line in noisy)


@pytest.mark.parametrize("kind", ["layercut", "sliced", "topdown"])
@pytest.mark.slow
def test_an_impact_assessment_states_what_the_release_and_its_audit_say_and_no_more(
    kind, trips, tmp_path
):
    pq.write_table(trips, tmp_path / "trips.parquet")
    about = {"title": "Trips of a town", "contact": "office@example.org"}
    release = _released(trips, kind)
    folder = release.write(tmp_path / "release", **about)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    command = ["analyze", str(folder), "--against", str(tmp_path / "trips.parquet"), "--dpia"]
    main([*command, str(tmp_path / "dpia.md")])
    text = (tmp_path / "dpia.md").read_text("utf-8")
    heads = [line.split(". ", 1)[1] for line in text.splitlines() if line.startswith("## ")]
    assert heads[:5] == ["Purpose", "Data", "Measures taken", "Risks", "Residual risk"]
    assert "Title: Trips of a town" in text
    assert "Contact: office@example.org" in text
    # What was not declared is for the controller, and so is every judgement.
    for entry in (
        "Purpose of the publication",
        "Source",
        "Licence",
        "Assessment of the residual risk",
    ):
        (line,) = (line for line in text.splitlines() if line.startswith(f"- {entry}"))
        assert line.endswith("**[to be filled in by the controller]**")
    report = json.loads((folder / "report.json").read_text("utf-8"))
    stated = [
        line
        for line in report["published"]["sentences"]
        if line.startswith(("Protected", "Not protected"))
    ]
    assert stated
    assert all(line in text for line in stated)
    assert audit([folder], against=trips).sentence in text
    assert not set(trips["person"].to_pylist()) & set(re.findall(r"\w+", text))
    assert stat.S_IMODE((tmp_path / "dpia.md").stat().st_mode) == 0o600
    with pytest.raises(SystemExit) as ended:
        main([*command, str(folder / "dpia.md")])
    assert ended.value.code == OutputError.exit_code
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
