"""Attacks that run the method of a release on other trips, as an attacker does who knows it.

Membership, minimality.

*Membership*: the method is run on random halves of the other people, with the target and without
(docs/audit/README.md). *Minimality, or downcoding*: trips of parts below the threshold are
moved so that the published table stays the same; if the method then divides the zone, these parts
are why it was whole (docs/audit/README.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Counts
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import Flows, People
from flowveil.core.guarantee import Guarantee
from flowveil.methods import find_method
from flowveil.release.plan import NodeZones
from flowveil.verify.audit.trips import Figures, cell_nodes, cells_containing, place_trips
from flowveil.zoning.covering import Ancestors
from flowveil.zoning.restriction import to_the_top

if TYPE_CHECKING:
    from flowveil.core.arrays import Ints
    from flowveil.core.flows import Flows
    from flowveil.core.hierarchy import Hierarchy
    from flowveil.publishing.release import Release
    from flowveil.verify.audit.published import PublishedRelease

#: Student's t, two-sided 95 %, by degrees of freedom from 1 on; above the last one, the normal
#: quantile with Cornish and Fisher's first two terms.
_STUDENT = (12.71, 4.303, 3.183, 2.777, 2.571, 2.447, 2.365, 2.307, 2.263, 2.229)
_NORMAL = 1.96
#: Persons whose membership is tested.
TARGETS = 20
#: Methods that divide every zone, or cell, that can be divided without a short part, where nothing
#: may be suppressed.
_DIVIDE_ALL = ("twincut", "paircut")


def _on_its_trees(release: PublishedRelease, flows: Flows) -> Flows:
    """Returns the flows on the trees of the method, which reach up to the top of the map where
    thresholds are secret.
    """
    secret = release.report["statement"].get("thresholds") == "k plus a secret amount"
    return to_the_top(flows) if secret else flows


def again(release: PublishedRelease, flows: Flows) -> Release:
    """Returns what the method of a release makes of other trips on its tree, with the parameters of
    its report.

    Raises ParameterError if it was made with a list of places, or has the zones of an earlier one
    and is not a folder.
    """
    from flowveil.publishing.anonymization import anonymize

    parameters = release.report["parameters"]
    asked = {name: parameters.get(name) for name in ("k_population", "l", "dominance", "t")}
    confirmed = release.report["statement"].get("confirmed") or ()
    if parameters.get("stricter") is not None or parameters.get("l_places") is not None:
        raise ParameterError(
            "A release that was made with a list of places cannot be run again without the list."
        )
    kept = release.report["statement"].get("zones_of") is not None
    if kept and not Path(release.name).is_dir():
        raise ParameterError(
            "A release over the zones of an earlier one is run again from its folder."
        )
    how = (
        {"zones_of": release.name}
        if kept
        else {"hierarchy": parameters.get("hierarchy"), **parameters["options"]}
    )
    stated = release.report["statement"].get("thresholds")
    if not kept and find_method(release.report["method"]).takes_secret_thresholds:
        how["secret_thresholds"] = stated == "k plus a secret amount"
    return anonymize(
        flows,
        None if kept else release.report["method"],
        int(parameters["k"]),
        parameters.get("protect"),
        parameters.get("max_suppressed", 0.1),
        allow_small_k=True,
        population_only="population_only" in confirmed,
        **asked,
        **how,
    )


def _moved(flows: Flows, origin: Ints, destination: Ints) -> Flows:
    """The same trips between other tiles of the same trees; persons and weights go with them."""
    merged = flows.merge(origin, destination, flows.origins.n_tiles, flows.destinations.n_tiles)
    cells, people = merged.cells, flows.people
    if people is not None and people.trips is not None:
        people = People.aggregate(merged.row[people.cell], people.person, people.trips)
    elif people is not None:
        people = cells.people
    new: dict[str, Any] = {
        "origin": cells.origin,
        "destination": cells.destination,
        "trips": cells.trips,
    }
    return replace(flows, **new, **cells.added(), people=people, tiles=None)


def _shown_nodes(release: Release) -> tuple[Ints, Ints]:
    """The nodes of the published cells: of their origin zones, and of their destination zones."""
    plan, cells = release.plan, release.cells
    assert isinstance(plan.origin_zones, NodeZones)
    assert isinstance(plan.destination_zones, NodeZones)
    return plan.origin_zones.nodes[cells.origin], plan.destination_zones.nodes[cells.destination]


@dataclass(frozen=True)
class Membership(Figures):
    """The advantage of an attacker over guessing: true minus false positives."""

    targets: int  # persons whose membership was tested
    shadows: int  # releases that were tried, in all
    advantage: float
    low: float  # its 95 % interval
    high: float


def membership(
    release: PublishedRelease,
    flows: Flows,
    *,
    targets: int = TARGETS,
    shadows: int = 10,
    seed: int = 0,
) -> Membership:
    """Estimates the advantage by pairs of shadow releases for each of some persons.

    Answers about one person depend on each other, so the interval is that of a mean over persons.
    """
    if flows.people is None or flows.people.trips is None:
        raise ParameterError("Membership needs persons: name their column with --person.")
    random = np.random.default_rng(seed)
    persons = np.unique(flows.people.person)
    advantages = []
    for target in random.permutation(persons)[:targets].tolist():
        pairs = []
        for _ in range(shadows):
            others = persons[persons != target]
            # Each with even odds: a fixed number of people would give the person away by one count.
            drawn = others[random.random(len(others)) < 0.5]
            pairs.append(
                [_score(release, flows, some, target) for some in (np.append(drawn, target), drawn)]
            )
        scores = np.array(pairs)
        half, candidates = scores[: shadows // 2], np.unique(scores[: shadows // 2])
        # The threshold that separates the two kinds best.
        gains = [float((half[:, 0] > c).mean() - (half[:, 1] > c).mean()) for c in candidates]
        right = scores[shadows // 2 :] > candidates[int(np.argmax(gains))]
        advantages.append(float(right[:, 0].mean() - right[:, 1].mean()))
    tried = (shadows - shadows // 2) * len(advantages)
    return Membership(len(advantages), 2 * tried, *_mean_interval(advantages, tried))


def _mean_interval(advantages: list[float], tried: int) -> tuple[float, float, float]:
    """Returns the mean of independent persons and its 95 % interval, inside -1 and 1.

    One answer is added to the variance: equal persons are no proof that all are.
    """
    n = len(advantages)
    mean = math.fsum(advantages) / n
    if n < 2:
        return mean, -1.0, 1.0
    deviation = math.sqrt(float(np.var(advantages, ddof=1)) / n + 1 / tried**2)
    spread = _student(n - 1) * deviation
    return mean, max(mean - spread, -1.0), min(mean + spread, 1.0)


def _student(freedom: int) -> float:
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = _NORMAL
    third, fifth = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + third / freedom + fifth / freedom**2


def _score(release: PublishedRelease, flows: Flows, persons: NDArray[Any], target: int) -> float:
    """How closely the cells of a release of these persons lie around the trips of one."""
    people = flows.people
    assert people is not None
    assert people.trips is not None
    flows = _on_its_trees(release, flows)
    inside = np.isin(people.person, persons)
    if not inside.any():
        return 0.0
    own = people.person == target
    of, trips = people.cell[inside], people.trips[inside]
    drawn = flows.from_pairs(
        flows.origin[of],
        flows.destination[of],
        trips,
        origins=flows.origins,
        destinations=flows.destinations,
        **flows.added(lambda values: values[of] * (trips / flows.trips[of])),
        person=people.person[inside],
        intake=flows.intake,
        whole_map=flows.whole_map,
    )
    try:
        shadow = again(release, drawn)
    except InfeasibleError:
        return 0.0
    n_nodes = [
        (of_end.origins.n_nodes, of_end.destinations.n_nodes) for of_end in (shadow.input, flows)
    ]
    if n_nodes[0] != n_nodes[1]:
        raise ParameterError(
            "The method did not keep the trees of the trips, so a person cannot be placed in them."
        )
    # Where her trips would be counted is read off the published cells, whether anybody else made
    # such a trip or not.
    layer = (
        None
        if shadow.plan.layer is None
        else shadow.plan.layer[shadow.cells.origin].astype(np.int64)
    )
    cell = cells_containing(flows, _shown_nodes(shadow), people.cell[own], layer)
    volume = np.append(shadow.cells.trips, 1)[cell]
    return float(np.sum(np.where(cell >= 0, people.trips[own] / volume, 0.0)))


# ---- minimality ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Minimality(Figures):
    """What zones that were not divided say of their parts."""

    # published zones of both ends; of nested cells, published cells counted once for each end
    units: int
    # Units of which the folder alone says that a part is short, or that one tile alone is used;
    # None where nothing can be concluded without running the method.
    certain: int | None = None
    blocked: int | None = None  # with the trips: units that have a short part
    short: int | None = None  # with the trips: how many parts of published cells are short
    tried: int = (
        0  # blocked units for which the method was run on a world without their short parts
    )
    divided: int = 0  # those that are divided in that world
    # The short parts of these. A reader knows that at least one of each zone's is below the
    # guarantee, not which.
    confined: int = 0

    @property
    def share(self) -> float | None:
        """The share of units that give something away.

        The larger of the certain and the tried share.
        """
        found = [] if self.certain is None else [self.certain / max(self.units, 1)]
        if self.blocked is not None and (self.tried or not self.blocked):
            found.append(self.blocked / max(self.units, 1) * self.divided / max(self.tried, 1))
        return max(found, default=None)

    def in_words(self) -> str:
        """Returns the findings as one sentence; empty if there are none."""
        sentences = []
        if self.certain:
            sentences.append(
                f"{self.certain:,} of {self.units:,} zones certainly have a part below the"
                " threshold"
            )
        if self.blocked:
            sentences.append(
                f"{self.blocked:,} of {self.units:,} zones have a part below the threshold"
            )
        if self.tried:
            sentences.append(
                f"{self.divided:,} of {self.tried:,} zones tried would be divided if all their"
                " parts reached the threshold, so a reader infers that at least one does not"
                f" ({self.confined:,} such parts)"
            )
        return "; ".join(sentences)


def minimality(
    release: PublishedRelease, flows: Flows | None = None, *, tries: int = 0, seed: int = 0
) -> Minimality | None:
    """Returns what the zones of a release of one matrix give away.

    None for boxes, folds, noise and slices.

    Without the trips only what is certain; with them the method is run again for ``tries`` zones.
    """
    if len(release.matrices) != 1 or not release.nodes or release.noisy or release.revised:
        return None
    n_zones = len(release.origin_zones) + len(release.destination_zones)
    units = n_zones if release.homogeneous else 2 * len(release.matrices[0].trips)
    # Over kept zones nothing was chosen, so nothing is given away by it.
    chosen = release.report["statement"].get("zones_of") is None
    certain = _certain(release) if chosen else 0
    if flows is None:
        return Minimality(units, certain)
    flows = _on_its_trees(release, flows)
    ends = [_End(release, flows, end) for end in (0, 1)]
    blocked = [(end, int(unit)) for end in ends for unit in end.blocked] if chosen else []
    short = sum(int(end.short.sum()) for end in ends)
    tried = divided = confined = 0
    for at in np.random.default_rng(seed).permutation(len(blocked)).tolist() if tries else ():
        end, unit = blocked[at]
        if tried == tries:
            break
        world = end.without_short(flows, unit)
        if world is None:
            continue
        tried += 1
        if not end.is_published(release, world, unit):
            divided += 1
            confined += int(end.short[end.unit_of_part == unit].sum())
    return Minimality(units, certain, len(blocked), short, tried, divided, confined)


def _certain(release: PublishedRelease) -> int | None:
    parameters = release.report["parameters"]
    if not (
        release.report["method"] in _DIVIDE_ALL
        and parameters.get("max_suppressed") == 0
        and (parameters.get("options") or {}).get("objective", "error") == "error"
        and not parameters.get("same_zones")
        and all(parameters.get(name) is None for name in ("dominance", "stricter", "t"))
        and release.tiles
    ):
        return None
    matrix, found = release.matrices[0], 0
    for codes, zone, role in (
        (release.origin_zones, matrix.origin, "origin"),
        (release.destination_zones, matrix.destination, "destination"),
    ):
        tiles = np.array(
            [release.tiles.get((c, role), release.tiles.get((c, "both"), 1)) for c in codes]
        )
        cells = np.bincount(zone, minlength=len(codes))
        found += int(
            np.sum((tiles > 1) & (cells == 1)) if release.homogeneous else np.sum(tiles[zone] > 1)
        )
    return found


class _End:
    """The parts of published cells that hold trips when the zones of one end (0.

    Origins) are divided.
    """

    def __init__(self, release: PublishedRelease, flows: Flows, end: int) -> None:
        self.end, tree = end, (flows.origins, flows.destinations)[end]
        # The nodes of each published cell, and its unit: its zone at this end, or, of nested cells,
        # itself.
        self.nodes = cell_nodes(release, flows, release.matrices[0])
        own = self.nodes[end]
        self.unit_of_cell = own if release.homogeneous else np.arange(len(own), dtype=np.int64)
        # The published cell of each flow (-1: none), and the child of its zone that holds the flow.
        self.cell = place_trips(release, flows).cell
        self.part = np.full(len(flows), -1, dtype=np.int64)
        inside = np.flatnonzero(self.cell >= 0)
        tile = (flows.origin, flows.destination)[end].astype(np.int64)
        self.part[inside] = _parts(tree, own[self.cell[inside]], tile[inside])
        parameters = release.report["parameters"]
        asked = {name: parameters.get(name) for name in ("protect", "k_population", "l")}
        guarantee = Guarantee.resolve(flows, k=int(parameters["k"]), **asked)
        parts = self.cell.astype(np.int32), self.part.astype(np.int32)
        merged = guarantee.prepare(flows).merge(*parts, len(own), len(tree.parent)).cells
        self.part_cell, self.part_node = (
            merged.origin.astype(np.int64),
            merged.destination.astype(np.int64),
        )
        self.part_trips = merged.trips.astype(np.int64)
        self.unit_of_part = self.unit_of_cell[merged.origin]
        # A zone of one part stays what it is, and what is short is the whole of it: a cell below a
        # stricter rule.
        distinct = np.unique(np.stack((self.unit_of_part, self.part_node)), axis=1)[0]
        several = np.bincount(distinct, minlength=int(self.unit_of_cell.max(initial=0)) + 1) > 1
        self.short = ~guarantee.safe(merged) & several[self.unit_of_part]
        self.blocked = np.unique(self.unit_of_part[self.short])

    def without_short(self, flows: Flows, unit: int) -> Flows | None:
        """The world in which no part of a unit is short and the table is the same.

        None if one part would be left.
        """
        own = np.flatnonzero(self.unit_of_part == unit)
        target: dict[int, int] = {}
        left: set[int] = set()
        for cell in np.unique(self.part_cell[own]).tolist():
            here = own[self.part_cell[own] == cell]
            target[cell] = int(self.part_node[here[np.argmax(self.part_trips[here])]])
            left |= {target[cell], *self.part_node[here[~self.short[here]]].tolist()}
        if len(left) < 2:
            return None
        ends = [flows.origin.copy(), flows.destination.copy()]
        moving = {
            (int(self.part_cell[p]), int(self.part_node[p])) for p in own[self.short[own]].tolist()
        }
        for cell, node in moving:
            if node != target[cell]:
                there = np.flatnonzero((self.cell == cell) & (self.part == target[cell]))
                tile = ends[self.end][there[np.argmax(flows.trips[there])]]
                ends[self.end][(self.cell == cell) & (self.part == node)] = tile
        return _moved(flows, *ends)

    def is_published(self, release: PublishedRelease, world: Flows, unit: int) -> bool:
        """Whether the method publishes the same zone, or the same cell, in another world."""
        try:
            shown = _shown_nodes(again(release, world))
        except InfeasibleError:
            return False
        cell = int(np.flatnonzero(self.unit_of_cell == unit)[0])
        equal = [
            tree.narrowest[found] == tree.narrowest[own[cell]]
            for tree, found, own in zip(
                (world.origins, world.destinations), shown, self.nodes, strict=True
            )
        ]
        return bool(equal[self.end].any() if release.homogeneous else (equal[0] & equal[1]).any())


def _parts(tree: Hierarchy, zone: Counts, tile: Counts) -> Counts:
    """The child of each zone that holds a tile; the zone itself where it is a tile."""
    # A node with a single child holds what the child holds, so children are those of the last of
    # such nodes.
    node = tree.leaf_node[tile].astype(np.int64)
    child = Ancestors(tree.parent).at_depth(node, tree.depth[tree.narrowest[zone]] + 1)
    return np.where(child >= 0, child, node)
