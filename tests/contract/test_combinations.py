"""Every pair of features of `flowveil.request.support`: a verified release, or its refusal."""

from __future__ import annotations

import csv
import random
from functools import cache
from typing import Any

import pytest

from flowveil.core.errors import ParameterError
from flowveil.publishing import run
from flowveil.request import support
from flowveil.request.request import Request

#: Six places of one city, each with tiles of the map.
PLACES = [(48.85 + 0.02 * (i % 3), 2.30 + 0.03 * (i // 3)) for i in range(6)]
COLUMNS = [
    "start_lat",
    "start_lon",
    "end_lat",
    "end_lon",
    "o",
    "d",
    "person_id",
    "started",
    "utc",
    "sex",
    "minutes",
    "w",
    "purpose",
]
ENDS = {"origin": "start_lat,start_lon", "destination": "end_lat,end_lon"}
CODES = {"origin_tile": "o", "destination_tile": "d", "zones": "map.csv", "zones_lat": "lat"}
TIMED = {"time": "started", "every": ("hour",)}
NOISE = {"protect": ("trips",), "within": "2.2,48.8,2.5,49.0"}
LAPLACE = {**NOISE, "method": "laplace", "options": {"epsilon": "8", "level": "5"}}
WEIGHTED = {"protect": ("population",), "weight": "w", "k_population": 8.0}
#: Each feature with a value, and with the settings that it needs to make sense.
ASKED: dict[str, dict[str, Any]] = {
    "k": {"k": 6},
    "max_suppressed": {"max_suppressed": 0.5},
    "k_population": {**WEIGHTED, "population_only": True},
    "l": {"l": 1},
    "allow_small_k": {"allow_small_k": True, "k": 2},
    "population_only": {**WEIGHTED, "population_only": True},
    "seed": {"seed": 1},
    "dominance": {"dominance": 0.9},
    "stricter": {"stricter": "stricter.csv", "max_suppressed": 0.9},
    "l_places": {"l_places": "places.csv", "l": 1},
    "t": {"t": 0.95},
    "key_file": {"key_file": "key", "method": "layercut"},
    "mean": {"mean": ("minutes",), "between": ("minutes=0,60",)},
    "by": {"by": ("purpose",)},
    "every": TIMED,
    "common_zones": {"common_zones": True, "by": ("purpose",), "max_suppressed": 0.3},
    "separate": {"separate": True, "by": ("purpose",)},
    "values": {**LAPLACE, "by": ("sex",), "values": ("sex=f,m",)},
    "zones_of": {"zones_of": "earlier", "max_suppressed": 0.9},
    "revision": {"revision": ("earlier",)},
    "during": {"during": "2024-01", "time": "started"},
    "fold_time": {**TIMED, "fold_time": True},
    "fold": {"fold": {"sex": "tree.csv"}},
    "timezone": {"timezone": "Europe/Paris", **TIMED},
    "same_zones": {"same_zones": True},
    "outside": {"outside": "keep", "within": "2.29,48.84,2.32,48.9"},
    "hierarchy": {"hierarchy": "halves"},
    "districts": {"districts": "5", "method": "layercut"},
    "zones_tile": {**CODES, "zones_tile": "code", "zones_lon": "lon"},
    "no_person": {"no_person": True},
    "accept_differencing": {"accept_differencing": True, "ledger": "ledger"},
    "epsilon_total": {**LAPLACE, "epsilon_total": 100.0, "ledger": "ledger"},
    # Methods: layers, one map, boxes.
    "layercut": {"method": "layercut"},
    "odkanon": {"method": "odkanon"},
    "mondrian": {"method": "mondrian"},
}
#: Features with the row of another, and those that are tried elsewhere.
SAME_ROW = {
    *("total_of", "median", "time_format", "source_format", "column_names", "resume"),
    *(f"zones_{name}" for name in ("parent", "levels", "lat", "lon", "name", "root", "crs")),
}


def test_every_feature_is_tried():
    assert support.FEATURES.keys() == (ASKED.keys() | SAME_ROW) - {
        "layercut",
        "odkanon",
        "mondrian",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Trips, maps and lists, of which requests name the files."""
    place = tmp_path_factory.mktemp("combinations")
    draw = random.Random(4)
    rows = []
    for i in range(1500):
        a, b = draw.choice(range(6)), draw.choice(range(6))
        near = [PLACES[a][0], PLACES[a][1], PLACES[b][0], PLACES[b][1]]
        person, hour = f"p{draw.randrange(300)}", 7 + 10 * (i % 2)
        time = f"2024-01-{1 + i % 9:02d}T{hour:02d}:15:00"
        shown = (
            time,
            f"{time}+00:00",
            "fm"[i % 2],
            draw.randrange(5, 50),
            1 + i % 3,
            "ab"[i // 2 % 2],
        )
        rows.append([*(v + draw.uniform(0, 0.004) for v in near), f"z{a}", f"z{b}", person, *shown])
    tables = {
        "trips.csv": [COLUMNS, *rows],
        "map.csv": [
            ["code", "parent", "lat", "lon"],
            *((f"z{i}", "all", *PLACES[i]) for i in range(6)),
        ],
        "tree.csv": [["value", "parent"], ["f", ""], ["m", ""]],
        "places.csv": [["lat", "lon"], *PLACES],
        "stricter.csv": [["lat", "lon", "l"], [*PLACES[0], 2]],
        "map-places.csv": [["tile"], *([f"z{i}"] for i in range(6))],
        "map-stricter.csv": [["tile", "l"], ["z0", 2]],
    }
    for name, content in tables.items():
        with (place / name).open("w", newline="") as file:
            csv.writer(file).writerows(content)
    key = place / "key"
    key.touch(mode=0o600)
    key.write_text("0123456789abcdef" * 4 + "\n")
    return place


@pytest.fixture
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def request_of(names: tuple[str, ...]) -> Request:
    """The request for features together: what both add to lists is joined."""
    usual = {"input": "trips.csv", "person": "person_id", "resolution": 8}
    values: dict[str, Any] = {**usual, **({} if "zones_tile" in names else ENDS)}
    for name in names:
        for key, value in ASKED[name].items():
            joined = values.get(key)
            if isinstance(value, tuple) and isinstance(joined, tuple) and key != "protect":
                value = (*joined, *(part for part in value if part not in joined))
            elif isinstance(value, dict) and isinstance(joined, dict):
                value = {**joined, **value}
            values[key] = value
    if "no_person" in names:
        values.pop("person", None)
    if "zones_tile" in names:
        values.pop("resolution")
    if values.get("method") != "laplace":
        values.pop("options", None)
    elif "zones_tile" in names:
        values["options"] = {**values["options"], "level": "0"}
    if "zones_tile" in names:
        lists = {name: f"map-{values[name]}" for name in ("stricter", "l_places") if name in values}
        values |= lists
        values |= {"districts": "0"} if "districts" in values else {}
    if "by" in values and values.get("method") == "laplace":
        known = {"sex": "sex=f,m", "purpose": "purpose=a,b"}
        values["values"] = tuple(known[name] for name in values["by"])
    if "timezone" in names:
        values["time"] = "utc"
    if {"fold", "every"} <= values.keys():
        values["fold_time"] = True
    if "revision" in names and "protect" not in values:
        values["protect"] = ("trips",)
    return Request.from_flat(values)


def refusal_of(request: Request) -> str | None:
    """The first row of the table against a request."""
    asked = support.asked_of(request.given)
    try:
        support.check(asked, run.expected_of(request))
        support.check_needs(asked)
    except ParameterError as refused:
        return str(refused)
    return None


def publish(request: Request, place: Any) -> None:
    run.check_request(request)
    release = run.anonymize_request(request, run.read_request(request))
    release.write(place, **run.writing_arguments(request))


@cache
def _earlier(folder: Any, names: tuple[str, ...], *, same: bool) -> Any:
    """The release that is revised, or whose zones are kept: of trips that are read the same way."""
    request = request_of(tuple(name for name in names if name not in ("revision", "zones_of")))
    of_reading = ("input", "person", "resolution", "zones", "within", "outside", "same_zones")
    wanted = {
        name: value
        for name, value in request.given.items()
        if name in of_reading or name.startswith(("zones_", "origin", "destination"))
    }
    if same:
        wanted = {**request.given, "protect": request.given.get("protect", ("trips",))}
        for name in ("ledger", "accept_differencing", "seed"):
            wanted.pop(name, None)
    place = folder / f"earlier-{'-'.join(names)}-{same}"
    publish(Request.from_flat({"method": "twincut", **wanted}), place)
    return place


#: Pairs of which one needs data that the other says is missing.
CONTRADICTIONS = {("dominance", "no_person")}


def is_row(message: str) -> bool:
    """Whether a message is a refusal of the table."""
    return any(
        f": {feature.reason}. Hint: {feature.hint}." in message
        for feature in support.FEATURES.values()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_a_pair_is_refused_by_its_row_or_makes_a_verified_release(name, inside, tmp_path):
    ordered = list(ASKED)
    for other in ordered[ordered.index(name) + 1 :]:
        if (name, other) not in CONTRADICTIONS:
            try_pair((name, other), inside, tmp_path)


def try_pair(names: tuple[str, str], folder: Any, place: Any) -> bool:
    """Publishes, which recounts what is written, and returns True; or sees the refusal."""
    request = request_of(names)
    refusal = refusal_of(request)
    if refusal is not None:
        with pytest.raises(ParameterError) as refused:
            run.check_request(request)
        assert str(refused.value) == refusal
        return False
    changes: dict[str, Any] = {}
    if "revision" in names:
        changes["revision"] = (str(_earlier(folder, names, same=True)),)
    if "zones_of" in names:
        changes["zones_of"] = str(_earlier(folder, names, same=False))
    if request.output.ledger is not None:
        changes["ledger"] = str(place / f"ledger-{'-'.join(names)}")
    refused = None
    try:
        publish(request.with_values(**changes), place / "-".join(names))
    except ParameterError as problem:
        refused = problem
    # What only a plan shows, such as the rows that odkanon suppresses, is refused by its row too.
    assert refused is None or is_row(str(refused))
    return refused is None
