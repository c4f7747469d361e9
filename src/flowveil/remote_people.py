"""Persons that stay where they were read: a cluster counts them, and their rows never come here.

`RemotePeople` stands where `People` stands. Merging cells only notes which flow is in which cell; when somebody asks
how many different persons each cell has, the question goes to where the rows are. They are there in blocks, and all
rows of a person are in one block, so the distinct persons of a cell are the sum of those of the blocks: however rows
are divided into blocks, the answers are the same whole numbers.

Who needs the rows themselves (which person made which trips) is refused in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError, option
from flowveil.flows import People
from flowveil.hierarchy import Ints

Counts = NDArray[np.int64]
#: Counts something in a block: distinct rows of flow and person, sorted by flow, and what is asked.
Counting = Callable[[Ints, Ints, Any], Counts]


class Blocks(Protocol):
    """Where the rows of persons are: distinct (flow, person), all those of a person in one block.

    Attributes:
        n_flows: flows that persons are known of, numbered from 0.
        n_rows: rows in all blocks.
    """

    n_flows: int
    n_rows: int

    def summed(self, counting: Counting, asked: Any) -> Counts:
        """Count in every block, where it is, and add up; whoever counts is a function of a module."""
        ...


class RemotePeople(People):
    """Who is behind each cell, for whoever asks how many they are; see the module.

    Attributes:
        blocks: where the rows are.
        flow: the flows of the blocks that are in a cell, ascending.
        row: the cell of each.
    """

    def __init__(self, blocks: Blocks, flow: Ints, row: Ints) -> None:
        # The fields of the base class are what is not here, and the class is frozen.
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "flow", flow)
        object.__setattr__(self, "row", row)
        object.__setattr__(self, "_counted", {})

    blocks: Blocks
    flow: Ints
    row: Ints
    _counted: dict[int, Counts]

    @classmethod
    def concat(cls, parts: Sequence[People], n_cells: Sequence[int]) -> RemotePeople:
        """The people of tables that stand one below the other; no flow is in two of them."""
        first = np.cumsum([0, *n_cells[:-1]]).astype(np.int32)
        distant = [part for part in parts if isinstance(part, RemotePeople)]
        if len(distant) < len(parts) or any(part.blocks is not distant[0].blocks for part in distant):
            raise DataError("Persons of different inputs cannot be counted together where they stay on a cluster.")
        flow = np.concatenate([part.flow for part in distant])
        row = np.concatenate([part.row + start for part, start in zip(distant, first, strict=True)])
        order = np.argsort(flow, kind="stable")
        if np.any(np.diff(flow[order]) == 0):
            raise ValueError("a flow is in two tables")
        return cls(distant[0].blocks, flow[order], row[order])

    @property
    def n_rows(self) -> int:
        """Rows that are held in memory: none."""
        return 0

    def count(self, n_cells: int) -> Counts:
        """Distinct people of each cell; asked once."""
        if n_cells not in self._counted:
            self._counted[n_cells] = self.blocks.summed(count_distinct, (*self.window(self.row), n_cells))
        return self._counted[n_cells]

    def total(self) -> int:
        """Distinct people of all cells together."""
        return int(self.merge(np.zeros(int(self.row.max(initial=-1)) + 1, np.int32)).count(1)[0])

    def merge(self, new_cell: Ints) -> RemotePeople:
        """Move every flow to its new cell (-1: leave it out)."""
        row = new_cell[self.row].astype(np.int32)
        kept = row >= 0
        return RemotePeople(self.blocks, self.flow[kept], row[kept])

    def renumber(self, place: Ints) -> RemotePeople:
        """The same people of cells that have other numbers."""
        return self.merge(place)

    def window(self, value: Ints) -> tuple[int, Ints]:
        """A value of each flow here as one array over the flows from the first on, -1 for those that are not here."""
        first = int(self.flow[0]) if len(self.flow) else 0
        length = int(self.flow[-1]) + 1 - first if len(self.flow) else 0
        out = np.full(length, -1, dtype=np.int32)
        out[self.flow - first] = value
        return first, out

    @property
    def cell(self) -> Ints:
        """Not here."""
        self._refuse()

    @property
    def person(self) -> Ints:
        """Not here."""
        self._refuse()

    @property
    def trips(self) -> NDArray[np.int64] | None:
        """Not here."""
        self._refuse()

    def __reduce__(self) -> NoReturn:
        raise DataError(
            "Persons stay on the cluster, and only the process that read them can ask it. Hint: one process "
            f"({option('workers')} 1)."
        )

    def _refuse(self) -> NoReturn:
        raise DataError(
            "What was asked for needs every person of every flow on the driver, and there are more than it takes, so "
            f"they stay on the cluster: {self.blocks.n_rows:,} rows. Hint: methods that only count persons work there "
            "(twincut, paircut, odkanon, oigh, atg-dual, atg-soft, glove-sk, suppression); or let a driver with enough "
            f"memory, about 100 bytes a row, take them ({option('driver_flows')} {self.blocks.n_rows})."
        )


def in_window(flow: Ints, first: int, value: Ints) -> tuple[slice, Ints]:
    """Which rows of a block are of flows in a window, and the value of each."""
    start, stop = np.searchsorted(flow, (first, first + len(value)))
    return slice(start, stop), value[flow[start:stop] - first]


def count_distinct(flow: Ints, person: Ints, asked: tuple[int, Ints, int]) -> Counts:
    """Distinct persons of each cell in a block, given the first flow, the cell of it and those after, and the cells."""
    first, cell_of_flow, n_cells = asked
    rows, cell = in_window(flow, first, cell_of_flow)
    kept = cell >= 0
    wide = int(person.max(initial=0)) + 1
    key = np.sort(cell[kept].astype(np.int64) * wide + person[rows][kept])
    new = np.ones(len(key), dtype=np.bool_)
    np.not_equal(key[1:], key[:-1], out=new[1:])
    return np.bincount(key[new] // wide, minlength=n_cells)
