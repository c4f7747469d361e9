"""Numbers in text: decimal commas, separators of thousands, and whether they are clear.

``121,606`` is 121 thousand in London and 122 in Berlin. Where every separator of a column of counts
is followed by three digits, the column is refused with the question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from flowveil.core.errors import ParameterError, switched_on, with_value
from flowveil.reading.sql import MISSING_PATTERN, number_sql, quoted_text

#: The separator of thousands, as a class of characters, by the names of the option.
_SEPARATORS = {"comma": "[,]", "point": "[.]", "space": "[ \u00a0\u202f]", "apostrophe": "['’]"}
#: How a number is written, by number: the four bits of `mark_sql`.
_MARKS = (
    ("comma group", "[+-]?[1-9][0-9]{0,2},[0-9]{3}"),
    ("comma groups", "[+-]?[1-9][0-9]{0,2}(,[0-9]{3}){2,}"),
    ("comma decimals", "[+-]?[0-9]+,[0-9]+"),
    ("point group", "[+-]?[1-9][0-9]{0,2}[.][0-9]{3}"),
    ("point groups", "[+-]?[1-9][0-9]{0,2}([.][0-9]{3}){2,}"),
    ("point decimals", "[+-]?[0-9]*[.][0-9]+"),
    ("comma groups, point decimals", "[+-]?[0-9]{1,3}(,[0-9]{3})+[.][0-9]+"),
    ("point groups, comma decimals", "[+-]?[0-9]{1,3}([.][0-9]{3})+,[0-9]+"),
    ("space groups", f"[+-]?[0-9]{{1,3}}({_SEPARATORS['space']}[0-9]{{3}})+([.,][0-9]+)?"),
    (
        "apostrophe groups",
        f"[+-]?[0-9]{{1,3}}({_SEPARATORS['apostrophe']}[0-9]{{3}})+([.,][0-9]+)?",
    ),
)
_KINDS = ("", *(kind for kind, _ in _MARKS))


def check_separators(thousands: str | None, *, decimal_comma: bool) -> None:
    """Raises ParameterError if the same sign would separate thousands and decimals."""
    if thousands == "comma" and decimal_comma:
        raise ParameterError(
            f"{with_value('thousands', 'comma')} and {switched_on('decimal_comma')} contradict each"
            " other: a comma separates thousands or decimals. Leave one out."
        )


def grouped_sql(column: str, *, comma: bool, thousands: str | None = None) -> str:
    """Returns SQL: a column as text that DuckDB reads as a number.

    Separators of thousands are removed where they are in their places, and a decimal comma becomes
    a point. Other texts with these signs become invalid.
    """
    text = f"CAST({column} AS VARCHAR)"
    separator = _SEPARATORS.get(thousands or "")
    if separator is None:
        if not comma:
            return text
        return (
            f"CASE WHEN contains({text}, '.') THEN {text} || '?' ELSE replace({text}, ',', '.') END"
        )
    decimal = "[,]" if comma or thousands == "point" else "[.]"
    form = f"[+-]?([0-9]{{1,3}}({separator}[0-9]{{3}})+|[0-9]+)({decimal}[0-9]+)?"
    signs = f"[0-9]({separator}|[,.])[0-9]"
    plain = f"regexp_replace(trim({text}), {quoted_text(separator)}, '', 'g')"
    return (
        f"CASE WHEN regexp_full_match(trim({text}), {quoted_text(form)}) THEN"
        f" replace({plain}, ',', '.') WHEN regexp_matches({text}, {quoted_text(signs)}) THEN"
        f" {text} || '?' ELSE {text} END"
    )


def trouble_sql(column: str, *, comma: bool, thousands: str | None = None) -> str:
    """Returns SQL: 0 for a number or a missing value, 2 for a decimal comma, 1 for other texts."""
    text = f"CAST({column} AS VARCHAR)"
    number = number_sql(grouped_sql(column, comma=comma, thousands=thousands))
    return (
        f"CASE WHEN {column} IS NULL OR ({number}) IS NOT NULL THEN 0 "
        f"WHEN regexp_full_match(lower(trim({text})), {MISSING_PATTERN}) THEN 0 "
        f"WHEN regexp_full_match(trim({text}), '[+-]?[0-9]+,[0-9]+') THEN 2 ELSE 1 END"
    )


def mark_sql(column: str) -> str:
    """Returns SQL: how separators are used in a text, a number of `_MARKS` from 1; 0 without
    them.
    """
    text = f"trim(CAST({column} AS VARCHAR))"
    cases = " ".join(
        f"WHEN regexp_full_match({text}, {quoted_text(form)}) THEN {i + 1}"
        for i, (_, form) in enumerate(_MARKS)
    )
    has_separator = quoted_text("[0-9][,. \u00a0\u202f'’][0-9]")
    return (
        f"CASE WHEN {column} IS NULL OR NOT regexp_matches({text}, {has_separator}) THEN 0"
        f" {cases} ELSE 0 END"
    )


def unclear_numbers(marks: Counter[str], *, decimal_comma: bool) -> tuple[list[str], list[str]]:
    """Returns problems with separators in columns of counts, and hints.

    ``marks`` counts rows by ``number column``, as `mark_sql` numbers them.
    """
    by_column: dict[str, set[str]] = {}
    for key in marks:
        mark, _, column = key.partition(" ")
        by_column.setdefault(column, set()).add(_KINDS[int(mark)])
    problems, hints = list[str](), list[str]()
    for column, kinds in sorted(by_column.items()):
        for is_problem, text in _unclear(kinds, column, decimal_comma=decimal_comma):
            (problems if is_problem else hints).append(text)
    return problems, list(dict.fromkeys(hints))


def _unclear(kinds: set[str], column: str, *, decimal_comma: bool) -> Iterator[tuple[bool, str]]:
    """Yields problems (True) and hints (False) on one column."""
    for kind in ("space", "apostrophe"):
        if f"{kind} groups" in kinds:
            yield False, f"{with_value('thousands', kind)} reads numbers with such separators."
    if kinds & {"point groups", "point groups, comma decimals"} or (
        decimal_comma and "point group" in kinds
    ):
        yield False, f"{with_value('thousands', 'point')} reads 9.999 as nine thousand."
    elif decimal_comma:
        return
    elif kinds & {"comma groups", "comma groups, point decimals"}:
        yield False, f"{with_value('thousands', 'comma')} reads 9,999 as nine thousand."
    elif "comma decimals" in kinds:
        yield False, f"{switched_on('decimal_comma')} reads numbers with a decimal comma."
    elif "comma group" in kinds:
        yield True, _question(column, "9,999")
        yield False, _answers("comma", "9,999", switched_on("decimal_comma"))
    elif "point group" in kinds and "point decimals" not in kinds:
        yield True, _question(column, "9.999")
        yield False, _answers("point", "9.999", with_value("thousands", "none"))


def _question(column: str, form: str) -> str:
    return (
        f"numbers in column {column!r} that may be thousands or decimals: every separator is"
        f" followed by three digits, as in {form}"
    )


def _answers(kind: str, form: str, decimals: str) -> str:
    return (
        f"{with_value('thousands', kind)} reads {form} as nine thousand nine hundred and"
        f" ninety-nine; {decimals} reads it as nearly ten."
    )
