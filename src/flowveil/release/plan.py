"""Plan (what a method decided) and Release (what may be published).

A method is a pure function from `Flows` and a `Guarantee` to a `Plan`; it never publishes. `Release.from_plan` applies
the plan, counts every cell anew from the flows, and refuses if one falls short. Everything that is published or
measured is derived from a Release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError, GuaranteeError, InfeasibleError
from flowveil.flows import Cells, Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Floats, Hierarchy, Ints

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from flowveil.release.reconstruction import Reconstruction


class Zones(Protocol):
    """The zones of one end, numbered from 0. Nodes of a hierarchy today; boxes are zones as well."""

    def __len__(self) -> int: ...

    @property
    def size(self) -> Ints:
        """Tiles in each zone."""
        ...

    @property
    def level(self) -> Ints:
        """Level of each zone in its hierarchy."""
        ...

    def possible(self, whole_map: Hierarchy | None) -> NDArray[np.int64] | None:
        """Tiles that each zone could hold, seen or not: a function of the map alone. None where it is not known."""
        ...

    def codes(self, zones: Ints) -> NDArray[np.str_]:
        """Published codes."""
        ...

    def centers(self, zones: Ints) -> tuple[Floats, Floats] | None:
        """Latitude and longitude of the centres, or None where the map is unknown."""
        ...

    def areas_km2(self, zones: Ints) -> Floats | None:
        """Areas, or None where the map is unknown."""
        ...

    def polygons(self, zones: Ints) -> NDArray[np.object_] | None:
        """Shapely geometries, or None where the map is unknown."""
        ...


@dataclass(frozen=True, eq=False)
class NodeZones:
    """Zones that are nodes of a hierarchy: a cut, or any nodes that a method chose."""

    hierarchy: Hierarchy
    nodes: Ints

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def size(self) -> Ints:
        """Tiles below each node."""
        return self.hierarchy.size[self.nodes]

    @cached_property
    def level(self) -> Ints:
        """Level of each node."""
        return self.hierarchy.level[self.nodes]

    def possible(self, whole_map: Hierarchy | None) -> NDArray[np.int64] | None:
        """All tiles below each node: H3 cells, or those of the map; None for a tree that comes with no map."""
        from flowveil.zoning.h3 import n_descendants, resolution_of

        tree, code = self.hierarchy, self.hierarchy.code[self.nodes]
        if tree.kind == "h3" and code.dtype == np.uint64:
            return n_descendants(code, int(resolution_of(tree.code[tree.leaf_node[:1]])[0]))
        if whole_map is None:
            return None
        by_code = np.argsort(whole_map.code)
        at = by_code[np.minimum(np.searchsorted(whole_map.code, code, sorter=by_code), whole_map.n_nodes - 1)]
        if np.any(whole_map.code[at] != code):
            raise DataError("The map of these flows lacks zones of their hierarchies.")
        return whole_map.size[at].astype(np.int64)

    def codes(self, zones: Ints) -> NDArray[np.str_]:
        """Published codes."""
        return self.hierarchy.code_text(self.nodes[zones])

    def centers(self, zones: Ints) -> tuple[Floats, Floats] | None:
        """Latitude and longitude of the centres, or None where the map is unknown."""
        where = self.hierarchy.geography
        return None if where is None else where.centers(self.nodes[zones])

    def areas_km2(self, zones: Ints) -> Floats | None:
        """Areas, or None where the map is unknown."""
        where = self.hierarchy.geography
        return None if where is None else where.areas_km2(self.nodes[zones])

    def polygons(self, zones: Ints) -> NDArray[np.object_] | None:
        """Shapely geometries, or None where the map is unknown."""
        where = self.hierarchy.geography
        return None if where is None else where.polygons(self.nodes[zones])


@dataclass(frozen=True, eq=False)
class Plan:
    """What a method decided, for every flow.

    Attributes:
        origin_zone, destination_zone: the zones that hold the flow's tiles, for every flow, kept or not.
        kept: which flows are published; the others are suppressed.
        origin_zones, destination_zones: the zones that those numbers mean.
        homogeneous: the origin zones are disjoint, and so are the destination zones.
        boxes: None where zones are nodes. Where they are boxes: ``grid_lon`` and ``grid_lat``, the width and height
            in degrees of the grid that their edges lie on, and ``disjoint``, whether no flow lies in two cells.
        suppression: how flows came to be suppressed, in words that `verify` can check: ``{"rule": "short
            cells"}`` (a cell is published whole or not at all) or ``{"rule": "hopeless flows", "levels": L,
            "beta": b}`` (flows are taken out before cells are counted).
        notes: what else the method has to say of its run; only what may be published.
    """

    origin_zone: Ints
    destination_zone: Ints
    kept: NDArray[np.bool_]
    origin_zones: Zones
    destination_zones: Zones
    homogeneous: bool
    boxes: Mapping[str, Any] | None = None
    suppression: Mapping[str, Any] = field(default_factory=lambda: {"rule": "short cells"})
    notes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_cuts(
        cls,
        flows: Flows,
        origin_cut: Ints,
        destination_cut: Ints,
        kept: NDArray[np.bool_],
        *,
        suppression: Mapping[str, Any] | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> Plan:
        """The plan of one cut for each end: a homogeneous release."""
        return cls(
            origin_zone=flows.origins.zone_of_tile(origin_cut)[flows.origin],
            destination_zone=flows.destinations.zone_of_tile(destination_cut)[flows.destination],
            kept=kept,
            origin_zones=NodeZones(flows.origins, origin_cut),
            destination_zones=NodeZones(flows.destinations, destination_cut),
            homogeneous=True,
            suppression=suppression or {"rule": "short cells"},
            notes=notes or {},
        )


@dataclass(frozen=True, eq=False)
class Release:
    """Cells that may be published, with all that is needed to measure, check and write them.

    Made by `flowveil.anonymize`; a Release whose cells fall short cannot be constructed through it.

    Attributes:
        input: the flows that were anonymised. Internal: never written.
        plan: the decision.
        guarantee: what every cell satisfies.
        method: name of the method.
        parameters: everything needed to run it again.
        cells: the published cells; ``origin`` and ``destination`` number the plan's zones.
        cell_of_flow: the published cell each flow is counted in, -1 for suppressed flows.
    """

    input: Flows
    plan: Plan
    guarantee: Guarantee
    method: str
    parameters: Mapping[str, Any]
    cells: Cells
    cell_of_flow: Ints

    @classmethod
    def from_plan(
        cls, flows: Flows, plan: Plan, guarantee: Guarantee, *, method: str, parameters: Mapping[str, Any]
    ) -> Release:
        """Apply a plan, recount every cell, and refuse if one falls short.

        Raises:
            InfeasibleError: nothing is left to publish.
            GuaranteeError: a cell is short; the method is wrong and nothing may be published.
        """
        flows = guarantee.prepare(flows)
        everything = bool(plan.kept.all())
        origin = plan.origin_zone if everything else np.where(plan.kept, plan.origin_zone, np.int32(-1))
        merged = flows.merge(origin, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones))
        cells = merged.cells
        if len(cells) == 0:
            raise InfeasibleError(
                "No cell can be published: with the zones this method can make, all fall short of the guarantee. "
                f"Asked for {describe_thresholds(guarantee)}. "
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

    @cached_property
    def possible_tiles(self) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
        """Tiles that the origin zones and the destination zones could hold, seen or not, as they are published.

        How many were seen is not published: as many as there are would mean every one, those of suppressed flows too.
        """
        whole_map = self.input.whole_map
        return self.plan.origin_zones.possible(whole_map), self.plan.destination_zones.possible(whole_map)

    @cached_property
    def flows(self) -> pa.Table:
        """The published matrix: origin_zone, destination_zone, trips and, where known, weight; sorted."""
        from flowveil.publish.tables import flows_table

        return flows_table(self)

    @cached_property
    def zones(self) -> pa.Table:
        """The published zones, one row a zone and role, geometry as WKB (GeoParquet)."""
        from flowveil.publish.tables import zones_table

        return zones_table(self)

    def metrics(self) -> dict[str, dict[str, float | int | None]]:
        """All measures, exact, by basis ("trips" and, where there are weights, "weight").

        For the data holder: the published report withholds those that would give away a suppressed value.
        """
        from flowveil.measures import measure

        return measure(self)

    def reconstruct(self, zones: Any) -> Reconstruction:
        """Estimate the flows between areas of choice, each cell spread evenly over its tiles.

        Args:
            zones: a level (for H3 the resolution), a release whose zones do not overlap, a pair of cuts, or a
                `flowveil.release.reconstruction.Zoning`.
        """
        from flowveil.release.reconstruction import reconstruct

        return reconstruct(self, zones)

    def write(
        self,
        directory: str | PathLike[str],
        *,
        overwrite: bool = True,
        formats: str | Iterable[str] = (),
        basemap: str | None = None,
    ) -> Path:
        """Publish into a folder, atomically: it appears whole and verified, or not at all.

        Args:
            directory: the folder: new, empty, or an earlier release.
            overwrite: whether an earlier release may be replaced.
            formats: exports beside the two tables: ``csv``, ``geojson``, ``gpkg``, ``omx``, ``flowmap``, ``kepler``,
                ``arrow``; a comma-separated text or several names.
            basemap: address of a tile server for the report's background map, which readers may switch on.
        """
        from flowveil.publish.folder import publish

        return publish(self, directory, overwrite=overwrite, formats=formats, basemap=basemap)

    def picture(self, path: str | PathLike[str], *, show: str = "origins", **style: Any) -> Path:
        """Draw a map into a PNG, SVG or PDF file: ``origins``, ``destinations``, ``both`` or ``flows``.

        See `flowveil.report.pictures.draw` for basis, lines, width, dpi and title.
        """
        from flowveil.report.pictures import draw

        return draw(self.flows, self.zones, path, show=show, **style)

    def _repr_html_(self) -> str:
        """Maps and measures for a notebook: only what may be published, so the notebook may be kept as well."""
        from flowveil.report.document import frame
        from flowveil.report.html import render
        from flowveil.report.summary import summarize

        return frame(render(summarize(self), self.flows, self.zones, compact=True))

    def write_internal_report(self, path: str | PathLike[str], *, release: str | PathLike[str] | None = None) -> Path:
        """Write a page that compares before and after. It tells raw counts: never publish it.

        Args:
            path: the file; refused inside a release.
            release: the folder this release was written to, if any.
        """
        from flowveil.report.internal import write_internal_report

        return write_internal_report(self, path, folder=release)

    def __repr__(self) -> str:
        return (
            f"<Release {self.method}: {len(self.cells)} cells, at least {describe_thresholds(self.guarantee)} in each>"
        )


def describe_thresholds(guarantee: Guarantee) -> str:
    """The guarantee in words: '10 trips and 10 people'."""
    parts = []
    if guarantee.trips is not None:
        parts.append(f"{guarantee.trips} trips")
    if guarantee.people is not None:
        parts.append(f"{guarantee.people} people")
    if guarantee.population is not None:
        least = guarantee.population
        parts.append(f"a population of {least:,.0f}" if least >= 10 else f"a population of {least:g}")
    if guarantee.locations is not None:
        parts.append(f"{guarantee.locations} tiles in which trips begin, and in which they end")
    return " and ".join(parts)
