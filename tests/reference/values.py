"""Means, totals and medians of a cell, record by record, in fractions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import count

#: A record: its person (None if unknown), its weight, and its value (None if missing).
Record = tuple[Hashable, Fraction, Fraction | None]


def number_of_cell(
    statistic: str,
    records: Sequence[Record],
    *,
    low: float,
    high: float,
    k: int,
    share: Fraction = Fraction(1, 2),
    p: Fraction = Fraction(10),
    persons: bool = True,
) -> float | None:
    """Returns the published number of a cell; None if it is refused."""
    alone = count()
    rows = [
        (who if persons else next(alone), Fraction(w), Fraction(v))
        for who, w, v in records
        if v is not None and low <= v <= high and w > 0
    ]
    if len({who for who, _, _ in rows} - {None}) < max(k, 1 + math.ceil(2 / share)):
        return None
    for is_low in (True, False):
        made: Counter[Hashable] = Counter()
        for who, w, v in rows:
            made[who] += w * ((v - Fraction(low)) if is_low else (Fraction(high) - v))
        total = sum(made.values())
        largest, second, *_ = *sorted(made.values(), reverse=True), 0, 0
        if total == 0 or largest > share * total or total - largest - second < p / 100 * largest:
            return None
    weight = sum(w for _, w, _ in rows)
    total = sum(w * v for _, w, v in rows)
    if statistic != "median":
        return rounded(total / weight if statistic == "mean" else total)
    values = sorted({v for _, _, v in rows})
    middle = [
        v
        for v in values
        if 2 * sum(w for _, w, x in rows if x < v) <= weight
        and 2 * sum(w for _, w, x in rows if x > v) <= weight
    ]
    median = (min(middle) + max(middle)) / 2
    held = Counter({who: Fraction(0) for who, _, _ in rows})
    for who, w, _ in rows:
        held[who] += w
    alone = sum(sorted(held.values(), reverse=True)[:2])
    return rounded(median) if 2 * alone < weight and low < median < high else None


def rounded(value: Fraction) -> float:
    """Returns a number with three significant digits, half away from zero."""
    if value == 0:
        return 0.0
    digits = 2 - math.floor(math.log10(abs(value)))
    scaled = abs(value) * Fraction(10) ** digits
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    exact = Fraction(whole) / Fraction(10) ** digits
    return float(exact) if value > 0 else -float(exact)


def reveals_difference(
    records: Sequence[tuple[Hashable, Fraction, Fraction, Fraction]],
    *,
    share: Fraction = Fraction(1, 2),
    p: Fraction = Fraction(10),
) -> bool:
    """Returns whether the differences of two values of the records of a cell, summed by
    contributor, break a rule."""
    made: Counter[Hashable] = Counter()
    for who, w, a, b in records:
        made[who] += w * (b - a)
    amounts = sorted(map(abs, made.values()), reverse=True)
    largest, second, *_ = *amounts, 0, 0
    total = sum(amounts)
    return total == 0 or largest > share * total or total - largest - second < p / 100 * largest


def belongs_to_persons(
    records: Sequence[tuple[Hashable, Fraction | None]], *, low: float, p: Fraction = Fraction(10)
) -> bool:
    """Returns whether at least 90 % of the persons with several values above the lower bound have
    the same one up to p %."""
    several = []
    for person in {who for who, _ in records} - {None}:
        own = [v - Fraction(low) for who, v in records if who == person and v is not None]
        if len(own) > 1 and max(own) > 0:
            several.append(max(own) - min(own) <= p / 100 * max(own))
    return bool(several) and sum(several) >= Fraction(9, 10) * len(several)
