"""A release that is tried and signed: figures, its maps next to those of the input, the signed
sentence.

Not for publication. A preview skips the search of a method; the full run is what would be
published. Figures are those of report.json, so a number on the page equals the one in the folder.
All maps share one frame, that of the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.apps.workbench.choices import thresholds_of
from flowveil.core.arrays import Ints, Outlines
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.times import TIME
from flowveil.methods import METHODS
from flowveil.published.folder import FolderContent
from flowveil.published.maps import ENDS, MapFrame, further_layer, look, map_of_release
from flowveil.published.report import distance_in_words, summed
from flowveil.published.tables import overview
from flowveil.publishing.anonymization import anonymize
from flowveil.publishing.run import anonymize_arguments
from flowveil.release.facets import Facets
from flowveil.release.folder import zones_in
from flowveil.request.request import Request

#: Upper bound for areas on the map of the input.
_MOST_AREAS = 5_000
_STEPS = {
    "hour": "hour of the day",
    "weekday": "day of the week",
    "weekday-hour": "hour of the week",
}


class InputMap:
    """Where trips of the input start and end, at the finest level that a map can show."""

    def __init__(self, flows: Flows) -> None:
        self.trips = int(flows.trips.sum())
        self.resolution = flows.intake.resolution
        self._ends: dict[str, dict[str, Any]] = {}
        self.frame: MapFrame | None = None
        self._drawn: dict[str, Any] | None = None
        if flows.origins.geography is not None and flows.destinations.geography is not None:
            pairs = ((flows.origins, flows.origin), (flows.destinations, flows.destination))
            self._ends = {end: _areas(*pair, flows) for end, pair in zip(ENDS, pairs, strict=True)}
            whole: Outlines = np.concatenate([end["outlines"] for end in self._ends.values()])
            self.frame = MapFrame.around_places(whole, np.empty((0, 2)))

    def layers(self, data: dict[str, Any]) -> dict[str, Any]:
        """Returns the map of the input as layers of the map of a release, on the same colour scale.

        Adds its shapes.
        """
        if data["frame"] is None:
            return {}
        if self._drawn is None or self._drawn["frame"] != data["frame"]:
            # Drawn once: all releases share the frame.
            alone: dict[str, Any] = {"frame": data["frame"], "shapes": []}
            layers = {
                f"{end}_before": further_layer(alone, **here) | _look(end)
                for end, here in self._ends.items()
            }
            self._drawn = {**alone, "layers": layers}
        return _added(data, self._drawn["shapes"], self._drawn["layers"])


def _look(end: str) -> dict[str, Any]:
    return look(end, "trips per km²", scale="density")


def _added(data: dict[str, Any], shapes: list[Any], layers: Mapping[str, Any]) -> dict[str, Any]:
    """Adds shapes of another map to a map, and returns the layers of that map with the new places
    of its shapes.
    """
    start = len(data["shapes"])
    data["shapes"] = data["shapes"] + shapes
    return {
        name: {**layer, "shape": [at + start if at >= 0 else at for at in layer["shape"]]}
        for name, layer in layers.items()
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


def quick_release(request: Request, flows: Flows) -> Any:
    """Returns a quick release: ODkAnon with the same limit on suppression, unless the method itself
    is quick.
    """
    how, method = anonymize_arguments(request), METHODS[str(request.method.method)]
    if method.counts == "noisy" or method.name in ("odkanon", "suppression"):
        return anonymize(flows, **how)
    kept = {
        "max_suppressed": method.max_suppressed,
        **{name: how[name] for name in thresholds_of(request)},
    }
    return anonymize(flows, method="odkanon", budget="volume", **kept)


def map_tables(content: FolderContent) -> tuple[pa.Table, pa.Table]:
    """Returns the cells and zones that a map shows: of slices, layers and times, their sum."""
    flows = summed(content.flows, content.published.statement)
    return flows, zones_in(flows, content.zones)


def slice_tables(
    flows: pa.Table, zones: pa.Table, chosen: Mapping[str, str | None]
) -> tuple[pa.Table, pa.Table]:
    """Returns the cells and zones of one slice."""
    for name, value in chosen.items():
        flows = flows.filter(
            pc.is_null(flows[name]) if value is None else pc.equal(flows[name], value)
        )
    flows = overview(flows.drop_columns(list(chosen)))
    return flows, zones_in(flows, zones)


def release_view(content: FolderContent, before: InputMap) -> dict[str, Any]:
    """Returns figures, slices and maps of a release that is tried."""
    slices = [part["slice"] for part in content.report["published"].get("slices", ())]
    return {
        "figures": release_figures(content.report, before),
        "map": release_map(*map_tables(content), content.report, before),
        "slices": slices if len(slices) > 1 else [],
    }


def release_map(
    flows: pa.Table, zones: pa.Table, report: Mapping[str, Any], before: InputMap
) -> dict[str, Any]:
    """Returns the map of a release, with that of the input as further layers."""
    data = map_of_release(flows, zones, frame=before.frame)
    if data["frame"] is not None:
        drawn = {"overlap": not report["statement"]["homogeneous"]}
        after = {f"{end}_after": {**data["layers"][end], **_look(end), **drawn} for end in ENDS}
        inputs = before.layers(data)
        data["layers"] = {**after, **inputs}
        # Coarse zones of a release may reach far beyond the trips.
        data["fit"] = sorted(inputs)
    return data


def release_figures(report: Mapping[str, Any], before: InputMap) -> list[dict[str, Any]]:
    """Returns the figures of a release, those of report.json and the exact suppressed share, for
    the operator only.
    """
    published = report["published"]
    suppressed = max(0.0, 1 - published["trips"] / before.trips) if before.trips else 0.0
    radius, both = published["typical_radius_m"], published["both_ends_within_m"]["1000"]
    known = "not known" if radius is None else distance_in_words(radius)
    within = "" if both is None else f"; both ends within 1 km for {percent(both)} of the trips"
    zones = published["origin_zones"], published["destination_zones"]
    noisy = Facets.from_report(report).is_noisy
    found = [
        ("Cells published", f"{published['cells']:,}", "rows of the table", published["cells"]),
        ("Zones", f"{zones[0]:,} × {zones[1]:,}", "origins × destinations", sum(zones)),
        (
            "One end known to about",
            known,
            f"radius of the zone of a typical trip end{within}",
            radius,
        ),
        ("Trips suppressed", percent(suppressed), "in no published cell", suppressed),
        (
            "Smallest cell",
            f"{published['smallest_cell'] or 0:,}",
            "trips, noise included" if noisy else "trips",
            published["smallest_cell"],
        ),
    ]
    return [dict(zip(("name", "value", "meaning", "number"), one, strict=True)) for one in found]


def percent(share: float) -> str:
    """Returns a share as text with at most one decimal."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def candidate_maps(tables: list[tuple[pa.Table, pa.Table]], before: InputMap) -> dict[str, Any]:
    """Returns the maps of several releases in one frame and on one scale, each as a layer."""
    maps = [map_of_release(flows, zones, frame=before.frame) for flows, zones in tables]
    data = maps[0]
    if data["frame"] is None:
        return data
    layers: dict[str, Any] = {}
    for number, own in enumerate(maps):
        named = {f"{end}_{number}": own["layers"][end] | _look(end) for end in ENDS}
        layers |= _added(data, own["shapes"], named) if number else named
    return {**data, "layers": layers}


def sign_off_sentence(
    report: Mapping[str, Any], audit: Mapping[str, Any], *, signer: str | None = None
) -> str:
    """Returns what is signed: who is protected, which hours, tiles and cells, what was compared,
    and who signs.

    Every number is that of report.json. There is no signer before it is signed.
    """
    published, resolution = report["published"], report["parameters"].get("resolution")
    tiles = (
        "zones of your map"
        if report["parameters"].get("zones")
        else f"H3 cells of resolution {resolution}"
    )
    parts = [
        f"{_protection(report)}.",
        (
            f"It has {published['cells']:,} cells with {published['trips']:,} trips,"
            f" {_slices(report)}."
        ),
        f"The finest places are {tiles}.",
        _comparison(audit),
        *([] if signer is None else [f"Signed by {signer}."]),
    ]
    return " ".join(parts)


def _protection(report: Mapping[str, Any]) -> str:
    stated = report["guarantee"]
    if Facets.from_report(report).is_noisy:
        return f"Noise protects this release: {stated.get('rule') or report['method']}"
    values = {
        unit: f"{stated.get(unit) or stated['k']:,}" for unit in stated.get("protect") or ["trips"]
    }
    rule = "" if stated.get("population") else " mean weights of a trip"
    texts = [
        f"a population of {v}{rule}" if unit == "population" else f"{v} {unit}"
        for unit, v in values.items()
    ]
    return f"Every cell of this release covers at least {' and '.join(texts)}"


def _slices(report: Mapping[str, Any]) -> str:
    statement = report["statement"]
    columns = statement["slice_columns"]
    if not columns:
        return (
            "with values joined where they were small"
            if Facets.from_report(report).folds
            else "for all times together"
        )
    every = (report["parameters"].get("slices") or {}).get("every")
    names = [
        _STEPS.get(every, f"steps of {every}") if name == TIME and every else name
        for name in columns
    ]
    zone = f" in {statement['timezone']} time" if statement["timezone"] else ""
    return f"in {len(report['published']['slices']):,} slices by {' and '.join(names)}{zone}"


def _comparison(audit: Mapping[str, Any]) -> str:
    compared, missing = list(audit["compared"]), list(audit["not_compared"])
    if audit.get("ledger"):
        compared.append(f"{audit['ledger']} releases of the ledger")
    if not compared:
        return "It was compared with no earlier release."
    text = f"It was compared with {', '.join(compared)}."
    if audit.get("failures"):
        text += f" Accepted although the comparison found: {'; '.join(audit['failures'])}"
    return f"{text} Not compared: {'; '.join(missing)}." if missing else text
