"""How much coarser the matrix became: the size of classes and of zones. V is the input volume, v that of a cell."""

from __future__ import annotations

import numpy as np

from flowveil.measures.measure import Measure, Slices, Subject, averaged


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
    """The tiles of both zones of a cell, averaged over the published volume."""
    size_o, size_d = subject.sizes
    return float(np.sum(subject.volume * (size_o + size_d)) / subject.published) if subject.published else None


def _time_width(subject: Subject) -> float | None:
    """The hours of a cell's interval of time, averaged over the published volume."""
    timed = subject.release.plan.timed
    if timed is None or not subject.published:
        return None
    return float(np.sum(subject.volume * timed.hours[subject.release.cells.origin]) / subject.published)


#: A reader can compute it from flows.parquet, so it reveals nothing.
TIME_WIDTH = Measure(
    key="mean_time_width_h",
    title="Mean width of time (h)",
    meaning="How long the interval of time of a cell is, averaged over the published volume.",
    compute=_time_width,
    combine=None,
    digits=4,
    of_times=True,
)

MEAN_ERROR = Measure(
    key="mean_generalization_error",
    title="Mean generalisation error",
    meaning="Tiles seen in the origin zone plus tiles seen in the destination zone, averaged over the published "
    "volume; 2 means that nothing was generalised.",
    compute=mean_error,
    combine=averaged,
    digits=4,
    reveals=frozenset({"seen"}),
    of_noise="void",
)

DISCERNIBILITY = Measure(
    key="c_dm",
    title="Discernibility (C_DM)",
    meaning="Squared cell volumes plus a penalty for what is suppressed; less is better.",
    compute=_discernibility,
    combine=_combined_discernibility,
    reveals=frozenset({"suppressed", "terms"}),
    of_noise="void",
)

AVERAGE_CLASS = Measure(
    key="c_avg",
    title="Average cell over k (C_AVG)",
    meaning="How many times larger the average cell is than it must be; 1 is best.",
    compute=_average_class,
    combine=_combined_average,
    reveals=frozenset({"mean weight"}),
    of_noise="void",
)
