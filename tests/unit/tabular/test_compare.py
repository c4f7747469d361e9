from __future__ import annotations

import json

import pytest

from flowveil.errors import MissingExtraError, OutputError, ParameterError
from flowveil.tabular import figures
from flowveil.tabular.compare import Grid, Margins, Roles, compare_records
from flowveil.tabular.records import Attribute, read_records
from reference.tabular_survey import QUASI_IDENTIFIERS, SENSITIVE, survey

ROLES = Roles([Attribute(q, "ordered") for q in QUASI_IDENTIFIERS], sensitive=SENSITIVE, direct_identifiers=[])


@pytest.fixture(scope="module")
def comparison():
    grid = Grid(ks=(2, 10), epsilons=(0.5, 2.0), priors=(0.0, 1.0), repeats=2)
    return compare_records(survey(), ROLES, grid=grid)


def test_tables(comparison):
    assert comparison.relaxed["k"].to_pylist() == [2, 10]
    assert all(comparison.strict["k_anonymous"].to_pylist())
    assert all(comparison.relaxed["k_anonymous"].to_pylist())
    assert comparison.uniques["n_records"].to_pylist() == [3146]
    assert comparison.uniques["n_cells"].to_pylist() == [2688]
    settings = list(zip(*(comparison.synthesis[c].to_pylist() for c in ("epsilon", "prior_count")), strict=True))
    assert settings == [(e, p) for e in (None, 0.5, 2.0) for p in (0.0, 1.0)]
    score = dict(zip(settings, comparison.synthesis["s_pmse"].to_pylist(), strict=True))
    assert score[None, 0.0] < score[2.0, 0.0] < score[0.5, 0.0]
    assert comparison.prediction["trained_on"].to_pylist() == ["original", "mondrian", "ipf"]
    assert all(0.4 < b < 0.8 for b in comparison.prediction["balanced_accuracy"].to_pylist())
    gender = next(r for r in comparison.coefficients.to_pylist() if r["term"] == "Gender=2")
    for method in ("original", "mondrian", "ipf"):
        assert gender[f"{method}_low"] < gender[f"{method}_estimate"] < gender[f"{method}_high"]


def test_written_folder(comparison, tmp_path):
    target = tmp_path / "result"
    comparison.write(target)
    names = {p.name for p in target.iterdir()}
    tables = {f"{name}.csv" for name in comparison.tables()}
    assert names == tables | {"strict.png", "relaxed.png", "synthesis.png", "comparison.json"}
    assert read_records(target / "relaxed.csv")["c_dm"].to_pylist() == comparison.relaxed["c_dm"].to_pylist()
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
    with pytest.raises(OutputError, match="does not exist"):
        comparison.write(tmp_path / "no" / "where")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_without_matplotlib_nothing_is_left_behind(comparison, tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(figures.importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match=r"flowveil\[tabular\]"):
        comparison.write(tmp_path / "result")
    assert list(tmp_path.iterdir()) == []


def test_numbers_in_bins():
    grid = Grid(ks=(5,), epsilons=(1.0,), priors=(0.1,), repeats=1)
    comparison = compare_records(survey(), ROLES, grid=grid, fit=Margins(bins={"Education": [1, 4, 6, 7]}))
    assert comparison.uniques["n_cells"].to_pylist() == [2688 // 7 * 3]
    terms = comparison.coefficients["term"].to_pylist()
    assert "Education=[4, 6)" in terms
    with pytest.raises(ParameterError, match="At least one"):
        Grid(repeats=0)
