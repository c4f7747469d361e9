"""Whether noisy counts can be what they are said to be: the counted trips, with noise of the stated law.

Nobody can recount a noisy number, but whoever holds the raw trips can take them off and look at what is left. If the
release is honest, that is independent draws of the discrete Laplace law, and how often they are 0, above 0, or at most
x is known. Exact counts that are labelled as noise are 0 throughout.

Each question gets a bound that holds for any number of draws, not an approximation for many: Chernoff's for how often
something happens (the chance of m or more out of n is at most exp(-n KL(m / n, p))), and that of Dvoretzky, Kiefer,
Wolfowitz and Massart for the whole law (the chance that the shares of draws up to x are off by more than t anywhere is
at most 2 exp(-2 n t²), also where the law is discrete). All questions together accuse an honest release with a
probability of at most `FALSE_ALARM`.

Counts below the smallest published one are not listed, so such a draw is only known to be small. Each question is asked
of those pairs alone for which the answer is known whatever the draw was; so nothing is conditioned on being listed.

Shares nothing with the method: zones are climbed to, and trips bounded, anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_cells
import numpy as np
from numpy.typing import NDArray

from flowveil.verify.database import Database

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy

#: The chance that an honest release is accused, all questions together.
FALSE_ALARM = 1e-9
#: Of how many questions the chance is shared: eight at the most are asked below.
QUESTIONS = 8

Counts = NDArray[np.int64]


def check_law(promise: Mapping[str, Any], flows: Flows, db: Database) -> Iterator[str]:
    """Findings on the published numbers of a noisy release against the raw flows.

    Args:
        promise: what the report says of the noise; its numbers are in their ranges.
        flows: the flows it was made from.
        db: with ``published_rows``.
    """
    zones = [Zones.of(flows, tree, promise["domain"]) for tree in (flows.origins, flows.destinations)]
    load_pairs(db, promise, flows, zones)
    counted, raw, noisy = columns_of(db, "SELECT c, raw, coalesce(y, -1) FROM pairs WHERE c > 0")
    law = _Law(math.exp(-1 / promise["scale"]))
    least = promise["threshold"] or 1
    yield from _check_draws(law, counted, raw, noisy, least)
    (value,) = columns_of(db, "SELECT y FROM strangers")
    if promise["threshold"] is not None:
        if len(value):
            yield f"flows.parquet: {len(value)} rows are of pairs without trips, which get no noise and are not listed"
        return
    empty = len(zones[0].every) * len(zones[1].every) - len(counted)
    if law.unlikely(len(value), empty, law.above(1)):
        yield "flows.parquet: pairs without trips are not listed as often as noise would have it"
    if _off(value - 1, lambda x: 1 - law.q ** (x + 1), lowest=0):
        yield "flows.parquet: the counts of pairs without trips do not have the law of the noise"


def _check_draws(law: _Law, counted: Counts, raw: Counts, noisy: Counts, least: int) -> Iterator[str]:
    """What is left of the listed counts when the counted trips are taken off; -1 stands for a count not listed."""
    draw = noisy - counted
    sure = counted >= least
    exact = int(np.sum(draw[sure] == 0))
    as_read = int(np.sum(noisy[raw >= least] == raw[raw >= least]))
    # Counts without the bound are as exact; under noise each is hit no more often than the most likely draw is.
    if too_many(exact, int(np.sum(sure)), law.zero) or too_many(as_read, int(np.sum(raw >= least)), law.zero):
        yield "flows.parquet: more counts are exact than noise of this scale leaves: these are counts, not noise"
        return
    if law.unlikely(exact, int(np.sum(sure)), law.zero):
        yield "flows.parquet: fewer counts are exact than noise of this scale leaves"
    near = counted >= least - 1
    more = int(np.sum((noisy[near] >= 0) & (draw[near] >= 1)))
    if law.unlikely(more, int(np.sum(near)), law.above(1)):
        yield "flows.parquet: noise does not add trips as often as it takes them away"
    reach = math.ceil(-1 / math.log(law.q))
    # Of a pair with so many trips every draw from -reach on is seen; what is not listed is lower.
    for lowest in sorted({1, reach, 3 * reach}):
        full = counted >= least + lowest - 1
        seen = np.where(noisy[full] >= 0, draw[full], -lowest)
        if _off(seen, law.up_to, lowest=-lowest):
            yield "flows.parquet: what is added to the counted trips does not have the law of the noise"
            return


class _Law:
    """The law P(X = x) proportional to q**abs(x), and bounds on what happens by chance."""

    def __init__(self, q: float) -> None:
        self.q = q
        self.zero = (1 - q) / (1 + q)

    def above(self, x: int) -> float:
        """P(X >= x), for x of 1 or more."""
        return self.q**x / (1 + self.q)

    def up_to(self, x: NDArray[Any]) -> NDArray[Any]:
        """P(X <= x)."""
        far = self.q ** np.maximum(np.where(x >= 0, x + 1, -x), 0) / (1 + self.q)
        return np.where(x >= 0, 1 - far, far)

    def unlikely(self, m: int, n: int, p: float) -> bool:
        """Whether it happens so often, or so seldom."""
        return too_many(m, n, p) or too_many(n - m, n, 1 - p)


def too_many(m: int, n: int, p: float) -> bool:
    """Whether something of this chance happens so often with a probability below that of a false alarm."""
    return n > 0 and m / n > p and n * _divergence(m / n, p) > math.log(2 * QUESTIONS / FALSE_ALARM)


def _divergence(a: float, p: float) -> float:
    """How far a share is from a chance, as Kullback and Leibler measure it."""
    near = a * math.log(a / p) if a > 0 else 0.0
    return near + ((1 - a) * math.log((1 - a) / (1 - p)) if a < 1 else 0.0)


def _off(draws: Counts, up_to: Any, *, lowest: int) -> bool:
    """Whether the shares of draws up to x, for an x from ``lowest`` on, are further from the law than chance allows."""
    n = len(draws)
    if n == 0:
        return False
    value, times = np.unique(np.maximum(draws, lowest), return_counts=True)
    share = np.cumsum(times) / n
    # Between two values the share stays and the law rises: it is furthest at a value, or just before the next one.
    before = np.concatenate(([0.0], share[:-1]))
    later = value > lowest
    gaps = [np.abs(share - up_to(value)), np.where(later, np.abs(before - up_to(value - 1)), 0)]
    furthest = max(float(np.max(gap)) for gap in gaps)
    return 2 * n * furthest**2 > math.log(2 * QUESTIONS / FALSE_ALARM)


# ---- what was counted --------------------------------------------------------------------------------------------


class Zones:
    """The zones of one end: all there are by code, and that of each tile (None outside the region)."""

    def __init__(self, every: set[str], of_tile: list[str | None]) -> None:
        self.every, self.of_tile = every, of_tile

    @classmethod
    def of(cls, flows: Flows, tree: Hierarchy, domain: Mapping[str, Any]) -> Zones:
        """Climb from the tiles to the level that the report names, in the map where there is one."""
        region = domain.get("region")
        names = None if region is None else set(map(str, region))
        if tree.kind == "h3" and tree.code.dtype == np.uint64:
            return cls._of_cells(tree.code[tree.leaf_node].tolist(), int(domain["level"]), names)
        whole = tree if flows.whole_map is None or domain.get("zones_from_data") else flows.whole_map
        level = None if domain["level"] == "tiles" else int(domain["level"])
        codes = whole.code_text(np.arange(whole.n_nodes, dtype=np.int32)).tolist()
        zone = {codes[leaf]: _climbed(whole, codes, int(leaf), level, names) for leaf in whole.leaf_node}
        every = {code for code in zone.values() if code is not None}
        return cls(every, [zone[code] for code in tree.code_text(tree.leaf_node).tolist()])

    @classmethod
    def _of_cells(cls, tiles: list[int], level: int, names: set[str] | None) -> Zones:
        places = None if names is None else {int(name, 16) for name in names}
        steps = set() if places is None else {h3_cells.get_resolution(place) for place in places}
        of_tile: list[str | None] = []
        for tile in tiles:
            inside = places is None or any(h3_cells.cell_to_parent(tile, step) in places for step in steps)
            of_tile.append(f"{h3_cells.cell_to_parent(tile, level):x}" if inside else None)
        if places is None:
            return cls({code for code in of_tile if code is not None}, of_tile)
        below = {cell for place in places for cell in h3_cells.cell_to_children(place, level)}
        return cls({f"{cell:x}" for cell in below}, of_tile)


def _climbed(tree: Hierarchy, codes: list[str], leaf: int, level: int | None, names: set[str] | None) -> str | None:
    """The code of the zone of a tile: its ancestor of the level, or itself above it; None outside the region."""
    node, zone, inside = leaf, leaf, names is None
    while node >= 0:
        if level is not None and int(tree.level[node]) >= level:
            zone = node
        inside = inside or (names is not None and codes[node] in names)
        node = int(tree.parent[node])
    return codes[zone] if inside else None


def load_pairs(db: Database, promise: Mapping[str, Any], flows: Flows, zones: list[Zones]) -> None:
    """Tables: ``pairs`` (counted trips c, trips as read, published count y) and ``strangers``, listed without trips."""
    import pyarrow as pa

    ends = [
        np.array(end.of_tile, dtype=object)[tile]
        for end, tile in zip(zones, (flows.origin, flows.destination), strict=True)
    ]
    columns = {"row": np.arange(len(flows)), "o": pa.array(ends[0], pa.string()), "d": pa.array(ends[1], pa.string())}
    db.store("ends", pa.table({**columns, "raw": flows.trips}))
    db.create("inside", "SELECT * FROM ends WHERE o IS NOT NULL AND d IS NOT NULL")
    if flows.people is None:
        db.create("bounded", "SELECT row, raw AS c FROM inside")
    else:
        _bound_trips(db, flows, int(promise["bound"]))
    db.create(
        "counted",
        "SELECT o, d, coalesce(sum(c), 0)::BIGINT AS c, sum(raw)::BIGINT AS raw "
        "FROM inside LEFT JOIN bounded USING (row) GROUP BY o, d",
    )
    joined = "ON o = origin_zone AND d = destination_zone"
    db.create("pairs", f"SELECT c, raw, trips AS y FROM counted LEFT JOIN published_rows {joined}")
    db.create("strangers", f"SELECT trips AS y FROM published_rows ANTI JOIN counted {joined} AND c > 0")


def _bound_trips(db: Database, flows: Flows, bound: int) -> None:
    """Of a person with n trips, n above the bound, every (n / bound)-th stays, in the order of the flows."""
    import pyarrow as pa

    people = flows.people
    if people is None or people.trips is None:
        raise ValueError("the flows do not say how many trips each person made")
    db.store("trips_of_person", pa.table({"row": people.cell, "person": people.person, "trips": people.trips}))
    db.create(
        "bounded",
        "WITH reached AS (SELECT row, trips, "
        "sum(trips) OVER (PARTITION BY person ORDER BY row)::HUGEINT AS r, "
        "sum(trips) OVER (PARTITION BY person)::HUGEINT AS n FROM trips_of_person SEMI JOIN inside USING (row)) "
        f"SELECT row, sum(CASE WHEN n <= {bound} THEN trips ELSE "
        f"(r * {bound} + n // 2) // n - ((r - trips) * {bound} + n // 2) // n END)::BIGINT AS c "
        "FROM reached GROUP BY row",
    )


def columns_of(db: Database, query: str) -> list[Counts]:
    """The columns of a query as whole numbers."""
    return [np.ma.getdata(column).astype(np.int64) for column in db.masked(query).values()]
