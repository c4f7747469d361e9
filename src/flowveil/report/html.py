"""report.html, made from the data of report.json and nothing else.

One page that opens offline by double click: no script, no request, readable in light and dark and on paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from string import Template
from typing import Any

from flowveil.report.tables import cross_check_table, slices_section

#: (key, name, what it means), in reading order. Keys that a report has beyond these are listed after them.
MEASURES: tuple[tuple[str, str, str], ...] = (
    ("n_cells", "Published cells", "Pairs of an origin zone and a destination zone in flows.parquet."),
    ("n_origin_zones", "Origin zones", "Different areas where published trips start."),
    ("n_destination_zones", "Destination zones", "Different areas where published trips end."),
    ("suppressed_share", "Suppressed share", "The part of the input volume that is in no published cell."),
    ("k_trips", "Fewest trips in a cell", "The smallest published cell, in trips."),
    ("cells_under_k_trips", "Cells under k trips", "Published cells with fewer than k trips."),
    (
        "k_people",
        "Fewest people in a cell",
        "Different persons behind the cell that has the fewest; known only where the input names persons.",
    ),
    ("cells_under_k_people", "Cells under k people", "Published cells with fewer than k different persons."),
    ("k_population", "Smallest population of a cell", "The smallest sum of weights of a published cell."),
    (
        "cells_under_k_population",
        "Cells under k population",
        "Published cells whose weights sum to less than the threshold, or than k mean weights.",
    ),
    (
        "mean_generalization_error",
        "Mean generalisation error",
        "Tiles in the origin zone plus tiles in the destination zone, averaged over the published volume; "
        "2 means that nothing was generalised.",
    ),
    (
        "generalization_distance_m",
        "Mean distance moved (m)",
        "How far the ends of a published trip are, on average, from the centre of the zone they were put in.",
    ),
    (
        "generalization_distance_median_m",
        "Median distance moved (m)",
        "Half of the ends moved less than this. Rounded, so that it names no single tile.",
    ),
    (
        "generalization_distance_std_m",
        "Spread of the distance moved (m)",
        "Standard deviation of that distance.",
    ),
    (
        "reconstruction_loss",
        "Reconstruction loss",
        "What goes wrong when every cell is spread evenly over its tiles and compared with the input: "
        "0 is perfect, 2 is the worst.",
    ),
    (
        "distribution_distance",
        "Distribution distance",
        "The same comparison of shares instead of volumes: 0 is perfect, 2 is the worst.",
    ),
    (
        "c_dm",
        "Discernibility (C_DM)",
        "Squared cell volumes plus a penalty for what is suppressed; less is better.",
    ),
    (
        "c_avg",
        "Average cell over k (C_AVG)",
        "How many times larger the average cell is than it must be; 1 is best.",
    ),
)

_THRESHOLDS = (
    ("trips", "Trips"),
    ("people", "Different people"),
    ("population", "Population (sum of weights)"),
    ("locations", "Tiles at each end"),
)

_BASES = {"trips": "by trips", "weight": "by weight"}

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Release report: $method, k = $k</title>
<style>
:root { color-scheme: light dark; --ink: #1c2430; --paper: #ffffff; --soft: #5c6777; --line: #d5dbe3;
  --tint: #f3f6f9; --good: #17693f; --warn: #93420b; --mark: #fff4e5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --paper: #14181e; --soft: #9aa6b5;
  --line: #323b47; --tint: #1c222a; --good: #6fd3a0; --warn: #f2ac6b; --mark: #2e2417; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 60rem;
  background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
p.lead { margin: 0; color: var(--soft); }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .5rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; font-size: .85rem; }
tbody th { font-weight: 600; }
tbody th small { display: block; font-weight: 400; color: var(--soft); }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
thead th.number { text-align: right; }
ul.statement { list-style: none; margin: 0; padding: 0; }
ul.statement li { margin: .5rem 0; padding: .6rem .8rem; background: var(--tint);
  border-left: 4px solid var(--soft); }
ul.statement li.good { border-left-color: var(--good); }
ul.statement li.warn { border-left-color: var(--warn); background: var(--mark); }
.scroll { overflow-x: auto; }
code { font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; font-size: .92em;
  overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media print { body { max-width: none; padding: 0; font-size: 11pt; } h2 { break-after: avoid; }
  tr, li { break-inside: avoid; } }
</style>
</head>
<body>
<header>
<h1>Origin-destination matrix, $promise</h1>
<p class="lead">Method <strong>$method</strong>, $zones, written by flowveil $version.</p>
</header>
<main>
<section aria-labelledby="protection">
<h2 id="protection">What is and what is not protected</h2>
<ul class="statement">
$statement
</ul>
</section>
<section aria-labelledby="guarantee">
<h2 id="guarantee">The guarantee</h2>
<table>
<thead>
<tr><th scope="col">Every published cell has</th><th scope="col" class="number">at least</th></tr>
</thead>
<tbody>
$guarantee
</tbody>
</table>
$crosscheck
</section>
$slices
<section aria-labelledby="measures">
<h2 id="measures">Measures</h2>
$withheld
<div class="scroll">
<table>
<thead><tr><th scope="col">Measure</th>$bases</tr></thead>
<tbody>
$measures
</tbody>
</table>
</div>
</section>
<section aria-labelledby="parameters">
<h2 id="parameters">Method and parameters</h2>
<table>
<thead><tr><th scope="col">Name</th><th scope="col">Value</th></tr></thead>
<tbody>
$parameters
</tbody>
</table>
</section>
</main>
<footer>The numbers of this page are those of report.json. The matrix is in flows.parquet,
its areas in zones.parquet; manifest.json holds the SHA-256 of each file.</footer>
</body>
</html>
""")


def render(report: Mapping[str, Any]) -> str:
    """The page of a report.

    Args:
        report: the data of report.json, see `flowveil.report.summary.summarize`.

    Returns:
        A whole HTML document. All text from the report is escaped.
    """
    guarantee = report["guarantee"]
    return _PAGE.substitute(
        method=_text(report["method"]),
        version=_text(report["version"]),
        k=_text(guarantee["k"]),
        promise=_text(_promise(guarantee)),
        zones="zones that do not overlap" if report["homogeneous"] else "nested zones",
        statement="\n".join(_said(line) for line in report["statement"]),
        guarantee="\n".join(
            _row(_text(name), [_number(guarantee[unit])]) for unit, name in _THRESHOLDS if unit in guarantee
        ),
        crosscheck=cross_check_table(report.get("cross_check", ())),
        slices=slices_section(report),
        withheld=_withheld(report.get("withheld")),
        bases="".join(f'<th scope="col" class="number">{_text(_BASES.get(b, b))}</th>' for b in report["measures"]),
        measures="\n".join(_measure_rows(report)),
        parameters="\n".join(_parameter_rows(report)),
    )


def _promise(guarantee: Mapping[str, Any]) -> str:
    units = [name for name in ("trips", "people", "population", "locations") if name in guarantee]
    return f"k = {guarantee['k']} on {', '.join(units)}"


def _said(line: str) -> str:
    head, colon, rest = line.partition(":")
    kind = {"Protected": "good", "Complete": "good", "Not protected": "warn", "Withheld": "warn"}.get(head, "")
    text = f"<strong>{_text(head)}:</strong>{_text(rest)}" if colon else _text(line)
    return f'<li class="{kind}">{text}</li>' if kind else f"<li>{text}</li>"


def _withheld(withheld: Mapping[str, Any] | None) -> str:
    if not withheld:
        return ""
    return f"<p>Measures marked “withheld” are not published, because {_text(withheld['reason'])}.</p>"


def _measure_rows(report: Mapping[str, Any]) -> Iterable[str]:
    measures: Mapping[str, Mapping[str, Any]] = report["measures"]
    hidden = (report.get("withheld") or {}).get("measures", {})
    known = {key for key, _, _ in MEASURES}
    extra = sorted({key for values in measures.values() for key in values} - known)
    for key, name, meaning in (*MEASURES, *((key, key, "") for key in extra)):
        if not any(key in values for values in measures.values()):
            continue
        entries = [
            "withheld" if key in hidden.get(basis, ()) else _number(values.get(key))
            for basis, values in measures.items()
        ]
        yield _row(f"{_text(name)}<small>{_text(meaning)}</small>", entries)


def _parameter_rows(report: Mapping[str, Any]) -> Iterable[str]:
    rows: list[tuple[str, Any]] = [("method", report["method"]), *sorted(report["parameters"].items())]
    rows += [(f"suppression: {key}", value) for key, value in sorted(report["suppression"].items())]
    rows += [(f"note: {key}", value) for key, value in sorted(report["notes"].items())]
    for name, value in rows:
        yield f'<tr><th scope="row">{_text(name)}</th><td><code>{_text(_value(value))}</code></td></tr>'


def _value(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_value(v) for v in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{k} = {_value(v)}" for k, v in value.items())
    return str(value)


def _row(head: str, entries: Iterable[str]) -> str:
    numbers = "".join(f'<td class="number">{entry}</td>' for entry in entries)
    return f'<tr><th scope="row">{head}</th>{numbers}</tr>'


def _number(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _text(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _text(value: Any) -> str:
    return escape(str(value), quote=True)
