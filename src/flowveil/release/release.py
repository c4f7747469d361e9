"""The base class of releases, and the release of one matrix with exact counts.

A `Release` is a plan that was applied and recounted: its cells satisfy the guarantee. `flowveil.release.noisy` has the
release of noisy counts. Code that publishes, measures or draws a release uses its `kind` and its `parts`, not its
class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from flowveil.errors import GuaranteeError, InfeasibleError, ParameterError
from flowveil.flows import Cells, Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Ints
from flowveil.release.plan import Plan
from flowveil.release.statement import Kind
from flowveil.slices import Key, SlicedFlows

if TYPE_CHECKING:
    import pyarrow as pa

    from flowveil.release.revision import Revision
    from flowveil.release.subtraction import Differencing


def _api() -> Any:
    """Returns the module with what uses a release; it imports this one."""
    from flowveil import api

    return api


class Publishable(ABC):
    """What every release can do, whether it has one matrix or many, exact counts or noisy ones.

    A release of one matrix is a family of one: `parts` has one entry, whose key is empty. Methods that write, draw or
    measure go through `flowveil.api`.
    """

    method: str
    parameters: Mapping[str, Any]  # the settings of the run, enough to repeat it
    input: Any  # what was anonymised; never written

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """What is published; report.json says it too."""

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Names of the columns that distinguish the matrices; none for one matrix."""
        return ()

    @property
    @abstractmethod
    def parts(self) -> tuple[tuple[Key, Any], ...]:
        """The matrices: the values of the slice columns, and the release of that matrix."""

    @cached_property
    def flows(self) -> pa.Table:
        """The published matrix: origin_zone, destination_zone, trips, where known weight, slice columns; sorted."""
        return self._content.flows

    @cached_property
    def zones(self) -> pa.Table:
        """The published zones, one row a zone and role, geometry as WKB (GeoParquet)."""
        return self._content.zones

    @cached_property
    def _content(self) -> Any:
        return _api().folder_content(self)

    def summary(self) -> dict[str, Any]:
        """The content of report.json: a function of what is published."""
        report: dict[str, Any] = self._content.report
        return report

    def write(self, directory: str | PathLike[str], **writing: Any) -> Path:
        """Publishes into a folder, atomically: it appears whole and verified, or not at all.

        Args:
            directory: the folder: new, empty, or an earlier release.
            overwrite: whether an earlier release may be replaced; True by default.
            formats: exports: ``csv``, ``geojson``, ``gpkg``, ``omx``, ``flowmap``, ``kepler``,
                ``arrow``; a comma-separated text or several names. Slices allow ``csv`` and ``arrow``.
            basemap: address of a tile server for the report's background map, which readers may switch on.
            context: a GeoJSON file of your own outlines (districts, roads) to draw on the report's maps; its lines and
                names are published.
            replace_stronger: confirms that an earlier release with a stronger guarantee may be replaced.
            ledger: folder of the ledger of this data set: refuses a release that may share trips with an earlier one,
                and records it; see docs/series.md.
            accept_differencing: publish it although it may share trips; the statement says so.
            epsilon_total: upper bound for the sum of ε of the noisy releases of a ledger. Stored at its first use;
                it can be lowered later and not raised.
            title, source, period, licence, contact: what the release is about, for its page and its files; the period
                is its first and last day, ``2024-01-01/2024-03-31``.
        """
        return Path(_api().publish(self, directory, **writing))

    def derive(self, **how: Any) -> Any:
        """Computes another table from what this release publishes; see `flowveil.derive` for the arguments."""
        return _api().derive_release(self, **how)

    def to_pandas(self, table: str = "flows") -> Any:
        """The published ``flows`` or ``zones`` as a pandas table."""
        return _api().to_frame(self, table, "pandas")

    def to_polars(self, table: str = "flows") -> Any:
        """The published ``flows`` or ``zones`` as a polars table."""
        return _api().to_frame(self, table, "polars")

    def to_geopandas(self, table: str = "zones") -> Any:
        """The published ``zones`` with their outlines, or ``flows`` as lines, as a geopandas table in EPSG:4326."""
        return _api().to_frame(self, table, "geopandas")

    def picture(self, path: str | PathLike[str], **style: Any) -> Path:
        """Draws a map into a PNG, SVG or PDF file; see `flowveil.picture` for the arguments."""
        return Path(_api().picture(self, path, **style))

    def _repr_html_(self) -> str:
        """Maps and measures for a notebook: only what may be published, so the notebook may be kept as well."""
        return str(_api().notebook_view(self))

    def check_publishable(self) -> None:
        """Refuses what may be looked at but not published; exact counts are checked when a release is made."""
        return


class Matrix(Publishable):
    """A release of one matrix: a plan, and cells whose ``origin`` and ``destination`` number the plan's zones."""

    plan: Plan
    cells: Cells

    @property
    def parts(self) -> tuple[tuple[Key, Self], ...]:
        """This matrix, under the empty key."""
        return (((), self),)

    def metrics(self) -> dict[str, dict[str, float | int | None]]:
        """All measures, exact, by basis ("trips" and, where there are weights, "weight"). Private: not published."""
        return {basis: dict(values) for basis, values in self._measured.items()}

    @cached_property
    def _measured(self) -> Any:
        return _api().measure(self)


@dataclass(frozen=True, eq=False)
class Release(Matrix):
    """Cells that may be published, with all that is needed to measure, check and write them.

    Made by `flowveil.anonymize`; a Release whose cells fall short cannot be constructed through it.

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
        cls, flows: Flows, plan: Plan, guarantee: Guarantee, *, method: str, parameters: Mapping[str, Any]
    ) -> Release:
        """Applies a plan and recounts every cell; GuaranteeError if one is short, InfeasibleError if none is left."""
        flows = guarantee.prepare(flows)
        origin = np.where(plan.kept, plan.origin_zone, np.int32(-1))
        merged = flows.merge(origin, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones))
        cells = merged.cells
        if len(cells) == 0:
            raise InfeasibleError(
                "No cell can be published: with the zones this method can make, all fall short of the guarantee. "
                f"Asked for {guarantee.in_words()}. "
                "Hint: lower k, allow more suppression, use a method that merges zones, or bring more data."
            )
        safe = guarantee.safe(cells)
        if not safe.all():
            raise GuaranteeError(
                f"{int((~safe).sum())} of {len(cells)} cells that '{method}' wants to publish fall short of the "
                "guarantee. This is a defect of the method; nothing was published."
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
    def kind(self) -> Literal["plain", "layered", "boxed", "folded"]:
        """Whether zones are nodes, nodes in layers, boxes, or nodes with times."""
        return self.plan.kind

    def reconstruct(self, zones: Any) -> Any:
        """Estimates the flows between areas: a level (for H3 the resolution), or a `flowveil.analysis.areas.Zoning`.

        Each cell is spread evenly over its tiles with trips, which a reader does not know. Private: not published.
        """
        return _api().spread_release(self, zones)

    def __repr__(self) -> str:
        return f"<Release {self.method}: {len(self.cells)} cells, at least {self.guarantee.in_words()} in each>"


@dataclass(frozen=True, eq=False, repr=False)
class Family(Publishable):
    """The releases of several slices, by ``keys``: coarsest kinds first, sorted within a kind.

    ``input`` has the flows of all slices; internal, never written. ``guarantee`` is what all satisfy.
    """

    input: SlicedFlows
    keys: tuple[Key, ...]
    releases: tuple[Any, ...]
    guarantee: Any
    method: str
    parameters: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Names of the slice columns."""
        return self.input.columns

    @property
    def parts(self) -> tuple[tuple[Key, Any], ...]:
        """The matrices with their slices."""
        return tuple(zip(self.keys, self.releases, strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class SlicedRelease(Family):
    """The releases of all slices that can be published, made by `flowveil.anonymize_slices`.

    Every slice is anonymised separately. Where a matrix is published with finer ones of the same trips, the remainder
    after subtraction must satisfy the guarantee too, or the release is refused; ``differencing`` says what can be
    learnt by subtraction.
    """

    releases: tuple[Release, ...]
    guarantee: Guarantee
    differencing: Differencing

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
    def revision(self) -> Revision | None:
        """Not None if the slices revise those of an earlier release."""
        return self.releases[0].revision

    def __repr__(self) -> str:
        return (
            f"<SlicedRelease {self.method}: {len(self)} slices by {', '.join(self.slice_columns)}, at least "
            f"{self.guarantee.in_words()} in each cell>"
        )
