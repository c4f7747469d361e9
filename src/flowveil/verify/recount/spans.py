"""Spans of time of a folded release: which ones the documentation allows.

Steps double while a day consists of whole ones, then comes the day; above it, of a week, working days and the weekend,
then the week; of a calendar, weeks from Monday on that end with their month, months, and all months from the first to
the last. Labels sort like the times they name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

#: The columns of flows.parquet that say when.
COLUMNS = ("time_from", "time_to")
_WEEK = ("1 Mon", "2 Tue", "3 Wed", "4 Thu", "5 Fri", "6 Sat", "7 Sun")
_FORMATS = {"day": "%Y-%m-%d", "month": "%Y-%m"}
_MINUTES_OF_DAY = 1440


def count_unknown(spans: Sequence[tuple[str, str]], every: str, labels: Sequence[str]) -> int:
    """How many spans are none that steps of this length fold into; ``labels`` are the steps with trips."""
    if every in ("hour", "weekday-hour"):
        allowed = {pair for n in (1, 2, 4, 8, 24) for pair in _hours(every, n)}
        if every == "weekday-hour":
            allowed |= {(f"{_WEEK[a]} 00:00", f"{_WEEK[b]} 24:00") for a, b in ((0, 4), (5, 6), (0, 6))}
        return sum(span not in allowed for span in spans)
    form = _FORMATS.get(every, "%Y-%m-%dT%H:%M")
    first, last = (datetime.strptime(label, form) for label in (min(labels), max(labels)))
    whole = (first.replace(day=1, hour=0, minute=0), _after_month(last))
    return sum(not _is_known(span, every, form, whole) for span in spans)


def _hours(every: str, n: int) -> Iterator[tuple[str, str]]:
    for day in ("",) if every == "hour" else (f"{name} " for name in _WEEK):
        for hour in range(0, 24, n):
            yield f"{day}{hour:02d}:00", f"{day}{hour + n:02d}:00"


def _is_known(span: tuple[str, str], every: str, form: str, whole: tuple[datetime, datetime]) -> bool:
    try:
        first, last = (datetime.strptime(text, form) for text in span)
    except (ValueError, TypeError):
        return False
    if (first.strftime(form), last.strftime(form)) != span or not first < last:
        return False
    return (first, last) == whole or _is_of_calendar(first, last, every)


def _after_month(moment: datetime) -> datetime:
    return datetime(moment.year + moment.month // 12, moment.month % 12 + 1, 1)


def _is_of_calendar(first: datetime, last: datetime, every: str) -> bool:
    """Whether a span is a month, a week within its month, a day, or steps of a day."""
    midnight = first.replace(hour=0, minute=0)
    if first == midnight:
        if first.day == 1 and last == _after_month(first):
            return True
        if every == "month":
            return False
        begins = first.weekday() == 0 or first.day == 1
        week = min(first + timedelta(days=7 - first.weekday()), _after_month(first))
        if (begins and last == week) or last == first + timedelta(days=1):
            return True
    if every in _FORMATS:
        return False
    length = int("".join(sign for sign in every if sign.isdigit())) * (60 if every.endswith("h") else 1)
    wanted, begin = (last - first).total_seconds() / 60, (first - midnight).total_seconds() / 60
    while length < wanted and _MINUTES_OF_DAY % (2 * length) == 0:
        length *= 2
    return wanted == length and begin % length == 0
