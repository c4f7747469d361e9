"""Columns that nobody named and that may be what somebody forgot to name: found for hints, never used.

A count or a weight that is guessed wrongly makes every cell count something else, and a person who is not counted is
not protected. So such columns are pointed out, by their names and by a look at their first values, and it is left to
whoever knows the data to name them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flowveil.errors import option
from flowveil.flows import SUM_COLUMNS
from flowveil.headers import Header, plain_name
from flowveil.reading.columns import PERSONS, TRIPS, ColumnMap

#: Parts of names of columns that say who travelled, or with what only one person travels.
_WHO = frozenset(
    """
    person user rider customer client member subscriber passenger participant respondent traveller traveler individual
    household hh device phone imei imsi msisdn sim card account token hash uid pid uuid vehicle car taxi cab bike
    scooter truck driver
    """.split()  # noqa: SIM905  # a list of a word a line would be longer than the file
)
#: And those that say that a column has a number or a code for each: ``cab_id`` is one, ``user_type`` is none.
_NUMBERED = frozenset({"id", "ids", "no", "nr", "num", "number", "code", "key"})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: A hash or another identifier of a machine's making.
_HASHED = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[0-9A-Za-z+/=_-]{8,}")
#: Fewer values than these say nothing.
_FEWEST_VALUES = 20
#: Columns that are looked at, and named in one hint.
_MOST_COLUMNS, _MOST_NAMED = 60, 8


def hints(
    used: ColumnMap, names: Sequence[str], *, peek: Callable[[str], list[Any]], header: Callable[[], Header]
) -> Iterator[str]:
    """Sentences on columns that were not used and may be meant.

    Args:
        used: the columns that serve as something; a role with an empty text shall have none.
        names: the columns of the table.
        peek: the first values of a column.
        header: whether messages may repeat the names.
    """
    # A column that is there twice cannot be named.
    taken = {*used.names(), *(name for name in names if list(names).count(name) > 1)}
    free = [name for name in names if name not in taken][:_MOST_COLUMNS]
    for role, column in SUM_COLUMNS.items():
        found = [name for name in free if plain_name(name) in column.usual]
        if found and getattr(used, role) is None:
            yield (
                f"No {column.one} is used, because none was named; columns that may hold one: "
                f"{_named(found, header)}. Hint: {option(role)} names it."
            )
    if used.trips is None and used.has_tiles:
        found = [name for name in free if plain_name(name) in TRIPS] or [
            name
            for name in free
            if not any(plain_name(name) in column.usual for column in SUM_COLUMNS.values()) and _are_counts(peek(name))
        ]
        if found:
            yield (
                "Every row is counted as one trip, because no column with the number of trips was named; columns that "
                f"hold numbers: {_named(found, header)}. Hint: {option('trips')} names it."
            )
    if used.person is None:
        found = [name for name in free if plain_name(name) in PERSONS or _looks_like_persons(name, peek(name))]
        listed = f" Columns that look like one: {_named(found, header)}." if found else ""
        yield f"No person column was recognised, so people are not counted.{listed} Hint: {option('person')} names one."


def _named(found: Sequence[str], header: Callable[[], Header]) -> str:
    shown = header().listed(found[:_MOST_NAMED])
    return f"{shown} and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else shown


def _are_counts(values: Sequence[Any]) -> bool:
    """Whether these are numbers from 0 on, not all the same, and not numbered through."""
    texts = [str(value).strip() for value in values if value is not None and str(value).strip()]
    if not texts or not all(re.fullmatch(r"\d{1,12}(\.\d+)?", text) for text in texts):
        return False
    return len(set(texts)) > 1 and (len(set(texts)) < len(texts) or len(texts) < _FEWEST_VALUES)


def _looks_like_persons(name: str, values: Sequence[Any]) -> bool:
    """Whether there are many values, most of them several times, under a name or in a form of identifiers."""
    texts = [str(value).strip() for value in values if value is not None and str(value).strip()]
    distinct = set(texts)
    parts = {part.casefold() for part in _WORDS.findall(name)}
    # The trips of a person often follow each other, so the first rows may hold two persons and no more.
    fewest = 2 if parts & _WHO and parts & _NUMBERED else 10
    if len(texts) < _FEWEST_VALUES or not fewest <= len(distinct) <= 0.9 * len(texts):
        return False
    return bool(parts & _WHO) or all(_HASHED.fullmatch(text) for text in distinct)
