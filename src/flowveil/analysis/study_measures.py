"""The measures of one run of a study: as they may stand beside those of other methods, or exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from flowveil.release.noisy import NoisyRelease
    from flowveil.release.release import Release

#: Measures by basis, and the names of those that are withheld, by basis.
Measured = tuple[dict[str, dict[str, float | int | None]], dict[str, list[str]]]

#: Measures that reveal how much a run published. Another method that suppresses nothing, or says what it suppresses,
#: reveals how much there is, so beside each other they reveal what is suppressed.
_REVEAL_PUBLISHED = ("c_avg", "cells_under_k_population")
#: With a single cell, what the smallest cell holds is all that is published.
_REVEAL_ONLY_CELL = ("k_trips", "k_people", "k_population")
#: Digits of the mean generalisation error where the suppressed volume is withheld: exact, it is a fraction whose
#: denominator is the published volume, and can be taken apart.
_DIGITS = 3


def exact(release: Release | NoisyRelease) -> Measured:
    """All measures with all digits, none withheld: for the data holder alone."""
    measures = release.metrics()
    return {basis: {name: _plain(value) for name, value in values.items()} for basis, values in measures.items()}, {}


def publishable(release: Release) -> Measured:
    """The measures of a run as they may stand beside those of other methods, and which are withheld, by basis.

    All methods run on the same trips, so the volume there is must be taken as known. Where the suppressed volume is
    withheld, the published volume is too, on both bases. The threshold of the population counts the suppressed trips,
    whatever was given for it: here it always comes from the mean weight of all trips.
    """
    from flowveil.disclosure.withholding import reason_to_withhold, withhold

    reason = reason_to_withhold(release)
    # No cells are published beside a study: the error is not one equation with known volumes.
    withheld = withhold([release], reason=reason, few_coarse=False)
    measures = withheld.published(release.metrics())
    hidden = {basis: set(names) for basis, names in withheld.hidden.items()} if withheld.reasons else {}
    if reason is not None:
        for basis, values in measures.items():
            more = _REVEAL_PUBLISHED + (_REVEAL_ONLY_CELL if len(release.cells) == 1 else ())
            hidden[basis].update(name for name in more if values.get(name) is not None)
            values.update(dict.fromkeys(hidden[basis]))
            error = values["mean_generalization_error"]
            values["mean_generalization_error"] = None if error is None else float(f"{error:.{_DIGITS}g}")
    plain = {basis: {name: _plain(value) for name, value in values.items()} for basis, values in measures.items()}
    return plain, {basis: sorted(names) for basis, names in hidden.items()}


def _plain(value: Any) -> float | int | None:
    if value is None:
        return None
    number = value.item() if isinstance(value, np.generic) else value
    return number if np.isfinite(number) else None
