"""How many cells and zones are published, and how much of the input is in them."""

from __future__ import annotations

import numpy as np

from flowveil.measures.measure import Measure, Slices, Subject, added


def _suppressed_share(subject: Subject) -> float:
    return (subject.total - subject.published) / subject.total if subject.total else 0.0


def _combined_share(slices: Slices, _: str) -> float:
    return 1 - float(slices.shown.sum()) / slices.total if slices.total else 0.0


def _n_own_zones(subject: Subject, end: str) -> int:
    """How many zones cells use: with times that fold, a place in several intervals is one."""
    used, plan = np.unique_values(getattr(subject.release.cells, end)), subject.release.plan
    timed = plan.timed if end == "origin" else None
    return len(used) if timed is None else len(np.unique_values(timed.nodes[used]))


def _n_zones(slices: Slices, end: str) -> int:
    codes: set[str] = set()
    for release in slices.releases:
        used = np.flatnonzero(np.bincount(getattr(release.cells, end))).astype(np.int32)
        codes.update(getattr(release.plan, f"{end}_zones").codes(used).tolist())
    return len(codes)


MEASURES = (
    Measure(
        key="n_cells",
        title="Published cells",
        meaning="Rows of flows.parquet: pairs of an origin zone and a destination zone, where time is folded each "
        "with an interval of time.",
        compute=lambda subject: len(subject.release.cells),
        combine=added,
        of_noise="published",
        whole=True,
    ),
    Measure(
        key="n_origin_zones",
        title="Origin zones",
        meaning="Different areas where published trips start.",
        compute=lambda subject: _n_own_zones(subject, "origin"),
        combine=lambda slices, _: _n_zones(slices, "origin"),
        of_noise="published",
        whole=True,
    ),
    Measure(
        key="n_destination_zones",
        title="Destination zones",
        meaning="Different areas where published trips end.",
        compute=lambda subject: _n_own_zones(subject, "destination"),
        combine=lambda slices, _: _n_zones(slices, "destination"),
        of_noise="published",
        whole=True,
    ),
    Measure(
        key="suppressed_share",
        title="Suppressed share",
        meaning="The part of the input volume that is in no published cell.",
        compute=_suppressed_share,
        combine=_combined_share,
        reveals=frozenset({"suppressed"}),
        of_noise="true",
    ),
)

#: Noise may add more trips than are left out, so that the suppressed share of noisy counts may be below 0.
PUBLISHED_TRIPS = Measure(
    key="published_trips",
    title="Published trips",
    meaning="The sum of all published counts, noise included.",
    compute=lambda subject: int(subject.release.cells.trips.sum()),
    combine=None,
    of_noise="published",
    of_counts=False,
    whole=True,
)
