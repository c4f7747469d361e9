"""Means, totals and medians: the rules against a slow reference and small worlds, and releases that
publish them."""

from __future__ import annotations

import base64
import json
import re
import shutil
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

import flowveil
from conftest import trip_table
from flowveil.analysis.audit import audit
from flowveil.apps.cli import main
from flowveil.core.errors import DataError, GuaranteeError, ParameterError
from flowveil.core.values import ONE, Numbers, RecordValues, round_significant
from flowveil.verify.from_flows import recount_flows
from reference.values import belongs_to_persons, number_of_cell, reveals_difference, rounded

BOUNDS = (0.0, 20.0)
NAMES = {"mean": "mean_a", "total_of": "total_a", "median": "median_a"}


def numbers(role: str, share: float = 0.5, p: float = 10, high: float = BOUNDS[1]) -> Numbers:
    found = Numbers.from_settings(
        {role: ["a"]}, [f"a={BOUNDS[0]},{high}"], share=share, p_percent=p
    )
    assert found is not None
    return found


def table(role: str, cell, person, weight, value, **rules) -> RecordValues:
    """Records whose flows are cells."""
    order = np.argsort(cell, kind="stable")
    who = None if person is None else np.asarray(person, np.int32)[order]
    columns = np.asarray(cell, np.int32)[order], who, np.asarray(weight, np.int64)[order]
    return RecordValues(
        numbers(role, **rules), *columns, {"a": np.asarray(value, np.float64)[order]}
    )


# ---- rules ---------------------------------------------------------------------------------------

RECORD = st.tuples(
    st.integers(0, 1),
    st.integers(-1, 9),
    st.sampled_from([0, 0.5, 1, 1, 1, 2.25]),
    st.one_of(st.none(), st.integers(0, 20), st.sampled_from([0.1, 2.5, 19.99])),
)


@given(
    st.lists(RECORD, min_size=1, max_size=40),
    st.sampled_from(list(NAMES)),
    st.booleans(),
    st.sampled_from([1, 5]),
    st.sampled_from([0.3, 0.5]),
    st.sampled_from([10, 30]),
)
def test_numbers_are_those_of_the_reference(records, role, has_persons, k, share, p):
    cell, person, weight, value = zip(*records, strict=True)
    made = table(
        role,
        cell,
        person if has_persons else None,
        [round(w * ONE) for w in weight],
        [np.nan if v is None else v for v in value],
        share=share,
        p=p,
    ).of_cells(np.arange(3), 3, k=k)[NAMES[role]]
    for number, found in enumerate(made.tolist()):
        own = [
            (None if who < 0 else who, Fraction(w), None if v is None else Fraction(v))
            for c, who, w, v in records
            if c == number
        ]
        rules = {
            "low": BOUNDS[0],
            "high": BOUNDS[1],
            "k": k,
            "share": Fraction(str(share)),
            "p": Fraction(p),
        }
        expected = number_of_cell(role, own, **rules, persons=has_persons)
        assert (None if np.isnan(found) else found) == expected


@given(st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=10**4))
def test_numbers_have_three_digits(value):
    assert round_significant(np.array([float(value)]))[0] == rounded(value)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([5, 5, 5, 5, 5], "five equal contributors"),
        ([5, 5, 5, 5], None),
        ([0, 0, 0, 0, 0], None),
        ([20, 20, 20, 20, 20], None),
        ([18, 5, 5, 5, 2], None),
        ([10, 10, 0.5, 0.4, 0], None),
        ([10, 10, 0.5, 0.5, 0], "just p %"),
        ([19, 19, 19.9, 19, 15], None),
    ],
)
def test_a_number_is_refused_where_one_contributor_stands_out(values, what):
    """Too few, all at a bound, dominance, p %, and dominance counted from the upper bound."""
    n = len(values)
    found = table("mean", [0] * n, range(n), [ONE] * n, values).of_cells(np.zeros(1, int), 1, k=3)[
        "mean_a"
    ]
    assert np.isnan(found[0]) == (what is None)


def test_records_without_a_person_are_one_contributor():
    values, who = [5.0] * 8, [0, 1, 2, 3, 4, -1, -1, -1]
    for person, refused in (
        (range(8), False),
        (who, False),
        ([0, 1, 2, 3, *[-1] * 4], True),
        (None, False),
    ):
        found = table("mean", [0] * 8, person, [ONE] * 8, values).of_cells(
            np.zeros(1, int), 1, k=4
        )["mean_a"]
        assert np.isnan(found[0]) == refused
    # Together they have more than half.
    who = [0, 1, 2, 3, 4, *[-1] * 6]
    found = table("mean", [0] * 11, who, [ONE] * 11, [5.0] * 11).of_cells(np.zeros(1, int), 1, k=4)
    assert np.isnan(found["mean_a"][0])


@given(
    st.lists(
        st.tuples(st.integers(0, 6), *[st.none() | st.integers(4, 9)] * 2, st.integers(0, 3)),
        max_size=30,
    )
)
def test_a_difference_of_two_columns_keeps_the_rules(records):
    person, one, tip, weight = zip(*records, strict=True) if records else ((), (), (), ())
    both = [None if a is None or t is None else a + (t - 4) for a, t in zip(one, tip, strict=True)]
    asked = Numbers.from_settings(
        {"mean": ["a"], "total_of": ["b"]}, ["a=0,20", "b=0,20"], share=0.5, p_percent=10
    )
    values = {
        name: np.array([np.nan if v is None else v for v in own])
        for name, own in (("a", one), ("b", both))
    }
    table = RecordValues(
        asked,
        np.zeros(len(one), np.int32),
        np.array(person, np.int32),
        np.array(weight, np.int64) * ONE,
        values,
    )
    found = table.of_cells(np.zeros(1, int), 1, k=3)
    rows = [
        (p, Fraction(w), Fraction(a), Fraction(b))
        for p, w, a, b in zip(person, weight, one, both, strict=True)
        if w > 0 and a is not None and b is not None
    ]
    bounds = {"low": 0.0, "high": 20.0, "k": 3}
    first = number_of_cell("mean", [row[:3] for row in rows], **bounds)
    second = number_of_cell("total_of", [(*row[:2], row[3]) for row in rows], **bounds)
    second = None if first is not None and reveals_difference(rows) else second
    shown = [None if np.isnan(found[name][0]) else found[name][0] for name in ("mean_a", "total_b")]
    assert shown == [first, second]


@given(st.lists(st.tuples(st.integers(-1, 5), st.sampled_from([None, 0, 19, 20, 18, 7]))))
def test_values_of_persons_are_refused(records):
    who, values = zip(*records, strict=True) if records else ((), ())
    values = [np.nan if v is None else v for v in values]
    made = table("mean", [0] * len(who), who, [ONE] * len(who), values)
    exact = [(None if p < 0 else p, None if v is None else Fraction(v)) for p, v in records]
    expected = belongs_to_persons(exact, low=BOUNDS[0])
    with pytest.raises(DataError, match="belongs to the person") if expected else nullcontext():
        made.refuse_values_of_persons()


def test_a_column_of_the_person_is_not_published_and_not_verified(tmp_path, monkeypatch):
    """The totals of two cells with nearly the same people differ by the age of one of them."""
    age = np.random.default_rng(3).integers(20, 65, 12).tolist()
    rows = [(f"p{i}", "home", "work", age[i]) for i in range(12)]
    rows += [(f"p{i}", "work", "home", age[i]) for i in range(11)]
    names = ("person", "o", "d", "age")
    csv.write_csv(
        pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), tmp_path / "t.csv"
    )
    (tmp_path / "zones.csv").write_text(
        "zone,parent,lat,lon\nhome,all,48.1,2.1\nwork,all,48.2,2.2\n"
    )
    reading = {
        **{"origin_tile": "o", "destination_tile": "d", "person": "person"},
        **{"zones": tmp_path / "zones.csv"},
        **{"total_of": "age", "between": "age=0,100"},
    }
    with pytest.raises(DataError, match="'age' belongs to the person"):
        flowveil.read_trips(tmp_path / "t.csv", **reading)
    monkeypatch.setattr(RecordValues, "refuse_values_of_persons", lambda _: None)
    release = flowveil.anonymize(flowveil.read_trips(tmp_path / "t.csv", **reading), k=10)
    with pytest.raises(GuaranteeError, match="'age', which belongs to the person"):
        release.write(tmp_path / "out")


def test_two_columns_count_the_same_records():
    """Where one value is missing, the difference of two totals would be the other."""
    asked = Numbers.from_settings(
        {"total_of": ["a", "b"]}, ["a=0,180", "b=0,180"], share=0.5, p_percent=10
    )
    a = np.array([31, 42, 27, 55, 38, 46, 61, 29, 33, 44, 52, 173.0])
    b = np.array([32, 41, *a[2:11], np.nan])
    records = RecordValues(
        asked, np.zeros(12, np.int32), np.arange(12), np.full(12, ONE), {"a": a, "b": b}
    )
    found = records.of_cells(np.zeros(1, int), 1, k=10)
    assert found["total_a"].tolist() == [rounded(Fraction(int(a[:11].sum())))]
    assert np.isnan(found["total_b"][0])


def test_values_that_cancel_out_are_zero():
    found = Numbers.from_settings({"mean": ["a"]}, ["a=-1,1"], share=0.5, p_percent=10)
    value = np.array([0.1, 0.2, -0.3, 0.7, -0.8, 0.1])
    records = RecordValues(found, np.zeros(6, np.int32), None, np.full(6, ONE), {"a": value})
    assert records.of_cells(np.zeros(1, int), 1, k=5)["mean_a"].tolist() == [0.0]


# ---- small worlds --------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["mean", "median"])
@pytest.mark.parametrize(
    ("made", "top", "p", "share"),
    [
        ((1, 1, 1, 1, 1), 10, 10, 0.5),
        ((1, 1, 1, 1, 1), 10, 30, 0.5),
        ((1, 1, 1, 1, 1, 1), 6, 10, 0.4),
        ((1, 2, 1, 1, 1, 1), 6, 10, 0.5),
        ((2, 1, 1, 1, 1, 1), 6, 10, 0.5),
        ((2, 2, 1, 1, 1, 1, 1), 4, 10, 0.5),
        ((3, 1, 1, 1, 1, 1, 1), 4, 10, 0.5),
    ],
)
@pytest.mark.slow
def test_in_small_worlds_no_contributor_determines_the_value_of_another(role, made, top, p, share):
    """All worlds of some contributors with whole values.

    What the second, who knows its own, learns of the first.

    It also knows how many trips each ``made``, the bounds, the rules, and the number or that it is
    refused. What is possible then spans at least p % of the true value, counted from the nearer
    bound.
    """
    worlds = np.indices((top + 1,) * len(made)).reshape(len(made), -1)
    n = worlds.shape[1]
    cell, who = np.tile(np.arange(n), len(made)), np.repeat(np.arange(len(made)), n)
    records = table(
        role, cell, who, np.repeat(made, n) * ONE, worlds.ravel(), share=share, p=p, high=top
    )
    published = records.of_cells(np.arange(n), n, k=3)[NAMES[role]]
    _, number = np.unique(np.nan_to_num(published, nan=-1), return_inverse=True)
    known = number * (top + 1) + worlds[1]
    least, most = np.full(known.max() + 1, top), np.zeros(known.max() + 1, int)
    np.minimum.at(least, known, worlds[0])
    np.maximum.at(most, known, worlds[0])
    span = (most - least)[known]
    assert np.all(span >= p / 100 * np.minimum(worlds[0], top - worlds[0]))
    # Whole numbers times several trips are a coarse grid: few values at a bound are certain.
    assert np.mean(span == 0) <= (0 if max(made) == 1 else 0.01)
    assert np.mean(~np.isnan(published)) > 0.3


def test_a_reader_who_does_not_know_the_rules_learns_less_than_p_percent():
    """The p % rule itself: others may be at the lower bound, so that an estimate from above is off
    by p % at least."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 21, (20_000, 5))
    n = len(values)
    cell, who = np.repeat(np.arange(n), 5), np.tile(np.arange(5), n)
    shown = table("total_of", cell, who, np.full(5 * n, ONE), values.ravel()).of_cells(
        np.arange(n), n, k=3
    )["total_a"]
    for own in (values, 20 - values):
        ordered = np.sort(own[~np.isnan(shown)], axis=1)
        estimate = ordered.sum(axis=1) - ordered[:, -2]
        assert np.all(estimate >= 1.1 * ordered[:, -1] - 1e-9)


# ---- releases ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trips(tmp_path_factory) -> Path:
    """Trips with minutes and kilometres; some are missing, some outside their bounds."""
    rng = np.random.default_rng(3)
    n = 1500
    found = trip_table(n)
    minutes = [None if rng.random() < 0.05 else float(v) for v in np.round(rng.gamma(2, 10, n))]
    minutes[:5] = [-1.0, 500.0, 900.0, 200.0, 181.0]
    columns = {
        "minutes": minutes,
        "km": np.round(rng.gamma(2, 3, n), 2),
        "sex": ["f", "m"] * (n // 2),
        "n": 1 + np.arange(n) % 3,
    }
    # Late: the same trips, of which a few take longer.
    columns["late"] = [v if v is None or i % 6 else v + i % 50 for i, v in enumerate(minutes)]
    columns["t"] = [f"2024-03-05T{6 + i % 4:02d}:15:00" for i in range(n)]
    for name, values in columns.items():
        found = found.append_column(name, pa.array(values))
    place = tmp_path_factory.mktemp("values") / "trips.csv"
    csv.write_csv(found, place)
    return place


ASKED = {
    "mean": "minutes",
    "median": "km",
    "between": ["minutes=0,180", "km=0,100"],
    "resolution": 8,
}
FORMATS = "csv,geojson,gpkg,omx,wide,flowmap,kepler,arrow"
RELEASES = {
    "layers": ({}, {"k": 5}),
    "weights, halves": ({"weight": "weight"}, {"k": 5, "method": "twincut", "hierarchy": "halves"}),
    "two means": (
        {"mean": "minutes,late", "between": ["minutes=0,180", "late=0,300", "km=0,100"]},
        {"k": 5},
    ),
    "no persons": ({"no_person": True}, {"k": 6, "method": "odkanon"}),
    "counts": ({"no_person": True, "trips": "n"}, {"k": 6, "method": "paircut"}),
    "slices": ({"by": "sex"}, {"k": 4}),
    "folded": ({"time": "t", "every": "hour"}, {"k": 4}),
}


def release_of(source: Path, reading: dict, asked: dict):
    sliced = "by" in reading or "every" in reading
    flows = (flowveil.read_slices if sliced else flowveil.read_trips)(
        source, **{**ASKED, **reading}
    )
    if "by" in reading:
        return flowveil.anonymize_slices(flows, **asked)
    return flowveil.anonymize(flows.folded() if sliced else flows, **asked)


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.slow
def test_releases_publish_numbers_that_an_independent_reader_recounts(name, trips, tmp_path):
    release = release_of(trips, *RELEASES[name])
    formats = "csv,arrow" if name == "folded" else FORMATS
    release.write(tmp_path / "out", formats=formats)
    flows = pq.read_table(tmp_path / "out" / "flows.parquet")
    for column in ("mean_minutes", "median_km"):
        assert flows.schema.field(column).type == pa.float64()
        assert flows[column].null_count < len(flows)
    assert 15 < pc.mean(flows["mean_minutes"]).as_py() < 25
    verified = flowveil.verify_release(tmp_path / "out", against=trips)
    assert verified.holds
    assert verified.compared["read_by"] == "recount"
    if name == "two means":
        assert flows["mean_late"].null_count > flows["mean_minutes"].null_count


def test_exports_and_page_have_the_numbers(trips, tmp_path):
    folder = release_of(trips, *RELEASES["weights, halves"]).write(
        tmp_path / "out", formats=FORMATS
    )
    flows = pq.read_table(folder / "flows.parquet")
    null = flows["mean_minutes"].is_null().to_pylist().index(True)
    zones = [flows[f"{end}_zone"][null].as_py() for end in ("origin", "destination")]
    assert (
        csv.read_csv(folder / "flows.csv")["mean_minutes"].to_pylist()
        == flows["mean_minutes"].to_pylist()
    )
    with h5py.File(folder / "flows.omx") as file:
        assert {"mean_minutes", "median_km"} <= set(file["data"])
        codes = [code.decode() for code in file["lookup/zone"]]
        # 0 minutes may be a mean.
        assert np.isnan(file["data/mean_minutes"][codes.index(zones[0]), codes.index(zones[1])])
        assert (
            np.count_nonzero(~np.isnan(file["data/mean_minutes"][:]))
            == pc.count(flows["mean_minutes"]).as_py()
        )
        assert np.nansum(file["data/mean_minutes"][:]) == pytest.approx(
            pc.sum(flows["mean_minutes"]).as_py()
        )
        assert not np.isnan(file["data/trips"][:]).any()
    wide = pq.read_table(folder / "flows_wide.parquet")
    assert wide["mean_minutes"].null_count == flows["mean_minutes"].null_count
    assert "median_km" in (folder / "kepler.json").read_text()
    data = re.search(r'id="map-data">(.*?)</script>', (folder / "report.html").read_text(), re.S)
    shown = json.loads(data[1])["numbers"]["median_km"]
    held = np.frombuffer(base64.b64decode(shown["bytes"]), f"<{shown['type']}")
    assert np.array_equal(held, flows["median_km"].to_numpy(), equal_nan=True)


def test_names_in_the_table_may_have_outer_blanks(trips, tmp_path):
    rows = csv.read_csv(trips)
    named = [f" {name} " if name in ("minutes", "km") else name for name in rows.column_names]
    csv.write_csv(rows.rename_columns(named), tmp_path / "blanks.csv")
    release = release_of(tmp_path / "blanks.csv", *RELEASES["layers"])
    assert release.flows.equals(release_of(trips, *RELEASES["layers"]).flows)
    release.write(tmp_path / "out")
    assert flowveil.verify_release(tmp_path / "out", against=tmp_path / "blanks.csv").holds


def test_numbers_do_not_depend_on_the_order_of_rows(trips, tmp_path):
    rows = csv.read_csv(trips)
    csv.write_csv(
        rows.take(pa.array(np.random.default_rng(1).permutation(len(rows)))), tmp_path / "other.csv"
    )
    one, other = (
        release_of(path, *RELEASES["layers"]).flows for path in (trips, tmp_path / "other.csv")
    )
    assert one.equals(other)


def changed(source: Path, out: Path, column: str, change) -> Path:
    """A copy of a release with other numbers in a column."""
    shutil.copytree(source, out)
    flows = pq.read_table(out / "flows.parquet")
    values = pa.array(change(flows[column].to_pylist()), pa.float64())
    pq.write_table(
        flows.set_column(flows.column_names.index(column), column, values), out / "flows.parquet"
    )
    return out


def test_the_recount_finds_changed_invented_and_missing_numbers(trips, tmp_path):
    reading = {"total_of": "km", "between": "km=0,100", "resolution": 8}
    flows = flowveil.read_trips(trips, **reading)
    flowveil.anonymize(flows, k=5, method="oigh", max_suppressed=0.4).write(tmp_path / "out")
    assert not recount_flows(tmp_path / "out", flows).findings
    old = pq.read_table(tmp_path / "out" / "flows.parquet")["total_km"].to_pylist()
    assert None in old
    assert old[0]
    wrong = {
        "another total_km": [old[0] * 1.02, *old[1:]],
        "other digits": [old[0] + 0.001, *old[1:]],
        "lack a total_km": [None, *old[1:]],
        "has NaN": [float("nan") if value is None else value for value in old],
        "negative zero": [-0.0, *old[1:]],
        "refuse": [25.0 if value is None else value for value in old],
    }
    for finding, values in wrong.items():
        place = changed(
            tmp_path / "out", tmp_path / finding, "total_km", lambda _, values=values: values
        )
        found = recount_flows(place, flows).findings
        assert any(finding.replace("other digits", "another total_km") in line for line in found)


def test_a_method_that_publishes_a_refused_number_is_stopped(trips, tmp_path, monkeypatch):
    release = release_of(trips, *RELEASES["layers"])
    assert release.flows["mean_minutes"].null_count
    monkeypatch.setattr(RecordValues, "_allowed", lambda *given: np.ones(given[-2], dtype=bool))
    with pytest.raises(GuaranteeError):
        release_of(trips, *RELEASES["layers"]).write(tmp_path / "out")


def test_missing_values_are_counted_for_the_operator_alone(trips):
    flows = flowveil.read_trips(trips, **ASKED)
    assert any(
        "outside their bounds" in note and "5 outside" in note for note in flows.intake.notes
    )
    assert flows.intake.dropped == {}
    with pytest.raises(DataError, match=r"column 'minutes' are outside between minutes=0,10.*Hint"):
        flowveil.read_trips(trips, **{**ASKED, "between": ["minutes=0,10", "km=0,100"]})


REFUSED = {
    "a second number": ("--median minutes", "one number"),
    "no bounds": ("--mean km", "no bounds.*--between km"),
    "bounds of nothing": ("--between km=0,9", "--between gives the bounds"),
    "bounds twice": ("--between minutes=0,9", "--between gives the bounds"),
    "bounds that overflow": ("--mean km --between km=0,1e300", "LOW below HIGH"),
    "a sum that cells have": (
        "--weight weight --mean weight --between weight=0,200",
        "how much a trip is",
    ),
    "a place": ("--mean start_lat --between start_lat=40,60", "says where"),
    "bounds in reverse": ("--mean km --between km=9,0", "LOW below HIGH"),
    "accepted differences": (
        "--ledger ledger --accept-differencing",
        "cannot be combined with --accept-differencing",
    ),
    "a revision": ("--revision earlier", "cannot be combined with --revision"),
    "noise": ("--method laplace --option epsilon=1", "method 'laplace'"),
    "boxes": ("--method mondrian", "method 'mondrian'"),
    "a cluster": ("--engine spark", "--engine spark"),
    "a weak rule": (
        "--set numbers.value_share=0.9",
        "--set numbers.value_share must be at most 0.5",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_reveal_one_value_is_refused(name, trips, tmp_path, capsys):
    words, message = REFUSED[name]
    asked = [
        "--mean",
        "minutes",
        "--between",
        "minutes=0,180",
        *words.split(),
        "--out",
        str(tmp_path / "out"),
    ]
    with pytest.raises(SystemExit) as ended:
        main(["anonymize", str(trips), *([] if name == "noise" else ["--k", "5"]), *asked])
    assert ended.value.code == 2
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
    assert not (tmp_path / "out").exists()


def test_python_refuses_the_same(trips, tmp_path):
    flows = flowveil.read_trips(trips, **ASKED)
    for call in (
        lambda: flowveil.anonymize(flows, "mondrian"),
        lambda: flowveil.anonymize(flows, k=5).write(
            tmp_path / "out", ledger=tmp_path / "l", accept_differencing=True
        ),
        lambda: flowveil.read_trips(trips, engine="spark", **ASKED),
        lambda: flowveil.publish_series(trips, tmp_path / "series", time="t", every="day", **ASKED),
    ):
        with pytest.raises(ParameterError, match=r"cannot be"):
            call()


def test_an_audit_says_that_numbers_of_two_releases_are_not_compared(trips, tmp_path):
    release_of(trips, {}, {"k": 5, "method": "twincut"}).write(tmp_path / "one")
    release_of(trips, {}, {"k": 6, "method": "twincut"}).write(tmp_path / "two")
    assert any(
        "medians were not subtracted" in line
        for line in audit([tmp_path / "one", tmp_path / "two"]).not_compared
    )
    assert audit([tmp_path / "one"]).not_compared == []


def test_coarser_zones_leave_numbers_out_and_say_so(trips, tmp_path, capsys):
    asked = [
        "--mean",
        "minutes",
        "--between",
        "minutes=0,180",
        "--resolution",
        "8",
        "--out",
        str(tmp_path / "out"),
    ]
    main(["anonymize", str(trips), "--k", "5", "--method", "twincut", *asked])
    capsys.readouterr()
    main(["derive", str(tmp_path / "out"), "--level", "6", "--out", str(tmp_path / "coarse")])
    assert "Left out: mean_minutes" in capsys.readouterr().err
    report = json.loads((tmp_path / "coarse" / "report.json").read_text())
    assert "mean_minutes" not in pq.read_table(tmp_path / "coarse" / "flows.parquet").column_names
    assert not {"between", "value_share", "p_percent"} & set(report["parameters"])
    assert not any("mean_minutes are" in line for line in report["published"]["sentences"])
    main(["derive", str(tmp_path / "out"), "--format", "csv", "--out", str(tmp_path / "same")])
    assert "mean_minutes" in (tmp_path / "same" / "flows.csv").read_text()
