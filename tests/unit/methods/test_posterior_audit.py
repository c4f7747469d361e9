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

from flowveil import Flows, read_trips
from flowveil.core.flows import Cells
from flowveil.methods.discrete_noise import DiscreteLaplace, system_bits
from flowveil.methods.noise_guarantee import CountedTrips, NoiseGuarantee
from flowveil.methods.posterior import _Noise, noisy_counts
from flowveil.methods.posterior_counts import Districts
from flowveil.methods.public_domain import district_domain
from reference.privacy_audit import certified_epsilon

RUNS, BOUND, EPSILON = 20_000, 2, 2.0
#: Both parts of the budget are large enough to be seen.
BUDGET = "0.4,0.6"
CELLS = sorted(h3.cell_to_children(h3.latlng_to_cell(48.85, 2.35, 6), 7))[:2]
#: Both pairs are in one distance class.
DISTRICTS = Districts(np.zeros((2, 2), np.int8), np.array([[1], [0]], dtype=np.int32))


def flows(more: bool) -> Flows:
    """Trips within the first district, and 20 trips of one more person there, 20 to the second."""
    trips = [(CELLS[0], CELLS[0], f"p{i}") for i in range(10)]
    if more:
        trips += [(CELLS[0], CELLS[end], "other") for end in (0, 1) for _ in range(20)]
    origin, destination, person = zip(*trips, strict=True)
    table = pa.table({"origin_h3": origin, "destination_h3": destination, "person": person})
    return read_trips(
        table, resolution=7, origin_tile="origin_h3", destination_tile="destination_h3",
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
        noisy, totals = noisy_counts(counted, DISTRICTS, noise.distributions, system_bits)
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


@pytest.mark.slow
def test_half_of_the_noise_is_noticed():
    assert measured("person", 2 * EPSILON) > EPSILON


def test_the_noise_of_the_parts_is_that_of_their_shares():
    noise = _Noise.from_options(NoiseGuarantee("person", 0.5, 0.0, 4), "0.02,0.98")
    scales = [distribution.scale for distribution in noise.distributions]
    assert scales == [Fraction(4) / (Fraction(1, 2) * Fraction(n, 50)) for n in (1, 49)]
    assert all(isinstance(one, DiscreteLaplace) for one in noise.distributions)
    assert sum(step.epsilon for step in noise.steps) == pytest.approx(0.5, abs=1e-12)
