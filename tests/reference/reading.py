"""Reading trips the slow and obvious way: row by row, into a dictionary."""

from __future__ import annotations

import csv
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import h3.api.basic_int as h3_int

MISSING = {"", "na", "n/a", "nan", "<na>", "null", "none", "nil", "\\n"}


def number(text: str) -> float:
    return math.nan if text.strip().lower() in MISSING else float(text)


def reason_to_leave_out(row: dict[str, str], trips: str | None, weight: str | None) -> str | None:
    ends = [
        (number(row["o_lat"]), number(row["o_lon"])),
        (number(row["d_lat"]), number(row["d_lon"])),
    ]
    if trips and number(row[trips]) == 0:
        return "no trips"
    if any(math.isnan(x) for end in ends for x in end):
        return "missing end"
    if any(abs(lat) > 90 or abs(lon) > 180 for lat, lon in ends):
        return "off the earth"
    if any(lat == 0 and lon == 0 for lat, lon in ends):
        return "at 0,0"
    if trips and math.isnan(number(row[trips])):
        return "missing count"
    if weight and math.isnan(number(row[weight])):
        return "missing weight"
    return None


def read_points(
    path: Path,
    *,
    resolution: int,
    person: str | None = None,
    weight: str | None = None,
    trips: str | None = None,
) -> tuple[dict[tuple[int, int], tuple[int, Fraction, frozenset[str]]], Counter[str]]:
    """Flows by pair of cells (trips, exact weight, people) and rows left out by reason."""
    counts: Counter[tuple[int, int]] = Counter()
    weights: dict[tuple[int, int], Fraction] = {}
    people: dict[tuple[int, int], set[str]] = {}
    left_out: Counter[str] = Counter()
    with path.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            reason = reason_to_leave_out(row, trips, weight)
            if reason:
                left_out[reason] += 1
                continue
            pair = (
                h3_int.latlng_to_cell(float(row["o_lat"]), float(row["o_lon"]), resolution),
                h3_int.latlng_to_cell(float(row["d_lat"]), float(row["d_lon"]), resolution),
            )
            counts[pair] += int(float(row[trips])) if trips else 1
            if weight:
                weights[pair] = weights.get(pair, Fraction(0)) + Fraction(
                    round(float(row[weight]) * 10**6), 10**6
                )
            who = row[person].strip() if person else ""
            people.setdefault(pair, set())
            if who.lower() not in MISSING:
                people[pair].add(who)
    return {
        pair: (n, weights.get(pair, Fraction(0)), frozenset(people[pair]))
        for pair, n in sorted(counts.items())
    }, left_out
