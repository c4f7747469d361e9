"""One cut for all slices, safe in every one of them.

Slices with zones of their own cannot be put beside their total without a check, because zones that differ can be
subtracted. With the same zones in all slices there is nothing to subtract but whole cells. The cut is found along
ODkAnon's schedule: the merges of all slices together, in their order, and the first step at which what is short in
its own slice holds no more than the allowed share of the volume. Merging never makes a slice's cell worse, so
bisection finds that step.
"""

from __future__ import annotations

import numpy as np

from flowveil.flows import Cells, concat_cells, group_pairs
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Ints
from flowveil.methods.odkanon import Cuts, Schedule
from flowveil.slices import SlicedFlows


def common_cuts(sliced: SlicedFlows, guarantee: Guarantee, *, max_suppressed: float) -> Cuts:
    """The finest cuts of the schedule for which few enough trips are in cells that are short in their slice.

    Args:
        sliced: all slices.
        guarantee: what every published cell of every slice must satisfy.
        max_suppressed: share of the volume of all slices that may be short.
    """
    rows = concat_cells([guarantee.to_fixed_point(part)[0] for part in sliced.slices])
    whole, guarantee = guarantee.to_fixed_point(sliced.whole)
    schedule = Schedule.from_flows(whole, whole, guarantee)
    number = np.repeat(np.arange(len(sliced), dtype=np.int32), [len(s) for s in sliced.slices])
    allowed = max_suppressed * float(np.sum(rows.volume(guarantee.basis)))
    low, high = -1, schedule.n_steps
    while high - low > 1:
        probe = (low + high) // 2
        cuts = schedule.cuts(probe)
        if _short_volume(cuts, rows, number, len(sliced), guarantee) <= allowed:
            high = probe
        else:
            low = probe
    return schedule.cuts(high)


def _short_volume(cuts: Cuts, rows: Cells, number: Ints, n_slices: int, guarantee: Guarantee) -> float:
    """The volume in cells that fall short in their slice. A cell of a slice is a row of its own."""
    n_o, n_d = len(cuts.origin), len(cuts.destination)
    zone_o = cuts.origins.zone_of_tile(cuts.origin)[rows.origin]
    zone_d = cuts.destinations.zone_of_tile(cuts.destination)[rows.destination]
    places = group_pairs(number, zone_o, n_slices, n_o)
    cells = rows.merge(places.row, zone_d, len(places.origin), n_d).cells
    short = ~guarantee.safe(cells)
    # A short cell without weight is still short: it counts as a little, so that a budget of nothing means none.
    return float(np.sum(cells.volume(guarantee.basis)[short])) + 1e-9 * float(np.count_nonzero(short))
