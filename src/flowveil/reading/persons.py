"""Who travelled: persons as texts that are equal exactly where the persons are taken to be the same.

Taking one person for two, or nobody for somebody, would count people who are not there, and a cell would pass for
safer than it is. So every doubt ends in fewer people: blanks and characters that nobody sees are taken off, upper and
lower case are the same unless the user says otherwise, and words for a missing value do not count as a person. Folding
case is done on Arrow columns, by Python's tables of Unicode, so that every engine that hands over Arrow gives the same
people.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowveil.reading.sql import MISSING

#: What stands for nobody, without case and outer blanks, beside `MISSING`. Documented in docs/reading.md.
PLACEHOLDERS = (
    "unknown", "unk", "missing", "anonymous", "anon", "undefined", "unspecified", "unidentified", "not available",
    "not applicable", "not known", "no id", "noid", "no_id", "nobody", "guest", "n.a.", "n.d.", "#n/a", "(null)",
    "(none)", "(blank)", "(empty)", "<null>", "<none>", "[null]", "tbd", "test", "inconnu", "unbekannt", "desconocido",
    "sconosciuto", "desconhecido",
)  # fmt: skip
#: The same as patterns: signs and x of any length, -1 and -9, -99, ..., two zeros or more (an empty UUID as well), and
#: the smallest and largest whole numbers, which programs write for a missing one. A single 0 is a person: numbering
#: often begins there. So are 999 and 99999: where persons are numbered, somebody has these numbers.
_SIGNS = {
    "?": r"[?]+",
    "-": r"-+",
    ".": r"[.]+",
    "*": r"[*]+",
    "_": r"_+",
    "x": r"x+",
    "-1": r"-1",
    "-9": r"-9+",
    "00": r"0[0-]*0",
    "smallest number": r"-(32768|2147483648|9223372036854775808)",
    "largest number": r"2147483647|4294967295|9223372036854775807|18446744073709551615",
}
#: How rows without anything for a person are listed.
EMPTY = "empty"
_NOBODY = "'" + "|".join([*(re.escape(w) for w in (*MISSING, *PLACEHOLDERS)), *_SIGNS.values()]) + "'"

#: Blanks of every script at either end, and characters without a shape anywhere.
_UNSEEN = r"^[\s\p{Z}\p{C}]+|[\s\p{Z}\p{C}]+$|\p{C}+"
_WHOLE_SQL = r"regexp_replace({}, '^(-?[0-9]+)\.0+$', '\1')"
_FLOAT_TYPE = re.compile(r"^(FLOAT|DOUBLE)$")


def spelling_sql(column: str, kind: str) -> str:
    """SQL: a person as text, as it stands in a column of this type."""
    text = f"CAST({column} AS VARCHAR)"
    return f"CASE WHEN NOT isnan({column}) THEN {text} END" if _FLOAT_TYPE.match(kind) else text


def person_sql(spelling: str) -> str:
    """SQL: a person as text, without what nobody sees; whole numbers without a point.

    Args:
        spelling: SQL of what `spelling_sql` makes.
    """
    return _WHOLE_SQL.format(f"regexp_replace({spelling}, '{_UNSEEN}', '', 'g')")


def placeholder_sql(person: str) -> str:
    """SQL: the word that stands for nobody, in lower case; NULL for a person.

    Args:
        person: SQL of a person, as `person_sql` makes it.
    """
    lowered = f"lower({person})"
    return f"CASE WHEN {person} IS NULL THEN '' WHEN regexp_full_match({lowered}, {_NOBODY}) THEN {lowered} END"


def known_persons(persons: Any, placeholders: Any, *, case: str) -> Any:
    """The persons of a batch, None where nobody is known.

    Args:
        persons: what `person_sql` selected.
        placeholders: what `placeholder_sql` selected.
        case: ``fold`` or ``keep``; see `flowveil.reading.Reading`.
    """
    known = pc.if_else(pc.is_null(placeholders), persons, pa.scalar(None, persons.type))
    return folded(known) if case == "fold" else known


def folded(persons: Any) -> Any:
    """Persons with upper and lower case made the same: Unicode case folding, after and before NFKC.

    Whole columns where all is ASCII; otherwise Python folds each distinct text that is not, once a batch.
    """
    if pc.all(pc.string_is_ascii(persons), min_count=0).as_py() is not False:
        return pc.ascii_lower(persons)
    encoded = persons.dictionary_encode()
    names = [_fold(name) for name in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


class Nobody:
    """Counts rows that have no person, by the word that stands there. Only words of the documented list are kept."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()

    def add(self, placeholders: Any) -> None:
        """Count one batch of what `placeholder_sql` selected."""
        for entry in pc.value_counts(placeholders.drop_null()):
            self.count(entry["values"].as_py(), entry["counts"].as_py())

    def count(self, word: str, rows: int) -> None:
        """Count rows with this word, which `placeholder_sql` selected."""
        if rows:
            self._rows[_listed_as(word)] += rows

    def as_recorded(self) -> dict[str, int]:
        """Rows by word, sorted by the word."""
        return dict(sorted(self._rows.items()))


def _listed_as(word: str) -> str:
    if word == "":
        return EMPTY
    return next((name for name, pattern in _SIGNS.items() if re.fullmatch(pattern, word)), word)
