"""Steps of time that trips are sliced by, and the tree above them.

Steps of a day, days, weeks, months, everything.

A periodic step has a tree that does not depend on the trips: 24 hours, or 168 hours of a week.
Other steps have the steps with trips, as trees of places have the tiles with trips. Times are texts
as in slice labels, and sort in time order, so that a step is in ``start <= step < stop``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowveil.core.dimensions import Dimension
from flowveil.core.errors import ParameterError
from flowveil.core.hierarchy import Hierarchy

#: Name of the slice column with the step of time.
TIME = "time"
_DAY = 24 * 60
_STEP = re.compile(r"^(\d+)\s*(min|h)$")
#: Length of the labels of the named steps: '2022-11', '2022-W46', '2022-11-14', '08:00', '1 Mon',
#: '1 Mon 08:00'.
_LABELS = {"month": 7, "week": 8, "day": 10, "hour": 5, "weekday": 5, "weekday-hour": 11}
#: The time columns of a published matrix with folded times.
TIME_COLUMNS = ("time_from", "time_to")
DAYS = ("1 Mon", "2 Tue", "3 Wed", "4 Thu", "5 Fri", "6 Sat", "7 Sun")

#: First and last minute of an interval, the last excluded.
Span = tuple[int, int]


@dataclass(frozen=True)
class Every:
    """A step of time."""

    name: str  # as users write it: 15min, 1h, day, week (ISO), month, hour, weekday, weekday-hour
    minutes: int | None = None  # None for steps that follow the calendar or come round

    @classmethod
    def parse(cls, text: str) -> Every:
        """Read a step of time."""
        name = text.strip().lower()
        if name in _LABELS:
            return cls(name)
        step = _STEP.match(name)
        minutes = int(step[1]) * (60 if step[2] == "h" else 1) if step else 0
        if minutes == _DAY:
            return cls("day")
        if not 0 < minutes < _DAY or _DAY % minutes:
            raise ParameterError(
                f"'{text}' is not a step of time. Allowed: minutes or hours that divide a day"
                f" (15min, 1h, 6h), {', '.join(_LABELS)}."
            )
        return cls(name.replace(" ", ""), minutes)

    @property
    def label_length(self) -> int:
        """How long this step's labels are: those of a day begin those of its hours."""
        return _LABELS.get(self.name, len("2022-11-14T08:15"))

    @property
    def is_periodic(self) -> bool:
        """Whether a slice collects the same hour or weekday of many weeks."""
        return self.name in ("hour", "weekday", "weekday-hour")


def time_dimension(every: Every, labels: Sequence[str]) -> Dimension:
    """Returns time as a separate dimension: sorted steps, under a tree where the step has one."""
    if every.name in ("week", "weekday"):
        return Dimension.from_values(TIME, labels, every=every.name)
    return replace(fold_times(every.name, every.minutes, labels), use="separate")


def fold_times(every: str, minutes: int | None, labels: Sequence[str]) -> Dimension:
    """Returns the fold of a step of time (name and minutes of `Every`) with these labels.

    Leaves are in time order.
    """
    if every in ("hour", "weekday-hour"):
        days = 7 if every == "weekday-hour" else 1
        paths = [_of_week(minute, days) for minute in range(0, days * _DAY, 60)]
        return _fold_along(every, paths, _clock if days == 1 else _weekday_clock)
    if minutes is None and every not in ("day", "month"):
        raise ParameterError(
            f"Steps of '{every}' cannot be folded. Allowed: hour, weekday-hour, minutes or hours"
            " that divide a day (15min, 1h), day, month."
        )
    unit = {"day": "D", "month": "M"}.get(every, "m")
    starts = np.unique(np.array(labels, dtype="datetime64[m]"))
    months = starts.astype("datetime64[M]")
    first, after = (
        edge.astype("datetime64[m]").astype(np.int64).tolist() for edge in (months, months + 1)
    )
    paths = []
    for start, *month in zip(starts.astype(np.int64).tolist(), first, after, strict=True):
        steps = [] if every == "month" else _in_month(start, month[0], month[1], minutes or _DAY)
        paths.append([(first[0], after[-1]), (month[0], month[1]), *steps])
    return _fold_along(
        every,
        paths,
        lambda minute, _: str(np.datetime64(minute, "m").astype(f"datetime64[{unit}]")),
    )


def _fold_along(
    every: str, paths: Iterable[Sequence[Span]], text: Callable[[int, bool], str]
) -> Dimension:
    """Builds the tree from the path to each leaf, leaves in time order."""
    spans: list[Span] = []
    parent: list[int] = []
    open_nodes: list[int] = []
    for path in paths:
        # A node equal to its parent is skipped.
        distinct = list(dict.fromkeys(path))
        at = 0
        while at < min(len(open_nodes), len(distinct)) and spans[open_nodes[at]] == distinct[at]:
            at += 1
        del open_nodes[at:]
        for span in distinct[at:]:
            parent.append(open_nodes[-1] if open_nodes else -1)
            open_nodes.append(len(spans))
            spans.append(span)
    start, stop = (np.array([text(span[end], end == 1) for span in spans]) for end in (0, 1))
    code = np.array([f"{a} {b}" for a, b in zip(start.tolist(), stop.tolist(), strict=True)])
    tree = Hierarchy(parent=np.array(parent, np.int32), code=code, kind="times")
    hours = np.array([(b - a) / 60 for a, b in spans])
    columns = dict(zip(TIME_COLUMNS, (start, stop), strict=True))
    return Dimension(TIME, tree, start[tree.leaf_node], columns, hours, every)


def steps_of_day(minutes: int) -> list[int]:
    """Returns the step lengths within a day: the shortest, doubled while it divides the day, then
    the day.
    """
    lengths = [minutes]
    while _DAY % (2 * lengths[-1]) == 0 and 2 * lengths[-1] < _DAY:
        lengths.append(2 * lengths[-1])
    return [*lengths, _DAY] if minutes < _DAY else lengths


def _within_day(minute: int, step: int) -> list[Span]:
    """Returns the steps of a day that contain a minute, longest first."""
    first = minute - minute % _DAY
    inside = minute - first
    return [
        (first + inside // length * length, first + (inside // length + 1) * length)
        for length in reversed(steps_of_day(step))
    ]


def _of_week(minute: int, days: int) -> list[Span]:
    """Returns the path to an hour of a day, or of a week of working days and weekend."""
    if days == 1:
        return _within_day(minute, 60)
    part = (0, 5 * _DAY) if minute < 5 * _DAY else (5 * _DAY, 7 * _DAY)
    return [(0, 7 * _DAY), part, *_within_day(minute, 60)]


def _in_month(minute: int, first: int, after: int, step: int) -> list[Span]:
    """Returns the path from a month to a step in it, in minutes since 1970.

    A week in two months is two nodes.
    """
    # 1 January 1970 was a Thursday.
    monday = minute - (minute + 3 * _DAY) % (7 * _DAY)
    return [(max(monday, first), min(monday + 7 * _DAY, after)), *_within_day(minute, step)]


def _clock(minute: int, is_stop: bool) -> str:  # noqa: ARG001  # texts of a week depend on it
    return f"{minute // 60:02d}:00"


def _weekday_clock(minute: int, is_stop: bool) -> str:
    # A span that ends with a day ends at 24:00 of that day.
    day = (minute - 1 if is_stop else minute) // _DAY
    return f"{DAYS[day]} {_clock(minute - day * _DAY, is_stop)}"
