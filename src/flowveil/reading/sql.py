"""Names, texts and files inside SQL: the one place where they are quoted.

Statements are put together from expressions made here and in the neighbours. Whatever comes from outside (a column's
name, a path, a value) enters a statement through one of these functions, or as a parameter.
"""

from __future__ import annotations

import re
from pathlib import Path

#: How tables write that there is no value; compared without case and outer blanks.
MISSING = ("", "na", "n/a", "nan", "<na>", "null", "none", "nil", "\\n")
#: A pattern, because DuckDB makes a join of a long list of texts, and a join loses the order of the rows.
MISSING_PATTERN = "'(" + "|".join(re.escape(text) for text in MISSING) + ")'"


def quoted_name(name: str) -> str:
    """A name of a table or column."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A text as a value."""
    return "'" + text.replace("'", "''") + "'"


def number_sql(text: str) -> str:
    """A text as a double; no number where it is none, and where it has an underscore.

    DuckDB reads ``1_000`` as a thousand, as programs are written. No data file means that.
    """
    return f"CASE WHEN NOT contains({text}, '_') THEN TRY_CAST({text} AS DOUBLE) END"


def literal_path(path: Path) -> str:
    """A path for a reader that takes patterns, with the characters of patterns taken literally."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in str(path))


def csv_sql(paths: str, *, delimiter: str, columns: int, more: str = "") -> str:
    """A FROM clause over text files: columns c0, c1, ... as text, nothing guessed, nothing taken from folders.

    Args:
        paths: SQL of the path or paths.
        delimiter: what separates columns.
        columns: how many there are.
        more: further options.
    """
    types = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(columns))
    return (
        f"read_csv({paths}, auto_detect = false, header = true, delim = '{delimiter}', quote = '\"', escape = '\"', "
        f"nullstr = '', columns = {{{types}}}, hive_partitioning = false{more})"
    )
