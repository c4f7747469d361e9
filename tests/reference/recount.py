"""A slow, obvious recount of small releases on a map: for each trip, every cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def ancestors(zone: str, parents: Mapping[str, str | None]) -> list[str]:
    """A zone and all zones around it."""
    found = [zone]
    while parents[found[-1]] is not None:
        found.append(parents[found[-1]])  # type: ignore[arg-type]
    return found


def problems(
    cells: Sequence[Mapping[str, Any]],
    trips: Sequence[Mapping[str, Any]],
    parents: Mapping[str, str | None],
    guarantee: Mapping[str, float],
    *,
    homogeneous: bool,
) -> set[str]:
    """What is wrong with published cells: ``twice``, ``count``, ``weight``, ``guarantee``,
    ``zones``, ``missing``.

    Args:
        cells: origin_zone, destination_zone, trips, weight, and layer where there are layers.
        trips: origin, destination, person (None if unknown), weight in millionths; one trip each.
        parents: of each zone of the map.
        guarantee: fewest trips, people, population (millionths) and locations.
        homogeneous: whether zones are disjoint and no safe cell may be missing.
    """
    found: set[str] = set()
    inside: list[list[Mapping[str, Any]]] = [[] for _ in cells]
    lost = []
    for trip in trips:
        around = [ancestors(trip[end], parents) for end in ("origin", "destination")]
        hits = [
            i
            for i, cell in enumerate(cells)
            if cell["origin_zone"] in around[0] and cell["destination_zone"] in around[1]
        ]
        first = [
            i
            for i in hits
            if cells[i].get("layer", 0) == min(cells[j].get("layer", 0) for j in hits)
        ]
        if len(first) > 1:
            found.add("twice")
        for i in first:
            inside[i].append(trip)
        if not hits:
            lost.append(trip)
    for cell, own in zip(cells, inside, strict=True):
        if len(own) != cell["trips"]:
            found.add("count")
        if sum(trip["weight"] for trip in own) != round(cell["weight"] * 1_000_000):
            found.add("weight")
        if not is_safe(own, guarantee):
            found.add("guarantee")
    if homogeneous:
        zones = [{cell[f"{end}_zone"] for cell in cells} for end in ("origin", "destination")]
        if any(len(set(ancestors(zone, parents)) & own) > 1 for own in zones for zone in own):
            found.add("zones")
        else:
            groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
            for trip in lost:
                pair = [
                    set(ancestors(trip[e], parents)) & z
                    for e, z in zip(("origin", "destination"), zones, strict=True)
                ]
                if all(pair):
                    groups.setdefault((pair[0].pop(), pair[1].pop()), []).append(trip)
            if any(is_safe(own, guarantee) for own in groups.values()):
                found.add("missing")
    return found


def is_safe(trips: Sequence[Mapping[str, Any]], guarantee: Mapping[str, float]) -> bool:
    """Whether the trips of a cell reach every threshold."""
    values = {
        "trips": len(trips),
        "people": len({trip["person"] for trip in trips} - {None}),
        "population": sum(trip["weight"] for trip in trips),
        "locations": min(len({trip[end] for trip in trips}) for end in ("origin", "destination")),
    }
    return bool(trips) and all(values[unit] >= least for unit, least in guarantee.items())
