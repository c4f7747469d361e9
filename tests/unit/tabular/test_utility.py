from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from flowveil.core.errors import DataError, ParameterError
from flowveil.tabular.mondrian import anonymize_records
from flowveil.tabular.records import Attribute, encode
from flowveil.tabular.risk import discernibility
from flowveil.tabular.utility import (
    Trained,
    cross_validate,
    diagnose,
    effects,
    fit_logit,
    inflation_factors,
    margin_distance,
    outcome_of,
    pair_release,
    pair_tables,
    propensity,
    propensity_by_pairs,
    replicated_uniques,
    rows_of_codes,
    rows_of_release,
)
from reference.tabular_survey import QUASI_IDENTIFIERS, SENSITIVE, survey


def by_hand(n=600, seed=3):
    generator = np.random.default_rng(seed)
    x = np.column_stack(
        [np.ones(n), generator.integers(0, 2, n), generator.integers(0, 3, n)]
    ).astype(float)
    p = 1 / (1 + np.exp(-(x @ [0.3, -1.0, 0.5])))
    return x, (generator.random(n) < p).astype(float)


def test_logit_agrees_with_scikit_learn():
    linear = pytest.importorskip("sklearn.linear_model")
    x, y = by_hand()
    ours, free = fit_logit(x, y)
    theirs = linear.LogisticRegression(C=1e10, fit_intercept=False, tol=1e-10, max_iter=1000).fit(
        x, y
    )
    assert ours.params == pytest.approx(theirs.coef_[0], abs=1e-4)
    assert free.all()


def test_logit_says_what_it_cannot_know():
    x, y = by_hand()
    doubled, free = fit_logit(np.column_stack([x, x[:, 1], np.zeros(len(x))]), y)
    assert free.tolist() == [True, True, True, False, False]
    assert doubled.params == pytest.approx(fit_logit(x, y)[0].params)
    # A category whose records all have one outcome: the effect is unbounded, and the error says so.
    separated = np.column_stack([np.ones(6), [0, 0, 0, 0, 1, 1]])
    model, _ = fit_logit(separated, np.array([0.0, 1, 0, 1, 1, 1]))
    assert model.bse[1] > 100


def test_propensity_by_hand():
    original = pa.table({"a": ["x"] * 6 + ["y"] * 2})
    synthetic = pa.table({"a": ["x"] * 2 + ["y"] * 6})
    pmse, standardized = propensity(pair_tables(original, synthetic, variables=["a"]), [0])
    assert pmse == pytest.approx((8 * 0.25**2 + 8 * 0.25**2) / 16)
    assert standardized == pytest.approx(pmse / (0.5**3 / 16))
    assert propensity(pair_tables(original, original, variables=["a"]), [0]) == (0, 0)
    one = pa.table({"a": ["x"] * 4})
    assert propensity(pair_tables(one, one, variables=["a"]), [0]) == (0, 0)


def test_standardised_propensity_is_one_for_a_correct_synthesis():
    """A sample drawn from the original's own distribution, by table and by logistic regression."""
    table = survey()
    generator = np.random.default_rng(8)
    found = []
    for _ in range(30):
        drawn = pa.table(
            {"SocialClass": generator.choice(table["SocialClass"].to_numpy(), table.num_rows)}
        )
        pair = pair_tables(table, drawn, variables=["SocialClass"])
        found.append(propensity(pair, [0])[1])
    assert 0.6 < np.mean(found) < 1.5


def test_margin_distance_by_hand():
    original = pa.table({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]})
    synthetic = pa.table({"a": [0, 0, 1, 1], "b": [0, 0, 1, 1]})
    pair = pair_tables(original, synthetic, variables=["a", "b"])
    assert margin_distance(pair, ways=1) == 0
    assert margin_distance(pair, ways=2) == pytest.approx(0.5)
    with pytest.raises(ParameterError, match="1 to 2"):
        margin_distance(pair, ways=3)


def test_replicated_uniques_by_hand():
    original = pa.table({"a": [1, 1, 2, 3, None], "b": ["x", "x", "x", "y", "y"]})
    synthetic = pa.table({"a": [1, 2, 3, 3, None, 4], "b": ["x", "x", "y", "y", "y", "y"]})
    found = replicated_uniques(pair_tables(original, synthetic, variables=["a", "b"]))
    # Unique in the original: (2, x), (3, y), (missing, y); of these in the synthesis: (2, x),
    # (missing, y).
    assert found["unique"] == pytest.approx(60)
    assert found["ru"] == pytest.approx(40)
    assert found["ru_of_unique"] == pytest.approx(200 / 3)
    assert found["n_cells"] == 8
    assert found["empty_cells"] == pytest.approx(50)
    assert (
        replicated_uniques(pair_tables(original, original, variables=["a", "b"]))["ru_of_unique"]
        == 100
    )
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
    assert margin_distance(pair, ways=3) == 0
    columns = [r.column for r in release.regions]
    assert np.array_equal(
        rows_of_release(columns, release), rows_of_codes(columns, [c.codes for c in columns])
    )


def test_draws_stay_inside_the_published_regions():
    table = pa.table({"n": [1, 2, 9, None, None, 5], "c": list("aabbcc")})
    release = anonymize_records(table, quasi_identifiers=["n", "c"], direct_identifiers=[], k=3)
    for seed in range(20):
        for region, drawn in zip(
            release.regions, pair_release(release, table, seed=seed).other, strict=True
        ):
            assert np.all(region.shares()[release.class_of_record, drawn] > 0)


def test_classifier_by_hand():
    """A perfect predictor, its opposite, and one that knows nothing."""
    generator = np.random.default_rng(0)
    flag = generator.integers(0, 2, 400).astype(float)
    rows = np.column_stack([np.ones(400), flag])
    perfect = cross_validate(rows, flag, rows, flag, linked=True)
    assert perfect == {"sensitivity": 1, "specificity": 1, "balanced_accuracy": 1}
    opposite = cross_validate(rows, flag, rows, 1 - flag, linked=False)
    assert opposite["balanced_accuracy"] == 0
    blind = cross_validate(
        rows, flag, rows[:, :1] * [1, 0], np.r_[np.ones(300), np.zeros(100)], linked=False
    )
    assert (blind["sensitivity"], blind["specificity"]) == (1, 0)


def test_effects_find_what_is_there_and_numbers_enter_as_numbers():
    generator = np.random.default_rng(1)
    n = 4000
    age = generator.integers(20, 80, n)
    sex = generator.choice(["f", "m"], n)
    p = 1 / (1 + np.exp(-(0.8 * (sex == "m") - 0.4)))
    table = pa.table(
        {"age": age, "sex": sex, "ill": np.where(generator.random(n) < p, "a-yes", "no")}
    )
    pair = pair_tables(table, table, variables=[Attribute("age", "numeric"), "sex"])
    outcome, positive = outcome_of(table, "ill")
    assert positive == "a-yes"
    trained = Trained(
        pair.columns, rows_of_codes(pair.columns, [c.codes for c in pair.columns]), outcome
    )
    assert trained.terms == ("(intercept)", "age", "sex=m")
    found = {effect["term"]: effect for effect in effects(trained)}
    assert found["sex=m"]["low"] < 0.8 < found["sex=m"]["high"]
    assert found["age"]["low"] < 0 < found["age"]["high"]
    with pytest.raises(ParameterError, match="needs two"):
        outcome_of(table, "age")
    with pytest.raises(DataError, match="does not occur"):
        outcome_of(table, "ill", "maybe")


def patients(n=300, seed=5):
    rng = np.random.default_rng(seed)
    sex, job = rng.integers(0, 2, n), rng.integers(0, 3, n)
    # Pay follows the job, so the two are associated.
    pay = np.where(rng.random(n) < 0.8, job, rng.integers(0, 3, n))
    ill = rng.random(n) < 0.2 + 0.15 * job
    names = {"sex": ("f", "m"), "job": ("none", "part", "full"), "pay": ("low", "middle", "high")}
    codes = {"sex": sex, "job": job, "pay": pay}
    columns = {name: [names[name][i] for i in codes[name]] for name in names}
    return pa.table({**columns, "ill": np.where(ill, "yes", "no")})


def model():
    table = patients()
    columns = [encode(table, Attribute(name, "unordered")) for name in ("sex", "job", "pay")]
    outcome = (np.array(table["ill"].to_pylist()) == "yes").astype(float)
    return Trained(columns, rows_of_codes(columns, [c.codes for c in columns]), outcome)


def test_errors_z_and_p_are_those_of_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    trained = model()
    fitted = sm.Logit(trained.outcome, trained.rows).fit(disp=0)
    found = effects(trained)
    for name, theirs in (("estimate", fitted.params), ("error", fitted.bse), ("z", fitted.tvalues)):
        assert [effect[name] for effect in found] == pytest.approx(list(theirs), rel=1e-4)
    assert [effect["p"] for effect in found] == pytest.approx(list(fitted.pvalues), rel=1e-3)


def test_the_factor_of_a_single_coefficient_is_the_usual_one_and_associated_variables_have_larger_ones():
    pytest.importorskip("statsmodels")
    from statsmodels.stats.outliers_influence import variance_inflation_factor

    trained = model()
    rows = {row["variable"]: row for row in inflation_factors("original", trained)}
    assert {name: row["df"] for name, row in rows.items()} == {"sex": 1, "job": 2, "pay": 2}
    # Not the same number: a logistic model weighs records by how much they say.
    assert rows["sex"]["gvif"] == pytest.approx(
        variance_inflation_factor(trained.rows, 1), rel=0.05
    )
    assert rows["job"]["gvif"] > 2 > 1.1 > rows["sex"]["gvif"] >= 1
    assert rows["job"]["gvif_scaled"] == pytest.approx(rows["job"]["gvif"] ** 0.25)


def test_associations_and_influence_by_hand():
    stats = pytest.importorskip("scipy.stats")
    pytest.importorskip("statsmodels")
    trained, table = model(), patients()
    tables, by_record = diagnose(table, ["sex", "job", "ill"], {"original": trained})
    pairs = {(r["variable_1"], r["variable_2"]): r for r in tables["associations"]}
    counts = np.zeros((2, 2), int)
    for sex, ill in zip(table["sex"].to_pylist(), table["ill"].to_pylist(), strict=True):
        counts[int(sex == "m"), int(ill == "yes")] += 1
    assert pairs["sex", "ill"]["fisher_p"] == pytest.approx(stats.fisher_exact(counts).pvalue)
    assert pairs["sex", "ill"]["fisher"] == "exact"
    assert pairs["job", "ill"]["fisher_p"] < 0.05 < pairs["sex", "job"]["fisher_p"]
    chi2 = stats.chi2_contingency(counts, correction=False).statistic
    assert pairs["sex", "ill"]["cramers_v"] == pytest.approx((chi2 / counts.sum()) ** 0.5)
    # Leverages add up to the number of coefficients; the thresholds are the thesis's.
    n, p = trained.rows.shape
    assert by_record["leverage"].sum() == pytest.approx(p)
    thresholds = {row["measure"]: row["threshold"] for row in tables["influence"]}
    assert thresholds == pytest.approx(
        {"cooks_distance": 4 / (n - (p - 1) - 2), "leverage": 2 * p / n}
    )
    assert (by_record["cooks_distance"] >= 0).all()
