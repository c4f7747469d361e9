"""TopDown: noisy counts of pairs of zones, from the total down a public tree, each level consistent
with the one above.

The children of a pair are corrected to non-negative integers that sum to their parent
(`fit_to_totals`). A pair with a corrected count of 0 is not opened, so time and memory are
proportional to what is published. After the census's TopDown (Abowd et al. 2022) and InfTDA
(Boninsegna and Silvestri 2025). Every level has a share of the budget, because each trip of a unit
is in one pair of that level; docs/methods/proofs.md contains the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise

import numpy as np

from flowveil.core.arrays import Counts, Ints, Mask
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Cells, Flows, concat_cells
from flowveil.core.guarantee import check_whole
from flowveil.methods.discrete_noise import Bits, DiscreteGaussian, DiscreteLaplace, random_bits
from flowveil.methods.epsilon import largest_rho, rounded_up
from flowveil.methods.noise_guarantee import CountedTrips, NoiseGuarantee, check_scale
from flowveil.methods.public_domain import (
    Level,
    PairDomain,
    PublicTree,
    public_domain,
    public_levels,
)
from flowveil.release.noisy import NoiseStep, NoisyCounts
from flowveil.release.plan import Plan
from flowveil.zoning.covering import containing_cells

#: Default budget weights of the last levels, from the bottom up; levels above get the last weight.
#: Most pairs are at the bottom, but errors at the top spread over everything below.
WEIGHTS = (27, 9, 3, 1)
#: The default floor, in scales of the noise on the last step.
FLOOR_OF_SCALE = 2.5
#: Children in one batch, and the most children that one pair may have.
_BATCH_CHILDREN, MOST_CHILDREN = 1 << 20, 20_000_000

MECHANISM = (
    "discrete {} noise on the counts of pairs, step by step down a public tree; children are"
    " corrected to non-negative whole numbers that sum to their parent, and pairs at 0 are not"
    " opened; a pair whose trips are mostly in small children is published whole"
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
    floor: int | None = None,
    unsafe_seed_for_tests: int | None = None,
) -> NoisyCounts:
    """Counts pairs from the top down, with noise at every level.

    Args:
        flows, epsilon, bound, level, unsafe_seed_for_tests: as in
            `flowveil.methods.laplace.laplace`.
        delta: δ of the guarantee. 0 gives discrete Laplace noise; above 0, discrete Gaussian noise,
            with fewer large errors.
        region: H3 cells, or codes of the user's map, separated by commas; the whole map by default.
        budget: the budget share of each level, from the total down to the zones, separated by
            commas; their sum is 1. By default the last four levels get shares in the ratio 1, 3, 9,
            27, and those above them 1 each.
        floor: the smallest count of a pair of zones. If the children of a pair with smaller counts
            have half of its trips, the pair is published undivided; else these children are
            removed and the others corrected to the same sum. By default 2.5 times the noise's scale
            on the last step; 1 publishes all pairs of zones. Levels above have floors in
            proportion to their noise.

    Raises ParameterError and DataError as `flowveil.methods.laplace.laplace`, or if the zones come
    from the data.
    """
    privacy = NoiseGuarantee.from_options(
        "topdown", flows, epsilon=epsilon, delta=delta, bound=bound, seed=unsafe_seed_for_tests
    )
    domain = public_domain("topdown", flows, level, region)
    levels = public_levels(domain)
    distributions, steps = _noise_of_levels(privacy, levels, budget_shares(budget, levels))
    counted = CountedTrips.from_flows(flows, privacy, domain)
    floors = floors_of_levels(floor, steps)
    bits = random_bits(unsafe_seed_for_tests)
    cells = count_top_down(counted.table(), levels, distributions, bits, floors=floors)
    plan = None if max(floors) == 1 else _plan_of_nodes(cells, counted.plan, domain)
    loss = {
        "mechanism": MECHANISM.format("Laplace" if privacy.delta == 0 else "Gaussian"),
        "scale": steps[-1].scale,
        "deviation": steps[-1].deviation,
        "steps": steps,
        "rho": None if privacy.delta == 0 else sum(step.rho or 0.0 for step in steps),
    }
    return counted.released(cells, loss, unsafe_seed_for_tests, plan=plan)


def floors_of_levels(floor: int | None, steps: Sequence[NoiseStep]) -> list[int]:
    """Returns the smallest count of a pair of each level: in proportion to the scale of the noise.

    The first two levels have none: everything is always divided.
    """
    least = round(FLOOR_OF_SCALE * steps[-1].scale) if floor is None else floor
    if floor is not None:
        check_whole("floor", floor, least=1, most=1 << 40)
    if least <= 1:
        return [1] * len(steps)
    ratio = least / steps[-1].scale
    return [1 if i < 2 else max(1, round(ratio * step.scale)) for i, step in enumerate(steps)]


def _plan_of_nodes(cells: Cells, plan: Plan, domain: PairDomain) -> Plan:
    """Returns the plan with the nodes of the public tree as zones, for cells of all levels."""
    public = PublicTree.from_domain(domain)
    above = [
        np.where(zone >= 0, public.node_of_zone[zone], -1)
        for zone in (plan.origin_zone, plan.destination_zone)
    ]
    cell = containing_cells([public.tree.parent] * 2, (cells.origin, cells.destination), above)
    ends = [
        np.where(cell >= 0, row[cell], zone).astype(np.int32) if len(cells) else zone
        for row, zone in zip((cells.origin, cells.destination), above, strict=True)
    ]
    return replace(
        plan,
        origin_zone=ends[0],
        destination_zone=ends[1],
        origin_zones=public.zones,
        destination_zones=public.zones,
        homogeneous=False,
    )


#: A distribution of integer noise.
NoiseDistribution = DiscreteLaplace | DiscreteGaussian


def budget_shares(budget: str | None, levels: Sequence[Level]) -> list[Fraction]:
    """Returns the exact budget share of each level; the sum is 1."""
    n = len(levels)
    if budget is None:
        weights = [WEIGHTS[min(n - 1 - i, len(WEIGHTS) - 1)] for i in range(n)]
        return [Fraction(weight, sum(weights)) for weight in weights]
    return parse_shares(budget, [step.name for step in levels])


def parse_shares(budget: str, names: Sequence[str]) -> list[Fraction]:
    """Parses shares given as text.

    Raises ParameterError unless there is one for each name, with a sum of 1.
    """
    try:
        shares = [Fraction(Decimal(text.strip())) for text in str(budget).split(",")]
    except (InvalidOperation, ValueError, OverflowError):
        shares = []
    if len(shares) != len(names) or min(shares) <= 0 or sum(shares) != 1:
        raise ParameterError(
            f"budget must be {len(names)} shares above 0, separated by commas, with a sum of 1: one"
            f" for each of the steps {', '.join(names)}; found {budget!r}."
        )
    return shares


def _noise_of_levels(
    privacy: NoiseGuarantee, levels: Sequence[Level], shares: list[Fraction]
) -> tuple[list[NoiseDistribution], tuple[NoiseStep, ...]]:
    """Returns the noise of each level and its entry in the report, in exact fractions that sum to
    the budget.

    With δ = 0 the budget is ε, and a part of it gives discrete Laplace noise of scale bound / part.
    With δ above 0 it is ρ of zero-concentrated privacy, and a part gives discrete Gaussian noise of
    variance bound² / (2 part). The L2 sensitivity equals the bound too: all trips of a unit may be
    in one pair.
    """
    rho = None if privacy.delta == 0 else largest_rho(privacy.epsilon, privacy.delta)
    distributions: list[NoiseDistribution] = []
    steps = []
    for step, share in zip(levels, shares, strict=True):
        distribution: NoiseDistribution
        if rho is None:
            part = share * Fraction(privacy.epsilon)
            distribution, scale = (
                DiscreteLaplace(privacy.bound / part),
                rounded_up(privacy.bound / part),
            )
        else:
            part = share * rho
            distribution = DiscreteGaussian(privacy.bound**2 / (2 * part))
            scale = math.sqrt(rounded_up(distribution.variance))
        check_scale(f"share of step '{step.name}'", scale)
        paid = {"epsilon" if rho is None else "rho": float(part)}
        distributions.append(distribution)
        steps.append(
            NoiseStep(step.name, scale=scale, deviation=distribution.standard_deviation, **paid)
        )
    return distributions, tuple(steps)


def count_top_down(
    table: Cells,
    levels: Sequence[Level],
    distributions: Sequence[NoiseDistribution],
    bits: Bits,
    *,
    floors: Sequence[int] | None = None,
) -> Cells:
    """Returns the corrected noisy counts of all pairs of zones with a positive count, in order.

    If a floor is above 1, some pairs are undivided, and cells are pairs of nodes of the public
    tree instead of zones.
    """
    zero = np.zeros(1, dtype=np.int32)
    whole = Cells(zero, zero, np.array([table.trips.sum()], dtype=np.int64))
    open_pairs, undivided = noisy_roots(whole, distributions[0], bits), []
    floors = [1] * len(levels) if floors is None else floors
    for i in range(1, len(levels)):
        level, distribution = levels[i], distributions[i]
        found = noisy_children(open_pairs, table, level, distribution, bits, floor=floors[i])
        is_child = found.origin < level.n_nodes
        if floors[i] > 1:
            left = found.select(~is_child)
            above, n = levels[i - 1].nodes, level.n_nodes
            undivided.append(Cells(above[left.origin - n], above[left.destination - n], left.trips))
        open_pairs = found.select(is_child)
    if undivided:
        nodes = levels[-1].nodes
        finest = Cells(nodes[open_pairs.origin], nodes[open_pairs.destination], open_pairs.trips)
        open_pairs = concat_cells([*undivided, finest])
    return open_pairs.ordered(np.lexsort((open_pairs.destination, open_pairs.origin)))


def noisy_roots(wholes: Cells, distribution: NoiseDistribution, bits: Bits) -> Cells:
    """Returns the top pairs with a positive noisy count."""
    noisy = wholes.trips + distribution.draw(len(wholes), bits)
    return replace(wholes, trips=noisy).select(noisy > 0)


def noisy_children(
    open_pairs: Cells,
    table: Cells,
    level: Level,
    distribution: NoiseDistribution,
    bits: Bits,
    *,
    floor: int = 1,
) -> Cells:
    """Returns the children of the open pairs with a positive corrected noisy count.

    And undivided pairs, if there is a floor, numbered after the children.
    """
    node, n = level.node_of_zone, level.n_nodes
    counted = table.merge(node[table.origin], node[table.destination], n, n).cells
    parts = [
        _opened(block, level, counted, distribution, bits, floor)
        for block in _blocks(open_pairs, level)
    ]
    return concat_cells(parts) if parts else open_pairs


def _blocks(pairs: Cells, level: Level) -> Iterator[Cells]:
    """Yields the open pairs in batches with a limited number of children."""
    n_children = np.bincount(level.parent)
    if int(n_children.max()) ** 2 > MOST_CHILDREN:
        raise ParameterError(
            f"One pair of zones divides into {int(n_children.max()) ** 2:,} pairs of level"
            f" {level.name}; at most {MOST_CHILDREN:,} are allowed. Hint: a map with levels in"
            " between, or a coarser level."
        )
    size = np.cumsum(n_children[pairs.origin] * n_children[pairs.destination])
    block = (size - 1) // _BATCH_CHILDREN
    edges = [0, *(np.flatnonzero(block[1:] != block[:-1]) + 1).tolist(), len(pairs)]
    for low, high in pairwise(edges):
        if high > low:
            yield Cells(pairs.origin[low:high], pairs.destination[low:high], pairs.trips[low:high])


def _opened(
    parents: Cells,
    level: Level,
    counted: Cells,
    distribution: NoiseDistribution,
    bits: Bits,
    floor: int,
) -> Cells:
    """Returns the children of these pairs with a positive corrected noisy count."""
    family, origin, destination = _children(parents, level)
    key, wanted = (
        o.astype(np.int64) * level.n_nodes + d
        for o, d in ((counted.origin, counted.destination), (origin, destination))
    )
    noisy = distribution.draw(len(wanted), bits)
    if len(key):
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        noisy += np.where(key[at] == wanted, counted.trips[at], 0)
    trips = fit_to_totals(noisy, family, parents.trips)
    children = Cells(origin, destination, trips)
    if floor == 1:
        return children.select(trips > 0)
    kept, divided = children_above_floor(trips, family, parents.trips, floor)
    whole = parents.select(~divided)
    n = np.int32(level.n_nodes)
    number = (np.cumsum(divided) - 1)[family[kept]]
    fitted = fit_to_totals(noisy[kept], number, parents.trips[divided]) if kept.any() else trips[:0]
    listed = replace(children.select(kept), trips=fitted)
    return concat_cells(
        [listed.select(fitted > 0), Cells(whole.origin + n, whole.destination + n, whole.trips)]
    )


def children_above_floor(
    trips: Counts, family: Counts, total: Counts, floor: int
) -> tuple[Mask, Mask]:
    """Returns the children that are listed, and the pairs that are divided.

    A pair is divided if its children at or above the floor have more than half of its trips.
    """
    large = trips >= floor
    of_large = np.bincount(family, weights=np.where(large, trips, 0), minlength=len(total))
    divided = 2 * of_large > total
    return large & divided[family], divided


def _children(parents: Cells, level: Level) -> tuple[Counts, Ints, Ints]:
    """Returns parent number, origin node and destination node of all child pairs."""
    order, start = level.children()
    n_children = np.diff(start)
    wide = n_children[parents.destination]
    size = n_children[parents.origin] * wide
    family = np.repeat(np.arange(len(parents)), size)
    place = np.arange(len(family)) - (np.cumsum(size) - size)[family]
    i, j = np.divmod(place, wide[family])
    return (
        family,
        order[start[parents.origin][family] + i],
        order[start[parents.destination][family] + j],
    )


def fit_to_totals(noisy: Counts, family: Counts, total: Counts) -> Counts:
    """Corrects noisy counts of children to non-negative integers that sum to the count of their
    parent.

    The correction minimises the largest distance from the noisy counts, as InfTDA does (Boninsegna
    and Silvestri 2025), and among those solutions the sum of squares: it subtracts one number t
    from all children and clips at zero. For real numbers this is the projection onto the simplex.
    It reaches the smallest largest distance: to lower the sum to N, some child must lose at least
    the t with sum(max(0, y - t)) = N; to raise it, some child must gain as much; a child at y < 0
    must gain -y.

    For integers, t is rounded up. The remainder is added one by one to children above zero at t -
    1, the largest first and evenly among equals. The same argument holds: with t - 1 the sum cannot
    be reached. All arithmetic is exact. ``family`` is ascending, without gaps, and every total is
    above 0.
    """
    order = np.lexsort((-noisy, family))
    y, f = noisy[order], family[order]
    start = np.searchsorted(f, np.arange(len(total)))
    place = np.arange(len(y)) - start[f]
    summed = np.cumsum(y)
    summed -= (summed[start] - y[start])[f]
    # If the excess is spread over the largest n children, does the n-th stay above zero?
    above = y * (place + 1) > summed - total[f]
    n = np.add.reduceat(above.astype(np.int64), start)
    taken = -((total - summed[start + n - 1]) // n)
    out = np.maximum(0, y - taken[f])
    missing = total - np.add.reduceat(out, start)
    out += _one_more(y, f, start, missing)
    result = np.empty_like(out)
    result[order] = out
    return result


def _one_more(y: Counts, family: Counts, start: Counts, missing: Counts) -> Counts:
    """Returns which children of a sorted family get one more.

    The largest, evenly spread among equals.
    """
    place = np.arange(len(y)) - start[family]
    last = y[start + np.maximum(missing - 1, 0)][family]
    wanted = (missing > 0)[family]
    tied = wanted & (y == last)
    ahead = np.add.reduceat((wanted & (y > last)).astype(np.int64), start)
    n_tied = np.maximum(np.add.reduceat(tied.astype(np.int64), start), 1)
    left, among = (missing - ahead)[family], n_tied[family]
    turn = place - ahead[family]
    chosen = tied & ((turn + 1) * left // among > turn * left // among)
    more: Counts = (chosen | (wanted & (y > last))).astype(np.int64)
    return more
