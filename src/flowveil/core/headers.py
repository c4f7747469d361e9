"""Decides whether messages may quote the names of columns.

In a file without a header line, the names are a record, with a person's name, home and destination.
So only names made of words for columns are quoted, and none if most are not, if one of the others
looks like a value or a person, or if one recurs as a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flowveil.core.errors import DataError, did_you_mean, option

#: Words that identify the name of a column.
_WORDS = frozenset(
    [
        "id",
        "ids",
        "uid",
        "uuid",
        "code",
        "codes",
        "key",
        "index",
        "name",
        "names",
        "nom",
        "label",
        "type",
        "kind",
        "category",
        "categories",
        "mode",
        "purpose",
        "motive",
        "reason",
        "lat",
        "latitude",
        "lon",
        "lng",
        "long",
        "longitude",
        "coord",
        "coords",
        "coordinate",
        "geom",
        "geometry",
        "wkt",
        "polyline",
        "h3",
        "hex",
        "cell",
        "tile",
        "tiles",
        "zone",
        "zones",
        "zoneid",
        "area",
        "region",
        "district",
        "commune",
        "municipality",
        "county",
        "insee",
        "iris",
        "lsoa",
        "msoa",
        "taz",
        "geoid",
        "geocode",
        "geo",
        "locationid",
        "pulocationid",
        "dolocationid",
        "origin",
        "orig",
        "dest",
        "destination",
        "start",
        "end",
        "from",
        "to",
        "pickup",
        "dropoff",
        "pu",
        "departure",
        "arrival",
        "source",
        "target",
        "src",
        "dst",
        "time",
        "date",
        "datetime",
        "timestamp",
        "month",
        "year",
        "week",
        "weekday",
        "hour",
        "minute",
        "local",
        "duration",
        "trip",
        "trips",
        "count",
        "number",
        "num",
        "total",
        "s000",
        "weight",
        "weights",
        "poids",
        "factor",
        "expansion",
        "distance",
        "speed",
        "km",
        "length",
        "size",
        "share",
        "rate",
        "ratio",
        "amount",
        "value",
        "price",
        "cost",
        "fare",
        "person",
        "persons",
        "personid",
        "user",
        "userid",
        "participant",
        "respondent",
        "traveler",
        "traveller",
        "individual",
        "individuals",
        "household",
        "taxi",
        "cab",
        "vehicle",
        "driver",
        "passenger",
        "device",
        "sex",
        "gender",
        "sexe",
        "age",
        "birth",
        "education",
        "occupation",
        "profession",
        "income",
        "salary",
        "status",
        "marital",
        "race",
        "ethnicity",
        "relationship",
        "zip",
        "zipcode",
        "postcode",
        "postal",
        "parent",
        "level",
        "description",
        "flag",
        "valid",
        "segment",
        "class",
        "workclass",
        "capital",
        "fnlwgt",
        "diagnosis",
        "rider",
        "member",
        "customer",
        "client",
        "subscriber",
        "card",
        "account",
        "imsi",
        "imei",
        "msisdn",
        "plate",
        "tag",
        "token",
        "hash",
        "bike",
        "scooter",
    ]
)  # a list of a word a line would be longer than the file
#: Words that occur in values too: a name must have no other words.
_COMMON_WORDS = _WORDS | frozenset(
    [
        "city",
        "town",
        "ville",
        "state",
        "country",
        "department",
        "province",
        "station",
        "stop",
        "street",
        "address",
        "place",
        "location",
        "day",
        "hours",
        "disease",
        "condition",
        "nationality",
        "religion",
        "group",
        "title",
        "email",
        "phone",
        "gain",
        "loss",
        "note",
        "comment",
        "score",
        "per",
    ]
)  # a list of a word a line would be longer than the file
#: Numbers, times, identifiers and addresses; three digits in a row that are not a year.
_LIKE_DATA = re.compile(
    r"\d[.,:/-]\d|\de[+-]?\d|@|(?<!\d)(?!(19|20)\d\d(?!\d))\d{3,}", re.IGNORECASE
)
#: Two or more capitalised words, as in names of persons, streets and towns.
_LIKE_A_NAME = re.compile(r"[A-ZÀ-Þ][\w.'’-]*(\s+(?:[a-z’']{1,3}\s+)*[A-ZÀ-Þ][\w.'’-]*)+")
_PARTS = re.compile(r"h3|[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
#: A name as programs write it: one word, or several joined.
_NAME = re.compile(r"[^\W\d][\w$.-]{0,40}")
_NUMBER = re.compile(r"[+-]?\d{1,18}([.,]\d{1,18})?([eE][+-]?\d{1,3})?")
#: Fewer columns of numbers, and fewer numbers in a column, prove nothing.
_FEWEST_COLUMNS, _FEWEST_NUMBERS = 2, 5
_SHORT = re.compile(r"[a-z]{1,2}\d{0,2}", re.IGNORECASE)


@dataclass(frozen=True)
class Header:
    """The column names of a table.

    ``declared`` if the file format declares them, so that they are never data.
    """

    names: Sequence[str]
    declared: bool = False
    below: Iterable[Iterable[object]] = field(
        default=(), repr=False
    )  # some values of each column; read when needed

    @cached_property
    def has_values(self) -> bool:
        """Whether a name looks like a value or a person, or recurs as a value."""
        if any(_LIKE_DATA.search(name) or _LIKE_A_NAME.fullmatch(name) for name in self._unknown):
            return True
        held = {str(value).strip().casefold() for column in self._below for value in column}
        return any(name.strip().casefold() in held for name in self.names if name.strip())

    @cached_property
    def may_be_data(self) -> bool:
        """Whether no name may be quoted."""
        if self.declared or self.is_above_numbers:
            return False
        return self.has_values or 2 * len(self._unknown) > len(self.names)

    @cached_property
    def is_above_numbers(self) -> bool:
        """Whether words stand above columns of numbers, so that the first line is no record.

        In a record the values of these columns would be numbers. Of any language, and
        abbreviations too.
        """
        pairs = zip(self.names, self._below, strict=False)
        columns = [(name.strip(), _texts(values)) for name, values in pairs]
        if any(name in values for name, values in columns if name):
            return False
        numeric = [
            name
            for name, values in columns
            if len(values) >= _FEWEST_NUMBERS and all(map(_NUMBER.fullmatch, values))
        ]
        return len(numeric) >= _FEWEST_COLUMNS and all(map(_NAME.fullmatch, numeric))

    @cached_property
    def _below(self) -> list[list[object]]:
        return [list(values) for values in self.below]

    @cached_property
    def _unknown(self) -> list[str]:
        return [
            name.strip()
            for name in self.names
            if name.strip() and not _names_a_column(name.strip())
        ]

    @cached_property
    def quotable(self) -> list[str]:
        """The names that messages may quote."""
        if self.may_be_data:
            return []
        if self.declared:
            return list(self.names)
        # Above numbers, a word of any language is a name; one that looks like a value never is.
        return [
            name
            for name in self.names
            if _names_a_column(name.strip())
            or (self.is_above_numbers and _NAME.fullmatch(name.strip()))
        ]

    def did_you_mean(self, name: str) -> str:
        """Returns `` Did you mean 'x'?`` for the nearest name that may be quoted."""
        return did_you_mean(name, self.quotable)

    def refuse_missing(self, wanted: Iterable[str]) -> None:
        """Raises DataError for names that the table does not have."""
        missing = [name for name in dict.fromkeys(wanted) if name not in self.names]
        if missing:
            lines = "".join(f"\n- '{name}'.{self.did_you_mean(name)}" for name in missing)
            verb = "s are" if len(missing) > 1 else " is"
            raise DataError(
                f"{len(missing)} named column{verb} missing:{lines}\n{self.described()}"
            )

    def refuse_doubled(self, used: Iterable[str]) -> None:
        """Raises DataError for names that several columns have."""
        doubled = [name for name in dict.fromkeys(used) if list(self.names).count(name) > 1]
        if doubled:
            raise DataError(
                f"Several columns are called {listed(doubled)}. Hint: give every column a different"
                " name."
            )

    def described(self) -> str:
        """Returns a sentence about the columns."""
        if self.may_be_data:
            return (
                f"The table has {len(self.names)} columns; their names are not repeated, because"
                " the first line looks like data, not like names of columns. Hint: if it is data,"
                f" add a header line, or name the columns ({option('column_names')} A,B,...)."
            )
        more = len(self.names) - len(self.quotable)
        rest = (
            f", and {more} more whose names are not repeated, because they may be data"
            if more
            else ""
        )
        return f"The table has {listed(self.quotable)}{rest}."

    def listed(self, some: Sequence[str]) -> str:
        """Returns some of the names for a message, or the numbers of their columns, from 1."""
        if set(some) <= set(self.quotable):
            return ", ".join(some)
        numbers = ", ".join(str(list(self.names).index(name) + 1) for name in some)
        return f"number {numbers} (names that may be data are not repeated)"


def plain_name(name: str) -> str:
    """Returns a name without case and separators.

    ``Start_Lat``, ``startLat`` and ``start lat`` are equal.
    """
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def listed(names: Sequence[str], *, most: int = 60) -> str:
    """Returns names for a message; long lists are truncated."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown or "no columns"


def _names_a_column(name: str) -> bool:
    """Returns whether a name consists of words for columns, has one and no blank, or is too short
    to reveal a value.
    """
    if _LIKE_DATA.search(name) and plain_name(name) not in _WORDS:
        return False
    parts = {part.casefold() for part in _PARTS.findall(name)}
    whole = {plain_name(name)} & _COMMON_WORDS or (parts and parts <= _COMMON_WORDS)
    return bool(whole or _SHORT.fullmatch(name) or (parts & _WORDS and " " not in name))


def _texts(values: Iterable[object]) -> list[str]:
    """Returns the values that are present, as text."""
    texts = (str(value).strip() for value in values if value is not None)
    return [text for text in texts if text and text.casefold() not in ("nan", "null", "na")]
