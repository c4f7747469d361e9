"""The people of a survey: who takes part, what they weigh, and the places each keeps going to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from flowveil.hierarchy import Floats
from flowveil.sources.synthetic.region import (
    DEPARTMENTS,
    JOBS,
    PLACE_DEPARTMENT,
    PLACE_X,
    PLACE_Y,
    PLACES,
    RESIDENTS,
    SPREAD,
    STUDENTS,
    VILLAGERS,
    Numbers,
    around,
    attracted,
    keep_inside,
    snap,
    snap_local,
)

#: People drawn from one random stream. Changing it changes every row.
BLOCK_PEOPLE: Final = 1_000
SEXES: Final = ("female", "male")
AGES: Final = ("16-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70-80")
PROFESSIONS: Final = (
    "1 crafts and trade",
    "2 executives",
    "3 intermediate professions",
    "4 employees",
    "5 workers",
    "6 retirees",
    "7 students",
    "8 other inactive",
)
_EXECUTIVES, STUDENT = 1, 6
WORKING = np.array([True, True, True, True, True, False, False, False])

_PROFESSION_SHARE = np.array([0.035, 0.20, 0.18, 0.185, 0.10, 0.145, 0.09, 0.065])
#: How much commoner executives are in a department than in the region; workers and employees are rarer there.
_EXECUTIVE_TILT = np.array([1.55, 1.40, 0.50, 0.90, 0.65, 1.10, 0.95, 0.75])
_AGE_SHARE = np.array(
    [
        [0.000, 0.08, 0.22, 0.28, 0.28, 0.120, 0.02],
        [0.000, 0.16, 0.29, 0.27, 0.22, 0.060, 0.00],
        [0.005, 0.22, 0.27, 0.25, 0.21, 0.045, 0.00],
        [0.015, 0.20, 0.23, 0.23, 0.26, 0.065, 0.00],
        [0.020, 0.20, 0.24, 0.25, 0.24, 0.050, 0.00],
        [0.000, 0.00, 0.00, 0.00, 0.03, 0.470, 0.50],
        [0.420, 0.56, 0.02, 0.00, 0.00, 0.000, 0.00],
        [0.060, 0.20, 0.20, 0.18, 0.22, 0.120, 0.02],
    ]
)
_FEMALE_SHARE = np.array([0.30, 0.43, 0.53, 0.75, 0.20, 0.53, 0.52, 0.62])
#: How readily each group takes part, relative to the others. A weight is the inverse: who is rare in the
#: survey represents many.
_TAKES_PART = {
    "department": np.array([1.55, 1.20, 0.65, 1.00, 0.80, 0.95, 0.95, 0.70]),
    "profession": np.array([1.10, 1.45, 0.95, 0.70, 0.50, 0.90, 1.15, 1.00]),
    "age": np.array([0.55, 1.15, 1.05, 1.00, 1.00, 1.05, 0.80]),
    "sex": np.array([1.10, 0.90]),
}
#: What else decides a weight (cars, household, diploma), as the standard deviation of its logarithm.
_OTHER_WEIGHTING = 0.45


@dataclass(frozen=True, eq=False)
class People:
    """One block of people: group numbers, weight, and plane coordinates of the places each keeps going to."""

    sex: Numbers
    age: Numbers
    profession: Numbers
    weight: Floats  # relative: the mean over many people is 1
    x: Floats  # people by `HABITS`
    y: Floats


@lru_cache(maxsize=1)
def _population() -> tuple[Floats, Floats]:
    """Running chance of each group (department, profession, age, sex) among participants, and its weight."""
    department = np.bincount(PLACE_DEPARTMENT, RESIDENTS)
    tilt = np.ones((len(DEPARTMENTS), len(PROFESSIONS)))
    tilt[:, _EXECUTIVES] = _EXECUTIVE_TILT
    tilt[:, 3] = tilt[:, 4] = 1 / _EXECUTIVE_TILT
    profession = _PROFESSION_SHARE * tilt
    profession /= profession.sum(axis=1, keepdims=True)
    sex = np.stack([_FEMALE_SHARE, 1 - _FEMALE_SHARE], axis=1)
    share = (department / department.sum())[:, None, None, None] * profession[:, :, None, None]
    share = share * _AGE_SHARE[None, :, :, None] * sex[None, :, None, :]
    takes_part = np.einsum("d,p,a,s->dpas", *_TAKES_PART.values())
    participants = (share * takes_part).ravel()
    return np.cumsum(participants / participants.sum()), participants.sum() / takes_part.ravel()


# The places a person keeps going to; `NEW` is a place visited once.
HABITS = 9
HOME, MAIN, SHOP, SHOP_2, WAY, LUNCH, LUNCH_2, LEISURE, LEISURE_2, NEW = range(HABITS + 1)


def draw_people(rng: np.random.Generator) -> People:
    """Returns one block of people."""
    cumulative, group_weight = _population()
    n = BLOCK_PEOPLE
    group = np.minimum(np.searchsorted(cumulative, rng.random(n), side="right"), len(cumulative) - 1)
    shape = (len(DEPARTMENTS), len(PROFESSIONS), len(AGES), len(SEXES))
    department, profession, age, sex = np.unravel_index(group, shape)
    noise = np.exp(_OTHER_WEIGHTING * rng.standard_normal(n) - _OTHER_WEIGHTING**2 / 2)
    x, y = np.empty((2, n, HABITS))
    home = x[:, HOME], y[:, HOME] = _draw_homes(rng, department)
    main = x[:, MAIN], y[:, MAIN] = _draw_main(rng, *home, profession, age)
    along = rng.random(n)
    way = home[0] + along * (main[0] - home[0]), home[1] + along * (main[1] - home[1])
    centre = attracted(rng, *home, RESIDENTS / 2 + JOBS, 5.0)
    downtown = _scatter_in_place(rng, centre, 0.7)
    sites = {
        SHOP: around(rng, *home, 0.55, 0.6),
        SHOP_2: around(rng, *home, 1.6, 0.8),
        WAY: around(rng, *way, 0.4, 0.6),
        LUNCH: around(rng, *main, 0.25, 0.5),
        LUNCH_2: around(rng, *main, 0.45, 0.6),
        LEISURE: downtown,
        LEISURE_2: around(rng, *home, 2.2, 0.9),
    }
    for habit, point in sites.items():
        x[:, habit], y[:, habit] = snap_local(*keep_inside(*point), salt=1)
    return People(sex, age, profession, group_weight[group] * noise, x, y)


def _scatter_in_place(rng: np.random.Generator, place: Numbers, share: float) -> tuple[Floats, Floats]:
    """Points spread over places like their residents, or closer to the middle."""
    east, north = rng.standard_normal((2, len(place))) * share * SPREAD[place]
    return PLACE_X[place] + east, PLACE_Y[place] + north


def _draw_homes(rng: np.random.Generator, department: Numbers) -> tuple[Floats, Floats]:
    # Places stand department by department, so a place is one look-up in the running sum of residents.
    cumulative = np.cumsum(RESIDENTS)
    mass = np.bincount(PLACE_DEPARTMENT, RESIDENTS)
    before = np.cumsum(mass) - mass
    wanted = before[department] + rng.random(len(department)) * mass[department]
    place = np.minimum(np.searchsorted(cumulative, wanted, side="right"), len(PLACES) - 1)
    town = _scatter_in_place(rng, place, 1.15)
    # Villages lie around small towns as much as around large ones.
    number = np.bincount(PLACE_DEPARTMENT)
    nearest = (np.cumsum(number) - number)[department] + rng.integers(0, number[department])
    village = around(rng, PLACE_X[nearest], PLACE_Y[nearest], 7.0, 0.5)
    village = snap(*keep_inside(*village), step=2.8, salt=2)
    village = around(rng, *village, 0.3, 0.5)
    rural = rng.random(len(department)) < VILLAGERS[department]
    return keep_inside(np.where(rural, village[0], town[0]), np.where(rural, village[1], town[1]))


def _draw_main(
    rng: np.random.Generator, x: Floats, y: Floats, profession: Numbers, age: Numbers
) -> tuple[Floats, Floats]:
    """Returns the workplace, the school, or (for people with neither) the place of a regular outing."""
    executive, student = profession == _EXECUTIVES, profession == STUDENT
    # Office jobs are more concentrated than jobs, and people travel farther for them.
    attraction = np.where(executive[:, None], JOBS**1.25 / 3, np.where(student[:, None], STUDENTS, JOBS))
    decay = np.select([executive, student], [11.0, 14.0], 7.0)
    place = attracted(rng, x, y, attraction, decay)
    site = snap(*keep_inside(*_scatter_in_place(rng, place, 0.6)), step=0.22, salt=3)
    campus = snap(PLACE_X[place], PLACE_Y[place], step=0.22, salt=4)
    nearby = snap_local(*keep_inside(*around(rng, x, y, 1.8, 0.9)), salt=5)
    lycee = snap(*keep_inside(*around(rng, x, y, 1.5, 0.6)), step=1.8, salt=6)
    local = np.where(WORKING[profession], rng.random(len(x)) < 0.22, ~student)
    cases = [student & (age == 0), student, local]
    return (
        np.select(cases, [lycee[0], campus[0], nearby[0]], site[0]),
        np.select(cases, [lycee[1], campus[1], nearby[1]], site[1]),
    )
