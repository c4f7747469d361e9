"""How long it takes to find points in the polygons of a map.

A million points in 4,000 polygons of two hundred corners each, as census tracts have. The floor is
the search in the tree of bounding boxes alone, which is unavoidable; a spatial join of geopandas
does the same work and is run for comparison. The program prints the time of `zones_at` divided by
each, all measured in turn in the same run.

    python -m benchmarks zones
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from flowveil.zoning.geometry import zones_at

SIDE = 63
#: Corners that each straight side of a square is divided into, moved alike on both sides of a
#: border.
CORNERS = 50


def tracts(side: int = SIDE) -> NDArray[Any]:
    """Squares with winding borders that neighbours share."""
    step = np.linspace(0, 1, CORNERS, endpoint=False)
    out = np.empty(side * side, dtype=object)
    for i in range(side * side):
        x, y = i % side, i // side
        ring = np.concatenate(
            (
                np.column_stack((x + step, np.full(CORNERS, float(y)))),
                np.column_stack((np.full(CORNERS, x + 1.0), y + step)),
                np.column_stack((x + 1 - step, np.full(CORNERS, y + 1.0))),
                np.column_stack((np.full(CORNERS, float(x)), y + 1 - step)),
            )
        )
        bent = ring + 0.05 * np.sin(7 * ring[:, ::-1] + ring)
        out[i] = shapely.polygons(np.array([2.0, 48.5]) + bent / side)
    return out


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args(words)
    outlines = tracts()
    codes = np.array([f"{i:04d}" for i in range(len(outlines))])
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(2, 3, options.points), rng.uniform(48.5, 49.5, options.points)
    for _ in range(options.repeat):
        floor, _found = seconds(lambda: shapely.STRtree(outlines).query(shapely.points(lon, lat)))
        ours, zone = seconds(lambda: zones_at(outlines, codes, lat, lon))
        line = (
            f"{len(zone):,} points in {len(outlines):,} polygons: {ours:.1f} s, {ours / floor:.1f}"
            " times the floor"
        )
        try:
            import geopandas

            theirs, joined = seconds(
                lambda: (
                    geopandas.GeoSeries(shapely.points(lon, lat))
                    .to_frame("geometry")
                    .sjoin(geopandas.GeoSeries(outlines).to_frame("geometry"), how="left")
                )
            )
            right = joined["index_right"].groupby(level=0).min().fillna(-1).to_numpy()
            if not np.array_equal(right, zone):
                raise SystemExit("a spatial join finds other zones")
            line += f", {ours / theirs:.2f} times geopandas' sjoin ({theirs:.1f} s)"
        except ImportError:
            pass
        print(line, flush=True)


if __name__ == "__main__":
    main()
