"""Warnings about a map that collapses: an end with one zone, or with far fewer than another limit would give.

Computed from raw trips, for the operator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from flowveil.errors import InfeasibleError
from flowveil.methods.twincut import frontier, twincut
from flowveil.methods.twincut_same_zones import twincut_same_zones

if TYPE_CHECKING:
    from flowveil.release.plan import Plan
    from flowveil.release.release import Release

ENDS = ("origin", "destination")
#: An end has collapsed if it has less than this share of the zones that another limit would give.
COLLAPSED = 0.01
#: Limits above this are not proposed.
MOST_SUPPRESSED = 0.5


def collapse_lines(release: Release) -> list[str]:
    """Returns what to say of a release whose map has collapsed; empty if it has not.

    Costs a few runs of TwinCut without local search, but only if an end has one zone or less than 1 % of its tiles.
    """
    zones = [len(np.unique(number)) for number in (release.cells.origin, release.cells.destination)]
    tiles = [release.input.origins.n_tiles, release.input.destinations.n_tiles]
    few = [end for end in (0, 1) if tiles[end] > 1 and (zones[end] == 1 or zones[end] < COLLAPSED * tiles[end])]
    if not few:
        return []
    found = _next_limit(release, zones, few) if release.plan.homogeneous and release.kind == "plain" else None
    if found is None:
        return [f"There is only one {ENDS[end]} zone." for end in few if zones[end] == 1]
    share, better = found
    lines = [f"The map has collapsed: {zones[end]:,} {ENDS[end]} zones, {better[end]:,} are possible." for end in few]
    counts = " x ".join(f"{n:,}" for n in better)
    return [
        *lines,
        f"TwinCut with --max-suppressed {share:g} has about {counts} zones; --method layercut needs no such limit.",
    ]


def _next_limit(release: Release, zones: Sequence[int], few: Sequence[int]) -> tuple[float, list[int]] | None:
    """Returns the next point of the frontier at which no end has collapsed: its share, rounded up, and its zones."""
    flows, guarantee = release.guarantee.to_fixed_point(release.input)
    volume = flows.volume(guarantee.basis).astype(np.float64)
    suppressed = float(volume[release.cell_of_flow < 0].sum() / volume.sum())
    points = {
        math.ceil(point.suppressed_share * 1000) / 1000
        for point in frontier(flows, guarantee, up_to=MOST_SUPPRESSED)
        if suppressed < point.suppressed_share
    }
    shares = sorted(share for share in points if share <= MOST_SUPPRESSED)
    # More suppression gives more zones, so the first point is found by bisection.
    found, low, high = None, 0, len(shares)
    while low < high:
        middle = (low + high) // 2
        counted = _zones_at(release, shares[middle])
        if all(zones[end] < max(COLLAPSED * counted[end], 2) and counted[end] > 1 for end in few):
            found, high = (shares[middle], counted), middle
        else:
            low = middle + 1
    return found


def _zones_at(release: Release, share: float) -> list[int]:
    """Returns how many zones of each end TwinCut publishes within a limit."""
    flows, guarantee = release.guarantee.to_fixed_point(release.input)
    plan_map = twincut_same_zones if flows.same_zones else twincut
    try:
        plan: Plan = plan_map(flows, guarantee, max_suppressed=share, effort=0.0)
    except InfeasibleError:
        return [0, 0]
    return [len(np.unique(number[plan.kept])) for number in (plan.origin_zone, plan.destination_zone)]
