"""How well the places of a release are known, from the published tables alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowveil.published.maps import ENDS, volume_of, zone_of_flow, zones_of


def typical_radius_m(flows: pa.Table, zones: pa.Table, basis: str = "trips") -> float | None:
    """The radius of a circle as large as the zone of a typical trip end, in metres; None where areas are not known.

    Half of the published trip ends are in zones that are not larger.
    """
    radius, volume = [], []
    for end in ENDS:
        listed = zones_of(zones, end)
        area = listed["area_km2"].to_numpy(zero_copy_only=False).astype(np.float64)
        if np.isnan(area).all():
            return None
        # What lies outside the area is known to no distance.
        radius.append(1000 * np.sqrt(np.where(np.isnan(area), np.inf, area) / np.pi))
        volume.append(volume_of(flows, listed, end, basis))
    metres, weight = np.concatenate(radius), np.concatenate(volume)
    if weight.sum() <= 0:
        return None
    order = np.argsort(metres, kind="stable")
    reached = np.cumsum(weight[order])
    typical = float(metres[order][np.searchsorted(reached, reached[-1] / 2)])
    return typical if np.isfinite(typical) else None


def share_known_within(flows: pa.Table, zones: pa.Table, metres: float, basis: str = "trips") -> float | None:
    """The share of the published trips whose zones, at both ends, are no larger than a circle of this radius."""
    within = np.ones(len(flows), dtype=np.bool_)
    for end in ENDS:
        listed = zones_of(zones, end)
        area = listed["area_km2"].to_numpy(zero_copy_only=False).astype(np.float64)
        if np.isnan(area).all():
            return None
        within &= (1000 * np.sqrt(area / np.pi) <= metres)[zone_of_flow(flows, listed, end)]
    volume = flows[basis].to_numpy().astype(np.float64)
    return float(volume[within].sum() / volume.sum()) if volume.sum() > 0 else None


def distance_in_words(metres: float) -> str:
    """Two digits: more would pretend to be known."""
    rounded = float(f"{metres:.2g}")
    return (
        f"{rounded:,.0f} m"
        if rounded < 1000
        else f"{rounded / 1000:,.1f} km"
        if rounded < 10_000
        else (f"{rounded / 1000:,.0f} km")
    )
