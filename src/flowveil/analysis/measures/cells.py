"""Measures of the published cells: number, size, coarseness, and the smallest value in each unit."""

from __future__ import annotations

import numpy as np

from flowveil.analysis.measures.measure import Measure, Slices, Subject, added, averaged, smallest
from flowveil.guarantee import UNITS, Unit
from flowveil.release.zones import NodeZones

# ---- numbers of cells and zones ----------------------------------------------------------------------------------


def _suppressed_share(subject: Subject) -> float:
    return (subject.total - subject.published) / subject.total if subject.total else 0.0


def _combined_share(slices: Slices, _: str) -> float:
    return 1 - float(slices.shown.sum()) / slices.total if slices.total else 0.0


def _n_own_zones(subject: Subject, end: str) -> int:
    """Returns the number of zones; a zone in several time intervals or layers counts once."""
    used = np.unique_values(getattr(subject.release.cells, end))
    zones = getattr(subject.release.plan, f"{end}_zones")
    return len(np.unique_values(zones.nodes[used])) if isinstance(zones, NodeZones) else len(used)


def _n_zones(slices: Slices, end: str) -> int:
    codes: set[str] = set()
    for release in slices.releases:
        used = np.flatnonzero(np.bincount(getattr(release.cells, end))).astype(np.int32)
        codes.update(getattr(release.plan, f"{end}_zones").codes(used).tolist())
    return len(codes)


COUNTS = (
    Measure(
        key="n_cells",
        title="Published cells",
        meaning="Rows of flows.parquet: pairs of an origin zone and a destination zone, where time is folded each "
        "with an interval of time.",
        compute=lambda subject: len(subject.release.cells),
        combine=added,
        of_noise="defined",
    ),
    Measure(
        key="n_origin_zones",
        title="Origin zones",
        meaning="Different areas where published trips start.",
        compute=lambda subject: _n_own_zones(subject, "origin"),
        combine=lambda slices, _: _n_zones(slices, "origin"),
        of_noise="defined",
    ),
    Measure(
        key="n_destination_zones",
        title="Destination zones",
        meaning="Different areas where published trips end.",
        compute=lambda subject: _n_own_zones(subject, "destination"),
        combine=lambda slices, _: _n_zones(slices, "destination"),
        of_noise="defined",
    ),
    Measure(
        key="suppressed_share",
        title="Suppressed share",
        meaning="The part of the input volume that is in no published cell.",
        compute=_suppressed_share,
        combine=_combined_share,
        of_noise="defined",
    ),
)

#: Noise may add trips, so that the suppressed share of noisy counts may be below 0.
PUBLISHED_TRIPS = Measure(
    key="published_trips",
    title="Published trips",
    meaning="The sum of all published counts, noise included.",
    compute=lambda subject: int(subject.release.cells.trips.sum()),
    combine=None,
    of_noise="defined",
    of_counts=False,
)


# ---- smallest cells ----------------------------------------------------------------------------------------------


def _of_unit(unit: Unit) -> tuple[Measure, Measure]:
    def least(subject: Subject) -> float | int | None:
        values = unit.value(subject.release.cells)
        return None if values is None else values.min().item()

    def n_under(subject: Subject) -> int | None:
        values = unit.value(subject.release.cells)
        if values is None:
            return None
        return int(np.sum(values < subject.guarantee.asks(unit.name, subject.release.input)))

    title, meaning = unit.smallest
    return (
        Measure(
            key=f"k_{unit.name}",
            title=title,
            meaning=meaning,
            compute=least,
            combine=smallest,
            of_noise="void",
        ),
        Measure(
            key=f"cells_under_k_{unit.name}",
            title=f"Cells under k {unit.name}",
            meaning=unit.short,
            compute=n_under,
            combine=added,
        ),
    )


#: The smallest value of each unit over cells, and the cells below k of it, whether the unit is protected or not.
SMALLEST = tuple(measure for unit in UNITS.values() for measure in _of_unit(unit))


# ---- coarseness --------------------------------------------------------------------------------------------------


def _discernibility(subject: Subject) -> float:
    return float(np.sum(subject.volume**2) + subject.total * (subject.total - subject.published))


def _combined_discernibility(slices: Slices, key: str) -> float:
    return sum(float(v or 0) for v in slices.of(key)) + float(np.sum(slices.lost**2))


def _average_class(subject: Subject) -> float | None:
    if not subject.published:
        return None
    return subject.published / len(subject.volume) / subject.guarantee.class_size(subject.basis, subject.release.input)


def _combined_average(slices: Slices, _: str) -> float | None:
    published, n_cells = float(slices.shown.sum()), sum(len(r.cells) for r in slices.releases)
    return published / n_cells / slices.class_size if published else None


def mean_error(subject: Subject) -> float | None:
    """Returns the tiles of both zones of a cell, averaged over the published volume."""
    size_o, size_d = subject.sizes
    return float(np.sum(subject.volume * (size_o + size_d)) / subject.published) if subject.published else None


def _time_width(subject: Subject) -> float | None:
    """Returns the hours of a cell's time interval, averaged over the published volume."""
    timed = subject.release.plan.timed
    if timed is None or not subject.published:
        return None
    return float(np.sum(subject.volume * timed.hours[subject.release.cells.origin]) / subject.published)


TIME_WIDTH = Measure(
    key="mean_time_width_h",
    title="Mean width of time (h)",
    meaning="Length of the time interval of a cell, averaged over the published volume.",
    compute=_time_width,
    combine=None,
    of_times=True,
)

MEAN_ERROR = Measure(
    key="mean_generalization_error",
    title="Mean generalisation error",
    meaning="Tiles seen in the origin zone plus tiles seen in the destination zone, averaged over the published "
    "volume; 2 means that nothing was generalised.",
    compute=mean_error,
    combine=averaged,
    of_noise="void",
)

DISCERNIBILITY = Measure(
    key="c_dm",
    title="Discernibility (C_DM)",
    meaning="Squared cell volumes plus a penalty for suppression; less is better.",
    compute=_discernibility,
    combine=_combined_discernibility,
    of_noise="void",
)

AVERAGE_CLASS = Measure(
    key="c_avg",
    title="Average cell over k (C_AVG)",
    meaning="How many times larger the average cell is than it must be; 1 is best.",
    compute=_average_class,
    combine=_combined_average,
    of_noise="void",
)
