from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from flowveil.errors import DataError, ParameterError
from flowveil.tabular.mondrian import anonymize_records
from flowveil.tabular.records import Attribute
from flowveil.tabular.risk import discernibility, replicated_uniques
from flowveil.tabular.utility import (
    Design,
    cross_validate,
    effects,
    fit_logit,
    margin_distance,
    outcome_of,
    pair_release,
    pair_tables,
    propensity_by_pairs,
    propensity_by_table,
)
from reference.tabular_survey import QUASI_IDENTIFIERS, SENSITIVE, survey


def by_hand(n=600, seed=3):
    generator = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), generator.integers(0, 2, n), generator.integers(0, 3, n)]).astype(float)
    p = 1 / (1 + np.exp(-(x @ [0.3, -1.0, 0.5])))
    return x, (generator.random(n) < p).astype(float)


def test_logit_agrees_with_scikit_learn_and_its_errors_with_the_information():
    linear = pytest.importorskip("sklearn.linear_model")
    x, y = by_hand()
    ours = fit_logit(x, y, 1 - y)
    theirs = linear.LogisticRegression(C=1e10, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y)
    assert ours.converged
    assert ours.coefficients == pytest.approx(theirs.coef_[0], abs=1e-4)
    assert ours.probability(x) == pytest.approx(theirs.predict_proba(x)[:, 1], abs=1e-5)
    p = ours.probability(x)
    information = (x * (p * (1 - p))[:, None]).T @ x
    assert ours.errors == pytest.approx(np.sqrt(np.diag(np.linalg.inv(information))), rel=1e-4)


def test_logit_says_what_it_cannot_know():
    x, y = by_hand()
    doubled = fit_logit(np.column_stack([x, x[:, 1], np.zeros(len(x))]), y, 1 - y)
    assert doubled.rank == 3
    assert np.isnan(doubled.errors[3:]).all()
    assert doubled.coefficients[:3] == pytest.approx(fit_logit(x, y, 1 - y).coefficients)
    # A category whose records all have one outcome: the effect is unbounded, and the error says so.
    separated = np.column_stack([np.ones(6), [0, 0, 0, 0, 1, 1]])
    outcome = np.array([0.0, 1, 0, 1, 1, 1])
    model = fit_logit(separated, outcome, 1 - outcome)
    assert model.errors[1] > 100


def test_propensity_by_table_by_hand():
    original = pa.table({"a": ["x"] * 6 + ["y"] * 2})
    synthetic = pa.table({"a": ["x"] * 2 + ["y"] * 6})
    found = propensity_by_table(pair_tables(original, synthetic, variables=["a"]))
    assert found.pmse == pytest.approx((8 * 0.25**2 + 8 * 0.25**2) / 16)
    assert found.degrees == 1
    assert found.standardized == pytest.approx(found.pmse / (0.5**3 / 16))
    same = propensity_by_table(pair_tables(original, original, variables=["a"]))
    assert same.pmse == 0
    one = pa.table({"a": ["x"] * 4})
    assert propensity_by_table(pair_tables(one, one, variables=["a"])).standardized == 0


def test_standardised_propensity_is_one_for_a_correct_synthesis():
    """A sample drawn from the original's own distribution, by table and by logistic regression."""
    table = survey()
    generator = np.random.default_rng(8)
    found = []
    for _ in range(30):
        drawn = pa.table({"SocialClass": generator.choice(table["SocialClass"].to_numpy(), table.num_rows)})
        pair = pair_tables(table, drawn, variables=["SocialClass"])
        found.append(propensity_by_table(pair).standardized)
    assert 0.6 < np.mean(found) < 1.5


def test_margin_distance_by_hand():
    original = pa.table({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]})
    synthetic = pa.table({"a": [0, 0, 1, 1], "b": [0, 0, 1, 1]})
    pair = pair_tables(original, synthetic, variables=["a", "b"])
    assert margin_distance(pair, ways=1).largest == 0
    assert margin_distance(pair, ways=2).mean == pytest.approx(0.5)
    with pytest.raises(ParameterError, match="1 to 2"):
        margin_distance(pair, ways=3)


def test_replicated_uniques_by_hand():
    original = pa.table({"a": [1, 1, 2, 3, None], "b": ["x", "x", "x", "y", "y"]})
    synthetic = pa.table({"a": [1, 2, 3, 3, None, 4], "b": ["x", "x", "y", "y", "y", "y"]})
    found = replicated_uniques(original, synthetic, variables=["a", "b"])
    # Unique in the original: (2, x), (3, y), (missing, y); of these in the synthesis: (2, x), (missing, y).
    assert found.unique == pytest.approx(60)
    assert found.ru == pytest.approx(40)
    assert found.ru_of_unique == pytest.approx(200 / 3)
    assert found.n_cells == 8
    assert found.empty_cells == pytest.approx(50)
    assert replicated_uniques(original, original, variables=["a", "b"]).ru_of_unique == 100
    assert discernibility(np.array([2, 1, 1, 1])) == 7


def test_a_release_with_k_one_loses_nothing():
    table = survey()
    release = anonymize_records(
        table,
        quasi_identifiers=[Attribute(q, "ordered") for q in QUASI_IDENTIFIERS],
        sensitive=[SENSITIVE],
        direct_identifiers=[],
        k=1,
        strict=True,
    )
    pair = pair_release(release, table)
    assert propensity_by_pairs(pair) == 0
    assert margin_distance(pair, ways=3).largest == 0
    columns = [r.column for r in release.regions]
    design = Design.from_columns(columns)
    assert np.array_equal(design.rows_of_release(release), design.rows_of_codes([c.codes for c in columns]))


def test_draws_stay_inside_the_published_regions():
    table = pa.table({"n": [1, 2, 9, None, None, 5], "c": list("aabbcc")})
    release = anonymize_records(table, quasi_identifiers=["n", "c"], direct_identifiers=[], k=3)
    for seed in range(20):
        for region, drawn in zip(release.regions, pair_release(release, table, seed=seed).other, strict=True):
            assert np.all(region.shares()[release.class_of_record, drawn] > 0)


def test_classifier_by_hand():
    """A perfect predictor, its opposite, and one that knows nothing."""
    generator = np.random.default_rng(0)
    flag = generator.integers(0, 2, 400).astype(float)
    rows = np.column_stack([np.ones(400), flag])
    perfect = cross_validate(rows, flag, rows, flag, linked=True)
    assert (perfect.sensitivity, perfect.specificity, perfect.balanced_accuracy) == (1, 1, 1)
    opposite = cross_validate(rows, flag, rows, 1 - flag, linked=False)
    assert opposite.balanced_accuracy == 0
    blind = cross_validate(rows, flag, rows[:, :1] * [1, 0], np.r_[np.ones(300), np.zeros(100)], linked=False)
    assert (blind.sensitivity, blind.specificity) == (1, 0)


def test_effects_find_what_is_there_and_numbers_enter_as_numbers():
    generator = np.random.default_rng(1)
    n = 4000
    age = generator.integers(20, 80, n)
    sex = generator.choice(["f", "m"], n)
    p = 1 / (1 + np.exp(-(0.8 * (sex == "m") - 0.4)))
    table = pa.table({"age": age, "sex": sex, "ill": np.where(generator.random(n) < p, "a-yes", "no")})
    pair = pair_tables(table, table, variables=["age", "sex"], numeric=["age"])
    design = Design.from_columns(pair.columns)
    assert design.terms == ("(intercept)", "age", "sex=m")
    outcome, positive = outcome_of(table, "ill")
    assert positive == "a-yes"
    found = {e.term: e for e in effects(design, design.rows_of_codes([c.codes for c in pair.columns]), outcome)}
    assert found["sex=m"].low < 0.8 < found["sex=m"].high
    assert found["age"].low < 0 < found["age"].high
    with pytest.raises(ParameterError, match="needs two"):
        outcome_of(table, "age")
    with pytest.raises(DataError, match="does not occur"):
        outcome_of(table, "ill", "maybe")
