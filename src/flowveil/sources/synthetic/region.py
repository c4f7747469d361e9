"""The region: where people live, work and study, and how points spread over it.

Plane coordinates are kilometres east and north of Notre-Dame; at this size the earth is flat to a few metres.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowveil.hierarchy import Floats

Numbers = NDArray[np.int64]

LAT0, LON0 = 48.8530, 2.3498
KM_PER_LAT = 111.20
KM_PER_LON = 111.32 * float(np.cos(np.radians(LAT0)))

#: How far the region reaches from Notre-Dame, in kilometres, at bearings 0, 15, 30, ... degrees from north.
_REACH_KM = np.array(
    # N          NE           E            SE           S            SW           W            NW
    [33, 31, 32, 37, 52, 66, 78, 84, 88, 84, 80, 78, 74, 62, 58, 52, 52, 54, 53, 54, 60, 60, 50, 40, 33],
    dtype=np.float64,
)

DEPARTMENTS = ("75", "92", "93", "94", "77", "78", "91", "95")
#: Share of each department's people who live in villages between the towns.
VILLAGERS = np.array([0.0, 0.0, 0.0, 0.0, 0.30, 0.16, 0.14, 0.14])

#: Towns and quarters: department, latitude, longitude, then residents, jobs and students in thousands (rough)
#: and spread in kilometres. Departments stand together, in the order above.
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

PLACE_DEPARTMENT = np.array([DEPARTMENTS.index(place[0]) for place in PLACES])
PLACE_X = np.array([(place[2] - LON0) * KM_PER_LON for place in PLACES])
PLACE_Y = np.array([(place[1] - LAT0) * KM_PER_LAT for place in PLACES])
RESIDENTS, JOBS, STUDENTS, SPREAD = (np.array([place[i] for place in PLACES], dtype=np.float64) for i in (3, 4, 5, 6))


def keep_inside(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Mirror at the border what lies outside the region, so that no row piles up on the border itself."""
    radius = np.hypot(x, y)
    bearing = np.degrees(np.arctan2(x, y)) % 360.0
    reach = 0.985 * np.interp(bearing, np.arange(0.0, 361.0, 15.0), _REACH_KM)
    inside = np.where(radius > reach, np.maximum(2 * reach - radius, 0.3 * reach), radius)
    shrink = inside / np.maximum(radius, 1e-9)
    return x * shrink, y * shrink


def snap(x: Floats, y: Floats, step: Floats | float, salt: int) -> tuple[Floats, Floats]:
    """Move points to the one site of their square of side ``step``; sites are the same for everybody.

    People meet at the same shops, schools and offices. A site is a hash of its square, so a whole region of
    them needs no table.
    """
    column, row = np.floor(x / step), np.floor(y / step)
    seed = (column + 40_000).astype(np.uint64) * np.uint64(100_003) + (row + 40_000).astype(np.uint64)
    mixed = (seed + np.uint64(salt * 7_919)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    east = (mixed & np.uint64(0xFFFF)).astype(np.float64) / 0xFFFF
    north = ((mixed >> np.uint64(16)) & np.uint64(0xFFFF)).astype(np.float64) / 0xFFFF
    return (column + 0.15 + 0.7 * east) * step, (row + 0.15 + 0.7 * north) * step


def snap_local(x: Floats, y: Floats, salt: int) -> tuple[Floats, Floats]:
    """Move points to the nearest local site: one every 200 m in Paris, every 800 m in the country."""
    radius = np.hypot(x, y)
    return snap(x, y, np.select([radius < 6, radius < 14, radius < 28], [0.2, 0.3, 0.45], 0.8), salt)


def around(
    rng: np.random.Generator, x: Floats, y: Floats, median_km: Floats | float, sigma: Floats | float
) -> tuple[Floats, Floats]:
    """A point at a lognormal distance in any direction."""
    distance = median_km * np.exp(sigma * rng.standard_normal(x.shape))
    angle = rng.uniform(0.0, 2 * np.pi, x.shape)
    return x + distance * np.cos(angle), y + distance * np.sin(angle)


def attracted(rng: np.random.Generator, x: Floats, y: Floats, attraction: Floats, decay_km: Floats | float) -> Numbers:
    """For each point one place: likely if it attracts much, unlikely if it is far (a gravity model)."""
    distance = np.hypot(x[:, None] - PLACE_X, y[:, None] - PLACE_Y)
    pull = np.cumsum(attraction * np.exp(-distance / np.reshape(decay_km, (-1, 1))), axis=1)
    chosen = rng.random(len(x)) * pull[:, -1]
    place: Numbers = np.minimum((pull <= chosen[:, None]).sum(axis=1), len(PLACES) - 1)
    return place


def latitude(y: Floats) -> Floats:
    """Degrees north of kilometres north."""
    return np.round(LAT0 + y / KM_PER_LAT, 6)


def longitude(x: Floats) -> Floats:
    """Degrees east of kilometres east."""
    return np.round(LON0 + x / KM_PER_LON, 6)
