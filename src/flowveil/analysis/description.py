"""What is in the data, before anything is anonymised: how much of it is safe already, and where to start.

Everything here is counted from raw flows, so a description is for the data holder: it is printed, never published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flowveil.analysis.estimates import Estimate, estimate_methods
from flowveil.analysis.measures.floor import generalization_floor
from flowveil.analysis.uniqueness import Uniqueness, uniqueness
from flowveil.errors import DataError
from flowveil.flows import Cells, Flows
from flowveil.guarantee import UNITS, Guarantee, Unit, check_max_suppressed
from flowveil.methods import METHODS
from flowveil.methods.paircut import at_all_times

#: With fewer people, the busiest hundredth is nobody.
FEWEST_PEOPLE = 100

INTERNAL = "Internal: counted from the raw data. Do not publish."


@dataclass(frozen=True)
class SafeShare:
    """How much is safe as it is, for one unit: the last two columns of Table 2 of Matet et al. (2023).

    Attributes:
        unit: trips, people or population.
        threshold: what a flow must reach.
        flows: share of the flows that reach it.
        volume: share of the volume (weight for the population, else trips) that is in such flows.
    """

    unit: str
    threshold: float
    flows: float
    volume: float


@dataclass(frozen=True)
class Level:
    """The same matrix with both ends lifted by some levels.

    Attributes:
        lifted: levels lifted; 0 is the tiles themselves.
        resolution: H3 resolution, or None for other tiles.
        origins, destinations, flows: how many there are.
        safe: by unit.
    """

    lifted: int
    resolution: int | None
    origins: int
    destinations: int
    flows: int
    safe: tuple[SafeShare, ...]


@dataclass(frozen=True)
class Contributors:
    """How the flows are spread over people.

    Attributes:
        people: how many there are.
        flows_each: different flows (pairs of tiles) of a person, on average.
        trips_each: trips of a person, on average; None where the trips of a person are not known.
        busiest_share: share of these trips that the hundredth of the people with the most trips made; None where they
            are not known or there are too few people.
        few_behind: share of the flows with at least k trips that fewer than k people made.
        one_behind: places (tiles of either end) with at least k trips of which one person made more than half.
        places: how many places with at least k trips there are.
    """

    people: int
    flows_each: float
    trips_each: float | None
    busiest_share: float | None
    few_behind: float | None
    one_behind: int | None
    places: int | None


@dataclass(frozen=True)
class Description:
    """What is in the data. Internal by nature: not for publication.

    Attributes:
        k: what safety was held against.
        rows: rows read.
        left_out: rows left out, by reason.
        person_case: ``fold`` if upper and lower case in names of persons is ignored, else ``keep``.
        nobody: rows without a known person, by what stands there instead.
        columns: which column served as what.
        notes: what to know about how the input was taken.
        trips: number of trips.
        weight: sum of the weights, or None.
        mean_weight: mean weight of a trip, or None.
        origins, destinations, flows: tiles of each end, and pairs that have trips.
        density: flows over possible pairs of tiles.
        levels: the tiles and what they are merged into, finest first.
        contributors: about people, or None where the input has none.
        uniqueness: share of the people who are unique given 1 to 4 of their places, and times where these were read.
        protect: what the floor and the advice are for.
        floor: the mean generalisation error that no hierarchical method can beat at this k and suppression where these
            units are protected. None where it was not computed.
        hierarchy: the tree that the floor is that of.
        max_suppressed: the share that may be suppressed, for the floor, the estimates and the advice.
        estimates: what methods would give at this k and suppression, where these units are protected.
        advice: where to start, in sentences.
    """

    k: int
    rows: int
    left_out: Mapping[str, int]
    person_case: str
    nobody: Mapping[str, int]
    columns: Mapping[str, str]
    notes: tuple[str, ...]
    trips: int
    weight: float | None
    mean_weight: float | None
    origins: int
    destinations: int
    flows: int
    density: float
    levels: tuple[Level, ...]
    contributors: Contributors | None
    uniqueness: tuple[Uniqueness, ...]
    protect: tuple[str, ...]
    floor: float | None
    hierarchy: str
    max_suppressed: float
    estimates: tuple[Estimate, ...]
    advice: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ``internal`` says what it is."""
        return {"internal": INTERNAL, **asdict(self)}

    def lines(self) -> Iterator[str]:
        """The description for people."""
        yield INTERNAL
        yield ""
        yield f"Rows read        {self.rows:,}"
        for reason, count in sorted(self.left_out.items()):
            yield f"  left out       {count:,} {reason}"
        used = ", ".join(f"{role} = {column}" for role, column in self.columns.items())
        yield f"Columns          {used or 'given as flows'}"
        yield from self.notes
        yield f"Trips            {self.trips:,}"
        if self.contributors is not None:
            yield f"People           {self.contributors.people:,}, upper and lower case: {self.person_case}"
            for word, rows in self.nobody.items():
                yield f"  nobody         {rows:,} {word}"
        if self.weight is not None and self.mean_weight is not None:
            yield f"Weight           {self.weight:,.0f}, {self.mean_weight:,.1f} for a trip on average"
        yield f"Tiles            {self.origins:,} origins, {self.destinations:,} destinations"
        yield f"Flows            {self.flows:,}, {self.trips / self.flows:,.2f} trips each on average"
        yield f"Density          {self.density:.3%} of the possible pairs"
        yield ""
        yield f"Already safe at k = {self.k}: share of the flows, and of the volume"
        yield from self._table()
        if self.contributors is not None:
            yield ""
            yield from self._about_people(self.contributors)
            yield "Without names alone, somebody who knows a few places of a person finds all her trips:"
            yield from (one.line() for one in self.uniqueness)
        if self.floor is not None:
            yield ""
            yield (
                f"Floor where {' and '.join(self.protect)} are protected, hierarchy {self.hierarchy}: no hierarchical "
                f"method gets below {self.floor:,.1f} tiles of mean generalisation error with "
                f"{self.max_suppressed:.0%} of the {'weight' if 'population' in self.protect else 'trips'} "
                "suppressed." + self._above_the_floor()
            )
        yield ""
        yield from self.estimated()
        yield ""
        yield "Where to start"
        for line in self.advice:
            yield f"- {line}"

    def _above_the_floor(self) -> str:
        others = [share.unit for share in self.levels[0].safe if share.unit not in self.protect]
        mine = " and ".join(self.protect)
        return f" It is for {mine} only: {' and '.join(others)} have floors of their own." if others else ""

    def estimated(self) -> Iterator[str]:
        """What methods would give, for people."""
        yield (
            f"Estimated on all flows, where {' and '.join(self.protect)} are protected: share of trips that a reader "
            "misses or misplaces between areas, mean generalisation error in tiles, and cells"
        )
        for one in self.estimates:
            yield one.line()

    def _table(self) -> Iterator[str]:
        units = [share.unit for share in self.levels[0].safe]
        head = f"{'level':>14} {'origins':>9} {'destin.':>9} {'flows':>11}"
        yield head + "".join(f"  {unit + ' flows':>17} {'volume':>7}" for unit in units)
        for level in self.levels:
            name = f"resolution {level.resolution}" if level.resolution is not None else f"{level.lifted} up"
            row = f"{name:>14} {level.origins:>9,} {level.destinations:>9,} {level.flows:>11,}"
            yield row + "".join(f"  {share.flows:>17.1%} {share.volume:>7.1%}" for share in level.safe)

    def _about_people(self, who: Contributors) -> Iterator[str]:
        trips = "" if who.trips_each is None else f"makes {who.trips_each:,.1f} trips and "
        text = f"A person {trips}is in {who.flows_each:,.1f} flows (different pairs of tiles) on average"
        if who.busiest_share is not None:
            text += f"; the hundredth of the people with the most trips made {who.busiest_share:.1%} of them"
        yield text + "."
        if who.few_behind is not None:
            yield (
                f"Of the flows with at least {self.k} trips, {who.few_behind:.1%} are those of fewer than {self.k} "
                "people: protecting trips does not hide them."
            )
        if who.one_behind:
            yield (
                f"Warning: one person made most trips of {who.one_behind:,} of the {who.places:,} places with at least "
                f"{self.k} trips. Protect people, and see what `flowveil audit --against` says of dominance."
            )

    def _repr_html_(self) -> str:
        """The same for a notebook. Internal like the rest: a notebook that shows it is not for publication."""
        from flowveil.published.document import fill

        units = [share.unit for share in self.levels[0].safe]
        rows = [
            [
                f"resolution {level.resolution}" if level.resolution is not None else f"{level.lifted} up",
                f"{level.origins:,}",
                f"{level.destinations:,}",
                f"{level.flows:,}",
                *(f"{share:.1%}" for safe in level.safe for share in (safe.flows, safe.volume)),
            ]
            for level in self.levels
        ]
        heads = ["level", "origins", "destinations", "flows"]
        heads += [f"{unit}: safe {what}" for unit in units for what in ("flows", "volume")]
        lines = list(self.lines())
        first = lines.index("", 2)
        return str(
            fill(
                "description.html",
                warning=lines[0],
                facts=lines[2:first],
                heads=heads,
                rows=rows,
                k=self.k,
                floor=[line for line in lines if line.startswith("Floor")],
                estimated=list(self.estimated()),
                advice=self.advice,
            )
        )

    def __repr__(self) -> str:
        return f"<Description of {self.flows:,} flows, internal>"


def describe_flows(
    flows: Flows,
    *,
    k: int = 10,
    protect: str | Sequence[str] | None = None,
    max_suppressed: float = 0.1,
    hierarchy: str | None = None,
) -> Description:
    """Describe flows before anything is anonymised.

    Args:
        flows: what `read_trips` returns; or what ``read_slices(...).folded()`` returns, to estimate besides what
            folding time would give. All else is then of the matrix of all times.
        k: what safety is held against, in every unit that the data has.
        protect: what the floor and the advice are for; by default people where persons are known, else trips.
        max_suppressed: share that may be suppressed, for the floor and the advice.
        hierarchy: the tree that the floor is that of, ``h3`` or ``halves``; by default that of TwinCut. Levels are
            those of the tree that the flows were read with.

    Raises:
        DataError: there are no flows.
        ParameterError: k or the share is out of range, or the tree cannot be refined.
    """
    if len(flows) == 0:
        raise DataError("There are no flows to describe.")
    check_max_suppressed(max_suppressed)
    folded = None if flows.times is None else flows
    if folded is not None:
        flows, _ = at_all_times(folded)
    units = [unit.name for unit in UNITS.values() if _has(flows, unit)]
    guarantees = {unit: Guarantee.resolve(flows, k=k, protect=unit) for unit in units}
    asked = Guarantee.resolve(flows, k=k, protect=protect)
    levels = tuple(_levels(flows, guarantees))
    refined, on_tree = METHODS["twincut"].on_hierarchy(flows, hierarchy)
    estimates = estimate_methods(
        flows, folded, k=k, protect=asked.units, max_suppressed=max_suppressed, hierarchy=hierarchy
    )
    trips = int(flows.trips.sum())
    weight = None if flows.weight is None else flows.total("weight")
    return Description(
        k=k,
        rows=flows.intake.rows,
        left_out=dict(flows.intake.left_out),
        columns=dict(flows.intake.columns),
        notes=flows.intake.notes,
        person_case=flows.intake.person_case,
        nobody=dict(flows.intake.nobody),
        trips=trips,
        weight=weight,
        mean_weight=None if weight is None else weight / trips,
        origins=flows.origins.n_tiles,
        destinations=flows.destinations.n_tiles,
        flows=len(flows),
        density=len(flows) / (flows.origins.n_tiles * flows.destinations.n_tiles),
        levels=levels,
        contributors=_contributors(flows, k),
        uniqueness=uniqueness(flows if folded is None else folded),
        protect=asked.units,
        floor=generalization_floor(refined, asked, max_suppressed=max_suppressed),
        hierarchy=on_tree["hierarchy"],
        max_suppressed=max_suppressed,
        estimates=estimates,
        advice=tuple(_advice(flows, levels, asked.units, max_suppressed)),
    )


def _has(flows: Flows, unit: Unit) -> bool:
    """Whether the flows have what a unit counts; sums that are all 0 protect nothing."""
    if unit.column:
        return getattr(flows, unit.column) is not None and flows.total(unit.column) > 0
    return not unit.counts_persons or flows.people is not None


# ---- levels ------------------------------------------------------------------------------------------------------


def _levels(flows: Flows, guarantees: Mapping[str, Guarantee]) -> Iterator[Level]:
    node_o, node_d = flows.origins.leaf_node, flows.destinations.leaf_node
    resolution = flows.intake.resolution
    cells: Cells = flows
    for lifted in range(max(flows.origins.max_depth, flows.destinations.max_depth) + 1):
        cells = flows.merge(
            node_o[flows.origin], node_d[flows.destination], flows.origins.n_nodes, flows.destinations.n_nodes
        ).cells
        here = None if resolution is None else resolution - lifted
        yield Level(
            lifted=lifted,
            resolution=here if here is None or here >= 0 else None,
            origins=len(np.unique_values(cells.origin)),
            destinations=len(np.unique_values(cells.destination)),
            flows=len(cells),
            safe=tuple(_safe_share(cells, unit, guarantee) for unit, guarantee in guarantees.items()),
        )
        # Coarser levels only repeat that everything is safe.
        if len(cells) == 1:
            return
        node_o, node_d = flows.origins.lift(node_o), flows.destinations.lift(node_d)


def _safe_share(cells: Cells, unit: str, guarantee: Guarantee) -> SafeShare:
    safe = guarantee.safe(cells)
    volume = cells.volume(UNITS[unit].basis).astype(np.float64)
    return SafeShare(
        unit=unit,
        threshold=float(getattr(guarantee, unit)),
        flows=float(safe.mean()),
        volume=float(volume[safe].sum() / volume.sum()) if volume.sum() else 0.0,
    )


def _contributors(flows: Flows, k: int) -> Contributors | None:
    if flows.people is None or len(flows.people.person) == 0:
        return None
    each = np.bincount(flows.people.person)
    each = each[each > 0]
    trips_each = busiest = None
    if flows.people.trips is not None:
        made = np.bincount(flows.people.person, weights=flows.people.trips)
        trips = np.sort(made[made > 0])[::-1]
        trips_each = float(trips.mean())
        if len(trips) >= FEWEST_PEOPLE:
            busiest = float(trips[: len(trips) // 100].sum() / trips.sum())
    enough = flows.trips >= k
    few = None
    if enough.any():
        few = float((flows.people.count(len(flows))[enough] < k).mean())
    one_behind, places = _places_of_one(flows, k)
    return Contributors(
        people=len(each),
        flows_each=float(each.mean()),
        trips_each=trips_each,
        busiest_share=busiest,
        few_behind=few,
        one_behind=one_behind,
        places=places,
    )


def _places_of_one(flows: Flows, k: int) -> tuple[int | None, int | None]:
    """How many places are mostly one person's, and how many there are with at least k trips."""
    who = flows.people
    if who is None or who.trips is None:
        return None, None
    mostly, places = 0, 0
    n_people = int(who.person.max(initial=0)) + 1
    for tile in (flows.origin, flows.destination):
        trips = np.bincount(tile, weights=flows.trips)
        key, at = np.unique(tile[who.cell].astype(np.int64) * n_people + who.person, return_inverse=True)
        largest = np.zeros(len(trips))
        np.maximum.at(largest, key // n_people, np.bincount(at, weights=who.trips))
        enough = trips >= k
        mostly += int(np.count_nonzero(enough & (largest > trips / 2)))
        places += int(np.count_nonzero(enough))
    return mostly, places


# ---- advice ------------------------------------------------------------------------------------------------------


def _advice(flows: Flows, levels: Sequence[Level], protect: Sequence[str], max_suppressed: float) -> Iterator[str]:
    def suffices(level: Level) -> bool:
        return all(share.volume >= 1 - max_suppressed for share in level.safe if share.unit in protect)

    enough = next((level for level in levels if suffices(level)), None)
    finest = levels[0]
    if enough is finest:
        yield (
            "Enough is safe as it is: 'suppression' publishes the tiles unchanged, and a finer resolution may be "
            "possible."
        )
    elif enough is None:
        yield "Even the coarsest level leaves much short: expect large zones, or choose a lower k, or bring more data."
    elif enough.resolution is not None and finest.resolution is not None:
        # Methods merge where they must; three levels leave them room without making the tree needlessly deep.
        start = min(finest.resolution, enough.resolution + 3)
        yield (
            f"At resolution {enough.resolution}, all but {max_suppressed:.0%} of the volume would be safe on a plain "
            f"grid; start with --resolution {start} and let the method merge where it must."
        )
    else:
        yield (
            f"{enough.lifted} levels up, all but {max_suppressed:.0%} of the volume would be safe; "
            "the method merges less where it can."
        )
    homogeneous = next((name for name in ("twincut", "odkanon") if name in METHODS), None)
    if homogeneous is not None:
        yield f"Method: '{homogeneous}' for zones that do not overlap, which readers can map and add up."
    if "paircut" in METHODS:
        yield "Method: 'paircut' where the error of single flows matters more than one common map: its zones nest."
    yield from _advice_on_boxes(flows)
    if flows.people is not None:
        yield "Persons are known, and protected by default (--protect people); trips alone would not hide them."
    else:
        yield "No person column was recognised: trips can be protected, people cannot; say so to your readers."


def _advice_on_boxes(flows: Flows) -> Iterator[str]:
    boxes = [name for name in ("curvecut", "mondrian") if name in METHODS]
    if not boxes:
        return
    named = " or ".join(f"'{name}'" for name in boxes)
    if flows.origins.geography is None or flows.destinations.geography is None:
        yield f"Boxes ({named}) cannot be made: they need to know where the tiles lie."
        return
    reason = "where the hierarchy does not follow the places"
    if "mondrian" in boxes:
        reason += ", or where nothing may be suppressed ('mondrian' publishes every trip)"
    yield (
        f"Method: boxes ({named}) {reason}. Boxes overlap, so readers can map them but not add them up over an area."
    )
