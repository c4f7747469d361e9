"""Noisy counts of several slices: that they are the declared ones, and what each and all of them promise.

The counts of each matrix are looked at as if it were a release of its own. Which trips are counted in it is worked out
here anew: of each person so many over all slices as the bound says. Shares nothing with the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.slices import TIME, Every, declared_values
from flowveil.verify.database import Database, opened
from flowveil.verify.law import Zones

if TYPE_CHECKING:
    from flowveil.slices import Key, SlicedFlows

#: Measures of each slice, as they follow from its rows.
_DISCLOSED = {
    "n_cells": "count(*)",
    "n_origin_zones": "count(DISTINCT origin_zone)",
    "n_destination_zones": "count(DISTINCT destination_zone)",
    "published_trips": "sum(trips)",
}


def of_one_matrix(promise: Mapping[str, Any]) -> dict[str, Any]:
    """The promise of one of several matrices: ε and δ of all are so many times its own as there are layers."""
    layers = promise.get("layers", 1)
    own = {**promise, "epsilon": promise["epsilon"] / layers, "delta": promise["delta"] / layers}
    own.pop("layers", None)
    return own


def check_noisy_slices(
    db: Database,
    report: Mapping[str, Any],
    flows: SlicedFlows,
    place: Path,
    look: Callable[[Flows, Database], Iterator[str]],
) -> Iterator[str]:
    """Findings on the slices of a noisy release, and on the counts of each.

    Args:
        db: with ``published_rows``, slice columns as c0, c1, ...
        report: the content of report.json, whose promise is in its ranges.
        flows: the slices as they were read.
        place: the folder.
        look: what to ask of one matrix: its flows, and a database with its ``published_rows``.
    """
    asked, columns = report["parameters"]["slices"], flows.columns
    values: dict[str, list[str]]
    try:
        period = {} if asked["period"] is None else {TIME: "/".join(asked["period"])}
        values = declared_values(columns, flows.every, {**asked["values"], **period})
        steps = [Every.parse(text) for text in asked["also_every"]]
    except ParameterError:
        yield "report.json: its slices are not declared"
        return
    layers = _layers(columns, values, steps, total=asked["total"])
    if report["guarantee"].get("layers", 1) != len(layers):
        yield "report.json: ε is not that of as many layers of matrices as it has"
    names = [f"c{i}" for i in range(len(columns))]
    shown = {tuple(row[: len(names)]): row[len(names) :] for row in _rows_of_slices(db, names)}
    members = {key: own for layer in layers for key, own in layer.items()}
    strange = sum(key not in members for key in shown)
    if strange:
        yield f"flows.parquet: {strange} slices are not among those that were declared"
        return
    said = {tuple(part["slice"].get(name) for name in columns): part["measures"]["trips"] for part in report["slices"]}
    if set(said) != set(shown) or len(said) != len(report["slices"]):
        yield "report.json: its slices are not those of flows.parquet"
        return
    for key, counted in shown.items():
        disclosed = {name: value for name, value in said[key].items() if value is not None}
        if disclosed != dict(zip(_DISCLOSED, counted, strict=True)):
            yield "report.json: the measures of a slice contradict the published table, or reveal true counts"
            return
    raw = _counted(flows, set(product(*(values[name] for name in columns))), report["guarantee"])
    for key in shown:
        own = _flows_of(flows, [raw[member] for member in members[key] if member in raw])
        findings = list(_looked_at(db, names, key, own, place, look))
        if findings:
            yield from findings
            return


def _rows_of_slices(db: Database, names: list[str]) -> list[tuple[Any, ...]]:
    listed = ", ".join(names)
    return db.rows(f"SELECT {listed}, {', '.join(_DISCLOSED.values())} FROM published_rows GROUP BY {listed}")


def _looked_at(
    db: Database, names: list[str], key: Key, own: Flows, place: Path, look: Callable[[Flows, Database], Iterator[str]]
) -> Iterator[str]:
    import pyarrow as pa

    same = " AND ".join(f"{name} IS NOT DISTINCT FROM ?" for name in names)
    query = f"SELECT origin_zone, destination_zone, trips, row FROM published_rows WHERE {same}"
    rows = db.rows(query, list(key))
    kinds = {"origin_zone": pa.string(), "destination_zone": pa.string(), "trips": pa.int64(), "row": pa.int64()}
    columns = zip(*rows, strict=True)
    table = {name: pa.array(column, kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)}
    with opened(place) as alone:
        alone.store("published_rows", pa.table(table))
        yield from look(own, alone)


def _layers(
    columns: tuple[str, ...], values: Mapping[str, list[str]], steps: list[Every], *, total: bool
) -> list[dict[Key, list[tuple[str, ...]]]]:
    """The matrices of each layer, with the declared slices that each is made of."""
    finest = list(product(*(values[name] for name in columns)))
    layers: list[dict[Key, list[tuple[str, ...]]]] = [{(None,) * len(columns): finest}] if total else []
    for step in steps:
        layer: dict[Key, list[tuple[str, ...]]] = {}
        for key in finest:
            lifted = tuple(v[: step.label_length] if c == TIME else v for c, v in zip(columns, key, strict=True))
            layer.setdefault(lifted, []).append(key)
        layers.append(layer)
    return [*layers, {key: [key] for key in finest}]


def _counted(
    flows: SlicedFlows, declared: set[tuple[str, ...]], promise: Mapping[str, Any]
) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """Origins, destinations, trips and persons that are counted in each declared slice."""
    ends = [Zones.of(flows.slices[0], tree, promise["domain"]) for tree in (flows.origins, flows.destinations)]
    inside = [np.array([code is not None for code in end.of_tile], dtype=np.bool_) for end in ends]
    found: dict[tuple[str, ...], tuple[Any, ...]] = {}
    met: dict[int, int] = {}
    rows: dict[tuple[str, ...], list[Any]] = {}
    for key, part in zip(flows.keys, flows.slices, strict=True):
        if key not in declared:
            continue
        kept = inside[0][part.origin] & inside[1][part.destination]
        people = part.people
        if people is None or people.trips is None:
            found[key] = (part.origin[kept], part.destination[kept], part.trips[kept], None)
            continue
        of = kept[people.cell]
        cell = people.cell[of]
        rows[key] = [part.origin[cell], part.destination[cell], people.trips[of], people.person[of]]
        who, made = np.unique(people.person[of], return_inverse=True)
        for person, n in zip(who.tolist(), np.bincount(made, weights=people.trips[of]).tolist(), strict=True):
            met[person] = met.get(person, 0) + int(n)
    bound, before = int(promise["bound"]), dict.fromkeys(met, 0)
    for key, (origin, destination, trips, person) in rows.items():
        # One row after the other, in the order of slices and tiles: every (n / bound)-th trip of n stays.
        stays = np.zeros(len(trips), dtype=np.int64)
        for i, (who, made) in enumerate(zip(person.tolist(), trips.tolist(), strict=True)):
            n, past = met[who], before[who]
            before[who] = past + made
            stays[i] = made if n <= bound else ((past + made) * bound + n // 2) // n - (past * bound + n // 2) // n
        found[key] = (origin[stays > 0], destination[stays > 0], stays[stays > 0], person[stays > 0])
    return found


def _flows_of(flows: SlicedFlows, parts: list[tuple[Any, ...]]) -> Flows:
    """What is counted in one matrix."""
    first, nothing = flows.slices[0], np.zeros(0, dtype=np.int32)
    parts = [*parts, (nothing, nothing, nothing.astype(np.int64), nothing)]
    origin, destination, trips = (np.concatenate([part[i] for part in parts]) for i in range(3))
    person = None if first.people is None else np.concatenate([part[3] for part in parts])
    return Flows.from_pairs(
        origin,
        destination,
        trips,
        origins=flows.origins,
        destinations=flows.destinations,
        person=person,
        intake=flows.intake,
        whole_map=first.whole_map,
    )
