"""Kinds and categories of variables: declared, cut into declared bins, or read from the data."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.arrays import Floats, Numbers
from flowveil.core.errors import DataError, ParameterError
from flowveil.tabular.records import Attribute, is_number, named_array, whole_numbers

#: Categories, or edges of bins, by column.
Declared = Mapping[str, Sequence[Any]] | None
#: Whole numbers with at most this many distinct values are taken for codes of categories.
MOST_CODE_VALUES = 20


def code_variable(
    table: pa.Table,
    name: str,
    *,
    domains: Declared = None,
    bins: Declared = None,
    from_data: bool = False,
) -> tuple[Any, Numbers]:
    """Returns the values a column can take as an array, a missing one last, and the position of
    each record's value.

    Either its categories (in ``domains``) or the edges of its bins are declared, None among them if
    a value may be missing, or the categories may be read from the data. Raises ParameterError for
    both, neither, or edges that do not increase; DataError for values outside the declared ones
    (counted, never quoted).
    """
    domain, edges = (domains or {}).get(name), (bins or {}).get(name)
    if domain is not None and edges is not None:
        raise ParameterError(f"Column '{name}' has both categories and bins; declare one.")
    array = named_array(table, name)
    if edges is not None:
        array, domain = _binned(array, name, edges)
    if domain is None and not from_data:
        raise ParameterError(
            f"The categories of column '{name}' are not declared. With epsilon they must be known"
            " beforehand, because a category that only one person has would reveal that person."
            " Hint: declare them (--domains), or confirm that those in the data are public"
            " knowledge (--domains-from-data)."
        )
    if domain is None:
        known = pc.unique(array.drop_null())
        values = known.take(pc.sort_indices(known))
        allows_missing = array.null_count > 0
    else:
        allows_missing = any(v is None for v in domain)
        values = _declared(domain, array.type, name)
    if len(values) + allows_missing == 0:
        raise DataError(f"Column '{name}' has no categories.")
    place = pc.index_in(array, value_set=values)
    outside = int(pc.sum(pc.and_(pc.is_null(place), pc.is_valid(array)), min_count=0).as_py())
    problems = [f"{outside} records have a value outside the declared ones"] if outside else []
    if array.null_count and not allows_missing:
        problems.append(
            f"{array.null_count} records have no value, and missing values (null) are not declared"
        )
    if problems:
        raise DataError(f"Column '{name}': {'; '.join(problems)}. Hint: complete the declaration.")
    codes = place.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
    return pa.concat_arrays([values, pa.nulls(int(allows_missing), values.type)]), codes


def _declared(domain: Sequence[Any], kind: Any, name: str) -> Any:
    try:
        values = pa.array([v for v in domain if v is not None]).cast(kind)
    except pa.ArrowInvalid:
        raise DataError(
            f"The declared categories of column '{name}' are not of its type, {kind}."
        ) from None
    if len(pc.unique(values)) != len(values):
        raise ParameterError(f"A category of column '{name}' is declared twice.")
    return values


def _binned(array: Any, name: str, edges: Sequence[float | None]) -> tuple[Any, list[str | None]]:
    """Return the bin of each number as text, empty outside of all, and the texts of the bins."""
    cuts = _checked_edges(edges, name)
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise DataError(
            f"Column '{name}' has bins, but holds {array.type}; only numbers can be put into bins."
        )
    numbers = array.cast(pa.float64()).fill_null(cuts[0]).to_numpy(zero_copy_only=False)
    labels = _bin_labels(cuts)
    number = np.clip(np.searchsorted(cuts, numbers, side="right") - 1, 0, len(labels) - 1)
    number[(numbers < cuts[0]) | (numbers > cuts[-1])] = len(labels)
    text = pa.array([*labels, ""], pa.string()).take(pa.array(number))
    known = pc.if_else(pc.is_valid(array), text, pa.scalar(None, pa.string()))
    return known, [*labels, *([None] if None in edges else [])]


def _checked_edges(edges: Sequence[float | None], name: str) -> Floats:
    cuts = np.array([e for e in edges if e is not None], dtype=np.float64)
    if len(cuts) < 2 or not np.all(np.diff(cuts) > 0):
        raise ParameterError(
            f"The bins of column '{name}' need at least two edges, each above the one before."
        )
    return cuts


def _bin_labels(cuts: Floats) -> list[str]:
    text = [f"{c:g}" if float(f"{c:g}") == c else repr(float(c)) for c in cuts]
    labels = [f"[{low}, {high})" for low, high in itertools.pairwise(text)]
    return [*labels[:-1], labels[-1][:-1] + "]"]


@dataclass(frozen=True, eq=False)
class ColumnKinds:
    """One kind for each quasi-identifier, for every method and model that uses the table."""

    table: pa.Table  # columns of ordered bins hold the bins
    attributes: tuple[Attribute, ...]
    domains: dict[str, Sequence[Any]]  # declarations that are left for IPF
    bins: dict[str, Sequence[float]]
    numeric: tuple[str, ...]  # names of the quasi-identifiers that are numbers in every model
    notes: tuple[
        str, ...
    ]  # columns whose kind the data decided, or that the methods treat differently

    def numbers(self, table: pa.Table) -> pa.Table:
        """Return a table with the numeric quasi-identifiers as numbers.

        A bin of IPF counts as its middle.
        """
        for name in self.numeric:
            array = named_array(table, name)
            if pa.types.is_string(array.type):
                cuts = _checked_edges(self.bins[name], name)
                place = pc.index_in(array, value_set=pa.array(_bin_labels(cuts), pa.string()))
                array = pa.array((cuts[1:] + cuts[:-1]) / 2).take(place)
            column = whole_numbers(array).cast(pa.float64(), safe=False)
            table = table.set_column(table.column_names.index(name), name, column)
        return table


def decide_kinds(
    table: pa.Table,
    attributes: Sequence[Attribute],
    *,
    domains: Declared = None,
    bins: Declared = None,
) -> ColumnKinds:
    """Decide once whether each quasi-identifier is a number or a category.

    A kind, an order or a hierarchy that the caller gives holds. Otherwise a column with a declared
    domain is categories, a column with bins is a number, whole numbers with few distinct values are
    ordered categories (codes), other numbers are numbers and all else is categories. Bins of a
    column that is declared to be ordered are its categories.
    """
    domains, bins = dict(domains or {}), dict(bins or {})
    decided: list[Attribute] = []
    numeric: list[str] = []
    codes: list[str] = []
    for attribute in attributes:
        name, array = attribute.name, named_array(table, attribute.name)
        if attribute.kind == "ordered" and attribute.order is None and name in bins:
            values, position = code_variable(table, name, bins=bins)
            del bins[name]
            table = table.set_column(
                table.column_names.index(name), name, values.take(pa.array(position))
            )
            domains[name] = values.to_pylist()
            attribute = replace(attribute, order=tuple(v for v in domains[name] if v is not None))
        elif is_number(array.type) and attribute == Attribute(name, fine_grid=attribute.fine_grid):
            if name in domains:
                values = pc.sort_indices(declared := _declared(domains[name], array.type, name))
                texts = declared.take(values).cast(pa.string()).to_pylist()
                attribute = replace(attribute, kind="ordered", order=tuple(texts))
            elif name not in bins and _holds_codes(array):
                attribute = replace(attribute, kind="ordered")
                codes.append(name)
        listed = attribute.order is not None or attribute.hierarchy is not None
        if is_number(array.type) and attribute.kind in (None, "numeric") and not listed:
            numeric.append(name)
        decided.append(attribute)
    unbinned = [name for name in numeric if name not in bins and name not in domains]
    notes = []
    if codes:
        notes.append(
            f"Taken for categories in every variant, because they hold at most {MOST_CODE_VALUES}"
            f" distinct whole numbers: {', '.join(codes)}. If they are quantities: --column"
            f" {codes[0]}.kind=numeric."
        )
    if unbinned:
        notes.append(
            f"Numeric without bins: {', '.join(unbinned)}. Mondrian cuts these into ranges, IPF"
            " counts every distinct number as a category. Hint: declare bins (--set bins=FILE)."
        )
    return ColumnKinds(table, tuple(decided), domains, bins, tuple(numeric), tuple(notes))


def code_columns(table: pa.Table, attributes: Sequence[Attribute]) -> list[str]:
    """Return the columns without a declared kind that hold whole numbers with few distinct
    values.
    """
    undecided = [a.name for a in attributes if a == Attribute(a.name)]
    return [
        n
        for n in undecided
        if is_number(table.schema.field(n).type) and _holds_codes(named_array(table, n))
    ]


def _holds_codes(array: Any) -> bool:
    """Whether a column holds whole numbers with few distinct values."""
    distinct = pc.unique(array.drop_null())
    whole = pa.types.is_integer(array.type)
    whole = whole or (
        pa.types.is_floating(array.type) and bool(np.all(distinct.to_numpy() % 1 == 0))
    )
    return whole and 0 < len(distinct) <= MOST_CODE_VALUES
