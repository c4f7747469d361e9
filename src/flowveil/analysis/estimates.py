"""What the methods of our own would give, for `describe`: how fine a release can be expected to be, in seconds.

Every estimate is a run on all flows, recounted like a release, but without the last effort of its method: TwinCut
without its local search, PairCut without spending the rest of the limit, CurveCut without its exchange of flows. What
these leave out only makes results finer, so a release on the same tree is about as fine or finer, never far coarser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from flowveil.analysis.areas import area_accuracy, default_levels, main_level
from flowveil.analysis.experiment import DONE, attempt, on_tree
from flowveil.analysis.measures.cells import mean_error
from flowveil.analysis.measures.measure import Subject
from flowveil.errors import MissingExtraError
from flowveil.flows import Flows
from flowveil.methods import METHODS

if TYPE_CHECKING:
    from flowveil.release.release import Release
    from flowveil.release.zones import TimedZones

#: With more flows nothing is estimated: it would take as long as a release.
MOST_FLOWS = 2_000_000

#: By method: the options that leave the last effort out, what is left out, and what a reader gets.
_ESTIMATED: dict[str, tuple[dict[str, Any], str, str]] = {
    "twincut": ({"effort": 0.0}, "without its local search", "one map for each end"),
    "paircut": ({"spend": False}, "without its last spending", "cells that do not intersect, zones nest"),
    "curvecut": ({"effort": 0.0}, "without its exchange of flows", "boxes that overlap"),
}


@dataclass(frozen=True)
class Estimate:
    """What one method would give.

    Attributes:
        method: its name.
        folded: whether steps of time are put together, cell by cell.
        hierarchy: the tree that it worked on; None for a method that works on none.
        effort: what was left out of the run.
        gives: what a reader gets.
        area_error: share of all trips that a reader misses or misplaces between areas; None where it is unknown.
        error: mean generalisation error in tiles; None where there is no release.
        cells: published cells; None where there is no release.
        width_h: mean hours of a cell's time; None where time is not folded.
        reason: why there is no release; None where there is.
    """

    method: str
    folded: bool
    hierarchy: str | None
    effort: str
    gives: str
    area_error: float | None = None
    error: float | None = None
    cells: int | None = None
    width_h: float | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """The method, and whether it folds time."""
        return f"{self.method} --fold-time" if self.folded else self.method

    def line(self) -> str:
        """One line for people."""
        if self.error is None or self.cells is None:
            return f"  {self.name:<20} no estimate: {self.reason}"
        tree = "" if self.hierarchy is None else f", hierarchy {self.hierarchy}"
        width = "" if self.width_h is None else f", {self.width_h:,.2f} h wide on average"
        misplaced = "unknown" if self.area_error is None else f"{self.area_error:.1%}"
        return (
            f"  {self.name:<20} {misplaced:>9} {self.error:>9,.1f} {self.cells:>10,}  {self.gives}{width} "
            f"({self.effort}{tree})"
        )


def estimate_methods(
    flows: Flows,
    folded: Flows | None = None,
    *,
    k: int,
    protect: Sequence[str],
    max_suppressed: float,
    hierarchy: str | None = None,
) -> tuple[Estimate, ...]:
    """What TwinCut, PairCut and CurveCut would give on these flows, and PairCut where time is folded.

    CurveCut is left out where what it needs is not installed.

    Args:
        flows: the matrix of all times.
        folded: the same trips with their times, if a time was given.
        k, protect, max_suppressed, hierarchy: as in `flowveil.anonymize`.
    """
    asked = {"k": k, "protect": tuple(protect), "max_suppressed": max_suppressed}
    runs = [(name, flows) for name in _ESTIMATED]
    if folded is not None:
        runs += [(name, folded) for name in _ESTIMATED if METHODS[name].folds]
    found = (_estimate(name, on, asked, hierarchy) for name, on in runs)
    return tuple(one for one in found if one is not None)


def _estimate(name: str, flows: Flows, asked: dict[str, Any], hierarchy: str | None) -> Estimate | None:
    options, effort, gives = _ESTIMATED[name]
    folded = flows.times is not None
    if len(flows) > MOST_FLOWS:
        return Estimate(name, folded, None, effort, gives, reason=f"there are more than {MOST_FLOWS:,} flows")
    made = attempt(flows, {"method": name, **asked, **on_tree(METHODS[name], hierarchy), **options})
    if made.error == MissingExtraError.__name__:
        return None
    if made.status != DONE or made.release is None:
        return Estimate(name, folded, None, effort, gives, reason=made.reason)
    release = made.release
    basis, level = release.guarantee.basis, main_level(default_levels(release.input))
    areas = [] if level is None else area_accuracy(release, levels=[level], basis=basis)
    return Estimate(
        name,
        folded,
        release.parameters.get("hierarchy"),
        effort,
        gives,
        area_error=areas[0].area_error if areas else None,
        error=mean_error(Subject(release, basis)),
        cells=len(release.cells),
        width_h=_mean_hours(release) if folded else None,
    )


def _mean_hours(release: Release) -> float:
    hours = cast("TimedZones", release.plan.origin_zones).hours[release.cells.origin]
    return float(np.average(hours, weights=release.cells.volume(release.guarantee.basis)))
