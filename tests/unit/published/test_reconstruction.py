"""Published cells spread over areas of choice, from the folder alone."""

from __future__ import annotations

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyarrow import csv

import flowveil
from conftest import trip_table
from flowveil.apps.cli import main
from samples.drafts import unchecked


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """A reader who spreads the cells has the files, not the input."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    flows = flowveil.read_trips(trip_table(), resolution=8, weight="weight")
    return flowveil.anonymize(flows, "odkanon", k=5, protect="trips").write(
        tmp_path_factory.mktemp("r") / "r"
    )


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".omx"])
def test_the_command_writes_what_python_returns_and_no_trip_is_lost(folder, tmp_path, suffix):
    out = tmp_path / f"table{suffix}"
    main(["reconstruct", str(folder), "--zones", "7", "--out", str(out)])
    table = flowveil.reconstruct(folder, 7)
    published = pq.read_table(folder / "flows.parquet")
    for name in ("trips", "weight"):
        assert np.sum(table[name].to_numpy()) == pytest.approx(np.sum(published[name].to_numpy()))
    if suffix == ".parquet":
        written = pq.read_table(out)
        assert written.drop_columns(["kind"]).equals(table)
        assert set(written["kind"].to_pylist()) == {"estimate"}
    elif suffix == ".csv":
        assert set(csv.read_csv(out)["kind"].to_pylist()) == {"estimate"}
        whole = flowveil.reconstruct(folder, 7, whole=True)
        assert csv.read_csv(out)["trips"].equals(whole["trips"])
    else:
        from flowveil.reading.matrices import open_omx

        with open_omx(out) as omx:
            assert omx.matrices["estimate"][:].sum() == pytest.approx(
                np.sum(table["trips"].to_numpy())
            )


def test_a_cell_is_spread_evenly_over_its_tiles(tmp_path):
    import h3

    flows = flowveil.read_trips(trip_table(), resolution=6)
    folder = flowveil.anonymize(flows, "suppression", k=5, protect="trips").write(tmp_path / "r")
    table = flowveil.reconstruct(folder, 4).to_pylist()
    want: dict[tuple[str, str], float] = {}
    for row in pq.read_table(folder / "flows.parquet").to_pylist():
        pair = tuple(h3.cell_to_parent(row[f"{end}_zone"], 4) for end in ("origin", "destination"))
        want[pair] = want.get(pair, 0) + row["trips"]
    assert {(r["origin"], r["destination"]): r["trips"] for r in table} == want


def test_a_map_of_ones_own_gives_its_tiles(tmp_path):
    zones = pa.table(
        {"zone": [f"z{i}" for i in range(8)], "lat": np.arange(8) / 50, "lon": np.zeros(8)}
    )
    rng = np.random.default_rng(1)
    ends = [[f"z{min(i, 6)}" for i in rng.geometric(0.4, 200)] for _ in range(2)]
    trips = pa.table({"o": ends[0], "d": ends[1]})
    flows = flowveil.read_trips(trips, origin_tile="o", destination_tile="d", zones=zones)
    folder = flowveil.anonymize(flows, "twincut", k=10).write(tmp_path / "r")
    found = {
        (r["origin"], r["destination"]): r["trips"]
        for r in flowveil.reconstruct(folder, zones, decay=False).to_pylist()
    }
    lookup = csv.read_csv(folder / "lookup.csv").to_pylist()
    tiles = {
        end: {
            z: [r["tile"] for r in lookup if r["zone"] == z and r["role"] in (end, "both")]
            for z in {r["zone"] for r in lookup}
        }
        for end in ("origin", "destination")
    }
    want: dict[tuple[str, str], float] = {}
    for row in pq.read_table(folder / "flows.parquet").to_pylist():
        pairs = [
            (o, d)
            for o in tiles["origin"][row["origin_zone"]]
            for d in tiles["destination"][row["destination_zone"]]
        ]
        for pair in pairs:
            want[pair] = want.get(pair, 0) + row["trips"] / len(pairs)
    assert found == pytest.approx(want)
    with pytest.raises(flowveil.ParameterError, match="on the operator's map"):
        flowveil.reconstruct(folder, 5)


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """A release in layers, and one of boxes, with a period."""
    place = tmp_path_factory.mktemp("kinds")
    flows = flowveil.read_trips(trip_table(1500), resolution=8, weight="weight")
    for method in ("layercut", "curvecut"):
        release = flowveil.anonymize(flows, method, k=5, protect="trips")
        release.write(place / method, period="2024-01-01/2024-01-07")
    centre = pa.table({"lat": [48.86], "lon": [2.35], "population": [1000]})
    pq.write_table(centre, place / "population.parquet")
    west = shapely.box(0, 40, 2.35, 60)
    x, y = (a.ravel() / 40 for a in np.meshgrid(range(88, 100), range(1948, 1960)))
    squares = shapely.box(x, y, x + 0.025, y + 0.025)
    for name, shapes in (("land", [west]), ("taz", squares)):
        codes = [f"{name}{n}" for n in range(len(shapes))]
        geopandas.GeoDataFrame({"code": codes}, geometry=shapes, crs=4326).to_file(
            place / f"{name}.geojson"
        )
    return place


@pytest.mark.parametrize("method", ["layercut", "curvecut"])
@pytest.mark.parametrize("zones", ["7", "taz.geojson"])
@pytest.mark.slow
def test_every_option_works_from_the_folder_alone(releases, tmp_path, method, zones):
    def estimate(*options, suffix=".parquet"):
        out, where = (
            tmp_path / f"table{suffix}",
            (zones if zones.isdecimal() else str(releases / zones)),
        )
        main(["reconstruct", str(releases / method), "--zones", where, *options, "--out", str(out)])
        return pq.read_table(out) if suffix == ".parquet" else out

    plain = estimate()
    published = pq.read_table(releases / method / "flows.parquet")["trips"].to_numpy().sum()
    assert plain["trips"].to_numpy().sum() == pytest.approx(published)
    assert not estimate("--no-decay").equals(plain)
    for name in ("land.geojson", "population.parquet"):
        assert not estimate(f"--{name.split('.')[0]}", str(releases / name)).equals(plain)
    assert estimate("--per", "day")["trips"].to_numpy() * 7 == pytest.approx(
        plain["trips"].to_numpy()
    )
    for further in ((), ("--per", "day")):
        whole = estimate("--whole", "--bounds", *further)
        low, trips, high = (whole[name].to_numpy() for name in ("trips_low", "trips", "trips_high"))
        assert pa.types.is_integer(whole["trips"].type)
        assert (low <= trips).all()
        assert (trips <= high).all()
        assert trips.sum() == pytest.approx(published / (7 if further else 1), abs=0.51)
    area = plain["origin"][0].as_py()
    csv.write_csv(pa.table({"area": [area], "origins": [50.0]}), tmp_path / "totals.csv")
    scaled = estimate("--totals", str(tmp_path / "totals.csv"))
    assert sum(r["trips"] for r in scaled.to_pylist() if r["origin"] == area) == pytest.approx(50)
    assert geopandas.read_file(estimate(suffix=".gpkg"), layer="flows")[
        "kind"
    ].unique().tolist() == ["estimate"]
    assert estimate(suffix=".omx").stat().st_size > 0
