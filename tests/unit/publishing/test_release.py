"""The interface that all releases share; given settings are distinguished from defaults."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from flowveil import ParameterError, anonymize, anonymize_slices, read_slices, read_trips
from flowveil.analysis import private
from flowveil.release.folder import ReleaseFolder
from flowveil.release.plan import Suppression
from samples.drafts import unchecked
from samples.segmented import survey


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """All that is looked at is in the files."""
    with unchecked():
        yield


METHODS = {"plain": "odkanon", "boxed": "mondrian", "noisy": "laplace"}


@pytest.fixture(scope="module")
def releases():
    flows = read_trips(survey(), resolution=7)
    made = {
        kind: anonymize(flows, method, k=5) for kind, method in METHODS.items() if kind != "noisy"
    }
    made["noisy"] = anonymize(flows, "laplace", epsilon=1.0, bound=5, delta=1e-6)
    made["sliced"] = anonymize_slices(read_slices(survey(), by="sex", resolution=7), k=5)
    return made


@pytest.mark.parametrize("kind", ["plain", "boxed", "noisy", "sliced"])
def test_every_kind_of_release_has_the_same_surface(kind, releases, tmp_path):
    release = releases[kind]
    columns = ("sex",) if kind == "sliced" else ()
    assert (release.kind, release.slice_columns) == (kind, columns)
    assert [key for key, _ in release.parts] == ([("F",), ("M",)] if kind == "sliced" else [()])
    assert sum(len(part.cells) for _, part in release.parts) == len(release.flows)
    folder = ReleaseFolder(release.write(tmp_path / "release"))
    assert folder.report == json.loads(json.dumps(release.summary()))
    assert folder.report["kind"] == kind
    assert folder.flows == release.flows
    assert folder.zones == release.zones
    assert "<iframe" in release._repr_html_()
    assert release.picture(tmp_path / "map.svg").stat().st_size > 0


def test_a_matrix_of_slices_is_that_of_the_slice(releases):
    sliced = releases["sliced"]
    of_women = sliced.flows.filter(pa.compute.equal(sliced.flows["sex"], "F")).drop_columns(["sex"])
    assert of_women == sliced["F"].flows


def test_measures_are_computed_once_and_cannot_be_changed(monkeypatch):
    release = anonymize(read_trips(survey(), resolution=7), "odkanon", k=5)
    calls = []
    real = private.measure
    monkeypatch.setattr(private, "measure", lambda r: calls.append(1) or real(r))
    release.metrics()["trips"]["n_cells"] = -1
    release.summary()
    assert release.metrics()["trips"]["n_cells"] == len(release.cells)
    assert len(calls) == 1


@pytest.mark.parametrize("asked", [{"k": 10}, {"l": 2}, {"max_suppressed": 0.1}])
def test_thresholds_that_are_given_are_refused_by_noise_even_where_they_are_the_usual_ones(asked):
    with pytest.raises(ParameterError, match=f"^{next(iter(asked))} .*has no smallest cell"):
        anonymize(
            read_trips(survey(), resolution=7), "laplace", epsilon=1.0, bound=5, delta=1e-6, **asked
        )


def test_a_rule_of_suppression_says_only_the_numbers_that_it_has():
    assert Suppression().to_dict() == {"rule": "short cells"}
    assert Suppression("hopeless flows", 0, 0.0).to_dict() == {
        "rule": "hopeless flows",
        "levels": 0,
        "beta": 0.0,
    }
