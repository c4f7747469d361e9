"""Trees from tables equal trees from dictionaries, and tables that are not trees are refused with a
reason."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.errors import HierarchyError
from flowveil.zoning.table import nested_hierarchy, parent_hierarchy
from reference.zones import as_dict, from_parents, nested, path_up


def texts(values) -> np.ndarray:
    return np.array(list(values), dtype=np.str_)


def columns_of(rows: list[tuple[str, ...]]) -> list[np.ndarray]:
    return [texts(column) for column in zip(*rows, strict=True)]


@st.composite
def nested_rows(draw, max_rows: int = 20) -> list[tuple[str, ...]]:
    """Rows whose codes tell the path, so that each has one parent; rows repeat."""
    n_levels = draw(st.integers(1, 4))
    paths = draw(
        st.lists(st.tuples(*[st.integers(0, 2)] * n_levels), min_size=1, max_size=max_rows),
    )
    return [
        tuple("L" + "-".join(map(str, path[: i + 1])) for i in range(n_levels)) for path in paths
    ]


@st.composite
def parent_rows(draw, max_nodes: int = 16) -> list[tuple[str, str]]:
    n = draw(st.integers(1, max_nodes))
    names = draw(st.permutations([f"z{i:02d}" for i in range(n)]))
    rows = []
    has_children = set()
    for i in range(1, n):
        up = draw(st.integers(-1, i - 1))
        has_children.add(up)
        rows.append((names[i], names[up] if up >= 0 else ""))
    rows.insert(0, (names[0], ""))
    # A topmost zone may be named as a parent only.
    return [r for r in rows if r[1] or names.index(r[0]) not in has_children or draw(st.booleans())]


@settings(max_examples=40, deadline=None)
@given(nested_rows(), st.randoms())
def test_nested_columns_equal_the_naive_tree(rows, random):
    tree = nested_hierarchy(columns_of(rows), levels=[f"level{i}" for i in range(len(rows[0]))])
    want = nested(rows)
    assert as_dict(tree) == want
    leaf_codes = [str(c) for c in tree.code[tree.leaf_node]]
    assert sorted(leaf_codes) == sorted({row[-1] for row in rows})
    for row in rows:
        up = path_up(want, row[-1])
        assert [c for c in reversed(row) if c in want] == [c for c in up if c != "all"]
    shuffled = rows + rows[:2]
    random.shuffle(shuffled)
    again = nested_hierarchy(
        columns_of(shuffled), levels=[f"level{i}" for i in range(len(rows[0]))]
    )
    assert again.code.tolist() == tree.code.tolist()
    assert again.parent.tolist() == tree.parent.tolist()


@settings(max_examples=40, deadline=None)
@given(nested_rows())
def test_a_nested_node_has_its_column_as_level(rows):
    tree = nested_hierarchy(columns_of(rows), levels=[f"level{i}" for i in range(len(rows[0]))])
    for code, level in zip(tree.code.tolist(), tree.level.tolist(), strict=True):
        assert level == (-1 if code == "all" else code.count("-"))


@settings(max_examples=40, deadline=None)
@given(parent_rows(), st.randoms())
def test_parent_tables_equal_the_naive_tree(rows, random):
    tree = parent_hierarchy(*columns_of(rows), root="all")
    assert as_dict(tree) == from_parents(rows)
    shuffled = rows + rows[:2]
    random.shuffle(shuffled)
    again = parent_hierarchy(*columns_of(shuffled), root="all")
    assert (again.code.tolist(), again.parent.tolist()) == (
        tree.code.tolist(),
        tree.parent.tolist(),
    )


@settings(max_examples=30, deadline=None)
@given(nested_rows())
def test_levels_and_parents_tell_the_same(rows):
    pairs = [(row[i], row[i - 1] if i else "") for row in rows for i in range(len(row))]
    by_parents = parent_hierarchy(*columns_of(pairs), root="all")
    by_levels = nested_hierarchy(
        columns_of(rows), levels=[f"level{i}" for i in range(len(rows[0]))]
    )
    assert as_dict(by_parents) == as_dict(by_levels)


def test_tiles_of_a_ragged_parent_table_stand_at_several_depths():
    tree = parent_hierarchy(
        texts(["a", "b", "c", "d", "m"]), texts(["m", "m", "top", "top", "top"])
    )
    assert tree.code[0] == "top"
    assert dict(zip(tree.code.tolist(), tree.depth.tolist(), strict=True)) == {
        "top": 0, "c": 1, "d": 1, "m": 1, "a": 2, "b": 2,
    }  # fmt: skip
    assert tree.kind == "table"


def test_the_same_text_at_two_levels_is_two_zones():
    tree = nested_hierarchy(
        [texts(["75", "75", "93"]), texts(["75", "76", "77"]), texts(["1", "75", "3"])],
        levels=["dept", "commune", "iris"],
    )
    assert as_dict(tree) == {
        "all": None,
        "dept:75": "all",
        "dept:93": "all",
        "commune:75": "dept:75",
        "commune:76": "dept:75",
        "commune:77": "dept:93",
        "1": "commune:75",
        "75": "commune:76",
        "3": "commune:77",
    }


def test_a_qualified_code_does_not_meet_another():
    tree = nested_hierarchy([texts(["x", "y"]), texts(["x", "a:x"])], levels=["a", "b"])
    assert set(tree.code.tolist()) == {"all", "a:a:x", "a:a:y", "x", "a:x"}


def test_a_zone_called_all_does_not_meet_the_root():
    tree = nested_hierarchy([texts(["all", "b"])], levels=["zone"])
    assert as_dict(tree) == {"root:all": None, "all": "root:all", "b": "root:all"}
    with pytest.raises(HierarchyError, match="cannot be called 'b'"):
        nested_hierarchy([texts(["a", "b"])], levels=["zone"], root="b")
    with pytest.raises(HierarchyError, match="cannot be called 'P'"):
        parent_hierarchy(texts(["a", "b"]), texts(["P", "Q"]), root="P")


@pytest.mark.parametrize(
    ("tile", "parent", "count", "named"),
    [
        (["a"], ["a"], 1, "'a'"),
        (["a", "b", "c", "x"], ["b", "c", "a", "a"], 3, "'a', 'b', 'c'"),
        (["a", "b", "t", "u"], ["b", "a", "u", ""], 2, "'a', 'b'"),
    ],
)
def test_cycles_are_named(tile, parent, count, named):
    with pytest.raises(
        HierarchyError, match=f"cycle: {count} zones? would contain themselves: {named}\\."
    ):
        parent_hierarchy(texts(tile), texts(parent), root="all")


def test_a_long_cycle_is_found():
    names = [f"n{i:03d}" for i in range(257)]
    with pytest.raises(HierarchyError, match="257 zones"):
        parent_hierarchy(texts(names), texts(names[1:] + names[:1]))


def test_a_deep_tree_is_no_cycle():
    names = [f"n{i:03d}" for i in range(300)]
    side = [f"s{i:03d}" for i in range(300)]
    tree = parent_hierarchy(texts(names + side), texts(["", *names[:-1], *names]))
    assert tree.max_depth == 299 + 1
    assert tree.n_tiles == 300


def test_several_roots_are_distinguished():
    with pytest.raises(HierarchyError) as caught:
        parent_hierarchy(texts(["a", "b", "lost", "R"]), texts(["P", "R", "", ""]))
    message = str(caught.value)
    assert "3 roots; exactly one is allowed" in message
    assert "1 tile without a parent (orphans): 'lost'" in message
    assert "1 zone with rows but no parent: 'R'" in message
    assert "1 zone named as parents only: 'P'" in message
    assert "root='all'" in message
    tree = parent_hierarchy(
        texts(["a", "b", "lost", "R"]), texts(["P", "R", "", ""]), root="France"
    )
    assert as_dict(tree)["lost"] == "France"
    assert tree.level[0] == -1


def test_two_parents_are_counted_with_five_examples():
    tile = [f"t{i}" for i in range(8)]
    with pytest.raises(
        HierarchyError,
        match=r"8 zones with several parents: 't0', 't1', 't2', 't3', 't4' and 3 more",
    ):
        parent_hierarchy(texts(tile + tile), texts(["A"] * 8 + ["B"] * 8))
    with pytest.raises(HierarchyError) as caught:
        nested_hierarchy(
            [texts(["1", "2", "2"]), texts(["p", "p", "q"]), texts(["x", "y", "y"])],
            levels=["region", "dept", "commune"],
        )
    assert "1 code of 'dept' under several of 'region': 'p'" in str(caught.value)
    assert "1 code of 'commune' under several of 'dept': 'y'" in str(caught.value)


def test_missing_codes_are_orphans():
    with pytest.raises(HierarchyError) as caught:
        nested_hierarchy(
            [texts(["1", "", ""]), texts(["p", "p", ""]), texts(["x", "y", ""])],
            levels=["region", "dept", "commune"],
        )
    assert "1 row without a code in 'commune' (rows 3)" in str(caught.value)
    assert "1 row without a 'region' (orphans): 'y'" in str(caught.value)
    with pytest.raises(HierarchyError, match="at least one row"):
        nested_hierarchy([texts([])], levels=["zone"])
    with pytest.raises(HierarchyError, match="at least one row"):
        parent_hierarchy(texts([]), texts([]))
