"""Trees of values: how they are read, and what an attribute that folds along one states."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowveil import read_slices, read_tree
from flowveil.core.dimensions import MOST_NODES, Dimension
from flowveil.core.errors import DataError, HierarchyError, ParameterError
from samples.hourly import PURPOSES, hourly_trips

STATED = {
    "all": None, "home": "all", "free time": "all", "leisure": "free time", "shop": "free time",
    "work or study": "all", "study": "work or study", "work": "work or study",
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        (
            "value,parent\nwork,work or study\nstudy,work or study\nshop,free time\nleisure,free"
            " time\nhome,\n"
        ),
        # Groups may have rows, and the root may be given.
        (
            "parent,value\nwork or study, work\nwork or study,study\nfree time,shop\nfree"
            " time,leisure\nall,home\nall,work or study\nall,free time\n,all\n"
        ),
        (
            "group;purpose\nwork or study;work\nwork or study;study\nfree time;shop\nfree"
            " time;leisure\nhome ;home at last\n"
        ),
    ],
    ids=["parents", "with the root", "levels"],
)
def test_a_tree_is_read_from_parents_or_levels(text, tmp_path):
    (tmp_path / "tree.csv").write_text(text, encoding="utf-8")
    fold = Dimension.from_tree("purpose", read_tree(tmp_path / "tree.csv"))
    wanted = dict(STATED)
    if "at last" in text:
        wanted |= {"home at last": "home"}
    assert fold.parents == wanted
    assert Dimension.from_tree("purpose", read_tree(fold.parents)).parents == fold.parents
    width = dict(zip(fold.columns["purpose"].tolist(), fold.width.tolist(), strict=True))
    assert (width["work"], width["work or study"], width["all"]) == (0, 1, 2)


@pytest.mark.parametrize(
    ("parents", "words"),
    [
        ({"a": "b", "b": "a"}, "cycle"),
        ({}, "at least one row|without a code"),
        ({"": "x"}, "without a code"),
    ],
    ids=str,
)
def test_what_is_no_tree_is_refused(parents, words):
    with pytest.raises(HierarchyError, match=words):
        read_tree(parents)


def test_a_value_in_two_groups_is_refused():
    with pytest.raises(
        HierarchyError, match=r"is not a tree of values and groups.*several parents"
    ):
        read_tree(pa.table({"value": ["a", "a"], "parent": ["x", "y"]}))


def test_a_tree_that_is_not_small_is_refused():
    with pytest.raises(DataError, match="classes that many people share"):
        Dimension.from_tree("cab", read_tree({f"cab {n}": "" for n in range(MOST_NODES)}))


HOW = {"by": "purpose", "resolution": 7, "person": "who"}


def test_values_that_the_tree_lacks_are_counted_and_never_quoted():
    trips = hourly_trips()
    known = {name: group for name, group in PURPOSES.items() if name not in ("study", "home")}
    # A value that is a group of the tree is no value either.
    known |= {"errands": "home", "sport": "home"}
    with pytest.raises(DataError, match=r"does not list 2 of the values") as refused:
        read_slices(trips, **HOW).folded({"purpose": read_tree(known)})
    assert not any(name in str(refused.value) for name in ("study", "home", "P1"))


def test_rows_without_a_value_are_dropped_and_counted():
    trips = hourly_trips()
    values = trips["purpose"].to_pylist()
    holes = pa.array(
        [None if i < 20 else "nan" if i < 30 else value for i, value in enumerate(values)]
    )
    holed = trips.set_column(trips.column_names.index("purpose"), "purpose", holes)
    flows = read_slices(holed, **HOW).folded({"purpose": read_tree(PURPOSES)})
    assert (sum(flows.intake.dropped.values()), int(flows.trips.sum())) == (30, len(trips) - 30)


def test_attributes_fold_along_a_tree_or_below_one_root():
    sliced = read_slices(hourly_trips(), **HOW, time="start", every="hour")
    assert [fold.name for fold in sliced.folded({"purpose": read_tree(PURPOSES)}).folds] == [
        "purpose",
        "time",
    ]
    assert [fold.found for fold in sliced.folded().folds] == [True, False]
    with pytest.raises(ParameterError, match="were given for the columns"):
        sliced.folded({"purpose": read_tree(PURPOSES), "mode": read_tree({"car": ""})})
    with pytest.raises(ParameterError, match="time_from"):
        read_slices(
            hourly_trips().rename_columns({"purpose": "time_from"}), **{**HOW, "by": "time_from"}
        )
