"""What every method that adds noise must keep, on every kind of tree.

With an ε so large that noise is zero but once in e**60 draws, a noisy release is the bounded counts themselves: that
shows what the noise is added to. Everything else is checked with noise.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from contract.cases import K_METHODS, NOISY_RUNS, TABLES, TREES, Run, rows_of
from flowveil import METHODS, DataError, Flows, InfeasibleError, NoisyRelease, ParameterError, anonymize, epsilon
from flowveil.verify import verify_release
from reference import laplace as naive

runs = pytest.mark.parametrize("run", NOISY_RUNS, ids=str)
kinds = pytest.mark.parametrize("kind", TREES)
tables = pytest.mark.parametrize("table", TABLES)
bounds = pytest.mark.parametrize("bound", [None, 1, 3], ids=["trip", "person-1", "person-3"])

#: ε a trip of the bound at which noise is zero.
SILENT = 60


def flows_of(table: str, kind: str, *, bound: int | None, shuffle: int | None = None) -> Flows:
    """Flows with persons, or, where the unit is to be a trip, without."""
    rows = rows_of(table, kind)
    flows = (rows if shuffle is None else rows.shuffled(shuffle)).flows(kind)
    if bound is not None:
        return flows
    return Flows(
        flows.origin, flows.destination, flows.trips, flows.weight,
        origins=flows.origins, destinations=flows.destinations,
    )  # fmt: skip


def options_of(run: Run, bound: int | None) -> dict:
    return {**run.options, **({} if bound is None else {"bound": bound})}


def attempt(flows: Flows, run: Run, **options) -> NoisyRelease | None:
    try:
        return anonymize(flows, run.method, **options)
    except InfeasibleError:
        return None


def by_code(release: NoisyRelease) -> dict[tuple[str, str], int]:
    return {(row["origin_zone"], row["destination_zone"]): row["trips"] for row in release.flows.to_pylist()}


def test_every_noisy_method_is_declared():
    assert {run.method for run in NOISY_RUNS} == set(METHODS) - set(K_METHODS)


@pytest.mark.parametrize("name", sorted({run.method for run in NOISY_RUNS}))
@pytest.mark.parametrize("asked", [{"k": 5}, {"protect": "people"}, {"max_suppressed": 0.2}, {"l": 2}], ids=str)
def test_no_smallest_cell_is_promised(name, asked):
    with pytest.raises(ParameterError, match="promises no smallest cell"):
        anonymize(rows_of("uneven", "star").flows("star"), name, **asked)
    parameters = inspect.signature(METHODS[name].plan).parameters
    assert next(iter(parameters)) == "flows"
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in list(parameters.values())[1:])


@runs
@kinds
@tables
@bounds
def test_without_noise_it_is_the_bounded_counts(run, kind, table, bound, monkeypatch):
    # Users get no ε that large, because of exactly this.
    monkeypatch.setattr(epsilon, "LARGEST_EPSILON", np.inf)
    flows = flows_of(table, kind, bound=bound)
    release = attempt(flows, run, epsilon=float(SILENT * (bound or 1)), **options_of(run, bound))
    counts = naive.bounded_counts(flows, bound)
    if release is None:
        assert run.options.get("delta")
        assert max(counts.values()) < naive.threshold(bound or 1, 1 / SILENT, run.options["delta"])
        return
    least = release.guarantee.threshold or 1
    assert by_code(release) == {pair: n for pair, n in counts.items() if n >= least}


@runs
@kinds
@tables
@bounds
def test_the_form_and_the_promise(run, kind, table, bound, tmp_path):
    flows = flows_of(table, kind, bound=bound)
    before = [flows.origin.copy(), flows.destination.copy(), flows.trips.copy()]
    release = attempt(flows, run, epsilon=0.7, **options_of(run, bound))
    assert all(map(np.array_equal, before, (flows.origin, flows.destination, flows.trips)))
    if release is None:
        return
    promise, cells = release.guarantee, release.cells
    assert promise.unit == ("trip" if bound is None else "person")
    assert (promise.epsilon, promise.delta, promise.bound) == (0.7, run.options.get("delta", 0.0), bound or 1)
    assert promise.scale * promise.epsilon >= promise.bound
    assert (promise.threshold is None) == (promise.delta == 0)
    assert cells.trips.min() >= (promise.threshold or 1)
    assert (cells.weight, cells.people) == (None, None)
    codes = list(by_code(release))
    assert codes == sorted(codes)
    assert len(codes) == len(cells)
    if kind == "star" and table == "uneven":
        assert verify_release(release.write(tmp_path / "out"), flows) == []


@runs
@kinds
@bounds
def test_the_order_of_rows_and_the_numbers_of_persons_leave_no_trace(run, kind, bound):
    options = {"epsilon": 2.0, "unsafe_seed_for_tests": 5, **options_of(run, bound)}
    found = [attempt(flows_of("uneven", kind, bound=bound, shuffle=s), run, **options) for s in (None, 1, 2)]
    assert len({release is None for release in found}) == 1
    assert found[0] is None or all(release.flows == found[0].flows for release in found[1:])


@runs
def test_no_flows_are_bad_input(run):
    nothing = np.zeros(0, dtype=np.int32)
    origins, destinations = TREES["ragged"]
    flows = Flows.from_pairs(nothing, nothing, origins=origins, destinations=destinations)
    with pytest.raises(DataError, match="no flows"):
        anonymize(flows, run.method, epsilon=1.0, **run.options)
