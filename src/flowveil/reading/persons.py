"""Normalises names of persons, so that equal texts are the same person.

Counting one person as two, or a placeholder as a person, would make a cell look safer than it is.
So in doubt fewer people are counted: outer blanks and invisible characters are removed, upper and
lower case are equal unless the user wants otherwise, and placeholders are not persons. Case is
folded on Arrow columns by Python's Unicode tables, so all engines count the same people.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowveil.reading.sql import MISSING

#: Placeholders for a missing person, in addition to `MISSING`; compared without case and outer
#: blanks. Listed in docs/reading.md.
PLACEHOLDERS = (
    "unknown",
    "unk",
    "missing",
    "anonymous",
    "anon",
    "undefined",
    "unspecified",
    "unidentified",
    "not available",
    "not applicable",
    "not known",
    "no id",
    "noid",
    "no_id",
    "nobody",
    "guest",
    "n.a.",
    "n.d.",
    "#n/a",
    "(null)",
    "(none)",
    "(blank)",
    "(empty)",
    "<null>",
    "<none>",
    "[null]",
    "tbd",
    "test",
    "inconnu",
    "unbekannt",
    "desconocido",
    "sconosciuto",
    "desconhecido",
)
#: Patterns of placeholders: signs and x of any length, -1 and -9, -99, ..., two zeros or more (also
#: an empty UUID), and the smallest and largest integers, which programs write for a missing one. 0,
#: 999 and 99999 are persons: numbered persons can have these numbers.
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
#: The word under which rows with an empty person are counted.
EMPTY = "empty"
_NOBODY = (
    "'" + "|".join([*(re.escape(w) for w in (*MISSING, *PLACEHOLDERS)), *_SIGNS.values()]) + "'"
)

#: Outer blanks of every script, and invisible characters anywhere.
_UNSEEN = r"^[\s\p{Z}\p{C}]+|[\s\p{Z}\p{C}]+$|\p{C}+"


def spelling_sql(column: str, kind: str) -> str:
    """Returns SQL: a person as text, as written in a column of this type."""
    text = f"CAST({column} AS VARCHAR)"
    return f"CASE WHEN NOT isnan({column}) THEN {text} END" if kind in ("FLOAT", "DOUBLE") else text


def person_sql(spelling: str) -> str:
    """Returns SQL: a spelling without outer blanks and invisible characters.

    Whole numbers without a point.
    """
    visible = f"regexp_replace({spelling}, '{_UNSEEN}', '', 'g')"
    return rf"regexp_replace({visible}, '^(-?[0-9]+)\.0+$', '\1')"


def placeholder_sql(person: str) -> str:
    """Returns SQL: the placeholder in lower case that the result of `person_sql` is.

    NULL for a person.
    """
    lowered = f"lower({person})"
    return (
        f"CASE WHEN {person} IS NULL THEN '' WHEN regexp_full_match({lowered}, {_NOBODY}) THEN"
        f" {lowered} END"
    )


def known_persons(persons: Any, placeholders: Any, *, case: str) -> Any:
    """Returns the persons of a batch, null for placeholders.

    In folded case unless the case is ``keep``.

    Folded is Unicode case folding, after and before NFKC. A column of ASCII is folded by Arrow;
    otherwise Python folds each distinct text of a batch once.
    """
    known = pc.if_else(pc.is_null(placeholders), persons, pa.scalar(None, persons.type))
    if case == "keep":
        return known
    if pc.all(pc.string_is_ascii(known), min_count=0).as_py() is not False:
        return pc.ascii_lower(known)
    encoded = known.dictionary_encode()
    texts = (
        unicodedata.normalize("NFKC", name).casefold() for name in encoded.dictionary.to_pylist()
    )
    return pa.array([unicodedata.normalize("NFKC", text) for text in texts], pa.string()).take(
        encoded.indices
    )


def placeholder_name(word: str) -> str:
    """Returns the name under which a placeholder is counted: only words of the documented list."""
    if word == "":
        return EMPTY
    return next((name for name, pattern in _SIGNS.items() if re.fullmatch(pattern, word)), word)
