"""Expressions of SQL: quoted names and texts, numbers, text files, partition columns, slices.

Names, paths and values of users enter a statement only through these functions, or as parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from urllib.parse import unquote

from flowveil.core.errors import ParameterError
from flowveil.core.times import Every

#: Texts for a missing value; compared without case and outer blanks.
MISSING = ("", "na", "n/a", "nan", "<na>", "null", "none", "nil", "\\n")
#: A pattern: DuckDB turns a long list of texts into a join, which loses the order of the rows.
MISSING_PATTERN = "'(" + "|".join(re.escape(text) for text in MISSING) + ")'"
#: The folder of rows without a value in a partition column.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_LABELS = {"month": "%Y-%m", "week": "%G-W%V", "day": "%Y-%m-%d", "hour": "%H:00"}


def quoted_name(name: str) -> str:
    """Returns a name of a table or column, quoted."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Returns a text as a value, quoted."""
    return "'" + text.replace("'", "''") + "'"


def number_sql(text: str) -> str:
    """Returns SQL: a text as a double.

    NULL if it is not a number, or is one of program code such as ``1_000``.
    """
    return f"CASE WHEN NOT contains({text}, '_') THEN TRY_CAST({text} AS DOUBLE) END"


def literal_path(path: PurePath) -> str:
    """Returns a pattern that matches the path alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in str(path))


def csv_sql(
    paths: str, *, delimiter: str, columns: int, header: bool = True, more: str = ""
) -> str:
    """Returns a FROM clause over text files: columns c0, c1, ... as text, no types guessed, none
    taken from folders.

    ``paths`` is SQL of the path or paths, ``more`` are further options of read_csv.
    """
    types = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(columns))
    return (
        f"read_csv({paths}, auto_detect = false, header = {str(header).lower()}, delim ="
        f" '{delimiter}', quote = '\"', escape = '\"', nullstr = '', columns = {{{types}}},"
        f" hive_partitioning = false{more})"
    )


def partition_sql(files: Sequence[PurePath], name: str, path_column: str) -> str:
    """Returns SQL: the value of a partition column as text, from the folder ``name=value`` of each
    file.

    Only folders that the user names become columns, and only to slice trips by: a folder named
    ``trips=1000`` must not count each trip a thousand times. ``path_column`` has the path of each
    row's file.
    """
    start = f"{name}="
    values: set[str] = set()
    for file in files:
        folders = [part.removeprefix(start) for part in file.parent.parts if part.startswith(start)]
        if len(folders) != 1:
            raise ParameterError(
                f"'{name}' cannot be a partition column: {'no' if not folders else 'more than one'}"
                f" folder of a file is called '{name}=...'. Hint: every file must be in one such"
                " folder, and the given path must contain it."
            )
        values.add(folders[0])
    if len(values) == 1:
        value = values.pop()
        return "CAST(NULL AS VARCHAR)" if value == _NO_VALUE else quoted_text(unquote(value))
    pattern = quoted_text(rf"(?:^|[/\\]){re.escape(name)}=([^/\\]*)[/\\]")
    return f"url_decode(nullif(regexp_extract({path_column}, {pattern}, 1), '{_NO_VALUE}'))"


def label_sql(microseconds: str, every: Every) -> str:
    """Returns SQL: the label of the time step of a moment. Labels sort like the times."""
    if every.minutes is not None:
        step = every.minutes * 60_000_000
        start = f"({microseconds}) - ((({microseconds}) % {step}) + {step}) % {step}"
        return f"strftime(make_timestamp({start}), '%Y-%m-%dT%H:%M')"
    moment = f"make_timestamp({microseconds})"
    if every.name in ("weekday", "weekday-hour"):
        clock = " %a" if every.name == "weekday" else " %a %H:00"
        return f"CAST(isodow({moment}) AS VARCHAR) || strftime({moment}, '{clock}')"
    return f"strftime({moment}, '{_LABELS[every.name]}')"


def present_sql(text: str) -> str:
    """Returns SQL: a text; NULL if it is one of `MISSING`."""
    return (
        f"CASE WHEN NOT regexp_full_match(lower(trim({text})), {MISSING_PATTERN}) THEN {text} END"
    )


def attribute_sql(column: str, kind: str) -> str:
    """Returns SQL: an attribute as text, NULL if missing; whole numbers without a decimal point."""
    text = f"trim(CAST({column} AS VARCHAR))"
    if kind in ("FLOAT", "DOUBLE"):
        whole = f"CAST(CAST({column} AS HUGEINT) AS VARCHAR)"
        return (
            f"CASE WHEN isnan({column}) OR isinf({column}) THEN NULL "
            f"WHEN {column} = trunc({column}) AND abs({column}) < 1e15 THEN {whole} ELSE {text} END"
        )
    return present_sql(text)
