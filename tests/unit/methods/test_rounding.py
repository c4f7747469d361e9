"""Rounding: multiples of the base, unbiased, the same in every table; controlled: totals agree."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import Bounds, LinearConstraint, milp

from flowveil import InfeasibleError, ParameterError, anonymize, anonymize_slices, read_slices, read_trips
from flowveil.cli import main
from flowveil.errors import GuaranteeError
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy
from flowveil.methods.rounding import rounding
from flowveil.record_keys import MODULUS, create_key, read_key
from flowveil.verify.from_flows import recount_flows
from flowveil.verify.verification import PrivateFiles, verify_release
from reference import rounding as naive
from reference.goodness import FALSE_ALARM
from samples.keyed import table_of, write_trips
from samples.releases import edit_report, edit_table
from samples.verified import findings_of

TREE = Hierarchy.from_parents([-1, *[0] * 6], np.array([f"n{i}" for i in range(7)]))[0]
TABLES = st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(1, 12), min_size=1)


@pytest.fixture
def key(tmp_path) -> Path:
    create_key(tmp_path / "key")
    return tmp_path / "key"


def flows_of(table, keys) -> Flows:
    origin, destination = map(np.array, zip(*sorted(table), strict=True))
    trips = np.array([table[cell] for cell in sorted(table)])
    flows = Flows.from_pairs(origin, destination, trips, origins=TREE, destinations=TREE)
    return replace(flows, keys=np.asarray(keys))


def published(flows: Flows, **options) -> dict[tuple[int, int], int]:
    cells = rounding(flows, **options).cells
    return dict(zip(zip(cells.origin.tolist(), cells.destination.tolist(), strict=True), cells.trips, strict=True))


@given(TABLES, st.sampled_from([2, 3, 5]), st.booleans(), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_the_fast_method_is_the_slow_one(table, base, small_only, seed):
    keys = np.random.default_rng(seed).integers(0, MODULUS, len(table))
    options = {"base": base, "small_only": small_only}
    pairs = zip(sorted(table), keys.tolist(), strict=True)
    want = {cell: naive.rounded(table[cell], k, base, small_only=small_only) for cell, k in pairs}
    assert published(flows_of(table, keys), **options) == {cell: n for cell, n in want.items() if n}
    shown = published(flows_of(table, keys), mode="controlled", **options)
    small = {cell: n for cell, n in table.items() if n < base or not small_only}
    assert naive.is_controlled(small, shown, base)
    assert all(shown[cell] == n for cell, n in table.items() if cell not in small)


@pytest.mark.slow
def test_random_and_controlled_rounding_are_unbiased():
    table = {(0, 0): 1, (0, 1): 3, (1, 0): 4, (1, 1): 2, (2, 1): 7, (2, 2): 1, (0, 2): 6}
    rng, n = np.random.default_rng(), 3_000
    for mode in ("random", "controlled"):
        raised = dict.fromkeys(table, 0)
        for keys in rng.integers(0, MODULUS, (n, len(table))):
            shown = published(flows_of(table, keys), mode=mode)
            for cell in table:
                raised[cell] += shown.get(cell, 0) > table[cell]
        for cell, up in raised.items():
            assert stats.binomtest(up, n, table[cell] % 5 / 5).pvalue > FALSE_ALARM / 14


def test_controlled_rounding_finds_every_table_that_an_integer_program_finds():
    """Rounding up as many counts as possible, by HiGHS, is also possible by keys; and brute force finds no others."""
    table = {(0, 0): 1, (0, 1): 3, (1, 0): 4, (1, 1): 2, (2, 1): 7}
    every = {tuple(one.values()) for one in naive.controlled_tables(table, 5)}
    rng = np.random.default_rng(0)
    made = set()
    for keys in rng.integers(0, MODULUS, (1_000, len(table))):
        shown = published(flows_of(table, keys), mode="controlled")
        made.add(tuple(shown.get(cell, 0) for cell in table))
    assert made <= every
    sums = np.array([[name in (("o", o), ("d", d), ("all", 0)) for o, d in table] for name in naive.totals(table)])
    low = np.array(list(naive.totals(table).values())) // 5
    below = np.array(list(table.values())) // 5
    solved = milp(
        -np.ones(len(table)), integrality=np.ones(len(table)), bounds=Bounds(below, below + 1),
        constraints=LinearConstraint(sums, low, low + (np.array(list(naive.totals(table).values())) % 5 > 0)),
    )  # fmt: skip
    assert max(sum(one) for one in every) == 5 * round(-solved.fun) == max(sum(one) for one in made)


@pytest.mark.parametrize("base", [2, 3])
def test_one_table_determines_no_count(base):
    """Brute force over all small tables: a reader of one controlled table excludes no count within base - 1."""
    cells = list(itertools.product(range(2), repeat=2))
    explained: dict[tuple, set] = {}
    for counts in itertools.product(range(2 * base), repeat=4):
        table = dict(zip(cells, counts, strict=True))
        for one in naive.controlled_tables(table, base):
            explained.setdefault(tuple(one.values()), set()).add(counts)
    for shown, worlds in explained.items():
        if max(shown) > base:
            # Larger counts than these worlds have would be needed.
            continue
        for at, value in enumerate(shown):
            assert {w[at] for w in worlds} == {n for n in range(2 * base) if abs(n - value) < base}


def test_the_same_cell_has_the_same_value_in_every_table(key, tmp_path):
    write_trips(tmp_path / "trips.csv")
    how = {"no_person": True, "key_file": key, "record_id": "trip", "resolution": 8}
    want = table_of(anonymize(read_trips(tmp_path / "trips.csv", **how), "rounding", level=6))
    write_trips(tmp_path / "later.csv", corrected=True)
    assert table_of(anonymize(read_trips(tmp_path / "later.csv", **how), "rounding", level=6)) == want
    sliced = read_slices(tmp_path / "trips.csv", by="sex", **how)
    both = table_of(anonymize_slices(sliced, "rounding", total=True, level=6))
    assert {tuple(pair): n for (*pair, sex), n in both.items() if sex is None} == want


@pytest.mark.parametrize("options", [{"base": 1}, {"base": 101}, {"base": True}, {"mode": "nearest"}], ids=str)
def test_what_cannot_be_rounded_is_refused(options):
    with pytest.raises(ParameterError):
        rounding(flows_of({(0, 0): 3}, [1]), **options)


def test_a_table_that_is_too_large_is_not_controlled(monkeypatch):
    monkeypatch.setattr(sys.modules[rounding.__module__], "MOST_CONTROLLED", 1)
    with pytest.raises(ParameterError, match="mode=random"):
        rounding(flows_of({(0, 0): 3, (1, 1): 2}, [1, 2]), mode="controlled")


@pytest.mark.parametrize("options", [{}, {"mode": "controlled"}, {"mode": "controlled", "small_only": True}], ids=str)
@pytest.mark.parametrize("change", ["more", "missing", "swapped", "odd"])
def test_a_changed_count_is_found(key, tmp_path, options, change):
    write_trips(tmp_path / "trips.csv")
    flows = read_trips(tmp_path / "trips.csv", resolution=7, no_person=True, key_file=key)
    release = anonymize(flows, "rounding", **options)
    cells = release.cells
    trips, kept = cells.trips.copy(), np.ones(len(cells), bool)
    at, other = int(np.argmax(cells.trips)), int(np.argmin(cells.trips))
    if change == "swapped":
        # A table of the same form and total.
        trips[at], trips[other] = trips[at] - 5, trips[other] + 5
    else:
        trips[at] += 1 if change == "odd" else 5
        kept[at] = change != "missing"
    false = replace(cells, trips=trips).select(kept)
    form = change == "odd" and not options.get("small_only")
    with pytest.raises(GuaranteeError, match="are never published" if form else "the key and the trips give"):
        replace(release, cells=false).write(tmp_path / "out")
    notes: list[str] = []
    assert findings_of(release.write(tmp_path / "out"), flows, notes=notes) == notes == []


def test_verification_of_slices_needs_the_key(key, tmp_path):
    write_trips(tmp_path / "trips.csv")
    flows = read_slices(tmp_path / "trips.csv", by="sex", resolution=7, no_person=True, key_file=key)
    folder = anonymize_slices(flows, "rounding", mode="controlled").write(tmp_path / "out")
    against = tmp_path / "trips.csv"
    assert verify_release(folder, against=against, private=PrivateFiles(key_file=key)).findings == ()
    without = verify_release(folder, against=against)
    assert without.findings == ()
    assert "only the form" in without.not_compared[0]


@pytest.mark.parametrize("options", [{}, {"mode": "controlled"}, {"small_only": True}], ids=str)
def test_without_the_key_errors_are_not_larger_than_stated(key, tmp_path, options):
    write_trips(tmp_path / "trips.csv")
    flows = read_trips(tmp_path / "trips.csv", resolution=7, no_person=True, key_file=key)
    folder = anonymize(flows, "rounding", **options).write(tmp_path / "out")
    keyless = read_trips(tmp_path / "trips.csv", resolution=7, no_person=True)
    assert recount_flows(folder, keyless).findings == ()
    assert "largest error" in recount_flows(folder, keyless).notes[0]
    edit_table(folder, "flows.parquet", lambda rows: [{**rows[0], "trips": rows[0]["trips"] + 10}, *rows[1:]])
    assert "1 counts are not those that the trips" in recount_flows(folder, keyless).findings[0]
    edit_table(folder, "flows.parquet", lambda rows: sorted(rows, key=lambda row: row["trips"])[:-1])
    assert any("1 pairs are missing" in line for line in recount_flows(folder, keyless).findings)


@pytest.mark.parametrize("name", ["mechanism", "pairs", "zones_from_data", "region"])
def test_the_description_of_the_perturbation_carries_nothing(key, tmp_path, name):
    write_trips(tmp_path / "trips.csv")
    flows = read_trips(tmp_path / "trips.csv", resolution=7, no_person=True, key_file=key)
    folder = anonymize(flows, "rounding").write(tmp_path / "out")

    def change(report):
        part = report["guarantee"] if name == "mechanism" else report["guarantee"]["domain"]
        part[name] = False if name == "zones_from_data" else "three trips"

    edit_report(folder, change)
    assert any("in other words" in line for line in recount_flows(folder, flows).findings)


def test_the_ledger_accepts_further_tables_of_random_rounding_only(key, tmp_path):
    write_trips(tmp_path / "trips.csv")
    how = {"no_person": True, "record_id": "trip", "resolution": 7}
    flows = read_trips(tmp_path / "trips.csv", key_file=key, **how)
    create_key(tmp_path / "key2")
    anonymize(flows, "rounding").write(tmp_path / "a", ledger=tmp_path / "ledger")
    anonymize(flows, "rounding", level=5).write(tmp_path / "b", ledger=tmp_path / "ledger")
    others = {
        "another key": anonymize(read_trips(tmp_path / "trips.csv", key_file=tmp_path / "key2", **how), "rounding"),
        "another maximum": anonymize(flows, "rounding", base=3),
        "two methods": anonymize(flows, "cellkey"),
        "gives the same cells other values": anonymize(flows, "rounding", mode="controlled"),
        "exact and can be subtracted": anonymize(flows, "rounding", small_only=True),
    }
    for reason, release in others.items():
        with pytest.raises(InfeasibleError, match=reason):
            release.write(tmp_path / "d", ledger=tmp_path / "ledger")
    # Controlled: the same table again, and no other.
    for name in ("c", "again"):
        anonymize(flows, "rounding", mode="controlled").write(tmp_path / name, ledger=tmp_path / "controlled")
    for further in ({"mode": "controlled", "level": 5}, {}):
        with pytest.raises(InfeasibleError, match="may share trips"):
            anonymize(flows, "rounding", **further).write(tmp_path / "e", ledger=tmp_path / "controlled")


@pytest.mark.parametrize("options", [{"mode": "controlled"}, {"small_only": True}], ids=str)
def test_slices_and_their_sum_are_not_made_in_one_way_only(key, tmp_path, options):
    write_trips(tmp_path / "trips.csv")
    sliced = read_slices(tmp_path / "trips.csv", by="sex", resolution=7, no_person=True, key_file=key)
    with pytest.raises(ParameterError, match="tables of the same trips"):
        anonymize_slices(sliced, "rounding", total=True, **options)
    assert len(anonymize_slices(sliced, "rounding", **options)) == 2


def test_the_key_is_in_no_file_and_no_output(key, tmp_path, capfd):
    write_trips(tmp_path / "trips.csv")
    secret, out = key.read_text().strip(), tmp_path / "out"
    call = ["anonymize", f"{tmp_path}/trips.csv", "--method", "rounding", "--key-file", f"{key}", "--resolution", "7",
            "--no-person", "--out", f"{out}", "--format", "csv", "--option", "mode=controlled"]  # fmt: skip
    main(call)
    main(["verify", f"{out}", "--against", f"{tmp_path}/trips.csv", "--key-file", f"{key}"])
    said = "".join(capfd.readouterr())
    content = b"".join(path.read_bytes() for path in out.iterdir())
    assert "multiples of 5" in said
    assert secret not in said
    assert all(form not in content for form in (secret.encode(), bytes.fromhex(secret)))
    assert read_key(key).fingerprint.encode() in content
    assert not np.any(pq.read_table(out / "flows.parquet")["trips"].to_numpy() % 5)
