"""What zones are called in exports: the publisher's name, else the nearest town."""

from __future__ import annotations

from collections.abc import Sequence

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa

from flowveil.core.hierarchy import OUTSIDE
from flowveil.published.basemap_context import nearest_towns
from flowveil.published.maps import floats


def zone_names(zones: pa.Table) -> list[str]:
    """Returns a name for each row of zones.parquet; empty where there is neither name nor town.

    The names are those of the page: "2.1 km north-east of Oakland" for a zone without a name of
    the publisher's map, with a number where several zones would share it.
    """
    codes = zones["zone"].to_pylist()
    given = zones["name"].to_pylist() if "name" in zones.column_names else [None] * len(codes)
    if not {"lat", "lon", "area_km2"} <= set(zones.column_names):
        return [name or "" for name in given]
    towns = nearest_towns(floats(zones, "lat"), floats(zones, "lon"), floats(zones, "area_km2"))
    names = []
    for row, (code, name) in enumerate(zip(codes, given, strict=True)):
        if name:
            names.append(name)
        elif code == OUTSIDE:
            names.append("outside the study area")
        elif towns.word[row] < 0:
            names.append("")
        else:
            names.append(_near(towns.words[towns.word[row]], towns.km[row], towns.number[row]))
    return names


def _near(words: str, km: float, number: int) -> str:
    """Returns a distance and a direction in words, as the page's script writes them."""
    distance = "" if np.isnan(km) else f"{km:.1f} km " if km < 10 else f"{km:.0f} km "
    return f"{distance}{words}" + (f" ({number})" if number else "")


def names_of_hexagons(codes: Sequence[str]) -> dict[str, str]:
    """Returns the name of each H3 cell that has one; parts of cells and other codes have none."""
    plain = [code for code in codes if code not in (OUTSIDE, "all") and "." not in code]
    cells = [int(code, 16) for code in plain]
    centers = np.array([h3_int.cell_to_latlng(cell) for cell in cells]).reshape(-1, 2)
    area = [h3_int.cell_area(cell) for cell in cells]
    columns = {"zone": plain, "lat": centers[:, 0], "lon": centers[:, 1], "area_km2": area}
    types = {
        "zone": pa.string(),
        "lat": pa.float64(),
        "lon": pa.float64(),
        "area_km2": pa.float64(),
    }
    return names_by_code(pa.table(columns, schema=pa.schema(list(types.items()))))


def names_by_code(zones: pa.Table) -> dict[str, str]:
    """Returns the name of each zone that has one; a zone listed for both ends has one name."""
    return {
        code: name
        for code, name in zip(zones["zone"].to_pylist(), zone_names(zones), strict=True)
        if name
    }
