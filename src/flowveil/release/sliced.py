"""A release of several matrices: one for each slice, made, checked and published together.

Every slice is anonymised separately, so every cell of every slice satisfies the guarantee. What slices reveal together
is checked too: where a matrix is published with finer ones that hold the same trips (a total and its segments, a
day and its hours), the remainder after subtraction must satisfy the guarantee too, or the release is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flowveil.errors import ParameterError
from flowveil.flows import Cells
from flowveil.guarantee import Guarantee
from flowveil.release.release import Publishable, Release
from flowveil.slices import Key, SlicedFlows

if TYPE_CHECKING:
    from flowveil.release.subtraction import Differencing


@dataclass(frozen=True, eq=False, repr=False)
class SlicedRelease(Publishable):
    """The releases of all slices that can be published.

    Made by `flowveil.anonymize_slices`.

    Attributes:
        input: the flows of all slices. Internal: never written.
        keys: the slice of each release, coarsest kinds first, sorted within a kind.
        releases: the releases, in that order.
        guarantee: what every cell of every release satisfies.
        method: name of the method.
        parameters: everything needed to run it again.
        n_unpublished: matrices that were asked for and hold too little to be published; never named.
        differencing: what can be learnt by subtraction.
        common_zones: whether all releases share their zones.
    """

    input: SlicedFlows
    keys: tuple[Key, ...]
    releases: tuple[Release, ...]
    guarantee: Guarantee
    method: str
    parameters: Mapping[str, Any]
    n_unpublished: int
    differencing: Differencing
    common_zones: bool

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[Key, Release]]:
        return iter(self.parts)

    def __getitem__(self, key: str | Key) -> Release:
        wanted = (key,) if isinstance(key, str) or key is None else tuple(key)
        try:
            return self.releases[self.keys.index(wanted)]
        except ValueError:
            named = ", ".join(self.slice_columns)
            raise ParameterError(
                f"There is no release for that slice. Slices are named by {named}, in this order."
            ) from None

    @property
    def kind(self) -> Literal["sliced"]:
        """Several matrices."""
        return "sliced"

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Names of the slice columns."""
        return self.input.columns

    @property
    def parts(self) -> tuple[tuple[Key, Release], ...]:
        """The matrices with their slices."""
        return tuple(zip(self.keys, self.releases, strict=True))

    def __repr__(self) -> str:
        return (
            f"<SlicedRelease {self.method}: {len(self)} slices by {', '.join(self.slice_columns)}, at least "
            f"{self.guarantee.in_words()} in each cell>"
        )


def n_people(cells: Cells) -> float:
    """Distinct persons of all cells together; without limit where persons are not known."""
    return float("inf") if cells.people is None else cells.people.total()
