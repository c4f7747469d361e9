"""t-closeness, slow and obvious: distances as fractions, zones removed one by one."""

from __future__ import annotations

from fractions import Fraction

#: Trips by origin zone and destination zone.
Matrix = dict[tuple[int, int], int]


def distance(matrix: Matrix, end: int, zone: int) -> Fraction:
    """Returns half the sum of absolute differences between the shares of a zone's trips and of all
    trips."""
    others = {pair[1 - end] for pair in matrix}
    own = {pair[1 - end]: trips for pair, trips in matrix.items() if pair[end] == zone}
    total, whole = sum(own.values()), sum(matrix.values())
    apart = Fraction(0)
    for other in others:
        there = sum(trips for pair, trips in matrix.items() if pair[1 - end] == other)
        apart += abs(Fraction(own.get(other, 0), total) - Fraction(there, whole))
    return apart / 2


def close_cells(matrix: Matrix, t: Fraction) -> Matrix:
    """Returns the cells that are left after removing the farthest zone until none is farther than
    t."""
    while matrix:
        zones = sorted({(end, pair[end]) for pair in matrix for end in (0, 1)})
        distances = {(end, zone): distance(matrix, end, zone) for end, zone in zones}
        # The first of the largest: origins before destinations, then by number.
        end, zone = max(zones, key=distances.__getitem__)
        if distances[end, zone] <= t:
            break
        matrix = {pair: trips for pair, trips in matrix.items() if pair[end] != zone}
    return matrix
