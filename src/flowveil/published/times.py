"""The times of a release that folds them: for a pair of zones, when it is published, as a strip of the day or the week.

Made from the published table alone. A pair that is not shown at some time is in larger zones or wider intervals then,
or suppressed; which of these is not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from flowveil.published.document import Part, fill, number
from flowveil.published.maps import places_of
from flowveil.times import TIME_COLUMNS

#: Pairs of zones to choose from: those with the most trips. flows.parquet has all.
_MOST_PAIRS = 60
_WIDTH, _HEIGHT = 720, 26
_ENDS = {"hour": ("00:00", "24:00"), "weekday-hour": ("1 Mon 00:00", "7 Sun 24:00")}
_FORMS = {7: "%Y-%m", 10: "%Y-%m-%d", 16: "%Y-%m-%dT%H:%M"}


def times_part(report: Mapping[str, Any], flows: pa.Table, zones: pa.Table) -> Part:
    """A strip for each of the largest pairs of zones; the reader opens the one of interest."""
    every = report["parameters"]["slices"]["every"]
    rows = flows.select(["origin_zone", "destination_zone", *TIME_COLUMNS, "trips"]).to_pylist()
    spans = [(_hour(row["time_from"], every), _hour(row["time_to"], every)) for row in rows]
    ends = _ENDS.get(every, (min(row["time_from"] for row in rows), max(row["time_to"] for row in rows)))
    whole = _hour(ends[0], every), _hour(ends[1], every)
    pairs: dict[tuple[str, str], list[int]] = {}
    for at, row in enumerate(rows):
        pairs.setdefault((row["origin_zone"], row["destination_zone"]), []).append(at)
    # Codes decide among equals, so that the same table gives the same page.
    largest = sorted(pairs, key=lambda pair: (-sum(rows[at]["trips"] for at in pairs[pair]), pair))[:_MOST_PAIRS]
    names = zones["name"].to_pylist() if "name" in zones.column_names else places_of(zones)
    codes = zones["zone"].to_pylist()
    called = {code: f"{name} ({code})" if name else code for code, name in zip(codes, names, strict=True)}
    per_unit = _WIDTH / (whole[1] - whole[0])
    strips = []
    for pair in largest:
        density = [rows[at]["trips"] / (spans[at][1] - spans[at][0]) for at in pairs[pair]]
        bars = [
            {
                "x": f"{(spans[at][0] - whole[0]) * per_unit:.1f}",
                "width": f"{(spans[at][1] - spans[at][0]) * per_unit:.1f}",
                "opacity": f"{0.15 + 0.85 * own / max(density):.2f}",
                **rows[at],
            }
            for at, own in zip(pairs[pair], density, strict=True)
        ]
        strips.append((*(called[code] for code in pair), number(sum(bar["trips"] for bar in bars)), bars))
    content = fill(
        "times.html",
        strips=strips,
        more=number(len(pairs) - len(strips)) if len(pairs) > len(strips) else None,
        width=_WIDTH,
        height=_HEIGHT,
        mean=number(float(f"{_mean_width(rows, spans):.2g}")),
        ends=ends,
    )
    return Part("times", "Times", content)


def _mean_width(rows: list[dict[str, Any]], spans: list[tuple[float, float]]) -> float:
    """Returns the mean width of the intervals in hours, weighted by trips."""
    total = sum(row["trips"] for row in rows)
    hours = sum(row["trips"] * (stop - start) for row, (start, stop) in zip(rows, spans, strict=True))
    return float(hours / total)


def times_of(report: Mapping[str, Any], flows: pa.Table) -> dict[str, Any]:
    """When each pair of zones is published, for the strip beside the maps: in hours since the strip begins.

    Returns:
        ``from``, ``to`` and ``ends``: the whole strip, in hours and in words; ``of``: for each pair of codes its
        intervals, as first and last hour, trips, and words.
    """
    every = report["parameters"]["slices"]["every"]
    rows = flows.select(["origin_zone", "destination_zone", *TIME_COLUMNS, "trips"]).to_pylist()
    ends = _ENDS.get(every, (min(row["time_from"] for row in rows), max(row["time_to"] for row in rows)))
    start = _hour(ends[0], every)
    pairs: dict[tuple[str, str], list[list[Any]]] = {}
    for row in rows:
        span = [_hour(row[name], every) - start for name in TIME_COLUMNS]
        said = f"{row['time_from']} to {row['time_to']}"
        pairs.setdefault((row["origin_zone"], row["destination_zone"]), []).append([*span, row["trips"], said])
    return {"from": 0, "to": _hour(ends[1], every) - start, "ends": list(ends), "of": pairs}


def held_times(times: Mapping[str, Any], layers: Mapping[str, Any], flows: Mapping[str, Any]) -> dict[str, Any]:
    """The same for the flows that a page holds, in their order."""
    pairs = zip(flows["origin"], flows["destination"], strict=True)
    codes = [(layers["origin"]["code"][o], layers["destination"]["code"][d]) for o, d in pairs]
    return {**times, "of": [times["of"][pair] for pair in codes]}


def _hour(text: str, every: str) -> float:
    """Hours from the beginning of the day or the week, or of the calendar."""
    if every == "hour":
        return float(int(text[:2]))
    if every == "weekday-hour":
        return float((int(text[0]) - 1) * 24 + int(text[6:8]))
    return (datetime.strptime(text, _FORMS[len(text)]) - datetime(1, 1, 1)).total_seconds() / 3600
