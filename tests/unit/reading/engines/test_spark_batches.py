"""Batches without a cluster: however rows are divided, each flow and person is counted once, in one
place."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.errors import DataError
from flowveil.reading.engines import spark_batches
from flowveil.reading.engines.spark_batches import (
    ACCOUNT,
    NAMES,
    ROWS,
    Grouping,
    Numbering,
    pack,
    unpack,
)

Row = tuple[str, int, int, str | None]
SLICES = (("f",), ("m",))


def moved(
    rows: list[Row], tasks: int, parts: int, *, person: bool = True
) -> list[list[pa.RecordBatch]]:
    """The batches of each part, as if a cluster had read rows in some tasks and grouped them in
    some parts."""
    grouping = Grouping(("slice0",), person, ("trips",), parts, "the table")
    made = []
    for task in range(tasks):
        own = rows[task::tasks]
        columns: list[Any] = list(zip(*own, strict=True)) if own else [(), (), (), ()]
        types = (pa.string(), pa.uint64(), pa.uint64(), pa.string())
        names = ("slice0", "origin", "destination", "person")
        table = pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})
        table = table.append_column("trips", pa.array(np.ones(len(own), np.int64)))
        made += list(grouping.divided([table.slice(0, 2), table.slice(2)]))
        made.append(pack(ACCOUNT, 0, 1, f"task {task}".encode()))
    # Buckets are dealt out, and come in another order than they were sent in.
    return [
        list(grouping.grouped(b for b in made[::-1] if b["bucket"][0].as_py() % parts == p))
        for p in range(parts)
    ]


def of_kind(batches: list[pa.RecordBatch], kind: int) -> list[tuple[int, pa.Table]]:
    return [
        (p["bucket"][0].as_py(), unpack(p["part"][0]))
        for p in batches
        if p["kind"][0].as_py() == kind
    ]


persons = st.one_of(st.none(), st.sampled_from(["anne", "bo", "ćira", "dora", "", "e" * 30]))
row = st.tuples(st.sampled_from("fm"), st.integers(0, 3), st.integers(0, 3), persons)


@settings(max_examples=25, deadline=None)
@given(st.lists(row, max_size=40), st.integers(1, 3), st.integers(1, 3))
def test_every_row_is_counted_once_and_a_person_is_in_one_place(
    rows: list[Row], tasks: int, parts: int
) -> None:
    found: Counter[Row] = Counter()
    where: dict[str, set[tuple[int, int]]] = {}
    accounts = 0
    for part, batches in enumerate(moved(rows, tasks, parts)):
        accounts += sum(p["kind"][0].as_py() == ACCOUNT for p in batches)
        names = dict(of_kind(batches, NAMES))
        for bucket, table in of_kind(batches, ROWS):
            for s, o, d, number, n in zip(*table.to_pydict().values(), strict=True):
                name = None if number is None else names[bucket]["name"][number].as_py()
                assert (s, o, d, name) not in found
                found[s, o, d, name] += n
                if name is not None:
                    where.setdefault(name, set()).add((part, bucket))
    assert found == Counter(rows)
    assert all(len(places) == 1 for places in where.values())
    assert accounts == tasks


@pytest.mark.parametrize("block_rows", [1, 1000])
def test_blocks_have_the_persons_of_their_flows(
    monkeypatch: pytest.MonkeyPatch, block_rows: int
) -> None:
    monkeypatch.setattr(spark_batches, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(spark_batches, "MOST_ROWS", 3)
    rng = np.random.default_rng(0)
    names = [*(f"p{i}" for i in range(12)), None]
    rows: list[Row] = [
        ("fm"[rng.integers(2)], int(rng.integers(3)), int(rng.integers(3)), names[rng.integers(13)])
        for _ in range(200)
    ]
    tiles, flows = np.arange(3, dtype=np.uint64), sorted({row[:3] for row in rows})
    key = np.array(["fm".index(s) * 9 + o * 3 + d for s, o, d in flows])
    numbering = Numbering(tiles, tiles, SLICES, key)
    counted, blocks = np.zeros(len(flows), int), 0
    for batches in moved(rows, 3, 2):
        for block in numbering.packed(p for p in batches if p["kind"][0].as_py() == ROWS):
            flow, person = (
                np.frombuffer(block[name][0].as_py(), np.int32) for name in ("flow", "person")
            )
            pairs = set(zip(flow.tolist(), person.tolist(), strict=True))
            assert len(pairs) == len(flow) == block["rows"][0].as_py()
            assert np.all(np.diff(flow) >= 0)
            counted += np.bincount(flow, minlength=len(flows))
            blocks += 1
    truth = Counter(row[:3] for row in set(rows) if row[3] is not None)
    assert counted.tolist() == [truth[flow] for flow in flows]
    assert (blocks > 2) == (block_rows == 1)


def test_a_bucket_that_comes_twice_is_refused() -> None:
    """Its persons would be counted as others."""
    numbering = Numbering(*[np.arange(3, dtype=np.uint64)] * 2, SLICES, np.arange(18))
    rows: list[Row] = [("f", 0, 1, f"p{i}") for i in range(40)]
    batches = [p for p in moved(rows, 1, 1)[0] if p["kind"][0].as_py() == ROWS]
    with pytest.raises(DataError, match="together"):
        list(numbering.packed([*batches, batches[0]]))


def test_a_flow_that_was_not_there_is_refused() -> None:
    numbering = Numbering(*[np.arange(3, dtype=np.uint64)] * 2, SLICES, np.arange(9))
    batches = [p for p in moved([("m", 0, 1, "anne")], 1, 1)[0] if p["kind"][0].as_py() == ROWS]
    with pytest.raises(DataError, match="changed while it was read"):
        list(numbering.packed(batches))
