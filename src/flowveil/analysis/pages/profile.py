"""Profiles of flows over time, before and after anonymisation (Matet et al., figure 14). Private: raw counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.errors import ParameterError
from flowveil.flows import group_pairs
from flowveil.hierarchy import Floats
from flowveil.published.charts import Shape, polyline, shape
from flowveil.published.document import fill
from flowveil.release.reconstruction import Zoning, zoning_of
from flowveil.times import TIME

if TYPE_CHECKING:
    from flowveil.release.noisy import NoisySlices
    from flowveil.release.sliced import SlicedRelease

#: The default zoning is the coarsest level with at least this number of origins.
_FEWEST_AREAS = 12

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 860, 150, 60, 64, 46


@dataclass(frozen=True, eq=False)
class Profile:
    """One flow between two areas, over the steps of time.

    Attributes:
        origin, destination: codes of the areas.
        labels: the time steps, in order.
        before: trips of the input. Private.
        after: trips reconstructed from the published cells; 0 in unpublished steps.
    """

    origin: str
    destination: str
    labels: tuple[str, ...]
    before: Floats
    after: Floats


def largest_profiles(family: SlicedRelease | NoisySlices, *, zones: Any = None, n: int = 6) -> list[Profile]:
    """Returns the profiles of the flows with the most trips, on a common zoning.

    Args:
        family: slices by time, with or without attributes.
        zones: argument of `Release.reconstruct`; by default a level with a dozen areas or more.
        n: number of flows.

    Raises:
        ParameterError: the slices are noisy counts, or not by time.
    """
    if family.kind == "noisy":
        raise ParameterError("Noisy counts have no profile: it would show the true counts.")
    if TIME not in family.slice_columns:
        raise ParameterError("A profile needs slices by time. Hint: use --time and --every.")
    release = family.releases[0]
    zoning = zoning_of(release, zones) if zones is not None else _default_zoning(family)
    labels = sorted({key[-1] for key in family.input.keys})
    row = {label: i for i, label in enumerate(labels)}
    whole = family.input.whole
    n_o, n_d = len(zoning.origin_codes), len(zoning.destination_codes)
    pairs = group_pairs(zoning.origin_area[whole.origin], zoning.destination_area[whole.destination], n_o, n_d)
    trips = pairs.sum(whole.trips)
    chosen = np.argsort(-trips, kind="stable")[:n]
    wanted = pairs.origin[chosen].astype(np.int64) * n_d + pairs.destination[chosen]
    before, after = np.zeros((len(chosen), len(labels))), np.zeros((len(chosen), len(labels)))
    for key, flows in family.input:
        area = zoning.origin_area[flows.origin].astype(np.int64) * n_d + zoning.destination_area[flows.destination]
        before[:, row[key[-1]]] += [flows.trips[area == w].sum() for w in wanted]
    for slice_key, published in family:
        label = slice_key[-1]
        if slice_key in family.input.keys and label is not None:
            guess = published.reconstruct(zoning)
            area = guess.origin.astype(np.int64) * n_d + guess.destination
            after[:, row[label]] += [guess.trips[area == w].sum() for w in wanted]
    return [
        Profile(
            origin=str(zoning.origin_codes[pairs.origin[c]]),
            destination=str(zoning.destination_codes[pairs.destination[c]]),
            labels=tuple(labels),
            before=before[i],
            after=after[i],
        )
        for i, c in enumerate(chosen)
    ]


def _default_zoning(family: SlicedRelease) -> Zoning:
    flows = family.input
    levels = range(int(flows.origins.level.min()), int(flows.origins.level.max()) + 1)
    for level in levels:
        zoning = Zoning.at_level(flows.origins, flows.destinations, level)
        if len(zoning.origin_codes) >= _FEWEST_AREAS:
            return zoning
    return Zoning.at_level(flows.origins, flows.destinations, levels[-1])


def profile_chart(profiles: list[Profile]) -> str:
    """Returns the profiles as SVG, one panel below the other."""
    panels = (_panel(profile, _TOP + i * (_HEIGHT + _GAP)) for i, profile in enumerate(profiles))
    size = {"width": _WIDTH + _LEFT + 20, "height": _TOP + len(profiles) * (_HEIGHT + _GAP) + 10}
    return str(fill("profile.svg", **size, shapes=[drawn for panel in panels for drawn in panel]))


def _panel(profile: Profile, top: int) -> Iterator[Shape]:
    most = float(max(profile.before.max(initial=0), profile.after.max(initial=0), 1))
    n = len(profile.labels)
    x = _LEFT + (np.arange(n) + 0.5) * (_WIDTH / max(n, 1))
    bottom = top + _HEIGHT
    yield shape("text", f"{profile.origin} → {profile.destination}", x=_LEFT, y=top - 4)
    yield shape("rect", x=_LEFT, y=top, width=_WIDTH, height=_HEIGHT, fill="none", stroke="#d5dbe3")
    yield shape("text", f"{most:,.0f}", x=_LEFT - 6, y=top + 10, text_anchor="end")
    yield shape("text", "0", x=_LEFT - 6, y=bottom, text_anchor="end")
    for values, colour in ((profile.before, "#b45f06"), (profile.after, "#1f5fa8")):
        y = bottom - values / most * (_HEIGHT - 6)
        yield polyline(list(zip(x.tolist(), y.tolist(), strict=True)), stroke=colour, stroke_width=1.5)
    for at in sorted({0, n // 4, n // 2, 3 * n // 4, n - 1}):
        yield shape("text", profile.labels[at], x=float(x[at]), y=bottom + 15, text_anchor="middle", fill="#5c6777")
