"""What every engine must do: the same flows from the same rows, whatever holds them and in whatever
order."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.odd_values import ODD, outcome
from flowveil.core.errors import DataError
from flowveil.core.flows import Flows
from flowveil.reading import Reading
from flowveil.reading.engines import ENGINES, read_flows, read_trips
from reference.reading import read_points

#: Engines that take every kind of table, and tables in memory; Spark's own contract is in
#: `test_spark`.
pytestmark = pytest.mark.parametrize("engine", sorted(set(ENGINES) - {"spark"}))
SMALL = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FIELDS = ("o_lat", "o_lon", "d_lat", "d_lon", "uid", "weight", "n")
MISSING = st.sampled_from(["", "NA", "nan", " null "])
LATITUDES = st.one_of(st.sampled_from(["48.85", "48.8501", "0", "91", "-inf", " 48.9 "]), MISSING)
LONGITUDES = st.one_of(st.sampled_from(["2.35", "2.3501", "0", "180.5", "-180"]), MISSING)
PEOPLE = st.one_of(st.sampled_from(["7", "07", " 7", "ann", "Ann", "élise", "a,b"]), MISSING)
WEIGHTS = st.one_of(st.floats(0, 1e6).map(repr), st.sampled_from(["0.1", "1e-9"]), MISSING)
COUNTS = st.one_of(st.integers(0, 10**6).map(str), st.sampled_from(["2.0", "1e3"]), MISSING)
ROWS = st.lists(
    st.tuples(LATITUDES, LONGITUDES, LATITUDES, LONGITUDES, PEOPLE, WEIGHTS, COUNTS), max_size=60
)
#: Weights below this may change too much when they are rounded to millionths.
TOO_FINE = 1e-3
GOOD_ROW = ("48.85", "2.35", "48.86", "2.36", "bob", "1.5", "2")


def csv_text(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([FIELDS, *rows])
    return text.getvalue()


def same(one: Flows, other: Flows) -> bool:
    """Whether two readings agree in every byte."""
    arrays = [
        (f.origin, f.destination, f.trips, f.weight, f.origins.code, f.destinations.code)
        for f in (one, other)
    ]
    people = [(f.people.cell, f.people.person) if f.people else () for f in (one, other)]
    return all(
        (a is None and b is None) or (a.dtype == b.dtype and a.tobytes() == b.tobytes())  # type: ignore[union-attr]
        for a, b in zip((*arrays[0], *people[0]), (*arrays[1], *people[1]), strict=True)
    )


@pytest.mark.slow
@SMALL
@given(rows=ROWS, resolution=st.integers(0, 15), seed=st.randoms(use_true_random=False))
def test_agrees_with_reading_row_by_row_in_any_order(
    engine: str, tmp_path: Path, rows: list[tuple[str, ...]], resolution: int, seed: Any
) -> None:
    path, shuffled = tmp_path / "trips.csv", tmp_path / "shuffled.csv"
    rows = [*rows, GOOD_ROW]
    path.write_text(csv_text(rows), encoding="utf-8")
    expected, left_out = read_points(
        path, resolution=resolution, person="uid", weight="weight", trips="n"
    )
    refused = ""
    try:
        flows = read_trips(
            path, resolution=resolution, trips="n", weight="weight", max_dropped=1, engine=engine
        )
    except DataError as error:
        refused = str(error)
    if refused:
        assert "too fine to be counted" in refused
        assert any(
            0 < float(row[5] or "nan") < TOO_FINE
            for row in rows
            if row[5].strip() not in ("NA", "null")
        )
        return
    origin = flows.origins.code[flows.origins.leaf_node[flows.origin]].tolist()
    destination = flows.destinations.code[flows.destinations.leaf_node[flows.destination]].tolist()
    assert list(zip(origin, destination, strict=True)) == list(expected)
    assert flows.trips.tolist() == [n for n, _, _ in expected.values()]
    assert flows.weight is not None
    assert flows.weight.tolist() == [float(w) for _, w, _ in expected.values()]
    number = {
        who: i for i, who in enumerate(sorted(set().union(*(p for _, _, p in expected.values()))))
    }
    assert flows.people is not None
    assert list(zip(flows.people.cell.tolist(), flows.people.person.tolist(), strict=True)) == [
        (cell, n)
        for cell, (_, _, p) in enumerate(expected.values())
        for n in sorted(number[w] for w in p)
    ]
    assert flows.intake.rows == len(rows)
    assert flows.intake.left_out == dict(left_out)
    assert flows.intake.resolution == resolution
    seed.shuffle(rows)
    shuffled.write_text(csv_text(rows), encoding="utf-8")
    again = read_trips(
        shuffled, resolution=resolution, trips="n", weight="weight", max_dropped=1, engine=engine
    )
    assert same(flows, again)
    assert flows.intake == again.intake


def as_file(
    write: Callable[[pa.Table, Path], object], name: str
) -> Callable[[pa.Table, Path], Path]:
    def written(table: pa.Table, folder: Path) -> Path:
        write(table, folder / name)
        return folder / name

    return written


def csv_bytes(table: pa.Table, delimiter: str = ",") -> bytes:
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(delimiter=delimiter))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def parquet_folder(table: pa.Table, folder: Path) -> Path:
    half = len(table) // 2
    (folder / "trips").mkdir()
    pq.write_table(table.slice(half), folder / "trips" / "part-1.parquet")
    # The other part has its columns the other way round: they go by name.
    pq.write_table(
        table.slice(0, half).select(table.column_names[::-1]), folder / "trips" / "part-0.parquet"
    )
    (folder / "trips" / "_SUCCESS").write_text("")
    return folder / "trips"


def geo_table(table: pa.Table, _: Path) -> Any:
    geopandas = importlib.import_module("geopandas")
    frame = table.to_pandas()
    return geopandas.GeoDataFrame(
        frame, geometry=geopandas.points_from_xy(frame.start_lon, frame.start_lat)
    )


def reader_of(table: pa.Table, _: Path) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))


def polars_of(table: pa.Table) -> Any:
    return importlib.import_module("polars").from_arrow(table)


KINDS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "csv": as_file(lambda t, p: p.write_bytes(csv_bytes(t)), "a.csv"),
    "csv with strange name": as_file(lambda t, p: p.write_bytes(csv_bytes(t)), "it's [1] * ü.CSV"),
    "csv.gz": as_file(lambda t, p: p.write_bytes(gzip.compress(csv_bytes(t))), "a.csv.gz"),
    "csv with byte order mark": as_file(
        lambda t, p: p.write_bytes(b"\xef\xbb\xbf" + csv_bytes(t)), "a.csv"
    ),
    "csv with carriage returns": as_file(
        lambda t, p: p.write_bytes(csv_bytes(t).replace(b"\n", b"\r\n")), "a.csv"
    ),
    "semicolons": as_file(lambda t, p: p.write_bytes(csv_bytes(t, ";")), "a.txt"),
    "tsv": as_file(lambda t, p: p.write_bytes(csv_bytes(t, "\t")), "a.tsv"),
    "parquet": as_file(pq.write_table, "a.parquet"),
    "folder of parquet": parquet_folder,
    "pattern of parquet": lambda t, folder: str(parquet_folder(t, folder) / "*.parquet"),
    "path as text": lambda t, folder: str(as_file(pq.write_table, "a.parquet")(t, folder)),
    "arrow reader": reader_of,
    "arrow dataset": lambda t, folder: pads.dataset(parquet_folder(t, folder)),
    "arrow batch": lambda t, _: t.combine_chunks().to_batches()[0],
    "pandas": lambda t, _: t.to_pandas(),
    "polars": lambda t, _: polars_of(t),
    "polars lazy": lambda t, _: polars_of(t).lazy(),
    "geopandas": geo_table,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_gives_the_same_flows(
    engine: str, kind: str, tmp_path: Path, trips: pa.Table
) -> None:
    expected = read_trips(trips, weight="weight", engine=engine)
    flows = read_trips(KINDS[kind](trips, tmp_path), weight="weight", engine=engine)
    assert same(flows, expected)
    assert flows.intake == expected.intake
    assert flows.people is not None
    assert flows.weight is not None


@pytest.mark.parametrize("name", ODD)
def test_odd_values_are_read_as_written_down(engine: str, name: str) -> None:
    table, how, expected = ODD[name]
    assert outcome(table, how, engine=engine) == expected


def test_the_source_is_left_as_it_was(engine: str, trips: pa.Table) -> None:
    frame = trips.to_pandas()
    before = frame.copy(deep=True)
    read_trips(frame, engine=engine)
    assert frame.equals(before)


def test_weights_add_up_exactly_in_any_order(engine: str) -> None:
    rng = np.random.default_rng(3)
    weight = rng.uniform(0.1, 1, 5_000) * 10.0 ** rng.integers(-5, 7, 5_000)
    table = pa.table(
        {
            "o_hex": ["8a1fb46622dffff"] * 5_000,
            "d_hex": ["8a1fb46622dffff"] * 5_000,
            "weight": weight,
        }
    )
    exact = sum(Fraction(round(w * 10**6), 10**6) for w in weight.tolist())
    # Up to 2**33 in all, nothing is rounded after the rows.
    assert exact < 2**33
    for order in (np.arange(5_000), rng.permutation(5_000)):
        flows = read_trips(table.take(pa.array(order)), weight="weight", engine=engine)
        assert flows.weight is not None
        assert flows.weight[0] == float(exact)


def test_no_message_discloses_a_value_or_a_person(engine: str, tmp_path: Path) -> None:
    header = ",".join(FIELDS)
    good = ",".join(GOOD_ROW)
    for bad in (
        "SECRET,2.35,48.86,2.36,SECRET,1,1",
        "48.85,2.35,48.86,2.36,SECRET,SECRET,-7777",
        "48.85,2.35,48.86,2.36,SECRET",
        '48.85,2.35,48.86,2.36,"SECRET,1,1',
        "48.85,2.35,48.86,2.36,SECRET\udcff,1,1",
        "7777,2.35,48.86,2.36,SECRET,1,1",
    ):
        path = tmp_path / "trips.csv"
        text = "\n".join([header, good, bad, good]) + "\n"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(DataError) as caught:
            read_trips(path, trips="n", engine=engine)
        told = str(caught.value)
        assert "SECRET" not in told
        assert "7777" not in told
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_one_person_is_one_person_however_blanks_are_written(engine):
    spellings = ["P1", " P1", "P1 ", "\tP1", "P1\u00a0", "\ufeffP1", "P\u200b1", "P1\r", "\u3000P1"]
    placeholders = ["nan\t", "NULL\u00a0", "-", "?", "unknown", ""]
    cell = "8a1fb46622dffff"
    n = len(spellings) + len(placeholders)
    table = pa.table(
        {"start_h3": [cell] * n, "end_h3": [cell] * n, "person_id": spellings + placeholders}
    )
    flows = read_trips(table, engine=engine)
    assert flows.trips.tolist() == [n]
    assert flows.n_people().tolist() == [1]


def test_weights_too_small_to_count_are_refused(engine):
    cell = "8a1fb46622dffff"
    table = pa.table({"start_h3": [cell] * 20, "end_h3": [cell] * 20, "weight": [5e-7] * 20})
    with pytest.raises(DataError, match="weights too fine"):
        read_trips(table, weight="weight", engine=engine)


def test_one_matrix_is_one_slice(engine: str, trips: pa.Table) -> None:
    read = read_flows(trips, Reading(), engine=engine)
    assert (read.slice_columns, read.slice_keys, read.every) == ((), ((),), None)
    assert same(read.whole, read_trips(trips, engine=engine))


def test_slices_add_up_to_the_matrix(engine: str, trips: pa.Table) -> None:
    n = len(trips)
    table = trips.append_column("sex", [["f", "m"] * (n // 2)])
    table = table.append_column("at", pa.array(1_700_000_000 + np.arange(n) % 7 * 86_400))
    read = read_flows(
        table,
        Reading.from_arguments(by="sex", time="at", every="day", timezone="UTC"),
        engine=engine,
    )
    assert read.slice_columns == ("sex", "time")
    assert len(read.slices) == 14
    assert same(read.whole, read_trips(trips, engine=engine))
