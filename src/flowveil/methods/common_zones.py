"""One cut for all slices, safe in every slice.

Zones that differ between slices can be subtracted from each other; with common zones only whole cells can. The cut is a
step of ODkAnon's schedule for all slices together: the first step at which cells below the threshold in their slice
hold at most the allowed volume. Merging never makes a cell worse, so bisection finds it.
"""

from __future__ import annotations

import numpy as np

from flowveil.flows import Cells, concat_cells, group_pairs
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Ints
from flowveil.methods.odkanon import Cuts, Schedule
from flowveil.slices import SlicedFlows


def common_cuts(sliced: SlicedFlows, guarantee: Guarantee, *, max_suppressed: float) -> Cuts:
    """Returns the finest cuts of the schedule with little enough volume below the threshold.

    Args:
        sliced: all slices.
        guarantee: thresholds that every published cell of every slice must reach.
        max_suppressed: largest share of the volume of all slices in cells below the threshold.
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
    """Returns the volume in cells that are below the threshold in their slice."""
    n_o, n_d = len(cuts.origin), len(cuts.destination)
    zone_o = cuts.origins.zone_of_tile(cuts.origin)[rows.origin]
    zone_d = cuts.destinations.zone_of_tile(cuts.destination)[rows.destination]
    places = group_pairs(number, zone_o, n_slices, n_o)
    cells = rows.merge(places.row, zone_d, len(places.origin), n_d).cells
    short = ~guarantee.safe(cells)
    # Cells without weight count a little, so that a budget of 0 allows none of them.
    return float(np.sum(cells.volume(guarantee.basis)[short])) + 1e-9 * float(np.count_nonzero(short))
