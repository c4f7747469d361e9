"""Plans that were applied: published cells with the flows that they were counted from.

`ExactCounts` are recounted and satisfy the guarantee; `flowveil.release.noisy.NoisyCounts` carry
noise. `Publishable` is what the boundary publishes: one matrix, or one for each slice. The class of
users, with files, maps and tables, is `flowveil.publishing.release.Release`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from flowveil.core.arrays import Ints
from flowveil.core.dimensions import Use
from flowveil.core.errors import GuaranteeError, InfeasibleError, ParameterError
from flowveil.core.flows import Cells, Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.slices import Key
from flowveil.release.facets import Facets, Kind
from flowveil.release.plan import Plan

if TYPE_CHECKING:
    from flowveil.release.revision import Revision


class Publishable(ABC):
    """One matrix or many, exact counts or noisy ones.

    A release of one matrix is a family of one: `parts` has one entry, whose key is empty.
    """

    method: str
    parameters: Mapping[str, Any]  # the settings of the run, enough to repeat it
    input: Any  # what was anonymised; never written
    guarantee: Any  # what every cell satisfies, or what the noise guarantees

    @property
    @abstractmethod
    def facets(self) -> Facets:
        """What the release is."""

    @property
    def kind(self) -> Kind:
        """One word for the facets, as in report.json."""
        return self.facets.kind

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Names of the columns that distinguish the matrices; none for one matrix."""
        return ()

    @property
    @abstractmethod
    def parts(self) -> tuple[tuple[Key, Any], ...]:
        """The matrices: the values of the slice columns, and the counts of that matrix."""

    def check_publishable(self) -> None:
        """Refuses what may be looked at but not published.

        Exact counts are checked when they are made.
        """
        return


class Matrix(Publishable):
    """A plan, and cells whose ``origin`` and ``destination`` number the plan's zones."""

    plan: Plan
    cells: Cells

    @property
    def parts(self) -> tuple[tuple[Key, Self], ...]:
        """This matrix, under the empty key."""
        return (((), self),)


@dataclass(frozen=True, eq=False)
class ExactCounts(Matrix):
    """Recounted cells, and the flows that they were counted from.

    Attributes:
        input: the flows that were anonymised. Internal: never written.
        guarantee: what every cell satisfies.
        parameters: everything needed to run it again.
        cells: the published cells; ``origin`` and ``destination`` number the plan's zones.
        cell_of_flow: the published cell each flow is counted in, -1 for suppressed flows.
        revision: which cells of a revised release have new values; None for any other.
    """

    input: Flows
    plan: Plan
    guarantee: Guarantee
    method: str
    parameters: Mapping[str, Any]
    cells: Cells
    cell_of_flow: Ints
    revision: Revision | None = None

    @classmethod
    def from_plan(
        cls,
        flows: Flows,
        plan: Plan,
        guarantee: Guarantee,
        *,
        method: str,
        parameters: Mapping[str, Any],
    ) -> Self:
        """Applies a plan and recounts every cell.

        GuaranteeError if one is short, InfeasibleError if none is left.
        """
        flows = guarantee.prepare(flows)
        origin = np.where(plan.kept, plan.origin_zone, np.int32(-1))
        people = None if flows.people is None else flows.people.without_trips()
        merged = replace(flows, people=people).merge(
            origin, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones)
        )
        cells = merged.cells
        if len(cells) == 0:
            raise InfeasibleError(
                "No cell can be published: with the zones this method can make, all fall short of"
                f" the guarantee. Asked for {guarantee.in_words()}. Hint: lower k, allow more"
                " suppression, use a method that merges zones, or bring more data."
            )
        safe = guarantee.safe(cells)
        if not safe.all():
            raise GuaranteeError(
                f"{int((~safe).sum())} of {len(cells)} cells that '{method}' wants to publish fall"
                " short of the guarantee. This is a defect of the method; nothing was published."
            )
        return cls(
            input=flows,
            plan=plan,
            guarantee=guarantee,
            method=method,
            parameters=MappingProxyType(dict(parameters)),
            cells=cells,
            cell_of_flow=merged.row,
        )

    @property
    def facets(self) -> Facets:
        """Those of the plan."""
        return self.plan.facets


@dataclass(frozen=True, eq=False, repr=False)
class Family(Publishable):
    """The counts of several slices, by ``keys``, sorted.

    ``input`` has the flows of all slices; internal, never written. ``guarantee`` is what all
    satisfy.
    """

    input: Flows
    keys: tuple[Key, ...]
    releases: tuple[Any, ...]
    guarantee: Any
    method: str
    parameters: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def facets(self) -> Facets:
        """Those of the matrices, and the separate dimensions."""
        inner: Facets = self.releases[0].facets
        separate: dict[str, Use] = dict.fromkeys(self.slice_columns, "separate")
        layers = any(release.facets.layers for release in self.releases)
        return replace(inner, layers=layers, dimensions={**separate, **inner.dimensions})

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Names of the slice columns."""
        return self.input.slice_columns

    @property
    def parts(self) -> tuple[tuple[Key, Any], ...]:
        """The matrices with their slices."""
        return tuple(zip(self.keys, self.releases, strict=True))

    def __iter__(self) -> Iterator[tuple[Key, Any]]:
        return iter(self.parts)

    def __getitem__(self, key: str | Key) -> Any:
        wanted = (key,) if isinstance(key, str) or key is None else tuple(key)
        try:
            return self.releases[self.keys.index(wanted)]
        except ValueError:
            named = ", ".join(self.slice_columns)
            raise ParameterError(
                f"There is no release for that slice. Slices are named by {named}, in this order."
            ) from None
