"""The recount: independent of flowveil, silent on good releases, and loud on every change that
concerns cells."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import h3.api.basic_str as h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowveil.verify
from flowveil.analysis.closeness import closeness
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.verify.from_flows import trips_from_flows
from flowveil.verify.recount import PersonRows, recount
from samples.recounted import trips_of, write_folder
from samples.releases import city_flows

PACKAGE = Path(flowveil.verify.__file__).parent / "recount"
ROWS = [
    *({"origin": "a1", "destination": "c1", "person": i % 4, "weight": 500_000} for i in range(6)),
    *({"origin": "a2", "destination": "c2", "person": i, "weight": 1_500_000} for i in range(5)),
    *({"origin": "b1", "destination": "d1", "person": 9, "weight": 1_000_000} for i in range(2)),
]
CELLS = [
    {"origin_zone": "a1", "destination_zone": "c1", "trips": 6, "weight": 3.0},
    {"origin_zone": "a2", "destination_zone": "B", "trips": 5, "weight": 7.5},
]


def test_nothing_of_flowveil_is_imported():
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(name.name.startswith("flowveil") for name in node.names), path.name
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("flowveil"), path.name
                assert node.level < 2, path.name


def test_it_runs_where_flowveil_cannot_be_imported():
    code = (
        "import sys; sys.modules['flowveil'] = None; import recount.trips; "
        "print(recount.Result.__module__, [m for m in sys.modules if m.startswith('flowveil.')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["recount.recount", "[]"]


def test_a_good_release_has_no_findings(tmp_path):
    raw = trips_of(ROWS)
    result = recount(
        write_folder(tmp_path / "r", CELLS, raw, {"k": 4, "trips": 4, "people": 4}), raw
    )
    assert result.findings == ()
    assert result.counted["cells"] == 2


def _change(cells):
    return lambda folder, raw: write_folder(folder, cells, raw, {"k": 4, "trips": 4})


TAMPERED = {
    "a count": _change([{**CELLS[0], "trips": 7}, CELLS[1]]),
    "a weight": _change([{**CELLS[0], "weight": 3.000001}, CELLS[1]]),
    "a row more": _change(
        [*CELLS, {"origin_zone": "b1", "destination_zone": "d1", "trips": 4, "weight": 2.0}]
    ),
    "a row twice": _change([*CELLS, CELLS[0]]),
    "a cell below the guarantee": _change(
        [*CELLS, {"origin_zone": "b1", "destination_zone": "d1", "trips": 2, "weight": 2.0}]
    ),
    "cells that overlap": _change(
        [*CELLS, {"origin_zone": "a", "destination_zone": "c1", "trips": 6, "weight": 3.0}]
    ),
    "a zone that is not on the map": _change([{**CELLS[0], "origin_zone": "z"}, CELLS[1]]),
    "two rows merged": _change(
        [{"origin_zone": "a1", "destination_zone": "B", "trips": 11, "weight": 10.5}]
    ),
    "a higher k": lambda folder, raw: write_folder(folder, CELLS, raw, {"k": 6, "trips": 6}),
    "people": lambda folder, raw: write_folder(
        folder, CELLS, raw, {"k": 5, "trips": 5, "people": 5}
    ),
    "locations": lambda folder, raw: write_folder(
        folder, CELLS, raw, {"k": 4, "trips": 4, "locations": 2}
    ),
    "k mean weights": lambda folder, raw: write_folder(
        folder, CELLS, raw, {"k": 5, "trips": 5, "population": None}
    ),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_change_is_found(case, tmp_path):
    raw = trips_of(ROWS)
    assert recount(TAMPERED[case](tmp_path / "r", raw), raw).findings


REPORTED = {
    "another share": lambda r: r["statement"]["shares"].update(suppressed=0.99),
    "another step": lambda r: r["statement"]["shares"].update(step=0.02),
    "no shares": lambda r: r["statement"].update(shares=None),
    "another basis": lambda r: r["statement"]["shares"].update(basis="weight"),
    "another kind": lambda r: r.update(kind="noisier"),
    "units that are not protected": lambda r: r["guarantee"].update(protect=["trips", "people"]),
    "a weaker guarantee than asked for": lambda r: r["parameters"].update(k=9),
    "an unknown rule": lambda r: r["statement"]["suppression"].update(rule="other"),
    "another slice column": lambda r: r["statement"].update(slice_columns=["sex"]),
    "nothing at all": lambda r: r.clear(),
}


@pytest.mark.parametrize("case", REPORTED)
def test_a_changed_report_is_found(case, tmp_path):
    raw = trips_of(ROWS)
    folder = write_folder(tmp_path / "r", CELLS, raw, {"k": 4, "trips": 4})
    report = json.loads((folder / "report.json").read_text())
    REPORTED[case](report)
    (folder / "report.json").write_text(json.dumps(report))
    assert recount(folder, raw).findings


def test_a_safe_cell_may_not_be_missing_from_a_homogeneous_release(tmp_path):
    raw = trips_of(ROWS)
    cells = [{"origin_zone": "a", "destination_zone": "c", "trips": 11, "weight": 10.5}]
    assert (
        recount(
            write_folder(tmp_path / "r", cells, raw, {"k": 4, "trips": 4}, homogeneous=True), raw
        ).findings
        == ()
    )
    cells = [
        {"origin_zone": "a1", "destination_zone": "c1", "trips": 6, "weight": 3.0},
        {"origin_zone": "a2", "destination_zone": "c2", "trips": 5, "weight": 7.5},
    ]
    more = trips_of(
        [
            *ROWS,
            *({"origin": "a1", "destination": "c2", "person": 0, "weight": 0} for _ in range(4)),
        ]
    )
    found = recount(
        write_folder(tmp_path / "s", cells, more, {"k": 4, "trips": 4}, homogeneous=True), more
    ).findings
    assert any("missing" in line for line in found)


def test_a_trip_belongs_to_the_first_layer_around_it(tmp_path):
    raw = trips_of(ROWS)
    first = {**CELLS[0], "layer": 1}
    rest = {"origin_zone": "R", "destination_zone": "R", "trips": 7, "weight": 9.5, "layer": 2}
    assert (
        recount(
            write_folder(tmp_path / "r", [first, rest], raw, {"k": 4, "trips": 4}), raw
        ).findings
        == ()
    )
    swapped = [{**first, "layer": 2}, {**rest, "layer": 1}]
    assert recount(write_folder(tmp_path / "s", swapped, raw, {"k": 4, "trips": 4}), raw).findings


def test_what_the_reader_requires(tmp_path):
    raw = trips_of(ROWS)
    folder = write_folder(tmp_path / "r", CELLS, raw, {"k": 4, "trips": 4})
    assert recount(folder, raw, expect={"k": 4}).findings == ()
    assert recount(folder, raw, expect={"k": 5}).findings
    assert recount(folder, raw, expect={"k": 4, "protect": ["people"]}).findings


def test_one_person_may_not_dominate(tmp_path):
    raw = trips_of(ROWS)
    folder = write_folder(tmp_path / "r", CELLS, raw, {"k": 4, "trips": 4})
    report = json.loads((folder / "report.json").read_text())
    for share, is_kept in ((0.34, True), (0.33, False)):
        report["parameters"]["dominance"] = share
        (folder / "report.json").write_text(json.dumps(report))
        assert (recount(folder, raw).findings == ()) == is_kept


@pytest.mark.parametrize(
    ("method", "t", "limit"), [("twincut", 0.7, 0.1), ("suppression", 0.8, 0.99)]
)
def test_stated_closeness_is_recounted(method, t, limit, tmp_path):
    flows = city_flows()
    raw = trips_from_flows(flows)
    release = flowveil.anonymize(flows, method=method, k=5, t=t, max_suppressed=limit)
    folder = release.write(tmp_path / "r")
    assert recount(folder, raw).findings == ()
    farthest = max(one.total_variation.max() for one in closeness(release).values())
    assert 0 < farthest <= t
    report = json.loads((folder / "report.json").read_text())
    report["parameters"]["t"] = farthest - 0.001
    (folder / "report.json").write_text(json.dumps(report))
    assert any("farther" in line for line in recount(folder, raw).findings)


def test_closeness_of_zones_that_overlap_is_refused():
    for method in ("layercut", "paircut", "atg-dual", "mondrian"):
        with pytest.raises(ParameterError, match="disjoint zones"):
            flowveil.anonymize(city_flows(), method=method, k=5, t=0.9)
    assert flowveil.anonymize(city_flows(), k=5, t=0.9).method == "twincut"
    with pytest.raises(InfeasibleError, match="cannot be suppressed within the limit"):
        flowveil.anonymize(city_flows(), k=5, t=0.02, max_suppressed=0.05)


@pytest.mark.parametrize(
    "method", ["odkanon", "twincut", "paircut", "atg-dual", "mondrian", "curvecut"]
)
def test_releases_of_the_methods_hold(method, tmp_path):
    flows = city_flows()
    folder = flowveil.anonymize(flows, method=method, k=10, protect=["trips", "people"]).write(
        tmp_path / "r"
    )
    raw = trips_from_flows(flows)
    result = recount(folder, raw)
    assert result.findings == ()
    assert bool(result.notes) == (method == "curvecut")
    others = raw.persons
    assert isinstance(others, PersonRows)
    fewer = PersonRows(others.row, others.person % 3, others.trips)
    assert recount(folder, type(raw)(**{**vars(raw), "persons": fewer})).findings


@pytest.mark.parametrize(
    ("method", "options"),
    [("laplace", {}), ("privtree", {}), ("topdown", {}), ("topdown", {"delta": 1e-6})],
)
def test_the_deviation_of_every_step_is_that_of_its_noise(tmp_path, method, options):
    flows = city_flows(persons=False, weights=False)
    region = h3.latlng_to_cell(48.85, 2.35, 6)
    given = {"epsilon": 1.0, "region": region, "level": 8, **options}
    folder = flowveil.anonymize(flows, method=method, **given).write(tmp_path / "r")
    raw = trips_from_flows(flows)
    assert recount(folder, raw).findings == ()
    report = json.loads((folder / "report.json").read_text("utf-8"))
    for place in [report["guarantee"], *report["guarantee"].get("steps", ())]:
        true, place["deviation"] = place["deviation"], place["deviation"] * 0.99
        (folder / "report.json").write_text(json.dumps(report), "utf-8")
        assert any("standard deviation" in line for line in recount(folder, raw).findings)
        place["deviation"] = true


def test_exact_counts_are_not_noise(tmp_path):
    flows = city_flows(persons=False, weights=False, rows=4000)
    folder = flowveil.anonymize(flows, method="laplace", epsilon=1.0, region="observed").write(
        tmp_path / "r"
    )
    raw = trips_from_flows(flows)
    assert recount(folder, raw).findings == ()
    table = pq.read_table(folder / "flows.parquet")
    codes = flows.origins.code_text(flows.origins.leaf_node)
    true = {
        (codes[o], codes[d]): t
        for o, d, t in zip(
            flows.origin.tolist(), flows.destination.tolist(), flows.trips.tolist(), strict=True
        )
    }
    pairs = zip(
        table["origin_zone"].to_pylist(), table["destination_zone"].to_pylist(), strict=True
    )
    exact = np.array(
        [true.get(pair, n) for pair, n in zip(pairs, table["trips"].to_pylist(), strict=True)]
    )
    at = table.column_names.index("trips")
    pq.write_table(table.set_column(at, "trips", pa.array(exact)), folder / "flows.parquet")
    assert any("not noise" in line for line in recount(folder, raw).findings)
