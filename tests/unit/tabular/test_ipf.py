from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from flowveil.core.errors import DataError, ParameterError
from flowveil.methods.discrete_noise import system_bits
from flowveil.methods.epsilon import (
    WeakPromiseWarning,
    gaussian_deviation,
    noise_scale,
)
from flowveil.tabular import ipf
from flowveil.tabular.domains import code_variable
from flowveil.tabular.ipf import Mechanism, synthesize_records
from flowveil.tabular.junction import JunctionModel, build_junction_tree
from flowveil.tabular.utility import pair_tables, propensity_by_pairs, replicated_uniques
from reference.goodness import FALSE_ALARM
from reference.tabular_survey import survey

stats = pytest.importorskip("scipy.stats")


def small(n=200, seed=1):
    generator = np.random.default_rng(seed)
    a = generator.integers(0, 3, n)
    b = (a + generator.integers(0, 2, n)) % 4
    c = (b + generator.integers(0, 2, n)) % 3
    return pa.table({"a": a, "b": b, "c": c})


def counted(table, names):
    shape = [4, 4, 4][: len(names)]
    key = [table[name].to_numpy() for name in names]
    return np.bincount(np.ravel_multi_index(key, shape), minlength=int(np.prod(shape))).reshape(
        shape
    )


def test_without_privacy_the_margins_are_met():
    table = survey()
    made = synthesize_records(table, epsilon=None, seed=1)
    assert made.report["fit"]["gap"] <= 1e-9
    assert made.report["fit"]["converged"]
    assert not made.report["private"]
    # By hand: each fitted pair against the counts of the original.
    names = table.column_names
    for i, j in combinations(range(len(names)), 2):
        a, b = table[names[i]].to_numpy() - 1, table[names[j]].to_numpy() - 1
        fitted = made.fitted.margin((i, j))
        target = np.bincount(a * fitted.shape[1] + b, minlength=fitted.size).reshape(
            fitted.shape
        ) / len(a)
        assert np.max(np.abs(fitted - target)) <= 1e-9


def test_seed_repeats_without_privacy_and_is_refused_with_it():
    table = small()
    first = synthesize_records(table, epsilon=None, seed=3).table
    assert first.equals(synthesize_records(table, epsilon=None, seed=3).table)
    assert not first.equals(synthesize_records(table, epsilon=None, seed=4).table)
    with pytest.raises(ParameterError, match="seed is refused"):
        synthesize_records(table, epsilon=1.0, domains_from_data=True, seed=3)
    with pytest.raises(ParameterError, match="ordinary seed"):
        synthesize_records(table, epsilon=None, unsafe_test_seed=3)


def test_the_test_seed_is_loud():
    made = synthesize_records(small(), epsilon=1.0, domains_from_data=True, unsafe_test_seed=3)
    assert not made.report["private"]
    assert "NOT private" in made.report["statement"]
    assert made.report["private"] is False
    again = synthesize_records(small(), epsilon=1.0, domains_from_data=True, unsafe_test_seed=3)
    assert made.table.equals(again.table)


def test_the_real_noise_is_never_the_same_and_says_what_it_covers():
    made = [synthesize_records(small(), epsilon=0.5, domains_from_data=True) for _ in range(2)]
    assert not made[0].table.equals(made[1].table)
    assert made[0].report["private"]
    assert made[0].report["noise"]["scale"] == pytest.approx(3 / 0.5)
    assert made[0].report["n_records_from"] == "noisy margins"
    statement = made[0].report["statement"]
    for said in (
        "0.5-differentially private",
        "adding or removing one record",
        "scale 6",
        "assumed to be public",
    ):
        assert said in statement


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1, 1.0), (15, 2.0), (15, 0.2), (28, 0.7)])
def test_noise_follows_the_discrete_laplace_distribution(sensitivity, epsilon):
    """Goodness of fit of the real mechanism: chi-square over the whole law, not a check of its
    mean."""
    n = 20_000
    noise = Mechanism("laplace", epsilon, 0.0).release(
        np.zeros(n, np.int64), sensitivity, system_bits
    )
    scale = noise_scale(sensitivity, epsilon)
    assert scale == pytest.approx(sensitivity / epsilon)
    law = stats.dlaplace(1 / scale)
    # Cells of about equal probability, from the quantiles of the law; each holds whole numbers
    # only.
    edges = np.unique(law.ppf(np.linspace(0.02, 0.98, 40)))
    expected = n * np.diff(np.concatenate(([0.0], law.cdf(edges), [1.0])))
    observed = np.bincount(np.searchsorted(edges, noise, side="left"), minlength=len(expected))
    assert expected.min() > 5
    # A law of another scale or shape fails by far.
    assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM
    wrong = stats.dlaplace(1 / (1.15 * scale))
    shifted = n * np.diff(np.concatenate(([0.0], wrong.cdf(edges), [1.0])))
    assert stats.chisquare(observed, shifted).pvalue < FALSE_ALARM
    rounded_normal = stats.norm(0, law.std())
    bell = n * np.diff(np.concatenate(([0.0], rounded_normal.cdf(edges + 0.5), [1.0])))
    assert stats.chisquare(observed, bell).pvalue < FALSE_ALARM


def test_noise_of_all_margins_is_independent_and_of_the_right_scale():
    """What enters the fit: every cell of every margin, empty ones included."""
    table = small(50)
    counts = [counted(table, names) for names in (("a", "b"), ("a", "c"), ("b", "c"))]
    differences = []
    for _ in range(120):
        noisy = ipf._add_noise(counts, Mechanism("laplace", 1.5, 0.0), system_bits)
        differences.append(
            np.concatenate([(a - b).ravel() for a, b in zip(noisy, counts, strict=True)])
        )
    scale = 2.0
    noise = np.array(differences)
    law = stats.dlaplace(1 / scale)
    edges = np.arange(-6, 7)
    expected = noise.size * np.diff(np.concatenate(([0.0], law.cdf(edges), [1.0])))
    observed = np.bincount(
        np.searchsorted(edges, noise.ravel(), side="left"), minlength=len(expected)
    )
    assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM
    correlation = np.corrcoef(noise.T)[np.triu_indices(noise.shape[1], 1)]
    # Seven deviations: of all pairs together, less than one run in ten thousand million.
    assert np.abs(correlation).max() < 7 / np.sqrt(len(noise))


@pytest.mark.parametrize(("margins", "epsilon"), [(28, 0.7), (3, 1.0), (15, 0.2)])
def test_opendp_confirms_the_guarantee_of_each_scale(margins, epsilon):
    """28/0.7 rounds so that OpenDP's accounting would exceed 0.7.

    The scale is raised by one bit.
    """
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    numbers = dp.vector_domain(dp.atom_domain(T="i64"))
    scale = Mechanism("laplace", epsilon, 0.0).scale(margins)
    assert dp.m.make_laplace(numbers, dp.l1_distance(T="i64"), scale=scale).map(margins) <= epsilon
    delta = 1e-6
    deviation = Mechanism("gaussian", epsilon, delta).scale(margins)
    gaussian = dp.m.make_gaussian(numbers, dp.l2_distance(T="f64"), scale=deviation)
    length = np.nextafter(np.sqrt(margins), np.inf)
    assert dp.c.make_zCDP_to_approxDP(gaussian).map(length).epsilon(delta) <= epsilon


@pytest.mark.parametrize(("margins", "epsilon", "delta"), [(1, 1.0, 1e-6), (28, 0.3, 1e-9)])
def test_gaussian_noise_follows_its_law_and_keeps_epsilon_and_delta(margins, epsilon, delta):
    """The real mechanism against the discrete Gaussian, and its (ε, δ) against the exact privacy
    curve of that law."""
    n, deviation = 20_000, gaussian_deviation(margins, epsilon, delta)
    support = np.arange(-int(12 * deviation) - 5, int(12 * deviation) + 6)
    law = np.exp(-(support**2) / (2 * deviation**2))
    law /= law.sum()
    noise = Mechanism("gaussian", epsilon, delta).release(
        np.zeros(n, np.int64), margins, system_bits
    )
    edges = np.unique(np.searchsorted(np.cumsum(law), np.linspace(0.02, 0.98, 30)))
    expected = n * np.diff(np.concatenate(([0.0], np.cumsum(law)[edges], [1.0])))
    observed = np.bincount(
        np.searchsorted(support[edges], noise, side="left"), minlength=len(expected)
    )
    assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM
    # One margin: δ(ε) by its definition, the sum of what one side exceeds exp(ε) times the other.
    if margins == 1:
        moved = np.interp(support, support + 1, law, left=0.0, right=0.0)
        assert np.maximum(law - np.exp(epsilon) * moved, 0).sum() <= delta
    # As much noise as the formula of Bun and Steinke requires, and no more.
    rho = margins / (2 * deviation**2)
    assert rho + 2 * np.sqrt(rho * np.log(1 / delta)) == pytest.approx(epsilon, rel=1e-9)
    assert rho + 2 * np.sqrt(rho * np.log(1 / delta)) <= epsilon


def test_gaussian_noise_by_option():
    made = synthesize_records(
        small(), epsilon=1.0, noise="gaussian", delta=1e-6, domains_from_data=True
    )
    assert made.report["noise"]["scale"] == gaussian_deviation(3, 1.0, 1e-6)
    assert made.report["noise"] == {
        "law": "discrete Gaussian",
        "scale": made.report["noise"]["scale"],
    }
    assert (made.report["delta"], made.report["private"]) == (1e-6, True)
    assert "(1, 1e-06)-differentially private" in made.report["statement"]
    # With this number of margins Gaussian noise is the smaller one.
    assert gaussian_deviation(300, 1.0, 1e-6) < np.sqrt(2) * noise_scale(300, 1.0)
    wrong = [
        {"noise": "gaussian"},
        {"noise": "gaussian", "delta": 0.01},
        {"delta": 1e-6},
        {"noise": "uniform"},
    ]
    for asked in (*wrong, {"noise": "gaussian", "delta": 1e-6, "epsilon": None}):
        with pytest.raises(ParameterError, match=r"noise|delta"):
            synthesize_records(small(), **{"epsilon": 1.0, "domains_from_data": True, **asked})


def test_published_ordering_of_risk_and_utility():
    """Tables 14 to 18: less noise, more replicated uniques and better propensity."""
    table = survey()
    risk, utility = [], []
    for epsilon in (0.2, 0.6, 2.0, None):
        # Repeatable noise of the same law, so that the test cannot fail by chance.
        seeds = [{"seed": i} if epsilon is None else {"unsafe_test_seed": i} for i in range(4)]
        runs = [
            synthesize_records(table, epsilon=epsilon, domains_from_data=True, **seed).table
            for seed in seeds
        ]
        pairs = [pair_tables(table, s, variables=table.column_names) for s in runs]
        risk.append(np.mean([replicated_uniques(pair)["ru_of_unique"] for pair in pairs]))
        utility.append(np.mean([propensity_by_pairs(pair) for pair in pairs]))
    assert risk == sorted(risk)
    assert utility == sorted(utility, reverse=True)
    assert 0.5 < utility[-1] < 1.6


def test_categories_must_be_declared_with_epsilon():
    table = pa.table({"a": ["x", "rare-illness", None], "b": [1, 2, 2]})
    with pytest.raises(ParameterError, match="not declared"):
        synthesize_records(table, epsilon=1.0)
    made = synthesize_records(
        table,
        epsilon=1.0,
        domains={"a": ["x", "rare-illness", "z", None], "b": [1, 2, 3]},
        n_records=50,
    )
    assert made.report["categories_read_from_the_data"] == []
    undeclared = synthesize_records(
        small(), epsilon=1.0, domains={"a": None}, domains_from_data=True
    )
    assert undeclared.report["categories_read_from_the_data"] == small().column_names
    assert made.report["n_cells"] == 12
    assert made.report["n_records"] == made.table.num_rows == 50
    assert "declared beforehand" in made.report["statement"]
    assert set(made.table["a"].to_pylist()) <= {"x", "rare-illness", "z", None}
    assert made.table.schema.field("b").type == pa.int64()
    for domains, message in (
        ({"a": ["x", None], "b": [1, 2]}, "1 records have a value outside"),
        ({"a": ["x", "rare-illness"], "b": [1, 2]}, "1 records have no value"),
        ({"a": ["x", "rare-illness", None], "b": ["one"]}, "not of its type"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            synthesize_records(table, epsilon=1.0, domains=domains)
        assert "rare" not in str(caught.value)
    with pytest.raises(ParameterError, match="twice"):
        synthesize_records(
            table, epsilon=1.0, domains={"a": ["x", "x", "rare-illness", None], "b": [1, 2]}
        )


def test_shape_of_the_noise_does_not_depend_on_the_data():
    """Declared but empty categories get noise too; else their absence would show."""
    table = pa.table({"a": ["x"] * 100, "b": ["u"] * 100})
    made = [
        synthesize_records(
            table, epsilon=0.1, domains={"a": ["x", "y"], "b": ["u", "v"]}, n_records=2000
        ).table
        for _ in range(15)
    ]
    assert any("y" in m["a"].to_pylist() for m in made)


def test_bins():
    table = pa.table({"age": [0, 17, 18, 65, None], "sex": list("mfmfm")})
    values, codes = code_variable(table, "age", bins={"age": [0, 18, 65, None]})
    assert values.to_pylist() == ["[0, 18)", "[18, 65]", None]
    assert codes.tolist() == [0, 0, 1, 1, 2]
    with pytest.raises(DataError, match="1 records have a value outside"):
        code_variable(table, "age", bins={"age": [0, 18, 60, None]})
    with pytest.raises(DataError, match="1 records have no value"):
        code_variable(table, "age", bins={"age": [0, 18, 65]})
    for edges in ([1], [2, 1], [1, 1]):
        with pytest.raises(ParameterError, match="edges"):
            code_variable(table, "age", bins={"age": edges})
    with pytest.raises(DataError, match="only numbers"):
        code_variable(table, "sex", bins={"sex": [0, 1]})
    with pytest.raises(ParameterError, match="both"):
        code_variable(table, "age", bins={"age": [0, 70]}, domains={"age": [1]})


def test_number_of_records_comes_from_the_noisy_margins():
    table = small(5000)
    totals = [
        synthesize_records(table, epsilon=1.0, domains_from_data=True).report["n_records"]
        for _ in range(5)
    ]
    assert len(set(totals)) > 1
    assert all(abs(n - 5000) < 150 for n in totals)
    assert (
        synthesize_records(small(1), epsilon=0.01, domains_from_data=True).report["n_records"] >= 1
    )


def test_prior_count_moves_empty_cells():
    table = pa.table({"a": ["x"] * 10, "b": ["u"] * 10})
    domains = {"a": ["x", "y"], "b": ["u", "v"]}
    bare = synthesize_records(table, epsilon=None, domains=domains)
    assert bare.fitted.margin((0, 1)).ravel().tolist() == [1, 0, 0, 0]
    smoothed = synthesize_records(table, epsilon=None, domains=domains, prior_count=2)
    assert smoothed.fitted.margin((0, 1)).ravel() == pytest.approx(
        np.array([10.5, 0.5, 0.5, 0.5]) / 12
    )


def test_a_junction_tree_gives_what_the_full_table_gives():
    table = small(500)
    names = ("a", "b", "c")
    chain = synthesize_records(table, epsilon=None, margins=[("a", "b"), ("b", "c")])
    assert sorted(chain.fitted.tree.cliques) == [(0, 1), (1, 2)]
    full = np.full((3, 4, 3), 1 / 36)
    ab = np.zeros((3, 4))
    np.add.at(ab, (table["a"].to_numpy(), table["b"].to_numpy()), 1 / 500)
    bc = np.zeros((4, 3))
    np.add.at(bc, (table["b"].to_numpy(), table["c"].to_numpy()), 1 / 500)
    for _ in range(50):
        full *= np.divide(ab, full.sum(2), out=np.zeros_like(ab), where=full.sum(2) > 0)[:, :, None]
        full *= np.divide(bc, full.sum(0), out=np.zeros_like(bc), where=full.sum(0) > 0)[None]
    assert chain.fitted.margin((0, 1)) == pytest.approx(full.sum(2), abs=1e-12)
    assert chain.fitted.margin((1, 2)) == pytest.approx(full.sum(0), abs=1e-12)
    # The joint distribution too, by sampling: a and c are tied through b alone.
    drawn = chain.fitted.sample(200_000, np.random.default_rng(0))
    found = np.bincount(np.ravel_multi_index(drawn.T, full.shape), minlength=36) / 200_000
    assert np.abs(found - full.ravel()).max() < 0.005
    assert names == tuple(chain.table.column_names)


def test_independent_parts_and_loops():
    shape = (2, 3, 2, 3, 2)
    margins = [(0, 1), (1, 2), (0, 2), (3,), (4,)]
    tree = build_junction_tree(shape, margins)
    assert sorted(tree.cliques) == [(0, 1, 2), (3,), (4,)]
    generator = np.random.default_rng(2)
    joint = generator.random(shape)
    joint /= joint.sum()
    model = JunctionModel(tree)
    targets = [joint.sum(axis=tuple(i for i in range(5) if i not in m)) for m in margins]
    gap, _, converged = ipf.fit(model, margins, targets, settled=0, tolerance=1e-12, max_cycles=500)
    assert converged
    assert gap < 1e-11
    drawn = model.sample(50_000, generator)
    assert np.abs(np.bincount(drawn[:, 3]) / 50_000 - targets[3]).max() < 0.01
    # A ring of four needs a chord.
    ring = build_junction_tree((5, 5, 5, 5), [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert max(ring.cells()) == 125


def test_too_large_a_table_is_refused_and_the_message_helps():
    generator = np.random.default_rng(0)
    table = pa.table({name: generator.integers(0, 40, 300) for name in "abcdef"})
    with pytest.raises(ParameterError, match="at most 10,000,000") as caught:
        synthesize_records(table, epsilon=None)
    hint = str(caught.value).split("drop the margins ")[1].rstrip(".")
    dropped = {frozenset(m.split("*")) for m in hint.split(", ")}
    kept = [m for m in combinations("abcdef", 2) if frozenset(m) not in dropped]
    made = synthesize_records(
        table, epsilon=None, variables=list("abcdef"), margins=kept, max_cycles=2
    )
    assert made.table.num_rows == 300
    assert len(kept) >= 5
    with pytest.raises(ParameterError, match="drop the margins a\\*b"):
        synthesize_records(table, epsilon=None, margins=[("a", "b")], max_cells=1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "above 0"),
        ({"epsilon": float("nan")}, "above 0"),
        ({"epsilon": None, "prior_count": -1}, "at least 0"),
        ({"epsilon": None, "n_records": 0}, "at least 1"),
        ({"epsilon": None, "margins": [("a", "a")]}, "twice"),
        ({"epsilon": None, "margins": [("a", "b"), ("b", "a")]}, "twice"),
        ({"epsilon": None, "variables": ["a"], "margins": [("a", "b")]}, "not a variable"),
        (
            {"epsilon": None, "variables": ["a", "b", "c"], "margins": [("a", "b")]},
            "in no margin: c",
        ),
        ({"epsilon": None, "variables": ["a", "a"]}, "twice"),
        ({"epsilon": None, "variables": []}, "No variable"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ParameterError, match=message):
        synthesize_records(small(), **options)


def test_one_variable():
    made = synthesize_records(small(), epsilon=None, variables=["a"], seed=0)
    assert made.report["margins"] == [["a"]]
    assert made.report["fit"]["gap"] < 1e-12


def test_many_variables_are_refused_quickly_with_margins_that_fit():
    table = pa.table({f"v{i}": np.arange(60) % 10 for i in range(25)})
    with pytest.raises(ParameterError, match="keep only") as caught:
        synthesize_records(table, epsilon=None)
    kept = [m.split("*") for m in str(caught.value).split("keep only ")[1].rstrip(".").split(", ")]
    assert {v for m in kept for v in m} == set(table.column_names)
    tree = build_junction_tree((10,) * 25, [tuple(sorted(int(v[1:]) for v in m)) for m in kept])
    assert max(tree.cells()) <= ipf.MAX_CELLS


def test_a_large_epsilon_is_refused_and_a_weak_one_warned_of():
    table = pa.table({"a": ["x", "y"] * 20, "b": ["u", "u", "v", "v"] * 10})
    for bad in (20.1, 1e6, float("inf"), -1):
        with pytest.raises(ParameterError, match="epsilon must be"):
            synthesize_records(table, epsilon=bad, domains_from_data=True)
    with pytest.warns(WeakPromiseWarning):
        made = synthesize_records(table, epsilon=11, domains_from_data=True)
    assert "Weak: ε = 11" in made.report["statement"]


def test_noise_without_end_is_refused_whatever_the_data():
    table = pa.table({"a": ["x", "y"] * 20})
    with pytest.raises(ParameterError, match="exceeds the counts"):
        synthesize_records(table, epsilon=1e-7, domains_from_data=True)
    with pytest.raises(ParameterError, match="standard deviation"):
        synthesize_records(table, epsilon=1e-6, domains_from_data=True)
    assert (
        synthesize_records(table, epsilon=1e-6, n_records=40, domains_from_data=True).report[
            "n_records"
        ]
        == 40
    )
