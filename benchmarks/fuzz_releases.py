"""The small releases that `benchmarks.fuzz_verify` changes.

One of every kind of folder that there is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import flowveil
from flowveil.core.flows import Flows
from flowveil.core.hierarchy import Hierarchy
from flowveil.zoning.places import read_places

#: The hexagon that all trips of `small_flows` are in.
REGION = "861fb4677ffffff"
FORMATS = "csv,geojson,gpkg,omx,flowmap,kepler,arrow"


@dataclass(frozen=True)
class Held:
    """The private side of a published folder: its flows, and the arguments of verify."""

    flows: Flows
    against: Mapping[str, Any] = field(default_factory=dict)


def small_flows(*, persons: bool = False) -> Flows:
    """Trips between seven hexagons, with weights and a few that must be suppressed."""
    import h3.api.basic_int as h3

    from flowveil.zoning.h3 import h3_hierarchy

    rng = np.random.default_rng(1)
    tiles = np.sort(
        np.array(h3.cell_to_children(h3.latlng_to_cell(48.85, 2.35, 6), 7), dtype=np.uint64)
    )
    tree: Hierarchy = h3_hierarchy(tiles)
    rows = 120
    return Flows.from_pairs(
        (rng.beta(1, 3, rows) * len(tiles)).astype(np.int32),
        (rng.beta(2, 2, rows) * len(tiles)).astype(np.int32),
        origins=tree,
        destinations=tree,
        weight=np.round(rng.uniform(1, 9, rows), 2),
        person=rng.integers(0, 60, rows) if persons else None,
    )


def tiled_trips(rows: int) -> pa.Table:
    """The first trips of a list that grows, between the same hexagons."""
    flows, rng = small_flows(), np.random.default_rng(5)
    codes = [format(int(code), "x") for code in flows.origins.code[flows.origins.leaf_node]]
    ends = (rng.beta(1, 3, (rows, 2)) * len(codes)).astype(int)
    return pa.table(
        {f"{end}_h3": [codes[i] for i in ends[:, at]] for at, end in enumerate(("start", "end"))}
    )


def hourly_flows() -> Flows:
    """Trips of one day in four intervals, to be folded with the places."""
    rng = np.random.default_rng(3)
    rows = 200
    start = np.datetime64("2024-03-04T00:00:00") + (rng.beta(2, 2, rows) * 86_000).astype(
        "timedelta64[s]"
    )
    places = {
        name: base + rng.normal(0, 0.02, rows)
        for name, base in (("origin_lat", 48.85), ("origin_lon", 2.35), ("destination_lat", 48.86))
    }
    trips = pa.table(
        {**places, "destination_lon": 2.36 + rng.normal(0, 0.02, rows), "start": start}
    )
    return flowveil.read_slices(trips, resolution=7, time="start", every="6h").folded()


def mapped_flows() -> Flows:
    """Trips between four named places of a map of one's own."""
    rng = np.random.default_rng(4)
    zones = pa.table(
        {
            "zone": list("ABCD"),
            "name": ["Old town", "Harbour", "Mill", "Field"],
            "lat": [48.8, 48.81, 48.9, 48.91],
            "lon": [2.3, 2.31, 2.4, 2.41],
        }
    )
    ends = rng.choice(list("ABCD"), (2, 150), p=[0.5, 0.3, 0.15, 0.05])
    return flowveil.read_trips(
        pa.table({"from": ends[0], "to": ends[1]}),
        origin_tile="from",
        destination_tile="to",
        zones=zones,
    )


def _plain(folder: Path) -> Held:
    flows = small_flows()
    flowveil.anonymize(flows, method="odkanon", k=5, budget="volume").write(folder, formats=FORMATS)
    return Held(flows)


def _older(folder: Path) -> Held:
    """As if another version had made it, so that its page and its texts are not made again."""
    from benchmarks.fuzz_verify import rehash, write_json

    held = _plain(folder)
    for name in ("report.json", "manifest.json"):
        content = json.loads((folder / name).read_text("utf-8"))
        write_json(folder / name, {**content, "version": "0.0.1"})
    rehash(folder)
    return held


def _sliced(folder: Path) -> Held:
    one = small_flows()
    other = Flows.from_pairs(
        one.destination, one.origin, origins=one.origins, destinations=one.destinations
    )
    first = Flows.from_pairs(
        one.origin, one.destination, origins=one.origins, destinations=one.destinations
    )
    flows = Flows.from_slices(("purpose",), (("home",), ("work",)), (first, other))
    flowveil.anonymize_slices(flows, k=5).write(folder, formats="csv,arrow")
    return Held(flows)


def _boxed(folder: Path) -> Held:
    flows = small_flows()
    flowveil.anonymize(flows, method="mondrian", k=5).write(folder, formats="csv,geojson,kepler")
    return Held(flows)


def _nested(folder: Path) -> Held:
    """Cells of PairCut, which overlap at one end, on a map of one's own with names and a lookup
    table."""
    flows = mapped_flows()
    flowveil.anonymize(flows, method="paircut", k=5).write(folder, formats="csv,gpkg")
    return Held(flows)


def _folded(folder: Path) -> Held:
    flows = hourly_flows()
    flowveil.anonymize(flows, method="paircut", k=5).write(folder, formats="csv")
    return Held(flows)


def _people(folder: Path) -> Held:
    """Persons, dominance, and outlines that the operator gives."""
    flows = small_flows(persons=True)
    lines = {"type": "LineString", "coordinates": [[2.3, 48.8], [2.4, 48.9]]}
    outlines = folder.with_suffix(".lines.geojson")
    outlines.write_text(
        json.dumps({"type": "Feature", "properties": {"name": "Seine"}, "geometry": lines})
    )
    release = flowveil.anonymize(flows, k=5, dominance=0.6)
    release.write(folder, formats="csv", context=outlines)
    return Held(flows)


def _stricter(folder: Path) -> Held:
    flows = small_flows()
    tile = format(int(flows.origins.code[flows.origins.leaf_node][0]), "x")
    places = pa.table({"tile": [tile], "k": [9]})
    flowveil.anonymize(flows, k=5, stricter=places, max_suppressed=0.3).write(folder)
    return Held(flows, {"stricter": read_places(places, asking=True).on(flows)})


def _revised(folder: Path) -> Held:
    """A release over the zones of an earlier one, of trips that were corrected since."""
    earlier = folder.with_suffix(".earlier")
    flowveil.anonymize(flowveil.read_trips(tiled_trips(150), resolution=7), k=5).write(earlier)
    flows = flowveil.read_trips(tiled_trips(300), resolution=7)
    flowveil.anonymize(flows, k=5, revision=earlier).write(folder, formats="csv")
    return Held(flows, {"revision": [earlier], "zones_of": earlier})


def _numbered(folder: Path) -> Held:
    """Means and medians, in slices."""
    rng, trips = np.random.default_rng(6), tiled_trips(300)
    for name, values in (("minutes", rng.gamma(2, 10, 300)), ("km", rng.gamma(2, 3, 300).round(1))):
        trips = trips.append_column(name, pa.array(values))
    trips = trips.append_column("sex", pa.array(["f", "m"] * 150))
    between = ["minutes=0,200", "km=0,100"]
    flows = flowveil.read_slices(
        trips, resolution=7, by="sex", mean="minutes", median="km", between=between
    )
    flowveil.anonymize_slices(flows, k=5).write(folder, formats="csv,kepler")
    return Held(flows)


def _grouped(folder: Path) -> Held:
    """Purposes that fold."""
    purposes = np.random.default_rng(7).choice(["work", "study", "shop"], 300, p=[0.6, 0.3, 0.1])
    trips = tiled_trips(300).append_column("purpose", pa.array(purposes))
    tree = flowveil.read_tree(
        {"work": "duty", "study": "duty", "shop": "all", "duty": "all", "all": None}
    )
    flows = flowveil.read_slices(trips, resolution=7, by="purpose").folded({"purpose": tree})
    flowveil.anonymize(flows, method="paircut", k=5).write(folder, formats="csv,gpkg")
    return Held(flows)


def _revised_slices(folder: Path) -> Held:
    """Nested zones in slices, corrected."""
    earlier = folder.with_suffix(".earlier")
    found = []
    for rows in (250, 500):
        trips = tiled_trips(rows).append_column("sex", pa.array(["f", "m"] * (rows // 2)))
        found.append(flowveil.read_slices(trips, resolution=7, by="sex"))
    flowveil.anonymize_slices(found[0], k=5, method="paircut").write(earlier)
    flowveil.anonymize_slices(found[1], k=5, revision=earlier, max_suppressed=0.5).write(
        folder, formats="csv"
    )
    return Held(found[1], {"revision": [earlier]})


def _noisy(folder: Path) -> Held:
    flows = small_flows()
    flowveil.anonymize(flows, method="laplace", epsilon=1.0, region="observed").write(
        folder, formats="csv,gpkg,arrow"
    )
    return Held(flows)


def _topdown(folder: Path) -> Held:
    flows = small_flows()
    flowveil.anonymize(flows, method="topdown", epsilon=2.0, level=7, region=REGION).write(
        folder, formats="csv"
    )
    return Held(flows)


def _privtree(folder: Path) -> Held:
    flows = small_flows()
    flowveil.anonymize(flows, method="privtree", epsilon=2.0, level=7, region=REGION).write(
        folder, formats="csv"
    )
    return Held(flows)


#: Which release a number changes; those with the most kinds of files more often.
RELEASES: tuple[Callable[[Path], Held], ...] = (
    *(
        _plain,
        _older,
        _sliced,
        _boxed,
        _nested,
        _plain,
        _folded,
        _people,
        _stricter,
        _older,
        _revised,
    ),
    *(_noisy, _topdown, _plain, _privtree, _numbered, _grouped, _revised_slices),
)
