"""GLOVE and GLOVE-sk: merging boxes until each is safe (Gramaglia and Fiore 2015; Matet et al.

2023).

GLOVE merges greedily: of all pairs of boxes below the threshold, the pair whose merge enlarges them
least, averaged over their volume. Candidates are the pairs of a nearest-neighbour graph. Finally,
the boxes with the longest sides are suppressed, within ``max_suppressed``. GLOVE-sk is a baseline
with scikit-learn: complete-linkage clustering that ignores volumes, cut as low as the limit on
suppression allows.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, Numbers
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee, check_whole
from flowveil.methods.method import boxes_extra
from flowveil.release.boxes import Frame, Hulls
from flowveil.release.plan import Plan


def glove(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    neighbors: int = 100,
    grid_m: float | None = None,
) -> Plan:
    """Plans boxes by greedy merging of boxes below the threshold.

    Args:
        flows: the flows to anonymise; their tiles need coordinates. Memory grows with flows times
            neighbours.
        max_suppressed: largest share of the volume that may be suppressed; never exceeded.
        neighbors: number of nearest neighbours of each flow (L1 distance) that are candidates.
        grid_m: width in metres of the grid of box edges; by default that of a tile.
    """
    check_whole("neighbors", neighbors)
    frame = Frame.of(flows, grid_m=grid_m)
    into, short = _merge(flows, guarantee, frame, neighbors)
    box = _roots(into)[: len(flows)]
    volume = flows.volume(guarantee.basis)
    budget = max_suppressed * float(np.sum(volume))
    group, is_short = _absorb(volume, frame, _numbered(box), short[box], budget)
    kept = ~is_short
    kept &= ~_costliest(volume, frame, group, kept, budget)
    return Plan.from_boxes(frame, group, kept, disjoint=False)


def glove_sk(
    flows: Flows,
    guarantee: Guarantee,
    *,
    max_suppressed: float = 0.1,
    neighbors: int = 100,
    grid_m: float | None = None,
) -> Plan:
    """Plans boxes by scikit-learn's complete-linkage clustering (L1), ignoring volumes.

    Arguments as in `glove`.
    """
    check_whole("neighbors", neighbors)
    frame = Frame.of(flows, grid_m=grid_m)
    merges = _dendrogram(_points(frame), neighbors)
    volume = flows.volume(guarantee.basis)
    budget = max_suppressed * float(np.sum(volume))

    def cut(n_merges: int) -> tuple[Ints, NDArray[np.bool_]]:
        into = np.full(len(flows) + n_merges, -1)
        into[merges[:n_merges].ravel()] = np.repeat(len(flows) + np.arange(n_merges), 2)
        group = _numbered(_roots(into)[: len(flows)])
        return (
            group,
            guarantee.safe(flows.merge(group, np.zeros_like(group), int(group.max()) + 1, 1).cells)[
                group
            ],
        )

    # Merging never makes a group worse, so the suppressed volume falls along the dendrogram.
    fits = bisect_left(range(len(merges)), True, key=lambda n: volume[~cut(n)[1]].sum() <= budget)
    group, kept = cut(fits)
    return Plan.from_boxes(frame, group, kept, disjoint=False)


def _points(frame: Frame) -> Floats:
    """Returns the flows as points in centimetres, one row each."""
    return np.ascontiguousarray((frame.point * frame.step_cm[:, None]).T, dtype=np.float64)


def _merge(
    flows: Flows, guarantee: Guarantee, frame: Frame, neighbors: int
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Returns the box that each box was merged into, and whether it is unsafe.

    The flows are the first boxes.
    """
    with boxes_extra("GLOVE"):
        from flowveil.methods.box_loops import UNSAFE, merge_boxes
    point, n = _points(frame), len(flows)
    sums, least = guarantee.sums(flows)
    # Every merge adds a box after those of the flows.
    low, total = (np.pad(values, ((0, n), (0, 0))) for values in (point, sums))
    weight = np.pad(flows.volume(guarantee.basis).astype(np.float64), (0, n))
    # Flows that are already safe are not merged.
    graph = _neighbor_graph(point, np.flatnonzero(~guarantee.safe(flows)), neighbors)
    into, state = merge_boxes(
        low, low.copy(), weight, total, least, guarantee.members(flows), graph
    )
    return into, state == UNSAFE


def _neighbor_graph(point: Floats, among: Numbers, neighbors: int) -> tuple[Numbers, Numbers]:
    """Returns the symmetric nearest-neighbour graph of the points, as sorted slices."""
    with boxes_extra("GLOVE"):
        from scipy.spatial import cKDTree
    n = len(point)
    if len(among) < 2:
        return np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    n_nearest = min(neighbors + 1, len(among))
    _, nearest = cKDTree(point[among]).query(point[among], k=n_nearest, p=1)
    a, b = np.repeat(among, n_nearest), among[nearest.ravel()]
    key = np.concatenate((a * n + b, b * n + a)[: 2 if n_nearest < len(among) else 1])
    key = np.sort(key[key // n != key % n])
    key = key[np.flatnonzero(np.diff(key, prepend=-1))]
    return np.searchsorted(key // n, np.arange(n + 1)), key % n


def _roots(into: Numbers) -> Numbers:
    """Returns the final box of each box."""
    at = np.where(into < 0, np.arange(len(into)), into)
    while True:
        further = at[at]
        if np.array_equal(further, at):
            return at
        at = further


def _numbered(box: NDArray[Any]) -> Ints:
    """Numbers from 0 without gaps, in the same order."""
    group: Ints = np.unique(box, return_inverse=True)[1].astype(np.int32)
    return group


def _absorb(
    volume: NDArray[Any], frame: Frame, group: Ints, short: NDArray[np.bool_], budget: float
) -> tuple[Ints, NDArray[np.bool_]]:
    """Merges a remaining unsafe group into the box it enlarges least, unless it may be
    suppressed.
    """
    if not short.any() or short.all() or volume[short].sum() <= budget:
        return group, short
    from flowveil.methods.box_loops import stretch

    hulls = Hulls.around(frame.point, group)
    left = int(group[short][0])
    held = np.bincount(group, weights=volume)
    low, high = (
        (edge * frame.step_cm[:, None]).T.astype(np.float64) for edge in (hulls.low, hulls.high)
    )
    cost = [
        np.inf if box == left else stretch(low, high, held, box, left) for box in range(len(held))
    ]
    group = np.where(short, np.argmin(cost), group)
    return _numbered(group), np.zeros_like(short)


def _costliest(
    volume: NDArray[Any], frame: Frame, group: Ints, kept: NDArray[np.bool_], budget: float
) -> NDArray[np.bool_]:
    """Returns the flows of the boxes with the longest sides, within the budget.

    Boxes of a single square stay.
    """
    left = budget - float(volume[~kept].sum())
    hulls = Hulls.around(frame.point, group)
    reach = frame.step_cm @ (hulls.high - hulls.low)
    held = np.bincount(group, weights=volume)
    published = np.zeros(len(held), dtype=np.bool_)
    published[group[kept]] = True
    candidates = np.flatnonzero(published & (reach > 0) & (held <= left))
    order = candidates[np.argsort(-reach[candidates], kind="stable")]
    dropped = np.zeros(len(held), dtype=np.bool_)
    dropped[order[: np.searchsorted(np.cumsum(held[order]), left, side="right")]] = True
    return dropped[group]


def _dendrogram(point: Floats, neighbors: int) -> Any:
    """Returns all merges in order: the two clusters that become cluster ``n + i``.

    The points are the first n.
    """
    with boxes_extra("GLOVE-sk"):
        from sklearn.cluster import AgglomerativeClustering
        from sklearn.neighbors import kneighbors_graph
    n = len(point)
    if n == 1:
        return np.zeros((0, 2), dtype=np.int64)
    graph = None
    if neighbors < n - 1:
        graph = kneighbors_graph(point, neighbors, metric="manhattan", include_self=False)
    clustering = AgglomerativeClustering(
        n_clusters=None, distance_threshold=0.0, linkage="complete", metric="l1", connectivity=graph
    )
    with warnings.catch_warnings():
        # A disconnected graph is completed, as in the paper's program.
        warnings.simplefilter("ignore", UserWarning)
        return clustering.fit(point).children_
