from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from flowveil.errors import DataError, GuaranteeError, InfeasibleError, ParameterError
from flowveil.tabular import mondrian
from flowveil.tabular.mondrian import CLASS_COLUMN, anonymize_records, canonical_order
from flowveil.tabular.records import (
    Attribute,
    encode,
    hierarchy_from_lines,
    read_records,
    read_value_hierarchy,
)
from flowveil.tabular.risk import describe_classes, discernibility, recheck
from reference.tabular_survey import FREQUENCIES, QUASI_IDENTIFIERS, SENSITIVE, survey

ORDERED = [Attribute(name, "ordered") for name in QUASI_IDENTIFIERS]


def anonymize_survey(k, **options):
    return anonymize_records(
        survey(), quasi_identifiers=ORDERED, sensitive=[SENSITIVE], direct_identifiers=[], k=k, **options
    )


def test_survey_has_the_published_frequencies():
    table = survey()
    for name, frequency in FREQUENCIES.items():
        assert tuple(np.bincount(table[name].to_numpy())[1:]) == frequency


@pytest.mark.parametrize("choose", ["width", "distinct"])
def test_relaxed_discernibility_rises_and_flattens_as_published(choose):
    releases = {k: anonymize_survey(k, choose=choose) for k in (2, 5, 10, 15, 20)}
    c_dm = {k: discernibility(r.class_size) for k, r in releases.items()}
    assert all(r.class_size.min() >= k for k, r in releases.items())
    assert c_dm[2] < c_dm[5] < c_dm[10] < c_dm[15] == c_dm[20]


def test_strict_reaches_k_where_the_thesis_did_not():
    for k in (2, 5, 10, 15, 20):
        assert anonymize_survey(k, strict=True).class_size.min() >= k


def test_published_text():
    tree = hierarchy_from_lines([["a", "ab", "*"], ["b", "ab", "*"], ["c", "*"]])
    table = pa.table(
        {
            "n": [1, 2, 3, 3, None, None],
            "o": ["low", "mid", "low", "low", "high", None],
            "u": ["x", "y, z", "x", "x", "y, z", None],
            "h": ["a", "b", "a", "a", "c", "b"],
            "name": list("ABCDEF"),
            "kept": [1, 2, 3, 4, 5, 6],
        }
    )
    release = anonymize_records(
        table,
        quasi_identifiers=[
            "n",
            Attribute("o", order=("low", "mid", "high")),
            "u",
            Attribute("h", hierarchy=tree),
        ],
        keep=["kept"],
        direct_identifiers=["name"],
        k=2,
        strict=True,
    )
    rows = {tuple(row[c] for c in ("n", "o", "u", "h")): row[CLASS_COLUMN] for row in release.table.to_pylist()}
    assert release.table.column_names == ["n", "o", "u", "h", "kept", CLASS_COLUMN]
    assert set(rows) == {
        ("[1, 2]", "[low, mid]", '{x, "y, z"}', "ab"),
        ("3", "low", "x", "a"),
        ("missing", "high or missing", '{"y, z", missing}', "*"),
    }
    assert sorted(rows.values()) == [0, 1, 2]


def test_missing_values_are_no_wildcards():
    table = pa.table({"n": [1, 1, 1, None, None, None], "m": [1, 1, 1, 1, 1, 1]})
    release = anonymize_records(table, quasi_identifiers=["n", "m"], direct_identifiers=[], k=3)
    assert release.table["n"].to_pylist() == ["1"] * 3 + ["missing"] * 3
    assert release.class_of_record.tolist() == [0, 0, 0, 1, 1, 1]


def test_relaxed_pools_rare_children_of_a_hierarchy():
    tree = hierarchy_from_lines([[c, "*"] for c in "abcd"])
    table = pa.table({"h": ["a"] * 5 + ["b"] * 4 + ["c"] * 2 + ["d"] * 2})
    attribute = Attribute("h", hierarchy=tree)
    strict = anonymize_records(table, quasi_identifiers=[attribute], direct_identifiers=[], k=4, strict=True)
    relaxed = anonymize_records(table, quasi_identifiers=[attribute], direct_identifiers=[], k=4)
    assert strict.class_size.tolist() == [13]
    assert sorted(zip(relaxed.class_size.tolist(), relaxed.regions[0].text.to_pylist(), strict=True)) == [
        (4, "*"),
        (4, "b"),
        (5, "a"),
    ]


def test_direct_identifiers_are_dropped_and_must_be_named():
    table = pa.table({"age": [1, 2, 3, 4], "name": ["Ann", "Bob", "Cid", "Dot"]})
    with pytest.raises(TypeError):
        anonymize_records(table, quasi_identifiers=["age"], k=2)
    with pytest.raises(ParameterError, match="without a role: name"):
        anonymize_records(table, quasi_identifiers=["age"], direct_identifiers=[], k=2)
    release = anonymize_records(table, quasi_identifiers=["age"], direct_identifiers=["name"], k=2)
    assert release.table.column_names == ["age", CLASS_COLUMN]


def test_equal_records_share_out_their_sensitive_values():
    """Relaxed cuts part equal records; sorting them by the sensitive value would make uniform classes."""
    codes = pa.table({"q": [1] * 8, "s": ["a"] * 4 + ["b"] * 4})
    columns, sensitive = [encode(codes, Attribute("q"))], [encode(codes, Attribute("s"))]
    order = canonical_order(columns, sensitive)
    assert sensitive[0].codes[order].tolist() == [0, 1] * 4


def test_infeasible_and_bad_parameters():
    table = pa.table({"q": [1, 2, 3], "s": ["a", "a", "b"], "equivalence_class": [1, 1, 1]})
    q = {"quasi_identifiers": ["q"], "sensitive": ["s"], "direct_identifiers": ["equivalence_class"]}
    with pytest.raises(InfeasibleError, match="3 records"):
        anonymize_records(table, k=4, **q)
    with pytest.raises(InfeasibleError, match="2 distinct"):
        anonymize_records(table, k=1, l=3, **q)
    for bad in (
        {"k": 0},
        {"k": 1.5},
        {"k": True},
        {"k": 1, "l": 0},
        {"k": 1, "t": 2},
        {"k": 1, "choose": "wide"},
    ):
        with pytest.raises(ParameterError):
            anonymize_records(table, **q, **bad)
    with pytest.raises(ParameterError, match="none is named"):
        anonymize_records(table.select(["q"]), quasi_identifiers=["q"], direct_identifiers=[], k=1, l=2)
    with pytest.raises(ParameterError, match="No quasi-identifier"):
        anonymize_records(table, quasi_identifiers=[], direct_identifiers=["q", "s", "equivalence_class"], k=1)
    with pytest.raises(DataError, match="rename"):
        anonymize_records(table, quasi_identifiers=["q"], keep=["s", CLASS_COLUMN], direct_identifiers=[], k=1)
    with pytest.raises(DataError, match="no records"):
        anonymize_records(table.slice(0, 0), k=1, **q)


def test_a_wrong_partition_is_caught_by_the_recount(monkeypatch):
    table = pa.table({"q": [1, 2, 3, 4]})
    monkeypatch.setattr(mondrian, "partition_records", lambda *_, **__: np.array([0, 0, 0, 1]))
    with pytest.raises(GuaranteeError, match="fewer than k = 2"):
        anonymize_records(table, quasi_identifiers=["q"], direct_identifiers=[], k=2)


def test_recheck_finds_every_shortfall():
    table = pa.table({"q": ["a", "a", "b", "b"], "s": [1, 1, 1, 9]})
    recheck(table, quasi_identifiers=["q"], k=2)
    for asked, finding in (
        ({"k": 3}, "k = 3"),
        ({"k": 2, "l": 2, "sensitive": {"s": True}}, "l = 2"),
        ({"k": 2, "t": 0.1, "sensitive": {"s": True}}, "t = 0.1"),
        ({"k": 2, "n_records": 5}, "number of records"),
    ):
        with pytest.raises(GuaranteeError) as caught:
            recheck(table, quasi_identifiers=["q"], **asked)
        assert len(caught.value.findings) == 1
        assert finding in caught.value.findings[0]


def test_t_follows_a_declared_order():
    order = ("low", "mid", "high")
    table = pa.table({"q": ["a"] * 4 + ["b"] * 4, "s": ["low"] * 2 + ["high"] * 2 + ["mid"] * 4})
    by_order = describe_classes(table, quasi_identifiers=["q"], sensitive={"s": order}).t
    by_text = describe_classes(table, quasi_identifiers=["q"], sensitive={"s": True}).t
    assert by_order == pytest.approx(0.25)
    assert by_text == pytest.approx(0.375)
    release = anonymize_records(
        table,
        quasi_identifiers=["q"],
        sensitive=[Attribute("s", order=order)],
        direct_identifiers=[],
        k=2,
        t=0.26,
    )
    assert len(release.class_size) == 2


@pytest.mark.real
def test_adult_with_its_hierarchies(shared_data):
    folder = shared_data / "tabular"
    if not folder.is_dir():
        pytest.skip("the tables of records are not among the public data sets")
    table = read_records(folder / "adult.csv")
    files = {
        "workclass": "workclass",
        "education": "education",
        "marital-status": "marital",
        "occupation": "occupation",
        "race": "race",
        "sex": "sex",
        "native-country": "country",
    }
    attributes = [
        Attribute(name, hierarchy=read_value_hierarchy(folder / "adult_hierarchies" / f"{file}.csv"))
        for name, file in files.items()
    ]
    dropped = [c for c in table.column_names if c not in (*files, "age", "salary-class")]
    for strict in (True, False):
        release = anonymize_records(
            table,
            quasi_identifiers=["age", *attributes],
            sensitive=["salary-class"],
            direct_identifiers=dropped,
            k=10,
            l=2,
            strict=strict,
        )
        names = ["age", *files, CLASS_COLUMN]
        report = describe_classes(release.table, quasi_identifiers=names, sensitive={"salary-class": False})
        assert report.k >= 10
        assert report.l >= 2
        assert report.n_classes > 100
