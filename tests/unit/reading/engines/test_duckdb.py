from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import flowveil.reading.engines.duckdb as engine
from flowveil.core.errors import DataError, ParameterError
from flowveil.core.flows import Flows
from flowveil.reading import Reading
from flowveil.reading.engines import read_trips

CELL = 0x8A1FB46622DFFFF
OTHER = 0x8A1FB46622D7FFF
HEX = format(CELL, "x")


def tiles(origin: object, destination: object, **columns: object) -> pa.Table:
    return pa.table({"start_h3": origin, "end_h3": destination, **columns})


def points(**changed: list[object]) -> pa.Table:
    n = len(next(iter(changed.values()))) if changed else 1
    columns: dict[str, list[object]] = {
        "o_lat": [48.85] * n,
        "o_lon": [2.35] * n,
        "d_lat": [48.86] * n,
        "d_lon": [2.36] * n,
    }
    return pa.table({**columns, **changed})


def message_of(source: object, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        read_trips(source, **options)  # type: ignore[arg-type]
    return str(caught.value)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# ---- tiles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([HEX, HEX.upper()]),
        pa.array([f"0{HEX}", f" 0x{HEX} "]),
        pa.array([str(CELL), HEX]),
        pa.array([CELL, CELL], pa.int64()),
        pa.array([CELL, CELL], pa.uint64()),
        pa.array([HEX, HEX]).dictionary_encode(),
    ],
    ids=["text", "zero or 0x before", "decimal text", "signed", "unsigned", "category"],
)
def test_cells_in_every_form(cells: pa.Array) -> None:
    flows = read_trips(tiles(cells, cells))
    assert flows.trips.tolist() == [2]
    assert flows.origins.code.tolist() == [CELL]


def test_finer_tiles_are_lifted_and_coarser_ones_keep_their_resolution() -> None:
    table = tiles([CELL, OTHER], [CELL, CELL])
    lifted = read_trips(table, resolution=8)
    assert lifted.origins.code.tolist() == [h3_int.cell_to_parent(CELL, 8)]
    assert lifted.trips.tolist() == [2]
    assert lifted.intake.resolution == 8
    kept = read_trips(table, resolution=12)
    assert kept.trips.tolist() == [1, 1]
    assert kept.intake.resolution == 10


def test_tiles_of_several_resolutions_are_refused() -> None:
    message = message_of(tiles([CELL, h3_int.cell_to_parent(CELL, 8)], [CELL, CELL]), resolution=5)
    assert "several H3 resolutions" in message
    assert "8: 1 end" in message


def test_unknown_tiles_are_refused_or_skipped() -> None:
    bad = ["rest_of_usa", "8a1fb46622dfffe", "-1", "12", "ffffffffffffffffffff"]
    table = tiles([HEX, *bad, HEX], [HEX] * 7)
    message = message_of(table)
    assert "not an H3 cell: 5 rows (rows 2, 3, 4, 5, 6)" in message
    assert "skip_unknown" in message
    assert not any(text in message for text in bad)
    flows = read_trips(table, skip_unknown=True, max_dropped=0.8)
    assert flows.intake.left_out == {"unknown tile": 5}
    assert flows.trips.tolist() == [2]
    assert "71.4%" in message_of(table, skip_unknown=True)


def test_negative_integers_are_unknown_tiles_and_zero_is_a_missing_one() -> None:
    assert "not an H3 cell: 1 row" in message_of(tiles([CELL, -5], [CELL, CELL]))
    flows = read_trips(tiles([CELL, 0], [CELL, CELL]), max_dropped=0.5)
    assert flows.intake.left_out == {"missing end": 1}


def test_floating_point_tiles_are_refused() -> None:
    assert "cannot hold an H3 cell exactly" in message_of(tiles([float(CELL)], [CELL]))


def test_the_two_ends_have_trees_of_their_own() -> None:
    flows = read_trips(tiles([CELL, CELL], [OTHER, CELL]))
    assert flows.origins.n_tiles == 1
    assert flows.destinations.n_tiles == 2


# ---- gaps and errors -----------------------------------------------------------------------------


def test_a_share_of_gaps_is_allowed_and_no_more() -> None:
    table = points(o_lat=[48.85] * 95 + [None] * 3 + [95.0, 0.0], o_lon=[2.35] * 99 + [0.0])
    flows = read_trips(table)
    assert flows.intake.left_out == {"missing end": 3, "off the earth": 1, "at 0,0": 1}
    assert flows.intake.rows == 100
    message = message_of(table, max_dropped=0.049)
    assert "5 of 100 rows (5.0%)" in message
    assert "3 missing end, 1 off the earth, 1 at 0,0" in message


def test_rows_without_trips_do_not_count_as_lost() -> None:
    flows = read_trips(
        tiles([CELL] * 10, [CELL] * 10, trips=[0] * 9 + [4]), trips="trips", max_dropped=0
    )
    assert flows.trips.tolist() == [4]
    assert flows.intake.left_out == {"no trips": 9}
    table = tiles([CELL] * 9 + [None], [CELL] * 10, trips=[0] * 8 + [4, 4])
    assert "1 of 2 rows (50.0%) with 50.0% of the trips" in message_of(
        table, trips="trips", max_dropped=0.4
    )


def test_swapped_axes_are_guessed() -> None:
    message = message_of(
        points(o_lat=[139.7] * 3, o_lon=[35.6] * 3, d_lat=[139.6] * 3, d_lon=[35.5] * 3)
    )
    assert "are latitude and longitude swapped?" in message
    assert "swapped" not in message_of(points(o_lat=[float("inf")] * 3))


def test_all_problems_are_reported_at_once_with_five_places() -> None:
    n = 300_000
    late = [str(48.85)] * n
    weights = ["1"] * n
    for row in (7, 131_080, 200_000, 262_200, 299_998, 299_999):
        late[row] = "SECRET"
    weights[3], weights[5] = "-2", "inf"
    message = message_of(points(o_lat=late, weight=weights), weight="weight")
    assert "column 'o_lat': 6 rows (rows 8, 131081, 200001, 262201, 299999, ...)" in message
    assert "a negative weight: 1 row (row 4)" in message
    assert "infinite weight" in message
    assert "SECRET" not in message
    assert "comma" not in message


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_row_numbers_are_those_of_the_file(ending: str, tmp_path: Path) -> None:
    # More than one batch, and of Parquet more than one group of rows.
    n = 150_000
    text = ["48.85"] * n
    for row in (9, 100_000, 149_000):
        text[row] = "SECRET"
    table = points(o_lat=text, weight=["1"] * n, uid=["a"] * n)
    path = tmp_path / f"t.{ending}"
    if ending == "csv":
        pa_csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=20_000)
    assert "3 rows (rows 10, 100001, 149001)" in message_of(path)


def test_decimal_commas_are_explained(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "o_lat;o_lon;d_lat;d_lon\n48,85;2,35;48,86;2,36\n")
    assert "decimal comma" in message_of(path)


@pytest.mark.parametrize(
    ("trips", "message"),
    [(-1, "negative"), (float("inf"), "infinite"), (1e17, "impossibly large")],
)
def test_counts_that_are_no_counts_are_refused(trips: float, message: str) -> None:
    assert message in message_of(tiles([CELL] * 2, [CELL] * 2, trips=[trips, 1.0]), trips="trips")


def test_numbers_with_underscores_are_no_numbers() -> None:
    """DuckDB reads 1_000 as a thousand, as programs are written."""
    assert "not a number in column 'trips'" in message_of(
        tiles([CELL] * 2, [CELL] * 2, trips=["1_000", "1"]), trips="trips"
    )


@pytest.mark.parametrize(
    ("weight", "message"), [(2.0**32, "total weight above"), (4e-7, "too fine")]
)
def test_weights_that_millionths_cannot_count_are_refused(weight: float, message: str) -> None:
    assert message in message_of(
        tiles([CELL] * 3, [CELL] * 3, weight=[weight] * 3), weight="weight"
    )


def test_more_trips_than_can_be_counted_are_refused() -> None:
    assert "trips in all" in message_of(
        tiles([CELL] * 3, [CELL] * 3, trips=[2**52] * 3), trips="trips"
    )


def test_missing_counts_and_weights_are_left_out() -> None:
    table = tiles([CELL] * 3, [CELL] * 3, trips=[2, None, 2], weight=[1.0, 1.0, float("nan")])
    flows = read_trips(table, trips="trips", weight="weight", max_dropped=0.7)
    assert flows.intake.left_out == {"missing count": 1, "missing weight": 1}
    assert flows.trips.tolist() == [2]


def test_a_column_of_dates_is_no_latitude() -> None:
    dates = pa.array([0, 1], pa.timestamp("s"))
    assert "holds TIMESTAMP" in message_of(points(o_lat=dates))  # type: ignore[arg-type]


def test_nothing_left() -> None:
    assert "No trip is left" in message_of(points(o_lat=[None, None]), max_dropped=1)
    assert "it has no rows" in message_of(points().slice(1))


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("empty.csv", b"", DataError, "is empty"),
        ("header.csv", b"o_lat,o_lon,d_lat,d_lon\n", DataError, "has no rows"),
        ("utf16.csv", "o_lat,o_lon".encode("utf-16"), DataError, "UTF-16"),
        ("binary.csv", b"\0\1\2", DataError, "not a text file"),
        ("cut.csv.gz", b"\x1f\x8b\x08\0", DataError, "damaged"),
        ("fake.parquet", b"SECRET", DataError, "not Parquet"),
        ("empty.parquet", b"", DataError, "not Parquet"),
        ("ragged.csv", b"o_lat,o_lon,d_lat,d_lon\n1,1,1,1\n1,SECRET,1\n", DataError, "Line 3"),
        ("trips.xlsx", b"x", DataError, "damaged"),
    ],
)
def test_files_that_cannot_be_read(
    name: str, content: bytes, error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error) as caught:
        read_trips(tmp_path / name)
    assert message in str(caught.value)
    assert name in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_text("{}")
    for source, message in (
        (tmp_path / "nothing.csv", "no file"),
        (tmp_path, "no Parquet file and no text file"),
        (str(tmp_path / "*.parquet"), "matches no file"),
        (str(tmp_path / "*.pkl"), "is not known"),
        ("s3://bucket/trips.parquet", "local files"),
        ({"o_lat": [1]}, "dict"),
    ):
        with pytest.raises(ParameterError, match=message):
            read_trips(source)


def test_only_the_columns_that_are_used_must_be_sound(tmp_path: Path) -> None:
    content = "o_lat,o_lon,d_lat,d_lon,note\n48.85,2.35,48.86,2.36,été\n".encode("latin-1")
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert read_trips(path).trips.tolist() == [1]
    assert "UTF-8" in message_of(path, person="note")


def test_quoted_fields_and_blank_lines(tmp_path: Path) -> None:
    text = '"o_lat","o_lon","d_lat","d_lon","uid"\n48.85,2.35,48.86,2.36,"a,\n""b"""\n\n48.85,2.35,48.86,2.36,c\n'
    flows = read_trips(write(tmp_path / "t.csv", text))
    assert flows.trips.tolist() == [2]
    assert flows.people is not None
    assert flows.people.count(1).tolist() == [2]


# ---- people --------------------------------------------------------------------------------------


def test_missing_persons_add_no_person_and_blanks_make_no_new_one() -> None:
    flows = read_trips(points(uid=["b", " b", "a", None, "", "NA", "None"]))
    assert flows.trips.tolist() == [7]
    assert flows.people is not None
    assert flows.people.person.tolist() == [0, 1]


def test_people_of_flows_without_any() -> None:
    flows = read_trips(tiles([CELL, OTHER], [CELL, OTHER], uid=[None, 5]))
    assert flows.people is not None
    assert flows.people.count(2).tolist() == [1, 0]  # OTHER comes before CELL
    unknown = read_trips(tiles([CELL], [CELL], uid=pa.array([float("nan")])))
    assert unknown.people is not None
    assert unknown.people.count(1).tolist() == [0]


# ---- arguments, progress, threads, Ctrl-C --------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"resolution": 16},
        {"resolution": -1},
        {"resolution": 9.5},
        {"resolution": True},
        {"max_dropped": 1.5},
        {"max_dropped": float("nan")},
        {"engine": "duckbd"},
    ],
)
def test_arguments_out_of_range(options: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        read_trips(points(), **options)  # type: ignore[arg-type]


def test_an_unknown_engine_is_told_which_there_are() -> None:
    with pytest.raises(ParameterError, match=r"duckdb.*Did you mean 'duckdb'"):
        read_trips(points(), engine="duckbd")


def many_rows(n: int) -> pa.Table:
    rng = np.random.default_rng(5)
    cells = np.array(sorted(h3_int.grid_disk(CELL, 12)), dtype=np.uint64)
    return tiles(
        cells[rng.integers(len(cells), size=n)],
        cells[rng.integers(len(cells), size=n)],
        uid=[f"person {p}" for p in rng.integers(0, 5_000, n).tolist()],
        weight=rng.random(n),
    )


def contents(flows: Flows) -> tuple[bytes, ...]:
    assert flows.weight is not None
    assert flows.people is not None
    arrays = (
        flows.origin,
        flows.destination,
        flows.trips,
        flows.weight,
        flows.people.cell,
        flows.people.person,
    )
    return tuple(a.tobytes() for a in arrays)


def test_threads_and_rows_that_arrive_leave_no_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = many_rows(150_000)
    expected = contents(
        engine.read(table, Reading.from_arguments(weight="weight"), threads=4).whole
    )
    assert (
        contents(engine.read(table, Reading.from_arguments(weight="weight"), threads=1).whole)
        == expected
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert contents(read_trips(table, weight="weight")) == expected
    assert list(tmp_path.iterdir()) == []


def test_spellings_of_one_person_are_one_in_every_flow() -> None:
    """Case, blanks and placeholders are recognised after grouping."""
    rng, n = np.random.default_rng(6), 140_000
    cells = np.array(sorted(h3_int.grid_disk(CELL, 3)), dtype=np.uint64)
    person, trips = rng.integers(0, 40, n), rng.integers(1, 5, n)
    spelled = np.array(
        [[f"p{i}", f"P{i}", f" p{i} "] for i in range(39)] + [["unknown", "UNKNOWN", "?"]],
        dtype=object,
    )
    uid = spelled[person, rng.integers(0, 3, n)]
    uid[::1000] = None
    ends = cells[rng.integers(len(cells), size=n)], cells[rng.integers(len(cells), size=n)]
    flows = read_trips(tiles(*ends, uid=uid.tolist(), n=trips), trips="n")
    known = (person < 39) & (np.arange(n) % 1000 > 0)
    origin, destination = (np.searchsorted(cells, end)[known] for end in ends)
    truth = np.zeros((len(cells), len(cells), 39), dtype=np.int64)
    np.add.at(truth, (origin, destination, person[known]), trips[known])
    assert flows.people is not None
    rank = np.argsort(np.argsort([f"p{i}" for i in range(39)]))
    at_o, at_d = (
        np.searchsorted(cells, tree.code[tree.leaf_node])[end][flows.people.cell]
        for tree, end in ((flows.origins, flows.origin), (flows.destinations, flows.destination))
    )
    found = np.zeros_like(truth)
    np.add.at(found, (at_o, at_d, np.argsort(rank)[flows.people.person]), flows.people.trips)
    assert np.array_equal(found, truth)
    assert len(flows.people.person) == np.count_nonzero(truth)
    assert flows.trips.sum() == trips.sum()
    placeholders = {
        word: int(np.count_nonzero(uid == word)) for word in ("?", "unknown", "UNKNOWN")
    }
    assert flows.intake.nobody == {
        "?": placeholders["?"],
        "empty": 140,
        "unknown": placeholders["unknown"] + placeholders["UNKNOWN"],
    }


def test_progress_rises_to_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("flowveil.reading.engines.duckdb.BATCH_ROWS", 10_000)
    path = tmp_path / "t.csv"
    pa_csv.write_csv(many_rows(30_000), path)
    shares: list[float] = []
    read_trips(path, progress=shares.append)
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert 0 < shares[0] < 1
    assert shares[-1] == 1.0


def test_an_error_of_the_progress_callback_is_not_hidden() -> None:
    def broken(_: float) -> None:
        raise OSError("terminal is gone")

    with pytest.raises(OSError, match="terminal is gone"):
        read_trips(points(), progress=broken)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT on Windows")
def test_ctrl_c_stops_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    # Enough rows that reading is far from its end when the signal comes.
    rows = "48.8512345678,2.3512345678,48.86,2.36\n" * 1_000_000
    write(tmp_path / "t.csv", "o_lat,o_lon,d_lat,d_lon\n" + rows)
    program = (
        "import sys; from flowveil.reading.engines import read_trips; "
        "read_trips(sys.argv[1], progress=lambda share: print(share, flush=True))"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "t.csv")],
        env={**os.environ, "TMPDIR": str(tmp_path / "spill")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert float(run.stdout.readline()) < 0.5
    run.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, message = run.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert run.returncode != 0
    assert "KeyboardInterrupt" in message
    assert list((tmp_path / "spill").iterdir()) == []


def test_importing_flowveil_does_not_load_duckdb() -> None:
    program = "import sys, flowveil, flowveil.reading.engines; print('duckdb' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


# ---- public data ---------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "options", "trips", "left_out"),
    [
        ("santiago_taxi/trips.parquet", {}, 452_166, {}),
        ("cabspotting_sf/trips.parquet", {"person": "cab_id"}, 454_287, {}),
        ("citibike_jc/trips.parquet", {}, 196_054, {"missing end": 237}),
        ("nyc_taxi_coords_sample/taxi.parquet", {}, 49_005, {"off the earth": 1, "at 0,0": 994}),
        ("saopaulo_od2023/trips.parquet", {"weight": "trips"}, 112_913, {}),
        (
            "lodes_detroit/od.parquet",
            {"trips": "workers", "skip_unknown": True, "max_dropped": 0.5},
            1_763_461,
            {"unknown tile": 1_151},
        ),
    ],
)
def test_public_data(
    shared_data: Path,
    tmp_path: Path,
    name: str,
    options: dict[str, object],
    trips: int,
    left_out: dict[str, int],
) -> None:
    """Of the two files of more than a million rows, the last group of rows."""
    path = shared_data / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    content = pq.ParquetFile(path)
    if content.num_row_groups > 1:
        path = tmp_path / "part.parquet"
        pq.write_table(content.read_row_group(content.num_row_groups - 1), path)
    flows = read_trips(path, **options)  # type: ignore[arg-type]
    assert flows.trips.sum() == trips
    assert flows.intake.left_out == left_out
    assert flows.intake.rows - sum(left_out.values()) >= len(flows)
    if "person" in options:
        assert flows.people is not None
        assert flows.people.person.max() + 1 == 537
    if "weight" in options:
        assert flows.weight is not None
        assert flows.weight.sum() == 35_661_166


def test_a_column_that_is_twice_in_a_parquet_file_is_refused(tmp_path: Path) -> None:
    columns = [*points(o_lat=[48.85]).columns, pa.array([1.0])]
    pq.write_table(
        pa.table(columns, names=["o_lat", "o_lon", "d_lat", "d_lon", "o_lon"]),
        tmp_path / "t.parquet",
    )
    said = {"origin": "o_lat,o_lon", "destination": "d_lat,d_lon"}
    assert "Several columns are called 'o_lon'" in message_of(tmp_path / "t.parquet", **said)
