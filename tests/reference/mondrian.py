"""Mondrian as a plain recursion."""

from __future__ import annotations

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.release.boxes import Frame
from reference.groups import is_safe


def mondrian(
    flows: Flows, guarantee: Guarantee, frame: Frame, *, strict: bool
) -> set[frozenset[int]]:
    """The final partitions, as sets of flows."""

    def recurse(group: list[int]) -> set[frozenset[int]]:
        for left, right in proposed_cuts(flows, guarantee, frame, group, strict=strict):
            if is_safe(flows, guarantee, left) and is_safe(flows, guarantee, right):
                return recurse(left) | recurse(right)
        return {frozenset(group)}

    return recurse(list(range(len(flows))))


def proposed_cuts(
    flows: Flows, guarantee: Guarantee, frame: Frame, group: list[int], *, strict: bool
) -> list[tuple[list[int], list[int]]]:
    """Widest dimension first; in each, the more equal cut next to the median first."""
    volume = flows.volume(guarantee.basis)

    def width(d: int) -> int:
        values = [int(frame.point[d, f]) for f in group]
        return (max(values) - min(values)) * int(frame.step_cm[d])

    cuts = []
    for d in sorted(range(4), key=lambda d: (-width(d), d)):
        if width(d) == 0:
            continue
        ordered = sorted(group, key=lambda f: (frame.point[d, f], f))
        total = sum(volume[f] for f in ordered)
        median = next(
            i for i in range(len(ordered)) if 2 * sum(volume[f] for f in ordered[: i + 1]) >= total
        )
        at = frame.point[d, ordered[median]]
        if strict:
            before = sum(frame.point[d, f] < at for f in ordered)
            after = sum(frame.point[d, f] <= at for f in ordered)
        else:
            before, after = median, median + 1

        def inequality(place: int, ordered=ordered) -> float:
            return abs(
                sum(volume[f] for f in ordered[:place]) - sum(volume[f] for f in ordered[place:])
            )

        places = [after, before] if inequality(after) <= inequality(before) else [before, after]
        cuts += [(ordered[:place], ordered[place:]) for place in places]
    return cuts
