"""Everything a noisy release publishes is a function of the noisy counts and of what the user
chose.

Two inputs, the same noisy counts: the folders must be the same, byte by byte, exports and pages
included, and so must what the command line says. Anything that the true data gave away without
noise would be a difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path

import h3
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import flowveil
from conftest import trip_table
from flowveil import NoisyRelease, anonymize, anonymize_slices, read_slices, read_trips, read_zones
from flowveil.apps.cli import main
from flowveil.core.flows import Cells, Flows
from flowveil.published.exports import FORMATS
from flowveil.release.noisy import NoisyCounts
from flowveil.release.plan import Zones
from samples.drafts import unchecked

REGION = h3.latlng_to_cell(48.85, 2.35, 5)


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """Bytes are compared with bytes.

    That noisy releases hold is for the tests of verify and of each method.
    """
    with unchecked():
        yield


def everyone() -> pa.Table:
    return trip_table(1200)


def with_more(trips: pa.Table) -> pa.Table:
    """The same people, and others who go elsewhere too, some of them very often, and rows that
    cannot be used."""
    more = trip_table(900, seed=9)
    person = pa.array(["MORE" + p for p in more["person_id"].to_pylist()])
    often = pa.concat_tables([more.slice(0, 1)] * 300)
    alone = pa.array(["MORE0"] * 300)
    lost = more.slice(0, 40)
    gone = pa.array([None] * 40, lost.schema.field(0).type)
    parts = [more.set_column(more.schema.get_field_index("person_id"), "person_id", person)]
    parts.append(often.set_column(often.schema.get_field_index("person_id"), "person_id", alone))
    parts.append(lost.set_column(0, lost.column_names[0], gone))
    return pa.concat_tables([trips, *parts])


def map_of_city() -> object:
    cells = sorted(h3.cell_to_children(REGION, 7))
    lat, lon = np.array([h3.cell_to_latlng(c) for c in cells]).T
    sector = [f"s{i % 5}" for i in range(len(cells))]
    return read_zones(
        pa.table({"sector": sector, "zone": cells, "lat": lat, "lon": lon}),
        levels=["sector", "zone"], lat="lat", lon="lon",
    )  # fmt: skip


def on_the_map(trips: pa.Table) -> Flows:
    """The same trips with the zones of a user's own map as tiles."""
    ends = {}
    for name in ("start", "end"):
        lat, lon = (trips[f"{name}_{axis}"].to_pylist() for axis in ("lat", "lon"))
        cells = [
            None if a is None else h3.latlng_to_cell(a, b, 7) for a, b in zip(lat, lon, strict=True)
        ]
        ends[name] = [
            c if c is not None and h3.cell_to_parent(c, 5) == REGION else None for c in cells
        ]
    table = pa.table({"o": ends["start"], "d": ends["end"], "person_id": trips["person_id"]})
    return read_trips(
        table, zones=map_of_city(), origin_tile="o", destination_tile="d", max_dropped=0.9
    )


def on_hexagons(trips: pa.Table) -> Flows:
    return read_trips(trips, resolution=9, max_dropped=0.9)


def in_an_area(trips: pa.Table) -> Flows:
    return read_trips(trips, resolution=9, within="2.2,48.75,2.5,48.95", max_dropped=0.9)


@cache
def two_inputs(read: Callable[[pa.Table], Flows]) -> tuple[Flows, Flows]:
    """Read once for all methods."""
    return read(everyone()), read(with_more(everyone()))


RUNS = {
    "laplace: all pairs of a region": (
        on_hexagons,
        {"epsilon": 1.0, "bound": 5, "region": REGION, "level": 7},
    ),
    "laplace: all tiles of a region": (
        on_hexagons,
        {"epsilon": 2.0, "bound": 2, "region": h3.latlng_to_cell(48.85, 2.35, 7)},
    ),
    "laplace: all pairs of a map": (on_the_map, {"epsilon": 1.0, "bound": 5}),
    "laplace: sectors of a map": (on_the_map, {"epsilon": 1.0, "bound": 5, "level": 0}),
    "laplace: a threshold": (on_hexagons, {"epsilon": 4.0, "bound": 4, "delta": 1e-3, "level": 6}),
    "laplace: a threshold on a map": (
        on_the_map,
        {"epsilon": 4.0, "bound": 4, "delta": 1e-3, "level": 0},
    ),
    "laplace: zones of the data": (
        on_hexagons,
        {"epsilon": 1.0, "bound": 5, "region": "observed", "level": 7},
    ),
    "laplace: zones of the data on a map": (
        on_the_map,
        {"epsilon": 1.0, "bound": 5, "region": "observed", "level": 0},
    ),
    "topdown: a region": (on_hexagons, {"epsilon": 1.0, "bound": 5, "region": REGION, "level": 7}),
    "topdown: all pairs of a region": (
        on_hexagons,
        {"epsilon": 1.0, "bound": 5, "region": REGION, "level": 7, "floor": 1},
    ),
    "privtree: a region": (on_hexagons, {"epsilon": 4.0, "bound": 2, "region": REGION, "level": 8}),
    "privtree: a map": (on_the_map, {"epsilon": 4.0, "bound": 2, "region": "s0,s1,s2"}),
    "posterior: a study area": (in_an_area, {"epsilon": 1.0, "bound": 5}),
    "posterior: a map": (on_the_map, {"epsilon": 1.0, "bound": 5, "districts": 1}),
    "topdown: a map": (on_the_map, {"epsilon": 1.0, "bound": 5, "delta": 1e-6}),
}


#: On either map, and zones of mixed levels.
EXPORTED = ("laplace: all pairs of a region", "laplace: all pairs of a map", "privtree: a region")


def numbers_in(zones: Zones, codes: list[str]) -> np.ndarray:
    known = {
        code: i
        for i, code in enumerate(zones.codes(np.arange(len(zones), dtype=np.int32)).tolist())
    }
    return np.array([known[code] for code in codes], dtype=np.int32)


def with_counts_of(release: NoisyRelease, other: NoisyRelease) -> NoisyRelease:
    """The first release with noise that gives the counts of the other."""
    table = other.flows
    cells = Cells(
        numbers_in(release.plan.origin_zones, table["origin_zone"].to_pylist()),
        numbers_in(release.plan.destination_zones, table["destination_zone"].to_pylist()),
        table["trips"].to_numpy(),
    )
    return dataclasses.replace(release, cells=cells)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
def test_the_same_noisy_counts_give_the_same_folder_whatever_the_input(name, tmp_path):
    read, options = RUNS[name]
    one, two = two_inputs(read)
    assert int(two.trips.sum()) > int(one.trips.sum()) + 300
    assert two.intake.left_out != one.intake.left_out
    method = name.split(":")[0]
    release = anonymize(one, method, **options)
    twin = with_counts_of(anonymize(two, method, **options), release)
    assert twin.input is not release.input
    # Exports are made of the two tables, whichever method counted.
    formats = list(FORMATS) if name in EXPORTED else ["csv"]
    folders = [
        r.write(tmp_path / str(i), formats=formats, contact="Office")
        for i, r in enumerate((release, twin))
    ]
    assert content(folders[0]) == content(folders[1])
    assert repr(twin) == repr(release)
    assert NoisyCounts.__repr__ is object.__repr__
    assert twin._repr_html_() == release._repr_html_()


def in_slices(trips: pa.Table, odd: str) -> Flows:
    """Slices of the same trips: the parity of a row, and a value that was not declared."""
    mode = [odd if i % 50 == 0 else ("bus", "car")[i % 2] for i in range(len(trips))]
    table = trips.append_column("mode", pa.array(mode))
    return read_slices(table, resolution=9, by=["mode"], by_many=True, max_dropped=0.9)


@pytest.fixture(scope="module")
def two_in_slices() -> tuple[Flows, Flows]:
    return in_slices(everyone(), "boat"), in_slices(with_more(everyone()), "sledge")


@pytest.mark.parametrize("method", ["laplace", "topdown", "privtree"])
def test_so_do_the_same_noisy_counts_in_slices(method, two_in_slices, tmp_path):
    asked = {
        "epsilon": 4.0,
        "bound": 5,
        "region": REGION,
        "level": 7,
        "values": {"mode": ["bus", "car"]},
    }
    release, twin = (anonymize_slices(flows, method, **asked) for flows in two_in_slices)
    assert release.keys == twin.keys == (("bus",), ("car",))
    assert twin.releases[0].input.trips.sum() > release.releases[0].input.trips.sum() + 30
    pairs = zip(twin.releases, release.releases, strict=True)
    twin = dataclasses.replace(
        twin, releases=tuple(with_counts_of(own, other) for own, other in pairs)
    )
    folders = [
        r.write(tmp_path / str(i), formats=["csv", "arrow"]) for i, r in enumerate((release, twin))
    ]
    assert content(folders[0]) == content(folders[1])
    assert repr(twin) == repr(release)
    assert twin._repr_html_() == release._repr_html_()


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
def test_the_command_line_says_the_same_whatever_the_input(more, tmp_path, monkeypatch, capsys):
    options = RUNS["laplace: all pairs of a region"][1]
    release = anonymize(two_inputs(on_hexagons)[0], "laplace", **options)
    real = flowveil.publishing.anonymization.anonymize
    monkeypatch.setattr(
        "flowveil.publishing.anonymization.anonymize",
        lambda *a, **k: with_counts_of(real(*a, **k), release),
    )
    said = []
    asked = ["anonymize", str(tmp_path / "trips.csv"), "--method", "laplace", "--resolution", "9"]
    asked += ["--max-dropped", "0.9"]
    asked += [word for key, value in options.items() for word in ("--option", f"{key}={value}")]
    for trips in (everyone(), with_more(everyone())):
        csv.write_csv(trips, tmp_path / "trips.csv")
        main([*asked, "--out", str(tmp_path / "out"), *more])
        said.append(capsys.readouterr())
    assert said[0].out
    assert said[0] == said[1]
