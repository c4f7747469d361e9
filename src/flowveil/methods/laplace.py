"""Laplace: noisy counts of all pairs, differentially private.

Each count gets noise of the discrete Laplace law, pairs without trips included: a pair that is listed may have had no
trips, and one that is not listed may have had some. How much noise depends on what the user promises (ε) and on how
much one person can change the counts. That is bounded by us, not read off the data: of each person at most ``bound``
trips are counted.

The zones must not reveal anything either, so the pairs are all pairs of a public list: the cells below a region, or the
zones of the user's map. Such a list has far more pairs than there are trips, most of them empty. The noise of the
empty ones is drawn as the places and values of the draws above zero (`flowveil.methods.discrete_laplace`); negative
counts are not published, which is post-processing and costs no privacy.

With δ above 0 no list is needed: only pairs with trips get noise, and a pair is published from a threshold on that a
person alone in it passes with probability δ at most (Korolova et al. 2009).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flowveil.errors import ParameterError
from flowveil.flows import Cells, Flows, group_pairs
from flowveil.hierarchy import Ints
from flowveil.methods.contributions import counted_trips, left_out
from flowveil.methods.discrete_laplace import Bits, Counts, DiscreteLaplace, bits_of
from flowveil.methods.epsilon import opendp_laplace
from flowveil.methods.noise_guarantee import NoiseGuarantee
from flowveil.methods.pair_domain import pair_domain
from flowveil.release.noisy import NoisyCounts, PrivacyLoss
from flowveil.release.plan import Plan, Suppression

#: More published pairs than this are refused before anything is drawn: they would not fit into memory.
MOST_PAIRS = 60_000_000
#: Pairs of the domain that are worked on at a time.
_PAIRS_AT_ONCE = 1 << 22

MECHANISM = "discrete Laplace noise on whole numbers, on all pairs; counts below 1 are not listed"
MECHANISM_FROM_THRESHOLD = (
    "discrete Laplace noise on whole numbers, on pairs with trips; counts below the threshold are not listed"
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
    """Count pairs with discrete Laplace noise.

    Args:
        flows: what to count.
        epsilon: ε of the promise; required, at most 20; above 10 a warning says how little it hides. Halving it
            doubles the noise.
        delta: δ of the promise. Above 0, pairs without trips are not published, nor those below a threshold.
        bound: most trips of one person that are counted. Required where persons are known: the unit is then a
            person; without persons it is a trip, and the release says so.
        level: level of the zones in their hierarchy (the resolution, for H3); tiles by default.
        region: where the zones are: H3 cells, or codes of the user's map, with commas between; the whole map by
            default. ``observed``: the zones of the data. Their list is then not protected, and the release says so.
        unsafe_seed_for_tests: repeatable noise, which hides nothing. A release made with it cannot be written.

    Raises:
        ParameterError: an option is missing or out of its range, or the zones cannot be listed.
        DataError: the flows do not say how many trips each person made.
    """
    promise = NoiseGuarantee.from_options(
        "laplace", flows, epsilon=epsilon, delta=delta, bound=bound, seed=unsafe_seed_for_tests
    )
    domain = pair_domain(flows, level, region, listed=promise.delta == 0)
    scale = promise.scale()
    law = DiscreteLaplace(scale)
    n_zones = len(domain.origins.zones), len(domain.destinations.zones)
    if promise.delta == 0:
        _refuse_too_many(n_zones[0] * n_zones[1], law)
    origin, destination = domain.origins.zone[flows.origin], domain.destinations.zone[flows.destination]
    inside = (origin >= 0) & (destination >= 0)
    trips = counted_trips(flows, inside, bound=None if promise.unit == "trip" else promise.bound)
    counted = np.where(trips > 0, origin, np.int32(-1))
    group = group_pairs(counted, destination, *n_zones)
    table = Cells(group.origin, group.destination, group.sum(trips))
    bits = bits_of(unsafe_seed_for_tests)
    noise = _Noise(law, promise, bits, repeatable=unsafe_seed_for_tests is not None)
    threshold = None if promise.delta == 0 else law.threshold(promise.bound, promise.delta)
    cells = noise.on_all_pairs(table, *n_zones) if threshold is None else noise.from_threshold(table, threshold)
    return NoisyCounts(
        plan=Plan(
            origin_zone=origin,
            destination_zone=destination,
            kept=inside,
            origin_zones=domain.origins.zones,
            destination_zones=domain.destinations.zones,
            homogeneous=True,
            suppression=Suppression("noise"),
        ),
        cells=cells,
        guarantee=PrivacyLoss(
            unit=promise.unit,
            epsilon=promise.epsilon,
            delta=promise.delta,
            bound=promise.bound,
            mechanism=MECHANISM if threshold is None else MECHANISM_FROM_THRESHOLD,
            scale=float(scale),
            deviation=law.standard_deviation,
            threshold=threshold,
            domain=domain.described,
        ),
        left_out=left_out(flows, inside, trips, unit=promise.unit),
        zones_are_public=domain.public,
        repeatable=unsafe_seed_for_tests is not None,
    )


def _refuse_too_many(n_pairs: int, law: DiscreteLaplace) -> None:
    """Refuse a domain whose noise alone would not fit into memory."""
    if n_pairs * law.positive_share > MOST_PAIRS:
        raise ParameterError(
            f"The domain has {n_pairs:,} pairs, of which noise alone would publish "
            f"{n_pairs * law.positive_share:,.0f}; at most {MOST_PAIRS:,} are allowed. Hint: a coarser level, a "
            "smaller region, or delta above 0."
        )


# ---- noise -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Noise:
    """The noise of one release. Counts of pairs with trips pass through OpenDP; empty pairs have no counts to pass."""

    law: DiscreteLaplace
    promise: NoiseGuarantee
    bits: Bits
    repeatable: bool

    def from_threshold(self, table: Cells, threshold: int) -> Cells:
        """Pairs with trips whose noisy count reaches the threshold."""
        noisy = self._add(table.trips)
        kept = noisy >= threshold
        return Cells(table.origin[kept], table.destination[kept], noisy[kept])

    def on_all_pairs(self, table: Cells, n_origins: int, n_destinations: int) -> Cells:
        """All pairs whose noisy count is above zero, with trips or without."""
        parts = list(self._by_rows(table, n_origins, n_destinations))
        origin, destination, trips = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Cells(origin, destination, trips)

    def _by_rows(self, table: Cells, n_origins: int, n_destinations: int) -> Iterator[tuple[Ints, Ints, Counts]]:
        """Origins, destinations and noisy counts in order, a few origins at a time: memory is what is published."""
        key = table.origin.astype(np.int64) * n_destinations + table.destination
        noisy = self._add(table.trips)
        step = max(1, _PAIRS_AT_ONCE // n_destinations)
        for first in range(0, n_origins, step):
            low, high = first * n_destinations, min(first + step, n_origins) * n_destinations
            place, value = self.law.positives(high - low, self.bits)
            place += low
            own = slice(*np.searchsorted(key, (low, high)))
            # What was drawn where there are trips is not needed: their noise is their own.
            at = np.minimum(np.searchsorted(key[own], place), max(0, own.stop - own.start - 1))
            empty = key[own][at] != place if own.stop > own.start else np.ones(len(place), np.bool_)
            shown = noisy[own] >= 1
            keys = np.concatenate((place[empty], key[own][shown]))
            order = np.argsort(keys, kind="stable")
            origin, destination = np.divmod(keys[order], n_destinations)
            trips = np.concatenate((value[empty], noisy[own][shown]))[order]
            yield origin.astype(np.int32), destination.astype(np.int32), trips

    def _add(self, counts: Counts) -> Counts:
        if self.repeatable:
            return counts + self.law.draw(len(counts), self.bits)
        return opendp_laplace(counts, sensitivity=self.promise.bound, epsilon=self.promise.epsilon)
