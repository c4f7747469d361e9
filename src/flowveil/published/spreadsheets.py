"""CSV text that no spreadsheet takes for a formula.

One rule for every CSV file that flowveil writes.

An apostrophe is put in front of text that begins with ``=``, ``+``, ``-`` or ``@``, also after a
semicolon, a tab or a line break inside, where a program with another separator would start a cell.
An apostrophe in such a place is doubled, so `decoded` reverses `encoded`. Numbers do not change.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: Where a cell can begin, if what follows could start a formula (blanks and quotation marks
#: skipped), is a tab or a line break, which programs drop before they look, or is an apostrophe.
#: The last four signs are wide forms.
_RISKY = re.compile("(^|[;\t\r\n])(?=['\t\r\n]|[\\s\"]*[=+\\-@\uff1d\uff0b\uff0d\uff20])")
_ENCODED = re.compile("(^|[;\t\r\n])'")


def encoded(text: str) -> str:
    """Returns the text as a CSV file holds it."""
    return _RISKY.sub(r"\1'", text)


def decoded(text: str) -> str:
    """Returns the text that `encoded` was given."""
    return _ENCODED.sub(r"\1", text)


def encoded_table(table: pa.Table) -> pa.Table:
    """Returns a table whose texts and column names may be written into a CSV file."""
    columns = [_encoded_column(column) for column in table.columns]
    return pa.table(columns, names=[encoded(name) for name in table.column_names])


def write_csv(table: pa.Table, path: Any) -> None:
    """Writes a CSV file that a spreadsheet may open."""
    from pyarrow import csv

    csv.write_csv(encoded_table(table), path)


def _encoded_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _encoded_column(column.cast(kind.value_type))
    if not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ):
        return column
    # A code is repeated in many rows: each distinct one is encoded once.
    values = pc.unique(column)
    texts = values.to_pylist()
    written = [None if text is None else encoded(text) for text in texts]
    if written == texts:
        return column
    return pc.take(pa.array(written, kind), pc.index_in(column, value_set=values))


def csv_schema(path: Any) -> pa.Schema:
    """Returns the columns of a CSV file that flowveil wrote, with their types."""
    from pyarrow import csv

    return csv.read_csv(path).schema
