"""Slices of every method that adds noise: which trips are counted, what they promise together, what
is published."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import h3
import h3.api.basic_int
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

from conftest import trip_table
from flowveil import (
    InfeasibleError,
    ParameterError,
    anonymize_slices,
    audit_releases,
    read_slices,
    verify_release,
)
from flowveil.analysis.audit import audit_files, audit_lines
from flowveil.analysis.pages.before_after import largest_profiles
from flowveil.core.flows import Flows
from flowveil.core.slices import Every, declared_values
from flowveil.methods import METHODS, epsilon
from flowveil.methods.noise_by_slice import _counted
from flowveil.zoning.h3 import h3_hierarchy
from samples.drafts import unchecked
from unit.apps.cli.test_cli import run

METHODS_OF_NOISE = sorted(name for name, method in METHODS.items() if method.counts == "noisy")
methods = pytest.mark.parametrize("method", METHODS_OF_NOISE)
REGION = ",".join(sorted(h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, 5), 1)))
BOUND = 3
#: A place of seven tiles.
PLACE = h3.api.basic_int.latlng_to_cell(48.85, 2.35, 7)
TREE = h3_hierarchy(np.array(sorted(h3.api.basic_int.cell_to_children(PLACE, 8)), dtype=np.uint64))
OPTIONS = {"epsilon": 3.0, "bound": BOUND, "region": REGION, "level": 6}


def options_of(method: str, **changes: float) -> dict:
    """The options, under the names that the method has for them."""
    given = {**OPTIONS, **changes}
    if method == "posterior":
        given["districts"] = given.pop("level")
    return given


def trips_of(seed: int = 0, n: int = 600) -> pa.Table:
    """Persons travel in several slices, at all hours; one value is that of few."""
    rng = np.random.default_rng(seed)
    table = trip_table(n, seed=seed)
    mode = pa.array(rng.choice(["bus", "car", "odd"], n, p=[0.5, 0.45, 0.05]))
    at = pa.array(
        [
            f"2024-01-0{1 + i % 2}T{h:02d}:30:00"
            for i, h in enumerate(rng.integers(0, 24, n).tolist())
        ]
    )
    return table.append_column("mode", mode).append_column("at", at)


def slices_of(table: pa.Table):
    return read_slices(table, resolution=7, by=["mode"], by_many=True)


def naive_counts(table: pa.Table, values: list[str]) -> dict[str, Counter]:
    """The pairs of zones of each slice, trip by trip.

    At most the bound of each person over all slices.
    """
    made = defaultdict(list)
    for row in table.to_pylist():
        ends = [
            h3.latlng_to_cell(row[f"{end}_lat"], row[f"{end}_lon"], 7) for end in ("start", "end")
        ]
        if row["mode"] in values and all(h3.cell_to_parent(tile, 5) in REGION for tile in ends):
            made[row["person_id"]].append((row["mode"], *ends))
    counts = {value: Counter() for value in values}
    for trips in made.values():
        n = len(trips)
        for i, (value, *ends) in enumerate(sorted(trips), start=1):
            if n <= BOUND or (i * BOUND + n // 2) // n > ((i - 1) * BOUND + n // 2) // n:
                counts[value][tuple(h3.cell_to_parent(tile, 6) for tile in ends)] += 1
    return counts


@methods
def test_without_noise_it_is_what_is_counted_over_all_slices(method, monkeypatch):
    monkeypatch.setattr(epsilon, "LARGEST_EPSILON", np.inf)
    monkeypatch.setattr(epsilon, "WEAK_EPSILON", np.inf)
    table, values = trips_of(), ["bus", "car", "tram"]
    # What no draw changes; in steps, none of which gets less than a 64th.
    options = options_of(method, epsilon=60.0 * BOUND * (1 if method == "laplace" else 64))
    release = anonymize_slices(slices_of(table), method, values={"mode": values}, **options)
    published = defaultdict(Counter)
    for row in release.flows.to_pylist():
        published[row["mode"]][row["origin_zone"], row["destination_zone"]] = row["trips"]
    want = naive_counts(table, values)
    assert not want["tram"]
    if method == "privtree":
        assert {v: published[v].total() for v in values} == {v: want[v].total() for v in values}
    else:
        assert published == {value: counts for value, counts in want.items() if counts}


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 6), st.integers(0, 3)),
        min_size=1,
    ),
    st.integers(1, 6),
)
@settings(deadline=None)
def test_one_person_changes_all_slices_together_by_the_bound_at_most(rows, bound):
    # Each row is a trip: slice, origin, destination, person.
    first = rows[0][3]
    counts = []
    for trips in (rows, [row for row in rows if row[3] != first]):
        keys = sorted({row[0] for row in trips})
        if not keys:
            counts.append(Counter())
            continue
        own = [
            np.array([row[1:] for row in trips if row[0] == key], dtype=np.int32).T for key in keys
        ]
        parts = [
            Flows.from_pairs(o, d, origins=TREE, destinations=TREE, person=who) for o, d, who in own
        ]
        flows = Flows.from_slices(("mode",), tuple((str(key),) for key in keys), tuple(parts))
        options = {"region": f"{PLACE:x}", "level": 8, "bound": bound}
        counted = _counted(METHODS["topdown"], flows, [("0",), ("1",), ("2",)], options)
        names = ("origin", "destination", "person", "trips")
        counts.append(
            Counter(
                {
                    (key, o, d, who): n
                    for key, part in counted.items()
                    for o, d, who, n in zip(*(part[name] for name in names), strict=True)
                }
            )
        )
    of_first = sum(n for (*_, who), n in counts[0].items() if who == first)
    assert of_first == min(bound, sum(row[3] == first for row in rows))
    assert {cell: n for cell, n in counts[0].items() if cell[3] != first} == counts[1]


@methods
def test_what_is_not_declared_leaves_no_trace_and_what_is_written_holds(method, tmp_path):
    table, values = trips_of(), {"mode": ["bus", "car", "tram"]}
    declared = table.filter(pa.compute.not_equal(table["mode"], "odd"))
    seeded = [
        anonymize_slices(
            slices_of(t), method, values=values, unsafe_seed_for_tests=3, **options_of(method)
        )
        for t in (table, declared)
    ]
    assert seeded[0].flows == seeded[1].flows
    with pytest.raises(ParameterError, match="seed"):
        seeded[0].write(tmp_path / "out")
    release = anonymize_slices(slices_of(table), method, values=values, **options_of(method))
    with unchecked():
        release.write(tmp_path / "out", formats="csv")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["guarantee"]["epsilon"] == 3.0
    assert any(
        line.startswith("Slices: ε and δ are those of all matrices together")
        for line in report["published"]["sentences"]
    )
    assert verify_release(tmp_path / "out", against=table).findings == ()
    # Nothing certain can be computed from noise, and the audit says so, with the trips as well.
    found = audit_releases([tmp_path / "out"], against=table)
    (line,) = audit_lines(found)
    assert line.startswith("Not attacked: its counts are noisy")
    assert "not attacked" in audit_files(found)["audit.html"]


def test_what_slices_of_noise_cannot_be():
    flows = slices_of(trips_of())
    for said, asked in {
        "must be listed": {},
        "not a slice column": {"values": {"sex": ["F"]}},
        "has no smallest cell": {"values": {"mode": ["bus"]}, "k": 5},
        "needs a bound": {"values": {"mode": ["bus"]}, "bound": None},
    }.items():
        with pytest.raises(ParameterError, match=said):
            anonymize_slices(flows, "topdown", **{**OPTIONS, **asked})
    with pytest.raises(ParameterError, match="exact counts"):
        anonymize_slices(flows, "twincut", values={"mode": ["bus"]})
    options = {**OPTIONS, "epsilon": 0.001, "delta": 1e-9}
    with pytest.raises(InfeasibleError, match="No pair is left"):
        anonymize_slices(flows, "laplace", values={"mode": ["bus"]}, **options)
    with pytest.raises(ParameterError, match="Noisy counts have no profile"):
        largest_profiles(anonymize_slices(flows, "topdown", values={"mode": ["bus"]}, **OPTIONS))


def test_times_of_a_calendar_are_declared():
    assert len(declared_values(["time"], Every.parse("weekday-hour"), {})["time"]) == 168
    assert declared_values(["time"], Every.parse("weekday"), {})["time"][0] == "1 Mon"
    assert declared_values(["time"], Every.parse("month"), {"time": "2024-01-31/2024-03-01"})[
        "time"
    ] == [
        "2024-01",
        "2024-02",
        "2024-03",
    ]
    steps = declared_values(["time"], Every.parse("6h"), {"time": "2024-02-28/2024-02-29"})["time"]
    assert (steps[0], steps[-1], len(steps)) == ("2024-02-28T00:00", "2024-02-29T18:00", 8)
    with pytest.raises(ParameterError, match=r"FIRST/LAST is enough \(values\['time'\]\)"):
        declared_values(["time"], Every.parse("day"), {})


def test_the_command_line_adds_up_slices_in_the_ledger(tmp_path):
    csv.write_csv(trips_of(n=2000), tmp_path / "trips.csv")
    asked = ["anonymize", tmp_path / "trips.csv", "--method", "topdown", "--resolution", 7]
    asked += [
        "--time",
        "at",
        "--every",
        "12h",
        "--period",
        "2024-01-01/2024-01-02",
    ]
    asked += [word for name, value in OPTIONS.items() for word in ("--option", f"{name}={value}")]
    asked += ["--ledger", tmp_path / "ledger", "--set", "output.epsilon_total=5"]
    assert run(*asked, "--out", tmp_path / "a") == 0
    assert run("verify", tmp_path / "a", "--against", tmp_path / "trips.csv") == 0
    assert run(*asked, "--out", tmp_path / "b") == 3
    assert not (tmp_path / "b").exists()
