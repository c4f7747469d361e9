"""Random flows between tiles that lie somewhere on the map, with many tiles on the same line."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import shapely
from hypothesis import strategies as st

from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.core.hierarchy import Hierarchy
from samples.strategies import generators, weights_of


@dataclass(frozen=True, eq=False)
class Squares:
    """A star of square tiles, one kilometre wide; the position of the root does not matter."""

    lat: np.ndarray
    lon: np.ndarray

    def centers(self, nodes):
        lat, lon = np.append(self.lat.mean(), self.lat), np.append(self.lon.mean(), self.lon)
        return lat[nodes], lon[nodes]

    def areas_km2(self, nodes):
        return np.ones(len(nodes))

    def polygons(self, nodes):
        lat, lon = self.centers(nodes)
        return shapely.box(lon - 0.004, lat - 0.004, lon + 0.004, lat + 0.004)


def star(lat: np.ndarray, lon: np.ndarray) -> Hierarchy:
    """A root above tiles t000, t001, ... at these places."""
    names = np.array(["root", *(f"t{i:03d}" for i in range(len(lat)))])
    tree, _ = Hierarchy.from_parents([-1] + [0] * len(lat), names)
    return replace(tree, geography=Squares(np.asarray(lat, float), np.asarray(lon, float)))


@st.composite
def stars(draw, max_tiles: int = 10) -> Hierarchy:
    n = draw(st.integers(1, max_tiles))
    middle_lat = draw(st.sampled_from([-33.4, 0.0, 48.85]))
    middle_lon = draw(st.sampled_from([-70.6, 0.0, 2.35, 179.99]))
    north, east = draw(generators).integers(0, 7, (2, n))
    lat, lon = middle_lat + 0.009 * north, middle_lon + 0.012 * east
    return star(lat, np.where(lon >= 180, lon - 360, lon))


@st.composite
def placed_flows(draw, *, max_tiles: int = 10, max_rows: int = 30) -> Flows:
    origins, destinations = draw(stars(max_tiles)), draw(stars(max_tiles))
    n, rng = draw(st.integers(1, max_rows)), draw(generators)
    trips = rng.integers(1, 7, n)
    return Flows.from_pairs(
        rng.integers(0, origins.n_tiles, n),
        rng.integers(0, destinations.n_tiles, n),
        trips,
        origins=origins,
        destinations=destinations,
        weight=weights_of(rng, n) * trips if draw(st.booleans()) else None,
        person=rng.integers(-1, 8, n) if draw(st.booleans()) else None,
    )


@st.composite
def placed_problems(draw, *, max_tiles: int = 10, max_rows: int = 30) -> tuple[Flows, Guarantee]:
    flows = draw(placed_flows(max_tiles=max_tiles, max_rows=max_rows))
    units = ["trips"]
    if flows.weight is not None and flows.weight.sum() > 0:
        units.append("population")
    if flows.people is not None:
        units.append("people")
    protect = draw(st.lists(st.sampled_from(units), min_size=1, unique=True))
    l = draw(st.sampled_from([None, None, None, 1, 2]))  # noqa: E741
    guarantee = Guarantee.resolve(flows, k=draw(st.integers(1, 8)), protect=protect, l=l)
    return guarantee.prepare(flows), guarantee
