"""Charts of the published tables: sizes of cells and of zones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.published.charts import bar_chart, count_histogram, size_histogram
from flowveil.published.document import Figure, Part, charts, number
from flowveil.published.maps import ENDS, zones_of
from flowveil.published.noise import is_noisy

#: What measures are computed on, and how it is called.
BASES = {"trips": "by trips", "weight": "by weight"}


def distribution_part(report: Mapping[str, Any], flows: pa.Table, zones: pa.Table) -> Part:
    """Sizes of cells against k, and of zones."""
    if is_noisy(report):
        drawn = [_noisy_sizes(report["guarantee"], flows)]
    else:
        bases = [basis for basis in BASES if basis in flows.column_names]
        drawn = [_cell_sizes(report["guarantee"], flows, basis) for basis in bases]
    for end in ENDS:
        listed = zones_of(zones, end)
        if listed["tiles"].null_count:
            # How many tiles a zone could hold is not always known.
            continue
        title = f"Sizes of {end} zones"
        chart = bar_chart(count_histogram(listed["tiles"].to_numpy()), title=title, label="possible tiles in the zone")
        caption = "How many zones could hold how many tiles, seen or not; the fewer, the finer."
        drawn.append(Figure(title, caption, [("", chart)]))
    return Part("sizes", "How full the cells are, how large the zones", charts(drawn))


def _cell_sizes(guarantee: Mapping[str, Any], flows: pa.Table, basis: str) -> Figure:
    threshold = guarantee.get("trips" if basis == "trips" else "population")
    if threshold is None and basis == "trips":
        # k different people make at least k trips.
        threshold = guarantee.get("people")
    name = f"k = {threshold}" if basis == "trips" else f"threshold {number(threshold)}"
    bars = size_histogram(flows[basis].to_numpy().astype(np.float64), threshold=threshold, name=name)
    note = "No published cell is left of the line."
    if basis == "weight" and "population" in guarantee and threshold is None:
        note = "Every cell reaches k times the mean weight of a trip."
    elif threshold is None:
        note = f"By {basis}, nothing is promised in this release."
    elif any(bars.short):
        note = "Cells left of the line are below k in this unit."
    title = f"Cell sizes, {BASES[basis]}"
    chart = bar_chart(bars, title=title, label=f"{basis} in the cell")
    return Figure(title, f"How many cells hold how much. {note}", [("", chart)])


def _noisy_sizes(guarantee: Mapping[str, Any], flows: pa.Table) -> Figure:
    threshold = guarantee["threshold"]
    name = f"threshold {number(threshold)}"
    bars = size_histogram(flows["trips"].to_numpy().astype(np.float64), threshold=threshold, name=name)
    title = "Noisy counts"
    note = "Noise included: most small counts may be noise alone." if threshold is None else "Noise included."
    chart = bar_chart(bars, title=title, label="trips of the pair")
    return Figure(title, f"How many pairs show how many trips. {note}", [("", chart)])
