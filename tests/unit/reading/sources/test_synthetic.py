from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks.synthetic_flows import synthetic_flows

from flowveil.core.errors import OutputError, ParameterError
from flowveil.reading.sources.synthetic import (
    AGES,
    POPULATION,
    PROFESSIONS,
    SCHEMA,
    SEXES,
    synthetic_survey,
    write_synthetic_survey,
)
from flowveil.zoning.h3 import resolution_of

ENDS = ("start", "end")
MONDAY = np.datetime64("2022-11-14")


@lru_cache(maxsize=1)
def survey() -> pa.Table:
    return synthetic_survey()


def column(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    return table[name].to_numpy()


def new_person(table: pa.Table) -> np.ndarray[Any, Any]:
    person = np.array(table["person_id"].to_pylist())
    return np.concatenate(([True], person[1:] != person[:-1]))


def distance_km(lat1: Any, lon1: Any, lat2: Any, lon2: Any) -> Any:
    lat1, lon1, lat2, lon2 = (np.radians(a) for a in (lat1, lon1, lat2, lon2))
    a = (
        np.sin((lat2 - lat1) / 2) ** 2
        + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    )
    return 2 * 6371.0 * np.arcsin(np.sqrt(a))


def trip_km(table: pa.Table) -> Any:
    names = ("start_lat", "start_lon", "end_lat", "end_lon")
    return distance_km(*(column(table, name) for name in names))


# ---- size and shape ------------------------------------------------------------------------------


def test_the_default_has_the_size_of_the_netmob_survey() -> None:
    table = survey()
    assert table.schema == SCHEMA
    assert table.num_rows == pytest.approx(81_291, rel=0.03)
    assert new_person(table).sum() == 3_320
    assert pc.count_distinct(table["person_id"]).as_py() == 3_320
    assert all(c.null_count == 0 for c in table.columns)
    assert table["person_id"][0].as_py() == "p000000"


def test_groups_are_all_present_and_no_others() -> None:
    table = survey()
    assert set(table["sex"].to_pylist()) == set(SEXES)
    assert set(table["age"].to_pylist()) == set(AGES)
    assert set(table["profession"].to_pylist()) == set(PROFESSIONS)
    # Students are young and no one of that age is retired.
    young = pc.equal(table["age"], "16-19")
    assert "6 retirees" not in set(table.filter(young)["profession"].to_pylist())


@pytest.mark.parametrize("seed", [0, 1])
def test_trips_stay_in_the_region(seed: int) -> None:
    table = synthetic_survey(seed=seed) if seed else survey()
    for end in ENDS:
        lat, lon = column(table, f"{end}_lat"), column(table, f"{end}_lon")
        assert lat.min() > 48.12
        assert lat.max() < 49.24
        assert lon.min() > 1.45
        assert lon.max() < 3.56


def test_tiles_are_as_many_as_in_a_gnss_survey() -> None:
    table = survey()
    cells: set[int] = set()
    for end in ENDS:
        lat, lon = table[f"{end}_lat"].to_pylist(), table[f"{end}_lon"].to_pylist()
        cells.update(h3_int.latlng_to_cell(a, b, 10) for a, b in zip(lat, lon, strict=True))
    assert 35_000 < len(cells) < 50_000


# ---- how people behave ---------------------------------------------------------------------------


def test_rows_are_ordered_by_person_and_time() -> None:
    table = survey()
    person = np.array(table["person_id"].to_pylist())
    assert np.all(person[1:] >= person[:-1])
    start, end = column(table, "start_time"), column(table, "end_time")
    same = ~new_person(table)[1:]
    assert np.all(end > start)
    assert np.all(start[1:][same] > end[:-1][same])
    assert start.min() >= MONDAY
    assert end.max() < MONDAY + np.timedelta64(8, "D")


def test_each_trip_starts_where_the_last_one_ended() -> None:
    table = survey()
    same = ~new_person(table)[1:]
    gap = distance_km(
        column(table, "end_lat")[:-1],
        column(table, "end_lon")[:-1],
        column(table, "start_lat")[1:],
        column(table, "start_lon")[1:],
    )[same]
    assert gap.max() < 0.35
    # The fixes scatter by tens of metres: the same place is not the same coordinate.
    assert 0.02 < np.median(gap) < 0.1


def test_people_come_home() -> None:
    table = survey()
    first = new_person(table)
    number = np.cumsum(first) - 1
    lat, lon = column(table, "start_lat")[first][number], column(table, "start_lon")[first][number]
    at_home = distance_km(column(table, "end_lat"), column(table, "end_lon"), lat, lon) < 0.3
    last = np.append(first[1:], True)
    assert np.all(at_home[last])
    assert 0.3 < at_home.mean() < 0.5


def test_distances_are_plausible() -> None:
    km = trip_km(survey())
    assert 2.0 < np.median(km) < 6.0
    assert 4.0 < km.mean() < 9.0
    assert np.quantile(km, 0.95) > 15.0
    assert np.quantile(km, 0.99) > 25.0
    minutes = (column(survey(), "end_time") - column(survey(), "start_time")) / np.timedelta64(
        60, "s"
    )
    assert np.all(km / (minutes / 60) < 120.0)


def test_the_day_has_peaks_and_the_weekend_is_quieter() -> None:
    start = column(survey(), "start_time")
    day = (start - MONDAY) // np.timedelta64(1, "D")
    hour = (start - MONDAY) // np.timedelta64(1, "h") % 24
    weekday = np.bincount(hour[day < 5], minlength=24)
    assert weekday[8] > 2 * weekday[10]
    assert weekday[18] > 2 * weekday[14]
    assert weekday[1:5].sum() < 0.01 * weekday.sum()
    per_day = np.bincount(day, minlength=7)
    assert per_day[5:7].mean() < 0.9 * per_day[:5].mean()


def test_jobs_are_more_concentrated_than_homes() -> None:
    """Where people arrive on weekday mornings is nearer to the centre than where they sleep."""
    table = survey()
    start = column(table, "start_time")
    hour = (start - MONDAY) // np.timedelta64(1, "h") % 24
    morning = (hour >= 6) & (hour < 9) & ((start - MONDAY) // np.timedelta64(1, "D") < 5)
    radius = [
        np.median(
            distance_km(
                column(table, f"{e}_lat")[morning], column(table, f"{e}_lon")[morning], 48.86, 2.34
            )
        )
        for e in ENDS
    ]
    assert radius[1] < 0.9 * radius[0]


# ---- weights -------------------------------------------------------------------------------------


def test_a_person_has_one_weight_and_one_profile() -> None:
    table = survey()
    profile = ("weight", "sex", "age", "profession")
    distinct = table.group_by(["person_id", *profile]).aggregate([])
    assert distinct.num_rows == 3_320


def test_weights_represent_the_region() -> None:
    table = survey()
    weight = column(table, "weight")[new_person(table)]
    assert weight.min() > 0
    assert weight.mean() == pytest.approx(2_711, rel=0.05)
    assert weight.mean() > 1.2 * np.median(weight)
    small = synthetic_survey(people=500)
    assert column(small, "weight")[new_person(small)].sum() == pytest.approx(POPULATION, rel=0.15)


def test_rare_groups_weigh_more() -> None:
    table = survey().filter(pa.array(new_person(survey())))
    by_profession = table.group_by("profession").aggregate(
        [("weight", "mean"), ("weight", "count")]
    )
    mean = dict(
        zip(
            by_profession["profession"].to_pylist(),
            by_profession["weight_mean"].to_pylist(),
            strict=True,
        )
    )
    assert mean["5 workers"] > 2 * mean["2 executives"]
    lat, lon = column(table, "start_lat"), column(table, "start_lon")
    weight = column(table, "weight")
    assert (
        weight[distance_km(lat, lon, 48.94, 2.42) < 6].mean()
        > weight[distance_km(lat, lon, 48.86, 2.34) < 4].mean()
    )


def test_enough_trips_are_not_enough_inhabitants_nor_the_other_way_round() -> None:
    """The effect the papers study: neither threshold implies the other, on squares of some 7 km."""
    table = survey()
    places = [
        np.floor(column(table, f"{e}_{axis}") / 0.07).astype(int)
        for e in ENDS
        for axis in ("lat", "lon")
    ]
    _, cell = np.unique(np.stack(places), axis=1, return_inverse=True)
    weight = column(table, "weight")
    trips, population = np.bincount(cell), np.bincount(cell, weight)
    threshold = 10 * weight.mean()
    assert np.sum((trips >= 10) & (population < threshold)) >= 10
    assert np.sum((trips < 10) & (population >= threshold)) >= 10


# ---- the same rows -------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes(tmp_path: Any) -> None:
    write_synthetic_survey(tmp_path / "a.parquet", people=300, seed=7)
    write_synthetic_survey(tmp_path / "b.parquet", people=300, seed=7)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    one, other = synthetic_survey(people=300, seed=7), synthetic_survey(people=300, seed=8)
    assert one.equals(synthetic_survey(people=300, seed=7))
    assert not one["start_lat"].slice(0, 50).equals(other["start_lat"].slice(0, 50))


@lru_cache(maxsize=1)
def in_one_piece() -> pa.Table:
    return synthetic_survey(people=2_345, seed=3)


@pytest.mark.parametrize("blocks", [1, 2, 50])
def test_row_groups_do_not_change_the_rows(
    tmp_path: Any, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "survey.parquet"
    monkeypatch.setattr("flowveil.reading.sources.synthetic._BLOCKS_OF_ROW_GROUP", blocks)
    trips = write_synthetic_survey(path, people=2_345, seed=3)
    expected = in_one_piece()
    assert trips == expected.num_rows
    written = pq.read_table(path)
    assert written.schema.equals(SCHEMA)
    assert written.combine_chunks().equals(expected)
    assert pq.ParquetFile(path).num_row_groups == -(-3 // blocks)
    assert [p.name for p in tmp_path.iterdir()] == ["survey.parquet"]


def test_a_smaller_survey_is_the_beginning_of_a_larger_one() -> None:
    small, large = synthetic_survey(people=1_100), synthetic_survey(people=2_500)
    kept = [name for name in SCHEMA.names if name != "weight"]
    assert small.select(kept).equals(large.slice(0, small.num_rows).select(kept).combine_chunks())
    ratio = column(small, "weight") / column(large, "weight")[: small.num_rows]
    assert np.allclose(ratio, 2_500 / 1_100, rtol=1e-4)


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"people": 0}, {"seed": -1}])
def test_arguments_out_of_range_are_refused(tmp_path: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        synthetic_survey(**wrong)
    with pytest.raises(ParameterError):
        write_synthetic_survey(tmp_path / "s.parquet", **{"people": 10, **wrong})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nowhere").write_text("a file")
    with pytest.raises(OutputError, match="nowhere"):
        write_synthetic_survey("nowhere/s.parquet", people=10)


def test_a_failed_write_keeps_the_old_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.parquet"
    path.write_bytes(b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", fail)
    with pytest.raises(OutputError, match="No space left"):
        write_synthetic_survey(path, people=10)
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]
    assert path.read_bytes() == b"old"


# ---- flows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_flows", [1, 2, 1_000, 200_000])
def test_flows_are_distinct_sorted_and_exactly_as_many(n_flows: int) -> None:
    flows = synthetic_flows(n_flows)
    assert len(flows) == n_flows
    key = flows.origin.astype(np.int64) * flows.destinations.n_tiles + flows.destination
    assert np.all(key[1:] > key[:-1])
    assert flows.trips.min() >= 1
    assert flows.weight is not None
    assert flows.weight.min() > 0
    for tile, tree in ((flows.origin, flows.origins), (flows.destination, flows.destinations)):
        assert np.bincount(tile, minlength=tree.n_tiles).min() >= 1, (
            "every tile of the tree is in use"
        )


def test_flow_tiles_are_valid_cells_of_the_region() -> None:
    flows = synthetic_flows(20_000, seed=4)
    for tree in (flows.origins, flows.destinations):
        cells = tree.code[tree.leaf_node]
        assert np.all(resolution_of(cells) == 10)
        assert all(h3_int.is_valid_cell(cell) for cell in cells.tolist())
        centre = np.array([h3_int.cell_to_latlng(cell) for cell in cells.tolist()])
        assert centre[:, 0].min() > 48.08
        assert centre[:, 1].min() > 1.4
        assert centre[:, 0].max() < 49.28
        assert centre[:, 1].max() < 3.6


def test_flows_are_skewed() -> None:
    flows = synthetic_flows(200_000)
    trips = np.sort(flows.trips)[::-1]
    assert np.mean(trips == 1) > 0.5
    assert trips[0] > 100
    per_tile = np.sort(np.bincount(flows.origin))[::-1]
    assert per_tile[: len(per_tile) // 100].sum() > 0.1 * len(flows)


def test_flows_depend_on_the_seed_alone() -> None:
    one, again, other = (synthetic_flows(5_000, seed=seed) for seed in (1, 1, 2))
    for name in ("origin", "destination", "trips", "weight"):
        assert getattr(one, name).tobytes() == getattr(again, name).tobytes()
    assert one.origins.code.tobytes() == again.origins.code.tobytes()
    assert one.origins.code.tobytes() != other.origins.code.tobytes()


@pytest.mark.parametrize(("n_flows", "seed"), [(0, 0), (-1, 0), (2_000_000_000, 0), (10, -1)])
def test_impossible_flows_are_refused(n_flows: int, seed: int) -> None:
    with pytest.raises(ParameterError):
        synthetic_flows(n_flows, seed=seed)
