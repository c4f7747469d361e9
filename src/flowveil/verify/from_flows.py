"""Flows as the engine read them, in the form that the recount takes.

The recount has its own reader (`flowveil.verify.recount.trips`). Inside `anonymize`, and for inputs that reader does
not know, it takes these flows instead, and its result says ``engine``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.flows import MILLION, Flows, to_fixed_point
from flowveil.hierarchy import Hierarchy
from flowveil.remote_people import RemotePeople
from flowveil.slices import SlicedFlows
from flowveil.times import TIME
from flowveil.verify.frozen import check_zones_of
from flowveil.verify.recount import PersonRows, Places, Result, Trips, ZoneMap, recount

if TYPE_CHECKING:
    from flowveil.zoning.places import Places as ListedPlaces


class RemotePersons:
    """Persons that stay on a cluster: it counts them."""

    def __init__(self, parts: list[RemotePeople], start: Any) -> None:
        self._people = RemotePeople.concat(parts, np.diff(start).tolist()) if len(parts) > 1 else parts[0]

    def count(self, group: Any, n: int) -> Any:
        """Distinct persons of each group of rows."""
        return self._people.merge(group).count(n)


def trips_from_flows(flows: Flows | SlicedFlows, *, stricter: ListedPlaces | None = None) -> Trips:
    """The raw trips of a recount, from flows as they were read.

    Args:
        flows: one matrix, slices, or a matrix with time as a third end.
        stricter: the list of places around which cells must reach more, by the tiles of these flows.
    """
    parts = flows.slices if isinstance(flows, SlicedFlows) else (flows,)
    whole, start = parts[0], np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    columns: dict[str, Any] = {"slice_columns": (), "slices": ((),), "slice": None, "every": None}
    if isinstance(flows, SlicedFlows):
        number = np.repeat(np.arange(len(parts), dtype=np.int32), np.diff(start))
        every = None if flows.every is None else flows.every.name
        columns = {"slice_columns": flows.columns, "slices": flows.keys, "slice": number, "every": every}
    elif flows.times is not None:
        labels = tuple((label,) for label in flows.times.labels.tolist())
        columns = {"slice_columns": (TIME,), "slices": labels, "slice": flows.time, "every": flows.times.every}
    trees = (whole.origins, whole.destinations)
    of_map = None if whole.whole_map is None else _zone_map(whole.whole_map)
    maps = [
        None if tree.code.dtype == np.uint64 else of_map if of_map is not None else _zone_map(tree) for tree in trees
    ]
    weight = None if any(part.weight is None for part in parts) else _stacked([_whole(part.weight) for part in parts])
    listed = None
    if whole.l_places is not None:
        tile = np.repeat(whole.l_places.code, whole.l_places.count)
        listed = Places(tile, np.zeros(len(tile), np.int64), np.zeros(len(tile), np.int64))
    return Trips(
        origin=_stacked([part.origin for part in parts]),
        destination=_stacked([part.destination for part in parts]),
        trips=_stacked([_whole(part.trips) for part in parts]),
        unit=MILLION if any(part.trips.dtype.kind == "f" for part in parts) else 1,
        weight=weight,
        persons=_persons(parts, start),
        origins=_tiles(trees[0]),
        destinations=_tiles(trees[1]),
        origin_map=maps[0],
        destination_map=maps[1],
        stricter=None if stricter is None else Places(stricter.tile, stricter.k, stricter.l),  # type: ignore[arg-type]
        l_places=listed,
        read_by="engine",
        **columns,
        **_unread(whole),
    )


def _stacked(columns: list[Any]) -> Any:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _whole(weight: Any) -> Any:
    return weight if weight.dtype == np.int64 else to_fixed_point(weight)


def _tiles(tree: Hierarchy) -> Any:
    """Codes of the tiles, without the bits that number parts of H3 cells; tiles are whole cells."""
    return tree.code[tree.leaf_node]


def _zone_map(tree: Hierarchy) -> ZoneMap:
    lat, lon = np.full(tree.n_nodes, np.nan), np.full(tree.n_nodes, np.nan)
    if tree.geography is not None:
        lat[tree.leaf_node], lon[tree.leaf_node] = tree.geography.centers(tree.leaf_node)
    return ZoneMap(tree.code, tree.parent.astype(np.int64), lat, lon)


def _persons(parts: Any, start: Any) -> PersonRows | RemotePersons | None:
    people = [part.people for part in parts]
    if any(one is None for one in people):
        return None
    if any(isinstance(one, RemotePeople) for one in people):
        return RemotePersons(people, start)
    row = _stacked([one.cell + np.int32(first) for one, first in zip(people, start, strict=False)])
    known = all(one.trips is not None for one in people)
    made = _stacked([one.trips for one in people]) if known else None
    return PersonRows(row, _stacked([one.person for one in people]), made)


def _unread(flows: Flows) -> dict[str, Any]:
    """Rows that are in no flow."""
    summary = flows.intake
    volumes = {
        basis: tuple(Fraction(getattr(summary, f"{what}_{basis}") or 0) for what in ("dropped", "outside"))
        for basis in ("trips", "weight")
    }
    return {
        "rows": summary.rows - summary.empty_rows,
        "dropped": sum(summary.dropped.values()),
        "outside": summary.outside_rows,
        "unread": volumes,
    }


def recount_flows(
    folder: Path,
    flows: Flows | SlicedFlows,
    *,
    zones_of: Any = None,
    stricter: ListedPlaces | None = None,
    revision: Sequence[Any] = (),
    expect: Mapping[str, Any] | None = None,
    noise: bool = True,
) -> Result:
    """Recounts a release from flows as the engine read them.

    Args:
        folder: the release.
        flows: what it was made from.
        zones_of: the zone map that was given, where the release states one.
        stricter: the list of places with stricter thresholds, by the tiles of these flows.
        revision: folders of the releases that it revises, the oldest first.
        expect: guarantee that the reader requires.
        noise: whether counts of a noisy release are tested.
    """
    trips = trips_from_flows(flows, stricter=stricter)
    result = recount(folder, trips, earlier=list(revision), expect=expect, test_noise=noise)
    findings, notes = check_zones_of(folder, zones_of, trips)
    return replace(result, findings=(*findings, *result.findings), notes=(*notes, *result.notes))
