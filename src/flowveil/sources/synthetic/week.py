"""The week of the people of a survey: chains of trips between their places, with times."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.hierarchy import Floats
from flowveil.sources.synthetic.people import (
    AGES,
    BLOCK_PEOPLE,
    HABITS,
    HOME,
    MAIN,
    NEW,
    PROFESSIONS,
    SEXES,
    SHOP,
    STUDENT,
    WORKING,
    People,
    draw_people,
)
from flowveil.sources.synthetic.region import Numbers, around, keep_inside, latitude, longitude

#: Inhabitants aged 16 to 80 that the survey represents, whatever its size.
POPULATION: Final = 9_001_164
#: A Monday with no holiday in the week that follows.
FIRST_DAY: Final = np.datetime64("2022-11-14", "us")

SCHEMA: Final = pa.schema(
    [
        ("person_id", pa.string()),
        ("sex", pa.string()),
        ("age", pa.string()),
        ("profession", pa.string()),
        ("weight", pa.float64()),
        ("start_time", pa.timestamp("us")),
        ("end_time", pa.timestamp("us")),
        ("start_lat", pa.float64()),
        ("start_lon", pa.float64()),
        ("end_lat", pa.float64()),
        ("end_lon", pa.float64()),
    ]
)

_DAYS = 7
# A day is a row of stops, each made or not; "home" is always made and counts as no trip for who is there.
_SLOTS = 9
_ERRAND_OUT, _AT_MAIN, _MIDDAY, _MAIN_AGAIN, _ERRAND_BACK = range(5)
_HOME_AGAIN, _OUTING, _OUTING_2, _NIGHT = range(5, _SLOTS)
_OPTIONAL = (_ERRAND_OUT, _AT_MAIN, _MIDDAY, _ERRAND_BACK, _OUTING, _OUTING_2)

#: Chance of each optional stop, for those who work, study, or do neither; on weekdays and at weekends.
_STOP_CHANCE = np.array(
    [
        [[0.20, 0.74, 0.24, 0.30, 0.26, 0.24], [0.30, 0.08, 0.20, 0.25, 0.50, 0.30]],
        [[0.10, 0.74, 0.40, 0.25, 0.28, 0.25], [0.20, 0.08, 0.20, 0.20, 0.50, 0.30]],
        [[0.35, 0.40, 0.10, 0.30, 0.42, 0.28], [0.28, 0.22, 0.10, 0.20, 0.42, 0.25]],
    ]
)
#: Where an optional stop is: chance of each place from `SHOP` to `NEW`. `_AT_MAIN` has a dedicated place.
_STOP_PLACE = np.array(
    [
        [0.25, 0.10, 0.36, 0.00, 0.00, 0.00, 0.05, 0.24],
        [0.00, 0.00, 0.00, 0.00, 0.00, 0.00, 0.00, 1.00],
        [0.00, 0.00, 0.00, 0.48, 0.26, 0.00, 0.00, 0.26],
        [0.22, 0.13, 0.17, 0.00, 0.00, 0.05, 0.04, 0.39],
        [0.14, 0.10, 0.00, 0.00, 0.00, 0.18, 0.14, 0.44],
        [0.13, 0.10, 0.00, 0.00, 0.00, 0.10, 0.10, 0.57],
    ]
)
#: No usual time: people leave when they have stayed long enough.
_ANY = -np.inf
#: Usual time of leaving for each stop, in minutes of the day; people and days as for `_STOP_CHANCE`.
_LEAVE = np.array(
    [
        [
            [470, 480, 735, _ANY, 1055, 1065, 1165, _ANY, _ANY],
            [620, 640, 745, _ANY, 715, 725, 970, _ANY, _ANY],
        ],
        [
            [475, 480, 735, _ANY, 985, 1000, 1135, _ANY, _ANY],
            [660, 670, 760, _ANY, 750, 760, 950, _ANY, _ANY],
        ],
        [
            [575, 590, 735, _ANY, 660, 675, 910, _ANY, _ANY],
            [610, 625, 745, _ANY, 700, 715, 925, _ANY, _ANY],
        ],
    ],
    dtype=np.float64,
)
_LEAVE_SPREAD = np.array([45.0, 45.0, 28.0, 0.0, 65.0, 65.0, 85.0, 0.0, 0.0])
#: Median stay in minutes after each stop, where no usual time of leaving requires more.
_STAY = np.array([9.0, 60.0, 42.0, 60.0, 18.0, 35.0, 65.0, 55.0, 300.0])


def _person_type(people: People) -> Numbers:
    return np.select([WORKING[people.profession], people.profession == STUDENT], [0, 1], 2)


def _draw_stops(rng: np.random.Generator, person_type: Numbers, intensity: float) -> Numbers:
    """Returns the place of every stop of the week, people by (home, then 7 days of slots); -1 where no stop is made.

    The draws do not depend on ``intensity``, which raises or lowers the odds of all optional stops: more of
    it only adds stops.
    """
    n = len(person_type)
    weekend = (np.arange(_DAYS) >= 5).astype(np.int64)
    chance = _STOP_CHANCE[person_type[:, None], weekend]
    # Some people are out a lot, some hardly. Everybody has one outing: who never moves is in no trip table.
    odds = intensity * chance / (1 - chance) * np.exp(0.45 * rng.standard_normal(n))[:, None, None]
    made = rng.random((n, _DAYS, len(_OPTIONAL))) < odds / (1 + odds)
    made[np.arange(n), rng.integers(0, _DAYS, n), 4] = True
    made[..., 2] &= made[..., 1]
    made[..., 5] &= made[..., 4]
    where = rng.random((n, _DAYS, len(_OPTIONAL), 1))
    place = SHOP + (where > np.cumsum(_STOP_PLACE, axis=1)[:, :-1]).sum(axis=-1)
    place[..., 1] = MAIN
    week = np.full((n, _DAYS, _SLOTS), -1)
    week[..., _OPTIONAL] = np.where(made, place, -1)
    week[..., _MAIN_AGAIN] = np.where(made[..., 2], MAIN, -1)
    week[..., (_HOME_AGAIN, _NIGHT)] = HOME
    return np.concatenate([np.full((n, 1), HOME), week.reshape(n, -1)], axis=1)


def _find_trips(stops: Numbers) -> tuple[NDArray[np.bool_], Numbers]:
    """Returns which stops are reached by a trip, and from which stop: the last one made before."""
    made = stops >= 0
    position = np.where(made, np.arange(stops.shape[1]), 0)
    last = np.maximum.accumulate(position, axis=1)
    origin = np.concatenate([np.zeros((len(stops), 1), np.int64), last[:, :-1]], axis=1)
    came_from = np.take_along_axis(stops, origin, axis=1)
    moved = made & ((stops != came_from) | (stops == NEW))
    moved[:, 0] = False
    return moved, origin


@lru_cache(maxsize=16)
def find_intensity(trips_per_person: float) -> float:
    """Returns the intensity at which people make this many trips on average, by bisection on a pilot survey."""
    pilot = [draw_people(np.random.default_rng((20_221_114, block))) for block in range(2)]
    person_type = np.concatenate([_person_type(people) for people in pilot])
    low, high = np.log(1e-3), np.log(1e3)
    for _ in range(12):
        middle = (low + high) / 2
        stops = _draw_stops(np.random.default_rng(20_221_120), person_type, float(np.exp(middle)))
        trips = _find_trips(stops)[0].sum() / len(person_type)
        low, high = (middle, high) if trips < trips_per_person else (low, middle)
    return float(np.exp((low + high) / 2))


def _draw_new_places(rng: np.random.Generator, people: People, stops: Numbers, x: Floats, y: Floats) -> None:
    """Put in the places visited once: near the main place at midday, else around home, sometimes far."""
    person, stop = np.nonzero(stops == NEW)
    near_main = (stop - 1) % _SLOTS == _MIDDAY
    anchor = np.where(near_main, MAIN, HOME)
    centre = people.x[person, anchor], people.y[person, anchor]
    point = around(rng, *centre, np.where(near_main, 0.4, 2.6), np.where(near_main, 0.6, 1.15))
    x[person, stop], y[person, stop] = keep_inside(*point)


def _draw_times(
    rng: np.random.Generator, person_type: Numbers, moved: NDArray[np.bool_], distance: Floats
) -> tuple[Floats, Floats]:
    """Minutes since Monday 0:00 at which people leave for each stop and reach it; they never run back."""
    n, n_stops = moved.shape
    weekend = (np.arange(_DAYS) >= 5).astype(np.int64)
    # Stops of one round share the deviation from the usual time, or people would wait hours at the baker's.
    deviation = np.clip(rng.standard_normal((n, _DAYS, 3)), -2.5, 2.5)[..., [0, 0, 1, 1, 2, 2, 2, 2, 2]]
    habit = np.clip(rng.standard_normal((n, 1, 1)), -2.0, 2.0)
    usual = _LEAVE[person_type[:, None], weekend] + 1440.0 * np.arange(_DAYS)[:, None]
    usual = (usual + _LEAVE_SPREAD * (0.7 * deviation + 0.7 * habit)).reshape(n, -1)
    stay = np.tile(_STAY, _DAYS) * np.exp(0.4 * rng.standard_normal((n, _DAYS * _SLOTS)))
    # Short trips are walked, long ones are ridden: speed grows with distance (km/h), detours add a third.
    speed = 4.5 + 45.0 * distance / (distance + 12.0)
    travel = (3.0 + 60.0 * 1.33 * distance / speed) * np.exp(0.2 * rng.standard_normal((n, n_stops)))
    left, reached = np.zeros((n, n_stops)), np.zeros((n, n_stops))
    free = np.zeros(n)
    for stop in range(1, n_stops):
        leave = np.maximum(usual[:, stop - 1], free)
        left[:, stop] = leave
        reached[:, stop] = leave + travel[:, stop]
        free = np.where(moved[:, stop], reached[:, stop] + stay[:, stop - 1], free)
    return left, reached


#: Standard deviation of a position fix along each axis, in kilometres.
_GPS_SCATTER_KM = 0.035


def draw_block(block: int, people: int, intensity: float, seed: int, id_width: int) -> pa.Table:
    """Returns the trips of one block, ordered by person and time."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block,)))
    drawn = draw_people(rng)
    person_type = _person_type(drawn)
    stops = _draw_stops(rng, person_type, intensity)
    habit = np.where((stops >= 0) & (stops < HABITS), stops, HOME)
    x, y = np.take_along_axis(drawn.x, habit, axis=1), np.take_along_axis(drawn.y, habit, axis=1)
    _draw_new_places(rng, drawn, stops, x, y)
    moved, origin = _find_trips(stops)
    from_x, from_y = np.take_along_axis(x, origin, axis=1), np.take_along_axis(y, origin, axis=1)
    left, reached = _draw_times(rng, person_type, moved, np.hypot(x - from_x, y - from_y))
    first = block * BLOCK_PEOPLE
    # A block is always drawn whole: a smaller survey is the beginning of a larger one.
    moved[max(0, people - first) :] = False
    person = np.nonzero(moved)[0]
    scatter = _GPS_SCATTER_KM * rng.standard_normal((4, int(moved.size)))[:, moved.ravel()]
    columns = {
        "person_id": _person_ids(first + person, id_width),
        "sex": _texts(SEXES, drawn.sex[person]),
        "age": _texts(AGES, drawn.age[person]),
        "profession": _texts(PROFESSIONS, drawn.profession[person]),
        "weight": np.round(drawn.weight * (POPULATION / people), 4)[person],
        "start_time": FIRST_DAY + _whole_seconds(left[moved]),
        "end_time": FIRST_DAY + _whole_seconds(reached[moved]),
        "start_lat": latitude(from_y[moved] + scatter[0]),
        "start_lon": longitude(from_x[moved] + scatter[1]),
        "end_lat": latitude(y[moved] + scatter[2]),
        "end_lon": longitude(x[moved] + scatter[3]),
    }
    return pa.table(columns, schema=SCHEMA)


def _person_ids(number: Numbers, width: int) -> pa.Array:
    digits = pc.utf8_lpad(pc.cast(pa.array(number), pa.string()), width=width, padding="0")
    return pc.binary_join_element_wise("p", digits, "")


def _texts(labels: tuple[str, ...], number: Numbers) -> pa.Array:
    return pa.array(labels, pa.string()).take(pa.array(number))


def _whole_seconds(minutes: Floats) -> NDArray[np.timedelta64]:
    return np.rint(minutes * 60.0).astype("timedelta64[s]").astype("timedelta64[us]")
