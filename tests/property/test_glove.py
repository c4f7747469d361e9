"""The compiled loop merges the boxes of the plain one; the limit on suppression holds.

No safe box is merged.
"""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from flowveil import anonymize, read_trips
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.methods.glove import _dendrogram, _neighbor_graph, _points, glove, glove_sk
from flowveil.publishing.release import Release
from flowveil.release.boxes import Frame
from flowveil.release.plan import Plan
from reference.glove import glove as slow_glove
from reference.groups import is_safe
from samples.installed import needs
from samples.placed import placed_problems, star

needs("numba", "scipy", "sklearn")

SHARES = st.sampled_from([0.0, 0.1, 0.3, 0.6])


def published(plan: Plan) -> set[frozenset[int]]:
    """The kept flows of each cell."""
    cells: dict[tuple[int, int], set[int]] = {}
    for f in np.flatnonzero(plan.kept).tolist():
        cells.setdefault((int(plan.origin_zone[f]), int(plan.destination_zone[f])), set()).add(f)
    return {frozenset(c) for c in cells.values()}


def together(frame: Frame, groups: set[frozenset[int]]) -> set[frozenset[int]]:
    """Groups with the very same box are one cell."""
    cells: dict[bytes, frozenset[int]] = {}
    for group in groups:
        points = frame.point[:, sorted(group)]
        key = np.concatenate((points.min(axis=1), points.max(axis=1))).tobytes()
        cells[key] = cells.get(key, frozenset()) | group
    return set(cells.values())


@settings(max_examples=30, deadline=None)
@given(placed_problems(max_rows=16), SHARES, st.sampled_from([1, 2, 4, 100]))
def test_same_boxes_as_the_plain_loop(problem, max_suppressed, neighbors):
    flows, guarantee = problem
    frame = Frame.of(flows)
    alone = [f for f in range(len(flows)) if not is_safe(flows, guarantee, [f])]
    start, near = _neighbor_graph(_points(frame), np.array(alone, dtype=np.int64), neighbors)
    pairs = {(i, int(j)) for i in range(len(flows)) for j in near[start[i] : start[i + 1]] if i < j}
    want = slow_glove(flows, guarantee, frame, near=pairs, max_suppressed=max_suppressed)
    plan = glove(flows, guarantee, max_suppressed=max_suppressed, neighbors=neighbors)
    event(f"{min(len(want), 3)} boxes or more")
    assert published(plan) == together(frame, want)


@settings(max_examples=30, deadline=None)
@given(placed_problems(), st.sampled_from([1, 3, 100]))
def test_the_graph_is_symmetric_and_of_nearest_neighbours(problem, neighbors):
    flows, _ = problem
    point = _points(Frame.of(flows))
    start, near = _neighbor_graph(point, np.arange(len(flows)), neighbors)
    pairs = {(i, int(j)) for i in range(len(flows)) for j in near[start[i] : start[i + 1]]}
    assert all((j, i) in pairs and i != j for i, j in pairs)
    distance = np.abs(point[:, None] - point[None]).sum(axis=2)
    for i in range(len(flows)):
        mine = [j for a, j in pairs if a == i]
        assert len(mine) >= min(neighbors, len(flows) - 1) or np.any(distance[i] == 0)
        farthest = np.sort(distance[i])[min(neighbors, len(flows) - 1)]
        nearer = [j for j in range(len(flows)) if distance[i, j] < farthest and j != i]
        assert set(nearer) <= set(mine)


@settings(max_examples=30, deadline=None)
@given(placed_problems(), SHARES, st.sampled_from([glove, glove_sk]), st.sampled_from([2, 100]))
def test_boxes_are_safe_and_suppression_stays_within_its_limit(
    problem, max_suppressed, method, neighbors
):
    flows, guarantee = problem
    plan = method(flows, guarantee, max_suppressed=max_suppressed, neighbors=neighbors)
    if not is_safe(flows, guarantee, range(len(flows))):
        with pytest.raises(InfeasibleError):
            Release.from_plan(flows, plan, guarantee, method="glove", parameters={})
        return
    Release.from_plan(flows, plan, guarantee, method="glove", parameters={})
    volume = flows.volume(guarantee.basis)
    assert volume[~plan.kept].sum() <= max_suppressed * volume.sum()
    for cell in published(plan):
        assert is_safe(flows, guarantee, cell)


@settings(max_examples=30, deadline=None)
@given(placed_problems(max_rows=16), SHARES)
def test_glove_sk_cuts_as_low_as_it_may(problem, max_suppressed):
    flows, guarantee = problem
    frame = Frame.of(flows)
    volume = flows.volume(guarantee.basis)
    groups = {i: [i] for i in range(len(flows))}

    def too_much_is_short() -> bool:
        short = [f for g in groups.values() if not is_safe(flows, guarantee, g) for f in g]
        return volume[short].sum() > max_suppressed * volume.sum()

    merges = _dendrogram(_points(frame), 100).tolist()
    taken = 0
    while taken < len(merges) and too_much_is_short():
        a, b = merges[taken]
        groups[len(flows) + taken] = groups.pop(a) + groups.pop(b)
        taken += 1
    want = {frozenset(g) for g in groups.values() if is_safe(flows, guarantee, g)}
    plan = glove_sk(flows, guarantee, max_suppressed=max_suppressed)
    assert published(plan) == together(frame, want)


def line_of_flows(trips: list[int]) -> Flows:
    """Flows along a line, a tile apart."""
    tree = star(np.full(len(trips), 48.0), 2.0 + 0.02 * np.arange(len(trips)))
    tiles = np.arange(len(trips))
    return Flows.from_pairs(tiles, tiles, np.array(trips), origins=tree, destinations=tree)


def test_a_safe_flow_is_left_alone():
    flows = line_of_flows([6, 50, 6, 50, 6, 50, 6])
    plan = glove(flows, Guarantee.resolve(flows, k=10), max_suppressed=0.0)
    heavy = np.array([1, 3, 5])
    assert plan.kept.all()
    assert np.all(plan.origin_zones.size[plan.origin_zone[heavy]] == 1)


def test_scikit_learn_merges_safe_flows():
    flows = line_of_flows([50, 50, 1, 50, 50, 1, 9, 50])
    guarantee = Guarantee.resolve(flows, k=10)
    sizes = {}
    for method in (glove, glove_sk):
        plan = method(flows, guarantee, max_suppressed=0.0)
        sizes[method] = int((plan.origin_zones.size[plan.origin_zone] * flows.trips).sum())
    assert sizes[glove_sk] > sizes[glove]


def test_the_last_short_box_is_absorbed_where_nothing_may_be_suppressed():
    flows = line_of_flows([50, 1, 50])
    guarantee = Guarantee.resolve(flows, k=10)
    assert glove(flows, guarantee, max_suppressed=0.0).kept.all()
    assert glove(flows, guarantee, max_suppressed=0.1).kept.tolist() == [True, False, True]


@pytest.mark.parametrize("method", [glove, glove_sk])
def test_neighbors_is_a_positive_number(method):
    flows = line_of_flows([20, 20])
    with pytest.raises(ParameterError, match="at least 1"):
        method(flows, Guarantee.resolve(flows, k=10), neighbors=0)


@pytest.mark.real
@pytest.mark.parametrize(
    ("file", "resolution", "columns"),
    [
        ("santiago_taxi/trips.parquet", 8, {}),
        ("cabspotting_sf/trips.parquet", 9, {"person": "cab_id"}),
    ],
)
def test_the_order_of_the_published_comparison(shared_data, file, resolution, columns):
    """GLOVE is finer than ATG-Dual, and scikit-learn's clustering much coarser than GLOVE."""
    table = pq.read_table(shared_data / file)
    some = table.take(np.sort(np.random.default_rng(1).permutation(len(table))[:2500]))
    flows = read_trips(some, resolution=resolution, **columns)
    error = {
        method: anonymize(flows, method, k=10).metrics()["trips"]["mean_generalization_error"]
        for method in ("atg-dual", "glove", "glove-sk")
    }
    assert error["glove"] <= error["atg-dual"]
    assert error["glove-sk"] > 3 * error["glove"]
