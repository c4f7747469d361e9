"""The measures of a release: losses, distances, and the smallest cells. Exact and private.

Every measure is computed on trips and, with weights, on weights too, whichever was protected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from flowveil.analysis.measures import cells, distances, floor, reconstruction
from flowveil.analysis.measures.measure import Measure, Slices, Subject, Values
from flowveil.guarantee import Guarantee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowveil.flows import Cells
    from flowveil.release.noisy import NoisyRelease, PrivacyLoss
    from flowveil.release.release import Matrix, Release

#: All measures, in reading order.
MEASURES: dict[str, Measure] = {
    measure.key: measure
    for measure in (
        *cells.COUNTS,
        *cells.SMALLEST,
        cells.MEAN_ERROR,
        cells.TIME_WIDTH,
        *floor.MEASURES,
        *distances.MEASURES,
        *reconstruction.MEASURES,
        cells.DISCERNIBILITY,
        cells.AVERAGE_CLASS,
        cells.PUBLISHED_TRIPS,
    )
}


def listed(*, noisy: bool, folded: bool = False) -> list[Measure]:
    """Returns the measures of noisy or of exact counts; those of times only if time is folded."""
    own = [m for m in MEASURES.values() if (m.of_noise != "absent" if noisy else m.of_counts)]
    return [m for m in own if folded or not m.of_times]


def measure(release: Matrix) -> dict[str, Values]:
    """Returns all measures by basis: "trips" and, with weights, "weight". `Release.metrics` caches them.

    A noisy release is compared with the true counts of the whole input, including trips outside the region or beyond
    the bound, and pairs of tiles without trips. Measures that have no meaning for noise are None.
    """
    bases = ("trips",) if release.cells.weight is None else ("trips", "weight")
    return {basis: _measured(Subject(cast("Release | NoisyRelease", release), basis)) for basis in bases}


def _measured(subject: Subject) -> Values:
    noisy, folded = subject.release.kind == "noisy", subject.release.kind == "folded"
    own = listed(noisy=noisy, folded=folded)
    return {m.key: None if noisy and m.of_noise == "void" else m.compute(subject) for m in own}


def combine(
    releases: Sequence[Release | NoisyRelease],
    absent: Sequence[Cells],
    whole: Cells,
    guarantee: Guarantee | PrivacyLoss,
) -> dict[str, Values]:
    """Returns the measures of several slices together, by basis.

    Args:
        releases: the published slices, which share no trips.
        absent: unpublished slices; they count as suppressed.
        whole: the input of all slices.
        guarantee: of all slices.
    """
    exact = [release.metrics() for release in releases]
    noisy = releases[0].kind == "noisy"
    combined: dict[str, Values] = {}
    for basis in exact[0]:
        slices = Slices(
            releases=releases,
            own=[own[basis] for own in exact],
            lost=np.array([part.total(basis) for part in absent]),
            class_size=guarantee.class_size(basis, whole) if isinstance(guarantee, Guarantee) else float("nan"),
            basis=basis,
        )
        combined[basis] = {
            m.key: None if noisy and m.of_noise == "void" else m.combine(slices, m.key)
            for m in listed(noisy=noisy)
            if m.combine is not None
        }
    return combined
