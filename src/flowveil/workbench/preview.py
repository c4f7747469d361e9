"""A release that is tried: five figures in plain words, and its maps beside those of the trips. Not for publication.

A preview leaves the last effort of a method out and is there in a moment; the full run is what would be published.
Maps of all tries lie in one frame, which follows from the trips: a map stays where it is while its zones change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from flowveil.anonymization import anonymize, anonymize_slices
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy, Ints
from flowveil.methods import METHODS
from flowveil.published.layers import further_layer, look
from flowveil.published.maps import ENDS, Frame, Geometries, map_of_release, part_bounds
from flowveil.published.places import distance_in_words, typical_radius_m
from flowveil.published.slices import overview, zones_in
from flowveil.slices import SlicedFlows
from flowveil.times import TIME_COLUMNS
from flowveil.workbench.choices import Asked

#: Areas of the map of what was there before.
_MOST_AREAS = 5_000


class Before:
    """The trips as they were: where they start and end, at the finest level that a map can show."""

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
        """The map of the trips as layers of a map of a release, coloured on the same scale; its shapes are added."""
        if data["frame"] is None:
            return {}
        if self._drawn is None or self._drawn["frame"] != data["frame"]:
            # Drawn once: every try lies in one frame, and only its own areas differ.
            alone: dict[str, Any] = {"frame": data["frame"], "shapes": []}
            layers = {
                f"{end}_before": {**further_layer(alone, **areas), **look(end, "trips per km²", scale=end)}
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


def quick(asked: Asked, flows: Flows) -> Any:
    """A release in a moment: ODkAnon with the same limit on suppression, where the method itself takes longer."""
    how = asked.how_made
    if METHODS[asked.method].promises != "k" or asked.method in ("odkanon", "suppression"):
        return anonymize(flows, **how)
    kept = {name: how[name] for name in asked.thresholds}
    return anonymize(flows, method="odkanon", budget="volume", **kept)


def full(asked: Asked, flows: Flows | SlicedFlows, progress: Any) -> Any:
    """The release that would be published."""
    if isinstance(flows, SlicedFlows):
        how = {**asked.how_made, **asked.how_cut}
        return anonymize_slices(flows, progress=progress, **how)
    return anonymize(flows, **asked.how_made)


def tables_of(release: Any) -> tuple[pa.Table, pa.Table]:
    """The matrix and the zones that a map shows: of slices and times, their sum."""
    flows, zones = release.flows, release.zones
    if release.slice_columns:
        flows = overview(flows, release.slice_columns, release.parameters["slices"].get("every"))
        return flows, zones_in(flows, zones)
    if TIME_COLUMNS[0] in flows.column_names:
        flows = overview(flows, TIME_COLUMNS, None)
    return flows, zones


def shown(release: Any, before: Before) -> dict[str, Any]:
    """Figures and maps of a release that is tried."""
    flows, zones = tables_of(release)
    data = map_of_release(flows, zones, frame=before.frame)
    if data["frame"] is not None:
        overlap = not METHODS[release.method].homogeneous
        after = {
            f"{end}_after": {**data["layers"][end], **look(end, "trips per km²", scale=end), "overlap": overlap}
            for end in ENDS
        }
        data["layers"] = {**after, **before.layers(data)}
    return {"figures": figures(release, flows, zones, before), "map": data}


def figures(release: Any, flows: pa.Table, zones: pa.Table, before: Before) -> list[dict[str, Any]]:
    """Five figures: name, value, what it means, and the plain number."""
    published = pc.sum(flows["trips"]).as_py() or 0
    left = max(0.0, 1 - published / before.trips) if before.trips else 0.0
    radius = typical_radius_m(flows, zones)
    noisy = METHODS[release.method].promises != "k"
    least = min((int(np.min(part.cells.trips)) for _, part in release.parts if len(part.cells)), default=0)
    n_zones, said = len(zones), f"{100 * left:.1f}".removesuffix(".0") + " %"
    found = [
        ("Numbers published", f"{len(flows):,}", "pairs of an origin and a destination area", len(flows)),
        ("Areas", f"{n_zones:,}", "as fine as the protection allows", n_zones),
        ("Places known to about", "not known" if radius is None else distance_in_words(radius),
         "radius of the area of a typical trip end", radius),
        ("Trips suppressed", said, "not in any number that is published", left),
        ("Smallest number", f"{least:,}", "noise included" if noisy else "trips; no number hides fewer", least),
    ]  # fmt: skip
    return [dict(zip(("name", "value", "meaning", "number"), one, strict=True)) for one in found]


def side_by_side(tables: list[tuple[pa.Table, pa.Table]], before: Before) -> dict[str, Any]:
    """The origin maps of several tries in one frame and on one scale, each as a layer."""
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
            layers[f"{end}_{number}"] = {**layer, **look(end, "trips per km²", scale=end)}
    return {**data, "layers": layers}
