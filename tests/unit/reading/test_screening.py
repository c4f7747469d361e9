from __future__ import annotations

import h3.api.basic_int as h3_int
import numpy as np

from flowveil.reading import Reading
from flowveil.reading.screening import Batch, Screening
from flowveil.reading.tiling import H3Tiling
from flowveil.zoning.h3 import is_cell

CELL = 0x8A1FB46622DFFFF


def test_numbers_are_cells_as_h3_says() -> None:
    cells = [CELL, 0, 1, 2**64 - 1, CELL, CELL - 1, *h3_int.get_pentagons(3)]
    assert is_cell(np.array(cells, dtype=np.uint64)).tolist() == [
        h3_int.is_valid_cell(c) for c in cells
    ]


def test_each_row_is_counted_under_one_reason_the_first_that_fits() -> None:
    nan = float("nan")
    rows = np.array(
        # o_lat, o_lon, d_lat, d_lon, trips, weight
        [
            (nan, 200, 0, 0, 0, nan),  # no trips, and everything else
            (nan, 200, 0, 0, nan, nan),  # missing end
            (91, 2, 0, 0, nan, nan),  # off the earth
            (48, 2, 0, 0, nan, nan),  # at 0,0
            (48, 2, 48, 2, nan, nan),  # missing count
            (48, 2, 48, 2, 1, nan),  # missing weight
            (48, 2, 48, 2, 3, 0.5),
            (48, 2, float("-inf"), 2, 3, 0.5),  # off the earth
            (0, 2, 48, 0, 3, 0.5),  # on the equator is not at 0,0
        ]
    ).T
    screening = Screening(Reading(resolution=5, max_dropped=1.0), H3Tiling(5))
    kept = screening.pass_batch(
        Batch(points=tuple(rows[:4]), trips=rows[4], added={"weight": rows[5]})
    )
    intake = screening.finish(label="it", nobody={})
    assert kept.rows.tolist() == [6, 8]
    assert kept.trips.tolist() == [3, 3]
    assert kept.added["weight"].tolist() == [500_000, 500_000]
    assert intake.left_out == {
        "no trips": 1,
        "missing end": 1,
        "off the earth": 2,
        "at 0,0": 1,
        "missing count": 1,
        "missing weight": 1,
    }
