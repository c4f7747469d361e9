"""Laplace: differentially private noisy counts of all pairs of a public list of zones
(docs/methods/laplace.md).

Pairs without trips get noise too. With δ above 0 no list is needed: only pairs with trips get
noise, and are published from a threshold that a person alone in a pair passes with probability at
most δ (Korolova et al. 2009).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from flowveil.core.errors import ParameterError
from flowveil.core.flows import Cells, Flows, concat_cells
from flowveil.methods.discrete_noise import Bits, DiscreteLaplace, random_bits
from flowveil.methods.epsilon import noise_scale
from flowveil.methods.noise_guarantee import CountedTrips, NoiseGuarantee
from flowveil.methods.public_domain import pair_domain
from flowveil.release.noisy import NoisyCounts

#: Largest expected number of published pairs; more would not fit into memory.
MOST_PAIRS = 60_000_000
#: Pairs of the domain in one batch.
_BATCH_PAIRS = 1 << 22

MECHANISM = "discrete Laplace noise on whole numbers, on all pairs; counts below 1 are not listed"
MECHANISM_FROM_THRESHOLD = (
    "discrete Laplace noise on whole numbers, on pairs with trips; counts below the threshold are"
    " not listed"
)


def laplace(
    flows: Flows,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    bound: int | None = None,
    level: int | None = None,
    region: str | None = None,
    unsafe_seed_for_tests: int | None = None,
) -> NoisyCounts:
    """Counts pairs with discrete Laplace noise.

    Args:
        flows: the flows to count.
        epsilon: ε of the guarantee; required, at most 20; a warning is given above 10. Halving it
            doubles the noise.
        delta: δ of the guarantee. Above 0, pairs without trips and pairs below a threshold are not
            published.
        bound: most trips of one person that are counted. Required if persons are known; the unit is
            then a person, otherwise a trip.
        level: level of the zones in their hierarchy (the resolution, for H3); tiles by default.
        region: H3 cells, or codes of the user's map, separated by commas; the whole map by default.
            ``observed`` takes the zones of the data; their list is then not protected, and the
            release says so.
        unsafe_seed_for_tests: repeatable noise without any protection. A release made with it
            cannot be written.

    Raises:
        ParameterError: an option is missing or out of range, or the zones cannot be listed.
        DataError: the flows do not contain the trips of each person.
    """
    privacy = NoiseGuarantee.from_options(
        "laplace", flows, epsilon=epsilon, delta=delta, bound=bound, seed=unsafe_seed_for_tests
    )
    domain = pair_domain(flows, level, region, listed=privacy.delta == 0)
    scale = Fraction(noise_scale(privacy.bound, privacy.epsilon))
    distribution = DiscreteLaplace(scale)
    n_zones = len(domain.origins.zones), len(domain.destinations.zones)
    noisy_pairs = n_zones[0] * n_zones[1] * distribution.positive_share
    if privacy.delta == 0 and noisy_pairs > MOST_PAIRS:
        raise ParameterError(
            f"The domain has {n_zones[0] * n_zones[1]:,} pairs, of which noise alone would publish"
            f" {noisy_pairs:,.0f}; at most {MOST_PAIRS:,} are allowed. Hint: a coarser level, a"
            " smaller region, or delta above 0."
        )
    counted = CountedTrips.from_flows(flows, privacy, domain)
    table, bits = counted.table(), random_bits(unsafe_seed_for_tests)
    noisy = table.trips + distribution.draw(len(table), bits)
    threshold = None
    if privacy.delta == 0:
        cells = _on_all_pairs(replace(table, trips=noisy), n_zones, distribution, bits)
    else:
        threshold = distribution.threshold(privacy.bound, privacy.delta)
        cells = replace(table, trips=noisy).select(noisy >= threshold)
    loss = {
        "mechanism": MECHANISM if threshold is None else MECHANISM_FROM_THRESHOLD,
        "scale": float(scale),
        "deviation": distribution.standard_deviation,
        "threshold": threshold,
    }
    return counted.released(cells, loss, unsafe_seed_for_tests)


def _on_all_pairs(
    table: Cells, n_zones: tuple[int, int], distribution: DiscreteLaplace, bits: Bits
) -> Cells:
    """Returns all pairs with a positive noisy count, in order.

    Those of the table, and those with noise alone.
    """
    n_origins, n_destinations = n_zones
    key = table.origin.astype(np.int64) * n_destinations + table.destination
    parts = []
    step = max(1, _BATCH_PAIRS // n_destinations)
    for first in range(0, n_origins, step):
        low, high = first * n_destinations, min(first + step, n_origins) * n_destinations
        place, value = distribution.positives(high - low, bits)
        place += low
        own = slice(*np.searchsorted(key, (low, high)))
        # Pairs with trips have separate noise; draws at their positions are discarded.
        empty = ~np.isin(place, key[own], assume_unique=True)
        shown = table.trips[own] >= 1
        keys = np.concatenate((place[empty], key[own][shown]))
        order = np.argsort(keys, kind="stable")
        origin, destination = np.divmod(keys[order], n_destinations)
        trips = np.concatenate((value[empty], table.trips[own][shown]))[order]
        parts.append(Cells(origin.astype(np.int32), destination.astype(np.int32), trips))
    return concat_cells(parts)
