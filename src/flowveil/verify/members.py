"""Members that a group counts once, such as persons: rows of the recount's database, or rows that stay on a cluster.

Rows that stay there are in blocks, all of a member in one of them. Each block is asked by SQL, where it is, how many
different members the groups have in it, and the answers are added up. Shares nothing with how methods count them.

Where there are millions of rows at hand, numbers of groups and members are sorted: a set of all distinct ones, which is
what DuckDB makes, takes five times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.reading.limits import threads
from flowveil.remote_people import RemotePeople
from flowveil.verify.database import Database
from flowveil.workers import parallel_map

#: More rows of members than these are counted by sorting. To plan the statements that takes would cost more for few.
MOST_IN_SQL = 500_000
#: Groups are sorted in so many blocks at the least, so that little is in memory twice.
_BLOCKS = 4

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowveil.flows import Flows
    from flowveil.remote_people import Blocks


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """Members that stay on a cluster.

    Attributes:
        blocks: where they are.
        row, flow: which row of the recount is which flow there; a row may be several.
    """

    blocks: Blocks
    row: Any
    flow: Any


def elsewhere(parts: Sequence[Flows], start: Any) -> Elsewhere | None:
    """The persons of these slices where they stay on a cluster; the rows of each slice begin at ``start``."""
    found = [(part.people, first) for part, first in zip(parts, start, strict=False)]
    distant = [(people, first) for people, first in found if isinstance(people, RemotePeople)]
    if not distant:
        return None
    row = np.concatenate([people.row + first for people, first in distant])
    flow = np.concatenate([people.flow for people, _ in distant])
    return Elsewhere(distant[0][0].blocks, row, flow)


def members_in(db: Database, unit: str, columns: str, rows: str, *, by: str = "row") -> str:
    """SQL of ``columns`` and n: how many different members each group has that has any.

    Args:
        db: with ``UNIT_row`` and ``UNIT_flow``, or with ``at_flow`` (flow, row) where members are elsewhere.
        unit: whose members are counted.
        columns: the columns that distinguish groups.
        rows: a table with these columns, and a row or flow for each of a group.
        by: whether it has a ``row`` or a ``flow``.
    """
    distant, at_hand = db.elsewhere.get(unit), db.at_hand.get(f"{unit}_{by}")
    if at_hand is not None and len(at_hand[0]) > MOST_IN_SQL:
        counted = _by_sorting(db, columns, rows, by, at_hand)
        if counted is not None:
            return counted
    if distant is None:
        # Distinct rows first, then a plain count: a set of persons for each of a million cells is far slower.
        distinct = f"SELECT DISTINCT {columns}, member FROM {rows} JOIN {unit}_{by} USING ({by})"
        return f"SELECT {columns}, count(*) AS n FROM ({distinct}) GROUP BY {columns}"
    import pyarrow as pa

    name = f"asked_{db.next_number()}"
    placed = rows if by == "row" else f"(SELECT * FROM {rows} JOIN at_flow USING (flow))"
    db.create(
        f"{name}_group", f"SELECT *, row_number() OVER () - 1 AS g FROM (SELECT DISTINCT {columns} FROM {placed})"
    )
    db.store(f"{name}_row", pa.table({"row": distant.row, "away": distant.flow}))
    asked = db.columns(f"SELECT g, away FROM {placed} JOIN {name}_group USING ({columns}) JOIN {name}_row USING (row)")
    n_groups = int(db.one(f"SELECT count(*) FROM {name}_group"))
    groups, flows = asked["g"].astype(np.int64), asked["away"].astype(np.int32)
    n = distant.blocks.summed(count_by_sql, (groups, flows, n_groups))
    db.store(f"{name}_n", pa.table({"g": np.arange(n_groups), "n": n}))
    return f"SELECT {columns}, n FROM {name}_group JOIN {name}_n USING (g) WHERE n > 0"


def _by_sorting(db: Database, columns: str, rows: str, by: str, members: tuple[Any, Any]) -> str | None:
    """The same SQL, of a table that is counted here; None where a row is in several groups."""
    import pyarrow as pa

    name = f"sorted_{db.next_number()}"
    db.create(f"{name}_group", f"SELECT *, row_number() OVER () - 1 AS g FROM (SELECT DISTINCT {columns} FROM {rows})")
    asked = db.columns(f"SELECT g, {by} AS at FROM {rows} JOIN {name}_group USING ({columns})")
    n_groups = int(db.one(f"SELECT count(*) FROM {name}_group"))
    n = count_sorted(asked["g"].astype(np.int32), asked["at"], n_groups, *members)
    if n is None:
        return None
    db.store(f"{name}_n", pa.table({"g": np.arange(n_groups), "n": n}))
    return f"SELECT {columns}, n FROM {name}_group JOIN {name}_n USING (g) WHERE n > 0"


def count_sorted(group: Any, asked: Any, n_groups: int, row: Any, member: Any) -> Any:
    """Different members of each group; None where a row is in several.

    Args:
        group, asked: groups, and rows that are in them.
        n_groups: how many groups there are.
        row, member: rows, and whom they have.
    """
    group_of = np.full(max(int(row.max(initial=-1)), int(asked.max(initial=-1))) + 1, -1, dtype=np.int32)
    group_of[asked] = group
    if not np.array_equal(group_of[asked], group):
        return None
    of_row = group_of[row]
    counted = of_row >= 0
    of_row, member = of_row[counted], member[counted]

    def count(first: int, last: int) -> Any:
        """Of the groups from one on up to another."""
        some = (of_row >= first) & (of_row < last)
        key = of_row[some].astype(np.int64) << 32 | member[some]
        key.sort()
        is_new = np.append(True, key[1:] != key[:-1])[: len(key)]
        return np.bincount((key[is_new] >> 32) - first, minlength=last - first)

    edges = np.linspace(0, n_groups, max(threads(), _BLOCKS) + 1).astype(np.int64).tolist()
    blocks = (partial(count, first, last) for first, last in pairwise(edges))
    return np.concatenate([np.zeros(0, np.int64), *parallel_map(blocks, threads=threads())])


def count_by_sql(flow: Any, member: Any, asked: tuple[Any, Any, int]) -> Any:
    """Different members of each group in a block, given groups and flows that belong together, and how many groups."""
    import duckdb
    import pyarrow as pa

    groups, flows, n_groups = asked
    with duckdb.connect(config={"threads": 1}) as con:
        con.register("asked", pa.table({"g": groups, "flow": flows}))
        con.register("block", pa.table({"flow": flow, "member": member}))
        con.execute(
            "SELECT g, count(*) AS n FROM (SELECT DISTINCT g, member FROM asked JOIN block USING (flow)) GROUP BY g"
        )
        found = con.fetchnumpy()
    counted = np.zeros(n_groups, dtype=np.int64)
    counted[np.ma.getdata(found["g"])] = np.ma.getdata(found["n"])
    return counted
