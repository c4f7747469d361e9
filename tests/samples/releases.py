"""Small releases to write, read back and tamper with."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import h3.api.basic_int as h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flowveil.core.flows import Flows
from flowveil.core.guarantee import POPULATION_ONLY, SMALL_K, SMALLEST_K, Guarantee
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods import find_method
from flowveil.publishing.release import Release
from flowveil.release.plan import NodeZones, Plan
from flowveil.zoning.h3 import h3_hierarchy


@cache
def city_flows(
    *, seed: int = 0, rows: int = 1500, weights: bool = True, persons: bool = True, around: int = 6
) -> Flows:
    """Trips between 49 hexagons, most of them near the middle.

    343, where they are in a cell of resolution 5.
    """
    rng = np.random.default_rng(seed)
    tiles = np.sort(
        np.array(h3.cell_to_children(h3.latlng_to_cell(48.85, 2.35, around), 8), dtype=np.uint64)
    )
    tree = h3_hierarchy(tiles)
    return Flows.from_pairs(
        (rng.beta(2, 4, rows) * len(tiles)).astype(np.int32),
        (rng.beta(3, 3, rows) * len(tiles)).astype(np.int32),
        origins=tree,
        destinations=tree,
        weight=np.round(rng.uniform(10, 900, rows), 2) if weights else None,
        person=rng.integers(0, 400, rows) if persons else None,
    )


@cache
def region_flows(*, seed: int = 0) -> Flows:
    """Trips between districts with the user's codes, no map; leaves at different depths."""
    rng = np.random.default_rng(seed)
    parent = [-1, 0, 0, 0, 1, 1, 1, 2, 2, 7, 7]
    tree, _ = Hierarchy.from_parents(
        parent, np.array([f"é{i:02d}" for i in range(len(parent))]), kind="table"
    )
    rows = 400
    return Flows.from_pairs(
        np.minimum(rng.geometric(0.45, rows) - 1, tree.n_tiles - 1),
        np.minimum(rng.geometric(0.35, rows) - 1, tree.n_tiles - 1),
        origins=tree,
        destinations=tree,
        weight=rng.integers(1, 9, rows).astype(float),
    )


def _confirmed(guarantee: Guarantee, flows: Flows) -> list[str]:
    """What a command would have asked to confirm."""
    alone = guarantee.units == ("population",) and flows.people is not None
    return [SMALL_K] * (guarantee.k < SMALLEST_K) + [POPULATION_ONLY] * alone


def release_of(
    flows: Flows,
    *,
    k: int = 5,
    protect="trips",
    l=None,  # noqa: E741
    k_population=None,
    **options,
) -> Release:
    guarantee = Guarantee.resolve(flows, k=k, protect=protect, l=l, k_population=k_population)
    flows = guarantee.prepare(flows)
    plan = find_method("odkanon").plan(flows, guarantee, **options)
    limit = {"max_suppressed": options.pop("max_suppressed")} if "max_suppressed" in options else {}
    asked = {
        "k": k,
        "protect": list(guarantee.units),
        "l": l,
        "k_population": k_population,
        **limit,
    }
    parameters = {**asked, "options": options, "confirmed": _confirmed(guarantee, flows)}
    return Release.from_plan(flows, plan, guarantee, method="odkanon", parameters=parameters)


def nested_release(*, short_cell: bool = False) -> Release:
    """Not homogeneous: origin A goes to the tiles of X, origin B to X as a whole.

    B to Y is optionally short.
    """
    tree, _ = Hierarchy.from_parents(
        [-1, 0, 0, 1, 1, 2, 2], np.array(["R", "X", "Y", "x1", "x2", "y1", "y2"])
    )
    node = {code: i for i, code in enumerate(tree.code.tolist())}
    tile = {code: i for i, code in enumerate(tree.code[tree.leaf_node].tolist())}
    rows = [
        ("x1", "x1", 5),
        ("x1", "x2", 6),
        ("x2", "x2", 7),
        ("y1", "x1", 2),
        ("y2", "x2", 4),
        ("y1", "y1", 8),
    ]
    if short_cell:
        rows[-1] = ("y1", "y1", 1)
    flows = Flows.from_pairs(
        np.array([tile[o] for o, _, _ in rows]),
        np.array([tile[d] for _, d, _ in rows]),
        np.array([t for _, _, t in rows]),
        origins=tree,
        destinations=tree,
        whole_map=tree,
    )
    zones_o = NodeZones(tree, np.array([node["X"], node["Y"]], np.int32))
    zones_d = NodeZones(tree, np.array([node["X"], node["x1"], node["x2"], node["Y"]], np.int32))
    from_x = tree.code[tree.parent[tree.leaf_node[flows.origin]]] == "X"
    at = tree.code[tree.leaf_node[flows.destination]]
    destination = np.where(
        from_x, np.where(at == "x1", 1, 2), np.where(np.char.startswith(at, "x"), 0, 3)
    )
    plan = Plan(
        origin_zone=np.where(from_x, 0, 1).astype(np.int32),
        destination_zone=destination.astype(np.int32),
        kept=~((destination == 3) & short_cell),
        origin_zones=zones_o,
        destination_zones=zones_d,
        homogeneous=False,
    )
    guarantee = Guarantee.resolve(flows, k=5)
    return Release.from_plan(
        flows, plan, guarantee, method="atg-dual", parameters={"k": 5, "protect": ["trips"]}
    )


# ---- tampering -----------------------------------------------------------------------------------


def read_json(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, content) -> None:
    """As a release writes it, so that nothing but the change can be found."""
    path.write_text(
        json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def rehash(folder: Path) -> None:
    manifest = read_json(folder / "manifest.json")
    manifest["sha256"] = {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest()
        for p in folder.iterdir()
        if p.name != "manifest.json"
    }
    write_json(folder / "manifest.json", manifest)


def edit_report(folder: Path, change) -> None:
    report = read_json(folder / "report.json")
    change(report)
    write_json(folder / "report.json", report)
    rehash(folder)


def edit_table(folder: Path, name: str, change) -> None:
    """``change`` gets the rows as a list of dicts and returns the new ones, or a whole new
    table."""
    table = pq.read_table(folder / name)
    changed = change(table.to_pylist())
    if not isinstance(changed, pa.Table):
        changed = pa.Table.from_pylist(changed, schema=table.schema)
    write_table(changed, folder / name)
    rehash(folder)


def write_table(table: pa.Table, path: Path) -> None:
    """As releases are written: otherwise the bytes alone would be a finding."""
    pq.write_table(table, path, row_group_size=1 << 20, compression="zstd", version="2.6")


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def tile_release(
    trips, *, weight=None, person=None, protect="trips", k=5, notes=None, parameters=None
) -> Release:
    """Tiles are zones.

    Cells under k are suppressed: reconstruction loss is then the suppressed share.
    """
    n = len(trips)
    tree, _ = Hierarchy.from_parents([-1] + [0] * n, np.array(["R", *(f"t{i}" for i in range(n))]))
    flows = Flows.from_pairs(
        np.arange(n),
        np.arange(n),
        np.array(trips),
        origins=tree,
        destinations=tree,
        weight=None if weight is None else np.array(weight, dtype=float),
        person=None if person is None else np.array(person),
    )
    guarantee = Guarantee.resolve(flows, k=k, protect=protect)
    cut = tree.leaf_node
    plan = Plan.from_cuts(flows, cut, cut, guarantee.safe(flows), notes=notes)
    asked = {"k": k, "protect": list(guarantee.units), "confirmed": _confirmed(guarantee, flows)}
    named = asked if parameters is None else parameters
    return Release.from_plan(flows, plan, guarantee, method="suppression", parameters=named)
