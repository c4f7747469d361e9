"""Layers of maps beside those of a release: volume per km², tiles, and the zones of another release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import shapely

from flowveil.hierarchy import Floats
from flowveil.published.maps import Frame, Geometries, encode_shapes, units_of


def look(end: str, word: str, *, scale: str) -> dict[str, Any]:
    """How a layer that shows one value of every area is drawn and named."""
    title = word[:1].upper() + word[1:]
    return {"title": title, "label": f"{end}s", "word": word, "hue": end, "scale": scale, "fixed": True}


def density_layer(layer: Mapping[str, Any], basis: str) -> dict[str, Any]:
    """The zones of a layer again, with their volume per km²."""
    return {
        **{key: layer[key] for key in ("code", "level", "tiles", "area", "x", "y", "shape")},
        "values": [v / a if a else 0 for v, a in zip(layer[basis], layer["area"], strict=True)],
    }


def further_layer(
    data: dict[str, Any],
    *,
    code: list[str],
    level: list[int],
    tiles: list[int],
    area: Floats,
    lat: Floats,
    lon: Floats,
    outlines: Geometries,
    values: Floats,
) -> dict[str, Any]:
    """Areas that are not zones of the release, in the frame of its maps; their shapes are added to the data."""
    frame = Frame(data["frame"]["west"], data["frame"]["north"], data["frame"]["perUnit"])
    has_shape = ~(shapely.is_missing(outlines) | shapely.is_empty(outlines))
    shape = np.full(len(outlines), -1, dtype=np.int64)
    shape[has_shape] = len(data["shapes"]) + np.arange(int(has_shape.sum()))
    data["shapes"] = data["shapes"] + encode_shapes(outlines[has_shape], frame)
    x, y = units_of(np.column_stack((lon, lat)), frame)
    return {
        "code": code,
        "level": level,
        "tiles": tiles,
        "area": [float(f"{a:.4g}") for a in area.tolist()],
        "x": x,
        "y": y,
        "shape": shape.tolist(),
        "values": [float(f"{v:.6g}") for v in values.tolist()],
    }
