from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from flowveil.core.errors import MissingExtraError, OutputError, ParameterError
from flowveil.tabular import utility
from flowveil.tabular.compare import CompareGrid, Roles, compare_records
from flowveil.tabular.domains import decide_kinds
from flowveil.tabular.records import Attribute, read_records
from reference.tabular_survey import FREQUENCIES, QUASI_IDENTIFIERS, SENSITIVE, survey

#: Plain names: the survey's codes are whole numbers, as in the thesis's file.
ROLES = Roles(QUASI_IDENTIFIERS, sensitive=SENSITIVE, direct_identifiers=[], choose="distinct")
ONE = CompareGrid(ks=(5,), epsilons=(1.0,), priors=(0.1,), repeats=1)


@pytest.fixture(scope="module")
def comparison():
    grid = CompareGrid(ks=(2, 10), epsilons=(0.5, 2.0), priors=(0.0, 1.0), repeats=2)
    return compare_records(survey(), ROLES, grid=grid)


def test_tables(comparison):
    assert comparison.tables["relaxed"]["k"].to_pylist() == [2, 10]
    assert all(comparison.tables["strict"]["k_anonymous"].to_pylist())
    assert all(comparison.tables["relaxed"]["k_anonymous"].to_pylist())
    assert comparison.tables["uniques"]["n_records"].to_pylist() == [3146]
    assert comparison.tables["uniques"]["n_cells"].to_pylist() == [2688]
    settings = list(
        zip(
            *(comparison.tables["synthesis"][c].to_pylist() for c in ("epsilon", "prior_count")),
            strict=True,
        )
    )
    assert settings == [(e, p) for e in (None, 0.5, 2.0) for p in (0.0, 1.0)]
    score = dict(zip(settings, comparison.tables["synthesis"]["s_pmse"].to_pylist(), strict=True))
    assert score[None, 0.0] < score[2.0, 0.0] < score[0.5, 0.0]
    tests = list(
        zip(
            *(comparison.tables["prediction"][c].to_pylist() for c in ("trained_on", "tested_on")),
            strict=True,
        )
    )
    assert tests == [
        *((name, "original") for name in ("original", "mondrian", "ipf")),
        *((name, "its release") for name in ("mondrian", "ipf")),
    ]
    assert all(
        0.4 < b < 0.8 for b in comparison.tables["prediction"]["balanced_accuracy"].to_pylist()
    )
    gender = next(
        r for r in comparison.tables["coefficients"].to_pylist() if r["term"] == "Gender=2"
    )
    for method in ("original", "mondrian", "ipf"):
        assert gender[f"{method}_low"] < gender[f"{method}_estimate"] < gender[f"{method}_high"]


def test_codes_are_categories_in_every_variant_so_that_coefficients_line_up(comparison):
    rows = {row["term"]: row for row in comparison.tables["coefficients"].to_pylist()}
    dummies = [
        f"{name}={i}" for name in QUASI_IDENTIFIERS for i in range(2, len(FREQUENCIES[name]) + 1)
    ]
    assert list(rows) == ["(intercept)", *dummies]
    assert all(rows[term]["original_estimate"] is not None for term in dummies)
    assert set(comparison.parameters["kinds"].values()) == {"categories"}
    assert len(comparison.notes) == 1
    assert ", ".join(QUASI_IDENTIFIERS) in comparison.notes[0]


def test_frequencies_are_table_24(comparison):
    counted = {
        (r["variable"], r["level"]): r["frequency"]
        for r in comparison.tables["frequencies"].to_pylist()
    }
    assert counted == {
        (v, str(i + 1)): n for v, of in FREQUENCIES.items() for i, n in enumerate(of)
    }
    gender = comparison.tables["frequencies"].to_pylist()[0]
    assert round(gender["percentage"], 2) == 46.69


def test_published_values_are_the_levels_of_table_21(comparison):
    terms = comparison.tables["published_values"]["term"].to_pylist()
    assert "Gender=1" in terms
    assert any(term.startswith("Education=[") for term in terms)


def test_numbers_are_numbers_in_every_variant():
    table = survey().append_column("age", pa.array(18 + np.arange(3146) % 60))
    roles = Roles(["Gender", "age"], sensitive=SENSITIVE, direct_identifiers=QUASI_IDENTIFIERS[1:])
    declared = {"bins": {"age": [0, 30, 50, 90]}, "domains": {"Gender": [1, 2, 3]}}
    comparison = compare_records(table, roles, grid=ONE, fit=declared)
    assert comparison.tables["coefficients"]["term"].to_pylist() == [
        "(intercept)",
        "Gender=2",
        "Gender=3",
        "age",
    ]
    assert comparison.parameters["kinds"] == {"Gender": "categories", "age": "numeric"}
    assert not any("age" in note for note in comparison.notes)
    without = decide_kinds(table, [Attribute("age")])
    assert "declare bins (--set bins=FILE)" in without.notes[0]


@pytest.mark.parametrize(
    ("values", "attribute", "declared", "kind"),
    [
        ([3, 1, 2], Attribute("c"), {}, "ordered"),
        ([3.0, 1.0, None], Attribute("c"), {}, "ordered"),
        ([0.5, 1.0, 2.0], Attribute("c"), {}, None),
        (list(range(21)), Attribute("c"), {}, None),
        (list(range(21)), Attribute("c"), {"domains": {"c": list(range(30))}}, "ordered"),
        ([3, 1, 2], Attribute("c"), {"bins": {"c": [0, 2, 4]}}, None),
        ([3, 1, 2], Attribute("c", "numeric"), {}, "numeric"),
        ([3, 1, 2], Attribute("c", grid=1), {}, None),
        (["a", "b"], Attribute("c"), {"domains": {"c": ["a", "b"]}}, None),
    ],
)
def test_one_decision_for_each_column(values, attribute, declared, kind):
    kinds = decide_kinds(pa.table({"c": values}), [attribute], **declared)
    assert kinds.attributes[0].kind == kind
    assert kinds.numeric == (() if kind == "ordered" or isinstance(values[0], str) else ("c",))


def test_written_folder(comparison, tmp_path):
    target = tmp_path / "result"
    comparison.write(target)
    names = {p.name for p in target.iterdir()}
    tables = {f"{name}.csv" for name in comparison.tables}
    assert names == tables | {"strict.png", "relaxed.png", "synthesis.png", "comparison.json"}
    assert (
        read_records(target / "relaxed.csv")["c_dm"].to_pylist()
        == comparison.tables["relaxed"]["c_dm"].to_pylist()
    )
    for figure in ("strict.png", "relaxed.png", "synthesis.png"):
        assert (target / figure).read_bytes().startswith(b"\x89PNG")
    assert "not for publication" in json.loads((target / "comparison.json").read_text())["warning"]
    first = (target / "relaxed.png").read_bytes()
    comparison.write(target)
    assert (target / "relaxed.png").read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["result"]


def test_other_folders_are_left_alone(comparison, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="something else"):
        comparison.write(tmp_path / "mine")
    with pytest.raises(OutputError, match="is a file"):
        comparison.write(tmp_path / "mine" / "thesis.txt")
    with pytest.raises(OutputError):
        comparison.write(tmp_path / "mine" / "thesis.txt" / "below")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_without_matplotlib_nothing_is_left_behind(comparison, tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(utility.importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"flowveil\[tabular\]"):
        comparison.write(tmp_path / "result")
    assert list(tmp_path.iterdir()) == []


def test_bins_of_ordered_columns_are_categories_in_every_variant():
    names = [Attribute(q, "ordered") for q in QUASI_IDENTIFIERS]
    roles = Roles(names, sensitive=SENSITIVE, direct_identifiers=[])
    comparison = compare_records(
        survey(), roles, grid=ONE, fit={"bins": {"Education": [1, 4, 6, 7]}}
    )
    assert comparison.tables["uniques"]["n_cells"].to_pylist() == [2688 // 7 * 3]
    row = next(
        r for r in comparison.tables["coefficients"].to_pylist() if r["term"] == "Education=[4, 6)"
    )
    assert None not in (row["original_estimate"], row["mondrian_estimate"], row["ipf_estimate"])
    with pytest.raises(ParameterError, match="At least one"):
        CompareGrid(repeats=0)


@pytest.mark.slow
def test_a_comparison_checks_the_regression_where_asked(tmp_path):
    fit = {"noise": "gaussian", "delta": 1e-6}
    found = compare_records(survey(), ROLES, grid=ONE, fit=fit, diagnostics=True)
    found.write(tmp_path / "out")
    written = {f.name for f in (tmp_path / "out").iterdir()}
    assert {
        "associations.csv",
        "inflation.csv",
        "influence.csv",
        "cooks_distance.png",
        "leverage.png",
    } <= written
    models = {"original", "mondrian", "ipf", "mondrian, published values"}
    assert set(found.tables["inflation"]["trained_on"].to_pylist()) == models
    assert found.parameters["noise"] == "gaussian"
    assert {"original_error", "mondrian_z", "ipf_p"} <= set(
        found.tables["coefficients"].column_names
    )
