"""Further layers of small maps: tiles, and the zones of another release."""

from __future__ import annotations

from typing import Any

import numpy as np
import shapely

from flowveil.hierarchy import Floats
from flowveil.published.maps import Frame, Geometries, encode_shapes, units_of


def look(end: str, word: str, *, scale: str) -> dict[str, Any]:
    """How a layer that shows one value of every area is drawn and named."""
    title = word[:1].upper() + word[1:]
    return {"title": title, "label": f"{end}s", "word": word, "hue": end, "scale": scale, "fixed": True}


def further_layer(
    data: dict[str, Any],
    *,
    code: list[str],
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
        "x": x,
        "y": y,
        "shape": shape.tolist(),
        "values": [float(f"{v:.6g}") for v in values.tolist()],
    }
