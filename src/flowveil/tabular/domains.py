"""The categories of a variable: declared beforehand, cut into declared bins, or read from the data."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.errors import DataError, ParameterError
from flowveil.tabular.records import Ints, named_array


@dataclass(frozen=True, eq=False)
class Domain:
    """The values a variable can take.

    Attributes:
        name: the variable.
        values: its values as an arrow array, in order; a missing value, if allowed, is the last.
        declared: whether they were declared; else they were read from the data.
    """

    name: str
    values: Any
    declared: bool

    @property
    def n_values(self) -> int:
        """Number of values, the missing one included."""
        return len(self.values)


def code_variables(
    table: pa.Table,
    names: Sequence[str],
    *,
    domains: Mapping[str, Sequence[Any]] | None,
    bins: Mapping[str, Sequence[float]] | None,
    from_data: bool,
) -> list[tuple[Domain, Ints]]:
    """`code_variable` for several columns, with what is declared of each."""
    return [
        code_variable(table, name, domain=(domains or {}).get(name), edges=(bins or {}).get(name), from_data=from_data)
        for name in names
    ]


def code_variable(
    table: pa.Table,
    name: str,
    *,
    domain: Sequence[Any] | None = None,
    edges: Sequence[float] | None = None,
    from_data: bool,
) -> tuple[Domain, Ints]:
    """The domain of a column, and for each record the number of its value in it.

    Args:
        table: the records.
        name: the column.
        domain: the declared categories, None among them if a value may be missing.
        edges: the declared edges of bins; with None among them, a value may be missing.
        from_data: whether undeclared categories may be read from the data.

    Raises:
        ParameterError: both or neither of domain and edges, or edges that do not increase.
        DataError: values outside the declared ones (counted, never quoted).
    """
    if domain is not None and edges is not None:
        raise ParameterError(f"Column '{name}' has both categories and bins; declare one.")
    array = named_array(table, name)
    if edges is not None:
        return _binned(array, name, edges)
    if domain is None and not from_data:
        raise ParameterError(
            f"The categories of column '{name}' are not declared. With epsilon they must be known "
            "beforehand, because a category that only one person has would reveal that person. Hint: "
            "declare them (--domains), or say that those in the data are public knowledge "
            "(--domains-from-data)."
        )
    if domain is None:
        known = pc.unique(array.drop_null())
        values = known.take(pc.sort_indices(known))
        allows_missing = array.null_count > 0
    else:
        allows_missing = any(v is None for v in domain)
        try:
            values = pa.array([v for v in domain if v is not None]).cast(array.type)
        except pa.ArrowInvalid:
            raise DataError(f"The declared categories of column '{name}' are not of its type, {array.type}.") from None
        if len(pc.unique(values)) != len(values):
            raise ParameterError(f"A category of column '{name}' is declared twice.")
    if len(values) + allows_missing == 0:
        raise DataError(f"Column '{name}' has no categories.")
    place = pc.index_in(array, value_set=values)
    outside = int(pc.sum(pc.and_(pc.is_null(place), pc.is_valid(array)), min_count=0).as_py())
    _refuse(name, outside, array.null_count if not allows_missing else 0)
    codes = place.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
    return Domain(name, _and_missing(values, allows_missing), domain is not None), codes


def _binned(array: Any, name: str, edges: Sequence[float | None]) -> tuple[Domain, Ints]:
    allows_missing = any(e is None for e in edges)
    cuts = np.array([e for e in edges if e is not None], dtype=np.float64)
    if len(cuts) < 2 or not np.all(np.diff(cuts) > 0):
        raise ParameterError(f"The bins of column '{name}' need at least two edges, each above the one before.")
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise DataError(f"Column '{name}' has bins, but holds {array.type}; only numbers can be put into bins.")
    missing = pc.is_null(array).to_numpy(zero_copy_only=False)
    numbers = array.cast(pa.float64()).fill_null(cuts[0]).to_numpy(zero_copy_only=False)
    outside = int(np.sum((numbers < cuts[0]) | (numbers > cuts[-1])))
    _refuse(name, outside, int(missing.sum()) if not allows_missing else 0)
    codes = np.clip(np.searchsorted(cuts, numbers, side="right") - 1, 0, len(cuts) - 2)
    text = [f"{c:g}" if float(f"{c:g}") == c else repr(float(c)) for c in cuts]
    labels = [f"[{low}, {high})" for low, high in itertools.pairwise(text)]
    labels[-1] = labels[-1][:-1] + "]"
    values = _and_missing(pa.array(labels, pa.string()), allows_missing)
    return Domain(name, values, True), np.where(missing, len(labels), codes).astype(np.int64)


def _and_missing(values: Any, allows_missing: bool) -> Any:
    return pa.concat_arrays([values, pa.nulls(1, values.type)]) if allows_missing else values


def _refuse(name: str, outside: int, missing: int) -> None:
    problems = []
    if outside:
        problems.append(f"{outside} records have a value outside the declared ones")
    if missing:
        problems.append(f"{missing} records have no value, and missing values (null) are not declared")
    if problems:
        raise DataError(f"Column '{name}': {'; '.join(problems)}. Hint: complete the declaration.")
