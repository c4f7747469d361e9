"""What every method that adds noise must keep, on every kind of tree.

With an ε so large that noise is zero but once in e**60 draws, a noisy release is the bounded counts
themselves: that shows what the noise is added to. Everything else is checked with noise.
"""

from __future__ import annotations

import inspect
from fractions import Fraction

import numpy as np
import pytest

from contract.cases import NOISY_RUNS, TABLES, TREES, Run, flows_of, pairwise, rows_of
from flowveil import (
    METHODS,
    DataError,
    Flows,
    InfeasibleError,
    NoisyRelease,
    ParameterError,
    anonymize,
)
from flowveil.methods import epsilon
from flowveil.zoning.h3 import parent_of, resolution_of
from reference import laplace as naive
from samples.verified import findings_of

runs = pytest.mark.parametrize("run", NOISY_RUNS, ids=str)
#: Every tree with every table; None: the unit is a trip, otherwise the most trips of a person.
problems = pytest.mark.parametrize(
    ("kind", "table", "bound"), pairwise(TREES, TABLES, (None, 1, 3))
)

#: ε a trip of the bound at which noise is zero, and the same where it is spent in steps: none gets
#: a smaller share.
SILENT, SILENT_IN_STEPS = 60, 60 * 64
#: Noise beyond this multiple of its scale is drawn once in e**20 draws.
RARE = 20


def in_steps(run: Run) -> bool:
    """Whether the method walks down a public tree."""
    return run.method != "laplace"


def unit_flows(
    run: Run, table: str, kind: str, *, bound: int | None, shuffled: int | None = None
) -> Flows:
    """Flows with persons, or, where the unit is to be a trip, without.

    On a map of everything where one is needed.
    """
    rows = rows_of(table, kind) if shuffled is None else rows_of(table, kind).shuffled(shuffled)
    origins, destinations = TREES[kind]
    whole, place = None, rows.destination
    if in_steps(run):
        destinations, place = origins, rows.destination % origins.n_tiles
        whole = None if origins.kind == "h3" else origins
    return Flows.from_pairs(
        rows.origin, place, rows.trips, origins=origins, destinations=destinations, whole_map=whole,
        weight=rows.weight, person=None if bound is None else rows.person,
    )  # fmt: skip


def options_of(run: Run, bound: int | None, kind: str = "star") -> dict:
    tree, region = TREES[kind][0], {}
    if in_steps(run) and tree.kind == "h3":
        cells = np.unique(parent_of(tree.code[tree.leaf_node], 7)).tolist()
        region = {"region": ",".join(f"{cell:x}" for cell in cells)}
        if run.method == "posterior":
            region["districts"] = int(resolution_of(tree.code[tree.leaf_node[:1]])[0])
    return {**run.options, **region, **({} if bound is None else {"bound": bound})}


def attempt(flows: Flows, run: Run, **options) -> NoisyRelease | None:
    try:
        return anonymize(flows, run.method, **options)
    except InfeasibleError:
        return None


def by_code(release: NoisyRelease) -> dict[tuple[str, str], int]:
    return {
        (row["origin_zone"], row["destination_zone"]): row["trips"]
        for row in release.flows.to_pylist()
    }


def test_every_noisy_method_is_declared():
    assert {run.method for run in NOISY_RUNS} == {
        name for name, method in METHODS.items() if method.counts == "noisy"
    }


@pytest.mark.parametrize("name", sorted({run.method for run in NOISY_RUNS}))
@pytest.mark.parametrize("asked", [{"k": 5}, {"max_suppressed": 0.2}, {"l": 2}], ids=str)
def test_no_smallest_cell_is_promised(name, asked):
    with pytest.raises(ParameterError, match="has no smallest cell"):
        anonymize(flows_of("uneven", "star"), name, **asked)
    parameters = inspect.signature(METHODS[name].plan).parameters
    assert next(iter(parameters)) == "flows"
    assert all(
        p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in list(parameters.values())[1:]
    )


@pytest.mark.parametrize("run", [run for run in NOISY_RUNS if run.method != "privtree"], ids=str)
@problems
def test_without_noise_it_is_the_bounded_counts(run, kind, table, bound, monkeypatch):
    # Users get no ε that large, because of exactly this.
    monkeypatch.setattr(epsilon, "LARGEST_EPSILON", np.inf)
    monkeypatch.setattr(epsilon, "WEAK_EPSILON", np.inf)
    flows = unit_flows(run, table, kind, bound=bound)
    silent = SILENT_IN_STEPS if in_steps(run) else SILENT
    release = attempt(
        flows, run, epsilon=float(silent * (bound or 1)), **options_of(run, bound, kind)
    )
    counts, delta = naive.bounded_counts(flows, bound), run.options.get("delta")
    least = naive.threshold(bound or 1, 1 / SILENT, delta) if delta else 1
    want = {pair: n for pair, n in counts.items() if n >= least}
    assert ({} if release is None else by_code(release)) == want


@runs
@problems
def test_the_form_and_the_promise(run, kind, table, bound):
    flows = unit_flows(run, table, kind, bound=bound)
    before = [flows.origin.copy(), flows.destination.copy(), flows.trips.copy()]
    release = attempt(flows, run, epsilon=0.7, **options_of(run, bound, kind))
    assert all(map(np.array_equal, before, (flows.origin, flows.destination, flows.trips)))
    scale, delta = (bound or 1) / 0.7, run.options.get("delta", 0.0)
    least = naive.threshold(bound or 1, scale, delta) if delta else 1
    most = max(naive.bounded_counts(flows, bound).values())
    if release is None:
        assert most < least + RARE * scale, "refused though there is enough to publish"
        return
    assert most > least - RARE * scale, "published though nothing comes near the threshold"
    promise, cells = release.guarantee, release.cells
    assert promise.unit == ("trip" if bound is None else "person")
    assert (promise.epsilon, promise.delta, promise.bound) == (0.7, delta, bound or 1)
    assert Fraction(promise.scale) * Fraction(promise.epsilon) >= promise.bound
    assert (promise.threshold is None) == (promise.delta == 0)
    assert cells.trips.min() >= (promise.threshold or 1)
    assert (cells.weight, cells.people) == (None, None)
    codes = list(by_code(release))
    assert codes == sorted(codes)
    assert len(codes) == len(cells)


@runs
@pytest.mark.parametrize("bound", [None, 3], ids=["trip", "person-3"])
def test_what_is_written_holds(run, bound, tmp_path):
    flows = unit_flows(run, "uneven", "star", bound=bound)
    # What is written has real noise, which may leave nothing of a table this small above a
    # threshold: then draw again.
    draws = (attempt(flows, run, epsilon=5.0, **options_of(run, bound)) for _ in range(40))
    release = next(release for release in draws if release is not None)
    assert findings_of(release.write(tmp_path / "out"), flows) == []


@runs
@problems
def test_the_order_of_rows_and_the_numbers_of_persons_leave_no_trace(run, kind, table, bound):
    options = {"epsilon": 2.0, "unsafe_seed_for_tests": 5, **options_of(run, bound, kind)}
    one, other = (
        attempt(unit_flows(run, table, kind, bound=bound, shuffled=s), run, **options)
        for s in (None, 1)
    )
    assert (one is None) == (other is None)
    assert one is None or one.flows == other.flows


@runs
def test_no_flows_are_bad_input(run):
    nothing = np.zeros(0, dtype=np.int32)
    origins, destinations = TREES["ragged"]
    flows = Flows.from_pairs(nothing, nothing, origins=origins, destinations=destinations)
    with pytest.raises(DataError, match="no flows"):
        anonymize(flows, run.method, epsilon=1.0, **run.options)
