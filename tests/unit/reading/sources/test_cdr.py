from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

from flowveil.apps.cli import main
from flowveil.core.errors import DataError, ParameterError
from flowveil.reading.sources import prepare
from reference.cdr import transitions

SECOND = 1_600_000_000

records = st.lists(
    st.tuples(
        st.sampled_from("uvw"),
        st.integers(0, 40).map(lambda s: SECOND + 10 * s),
        st.sampled_from("ABC"),
    ),
    min_size=1,
    max_size=40,
)


def table_of(rows) -> pa.Table:
    who, when, where = zip(*rows, strict=True)
    return pa.table({"imsi_hash": list(who), "timestamp": list(when), "cell_id": list(where)})


def seconds(column) -> list[int]:
    return (column.cast(pa.int64()).to_numpy() // 1_000_000).tolist()


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(records, st.sampled_from([0, 20, 60]), st.sampled_from([0, 20, 60]))
def test_trips_are_those_of_the_slow_reading(rows, stay, handover) -> None:
    expected = transitions(rows, stay=stay, handover=handover)
    if not expected:
        with pytest.raises(DataError, match="No trip was found"):
            prepare("cdr", table_of(rows), stay=float(stay), handover=float(handover))
        return
    made = prepare("cdr", table_of(rows), stay=float(stay), handover=float(handover)).trips
    ends = (seconds(made["start_time"]), seconds(made["end_time"]))
    got = list(
        zip(
            made["person_id"].to_pylist(),
            *ends,
            made["origin"].to_pylist(),
            made["destination"].to_pylist(),
            strict=True,
        )
    )
    assert got == expected


def test_a_phone_between_two_antennas_does_not_travel() -> None:
    rows = [
        ("u", SECOND + t, a)
        for t, a in ((0, "A"), (5, "B"), (9, "A"), (12, "B"), (20, "A"), (4000, "C"))
    ]
    made = prepare("cdr", table_of(rows), handover=60.0).trips
    assert made.select(["origin", "destination"]).to_pylist() == [
        {"origin": "A", "destination": "C"}
    ]


def test_from_records_and_antennas_to_a_verified_release(tmp_path, capsys) -> None:
    rng = np.random.default_rng(1)
    n = 3000
    antennas = [f"SN{i:04d}" for i in range(12)]
    calls, places, trips = (
        tmp_path / "calls.csv",
        tmp_path / "antennas.csv",
        tmp_path / "trips.parquet",
    )
    csv.write_csv(
        pa.table(
            {
                "user_id": rng.integers(0, 200, n),
                "timestamp": [
                    f"2013-01-07 {h:02d}:{m:02d}:00"
                    for h, m in zip(rng.integers(0, 24, n), rng.integers(0, 60, n), strict=True)
                ],
                "site_id": rng.choice([*antennas, "unknown_site"], n),
            }
        ),
        calls,
    )
    csv.write_csv(
        pa.table(
            {
                "site_id": antennas,
                "lat": 14.6 + rng.random(12) / 5,
                "lon": -17.4 + rng.random(12) / 5,
            }
        ),
        places,
    )
    made = run("prepare", "cdr", calls, "--antennas", places, "--out", trips, "--json")
    assert made == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    assert said["dropped"]["records of antennas that are not in the table"] > 0
    table = pq.read_table(trips)
    assert set(table["origin"].to_pylist()) <= set(antennas)
    assert {"start_lat", "start_lon", "end_lat", "end_lon", "person_id"} <= set(table.column_names)
    for how in (["--zones", places, "--zones-tile", "site_id"], ["--resolution", 7]):
        out = tmp_path / how[0]
        assert run("anonymize", trips, *how, "--protect", "people", "--k", 5, "--out", out) == 0, (
            capsys.readouterr().err
        )
        again = how[:2] if how[0] == "--zones" else []
        assert run("verify", out, "--against", trips, *again) == 0, capsys.readouterr().err


def run(*arguments: object) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def test_what_cannot_be_is_refused() -> None:
    rows = table_of([("u", SECOND, "A")])
    with pytest.raises(ParameterError, match="handover"):
        prepare("cdr", rows, handover=-1.0)
    with pytest.raises(DataError, match="in the table of antennas"):
        prepare("cdr", rows, antennas=pa.table({"antenna": ["B"], "lat": [1.0], "lon": [1.0]}))
    with pytest.raises(DataError, match="1 have several"):
        prepare(
            "cdr",
            rows,
            antennas=pa.table({"antenna": ["A", "A"], "lat": [1.0, 2.0], "lon": [1.0, 1.0]}),
        )


def test_trips_that_took_longer_than_the_gap_are_left_out() -> None:
    rows = [("u", SECOND + t, a) for t, a in ((0, "A"), (100, "B"), (9000, "C"))]
    made = prepare("cdr", table_of(rows), gap=600.0)
    assert made.trips["destination"].to_pylist() == ["B"]
    assert made.dropped == {"trips longer than the gap": 1}
