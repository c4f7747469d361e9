"""A revision: a published release again, after its trips were corrected, over the same zones.

A reader can subtract the two releases, so each change is treated as a cell: if it reaches the guarantee alone, in
every unit, the cell gets its new value; otherwise it keeps the earlier one. Of the earlier trips only the published
cells are known. So persons and tiles behind a change are bounded from below: added trips are trips of the new table,
and the fewest persons who can have made them are those with the most. Of removed trips no person is known; where
persons or tiles are protected, a smaller value is not published.

A release that was revised before has several earlier ones. The difference from each of them must reach the guarantee.

Where zones overlap, in layers and in nested zones, every earlier cell stays published, so each cell is a fixed set of
pairs of tiles: those in its zones and in no cell of an earlier layer. Cells are compared one by one as on one map; new
cells are not published. Slices share no trip, so each is revised like a single matrix; new slices are not published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import MILLION, Cells, Flows, to_fixed_point
from flowveil.guarantee import UNITS, Guarantee
from flowveil.hierarchy import Ints
from flowveil.release.folder import FolderSlice, ReleaseFolder
from flowveil.release.plan import Plan
from flowveil.release.release import Release
from flowveil.release.statement import Statement
from flowveil.release.zone_map import FrozenMap
from flowveil.slices import Key

#: Parameters of the guarantee: the same in all releases of a chain.
PROMISE = ("k", "protect", "k_population", "l")
#: Rules that cannot be checked for a change: the earlier trips or the list are not available.
RULES = ("dominance", "stricter", "l_places", "t")
Bools = NDArray[np.bool_]
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Earlier:
    """The releases that are revised, the oldest first: folders, hashes of flows.parquet, and statements."""

    folders: tuple[ReleaseFolder, ...]
    sha256: tuple[str, ...]
    statements: tuple[Statement, ...]
    #: The map of all slices; None if it is that of the latest release.
    common_map: FrozenMap | None = None

    @classmethod
    def read(cls, folders: Earlier | str | PathLike[str] | Sequence[str | PathLike[str]]) -> Earlier:
        """Reads them, and refuses kinds of releases that cannot be revised."""
        if isinstance(folders, Earlier):
            return folders
        named = [folders] if isinstance(folders, str | PathLike) else list(folders)
        read = tuple(ReleaseFolder(Path(folder)) for folder in named)
        if not read:
            raise ParameterError("A revision needs the release that it revises. Hint: --revision EARLIER.")
        for folder in read:
            folder.check_manifest()
        hashes = tuple(folder.sha256("flows.parquet") for folder in read)
        found = cls(read, hashes, tuple(folder.statement for folder in read))
        for n, statement in enumerate(found.statements):
            _refuse_kind(statement)
            if statement.revision_of != hashes[:n]:
                raise ParameterError(
                    "A revision is compared with every published release of these trips: the first one and all of its "
                    "revisions. Hint: give each with --revision, the oldest first."
                )
        return found

    @property
    def slices(self) -> list[Key]:
        """The slices of the latest release."""
        latest = self.folders[-1].flows
        keys = zip(*(latest[name].to_pylist() for name in self.statements[-1].slice_columns), strict=True)
        return list(dict.fromkeys(keys))

    def in_slice(self, key: Key) -> Earlier:
        """Returns the releases of one slice. Slices on one map, without layers, keep all zones of it."""
        stated = self.statements[-1]
        is_common = stated.zones_of is not None or stated.parameters["slices"].get("common_zones")
        common = FrozenMap.read(self.folders[-1].path) if is_common and stated.homogeneous else None
        parts = tuple(FolderSlice(folder.path, folder, key) for folder in self.folders)
        return Earlier(parts, self.sha256, tuple(part.statement for part in parts), common)

    def zones_of(self, given: Any) -> FrozenMap:
        """The map of the revision: that of the latest release, or the one that this was made over."""
        own = self.common_map or FrozenMap.read(self.folders[-1])
        if given is None:
            return own
        frozen = FrozenMap.read(given)
        if frozen.sha256 not in (own.sha256, self.statements[-1].zones_of):
            raise ParameterError("The release that is revised has other zones. Hint: leave --zones-of out.")
        return frozen

    def check_promise(self, parameters: Mapping[str, Any]) -> None:
        """Refuse another guarantee than the earlier releases have."""
        other = [name for name in PROMISE if self.statements[-1].parameters.get(name) != parameters.get(name)]
        if other:
            raise ParameterError(
                f"The release that is revised has another guarantee ({', '.join(other)}); a revision has the same. "
                "Hint: ask for what its report.json says."
            )
        if "population" in parameters["protect"] and parameters["k_population"] is None:
            raise ParameterError(
                "The mean weight of a trip changes with the trips, so a revision cannot keep a threshold of k mean "
                "weights. Hint: release with --k-population, which is a number."
            )
        unseen = [name for name in parameters["protect"] if UNITS[name].column not in ("", UNITS[name].basis)]
        if unseen:
            raise ParameterError(
                f"The earlier release does not show {unseen[0]}, so how much a revision changes of it is not known. "
                "Hint: leave the correction out."
            )


def _refuse_kind(statement: Statement) -> None:
    sliced = statement.parameters.get("slices") or {}
    fixed = statement.kind in ("plain", "layered", "sliced") and not (sliced.get("total") or sliced.get("also_every"))
    ruled = any(rule in statement.parameters for rule in RULES)
    if not fixed or statement.suppression["rule"] != "short cells" or ruled:
        raise ParameterError(
            "A release of boxes, noise, perturbed counts or folded times cannot be revised, nor one with totals of "
            "its slices (derive them instead), nor one from which hopeless flows, dominated cells or cells around "
            "listed places were taken, or whose l counts listed places. Hint: leave the correction out, or publish it "
            "after an audit against the earlier release."
        )


@dataclass(frozen=True, eq=False)
class Revision:
    """Marks of a revised release: which cells have a new value; the others have that of the latest earlier release."""

    revised: Bools
    earlier: Earlier


def revise(release: Release, earlier: Earlier) -> Release:
    """Returns the release of corrected trips, with the earlier value where the change is below the guarantee."""
    parameters = {**release.parameters, "revision_of": list(earlier.sha256)}
    earlier.check_promise(parameters)
    chain = [_Published.from_folder(folder, release.plan) for folder in earlier.folders]
    change = _Change.from_release(release)
    latest = chain[-1]
    # Where zones overlap, a new cell could contain trips of an earlier one.
    cells = np.union1d(latest.key, change.key[change.safe]) if release.plan.homogeneous else latest.key
    now, at = change.rows(cells)
    before, place = latest.rows(cells)
    revised = now & change.safe[at] & ~(before & change.is_same(at, latest, place))
    for published in chain:
        listed, there = published.rows(cells)
        revised &= ~listed | change.is_same(at, published, there) | change.is_safe(at, published, there)
    n_d = len(release.plan.destination_zones)
    volumes = [
        None if new is None or old is None else np.where(revised, new[at], old[place])
        for new, old in ((change.cells.trips, latest.trips), (change.cells.weight, latest.weight))
    ]
    assert volumes[0] is not None
    number = np.full(len(change.key), -1, np.int32)
    number[at[now]] = np.flatnonzero(now)
    return replace(
        release,
        parameters=MappingProxyType(parameters),
        cells=Cells((cells // n_d).astype(np.int32), (cells % n_d).astype(np.int32), volumes[0], volumes[1]),
        cell_of_flow=np.append(number, np.int32(-1))[change.row],
        revision=Revision(revised, earlier),
    )


@dataclass(frozen=True, eq=False)
class _Table:
    """Values of cells that are numbered by their zones; ``key`` is sorted."""

    key: NDArray[np.int64]

    def rows(self, cells: NDArray[np.int64]) -> tuple[Bools, NDArray[np.int64]]:
        """Which of these cells are in the table, and where; any row for the others."""
        at = np.minimum(np.searchsorted(self.key, cells), len(self.key) - 1)
        return self.key[at] == cells, at


@dataclass(frozen=True, eq=False)
class _Published(_Table):
    """The cells of an earlier release."""

    trips: NDArray[np.int64]
    weight: NDArray[Any] | None

    @classmethod
    def from_folder(cls, folder: ReleaseFolder, plan: Plan) -> _Published:
        flows = folder.flows
        layers = plan.layer
        in_folder = [0] * len(flows) if layers is None else flows["layer"].to_pylist()
        in_plan = [0] * len(plan.origin_zones) if layers is None else layers.tolist()
        no_layer = ([0] * len(flows), [0] * len(plan.destination_zones))
        ends = []
        for zones, name, (listed, own) in (
            (plan.origin_zones, "origin_zone", (in_folder, in_plan)),
            (plan.destination_zones, "destination_zone", no_layer),
        ):
            codes = zones.codes(np.arange(len(zones), dtype=np.int32)).tolist()
            number = {zone: n for n, zone in enumerate(zip(codes, own, strict=True))}
            zone_of = zip(flows[name].to_pylist(), listed, strict=True)
            ends.append(np.array([number.get(zone, -1) for zone in zone_of], dtype=np.int64))
        if min(ends[0].min(), ends[1].min()) < 0:
            raise InfeasibleError(
                "A zone of the release that is revised has lost all trips, so the zones of the revision "
                "would reveal that. Nothing was written. Hint: leave the correction out."
            )
        key = ends[0] * len(plan.destination_zones) + ends[1]
        order = np.argsort(key)
        weight = flows["weight"].to_numpy()[order] if "weight" in flows.column_names else None
        return cls(key[order], flows["trips"].to_numpy()[order], weight)


@dataclass(frozen=True, eq=False)
class _Change(_Table):
    """The corrected trips, cells below the threshold included, and bounds on a change.

    ``row`` is the cell of each flow, ``safe`` says which cells reach the guarantee.
    """

    cells: Cells
    row: Ints
    safe: Bools
    flows: Flows
    guarantee: Guarantee

    @classmethod
    def from_release(cls, release: Release) -> _Change:
        plan, flows = release.plan, release.input
        n_d = len(plan.destination_zones)
        origin = plan.origin_zone
        if plan.layer is not None:
            # A flow in no layer is in no cell of the map.
            origin = np.where(plan.layer[origin] > 0, origin, np.int32(-1))
        merged = flows.merge(origin, plan.destination_zone, len(plan.origin_zones), n_d)
        key = merged.cells.origin.astype(np.int64) * n_d + merged.cells.destination
        return cls(key, merged.cells, merged.row, release.guarantee.safe(merged.cells), flows, release.guarantee)

    def _grown(self, at: Places, published: _Published, there: Places) -> list[NDArray[Any]]:
        """By how much trips and weights are more than they were."""
        grown: list[NDArray[Any]] = [self.cells.trips[at] - published.trips[there]]
        if self.cells.weight is not None and published.weight is not None:
            # Whole millionths: a difference of doubles may be off.
            more = to_fixed_point(self.cells.weight[at]) - to_fixed_point(published.weight[there])
            grown.append(more / MILLION)
        return grown

    def is_same(self, at: Places, published: _Published, there: Places) -> Bools:
        """Which cells are unchanged."""
        same: Bools = np.all([grown == 0 for grown in self._grown(at, published, there)], axis=0)
        return same

    def is_safe(self, at: Places, published: _Published, there: Places) -> Bools:
        """Which changes reach the guarantee in every unit, for any earlier trips."""
        guarantee, grown = self.guarantee, self._grown(at, published, there)
        safe: Bools = grown[0] != 0
        if guarantee.trips is not None:
            safe &= np.abs(grown[0]) >= guarantee.trips
        if guarantee.population is not None:
            safe &= np.abs(grown[1]) >= guarantee.population
        people = self.flows.people
        if guarantee.people is not None:
            assert people is not None
            assert people.trips is not None
            persons = (self.row[people.cell], people.person, people.trips)
            safe &= self._most_of(persons, guarantee.people - 1)[at] < grown[0]
        if guarantee.locations is not None:
            for tile in (self.flows.origin, self.flows.destination):
                rows = (self.row, tile, self.flows.trips)
                safe &= self._most_of(rows, guarantee.locations - 1)[at] < grown[0]
        return safe

    def _most_of(self, rows: tuple[Ints, Ints, NDArray[np.int64]], n: int) -> NDArray[np.int64]:
        """The most trips that n members can have made in each cell; trips of unknown persons are included."""
        inside = rows[0] >= 0
        cell, member, trips = (column[inside] for column in rows)
        width = int(member.max(initial=0)) + 1
        key, which = np.unique(cell.astype(np.int64) * width + member, return_inverse=True)
        made = np.bincount(which, weights=trips, minlength=len(key)).astype(np.int64)
        of_cell = key // width
        order = np.lexsort((-made, of_cell))
        first = np.searchsorted(of_cell[order], np.arange(len(self.cells)))
        rank = np.arange(len(order)) - first[of_cell[order]]
        largest = order[rank < n]
        most = np.bincount(of_cell[largest], weights=made[largest], minlength=len(self.cells)).astype(np.int64)
        known = np.bincount(of_cell, weights=made, minlength=len(self.cells)).astype(np.int64)
        return most + (self.cells.trips - known)
