"""GLOVE as a plain loop over all pairs."""

from __future__ import annotations

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.release.boxes import Frame
from reference.groups import box, is_safe


def reach(frame: Frame, group) -> int:
    return sum(
        (high - low) * int(step)
        for (low, high), step in zip(box(frame, group), frame.step_cm, strict=True)
    )


def stretch(flows: Flows, guarantee: Guarantee, frame: Frame, a, b) -> float:
    volume = flows.volume(guarantee.basis)
    va, vb = (float(sum(volume[f] for f in g)) for g in (a, b))
    whole = reach(frame, [*a, *b])
    if va + vb == 0:
        return whole - (reach(frame, a) + reach(frame, b)) / 2
    return (va * (whole - reach(frame, a)) + vb * (whole - reach(frame, b))) / (va + vb)


def glove(
    flows: Flows,
    guarantee: Guarantee,
    frame: Frame,
    *,
    near: set[tuple[int, int]],
    max_suppressed: float,
) -> set[frozenset[int]]:
    """The published groups of flows.

    ``near`` has the pairs of flows that are neighbours, smaller number first.
    """

    def cost(a: int, b: int) -> float:
        return stretch(flows, guarantee, frame, groups[a], groups[b])

    groups = {i: (i,) for i in range(len(flows))}
    number = len(flows)
    while True:
        short = [g for g in groups if not is_safe(flows, guarantee, groups[g])]
        if len(short) < 2:
            break
        pairs = {(a, b) for a, b in near if a in short and b in short}
        if not pairs:
            for a in short:
                partner = min((b for b in short if b != a), key=lambda b: (cost(a, b), b))
                pairs.add((min(a, partner), max(a, partner)))
            near |= pairs
        a, b = min(pairs, key=lambda pair: (cost(*pair), pair))
        groups[number] = groups.pop(a) + groups.pop(b)
        moved = {tuple(number if g in (a, b) else g for g in pair) for pair in near}
        near = {(min(pair), max(pair)) for pair in moved if pair[0] != pair[1]}
        number += 1
    return publish(flows, guarantee, frame, groups, short, max_suppressed)


def publish(flows, guarantee, frame, groups, short, max_suppressed) -> set[frozenset[int]]:
    volume = flows.volume(guarantee.basis)
    budget = max_suppressed * float(volume.sum())
    held = {g: float(sum(volume[f] for f in members)) for g, members in groups.items()}
    if short:
        (left,) = short
        if held[left] <= budget or len(groups) == 1:
            budget -= held[left]
            del groups[left]
        else:
            others = [g for g in groups if g != left]
            into = min(
                others, key=lambda g: (stretch(flows, guarantee, frame, groups[g], groups[left]), g)
            )
            groups[into] += groups.pop(left)
            held[into] += held[left]
    costly = [g for g in groups if reach(frame, groups[g]) > 0 and held[g] <= budget]
    for g in sorted(costly, key=lambda g: (-reach(frame, groups[g]), g)):
        if held[g] > budget:
            break
        budget -= held[g]
        del groups[g]
    return {frozenset(members) for members in groups.values()}
