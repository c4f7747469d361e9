"""Folders that name what is nowhere listed: a plain line says so, never an error of Python or DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowveil import anonymize, anonymize_slices
from flowveil.flows import Flows
from flowveil.slices import SlicedFlows
from flowveil.verify import verify_release
from samples.drafts import unchecked
from samples.releases import city_flows, edit_report, edit_table
from unit.release.test_frozen import MAP, flows_on


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted() -> Iterator[None]:
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


@pytest.mark.parametrize(("end", "total"), [("origin", False), ("destination", True)])
def test_a_slice_whose_zones_are_not_listed_is_found(end: str, total: bool, tmp_path: Path) -> None:
    one = city_flows(rows=300)
    trees = {"origins": one.origins, "destinations": one.destinations}
    there = Flows.from_pairs(one.origin, one.destination, **trees)
    back = Flows.from_pairs(one.destination, one.origin, **trees)
    slices = SlicedFlows(("sex",), (("F",), ("M",)), (there, back))
    family = anonymize_slices(slices, "odkanon", k=5, total=total, accept_differencing=total)
    folder = family.write(tmp_path / "release")
    assert verify_release(folder, slices) == []
    edit_table(
        folder,
        "flows.parquet",
        lambda rows: [row | ({f"{end}_zone": "nowhere"} if row["sex"] == "M" else {}) for row in rows],
    )
    found = verify_release(folder, slices)
    assert f"zones.parquet: 1 {end} zones of flows.parquet are missing" in found
    assert "report.json: n_cells by trips contradicts the recount" in found


def test_a_revision_that_says_weights_of_trips_that_have_none_is_found(tmp_path: Path) -> None:
    first, folder, flows = tmp_path / "first", tmp_path / "second", flows_on(MAP, [("N1", "N2")] * 40)
    anonymize(flows_on(MAP, [("N1", "N2")] * 20), "suppression", k=5).write(first)
    anonymize(flows, revision=first, k=5).write(folder)
    edit_report(folder, lambda report: report["measures"].update(weight=report["measures"]["trips"]))
    line = "report.json: a revision says weights, or says none, other than its input"
    assert line in verify_release(folder, flows, zones_of=first, revision=[first])
    edit_report(folder, lambda report: (report["measures"].pop("weight"), report["guarantee"].update(population=5.0)))
    assert line in verify_release(folder, flows, zones_of=first, revision=[first])
