"""What every method that perturbs counts by keys must keep, on every kind of tree."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest

from contract.cases import PERTURBED_RUNS, TABLES, TREES, Run, flows_of, pairwise, rows_of
from flowveil import METHODS, DataError, Flows, InfeasibleError, NoisyRelease, ParameterError, anonymize
from flowveil.record_keys import sum_keys
from samples.verified import findings_of

runs = pytest.mark.parametrize("run", PERTURBED_RUNS, ids=str)
problems = pytest.mark.parametrize(("kind", "table"), pairwise(TREES, TABLES))


def keyed(table: str, kind: str, *, order: int | None = None) -> Flows:
    """Flows whose rows have keys, from rows in any order."""
    rows = rows_of(table, kind)
    keys = np.random.default_rng(3).integers(0, 2**32, len(rows.origin))
    at = np.arange(len(keys)) if order is None else np.random.default_rng(order).permutation(len(keys))
    rows, keys = rows.where(at), keys[at]
    flows = rows.flows(kind)
    pair = rows.origin * TREES[kind][1].n_tiles + rows.destination
    row = np.searchsorted(np.unique(pair), pair)
    intake = replace(flows.intake, key="0123456789abcdef")
    return replace(flows, keys=sum_keys(row, keys, len(flows)), intake=intake)


def attempt(flows: Flows, run: Run, **options) -> NoisyRelease | None:
    try:
        return anonymize(flows, run.method, **{**run.options, **options})
    except InfeasibleError:
        return None


def test_every_method_is_declared():
    assert {run.method for run in PERTURBED_RUNS} == {n for n, m in METHODS.items() if m.promises == "perturbation"}


@pytest.mark.parametrize("name", sorted({run.method for run in PERTURBED_RUNS}))
@pytest.mark.parametrize("asked", [{"k": 5}, {"protect": "people"}, {"max_suppressed": 0.2}, {"l": 2}], ids=str)
def test_no_smallest_cell_is_promised(name, asked):
    with pytest.raises(ParameterError, match="perturbs counts and has no smallest cell"):
        anonymize(keyed("uneven", "star"), name, **asked)
    parameters = inspect.signature(METHODS[name].plan).parameters
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in list(parameters.values())[1:])


@runs
@problems
def test_counts_are_off_by_at_most_the_maximum(run, kind, table):
    flows = keyed(table, kind)
    before = [flows.origin.copy(), flows.trips.copy(), flows.keys.copy()]
    release = attempt(flows, run)
    assert all(map(np.array_equal, before, (flows.origin, flows.trips, flows.keys)))
    true = dict(zip(zip(flows.origin.tolist(), flows.destination.tolist(), strict=True), flows.trips, strict=True))
    if release is None:
        assert max(true.values()) <= METHODS[run.method].plan(flows, **run.options).guarantee.maximum
        return
    assert release.kind == "perturbed"
    assert (release.cells.weight, release.cells.people) == (None, None)
    most = release.guarantee.maximum
    tile = {
        end: {code: i for i, code in enumerate(tree.code_text(tree.leaf_node).tolist())}
        for end, tree in (("origin", flows.origins), ("destination", flows.destinations))
    }
    rows = release.flows.to_pylist()
    shown = {(tile["origin"][r["origin_zone"]], tile["destination"][r["destination_zone"]]): r["trips"] for r in rows}
    assert set(shown) <= set(true)
    assert all(abs(int(n) - shown.get(pair, 0)) <= most for pair, n in true.items())


@runs
@pytest.mark.parametrize("kind", ["star", "h3"])
def test_what_is_written_holds(run, kind, tmp_path):
    flows = keyed("uneven", kind)
    release = attempt(flows, run)
    if release is None:
        return
    notes: list[str] = []
    assert findings_of(release.write(tmp_path / "out"), flows, notes=notes) == []
    assert notes == []
    # Without keys the form is checked, and the result says so.
    assert findings_of(tmp_path / "out", replace(flows, keys=None), notes=notes) == []
    assert [note for note in notes if "secret key was not given" in note]


@runs
@problems
def test_the_order_of_rows_leaves_no_trace(run, kind, table):
    one, other = attempt(keyed(table, kind), run), attempt(keyed(table, kind, order=5), run)
    assert (one is None) == (other is None)
    assert one is None or one.flows == other.flows


@runs
def test_what_cannot_be_perturbed_is_refused(run, tmp_path):
    without = flows_of("uneven", "star")
    with pytest.raises(ParameterError, match="needs record keys"):
        anonymize(without, run.method, **run.options)
    trial = replace(keyed("uneven", "star"), intake=without.intake)
    with pytest.raises(ParameterError, match="without a secret key"):
        anonymize(trial, run.method, **run.options).write(tmp_path / "out")
    rows = rows_of("uneven", "star")
    half = replace(rows, trips=rows.trips + 0.5).flows("star")
    with pytest.raises(DataError, match="fractions"):
        anonymize(replace(half, keys=np.zeros(len(half), np.int64)), run.method, **run.options)
