"""Recount with flows as the engine read them.

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
from flowveil.release.folder import ReleaseFolder
from flowveil.remote_people import RemotePeople
from flowveil.slices import SlicedFlows
from flowveil.times import TIME
from flowveil.verify.recount import PersonRows, Places, Result, Trips, ZoneMap, recount
from flowveil.verify.zones_of import check_zones_of

if TYPE_CHECKING:
    from flowveil.zoning.places import Places as ListedPlaces


def recount_flows(
    folder: Path,
    flows: Flows | SlicedFlows,
    *,
    stricter: ListedPlaces | None = None,
    **given: Any,
) -> Result:
    """Recounts a release from flows as the engine read them.

    Args:
        folder: the release.
        flows: what it was made from.
        stricter: the list of places with stricter thresholds, by the tiles of these flows.
        **given: as for `recount_trips`.
    """
    return recount_trips(ReleaseFolder(folder), trips_from_flows(flows, stricter=stricter), **given)


def recount_trips(
    release: ReleaseFolder,
    trips: Trips,
    *,
    zones_of: Any = None,
    revision: Sequence[Any] = (),
    expect: Mapping[str, Any] | None = None,
    noise: bool = True,
) -> Result:
    """Recounts a release, and compares its zones with the zone map that it states.

    Args:
        release: the release.
        trips: what it was made from.
        zones_of: the zone map that was given, where the release states one.
        revision: folders of the releases that it revises, the oldest first.
        expect: guarantee that the reader requires.
        noise: whether counts of a noisy release are tested.
    """
    result = recount(release.path, trips, earlier=list(revision), expect=expect, test_noise=noise)
    findings, notes = check_zones_of(release, zones_of, trips)
    return replace(result, findings=(*findings, *result.findings), notes=(*notes, *result.notes))


class RemotePersons:
    """Persons that stay on a cluster, which counts them."""

    def __init__(self, parts: list[RemotePeople], lengths: list[int]) -> None:
        self._people = RemotePeople.concat(parts, lengths) if len(parts) > 1 else parts[0]

    def count(self, group: Any, n: int) -> Any:
        """Returns the distinct persons of each group of rows."""
        return self._people.merge(group).count(n)


def trips_from_flows(flows: Flows | SlicedFlows, *, stricter: ListedPlaces | None = None) -> Trips:
    """Returns the raw trips of a recount, from flows as they were read.

    Args:
        flows: one matrix, slices, or a matrix with time as a third end.
        stricter: the list of places with stricter thresholds, by the tiles of these flows.
    """
    parts = flows.slices if isinstance(flows, SlicedFlows) else (flows,)
    whole, lengths = parts[0], [len(part) for part in parts]
    columns: dict[str, Any] = {}
    if isinstance(flows, SlicedFlows):
        number = np.repeat(np.arange(len(parts), dtype=np.int32), lengths)
        every = None if flows.every is None else flows.every.name
        columns = {"slice_columns": flows.columns, "slices": flows.keys, "slice": number, "every": every}
    elif flows.times is not None:
        labels = tuple((label,) for label in flows.times.labels.tolist())
        columns = {"slice_columns": (TIME,), "slices": labels, "slice": flows.time, "every": flows.times.every}
    trees = (whole.origins, whole.destinations)
    maps = [None if tree.code.dtype == np.uint64 else _zone_map(whole.whole_map or tree) for tree in trees]
    listed = None
    if whole.l_places is not None:
        tile = np.repeat(whole.l_places.code, whole.l_places.count)
        listed = Places(tile, np.zeros(len(tile), np.int64), np.zeros(len(tile), np.int64))
    summary = whole.intake
    return Trips(
        origin=_concat([part.origin for part in parts]),
        destination=_concat([part.destination for part in parts]),
        trips=_concat([_whole(part.trips) for part in parts]),
        unit=MILLION if any(part.trips.dtype.kind == "f" for part in parts) else 1,
        weight=None if whole.weight is None else _concat([_whole(part.weight) for part in parts]),
        persons=_persons([part.people for part in parts], lengths),
        origins=trees[0].code[trees[0].leaf_node],
        destinations=trees[1].code[trees[1].leaf_node],
        origin_map=maps[0],
        destination_map=maps[1],
        stricter=None if stricter is None else Places(stricter.tile, stricter.k, stricter.l),  # type: ignore[arg-type]
        l_places=listed,
        read_by="engine",
        rows=summary.rows - summary.empty_rows,
        dropped=sum(summary.dropped.values()),
        outside=summary.outside_rows,
        unread={
            "trips": (Fraction(summary.dropped_trips), Fraction(summary.outside_trips)),
            "weight": (Fraction(summary.dropped_weight or 0), Fraction(summary.outside_weight or 0)),
        },
        **columns,
    )


def _concat(columns: list[Any]) -> Any:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _whole(values: Any) -> Any:
    return values if values.dtype == np.int64 else to_fixed_point(values)


def _zone_map(tree: Hierarchy) -> ZoneMap:
    lat, lon = np.full(tree.n_nodes, np.nan), np.full(tree.n_nodes, np.nan)
    if tree.geography is not None:
        lat[tree.leaf_node], lon[tree.leaf_node] = tree.geography.centers(tree.leaf_node)
    return ZoneMap(tree.code, tree.parent.astype(np.int64), lat, lon)


def _persons(people: list[Any], lengths: list[int]) -> PersonRows | RemotePersons | None:
    if any(one is None for one in people):
        return None
    if any(isinstance(one, RemotePeople) for one in people):
        return RemotePersons(people, lengths)
    start = np.cumsum([0, *lengths[:-1]]).astype(np.int32)
    row = _concat([one.cell + first for one, first in zip(people, start, strict=True)])
    made = _concat([one.trips for one in people]) if all(one.trips is not None for one in people) else None
    return PersonRows(row, _concat([one.person for one in people]), made)
