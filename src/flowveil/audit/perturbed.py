"""Attacks perturbed tables: the same count in several tables, and counts next to those of their parts.

The unknowns are the true counts of pairs of zones. Likelihoods of values with different keys are multiplied, which is
how averaging gains; values with the same key are one draw. Bounds are propagated through all sums over zones and slices
until nothing changes: they hold for every input. Assumes, like `flowveil.audit.subtraction`, that releases of equal
periods are of the same trips, and that a release lists all values of its slice columns.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

import numpy as np

from flowveil.audit.bounds import UNKNOWN
from flowveil.audit.published import Counts, PublishedRelease, disjoint, fixed_values, incomparable
from flowveil.audit.subtraction import Group
from flowveil.audit.zone_forest import ground_of
from flowveil.errors import DataError
from flowveil.record_keys import MODULUS
from flowveil.times import TIME

#: A count is almost certain if it has this share of the likelihood.
CERTAIN = 0.95
FIGURES = ("counts", "compared", "determined", "single_trips", "certain", "values_left", "contradictions", "crossing")
#: Column and value of each slice column that is fixed.
Values = frozenset[tuple[str, str]]
_MOST = int(UNKNOWN)


@dataclass
class PerturbedCounts:
    """What perturbed tables say together of the true counts.

    Figures: published ``counts``; those ``compared`` with further tables; ``determined``: one value is left, and no
    release states that it is exact, ``single_trips`` of these; ``certain``: almost certain; ``values_left`` of all
    together; ``contradictions``: nothing explains them; ``crossing``: in several wholes, their bounds may be too wide.
    """

    figures: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(FIGURES, 0)))
    groups: list[Group] = field(default_factory=list)  # the counts that are determined or almost certain
    unchecked: list[tuple[tuple[int, ...], str]] = field(default_factory=list)

    def in_words(self) -> str:
        """What was found, in a sentence."""
        n, compared, determined, single, certain, left, *_ = (self.figures[name] for name in FIGURES)
        return (
            f"{n:,} counts, {compared:,} of them in several tables or in sums: {determined:,} are determined "
            f"({single:,} of them one trip), {certain:,} more almost certain ({len(self.groups) / max(n, 1):.2%} "
            f"together); {left / max(n, 1):.1f} values are left on average."
        )


def attack_perturbed(releases: Sequence[PublishedRelease]) -> PerturbedCounts | None:
    """Returns what the perturbed ones among these releases say together; None without any. Deterministic."""
    same_trips: dict[Any, list[int]] = {}
    for i, release in enumerate(releases):
        if release.perturbed:
            same_trips.setdefault((release.ground, release.period), []).append(i)
    found = PerturbedCounts()
    for group in same_trips.values():
        try:
            _Tables(releases, group).attack(found)
        except DataError as problem:
            found.unchecked.append((tuple(group), str(problem)))
    for first, second in combinations(same_trips.values(), 2):
        a, b = (replace(releases[group[0]], noisy=False) for group in (first, second))
        if not disjoint(a, b):
            found.unchecked.append(((*first, *second), incomparable(a, b) or "the period of one is inside the other's"))
    return found if same_trips else None


@dataclass(frozen=True)
class _Rule:
    """How a table perturbs: which draws below 2**32 turn a count into a published value."""

    key: Any  # tables with the same key have the same draw for the same count
    stated: Mapping[str, Any]
    running: list[list[int]]  # running sums of the rows of the noise table

    def draws(self, count: int, value: int) -> tuple[int, int]:
        """Returns the first such draw and the one after the last."""
        if count == 0:
            return 0, MODULUS if value == 0 else 0
        if "base" in self.stated:
            base = int(self.stated["base"])
            rest = 0 if self.stated["small_only"] and count >= base else count % base
            up = -(-rest * MODULUS // base)
            return {count - rest + base: (0, up), count - rest: (up, MODULUS)}.get(value, (0, 0))
        row, at = self.running[min(count, len(self.running)) - 1], value - count + int(self.stated["maximum"])
        return (row[at - 1] if at else 0, row[at]) if 0 <= at < len(row) else (0, 0)


def _likelihoods(seen: Sequence[tuple[_Rule, int]], *, one_draw: bool = True) -> dict[int, float]:
    """Returns the counts that explain the published values; with probabilities of the values, the largest one as 1."""
    low, high = (f(v + sign * rule.stated["maximum"] for rule, v in seen) for f, sign in ((max, -1), (min, 1)))
    logs: dict[int, float] = {}
    for count in range(max(low, 0), high + 1):
        ranges: dict[Any, list[tuple[int, int]]] = {}
        for n, (rule, value) in enumerate(seen):
            ranges.setdefault(rule.key if one_draw else n, []).append(rule.draws(count, value))
        widths = [min(b for _, b in own) - max(a for a, _ in own) for own in ranges.values()]
        if min(widths) > 0:
            logs[count] = sum(map(math.log, widths))
    if not logs and one_draw:
        return _likelihoods(seen, one_draw=False)  # corrected records have other keys
    return {count: math.exp(log - max(logs.values())) for count, log in logs.items()}


class _Tables:
    """Tables of the same trips, and the bounds of their counts. A count is named by its slice and two nodes."""

    def __init__(self, releases: Sequence[PublishedRelease], places: Sequence[int]) -> None:
        self.releases, self.places = releases, places
        self.ground = ground_of({i: releases[i] for i in places})
        self.number: dict[tuple[Values, int, int], int] = {}
        self.sums: dict[tuple[Any, ...], tuple[list[int], int]] = {}  # by whole: parts, the most that is not listed
        self.totals: dict[int, tuple[int, int]] = {}  # bounds of totals of controlled rounding
        self.rules: dict[int, _Rule] = {}
        self.shown: dict[tuple[int, Values], dict[Any, int]] = {}
        for i in places:
            stated, given = releases[i].report["guarantee"], releases[i].report["parameters"]
            columns, every = given.get("columns") or {}, (given.get("slices") or {}).get("every")
            # Draws of controlled rounding depend on the whole table.
            key = i if stated.get("mode") == "controlled" else (stated["key"], columns.get("record_id"))
            self.rules[i] = _Rule(key, stated, np.cumsum(stated.get("table", [[0]]), axis=1).tolist())
            for matrix in releases[i].matrices:
                ends = (nodes.tolist() for nodes in self.ground.ends(i, matrix))
                fixed = fixed_values(releases[i], matrix).items()  # labels of 15 minutes and of hours look alike
                own = frozenset((c, f"{v} ({every})" if c == TIME and "T" in v[10:] else v) for c, v in fixed)
                self.shown[i, own] = dict(zip(zip(*ends, strict=True), matrix.trips.tolist(), strict=True))
        self.near = {place: self.ground.nearest(nodes) for place, nodes in self.ground.nodes.items()}

    def _unknown(self, values: Values, o: int, d: int) -> int:
        return self.number.setdefault((values, o, d), len(self.number))

    def attack(self, found: PerturbedCounts) -> None:
        """Bounds every count, and adds what is certain."""
        published = list(dict.fromkeys((values, *cell) for (_, values), cells in self.shown.items() for cell in cells))
        self.number = {unknown: at for at, unknown in enumerate(published)}
        self._add_sums()
        self._add_totals()
        seen = [
            tuple((i, self.shown[i, v][o, d]) for i in self.places if (o, d) in self.shown.get((i, v), ()))
            for v, o, d in self.number
        ]
        explained = {own: _likelihoods([(self.rules[i], n) for i, n in own]) for own in set(seen) if own}
        likely = [explained.get(own, {}) for own in seen]
        bounds = np.array([(min(x), max(x)) if x else self.totals.get(at, (0, _MOST)) for at, x in enumerate(likely)]).T
        low, high = self._propagate(*bounds.copy())
        contradictions = sum(not explained[own] for own in seen if own) + int(np.sum(low > high))
        low, high = bounds if contradictions else (low, high)
        in_sums = {at for (whole, *_), (parts, _) in self.sums.items() for at in (whole, *parts)}
        above: dict[int, set[int]] = defaultdict(set)
        for whole, at in ((key[0], at) for key, (parts, _) in self.sums.items() if seen[key[0]] for at in parts):
            above[at].add(whole)
        found.figures.update(counts=len(published), contradictions=contradictions)
        for at, ((values, o, d), a, b) in enumerate(zip(published, low.tolist(), high.tolist(), strict=False)):
            chances = [chance for count, chance in likely[at].items() if a <= count <= b]
            compared = len(seen[at]) > 1 or at in in_sums
            crossing = a < b and any(x not in above[y] and y not in above[x] for x, y in combinations(above[at], 2))
            found.figures.update(values_left=len(chances), compared=int(compared), crossing=int(crossing))
            rules = ((self.rules[i].stated, value) for i, value in seen[at])
            is_exact = any(stated.get("small_only") and value > stated["base"] for stated, value in rules)
            if chances and max(chances) >= CERTAIN * sum(chances) and not is_exact:
                found.figures.update(determined=int(a == b), single_trips=int(a == b == 1), certain=int(a < b))
                kind = ", ".join(["determined" if a == b else "almost certain", *map("=".join, sorted(values))])
                origin, destination = self.ground.codes[o], self.ground.codes[d]
                found.groups.append(Group(tuple(self.places), kind, origin, destination, a, b, single=True))

    def _add_sums(self) -> None:
        """Adds every whole that is the sum of cells or slices of a table; then pairs that became 0, and their sums."""
        times = {value for _, values in self.shown for column, value in values if column == TIME}
        families: dict[tuple[Any, ...], list[Values]] = {}
        for j, values in self.shown:
            # Steps of time of different length divide the same trips.
            kind = tuple((column, len(value) * (column == TIME)) for column, value in sorted(values))
            longer = {v[:n] for column, v in values if column == TIME for n in range(1, len(v))} & times
            choices = [[None, (c, v), *((c, t) for t in sorted(longer) if c == TIME)] for c, v in sorted(values)]
            for whole in product(*choices):
                families.setdefault((j, frozenset(filter(None, whole)), kind), []).append(values)
        for i, j in product(self.places, repeat=2):
            near, inside = zip(*(self._zones_inside(i, j, end) for end in (0, 1)), strict=True)
            most = max(_likelihoods([(self.rules[j], 0)]))
            for (of, whole, kind), family in families.items():
                # Wholes of slices are sums, even without a listed part.
                is_whole = i == j == of and family != [whole]
                sums: dict[Any, list[int]] = {cell: [] for cell in self.shown.get((j, whole), ()) if is_whole}
                for values, (o, d) in ((v, cell) for v in family if of == j for cell in self.shown[j, v]):
                    a, b = near[0][o], near[1][d]
                    if a >= 0 <= b and (values, o, d) != (whole, a, b):
                        sums.setdefault((a, b), []).append(self._unknown(values, o, d))
                for (a, b), parts in sums.items():
                    rest = (len(family) * inside[0][a] * inside[1][b] - len(parts)) * most
                    self.sums[self._unknown(whole, a, b), j, kind] = parts, min(rest, _MOST)
        n_shown = sum(map(len, self.shown.values()))
        for (values, o, d), i in product(list(self.number), self.places):
            if (i, values) in self.shown and self.near[i, 0][o] == o and self.near[i, 1][d] == d:
                self.shown[i, values].setdefault((o, d), 0)
        if sum(map(len, self.shown.values())) > n_shown:
            self._add_sums()

    def _zones_inside(self, i: int, j: int, end: int) -> tuple[list[int], list[int]]:
        """Returns the zone of release i around each node, and how many zones of release j, listed or not, it has."""
        near, zones, size = self.near[i, end], self.ground.nodes[j, end], self.ground.size
        kept = zones[near[zones] >= 0]
        listed, filled = (np.bincount(near[kept], of, len(size)) for of in (None, size[kept]))
        is_even = bool(self.releases[j].h3_cells) and len(np.unique(size[zones])) == 1
        many = size // size[zones[0]] if is_even else _MOST
        return near.tolist(), np.where(filled == size, listed, many).astype(np.int64).tolist()

    def _add_totals(self) -> None:
        """Adds the totals of controlled rounding: each is off by less than the base."""
        for (i, values), cells in self.shown.items():
            parts: dict[tuple[int, int], list[tuple[int, int]]] = {}
            for o, d in cells if self.rules[i].stated.get("mode") == "controlled" else ():
                for name in ((o, -1), (-1, d), (-1, -1)):
                    parts.setdefault(name, []).append((o, d))
            for name, own in parts.items():
                whole, total = self._unknown(values, *name), sum(cells[cell] for cell in own)
                (low, high), most = self.totals.get(whole, (0, _MOST)), int(self.rules[i].stated["maximum"])
                self.totals[whole] = max(low, total - most), min(high, total + most)
                self.sums[whole, i] = [self._unknown(values, *cell) for cell in own], _MOST

    def _propagate(self, low: Counts, high: Counts) -> tuple[Counts, Counts]:
        """Returns closer bounds; a lower one above its upper one where the tables contradict each other."""
        whole, rest = np.array([(w, r) for (w, *_), (_, r) in self.sums.items()], np.int64).reshape(-1, 2).T
        part = np.array([at for parts, _ in self.sums.values() for at in parts], dtype=np.int64)
        of = np.repeat(np.arange(len(whole)), [len(parts) for parts, _ in self.sums.values()])
        before = low - 1, high
        while np.all(low <= high) and not all(map(np.array_equal, before, (low, high))):
            before = low.copy(), high.copy()
            least, most = np.zeros(len(whole), np.int64), rest.copy()
            np.add.at(least, of, low[part])
            np.add.at(most, of, high[part])
            np.maximum.at(low, whole, least)
            np.minimum.at(high, whole, most)
            np.minimum.at(high, part, high[whole][of] - (least[of] - before[0][part]))
            np.maximum.at(low, part, low[whole][of] - (most[of] - before[1][part]))
        return low, high
