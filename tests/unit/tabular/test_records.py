from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from flowveil.core.errors import DataError, HierarchyError, ParameterError
from flowveil.tabular.records import (
    Attribute,
    as_table,
    check_roles,
    encode,
    hierarchy_from_lines,
    read_records,
    read_value_hierarchy,
    write_records,
)


def test_csv_blanks_numbers_codes_and_missing(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text(
        'age, zip, work, share,note\n39, 0123, State-gov, 1.5,"a, b"\n50, 1234, ?, 2,\n , 0001,'
        " Private, -3e2, x\n"
    )
    table = read_records(file, missing=["?"])
    assert table.column_names == ["age", "zip", "work", "share", "note"]
    assert table["age"].to_pylist() == [39, 50, None]
    assert table["zip"].to_pylist() == ["0123", "1234", "0001"]
    assert table["work"].to_pylist() == ["State-gov", None, "Private"]
    assert table["share"].to_pylist() == [1.5, 2.0, -300.0]
    assert table["note"].to_pylist() == ["a, b", None, "x"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_round_trip(tmp_path, suffix):
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    write_records(table, tmp_path / f"t{suffix}")
    assert read_records(tmp_path / f"t{suffix}").equals(table)
    assert [p.name for p in tmp_path.iterdir()] == [f"t{suffix}"]


def test_bad_files_are_refused_without_quoting_a_record(tmp_path):
    broken = tmp_path / "broken.csv"
    broken.write_text("name,age\nJane,30\nsecret-person,1,2,3\n")
    with pytest.raises(DataError) as caught:
        read_records(broken)
    assert "secret-person" not in str(caught.value)
    assert "secret-person" not in str(caught.value.__cause__)
    with pytest.raises(DataError, match="does not exist"):
        read_records(tmp_path / "absent.csv")
    (tmp_path / "a.doc").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="must end in"):
        read_records(tmp_path / "a.doc")
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(DataError, match="no records"):
        read_records(tmp_path / "empty.csv")
    (tmp_path / "bad.parquet").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="not a readable Parquet"):
        read_records(tmp_path / "bad.parquet")


def test_pandas_polars_and_dicts_are_the_same_table():
    columns = {"a": [1, 2], "b": ["x", None]}
    expected = encode(pa.table(columns), Attribute("b"))
    for table in (pd.DataFrame(columns), pl.DataFrame(columns), columns):
        column = encode(as_table(table), Attribute("b"))
        assert column.labels == expected.labels
        assert column.codes.tolist() == expected.codes.tolist() == [0, 1]
    with pytest.raises(DataError, match="list"):
        as_table([1, 2])


def test_every_column_needs_exactly_one_role():
    table = pa.table({"a": [1], "b": [2], "name": ["x"]})
    with pytest.raises(ParameterError, match="without a role: name"):
        check_roles(table, quasi_identifiers=["a"], sensitive=["b"])
    with pytest.raises(ParameterError, match="two roles: a"):
        check_roles(
            table, quasi_identifiers=["a"], sensitive=["a", "b"], direct_identifiers=["name"]
        )
    with pytest.raises(DataError, match="Did you mean 'name'"):
        check_roles(table, direct_identifiers=["nam"])


def test_missing_values_are_values():
    table = pa.table({"n": [3.0, float("nan"), 1.0, None], "c": ["b", None, "a", "b"]})
    number, colour = encode(table, Attribute("n")), encode(table, Attribute("c"))
    assert number.codes.tolist() == [1, 2, 0, 2]
    assert number.labels == ("1", "3", "missing")
    assert colour.codes.tolist() == [1, 2, 0, 1]
    with pytest.raises(DataError, match="read the same"):
        encode(pa.table({"c": ["missing", None]}), Attribute("c"))


def test_kinds():
    dates = pa.table({"d": pa.array([19000, 18000], pa.date32())})
    column = encode(dates, Attribute("d"))
    assert column.kind == "numeric"
    assert column.codes.tolist() == [1, 0]
    assert column.position.tolist() == [18000, 19000]
    assert encode(pa.table({"x": [2, 10]}), Attribute("x", "unordered")).labels == ("10", "2")
    assert encode(pa.table({"x": [10, 2]}), Attribute("x", "ordered")).labels == ("2", "10")
    dictionary = pa.table({"x": pa.array(["b", "a"]).dictionary_encode()})
    assert encode(dictionary, Attribute("x")).codes.tolist() == [1, 0]
    with pytest.raises(DataError, match="infinite"):
        encode(pa.table({"x": [np.inf]}), Attribute("x"))
    with pytest.raises(DataError, match="numeric"):
        encode(pa.table({"x": ["a"]}), Attribute("x", "numeric"))


def test_unknown_categories_are_counted_and_not_quoted():
    tree = hierarchy_from_lines([["a", "*"], ["b", "*"]])
    table = pa.table({"x": ["a", "rare disease", "rare disease"]})
    for attribute in (Attribute("x", hierarchy=tree), Attribute("x", order=("a", "b"))):
        with pytest.raises(DataError, match="1 categories of column 'x' \\(2 records\\)") as caught:
            encode(table, attribute)
        assert "rare" not in str(caught.value)


def test_attribute_refuses_contradictions():
    tree = hierarchy_from_lines([["a", "*"]])
    for bad in (
        {"kind": "nominal"},
        {"order": ("a",), "hierarchy": tree},
        {"kind": "hierarchy"},
        {"kind": "numeric", "hierarchy": tree},
        {"kind": "unordered", "order": ("a",)},
        {"order": ("a", "a")},
    ):
        with pytest.raises(ParameterError):
            Attribute("x", **bad)


def test_hierarchy_file(tmp_path):
    file = tmp_path / "h.csv"
    file.write_text("a;ab;*\nb;ab;*\nc;c;*\n")
    tree = read_value_hierarchy(file)
    assert set(tree.code.tolist()) == {"*", "ab", "a", "b", "c"}
    assert tree.n_tiles == 3
    column = encode(pa.table({"x": ["c", None, "a"]}), Attribute("x", hierarchy=tree))
    assert [column.labels[c] for c in column.codes] == ["c", "missing", "a"]
    # Terms without a common one get a root above them.
    assert hierarchy_from_lines([["a"], ["b"]]).code.tolist() == ["*", "a", "b"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "empty"),
        ([["a", ""]], "empty terms"),
        ([["a", "g", "*"], ["a", "g", "*"]], "two lines"),
        ([["a", "g", "x", "*"], ["b", "g", "y", "*"]], "'g' under"),
        ([["a", "g", "*"], ["g", "*"]], "both as a category"),
    ],
)
def test_bad_hierarchies(lines, message):
    with pytest.raises(HierarchyError, match=message):
        hierarchy_from_lines(lines)


def test_records_are_read_like_trips_whatever_separates_the_columns(tmp_path):
    import gzip

    rows = [["age", "zip"], ["30", "0123"], ["41", "0456"]]
    for name, mark in (("a.csv", ";"), ("a.tsv", "\t"), ("a.txt", "|"), ("a.csv.gz", ",")):
        text = "\n".join(mark.join(row) for row in rows).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        table = read_records(tmp_path / name)
        assert table.to_pydict() == {"age": [30, 41], "zip": ["0123", "0456"]}
