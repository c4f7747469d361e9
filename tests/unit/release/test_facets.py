"""Facets say what a release is, and everything that is said of it follows from them."""

from __future__ import annotations

import json

import pytest

from flowveil import anonymize, read_tree, read_trips, verify_release
from flowveil.release.facets import Facets
from flowveil.release.folder import ReleaseFolder
from samples.releases import edit_report
from samples.segmented import survey

NOISE = {"method": "laplace", "epsilon": 1.0, "bound": 5, "delta": 1e-6}
SEPARATE, FOLD = {"sex": "separate"}, {"sex": "fold"}
CASES = {
    "plain": ({"method": "twincut"}, Facets()),
    "layered": ({"method": "layercut"}, Facets(layers=True)),
    "boxed": ({"method": "mondrian"}, Facets(zones="boxes")),
    "sliced": ({"method": "twincut"}, Facets(dimensions=SEPARATE)),
    "sliced, layers": (
        {"method": "layercut", "separate": True},
        Facets(layers=True, dimensions=SEPARATE),
    ),
    "folded": ({"method": "paircut"}, Facets(dimensions=FOLD)),
    "folded, layers": ({"method": "layercut"}, Facets(layers=True, dimensions=FOLD)),
    "noisy": (NOISE, Facets(counts="noisy")),
}


def release_of(facets: Facets, **how):
    flows = read_trips(survey(), resolution=7, **({"by": "sex"} if facets.dimensions else {}))
    if facets.folds:
        flows = flows.folded({"sex": read_tree({"F": "all", "M": "all", "X": "all"})})
    return anonymize(flows, **how)


@pytest.mark.parametrize("case", CASES)
def test_a_release_its_statement_and_its_folder_have_the_same_facets(case, tmp_path):
    how, facets = CASES[case]
    release = release_of(facets, **({"k": 5} if not facets.is_noisy else {}), **how)
    folder = ReleaseFolder(release.write(tmp_path / "release"))
    assert release.facets == folder.statement.facets == facets
    assert folder.report["kind"] == release.kind == case.partition(",")[0]
    # What is published is explained.
    has_layers = "layer" in folder.flows.column_names
    assert facets.layers == has_layers
    explained = [line.startswith("Layers:") for line in folder.report["published"]["sentences"]]
    assert any(explained) == has_layers


@pytest.mark.parametrize("case", ["sliced, layers", "plain"])
def test_a_folder_that_hides_its_layers_or_claims_some_does_not_hold(case, tmp_path):
    how, facets = CASES[case]
    release = release_of(facets, k=5, **how)
    folder = release.write(tmp_path / "release")
    trips = survey()
    assert verify_release(folder, against=trips).findings == ()
    edit_report(folder, lambda report: report["statement"].update(layers=not facets.layers))
    assert verify_release(folder, against=trips).findings
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["statement"]["layers"] is not facets.layers
