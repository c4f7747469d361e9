"""Places of grid codes, sign by sign: slow and obvious."""

from __future__ import annotations

import math


def geohash(code: str) -> tuple[float, float]:
    """Halves longitude and latitude in turn."""
    lat, lon, is_lon = [-90.0, 90.0], [-180.0, 180.0], True
    for sign in code:
        number = "0123456789bcdefghjkmnpqrstuvwxyz".index(sign)
        for bit in (16, 8, 4, 2, 1):
            ends = lon if is_lon else lat
            ends[0 if number & bit else 1] = sum(ends) / 2
            is_lon = not is_lon
    return sum(lat) / 2, sum(lon) / 2


def quadkey(code: str) -> tuple[float, float]:
    """Quarters a square of the Web Mercator projection."""
    left, top, width = 0.0, 0.0, 1.0
    for sign in code:
        width /= 2
        left += width * (sign in "13")
        top += width * (sign in "23")
    y = math.pi * (1 - 2 * (top + width / 2))
    return math.degrees(math.atan(math.sinh(y))), (left + width / 2) * 360 - 180


def s2(token: str) -> tuple[float, float]:
    """Walks along the Hilbert curve of a face, as the S2 library documents it."""
    number = int(token.ljust(16, "0"), 16)
    bits = f"{number:064b}"
    face, path = int(bits[:3], 2), bits[3 : bits.rindex("1")]
    swap, invert, low_i, low_j, width = face % 2 == 1, False, 0.0, 0.0, 1.0
    for at in range(0, len(path), 2):
        position = int(path[at : at + 2], 2)
        i, j = [(0, 0), (0, 1), (1, 1), (1, 0)][position]
        if swap:
            i, j = j, i
        if invert:
            i, j = 1 - i, 1 - j
        width /= 2
        low_i, low_j = low_i + i * width, low_j + j * width
        if position in (0, 3):
            swap = not swap
        if position == 3:
            invert = not invert
    u, v = (_stretched(low + width / 2) for low in (low_i, low_j))
    x, y, z = [(1, u, v), (-u, 1, v), (-u, -v, 1), (-1, -v, -u), (v, -1, -u), (v, u, -1)][face]
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


def _stretched(s: float) -> float:
    return (4 * s * s - 1) / 3 if s >= 0.5 else (1 - 4 * (1 - s) ** 2) / 3
