"""Numbers on a grid, so that the edges of published ranges reveal no single record
(docs/tabular/mondrian.md).

Cells begin at the multiples of a step, `[20, 30)` holds 20 and not 30. Unless they are declared
public, the cells at both ends are open, each with at least k records. A step that is not declared
depends on the number of records and the two k-th outermost values alone. A finer one has to be
confirmed: its edges could be single people's numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.core.arrays import Numbers
from flowveil.core.errors import DataError, ParameterError
from flowveil.tabular import records
from flowveil.tabular.records import Attribute, Column, number_text

#: Most cells between the tails by default. Fewer where there are fewer records: k for each cell on
#: average.
MOST_CELLS = 50
#: Most distinct numbers of a column of codes.
MOST_CODES = 50
#: Seconds of the steps that times may have by default.
_TIME_STEPS = (
    1,
    10,
    60,
    300,
    900,
    3600,
    10_800,
    21_600,
    43_200,
    86_400,
    604_800,
    2_592_000,
    7_776_000,
    31_536_000,
)
_TIME_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
#: A cell's number must be exact in floating point.
_MOST_STEPS = 2**52


@dataclass(frozen=True)
class Grid:
    """Permitted edges of a column's published ranges.

    Multiples of the step, for times in the column's unit from 1970.

    The ends of the public range are numbers of the column, or None for a tail that is not public;
    ``declared_range`` is as the user wrote it.
    """

    step: Fraction
    step_text: str
    declared: bool
    lowest: float | int | None
    highest: float | int | None
    declared_range: tuple[str | None, ...] = (None, None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the report: what was declared, and the step."""
        return {
            "step": self.step_text,
            "declared": self.declared,
            "public_range": list(self.declared_range),
        }


def encode_on_grid(table: pa.Table, attribute: Attribute, *, k: int) -> tuple[Column, Grid | None]:
    """Numbers a quasi-identifier as `encode` does.

    Numbers, dates and times by the cells of a grid, else None.

    Raises ParameterError for an impossible step or range, or an unconfirmed step finer than the
    default; DataError if numbers lie outside the range that is declared public (counted, never
    quoted).
    """
    column = records.encode(table, attribute)
    if column.position is None:
        if attribute.grid is not None or attribute.public_range is not None:
            raise ParameterError(
                f"Column '{attribute.name}' is not numeric; a grid and a range are for numbers."
            )
        numbers = (
            records.is_number(table.schema.field(attribute.name).type) and attribute.order is None
        )
        if numbers and column.n_values > MOST_CODES:
            # Numbers named as categories are published exactly: fine for codes, not for quantities.
            raise ParameterError(
                f"Column '{column.name}' has {column.n_values:,} different numbers; as"
                f" {column.kind} categories each would be published exactly. At most {MOST_CODES}"
                " are allowed. Hint: let it be numeric (its ranges are then multiples of a step),"
                " or list the categories with an order."
            )
        return column, None
    array = records.named_array(table, attribute.name)
    values, kind = _numbers(array, attribute.name), array.type
    low, high = _public_range(attribute, kind)
    outside = 0 if low is None else int(np.sum(values < low))
    outside += 0 if high is None else int(np.sum(values > high))
    if outside:
        raise DataError(
            f"{outside} records of column '{attribute.name}' lie outside the range that is declared"
            " public. Hint: it must hold for every person; omit an end if it does not."
        )
    grid = _grid(attribute, values, kind, k, low, high)
    return _on_grid(column, np.unique(values), kind, grid, k), grid


def _numbers(array: Any, name: str) -> Any:
    """The numbers that are not missing, exact: whole numbers as such, times in their unit."""
    known = records.whole_numbers(array.drop_null())
    try:
        exact = known.cast(pa.int64() if pa.types.is_integer(known.type) else pa.float64())
    except pa.ArrowInvalid:
        raise DataError(
            f"Column '{name}' holds whole numbers beyond 9,223,372,036,854,775,807."
        ) from None
    return exact.to_numpy(zero_copy_only=False)


def _per_second(kind: Any) -> Fraction:
    """Units of a type of times in a second."""
    if pa.types.is_date32(kind):
        return Fraction(1, 86_400)
    return Fraction(1000 if pa.types.is_date64(kind) else _PER_SECOND[kind.unit])


def _parse_step(text: str, kind: Any, name: str) -> Fraction:
    """A declared step in units of the column: a number; for times a number and s, min, h or d."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)\s*([a-z]*)\s*", text)
    timed = pa.types.is_temporal(kind)
    unit = found.group(2) if found else ""
    if found is None or (timed and unit not in _TIME_UNITS) or (not timed and unit):
        allowed = "a number and a unit: 30min, 6h, 7d" if timed else "a number above 0"
        raise ParameterError(f"The grid of column '{name}' needs {allowed}; found '{text}'.")
    step = Fraction(found.group(1)) * (_TIME_UNITS[unit] * _per_second(kind) if timed else 1)
    if step <= 0 or ((timed or pa.types.is_integer(kind)) and step.denominator != 1):
        raise ParameterError(
            f"The grid of column '{name}' must be above 0, and a whole number where the column"
            f" holds whole numbers or times; found '{text}'."
        )
    return step


def _public_range(attribute: Attribute, kind: Any) -> tuple[Any, Any]:
    ends: list[Any] = []
    for end in attribute.public_range or (None, None):
        try:
            if end is None:
                ends.append(None)
            elif pa.types.is_temporal(kind):
                scalar = (
                    pa.array([end]).cast(kind) if isinstance(end, str) else pa.array([end], kind)
                )
                ends.append(records.whole_numbers(scalar)[0].as_py())
            else:
                ends.append(int(str(end)) if pa.types.is_integer(kind) else float(end))
        except (ValueError, TypeError, pa.ArrowException):
            raise ParameterError(
                f"The public range of column '{attribute.name}' must have ends like its values"
                f" ({kind}); found '{end}'."
            ) from None
    low, high = ends
    if not all(end is None or np.isfinite(end) for end in ends):
        raise ParameterError(
            f"The public range of column '{attribute.name}' must be finite; leave an end out"
            " instead."
        )
    if low is not None and high is not None and low >= high:
        raise ParameterError(
            f"The public range of column '{attribute.name}' must have its lower end first."
        )
    return low, high


def _grid(attribute: Attribute, values: Any, kind: Any, k: int, low: Any, high: Any) -> Grid:
    name = attribute.name
    ends = tuple(
        None if end is None else str(end) for end in attribute.public_range or (None, None)
    )
    usual, usual_text = _default_step(values, kind, k, low, high)
    if attribute.grid is None:
        return Grid(usual, usual_text, False, low, high, ends)
    text = str(attribute.grid)
    step = _parse_step(text, kind, name)
    if step < usual and not attribute.fine_grid:
        raise ParameterError(
            f"The grid of column '{name}' is finer than the default: {text}, where {usual_text}"
            " leaves k records to a cell on average. With cells of few records, the edges of"
            " ranges come near the numbers of single people, or are these numbers. Hint: take a"
            " larger step or leave the grid out; where the numbers of this column may be published"
            f" exactly, confirm with --column {name}.fine_grid=true (Attribute(...,"
            " fine_grid=True))."
        )
    return Grid(step, text, True, low, high, ends)


def _default_step(values: Any, kind: Any, k: int, low: Any, high: Any) -> tuple[Fraction, str]:
    """The smallest round step with few enough cells, and its text."""
    ordered = np.sort(values)
    n = len(ordered)
    middle = (n - 1) // 2
    # Values beyond the k-th outermost are ignored: an outlier must not influence the step.
    begin = float(low if low is not None else ordered[min(k - 1, middle)]) if n else 0.0
    end = float(high if high is not None else ordered[max(n - k, middle)]) if n else 0.0
    cells = max(1, min(MOST_CELLS, n // k))
    least = (end / 2 - begin / 2) / cells * 2
    if pa.types.is_temporal(kind):
        per_second, longest = _per_second(kind), _TIME_STEPS[-1]
        fitting = [s for s in _TIME_STEPS if s * per_second >= max(least, 1)]
        seconds = (
            fitting[0] if fitting else longest * int(np.ceil(least / float(longest * per_second)))
        )
        size, unit = next((s, u) for u, s in reversed(_TIME_UNITS.items()) if seconds % s == 0)
        return seconds * per_second, f"{seconds // size}{unit}"
    whole = pa.types.is_integer(kind)
    # A column of one fraction: a hundredth of its size is as good a step as any.
    least = least or (0 if whole else max(abs(begin), abs(end)) / 100) or 1.0
    power = Fraction(10) ** int(np.floor(np.log10(least)))
    step = next(m * power for m in (1, 2, 5, 10, 20) if m * power >= Fraction(least))
    step = max(step, Fraction(1)) if whole else step
    while max(abs(begin), abs(end)) / float(step) >= _MOST_STEPS / 4:
        step *= 10
    return step, number_text(repr(float(step)))


def _cell_numbers(values: Any, grid: Grid, name: str) -> Numbers:
    """The number of each value's cell: edge(number) <= value < edge(number + 1), exactly."""
    top = float(np.max(np.abs(values.astype(np.float64)))) if len(values) else 0.0
    if top / float(grid.step) >= _MOST_STEPS:
        raise ParameterError(
            f"The grid of column '{name}' is too fine for numbers of its size. Hint: a larger step."
        )
    if values.dtype.kind == "i":
        return np.asarray(np.floor_divide(values, int(grid.step)), dtype=np.int64)
    number = np.floor(values / float(grid.step))
    # The quotient is rounded; what counts is the edge that is published.
    number -= values < _edge(number, grid)
    number += values >= _edge(number + 1, grid)
    return np.asarray(number, dtype=np.int64)


def _edge(number: Any, grid: Grid) -> Any:
    """The lower edge of a cell.

    One division of exact numbers gives the floating-point number nearest to it.
    """
    return number * float(grid.step.numerator) / float(grid.step.denominator)


def _on_grid(column: Column, distinct: Any, kind: Any, grid: Grid, k: int) -> Column:
    """The column by cells: occupied ones only, in order."""
    number = _cell_numbers(distinct, grid, column.name)
    # The codes of a numeric column are ranks of its distinct values, so one look-up gives each
    # record its cell.
    known = column.codes != column.missing
    first, last = _tails(np.sort(number[column.codes[known]]), grid, kind, k)
    cells, place = np.unique(np.clip(number, first, last), return_inverse=True)
    codes = np.full(len(column.codes), len(cells), dtype=np.int64)
    codes[known] = place.reshape(-1)[column.codes[known]]
    opens = ["[" + _text(edge, kind) for edge in _edges(cells, kind, grid)]
    closes = [_text(edge, kind) + ")" for edge in _edges(cells + 1, kind, grid)]
    if len(cells) and cells[0] == first:
        opens[0] = "(-inf" if grid.lowest is None else "[" + _text(grid.lowest, kind)
    if len(cells) and cells[-1] == last:
        closes[-1] = "inf)" if grid.highest is None else _text(grid.highest, kind) + "]"
    exact = _is_exact(kind, grid)
    labels = [
        low[1:] if exact and low[0] == "[" and high != "inf)" else f"{low}, {high}"
        for low, high in zip(opens, closes, strict=True)
    ]
    missing = [column.labels[column.missing]] if column.missing >= 0 else []
    middle = _edge(cells + (0.0 if exact else 0.5), grid)
    return Column(
        column.name,
        "numeric",
        codes,
        (*labels, *missing),
        len(cells) if missing else -1,
        position=np.append(middle, [0.0] * len(missing)).astype(np.float64),
        opens=(*opens, *missing),
        closes=(*closes, *missing),
    )


def _tails(ordered: Numbers, grid: Grid, kind: Any, k: int) -> tuple[int, int]:
    """Returns the first and the last cell, which also take all values beyond.

    Unless public, they hold k records.
    """
    n = len(ordered)
    first = last = None
    if grid.lowest is not None:
        first = int(_cell_numbers(np.array([grid.lowest]), grid, "")[0])
    elif n >= k:
        first = int(ordered[k - 1])
    if grid.highest is not None:
        last = int(_cell_numbers(np.array([grid.highest]), grid, "")[0])
        # The upper end belongs to the cell below it, unless a cell is one value.
        if (
            not _is_exact(kind, grid)
            and _edge(last, grid) >= grid.highest
            and (first is None or last > first)
        ):
            last -= 1
    elif n >= k:
        last = int(ordered[n - k])
    if first is None or last is None or first > last:
        # Too few records for two tails: one cell of everything, open where it is not public.
        only = first if grid.lowest is not None else last if grid.highest is not None else 0
        return int(only or 0), int(only or 0)
    return first, last


def _is_exact(kind: Any, grid: Grid) -> bool:
    """Whether a cell is a single value: the user, or a narrow range, made the step as fine as the
    column.
    """
    return bool(grid.step == 1 and (pa.types.is_integer(kind) or pa.types.is_temporal(kind)))


def _edges(cells: Numbers, kind: Any, grid: Grid) -> list[Any]:
    """The lower edges of cells."""
    is_whole = not pa.types.is_floating(kind)
    return (
        [c * int(grid.step) for c in cells.tolist()]
        if is_whole
        else list(_edge(cells, grid).tolist())
    )


def _text(number: Any, kind: Any) -> str:
    """A number of a column as text, as its values are written."""
    if pa.types.is_temporal(kind):
        return str(
            pa.array([number], records.whole_type(kind)).view(kind).cast(pa.string())[0].as_py()
        )
    return number_text(repr(float(number))) if pa.types.is_floating(kind) else str(int(number))
