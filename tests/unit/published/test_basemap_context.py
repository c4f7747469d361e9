"""Orientation without the internet: the part of a small world around the zones, and the nearest
town."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

from flowveil.published.basemap_context import (
    MAX_CORNERS,
    MAX_TOWNS,
    area_name,
    context_of,
    nearest_towns,
    world,
)


def names_of(lat: np.ndarray, lon: np.ndarray, area_km2: np.ndarray) -> list[str | None]:
    """Names as the page writes them: "2.1 km north-east of Oakland"; None if no town is near."""
    towns = nearest_towns(lat, lon, area_km2)
    said: list[str | None] = []
    for word, km, n in zip(
        towns.word.tolist(), towns.km.tolist(), towns.number.tolist(), strict=True
    ):
        far = "" if km != km else f"{km:.1f} km " if km < 10 else f"{km:.0f} km "
        said.append(None if word < 0 else far + towns.words[word] + (f" ({n})" if n else ""))
    return said


BAY = np.array([-122.6, 37.6, -122.1, 37.95])


def test_zones_are_called_by_the_nearest_town() -> None:
    lat, lon = (
        np.array([37.8044, 37.83, -50.0, np.nan]),
        np.array([-122.2708, -122.25, -140.0, 0.0]),
    )
    said = names_of(lat, lon, np.full(4, 0.1))
    assert said[0] == "around Oakland"
    assert said[1] is not None
    assert "km" in said[1]
    # In the middle of an ocean no town helps, and what has no place has none.
    assert said[2:] == [None, None]
    # A large zone that contains a town is not named as near it.
    assert names_of(np.array([37.806]), np.array([-122.272]), np.array([50.0])) == [
        "around Oakland"
    ]


def test_directions_are_seen_from_the_town() -> None:
    here = world()
    at = here.names.index("Ulan Bator")
    around = [(0.2, 0), (0, 0.3), (-0.2, 0), (0, -0.3)]
    lat, lon = (
        here.lat[at] + np.array([a for a, _ in around]),
        here.lon[at] + np.array([b for _, b in around]),
    )
    said = [
        place
        for place in names_of(lat, lon, np.zeros(4))
        if place and place.endswith("of Ulan Bator")
    ]
    directions = ["north", "east", "south", "west"]
    assert len(said) >= 2
    assert [d for d in directions if any(f"km {d} of" in place for place in said)]


def test_a_page_holds_the_part_around_its_zones() -> None:
    context, here = context_of(BAY), world()
    names = [here.names[i] for i in context.towns]
    assert names[:3] == ["San Jose", "San Francisco", "Oakland"]
    assert "Paris" not in names
    assert len(names) <= MAX_TOWNS
    # Oakland is dry, the ocean is not.
    water = shapely.union_all(context.water)
    assert not water.contains(shapely.Point(-122.27, 37.80))
    assert water.contains(shapely.Point(-122.65, 37.70))
    whole = context_of(np.array([-10.0, 35.0, 30.0, 60.0]))
    assert shapely.get_num_coordinates(whole.lines["rivers"]).sum() > 0
    for shapes in (context.water, whole.water, *whole.lines.values()):
        assert shapely.get_num_coordinates(shapes).sum() <= MAX_CORNERS


@pytest.mark.slow
def test_the_whole_globe_has_surroundings() -> None:
    found = context_of(np.array([-180.0, -90.0, 180.0, 90.0]))
    assert len(found.towns) == MAX_TOWNS
    assert all(
        0 < shapely.get_num_coordinates(lines).sum() <= MAX_CORNERS
        for lines in found.lines.values()
    )


def test_an_area_is_named_after_its_town_or_its_country() -> None:
    rng = np.random.default_rng(1)
    spread = rng.normal(0, 0.03, (2, 200))
    assert area_name(-33.45 + spread[0], -70.65 + spread[1], np.ones(200)) == "Santiago, Chile"
    assert area_name(46.5 + 30 * spread[0], 2.5 + 30 * spread[1], np.ones(200)) == "France"
    assert area_name(np.array([np.nan]), np.array([np.nan]), np.ones(1)) is None
    # The middle of an ocean has no name.
    assert area_name(np.array([-50.0]), np.array([-140.0]), np.ones(1)) is None


def test_places_that_would_share_a_name_are_numbered() -> None:
    lat, lon = (
        np.array([37.70, 37.70, 37.60, 37.70]),
        np.array([-122.27, -122.2701, -122.27, -122.2701]),
    )
    names = names_of(lat, lon, np.array([0.1, 0.3, 0.1, 0.2]))
    assert len(set(names)) == 4
    assert [name[-4:] for name in (names[1], names[3], names[0]) if name] == [
        " (1)",
        " (2)",
        " (3)",
    ]
