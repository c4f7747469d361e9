from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import trip_table
from flowveil.apps.cli import main
from flowveil.core.errors import DataError, ParameterError
from flowveil.core.slices import Every
from flowveil.publishing.anonymization import anonymize_slices
from flowveil.reading.engines import read_slices, read_trips
from samples.drafts import unchecked

START = datetime(2024, 3, 4, 7, 50)


def timed(n: int = 400, **columns) -> pa.Table:
    """Trips every seven minutes from Monday 4 March 2024, 7:50 on, by two sexes."""
    table = trip_table(n)
    when = [START + timedelta(minutes=7 * i) for i in range(n)]
    extra = {"t": when, "sex": ["F", "M"] * (n // 2), **columns}
    for name, values in extra.items():
        table = table.append_column(name, pa.array(values))
    return table


def test_slices_are_the_flows_of_their_rows():
    table = timed()
    sliced = read_slices(table, by="sex")
    assert sliced.slice_keys == (("F",), ("M",))
    assert all(s.origins is sliced.origins for s in sliced.slices)
    for key, flows in sliced.split():
        alone = read_trips(table.filter(pa.compute.equal(table["sex"], key[0])))
        assert flows.trips.sum() == alone.trips.sum() == 200
        assert len(flows) == len(alone)
    whole = read_trips(table)
    assert np.array_equal(sliced.whole.trips, whole.trips)
    assert np.array_equal(sliced.whole.people.person, whole.people.person)


@pytest.mark.parametrize(
    ("every", "first"),
    [
        ("15min", "2024-03-04T07:45"),
        ("1h", "2024-03-04T07:00"),
        ("day", "2024-03-04"),
        ("month", "2024-03"),
        ("hour", "07:00"),
        ("weekday", "1 Mon"),
        ("weekday-hour", "1 Mon 07:00"),
    ],
)
def test_steps_of_time(every, first):
    sliced = read_slices(timed(), time="t", every=every)
    assert first in {key[0] for key in sliced.slice_keys}
    assert all(len(key[0]) == Every.parse(every).label_length for key in sliced.slice_keys)
    assert sum(int(s.trips.sum()) for s in sliced.slices) == 400


def test_times_in_every_form_give_the_same_slices():
    table = timed()
    moments = table["t"].to_pylist()
    unix = [int((m - datetime(1970, 1, 1)).total_seconds()) for m in moments]
    expected = read_slices(table, time="t", every="1h").slice_keys
    for values in (
        [m.isoformat() for m in moments],
        unix,
        [float(u) for u in unix],
        [u * 1000 for u in unix],
        [str(u) for u in unix],
        [f"{m:%Y-%m-%d %H:%M:%S} UTC" for m in moments],
    ):
        column = table.schema.get_field_index("t")
        zone = {} if values[0] == moments[0].isoformat() else {"timezone": "UTC"}
        assert (
            read_slices(
                table.set_column(column, "t", pa.array(values)), time="t", every="1h", **zone
            ).slice_keys
            == expected
        )


def test_missing_times_and_attributes_are_left_out_and_counted():
    table = timed()
    when = table["t"].to_pylist()
    when[3] = None
    sex = table["sex"].to_pylist()
    sex[5] = " NA "
    table = table.set_column(table.schema.get_field_index("t"), "t", pa.array(when))
    table = table.set_column(table.schema.get_field_index("sex"), "sex", pa.array(sex))
    sliced = read_slices(table, by="sex", time="t", every="day")
    assert sliced.slice_columns == ("sex", "time")
    assert sliced.intake.left_out == {"missing time": 1, "missing attribute": 1}


def test_an_invalid_time_is_an_error_without_the_value():
    table = timed(t2=["noon"] + ["2024-03-04 08:00"] * 399)
    with pytest.raises(DataError) as caught:
        read_slices(table, time="t2", every="1h")
    assert "t2" in str(caught.value)
    assert "noon" not in str(caught.value)


@pytest.mark.parametrize("n_values", [51, 400, 5])
def test_a_column_like_an_identifier_is_refused_unless_confirmed(n_values):
    rows = 499 if n_values == 5 else 6_000 if n_values == 51 else 400
    table = timed(rows + rows % 2).slice(0, rows)
    table = table.append_column("cab_id", pa.array([f"SECRET{i % n_values}" for i in range(rows)]))
    with pytest.raises(DataError, match="one contributor each") as caught:
        read_slices(table, by="cab_id", person="")
    assert f"{n_values} values in {rows:,} rows" in str(caught.value)
    assert "SECRET" not in str(caught.value)
    sliced = read_slices(table, by="cab_id", person="", by_many=True)
    assert len(sliced.slices) == n_values
    assert sliced.intake.by_many


def test_fifty_values_and_one_for_a_hundred_rows_are_allowed_and_times_are_not_counted():
    table = timed(5_000)
    area = pa.array([f"a{i % 50}" for i in range(5_000)])
    assert len(read_slices(table.append_column("area", area), by="area").slices) == 50
    assert len(read_slices(table, by="sex", time="t", every="1h")) > 100


def test_combinations_are_counted_too_where_a_matrix_of_each_is_made():
    # Two and three values are few for 300 rows; their six pairs are one for 50 rows.
    table = timed(300).append_column("area", pa.array([f"SECRET{i % 3}" for i in range(300)]))
    reading = {"resolution": 6, "person": ""}
    few = {"method": "oigh", "k": 2, "allow_small_k": True}
    with pytest.raises(DataError, match=r"6 in 300 rows.*by_many=True") as caught:
        anonymize_slices(read_slices(table, by="sex,area", **reading), **few)
    assert "SECRET" not in str(caught.value)
    assert (
        len(anonymize_slices(read_slices(table, by="sex,area", by_many=True, **reading), **few))
        == 6
    )
    # Times make more slices, not more combinations.
    assert (
        len(anonymize_slices(read_slices(table, by="sex", time="t", every="6h", **reading), **few))
        > 3
    )


def test_commands_refuse_a_column_like_an_identifier_and_verify_reads_a_confirmed_one(
    tmp_path, capsys
):
    table = timed(600)
    table = table.append_column("area", pa.array([f"a{i % 8}" for i in range(600)]))
    path, out = tmp_path / "t.parquet", tmp_path / "out"
    pq.write_table(table, path)
    for command in ("anonymize", "study"):
        with pytest.raises(SystemExit) as stopped:
            main([command, str(path), "--by", "area", "--out", str(out)])
        assert stopped.value.code == 2
        assert "--by-many" in capsys.readouterr().err
        assert not out.exists()
    confirmed = ["--by", "area", "--by-many", "--method", "oigh", "--resolution", "6"]
    with unchecked():
        main(["anonymize", str(path), *confirmed, "--out", str(out)])
    main(["verify", str(out), "--against", str(path)])
    assert "--by-many" in (out / "report.json").read_text()


def test_persons_are_no_slices():
    with pytest.raises(ParameterError, match="persons"):
        read_slices(timed(), by="person_id")
    with pytest.raises(ParameterError, match="persons"):
        read_slices(timed(), by="sex", person="sex")


@pytest.mark.parametrize(
    "wrong",
    [
        {"by": "trips"},
        {"by": "time"},
        {"by": "sex,sex"},
        {"time": "t"},
        {"every": "1h"},
        {},
        {"time": "t", "every": "7h"},
        {"time": "t", "every": "soon"},
    ],
)
def test_slices_that_cannot_be(wrong):
    with pytest.raises(ParameterError):
        read_slices(timed(), **wrong)


def test_an_unknown_attribute_is_named_with_a_suggestion():
    with pytest.raises(DataError, match="sex"):
        read_slices(timed(), by="sexx")


def test_row_order_leaves_no_trace():
    table = timed()
    other = table.take(pa.array(np.random.default_rng(1).permutation(len(table))))
    a, b = (read_slices(t, by="sex", time="t", every="day") for t in (table, other))
    assert a.slice_keys == b.slice_keys
    for one, two in zip(a.slices, b.slices, strict=True):
        assert np.array_equal(one.trips, two.trips)
        assert np.array_equal(one.weight, two.weight)
        assert np.array_equal(one.people.person, two.people.person)


_ENDED_AMID_SLICES = """
import os, signal, sys
from flowveil.publishing import slice_plans
from flowveil.system import workers
from flowveil.apps.cli import main

slice_plans.SECONDS_ALONE = 0.0
run = workers._Child.run

def end(child, *task):
    # Asked to end while other slices wait for their process.
    os.kill(os.getpid(), signal.SIGTERM)
    return run(child, *task)

workers._Child.run = end
main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the signal is one of POSIX")
def test_a_run_ended_amid_its_slices_says_one_line_and_writes_nothing(tmp_path):
    path, out = tmp_path / "t.parquet", tmp_path / "out"
    pq.write_table(timed(), path)
    asked = [
        "anonymize",
        path,
        "--time",
        "t",
        "--every",
        "1h",
        "--separate",
        "--resolution",
        "7",
        "--set",
        "resources.workers=2",
        "--out",
        out,
    ]
    ended = subprocess.run(
        [sys.executable, "-c", _ENDED_AMID_SLICES, *asked], capture_output=True, text=True
    )
    assert ended.returncode == 130
    read, *said = filter(None, ended.stderr.splitlines())
    assert read.startswith("Read ")
    assert said[0] == "Error: Interrupted. Nothing was written."
    # Python may report a second interrupt while it shuts down, after the line.
    assert not said[1:] or said[1].startswith("Exception ignored in: <module 'threading'")
    assert list(tmp_path.iterdir()) == [path]
