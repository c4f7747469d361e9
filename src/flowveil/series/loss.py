"""What keeping the zones of an earlier release costs: the mean generalisation error against that of the best map.

Internal: measured on raw data, for the operator, who decides whether it is time for a new map.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from flowveil.anonymization import anonymize
from flowveil.errors import InfeasibleError
from flowveil.guarantee import SmallKWarning
from flowveil.release.release import Release

#: From this loss on a new map is advised, unless another is chosen.
NEW_MAP_AT = 0.5


@dataclass(frozen=True)
class Loss:
    """Mean generalisation errors, in tiles."""

    error: float  # over the zones that were kept
    best: float  # over the best zones of the same data, with no more suppressed

    @property
    def share(self) -> float:
        """By how much the error is larger than it need be; below 0 where fine cells are suppressed instead."""
        return self.error / self.best - 1

    def in_words(self, new_map_at: float = NEW_MAP_AT) -> list[str]:
        """Returns lines for the operator, with advice where the loss is at least this."""
        more = f"{abs(self.share):.0%} {'more' if self.share >= 0 else 'less'}"
        lines = [
            f"Kept zones: mean generalisation error {self.error:,.1f} tiles; the best map of these trips has "
            f"{self.best:,.1f} ({more} for the same zones)."
        ]
        if self.share >= new_map_at:
            lines.append(
                f"Advice: the loss is at least {new_map_at:.0%}; consider a new map (leave --zones-of out), and audit "
                "it against the earlier releases."
            )
        return lines


def loss_against_best(release: Release) -> Loss | None:
    """Measure a release over kept zones against the best map of the same flows; None without such a map.

    The best map is TwinCut's, or PairCut's where zones overlap, with no more suppressed than this release suppresses.
    """
    guarantee, basis = release.guarantee, release.guarantee.basis
    volume = release.input.volume(basis)
    suppressed = float(np.sum(volume[release.cell_of_flow < 0])) / float(np.sum(volume))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallKWarning)
            best = anonymize(
                release.input,
                "twincut" if release.plan.homogeneous else "paircut",
                k=guarantee.k,
                protect=guarantee.units,
                max_suppressed=min(suppressed, np.nextafter(1, 0)),
                k_population=guarantee.population if guarantee.population_is_given else None,
                l=guarantee.locations,
                hierarchy=release.parameters["hierarchy"],
                allow_small_k=True,
                population_only=True,
            )
    except InfeasibleError:
        return None
    errors = [made.metrics()[basis]["mean_generalization_error"] for made in (release, best)]
    if errors[0] is None or not errors[1]:
        return None
    return Loss(float(errors[0]), float(errors[1]))
