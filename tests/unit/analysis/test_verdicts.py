"""The five cases in which several releases together reveal a few trips, and the three verdicts of
an audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import h3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.analysis.audit import SENTENCES, Verdict, audit, audit_files
from flowveil.verify.audit.bounds import Side, confined_components
from flowveil.verify.audit.published import PublishedRelease, published_release
from flowveil.verify.audit.subtraction import confined_groups
from flowveil.verify.audit.zone_forest import Ground

PARENT = h3.cell_to_parent("89b2c55b5b3ffff", 8)
TILES = sorted(h3.cell_to_children(PARENT, 9))
MADE_OF = {"area": TILES[:2], "t0": [TILES[0]], "t1": [TILES[1]]}
K = 10


def release(
    cells: dict[tuple[str, ...], int],
    *columns: str,
    name: str = "release",
    period: str | None = None,
    **changed,
) -> PublishedRelease:
    """Cells are named by origin, destination and the values of the slice columns."""
    keys = sorted(cells)
    table = {"origin_zone": [key[0] for key in keys], "destination_zone": [key[1] for key in keys]}
    table |= {column: [key[2 + n] for key in keys] for n, column in enumerate(columns)}
    table["trips"] = pa.array([cells[key] for key in keys], pa.int64())
    codes = sorted({zone for key in keys for zone in key[:2]})
    report = {
        "kind": "sliced" if columns else "plain",
        "method": "twincut",
        "parameters": {"within": None, **changed},
        "guarantee": {"k": K, "protect": ["trips"], "trips": K},
        "statement": {
            "about": {"period": period} if period else {},
            "homogeneous": True,
            "suppression": {"rule": "short cells"},
            "slice_columns": list(columns),
            "boxes": None,
        },
    }
    zones = pa.table({"zone": codes, "h3_cells": [MADE_OF.get(code, [code]) for code in codes]})
    return published_release(pa.table(table), zones, report, name=name)


def slices(
    values: dict[tuple[str, ...], int], *columns: str, zone: str = "area", **more
) -> PublishedRelease:
    return release({(zone, zone, *key): n for key, n in values.items()}, *columns, **more)


SEX = slices({("f",): 21, ("m",): 22}, "sex", name="sex")
CASES = {
    "sex, then age": ([SEX, slices({("old",): 20, ("young",): 20}, "age", name="age")], 3),
    "sex, then sex and age": (
        [
            slices({("f",): 21, ("m",): 30}, "sex"),
            slices({("f", "old"): 20, ("m", "old"): 30}, "sex", "age"),
        ],
        1,
    ),
    "fine zones, then sex on coarser ones": (
        [
            release({(o, d): 15 for o in ("t0", "t1") for d in ("t0", "t1")}),
            slices({("f",): 30, ("m",): 33}, "sex"),
        ],
        3,
    ),
    "a quarter, January and March": (
        [
            release({("area", "area"): 41}, period="2024-01-01/2024-03-31"),
            release({("area", "area"): 20}, period="2024-01"),
            release({("area", "area"): 20}, period="2024-03"),
        ],
        1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_several_releases_reveal_is_found(name):
    releases, value = CASES[name]
    for order in (releases, releases[::-1]):
        found = audit(order)
        assert found.verdict is Verdict.DISCLOSED, name
        assert {(group.low, group.high) for group in found.groups.groups} == {(value, value)}
        assert found.failures


def test_a_sum_is_only_taken_over_slices_that_are_all_published():
    """Where a slice is missing its trips may be anywhere between none and k - 1."""
    of_age = slices({("old",): 20, ("young",): 20}, "age")
    incomplete = release(
        {("area", "area", "f"): 21, ("area", "area", "m"): 22, ("t0", "t0", "x"): 10}, "sex"
    )
    found = confined_groups([incomplete, of_age])
    assert [group for group in found.groups if group.kind == "remainder"] == []


def test_another_city_is_not_called_clean():
    """Every line that people read says that it was not compared, and none that nothing was
    found."""
    here = release({("area", "area"): 40}, name="here")
    there = h3.latlng_to_cell(48.85, 2.35, 8)
    away = release({(there, there): 50}, name="away")
    for other in (away, replace(away, ground="another area")):
        found = audit([here, other])
        assert found.verdict is Verdict.INCOMPLETE
        assert found.failures == []
        assert found.not_compared[0].startswith("here and away: ")
        files = audit_files(found)
        for text in (found.sentence, *files.values()):
            assert "othing below the guarantee was found" not in text
            assert "othing was found" not in text
        assert files["audit.md"].index("not compared") < files["audit.md"].index(
            "What was computed"
        )
        assert files["audit.html"].index("What was not compared") < files["audit.html"].index(
            "What was computed"
        )


def test_equal_tables_with_other_statements_are_not_called_clean():
    one = release({("area", "area"): 40}, name="one")
    assert audit([one, one]).verdict is Verdict.CLEAN
    other = release({("area", "area"): 40}, name="other", skip_unknown=True)
    found = audit([one, other])
    assert found.verdict is Verdict.INCOMPLETE
    assert "their statements differ (parameters.skip_unknown)" in found.not_compared[0]


def test_everything_compared_and_nothing_found():
    coarse = release({("area", "area"): 60})
    fine = release({(o, d): 15 for o in ("t0", "t1") for d in ("t0", "t1")})
    found = audit([coarse, fine])
    assert found.verdict is Verdict.CLEAN
    assert found.sentence == SENTENCES[Verdict.CLEAN]
    assert found.not_compared == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=9, max_size=9), st.integers(2, 8))
def test_what_slices_by_two_columns_share_is_solved_exactly(counts, below):
    """A total, slices by sex and slices by age, against all tables in whole numbers that give
    them."""
    table = np.array(counts).reshape(3, 3)  # f, m, not listed; old, young, not listed
    total, rows, columns = (
        int(table.sum()),
        table.sum(axis=1)[:2].tolist(),
        table.sum(axis=0)[:2].tolist(),
    )

    def side(trips: list[int]) -> Side:
        node = np.zeros(len(trips), dtype=np.int64)
        return Side(node, node, np.array(trips, dtype=np.int64), 0)

    ground = Ground(np.array([-1]), np.array([1]), {}, {})
    values = [np.array([[-1, -1]]), np.array([[0, -1], [1, -1]]), np.array([[-1, 0], [-1, 1]])]
    found = confined_components(ground, [side([total]), side(rows), side(columns)], below, values)
    assert (found.bounded, found.left_out) == (0, 0)
    possible = list(tables(total, rows, columns))
    expected = set()
    for i, j in product(range(3), range(3)):
        low, high = min(t[i][j] for t in possible), max(t[i][j] for t in possible)
        if low > 0 and high < below:
            expected.add(((0, i if i < 2 else -1, j if j < 2 else -1), low, high))
    assert {(one.members, one.low, one.high) for one in found.shared} == expected


def tables(total: int, rows: list[int], columns: list[int]) -> Iterator[list[list[int]]]:
    """All 3 x 3 tables of whole numbers with this total, and these sums of the first two rows and
    columns."""
    for a, b, c, d in product(*(range(min(r, n) + 1) for r in rows for n in columns)):
        e, f = rows[0] - a - b, rows[1] - c - d
        g, h = columns[0] - a - c, columns[1] - b - d
        last = total - sum(rows) - g - h
        if min(e, f, g, h, last) >= 0:
            yield [[a, b, e], [c, d, f], [g, h, last]]
