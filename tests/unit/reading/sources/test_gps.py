from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.core.errors import DataError, ParameterError
from flowveil.reading.sources import prepare
from flowveil.reading.sources.gps import prepare_gps, stays
from reference.gps import slow_stays, slow_trips

START = datetime(2024, 3, 4, 8)


def points(rows: list[tuple[str, float, float, float]]) -> pa.Table:
    """Rows of (person, seconds, metres east, metres north) near the equator, shuffled."""
    order = np.random.default_rng(3).permutation(len(rows))
    rows = [rows[i] for i in order]
    return pa.table(
        {
            "uid": [r[0] for r in rows],
            "datetime": [(START + timedelta(seconds=r[1])).isoformat(sep=" ") for r in rows],
            "lat": [r[3] / 111_195 for r in rows],
            "lng": [r[2] / 111_195 + 1 for r in rows],
        }
    )


def walk(
    person: str, since: float, metres: float, *, n: int = 5, step: float = 60
) -> list[tuple[str, float, float, float]]:
    return [(person, since + i * step, metres + 500 * i, 0.0) for i in range(n)]


def test_a_gap_ends_a_trip_and_persons_never_join():
    # b's first point comes one second after a's last one, at the same place.
    found = prepare_gps(
        points([*walk("a", 0, 0), *walk("b", 241, 2000), *walk("a", 1000, 9000)]), dwell=None
    )
    trips = found.trips.to_pylist()
    assert [t["person_id"] for t in trips] == ["a", "a", "b"]
    assert [t["points"] for t in trips] == [5, 5, 5]
    assert trips[0]["start_time"] == START
    assert trips[0]["end_time"] == START + timedelta(seconds=240)
    assert trips[1]["start_lon"] == pytest.approx(1 + 9000 / 111_195)


def test_three_minutes_are_no_gap_but_a_second_more_is():
    at = [("a", 0.0, 0.0, 0.0), ("a", 180.0, 900.0, 0.0), ("a", 361.0, 1800.0, 0.0)]
    found = prepare_gps(points(at), dwell=None)
    assert [t["points"] for t in found.trips.to_pylist()] == [2]
    assert found.dropped == {"trips of one point": 1}


def test_a_stay_ends_a_trip_and_the_next_starts_where_it_ended():
    rest = [("a", 300 + 60 * i, 2000.0, 10.0 * (i % 2)) for i in range(12)]
    away = [("a", 1020 + 60 * i, 2500.0 + 500 * i, 0.0) for i in range(5)]
    trips = prepare_gps(points([*walk("a", 0, 0, n=4), *rest, *away])).trips.to_pylist()
    assert len(trips) == 2
    assert trips[0]["end_lon"] == pytest.approx(1 + 2000 / 111_195)
    assert trips[1]["start_lon"] == pytest.approx(1 + 2000 / 111_195)
    assert trips[1]["start_time"] >= trips[0]["end_time"]


def test_points_that_cannot_be_used_are_counted():
    table = pa.table(
        {
            "person": ["a", "a", "a", None, "a", "a"],
            "time": [
                1_700_000_000,
                1_700_000_060,
                1_700_000_120,
                1_700_000_000,
                None,
                1_700_000_180,
            ],
            "lat": [48.0, 48.1, 95.0, 48.0, 48.0, 0.0],
            "lon": [2.0, 2.0, 2.0, 2.0, 2.0, 0.0],
        }
    )
    found = prepare_gps(table, dwell=None)
    assert found.dropped == {"points that cannot be used": 4}
    assert found.trips.num_rows == 1


def test_row_order_leaves_no_trace():
    rows = [*walk("a", 0, 0), *walk("b", 30, 700), *walk("a", 900, 0)]
    assert prepare_gps(points(rows)).trips.equals(prepare_gps(points(rows[::-1])).trips)


def test_missing_columns_are_all_reported_with_a_suggestion():
    with pytest.raises(DataError) as caught:
        prepare_gps(pa.table({"uid": ["a"], "latitude": [1.0]}), lon="longitud")
    assert "'longitud'" in str(caught.value)
    assert "time" in str(caught.value)


def test_rules_must_be_above_zero():
    with pytest.raises(ParameterError, match="gap"):
        prepare_gps(points(walk("a", 0, 0)), gap=0)


def test_unknown_sources_and_options_are_refused():
    with pytest.raises(ParameterError, match="porto"):
        prepare("portoo", "x.csv")
    with pytest.raises(ParameterError, match="no option gap"):
        prepare("porto", "x.csv", gap=3)


def test_many_persons_over_years_do_not_overflow():
    # Two points a year apart, then a stay of the person with the highest number.
    year = 365 * 86_400_000_000
    person = np.array([0, 0, 10**6, 10**6], dtype=np.int64)
    us = np.array([0, 40 * year, year, year + 400_000_000], dtype=np.int64)
    assert stays(person, us, np.zeros(4), np.zeros(4), dwell=300, radius=100).tolist() == [
        True,
        True,
        True,
        True,
    ]
    assert stays(
        person, us, np.zeros(4), np.array([0, 9, 0, 0.0]), dwell=300, radius=100
    ).tolist() == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.real
def test_the_real_geolife_sample(shared_data: Path):
    found = prepare_gps(shared_data / "geolife_sample" / "points.parquet")
    trips = found.trips.to_pandas()
    assert len(trips) > 100
    assert (trips["end_time"] > trips["start_time"]).all()
    # Trips of one person do not overlap in time, and no id is two persons.
    for _, own in trips.groupby("person_id"):
        assert (own["start_time"].to_numpy()[1:] >= own["end_time"].to_numpy()[:-1]).all()
    assert trips["person_id"].nunique() == 2


recorded = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 8)),
    min_size=1,
    max_size=40,
    unique_by=lambda r: r[:2],
)


@settings(deadline=None)
@given(recorded)
def test_stays_are_those_of_the_definition(rows):
    rows = sorted(rows)
    person = np.array([r[0] for r in rows], dtype=np.int64)
    us = np.array([r[1] * 60_000_000 for r in rows], dtype=np.int64)
    lon = np.array([r[2] * 60 / 111_195 for r in rows])
    lat = np.zeros(len(rows))
    fast = stays(person, us, lat, lon, dwell=300, radius=100)
    assert fast.tolist() == slow_stays(rows, dwell_minutes=5, radius_steps=100 / 60)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(recorded)
def test_gap_trips_are_those_of_the_definition(rows):
    found = prepare_gps(
        points([(f"p{p}", 60.0 * m, 60.0 * x, 0.0) for p, m, x in rows]), dwell=None, gap=180
    )
    trips = [
        (t["person_id"], int((t["start_time"] - START).total_seconds() // 60), t["points"])
        for t in found.trips.to_pylist()
    ]
    assert trips == slow_trips(rows, gap_minutes=3)


def test_trips_that_are_marked_are_kept_as_they_are():
    """An hour without a point inside a trip, and two trips without a pause between them."""
    rows = [
        ("a", 0, 1.0, 1.0, "t1"), ("a", 60, 1.0, 1.1, "t1"), ("a", 3_700, 1.0, 1.2, "t1"),
        ("a", 3_701, 1.0, 1.2, "t2"), ("a", 3_760, 1.0, 1.3, "t2"),
        ("b", 0, 2.0, 2.0, "t1"), ("b", 9, 2.0, 2.1, "t1"),
        ("b", 20, 2.0, 2.1, None), ("b", 30, 2.0, 2.2, "lone"),
    ]  # fmt: skip
    who, when, lat, lon, mark = zip(*reversed(rows), strict=True)
    points = pa.table(
        {
            "uid": who,
            "time": [1_600_000_000 + s for s in when],
            "lat": lat,
            "lon": lon,
            "tripid": mark,
        }
    )
    made = prepare_gps(points, trip="tripid")
    ends = made.trips.select(["person_id", "start_lon", "end_lon", "points"]).to_pylist()
    assert [tuple(row.values()) for row in ends] == [
        ("a", 1.0, 1.2, 3),
        ("a", 1.2, 1.3, 2),
        ("b", 2.0, 2.1, 2),
    ]
    assert made.dropped == {"points that cannot be used": 1, "trips of one point": 1}
    with pytest.raises(ParameterError, match="are not cut"):
        prepare_gps(points, trip="tripid", gap=60.0)


def taxi_day(*, flag: str | None = "occupied") -> pa.Table:
    """Two taxis that never stop for ten hours, with passengers in every second half-hour."""
    minutes = list(range(0, 600))
    columns = {
        "taxi_id": ["a"] * 600 + ["b"] * 600,
        "time": [1_600_000_000 + 60 * m for m in minutes] * 2,
        "lat": [1.0 + m / 100 for m in minutes] * 2,
        "lon": [2.0] * 1_200,
    }
    return pa.table(columns | ({} if flag is None else {flag: [m // 30 % 2 for m in minutes] * 2}))


def test_a_taxi_makes_a_trip_each_time_it_is_occupied():
    for points, options in ((taxi_day(), {}), (taxi_day(flag="pax"), {"occupied": "pax"})):
        made = prepare_gps(points, **options)
        assert made.trips.num_rows == 20
        assert set(made.trips.column("points").to_pylist()) == {30}
        assert made.dropped == {"points that cannot be used": 600}
        assert "with '" in made.notes[-1]
    assert prepare_gps(taxi_day().slice(0, 600).take(list(range(599, -1, -1)))).trips.num_rows == 10


def test_trips_of_a_whole_day_are_refused_with_a_way_out():
    with pytest.raises(DataError, match=r"more than 6 hours.*occupied=COLUMN"):
        prepare_gps(taxi_day(flag=None))
    with pytest.raises(DataError, match="neither 0 nor 1"):
        prepare_gps(taxi_day().set_column(4, "occupied", pa.array(["2"] * 1_200)))
    with pytest.raises(ParameterError, match="one of the two"):
        prepare_gps(taxi_day(), trip="lat", occupied="occupied")
