"""Parts of report.html that are tables of their own: who is hidden, and the slices of a family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from flowveil.guarantee import UNITS

#: (key, heading) of the measures that are listed for every slice.
_OF_SLICE = (
    ("n_cells", "Cells"),
    ("n_origin_zones", "Origin zones"),
    ("n_destination_zones", "Destination zones"),
    ("suppressed_share", "Suppressed"),
    ("mean_generalization_error", "Mean generalisation error"),
    ("generalization_distance_m", "Moved (m)"),
    ("k_trips", "Fewest trips"),
    ("k_people", "Fewest people"),
    ("k_population", "Smallest population"),
)
#: A longer list is cut: report.json has all.
_MOST_SLICES = 200


def cross_check_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """For each unit, protected or not: what is reached, and how many cells are short of it."""
    if not rows:
        return ""
    body = "\n".join(
        f'<tr><th scope="row">{escape(UNITS[row["unit"]].title)}<small>'
        f"{'protected' if row['protected'] else 'not protected'}</small></th>"
        f"{_numbers((row['k'], row['cells_short']))}</tr>"
        for row in rows
    )
    return (
        "<h3>Who else is hidden</h3>\n<p>Protecting one unit does not protect the others. For each unit the data "
        "knows: the smallest value of a published cell, and the cells with less than k (for the population: less than "
        'the threshold, or than k mean weights).</p>\n<table>\n<thead><tr><th scope="col">Unit</th>'
        '<th scope="col" class="number">smallest value</th><th scope="col" class="number">cells short</th></tr></thead>'
        f"\n<tbody>\n{body}\n</tbody>\n</table>"
    )


def slices_section(report: Mapping[str, Any]) -> str:
    """The slices of a family and their measures by trips; nothing for a single release."""
    slices: Sequence[Mapping[str, Any]] = report.get("slices", ())
    if not slices:
        return ""
    columns: Sequence[str] = report["slice_columns"]
    shown = [(key, name) for key, name in _OF_SLICE if any(s["measures"]["trips"].get(key) is not None for s in slices)]
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    head += "".join(f'<th scope="col" class="number">{escape(name)}</th>' for _, name in shown)
    body = "\n".join(_slice_row(part, columns, shown) for part in slices[:_MOST_SLICES])
    more = len(slices) - _MOST_SLICES
    rest = f"<p>{more:,} further slices are in report.json.</p>" if more > 0 else ""
    return (
        "<p>Each slice is a matrix of its own; the maps above show the sum of all slices. The "
        'measures further below are those of all slices together.</p>\n<div class="scroll"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>\n{rest}"
    )


def _slice_row(part: Mapping[str, Any], columns: Sequence[str], shown: Sequence[tuple[str, str]]) -> str:
    names = "".join(
        f'<th scope="row">{escape("all" if part["slice"][name] is None else part["slice"][name])}</th>'
        for name in columns
    )
    hidden = (part.get("withheld") or {}).get("measures", {}).get("trips", ())
    measures = part["measures"]["trips"]
    return f"<tr>{names}{_numbers(['withheld' if key in hidden else measures.get(key) for key, _ in shown])}</tr>"


def _numbers(values: Sequence[Any]) -> str:
    return "".join(f'<td class="number">{_number(value)}</td>' for value in values)


def _number(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
