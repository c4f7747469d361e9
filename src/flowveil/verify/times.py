"""The intervals of time of a folded release: whether each is one of the tree, how long it is, which steps lie in it.

Written from the documentation: steps double while a day is made of whole ones, then comes the day; above it, of a week,
working days and the weekend, then the week; of a calendar, weeks from Monday on that end with their month, months, and
all months from the first to the last. Texts sort like the times they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from flowveil.verify.claims import Claims
from flowveil.verify.database import Database, literal
from flowveil.verify.members import members_in

if TYPE_CHECKING:
    from flowveil.flows import Flows

#: The columns of flows.parquet that say when.
TIME_COLUMNS = ("time_from", "time_to")
_WEEK = ("1 Mon", "2 Tue", "3 Wed", "4 Thu", "5 Fri", "6 Sat", "7 Sun")
_FORMATS = {"day": "%Y-%m-%d", "month": "%Y-%m"}
_MINUTES_OF_DAY = 1440


def load_intervals(db: Database, flows: Flows) -> None:
    """``interval`` (i, c0, c1, hours, steps), ``during`` (i, t): the steps in each; ``beside_t`` (n): steps in none.

    ``hours`` is empty where an interval is none of the tree. ``finest_t`` (i, t) are intervals that hold no other, with
    one of their steps; ``holds_t`` (i, n): how many of those each interval holds.

    Args:
        db: with ``published`` (i, c0, c1) and ``rows``.
        flows: the flows with their times.
    """
    import pyarrow as pa

    assert flows.times is not None
    every = flows.times.every
    seen = [label for (label,) in db.rows("SELECT DISTINCT t FROM rows ORDER BY t")]
    steps = [start for start, _ in _hours_of_week(every, 1)] if every in ("hour", "weekday-hour") else seen
    db.store("step", pa.table({"t": pa.array(steps, pa.string())}))
    found = db.rows("SELECT DISTINCT i, c0, c1 FROM published ORDER BY i")
    hours = [_length(every, seen, c0, c1) for _, c0, c1 in found]
    names = pa.table(
        {
            "i": np.array([i for i, _, _ in found], dtype=np.int64),
            "c0": pa.array([c0 for _, c0, _ in found], pa.string()),
            "c1": pa.array([c1 for _, _, c1 in found], pa.string()),
            "hours": pa.array(hours, pa.float64()),
        }
    )
    db.store("named", names)
    db.create("during", "SELECT i, t FROM named JOIN step ON c0 <= t AND t < c1")
    db.create(
        "interval",
        "SELECT n.*, coalesce(d.steps, 0) AS steps FROM named n "
        "LEFT JOIN (SELECT i, count(*) AS steps FROM during GROUP BY i) d USING (i)",
    )
    db.create("beside_t", "SELECT count(*) AS n FROM (SELECT DISTINCT t FROM rows) ANTI JOIN during USING (t)")
    db.create(
        "finest_t",
        "SELECT i, any_value(t) AS t FROM (SELECT i, t, steps, "
        "row_number() OVER (PARTITION BY t ORDER BY steps, hours) AS place FROM during JOIN interval USING (i)) "
        "GROUP BY i, steps HAVING count(*) FILTER (place = 1) = steps",
    )
    db.create("holds_t", "SELECT d.i, count(*) AS n FROM during d JOIN finest_t f USING (t) GROUP BY d.i")


def check_intervals(db: Database, claims: Claims, flows: Flows) -> Iterator[str]:
    """That each interval is one of the tree and, where persons are known, k of them travelled then."""
    strange = db.one("SELECT count(*) FROM interval WHERE hours IS NULL")
    if strange:
        yield f"flows.parquet: {strange} intervals of time are none that steps fold into"
    if flows.people is None:
        return
    counted = members_in(db, "people", "i", "(SELECT i, row FROM during JOIN rows USING (t))")
    enough = f"SELECT i FROM ({counted}) WHERE n >= {literal(claims.k)}"
    few = db.one(f"SELECT count(*) FROM interval ANTI JOIN ({enough}) USING (i)")
    if few:
        yield f"flows.parquet: {few} intervals of time have fewer than k people"


def _length(every: str, seen: list[str], start: str, stop: str) -> float | None:
    """The hours of an interval; None where it is none of the tree."""
    if every in ("hour", "weekday-hour"):
        lengths = {pair: float(n) for n in (1, 2, 4, 8, 24) for pair in _hours_of_week(every, n)}
        if every == "weekday-hour":
            for a, b in ((0, 4), (5, 6), (0, 6)):
                lengths[f"{_WEEK[a]} 00:00", f"{_WEEK[b]} 24:00"] = 24.0 * (b - a + 1)
        return lengths.get((start, stop))
    form = _FORMATS.get(every, "%Y-%m-%dT%H:%M")
    try:
        first, last = datetime.strptime(start, form), datetime.strptime(stop, form)
    except ValueError:
        return None
    if (first.strftime(form), last.strftime(form)) != (start, stop) or not first < last:
        return None
    known = _is_all(first, last, seen, form) or _is_of_calendar(first, last, every)
    return (last - first).total_seconds() / 3600 if known else None


def _hours_of_week(every: str, n: int) -> Iterator[tuple[str, str]]:
    """Intervals of n hours, of a day or of each day of a week."""
    for day in ("",) if every == "hour" else (f"{name} " for name in _WEEK):
        for hour in range(0, 24, n):
            yield f"{day}{hour:02d}:00", f"{day}{hour + n:02d}:00"


def _is_all(first: datetime, last: datetime, seen: list[str], form: str) -> bool:
    ends = [datetime.strptime(label, form) for label in (seen[0], seen[-1])]
    return (first, last) == (ends[0].replace(day=1, hour=0, minute=0), _after_month(ends[1].date()))


def _after_month(day: date) -> datetime:
    return datetime(day.year + day.month // 12, day.month % 12 + 1, 1)


def _is_of_calendar(first: datetime, last: datetime, every: str) -> bool:
    """Whether an interval is a month, a week within its month, a day, or a step of a day, of those that occur."""
    midnight = first.replace(hour=0, minute=0)
    if first == midnight:
        if first.day == 1 and last == _after_month(first.date()):
            return True
        if every == "month":
            return False
        begins = first.weekday() == 0 or first.day == 1
        if begins and last == min(first + timedelta(days=7 - first.weekday()), _after_month(first.date())):
            return True
        if last == first + timedelta(days=1):
            return True
    if every in _FORMATS:
        return False
    number = int("".join(sign for sign in every if sign.isdigit()))
    length = number * (60 if every.endswith("h") else 1)
    wanted, begin = (last - first).total_seconds() / 60, (first - midnight).total_seconds() / 60
    while length < wanted and _MINUTES_OF_DAY % (2 * length) == 0:
        length *= 2
    return wanted == length and begin % length == 0
