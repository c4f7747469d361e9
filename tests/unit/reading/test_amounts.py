"""Rows, dropped rows and rows outside are counted in rows, trips and weight."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowveil
from flowveil.core.errors import DataError
from flowveil.core.read_summary import ReadSummary

N = 30
RNG = np.random.default_rng(7)
CODES = [str(100 + i) for i in range(N)]
ZONES = pa.table({"zone": CODES, "lat": 41.6 + RNG.random(N) / 2, "lon": -88 + RNG.random(N) / 2})
PAIRS = [(o, d) for o in CODES for d in CODES]


def pairs(volumes, name: str = "trips", **more) -> pa.Table:
    """A row for each pair of zones, with a number."""
    origin, destination = zip(*PAIRS[: len(volumes)], strict=True)
    return pa.table({"origin": origin, "destination": destination, name: volumes, **more})


def test_modelled_trips_with_fractions_are_trips() -> None:
    """Like the Chicago network: cells of a modelled matrix, most of them below 1."""
    volumes = np.round(RNG.gamma(0.4, 6.0, N * N), 2)
    flows = flowveil.read_trips(pairs(volumes), zones=ZONES, trips="trips")
    assert flows.trips.dtype == np.float64
    assert flows.total("trips") == pytest.approx(float(volumes.sum()), abs=1e-9)
    assert flows.intake.input_trips == round(float(volumes.sum()), 2)
    assert flows.intake.empty_rows == int(np.sum(volumes == 0))
    release = flowveil.anonymize(flows, method="paircut", k=10)
    assert release.cells.trips.min() >= 10
    # A matrix does not collapse because its cells are few: k counts trips, not cells.
    assert len(release.cells) > N


def test_hourly_volumes_with_fractions_are_trips() -> None:
    """Like MITMA's: a row for each hour and pair, expanded from phones."""
    hours = np.repeat([f"2024-03-05 {h:02}:00" for h in (7, 8)], 200)
    volumes = np.round(RNG.gamma(2.0, 4.0, 400), 3)
    table = pa.concat_tables([pairs(volumes[:200]), pairs(volumes[200:])]).append_column(
        "at", pa.array(hours)
    )
    sliced = flowveil.read_slices(table, zones=ZONES, trips="trips", time="at", every="hour")
    assert [key for key, _ in sliced.split()] == [("07:00",), ("08:00",)]
    for part, expected in zip(sliced.slices, (volumes[:200], volumes[200:]), strict=True):
        assert part.total("trips") == pytest.approx(float(expected.sum()), abs=1e-9)


def test_an_expansion_factor_is_a_weight_and_k_counts_the_sample() -> None:
    """Like São Paulo's survey: a row is an interviewed trip, its factor what it represents."""
    n = 3_000
    origin, destination = RNG.choice(CODES[:6], n), RNG.choice(CODES[:6], n)
    factor = np.round(RNG.gamma(3.0, 60.0, n), 4)
    table = pa.table({"origin": origin, "destination": destination, "fe_via": factor})
    flows = flowveil.read_trips(table, zones=ZONES, weight="fe_via")
    assert (flows.trips.dtype, int(flows.trips.sum())) == (np.int64, n)
    assert flows.total("weight") == pytest.approx(float(factor.sum()), abs=1e-6)
    assert flows.intake.input_weight == pytest.approx(float(factor.sum()), abs=1e-6)
    release = flowveil.anonymize(flows, method="paircut", k=10)
    assert release.cells.trips.min() >= 10


def test_whole_numbers_stay_whole() -> None:
    assert (
        flowveil.read_trips(pairs([1.0, 2.0, 3.0]), zones=ZONES, trips="trips").trips.dtype
        == np.int64
    )
    assert (
        flowveil.read_trips(pairs([0.5, 0.5, 3.0]), zones=ZONES, trips="trips").trips.dtype
        == np.float64
    )


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.decimals(0, 1000, places=6)), min_size=1, max_size=12)
)
def test_sums_of_fractions_are_exact_in_any_order(rows) -> None:
    rows = [(pair, value) for pair, value in rows if value] or [(0, 1)]
    table = pa.table(
        {
            "origin": [PAIRS[pair][0] for pair, _ in rows],
            "destination": [PAIRS[pair][1] for pair, _ in rows],
            "trips": [str(value) for _, value in rows],
        }
    )
    expected: dict[tuple[str, str], Fraction] = {}
    for pair, value in rows:
        expected[PAIRS[pair]] = expected.get(PAIRS[pair], Fraction(0)) + Fraction(value)
    for source in (table, table.take(pa.array(range(len(rows) - 1, -1, -1)))):
        flows = flowveil.read_trips(source, zones=ZONES, trips="trips")
        origin, destination = (t.code[t.leaf_node] for t in (flows.origins, flows.destinations))
        ends = zip(
            origin[flows.origin].tolist(), destination[flows.destination].tolist(), strict=True
        )
        assert {pair: float(total) for pair, total in expected.items()} == dict(
            zip(ends, flows.trips.tolist(), strict=True)
        )


def test_trips_too_small_to_count_are_refused_and_negligible_ones_are_no_trips() -> None:
    with pytest.raises(DataError, match=r"millionths|No trip is left"):
        flowveil.read_trips(pairs([7e-7] * 50), zones=ZONES, trips="trips")
    flows = flowveil.read_trips(pairs([5.5, 1e-9, 3.0]), zones=ZONES, trips="trips")
    assert flows.intake.empty_rows == 1


# ---- dropped and outside -------------------------------------------------------------------------


def expanded() -> pa.Table:
    """Like Toronto's survey: few rows have an unknown code, and these hold many trips."""
    rows = (
        [("100", "101", 10)] * 96
        + [("100", "9998", 20)] * 2
        + [("9999", "9998", 40), ("100", None, 3)]
    )
    origin, destination, trips = zip(*rows, strict=True)
    return pa.table({"origin": origin, "destination": destination, "trips": trips})


def test_dropped_rows_are_counted_in_trips_and_the_larger_share_counts() -> None:
    how = {"zones": ZONES, "trips": "trips"}
    with pytest.raises(DataError, match=r"outside='keep'"):
        flowveil.read_trips(expanded(), **how)
    with pytest.raises(
        DataError, match=r"4 of 100 rows \(4.0%\) with 8.0% of the trips; allowed are 5.0%"
    ) as caught:
        flowveil.read_trips(expanded(), **how, skip_unknown=True)
    assert "outside='keep' keeps unknown codes" in str(caught.value)
    intake = flowveil.read_trips(expanded(), **how, skip_unknown=True, max_dropped=0.09).intake
    assert intake.dropped == {"missing end": 1, "unknown tile": 3}
    assert (intake.dropped_trips, intake.input_trips, intake.outside_trips) == (83, 1043, 0)
    assert intake.dropped_share == 83 / 1043


def test_unknown_codes_are_kept_as_one_zone() -> None:
    flows = flowveil.read_trips(expanded(), zones=ZONES, trips="trips", outside="keep")
    assert "outside" in flows.destinations.code.tolist()
    assert int(flows.trips.sum()) == 96 * 10 + 2 * 20
    intake = flows.intake
    assert (intake.dropped, intake.dropped_trips) == ({"missing end": 1}, 3)
    assert (intake.outside_rows, intake.outside_trips, intake.input_trips) == (1, 40, 1043)


def test_rows_outside_an_area_are_not_dropped() -> None:
    lat, lon = [48.85] * 8 + [49.9] * 2, [2.35] * 10
    table = pa.table(
        {
            "o_lat": lat,
            "o_lon": lon,
            "d_lat": [48.86] * 10,
            "d_lon": lon,
            "w": [1.5] * 8 + [9.0] * 2,
        }
    )
    intake = flowveil.read_trips(table, within="2,48,3,49", weight="w", resolution=6).intake
    assert (intake.dropped, intake.outside_rows, intake.outside_trips) == ({}, 2, 2)
    assert (intake.outside_weight, intake.input_weight) == (18.0, 30.0)
    assert intake.left_out == {"outside the area": 2}


def test_when_everything_is_lost_a_larger_limit_is_no_advice() -> None:
    for codes in (["x"] * 20, ["100"] + ["x"] * 19):
        table = pa.table({"origin": codes, "destination": codes})
        with pytest.raises(DataError) as caught:
            flowveil.read_trips(
                table,
                zones=ZONES,
                skip_unknown=True,
                origin_tile="origin",
                destination_tile="destination",
            )
        assert "max_dropped" not in str(caught.value)
        assert "is the map one of the same place?" in str(caught.value)


def test_shares_of_nothing_are_zero() -> None:
    assert (ReadSummary().dropped_share, ReadSummary().left_out) == (0.0, {})
