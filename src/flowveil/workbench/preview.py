"""A release that is tried: figures, and its maps next to those of the input. Not for publication.

A preview skips the search of a method; the full run is what would be published. Figures are those of report.json, so a
number on the page equals the one in the folder. All maps share one frame, which follows from the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from flowveil.anonymization import anonymize, anonymize_slices
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.methods import METHODS
from flowveil.published.folder import FolderContent
from flowveil.published.maps import ENDS, Frame, Geometries, further_layer, look, map_of_release, part_bounds
from flowveil.published.report import distance_in_words, summed
from flowveil.published.slices import overview, zones_in
from flowveil.slices import SlicedFlows
from flowveil.workbench.choices import PageRequest

#: Upper bound for areas on the map of the input.
_MOST_AREAS = 5_000


class InputMap:
    """Where trips of the input start and end, at the finest level that a map can show."""

    def __init__(self, flows: Flows) -> None:
        self.trips = int(flows.trips.sum())
        self.resolution = flows.intake.resolution
        trees: dict[str, tuple[Hierarchy, Ints]] = {
            "origin": (flows.origins, flows.origin),
            "destination": (flows.destinations, flows.destination),
        }
        self._ends: dict[str, dict[str, Any]] = {}
        if all(tree.geography is not None for tree, _ in trees.values()):
            self._ends = {end: _areas(tree, tile, flows) for end, (tree, tile) in trees.items()}
        self.frame = self._frame()
        self._drawn: dict[str, Any] | None = None

    def _frame(self) -> Frame | None:
        outlines = [end["outlines"] for end in self._ends.values()]
        if not outlines:
            return None
        whole: Geometries = np.concatenate(outlines)
        bounds = part_bounds(whole[~(shapely.is_missing(whole) | shapely.is_empty(whole))])
        return Frame.around(bounds) if len(bounds) else None

    def layers(self, data: dict[str, Any]) -> dict[str, Any]:
        """Returns the map of the input as layers of the map of a release, on the same colour scale; adds its shapes."""
        if data["frame"] is None:
            return {}
        if self._drawn is None or self._drawn["frame"] != data["frame"]:
            # Drawn once: all releases share the frame.
            alone: dict[str, Any] = {"frame": data["frame"], "shapes": []}
            layers = {
                f"{end}_before": {**further_layer(alone, **areas), **look(end, "trips per km²", scale="density")}
                for end, areas in self._ends.items()
            }
            self._drawn = {**alone, "layers": layers}
        start = len(data["shapes"])
        data["shapes"] = data["shapes"] + self._drawn["shapes"]
        return {
            name: {**layer, "shape": [at + start if at >= 0 else at for at in layer["shape"]]}
            for name, layer in self._drawn["layers"].items()
        }


def _areas(tree: Hierarchy, tile: Ints, flows: Flows) -> dict[str, Any]:
    assert tree.geography is not None
    node = tree.leaf_node
    while len(np.unique_values(node)) > _MOST_AREAS:
        node = tree.lift(node)
    volume = np.bincount(node[tile], weights=flows.trips.astype(np.float64), minlength=tree.n_nodes)
    nodes: Ints = np.flatnonzero(volume > 0).astype(np.int32)
    lat, lon = tree.geography.centers(nodes)
    area = tree.geography.areas_km2(nodes)
    return {
        "code": tree.code_text(nodes).tolist(),
        "lat": lat,
        "lon": lon,
        "outlines": tree.geography.polygons(nodes),
        "values": np.divide(volume[nodes], area, out=np.zeros(len(nodes)), where=area > 0),
    }


def quick_release(asked: PageRequest, flows: Flows) -> Any:
    """Returns a quick release: ODkAnon with the same limit on suppression, unless the method itself is quick."""
    how = asked.release_arguments
    if METHODS[asked.method].promises != "k" or asked.method in ("odkanon", "suppression"):
        return anonymize(flows, **how)
    kept = {name: how[name] for name in asked.thresholds}
    kept.setdefault("max_suppressed", METHODS[asked.method].max_suppressed)
    return anonymize(flows, method="odkanon", budget="volume", **kept)


def full_release(asked: PageRequest, flows: Flows | SlicedFlows, progress: Any) -> Any:
    """Returns the release that would be published."""
    if isinstance(flows, SlicedFlows):
        how = {**asked.release_arguments, **asked.slice_flags}
        return anonymize_slices(flows, progress=progress, **how)
    return anonymize(flows, **asked.release_arguments)


def map_tables(content: FolderContent) -> tuple[pa.Table, pa.Table]:
    """Returns the cells and zones that a map shows: of slices, layers and times, their sum."""
    flows = summed(content.flows, content.published.statement)
    return flows, zones_in(flows, content.zones)


def slice_tables(flows: pa.Table, zones: pa.Table, chosen: Mapping[str, str | None]) -> tuple[pa.Table, pa.Table]:
    """Returns the cells and zones of one slice."""
    for name, value in chosen.items():
        flows = flows.filter(pc.is_null(flows[name]) if value is None else pc.equal(flows[name], value))
    flows = overview(flows.drop_columns(list(chosen)), (), None)
    return flows, zones_in(flows, zones)


def release_view(content: FolderContent, before: InputMap) -> dict[str, Any]:
    """Returns figures, slices and maps of a release that is tried."""
    slices = [part["slice"] for part in content.report["published"].get("slices", ())]
    return {
        "figures": release_figures(content.report, before),
        "map": release_map(*map_tables(content), content.report, before),
        "slices": slices if len(slices) > 1 else [],
    }


def release_map(flows: pa.Table, zones: pa.Table, report: Mapping[str, Any], before: InputMap) -> dict[str, Any]:
    """Returns the map of a release, with that of the input as further layers."""
    data = map_of_release(flows, zones, frame=before.frame)
    if data["frame"] is not None:
        drawn = {"overlap": not report["statement"]["homogeneous"]}
        after = {
            f"{end}_after": {**data["layers"][end], **look(end, "trips per km²", scale="density"), **drawn}
            for end in ENDS
        }
        inputs = before.layers(data)
        data["layers"] = {**after, **inputs}
        # Coarse zones of a release may reach far beyond the trips.
        data["fit"] = sorted(inputs)
    return data


def release_figures(report: Mapping[str, Any], before: InputMap) -> list[dict[str, Any]]:
    """Returns the figures of a release: name, value, meaning, and the number. All but one are those of report.json.

    The exact share of suppressed trips is for the operator only.
    """
    published = report["published"]
    suppressed = max(0.0, 1 - published["trips"] / before.trips) if before.trips else 0.0
    radius, both = published["typical_radius_m"], published["both_ends_within_m"]["1000"]
    known = "not known" if radius is None else distance_in_words(radius)
    within = "" if both is None else f"; both ends within 1 km for {percent(both)} of the trips"
    zones = published["origin_zones"], published["destination_zones"]
    noisy = report["kind"] == "noisy"
    found = [
        ("Cells published", f"{published['cells']:,}", "rows of the table", published["cells"]),
        ("Zones", f"{zones[0]:,} × {zones[1]:,}", "origins × destinations", sum(zones)),
        ("One end known to about", known, f"radius of the zone of a typical trip end{within}", radius),
        ("Trips suppressed", percent(suppressed), "in no published cell", suppressed),
        ("Smallest cell", f"{published['smallest_cell'] or 0:,}", "trips, noise included" if noisy else "trips",
         published["smallest_cell"]),
    ]  # fmt: skip
    return [dict(zip(("name", "value", "meaning", "number"), one, strict=True)) for one in found]


def percent(share: float) -> str:
    """Returns a share as text with at most one decimal."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def candidate_maps(tables: list[tuple[pa.Table, pa.Table]], before: InputMap) -> dict[str, Any]:
    """Returns the maps of several releases in one frame and on one scale, each as a layer."""
    first, *_ = tables
    data = map_of_release(*first, frame=before.frame)
    if data["frame"] is None:
        return data
    layers = {}
    for number, (flows, zones) in enumerate(tables):
        own = map_of_release(flows, zones, frame=before.frame)
        start = len(data["shapes"])
        data["shapes"] = data["shapes"] + own["shapes"]
        for end in ENDS:
            layer = own["layers"][end]
            layer["shape"] = [at + start if at >= 0 else at for at in layer["shape"]]
            layers[f"{end}_{number}"] = {**layer, **look(end, "trips per km²", scale="density")}
    return {**data, "layers": layers}
