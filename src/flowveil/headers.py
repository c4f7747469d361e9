"""Decides whether messages may quote the header of a table.

Messages list the columns of a table. In a file without a header that list would be a record, with a person's name, home
and destination. So names are quoted only if they are certainly column names; otherwise columns are numbered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from flowveil.errors import did_you_mean

#: Numbers, times, lists, geometries, addresses and identifiers are not column names.
_LIKE_DATA = re.compile(
    r"^\s*[+-]?\d+([.,:/-]\d+)*(e[+-]?\d+)?\s*$"
    r"|^\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}[ t]\s*\d|^\s*[\[(]\s*[\[\d+-]|@|^8[0-9a-f]{14}$"
    r"|^\s*(?!(19|20)\d\d\s)[+-]?\d+([.,]\d+)?\s|://|^\s*(point|linestring|polygon|multi\w+)\s*\("
    r"|^\{?[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}\}?$"
    r"|^\d{1,2}[ .-]?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    # Three digits in a row that are not a year: an identifier.
    r"|(?<!\d)(?!(19|20)\d\d(?!\d))\d{3,}"
    r"|^\s*(true|false|yes|no|nan|null|none|unknown|missing|male|female|man|woman)\s*$",
    re.IGNORECASE,
)
#: Column names of public data sets that look like data: the total of LODES.
_PUBLIC = frozenset({"s000"})
#: Two or more capitalised words, as in names of persons, streets and towns.
_LIKE_A_NAME = re.compile(r"^\s*[A-ZÀ-Þ][\w.'’-]*(\s+(?:[a-z’']{1,3}\s+)*[A-ZÀ-Þ][\w.'’-]*)+\s*$")
#: Words that identify a column name anywhere in it.
_WORDS = frozenset(
    """
    id ids uid uuid code codes key index name names nom label type kind category categories mode purpose
    motive reason lat latitude lon lng long longitude coord coords coordinate geom geometry wkt polyline
    h3 hex cell tile tiles zone zones zoneid area region district commune municipality county insee iris
    lsoa msoa taz geoid geocode geo locationid pulocationid dolocationid origin orig dest destination
    start end from to pickup dropoff pu departure arrival source target src dst time date datetime
    timestamp month year week weekday hour minute duration trip trips count number num total weight
    weights poids factor expansion distance speed km length size share rate ratio amount value price
    cost fare person persons personid user userid participant respondent traveler traveller individual
    individuals household taxi cab vehicle driver passenger device sex gender sexe age birth education
    occupation profession income salary status marital race ethnicity relationship zip zipcode postcode
    postal parent level description flag valid segment class workclass capital fnlwgt diagnosis
    rider member customer client subscriber card account imsi imei msisdn plate tag token hash bike scooter
    """.split()  # noqa: SIM905  # a list of a word a line would be longer than the file
)
#: Words that are column names only alone: they occur in values as well.
_ALONE = frozenset(
    """
    city town ville state country department province station stop street address place location
    day disease condition nationality religion group title email phone
    hours gain loss note comment score
    """.split()  # noqa: SIM905  # a list of a word a line would be longer than the file
)
_PARTS = re.compile(r"h3|[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)(e[+-]?\d+)?", re.IGNORECASE)
_SHORT = re.compile(r"[a-z]{1,2}\d{0,2}", re.IGNORECASE)


@dataclass(frozen=True)
class Header:
    """The column names of a table, and whether messages may quote them.

    Attributes:
        names: the names in the table.
        below: some values of each column; a name that recurs in any column is a value.
        in_text: whether the names are the first line of a text file. Then half of the names must consist of column
            words, or be words above numbers.
        declared: whether the file format declares the names, such as the fields of a shapefile: they are never data.
    """

    names: Sequence[str]
    below: Iterable[Iterable[object]] = field(default=(), repr=False)
    in_text: bool = False
    declared: bool = False

    @cached_property
    def may_be_data(self) -> bool:
        """Whether no name may be quoted."""
        if self.declared:
            return False
        names = [name.strip() for name in self.names if name.strip()]
        if any(_LIKE_DATA.search(name) for name in names if name.casefold() not in _PUBLIC):
            return True
        known = [name for name in names if _names_a_column(name)]
        if any(_LIKE_A_NAME.match(name) for name in names if name not in known):
            return True
        below = [list(column) for column in self.below]
        if self.in_text:
            above = {name.strip() for name, column in zip(self.names, below, strict=False) if _all_numbers(column)}
            if 2 * sum(name in known or name in above for name in names) < len(names):
                return True
        values = {str(value).strip().casefold() for column in below for value in column if value is not None}
        return any(name.casefold() in values for name in names)

    @property
    def quotable(self) -> Sequence[str]:
        """The names; empty if they may be data."""
        return () if self.may_be_data else self.names

    def did_you_mean(self, name: str) -> str:
        """Returns `` Did you mean 'x'?`` for the nearest name, if names may be quoted."""
        return did_you_mean(name, self.quotable)

    def described(self) -> str:
        """Returns a sentence about the columns."""
        if self.may_be_data:
            return (
                f"The table has {len(self.names)} columns; their names are not repeated, because the first line looks "
                "like data, not like names of columns. Hint: if it is data, add a header line."
            )
        return f"The table has {listed(self.names)}."

    def listed(self, some: Iterable[str]) -> str:
        """Returns some of the names for a message, or the numbers of their columns, from 1."""
        if not self.may_be_data:
            return ", ".join(some)
        numbers = ", ".join(str(list(self.names).index(name) + 1) for name in some)
        return f"number {numbers} (the first line looks like data, so its words are not repeated)"


def plain_name(name: str) -> str:
    """Returns a name without case and separators: ``Start_Lat``, ``startLat`` and ``start lat`` are equal."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def listed(names: Sequence[str], *, most: int = 60) -> str:
    """Returns names for a message; long lists are truncated."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown or "no columns"


def _all_numbers(values: Iterable[object]) -> bool:
    """Returns whether a column has at least two values, all of them numbers."""
    texts = [str(value).strip() for value in values if value is not None]
    held = [text for text in texts if text]
    return len(held) > 1 and all(_NUMBER.fullmatch(text) for text in held)


def _names_a_column(name: str) -> bool:
    """Returns whether a name consists of column words, or is too short to reveal anything."""
    whole = re.sub(r"[\W_]", "", name).casefold()
    parts = {part.casefold() for part in _PARTS.findall(name)}
    return bool(parts & _WORDS) or whole in _WORDS or whole in _ALONE or bool(_SHORT.fullmatch(name))
