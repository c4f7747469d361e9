"""Finds columns that the user may have forgotten to name. They are suggested, never used.

A wrong guess of a count or weight would change every cell, so such columns are only suggested. Persons who are not
counted are not protected, so a column that looks like persons must be confirmed or denied: `refuse_unnamed_persons`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flowveil.errors import ParameterError, option, with_value, without_value
from flowveil.flows import SUM_COLUMNS
from flowveil.headers import Header, plain_name
from flowveil.reading.columns import PERSONS, TRIPS, ColumnMap
from flowveil.reading.sql import MISSING

#: Words in names of columns that identify persons, or what only one person or household uses.
_PERSONS = frozenset(
    """
    person pers user rider customer cust client member subscriber passenger pax participant respondent resp traveller
    traveler commuter individual indiv resident citizen employee worker student patient driver cardholder household hh
    device phone mobile imei imsi msisdn iccid sim card smartcard account acct token uid pid ssn passport licence
    license plate tag transponder email surname visitor mac idfa gaid maid
    """.split()  # noqa: SIM905  # a list of a word a line would be longer than the file
)
#: Words of vehicles, which many persons use one after the other.
_VEHICLES = frozenset({"vehicle", "car", "taxi", "cab", "bike", "scooter", "truck", "medallion"})
#: Words of identifiers: ``cab_id`` identifies, ``user_type`` does not.
_IDENTIFIERS = frozenset({"id", "ids", "no", "nr", "num", "number", "code", "key", "hash", "ident", "identifier"})
#: Words of properties and amounts, which no other word overrides.
_PROPERTIES = frozenset(
    """
    type kind class category categories group segment status casual age sex gender birth year income size count counts
    total share rate weight factor model make brand agent cost fare price plan os label time date day
    """.split()  # noqa: SIM905
)
#: Words of identifiers of places or single trips.
_OTHER_IDENTIFIERS = frozenset(
    """
    station stop dock hub zone tile cell h3 hex geohash route line street area tract block node link edge region origin
    destination start end from to pickup dropoff trip ride journey tour order booking record row event session file
    """.split()  # noqa: SIM905
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: A hash or another generated identifier.
_HASHED = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[0-9A-Za-z+/=_-]{8,}")
_DECIMAL = re.compile(r"[+-]?[0-9]*[.][0-9]*[1-9][0-9]*")
#: Fewer values are not judged.
_FEWEST_VALUES = 20
#: Distinct values of a column of identifiers.
_FEWEST_IDENTIFIED = 10
#: Repetitions in a sample that exclude row numbers.
_FEWEST_REPEATED = 3
#: At least one value in ten is 0 where numbers are counts.
_ZEROS_OF_COUNTS = 10
#: Columns that are checked, and that are named in one hint.
_MOST_COLUMNS, _MOST_NAMED = 60, 8

#: Some values of a column, spread over the table.
Sample = Callable[[str], list[Any]]


def refuse_unnamed_persons(
    used: ColumnMap, names: Sequence[str], *, sample: Sample, header: Callable[[], Header]
) -> None:
    """Raises ParameterError if a column looks like persons and the user said nothing about persons.

    Args:
        used: the columns by role.
        names: the columns of the table.
        sample: returns some values of a column, spread over the table.
        header: decides whether messages may quote names.
    """
    found = persons_among(used, names, sample=sample)
    if not found:
        return
    shown = _named(found, header)
    several = len(found) > 1
    name = "COLUMN" if header().may_be_data else found[0]
    raise ParameterError(
        f"{'Columns look' if several else 'A column looks'} like persons ({shown}), and no person is named, so people "
        f"would not be protected. Say which: {with_value('person', name)} protects people; "
        f"{without_value('person')} says that no column identifies persons."
    )


def persons_among(used: ColumnMap, names: Sequence[str], *, sample: Sample) -> list[str]:
    """Returns the columns that look like persons; empty if the user named one, or said that there is no such column."""
    if used.person is not None:
        return []
    return [name for name in _free(used, names) if _looks_like_persons(name, sample)]


def hints(used: ColumnMap, names: Sequence[str], *, sample: Sample, header: Callable[[], Header]) -> Iterator[str]:
    """Yields sentences on unused columns that may be needed; arguments as for `refuse_unnamed_persons`."""
    free = _free(used, names)
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
            if not any(plain_name(name) in column.usual for column in SUM_COLUMNS.values())
            and not _may_identify(name)
            and _are_counts(sample(name))
        ]
        if found:
            yield (
                "Every row is counted as one trip, because no column with the number of trips was named; columns that "
                f"hold numbers: {_named(found, header)}. Hint: {option('trips')} names it."
            )
    if used.person is None:
        found = [
            name
            for name in free
            if plain_name(name) in PERSONS or _looks_like_persons(name, sample) or _identifies(name, sample, _VEHICLES)
        ]
        listed = f" Columns that look like one: {_named(found, header)}." if found else ""
        yield f"No person column was recognised, so people are not counted.{listed} Hint: {option('person')} names one."


def suggested_trips(names: Sequence[str], *, sample: Sample) -> str:
    """Returns the option for the column that most likely has numbers of trips, with a leading blank; or nothing."""
    found = [name for name in names if plain_name(name) in TRIPS] or [
        name for name in names if not _may_identify(name) and _are_counts(sample(name))
    ]
    return f" {with_value('trips', found[0])}" if found else ""


def _free(used: ColumnMap, names: Sequence[str]) -> list[str]:
    """Returns the unused columns; not those whose name occurs twice."""
    taken = {*used.names(), *(name for name in names if list(names).count(name) > 1)}
    free = [name for name in names if name not in taken]
    # In a wide table, columns with words of persons are checked first.
    return sorted(free, key=lambda name: not _words_of(name) & _PERSONS)[:_MOST_COLUMNS]


def _named(found: Sequence[str], header: Callable[[], Header]) -> str:
    shown = header().listed(found[:_MOST_NAMED])
    return f"{shown} and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else shown


def _words_of(name: str) -> set[str]:
    """Returns the words of a name; splits compounds such as ``userid``."""
    words = {part.casefold() for part in _WORDS.findall(name)}
    for word in tuple(words):
        stem = next((end for end in ("id", "no", "nr", "hash") if word.endswith(end) and word != end), None)
        if stem and word.removesuffix(stem) in _PERSONS | _VEHICLES:
            words |= {word.removesuffix(stem), stem}
        if word.startswith("id") and word[2:] in _PERSONS | _VEHICLES:
            words |= {word[2:], "id"}
    return words


def _texts(values: Sequence[Any]) -> list[str]:
    """Returns the values that are not missing, as text."""
    texts = (str(value).strip() for value in values)
    return [text for text in texts if text.casefold() not in MISSING]


def _are_counts(values: Sequence[Any]) -> bool:
    """Returns whether the values are numbers from 0 on, neither all equal nor all distinct."""
    texts = _texts(values)
    if not texts or not all(re.fullmatch(r"\d{1,12}(\.\d+)?", text) for text in texts):
        return False
    return len(set(texts)) > 1 and (len(set(texts)) < len(texts) or len(texts) < _FEWEST_VALUES)


def _looks_like_persons(name: str, sample: Sample) -> bool:
    """Returns whether a column identifies persons, by its name or by hashes that recur under a neutral name."""
    words = _words_of(name)
    if words & _PERSONS:
        return _identifies(name, sample, _PERSONS)
    if words & (_OTHER_IDENTIFIERS | _VEHICLES | _PROPERTIES):
        return False
    texts = _texts(sample(name))
    distinct = set(texts)
    if len(distinct) < _FEWEST_IDENTIFIED or len(texts) - len(distinct) < _FEWEST_REPEATED:
        return False
    return plain_name(name) == "id" or all(_HASHED.fullmatch(text) for text in distinct)


def _may_identify(name: str) -> bool:
    """Returns whether a name such as ``household_id`` is one of identifiers, whose numbers are never counts."""
    words = _words_of(name)
    return bool(words & _IDENTIFIERS or (words & _PERSONS and not words & _PROPERTIES))


def _identifies(name: str, sample: Sample, of: frozenset[str]) -> bool:
    """Returns whether a column with such a word in its name holds identifiers, not a property."""
    words = _words_of(name)
    if not words & of or words & _PROPERTIES:
        return False
    texts = _texts(sample(name))
    if len(texts) < _FEWEST_VALUES or any(_DECIMAL.fullmatch(text) for text in texts):
        return False
    if words & _IDENTIFIERS:
        return len(set(texts)) >= 2
    # Small numbers with many zeros under a name such as ``car_driver`` are counts of a mode. A person numbered 0 is
    # one of many.
    if texts.count("0") * _ZEROS_OF_COUNTS >= len(texts) and all(re.fullmatch(r"\d{1,5}", text) for text in texts):
        return False
    return len(set(texts)) >= _FEWEST_IDENTIFIED
