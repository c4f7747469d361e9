"""Persons whose rows stay on a cluster and are counted there.

`RemotePeople` replaces `People`: merging cells only updates the cell of each flow, and a request
for distinct persons is sent to the blocks of rows on the cluster. All rows of a person are in one
block, so the distinct persons of a cell are the sum over the blocks. Code that needs the rows
themselves gets a DataError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from flowveil.core.arrays import Counts, Ints
from flowveil.core.errors import DataError, with_value
from flowveil.core.flows import People

#: Counts in a block: takes flow and person of its distinct rows, sorted by flow, and the query.
Counting = Callable[[Ints, Ints, Any], Counts]


class Blocks(Protocol):
    """Remote blocks of distinct (flow, person) rows; all rows of a person are in one block."""

    n_flows: int
    n_rows: int

    def summed(self, counting: Counting, asked: Any) -> Counts:
        """Runs a module-level counting function on every block and returns the sum."""
        ...


class RemotePeople(People):
    """The people of each cell, stored on a cluster.

    ``flow`` has the flows that are in a cell, ``row`` their cells.
    """

    def __init__(self, blocks: Blocks, flow: Ints, row: Ints) -> None:
        # The base class is frozen, and its fields are not available here.
        self.__dict__.update(blocks=blocks, flow=flow, row=row, _counted={})

    blocks: Blocks
    flow: Ints
    row: Ints
    _counted: dict[int, Counts]

    @classmethod
    def concat(cls, parts: Sequence[People], n_cells: Sequence[int]) -> RemotePeople:
        """Returns the people of concatenated tables; no flow may be in two of them."""
        first = np.cumsum([0, *n_cells[:-1]]).astype(np.int32)
        distant = [part for part in parts if isinstance(part, RemotePeople)]
        if len(distant) < len(parts) or any(
            part.blocks is not distant[0].blocks for part in distant
        ):
            raise DataError("Persons of different inputs cannot be counted together on a cluster.")
        flow = np.concatenate([part.flow for part in distant])
        row = np.concatenate([part.row + start for part, start in zip(distant, first, strict=True)])
        order = np.argsort(flow, kind="stable")
        if np.any(np.diff(flow[order]) == 0):
            raise ValueError("a flow is in two tables")
        return cls(distant[0].blocks, flow[order], row[order])

    @property
    def n_rows(self) -> int:
        """Rows in local memory: none."""
        return 0

    def count(self, n_cells: int) -> Counts:
        """Returns the distinct people of each cell; cached."""
        if n_cells not in self._counted:
            self._counted[n_cells] = self.blocks.summed(
                count_distinct, (*self.window(self.row), n_cells)
            )
        return self._counted[n_cells]

    def total(self) -> int:
        """Returns the distinct people of all cells together."""
        return int(self.merge(np.zeros(int(self.row.max(initial=-1)) + 1, np.int32)).count(1)[0])

    def merge(self, new_cell: Ints) -> RemotePeople:
        """Moves every flow to its new cell (-1: drops it)."""
        row = new_cell[self.row].astype(np.int32)
        kept = row >= 0
        return RemotePeople(self.blocks, self.flow[kept], row[kept])

    def between(self, first: int, stop: int) -> RemotePeople:
        """Returns the people of a range of cells, which are numbered from 0 then."""
        inside = (self.row >= first) & (self.row < stop)
        return RemotePeople(self.blocks, self.flow[inside], self.row[inside] - np.int32(first))

    def without_trips(self) -> RemotePeople:
        """Returns the same people; their trips are not on the driver."""
        return self

    def renumber(self, place: Ints) -> RemotePeople:
        """Returns the same people with renumbered cells."""
        return self.merge(place)

    def window(self, value: Ints) -> tuple[int, Ints]:
        """Returns a value of each flow as one array from the first flow on, -1 for missing
        flows.
        """
        first = int(self.flow[0]) if len(self.flow) else 0
        length = int(self.flow[-1]) + 1 - first if len(self.flow) else 0
        out = np.full(length, -1, dtype=np.int32)
        out[self.flow - first] = value
        return first, out

    # The rows themselves are not available.
    cell = person = trips = property(lambda self: self._refuse())

    def __reduce__(self) -> NoReturn:
        raise DataError(
            "Persons stay on the cluster, and only the process that read them can query it. Hint:"
            f" use one process ({with_value('workers', 1)})."
        )

    def _refuse(self) -> NoReturn:
        raise DataError(
            "This needs every person of every flow on the driver, but there are too many and they"
            f" stay on the cluster: {self.blocks.n_rows:,} rows. Hint: methods that only count"
            " persons work there (twincut, paircut, odkanon, oigh, atg-dual, atg-soft, glove-sk,"
            " suppression); or let a driver with enough memory, about 100 bytes a row, take them"
            f" ({with_value('driver_flows', self.blocks.n_rows)})."
        )


def in_window(flow: Ints, first: int, value: Ints) -> tuple[slice, Ints]:
    """Returns the rows of a block whose flows are in a window, and the value of each."""
    start, stop = np.searchsorted(flow, (first, first + len(value)))
    return slice(start, stop), value[flow[start:stop] - first]


def count_distinct(flow: Ints, person: Ints, asked: tuple[int, Ints, int]) -> Counts:
    """Returns the distinct persons of each cell in a block, for a query (first flow, cell of each
    flow, cells).
    """
    first, cell_of_flow, n_cells = asked
    rows, cell = in_window(flow, first, cell_of_flow)
    kept = cell >= 0
    wide = int(person.max(initial=0)) + 1
    key = np.unique(cell[kept].astype(np.int64) * wide + person[rows][kept])
    return np.bincount(key // wide, minlength=n_cells)
