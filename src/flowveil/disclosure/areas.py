"""Which errors between areas may be published.

Such an error is the suppressed share, and besides what cells that lie in several pairs of areas put into wrong ones. It
says nothing new where no cell does. Otherwise it is published under the rules of the losses, asked of these cells
alone: not where they are few, because the error would say how one of them is divided; not where hardly a trip is
misplaced, because they would be known to be even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowveil.analysis.seen_areas import area_errors
from flowveil.disclosure.withholding import FEWEST_MERGED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowveil.analysis.measures.measure import Values
    from flowveil.analysis.seen_areas import AreaError

#: Significant digits that are published.
DIGITS = 2


def published_areas(release: Any, measures: Mapping[str, Values]) -> list[dict[str, Any]] | None:
    """What report.json says of the errors between areas: ``level`` and ``error``, which is None where it is withheld.

    Args:
        release: of one matrix, or of slices: then each of the finest is held against its own trips, and the errors are
            those of all together. None is returned where there are no levels of areas, of a revision, and where no
            finest slice is published.
        measures: as they are published. Where the suppressed share or the loss is withheld, these errors are too.
    """
    if release.kind == "sliced":
        published = dict(zip(release.keys, release.releases, strict=True))
        finest = [published[key] for key in release.input.keys if key in published]
        absent = [s for key, s in zip(release.input.keys, release.input.slices, strict=True) if key not in published]
    else:
        finest, absent = ([release] if release.revision is None else []), []
    if not finest:
        return None
    closed = any(measures["trips"][name] is None for name in ("suppressed_share", "reconstruction_loss"))
    found = area_errors(finest, absent)
    return [_published(one, closed=closed or _tells(one, release.guarantee.k)) for one in found] or None


def _tells(one: AreaError, k: int) -> bool:
    """Whether an error would tell how single cells are divided."""
    return one.crossing > 0 and (one.crossing < FEWEST_MERGED or one.misplaced < max(one.crossing, k))


def _published(one: AreaError, *, closed: bool) -> dict[str, Any]:
    return {"level": one.level, "error": None if closed else float(f"{one.error:.{DIGITS}g}")}
