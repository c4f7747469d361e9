"""Stays and trips of points, straight from their definitions."""

from __future__ import annotations


def slow_stays(
    rows: list[tuple[int, int, int]], *, dwell_minutes: int, radius_steps: float
) -> list[bool]:
    """Which of (person, minute, place) belong to a stay; rows are sorted."""
    inside = [False] * len(rows)
    for i, (person, minute, place) in enumerate(rows):
        later = [j for j, r in enumerate(rows) if r[0] == person and r[1] >= minute + dwell_minutes]
        if later and abs(rows[later[0]][2] - place) <= radius_steps:
            for j in range(i, later[0] + 1):
                inside[j] = True
    return inside


def slow_trips(rows: list[tuple[int, int, int]], *, gap_minutes: int) -> list[tuple[str, int, int]]:
    """Trips of two points or more: person, first minute, number of points."""
    trips: list[list[tuple[int, int, int]]] = []
    for row in sorted(rows):
        if trips and trips[-1][-1][0] == row[0] and row[1] - trips[-1][-1][1] <= gap_minutes:
            trips[-1].append(row)
        else:
            trips.append([row])
    return [(f"p{t[0][0]}", t[0][1], len(t)) for t in trips if len(t) > 1]
