# ruff: noqa: E741
"""The vectorised Mondrian against the plain recursion, and what every release must satisfy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowveil.core.errors import InfeasibleError
from flowveil.tabular.classes import Safety
from flowveil.tabular.mondrian import CLASS_COLUMN, anonymize_records, partition_records
from flowveil.tabular.records import Attribute, encode, hierarchy_from_lines
from flowveil.tabular.risk import describe_classes
from reference import tabular_mondrian as reference

TREE = hierarchy_from_lines(
    [
        ["a", "ab", "abc", "*"],
        ["b", "ab", "abc", "*"],
        ["c", "abc", "*"],
        ["d", "de", "*"],
        ["e", "de", "*"],
        ["f", "*"],
    ]
)
ATTRIBUTES = {
    "number": Attribute("number"),
    "ordered": Attribute("ordered", order=("low", "mid", "high")),
    "colour": Attribute("colour"),
    "place": Attribute("place", hierarchy=TREE),
}
VALUES = {
    "number": st.one_of(st.none(), st.integers(-3, 9)),
    "ordered": st.sampled_from(["low", "mid", "high", None]),
    "colour": st.sampled_from(["red", "blue", "green", "{, [odd]", None]),
    "place": st.sampled_from(["a", "b", "c", "d", "e", "f", None]),
    "income": st.one_of(st.none(), st.integers(0, 4)),
    "illness": st.sampled_from(["flu", "asthma", "none"]),
}
TYPES = {"number": pa.int64(), "income": pa.int64()}


@st.composite
def tables(draw):
    names = draw(st.lists(st.sampled_from(list(ATTRIBUTES)), min_size=1, max_size=4, unique=True))
    n = draw(st.integers(1, 40))
    rows = draw(
        st.lists(
            st.tuples(*(VALUES[c] for c in (*names, "income", "illness"))), min_size=n, max_size=n
        )
    )
    arrays = {
        c: pa.array([row[i] for row in rows], TYPES.get(c, pa.string()))
        for i, c in enumerate((*names, "income", "illness"))
    }
    return pa.table(arrays), names


settings_ = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings_
@given(
    tables(),
    st.integers(1, 6),
    st.sampled_from([None, 2, 3]),
    st.sampled_from([None, 0.1, 0.3, 0.6]),
    st.booleans(),
    st.sampled_from(["width", "distinct"]),
    st.booleans(),
)
def test_same_partitions_as_the_recursion(drawn, k, l, t, strict, choose, first):
    table, names = drawn
    columns = [encode(table, ATTRIBUTES[name]) for name in names]
    sensitive = tuple(encode(table, Attribute(name)) for name in ("income", "illness"))
    safety = Safety(k=k, l=l, t=t, sensitive=sensitive)
    found = partition_records(columns, safety, strict=strict, choose=choose, stop_at_first=first)
    groups = {frozenset(np.flatnonzero(found == p).tolist()) for p in range(found.max() + 1)}
    assert groups == reference.mondrian(
        columns, sensitive, k=k, l=l, t=t, strict=strict, choose=choose, first=first
    )


@settings_
@given(
    tables(),
    st.integers(1, 6),
    st.sampled_from([None, 2]),
    st.sampled_from([None, 0.3]),
    st.booleans(),
    st.data(),
)
def test_release_is_safe_true_and_free_of_the_input_order(drawn, k, l, t, strict, data):
    table, names = drawn
    parameters = {
        "quasi_identifiers": [ATTRIBUTES[name] for name in names],
        "sensitive": ["income", "illness"],
        "direct_identifiers": [],
        "allow_identifiers": ["income", "illness", "colour"],
        "k": k,
        "l": l,
        "t": t,
        "strict": strict,
    }
    try:
        release = anonymize_records(table, **parameters)
    except InfeasibleError:
        columns = [encode(table, Attribute(name)) for name in ("income", "illness")]
        assert table.num_rows < k or any(len(set(c.codes.tolist())) < (l or 0) for c in columns)
        return
    report = describe_classes(
        release.table,
        quasi_identifiers=[*names, CLASS_COLUMN],
        sensitive={"income": True, "illness": False},
    )
    assert report.k >= k
    assert report.l >= (l or 1)
    assert report.t <= (1 if t is None else t) + 1e-9
    assert (
        report.n_classes
        == len(release.class_size)
        == len(set(release.table[CLASS_COLUMN].to_pylist()))
    )
    # Every published value covers the value of its record.
    for region in release.regions:
        shares = region.shares()
        assert np.allclose(shares.sum(axis=1), 1)
        assert np.all(shares[release.class_of_record, region.column.codes] > 0)
    place = next((region for region in release.regions if region.column.tree is not None), None)
    for number, text in enumerate(place.text.to_pylist() if place else []):
        members = set(place.column.codes[release.class_of_record == number].tolist())
        assert text == reference.published_terms(place.column, members)
    if strict:
        _assert_disjoint(release)
    shuffled = table.take(pa.array(data.draw(st.permutations(range(table.num_rows)))))
    assert anonymize_records(shuffled, **parameters).table.equals(release.table)


@settings_
@given(
    st.lists(st.one_of(st.none(), st.integers(-30, 300)), min_size=1, max_size=40),
    st.integers(1, 6),
    st.sampled_from([None, 1, 2, 50]),
    st.sampled_from([None, -30]),
    st.sampled_from([None, 300, 307]),
    st.booleans(),
)
def test_ranges_are_cells_of_the_grid(values, k, step, lowest, highest, strict):
    """The published text is the one worked out by hand.

    No range ends at a person's value unless the grid says so.
    """
    known = [v for v in values if v is not None]
    table = pa.table({"n": pa.array(values, pa.int64())})
    attribute = Attribute(
        "n", grid=step, public_range=(lowest, highest), fine_grid=step is not None
    )
    if len(values) < k:
        return
    release = anonymize_records(
        table, quasi_identifiers=[attribute], direct_identifiers=[], k=k, strict=strict
    )
    if step is None:
        used = int(release.grids["n"].step)
        assert (
            (lowest, highest) != (None, None)
            or not known
            or used == reference.default_step(known, k)
        )
    else:
        used = step
    for number, text in enumerate(release.regions[0].text.to_pylist()):
        members = [
            v for v, c in zip(values, release.class_of_record.tolist(), strict=True) if c == number
        ]
        inside = [v for v in members if v is not None]
        expected = "missing"
        if inside:
            expected = reference.range_text(
                inside, known, step=used, k=k, lowest=lowest, highest=highest
            )
            expected += " or missing" if None in members else ""
        assert text == expected


def _assert_disjoint(release):
    """Strict: two classes never cover the same combination of values."""
    covered = [region.shares() > 0 for region in release.regions]
    for a in range(len(release.class_size)):
        for b in range(a):
            assert not all(np.any(c[a] & c[b]) for c in covered)


@settings_
@given(tables(), st.data())
def test_distances_are_exact(drawn, data):
    table, _ = drawn
    n = table.num_rows
    group = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    for name in ("income", "illness"):
        column = encode(table, Attribute(name))
        for g in set(group.tolist()):
            members = np.flatnonzero(group == g)
            exact = float(reference.distance(column, members.tolist()))
            for t, expected in ((exact + 1e-7, True), (exact - 1e-7, False)):
                if 0 <= t <= 1:
                    safe = Safety(k=1, t=t, sensitive=(column,)).holds(group, 4, np.arange(n))
                    assert safe[g] == expected


@pytest.mark.parametrize("strict", [True, False])
def test_pycanon_agrees(strict):
    anonymity = pytest.importorskip("pycanon.anonymity")
    generator = np.random.default_rng(5)
    n = 400
    table = pa.table(
        {
            "age": generator.integers(18, 80, n),
            "colour": pa.array(generator.choice(["red", "blue", "green", None], n).tolist()),
            "place": generator.choice(list("abcdef"), n),
            "illness": generator.choice(["flu", "asthma", "none"], n, p=[0.2, 0.2, 0.6]),
            "income": generator.integers(0, 9, n),
        }
    )
    names = ["age", "colour", "place"]
    release = anonymize_records(
        table,
        quasi_identifiers=["age", "colour", ATTRIBUTES["place"]],
        sensitive=["illness", "income"],
        direct_identifiers=[],
        k=4,
        l=2,
        t=0.5,
        strict=strict,
    )
    published = release.table.to_pandas()
    own = describe_classes(
        release.table,
        quasi_identifiers=[*names, CLASS_COLUMN],
        sensitive={"illness": False, "income": True},
    )
    assert own.k == anonymity.k_anonymity(published, names) >= 4
    assert own.l == anonymity.l_diversity(published, names, ["illness", "income"]) >= 2
    assert own.t == pytest.approx(anonymity.t_closeness(published, names, ["illness", "income"]))
    assert own.t <= 0.5 + 1e-9
    assert own.n_classes > 5
