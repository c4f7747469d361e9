"""Orientation without the internet: the part of a small world around the zones, and the nearest town."""

from __future__ import annotations

import numpy as np

from flowveil.published.basemap_context import MAX_CORNERS, MAX_TOWNS, context_of, nearest_places, world
from flowveil.published.maps import Frame

BAY = np.array([[-122.6, 37.6, -122.1, 37.95]])


def test_zones_are_called_by_the_nearest_town() -> None:
    lat, lon = np.array([37.8044, 37.83, -50.0, np.nan]), np.array([-122.2708, -122.25, -140.0, 0.0])
    said = nearest_places(lat, lon, np.full(4, 0.1))
    assert said[0] == "around Oakland"
    assert said[1] is not None
    assert "km" in said[1]
    # In the middle of an ocean no town helps, and what has no place has none.
    assert said[2:] == [None, None]
    # A large zone around a town is not beside it.
    assert nearest_places(np.array([37.82]), np.array([-122.27]), np.array([50.0])) == ["around Oakland"]


def test_directions_are_seen_from_the_town() -> None:
    here = world()
    at = here.names.index("Ulan Bator")
    around = [(0.2, 0), (0, 0.3), (-0.2, 0), (0, -0.3)]
    lat, lon = (here.lat[at] + np.array([a for a, _ in around]), here.lon[at] + np.array([b for _, b in around]))
    said = [place for place in nearest_places(lat, lon, np.zeros(4)) if place and place.endswith("of Ulan Bator")]
    directions = ["north", "east", "south", "west"]
    assert len(said) >= 2
    assert [d for d in directions if any(f"km {d} of" in place for place in said)]


def test_a_page_holds_the_part_in_view() -> None:
    frame = Frame.around(BAY)
    context = context_of(BAY[0], frame)
    assert context is not None
    names = [name for name, _, _ in context["towns"]]
    assert {"San Francisco", "Oakland"} <= set(names)
    assert "Paris" not in names
    assert len(names) <= MAX_TOWNS
    corners = sum(len(line) // 2 for line in context["lines"])
    assert 0 < corners <= MAX_CORNERS
    assert "CC BY 4.0" in context["credit"]
    everywhere = np.array([[-100.0, -60.0, 70.0, 70.0]])
    whole = context_of(everywhere[0], Frame.around(everywhere))
    assert whole is not None
    assert sum(len(line) // 2 for line in whole["lines"]) <= MAX_CORNERS
