"""The guarantee of Posterior, measured on neighbouring inputs (`reference.privacy_audit`).

Ten people use one pair of two districts; in the second input one more person makes 40 trips, of
which the bound counts two. The noisy numbers are looked at, before the posterior: that is
post-processing, which only conceals. A mechanism with its stated ε fails a test with a probability
below 1e-10; one with half of the noise fails it nearly surely.
"""

from __future__ import annotations

from fractions import Fraction

import h3
import numpy as np
import pyarrow as pa
import pytest

from flowveil import Flows, read_slices, read_trips
from flowveil.core.flows import Cells
from flowveil.methods import METHODS
from flowveil.methods.discrete_noise import DiscreteLaplace, system_bits
from flowveil.methods.noise_by_slice import _counted
from flowveil.methods.noise_guarantee import CountedTrips, NoiseGuarantee
from flowveil.methods.posterior import PARTS_OF_SLICES, _Noise, noisy_counts, noisy_parts
from flowveil.methods.posterior_counts import Districts
from flowveil.methods.posterior_slices import PairTotals
from flowveil.methods.public_domain import district_domain
from reference.privacy_audit import certified_epsilon

RUNS, BOUND, EPSILON = 20_000, 2, 2.0
#: Both parts of the budget are large enough to be seen.
BUDGET = "0.4,0.6"
CELLS = sorted(h3.cell_to_children(h3.latlng_to_cell(48.85, 2.35, 6), 7))[:2]
#: Both pairs are in one distance class.
DISTRICTS = Districts(np.zeros((2, 2), np.int8), np.array([[1], [0]], dtype=np.int32))


def trips(more: bool) -> pa.Table:
    """Trips within the first district, and 20 trips of one more person there, 20 to the second."""
    rows = [(CELLS[0], CELLS[0], f"p{i}") for i in range(10)]
    if more:
        rows += [(CELLS[0], CELLS[end], "other") for end in (0, 1) for _ in range(20)]
    origin, destination, person = zip(*rows, strict=True)
    return pa.table({"origin_h3": origin, "destination_h3": destination, "person": person})


def flows(more: bool) -> Flows:
    return read_trips(
        trips(more), resolution=7, origin_tile="origin_h3", destination_tile="destination_h3",
        person="person", max_dropped=0.9,
    )  # fmt: skip


def table(more: bool, unit: str) -> Cells:
    """The counted trips; of the additional person or trip, all that the guarantee counts."""
    if unit == "trip":
        ends = np.zeros(1, np.int32)
        return Cells(ends, ends, np.array([10 + more]))
    of = flows(more)
    domain = district_domain("posterior", of, 7, ",".join(CELLS))
    guarantee = NoiseGuarantee("person", EPSILON, 0.0, BOUND)
    return CountedTrips.from_flows(of, guarantee, domain).table()


def numbers(more: bool, unit: str, noise: _Noise) -> np.ndarray:
    """Of many runs: both pairs that the person uses, and the trips of the class."""
    counted, out = table(more, unit), np.empty((RUNS, 3), dtype=np.int64)
    for run in range(RUNS):
        noisy, totals = noisy_counts([counted], DISTRICTS, noise.distributions, system_bits)
        out[run] = *noisy[0], *totals
    return out


def measured(unit: str, epsilon: float) -> float:
    bound = BOUND if unit == "person" else 1
    noise = _Noise.from_options(NoiseGuarantee(unit, epsilon, 0.0, bound), BUDGET)
    found = []
    for more in (True, False):
        used, unused, together = numbers(more, unit, noise).T
        large = {"used": used >= 11, "together": together >= 10 + bound}
        if unit == "person":
            large["unused"] = unused >= 1
        found.append({**large, "all": np.all(list(large.values()), axis=0)})
    return certified_epsilon(*found)[0]


@pytest.mark.parametrize("unit", ["trip", "person"])
@pytest.mark.slow
def test_the_noisy_numbers_together_keep_the_promise(unit):
    # The measurement is sharp enough to see most of the loss.
    assert 0.7 * EPSILON < measured(unit, EPSILON) <= EPSILON


def slices(more: bool) -> tuple[list[Cells], PairTotals]:
    """The counted trips in two slices, and the pairs of the first district."""
    mode = pa.array(["a"] * 10 + ["a", "b"] * (20 * more))
    sliced = read_slices(
        trips(more).append_column("mode", mode), resolution=7, origin_tile="origin_h3",
        destination_tile="destination_h3", person="person", by=["mode"], by_many=True, max_dropped=0.9,
    )  # fmt: skip
    region = {"region": ",".join(CELLS), "districts": 7, "bound": BOUND}
    counted = _counted(METHODS["posterior"], sliced, [("a",), ("b",)], region)
    domain = district_domain("posterior", sliced.slices[0], 7, ",".join(CELLS))
    guarantee = NoiseGuarantee("person", EPSILON, 0.0, BOUND)
    tables = []
    for key in (("a",), ("b",)):
        part = Flows.from_pairs(
            **counted[key], origins=sliced.origins, destinations=sliced.destinations
        )
        tables.append(CountedTrips.from_flows(part, guarantee, domain).table())
    found = PairTotals(np.zeros(2, np.int32), np.arange(2, dtype=np.int32), np.ones(2, np.int64))
    return tables, found


def measured_slices(epsilon: float) -> float:
    """Of all noisy numbers of slices, with both pairs counted again in every slice."""
    noise = _Noise.from_options(
        NoiseGuarantee("person", epsilon, 0.0, BOUND), "0.2,0.3,0.5", PARTS_OF_SLICES
    )
    events = []
    for more in (True, False):
        tables, found = slices(more)
        numbers = np.empty((RUNS, 4), dtype=np.int64)
        for run in range(RUNS):
            noisy, totals = noisy_counts(tables, DISTRICTS, noise.distributions[:2], system_bits)
            parts = noisy_parts(tables, found, noise.distributions[2], system_bits)
            numbers[run] = noisy[0, 0], *totals, *parts[0]
        # One trip of the person is counted in each slice, both on the used pair.
        least = {"used": 12, "together": 12, "first slice": 11, "second slice": 1}
        large = {
            name: column >= value
            for (name, value), column in zip(least.items(), numbers.T, strict=True)
        }
        events.append({**large, "all": np.all(list(large.values()), axis=0)})
    return certified_epsilon(*events)[0]


@pytest.mark.slow
def test_the_noisy_numbers_of_slices_together_keep_the_promise():
    assert 0.6 * EPSILON < measured_slices(EPSILON) <= EPSILON


@pytest.mark.slow
def test_half_of_the_noise_of_slices_is_noticed():
    assert measured_slices(2 * EPSILON) > EPSILON


@pytest.mark.slow
def test_half_of_the_noise_is_noticed():
    assert measured("person", 2 * EPSILON) > EPSILON


def test_the_noise_of_the_parts_is_that_of_their_shares():
    noise = _Noise.from_options(NoiseGuarantee("person", 0.5, 0.0, 4), "0.02,0.98")
    scales = [distribution.scale for distribution in noise.distributions]
    assert scales == [Fraction(4) / (Fraction(1, 2) * Fraction(n, 50)) for n in (1, 49)]
    assert all(isinstance(one, DiscreteLaplace) for one in noise.distributions)
    assert sum(step.epsilon for step in noise.steps) == pytest.approx(0.5, abs=1e-12)
