"""Points become cells in whole columns, and become those that h3 says, wherever they are."""

from __future__ import annotations

import h3
import h3.api.basic_int as h3_int
import numpy as np
import pytest
from numpy.typing import NDArray

from flowveil.zoning.points import _learnt, index_one_by_one, index_points

Points = tuple[NDArray[np.float64], NDArray[np.float64]]


def over_the_globe(n: int) -> Points:
    rng = np.random.default_rng(17)
    return np.degrees(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(-180, 180, n)


def on_borders(resolution: int) -> Points:
    """Corners and centres of cells, pentagons among them; the poles; the middle of faces."""
    cells = [
        *index_one_by_one(*over_the_globe(900), resolution).tolist(),
        *h3_int.get_pentagons(resolution),
    ]
    corners = [corner for cell in cells for corner in h3_int.cell_to_boundary(cell)]
    lat, lon = np.array(
        [*corners, *map(h3_int.cell_to_latlng, cells), (90, 0), (-90, 0), (0, 180), (0, -180)]
    ).T
    return lat, lon


@pytest.mark.parametrize("resolution", [0, 1, 5, 9, 10, 15])
def test_every_point_is_in_the_cell_that_h3_says(resolution: int) -> None:
    for lat, lon in (over_the_globe(20_000), on_borders(resolution)):
        assert len(lat) > 5_000
        assert np.array_equal(
            index_points(lat, lon, resolution), index_one_by_one(lat, lon, resolution)
        )


def test_all_but_pentagons_is_learnt_and_found_without_h3(monkeypatch: pytest.MonkeyPatch) -> None:
    lat, lon = over_the_globe(20_000)
    expected = index_one_by_one(lat, lon, 9)
    asked = 0

    def counted(
        lat: NDArray[np.float64], lon: NDArray[np.float64], resolution: int
    ) -> NDArray[np.uint64]:
        nonlocal asked
        asked += len(lat)
        return index_one_by_one(lat, lon, resolution)

    _learnt()
    monkeypatch.setattr("flowveil.zoning.points.index_one_by_one", counted)
    assert np.array_equal(index_points(lat, lon, 9), expected)
    below_pentagons = np.isin(
        (expected >> np.uint64(45)) & np.uint64(0x7F),
        [c >> 45 & 0x7F for c in h3_int.get_pentagons(0)],
    )
    assert np.count_nonzero(below_pentagons) <= asked <= np.count_nonzero(below_pentagons) + 20


def test_an_invalid_coordinate_is_refused_as_by_h3() -> None:
    lat, lon = over_the_globe(6_000)
    lat[5_500] = np.nan
    with pytest.raises(h3.H3LatLngDomainError):
        index_points(lat, lon, 9)
