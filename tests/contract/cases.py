"""What the contract tests run: promises of the methods, trees, flows and guarantees.

A new method is run as soon as it is in METHODS; what it guarantees has to be declared in RUNS, or
in NOISY_RUNS where it adds noise, or PERTURBED_RUNS: such methods guarantee no smallest cell, and
have separate contracts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import combinations, cycle, islice, product
from typing import Any, Literal

import h3.api.basic_int as h3_int
import numpy as np
import shapely

from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.slices import Every
from flowveil.methods import METHODS
from flowveil.zoning.files import read_tree
from flowveil.zoning.h3 import h3_hierarchy
from flowveil.zoning.halves import halved_h3

# ---- what each method promises -------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A method with options, and its promises beyond those that all keep.

    Attributes:
        method: its name in METHODS.
        options: options it is run with.
        limit: what max_suppressed is a share of; None where the method promises no limit.
        enough: what has to be safe for a release to exist: one cell of everything, between the
            smallest nodes that hold it; or one flow between its own two tiles.
        complete: a release exists whatever the problem. Otherwise only on the tables of this file:
            what the method decides first may spoil other problems.
        merges: it makes zones of several tiles. Where it does not, what is enough is needed as
            well.
        finest: with k = 1 trips it leaves every flow between its own two tiles.
    """

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    limit: Literal["flows", "volume"] | None = None
    enough: Literal["everything", "tiles"] = "everything"
    complete: bool = True
    merges: bool = True
    finest: bool = True

    def __str__(self) -> str:
        return "-".join((self.method, *map(str, self.options.values())))


#: The methods that keep cells large; those that add noise promise nothing of the kind.
K_METHODS = [name for name, method in METHODS.items() if method.counts == "exact"]

#: Thresholds of exactly k, for objectives that weigh the trips of a cell.
EXACT = {"secret_thresholds": False}
RUNS = (
    Run("twincut", limit="volume"),
    # Neither objective prefers fine zones where coarse ones publish as many cells, or where trips
    # are even.
    Run("twincut", {"objective": "cells"}, limit="volume", finest=False),
    Run("twincut", {"objective": "reconstruction", "effort": 0.0}, limit="volume", finest=False),
    Run("paircut", limit="volume"),
    Run("paircut", {"objective": "metres", "spend": False, **EXACT}, limit="volume", finest=False),
    Run("layercut", limit="volume"),
    # The pre-filter may take flows that the one cell of everything would have needed.
    Run("odkanon", limit="flows", complete=False),
    Run("odkanon", {"budget": "volume"}, limit="volume"),
    Run("oigh", limit="volume"),
    Run("suppression", enough="tiles", merges=False),
    # Origin zones aim at a volume that does not depend on k.
    Run("atg-dual", limit="volume", complete=False, finest=False),
    # By default zones that are large on this map cost more than suppression; with this price they
    # never do.
    Run("atg-soft", enough="tiles", complete=False, finest=False),
    Run("atg-soft", {"lambda_": 1e9, "v_target": 1e9}, finest=False),
    # A grid square may hold several tiles.
    Run("mondrian", limit="volume", finest=False),
    Run("mondrian", {"partitioning": "relaxed"}, limit="volume", finest=False),
    Run("glove", limit="volume", finest=False),
    Run("curvecut", limit="volume", finest=False),
    Run("curvecut", {"effort": 0.0, "window": 1}, limit="volume", finest=False),
    Run("glove-sk", limit="volume", finest=False),
)

#: The same where time and an attribute fold. Metres cannot be weighed against hours.
FOLDED_RUNS = (
    Run("paircut", limit="volume"),
    Run("paircut", {"objective": "cells", "spend": False, **EXACT}, limit="volume"),
    Run("layercut", limit="volume"),
)

UNDECLARED = tuple(
    Run(name, complete=False, finest=False)
    for name in K_METHODS
    if name not in {run.method for run in RUNS}
)

#: Methods that add noise, with options that suit every tree; ε and the bound are the tests' to
#: choose.
NOISY_RUNS = (
    Run("laplace", {"region": "observed"}),
    Run("laplace", {"delta": 1e-3}),
    Run("topdown"),
    Run("privtree"),
    Run("posterior"),
)

#: Methods that perturb counts by keys of their records.
PERTURBED_RUNS = ()

PURPOSES = ("work", "study", "shop")
PURPOSE_TREE = {"work": "work or study", "study": "work or study", "shop": "", "leisure": ""}

# ---- trees ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GridGeography:
    """A made-up map, so that methods that need one run on any tree.

    Tile i lies at (i // 4, i % 4) hundredths.
    """

    tree: Hierarchy

    def _tiles(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        tile = np.arange(self.tree.leaf_start[node], self.tree.leaf_stop[node])
        return tile // 4 / 100.0, tile % 4 / 100.0

    def centers(self, nodes):
        both = [[side.mean() for side in self._tiles(v)] for v in np.asarray(nodes).tolist()]
        lat, lon = np.array(both, dtype=np.float64).reshape(-1, 2).T
        return lat, lon

    def areas_km2(self, nodes):
        return self.tree.size[nodes].astype(np.float64)

    def polygons(self, nodes):
        out = np.empty(len(nodes), dtype=object)
        for i, v in enumerate(np.asarray(nodes).tolist()):
            lat, lon = self._tiles(v)
            out[i] = shapely.union_all(
                shapely.box(lon - 0.005, lat - 0.005, lon + 0.005, lat + 0.005)
            )
        return out


def on_a_map(tree: Hierarchy) -> Hierarchy:
    """The tree with a made-up map where it has none."""
    if tree.geography is None:
        object.__setattr__(tree, "geography", GridGeography(tree))
    return tree


def _tree(parent: list[int]) -> Hierarchy:
    return on_a_map(
        Hierarchy.from_parents(parent, np.array([f"n{i:02d}" for i in range(len(parent))]))[0]
    )


def _h3_around(places: list[tuple[float, float]], rings: int) -> Hierarchy:
    cells = {
        c
        for lat, lon in places
        for c in h3_int.grid_disk(h3_int.latlng_to_cell(lat, lon, 8), rings)
    }
    return h3_hierarchy(np.array(sorted(cells), dtype=np.uint64))


def _halves_around(places: list[tuple[float, float]], rings: int) -> Hierarchy:
    return halved_h3(_h3_around(places, rings))


def _ragged(n: int, seed: int) -> Hierarchy:
    rng = np.random.default_rng(seed)
    return _tree([-1] + [int(rng.integers(max(0, i - 6), i)) for i in range(1, n)])


def _dendrogram(n: int, seed: int) -> Hierarchy:
    rng = np.random.default_rng(seed)
    parent, clusters = [-1] * n, list(range(n))
    while len(clusters) > 1:
        for _ in range(2):
            parent[clusters.pop(int(rng.integers(len(clusters))))] = len(parent)
        clusters.append(len(parent))
        parent.append(-1)
    return _tree(parent)


#: Origin and destination hierarchy by kind.
TREES: dict[str, tuple[Hierarchy, Hierarchy]] = {
    "h3": (_h3_around([(48.85, 2.35)], 2), _h3_around([(48.86, 2.33), (48.90, 2.40)], 1)),
    "h3-several-base-cells": (
        _h3_around([(48.85, 2.35), (-33.45, -70.66)], 1),
        _h3_around([(48.85, 2.35), (37.77, -122.42), (35.68, 139.69)], 1),
    ),
    "halves": (
        _halves_around([(48.85, 2.35)], 2),
        _halves_around([(48.86, 2.33), (48.90, 2.40)], 1),
    ),
    "ragged": (_ragged(30, 1), _ragged(25, 2)),
    "chain": (_tree([-1, 0, 1, 2]), _tree([-1, 0, 1, 2, 3])),
    "star": (_tree([-1] + [0] * 9), _tree([-1] + [0] * 7)),
    "one-tile": (_tree([-1]), _tree([-1])),
    "dendrogram": (_dendrogram(14, 3), _dendrogram(11, 4)),
    "star-by-chain": (_tree([-1] + [0] * 9), _tree([-1, 0, 1, 2])),
}

# ---- flows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as they come in: what Flows.from_pairs is given."""

    origin: np.ndarray
    destination: np.ndarray
    trips: np.ndarray
    weight: np.ndarray
    person: np.ndarray

    def flows(self, kind: str) -> Flows:
        origins, destinations = TREES[kind]
        return Flows.from_pairs(
            self.origin,
            self.destination,
            self.trips,
            origins=origins,
            destinations=destinations,
            weight=self.weight,
            person=self.person,
        )

    def where(self, mask: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, column.name)[mask] for column in fields(self)))

    def shuffled(self, seed: int) -> Rows:
        """The same rows in another order, the same people under other numbers."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.origin))
        number = np.append(rng.permutation(int(self.person.max()) + 1), -1)
        return Rows(
            self.origin[order],
            self.destination[order],
            self.trips[order],
            self.weight[order],
            number[self.person[order]],
        )


def _uneven(origins: int, destinations: int) -> Rows:
    """Many trips between few tiles, few between many; some persons unknown.

    Weights that are not integers.
    """
    rng = np.random.default_rng(7)
    n = 140
    trips = rng.integers(1, 4, n)
    return Rows(
        np.minimum(rng.geometric(0.25, n) - 1, origins - 1),
        np.minimum(rng.geometric(0.2, n) - 1, destinations - 1)[::-1],
        trips,
        rng.uniform(0.1, 9.7, n) * trips,
        rng.integers(-1, 40, n),
    )


def _one_flow(origins: int, destinations: int) -> Rows:
    n = 8
    return Rows(
        np.full(n, origins - 1),
        np.full(n, destinations // 2),
        np.full(n, 2),
        np.full(n, 1.25),
        np.arange(n),
    )


def _all_equal(origins: int, destinations: int) -> Rows:
    """Every pair of tiles has the same three trips of the same weight by three people.

    Ties everywhere.
    """
    o, d = np.divmod(np.repeat(np.arange(origins * destinations), 3), destinations)
    return Rows(o, d, np.ones(len(o), int), np.full(len(o), 1.5), np.arange(len(o)) % 12)


def _one_heavy(origins: int, destinations: int) -> Rows:
    """All weight, and nearly all trips, in one flow."""
    n = 30
    heavy = np.arange(n) == 0
    return Rows(
        np.arange(n) % origins,
        np.arange(n) * 5 % destinations,
        np.where(heavy, 10_000, 1),
        np.where(heavy, 12_345.678, 0.0),
        np.arange(n) % 9,
    )


TABLES: dict[str, Callable[[int, int], Rows]] = {
    "uneven": _uneven,
    "one-flow": _one_flow,
    "all-equal": _all_equal,
    "one-heavy": _one_heavy,
}


@cache
def rows_of(table: str, kind: str) -> Rows:
    """The rows of a table on the tiles of a kind of tree."""
    origins, destinations = TREES[kind]
    return TABLES[table](origins.n_tiles, destinations.n_tiles)


@cache
def flows_of(table: str, kind: str, *, shuffled: int | None = None) -> Flows:
    """The flows of a table on a kind of tree, made once.

    Shuffled: from the same rows in another order.
    """
    rows = rows_of(table, kind)
    return (rows if shuffled is None else rows.shuffled(shuffled)).flows(kind)


@cache
def folded_flows_of(table: str, kind: str, *, shuffled: int | None = None) -> Flows:
    """The same rows with purposes and hours: those of a pair of tiles have different ones.

    Four trees.
    """
    rows = rows_of(table, kind)
    number = np.arange(len(rows.origin)) * 5 % 11
    if shuffled is not None:
        number, rows = (
            number[np.random.default_rng(shuffled).permutation(len(number))],
            rows.shuffled(shuffled),
        )
    keys = {n: (PURPOSES[n % 3], f"{n + 6:02d}:00") for n in np.unique(number).tolist()}
    parts = sorted((key, n) for n, key in keys.items())
    slices = tuple(rows.where(number == n).flows(kind) for _, n in parts)
    sliced = Flows.from_slices(
        ("purpose", "time"), tuple(key for key, _ in parts), slices, Every.parse("hour")
    )
    return sliced.folded({"purpose": read_tree(PURPOSE_TREE)})


# ---- guarantees ----------------------------------------------------------------------------------

#: Arguments of `flowveil.anonymize`, by name of the guarantee.
GUARANTEES: dict[str, dict[str, Any]] = {
    "trips": {"k": 6, "protect": "trips"},
    "people": {"k": 4, "protect": "people"},
    "population": {"k": 5, "protect": "population"},
    "population-absolute": {"k": 5, "protect": "population", "k_population": 17.5},
    "locations": {"k": 3, "protect": "trips", "l": 2},
    "combined": {"k": 4, "protect": ("trips", "people", "population")},
}


# ---- combinations --------------------------------------------------------------------------------


def pairwise(*factors: Iterable[Any], seed: int = 0) -> list[tuple[Any, ...]]:
    """Few combinations in which every value of a factor meets every value of each other factor.

    Greedy: again and again the combination with the most pairs that are still to be seen. Another
    seed gives another choice among equals, so that methods run with different seeds see more than
    the pairs between them.
    """
    rows = list(product(*factors))
    order = np.random.default_rng(seed).permutation(len(rows))
    number: dict[Any, int] = {}
    pairs = np.array(
        [
            [number.setdefault(pair, len(number)) for pair in combinations(enumerate(rows[i]), 2)]
            for i in order
        ]
    )
    unseen = np.ones(len(number), dtype=np.bool_)
    chosen = []
    while unseen.any():
        best = int(unseen[pairs].sum(axis=1).argmax())
        unseen[pairs[best]] = False
        chosen.append(rows[order[best]])
    return chosen


def in_turn(*factors: Iterable[Any], seed: int = 0) -> list[tuple[Any, ...]]:
    """As few combinations as have every value of every factor; which meet is up to the seed."""
    rng = np.random.default_rng(seed)
    values = [[chosen[i] for i in rng.permutation(len(chosen))] for chosen in map(list, factors)]
    return list(islice(zip(*map(cycle, values), strict=True), max(map(len, values))))
