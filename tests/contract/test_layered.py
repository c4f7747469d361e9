"""Layered releases are written, verified and tampered with.

Every guarantee, every tree, whole files.
"""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import flowveil
from conftest import trip_table
from contract.cases import GUARANTEES
from flowveil.verify.from_flows import recount_flows
from flowveil.verify.verification import PrivateFiles

#: Reading of the trips by tree: unrefined H3, halves, and a tree of the user.
TREES = {"h3": "h3", "halves": "halves", "sectors": None}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Trips with persons, weights and codes of the user's zones.

    And the map of these zones with their sectors.
    """
    folder, n = tmp_path_factory.mktemp("layered"), 500
    rng = np.random.default_rng(3)
    trips = trip_table(n)
    for name in ("from", "to"):
        trips = trips.append_column(
            name, pa.array([f"z{i:02d}" for i in np.minimum(rng.geometric(0.15, n), 16) - 1])
        )
    csv.write_csv(trips, folder / "trips.csv")
    zones = [f"z{i:02d}" for i in range(16)]
    sectors = {"code": zones, "sector": [f"s{i // 4}" for i in range(16)]}
    y, x = np.divmod(np.arange(16), 4)
    csv.write_csv(
        pa.table({**sectors, "lat": 48.8 + y / 50, "lon": 2.3 + x / 40}), folder / "sectors.csv"
    )
    return folder / "trips.csv", folder / "sectors.csv"


def reading(files: tuple[Path, Path], kind: str) -> dict:
    if kind != "sectors":
        return {"resolution": 8}
    return {
        "zones": flowveil.read_zones(files[1], parent="sector", root="all"),
        "origin_tile": "from",
        "destination_tile": "to",
    }


#: Every guarantee on one of the trees, and the first of them on all.
PLACED = [("trips", kind) for kind in TREES] + list(zip(list(GUARANTEES)[1:], cycle(TREES)))


@pytest.mark.parametrize(("asked", "kind"), PLACED)
def test_every_guarantee_on_every_tree_holds(asked, kind, files, tmp_path):
    flows = flowveil.read_trips(files[0], weight="weight", **reading(files, kind))
    tree = {} if TREES[kind] is None else {"hierarchy": TREES[kind]}
    release = flowveil.anonymize(
        flows,
        "layercut",
        max_suppressed=0.5,
        population_only=True,
        allow_small_k=True,
        **tree,
        **GUARANTEES[asked],
    )
    folder = release.write(tmp_path / "out")
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert (report["kind"], report["method"]) == ("layered", "layercut")
    # A population of k mean weights is stated as this rule, without the number.
    assert report["guarantee"].get("population") == GUARANTEES[asked].get("k_population")
    layer = pq.read_table(folder / "flows.parquet")["layer"].to_pylist()
    assert set(layer) == set(range(1, max(layer) + 1))
    zones = {"zones": files[1]} if kind == "sectors" else {}
    found = flowveil.verify_release(folder, against=files[0], **zones)
    assert (found.findings, found.not_compared) == ((), ())


def test_a_layer_that_is_changed_is_found_by_the_recount(files, tmp_path):
    flows = flowveil.read_trips(files[0], resolution=8)
    folder = flowveil.anonymize(flows, "layercut", k=5, protect="trips", hierarchy="h3").write(
        tmp_path / "out"
    )
    assert recount_flows(folder, flows).findings == ()
    cells = pq.read_table(folder / "flows.parquet")
    layer = cells["layer"].to_numpy()
    assert layer.max() > 1
    place = cells.column_names.index("layer")
    first = int(np.flatnonzero(layer > 1)[0])
    moved = pa.array(np.where(np.arange(len(layer)) == first, 1, layer).astype(np.int8))
    pq.write_table(
        cells.set_column(place, cells.schema.field(place), moved), folder / "flows.parquet"
    )
    assert recount_flows(folder, flows).findings
    assert flowveil.verify_release(folder, against=files[0]).findings


@pytest.mark.parametrize("protect", ["trips", "people"])
def test_post_rules_hold_in_every_layer_and_cost_little(protect, files, tmp_path):
    flows = flowveil.read_trips(files[0], resolution=8)
    busiest = flows.origins.code_text(flows.origins.leaf_node)[
        np.bincount(flows.origin, flows.trips).argmax()
    ]
    pq.write_table(pa.table({"tile": [str(busiest)], "k": [25]}), tmp_path / "places.parquet")
    rules = {"dominance": 0.15, "stricter": tmp_path / "places.parquet"}
    free = flowveil.anonymize(flows, k=5, protect=protect)
    release = flowveil.anonymize(flows, k=5, protect=protect, max_suppressed=0.2, **rules)
    assert (free.method, release.method, release.kind) == ("layercut", "layercut", "layered")
    # Counted here: no person has more than the share, and cells around the place reach its k.
    people, of_person = release.input.people, {}
    for row, person, trips in zip(
        *(a.tolist() for a in (people.cell, people.person, people.trips)), strict=True
    ):
        cell = int(release.cell_of_flow[row])
        if cell >= 0:
            of_person[cell, person] = of_person.get((cell, person), 0) + trips
    assert all(trips <= 0.15 * release.cells.trips[cell] for (cell, _), trips in of_person.items())
    folder = release.write(tmp_path / "out")
    private = PrivateFiles(stricter=tmp_path / "places.parquet")
    found = flowveil.verify_release(folder, against=files[0], private=private)
    assert (found.findings, found.not_compared) == ((), ())
    # Fewer cells, but nearly the same trips: those of refused cells are published in coarser ones.
    assert (release.cell_of_flow < 0).mean() < 0.1
    assert len(release.cells) < len(free.cells)
    with pytest.raises(
        flowveil.InfeasibleError, match="cannot be suppressed within the limit of 0%"
    ):
        flowveil.anonymize(flows, k=5, protect=protect, max_suppressed=0, dominance=0.001)


def test_slices_have_common_layers(files, tmp_path):
    trips = csv.read_csv(files[0])
    half = pa.array(["am" if i % 2 else "pm" for i in range(len(trips))])
    csv.write_csv(trips.append_column("half", half), tmp_path / "trips.csv")
    flows = flowveil.read_slices(tmp_path / "trips.csv", by="half", resolution=8, by_many=True)
    common = {"k": 5, "protect": "trips", "max_suppressed": 0.5, "common_zones": True}
    release = flowveil.anonymize_slices(flows, "layercut", **common)
    folder = release.write(tmp_path / "out")
    cells = pq.read_table(folder / "flows.parquet")
    assert set(cells["half"].to_pylist()) == {"am", "pm"}
    assert len(set(cells["layer"].to_pylist())) > 1
    found = flowveil.verify_release(folder, against=tmp_path / "trips.csv")
    assert (found.findings, found.not_compared) == ((), ())
    # The map can be kept: every cell of both slices is one of it.
    names = ("origin_zone", "destination_zone", "layer")
    kept = set(zip(*(cells[name].to_pylist() for name in names), strict=True))
    assert set(flowveil.freeze(folder).cells) == kept
