"""Lower bounds of the mean generalisation error. They show how hard the data are.

`generalization_floor` holds for every method whose zones are nodes of the hierarchies: each flow is in the smallest
safe pair of nodes that contains it, and the costliest flows are suppressed up to the limit. It ignores that flows
share zones, so it can be far below what is possible.

`division_floor` holds for divisions of (root, root), such as the cells of ATG and PairCut; it is the bound that PairCut
proves.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from flowveil.analysis.measures.cells import mean_error
from flowveil.analysis.measures.measure import Measure, Subject
from flowveil.flows import Flows, to_fixed_point
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats
from flowveil.methods.pair_divisions import PairTable
from flowveil.methods.paircut import proven_score as proven_of_divisions
from flowveil.methods.paircut import settle_price
from flowveil.methods.pruning import dual_multiplier
from flowveil.methods.safe_pairs import safe_levels, sketch

#: Largest number of flows times pairs of depths for which the bound is computed; more would take minutes.
MOST_WORK = 2_000_000_000
#: Cache of `smallest_safe_sizes`, by flows and guarantee.
_SMALLEST_SIZES: WeakKeyDictionary[Flows, dict[Guarantee, Floats | None]] = WeakKeyDictionary()


def _floor(subject: Subject) -> float | None:
    """Returns the lower bound for a release's input.

    The limit of suppression is that of the release, or what it suppresses if that is more, so that the bound holds for
    every hierarchical method. For boxes it is a reference, and the ratio may be below 1.
    """
    release = subject.release
    allowed = release.parameters.get("max_suppressed")
    gone = 1 - subject.published / subject.total if subject.total else 0.0
    share = max(gone, float(allowed) if isinstance(allowed, int | float) else 0.0)
    return generalization_floor(release.input, subject.guarantee, max_suppressed=share, basis=subject.basis)


def _ratio(subject: Subject) -> float | None:
    floor, error = subject.share(_floor), subject.share(mean_error)
    return None if floor is None or error is None else error / floor


MEASURES = (
    Measure(
        key="floor_generalization_error",
        title="Lower bound of that error",
        meaning="A bound for every method that merges along these hierarchies: every flow in the smallest safe cell "
        "that could contain it, the costliest flows suppressed up to the limit.",
        compute=lambda subject: subject.share(_floor),
        combine=None,
    ),
    Measure(
        key="floor_ratio",
        title="Error over its lower bound",
        meaning="The mean generalisation error divided by its lower bound.",
        compute=_ratio,
        combine=None,
    ),
)


def generalization_floor(
    flows: Flows, guarantee: Guarantee, *, max_suppressed: float, basis: str | None = None
) -> float | None:
    """Returns a lower bound of the mean generalisation error of releases whose zones are nodes of the hierarchies.

    The mean over flows of their `smallest_safe_sizes`, without the costliest ``max_suppressed`` of the volume. None if
    nothing can be published within the limit, or if the trees are too deep.
    """
    sizes = smallest_safe_sizes(flows, guarantee)
    if sizes is None:
        return None
    basis = guarantee.basis if basis is None else basis
    volume = flows.volume(basis).astype(np.float64)
    if basis == "weight":
        volume = to_fixed_point(volume).astype(np.float64)
    order = np.argsort(sizes, kind="stable")
    size, volume = sizes[order], volume[order]
    # Sums of whole numbers are exact, so that equal inputs give equal bounds.
    kept_most = float(np.sum(volume)) * (1 - max_suppressed)
    before = np.cumsum(volume) - volume
    kept = np.clip(kept_most - before, 0.0, volume)
    counted = kept > 0
    if not counted.any() or not np.isfinite(size[counted]).all():
        return None
    return float(np.sum(size[counted] * kept[counted]) / np.sum(kept[counted]))


def smallest_safe_sizes(flows: Flows, guarantee: Guarantee) -> Floats | None:
    """For each flow the smallest |o| + |d| over pairs of nodes that hold it and whose cell is safe.

    Infinite where no such pair is safe; None for all where the trees are too deep.
    """
    known = _SMALLEST_SIZES.setdefault(flows, {})
    if guarantee not in known:
        known[guarantee] = _smallest_safe_sizes(flows, guarantee)
    return known[guarantee]


def _smallest_safe_sizes(flows: Flows, guarantee: Guarantee) -> Floats | None:
    flows, guarantee = guarantee.to_fixed_point(flows)
    origins = sketch(flows.origins, flows.origin, flows, guarantee)
    destinations = sketch(flows.destinations, flows.destination, flows, guarantee)
    if len(flows) * (origins.tree.max_depth + 1) * (destinations.tree.max_depth + 1) > MOST_WORK:
        return None
    smallest = np.full(len(flows), np.inf)
    for level in safe_levels(flows, guarantee, origins, destinations):
        flow, pair = level.rows()
        size = origins.size[level.origin] + destinations.size[level.destination]
        smallest[flow] = np.minimum(smallest[flow], size[pair])
    smallest.flags.writeable = False
    return smallest


def division_floor(flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1) -> float | None:
    """A mean generalisation error that no division of (root, root) within the limit is below.

    The cells of ATG-Dual, ODkAnon, OIGH, TwinCut and PairCut are divisions. Proven by the
    best division at a price (`flowveil.methods.paircut.proven_score`). None where nothing can be published within the
    limit, or where the trees are too deep to hold all their nodes.
    """
    table = PairTable.of(flows, guarantee, "error")
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    price = None if table is None or table.thinned else dual_multiplier(table, budget)
    if table is None or price is None:
        return None
    price, _ = settle_price(table, price)
    return proven_of_divisions(table, price, budget)
