"""Columns in the paths of files: ``month=3/part.parquet``.

Many readers make a column of every such folder, in place of the file's own column of that name. So a folder that
somebody named ``trips=1000`` would count each trip a thousand times. Here only folders that the user names become
columns, and only to cut trips by: they never say how many trips, how heavy, whose, from where or to where.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from flowveil.errors import ParameterError
from flowveil.reading.sql import quoted_text

#: What a folder is called whose rows have no value in that column.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def parse_partition_columns(names: str | Iterable[str]) -> tuple[str, ...]:
    """Names of partition columns from ``"a,b"`` or a list of names.

    Raises:
        ParameterError: a name is given twice.
    """
    parts = names.split(",") if isinstance(names, str) else names
    found = tuple(part.strip() for part in parts if part.strip())
    if len(set(found)) < len(found):
        raise ParameterError("A partition column is named twice; each can be named once.")
    return found


def partition_sql(files: Sequence[Path], name: str, path_column: str) -> str:
    """SQL: the value that a file's folder has for a partition column, as text.

    Args:
        files: all files.
        name: the column.
        path_column: the column with the path of each row's file.

    Raises:
        ParameterError: a file does not lie in exactly one folder ``name=...``.
    """
    start = f"{name}="
    values: set[str] = set()
    for file in files:
        folders = [part.removeprefix(start) for part in file.parent.parts if part.startswith(start)]
        if len(folders) != 1:
            raise ParameterError(
                f"'{name}' cannot be a partition column: {'no' if not folders else 'more than one'} folder of a file "
                f"is called '{name}=...'. Hint: every file must lie in one such folder, and the path that is given "
                "must contain it."
            )
        values.add(folders[0])
    if len(values) == 1:
        value = values.pop()
        return "CAST(NULL AS VARCHAR)" if value == _NO_VALUE else quoted_text(unquote(value))
    pattern = quoted_text(rf"(?:^|[/\\]){re.escape(name)}=([^/\\]*)[/\\]")
    return f"url_decode(nullif(regexp_extract({path_column}, {pattern}, 1), '{_NO_VALUE}'))"
