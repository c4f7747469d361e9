"""Closeness recounted from the published table: how far the ends of each zone are from those of all.

What lies above a zone is followed by code, by what the library h3 says or by the parents of the user's own map. For
every zone all edges above its partners are listed at once, a block of zones at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_int
import numpy as np

from flowveil.verify.frozen import above_in_h3, climbing
from flowveil.verify.h3_parts import cells_in

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.verify.claims import Claims
    from flowveil.verify.database import Database

_DIGITS = 4
#: Half of the last digit, and a little.
_TOLERANCE = 5.1e-4
_LEVELS = {"median": 0.5, "upper_quartile": 0.75, "upper_decile": 0.9}
#: Pairs of a cell and an edge that are held at a time.
_AT_ONCE = 4_000_000


def check_closeness(db: Database, claims: Claims, flows: Flows) -> Iterator[str]:
    """Compare what report.json says of closeness with what follows from flows.parquet."""
    said = claims.report.get("closeness")
    if not claims.homogeneous or claims.revised:
        if said is not None:
            yield "report.json: says how close zones are, although they cannot be compared"
        return
    if said is None:
        yield "report.json: does not say how close zones are"
        return
    codes, ends, trips = _cells(db)
    for i, role in enumerate(("origin", "destination")):
        variation, metres, total = _distances(ends[i], ends[1 - i], trips, codes[1 - i], claims, flows)
        for name, values in (("total_variation", variation), ("metres", metres)):
            stated = said[role][name]
            if (stated is None) != (values is None) or (values is not None and not _agrees(stated, values, total)):
                yield f"report.json: the closeness of {role} zones by {name} contradicts the recount"


def _cells(db: Database) -> tuple[list[list[str]], list[Any], Any]:
    """The zones of both ends in the order of their codes, and of each cell the numbers of its two and its trips."""
    named = [f"SELECT DISTINCT {end}_zone AS zone FROM published" for end in ("origin", "destination")]
    codes = [[code for (code,) in db.rows(f"{query} ORDER BY zone")] for query in named]
    o, d = (f"(SELECT zone, row_number() OVER (ORDER BY zone) - 1 AS n FROM ({query}))" for query in named)
    found = db.columns(
        "SELECT o.n AS o, d.n AS d, trips::DOUBLE AS trips FROM published "
        f"JOIN {o} o ON origin_zone = o.zone JOIN {d} d ON destination_zone = d.zone"
    )
    return codes, [found[end].astype(np.int64) for end in "od"], found["trips"].astype(np.float64)


def _agrees(stated: Mapping[str, float], values: Any, total: Any) -> bool:
    order = np.argsort(values)
    reached = np.cumsum(total[order]) / total.sum()
    counted = {"mean": float(values @ total / total.sum()), "largest": float(values.max())}
    for name, level in _LEVELS.items():
        counted[name] = float(values[order][int(np.argmax(reached >= level * (1 - 1e-12)))])
    return all(
        stated[name] == float(f"{stated[name]:.{_DIGITS}g}")
        and abs(stated[name] - value) <= _TOLERANCE * abs(value) + 1e-6
        for name, value in counted.items()
    )


def _distances(at: Any, partner: Any, trips: Any, partners: list[str], claims: Claims, flows: Flows) -> tuple[Any, ...]:
    """Total variation and metres of each zone of one end, and its trips."""
    total = np.bincount(at, weights=trips)
    p, q = trips / total[at], np.bincount(partner, weights=trips) / trips.sum()
    # Half of: what it has and all have differently, and what all have and it has not.
    missed = 1 - np.bincount(at, weights=q[partner], minlength=len(total))
    variation = (np.bincount(at, weights=np.abs(p - q[partner])) + missed) / 2
    edges = _Edges.above(partners, q, claims, flows)
    if edges is None:
        return variation, None, total
    return variation, edges.moved(at, partner, trips, total, q), total


@dataclass(frozen=True, eq=False)
class _Edges:
    """The edges of the tree above partners: for each partner those on its way up, and how long each is."""

    start: Any
    edge: Any
    length: Any

    @classmethod
    def above(cls, codes: list[str], q: Any, claims: Claims, flows: Flows) -> _Edges | None:
        """None where the map does not say where zones lie. An edge is named by what is at its lower end."""
        way, place = _tree(claims, flows)
        if place is None or (claims.parameters.get("outside") == "keep" and "outside" in codes):
            return None
        number: dict[str, int] = {}
        parent: dict[int, int] = {}
        start, edge = [0], []
        points = _vectors(*place(codes)) * q[:, None]
        for code in codes:
            path = [number.setdefault(step, len(number)) for step in (code, *way(code))]
            parent.update(pairwise(path))
            edge += path
            start.append(len(edge))
        # The middle of all ends below, by the direction of the mean.
        below = np.zeros((len(number), 3))
        np.add.at(below, edge, np.repeat(points, np.diff(start), axis=0))
        up = np.array([parent.get(i, i) for i in range(len(number))])
        return cls(np.array(start), np.array(edge, dtype=np.int64), _metres(below, below[up]))

    def moved(self, at: Any, partner: Any, trips: Any, total: Any, q: Any) -> Any:
        """What goes over the edges for each zone, in metres."""
        n, long = len(self.length), np.diff(self.start)
        below = np.bincount(self.edge, weights=np.repeat(q, long), minlength=n)
        found = np.full(len(total), float(below @ self.length))
        order = np.argsort(at, kind="stable")
        ends = np.searchsorted(at[order], np.arange(len(total) + 1))
        cost = np.concatenate(([0], np.cumsum(long[partner[order]])))
        first = 0
        while first < len(total):
            last = first + 1
            while last < len(total) and cost[ends[last + 1]] - cost[ends[first]] <= _AT_ONCE:
                last += 1
            rows = order[ends[first] : ends[last]]
            zone, which = np.repeat(at[rows] - first, long[partner[rows]]), self._of(partner[rows])
            key, own = _sums(zone * n + which, np.repeat(trips[rows], long[partner[rows]]), (last - first) * n)
            zone, which = key // n, key % n
            apart = np.abs(own / total[first + zone] - below[which]) - below[which]
            found[first:last] += np.bincount(zone, weights=apart * self.length[which], minlength=last - first)
            first = last
        return found

    def _of(self, partners: Any) -> Any:
        """The edges above each of these, one after the other."""
        long = np.diff(self.start)[partners]
        offset = np.arange(long.sum()) - np.repeat(np.cumsum(long) - long, long)
        return self.edge[np.repeat(self.start[partners], long) + offset]


def _sums(key: Any, weight: Any, n_keys: int) -> tuple[Any, Any]:
    """The keys that have some weight, and how much; of few that are possible nothing is sorted."""
    if n_keys <= _AT_ONCE * 4:
        own = np.bincount(key, weights=weight, minlength=n_keys)
        key = np.flatnonzero(own)
        return key, own[key]
    key, row = np.unique(key, return_inverse=True)
    return key, np.bincount(row, weights=weight)


Place = Callable[[list[str]], tuple[Any, Any]]


def _tree(claims: Claims, flows: Flows) -> tuple[Callable[[str], list[str]], Place | None]:
    """What each code lies in, and where codes are; the latter None where nobody knows."""
    tree = flows.whole_map
    if tree is not None:
        if tree.geography is None:
            return climbing(tree), None
        node = {code: i for i, code in enumerate(tree.code.tolist())}
        lat, lon = tree.geography.centers(np.arange(tree.n_nodes, dtype=np.int32))

        def on_map(codes: list[str]) -> tuple[Any, Any]:
            at = [node[code] for code in codes]
            return lat[at], lon[at]

        return climbing(tree), on_map
    if flows.origins.geography is None or flows.origins.kind not in ("h3", "halves"):
        return lambda _: [], None
    halves = claims.parameters.get("hierarchy") == "halves"
    return lambda code: above_in_h3(code, halves=halves), lambda codes: _centers(codes, flows)


def _centers(codes: list[str], flows: Flows) -> tuple[Any, Any]:
    """The centre of each H3 cell; of a part, the direction of the mean of its children's; of everything, as mapped."""
    cells = [cells_in(code) for code in codes]
    n_cells = np.array([len(of_zone) for of_zone in cells], dtype=np.int64)
    zone = np.repeat(np.arange(len(codes)), n_cells)
    points = np.array([h3_int.cell_to_latlng(cell) for of_zone in cells for cell in of_zone]).reshape(-1, 2)
    x, y, z = (np.bincount(zone, weights=axis, minlength=len(codes)) for axis in _vectors(*points.T).T)
    lat, lon = np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))
    if not n_cells.all():
        everywhere = flows.origins.geography.centers(np.zeros(1, np.int32))  # type: ignore[union-attr]
        lat[n_cells == 0], lon[n_cells == 0] = (float(axis[0]) for axis in everywhere)
    return lat, lon


def _vectors(lat: Any, lon: Any) -> Any:
    lat, lon = np.radians(lat), np.radians(lon)
    return np.column_stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))


def _metres(low: Any, high: Any) -> Any:
    """How far two directions are apart on the earth."""
    from pyproj import Geod

    degrees = [(np.degrees(np.arctan2(y, x)), np.degrees(np.arctan2(z, np.hypot(x, y)))) for x, y, z in (low.T, high.T)]
    return np.asarray(Geod(ellps="WGS84").inv(*degrees[0], *degrees[1])[2])
