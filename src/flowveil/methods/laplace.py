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
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError, InfeasibleError, ParameterError
from flowveil.flows import Cells, Flows, group_pairs
from flowveil.hierarchy import Ints
from flowveil.methods.discrete_laplace import Bits, Counts, DiscreteLaplace, repeatable_bits, system_bits
from flowveil.methods.epsilon import check_epsilon, noise_scale, opendp_laplace
from flowveil.methods.pair_domain import pair_domain
from flowveil.release.noisy import NoisyCounts, PrivacyLoss
from flowveil.release.plan import Plan, Suppression

#: With this chance or more that a person's trips are simply published, nothing would be promised.
LARGEST_DELTA = 0.01
#: Noise so large that counts mean nothing; also what the sampler's tables are made for.
LARGEST_SCALE = 1e6
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
        InfeasibleError: no pair reaches the threshold.
    """
    promise = _checked(flows, epsilon, delta, bound, unsafe_seed_for_tests)
    domain = pair_domain(flows, level, region, listed=promise.delta == 0)
    law = DiscreteLaplace(promise.scale)
    n_zones = len(domain.origins.zones), len(domain.destinations.zones)
    if promise.delta == 0:
        _refuse_too_many(n_zones[0] * n_zones[1], law)
    origin, destination = domain.origins.zone[flows.origin], domain.destinations.zone[flows.destination]
    inside = (origin >= 0) & (destination >= 0)
    trips = counted_trips(flows, inside, bound=None if promise.unit == "trip" else promise.bound)
    counted = np.where(trips > 0, origin, np.int32(-1))
    group = group_pairs(counted, destination, *n_zones)
    table = Cells(group.origin, group.destination, group.sum(trips))
    bits = system_bits if unsafe_seed_for_tests is None else repeatable_bits(unsafe_seed_for_tests)
    noise = _Noise(law, promise, bits, repeatable=unsafe_seed_for_tests is not None)
    threshold = None if promise.delta == 0 else law.threshold(promise.bound, promise.delta)
    cells = noise.on_all_pairs(table, *n_zones) if threshold is None else noise.from_threshold(table, threshold)
    if len(cells) == 0:
        raise InfeasibleError(
            "No pair is left to publish after noise"
            + ("." if threshold is None else f": none reaches the threshold of {threshold:,}.")
            + " Hint: a coarser level, a larger epsilon, or a smaller bound."
        )
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
            scale=float(promise.scale),
            deviation=law.standard_deviation,
            threshold=threshold,
            domain=domain.described,
        ),
        left_out=_left_out(flows, inside, trips, promise),
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


# ---- what is promised --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Promise:
    """The parameters, checked; ``scale`` is exact and at least bound / ε."""

    unit: Literal["person", "trip"]
    epsilon: float
    delta: float
    bound: int
    scale: Fraction


def _checked(flows: Flows, epsilon: float | None, delta: float, bound: int | None, seed: int | None) -> _Promise:
    if epsilon is None:
        raise ParameterError(
            "laplace needs epsilon, the ε of differential privacy: how much one person may change the probability "
            "of any release. Hint: epsilon=1 is a common choice; smaller protects more."
        )
    epsilon = check_epsilon(epsilon)
    if not _is_number(delta) or not 0 <= delta <= LARGEST_DELTA:
        raise ParameterError(
            f"delta must be at least 0 and at most {LARGEST_DELTA}; found {delta!r}. With probability δ the trips of a "
            "person may simply be published. Hint: far less than one over the number of persons."
        )
    if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | np.integer) or bound < 1):
        raise ParameterError(f"bound must be a whole number of at least 1; found {bound!r}.")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise ParameterError(f"unsafe_seed_for_tests must be a whole number of at least 0; found {seed!r}.")
    unit: Literal["person", "trip"] = "trip" if flows.people is None else "person"
    if unit == "person" and bound is None:
        raise ParameterError(
            "laplace needs a bound where persons are known: the most trips of one person that are counted. It must "
            "not be read off the data. Hint: what a person plausibly makes in the time the data covers, such as 4 "
            "trips a day."
        )
    if unit == "trip" and bound is not None:
        raise ParameterError(
            "bound is given, but the input has no person column: who made which trip is not known, so nobody's "
            "trips can be bounded. Hint: name the column with --person (person=...), or leave the bound out; the "
            "unit is then a trip."
        )
    most = 1 if bound is None else int(bound)
    if most / epsilon > LARGEST_SCALE:
        raise ParameterError(
            f"Noise of scale bound / epsilon = {most / epsilon:,.0f} leaves nothing of the counts; at most "
            f"{LARGEST_SCALE:,.0f} is allowed. Hint: a smaller bound or a larger epsilon."
        )
    return _Promise(unit, epsilon, float(delta), most, Fraction(noise_scale(most, epsilon)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


# ---- what is counted ---------------------------------------------------------------------------------------------


def counted_trips(flows: Flows, inside: NDArray[np.bool_], *, bound: int | None) -> Counts:
    """The trips of each flow that are counted, before any noise.

    Taking one person out of the flows changes their sum over any grouping of flows by ``bound`` at most, in the sum of
    absolute differences.

    Args:
        flows: the flows.
        inside: which of them lie in the domain.
        bound: most trips of one person; None where persons are not known, and every trip counts.
    """
    if bound is None:
        return np.where(inside, flows.trips, 0)
    people = flows.people
    if people is None or people.trips is None:
        raise DataError(
            "The flows do not say how many trips each person made, so nobody's trips can be bounded. "
            "Hint: read them with read_trips, or build them with Flows.from_pairs."
        )
    rows = inside[people.cell]
    trips = bounded_trips(people.person[rows], people.trips[rows], bound)
    return np.bincount(people.cell[rows], weights=trips, minlength=len(flows)).astype(np.int64)


def bounded_trips(person: Ints, trips: Counts, bound: int) -> Counts:
    """At most ``bound`` trips of each person, spread over the person's rows as the trips are.

    Of a person with n trips, n above the bound, in the order of the rows, every (n / bound)-th trip stays. Which ones
    depends on that person's trips alone, so adding or removing one person changes nobody else's: the counts change by
    the bound at most. Keeping the first ``bound`` trips in the order of the tiles would do as well, but would empty
    one side of the map.

    Args:
        person: the person of each row; the rows of one person stand in an order that does not depend on others.
        trips: trips of each row.
        bound: most trips of a person.
    """
    if len(person) == 0:
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(person, kind="stable")
    each = trips[order]
    first = np.append(True, person[order][1:] != person[order][:-1])
    start = np.flatnonzero(first)
    number = np.cumsum(first) - 1
    total = np.add.reduceat(each, start)
    if total.max() > np.iinfo(np.int32).max:
        raise DataError("A person has more than 2,147,483,647 trips. Hint: is this column really a person?")
    reached = np.cumsum(each) - (np.cumsum(each) - each)[start][number]
    n = total[number]
    most = np.int64(min(bound, np.iinfo(np.int32).max))
    spread = (reached * most + n // 2) // n - ((reached - each) * most + n // 2) // n
    out = np.empty(len(trips), dtype=np.int64)
    out[order] = np.where(n > most, spread, each)
    return out


def _left_out(flows: Flows, inside: NDArray[np.bool_], trips: Counts, promise: _Promise) -> dict[str, int]:
    outside = int(flows.trips[~inside].sum())
    known = int(flows.trips[inside].sum())
    if promise.unit == "person" and flows.people is not None and flows.people.trips is not None:
        known = int(flows.people.trips[inside[flows.people.cell]].sum())
    return {
        "outside the region": outside,
        "of unknown persons": int(flows.trips[inside].sum()) - known,
        "beyond the bound": known - int(trips.sum()),
    }


# ---- noise -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Noise:
    """The noise of one release. Counts of pairs with trips pass through OpenDP; empty pairs have no counts to pass."""

    law: DiscreteLaplace
    promise: _Promise
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
