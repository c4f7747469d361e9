"""A synthetic mobility survey of Île-de-France, without real people.

For `flowveil demo`, tests and benchmarks.

docs/synthetic-survey.md describes it. Each block of `BLOCK_PEOPLE` people has its own random
stream, so the first people of a survey are those of a smaller one. Points are two rows: kilometres
east and north of Notre-Dame.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Numbers
from flowveil.core.errors import ParameterError
from flowveil.system.output import write_files

# ---- region: where people live, work and study ----


LAT0, LON0 = 48.8530, 2.3498
KM_PER_LAT = 111.20
KM_PER_LON = 111.32 * float(np.cos(np.radians(LAT0)))

#: How far the region reaches from Notre-Dame, in kilometres, at bearings 0, 15, 30, ... degrees
#: from north.
_REACH_KM = np.array(
    # N          NE           E            SE           S            SW           W            NW
    [
        33,
        31,
        32,
        37,
        52,
        66,
        78,
        84,
        88,
        84,
        80,
        78,
        74,
        62,
        58,
        52,
        52,
        54,
        53,
        54,
        60,
        60,
        50,
        40,
        33.0,
    ]
)

DEPARTMENTS = ("75", "92", "93", "94", "77", "78", "91", "95")
#: Share of each department's people who live in villages between the towns.
_VILLAGERS = np.array([0.0, 0.0, 0.0, 0.0, 0.30, 0.16, 0.14, 0.14])

#: Towns and quarters: department, latitude, longitude, then residents, jobs and students in
#: thousands (rough) and spread in kilometres. Departments stand together, in the order above.
PLACES = (
    ("75", 48.8600, 2.3480, 100, 195, 0, 0.8),  # Paris Centre
    ("75", 48.8445, 2.3497, 58, 50, 60, 0.7),
    ("75", 48.8490, 2.3329, 40, 45, 25, 0.6),
    ("75", 48.8561, 2.3122, 48, 75, 5, 0.8),
    ("75", 48.8727, 2.3125, 36, 185, 0, 0.8),
    ("75", 48.8771, 2.3375, 60, 120, 0, 0.6),
    ("75", 48.8760, 2.3610, 86, 80, 0, 0.7),
    ("75", 48.8590, 2.3800, 144, 75, 0, 0.8),
    ("75", 48.8396, 2.4000, 140, 110, 3, 1.0),
    ("75", 48.8300, 2.3628, 180, 120, 30, 1.0),
    ("75", 48.8290, 2.3267, 135, 75, 5, 0.9),
    ("75", 48.8402, 2.2935, 230, 140, 3, 1.1),
    ("75", 48.8610, 2.2720, 162, 105, 12, 1.0),
    ("75", 48.8873, 2.3068, 165, 105, 0, 0.9),
    ("75", 48.8915, 2.3460, 190, 60, 3, 0.9),
    ("75", 48.8850, 2.3848, 185, 65, 2, 0.9),
    ("75", 48.8630, 2.4010, 190, 50, 0, 0.9),
    ("92", 48.8920, 2.2380, 45, 180, 3, 0.6),  # La Défense
    ("92", 48.8340, 2.2480, 180, 160, 0, 1.4),  # Boulogne-Billancourt
    ("92", 48.8924, 2.2060, 95, 80, 30, 1.3),  # Nanterre
    ("92", 48.8900, 2.2790, 125, 110, 0, 0.9),  # Levallois, Neuilly
    ("92", 48.9200, 2.2700, 300, 110, 0, 2.0),  # Asnières, Colombes, Gennevilliers
    ("92", 48.8720, 2.1950, 130, 75, 0, 1.8),  # Rueil, Suresnes
    ("92", 48.8070, 2.2850, 220, 100, 0, 1.8),  # Montrouge, Clamart
    ("92", 48.8150, 2.2150, 120, 45, 0, 1.6),  # Meudon, Sèvres
    ("92", 48.7640, 2.2980, 150, 50, 5, 2.0),  # Antony, Sceaux
    ("93", 48.9362, 2.3574, 250, 150, 25, 1.8),  # Saint-Denis
    ("93", 48.9110, 2.3330, 80, 60, 0, 0.9),  # Saint-Ouen
    ("93", 48.9110, 2.3900, 200, 80, 0, 1.5),  # Aubervilliers, Pantin
    ("93", 48.8620, 2.4430, 170, 70, 0, 1.4),  # Montreuil
    ("93", 48.9080, 2.4450, 260, 80, 6, 1.9),  # Bobigny, Drancy
    ("93", 48.9400, 2.4980, 230, 60, 0, 2.2),  # Aulnay-sous-Bois
    ("93", 48.8950, 2.5300, 180, 35, 0, 2.0),  # Gagny, Livry-Gargan
    ("93", 48.8480, 2.5500, 130, 65, 0, 1.8),  # Noisy-le-Grand
    ("93", 48.8760, 2.4850, 90, 45, 0, 1.4),  # Rosny-sous-Bois
    ("93", 48.9550, 2.3250, 110, 25, 12, 1.2),  # Épinay, Villetaneuse
    ("94", 48.7900, 2.4550, 190, 110, 30, 1.8),  # Créteil
    ("94", 48.7970, 2.3930, 210, 95, 0, 1.6),  # Ivry, Vitry
    ("94", 48.8480, 2.4600, 170, 70, 0, 1.5),  # Vincennes, Fontenay
    ("94", 48.8100, 2.5000, 210, 55, 0, 1.9),  # Champigny, Saint-Maur
    ("94", 48.7930, 2.3530, 170, 70, 5, 1.5),  # Villejuif, Cachan
    ("94", 48.7450, 2.3650, 90, 110, 0, 1.7),  # Orly, Rungis
    ("94", 48.7400, 2.4700, 150, 40, 0, 2.2),  # Villeneuve-Saint-Georges
    ("77", 48.9600, 2.8850, 110, 40, 0, 2.2),  # Meaux
    ("77", 48.8800, 2.5950, 90, 22, 0, 1.8),  # Chelles
    ("77", 48.8450, 2.6350, 150, 80, 15, 2.4),  # Marne-la-Vallée
    ("77", 48.8550, 2.7800, 60, 50, 2, 1.8),  # Val d'Europe
    ("77", 48.8720, 2.7100, 70, 20, 0, 1.7),  # Lagny
    ("77", 48.7900, 2.6100, 80, 25, 0, 2.0),  # Pontault-Combault
    ("77", 48.6920, 2.6100, 40, 18, 0, 1.6),  # Brie-Comte-Robert
    ("77", 48.6150, 2.5900, 120, 45, 0, 2.6),  # Sénart
    ("77", 48.5400, 2.6600, 120, 50, 2, 2.2),  # Melun
    ("77", 48.4050, 2.7000, 40, 20, 2, 1.5),  # Fontainebleau
    ("77", 48.2680, 2.6930, 25, 8, 0, 1.3),  # Nemours
    ("77", 48.3850, 2.9510, 30, 10, 0, 1.4),  # Montereau
    ("77", 48.5600, 3.2990, 20, 9, 0, 1.1),  # Provins
    ("77", 48.8150, 3.0850, 30, 10, 0, 1.3),  # Coulommiers
    ("77", 48.5560, 3.0150, 12, 5, 0, 1.0),  # Nangis
    ("77", 48.9490, 3.1280, 14, 4, 0, 1.0),  # La Ferté-sous-Jouarre
    ("78", 48.8014, 2.1301, 150, 90, 8, 2.0),  # Versailles
    ("78", 48.7800, 2.0450, 200, 130, 8, 2.6),  # Saint-Quentin-en-Yvelines
    ("78", 48.7830, 2.1900, 40, 60, 0, 1.0),  # Vélizy
    ("78", 48.8980, 2.0900, 110, 45, 0, 2.0),  # Saint-Germain-en-Laye
    ("78", 48.9290, 2.0450, 100, 50, 0, 2.0),  # Poissy
    ("78", 48.9350, 2.1700, 150, 35, 0, 1.7),  # Sartrouville
    ("78", 48.8180, 1.9500, 80, 30, 0, 2.2),  # Plaisir
    ("78", 48.9900, 1.9150, 80, 30, 0, 2.0),  # Les Mureaux
    ("78", 48.9900, 1.7170, 110, 40, 0, 2.2),  # Mantes
    ("78", 48.6430, 1.8300, 50, 18, 0, 1.7),  # Rambouillet
    ("91", 48.7260, 2.2800, 110, 60, 0, 1.7),  # Massy
    ("91", 48.7080, 2.1700, 60, 55, 35, 1.8),  # Saclay
    ("91", 48.6830, 2.2050, 60, 45, 0, 1.7),  # Les Ulis, Courtabœuf
    ("91", 48.6800, 2.3600, 190, 45, 0, 2.4),  # Savigny, Juvisy
    ("91", 48.7000, 2.5000, 130, 25, 0, 2.2),  # Brunoy, Yerres
    ("91", 48.6290, 2.4350, 170, 85, 10, 2.3),  # Évry
    ("91", 48.6080, 2.4830, 80, 35, 0, 1.7),  # Corbeil
    ("91", 48.6110, 2.3060, 90, 35, 0, 2.4),  # Brétigny
    ("91", 48.5900, 2.2480, 50, 13, 0, 1.8),  # Arpajon
    ("91", 48.5290, 2.0120, 25, 7, 0, 1.2),  # Dourdan
    ("91", 48.4340, 2.1610, 45, 15, 0, 1.5),  # Étampes
    ("95", 49.0370, 2.0630, 210, 100, 25, 2.6),  # Cergy-Pontoise
    ("95", 48.9470, 2.2480, 170, 45, 0, 1.7),  # Argenteuil
    ("95", 48.9880, 2.2400, 190, 35, 0, 2.2),  # Ermont, Franconville
    ("95", 49.0200, 2.2200, 70, 15, 0, 1.8),  # Taverny
    ("95", 49.0050, 2.3250, 90, 18, 0, 2.0),  # Montmorency
    ("95", 48.9800, 2.3900, 180, 35, 0, 1.9),  # Sarcelles
    ("95", 49.0100, 2.4600, 90, 35, 0, 2.0),  # Gonesse
    ("95", 49.0080, 2.5480, 5, 95, 0, 1.5),  # Roissy
    ("95", 49.1300, 2.2500, 60, 15, 0, 2.2),  # L'Isle-Adam, Persan
)

PLACE_DEPARTMENT = np.array([DEPARTMENTS.index(p[0]) for p in PLACES])
PLACE_POINTS = np.array(
    [((p[2] - LON0) * KM_PER_LON, (p[1] - LAT0) * KM_PER_LAT) for p in PLACES]
).T
PLACE_X, PLACE_Y = PLACE_POINTS
RESIDENTS, JOBS, _STUDENTS, SPREAD = (
    np.array([place[i] for place in PLACES], dtype=np.float64) for i in (3, 4, 5, 6)
)


def keep_inside(points: Floats) -> Floats:
    """Mirror at the border what lies outside the region, so that no row piles up on the border
    itself.
    """
    x, y = points
    radius = np.hypot(x, y)
    bearing = np.degrees(np.arctan2(x, y)) % 360.0
    reach = 0.985 * np.interp(bearing, np.arange(0.0, 361.0, 15.0), _REACH_KM)
    inside = np.where(radius > reach, np.maximum(2 * reach - radius, 0.3 * reach), radius)
    return np.asarray(points * (inside / np.maximum(radius, 1e-9)))


def _snap(points: Floats, step: Floats | float, salt: int) -> Floats:
    """Moves points to the one site of their square, a hash of the square.

    People meet at the same shops and offices.
    """
    column, row = corner = np.floor(points / step)
    seed = (column + 40_000).astype(np.uint64) * np.uint64(100_003) + (row + 40_000).astype(
        np.uint64
    )
    mixed = (seed + np.uint64(salt * 7_919)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    offset = (np.stack([mixed, mixed >> np.uint64(16)]) & np.uint64(0xFFFF)).astype(
        np.float64
    ) / 0xFFFF
    return np.asarray((corner + 0.15 + 0.7 * offset) * step)


def _snap_local(points: Floats, salt: int) -> Floats:
    """Move points to the nearest local site: one every 200 m in Paris, every 800 m in the
    country.
    """
    radius = np.hypot(*points)
    return _snap(
        points, np.select([radius < 6, radius < 14, radius < 28], [0.2, 0.3, 0.45], 0.8), salt
    )


def _around(
    rng: np.random.Generator, points: Floats, median_km: Floats | float, sigma: Floats | float
) -> Floats:
    """Points at a lognormal distance in any direction."""
    n = points.shape[1]
    distance = median_km * np.exp(sigma * rng.standard_normal(n))
    angle = rng.uniform(0.0, 2 * np.pi, n)
    return np.asarray(points + distance * np.stack([np.cos(angle), np.sin(angle)]))


def _attracted(
    rng: np.random.Generator, points: Floats, attraction: Floats, decay_km: Floats | float
) -> Numbers:
    """For each point one place: likely if it attracts much, unlikely if it is far (a gravity
    model).
    """
    distance = np.hypot(points[0][:, None] - PLACE_X, points[1][:, None] - PLACE_Y)
    pull = np.cumsum(attraction * np.exp(-distance / np.reshape(decay_km, (-1, 1))), axis=1)
    chosen = rng.random(points.shape[1]) * pull[:, -1]
    place: Numbers = np.minimum((pull <= chosen[:, None]).sum(axis=1), len(PLACES) - 1)
    return place


def degrees(points: Floats) -> tuple[Floats, Floats]:
    """Returns latitude and longitude of points in the plane."""
    return np.round(LAT0 + points[1] / KM_PER_LAT, 6), np.round(LON0 + points[0] / KM_PER_LON, 6)


# ---- people: who takes part, what they weigh, and the places each keeps going to ----

#: People drawn from one random stream. Changing it changes every row.
BLOCK_PEOPLE = 1_000
SEXES = ("female", "male")
AGES = ("16-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70-80")
PROFESSIONS = (
    "1 crafts and trade",
    "2 executives",
    "3 intermediate professions",
    "4 employees",
    "5 workers",
    "6 retirees",
    "7 students",
    "8 other inactive",
)
_EXECUTIVES, _STUDENT = 1, 6
_WORKING = np.array([True, True, True, True, True, False, False, False])

_PROFESSION_SHARE = np.array([0.035, 0.20, 0.18, 0.185, 0.10, 0.145, 0.09, 0.065])
#: How much commoner executives are in a department than in the region; workers and employees are
#: rarer there.
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
#: How readily each group takes part, relative to the others. A weight is the inverse.
_TAKES_PART = {
    "department": np.array([1.55, 1.20, 0.65, 1.00, 0.80, 0.95, 0.95, 0.70]),
    "profession": np.array([1.10, 1.45, 0.95, 0.70, 0.50, 0.90, 1.15, 1.00]),
    "age": np.array([0.55, 1.15, 1.05, 1.00, 1.00, 1.05, 0.80]),
    "sex": np.array([1.10, 0.90]),
}
#: What else decides a weight (cars, household, diploma), as the standard deviation of its
#: logarithm.
_OTHER_WEIGHTING = 0.45


@dataclass(frozen=True, eq=False)
class _People:
    """One block of people: group numbers, weight, and the places each keeps going to."""

    sex: Numbers
    age: Numbers
    profession: Numbers
    weight: Floats  # relative: the mean over many people is 1
    points: Floats  # east and north by people by `_HABITS`

    @property
    def kind(self) -> Numbers:
        """0 for those who work, 1 for students, 2 for others."""
        return np.select([_WORKING[self.profession], self.profession == _STUDENT], [0, 1], 2)


@lru_cache(maxsize=1)
def _population() -> tuple[Floats, Floats]:
    """Running chance of each group (department, profession, age, sex) among participants, and its
    weight.
    """
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
_HABITS = 9
HOME, MAIN, SHOP, SHOP_2, WAY, LUNCH, LUNCH_2, LEISURE, LEISURE_2, NEW = range(_HABITS + 1)


def _draw_people(rng: np.random.Generator) -> _People:
    """Returns one block of people."""
    cumulative, group_weight = _population()
    n = BLOCK_PEOPLE
    group = np.minimum(
        np.searchsorted(cumulative, rng.random(n), side="right"), len(cumulative) - 1
    )
    shape = (len(DEPARTMENTS), len(PROFESSIONS), len(AGES), len(SEXES))
    department, profession, age, sex = np.unravel_index(group, shape)
    noise = np.exp(_OTHER_WEIGHTING * rng.standard_normal(n) - _OTHER_WEIGHTING**2 / 2)
    points = np.empty((2, n, _HABITS))
    home = points[..., HOME] = _draw_homes(rng, department)
    main = points[..., MAIN] = _draw_main(rng, home, profession, age)
    way = home + rng.random(n) * (main - home)
    centre = _attracted(rng, home, RESIDENTS / 2 + JOBS, 5.0)
    downtown = _scatter_in_place(rng, centre, 0.7)
    sites = {
        SHOP: _around(rng, home, 0.55, 0.6),
        SHOP_2: _around(rng, home, 1.6, 0.8),
        WAY: _around(rng, way, 0.4, 0.6),
        LUNCH: _around(rng, main, 0.25, 0.5),
        LUNCH_2: _around(rng, main, 0.45, 0.6),
        LEISURE: downtown,
        LEISURE_2: _around(rng, home, 2.2, 0.9),
    }
    for habit, site in sites.items():
        points[..., habit] = _snap_local(keep_inside(site), salt=1)
    return _People(sex, age, profession, group_weight[group] * noise, points)


def _scatter_in_place(rng: np.random.Generator, place: Numbers, share: float) -> Floats:
    """Points spread over places like their residents, or closer to the middle."""
    return PLACE_POINTS[:, place] + rng.standard_normal((2, len(place))) * share * SPREAD[place]


def _draw_homes(rng: np.random.Generator, department: Numbers) -> Floats:
    # Places are sorted by department, so a place is one look-up in the running sum of residents.
    mass = np.bincount(PLACE_DEPARTMENT, RESIDENTS)
    wanted = (np.cumsum(mass) - mass)[department] + rng.random(len(department)) * mass[department]
    place = np.minimum(np.searchsorted(np.cumsum(RESIDENTS), wanted, side="right"), len(PLACES) - 1)
    town = _scatter_in_place(rng, place, 1.15)
    # Villages lie around small towns as much as around large ones.
    number = np.bincount(PLACE_DEPARTMENT)
    nearest = (np.cumsum(number) - number)[department] + rng.integers(0, number[department])
    village = _around(rng, PLACE_POINTS[:, nearest], 7.0, 0.5)
    village = _around(rng, _snap(keep_inside(village), step=2.8, salt=2), 0.3, 0.5)
    rural = rng.random(len(department)) < _VILLAGERS[department]
    return keep_inside(np.where(rural, village, town))


def _draw_main(rng: np.random.Generator, home: Floats, profession: Numbers, age: Numbers) -> Floats:
    """Returns the workplace, the school, or (for people with neither) the place of a regular
    outing.
    """
    executive, student = profession == _EXECUTIVES, profession == _STUDENT
    # Office jobs are more concentrated than jobs, and people travel farther for them.
    attraction = np.where(
        executive[:, None], JOBS**1.25 / 3, np.where(student[:, None], _STUDENTS, JOBS)
    )
    decay = np.select([executive, student], [11.0, 14.0], 7.0)
    place = _attracted(rng, home, attraction, decay)
    site = _snap(keep_inside(_scatter_in_place(rng, place, 0.6)), step=0.22, salt=3)
    campus = _snap(PLACE_POINTS[:, place], step=0.22, salt=4)
    nearby = _snap_local(keep_inside(_around(rng, home, 1.8, 0.9)), salt=5)
    lycee = _snap(keep_inside(_around(rng, home, 1.5, 0.6)), step=1.8, salt=6)
    local = np.where(_WORKING[profession], rng.random(len(place)) < 0.22, ~student)
    return np.select([student & (age == 0), student, local], [lycee, campus, nearby], site)


# ---- week: chains of trips between these places, with times ----

#: Inhabitants aged 16 to 80 that the survey represents, whatever its size.
POPULATION = 9_001_164
#: A Monday with no holiday in the week that follows.
_FIRST_DAY = np.datetime64("2022-11-14", "us")

SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("person_id", "sex", "age", "profession")]
    + [
        ("weight", pa.float64()),
        ("start_time", pa.timestamp("us")),
        ("end_time", pa.timestamp("us")),
    ]
    + [(name, pa.float64()) for name in ("start_lat", "start_lon", "end_lat", "end_lon")]
)

_DAYS = 7
# A day is a row of stops, each made or not; "home" is always made and counts as no trip for who is
# there.
_SLOTS = 9
_ERRAND_OUT, _AT_MAIN, _MIDDAY, _MAIN_AGAIN, _ERRAND_BACK = range(5)
_HOME_AGAIN, _OUTING, _OUTING_2, _NIGHT = range(5, _SLOTS)
_OPTIONAL = (_ERRAND_OUT, _AT_MAIN, _MIDDAY, _ERRAND_BACK, _OUTING, _OUTING_2)

#: Chance of each optional stop, for those who work, study, or do neither; on weekdays and at
#: weekends.
_STOP_CHANCE = np.array(
    [
        [[0.20, 0.74, 0.24, 0.30, 0.26, 0.24], [0.30, 0.08, 0.20, 0.25, 0.50, 0.30]],
        [[0.10, 0.74, 0.40, 0.25, 0.28, 0.25], [0.20, 0.08, 0.20, 0.20, 0.50, 0.30]],
        [[0.35, 0.40, 0.10, 0.30, 0.42, 0.28], [0.28, 0.22, 0.10, 0.20, 0.42, 0.25]],
    ]
)
#: Factor on the odds of these stops, found so that people make 24.5 trips a week on average.
_INTENSITY = 1.3569641040887102
#: Where an optional stop is: chance of each place from `SHOP` to `NEW`. `_AT_MAIN` has a dedicated
#: place.
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
#: Usual time of leaving for each stop, in minutes of the day; people and days as for
#: `_STOP_CHANCE`.
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
    ]
)
_LEAVE_SPREAD = np.array([45.0, 45.0, 28.0, 0.0, 65.0, 65.0, 85.0, 0.0, 0.0])
#: Median stay in minutes after each stop, where no usual time of leaving requires more.
_STAY = np.array([9.0, 60.0, 42.0, 60.0, 18.0, 35.0, 65.0, 55.0, 300.0])


def _draw_stops(rng: np.random.Generator, person_type: Numbers) -> Numbers:
    """Returns the place of every stop of the week, people by (home, then 7 days of slots).

    -1 where no stop is made.
    """
    n = len(person_type)
    weekend = (np.arange(_DAYS) >= 5).astype(np.int64)
    chance = _STOP_CHANCE[person_type[:, None], weekend]
    # Some people are out a lot, some hardly. Everybody has one outing: who never moves is in no
    # trip table.
    odds = _INTENSITY * chance / (1 - chance) * np.exp(0.45 * rng.standard_normal(n))[:, None, None]
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


def _draw_new_places(
    rng: np.random.Generator, people: _People, stops: Numbers, points: Floats
) -> None:
    """Adds the places visited once: near the main place at midday, else around home, sometimes
    far.
    """
    person, stop = np.nonzero(stops == NEW)
    near_main = (stop - 1) % _SLOTS == _MIDDAY
    centre = people.points[:, person, np.where(near_main, MAIN, HOME)]
    drawn = _around(rng, centre, np.where(near_main, 0.4, 2.6), np.where(near_main, 0.6, 1.15))
    points[:, person, stop] = keep_inside(drawn)


def _draw_times(
    rng: np.random.Generator, person_type: Numbers, moved: NDArray[np.bool_], distance: Floats
) -> tuple[Floats, Floats]:
    """Minutes since Monday 0:00 at which people leave for each stop and reach it.

    They never run back.
    """
    n, n_stops = moved.shape
    weekend = (np.arange(_DAYS) >= 5).astype(np.int64)
    # Stops of one round share the deviation from the usual time, or people would wait hours at the
    # baker's.
    deviation = np.clip(rng.standard_normal((n, _DAYS, 3)), -2.5, 2.5)[
        ..., [0, 0, 1, 1, 2, 2, 2, 2, 2]
    ]
    habit = np.clip(rng.standard_normal((n, 1, 1)), -2.0, 2.0)
    usual = _LEAVE[person_type[:, None], weekend] + 1440.0 * np.arange(_DAYS)[:, None]
    usual = (usual + _LEAVE_SPREAD * (0.7 * deviation + 0.7 * habit)).reshape(n, -1)
    stay = np.tile(_STAY, _DAYS) * np.exp(0.4 * rng.standard_normal((n, _DAYS * _SLOTS)))
    # Short trips are walked, long ones are ridden: speed grows with distance (km/h), detours add a
    # third.
    speed = 4.5 + 45.0 * distance / (distance + 12.0)
    travel = (3.0 + 60.0 * 1.33 * distance / speed) * np.exp(
        0.2 * rng.standard_normal((n, n_stops))
    )
    left, reached = np.zeros((n, n_stops)), np.zeros((n, n_stops))
    free = np.zeros(n)
    for stop in range(1, n_stops):
        leave = np.maximum(usual[:, stop - 1], free)
        left[:, stop] = leave
        reached[:, stop] = leave + travel[:, stop]
        free = np.where(moved[:, stop], reached[:, stop] + stay[:, stop - 1], free)
    return left, reached


def _draw_block(block: int, people: int, seed: int) -> pa.Table:
    """Returns the trips of one block, ordered by person and time."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block,)))
    drawn = _draw_people(rng)
    stops = _draw_stops(rng, drawn.kind)
    habit = np.where((stops >= 0) & (stops < _HABITS), stops, HOME)
    points = np.take_along_axis(drawn.points, habit[None], axis=2)
    _draw_new_places(rng, drawn, stops, points)
    moved, origin = _find_trips(stops)
    origins = np.take_along_axis(points, origin[None], axis=2)
    left, reached = _draw_times(rng, drawn.kind, moved, np.hypot(*(points - origins)))
    first = block * BLOCK_PEOPLE
    # A block is always drawn whole: a smaller survey is the beginning of a larger one.
    moved[max(0, people - first) :] = False
    person = np.nonzero(moved)[0]
    # A position fix deviates by 35 m along each axis.
    scatter = 0.035 * rng.standard_normal((4, int(moved.size)))[:, moved.ravel()]
    width = max(6, len(str(people - 1)))
    number = pc.utf8_lpad(pa.array(first + person).cast(pa.string()), width=width, padding="0")
    groups = ((SEXES, drawn.sex), (AGES, drawn.age), (PROFESSIONS, drawn.profession))
    columns = [
        pc.binary_join_element_wise("p", number, ""),
        *(pa.array(labels, pa.string()).take(pa.array(group[person])) for labels, group in groups),
        pa.array(np.round(drawn.weight * (POPULATION / people), 4)[person]),
        *(
            pa.array(_FIRST_DAY + np.rint(minutes[moved] * 60.0).astype("m8[s]"))
            for minutes in (left, reached)
        ),
        *map(pa.array, degrees(origins[:, moved] + scatter[1::-1])),
        *map(pa.array, degrees(points[:, moved] + scatter[:1:-1])),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


#: Blocks of people in a row group.
_BLOCKS_OF_ROW_GROUP = 50


def synthetic_survey(*, people: int = 3_320, seed: int = 0) -> pa.Table:
    """Draws a week of trips of invented inhabitants of Île-de-France.

    The same arguments give the same table. With another number of people the first ones stay the
    same but for their weights, which always add up to about the region's 9.0 million inhabitants
    aged 16 to 80.

    Args:
        people: participants; each makes at least two trips.
        seed: another seed gives other people in the same region.

    Returns:
        One row for each trip with the columns of `SCHEMA`, ordered by person and time. ``weight``
        is the number of inhabitants that the person represents; times are local.
    """
    return pa.concat_tables(_blocks(people, seed)).combine_chunks()


def write_synthetic_survey(path: str | os.PathLike[str], *, people: int, seed: int = 0) -> int:
    """Writes the rows of `synthetic_survey` to a Parquet file and returns their number.

    Memory holds one row group of 50,000 people. The file appears, or is replaced, only when it is
    complete.
    """
    blocks, trips = _blocks(people, seed), 0

    def write(draft: Path) -> None:
        nonlocal trips
        with pq.ParquetWriter(draft, SCHEMA) as writer:
            while chunk := list(islice(blocks, _BLOCKS_OF_ROW_GROUP)):
                rows = pa.concat_tables(chunk)
                writer.write_table(rows, row_group_size=max(1, rows.num_rows))
                trips += rows.num_rows

    write_files({path: write})
    return trips


def _blocks(people: int, seed: int) -> Iterator[pa.Table]:
    """Checks the arguments now, draws the blocks one by one later."""
    if people < 1:
        raise ParameterError(f"people is {people}; a survey has at least 1 participant.")
    if seed < 0:
        raise ParameterError(f"seed is {seed}; it must be 0 or more.")
    return (_draw_block(block, people, seed) for block in range(-(-people // BLOCK_PEOPLE)))
