"""PrivTree: adaptive cells under differential privacy, fine where many people go and coarse where
few do.

A pair of nodes of the public tree is divided while its count, lowered by a fixed decay for each
division above it and with noise added, is above a threshold (Zhang, Xiao and Xie 2016, here for
pairs). Undivided pairs are counted with the rest of ε and published. docs/methods/proofs.md
contains the proof for discrete noise and a person with many trips.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from flowveil.core.arrays import Counts, Ints
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Cells, Flows, concat_cells
from flowveil.core.guarantee import check_whole
from flowveil.methods.discrete_noise import Bits, DiscreteLaplace, random_bits
from flowveil.methods.epsilon import rounded_up
from flowveil.methods.noise_guarantee import CountedTrips, NoiseGuarantee, check_scale
from flowveil.methods.public_domain import PublicTree, public_domain
from flowveil.methods.topdown import parse_shares
from flowveil.release.noisy import NoiseStep, NoisyCounts
from flowveil.zoning.covering import containing_cells

#: Largest number of pairs; more would not fit into memory.
MOST_PAIRS = 20_000_000
#: The default floor, in scales of the noise on counts.
FLOOR_OF_SCALE = 2
#: Uses of the two parts of the budget.
PARTS = ("divisions", "counts")

MECHANISM = (
    "discrete Laplace noise on the decision to divide each pair of a public tree, and on the counts"
    " of those that are not divided; counts below 1 are not listed"
)


def privtree(
    flows: Flows,
    *,
    epsilon: float | None = None,
    bound: int | None = None,
    level: int | None = None,
    region: str | None = None,
    budget: str = "0.5,0.5",
    decay: float = 8.0,
    divide_above: int = 0,
    floor: int | None = None,
    unsafe_seed_for_tests: int | None = None,
) -> NoisyCounts:
    """Counts pairs of zones that are as fine as the noise allows.

    Args:
        flows, epsilon, bound, unsafe_seed_for_tests: as in `flowveil.methods.laplace.laplace`.
        level: finest level of the zones in their hierarchy (the resolution, for H3); tiles by
            default.
        region: H3 cells, or codes of the user's map, separated by commas; the whole map by default.
        budget: the shares of ε for divisions and for counts, separated by a comma; their sum is 1.
        decay: above 1. Each division lowers the count so far that an empty pair is this many times
            less likely to be divided.
        divide_above: a pair is divided while its lowered noisy count is above this.
        floor: the smallest noisy count that is listed; by default twice the scale of the
            noise on counts.

    Raises ParameterError and DataError as `flowveil.methods.laplace.laplace`, or if the zones come
    from the data.
    """
    privacy = NoiseGuarantee.from_options(
        "privtree", flows, epsilon=epsilon, delta=0.0, bound=bound, seed=unsafe_seed_for_tests
    )
    noise = _Budget.from_options(privacy, budget, decay, divide_above)
    domain = public_domain("privtree", flows, level, region)
    tree = PublicTree.from_domain(domain)
    counted = CountedTrips.from_flows(flows, privacy, domain)
    bits = random_bits(unsafe_seed_for_tests)
    plan = counted.plan
    origin, destination = (
        np.where(plan.kept, zone, 0) for zone in (plan.origin_zone, plan.destination_zone)
    )
    leaves, leaf = divide_pairs(tree, noise, origin, destination, counted.trips, bits)
    noisy = leaves.trips + noise.counts.draw(len(leaves), bits)
    least = listed_from(floor, noise.counts.scale)
    shown = replace(leaves, trips=noisy).select(noisy >= least)
    cells = shown.ordered(np.lexsort((shown.destination, shown.origin)))
    loss = {
        "mechanism": MECHANISM,
        "scale": rounded_up(noise.counts.scale),
        "deviation": noise.counts.standard_deviation,
        "domain": {
            **domain.described,
            "pairs": "pairs of zones of all levels, divided by noisy counts",
        },
        "steps": noise.steps,
    }
    ends: dict[str, Any] = {
        "origin_zone": leaves.origin[leaf],
        "destination_zone": leaves.destination[leaf],
    }
    plan = replace(
        plan, **ends, origin_zones=tree.zones, destination_zones=tree.zones, homogeneous=False
    )
    return counted.released(cells, loss, unsafe_seed_for_tests, plan=plan)


def listed_from(floor: int | None, scale: Fraction) -> int:
    """Returns the smallest noisy count that is listed."""
    if floor is None:
        return max(1, round(FLOOR_OF_SCALE * scale))
    check_whole("floor", floor, least=1, most=1 << 40)
    return floor


@dataclass(frozen=True, eq=False)
class _Budget:
    """The noise that the budget pays for, and its entries in the report.

    Pairs are divided ``above`` a count that is ``lowered`` by an integer for each division above
    them.
    """

    divisions: DiscreteLaplace
    counts: DiscreteLaplace
    lowered: int
    above: int
    steps: tuple[NoiseStep, ...]

    @classmethod
    def from_options(
        cls, privacy: NoiseGuarantee, budget: str, decay: float, divide_above: int
    ) -> _Budget:
        """Converts shares into noise, in exact fractions."""
        shares = parse_shares(budget, PARTS)
        if (
            isinstance(decay, bool)
            or not isinstance(decay, int | float)
            or not 1.01 <= decay <= 1e6
        ):
            raise ParameterError(
                f"decay must be a number from 1.01 to 1,000,000; found {decay!r}. Hint: 8."
            )
        check_whole("divide_above", divide_above, least=0, most=1 << 40)
        parts = [share * Fraction(privacy.epsilon) for share in shares]
        b = Fraction(decay)
        scales = privacy.bound * (2 * b - 1) / ((b - 1) * parts[0]), privacy.bound / parts[1]
        for name, scale in zip(PARTS, scales, strict=True):
            check_scale(f"share of the {name}", scale)
        distributions = [DiscreteLaplace(scale) for scale in scales]
        steps = tuple(
            NoiseStep(
                name,
                rounded_up(distribution.scale),
                distribution.standard_deviation,
                epsilon=float(part),
            )
            for name, distribution, part in zip(PARTS, distributions, parts, strict=True)
        )
        return cls(
            distributions[0], distributions[1], decay_step(scales[0], decay), divide_above, steps
        )


def decay_step(scale: Fraction, decay: float) -> int:
    """Returns the smallest integer d that provably satisfies exp(-d / scale) <= 1 / decay."""
    with localcontext(prec=50):
        exact = Decimal(scale.numerator) / Decimal(scale.denominator) * Decimal(decay).ln()
        return int((exact * (1 + Decimal(10) ** -40)).to_integral_value(ROUND_CEILING))


def divide_pairs(
    tree: PublicTree, noise: _Budget, origin: Ints, destination: Ints, trips: Counts, bits: Bits
) -> tuple[Cells, Ints]:
    """Returns the undivided pairs with their counts, and the pair of each flow.

    Flows are given by their zones and counted trips; the pair of a flow without counted trips is
    arbitrary.
    """
    nodes = [tree.node_of_zone[end] for end in (origin, destination)]
    tiles = [tree.tree.leaf_start[node] for node in nodes]
    pairs, pair = _top(tree, *tiles)
    done: list[Cells] = []
    rows, depth = np.arange(len(trips)), 0
    while len(pairs[0]):
        count = np.bincount(pair, weights=trips[rows], minlength=len(pairs[0])).astype(np.int64)
        divides = _divides(tree, pairs, count, depth, noise, bits)
        done.append(Cells(*pairs, count).select(~divides))
        rows, pair = rows[divides[pair]], pair[divides[pair]]
        pairs, pair = _below(tree, pairs, divides, pair, tiles[0][rows], tiles[1][rows])
        if sum(map(len, done)) + len(pairs[0]) > MOST_PAIRS:
            raise ParameterError(
                f"More than {MOST_PAIRS:,} pairs would be counted. Hint: a larger decay, a coarser"
                " level, or topdown."
            )
        depth += 1
    leaves = concat_cells(done)
    leaf = containing_cells([tree.tree.parent] * 2, (leaves.origin, leaves.destination), nodes)
    return leaves, leaf.astype(np.int32)


def _top(tree: PublicTree, from_: Ints, to: Ints) -> tuple[tuple[Ints, Ints], Counts]:
    """Returns all pairs of top nodes, and the pair of each flow."""
    tops, n = tree.narrowest[tree.tops], len(tree.tops)
    if n * n > MOST_PAIRS:
        raise ParameterError(
            f"The region has {n:,} cells and {n * n:,} pairs of them. Hint: fewer, coarser cells."
        )
    at = [
        np.searchsorted(tree.tree.leaf_start[tops], tile, side="right") - 1 for tile in (from_, to)
    ]
    return (np.repeat(tops, n), np.tile(tops, n)), at[0] * n + at[1]


def _divides(
    tree: PublicTree,
    pairs: tuple[Ints, Ints],
    count: Counts,
    depth: int,
    noise: _Budget,
    bits: Bits,
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Returns which pairs are divided.

    Pairs of zones are public leaves, so no noise is drawn for them.
    """
    can = (tree.n_children[pairs[0]] > 0) | (tree.n_children[pairs[1]] > 0)
    lowered = np.maximum(count[can] - depth * noise.lowered, noise.above - noise.lowered)
    divides = np.zeros(len(count), dtype=np.bool_)
    divides[can] = lowered + noise.divisions.draw(int(can.sum()), bits) > noise.above
    return divides


def _below(
    tree: PublicTree,
    pairs: tuple[Ints, Ints],
    divides: np.ndarray[tuple[int], np.dtype[np.bool_]],
    pair: Counts,
    from_: Ints,
    to: Ints,
) -> tuple[tuple[Ints, Ints], Counts]:
    """Returns the children of divided pairs, at the end with more possible tiles, and the child of
    each flow.
    """
    o, d = pairs[0][divides], pairs[1][divides]
    number = np.cumsum(divides) - 1
    pair = number[pair]
    larger = tree.zones.size[o] >= tree.zones.size[d]
    at_origin = (tree.n_children[o] > 0) & (larger | (tree.n_children[d] == 0))
    node = np.where(at_origin, o, d)
    order, start = tree.children
    size = tree.n_children[node]
    first = np.cumsum(size) - size
    family = np.repeat(np.arange(len(node)), size)
    child = tree.narrowest[order[start[node][family] + np.arange(len(family)) - first[family]]]
    moved = at_origin[family]
    below = np.where(moved, child, o[family]), np.where(moved, d[family], child)
    return below, first[pair] + tree.child_of(node[pair], np.where(at_origin[pair], from_, to))
