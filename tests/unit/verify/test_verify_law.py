"""Exact counts labelled as noise are found; honest noise is not accused."""

from __future__ import annotations

import json
import shutil

import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil import anonymize
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy
from flowveil.methods.contributions import counted_trips
from flowveil.verify import verify_release
from flowveil.verify.law import FALSE_ALARM, _check_draws, _Law, _off
from samples.drafts import unchecked
from samples.releases import city_flows, rehash


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


def draws(scale: float, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    q = np.exp(-1 / scale)
    return (rng.geometric(1 - q, n) - rng.geometric(1 - q, n)).astype(np.int64)


def shown(noisy: np.ndarray, least: int) -> np.ndarray:
    return np.where(noisy >= least, noisy, -1)


def findings(counted, noisy, *, scale, least=1):
    return list(_check_draws(_Law(np.exp(-1 / scale)), counted, counted, shown(noisy, least), least))


COUNTS = np.minimum(np.random.default_rng(0).zipf(1.6, 3000), 500).astype(np.int64)


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("least", [1, 30])
def test_honest_noise_is_not_accused(scale, least):
    """100 releases for each of 8 settings: the chance of any false alarm is below 1 in a million."""
    counted = COUNTS[:600] + (0 if least == 1 else 40)
    assert 8 * 100 * FALSE_ALARM < 1e-6
    for seed in range(100):
        assert findings(counted, counted + draws(scale, len(counted), seed), scale=scale, least=least) == []
    law = _Law(np.exp(-1 / scale))
    above = np.arange(1, 5)
    assert np.allclose(law.up_to(np.arange(-4000, 4000))[-1], 1)
    assert np.allclose(np.diff(law.up_to(np.arange(-1, 1))), law.zero)
    assert np.allclose(1 - law.up_to(above - 1), [law.above(int(x)) for x in above])


@pytest.mark.parametrize("scale", [1.0, 5.0, 40.0])
@pytest.mark.parametrize(
    ("forged", "words"),
    [
        (lambda c, _: c, "counts, not noise"),
        (lambda c, x: np.where(np.arange(len(c)) % 2, c, c + x), "counts, not noise"),
        (lambda c, x: c + x // 3, "flows.parquet"),
        (lambda c, x: c + np.abs(x), "flows.parquet"),
        (lambda c, x: c + 1 + np.abs(x), "fewer counts are exact"),
    ],
)
def test_numbers_that_are_no_noise_are_found(scale, forged, words):
    (first, *_) = findings(COUNTS, forged(COUNTS, draws(scale, len(COUNTS), 1)), scale=scale)
    assert words in first


def test_how_small_a_release_of_exact_counts_is_found():
    """What the documents say: from 31 pairs on at ε = 1 of a trip, from 7 on at bound / ε = 20."""
    for scale, fewest in ((1.0, 31), (20.0, 7)):
        for n in (fewest - 1, fewest):
            counted = np.full(n, 100)
            assert bool(findings(counted, counted, scale=scale)) == (n == fewest)


def test_the_largest_distance_is_found_wherever_it_is():
    law = _Law(np.exp(-1.0))
    assert not _off(draws(1.0, 4000, 3), law.up_to, lowest=-400)
    assert _off(np.full(4000, -3), law.up_to, lowest=-400)
    assert _off(np.full(4000, 9), law.up_to, lowest=-400)
    assert not _off(np.zeros(0, np.int64), law.up_to, lowest=-1)


# ---- whole folders ---------------------------------------------------------------------------------------------------


def forge(folder, change) -> None:
    """Change the rows and make all else fit."""
    table = pq.read_table(folder / "flows.parquet")
    pairs = zip(*(table[name].to_pylist() for name in table.column_names[:2]), strict=True)
    rows = change(dict(zip(pairs, table["trips"].to_pylist(), strict=True)))
    columns = [[o for o, _ in sorted(rows)], [d for _, d in sorted(rows)], [rows[pair] for pair in sorted(rows)]]
    pq.write_table(pa.table(columns, names=table.column_names), folder / "flows.parquet")
    zones = pq.read_table(folder / "zones.parquet")
    first = {zone: row for row, zone in reversed(list(enumerate(zones["zone"].to_pylist())))}
    ends = {zone: (zone in columns[0], zone in columns[1]) for zone in first}
    role = {(True, True): "both", (True, False): "origin", (False, True): "destination"}
    rows_of_zones = [row for zone, row in sorted(first.items()) if any(ends[zone])]
    roles = [role[ends[zone]] for zone in sorted(first) if any(ends[zone])]
    zones = zones.take(rows_of_zones).set_column(1, zones.schema.field("role"), pa.array(roles))
    pq.write_table(zones, folder / "zones.parquet")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    report["measures"]["trips"] |= {
        "n_cells": len(rows),
        "published_trips": sum(rows.values()),
        "n_origin_zones": len(set(columns[0])),
        "n_destination_zones": len(set(columns[1])),
    }
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    rehash(folder)


def region_map(persons: bool) -> Flows:
    rng = np.random.default_rng(4)
    names = [f"z{i:02d}" for i in range(20)]
    tree, _ = Hierarchy.from_parents([-1] + [0] * 20, np.array(["root", *names]), kind="table")
    n = 20_000
    place = [np.minimum(rng.geometric(0.15, n) - 1, 19) for _ in range(2)]
    person = rng.integers(0, 2000, n) if persons else None
    return Flows.from_pairs(*place, origins=tree, destinations=tree, person=person)


REGION = h3.latlng_to_cell(48.85, 2.35, 6)
CASES = {
    "trips": (region_map(persons=False), {"epsilon": 1.0, "region": "observed"}),
    "persons": (region_map(persons=True), {"epsilon": 2.0, "bound": 4, "region": "observed"}),
    "threshold": (region_map(persons=True), {"epsilon": 2.0, "bound": 2, "delta": 1e-6}),
    "cells": (
        city_flows(rows=20_000),
        {"epsilon": 2.0, "bound": 20, "region": REGION, "level": 8},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_honest_folders_hold_and_forged_ones_do_not(case, tmp_path):
    flows, asked = CASES[case]
    release = anonymize(flows, "laplace", **asked)
    written = release.write(tmp_path / "written")
    assert verify_release(written, flows) == []
    bound = asked.get("bound")
    trips = counted_trips(flows, np.ones(len(flows), bool), bound=bound)
    names = [tree.code_text(tree.leaf_node).tolist() for tree in (flows.origins, flows.destinations)]
    least = release.guarantee.threshold or 1
    listed = [set(release.flows[name].to_pylist()) for name in ("origin_zone", "destination_zone")]
    for i, counts in enumerate((trips, flows.trips)):
        rows = zip(flows.origin.tolist(), flows.destination.tolist(), counts.tolist(), strict=True)
        pairs = {(names[0][o], names[1][d]): c for o, d, c in rows if c >= least}
        exact = {(o, d): c for (o, d), c in pairs.items() if o in listed[0] and d in listed[1]}
        folder = shutil.copytree(written, tmp_path / str(i))
        forge(folder, lambda _, exact=exact: exact)
        found = verify_release(folder, flows)
        assert found
        assert all(finding.startswith("flows.parquet") for finding in found)
        if counts is trips:
            assert "counts, not noise" in found[0]


def test_noise_on_pairs_without_trips_is_looked_at(tmp_path):
    flows, asked = CASES["cells"]
    folder = anonymize(flows, "laplace", **asked).write(tmp_path / "out")
    names = [tree.code_text(tree.leaf_node).tolist() for tree in (flows.origins, flows.destinations)]
    known = {(names[0][o], names[1][d]) for o, d in zip(flows.origin.tolist(), flows.destination.tolist(), strict=True)}
    forge(folder, lambda rows: {pair: y if pair in known else 1 for pair, y in rows.items()})
    assert verify_release(folder, flows) == [
        "flows.parquet: the counts of pairs without trips do not have the law of the noise"
    ]
    forge(folder, lambda rows: {pair: y for pair, y in rows.items() if pair in known})
    assert any("not listed as often" in finding for finding in verify_release(folder, flows))
