"""A revision: a published release again, after its trips were corrected, over the same zones.

A reader can subtract the two releases, so a cell gets its new value only if the change from every
earlier release reaches the guarantee alone, in every unit (docs/decisions/0025-revisions.md).
Persons and tiles behind a change are bounded from below: the fewest persons who can have made added
trips are those with the most trips in the new table. Where zones overlap, each cell is a fixed set
of pairs of tiles; new cells, and new slices, are not published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Ints, Mask, Numbers
from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import MILLION, Cells, Flows, Merged, to_fixed_point
from flowveil.core.guarantee import UNITS, Guarantee
from flowveil.core.slices import Key
from flowveil.release.counts import ExactCounts
from flowveil.release.folder import FolderSlice, ReleaseFolder
from flowveil.release.plan import Plan
from flowveil.release.statement import Statement
from flowveil.release.zone_map import FrozenMap

#: Parameters of the guarantee: the same in all releases of a chain.
PROMISE = ("k", "protect", "k_population", "l")
#: Rules that cannot be checked for a change: the earlier trips or the list are not available.
RULES = ("dominance", "stricter", "l_places", "t")
AnyCounts = TypeVar("AnyCounts", bound=ExactCounts)


@dataclass(frozen=True, eq=False)
class Earlier:
    """The releases that are revised, the oldest first.

    Folders, hashes of flows.parquet, and statements.
    """

    folders: tuple[ReleaseFolder, ...]
    sha256: tuple[str, ...]
    statements: tuple[Statement, ...]
    #: The map of all slices; None if it is that of the latest release.
    common_map: FrozenMap | None = None

    @classmethod
    def read(
        cls, folders: Earlier | str | PathLike[str] | Sequence[str | PathLike[str]]
    ) -> Earlier:
        """Reads them, and refuses kinds of releases that cannot be revised."""
        if isinstance(folders, Earlier):
            return folders
        named = [folders] if isinstance(folders, str | PathLike) else list(folders)
        read = tuple(ReleaseFolder(Path(folder)) for folder in named)
        if not read:
            raise ParameterError(
                "A revision needs the release that it revises. Hint: --revision EARLIER."
            )
        for folder in read:
            folder.check_manifest()
        hashes = tuple(folder.sha256("flows.parquet") for folder in read)
        statements = tuple(folder.statement for folder in read)
        for n, statement in enumerate(statements):
            _refuse_kind(statement)
            if statement.revision_of != hashes[:n]:
                raise ParameterError(
                    "A revision is compared with every published release of these trips: the first"
                    " one and all of its revisions. Hint: give each with --revision, the oldest"
                    " first."
                )
        return cls(read, hashes, statements)

    @property
    def slices(self) -> list[Key]:
        """The slices of the latest release."""
        latest = self.folders[-1].flows
        keys = zip(
            *(latest[name].to_pylist() for name in self.statements[-1].slice_columns), strict=True
        )
        return list(dict.fromkeys(keys))

    def in_slice(self, key: Key) -> Earlier:
        """Returns the releases of one slice.

        Slices on one map, without layers, keep all zones of it.
        """
        stated = self.statements[-1]
        is_common = stated.zones_of is not None or stated.parameters["slices"].get("common_zones")
        common = FrozenMap.read(self.folders[-1].path) if is_common and stated.homogeneous else None
        parts = tuple(FolderSlice(folder.path, folder, key) for folder in self.folders)
        return Earlier(parts, self.sha256, tuple(part.statement for part in parts), common)

    def zones_of(self, given: Any) -> FrozenMap:
        """The map of the revision: that of the latest release, or the one that this was made
        over.
        """
        own = self.common_map or FrozenMap.read(self.folders[-1])
        if given is None:
            return own
        frozen = FrozenMap.read(given)
        if frozen.sha256 not in (own.sha256, self.statements[-1].zones_of):
            raise ParameterError(
                "The release that is revised has other zones. Hint: leave --zones-of out."
            )
        return frozen

    def check_promise(self, parameters: Mapping[str, Any]) -> None:
        """Refuse another guarantee than the earlier releases have."""
        other = [
            name
            for name in PROMISE
            if self.statements[-1].parameters.get(name) != parameters.get(name)
        ]
        if other:
            raise ParameterError(
                f"The release that is revised has another guarantee ({', '.join(other)}); a"
                " revision has the same. Hint: ask for what its report.json says."
            )
        if "population" in parameters["protect"] and parameters["k_population"] is None:
            raise ParameterError(
                "The mean weight of a trip changes with the trips, so a revision cannot keep a"
                " threshold of k mean weights. Hint: release with --k-population, which is a"
                " number."
            )
        unseen = [
            name
            for name in parameters["protect"]
            if UNITS[name].column not in ("", UNITS[name].basis)
        ]
        if unseen:
            raise ParameterError(
                f"The earlier release does not show {unseen[0]}, so how much a revision changes of"
                " it is not known. Hint: leave the correction out."
            )


def _refuse_kind(statement: Statement) -> None:
    fixed = statement.facets.counts_nodes
    ruled = any(rule in statement.parameters for rule in RULES)
    if not fixed or statement.suppression["rule"] != "short cells" or ruled:
        raise ParameterError(
            "A release of boxes, noise or folded times cannot be revised, nor one"
            " from which hopeless flows, dominated cells or cells around listed places were taken,"
            " or whose l counts listed places. Hint: leave the correction out, or publish it after"
            " an audit against the earlier release."
        )


@dataclass(frozen=True, eq=False)
class Revision:
    """Marks of a revised release: which cells have a new value.

    The others have that of the latest earlier release.
    """

    revised: Mask
    earlier: Earlier


def revise(release: AnyCounts, earlier: Earlier) -> AnyCounts:
    """Returns the release of corrected trips, with the earlier value where the change is below the
    guarantee.
    """
    parameters = {**release.parameters, "revision_of": list(earlier.sha256)}
    earlier.check_promise(parameters)
    plan, flows = release.plan, release.input
    n_d = len(plan.destination_zones)
    origin = plan.origin_zone
    if plan.layer is not None:
        # A flow in no layer is in no cell of the map.
        origin = np.where(plan.layer[origin] > 0, origin, np.int32(-1))
    # The cells of the corrected trips, also those below the threshold.
    merged = flows.merge(origin, plan.destination_zone, len(plan.origin_zones), n_d)
    new, safe = merged.cells, release.guarantee.safe(merged.cells)
    key = new.origin.astype(np.int64) * n_d + new.destination
    chain = [_published_cells(folder, plan) for folder in earlier.folders]
    # Where zones overlap, a new cell could contain trips of an earlier one.
    keys = np.union1d(chain[-1][0], key[safe]) if plan.homogeneous else chain[-1][0]
    now, at = _find(key, keys)
    revised, bounds = now & safe[at], _fewest_members(merged, flows, release.guarantee)
    for earlier_key, trips, weight in chain:
        listed, there = _find(earlier_key, keys)
        changes: list[NDArray[Any]] = [new.trips[at] - trips[there]]
        if new.weight is not None and weight is not None:
            # Whole millionths: a difference of doubles may be off.
            changes.append(
                (to_fixed_point(new.weight[at]) - to_fixed_point(weight[there])) / MILLION
            )
        same = np.all([change == 0 for change in changes], axis=0)
        revised &= (
            ~listed
            | same
            | _is_safe_change(changes, release.guarantee, [bound[at] for bound in bounds])
        )
    # The latest release is the last of the chain.
    revised &= ~(listed & same)
    number = np.full(len(key), -1, np.int32)
    number[at[now]] = np.flatnonzero(now)
    kept_weight = (
        None
        if new.weight is None or weight is None
        else np.where(revised, new.weight[at], weight[there])
    )
    kept_trips = np.where(revised, new.trips[at], trips[there])
    return replace(
        release,
        parameters=MappingProxyType(parameters),
        cells=Cells(
            (keys // n_d).astype(np.int32), (keys % n_d).astype(np.int32), kept_trips, kept_weight
        ),
        cell_of_flow=np.append(number, np.int32(-1))[merged.row],
        revision=Revision(revised, earlier),
    )


def _find(key: Numbers, wanted: Numbers) -> tuple[Mask, Numbers]:
    """Returns which keys are in a sorted list, and where; any place for the others."""
    at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return key[at] == wanted, at


def _published_cells(
    folder: ReleaseFolder, plan: Plan
) -> tuple[Numbers, Numbers, NDArray[Any] | None]:
    """Returns the cells of an earlier release, numbered by their zones and sorted.

    Numbers, trips and weights.
    """
    flows, layers = folder.flows, plan.layer
    columns = {"origin_zone": plan.origin_zones, "destination_zone": plan.destination_zones}
    ends = []
    for name, zones in columns.items():
        codes = zones.codes(np.arange(len(zones), dtype=np.int32)).tolist()
        listed = flows[name].to_pylist()
        if layers is not None and name == "origin_zone":
            codes, listed = (
                zip(codes, layers.tolist(), strict=True),
                zip(listed, flows["layer"].to_pylist(), strict=True),
            )
        number = {zone: n for n, zone in enumerate(codes)}
        ends.append(np.array([number.get(zone, -1) for zone in listed], dtype=np.int64))
    if min(ends[0].min(), ends[1].min()) < 0:
        raise InfeasibleError(
            "A zone of the release that is revised has lost all trips, so the zones of the revision"
            " would reveal that. Nothing was written. Hint: leave the correction out."
        )
    key = ends[0] * len(plan.destination_zones) + ends[1]
    order = np.argsort(key)
    weight = flows["weight"].to_numpy()[order] if "weight" in flows.column_names else None
    return key[order], flows["trips"].to_numpy()[order], weight


def _is_safe_change(
    changes: Sequence[NDArray[Any]], guarantee: Guarantee, bounds: Sequence[Numbers]
) -> Mask:
    """Returns which changes of trips and weights reach the guarantee in every unit, for any earlier
    trips.
    """
    safe: Mask = changes[0] != 0
    if guarantee.trips is not None:
        safe &= np.abs(changes[0]) >= guarantee.trips
    if guarantee.population is not None:
        safe &= np.abs(changes[1]) >= guarantee.population
    for bound in bounds:
        safe &= bound < changes[0]
    return safe


def _fewest_members(merged: Merged, flows: Flows, guarantee: Guarantee) -> list[Numbers]:
    """Returns, by protected unit, the most trips in a cell that too few members, or unknown ones,
    can have made.
    """
    rows: list[tuple[Ints, Ints, NDArray[Any], int]] = []
    people, cells = flows.people, merged.cells
    if guarantee.people is not None:
        assert people is not None
        assert people.trips is not None
        rows.append((merged.row[people.cell], people.person, people.trips, guarantee.people - 1))
    if guarantee.locations is not None:
        ends = (flows.origin, flows.destination)
        rows += [(merged.row, tile, flows.trips, guarantee.locations - 1) for tile in ends]
    found = []
    for of_row, members, trips_of_row, n in rows:
        inside = of_row >= 0
        cell, member, trips = of_row[inside], members[inside], trips_of_row[inside]
        width = int(member.max(initial=0)) + 1
        key, which = np.unique(cell.astype(np.int64) * width + member, return_inverse=True)
        made = np.bincount(which, weights=trips, minlength=len(key)).astype(np.int64)
        of_cell = key // width
        order = np.lexsort((-made, of_cell))
        first = np.searchsorted(of_cell[order], np.arange(len(cells)))
        largest = order[np.arange(len(order)) - first[of_cell[order]] < n]
        most, known = (
            np.bincount(of_cell[some], weights=made[some], minlength=len(cells)).astype(np.int64)
            for some in (largest, slice(None))
        )
        found.append(most + (cells.trips - known))
    return found
