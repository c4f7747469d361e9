"""What only the operator may see of a release, next to what is published of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flowveil.analysis.areas import Reconstruction, spread_release
from flowveil.analysis.measures import Values, measure
from flowveil.core.errors import ParameterError
from flowveil.release.counts import Publishable


@dataclass(frozen=True)
class PrivateView:
    """The private side of a release: it compares the release with its input."""

    release: Publishable

    def metrics(self) -> dict[str, Values]:
        """Returns all measures, exact, by basis: "trips" and, where there are weights, "weight".

        They are computed once for each release.
        """
        self._check_one_matrix()
        cache: dict[str, Any] = vars(self.release)
        if "_measures" not in cache:
            cache["_measures"] = measure(self.release)  # type: ignore[arg-type]
        return {basis: dict(values) for basis, values in cache["_measures"].items()}

    def reconstruct(self, zones: Any) -> Reconstruction:
        """Returns the flows between areas, estimated by spreading each cell over its tiles.

        Only tiles with trips count, which a reader does not know.

        Args:
            zones: a level (for H3 the resolution), or a `flowveil.analysis.areas.Zoning`.
        """
        self._check_one_matrix()
        return spread_release(self.release, zones)

    def _check_one_matrix(self) -> None:
        if self.release.slice_columns:
            raise ParameterError(
                "A release of several matrices has these figures for each of them. Hint:"
                " release[key] is one; flowveil analyze gives the figures of all together."
            )

    def __repr__(self) -> str:
        return f"<PrivateView of {self.release!r}>"
