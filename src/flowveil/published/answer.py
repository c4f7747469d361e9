"""What the page's answers are computed from: the estimate, the areas, and the places they are in.

Plain data, packed like that of the cells. A range of several areas follows from the cells
themselves, so each zone comes with the areas that it touches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.arrays import Floats, Positions
from flowveil.core.times import TIME
from flowveil.core.unit_names import unit_words
from flowveil.published.basemap_context import airports, world
from flowveil.published.disaggregation import VOLUMES
from flowveil.published.estimate import Estimate
from flowveil.published.flow_map import MAX_CELLS, NOWHERE, frame_of, pack, pack_shapes, unpack
from flowveil.published.folds import Fold
from flowveil.published.language import at_most, number, texts, words_of
from flowveil.published.language import share as share_words
from flowveil.published.maps import ENDS, zones_of
from flowveil.published.sentences import NOT_PEOPLE, guarantee_words
from flowveil.published.user_outlines import Outline
from flowveil.published.zone_overlaps import Overlap, areas_km2

#: Places that are compared at once when areas are assigned to the nearest.
_BATCH = 512
#: Airports are places where areas have this H3 resolution or a finer one.
_COARSEST_WITH_AIRPORTS = 7
#: A town of fewer people gives an area next to an airport to it, if the area's middle is as near:
#: terminals are next to the runways, whose middle is the airport's place.
_SMALL_TOWN, _NEAR_AIRPORT_KM = 30_000, 2.0
#: An airport is the finding where at least this share of the trips begins or ends there.
_AIRPORT_SHARE = 0.1

#: Steps of time that the page has bars for, and rows of an estimate with steps that it holds.
MOST_STEPS, MOST_ROWS = 400, 2_000_000

#: A name with latitude and longitude.
Spot = tuple[str, float, float]


@dataclass(frozen=True)
class AnswerPlaces:
    """Named places, and the one that each area belongs to."""

    name: list[str]
    lat: list[float]
    lon: list[float]
    of: Positions  # the place of each area
    kind: list[str]  # ``named`` by the publisher, ``airport``, ``town``, or ``code``


def answer_data(
    report: Mapping[str, Any],
    zones: pa.Table,
    estimate: Estimate,
    *,
    outlines: Sequence[Outline] = (),
) -> dict[str, Any]:
    """Returns what the page answers questions from.

    ``areas`` (sorted by code), ``places``, ``rows`` of the estimate in hundredths, ``touched``: the
    areas of each zone as ranges, ``level``, ``km2`` of a typical area, ``k``, ``basis`` (what is
    counted) and where there are hours ``times``.
    """
    frame = frame_of(zones)
    codes = estimate.codes
    shapes, lat, lon = estimate.places(codes)
    units = np.full((len(codes), 2), NOWHERE, dtype=np.int64)
    known = ~(np.isnan(lat) | np.isnan(lon))
    if frame is not None:
        units[known] = frame.whole_units(np.column_stack((lon, lat))[known])
    places = places_of(estimate, codes, lat, lon, outlines)
    spots = np.full((len(places.name), 2), NOWHERE, dtype=np.int64)
    there = ~np.isnan(np.array(places.lat))
    if frame is not None:
        spots[there] = frame.whole_units(np.column_stack((places.lon, places.lat))[there])
    steps = _steps(estimate)
    table = estimate.together() if steps is None and estimate.time is not None else estimate.table
    basis = "weight" if "weight" in table.column_names else "trips"
    size = areas_km2(shapes[[shape is not None for shape in shapes]])
    return {
        "level": estimate.level,
        "hexagonal": estimate.hexagonal,
        "km2": float(f"{np.median(size):.2g}") if len(size) else None,
        "k": report["guarantee"].get("k"),
        "basis": basis,
        "areas": {
            "code": codes,
            "x": pack(units[:, 0]),
            "y": pack(units[:, 1]),
            "shapes": pack_shapes(shapes, frame),
            "place": pack(places.of),
        },
        "places": {
            "name": places.name,
            "kind": places.kind,
            "x": pack(spots[:, 0]),
            "y": pack(spots[:, 1]),
        },
        "rows": _rows(table, codes),
        "touched": {
            end: _touched(zones, over, end, codes)
            for end, over in zip(ENDS, estimate.ends, strict=True)
        },
        **_times(table, steps),
    }


def _steps(estimate: Estimate) -> Fold | None:
    """Returns the steps of intervals; None without, or where they are too many for bars."""
    time = estimate.time
    if time is None or TIME not in estimate.table.column_names:
        return None
    few = len(time.labels) <= MOST_STEPS and len(estimate.table) <= MOST_ROWS
    return time if few and len(time.first) <= MAX_CELLS else None


def finding(data: Mapping[str, Any], estimate: Estimate) -> tuple[int, float] | None:
    """Returns the place in which the largest share of the trips begins or ends, and the share: an
    airport where it has a tenth of them, because everybody knows where it begins and ends.

    None where all areas are one place.
    """
    name, table = data["places"]["name"], estimate.table
    kind = np.array(data["places"]["kind"])
    if len(name) < 2:
        return None
    codes = pa.array(data["areas"]["code"], pa.string())
    place_of_area = unpack(data["areas"]["place"])
    start, stop = (
        place_of_area[pc.index_in(table[end], value_set=codes).to_numpy()] for end in ENDS
    )
    volume = table[data["basis"]].to_numpy()
    touching = np.bincount(start, volume, len(name)) + np.bincount(stop, volume, len(name))
    touching -= np.bincount(start[start == stop], volume[start == stop], len(name))
    # A code is no finding.
    touching[kind == "code"] = 0
    at_airports = np.where(kind == "airport", touching, 0)
    if at_airports.max() >= _AIRPORT_SHARE * volume.sum():
        touching = at_airports
    largest = int(np.argmax(touching))
    if touching[largest] <= 0:
        return None
    return largest, float(touching[largest] / volume.sum())


def headline(data: Mapping[str, Any], place: int, share: float, language: str) -> str:
    """Returns the finding in words: "One trip in five begins or ends at Santiago Airport"."""
    t, places = texts(language), data["places"]
    where = t(f"where_{places['kind'][place]}", place=places["name"][place])
    one_in = round(1 / share)
    if 2 <= one_in <= 10 and abs(share * one_in - 1) < 0.06:
        return t("one_in", n=t(f"n{one_in}"), where=where)
    return t("share_of_all", share=share_words(share, language), where=where)


def words_of_answer(
    report: Mapping[str, Any], data: Mapping[str, Any], title: str, language: str
) -> dict[str, Any]:
    """Returns the words of the answer: what it rests on, and the line below the headline."""
    counted = unit_words("trips", report["parameters"])
    t, published = texts(language, counted), report["published"]
    shares = report["statement"]["shares"]
    if report["parameters"].get("max_suppressed") == 0:
        missing = t("rely_complete")
    elif shares is None:
        missing = t("rely_unstated")
    else:
        missing = t("rely_suppressed", share=at_most(shares["suppressed"], language))
    conclude = t("rely_conclude")
    counts_trips = any(line.startswith(NOT_PEOPLE) for line in published["sentences"])
    if counts_trips:
        conclude += " " + t("rely_people")
    weighted = data["basis"] == "weight" and published.get("weight")
    size = data["km2"]
    story = t(
        "story_weight" if weighted else "story",
        title=title,
        trips=number(published["weight"] if weighted else published["trips"], language),
        answers=number(published["trips"], language),
        guarantee=guarantee_in(report, language),
        km2="?" if size is None else f"{size:g}",
    )
    if counts_trips:
        # The first lines of the page say it, up to the reason.
        story += f" · {t('rely_people').partition(':')[0].strip()}"
    return {
        "language": language,
        "texts": {
            key: text
            for key, text in words_of(language, counted).items()
            if not key.startswith("page_")
        },
        "rely": [t("rely_range"), missing, conclude],
        "zone": report["statement"]["timezone"],
        "days": _days(report["statement"]["about"].get("period")),
        "story": story,
    }


def _days(period: str | None) -> int | None:
    """Returns the number of days of the declared period."""
    if period is None:
        return None
    first, *last = [date.fromisoformat(day) for day in period.split("/")]
    return ((last or [first])[0] - first).days + 1


def guarantee_in(report: Mapping[str, Any], language: str) -> str:
    """The guarantee in words, in the language of the page where it is one number."""
    guarantee, parameters = report["guarantee"], report["parameters"]
    stated = [unit for unit in ("trips", "people", "population", "locations") if unit in guarantee]
    if stated not in (["trips"], ["people"]):
        return guarantee_words(guarantee, parameters)
    n = number(guarantee[stated[0]], language, digits=15)
    unit = unit_words(stated[0], parameters)
    if stated == ["trips"] and unit != "trips":
        return f"{n} {unit}"
    return texts(language)(f"unit_{unit}", n=n)


def _rows(table: pa.Table, codes: list[str]) -> dict[str, Any]:
    values = pa.array(codes, pa.string())
    columns = {
        end: pack(pc.index_in(table[end], value_set=values).to_numpy().astype(np.int64))
        for end in ENDS
    }
    for name in VOLUMES:
        if name in table.column_names:
            columns[name] = pack(np.rint(100 * table[name].to_numpy()))
    return columns


def _times(table: pa.Table, steps: Fold | None) -> dict[str, Any]:
    """Returns the labels of times and the time of each row; of intervals, also the first step of
    each cell and the one after its last.
    """
    if TIME not in table.column_names:
        return {}
    labels = sorted(set(table[TIME].to_pylist())) if steps is None else steps.labels
    at = pc.index_in(table[TIME], value_set=pa.array(labels, pa.string()))
    times = {"times": labels, "time": pack(at.to_numpy().astype(np.int64))}
    if steps is None:
        return times
    return {**times, "first": pack(steps.first), "stop": pack(steps.stop)}


def _touched(zones: pa.Table, over: Overlap, end: str, codes: list[str]) -> dict[str, Any]:
    """The areas of each row of the zones as ranges of their numbers; areas near each other have
    near numbers.

    ``n`` ranges for each zone, their ``start`` and ``length``, and zones that touch further,
    unknown areas (``partial``).
    """
    number = np.searchsorted(codes, over.codes)
    owner = np.repeat(np.arange(len(over.zones)), np.diff(over.first))
    area = number[over.area]
    order = np.lexsort((area, owner))
    owner, area = owner[order], area[order]
    begins = np.ones(len(area), dtype=np.bool_)
    begins[1:] = (owner[1:] != owner[:-1]) | (area[1:] != area[:-1] + 1)
    at = np.flatnonzero(begins)
    length = np.diff(np.append(at, len(area)))
    row = pc.index_in(over.zones, value_set=zones["zone"].combine_chunks()).to_numpy()
    n, partial = np.zeros((2, len(zones)), dtype=np.int64)
    n[row] = np.bincount(owner[at], minlength=len(over.zones))
    partial[row] = over.partial
    # Ranges in the order of the rows of the zones.
    sorted_by_row = np.argsort(row[owner[at]], kind="stable")
    assert len(zones_of(zones, end)) == len(over.zones)
    return {
        "n": pack(n),
        "start": pack(area[at][sorted_by_row]),
        "length": pack(length[sorted_by_row]),
        "partial": pack(partial),
    }


def places_of(
    estimate: Estimate,
    codes: list[str],
    lat: Floats,
    lon: Floats,
    outlines: Sequence[Outline] = (),
) -> AnswerPlaces:
    """Returns the place of each area: the publisher's name of it, else the publisher's place, the
    airport or the largest town in it, else that of the nearest area with a place.

    Areas next to an airport are the airport's, others are never. So a place is the same at every
    zoom and on every screen.
    """
    known = np.flatnonzero(~(np.isnan(lat) | np.isnan(lon)))
    spots: list[Spot] = []
    kind: list[str] = []
    of = np.full(len(codes), -1, dtype=np.int64)
    for at, name in enumerate(estimate.names(codes)):
        if name is not None:
            of[at] = len(spots)
            spots.append((name, lat[at], lon[at]))
            kind.append("named")
    near_airports: set[int] = set()
    if estimate.hexagonal and len(known):
        number = {code: at for at, code in enumerate(codes)}
        near_airports = _name_hexagons(
            estimate.level, number, lat[known], lon[known], outlines, of, spots, kind
        )
    named = np.array(
        [at for at in np.flatnonzero(of >= 0).tolist() if at not in near_airports], dtype=np.int64
    )
    unnamed = known[of[known] < 0]
    for start in range(0, len(unnamed) if len(named) else 0, _BATCH):
        rows = unnamed[start : start + _BATCH]
        narrowing = np.cos(np.radians(lat[rows]))[:, None]
        east = ((lon[rows][:, None] - lon[named] + 180) % 360 - 180) * narrowing
        distance = (lat[rows][:, None] - lat[named]) ** 2 + east**2
        of[rows] = of[named[np.argmin(distance, axis=1)]]
    for at in np.flatnonzero(of < 0).tolist():
        of[at] = len(spots)
        spots.append((codes[at], lat[at], lon[at]))
        kind.append("code")
    return AnswerPlaces(
        _distinct([name for name, _, _ in spots]),
        [float(y) for _, y, _ in spots],
        [float(x) for _, _, x in spots],
        of,
        kind,
    )


def _name_hexagons(
    level: int,
    number: Mapping[str, int],
    lat: Floats,
    lon: Floats,
    outlines: Sequence[Outline],
    of: Positions,
    spots: list[Spot],
    kind: list[str],
) -> set[int]:
    """Names the H3 cells with a named point in them; returns the areas of airports."""
    south, north, west, east = lat.min() - 1, lat.max() + 1, lon.min() - 1, lon.max() + 1

    def near(rows: list[Spot]) -> list[tuple[Spot, int]]:
        inside = [row for row in rows if south <= row[1] <= north and west <= row[2] <= east]
        return [(row, h3_int.latlng_to_cell(row[1], row[2], level)) for row in inside]

    def take(cell: int, place: int) -> bool:
        at = number.get(format(cell, "x"), -1)
        if at < 0 or of[at] >= 0:
            return False
        of[at] = place
        return True

    def name(rows: list[tuple[Spot, int]], word: str) -> list[tuple[int, int]]:
        named = []
        for spot, cell in rows:
            if take(cell, len(spots)):
                named.append((cell, len(spots)))
                spots.append(spot)
                kind.append(word)
        return named

    def neighbours(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(c, place) for cell, place in rows for c in sorted(h3_int.grid_disk(cell, 1))]

    own = [(o.name, o.label[1], o.label[0]) for o in outlines if o.name and o.label]
    name(near(own), "named")
    flown = near(airports()) if level >= _COARSEST_WITH_AIRPORTS else []
    at_airports = name(flown, "airport")
    here = world()
    inside = (here.lat >= south) & (here.lat <= north) & (here.lon >= west) & (here.lon <= east)
    rows = np.flatnonzero(inside).tolist()
    towns = near([(here.names[i], float(here.lat[i]), float(here.lon[i])) for i in rows])
    large = {
        cell for (_, cell), i in zip(towns, rows, strict=True) if here.population[i] >= _SMALL_TOWN
    }
    taken = {cell for cell, _ in at_airports}
    for cell, place in neighbours(at_airports):
        middle = h3_int.cell_to_latlng(cell)
        distance = h3_int.great_circle_distance(middle, spots[place][1:])
        if distance <= _NEAR_AIRPORT_KM and cell not in large and take(cell, place):
            taken.add(cell)
    name(towns, "town")
    taken |= {cell for cell, place in neighbours(at_airports) if take(cell, place)}
    return {number[format(cell, "x")] for cell in taken}


def _distinct(names: list[str]) -> list[str]:
    """Names with a number where several places share one."""
    seen: dict[str, int] = {}
    distinct = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return distinct
