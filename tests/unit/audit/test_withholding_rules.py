"""Each rule of withholding switched off alone: the audit, or a reader who lists all inputs, finds what it hides."""

from __future__ import annotations

import json
from itertools import combinations_with_replacement

import numpy as np
import pyarrow as pa

from flowveil import anonymize, anonymize_slices, read_slices, read_trips
from flowveil.audit.suppressed import suppressed_bounds
from flowveil.disclosure import withholding
from flowveil.release.plan import Plan
from flowveil.zoning.files import read_zones
from unit.audit.test_attacks import published

TILES = ["N1", "N2", "S1", "S2"]
MAP = read_zones(pa.table({"tile": TILES, "parent": [t[0] for t in TILES]}), root="all")
READ = {"zones": MAP, "origin_tile": "o", "destination_tile": "d"}


def table(rows, **more):
    return pa.table({"o": [r[0] for r in rows], "d": [r[1] for r in rows], **more})


def found(release):
    return suppressed_bounds(published(release))


def test_weights_the_mean_weight_ties_suppressed_weights_to_suppressed_trips(monkeypatch):
    rows = [("N1", "N2")] * 8 + [("S1", "S2")] * 7 + [("N2", "S2")] * 2
    flows = read_trips(table(rows, w=[1.0] * 15 + [30.0] * 2), weight="w", **READ)
    release = anonymize(flows, "suppression", k=5, protect="trips", max_suppressed=0.5)
    assert found(release).tied == 0
    monkeypatch.setattr(withholding, "_of_mean_weight", lambda *_: set())
    assert found(release).tied == 1
    monkeypatch.undo()
    by_weight = anonymize(
        flows, "suppression", k=5, protect=["trips", "population"], max_suppressed=0.9, k_population=1
    )
    assert found(by_weight).tied == 0


def test_inside_of_cells_the_loss_of_one_merged_cell_is_how_its_trips_are_spread(monkeypatch):
    def north_together(flows, guarantee, *, max_suppressed):  # noqa: ARG001
        cut = np.flatnonzero(np.isin(flows.origins.code, ["N", "S1", "S2"])).astype(np.int32)
        ends = np.flatnonzero(np.isin(flows.destinations.code, ["N1", "S1", "S2"])).astype(np.int32)
        return Plan.from_cuts(flows, cut, ends, np.ones(len(flows), np.bool_))

    rows = [("N1", "S1")] * 18 + [("N2", "S1")] * 2 + [("S1", "S2")] * 9 + [("S2", "S2")] * 9 + [("S2", "N1")] * 6
    release = anonymize(read_trips(table(rows), **READ), north_together, k=5, hierarchy="h3")
    assert sorted(release.cells.trips.tolist()) == [6, 9, 9, 20]
    assert found(release).inside == 0
    monkeypatch.setattr(withholding, "_reason_to_withhold_losses", lambda *_: None)
    assert found(release).inside == 1


def test_slice_totals_what_one_slice_withholds_follows_from_all(monkeypatch):
    crowd = [("N1", "N2")] * 8 + [("S1", "S2")] * 7 + [("N1", "S2")] * 9
    rows = [*crowd, *crowd, *[("S1", "N2"), ("S2", "N1"), ("N2", "S1")]]
    kind = pa.array(["a"] * len(crowd) + ["b"] * (len(crowd) + 3))
    sliced = read_slices(table(rows, kind=kind), by="kind", by_many=True, **READ)
    release = anonymize_slices(sliced, "suppression", k=5, protect="trips", max_suppressed=0.5)
    assert found(release).confined == 0
    monkeypatch.setattr(withholding, "_reason_of_total", lambda *_: None)
    assert found(release).bounds[1] is None
    assert found(release).confined == 1


def test_notes_a_method_s_own_number_tells_suppressed_volumes_apart(monkeypatch):
    """All inputs of one or two further trips: what is published of some says how many were suppressed."""
    pairs = [("N2", "S1"), ("S2", "N1"), ("S2", "S1")]
    extras = [more for n in (1, 2) for more in combinations_with_replacement(pairs, n)]

    def confined() -> int:
        worlds: dict[str, set[int]] = {}
        for more in extras:
            rows = [("N1", "N2")] * 12 + [("S1", "S2")] * 9 + list(more)
            release = anonymize(
                read_trips(table(rows), **READ), "atg-soft", k=4, max_suppressed=0.3, allow_small_k=True
            )
            report = summary.summarize(release)
            seen = [report[name] for name in ("measures", "withheld", "notes")]
            text = json.dumps([release.flows.to_pylist(), seen], sort_keys=True)
            worlds.setdefault(text, set()).add(len(rows) - int(release.cells.trips.sum()))
        return sum(len(volumes) == 1 for volumes in worlds.values())

    before = confined()
    original = summary._published_notes
    monkeypatch.setattr(summary, "_published_notes", lambda notes, **_: original(notes, withhold=False))
    assert confined() > before
