"""Make the small gazetteer of airports: those with an IATA code, from the package airportsdata.

    pip download --no-deps airportsdata
    python tools/make_airports.py airportsdata-*.whl src/flowveil/published/world

The same input gives the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zipfile
from pathlib import Path

#: Names that are no airports for trips on roads.
_OTHER = ("Heliport", "Seaplane", "Helipad", "Air Base", "Air Force", "Airfield", "Airstrip")
#: Longer names are replaced by the city.
_LONGEST = 30


def named(row: dict[str, str]) -> str:
    """Returns what an airport is called on a map: its name or its city, and its IATA code."""
    name = row["name"].replace(" International", "").replace(" Regional", "").strip()
    return f"{name if len(name) <= _LONGEST else row['city'] + ' Airport'} ({row['iata']})"


def make(wheel: Path) -> bytes:
    """Returns the gzipped CSV: name, lat, lon in thousandths of a degree, sorted by code."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("airportsdata/airports.csv").decode("utf-8")
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["iata"]]
    kept = [row for row in rows if not any(word in row["name"] for word in _OTHER)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("name", "lat", "lon"))
    for row in sorted(kept, key=lambda row: (row["iata"], row["icao"])):
        writer.writerow((named(row), *(f"{float(row[name]):.3f}" for name in ("lat", "lon"))))
    return gzip.compress(out.getvalue().encode("utf-8"), compresslevel=9, mtime=0)


if __name__ == "__main__":
    (Path(sys.argv[2]) / "airports.csv.gz").write_bytes(make(Path(sys.argv[1])))
