"""TopDown as a method: its budget, its tree, what it opens, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections import Counter
from fractions import Fraction

import h3
import numpy as np
import pytest

from conftest import trip_table
from flowveil import Flows, Hierarchy, ParameterError, anonymize, read_trips
from flowveil.core.flows import Cells
from flowveil.methods.discrete_noise import repeatable_bits
from flowveil.methods.epsilon import largest_rho
from flowveil.methods.noise_guarantee import NoiseGuarantee
from flowveil.methods.public_domain import Level, public_domain, public_levels
from flowveil.methods.topdown import _noise_of_levels, budget_shares, count_top_down
from samples.releases import rehash
from samples.verified import findings_of

REGION = h3.latlng_to_cell(48.85, 2.35, 5)
ENDS = ("origin", "destination")
ASKED = {"epsilon": 1.0, "bound": 5, "region": REGION, "level": 7}


@pytest.fixture(scope="module")
def flows() -> Flows:
    return read_trips(trip_table(1500), resolution=9)


def map_flows(n: int = 12_000, *, people: int | None = None) -> Flows:
    """Sixteen zones in four sectors, most trips between few of them."""
    rng = np.random.default_rng(5)
    parent = [-1, *[0] * 4, *np.repeat(np.arange(1, 5), 4).tolist()]
    tree, _ = Hierarchy.from_parents(
        parent, np.array([f"n{i:02d}" for i in range(21)]), kind="table"
    )
    place = [np.minimum(rng.geometric(0.2, n) - 1, 15) for _ in range(2)]
    person = None if people is None else rng.integers(0, people, n)
    return Flows.from_pairs(*place, origins=tree, destinations=tree, person=person, whole_map=tree)


def levels_of(flows: Flows, level: int | None, region: str | None) -> list[Level]:
    return public_levels(public_domain("topdown", flows, level, region))


# ---- the budget ----------------------------------------------------------------------------------


def test_the_parts_of_the_budget_sum_to_it_exactly(flows):
    levels = levels_of(flows, 9, REGION)
    assert [step.name for step in levels] == ["all", "6", "7", "8", "9"]
    shares = budget_shares(None, levels)
    assert sum(shares) == 1
    assert [share / shares[0] for share in shares] == [1, 1, 3, 9, 27]
    assert sum(budget_shares("0.1, 0.1,0.1,0.1,0.6", levels)) == 1
    for step, share in zip(
        anonymize(flows, "topdown", **{**ASKED, "level": 9}).guarantee.steps, shares, strict=True
    ):
        assert Fraction(step.scale) >= 5 / share
        assert Fraction(step.scale) < 5 / share * (1 + Fraction(1, 10**12))


def test_the_noise_that_is_drawn_is_what_the_bound_and_the_budget_ask_for(flows):
    """A unit whose trips are all in one pair moves its count by the bound.

    A step costs bound² / (2 variance) of ρ.
    """
    promise = NoiseGuarantee.from_options(
        "topdown", flows, epsilon=1.0, delta=1e-6, bound=5, seed=1
    )
    levels = levels_of(flows, 9, REGION)
    distributions, _ = _noise_of_levels(promise, levels, budget_shares(None, levels))
    assert sum(
        Fraction(25) / (2 * distribution.variance) for distribution in distributions
    ) <= largest_rho(1.0, 1e-6)
    plain = NoiseGuarantee.from_options("topdown", flows, epsilon=1.0, delta=0.0, bound=5, seed=1)
    assert (
        sum(
            5 / noise.scale
            for noise in _noise_of_levels(plain, levels, budget_shares(None, levels))[0]
        )
        == 1
    )


@pytest.mark.parametrize(
    "budget", ["1", "0.5,0.5", "0.2,0.3,0.6", "0.5,-0.1,0.6", "a,b,c", "nan,0.5,0.5", ""]
)
def test_a_budget_that_does_not_add_up_is_refused(flows, budget):
    with pytest.raises(ParameterError, match="3 shares above 0"):
        anonymize(flows, "topdown", **ASKED, budget=budget)


def test_a_share_that_leaves_only_noise_is_refused(flows):
    with pytest.raises(ParameterError, match="The share of step 'all'"):
        anonymize(flows, "topdown", **ASKED, budget="0.000001,0.499999,0.5")


# ---- the tree ------------------------------------------------------------------------------------


def test_cells_of_several_resolutions_stay_themselves_until_their_step(flows):
    near, *_ = sorted(h3.grid_ring(REGION, 1))
    part = h3.cell_to_children(near, 7)[0]
    levels = levels_of(flows, 8, f"{REGION},{part}")
    assert [(step.name, step.n_nodes) for step in levels] == [
        ("all", 1),
        ("5", 2),
        ("6", 8),
        ("7", 50),
        ("8", 350),
    ]
    for step, above in zip(levels[1:], levels, strict=False):
        assert np.array_equal(step.parent[step.node_of_zone], above.node_of_zone)
    assert np.array_equal(levels[-1].node_of_zone, np.arange(350))


def test_steps_of_a_deep_map_that_divide_little_are_left_out():
    n = 2**7 - 1
    codes = np.array([f"n{i:03d}" for i in range(n)])
    tree, _ = Hierarchy.from_parents(
        [-1, *((np.arange(1, n) - 1) // 2).tolist()], codes, kind="table"
    )
    flows = Flows.from_pairs([0], [0], [9], origins=tree, destinations=tree, whole_map=tree)
    levels = levels_of(flows, None, None)
    assert [step.n_nodes for step in levels] == [1, 4, 16, 64]
    for step, above in zip(levels[1:], levels, strict=False):
        assert np.array_equal(step.parent[step.node_of_zone], above.node_of_zone)


def test_zones_of_the_data_are_refused(flows):
    with pytest.raises(ParameterError, match="region=observed"):
        anonymize(flows, "topdown", **{**ASKED, "region": "observed"})
    with pytest.raises(ParameterError, match="give region"):
        anonymize(flows, "topdown", epsilon=1, bound=5)


# ---- what is opened ------------------------------------------------------------------------------


class Scripted:
    """Noise that makes the noisy counts of a step what the test says, whatever the true ones
    are."""

    def __init__(self, noisy: list[int], true: list[int]) -> None:
        self.draws = np.array(noisy) - np.array(true)

    def draw(self, n: int, _bits: object) -> np.ndarray:
        assert n == len(self.draws)
        return self.draws.copy()


def test_the_noisy_count_decides_what_is_opened_and_never_the_true_one():
    """Two halves of two zones each.

    The noise hides the half with all trips and invents one without any.
    """
    tree, _ = Hierarchy.from_parents(
        [-1, 0, 0, 1, 1, 2, 2], np.array([f"n{i}" for i in range(7)]), kind="table"
    )
    flows = Flows.from_pairs([0], [0], [9], origins=tree, destinations=tree, whole_map=tree)
    levels = levels_of(flows, None, None)
    table = Cells(np.zeros(1, np.int32), np.zeros(1, np.int32), np.array([9]))
    distributions = [
        Scripted([6], [9]),
        Scripted([-3, 0, 0, 6], [9, 0, 0, 0]),
        Scripted([4, 1, -2, 1], [0, 0, 0, 0]),
    ]
    cells = count_top_down(table, levels, distributions, repeatable_bits(0))
    assert (cells.origin.tolist(), cells.destination.tolist(), cells.trips.tolist()) == (
        [2, 2, 3],
        [2, 3, 3],
        [4, 1, 1],
    )


def test_blocks_leave_no_trace(monkeypatch):
    one = anonymize(map_flows(), "topdown", epsilon=1, unsafe_seed_for_tests=3)
    parts = sys.modules["flowveil.methods.topdown"]
    seen = []
    real = parts._opened
    monkeypatch.setattr(parts, "_BATCH_CHILDREN", 40)
    monkeypatch.setattr(parts, "_opened", lambda *a: seen.append(a) or real(*a))
    many = anonymize(map_flows(), "topdown", epsilon=1)
    assert len(seen) > 5
    assert int(many.cells.trips.sum()) == pytest.approx(12_000, abs=900)
    assert len(many.cells) == pytest.approx(len(one.cells), abs=40)


def test_a_pair_that_divides_into_too_many_is_refused(monkeypatch):
    monkeypatch.setattr(sys.modules["flowveil.methods.topdown"], "MOST_CHILDREN", 15)
    with pytest.raises(ParameterError, match="levels in between"):
        anonymize(map_flows(), "topdown", epsilon=1)


def test_it_errs_far_less_than_flat_noise(flows):
    def error(release) -> int:
        inside = release.plan.kept
        n = len(release.plan.origin_zones)
        true = np.zeros((n, n), np.int64)
        np.add.at(
            true,
            (release.plan.origin_zone[inside], release.plan.destination_zone[inside]),
            flows.trips[inside],
        )
        noisy = np.zeros((n, n), np.int64)
        noisy[release.cells.origin, release.cells.destination] = release.cells.trips
        return int(np.abs(noisy - true).sum())

    asked = {**ASKED, "level": 8, "epsilon": 5.0}
    assert error(anonymize(flows, "topdown", **asked)) < 0.2 * error(
        anonymize(flows, "laplace", **asked)
    )


# ---- the check -----------------------------------------------------------------------------------


def test_pairs_whose_trips_are_in_small_children_are_published_undivided(flows):
    """Totals hold, no cell lies in another, and no cell is below the floor of its level."""
    asked = {**ASKED, "epsilon": 20.0, "unsafe_seed_for_tests": 5}
    fine, mixed = (anonymize(flows, "topdown", floor=floor, **asked) for floor in (1, 6))
    assert mixed.cells.trips.sum() == fine.cells.trips.sum()
    level = mixed.plan.origin_zones.level[mixed.cells.origin]
    assert sorted(set(level.tolist())) == [6, 7]
    assert mixed.cells.trips[level == 7].min() >= 6
    # Every pair of level 6 has the same trips as before.
    sums = []
    for release in (fine, mixed):
        ends = [release.flows[f"{end}_zone"].to_pylist() for end in ("origin", "destination")]
        pairs = zip(*([h3.cell_to_parent(c, 6) for c in end] for end in ends), strict=True)
        total = Counter()
        for pair, trips in zip(pairs, release.flows["trips"].to_pylist(), strict=True):
            total[pair] += trips
        sums.append(total)
    assert sums[0] == sums[1]
    listed = set(zip(*(mixed.flows[f"{end}_zone"].to_pylist() for end in ENDS), strict=True))
    coarse = {pair for pair in listed if h3.get_resolution(pair[0]) == 6}
    assert not coarse & {tuple(h3.cell_to_parent(c, 6) for c in p) for p in listed - coarse}


def test_few_of_the_listed_flows_never_happened():
    """On a matrix without any structure; benchmarks/results/posterior.md has real ones."""
    flows = read_trips(trip_table(20_000), resolution=9)
    for method, most in (("topdown", 0.15), ("privtree", 0.2), ("posterior", 0.15)):
        level = {"districts": 7} if method == "posterior" else {"level": 7}
        false = listed = 0
        for seed in range(2):
            how = {"epsilon": 1.0, "region": REGION, "unsafe_seed_for_tests": seed}
            release = anonymize(flows, method, protect="trips", **how, **level)
            inside = release.cell_of_flow >= 0
            cell, trips = release.cell_of_flow[inside], release.input.trips[inside]
            true = np.bincount(cell, weights=trips, minlength=len(release.cells))
            false, listed = false + int(np.sum(true == 0)), listed + len(true)
        assert listed > 100
        assert false < most * listed, method


def change(folder, alter) -> None:
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    alter(report)
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    rehash(folder)


FORGED = {
    "more ε": lambda r: r["guarantee"]["steps"][0].update(epsilon=0.9, scale=5.6),
    "less noise": lambda r: r["guarantee"]["steps"][0].update(scale=1.0),
    "another distribution": lambda r: r["guarantee"].update(scale=99.0),
    "no steps": lambda r: r["guarantee"].pop("steps"),
    "other steps": lambda r: r["guarantee"]["steps"][1].update(of="4"),
    "another budget": lambda r: r["parameters"]["options"].update(budget="0.1,0.1,0.8"),
    "zones not steps": lambda r: r["guarantee"]["domain"].pop("zones"),
    "more zones": lambda r: r["guarantee"]["domain"].update(zones=8),
    "no noise": lambda r: r["guarantee"]["steps"][1].update(epsilon=0.0),
}


@pytest.fixture(scope="module")
def written(flows, tmp_path_factory):
    return anonymize(flows, "topdown", **ASKED).write(tmp_path_factory.mktemp("topdown") / "out")


@pytest.mark.parametrize("name", FORGED)
def test_a_report_that_does_not_add_up_is_found(name, written, flows):
    before = {path: path.read_bytes() for path in written.iterdir()}
    change(written, FORGED[name])
    found = findings_of(written, flows)
    for path, content in before.items():
        path.write_bytes(content)
    assert found
    assert findings_of(written, flows) == []
