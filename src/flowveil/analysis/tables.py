"""Tables of comparisons and studies in Markdown, LaTeX and HTML.

Sheets hold values; a format turns them into text: whole numbers with separators, large ones as
powers of ten, others with one or two decimals. CSV files have all digits and are written by
`flowveil.published.spreadsheets`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowveil.published.document import PagePart, fill

NOT_FOR_PUBLICATION = "not for publication"

#: Heads of measures. GDM is the distance moved, named as in the papers.
HEADS = {
    "misplaced": "misplaced (%)",
    "misplaced_together": "misplaced, all together (%)",
    "area_error": "missed (%)",
    "production_error": "productions off (%)",
    "attraction_error": "attractions off (%)",
    "trip_length_ratio": "trip length (ratio)",
    "accessibility_error": "accessibility off (%)",
    "n_cells": "cells",
    "n_origin_zones": "origin zones",
    "n_destination_zones": "destination zones",
    "mean_time_width_h": "width (h)",
    "c_dm": "C_DM",
    "c_avg": "C_AVG",
    "mean_generalization_error": "G",
    "reconstruction_loss": "E",
    "distribution_distance": "D",
    "generalization_distance_m": "GDM (m)",
    "generalization_distance_median_m": "GDM median",
    "generalization_distance_std_m": "GDM std. dev.",
    "od_dimension": "OD dimension",
    "suppressed_share": "suppressed (%)",
    "k_people": "fewest people",
    "k_trips": "k trips",
    "k_population": "k population",
    "cells_under_k_trips": "cells below k trips",
    "cells_under_k_population": "cells below k population",
    "v_target": "v_target",
    "seconds": "Time (s)",
    # Of data sets.
    "people": "participants with trips",
    "population": "represented population",
    "trips": "trips",
    "tiles": "tiles",
    "od_pairs": "unique OD pairs",
    "origin_tiles": "origin tiles",
    "destination_tiles": "destination tiles",
    "matrices": "#matrices",
    "mean_od_pairs": "average #flows",
    "density": "density (%)",
    "mean_trips": "average volume",
    "safe_od_pairs": "anon. flows (%)",
    "safe_trips": "anon. vol. (%)",
}
#: Names of protections. The papers say participants and count trips; here participants are people.
_PROTECTED = {"people": "the participants", "population": "the population"}
#: Measures that tables show in percent.
SHARES = (
    "misplaced",
    "misplaced_together",
    "area_error",
    "production_error",
    "attraction_error",
    "accessibility_error",
    "density",
    "safe_od_pairs",
    "safe_trips",
    "suppressed_share",
)

_TEX_HEADS = {
    "C_DM": r"$C_{DM}$",
    "C_AVG": r"$C_{AVG}$",
    "G": r"$\bar{G}$",
    "E": r"$E$",
    "D": r"$D$",
    "k trips": r"$k_{trips}$",
    "k people": r"$k_{people}$",
    "k population": r"$k_{population}$",
}
_TEX_SIGNS = {
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    ">": r"$>$",
    "<": r"$<$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "–": "--",
    "×": r"$\times$",
}


_METHODS = {
    "odkanon": "ODkAnon",
    "atg-dual": "ATG-Dual",
    "atg-soft": "ATG-Soft",
    "oigh": "OIGH",
    "mondrian": "Mondrian",
    "glove": "Glove",
    "glove-sk": "Glove-sk",
    "twincut": "TwinCut",
    "suppression": "Suppression",
    "laplace": "Laplace",
    "paircut": "PairCut",
    "curvecut": "CurveCut",
    "layercut": "LayerCut",
}


def method_name(method: str) -> str:
    """Returns the name of a method as papers write it."""
    return _METHODS.get(method, method)


def protected_name(protect: str) -> str:
    """Returns a protection in words, from units joined by ``+``."""
    return " and ".join(_PROTECTED.get(unit, unit) for unit in protect.split("+"))


@dataclass(frozen=True)
class Sheet:
    """A table."""

    head: tuple[str, ...]  # names of the columns
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""  # the caption; without one, LaTeX gets the bare table
    label: str = ""  # its number, if there are several

    def is_right(self, column: int) -> bool:
        """Returns whether a column has numbers, and is aligned to the right."""
        return any(isinstance(row[column], int | float) for row in self.rows)

    def without_repeats(self) -> Sheet:
        """Returns the table without repeated names in its first two columns, as papers print it."""
        return replace(self, rows=tuple(_thinned(self.rows)))


def measure_entry(name: str, value: float | int | None) -> Any:
    """Returns a measure as sheets hold it: shares in percent, ``-`` if it is unknown."""
    if value is None:
        return "-"
    return 100 * float(value) if name in SHARES else value


def markdown(sheet: Sheet) -> str:
    """Returns the table in Markdown, without its title."""
    lines = [_markdown_row(sheet.head)]
    lines.append(
        "|" + "".join("---:|" if sheet.is_right(i) else "---|" for i in range(len(sheet.head)))
    )
    lines += [_markdown_row(_text(value, " ×10^{}") for value in row) for row in sheet.rows]
    return "\n".join(lines) + "\n"


def latex(sheet: Sheet) -> str:
    """Returns the table in LaTeX."""
    columns = "".join("r" if sheet.is_right(i) else "l" for i in range(len(sheet.head)))
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        " & ".join(_TEX_HEADS.get(name, _tex(name)) for name in sheet.head) + r" \\ \hline",
        *(" & ".join(map(_tex_value, row)) + r" \\" for row in sheet.rows),
        r"\hline",
        r"\end{tabular}",
    ]
    if sheet.title:
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(sheet.title)}.}}",
            *lines,
            r"\end{table}",
        ]
    return "\n".join(lines) + "\n"


def _markdown_row(texts: Any) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _tex_value(value: Any) -> str:
    text = _text(value, r"\times 10^{{{}}}")
    return f"${text}$" if r"\times" in text else _tex(text)


def _tex(text: str) -> str:
    return "".join(_TEX_SIGNS.get(sign, sign) for sign in text)


def _thinned(rows: tuple[tuple[Any, ...], ...]) -> Iterator[tuple[Any, ...]]:
    before: tuple[Any, ...] = ()
    for row in rows:
        same = 0
        while (
            before
            and same < 2
            and isinstance(row[same], str)
            and row[: same + 1] == before[: same + 1]
        ):
            same += 1
        yield ("",) * same + row[same:]
        before = row


_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def text_of(value: Any) -> str:
    """Returns a value as pages show it."""
    if isinstance(value, str):
        return value
    digits, _, exponent = _text(value, " × 10^{}").partition("^")
    return digits + exponent.translate(_RAISED)


def html_part(
    name: str, title: str, sheets: Sequence[Sheet], *, notes: Sequence[str] = ()
) -> PagePart:
    """Returns tables as a part of a page."""
    tables = [
        (
            sheet.label,
            sheet.title,
            [(head, sheet.is_right(column)) for column, head in enumerate(sheet.head)],
            [
                [(text_of(value), sheet.is_right(column)) for column, value in enumerate(row)]
                for row in sheet.rows
            ],
        )
        for sheet in sheets
    ]
    return PagePart(name, title, fill("sheets.html", notes=notes, tables=tables, label=title))


def _text(value: Any, power: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None or not math.isfinite(value):
        return "-"
    if abs(value) >= 1e6:
        exponent = math.floor(math.log10(abs(value)))
        digits = f"{value / 10**exponent:.1f}"
        if digits == "10.0":
            digits, exponent = "1.0", exponent + 1
        return digits + power.format(exponent)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"
