"""Slices: the values of separate dimensions, one matrix for each.

A slice is a combination of values of the slice columns: sex, age, hour. This module says which
columns can be slice columns, and which values are too many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

from flowveil.core.errors import DataError, ParameterError, option, switched_on
from flowveil.core.times import DAYS, TIME, TIME_COLUMNS, Every

if TYPE_CHECKING:
    from flowveil.core.flows import Flows

#: Columns of a published matrix; a slice column cannot have one of these names.
TAKEN = ("origin_zone", "destination_zone", "trips", "weight", "layer", "revised", "estimate")
#: Largest number of slices; more suggest that a column is an identifier.
MOST_SLICES = 20_000
#: Largest number of values of a slice column, and fewest rows per value, unless the user confirms
#: more.
MOST_VALUES = 50
ROWS_PER_VALUE = 100

#: Values of the slice columns, in order.
Key = tuple[str, ...]


def check_slice_columns(by: Sequence[str], *, time: str | None, every: str | Every | None) -> None:
    """Checks the slice columns."""
    if (time is None) != (every is None):
        given, lacking = ("time", "every") if every is None else ("every", "time")
        raise ParameterError(
            f"'{given}' is given without '{lacking}'. Hint: --time names the column, --every the"
            " step (1h, day, weekday-hour)."
        )
    names = [*by, *([TIME] if every else [])]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"'{name}' would be a slice column twice; each can be used once.")
    for name in by:
        if name.lower() in (*TAKEN, TIME, *TIME_COLUMNS) or "," in name:
            raise ParameterError(
                f"'{name}' cannot be the name of a slice column:"
                f" {', '.join((*TAKEN, *TIME_COLUMNS))} and {TIME} have a meaning in the published"
                " matrix, and commas separate names. Hint: rename the column."
            )
    if not names:
        raise ParameterError(
            "No slices are requested. Hint: name attributes with --by, or a time with --time,"
            " --every."
        )


def declared_values(
    columns: Sequence[str], every: Every | None, given: Mapping[str, Sequence[str] | str]
) -> dict[str, list[str]]:
    """Returns the public values of the slice columns: sorted and distinct.

    Hours of the day and days of the week are public. Other time steps follow from a period such as
    ``2024-01-01/2024-03-31``, other values from a list that the publisher has from another source.
    """
    unknown = [name for name in given if name not in columns]
    if unknown:
        raise ParameterError(
            f"Values are given of '{unknown[0]}', which is not a slice column:"
            f" {', '.join(columns)}."
        )
    found = {}
    for name in columns:
        values = given.get(name)
        if name == TIME and every is not None and (values is None or isinstance(values, str)):
            values = _labels_of(every, values)
        listed = (
            [] if values is None or isinstance(values, str) else [str(value) for value in values]
        )
        if (
            not listed
            or len(set(listed)) < len(listed)
            or any(v != v.strip() or not v or "," in v for v in listed)
        ):
            calendar = option(f"values['{TIME}']", flag="--period")
            raise ParameterError(
                f"The values of '{name}' must be listed: with noise, a value that is published"
                " because it occurs would reveal that it does. Hint: list them with"
                f" {option('values')}; for days, months and other steps of time a period FIRST/LAST"
                f" is enough ({calendar}); no value may have a comma."
            )
        found[name] = sorted(listed)
    return found


def _labels_of(every: Every, period: str | None) -> list[str] | None:
    """Returns all labels of a periodic step, or of a period.

    None if a required period is missing.
    """
    hours = [f"{hour:02d}:00" for hour in range(24)]
    if every.is_periodic:
        of_week = [f"{day} {hour}" for day in DAYS for hour in hours]
        return {"hour": hours, "weekday": list(DAYS), "weekday-hour": of_week}[every.name]
    try:
        ends = [date.fromisoformat(day) for day in (period or "").split("/")]
    except ValueError:
        return None
    first, last = ends[0], ends[-1]
    n = (last - first).days + 1
    if not 0 < n <= MOST_SLICES:
        return None
    labels = [(first + timedelta(days=i)).isoformat() for i in range(n)]
    if every.name == "month":
        return sorted({label[:7] for label in labels})
    if every.minutes is None:
        return labels
    steps = range(0, 24 * 60, every.minutes)
    return [f"{label}T{step // 60:02d}:{step % 60:02d}" for label in labels for step in steps]


def refuse_many_values(values: Mapping[str, int], *, rows: int) -> None:
    """Refuses attributes with so many values that they look like identifiers.

    One matrix per contributor.

    Without a person column no other check would notice: k trips of one taxi are k trips.
    """
    many = {name: n for name, n in values.items() if n > MOST_VALUES or n * ROWS_PER_VALUE > rows}
    if many:
        found = "; ".join(f"'{name}' has {n:,} values in {rows:,} rows" for name, n in many.items())
        raise _too_many("values", f"{found}. Allowed are {MOST_VALUES} values, and one")


def refuse_many_combinations(flows: Flows) -> None:
    """Refuses combinations of attributes that are as numerous as identifiers.

    Two columns of forty values each look like classes and together identify every contributor.
    Reading checks only single columns (`refuse_many_values`), because a study slices by single
    ones. Flows made by the caller have no rows to check.
    """
    intake = flows.intake
    rows = intake.used_rows
    attributes = [at for at, name in enumerate(flows.slice_columns) if name != TIME]
    n = len({tuple(key[at] for at in attributes) for key in flows.slice_keys})
    if len(attributes) > 1 and intake.rows and not intake.by_many and n * ROWS_PER_VALUE > rows:
        names = ", ".join(f"'{flows.slice_columns[at]}'" for at in attributes)
        raise _too_many("combinations", f"{names} have {n:,} in {rows:,} rows. Allowed is one")


def _too_many(what: str, found: str) -> DataError:
    return DataError(
        f"Too many {what} to make a matrix of each: {found} for {ROWS_PER_VALUE} rows: {what} of"
        " few rows make matrices of one contributor each, published under its name. Hint: use"
        " fewer columns or classes that many people share; or confirm with"
        f" {switched_on('by_many')} that none represents one person, vehicle or household."
    )
