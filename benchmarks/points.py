"""Points to H3 cells: the columns of `flowveil.zoning.points`, h3's own loop, and libraries that
take columns.

Processor time, which a busy machine changes little, and on how many points each differs from h3: on
points of the globe drawn at random, and on the corners of cells, where rounding decides. Libraries
are measured where they are installed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np

from flowveil.zoning.points import index_one_by_one, index_points

Indexing = Callable[[Any, Any, int], Any]
OWN, ONE_BY_ONE = "flowveil", "h3, one by one"


def ways() -> dict[str, Indexing]:
    known: dict[str, Indexing] = {ONE_BY_ONE: index_one_by_one, OWN: index_points}
    try:
        from h3ronpy.vector import coordinates_to_cells

        known["h3ronpy"] = lambda lat, lon, r: np.asarray(coordinates_to_cells(lat, lon, r))
    except ImportError:
        pass
    try:
        import polars
        import polars_h3

        cell = polars_h3.latlng_to_cell
        known["polars-h3"] = lambda lat, lon, r: (
            polars.DataFrame({"lat": lat, "lon": lon})
            .select(cell=cell("lat", "lon", r, return_dtype=polars.UInt64))["cell"]
            .to_numpy()
        )
    except ImportError:
        pass
    return known


def main(n: int = 2_000_000) -> None:
    rng = np.random.default_rng(0)
    near = 48.8 + rng.normal(0, 0.2, n), 2.3 + rng.normal(0, 0.3, n)
    globe = np.degrees(np.arcsin(rng.uniform(-1, 1, n // 5))), rng.uniform(-180, 180, n // 5)
    cells = index_one_by_one(globe[0][:3000], globe[1][:3000], 10).tolist()
    corners = np.array(
        [corner for cell in cells for corner in h3_int.cell_to_boundary(cell)]
    ).T.copy()
    print(
        f"{n:,} points around Paris timed; {len(globe[0]):,} of the globe and {len(corners[0]):,}"
        " corners compared"
    )
    truth = [index_one_by_one(*points, 10) for points in (globe, corners)]
    for name, index in ways().items():
        index(*near, 10)
        start = time.process_time()
        index(*near, 10)
        seconds = time.process_time() - start
        differ = [
            np.count_nonzero(index(*p, 10) != t)
            for p, t in zip((globe, corners), truth, strict=True)
        ]
        print(
            f"{name:16s} {1e9 * seconds / n:6.0f} ns a point, differs on {differ[0]:,} and"
            f" {differ[1]:,}",
            flush=True,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
