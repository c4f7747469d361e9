"""Two releases of the same data side by side: measures and maps.

For data that nobody is behind, as the synthetic survey of the demo: of real data, two releases can be subtracted from
each other, so a page for readers shows one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from flowveil.published.document import Part, fill, number
from flowveil.published.layers import density_layer, further_layer, look
from flowveil.published.maps import ENDS, geometries, placed, volume_of, zones_of
from flowveil.published.report import summarize

if TYPE_CHECKING:
    from flowveil.release.release import Release

_ROWS = (
    ("n_cells", "Published cells"),
    ("n_origin_zones", "Origin zones"),
    ("n_destination_zones", "Destination zones"),
    ("mean_generalization_error", "Mean generalisation error (tiles)"),
    ("floor_generalization_error", "Floor of that error"),
    ("floor_ratio", "Error over its floor"),
    ("generalization_distance_m", "Mean distance moved (m)"),
    ("reconstruction_loss", "Reconstruction loss"),
    ("suppressed_share", "Suppressed share"),
)


def side_by_side_part(report: Mapping[str, Any], other: Release, data: dict[str, Any]) -> Part:
    """The other release beside this one; adds its zones to the data of the maps.

    Args:
        report: of the release that is published.
        other: the release to show beside it.
        data: of the page's maps; layers and shapes are added.
    """
    reports = (report, summarize(other))
    methods = [r["method"] for r in reports]
    rows = [(name, [_value(r["measures"]["trips"], key) for r in reports]) for key, name in _ROWS]
    pairs = [] if data.get("frame") is None else [_pair(end, methods, other, data) for end in ENDS]
    content = fill("side_by_side.html", methods=methods, rows=rows, pairs=pairs)
    return Part("beside", f"{methods[0]} and {methods[1]} side by side", content)


def _value(measures: Mapping[str, Any], key: str) -> str:
    value = measures.get(key)
    return f"{value:.2%}" if key == "suppressed_share" and value is not None else number(value)


def _pair(end: str, methods: list[str], other: Release, data: dict[str, Any]) -> dict[str, Any]:
    """The zones of one end of both releases, on one scale."""
    scale = f"beside_{end}"
    drawn = look(end, "trips per km²", scale=scale)
    layers = {
        f"{end}_mine": {**density_layer(data["layers"][end], "trips"), **drawn},
        f"{end}_other": {**_layer(other, end, data), **drawn},
    }
    data["layers"] = {**data["layers"], **layers}
    notes = (f"{number(len(layer['code']))} zones" for layer in layers.values())
    return {"end": end, "scale": scale, "maps": list(zip(layers, methods, notes, strict=True))}


def _layer(release: Release, end: str, data: dict[str, Any]) -> dict[str, Any]:
    zones = placed(zones_of(release.zones, end))
    trips = volume_of(release.flows, zones, end, "trips")
    area = zones["area_km2"].to_numpy(zero_copy_only=False).astype(np.float64)
    # Large zones first: small ones are drawn on top.
    order = np.lexsort((np.arange(len(zones)), -np.nan_to_num(area)))
    table, area, trips = zones.take(pa.array(order)), area[order], trips[order]
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.nan_to_num(trips / area, posinf=0.0)
    lat, lon = (table[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in ("lat", "lon"))
    names = {
        key: table[column].to_pylist() for key, column in (("code", "zone"), ("level", "level"), ("tiles", "tiles"))
    }
    return further_layer(data, **names, area=area, lat=lat, lon=lon, outlines=geometries(table), values=density)
