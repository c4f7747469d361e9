"""A description of the input: how much of it is safe already, what methods would give, and where to
start. Private.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from textwrap import indent
from typing import Any

import numpy as np

from flowveil.analysis.areas import PLANNER, Zoning, areas_of_readers
from flowveil.analysis.experiment import attempt, on_tree, planner_errors
from flowveil.analysis.measures import Subject, generalization_floor
from flowveil.analysis.uniqueness import Uniqueness, uniqueness
from flowveil.core.errors import DataError, FlowveilError, MissingExtraError
from flowveil.core.flows import Cells, Flows
from flowveil.core.guarantee import UNITS, Guarantee, Unit, check_max_suppressed
from flowveil.methods import METHODS
from flowveil.methods.paircut import unfolded
from flowveil.reading.plausibility import place_of

#: With fewer people, the busiest hundredth is empty.
FEWEST_PEOPLE = 100

INTERNAL = "Internal: counted from the raw data. Do not publish."
#: Trees in words that are right for H3 and for maps of the user.
TREES = {"h3": "unrefined tree", "halves": "tree in halves"}


@dataclass(frozen=True)
class SafeShare:
    """How much is safe already, for one unit: the last two columns of Table 2 of Matet et al.
    (2023).
    """

    unit: str
    threshold: float
    flows: float  # of the flows, the share that reaches the threshold
    volume: float  # of the volume (weight for the population, else trips), the share in these flows


@dataclass(frozen=True)
class LevelSummary:
    """The same matrix with both ends lifted by some levels; 0 is the tiles.

    Only H3 tiles have a resolution.
    """

    lifted: int
    resolution: int | None
    origins: int
    destinations: int
    flows: int
    safe: tuple[SafeShare, ...]

    @property
    def name(self) -> str:
        """The resolution, or how many levels it is lifted."""
        return f"{self.lifted} up" if self.resolution is None else f"resolution {self.resolution}"


@dataclass(frozen=True)
class WholeAreas:
    """What a matrix between the readers' areas themselves would lose: pairs below k are missing."""

    name: str
    areas: int  # with trips
    missing: float  # share of the volume that is in pairs of areas below k

    def line(self) -> str:
        """Returns a row of the table of methods."""
        return (
            f"  {'areas themselves':<20} {self.missing / 2:>12.1%} {self.missing:>12.1%}"
            f"  only {self.name}; pairs below the threshold are missing"
        )


@dataclass(frozen=True)
class Contributors:
    """How the flows are spread over people. None where a number is unknown."""

    people: int
    flows_each: float  # mean number of flows (pairs of tiles) of a person
    trips_each: float | None  # mean number of trips of a person
    busiest_share: (
        float | None
    )  # share of trips made by the 1 % of people with the most trips; None of too few people
    few_behind: (
        float | None
    )  # of the flows with at least k trips, the share made by fewer than k people
    one_behind: (
        int | None
    )  # places (tiles of either end) with at least k trips, most of them by one person
    places: int | None  # places with at least k trips


@dataclass(frozen=True)
class Description:
    """What is in the data. Not for publication."""

    k: int  # of all shares
    rows: int  # rows read
    left_out: Mapping[str, int]  # rows not used, by reason
    person_case: (
        str  # ``fold`` if upper and lower case in names of persons is ignored, else ``keep``
    )
    nobody: Mapping[str, int]  # rows without a known person, by the text in place of it
    columns: Mapping[str, str]  # column of each role
    notes: tuple[str, ...]  # how the input was read
    place: str | None  # a sentence on where the trips lie
    trips: int
    weight: float | None  # sum of the weights
    mean_weight: float | None  # of a trip
    origins: int  # tiles of each end
    destinations: int
    flows: int  # pairs of tiles that have trips
    density: float  # flows over possible pairs of tiles
    levels: tuple[
        LevelSummary, ...
    ]  # the matrix at the tiles and at each coarser level, finest first
    contributors: Contributors | None  # about people, or None without persons
    uniqueness: tuple[
        Uniqueness, ...
    ]  # share of people who are unique given 1 to 4 of their places, and times if read
    protect: tuple[str, ...]  # units of the floor, the estimates and the advice
    floor: (
        float | None
    )  # lower bound of the mean generalisation error of hierarchical methods; None if not computed
    hierarchy: str  # the tree of the floor
    max_suppressed: float  # limit of the floor, the estimates and the advice
    estimates: tuple[MethodEstimate, ...]  # what methods would give
    whole_areas: WholeAreas | None  # what the readers' areas would give; None without a map
    advice: tuple[str, ...]  # where to start, in sentences

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data; ``internal`` says that it is not for publication."""
        return {"internal": INTERNAL, **asdict(self)}

    def lines(self) -> Iterator[str]:
        """Yields the description as text."""
        yield INTERNAL
        yield ""
        yield f"Rows read        {self.rows:,}"
        for reason, count in sorted(self.left_out.items()):
            yield f"  not used       {count:,} {reason}"
        used = ", ".join(f"{role} = {column}" for role, column in self.columns.items())
        yield f"Columns          {used or 'given as flows'}"
        yield from self.notes
        if self.place is not None:
            yield f"Place            {self.place}"
        yield f"Trips            {self.trips:,}"
        if self.contributors is not None:
            case = " (upper and lower case ignored)" if self.person_case == "fold" else ""
            yield f"People           {self.contributors.people:,}{case}"
            for word, rows in self.nobody.items():
                yield f"  unknown        {rows:,} {word}"
        if self.weight is not None and self.mean_weight is not None:
            yield (
                f"Weight           {self.weight:,.0f}, {self.mean_weight:,.1f} for a trip on"
                " average"
            )
        yield f"Tiles            {self.origins:,} origins, {self.destinations:,} destinations"
        yield (
            f"Flows            {self.flows:,}, {self.trips / self.flows:,.2f} trips each on average"
        )
        yield f"Density          {self.density:.3%} of the possible pairs"
        yield ""
        yield f"Already safe at k = {self.k}: share of the flows, and of the volume"
        yield from self._table()
        if self.contributors is not None:
            yield ""
            yield from self._about_people(self.contributors)
            yield (
                "Removing names does not protect: with a few known places, all trips of a person"
                " can be found:"
            )
            yield from (one.line() for one in self.uniqueness)
        if self.floor is not None:
            yield ""
            yield (
                f"Lower bound if {' and '.join(self.protect)} are protected, on the"
                f" {TREES[self.hierarchy]}: no hierarchical method has a mean generalisation error"
                f" below {self.floor:,.1f} tiles with {self.max_suppressed:.0%} of the"
                f" {'weight' if 'population' in self.protect else 'trips'} suppressed."
            )
        yield ""
        yield (
            f"Estimated on all flows, if {' and '.join(self.protect)} are protected; errors between"
            " areas first"
        )
        heads = ("misplaced", "missed", "productions", "attractions", "trip length", "accessib.")
        yield (
            f"  {'method':<20}"
            + "".join(f" {head:>12}" for head in heads)
            + f" {'tiles':>9} {'cells':>10}  gives"
        )
        yield from (one.line() for one in self.estimates)
        if self.whole_areas is not None:
            yield self.whole_areas.line()
        yield ""
        yield "Where to start"
        for line in self.advice:
            yield f"- {line}"

    def _table(self) -> Iterator[str]:
        units = [share.unit for share in self.levels[0].safe]
        head = f"{'level':>14} {'origins':>9} {'destin.':>9} {'flows':>11}"
        yield head + "".join(f"  {unit + ' flows':>17} {'volume':>7}" for unit in units)
        for level in self.levels:
            row = (
                f"{level.name:>14} {level.origins:>9,} {level.destinations:>9,} {level.flows:>11,}"
            )
            yield row + "".join(
                f"  {share.flows:>17.1%} {share.volume:>7.1%}" for share in level.safe
            )

    def _about_people(self, who: Contributors) -> Iterator[str]:
        trips = "" if who.trips_each is None else f"makes {who.trips_each:,.1f} trips and "
        text = (
            f"A person {trips}is in {who.flows_each:,.1f} flows (different pairs of tiles) on"
            " average"
        )
        if who.busiest_share is not None:
            text += (
                f"; the hundredth of the people with the most trips made {who.busiest_share:.1%} of"
                " them"
            )
        yield text + "."
        if who.few_behind is not None:
            yield (
                f"Of the flows with at least {self.k} trips, {who.few_behind:.1%} are those of"
                f" fewer than {self.k} people: protecting trips does not protect them."
            )
        if who.one_behind:
            yield (
                f"Warning: one person made most trips of {who.one_behind:,} of the {who.places:,}"
                f" places with at least {self.k} trips. Protect people, and see what `flowveil"
                " audit --against` says of dominance."
            )

    def _repr_markdown_(self) -> str:
        return indent("\n".join(self.lines()), "    ")

    def __repr__(self) -> str:
        return f"<Description of {self.flows:,} flows, internal>"


def describe_flows(
    flows: Flows,
    *,
    k: int = 10,
    protect: str | Sequence[str] | None = None,
    max_suppressed: float = 0.1,
    hierarchy: str | None = None,
    districts: Any = None,
) -> Description:
    """Describes flows before anything is anonymised (`flowveil.describe`).

    Of folded ones, also the folded time.
    """
    if len(flows) == 0:
        raise DataError("There are no flows to describe.")
    check_max_suppressed(max_suppressed)
    folded = flows if flows.folds else None
    if folded is not None:
        flows, _ = unfolded(folded)
    units = [unit.name for unit in UNITS.values() if _has(flows, unit)]
    guarantees = {unit: Guarantee.resolve(flows, k=k, protect=unit) for unit in units}
    asked = Guarantee.resolve(flows, k=k, protect=protect)
    levels = tuple(_levels(flows, guarantees))
    refined, tree = METHODS["twincut"].on_hierarchy(flows, hierarchy)
    arguments = {"k": k, "protect": asked.units, "max_suppressed": max_suppressed}
    # What methods would give, and with times, what those that fold time would.
    runs = [(name, flows) for name in _ESTIMATED]
    runs += [] if folded is None else [(name, folded) for name in _ESTIMATED if METHODS[name].folds]
    districts = _readers_districts(districts)
    zoning = areas_of_readers(flows, districts)
    runs_of_methods = (_estimate(name, on, arguments, hierarchy, districts) for name, on in runs)
    estimates = [one for one in runs_of_methods if one is not None]
    whole_areas = None if zoning is None else _whole_areas(flows, asked, zoning)
    trips, weight = int(flows.trips.sum()), None if flows.weight is None else flows.total("weight")
    return Description(
        k=k,
        rows=flows.intake.rows,
        left_out=dict(flows.intake.left_out),
        columns=dict(flows.intake.columns),
        notes=flows.intake.notes,
        person_case=flows.intake.person_case,
        nobody=dict(flows.intake.nobody),
        place=place_of(flows),
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
        hierarchy=tree["hierarchy"],
        max_suppressed=max_suppressed,
        estimates=tuple(estimates),
        whole_areas=whole_areas,
        advice=(
            *_advice(flows, levels, asked.units, max_suppressed),
            *_advice_on_areas(estimates, whole_areas),
        ),
    )


def safe_levels(
    flows: Flows, *, k: int = 10, protect: str | Sequence[str] | None = None
) -> list[LevelSummary]:
    """Returns how much is safe at the tiles and at each coarser level, in the protected units."""
    if flows.folds:
        flows, _ = unfolded(flows)
    units = Guarantee.resolve(flows, k=k, protect=protect).units
    return list(
        _levels(flows, {unit: Guarantee.resolve(flows, k=k, protect=unit) for unit in units})
    )


def _readers_districts(districts: Any) -> Any:
    """Returns a level as a number, and a file or table of polygons as a ZoneMap."""
    from flowveil.zoning.files import ZoneMap, read_zones

    if districts is None or isinstance(districts, int | ZoneMap):
        return districts
    if isinstance(districts, str) and districts.isdigit():
        return int(districts)
    return read_zones(districts)


def _whole_areas(flows: Flows, guarantee: Guarantee, zoning: Zoning) -> WholeAreas:
    """Returns what is missing from a matrix between areas; trips outside all areas do not count."""
    n = len(zoning.codes)
    cells: Cells = flows.merge(
        np.where(zoning.origin < 0, n, zoning.origin)[flows.origin],
        np.where(zoning.destination < 0, n, zoning.destination)[flows.destination],
        n + 1,
        n + 1,
    ).cells
    inside = (cells.origin < n) & (cells.destination < n)
    volume = np.where(inside, cells.volume(guarantee.basis).astype(np.float64), 0.0)
    missing = volume[~guarantee.safe(cells)].sum() / max(volume.sum(), 1e-300)
    used = np.union1d(cells.origin[inside], cells.destination[inside])
    return WholeAreas(zoning.name, len(used), float(missing))


def _advice_on_areas(
    estimates: Sequence[MethodEstimate], areas: WholeAreas | None
) -> Iterator[str]:
    """Yields which is closer between the readers' areas: the areas themselves, or LayerCut."""
    layered = next((one.planner.get("misplaced") for one in estimates if not one.folded), None)
    if areas is None or layered is None:
        return
    if areas.missing / 2 <= layered:
        yield (
            f"Between areas of {areas.name}, a matrix of these areas themselves misplaces"
            f" {areas.missing / 2:.1%}, layercut and a reader's estimate {layered:.1%}: if readers"
            " want these areas and no finer ones, publish on them."
        )
    else:
        yield (
            f"Between areas of {areas.name}, layercut and a reader's estimate misplace"
            f" {layered:.1%}, a matrix of these areas themselves {areas.missing / 2:.1%}:"
            " publish on the tiles."
        )


def _has(flows: Flows, unit: Unit) -> bool:
    """Returns whether the flows have what a unit counts; a column of zeros does not count."""
    if unit.column:
        return getattr(flows, unit.column) is not None and flows.total(unit.column) > 0
    return not unit.counts_persons or flows.people is not None


def _levels(flows: Flows, guarantees: Mapping[str, Guarantee]) -> Iterator[LevelSummary]:
    node_o, node_d = flows.origins.leaf_node, flows.destinations.leaf_node
    resolution = flows.intake.resolution
    cells: Cells = flows

    def safe_share(unit: str, guarantee: Guarantee) -> SafeShare:
        safe, volume = guarantee.safe(cells), cells.volume(UNITS[unit].basis).astype(np.float64)
        share = float(volume[safe].sum() / volume.sum()) if volume.sum() else 0.0
        return SafeShare(unit, float(getattr(guarantee, unit)), float(safe.mean()), share)

    for lifted in range(max(flows.origins.max_depth, flows.destinations.max_depth) + 1):
        cells = flows.merge(
            node_o[flows.origin],
            node_d[flows.destination],
            flows.origins.n_nodes,
            flows.destinations.n_nodes,
        ).cells
        here = None if resolution is None else resolution - lifted
        yield LevelSummary(
            lifted=lifted,
            resolution=here if here is None or here >= 0 else None,
            origins=len(np.unique_values(cells.origin)),
            destinations=len(np.unique_values(cells.destination)),
            flows=len(cells),
            safe=tuple(safe_share(unit, guarantee) for unit, guarantee in guarantees.items()),
        )
        if len(cells) == 1:
            return
        node_o, node_d = flows.origins.lift(node_o), flows.destinations.lift(node_d)


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
    few = float((flows.people.count(len(flows))[enough] < k).mean()) if enough.any() else None
    return Contributors(
        len(each), float(each.mean()), trips_each, busiest, few, *_places_of_one(flows, k)
    )


def _places_of_one(flows: Flows, k: int) -> tuple[int | None, int | None]:
    """Returns the places of which one person made most trips, and all places with at least k
    trips.
    """
    who = flows.people
    if who is None or who.trips is None:
        return None, None
    mostly = places = 0
    for tile in (flows.origin, flows.destination):
        trips = np.bincount(tile, weights=flows.trips)
        largest, _ = who.largest(tile, len(trips))
        enough = trips >= k
        mostly += int(np.count_nonzero(enough & (largest > trips / 2)))
        places += int(np.count_nonzero(enough))
    return mostly, places


def _advice(
    flows: Flows, levels: Sequence[LevelSummary], protect: Sequence[str], max_suppressed: float
) -> Iterator[str]:
    def suffices(level: LevelSummary) -> bool:
        return all(
            share.volume >= 1 - max_suppressed for share in level.safe if share.unit in protect
        )

    enough = next((level for level in levels if suffices(level)), None)
    finest = levels[0]
    if enough is finest:
        yield (
            "Enough is safe already: 'suppression' publishes the tiles unchanged, and a finer"
            " resolution may be possible."
        )
    elif enough is None:
        yield (
            "Even the coarsest level leaves much below k: expect large zones, choose a lower k, or"
            " use more data."
        )
    elif enough.resolution is not None and finest.resolution is not None:
        # Three levels leave methods room to merge without making the tree needlessly deep.
        start = min(finest.resolution, enough.resolution + 3)
        yield (
            f"At resolution {enough.resolution}, all but {max_suppressed:.0%} of the volume would"
            f" be safe on a plain grid; start with --resolution {start} and let the method merge"
            " where it must."
        )
    else:
        yield (
            f"{enough.lifted} levels up, all but {max_suppressed:.0%} of the volume would be safe; "
            "the method merges less where it can."
        )
    yield (
        "Method: 'layercut', the default, publishes nearly every trip; 'twincut' has one map of"
        " zones that add up."
    )
    if flows.origins.geography is None or flows.destinations.geography is None:
        yield (
            "Boxes ('curvecut' or 'mondrian') cannot be made: the location of the tiles is unknown."
        )
    else:
        yield (
            "Method: boxes ('curvecut' or 'mondrian') where the hierarchy does not follow the"
            " places, or nothing may be suppressed ('mondrian'). Boxes overlap, so readers can map"
            " them but not add them up over an area."
        )
    if flows.people is not None:
        yield (
            "Persons are known and protected by default (--protect people); protecting trips alone"
            " is not enough."
        )
    else:
        yield (
            "No person column was recognised: trips can be protected, people cannot; say so to your"
            " readers."
        )


#: With more flows nothing is estimated, because it would take as long as a release.
MOST_FLOWS = 2_000_000

#: By method: options that skip its last step, and what a reader gets. The last step makes a release
#: finer, so that a release on the same tree is about as fine or finer.
_ESTIMATED: dict[str, tuple[dict[str, Any], str]] = {
    "layercut": ({}, "nearly every trip, in layers of nested zones"),
    "twincut": ({"effort": 0.0}, "one map of zones for each end"),
    "paircut": ({"spend": False}, "disjoint cells of nested zones"),
    "curvecut": ({"effort": 0.0}, "boxes that overlap"),
}


@dataclass(frozen=True)
class MethodEstimate:
    """The expected result of one method: a run on all flows, recounted like a release, without its
    last step.
    """

    method: str
    folded: bool  # time steps are merged, cell by cell
    hierarchy: str | None  # the tree that it used; None without one
    gives: str  # what a reader gets
    planner: Mapping[str, float | int | None] = field(
        default_factory=dict
    )  # the planner's errors; empty if unknown
    error: float | None = None  # mean generalisation error in tiles; None without a release
    cells: int | None = None  # published cells
    width_h: float | None = None  # mean hours of a cell's interval; None if time is not folded
    reason: str | None = None  # why the run has no release

    def line(self) -> str:
        """Returns one row of the table."""
        name = f"{self.method} --fold-time" if self.folded else self.method
        if self.error is None or self.cells is None:
            return f"  {name:<20} no estimate: {self.reason}"
        shown = []
        for key in PLANNER:
            value = self.planner.get(key)
            shown.append(
                "-"
                if value is None
                else f"{value:.3f}"
                if key == "trip_length_ratio"
                else f"{value:.1%}"
            )
        tree = "" if self.hierarchy is None else f" ({TREES[self.hierarchy]})"
        width = "" if self.width_h is None else f", {self.width_h:,.2f} h wide on average"
        planner = "".join(f" {text:>12}" for text in shown)
        return (
            f"  {name:<20}{planner} {self.error:>9,.1f} {self.cells:>10,} "
            f" {self.gives}{tree}{width}"
        )


def _estimate(
    name: str,
    flows: Flows,
    arguments: Mapping[str, Any],
    hierarchy: str | None,
    districts: Any,
) -> MethodEstimate | None:
    """Returns what a method would give; None if its libraries are not installed."""
    options, gives = _ESTIMATED[name]
    empty = MethodEstimate(name, bool(flows.folds), None, gives)
    if len(flows) > MOST_FLOWS:
        return replace(empty, reason=f"there are more than {MOST_FLOWS:,} flows")
    limit = {"max_suppressed": METHODS[name].max_suppressed} if name == "layercut" else {}
    release = attempt(
        flows,
        {"method": name, **arguments, **limit, **on_tree(METHODS[name], hierarchy), **options},
    )
    if isinstance(release, FlowveilError):
        return (
            None if isinstance(release, MissingExtraError) else replace(empty, reason=str(release))
        )
    basis = release.guarantee.basis
    subject = Subject(release, basis)
    return replace(
        empty,
        hierarchy=release.parameters.get("hierarchy"),
        planner=planner_errors(release, basis, districts),
        error=subject.mean_error,
        cells=len(release.cells),
        width_h=subject.time_width,
    )
