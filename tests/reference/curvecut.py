"""CurveCut's cuts by trying all: every way to cut a short order into safe runs and flows that are
left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.release.boxes import Frame
from reference.groups import box, is_safe

#: A run, and whether it is published.
Piece = tuple[tuple[int, ...], bool]


def all_cuts(
    flows: Flows, guarantee: Guarantee, order: Sequence[int]
) -> Iterator[tuple[Piece, ...]]:
    """All cuts; flows are suppressed one by one, a run is published where it is safe."""
    if not order:
        yield ()
        return
    for rest in all_cuts(flows, guarantee, order[1:]):
        yield ((order[0],), False), *rest
    for length in range(1, len(order) + 1):
        run = tuple(order[:length])
        if is_safe(flows, guarantee, run):
            for rest in all_cuts(flows, guarantee, order[length:]):
                yield (run, True), *rest


def sides(frame: Frame, group: Sequence[int]) -> int:
    """The sum of the four sides of the box around flows, in centimetres."""
    return sum(
        (high - low + 1) * int(step)
        for (low, high), step in zip(box(frame, group), frame.step_cm, strict=True)
    )


def cost_and_left(
    flows: Flows, guarantee: Guarantee, frame: Frame, cut: Sequence[Piece]
) -> tuple[float, float]:
    """What the published runs cost, and the volume left out."""
    volume = flows.volume(guarantee.basis)
    cost = left = 0.0
    for run, published in cut:
        held = float(sum(volume[f] for f in run))
        if published:
            cost += held * sides(frame, run)
        else:
            left += held
    return cost, left
