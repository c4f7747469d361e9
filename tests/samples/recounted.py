"""Small release folders and raw trips for the recount, made without flowveil."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flowveil.verify.recount import PersonRows, Trips, ZoneMap
from flowveil.verify.recount.recount import shown_share

#: A map of nine tiles: two regions, each with districts.
PARENTS: dict[str, str | None] = {
    "R": None,
    "A": "R",
    "B": "R",
    "a": "A",
    "b": "A",
    "c": "B",
    "a1": "a",
    "a2": "a",
    "a3": "a",
    "b1": "b",
    "b2": "b",
    "c1": "c",
    "c2": "c",
    "d1": "B",
    "d2": "B",
}
TILES = sorted(set(PARENTS) - set(PARENTS.values()))


def trips_of(rows: list[dict[str, Any]]) -> Trips:
    """Raw trips, one row each: origin, destination, person (None if unknown), weight in
    millionths."""
    codes = np.array(sorted(PARENTS))
    number = {code: i for i, code in enumerate(codes.tolist())}
    parent = np.array([-1 if PARENTS[c] is None else number[PARENTS[c]] for c in codes.tolist()])
    unknown = np.full(len(codes), np.nan)
    ends = {
        end: np.unique([row[end] for row in rows], return_inverse=True)
        for end in ("origin", "destination")
    }
    people = sorted({row["person"] for row in rows} - {None})
    known = [i for i, row in enumerate(rows) if row["person"] is not None]
    return Trips(
        origin=ends["origin"][1].astype(np.int32),
        destination=ends["destination"][1].astype(np.int32),
        trips=np.ones(len(rows), dtype=np.int64),
        weight=np.array([row["weight"] for row in rows], dtype=np.int64),
        persons=PersonRows(
            np.array(known, dtype=np.int32),
            np.array([people.index(rows[i]["person"]) for i in known], dtype=np.int32),
            np.ones(len(known), dtype=np.int64),
        ),
        origins=ends["origin"][0],
        destinations=ends["destination"][0],
        origin_map=ZoneMap(codes, parent, unknown, unknown),
        destination_map=ZoneMap(codes, parent, unknown, unknown),
    )


def write_folder(
    folder: Path,
    cells: list[dict[str, Any]],
    trips: Trips,
    guarantee: dict[str, Any],
    **statement: Any,
) -> Path:
    """A release folder with the files that a recount reads; shares are right for these cells."""
    from fractions import Fraction

    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(cells)
    if "layer" in table.column_names:
        at = table.column_names.index("layer")
        table = table.set_column(at, "layer", table["layer"].cast(pa.int8()))
    pq.write_table(table, folder / "flows.parquet")
    roles = {
        role: sorted({cell[f"{role}_zone"] for cell in cells}) for role in ("origin", "destination")
    }
    zones = [{"zone": zone, "role": role} for role, own in roles.items() for zone in own]
    pq.write_table(pa.Table.from_pylist(zones), folder / "zones.parquet")
    units = [unit for unit in ("trips", "people", "population") if unit in guarantee]
    stated = {"k": guarantee.get("k", 1), "protect": units, **guarantee}
    basis = "weight" if "population" in guarantee else "trips"
    whole = int(trips.weight.sum() if basis == "weight" else trips.trips.sum())
    published = sum(round(c["weight"] * 10**6) if basis == "weight" else c["trips"] for c in cells)
    step = min(
        Fraction(1),
        max(Fraction(1, 100), Fraction(stated["k"], max(1, sum(c["trips"] for c in cells)))),
    )
    shares = {"basis": basis, "step": float(step), "dropped": float(step), "outside": None}
    shares["suppressed"] = shown_share(Fraction(max(0, whole - published), max(1, whole)), step)
    about = {
        "homogeneous": False,
        "suppression": {"rule": "short cells"},
        "shares": shares,
        "layers": any("layer" in cell for cell in cells),
    }
    parameters = {"k": stated["k"], "protect": units, "l": guarantee.get("locations")}
    layered = any("layer" in cell for cell in cells)
    report = {
        "kind": "layered" if layered else "plain",
        "method": "paircut",
        "parameters": parameters,
        "guarantee": stated,
        "statement": {**about, **statement},
    }
    (folder / "report.json").write_text(json.dumps(report))
    return folder
