"""Hours, purposes and groups of a folded release come out again as an estimate."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

import flowveil
from conftest import trip_table
from flowveil.apps.cli import main
from flowveil.published import disaggregation
from flowveil.published.answer import answer_data
from flowveil.published.disaggregation import disaggregate
from flowveil.published.exports import parse_formats
from flowveil.published.flow_map import unpack
from flowveil.published.folds import LEAST, PRIOR, folds_of, spread_over_values
from flowveil.published.matrices import matrices_table
from flowveil.published.zone_overlaps import h3_overlap
from flowveil.verify.audit.published import incomparable, read_release
from flowveil.verify.audit.subtraction import confined_groups
from reference.disaggregation import by_value
from samples.drafts import unchecked
from unit.published.test_disaggregation import LEVEL, NODES, RESOLUTION, tables

#: Intervals of four values and groups of two of them.
RANGES = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (2, 4), (0, 4)]
TREE = {"all": None, "left": "all", "right": "all"} | {
    value: side for side, own in (("left", "ab"), ("right", "cd")) for value in own
}
NAMES = dict(zip(RANGES, ("a", "b", "c", "d", "left", "right", "all"), strict=True))
CELLS = st.lists(
    st.tuples(
        st.sampled_from(NODES[4:]),
        st.sampled_from(NODES[4:]),
        st.integers(1, 60),
        st.sampled_from(RANGES),
    ),
    min_size=1,
    max_size=10,
    unique_by=lambda cell: (cell[0], cell[1], cell[3]),
)
HOURS = [f"{hour:02d}:00" for hour in range(25)]


def hourly(cells):
    """Published tables of cells (origin, destination, trips, range of six-hour steps)."""
    flows, zones = tables([(*cell[:3], 1) for cell in cells])
    for at, name in enumerate(("time_from", "time_to")):
        flows = flows.append_column(name, pa.array([HOURS[6 * cell[3][at]] for cell in cells]))
    return flows, zones


def overlaps(zones):
    return [
        h3_overlap(zones, f"{end}", level=LEVEL, resolution=RESOLUTION)
        for end in ("origin", "destination")
    ]


@given(CELLS)
@settings(max_examples=60, deadline=None)
def test_cells_of_single_areas_are_spread_as_the_formula_says(cells):
    flows, zones = tables([(*cell[:3], 1) for cell in cells])
    flows = flows.append_column("sex", pa.array([NAMES[cell[3]] for cell in cells]))
    folds = folds_of(flows, {"fold": {"sex": TREE}})
    found = spread_over_values(flows, *overlaps(zones), folds, most_rows=10_000)
    areas = sorted({cell[end] for cell in cells for end in (0, 1)})
    number = {code: at for at, code in enumerate(areas)}
    units = [
        (number[o] * len(areas) + number[d], number[o], *span, float(trips), 1.0)
        for o, d, trips, span in cells
    ]
    constants = {"prior": PRIOR, "later": disaggregation.LATER, "rounds": disaggregation.ROUNDS}
    smallest = min(cell[2] for cell in cells)
    wanted = by_value(units, 4, smallest, **constants)
    rows = found.table().to_pylist()
    estimate = {
        (number[r["origin"]] * len(areas) + number[r["destination"]], "abcd".index(r["sex"])): r[
            "trips"
        ]
        for r in rows
    }
    assert estimate == pytest.approx({key: v for key, v in wanted.items() if v > 0})
    assert all(r["trips_low"] <= r["trips"] + 1e-6 for r in rows)
    assert all(r["trips"] <= r["trips_high"] + 1e-6 for r in rows)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NODES),
            st.sampled_from(NODES),
            st.integers(1, 60),
            st.sampled_from(RANGES),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda cell: (cell[0], cell[1], cell[3]),
    )
)
@settings(max_examples=40, deadline=None)
def test_values_add_up_to_the_estimate_without_them(cells):
    flows, zones = hourly(cells)
    folds = folds_of(flows, {"slices": {"every": "hour"}})
    ends = overlaps(zones)
    found = spread_over_values(flows, *ends, folds, most_rows=1_000_000)
    plain = disaggregate(flows, *ends, folded=True, least=LEAST)
    added = np.zeros(len(plain.origin))
    key = plain.origin * len(ends[1].codes) + plain.destination
    at = np.searchsorted(key, found.origin * len(ends[1].codes) + found.destination)
    np.add.at(added, at, found.values["trips"])
    assert added == pytest.approx(plain.values["trips"])
    # What the cells of one area and hour have is proven, and no row exceeds the cells that touch.
    assert np.all(found.bounds["trips_low"] <= found.values["trips"] + 1e-6)
    assert np.all(found.values["trips"] <= found.bounds["trips_high"] + 1e-6)


@pytest.fixture(scope="module")
def steps():
    """Trips of two weeks with a time and a sex."""
    table = trip_table(1500)
    rng = np.random.default_rng(5)
    start = np.datetime64("2024-01-01T00:00", "s") + rng.integers(0, 14 * 86_400, len(table))
    return table.append_column("start", pa.array(start)).append_column(
        "sex", pa.array(rng.choice(["f", "m"], len(table)))
    )


@pytest.mark.parametrize("every", ["hour", "weekday-hour", "6h", "day"])
def test_intervals_are_ranges_of_the_labels_of_slices(steps, every):
    flows = flowveil.read_trips(steps, resolution=7, time="start", every=every)
    release = flowveil.anonymize(flows.folded(), "layercut", k=5, protect="trips")
    (fold,) = folds_of(release.flows, release.summary()["parameters"])
    assert fold.name == "time"
    assert {key[0] for key in flows.slice_keys} <= set(fold.labels)
    starts, stops = (release.flows[name].to_pylist() for name in ("time_from", "time_to"))
    for first, stop, start, end in zip(fold.first, fold.stop, starts, stops, strict=True):
        assert fold.labels[first][: len(start)] == start
        # An interval ends where the next one begins; the last value has no next.
        following = fold.labels[stop] if stop < len(fold.labels) else end
        assert following == end or end.endswith("24:00")


@pytest.fixture(scope="module")
def folder(steps, tmp_path_factory):
    flows = flowveil.read_trips(steps, resolution=8, time="start", every="hour", by="sex")
    trees = {"sex": flowveil.read_tree({"all": None, "f": "all", "m": "all"})}
    release = flowveil.anonymize(flows.folded(trees), "layercut", k=5, protect="trips")
    with unchecked():
        return release.write(tmp_path_factory.mktemp("folded") / "r")


def test_reconstruct_has_the_time_and_the_dimensions_by_name(folder, tmp_path):
    table = flowveil.reconstruct(folder, 6)
    assert table.column_names == ["origin", "destination", "time", "sex", "trips"]
    assert set(table["time"].to_pylist()) <= set(HOURS[:24])
    assert set(table["sex"].to_pylist()) == {"f", "m"}
    total = np.sum(flowveil.read_release(folder).flows["trips"].to_numpy())
    assert np.sum(table["trips"].to_numpy()) == pytest.approx(total)
    out = tmp_path / "day.csv"
    main(["reconstruct", str(folder), "--zones", "6", "--sum", "time", "--out", str(out)])
    day = csv.read_csv(out)
    names = ["origin", "origin_name", "destination", "destination_name"]
    assert day.column_names == [*names, "sex", "trips", "kind"]
    assert any("around" in name for name in day["origin_name"].to_pylist())
    assert pa.types.is_integer(day["trips"].type)
    assert np.sum(day["trips"].to_numpy()) == total
    with pytest.raises(flowveil.ParameterError, match="the dimensions time, sex; found 'day'"):
        flowveil.reconstruct(folder, 6, sum="day")


def test_omx_has_a_matrix_for_each_hour(folder, tmp_path):
    from flowveil.reading.matrices import open_omx

    out = tmp_path / "hours.omx"
    table = flowveil.reconstruct(folder, 6, sum="sex", out=out)
    with open_omx(out) as omx:
        assert "estimate_08_00" in omx.matrices
        total = sum(omx.matrices[name][:].sum() for name in omx.matrices)
    assert total == pytest.approx(np.sum(table["trips"].to_numpy()))


def test_picked_hours_keep_the_cells_that_are_completely_inside(folder, tmp_path):
    flows = flowveil.read_release(folder).flows
    spans = list(zip(*(flows[name].to_pylist() for name in ("time_from", "time_to")), strict=True))
    out = tmp_path / "picked"
    main(["derive", str(folder), "--pick", "time=06:00/12:00", "--out", str(out)])
    picked = flowveil.read_release(out).flows
    assert len(picked) == sum(a >= "06:00" and b <= "12:00" for a, b in spans) > 0
    # Alternatives together: an interval over two picked hours is inside.
    both = flowveil.derive(folder, pick=["time=08:00", "time=09:00"]).flows
    assert len(both) == sum(a >= "08:00" and b <= "10:00" for a, b in spans)
    with pytest.raises(flowveil.ParameterError, match="no slice with time = '8'"):
        flowveil.derive(folder, pick="time=8")


def test_exports_of_matrices_have_one_for_each_hour(folder):
    omx, wide = (
        flowveil.derive(folder, sum="sex", formats=name).exported(parse_formats(name)[0])
        for name in ("omx", "wide")
    )
    for export in (omx, wide):
        assert export.slice_columns == ("time",)
        names = matrices_table(export.flows, export.slice_columns)["matrix"].to_pylist()
        assert "estimate_08_00" in names
        assert all(name.startswith("estimate_") for name in names)


def test_the_estimate_of_a_folder_has_hours(folder):
    content = flowveil.derive(folder)
    table = content.estimate.table
    assert "time" in table.column_names
    low, trips, high = (table[name].to_numpy() for name in ("trips_low", "trips", "trips_high"))
    assert np.all(low <= trips + 0.01)
    assert np.all(trips <= high + 0.01)
    total = np.sum(content.flows["trips"].to_numpy())
    assert np.sum(trips) == pytest.approx(total, rel=0.01)
    answer = answer_data(content.report, content.zones, content.estimate)
    assert set(table["time"].to_pylist()) <= set(answer["times"])
    assert len(unpack(answer["first"])) == len(unpack(answer["stop"])) == len(content.flows)


def test_two_months_with_hours_share_no_trip(folder, tmp_path):
    months = {"january": "2024-01-01/2024-01-31", "february": "2024-02-01/2024-02-29"}
    picks = {"january": (), "february": ["time=00:00/12:00"], "unknown": ["time=12:00/24:00"]}
    for name, pick in picks.items():
        about = {"period": months[name]} if name in months else {}
        with unchecked():
            flowveil.derive(folder, tmp_path / name, pick=pick, **about)
    january, february, unknown = (read_release(tmp_path / name) for name in picks)
    assert incomparable(january, february) is None
    assert "folds" in (incomparable(january, unknown) or "")
    assert not confined_groups([january, february]).unchecked


def test_a_folder_read_in_python_gives_tables_and_estimates(folder):
    release = flowveil.read_release(folder)
    assert len(repr(release)) < 80
    assert release.to_polars().shape[0] == len(release.to_pandas()) == len(release.flows)
    assert len(release.to_geopandas()) == len(release.zones)
    morning = release.estimate(6, hour=8)
    assert set(morning["time"].to_pylist()) == {"08:00"}
    every = flowveil.reconstruct(folder, 6)
    assert morning.equals(every.filter(pc.equal(every["time"], "08:00")).combine_chunks())
    assert release.estimate().column_names[:3] == ["origin", "destination", "time"]
    for wrong in ({"zones": 6, "hour": 25}, {"hour": "8"}, {"hour": 8, "sum": "sex"}):
        with pytest.raises(flowveil.ParameterError):
            release.estimate(**wrong)
