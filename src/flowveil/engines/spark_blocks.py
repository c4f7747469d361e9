"""Persons that stay on a Spark cluster: packed once into blocks, and counted there whenever somebody asks.

A block has the numbers of flows and of persons in two columns of bytes, all rows of a person in one block. Numbers of
persons mean nothing outside their block: names become numbers where they are, nothing is sorted or joined for it, and
a block that is made again after its machine was lost answers the same. A question travels to the blocks, an answer is
one whole number for each cell, and answers add up.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.engines.spark_parcels import opened
from flowveil.engines.spark_session import on_the_cluster
from flowveil.errors import DataError
from flowveil.remote_people import Counting, Counts, RemotePeople
from flowveil.slices import SlicedFlows
from flowveil.zoning.h3 import Cells64

#: Rows of a block: few enough for the memory of a task, enough that a question costs little beside them.
BLOCK_ROWS = 2_000_000
#: Answers that are larger together are added up on the cluster, until so many are left, before the driver gets them.
MOST_BYTES, LAST_ANSWERS = 64_000_000, 4


@dataclass(frozen=True, eq=False)
class Numbering:
    """How a row of the cluster finds the number of its flow; it travels to the workers.

    Attributes:
        origins, destinations: the tiles, in the order of their numbers.
        slices: the keys of the slices, in the order of their numbers.
        key: of each flow, its slice and its tiles as one number, ascending.
    """

    origins: Cells64
    destinations: Cells64
    slices: tuple[tuple[str, ...], ...]
    key: NDArray[np.int64]

    @classmethod
    def of(cls, flows: SlicedFlows, origins: Cells64, destinations: Cells64) -> Numbering:
        """That of flows whose tiles are numbered in the order of these."""
        empty = cls(origins, destinations, flows.keys, np.zeros(0, np.int64))
        keys = [empty._keys_of(np.full(len(p), i), p.origin, p.destination) for i, p in enumerate(flows.slices)]
        return replace(empty, key=np.concatenate(keys))

    def _keys_of(self, part: NDArray[Any], origin: NDArray[Any], destination: NDArray[Any]) -> NDArray[np.int64]:
        """Slices and numbers of tiles as one number each."""
        key: NDArray[np.int64] = part.astype(np.int64) * len(self.origins) + origin
        key *= len(self.destinations)
        key += destination
        return key

    def _slice_of(self, rows: pa.Table) -> NDArray[np.int64]:
        """The number of the slice of each row; -1 where there is none of that key."""
        code, codes = np.zeros(len(rows), np.int64), np.zeros(len(self.slices), np.int64)
        for i in range(len(self.slices[0])):
            values = pa.array(sorted({key[i] for key in self.slices}))
            for total, column in ((code, rows.column(f"slice{i}")), (codes, pa.array([k[i] for k in self.slices]))):
                total *= len(values) + 1
                total += pc.fill_null(pc.index_in(column, values), len(values)).to_numpy()
        order = np.argsort(codes)
        at = order[np.minimum(np.searchsorted(codes, code, sorter=order), len(order) - 1)]
        return np.where(codes[at] == code, at, -1)

    def packed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parcels of grouped rows as blocks: those of a bucket in one, and as many buckets as make a block.

        Raises:
            DataError: there is a flow that was not there when flows were counted.
        """
        waiting: list[tuple[Any, Any]] = []
        last, seen = -1, set[int]()
        n_rows = n_persons = most = 0
        for batch in batches:
            for bucket, part in zip(batch.column("bucket").to_pylist(), batch.column("part"), strict=True):
                if bucket != last:
                    # Numbers of persons begin anew in each bucket, and are different persons in each.
                    n_persons, most = n_persons + most, 0
                    if n_rows >= BLOCK_ROWS:
                        yield _block(waiting)
                        waiting, n_rows, n_persons = [], 0, 0
                    if bucket in seen:
                        raise DataError("The cluster did not bring the rows of each person together.")
                    last = bucket
                    seen.add(bucket)
                rows = opened(part)
                rows = rows.filter(pc.is_valid(rows.column("person")))
                if len(rows):
                    person = rows.column("person").to_numpy()
                    most = max(most, int(person.max()) + 1)
                    waiting.append((self._flow_of(rows), person + n_persons))
                    n_rows += len(rows)
        if waiting:
            yield _block(waiting)

    def _flow_of(self, rows: pa.Table) -> NDArray[np.int64]:
        origin, destination = (
            np.searchsorted(tiles, rows.column(name).to_numpy())
            for tiles, name in ((self.origins, "origin"), (self.destinations, "destination"))
        )
        key = self._keys_of(self._slice_of(rows), origin, destination)
        flow = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        if np.any(self.key[flow] != key):
            raise DataError("The input changed while it was read.")
        return flow


def _block(rows: list[tuple[Any, Any]]) -> pa.RecordBatch:
    """Rows of flow and person as one block, sorted by flow."""
    flow, person = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.lexsort((person, flow))
    columns = [[column[order].astype(np.int32).tobytes()] for column in (flow, person)]
    return pa.RecordBatch.from_pydict({"rows": [len(order)], "flow": columns[0], "person": columns[1]}, schema=_BLOCK)


_BLOCK = pa.schema([("rows", pa.int64()), ("flow", pa.binary()), ("person", pa.binary())])


class SparkBlocks:
    """Blocks of persons on a cluster; see `flowveil.remote_people.Blocks`. They are given up with this object."""

    def __init__(self, frame: Any, *, n_flows: int, label: str) -> None:
        self._frame = frame.persist()
        self._label = label
        self._given_up = weakref.finalize(self, _give_up, self._frame)
        self.n_flows = n_flows
        rows, blocks = self._frame.agg({"rows": "sum", "flow": "count"}).select("sum(rows)", "count(flow)").collect()[0]
        self.n_rows, self._n_blocks = int(rows or 0), int(blocks)

    def summed(self, counting: Counting, asked: Any) -> Counts:
        """Count in every block, where it is, and add up."""
        with on_the_cluster(self._label):
            context = self._frame.sparkSession.sparkContext
            if context._jsc is None:  # What pyspark leaves of a session that was stopped.
                raise DataError(f"{self._label}: the cluster is gone, and the persons with it. Nothing was written.")
            shared = context.broadcast((counting, asked))
            try:
                answers = self._frame.mapInArrow(_Answers(shared).of_blocks, "answer binary")
                none = np.zeros(0, np.int32)
                return self._added_up(answers, _answer(counting(none, none, asked), 0))
            finally:
                shared.destroy()

    def _added_up(self, answers: Any, nothing: Counts) -> Counts:
        if self._n_blocks > LAST_ANSWERS and self._n_blocks * nothing.nbytes > MOST_BYTES:
            answers = answers.repartition(LAST_ANSWERS).mapInArrow(_added, "answer binary")
        total = nothing.copy()
        # All at once: an iterator over partitions would let one block after the other count.
        for answer in answers.toArrow().column("answer"):
            total += np.frombuffer(answer.as_buffer(), np.int64)
        if total[-1] != self.n_rows:
            raise DataError(f"{self._label}: the cluster did not count every row once. Nothing was written.")
        return total[:-1]


def _give_up(frame: Any) -> None:
    # The session may have been stopped before, and all that it held is gone already.
    with suppress(Exception):
        frame.unpersist()


@dataclass(frozen=True)
class _Answers:
    """What a task does with the blocks that it is given."""

    shared: Any

    def of_blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counting, asked = self.shared.value
        for batch in batches:
            for flow, person in zip(batch.column("flow"), batch.column("person"), strict=True):
                columns = [np.frombuffer(column.as_buffer(), np.int32) for column in (flow, person)]
                yield _row_of(_answer(counting(*columns, asked), len(columns[0])))


def _answer(counted: Counts, n_rows: int) -> Counts:
    """What was counted, and last in how many rows."""
    return np.append(counted, n_rows).astype(np.int64)


def _row_of(answer: Counts) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"answer": pa.array([answer.tobytes()], pa.binary())})


def _added(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    total: Any = None
    for batch in batches:
        for answer in batch.column("answer"):
            found = np.frombuffer(answer.as_buffer(), np.int64)
            total = found if total is None else total + found
    if total is not None:
        yield _row_of(total)


def with_distant_people(
    flows: SlicedFlows, parcels: Any, numbering: Numbering, *, n_rows: int, label: str
) -> SlicedFlows:
    """The flows with persons that stay on the cluster.

    Args:
        flows: without persons.
        parcels: the grouped rows on the cluster, with persons; see `flowveil.engines.spark_parcels`.
        numbering: which of them is which flow.
        n_rows: how many rows are in them.
        label: how messages call the input.
    """
    # Every block is asked every question, so there are not more than their size and the number of cores ask for.
    n_blocks = max(-(-n_rows // BLOCK_ROWS), parcels.sparkSession.sparkContext.defaultParallelism)
    packed = parcels.coalesce(n_blocks).mapInArrow(numbering.packed, "rows bigint, flow binary, person binary")
    blocks = SparkBlocks(packed, n_flows=len(numbering.key), label=label)
    start = np.concatenate(([0], np.cumsum([len(part) for part in flows.slices]))).astype(np.int32)
    parts = []
    for part, first in zip(flows.slices, start[:-1], strict=True):
        own = np.arange(len(part), dtype=np.int32)
        parts.append(replace(part, people=RemotePeople(blocks, own + first, own)))
    return replace(flows, slices=tuple(parts))
