"""Standard errors, tests and checks of assumptions, as the medical thesis has them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from flowveil.tabular.compare import Grid, Margins, Roles, compare_records
from flowveil.tabular.diagnostics import Trained, diagnose, inflation_factors
from flowveil.tabular.records import Attribute, encode
from flowveil.tabular.utility import Design, effects


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
    design = Design.from_columns(columns)
    outcome = (np.array(table["ill"].to_pylist()) == "yes").astype(float)
    return Trained(design, design.rows_of_codes([c.codes for c in columns]), outcome)


def test_errors_z_and_p_are_those_of_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    trained = model()
    fitted = sm.Logit(trained.outcome, trained.rows).fit(disp=0)
    found = effects(trained.design, trained.rows, trained.outcome)
    for name, theirs in (("estimate", fitted.params), ("error", fitted.bse), ("z", fitted.tvalues)):
        assert [getattr(e, name) for e in found] == pytest.approx(list(theirs), rel=1e-4)
    assert [e.p for e in found] == pytest.approx(list(fitted.pvalues), rel=1e-3)


def test_the_factor_of_a_single_coefficient_is_the_usual_one_and_associated_variables_have_larger_ones():
    pytest.importorskip("statsmodels")
    from statsmodels.stats.outliers_influence import variance_inflation_factor

    trained = model()
    rows = {row["variable"]: row for row in inflation_factors("original", trained)}
    assert {name: row["df"] for name, row in rows.items()} == {"sex": 1, "job": 2, "pay": 2}
    # Not the same number: a logistic model weighs records by how much they say.
    assert rows["sex"]["gvif"] == pytest.approx(variance_inflation_factor(trained.rows, 1), rel=0.05)
    assert rows["job"]["gvif"] > 2 > 1.1 > rows["sex"]["gvif"] >= 1
    assert rows["job"]["gvif_scaled"] == pytest.approx(rows["job"]["gvif"] ** 0.25)


def test_associations_and_influence_by_hand():
    stats = pytest.importorskip("scipy.stats")
    pytest.importorskip("statsmodels")
    trained, table = model(), patients()
    found = diagnose(table, ["sex", "job", "ill"], {"original": trained})
    pairs = {(r["variable_1"], r["variable_2"]): r for r in found.associations.to_pylist()}
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
    assert found.leverage.sum() == pytest.approx(p)
    assert found.thresholds == pytest.approx({"cooks_distance": 4 / (n - (p - 1) - 2), "leverage": 2 * p / n})
    assert (found.cooks_distance >= 0).all()


def test_a_comparison_writes_them_where_asked(tmp_path):
    pytest.importorskip("statsmodels")
    grid = Grid(ks=[5], epsilons=[1.0], priors=[0.1], repeats=1, classifier_k=5)
    roles = Roles(["sex", "job", "pay"], sensitive="ill", direct_identifiers=[])
    fit = Margins(noise="gaussian", delta=1e-6)
    found = compare_records(patients(), roles, grid=grid, fit=fit, diagnostics=True)
    found.write(tmp_path / "out")
    written = {f.name for f in (tmp_path / "out").iterdir()}
    assert {"associations.csv", "inflation.csv", "influence.csv", "cooks_distance.png", "leverage.png"} <= written
    assert set(found.diagnostics.inflation["trained_on"].to_pylist()) == {
        "original",
        "mondrian",
        "ipf",
        "mondrian, published values",
    }
    assert {"original_error", "mondrian_z", "ipf_p"} <= set(found.coefficients.column_names)
