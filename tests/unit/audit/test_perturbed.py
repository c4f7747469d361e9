"""Perturbed tables: what a reader determines is what brute force over all small inputs finds, and nothing else."""

from __future__ import annotations

import itertools
from collections import defaultdict

import h3
import numpy as np
import pyarrow as pa
import pytest

from flowveil import anonymize, anonymize_slices, read_slices, read_trips
from flowveil.audit.auditing import Verdict, audit, audit_files
from flowveil.audit.perturbed import CERTAIN, attack_perturbed
from flowveil.audit.published import PublishedRelease, published_release
from flowveil.cli import main
from flowveil.methods.cellkey import noise_table
from flowveil.record_keys import MODULUS, create_key
from samples.keyed import write_trips

PARENT = h3.cell_to_parent("89b2c55b5b3ffff", 8)
OTHER = h3.grid_disk(PARENT, 1)[1]
TILES = sorted(h3.cell_to_children(PARENT, 9))
CELLKEY = {"maximum": 2, "variance": 1.0, "small": 0, "table": noise_table(2, 1.0, 0).tolist()}
ROUNDING = {"maximum": 2, "base": 3, "mode": "random", "small_only": False}
WORLDS = range(8)


def release(
    cells, *columns, stated=CELLKEY, key="a" * 16, period=None, name="release", **parameters
) -> PublishedRelease:
    """Cells are named by origin, destination and the values of the slice columns."""
    keys = sorted(cells, key=str)
    table = {"origin_zone": [key[0] for key in keys], "destination_zone": [key[1] for key in keys]}
    table |= {column: pa.array([key[2 + n] for key in keys], pa.string()) for n, column in enumerate(columns)}
    table["trips"] = pa.array([cells[key] for key in keys], pa.int64())
    codes = sorted({zone for key in keys for zone in key[:2]})
    report = {
        "kind": "perturbed",
        "method": "cellkey",
        "parameters": {"within": None, **parameters},
        "guarantee": {"key": key, **stated},
        "statement": {
            "about": {"period": period} if period else {}, "homogeneous": True, "suppression": {"rule": "noise"},
            "slice_columns": list(columns), "boxes": None,
        },
    }  # fmt: skip
    zones = pa.table({"zone": codes, "h3_cells": [[code] for code in codes]})
    return published_release(pa.table(table), zones, report, name=name)


def shown(stated, count: int) -> dict[int, float]:
    """What is published of a count, with probabilities."""
    if count == 0:
        return {0: 1.0}
    if "base" in stated:
        base = stated["base"]
        rest = 0 if stated["small_only"] and count >= base else count % base
        return {n: p for n, p in ((count - rest, 1 - rest / base), (count - rest + base, rest / base)) if p}
    row = stated["table"][min(count, len(stated["table"])) - 1]
    return {count + x - stated["maximum"]: p / MODULUS for x, p in enumerate(row) if p}


def determined(found) -> dict[str, int]:
    return {group.kind.removeprefix("determined, "): group.low for group in found.groups if "determined" in group.kind}


@pytest.mark.parametrize("stated", [CELLKEY, ROUNDING, {**ROUNDING, "small_only": True}], ids=["noise", "3", "small"])
def test_slices_and_their_total_determine_what_brute_force_determines(stated):
    worlds = defaultdict(set)
    for f, m in itertools.product(WORLDS, repeat=2):
        for seen in itertools.product(shown(stated, f), shown(stated, m), shown(stated, f + m)):
            worlds[seen].add((f, m))
    top, some = max(WORLDS) - stated["maximum"], 0
    for (x, y, z), inputs in worlds.items():
        if max(x, y) > top or not (x or y or z):
            continue
        cells = {("sex=f", x): "f", ("sex=m", y): "m", ("", z): None}
        table = {(PARENT, PARENT, value): n for (_, n), value in cells.items() if n}
        # Another pair, so that every slice is listed.
        table |= {(OTHER, OTHER, "f"): 30, (OTHER, OTHER, "m"): 30, (OTHER, OTHER, None): 60}
        found = attack_perturbed([release(table, "sex", stated=stated)])
        want = {}
        for n, (name, value) in enumerate(cells):
            left = {(f, m, f + m)[n] for f, m in inputs}
            is_exact = stated.get("small_only") and value > stated["base"]
            if value and len(left) == 1 and not is_exact:
                want[name or "determined"] = left.pop()
        assert determined(found) == want
        assert found.figures["contradictions"] == 0
        some += len(want)
    assert some > 0


def test_crossing_slices_determine_nothing_that_brute_force_does_not():
    """Sex and age with all totals: bounds hold, and where they are not the closest ones the audit says so."""
    stated, rng, found_any = {**ROUNDING, "base": 2, "maximum": 1}, np.random.default_rng(1), 0
    worlds = np.array(list(itertools.product(range(6), repeat=4)))
    sums = {("f", "y"): [0], ("f", "o"): [1], ("m", "y"): [2], ("m", "o"): [3], ("f", None): [0, 1],
            ("m", None): [2, 3], (None, "y"): [0, 2], (None, "o"): [1, 3], (None, None): [0, 1, 2, 3]}  # fmt: skip
    for true in rng.integers(1, 4, (60, 4)):
        seen, possible = {}, np.ones(len(worlds), bool)
        for name, parts in sums.items():
            values, chances = zip(*shown(stated, int(true[parts].sum())).items(), strict=True)
            seen[name] = int(rng.choice(values, p=chances))
            counts = worlds[:, parts].sum(axis=1)
            possible &= np.array([seen[name] in shown(stated, n) for n in range(counts.max() + 1)])[counts]
        cells = {(PARENT, PARENT, *name): n for name, n in seen.items() if n}
        cells |= {(OTHER, OTHER, *name): 30 * len(parts) for name, parts in sums.items()}
        found = attack_perturbed([release(cells, "sex", "age", stated=stated)])
        want = {}
        for name, parts in sums.items():
            left = set(worlds[possible][:, parts].sum(axis=1).tolist())
            columns = sorted(f"{c}={v}" for c, v in zip(("sex", "age"), name, strict=True) if v)
            if len(left) == 1 and seen[name]:
                want[", ".join(columns) or "determined"] = left.pop()
        assert determined(found).items() <= want.items()
        assert determined(found) == want or found.figures["crossing"]
        found_any += len(determined(found))
    assert found_any > 10


def test_finer_zones_bound_a_coarser_one():
    """One trip in each of seven small zones, all lowered as far as possible, and their union raised."""
    tiles = {(tile, PARENT): 1 for tile in TILES}
    found = attack_perturbed([release({(PARENT, PARENT): 23}), release(tiles)])
    # Each is at most 3, the union at least 21.
    assert found.figures["determined"] == 8
    assert {group.low for group in found.groups} == {3, 21}
    assert attack_perturbed([release({(PARENT, PARENT): 22}), release(tiles)]).figures["determined"] == 0


def test_many_keys_make_a_count_certain_and_one_key_does_not():
    rng, count = np.random.default_rng(3), 6
    values, chances = zip(*shown(CELLKEY, count).items(), strict=True)
    drawn = rng.choice(values, 30, p=np.array(chances) / sum(chances)).tolist()
    posterior = {n: np.prod([shown(CELLKEY, n).get(v, 0) for v in drawn]) for n in range(1, 12)}
    assert max(posterior.values()) / sum(posterior.values()) > CERTAIN
    tables = [release({(PARENT, PARENT): v}, key=f"{n:016x}") for n, v in enumerate(drawn)]
    found = audit(tables)
    assert found.verdict is Verdict.DISCLOSED
    assert found.perturbed.figures["determined"] + found.perturbed.figures["certain"] == 1
    repeated = audit([release({(PARENT, PARENT): drawn[0]}) for _ in range(30)])
    assert (repeated.verdict, repeated.perturbed.figures["compared"]) == (Verdict.CLEAN, 1)


def test_the_same_key_with_other_parameters_is_one_draw():
    other = {**CELLKEY, "variance": 1.5, "table": noise_table(2, 1.5, 0).tolist()}
    for count in (3, 6):
        for draw in range(0, MODULUS, MODULUS // 97):
            seen = []
            for stated in (CELLKEY, other):
                running = np.cumsum(stated["table"][min(count, 3) - 1])
                seen.append(count - 2 + int(np.searchsorted(running, draw, side="right")))
            if 0 in seen:
                continue
            pairs = zip(seen, (CELLKEY, other), strict=True)
            found = attack_perturbed([release({(PARENT, PARENT): v}, stated=stated) for v, stated in pairs])
            assert found.figures["contradictions"] == 0
            assert all(group.low <= count <= group.high for group in found.groups)


def test_controlled_totals_bound_counts():
    """A second table raises the lower bounds of a row; its total then bounds the others from above."""
    first = {("x", TILES[0]): 3, ("x", TILES[1]): 3}
    controlled = release({(PARENT, d): n for (_, d), n in first.items()}, stated={**ROUNDING, "mode": "controlled"})
    assert attack_perturbed([controlled]).groups == []
    second = release({(PARENT, TILES[0]): 6, (PARENT, TILES[1]): 6}, stated=ROUNDING, key="b" * 16)
    # Each is 4 or 5 by both tables, and both together at most 8.
    found = attack_perturbed([controlled, second])
    assert found.figures["determined"] == 2
    assert {group.low for group in found.groups} == {4}


def test_verdicts_of_tables_that_cannot_be_compared():
    january = release({(PARENT, PARENT): 5}, period="2024-01", name="january")
    february = release({(PARENT, PARENT): 7}, period="2024-02", name="february")
    assert audit([january]).verdict is Verdict.CLEAN
    assert audit([january, february]).verdict is Verdict.CLEAN
    for other in (
        release({(PARENT, PARENT): 9}, period="2024-01-01/2024-03-31"),
        release({(PARENT, PARENT): 9}, period="2024-01", within="area"),
        release({(PARENT, PARENT): 50}, period="2024-01", key="b" * 16),
    ):
        found = audit([january, other])
        assert found.verdict is Verdict.INCOMPLETE
        assert found.not_compared
    files = audit_files(audit([january, release({(PARENT, PARENT): 9}, period="2024-01", key="b" * 16)]))
    assert PARENT not in "".join(files.values())


def test_hours_are_parts_of_their_day_and_no_quarters():
    hours = {(PARENT, PARENT, f"2024-01-01T{hour:02}:00"): 1 for hour in range(4)}
    by_hour = release({**hours, (PARENT, PARENT, "2024-01-01"): 14}, "time", slices={"every": "1h"})
    found = determined(attack_perturbed([by_hour]))
    assert found == {"time=2024-01-01": 12, **{f"time=2024-01-01T{hour:02}:00 (1h)": 3 for hour in range(4)}}
    # The first quarter of an hour has the label of the hour.
    hour, *quarters = ({(PARENT, PARENT, f"2024-01-01T03:{m}"): n} for m, n in (("00", 20), ("00", 4), ("15", 16)))
    tables = [
        release(hour, "time", slices={"every": "1h"}),
        release(quarters[0] | quarters[1], "time", slices={"every": "15min"}, key="b" * 16),
    ]
    assert attack_perturbed(tables).figures["contradictions"] == 0


@pytest.mark.parametrize("method", ["cellkey", "rounding"])
def test_what_is_determined_is_true(tmp_path, method):
    """Against real releases of nested tables: every bound holds."""
    create_key(tmp_path / "key")
    write_trips(tmp_path / "trips.csv")
    how = {"no_person": True, "key_file": tmp_path / "key", "record_id": "trip", "resolution": 8}
    flows = read_trips(tmp_path / "trips.csv", **how)
    sliced = read_slices(tmp_path / "trips.csv", by="sex", **how)
    folders = [anonymize(flows, method, level=n).write(tmp_path / f"level{n}") for n in (5, 6, 7)]
    folders.append(anonymize_slices(sliced, method, total=True, level=6).write(tmp_path / "sex"))
    found = audit(folders)
    assert found.perturbed.figures["contradictions"] == 0
    assert found.perturbed.figures["compared"] > 20
    assert found.not_compared == []
    rows: dict[tuple[str, str, str], int] = defaultdict(int)
    for part, name in ((flows, ""), *((part, f"sex={key[0]}") for key, part in sliced)):
        ends = ((part.origins, part.origin), (part.destinations, part.destination))
        tiles = [tree.code_text(tree.leaf_node[tile]).tolist() for tree, tile in ends]
        for o, d, n in zip(*tiles, part.trips.tolist(), strict=True):
            for level in (5, 6, 7):
                rows[h3.cell_to_parent(o, level), h3.cell_to_parent(d, level), name] += n
    for group in found.perturbed.groups:
        assert group.low <= rows[group.origin, group.destination, group.kind.partition(", ")[2]] <= group.high
    call = ["audit", *map(str, folders), "--out", f"{tmp_path}/audit"]
    if found.perturbed.groups:
        with pytest.raises(SystemExit, match="3"):
            main(call)
    else:
        main(call)
