"""Tables of records: reading, checking that every column has a role, and numbering values as a
`Column`.
"""

from __future__ import annotations

import csv
import itertools
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.arrays import Floats, Numbers
from flowveil.core.errors import DataError, HierarchyError, ParameterError, did_you_mean
from flowveil.core.headers import Header
from flowveil.core.hierarchy import Hierarchy
from flowveil.published.spreadsheets import write_csv
from flowveil.reading.tables import kind_of, layout_of_text, open_table
from flowveil.system.output import Content, Place, check_file, write_files
from flowveil.system.paths import named_path

#: How a value can be compared with its neighbours.
KINDS = ("numeric", "ordered", "unordered", "hierarchy")

#: The text under which a missing value is published.
MISSING = "missing"


@dataclass(frozen=True)
class Attribute:
    """How one column is read.

    Without a kind, an order or a hierarchy the data decide: numbers, dates and times are numeric,
    all else is unordered. For grids and public ranges see `flowveil.tabular.grid`.
    """

    name: str
    kind: str | None = None  # one of `KINDS`
    order: tuple[str, ...] | None = None  # the categories from lowest to highest, for ``ordered``
    hierarchy: Hierarchy | None = (
        None  # the tree whose leaves are the categories, for ``hierarchy``
    )
    grid: str | float | None = (
        None  # step of the edges of published ranges; for times with a unit, such as ``6h``
    )
    public_range: tuple[Any, Any] | None = (
        None  # lowest and highest possible number; None: not public
    )
    fine_grid: bool = (
        False  # confirms a grid finer than the default, which may publish numbers of single people
    )

    def __post_init__(self) -> None:
        listed = {"ordered": self.order, "hierarchy": self.hierarchy}
        implied = [kind for kind, given in listed.items() if given is not None]
        if self.order is not None:
            object.__setattr__(self, "order", tuple(str(v) for v in self.order))
        hint = "" if self.kind is None else did_you_mean(self.kind, KINDS)
        unknown = (
            f"has the unknown kind '{self.kind}'; allowed: {', '.join(KINDS)}.{hint}".removesuffix(
                "."
            )
        )
        for is_wrong, problem in (
            (
                self.fine_grid and self.grid is None,
                "confirms a fine grid (fine_grid), but none is given",
            ),
            (self.kind not in (None, *KINDS), unknown),
            (len(implied) == 2, "has both an order and a hierarchy; give one"),
            (
                self.kind == "hierarchy" and not implied,
                "is of kind hierarchy, but no hierarchy is given",
            ),
            (
                implied and self.kind not in (None, *implied),
                f"is declared {self.kind}, but lists its categories",
            ),
            (
                len(set(self.order or ())) < len(self.order or ()),
                "names a category twice in its order",
            ),
        ):
            if is_wrong:
                raise ParameterError(f"Column '{self.name}' {problem}.")


def as_attributes(names: Iterable[str | Attribute]) -> tuple[Attribute, ...]:
    """Turn names into attributes whose kind is decided by the data."""
    return tuple(a if isinstance(a, Attribute) else Attribute(a) for a in names)


@dataclass(frozen=True, eq=False)
class Column:
    """One column as numbers; the only place where a value of the input becomes text.

    The code of a record is the rank of its value or of its text, or the leaf of the tree. Missing
    values have one.
    """

    name: str
    kind: str
    codes: Numbers
    labels: tuple[str, ...]  # text of each code
    missing: int = -1  # code of missing values; -1 if none is missing
    position: Floats | None = (
        None  # numeric: the value of each code, or the middle of its cell; 0 for missing
    )
    tree: Hierarchy | None = (
        None  # the hierarchy, a leaf for missing values added where there are any
    )
    opens: tuple[str, ...] | None = (
        None  # cells of a grid: how a range that begins with each code is written
    )
    closes: tuple[str, ...] | None = None  # the same for a range that ends with it

    @property
    def n_values(self) -> int:
        """Number of codes, the missing one included."""
        return len(self.labels)

    @property
    def has_order(self) -> bool:
        """Whether codes that are close mean values that are close."""
        return self.kind in ("numeric", "ordered")


def as_table(records: Any) -> pa.Table:
    """Return a pyarrow, pandas or polars table, or a dict of columns, as a pyarrow table."""
    if isinstance(records, pa.Table):
        table = records
    elif hasattr(records, "to_arrow"):
        table = records.to_arrow()
    elif hasattr(records, "iloc"):
        table = pa.Table.from_pandas(records, preserve_index=False)
    elif isinstance(records, dict):
        table = pa.table(records)
    else:
        raise DataError(
            f"A table of records is needed; found {type(records).__name__}. "
            "Allowed: pyarrow, pandas or polars tables, or a dict of columns."
        )
    names = table.column_names
    if len(set(names)) != len(names):
        raise DataError("Two columns have the same name; every column needs a distinct name.")
    return table


_KINDS = {"csv": "CSV", "parquet": "Parquet", "json": "JSON", "zip": "zip", "sheet": "spreadsheet"}
#: A column of text with more distinct values, as a share of the records, identifies.
_MOST_DISTINCT = 0.9


def read_records(path: str | Path, *, missing: Sequence[str] = ()) -> pa.Table:
    """Read a text file (.csv, .tsv, .txt, also .gz), Parquet, JSON, a sheet, or a zip of one.

    DataError if it is missing, cannot be parsed or has no records.

    Blanks around a CSV field or column name do not count. A CSV column is whole numbers if all its
    fields are, else numbers, else text; fields with leading zeros (codes) stay text. An empty CSV
    field and the texts of ``missing`` mark a missing value.
    """
    from pyarrow import parquet

    file = named_path(path, what="the records")
    kind = kind_of(file.name)
    if kind not in _KINDS:
        raise DataError(
            f"Cannot read '{file.name}': its name must end in .csv, .tsv or .txt (also with .gz),"
            " .parquet, .json, .ndjson, .zip or .xlsx."
        )
    if not file.is_file():
        raise DataError(f"The file '{file}' does not exist.")
    try:
        if kind == "csv":
            table = _read_csv(file)
        elif kind == "parquet":
            table = parquet.read_table(file, partitioning=None)
        else:
            table = _read_as_trips(file)
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError, csv.Error):
        # The parser's message quotes the line: a record. It must not be repeated.
        raise DataError(f"'{file.name}' is not a readable {_KINDS[kind]} file.") from None
    columns = as_table(table).columns
    if missing:
        texts = (pa.string(), pa.large_string(), pa.string_view())
        columns = [_nulled(c.cast(pa.string()), missing) if c.type in texts else c for c in columns]
    if kind != "parquet":
        columns = [_typed(column) if column.type == pa.string() else column for column in columns]
    if table.num_rows == 0:
        raise DataError(f"'{file.name}' has no records.")
    return pa.table(columns, names=table.column_names)


def _read_as_trips(file: Path) -> pa.Table:
    """Reads a table by the reader of trips: JSON, a zip archive with one table, a sheet."""
    from flowveil.reading.database import in_own_words, open_database

    with open_database(None) as con, in_own_words(f"'{file.name}'"):
        table = open_table(con, file)
        relation = table.attach(range(len(table.names)))
        read = con.sql(f"SELECT * FROM {relation}").to_arrow_table()
    trimmed = [
        _nulled(pc.utf8_trim_whitespace(column), [""]) if column.type == pa.string() else column
        for column in read.columns
    ]
    return pa.table(trimmed, names=list(table.names))


def refuse_unnamed_roles(records: pa.Table, named: Collection[str] = ()) -> None:
    """Raises ParameterError with the columns of a table and a command to begin with.

    Columns of text with one value a record are proposed as identifiers; ``named`` have a role.
    """
    header = _header_of(records)
    names = [name for name in records.column_names if name not in named]
    identifying = [
        name
        for name in names
        if pa.types.is_string(records[name].type)
        and pc.count_distinct(records[name]).as_py() > _MOST_DISTINCT * records.num_rows
    ]
    others = [name for name in names if name not in identifying]
    hint = "Hint: name them with --quasi."
    if set(names) <= set(header.quotable) and others:
        dropped = (
            f"--identifier {shlex.quote(','.join(identifying))}"
            if identifying
            else "--no-identifiers"
        )
        hint = f"Hint: begin with --quasi {shlex.quote(','.join(others))} {dropped}."
    raise ParameterError(
        "No quasi-identifier is named: a column by which an attacker may know a person."
        f" {header.described()} {hint}"
    )


def _read_csv(file: Path) -> pa.Table:
    from pyarrow import csv as arrow_csv

    header, delimiter, skip = layout_of_text(file)
    names = [name.strip().strip('"') for name in header]
    table = arrow_csv.read_csv(
        file,
        read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=skip + 1),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    )
    trimmed = [pc.utf8_trim_whitespace(column) for column in table.columns]
    return pa.table([_nulled(column, [""]) for column in trimmed], names=names)


def published_as_is(table: pa.Table, name: str) -> Any:
    """Returns a column to publish unchanged, without dictionary entries of rows that were filtered
    out.
    """
    column = table.column(name)
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        )
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _nulled(column: Any, texts: Sequence[str]) -> Any:
    is_missing = pc.is_in(column, value_set=pa.array(list(texts), pa.string()))
    return pc.if_else(is_missing, pa.scalar(None, column.type), column)


def _typed(column: Any) -> Any:
    def all_match(pattern: str) -> bool:
        return bool(pc.all(pc.match_substring_regex(column, pattern), min_count=0).as_py())

    if column.null_count == len(column) or not all_match(
        r"^[+-]?(0|[1-9]\d*)(\.\d*)?([eE][+-]?\d+)?$"
    ):
        return column
    return pc.utf8_ltrim(column, "+").cast(
        pa.int64() if all_match(r"^[+-]?\d{1,18}$") else pa.float64()
    )


def check_output(path: str | Path) -> None:
    """Raise before any work is done if a table cannot be written there."""
    target = Path(path)
    if target.suffix.lower() not in (".csv", ".parquet"):
        raise ParameterError(
            f"Cannot write '{target.name}': its name must end in .csv or .parquet."
        )
    check_file(path)


def write_records(
    table: pa.Table, path: str | Path, *, beside: Mapping[Place, Content] | None = None
) -> None:
    """Writes a table as CSV without formulas, or as Parquet (by its ending), and texts next to it.

    All or none.
    """
    check_output(path)

    from pyarrow import parquet

    plain = table.replace_schema_metadata(None)
    write = write_csv if Path(path).suffix.lower() == ".csv" else parquet.write_table
    write_files({path: partial(write, plain), **(beside or {})})


def _header_of(table: pa.Table, *, declared: bool = False) -> Header:
    return Header(
        table.column_names,
        declared,
        (column.slice(0, 1000).to_pylist() for column in table.columns),
    )


def check_columns(table: pa.Table, names: Iterable[str], role: str) -> None:
    """Raise DataError if a column is not in the table; the message says which names are."""
    absent = [name for name in names if name not in table.column_names]
    if absent:
        header = _header_of(table)
        raise DataError(
            f"No column {', '.join(repr(a) for a in absent)}"
            f" ({role}).{header.did_you_mean(absent[0])} {header.described()}"
        )


def check_roles(table: pa.Table, **roles: Sequence[str]) -> None:
    """Raises unless every column has exactly one role.

    Forgotten columns are how names get published.
    """
    for role, names in roles.items():
        check_columns(table, names, role.replace("_", " "))
    named = [name for names in roles.values() for name in names]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise ParameterError(f"Columns with two roles: {', '.join(twice)}. Each column has one.")
    without = [name for name in table.column_names if name not in named]
    if without:
        # Columns that the user named are in the table, so its first line is a header.
        header = _header_of(table, declared=bool(named))
        raise ParameterError(
            f"Columns without a role: {header.listed(without)}. Each must be a quasi-identifier,"
            " sensitive, kept unchanged, or a direct identifier (dropped). Hint: name what should"
            " not be published as direct identifier."
        )


def encode(table: pa.Table, attribute: Attribute, *, missing_label: str = MISSING) -> Column:
    """Numbers the values of one column.

    The numbers depend on the set of values only, not on the order of records.

    Raises DataError if a value is not in the given order or hierarchy (counted, never quoted), a
    number is not finite, or a category reads like the label of missing values.
    """
    name, order, tree = attribute.name, attribute.order, attribute.hierarchy
    array = named_array(table, name)
    kind = attribute.kind or (
        "ordered" if order is not None else "hierarchy" if tree is not None else None
    )
    kind = kind or ("numeric" if is_number(array.type) else "unordered")
    if kind == "numeric" or (kind == "ordered" and order is None and is_number(array.type)):
        known = _distinct_numbers(array, name)
        labels = [number_text(v) for v in known.cast(pa.string()).to_pylist()]
    else:
        try:
            array = array.cast(pa.string())
        except pa.ArrowException:
            # The message of Arrow may quote a value.
            raise DataError(
                f"Column '{name}' holds {array.type}, which cannot be read as text."
            ) from None
        leaves = None if tree is None else tree.code[tree.leaf_node].tolist()
        labels = list(order or leaves or sorted(pc.unique(array.drop_null()).to_pylist()))
        known = pa.array(labels, pa.string())
        _refuse_unknown(array, known, name, kind)
    missing = len(labels) if array.null_count else -1
    if array.null_count and missing_label in (labels if tree is None else tree.code.tolist()):
        raise DataError(
            f"Column '{name}' has missing values and a category '{missing_label}', which would read"
            " the same. Hint: choose another label for missing values."
        )
    if array.null_count and tree is not None:
        codes = np.append(tree.code.astype(object), missing_label).astype(np.str_)
        tree, _ = Hierarchy.from_parents(np.append(tree.parent, 0), codes)
        labels = tree.code[tree.leaf_node].tolist()
        array, known, missing = (
            array.fill_null(missing_label),
            pa.array(labels),
            labels.index(missing_label),
        )
    number = (
        pc.index_in(array, value_set=known)
        .fill_null(max(missing, 0))
        .to_numpy(zero_copy_only=False)
    )
    if missing == len(labels):
        labels.append(missing_label)
    position = None
    if kind == "numeric":
        values = whole_numbers(known).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        position = np.append(values, [0.0] * (missing >= 0))
    return Column(
        name, kind, number.astype(np.int64), tuple(labels), missing, position=position, tree=tree
    )


def named_array(table: pa.Table, name: str) -> Any:
    """A column as `plain_array` gives it.

    A type that cannot be used is a DataError that names the column.
    """
    try:
        return plain_array(table.column(name))
    except pa.ArrowException:
        raise DataError(
            f"Column '{name}' holds {table.schema.field(name).type}; allowed are text, numbers,"
            " dates, times and yes/no, one value a record. Hint: name it as a direct identifier to"
            " leave it out."
        ) from None


def plain_array(column: Any) -> Any:
    """One contiguous array; dictionaries decoded, decimals as floating point, NaN made missing."""
    if pa.types.is_nested(column.type):
        raise pa.ArrowTypeError(f"{column.type} holds several values")
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(array.type) or pa.types.is_floating(array.type):
        array = array.cast(pa.float64())
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, pa.float64()), array)
    return array


def is_number(kind: Any) -> bool:
    """Whether values of a type are quantities: numbers, dates or times."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    )


def _distinct_numbers(array: Any, name: str) -> Any:
    if not is_number(array.type):
        raise DataError(f"Column '{name}' is declared numeric, but holds {array.type}.")
    known = array.drop_null()
    if pa.types.is_floating(array.type) and not bool(
        pc.all(pc.is_finite(known), min_count=0).as_py()
    ):
        raise DataError(f"Column '{name}' holds infinite numbers; only finite ones are allowed.")
    distinct = pc.unique(known)
    return distinct.take(pc.sort_indices(distinct))


def whole_numbers(array: Any) -> Any:
    """Dates and times as whole numbers of their unit; other arrays unchanged."""
    return array.view(whole_type(array.type)) if pa.types.is_temporal(array.type) else array


def whole_type(kind: Any) -> Any:
    """The type of whole numbers that holds a type of dates or times."""
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def number_text(text: str) -> str:
    """Return the text of a number without a trailing ``.0``."""
    return text[:-2] if text.endswith(".0") else text


def _refuse_unknown(text: Any, known: Any, name: str, source: str) -> None:
    strange = pc.and_(pc.invert(pc.is_in(text, value_set=known)), pc.is_valid(text))
    n_records = pc.sum(strange, min_count=0).as_py()
    if n_records:
        n_values = len(pc.unique(text.filter(strange)))
        raise DataError(
            f"{n_values} categories of column '{name}' ({n_records} records) are not in the given"
            f" {'hierarchy' if source == 'hierarchy' else 'list of categories'}, which has"
            f" {len(known)}. Hint: complete it, or name the text that marks a missing value."
        )


def read_value_hierarchy(path: str | Path) -> Hierarchy:
    """Read a hierarchy of categories: one line a category, from the category itself to the most
    general term.

    No header; separated by commas or semicolons (the form ARX uses). A term repeated along a line
    is one node, so categories may lie at different depths. If the last terms differ, a root ``*``
    is put above them.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"The hierarchy file '{file}' does not exist.")
    try:
        with file.open(newline="", encoding="utf-8-sig") as handle:
            sample = handle.readline()
            handle.seek(0)
            separator = ";" if sample.count(";") > sample.count(",") else ","
            lines = [
                [term.strip() for term in line] for line in csv.reader(handle, delimiter=separator)
            ]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise DataError(
            f"The hierarchy file '{file.name}' is not a readable text file (UTF-8)."
        ) from None
    return hierarchy_from_lines(lines, source=file.name)


def hierarchy_from_lines(lines: Iterable[Sequence[str]], *, source: str = "hierarchy") -> Hierarchy:
    """Build the tree from lines of terms, the category first, the most general term last.

    HierarchyError if wrong.
    """
    paths = [[term for term, _ in itertools.groupby(line)] for line in lines if line]
    if not paths:
        raise HierarchyError(f"'{source}' is empty; at least one line is needed.")
    if any(term == "" for path in paths for term in path):
        raise HierarchyError(f"'{source}' has empty terms; fill them, or repeat the term before.")
    if len({path[-1] for path in paths}) > 1 or any(len(path) == 1 for path in paths):
        paths = [path if path[-1] == "*" and len(path) > 1 else [*path, "*"] for path in paths]
    parent: dict[str, str] = {}
    for path in paths:
        for term, above in itertools.pairwise(path):
            if parent.setdefault(term, above) != above:
                raise HierarchyError(
                    f"'{source}' puts the term '{term}' under '{parent[term]}' and under '{above}';"
                    " a term has one place. Hint: rename one of them."
                )
    leaves = [path[0] for path in paths]
    if len(set(leaves)) != len(leaves):
        raise HierarchyError(
            f"'{source}' has a category on two lines; one line a category is allowed."
        )
    inner = set(parent.values())
    both = [leaf for leaf in leaves if leaf in inner]
    if both:
        raise HierarchyError(
            f"'{source}' uses {len(both)} terms both as a category and as a group, such as"
            f" '{both[0]}'. Hint: rename the group."
        )
    names = [*parent, *sorted(inner - set(parent))]
    number = {name: i for i, name in enumerate(names)}
    tree, _ = Hierarchy.from_parents(
        [number[parent[name]] if name in parent else -1 for name in names],
        np.array(names, dtype=np.str_),
    )
    return tree
