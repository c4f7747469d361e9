"""TopDown: noisy counts of pairs of zones, from the whole down a public tree, each step made to fit the one above.

Flat noise on all pairs of a fine level is mostly noise on empty pairs. Here the whole is counted first, then the pairs
of the coarsest zones, and so on; the children of a pair are corrected so that they are whole numbers, none negative,
and sum to their parent (`flowveil.methods.consistency`). A pair whose corrected count is 0 is not opened: everything
below it is 0. So noise cannot add up over empty regions, and time and memory follow what is published, not zones².
After the census's TopDown (Abowd et al. 2022) and its form for origins and destinations, InfTDA (Boninsegna and
Silvestri 2025).

The promise: at every step a unit changes the counts by its bound at most, all together, because each of its trips is in
one pair of that step. Which pairs are counted depends on earlier noisy numbers alone, never on a true count. So the
steps compose, each with its share of the budget, and everything else is post-processing. docs/methods/topdown.md has
the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

import numpy as np

from flowveil.errors import ParameterError
from flowveil.flows import Cells, Flows, group_pairs
from flowveil.hierarchy import Ints
from flowveil.methods.consistency import fitted
from flowveil.methods.contributions import counted_trips, left_out
from flowveil.methods.discrete_gaussian import DiscreteGaussian
from flowveil.methods.discrete_laplace import Bits, Counts, DiscreteLaplace, bits_of
from flowveil.methods.levels import Level, Levels, public_domain
from flowveil.methods.noise_guarantee import LARGEST_SCALE, NoiseGuarantee, rounded_up
from flowveil.methods.zcdp import largest_rho
from flowveil.release.noisy import NoiseStep, NoisyCounts, PrivacyLoss
from flowveil.release.plan import Plan, Suppression

#: What the last steps get of the budget, from the bottom up, unless the user says otherwise; all above get as much as
#: the last of these. Errors at the top are spread over everything below, and nearly all pairs are at the bottom; but a
#: deep tree must not leave the whole without a budget.
WEIGHTS = (27, 9, 3, 1)
#: Children that are worked on at a time, and the most that one pair may have.
_AT_ONCE, MOST_CHILDREN = 1 << 20, 20_000_000

MECHANISM = (
    "discrete {} noise on the counts of pairs, step by step down a public tree; children are corrected to "
    "non-negative whole numbers that sum to their parent, and pairs at 0 are not opened"
)


def topdown(
    flows: Flows,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    bound: int | None = None,
    level: int | None = None,
    region: str | None = None,
    budget: str | None = None,
    unsafe_seed_for_tests: int | None = None,
) -> NoisyCounts:
    """Count pairs from the top down, with noise at every step.

    Args:
        flows: what to count.
        epsilon: ε of the promise; required, at most 20; above 10 a warning says how little it hides.
        delta: δ of the promise. With 0 the noise is discrete Laplace and the promise holds without exception; above 0
            it is discrete Gaussian, which has fewer large errors.
        bound: most trips of one person that are counted. Required where persons are known: the unit is then a
            person; without persons it is a trip, and the release says so.
        level: level of the zones in their hierarchy (the resolution, for H3); tiles by default.
        region: where the zones are: H3 cells, or codes of the user's map, with commas between; the whole map by
            default.
        budget: the share of the budget of each step, from the whole down to the zones, with commas between; together
            1. By default the last four steps get shares as 1, 3, 9 and 27, and those above them 1 each.
        unsafe_seed_for_tests: repeatable noise, which hides nothing. A release made with it cannot be written.

    Raises:
        ParameterError: an option is missing or out of its range, or the zones would come from the data.
        DataError: the flows do not say how many trips each person made.
    """
    promise = NoiseGuarantee.from_options(
        "topdown", flows, epsilon=epsilon, delta=delta, bound=bound, seed=unsafe_seed_for_tests
    )
    domain = public_domain("topdown", flows, level, region)
    levels = Levels.from_domain(domain)
    noises = _noises(promise, levels, shares_of(budget, levels))
    origin, destination = domain.origins.zone[flows.origin], domain.destinations.zone[flows.destination]
    inside = (origin >= 0) & (destination >= 0)
    trips = counted_trips(flows, inside, bound=None if promise.unit == "trip" else promise.bound)
    n_zones = len(domain.origins.zones)
    group = group_pairs(np.where(trips > 0, origin, np.int32(-1)), destination, n_zones, n_zones)
    table = Cells(group.origin, group.destination, group.sum(trips))
    cells = walk_down(table, levels, [noise.law for noise in noises], bits_of(unsafe_seed_for_tests))
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
            mechanism=MECHANISM.format("Laplace" if promise.delta == 0 else "Gaussian"),
            scale=noises[-1].step.scale,
            deviation=noises[-1].step.deviation,
            threshold=None,
            domain=domain.described,
            steps=tuple(noise.step for noise in noises),
            rho=None if promise.delta == 0 else sum(noise.step.rho or 0.0 for noise in noises),
        ),
        left_out=left_out(flows, inside, trips, unit=promise.unit),
        zones_are_public=domain.public,
        repeatable=unsafe_seed_for_tests is not None,
    )


# ---- the budget ---------------------------------------------------------------------------------------------------


class Law(Protocol):
    """A law of noise on whole numbers."""

    @property
    def standard_deviation(self) -> float:
        """Of one draw."""
        ...

    def draw(self, n: int, bits: Bits, /) -> Counts:
        """Independent draws."""
        ...


@dataclass(frozen=True, eq=False)
class _Noise:
    """The law of the noise of one step, and what the report says of it."""

    law: Law
    step: NoiseStep


def shares_of(budget: str | None, levels: Levels) -> list[Fraction]:
    """The share of the budget of each step, exactly: together 1.

    Raises:
        ParameterError: the shares are not positive numbers, one for each step, that sum to 1.
    """
    n = len(levels.levels)
    if budget is None:
        weights = [WEIGHTS[min(n - 1 - i, len(WEIGHTS) - 1)] for i in range(n)]
        return [Fraction(weight, sum(weights)) for weight in weights]
    return parsed_shares(budget, [step.name for step in levels.levels])


def parsed_shares(budget: str, names: Sequence[str]) -> list[Fraction]:
    """Shares that were given as text, exactly: one for each name, together 1.

    Raises:
        ParameterError: they are not.
    """
    try:
        shares = [Fraction(Decimal(text.strip())) for text in str(budget).split(",")]
    except (InvalidOperation, ValueError, OverflowError):
        shares = []
    if len(shares) != len(names) or min(shares) <= 0 or sum(shares) != 1:
        raise ParameterError(
            f"budget must be {len(names)} shares above 0, with commas between, which sum to 1: one for each of the "
            f"steps {', '.join(names)}; found {budget!r}."
        )
    return shares


def _noises(promise: NoiseGuarantee, levels: Levels, shares: list[Fraction]) -> list[_Noise]:
    """The noise of each step, in exact fractions, so that the parts of the budget sum to it.

    Without δ the budget is ε, and a part of it pays for discrete Laplace noise of scale bound / part. With δ it is ρ of
    zero-concentrated privacy, and a part pays for discrete Gaussian noise of variance bound² / (2 part): the trips of
    one unit change the counts of a step by the bound at most as a root of squares too, when all are in one pair.
    """
    rho = None if promise.delta == 0 else largest_rho(promise.epsilon, promise.delta)
    noises = []
    for step, share in zip(levels.levels, shares, strict=True):
        law: Law
        if rho is None:
            part = share * Fraction(promise.epsilon)
            law, scale = DiscreteLaplace(promise.bound / part), rounded_up(promise.bound / part)
        else:
            part = share * rho
            law = DiscreteGaussian(promise.bound**2 / (2 * part))
            scale = math.sqrt(rounded_up(law.variance))
        if scale > LARGEST_SCALE:
            raise ParameterError(
                f"The share of step '{step.name}' gives noise of scale {scale:,.0f}, which leaves nothing of the "
                f"counts; at most {LARGEST_SCALE:,.0f} is allowed. Hint: a larger share, a larger epsilon, or a "
                "smaller bound."
            )
        paid = {"epsilon" if rho is None else "rho": float(part)}
        noises.append(_Noise(law, NoiseStep(step.name, scale=scale, deviation=law.standard_deviation, **paid)))
    return noises


# ---- the walk -----------------------------------------------------------------------------------------------------


def walk_down(table: Cells, levels: Levels, laws: Sequence[Law], bits: Bits) -> Cells:
    """The corrected noisy counts of the pairs of zones that are above zero, in order.

    Args:
        table: the counted trips of pairs of zones.
        levels: the public tree.
        laws: the noise of each step.
        bits: where randomness comes from.
    """
    zero = np.zeros(1, dtype=np.int32)
    whole = Cells(zero, zero, np.array([table.trips.sum()], dtype=np.int64))
    open_pairs = begun(whole, laws[0], bits)
    for step, law in zip(levels.levels[1:], laws[1:], strict=True):
        open_pairs = descended(open_pairs, table, step, law, bits)
    order = np.lexsort((open_pairs.destination, open_pairs.origin))
    return Cells(open_pairs.origin[order], open_pairs.destination[order], open_pairs.trips[order])


def begun(wholes: Cells, law: Law, bits: Bits) -> Cells:
    """The first pairs with noise, those above zero; there is nothing above them to fit."""
    noisy = wholes.trips + law.draw(len(wholes), bits)
    shown = noisy > 0
    return Cells(wholes.origin[shown], wholes.destination[shown], noisy[shown])


def descended(open_pairs: Cells, table: Cells, step: Level, law: Law, bits: Bits) -> Cells:
    """One step down: the children of the open pairs with their corrected noisy counts, those above zero."""
    key, count = _counted(table, step)
    return _joined([_opened(block, step, key, count, law, bits) for block in _blocks(open_pairs, step)])


def _counted(table: Cells, step: Level) -> tuple[Counts, Counts]:
    """The true counts of the pairs of a step that have any, as sorted keys and counts."""
    key = step.node_of_zone[table.origin].astype(np.int64) * step.n_nodes + step.node_of_zone[table.destination]
    order = np.argsort(key, kind="stable")
    key, trips = key[order], table.trips[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, np.int64)
    return key[first], np.add.reduceat(trips, first) if len(first) else trips


def _blocks(pairs: Cells, step: Level) -> Iterator[Cells]:
    """Open pairs, as many at a time as have few enough children for memory."""
    n_children = np.bincount(step.parent)
    if int(n_children.max()) ** 2 > MOST_CHILDREN:
        raise ParameterError(
            f"One pair of zones divides into {int(n_children.max()) ** 2:,} pairs of level {step.name}; at most "
            f"{MOST_CHILDREN:,} are allowed. Hint: a map with levels in between, or a coarser level."
        )
    size = np.cumsum(n_children[pairs.origin] * n_children[pairs.destination])
    block = (size - 1) // _AT_ONCE
    edges = [0, *(np.flatnonzero(block[1:] != block[:-1]) + 1).tolist(), len(pairs)]
    for low, high in pairwise(edges):
        if high > low:
            yield Cells(pairs.origin[low:high], pairs.destination[low:high], pairs.trips[low:high])


def _opened(parents: Cells, step: Level, key: Counts, count: Counts, law: Law, bits: Bits) -> Cells:
    """The children of these pairs with their corrected noisy counts, those above zero."""
    family, origin, destination = _children(parents, step)
    wanted = origin.astype(np.int64) * step.n_nodes + destination
    noisy = law.draw(len(wanted), bits)
    if len(key):
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        noisy += np.where(key[at] == wanted, count[at], 0)
    trips = fitted(noisy, family, parents.trips)
    shown = trips > 0
    return Cells(origin[shown], destination[shown], trips[shown])


def _children(parents: Cells, step: Level) -> tuple[Counts, Ints, Ints]:
    """All pairs of the step below these: the number of the parent, the origin node and the destination node of each."""
    order, start = step.children()
    n_children = np.diff(start)
    wide = n_children[parents.destination]
    size = n_children[parents.origin] * wide
    family = np.repeat(np.arange(len(parents)), size)
    place = np.arange(len(family)) - (np.cumsum(size) - size)[family]
    i, j = np.divmod(place, wide[family])
    return family, order[start[parents.origin][family] + i], order[start[parents.destination][family] + j]


def _joined(parts: list[Cells]) -> Cells:
    if not parts:
        nothing = np.zeros(0, dtype=np.int32)
        return Cells(nothing, nothing, np.zeros(0, dtype=np.int64))
    columns = zip(*((p.origin, p.destination, p.trips) for p in parts), strict=True)
    origin, destination, trips = (np.concatenate(column) for column in columns)
    return Cells(origin, destination, trips)
