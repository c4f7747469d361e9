"""Phone records to transitions, one person and one visit after the other.

Short, obvious and slow.
"""

from __future__ import annotations

from itertools import groupby, pairwise

Record = tuple[str, int, str]
Visit = tuple[str, int, int]


def _joined(visits: list[Visit]) -> list[Visit]:
    runs = [list(run) for _, run in groupby(visits, key=lambda visit: visit[0])]
    return [(run[0][0], run[0][1], run[-1][2]) for run in runs]


def _is_handover(visits: list[Visit], i: int, longest: float) -> bool:
    if not 0 < i < len(visits) - 1:
        return False
    before, after = visits[i - 1], visits[i + 1]
    return before[0] == after[0] and after[1] - before[2] <= longest


def transitions(
    records: list[Record], *, stay: float = 0, handover: float = 0
) -> list[tuple[str, int, int, str, str]]:
    """(person, last second at the origin, first at the destination, origin, destination), in
    order."""
    trips = []
    for person in sorted({person for person, _, _ in records}):
        instants: dict[int, str] = {}
        for who, second, antenna in records:
            if who == person:
                instants[second] = min(antenna, instants.get(second, antenna))
        visits = _joined(
            [(antenna, second, second) for second, antenna in sorted(instants.items())]
        )
        if handover:
            visits = _joined(
                [v for i, v in enumerate(visits) if not _is_handover(visits, i, handover)]
            )
        if stay:
            visits = _joined([v for v in visits if v[2] - v[1] >= stay])
        trips += [(person, a[2], b[1], a[0], b[0]) for a, b in pairwise(visits)]
    return trips
