"""What every registered method must keep, for every guarantee, on every kind of tree.

Cells are recounted here with dictionaries and sets from the flows and the plan; nothing of
`Cells.merge` is used.

For every method, every tree that leaves something to decide, table, guarantee and limit meets every
other one (`pairwise`). Chains, stars and the like meet every table, guarantees and limits in turn;
with further options of a method, every tree, table, guarantee and limit comes once or more
(`in_turn`). Each run chooses its combinations with a separate seed, so that between them the
methods meet more than pairs. With one of the limits, which meets the same trees, tables and
guarantees, and with further options always, a combination is run again, on the same rows in another
order, and must give the same result.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import cycle, product

import h3.api.basic_str as h3
import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.cases import (
    EXACT,
    FOLDED_RUNS,
    GUARANTEES,
    K_METHODS,
    PURPOSE_TREE,
    RUNS,
    TABLES,
    TREES,
    UNDECLARED,
    Run,
    flows_of,
    folded_flows_of,
    in_turn,
    on_a_map,
    pairwise,
)
from flowveil import (
    METHODS,
    DataError,
    Flows,
    Guarantee,
    Hierarchy,
    InfeasibleError,
    ParameterError,
    Release,
    anonymize,
)
from flowveil.core.read_summary import ReadSummary
from flowveil.release.boundary import public_map
from flowveil.release.plan import NodeZones, Zones
from flowveil.zoning.public_map import BoxMap
from reference.halves import cells_of
from reference.trees import ancestors, is_safe, leaf_nodes, persons_by_flow
from samples.strategies import flow_tables

ALL_RUNS = (*RUNS, *UNDECLARED)
LIMITS = (0.0, 0.1, 0.4)
#: The limit with which a combination is run twice.
TWICE = 0.1
#: Without chains, stars and the like.
TREES_TO_DECIDE = ("h3", "h3-several-base-cells", "halves", "ragged", "dendrogram")
PLAIN_TREES = tuple(kind for kind in TREES if kind not in TREES_TO_DECIDE)

runs = pytest.mark.parametrize("run", ALL_RUNS, ids=str)
#: Every kind of tree once, the tables in turn.
placed_tables = pytest.mark.parametrize(
    ("kind", "table"), list(zip(TREES, cycle(TABLES))), ids="-".join
)


def combinations_of(run: Run, seed: int):
    """The combinations of tree, table, guarantee and limit that a method is run with."""
    if run is next(other for other in ALL_RUNS if other.method == run.method):
        rows = pairwise(TREES_TO_DECIDE, TABLES, GUARANTEES, LIMITS, seed=seed)
        plain = in_turn(product(PLAIN_TREES, TABLES), GUARANTEES, LIMITS, seed=seed)
        rows += [(*placed, asked, limit) for placed, asked, limit in plain]
    else:
        rows = in_turn(TREES_TO_DECIDE, TABLES, GUARANTEES, LIMITS, seed=seed)
    return [pytest.param(run, *chosen, id="-".join(map(str, (run, *chosen)))) for chosen in rows]


def attempt(flows: Flows, run: Run, **asked) -> Release | None:
    """The release, or None where the method says that there can be none."""
    try:
        return anonymize(
            flows, run.method, allow_small_k=True, population_only=True, **asked, **run.options
        )
    except InfeasibleError:
        return None


# ---- the naive recount ---------------------------------------------------------------------------


def decimal_of(value: float) -> Fraction:
    """The decimal of six places that a weight represents."""
    return Fraction(round(value * 10**6), 10**6)


@dataclass
class Count:
    trips: int = 0
    weight: Fraction = Fraction(0)
    people: set[int] = field(default_factory=set)
    begin: set[int] = field(default_factory=set)
    end: set[int] = field(default_factory=set)


@lru_cache(maxsize=4)
def recount(release: Release) -> dict[tuple[int, int], Count]:
    """What is in each published cell, one flow after the other."""
    flows, plan = release.input, release.plan
    who = persons_by_flow(flows)
    cells: dict[tuple[int, int], Count] = defaultdict(Count)
    for f in range(len(flows)):
        if plan.kept[f]:
            cell = cells[int(plan.origin_zone[f]), int(plan.destination_zone[f])]
            cell.trips += int(flows.trips[f])
            cell.weight += 0 if flows.weight is None else decimal_of(float(flows.weight[f]))
            cell.people |= who[f]
            cell.begin.add(int(flows.origin[f]))
            cell.end.add(int(flows.destination[f]))
    return dict(cells)


@lru_cache(maxsize=64)
def tiles_of_nodes(tree: Hierarchy) -> dict[int, set[int]]:
    """The tiles below every node, by walking up from each."""
    below = defaultdict(set)
    for tile, leaf in enumerate(leaf_nodes(tree)):
        for node in ancestors(tree, leaf):
            below[node].add(tile)
    return below


def tiles_in(zones: Zones, zone: int, tree: Hierarchy) -> set[int]:
    """The tiles in a zone: below a node, or with their centre in a box, which holds its west and
    south edges."""
    if isinstance(zones, NodeZones):
        return tiles_of_nodes(tree)[int(zones.nodes[zone])]
    lat, lon = tree.geography.centers(tree.leaf_node)
    bounds = [
        part.bounds
        for part in shapely.get_parts(BoxMap().places(zones.codes(np.array([zone]))).polygons)
    ]
    inside = [(lon >= w) & (lon < e) & (lat >= s) & (lat < n) for w, s, e, n in bounds]
    return set(np.flatnonzero(np.any(inside, axis=0)).tolist())


def both_ends(release: Release):
    flows, plan = release.input, release.plan
    yield flows.origin, plan.origin_zone, plan.origin_zones, flows.origins
    yield flows.destination, plan.destination_zone, plan.destination_zones, flows.destinations


@lru_cache(maxsize=4)
def zone_tiles(release: Release) -> list[dict[int, set[int]]]:
    """For each end, the tiles of the zones that kept flows are in."""
    kept = release.plan.kept
    return [
        {z: tiles_in(zones, z, tree) for z in set(zone[kept].tolist())}
        for _, zone, zones, tree in both_ends(release)
    ]


def arrays_of(flows: Flows) -> list[np.ndarray]:
    arrays = [
        flows.origin,
        flows.destination,
        flows.trips,
        flows.weight,
        flows.people.cell,
        flows.people.person,
    ]
    for tree in (flows.origins, flows.destinations):
        arrays += [tree.parent, tree.code, tree.depth, tree.stop, tree.leaf_start, tree.leaf_stop]
    return arrays


def volume_of(release: Release) -> list[Fraction]:
    flows = release.input
    column = flows.trips if release.guarantee.population is None else flows.weight
    return [decimal_of(v) for v in column.tolist()]


# ---- the promises --------------------------------------------------------------------------------


def check_nothing_short(release: Release) -> None:
    guarantee = release.guarantee
    for cell in recount(release).values():
        assert guarantee.trips is None or cell.trips >= guarantee.trips
        assert guarantee.people is None or len(cell.people) >= guarantee.people
        assert guarantee.population is None or cell.weight >= decimal_of(guarantee.population)
        assert guarantee.locations is None or len(cell.begin) >= guarantee.locations
        assert guarantee.locations is None or len(cell.end) >= guarantee.locations


def check_cells_are_what_the_plan_says(release: Release) -> None:
    cells, want = release.cells, recount(release)
    people = cells.n_people()
    got = [(int(a), int(b)) for a, b in zip(cells.origin, cells.destination, strict=True)]
    assert got == sorted(want)
    for row, pair in enumerate(got):
        assert cells.trips[row] == want[pair].trips
        assert cells.weight is None or float(cells.weight[row]) == float(want[pair].weight)
        assert people is None or people[row] == len(want[pair].people)


def check_every_flow_is_in_one_covering_cell_or_none(release: Release) -> None:
    cells, plan, covered = release.cells, release.plan, zone_tiles(release)
    assert len(release.cell_of_flow) == len(plan.kept) == len(release.input)
    assert plan.kept.dtype == np.bool_
    for f, cell in enumerate(release.cell_of_flow.tolist()):
        if not plan.kept[f]:
            assert cell == -1
            continue
        ends = int(cells.origin[cell]), int(cells.destination[cell])
        assert ends == (plan.origin_zone[f], plan.destination_zone[f])
        assert int(release.input.origin[f]) in covered[0][ends[0]]
        assert int(release.input.destination[f]) in covered[1][ends[1]]


def check_sizes_are_tile_counts(release: Release) -> None:
    for (_, _, zones, _), tiles in zip(both_ends(release), zone_tiles(release), strict=True):
        assert {z: int(zones.size[z]) for z in tiles} == {z: len(t) for z, t in tiles.items()}


def check_published_tiles_owe_nothing_to_the_trips(release: Release) -> None:
    """All cells below an H3 cell; not known of boxes, nor of trees that come without a map."""
    where = public_map(release.input, boxed=release.plan.boxes is not None)
    for _, _, zones, tree in both_ends(release):
        codes = sorted(set(zones.codes(np.arange(len(zones))).tolist()))
        tiles = where.places(codes).tiles
        if not isinstance(zones, NodeZones) or tree.kind not in ("h3", "halves"):
            assert tiles is None
            continue
        finest = int(tree.level.max())
        for code, found in zip(codes, tiles.tolist(), strict=True):
            cells = set() if code == "all" else cells_of(code)
            want = sum(h3.cell_to_children_size(c, finest) for c in cells) or h3.get_num_cells(
                finest
            )
            assert found == want


def check_homogeneous_zones_are_disjoint(release: Release) -> None:
    if METHODS[release.method].homogeneous:
        assert release.plan.homogeneous
    if not release.plan.homogeneous:
        return
    for (tile, _, _, _), tiles in zip(both_ends(release), zone_tiles(release), strict=True):
        union = set().union(*tiles.values())
        assert sum(map(len, tiles.values())) == len(union), "zones overlap"
        assert set(tile[release.plan.kept].tolist()) <= union


def check_limit(release: Release, run: Run, max_suppressed: float) -> None:
    lost = ~release.plan.kept
    if run.limit == "flows":
        assert int(lost.sum()) <= max_suppressed * len(lost)
    if run.limit == "volume":
        volume = volume_of(release)
        gone = sum(v for v, is_lost in zip(volume, lost, strict=True) if is_lost)
        # The budget is a product of two floating-point numbers: it may be off by a rounding, not by
        # a trip.
        assert gone <= Fraction(max_suppressed) * sum(volume) * (1 + Fraction(1, 10**12))


def check_same(one: Release | None, other: Release | None) -> None:
    """The two runs decided the same for every flow, and publish the same cells in the same
    order."""
    assert (one is None) == (other is None)
    if one is not None:
        assert np.array_equal(one.plan.kept, other.plan.kept)
        assert np.array_equal(one.cell_of_flow, other.cell_of_flow)
        assert one.plan.notes == other.plan.notes
        assert published(one) == published(other)


def published(release: Release) -> list[tuple]:
    """The published cells by code, in the order of publication."""
    cells, plan = release.cells, release.plan
    ends = (
        plan.origin_zones.codes(cells.origin).tolist(),
        plan.destination_zones.codes(cells.destination).tolist(),
    )
    return list(
        zip(
            *ends,
            cells.trips.tolist(),
            cells.weight.tolist(),
            cells.n_people().tolist(),
            strict=True,
        )
    )


def check_every_flow_is_within_the_folds_of_its_cell(release: Release) -> None:
    flows, plan = release.input, release.plan
    purpose, time = (
        fold.labels[leaf] for fold, leaf in zip(flows.folds, flows.leaves, strict=True)
    )
    columns = plan.origin_zones.columns
    assert list(columns) == ["purpose", "time_from", "time_to"]
    for f in np.flatnonzero(plan.kept).tolist():
        group, start, stop = (texts[plan.origin_zone[f]] for texts in columns.values())
        assert start <= time[f] < stop
        assert group in (purpose[f], PURPOSE_TREE[purpose[f]] or "all", "all")


def check_all(release: Release, run: Run, max_suppressed: float) -> None:
    check_nothing_short(release)
    check_cells_are_what_the_plan_says(release)
    check_every_flow_is_in_one_covering_cell_or_none(release)
    check_sizes_are_tile_counts(release)
    check_published_tiles_owe_nothing_to_the_trips(release)
    check_homogeneous_zones_are_disjoint(release)
    check_limit(release, run, max_suppressed)


def must_exist(flows: Flows, run: Run, **asked) -> bool:
    """Whether what the method calls enough is safe."""
    guarantee = Guarantee.resolve(flows, **asked)
    if run.enough == "tiles":
        return any(is_safe(flows, [f], guarantee) for f in range(len(flows)))
    return is_safe(flows, list(range(len(flows))), guarantee)


def can_exist(flows: Flows, run: Run, **asked) -> bool:
    """Whether anything is safe: where the whole map in one cell falls short, every cell does."""
    if not run.merges:
        return must_exist(flows, run, **asked)
    guarantee = Guarantee.resolve(flows, **asked)
    return is_safe(flows, list(range(len(flows))), guarantee)


def check_existence(release: Release | None, flows: Flows, run: Run, **asked) -> None:
    if release is None:
        assert not must_exist(flows, run, **asked), "refused though there is enough to publish"
    else:
        assert can_exist(flows, run, **asked), "published though nothing can be safe"


# ---- the tests -----------------------------------------------------------------------------------


def test_every_method_says_what_it_promises():
    missing = sorted({run.method for run in UNDECLARED})
    assert not missing, (
        f"Declare what {', '.join(missing)} promises: add it to RUNS in tests/contract/cases.py."
    )
    folding = {name for name, method in METHODS.items() if method.folds}
    assert folding == {run.method for run in FOLDED_RUNS}, (
        "FOLDED_RUNS declares what methods that fold time promise."
    )
    gone = sorted({run.method for run in RUNS} - set(METHODS))
    assert not gone, (
        f"RUNS in tests/contract/cases.py declares {', '.join(gone)}, which METHODS does not have."
    )


@pytest.mark.parametrize("name", K_METHODS)
def test_every_method_takes_max_suppressed_and_keyword_options(name):
    parameters = inspect.signature(METHODS[name].plan).parameters
    assert list(parameters)[:2] == ["flows", "guarantee"]
    assert "max_suppressed" in parameters
    assert all(p.kind is p.KEYWORD_ONLY for p in list(parameters.values())[2:])
    assert all(p.default is not p.empty for p in list(parameters.values())[2:])


@pytest.mark.parametrize(
    ("run", "kind", "table", "asked", "max_suppressed"),
    [chosen for seed, run in enumerate(ALL_RUNS) for chosen in combinations_of(run, seed)],
)
def test_releases_keep_the_promises(run, kind, table, asked, max_suppressed):
    flows = flows_of(table, kind)
    before = [a.copy() for a in arrays_of(flows)]
    release = attempt(flows, run, max_suppressed=max_suppressed, **GUARANTEES[asked])
    assert all(map(np.array_equal, before, arrays_of(flows))), "the input was modified"
    check_existence(release, flows, run, **GUARANTEES[asked])
    if release is not None:
        check_all(release, run, max_suppressed)
    if max_suppressed == TWICE or run.options:
        shuffled = flows_of(table, kind, shuffled=11)
        check_same(
            release, attempt(shuffled, run, max_suppressed=max_suppressed, **GUARANTEES[asked])
        )


@pytest.mark.parametrize(
    "run", [run for run in RUNS if METHODS[run.method].same_zones_plan is not None], ids=str
)
@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("h3", "combined"),
        ("h3-several-base-cells", "people"),
        ("ragged", "people"),
        ("dendrogram", "combined"),
    ],
)
def test_releases_with_the_same_zones_keep_the_promises(run, kind, asked):
    one, two = (with_one_tree(flows_of("uneven", kind, shuffled=seed)) for seed in (None, 11))
    release, again = (attempt(f, run, **GUARANTEES[asked]) for f in (one, two))
    check_existence(release, one, run, **GUARANTEES[asked])
    if release is not None:
        check_all(release, run, 0.1)
        assert (
            release.plan.origin_zones.nodes.tolist()
            == release.plan.destination_zones.nodes.tolist()
        )
    check_same(release, again)


@pytest.mark.parametrize(
    ("run", "kind", "asked"),
    [
        (run, *chosen)
        for seed, run in enumerate(FOLDED_RUNS)
        for chosen in in_turn(["h3", "halves", "ragged"], GUARANTEES, seed=seed)
    ],
    ids=str,
)
@pytest.mark.slow
def test_releases_that_fold_time_keep_the_promises(run, kind, asked):
    one, two = (folded_flows_of("uneven", kind, shuffled=seed) for seed in (None, 11))
    release, again = (attempt(f, run, **GUARANTEES[asked]) for f in (one, two))
    check_existence(release, one, run, **GUARANTEES[asked])
    if release is not None:
        check_all(release, run, 0.1)
        check_every_flow_is_within_the_folds_of_its_cell(release)
    check_same(release, again)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.folds])
def test_methods_that_cannot_fold_time_refuse(name):
    with pytest.raises(ParameterError, match=r"fold.* cannot be combined with"):
        anonymize(folded_flows_of("uneven", "h3"), name)


@pytest.mark.parametrize(
    "name", [name for name, method in METHODS.items() if method.same_zones_plan is None]
)
def test_methods_that_cannot_have_the_same_zones_refuse(name):
    with pytest.raises(ParameterError, match=r"same_zones.* cannot be combined with method"):
        anonymize(with_one_tree(flows_of("uneven", "h3")), name)


def with_one_tree(flows: Flows) -> Flows:
    """The same trips between tiles of the first tree, which serves both ends."""
    tree = flows.origins
    rows = np.repeat(np.arange(len(flows)), flows.people.count(len(flows)) + 1)
    person = np.full(len(rows), -1)
    first = np.concatenate(([0], np.cumsum(flows.people.count(len(flows)) + 1)[:-1]))
    person[np.setdiff1d(np.arange(len(rows)), first)] = flows.people.person
    trips, weight = np.ones(len(rows), int), np.zeros(len(rows))
    trips[first], weight[first] = flows.trips, flows.weight
    return Flows.from_pairs(
        flows.origin[rows],
        flows.destination[rows] % tree.n_tiles,
        trips,
        origins=tree,
        destinations=tree,
        weight=weight,
        person=person,
        intake=ReadSummary(rows=len(rows), same_zones=True),
    )


@runs
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_releases_keep_the_promises_on_random_problems(run, data):
    flows = data.draw(flow_tables())
    on_a_map(flows.origins), on_a_map(flows.destinations)
    units = ["trips"]
    units += ["people"] if flows.people is not None else []
    units += ["population"] if flows.weight is not None and flows.weight.sum() > 0 else []
    asked = {
        "k": data.draw(st.integers(1, 12)),
        "protect": tuple(data.draw(st.lists(st.sampled_from(units), min_size=1, unique=True))),
        "l": data.draw(st.sampled_from([None, None, 1, 2])),
    }
    max_suppressed = data.draw(st.sampled_from([0.0, 0.1, 0.3]))
    release = attempt(flows, run, max_suppressed=max_suppressed, **asked)
    if release is not None:
        check_all(release, run, max_suppressed)
    if release is not None or run.complete:
        check_existence(release, flows, run, **asked)


@runs
@placed_tables
def test_nothing_is_lost_or_generalised_where_one_trip_is_enough(run, kind, table):
    flows = flows_of(table, kind)
    exact = EXACT if METHODS[run.method].takes_secret_thresholds else {}
    options = {"allow_small_k": True, **run.options, **exact}
    release = anonymize(flows, run.method, k=1, protect="trips", **options)
    check_all(release, run, 0.1)
    assert release.plan.kept.all()
    if not run.finest:
        return
    for tile, zone, zones, tree in both_ends(release):
        assert zones.size[zone].max() == 1
        if isinstance(zones, NodeZones):
            assert zones.nodes[zone].tolist() == tree.leaf_node[tile].tolist()


@runs
@placed_tables
def test_more_than_there_is_cannot_be_promised(run, kind, table):
    flows = flows_of(table, kind)
    with pytest.raises(InfeasibleError) as refused:
        anonymize(flows, run.method, k=int(flows.trips.sum()) + 1, **run.options)
    assert refused.value.exit_code == 3


@runs
def test_no_flows_are_bad_input(run):
    origins, destinations = TREES["ragged"]
    nothing = np.zeros(0, dtype=np.int32)
    flows = Flows.from_pairs(nothing, nothing, origins=origins, destinations=destinations)
    with pytest.raises(DataError, match="no flows"):
        anonymize(flows, run.method, **run.options)
