"""PrivTree: adaptive cells under differential privacy, fine where many people go and coarse where few do.

A pair of nodes of the public tree is divided while its count, lowered by a fixed decay for each division above it, is
above a threshold after noise (Zhang, Xiao and Xie 2016, here for pairs). The noise does not grow with the depth of the
tree: where a count is far above the threshold one trip hardly changes the decision, and along the way of a trip through
the tree the lowered counts fall by at least the decay each time, so only the last decisions cost anything. What is not
divided any more is counted with the rest of ε and published. docs/methods/privtree.md has the proof for the discrete
noise that is drawn here, and for a person with many trips.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

import numpy as np

from flowveil.errors import ParameterError
from flowveil.flows import Cells, Flows
from flowveil.hierarchy import Ints
from flowveil.methods.contributions import counted_trips, left_out
from flowveil.methods.discrete_laplace import Bits, Counts, DiscreteLaplace, bits_of
from flowveil.methods.levels import public_domain
from flowveil.methods.noise_guarantee import LARGEST_SCALE, NoiseGuarantee, rounded_up
from flowveil.methods.public_tree import PublicTree
from flowveil.methods.topdown import parsed_shares
from flowveil.release.noisy import NoiseStep, NoisyCounts, PrivacyLoss
from flowveil.release.plan import Plan, Suppression

#: A release with more pairs than this would not fit into memory.
MOST_PAIRS = 20_000_000
#: What the two parts of the budget are for.
PARTS = ("divisions", "counts")

MECHANISM = (
    "discrete Laplace noise on the decision to divide each pair of a public tree, and on the counts of those that are "
    "not divided; counts below 1 are not listed"
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
    unsafe_seed_for_tests: int | None = None,
) -> NoisyCounts:
    """Count pairs of zones that are as fine as the noise allows.

    Args:
        flows: what to count.
        epsilon: ε of the promise; required, at most 20; above 10 a warning says how little it hides.
        bound: most trips of one person that are counted. Required where persons are known: the unit is then a
            person; without persons it is a trip, and the release says so.
        level: the finest level of the zones in their hierarchy (the resolution, for H3); tiles by default.
        region: where the zones are: H3 cells, or codes of the user's map, with commas between; the whole map by
            default.
        budget: the shares of ε for divisions and for counts, with a comma between; together 1.
        decay: above 1. With each division the count is lowered by as much as makes it this many times less likely that
            an empty pair is divided. The same for every fan-out.
        divide_above: a pair is divided while its lowered, noisy count is above this.
        unsafe_seed_for_tests: repeatable noise, which hides nothing. A release made with it cannot be written.

    Raises:
        ParameterError: an option is missing or out of its range, or the zones would come from the data.
        DataError: the flows do not say how many trips each person made.
    """
    promise = NoiseGuarantee.from_options(
        "privtree", flows, epsilon=epsilon, delta=0.0, bound=bound, seed=unsafe_seed_for_tests
    )
    spent = _Spent.from_options(promise, budget, decay, divide_above)
    domain = public_domain("privtree", flows, level, region)
    tree = PublicTree.from_domain(domain)
    origin, destination = domain.origins.zone[flows.origin], domain.destinations.zone[flows.destination]
    inside = (origin >= 0) & (destination >= 0)
    trips = counted_trips(flows, inside, bound=None if promise.unit == "trip" else promise.bound)
    bits = bits_of(unsafe_seed_for_tests)
    leaves, leaf = divided(tree, spent, np.where(inside, origin, 0), np.where(inside, destination, 0), trips, bits)
    noisy = leaves.trips + spent.counts.draw(len(leaves), bits)
    shown = np.flatnonzero(noisy >= 1)
    order = shown[np.lexsort((leaves.destination[shown], leaves.origin[shown]))]
    return NoisyCounts(
        plan=Plan(
            origin_zone=leaves.origin[leaf],
            destination_zone=leaves.destination[leaf],
            kept=inside,
            origin_zones=tree.zones,
            destination_zones=tree.zones,
            homogeneous=False,
            suppression=Suppression("noise"),
        ),
        cells=Cells(leaves.origin[order], leaves.destination[order], noisy[order]),
        guarantee=PrivacyLoss(
            unit=promise.unit,
            epsilon=promise.epsilon,
            delta=0.0,
            bound=promise.bound,
            mechanism=MECHANISM,
            scale=rounded_up(spent.counts.scale),
            deviation=spent.counts.standard_deviation,
            threshold=None,
            domain={**domain.described, "pairs": "pairs of zones of all levels, divided by noisy counts"},
            steps=spent.said,
        ),
        left_out=left_out(flows, inside, trips, unit=promise.unit),
        zones_are_public=domain.public,
        repeatable=unsafe_seed_for_tests is not None,
    )


# ---- the budget ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Spent:
    """What the budget pays for.

    Attributes:
        divisions, counts: the laws of the noise on decisions and on counts.
        lowered: by how much a count is lowered for each division above it: a whole number.
        above: pairs are divided above this.
        said: the same for the report.
    """

    divisions: DiscreteLaplace
    counts: DiscreteLaplace
    lowered: int
    above: int
    said: tuple[NoiseStep, ...]

    @classmethod
    def from_options(cls, promise: NoiseGuarantee, budget: str, decay: float, divide_above: int) -> _Spent:
        """Turn shares into noise, in exact fractions."""
        shares = parsed_shares(budget, PARTS)
        if isinstance(decay, bool) or not isinstance(decay, int | float) or not 1.01 <= decay <= 1e6:
            raise ParameterError(f"decay must be a number from 1.01 to 1,000,000; found {decay!r}. Hint: 8.")
        if isinstance(divide_above, bool) or not isinstance(divide_above, int) or not 0 <= divide_above <= 1 << 40:
            raise ParameterError(f"divide_above must be a whole number of at least 0; found {divide_above!r}.")
        parts = [share * Fraction(promise.epsilon) for share in shares]
        b = Fraction(decay)
        scales = promise.bound * (2 * b - 1) / ((b - 1) * parts[0]), promise.bound / parts[1]
        for name, scale in zip(PARTS, scales, strict=True):
            if scale > LARGEST_SCALE:
                raise ParameterError(
                    f"The share of the {name} gives noise of scale {float(scale):,.0f}, which leaves nothing of the "
                    f"counts; at most {LARGEST_SCALE:,.0f} is allowed. Hint: a larger epsilon or a smaller bound."
                )
        laws = [DiscreteLaplace(scale) for scale in scales]
        said = tuple(
            NoiseStep(name, rounded_up(law.scale), law.standard_deviation, epsilon=float(part))
            for name, law, part in zip(PARTS, laws, parts, strict=True)
        )
        return cls(laws[0], laws[1], lowered_by(scales[0], decay), divide_above, said)


def lowered_by(scale: Fraction, decay: float) -> int:
    """The smallest whole number d that surely has exp(-d / scale) <= 1 / decay."""
    with localcontext(prec=50):
        exact = Decimal(scale.numerator) / Decimal(scale.denominator) * Decimal(decay).ln()
        return int((exact * (1 + Decimal(10) ** -40)).to_integral_value(ROUND_CEILING))


# ---- the divisions ------------------------------------------------------------------------------------------------


def divided(
    tree: PublicTree, spent: _Spent, origin: Ints, destination: Ints, trips: Counts, bits: Bits
) -> tuple[Cells, Ints]:
    """The pairs that are not divided any more, and in which of them each flow is.

    Args:
        tree: the public tree.
        spent: noise, decay and threshold.
        origin, destination: the zones of the domain of each flow.
        trips: its counted trips; 0 where it is not counted, and the pair is then of no consequence.
        bits: where randomness comes from.
    """
    places = tree.place[origin], tree.place[destination]
    pairs, pair = _top(tree, *places)
    done: list[tuple[Ints, Ints, Counts]] = []
    leaf = np.zeros(len(trips), dtype=np.int64)
    rows, n_done, depth = np.arange(len(trips)), 0, 0
    while len(pairs[0]):
        count = np.bincount(pair, weights=trips[rows], minlength=len(pairs[0])).astype(np.int64)
        divides = _divides(tree, pairs, count, depth, spent, bits)
        number = np.cumsum(~divides) - 1 + n_done
        stays = ~divides[pair]
        leaf[rows[stays]] = number[pair[stays]]
        done.append((pairs[0][~divides], pairs[1][~divides], count[~divides]))
        n_done += int(np.sum(~divides))
        rows, pair = rows[~stays], pair[~stays]
        pairs, pair = _below(tree, pairs, divides, pair, places[0][rows], places[1][rows])
        if n_done + len(pairs[0]) > MOST_PAIRS:
            raise ParameterError(
                f"More than {MOST_PAIRS:,} pairs would be counted. Hint: a larger decay, a coarser level, or topdown."
            )
        depth += 1
    o, d, trips_of = (np.concatenate(column) for column in zip(*done, strict=True))
    return Cells(o, d, trips_of), leaf.astype(np.int32)


def _top(tree: PublicTree, from_: Counts, to: Counts) -> tuple[tuple[Ints, Ints], Counts]:
    """All pairs of nodes at the top, and the one that each flow is in."""
    roots = tree.roots[np.argsort(tree.first[tree.roots])]
    n = len(roots)
    if n * n > MOST_PAIRS:
        raise ParameterError(f"The region has {n:,} cells and {n * n:,} pairs of them. Hint: fewer, coarser cells.")
    at = [np.searchsorted(tree.first[roots], place, side="right") - 1 for place in (from_, to)]
    return (np.repeat(roots, n), np.tile(roots, n)), at[0] * n + at[1]


def _divides(
    tree: PublicTree, pairs: tuple[Ints, Ints], count: Counts, depth: int, spent: _Spent, bits: Bits
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which pairs are divided. Pairs of zones cannot be, which everybody knows: no noise is spent on them."""
    can = (tree.n_children[pairs[0]] > 0) | (tree.n_children[pairs[1]] > 0)
    lowered = np.maximum(count[can] - depth * spent.lowered, spent.above - spent.lowered)
    divides = np.zeros(len(count), dtype=np.bool_)
    divides[can] = lowered + spent.divisions.draw(int(can.sum()), bits) > spent.above
    return divides


def _below(
    tree: PublicTree,
    pairs: tuple[Ints, Ints],
    divides: np.ndarray[tuple[int], np.dtype[np.bool_]],
    pair: Counts,
    from_: Counts,
    to: Counts,
) -> tuple[tuple[Ints, Ints], Counts]:
    """The pairs that divided ones become, and which of them each of their flows is in.

    A pair is divided along the end with more possible tiles, the origin where both have as many, unless that end cannot
    be divided.
    """
    o, d = pairs[0][divides], pairs[1][divides]
    number = np.cumsum(divides) - 1
    pair = number[pair]
    at_origin = (tree.n_children[o] > 0) & ((tree.tiles[o] >= tree.tiles[d]) | (tree.n_children[d] == 0))
    node = np.where(at_origin, o, d)
    order, start = tree.children
    size = tree.n_children[node]
    first = np.cumsum(size) - size
    family = np.repeat(np.arange(len(node)), size)
    child = order[start[node][family] + np.arange(len(family)) - first[family]]
    moved = at_origin[family]
    below = np.where(moved, child, o[family]), np.where(moved, d[family], child)
    place = np.where(at_origin[pair], from_, to)
    return below, first[pair] + tree.child_of(node[pair], place)
