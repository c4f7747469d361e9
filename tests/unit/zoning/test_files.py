"""A user's own map keeps its codes, whatever the format, and the positions of its zones."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Geod

from flowveil.core.errors import DataError, HierarchyError, MissingExtraError, ParameterError
from flowveil.zoning.files import ZoneMap, read_zones
from flowveil.zoning.restriction import restricted_tree
from reference.zones import as_dict, path_up

EARTH = Geod(ellps="WGS84")


def squares(n: int = 4, *, size: float = 0.01) -> gpd.GeoDataFrame:
    """An n by n grid of squares near Montpellier, two districts wide, with codes that look like
    numbers."""
    rows = []
    for i in range(n):
        for j in range(n):
            rows.append(
                {
                    "zone": f"00{i}{j}",
                    "name": f"Carré {i} {j}",
                    "parent": "west" if j < n / 2 else "east",
                    "geometry": shapely.box(
                        3 + j * size, 43 + i * size, 3 + (j + 1) * size, 43 + (i + 1) * size
                    ),
                }
            )
    return gpd.GeoDataFrame(rows, crs=4326)


def node(zones: ZoneMap, code: str) -> np.ndarray:
    return np.flatnonzero(zones.hierarchy.code == code).astype(np.int32)


def tile_names(zones: ZoneMap) -> np.ndarray:
    return zones.hierarchy.names[zones.hierarchy.leaf_node]


def geodesic_km2(outline) -> float:
    return abs(EARTH.geometry_area_perimeter(outline)[0]) / 1e6


def write(table: gpd.GeoDataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_file(path)
    return path


@pytest.mark.parametrize(
    "name", ["map.geojson", "map.json", "map.gpkg", "map.fgb", "map.shp", "map.zip"]
)
def test_a_map_that_is_an_order_to_read_another_file_is_refused(tmp_path, name):
    """The reader of maps goes by content: such files, from an attacker, would show any file of this
    machine."""
    secret = write(squares().drop(columns="name"), tmp_path / "secret.geojson")
    layer = f"<OGRVRTLayer name='secret'><SrcDataSource>{secret}</SrcDataSource></OGRVRTLayer>"
    order = f"<OGRVRTDataSource>{layer}</OGRVRTDataSource>"
    orders = [order]
    if name.endswith("json"):
        orders = [
            order,
            json.dumps(
                {"type": "gdal_streamed_alg", "command_line": f"gdal vector convert {secret}"}
            ),
        ]
    for text in orders:
        if name.endswith(".zip"):
            with zipfile.ZipFile(tmp_path / name, "w") as packed:
                packed.writestr("map.vrt", text)
        else:
            (tmp_path / name).write_text(text, "utf-8")
        with pytest.raises(DataError, match=r"not what its name says|no other map"):
            read_zones(tmp_path / name, tile="zone")


# ---- formats -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["geojson", "shp", "gpkg", "fgb", "parquet", "memory"])
@pytest.mark.parametrize("crs", [4326, 2154, 3857])
def test_every_format_gives_the_same_map(form, crs, tmp_path):
    table = squares()
    if form != "geojson":  # GeoJSON knows degrees alone
        table = table.to_crs(crs)
    zones = read_zones(
        table if form == "memory" else write(table, tmp_path / f"map.{form}"), root="all"
    )
    assert zones.columns == {"tile": "zone", "parent": "parent", "name": "name", "root": "all"}
    assert sorted(zones.tile_codes.tolist()) == sorted(squares()["zone"])
    assert as_dict(zones.hierarchy)["0001"] == "west"
    assert tile_names(zones)[zones.tiles_of(["0012"])[0]] == "Carré 1 2"
    where = zones.hierarchy.geography
    (tile,) = where.polygons(node(zones, "0012"))
    want = squares().set_index("zone").geometry["0012"]
    assert shapely.hausdorff_distance(tile, want) < 1e-7
    (west,) = where.polygons(node(zones, "west"))
    assert shapely.hausdorff_distance(west, shapely.box(3, 43, 3.02, 43.04)) < 1e-7
    assert west.geom_type == "Polygon"
    assert where.areas_km2(node(zones, "west"))[0] == pytest.approx(geodesic_km2(west), rel=1e-5)
    lat, lon = where.centers(node(zones, "west"))
    assert (lat[0], lon[0]) == pytest.approx((43.02, 3.01), abs=1e-5)


def test_tables_in_memory_are_taken_as_they_are():
    rows = {"code": ["01", "02", "03"], "lat": [1.0, 1.0, 5.0], "lon": [2.0, 2.1, 2.0]}
    maps = [read_zones(t) for t in (pa.table(rows), pd.DataFrame(rows), pl.DataFrame(rows), rows)]
    maps.append(read_zones(pd.DataFrame(rows).set_index("code")))
    for zones in maps:
        assert zones.hierarchy.kind == "dendrogram"
        assert as_dict(zones.hierarchy) == {
            "c2": None,
            "c1": "c2",
            "01": "c1",
            "02": "c1",
            "03": "c2",
        }
    with pytest.raises(ParameterError, match="found int"):
        read_zones(3)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "﻿"])
def test_csv_stays_text(tmp_path, separator, mark):
    path = tmp_path / "map.csv"
    lines = [
        ("zone", "parent", "name"),
        ("001", "07", "Île, petite"),
        ("01", "07", ""),
        (" 1 2", "08", "nan"),
    ]
    text = "\r\n".join(separator.join(f'"{v}"' if "," in v else v for v in line) for line in lines)
    path.write_text(mark + text, encoding="utf-8")
    zones = read_zones(path, root="all")
    assert sorted(zones.tile_codes.tolist()) == [" 1 2", "001", "01"]
    assert as_dict(zones.hierarchy) == {
        "all": None,
        "07": "all",
        "08": "all",
        "001": "07",
        "01": "07",
        " 1 2": "08",
    }
    assert dict(zip(zones.tile_codes.tolist(), tile_names(zones).tolist(), strict=True)) == {
        "001": "Île, petite", "01": "", " 1 2": "nan",
    }  # fmt: skip
    assert zones.hierarchy.geography is None
    assert zones.hierarchy.level.tolist()[0] == -1


def test_whole_numbers_never_get_a_decimal_point(tmp_path):
    gaps = pd.DataFrame({"zone": [264.0, 265.0, 1.0], "parent": [1.0, 1.0, np.nan]})
    written = tmp_path / "map.csv"
    gaps.to_csv(written, index=False)
    assert "264.0" in written.read_text()
    for source in (gaps, written, pl.DataFrame({"zone": [264, 265, 1], "parent": [1, 1, None]})):
        zones = read_zones(source)
        assert as_dict(zones.hierarchy) == {"1": None, "264": "1", "265": "1"}
    with pytest.raises(DataError, match="'zone' holds numbers that are not whole"):
        read_zones(pd.DataFrame({"zone": [1.5, 2.0], "parent": ["a", "a"]}))
    # A text column in which only some look like floats is left alone.
    zones = read_zones({"zone": ["1.0", "1"], "parent": ["a", "a"]})
    assert zones.tile_codes.tolist() == ["1", "1.0"]
    # Whatever else is requested in the same call.
    zones = read_zones({"zone": ["1.0", "1.1", "2"], "parent": ["a", "a", "a"]})
    assert zones.tiles_of(["1.0", "2.0"]).tolist() == [0, 2]
    assert zones.tiles_of(["1.0"]).tolist() == [0]
    assert zones.tiles_of(["1.1", "2", "1", "2.00", "3.0", None]).tolist() == [1, 2, -1, 2, -1, -1]


def test_tiles_of_any_column():
    zones = read_zones({"zone": ["5", "007", "x y"], "parent": ["a", "a", "a"]})
    number = {c: i for i, c in enumerate(zones.tile_codes.tolist())}
    asked = ["x y", "7", "007", None, "a", "5", "5"]
    want = [number["x y"], -1, number["007"], -1, -1, number["5"], number["5"]]
    for column in (
        asked,
        pa.array(asked),
        pa.chunked_array([asked]),
        pl.Series(asked),
        pd.Series(asked),
    ):
        got = zones.tiles_of(column)
        assert got.dtype == np.int32
        assert got.tolist() == want
    assert zones.tiles_of(pa.array(asked).dictionary_encode()).tolist() == want
    assert zones.tiles_of(np.array(["5", "x y"])).tolist() == [number["5"], number["x y"]]
    assert zones.tiles_of(np.array([5, 7])).tolist() == [number["5"], -1]
    assert zones.tiles_of(pd.Series([5.0, np.nan])).tolist() == [number["5"], -1]
    assert zones.tiles_of([]).tolist() == []


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"The file .gone\.csv. does not exist"):
        read_zones(tmp_path / "gone.csv")
    for name, content in (
        ("map.docx", b""),
        ("map.csv", b""),
        ("map.csv", b"zone,parent\n1,2,3\n"),
        ("map.csv", "zone,parent\nÎ,b\n".encode("latin-1")),
        ("map.parquet", b"no"),
        ("map.geojson", b"no"),
        ("map.csv", b"zone,parent\n"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DataError, match=name) as caught:
            read_zones(path)
        assert str(tmp_path) not in str(caught.value)


def test_several_layers_are_refused(tmp_path):
    path = tmp_path / "map.gpkg"
    squares().to_file(path, layer="zones")
    squares().to_file(path, layer="others", mode="a")
    with pytest.raises(DataError, match="2 layers: 'zones', 'others'"):
        read_zones(path)


def test_csv_and_geoparquet_need_no_extra(tmp_path, monkeypatch):
    squares().to_parquet(tmp_path / "map.parquet")
    write(squares(), tmp_path / "map.geojson")
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pyogrio', 'geopandas', 'pandas'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from flowveil.zoning.files import read_zones\n"
        f"zones = read_zones({str(tmp_path / 'map.parquet')!r}, parent='')\n"
        "print(zones.hierarchy.kind, zones.hierarchy.n_tiles)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["dendrogram", "16"]
    monkeypatch.setitem(sys.modules, "pyogrio", None)
    with pytest.raises(MissingExtraError, match=r"flowveil\[zones\]"):
        read_zones(tmp_path / "map.geojson")


# ---- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "tile"),
    [
        (("LocationID", "borough"), "LocationID"),
        (("geo_code", "lad11cd"), "geo_code"),
        (("MSOA11CD", "MSOA11NM"), "MSOA11CD"),
        (("CODE_IRIS", "x"), "CODE_IRIS"),
        (("Zone ID", "x"), "Zone ID"),
    ],
)
def test_usual_names_are_recognised(names, tile):
    zones = read_zones(
        {names[0]: ["1", "2"], names[1]: ["n", "m"], "Latitude": [1.0, 2.0], "lng": [1.0, 2.0]}
    )
    assert zones.columns["tile"] == tile
    assert (zones.columns["lat"], zones.columns["lon"]) == ("Latitude", "lng")
    assert zones.columns.get("name") == ("MSOA11NM" if "MSOA11NM" in names else None)


def test_a_guess_that_could_be_wrong_is_not_made():
    rows = {"LocationID": ["1", "2"], "zone": ["A", "B"], "lat": [1.0, 2.0], "lon": [1.0, 2.0]}
    with pytest.raises(DataError, match="Several columns could be the tile: 'LocationID', 'zone'"):
        read_zones(rows)
    assert read_zones(rows, tile="zone").tile_codes.tolist() == ["A", "B"]
    assert tile_names(read_zones(rows, tile="LocationID", name="zone")).tolist() == ["A", "B"]
    with pytest.raises(DataError, match="Several columns could be the lat: 'lat', 'latitude'"):
        read_zones({"zone": ["1"], "lat": [1.0], "latitude": [1.0], "lon": [1.0]})
    with pytest.raises(
        DataError, match=r"'locationid'\. Did you mean 'LocationID'\?\nThe table has"
    ):
        read_zones(rows, tile="locationid")
    with pytest.raises(DataError, match="codes is not recognised"):
        read_zones({"what": ["1"], "lat": [1.0], "lon": [1.0]})
    with pytest.raises(DataError, match="neither a parent column, nor coordinates, nor outlines"):
        read_zones({"zone": ["1"], "lat": [1.0]})
    with pytest.raises(DataError, match="Several columns are called"):
        read_zones(pa.table([["1"], ["2"], ["p"]], names=["zone", "zone", "parent"]), tile="zone")


def test_arguments_that_contradict_each_other():
    rows = {"zone": ["1", "2"], "a": ["x", "x"], "lat": [1.0, 2.0], "lon": [1.0, 2.0]}
    for wrong, why in (
        ({"levels": "a,zone", "parent": "a"}, "Both levels and parent"),
        ({"lat": "lat"}, "go together"),
        ({"lat": "", "lon": "lon"}, "go together"),
        ({"levels": ["zone", "a"], "tile": "zone"}, "finest of levels"),
        ({"levels": ["a", "a"], "tile": "zone"}, "twice in levels"),
        ({"root": "all"}, "dendrogram has its own root"),
    ):
        with pytest.raises(ParameterError, match=why):
            read_zones(rows, **wrong)
    for levels in ("a,zone", ["a", "zone"], "a"):
        zones = read_zones(rows, levels=levels, tile="zone")
        assert as_dict(zones.hierarchy) == {"x": None, "1": "x", "2": "x"}
        assert zones.hierarchy.kind == "table"


def test_rows_without_a_code_are_counted():
    with pytest.raises(DataError, match=r"2 rows without a code in 'zone' \(rows 2, 3\)"):
        read_zones({"zone": ["1", None, "  "], "parent": ["a", "a", "a"]})


def test_errors_of_the_tree_come_through():
    with pytest.raises(HierarchyError, match="2 roots"):
        read_zones({"zone": ["1", "2"], "parent": ["a", "b"]})


# ---- places --------------------------------------------------------------------------------------


def test_rows_of_one_code_are_parts_of_one_tile():
    table = squares(2)
    table.loc[1, "zone"] = "0000"
    table["parent"] = "p"
    zones, again = read_zones(table), read_zones(table.iloc[::-1])
    (tile,) = zones.hierarchy.geography.polygons(node(zones, "0000"))
    assert tile.equals(shapely.box(3, 43, 3.02, 43.01))
    assert tile.equals_exact(again.hierarchy.geography.polygons(node(zones, "0000"))[0], 0)
    points = pd.DataFrame({"zone": ["a", "a", "b"], "lat": [1.0, 3.0, 9.0], "lon": [5.0, 5.0, 9.0]})
    zones = read_zones(points)
    lat, lon = zones.hierarchy.geography.centers(node(zones, "a"))
    assert (lat[0], lon[0]) == pytest.approx((2.0, 5.0))


def test_the_order_of_the_rows_does_not_show_in_a_digit():
    rng = np.random.default_rng(11)
    points = pd.DataFrame(
        {
            "zone": rng.integers(0, 6, 300),
            "lat": rng.normal(48, 1, 300),
            "lon": rng.normal(2, 1, 300),
        }
    )
    one, other = (read_zones(t).hierarchy for t in (points, points.sample(frac=1, random_state=4)))
    nodes = np.arange(one.n_nodes, dtype=np.int32)
    assert as_dict(one) == as_dict(other)
    assert np.array_equal(one.geography.centers(nodes), other.geography.centers(nodes))
    assert (
        shapely.to_wkb(one.geography.polygons(nodes)).tolist()
        == shapely.to_wkb(other.geography.polygons(nodes)).tolist()
    )


def test_invalid_outlines_are_repaired():
    bow = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    table = gpd.GeoDataFrame(
        {"zone": ["bow", "box"]}, geometry=[bow, shapely.box(2, 0, 3, 1)], crs=4326
    )
    zones = read_zones(table)
    outlines = zones.hierarchy.geography.polygons(np.arange(3, dtype=np.int32))
    assert shapely.is_valid(outlines).all()
    at = node(zones, "bow")
    assert zones.hierarchy.geography.areas_km2(at)[0] == pytest.approx(
        geodesic_km2(shapely.box(0, 0, 1, 1)) / 2, rel=1e-3
    )


def test_outlines_without_area_or_reference_system_are_refused():
    line = shapely.Polygon([(0, 0), (1, 1), (0, 0)])
    table = gpd.GeoDataFrame(
        {"zone": ["flat", "box"]}, geometry=[line, shapely.box(2, 0, 3, 1)], crs=4326
    )
    with pytest.raises(DataError, match="'flat'"):
        read_zones(table)
    table = gpd.GeoDataFrame(
        {"zone": ["none", "box"]}, geometry=[None, shapely.box(2, 0, 3, 1)], crs=4326
    )
    with pytest.raises(DataError, match="1 have no coordinates: 'none'"):
        read_zones(table)
    lambert = squares().to_crs(2154).set_crs(None, allow_override=True)
    with pytest.raises(DataError, match="does not say its coordinate reference system"):
        read_zones(lambert, root="all")
    degrees = squares().set_crs(None, allow_override=True)
    assert read_zones(degrees, root="all").hierarchy.geography is not None


def test_named_coordinates_replace_centroids_and_empty_ones_the_map():
    table = squares(2)
    table["y"], table["x"] = 43.001, 3.001
    zones = read_zones(table, lat="y", lon="x", parent="")
    lat, lon = zones.hierarchy.geography.centers(node(zones, "0011"))
    assert (lat[0], lon[0]) == (43.001, 3.001)
    assert zones.hierarchy.geography.areas_km2(node(zones, "0011"))[0] == pytest.approx(
        0.9, rel=0.01
    )
    assert read_zones(table, lat="", lon="", root="all").hierarchy.geography is None


def test_gaps_between_neighbours_are_closed_and_lakes_are_not():
    left = shapely.Polygon([(0, 0), (1, 0), (1, 0.4), (0.9999, 0.5), (1, 0.6), (1, 1), (0, 1)])
    lake = shapely.box(1.4, 0.4, 1.6, 0.6)
    right = shapely.difference(shapely.box(1, 0, 2, 1), lake)
    island = shapely.box(1.45, 0.45, 1.55, 0.55)
    table = gpd.GeoDataFrame(
        {"zone": ["l", "r", "i"], "parent": ["p", "p", "q"]},
        geometry=[left, right, island],
        crs=4326,
    )
    zones = read_zones(table, root="all")
    (outline,) = zones.hierarchy.geography.polygons(node(zones, "p"))
    assert len(outline.interiors) == 1
    assert outline.equals(shapely.difference(shapely.box(0, 0, 2, 1), lake))


def test_points_get_the_cells_that_are_nearest_to_them():
    rng = np.random.default_rng(5)
    lat, lon = rng.normal(48.8, 0.05, 60), rng.normal(2.3, 0.05, 60)
    lat[1], lon[1] = lat[0], lon[0]
    zones = read_zones({"station": [f"{i:02d}" for i in range(60)], "lat": lat, "lon": lon})
    tree, where = zones.hierarchy, zones.hierarchy.geography
    cells = where.polygons(tree.leaf_node)
    order = [int(c) for c in zones.tile_codes]
    assert shapely.contains(cells, shapely.points(lon[order], lat[order])).all()
    (whole,) = where.polygons(np.array([0], dtype=np.int32))
    total = where.areas_km2(np.array([0], dtype=np.int32))[0]
    assert total == pytest.approx(geodesic_km2(whole), rel=1e-3)
    assert where.areas_km2(tree.leaf_node).sum() == pytest.approx(total)
    center_lat, center_lon = where.centers(np.array([0], dtype=np.int32))
    assert (center_lat[0], center_lon[0]) == pytest.approx((lat.mean(), lon.mean()), abs=1e-5)


@pytest.mark.parametrize(
    ("lat", "lon"),
    [
        ([48.0], [2.0]),
        ([48.0, 48.0], [2.0, 2.0]),
        ([48.0, 48.1], [2.0, 2.0]),
        ([48.0, 48.1, 48.2, 48.3], [2.0, 2.0, 2.0, 2.0]),
        ([-17.0, -17.0, -17.1], [179.95, -179.95, 179.9]),
        ([0.0, 50.0, -50.0, 10.0], [0.0, 120.0, -120.0, 179.0]),
    ],
)
def test_few_or_far_points_have_cells_too(lat, lon):
    zones = read_zones({"id": [f"{i}" for i in range(len(lat))], "lat": lat, "lon": lon})
    nodes = np.arange(zones.hierarchy.n_nodes, dtype=np.int32)
    where = zones.hierarchy.geography
    outlines = where.polygons(nodes)
    assert shapely.is_valid(outlines).all()
    west, _, east, _ = shapely.total_bounds(outlines)
    assert -180 <= west < east <= 180
    assert (where.areas_km2(nodes) > 0).all()
    tiles = [int(c) for c in zones.tile_codes]
    cells = where.polygons(zones.hierarchy.leaf_node)
    assert shapely.intersects(
        cells, shapely.points(np.array(lon)[tiles], np.array(lat)[tiles])
    ).all()


def test_coordinates_with_a_decimal_comma(tmp_path):
    path = tmp_path / "map.csv"
    path.write_text("zone;lat;lon\n1;48,5;2,25\n2;48,6;2,3\n")
    zones = read_zones(path)
    assert zones.hierarchy.geography.places.lat.tolist() == [48.5, 48.6]
    path.write_text("zone,lat,lon\n1,north,2\n")
    with pytest.raises(DataError, match="'lat' holds something that is not a number"):
        read_zones(path)


# ---- restriction ---------------------------------------------------------------------------------


def restrict(zones, tiles):
    return replace(zones, tree=restricted_tree(zones.hierarchy, tiles))


@st.composite
def maps_and_tiles(draw):
    rows = draw(st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=15, unique=True))
    codes = [["L" + "-".join(map(str, r[: i + 1])) for r in rows] for i in range(3)]
    some = draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=10))
    return {"region": codes[0], "dept": codes[1], "zone": codes[2]}, some


@settings(max_examples=40, deadline=None)
@given(maps_and_tiles())
def test_restricting_equals_building_from_the_rows_that_are_left(case):
    columns, some = case
    whole = read_zones(columns, levels="region,dept,zone")
    tiles = whole.tiles_of([columns["zone"][i] for i in some])
    left = {name: [values[i] for i in some] for name, values in columns.items()}
    got, want = (
        restrict(whole, tiles).hierarchy,
        read_zones(left, levels="region,dept,zone").hierarchy,
    )
    assert got.code.tolist() == want.code.tolist()
    assert got.parent.tolist() == want.parent.tolist()
    assert got.level.tolist() == want.level.tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 25), st.integers(0, 10**6), st.booleans())
def test_what_is_left_keeps_its_place(n, seed, twice):
    rng = np.random.default_rng(seed)
    table = {
        "zone": [f"{i:02d}" for i in range(n)],
        "lat": rng.normal(48, 1, n),
        "lon": rng.normal(2, 1, n),
    }
    table["name"] = [f"name of {z}" for z in table["zone"]]
    whole = read_zones(table)
    some = rng.integers(0, n, rng.integers(1, n + 1))
    part = restrict(whole, some)
    if twice:
        keep = rng.integers(0, part.hierarchy.n_tiles, 3)
        some, part = (
            np.flatnonzero(np.isin(whole.tile_codes, part.tile_codes[keep])),
            restrict(part, keep),
        )
    want = sorted({str(whole.tile_codes[i]) for i in some})
    assert sorted(part.tile_codes.tolist()) == want
    # Tile order is that of the whole map.
    numbers = whole.tiles_of(part.tile_codes)
    assert np.all(np.diff(numbers) > 0)
    above = as_dict(whole.hierarchy)
    paths = {code: path_up(as_dict(part.hierarchy), code) for code in want}
    for code, path in paths.items():
        assert path == path_up(above, code)[: len(path)]
    assert set(part.hierarchy.code.tolist()) == {c for path in paths.values() for c in path}
    assert len(want) == 1 or part.hierarchy.n_children[0] > 1
    here = np.arange(part.hierarchy.n_nodes, dtype=np.int32)
    there = np.array([node(whole, c)[0] for c in part.hierarchy.code.tolist()], dtype=np.int32)
    one, other = part.hierarchy.geography, whole.hierarchy.geography
    assert np.array_equal(one.centers(here), other.centers(there))
    assert np.array_equal(one.areas_km2(here), other.areas_km2(there))
    assert part.hierarchy.names.tolist() == whole.hierarchy.names[there].tolist()
    assert part.hierarchy.level.tolist() == whole.hierarchy.level[there].tolist()


def test_an_outline_does_not_tell_which_tiles_were_seen():
    whole = read_zones(squares(), root="all")
    (full,) = whole.hierarchy.geography.polygons(node(whole, "west"))
    part = restrict(whole, whole.tiles_of(["0000", "0031", "0003"]))
    (seen,) = part.hierarchy.geography.polygons(node(part, "west"))
    assert seen.equals(full)
    assert part.hierarchy.size[node(part, "west")][0] == 2


def test_restricting_to_nothing_is_refused():
    zones = read_zones({"zone": ["1", "2"], "parent": ["a", "a"]})
    with pytest.raises(DataError, match="restricted to no tiles"):
        restrict(zones, [])


# ---- real maps -----------------------------------------------------------------------------------


@pytest.mark.real
def test_taxi_zones_from_three_files(shared_data):
    folder = shared_data / "nyc_green_taxi_zones"
    drawn = read_zones(
        folder / "taxi_zones" / "taxi_zones.shp", levels="borough", tile="LocationID", name="zone"
    )
    for file in ("zones.geojson", "zones.csv"):
        other = read_zones(folder / file, levels="borough", tile="LocationID", name="zone")
        assert as_dict(other.hierarchy) == as_dict(drawn.hierarchy)
        assert tile_names(other).tolist() == tile_names(drawn).tolist()
    assert drawn.hierarchy.n_tiles == 260
    assert drawn.tiles_of([264, 265, 1]).tolist()[:2] == [-1, -1]
    where = drawn.hierarchy.geography
    assert where.areas_km2(node(drawn, "Manhattan"))[0] == pytest.approx(59, rel=0.02)
    dendrogram = read_zones(folder / "zones.geojson", tile="LocationID").hierarchy
    assert (dendrogram.n_nodes, dendrogram.kind) == (519, "dendrogram")
    # Newark stands alone until late; its neighbours are Staten Island's.
    up = path_up(as_dict(dendrogram), "1")
    assert int(up[1][1:]) > 200


@pytest.mark.real
def test_a_survey_keeps_its_zeros(shared_data):
    path = shared_data / "montpellier_emd" / "zone_hierarchy.csv"
    zones = read_zones(path, levels=["sector", "zone"])
    assert zones.hierarchy.n_tiles == 1270
    assert as_dict(zones.hierarchy)["001001"] == "001"
    with pytest.raises(HierarchyError, match=r"64 rows without a 'dept' \(orphans\)"):
        read_zones(path, levels=["dept", "commune_insee", "zone"])


@pytest.mark.real
def test_census_zones(shared_data):
    for file, n in (("leeds/si_zones.geojson", 107), ("bristol/bristol_zones.geojson", 102)):
        zones = read_zones(shared_data / file)
        assert zones.hierarchy.n_tiles == n
        assert zones.columns["tile"] == "geo_code"
        features = json.loads((shared_data / file).read_text(encoding="utf-8"))["features"]
        want = [f["properties"]["geo_code"] for f in features]
        assert (zones.tiles_of(want) >= 0).all()
        total = zones.hierarchy.geography.areas_km2(np.array([0], dtype=np.int32))[0]
        assert total == pytest.approx(
            sum(geodesic_km2(shapely.geometry.shape(f["geometry"])) for f in features), rel=1e-4
        )


def test_fields_of_a_shapefile_are_shown_whatever_they_are_called(tmp_path):
    import geopandas
    import shapely

    fields = {f"TTS{number}": ["1", "2"] for number in range(120, 126)}
    frame = geopandas.GeoDataFrame(
        fields, geometry=[shapely.box(0, 0, 1, 1), shapely.box(1, 0, 2, 1)], crs="EPSG:4326"
    )
    frame.to_file(tmp_path / "zones.shp")
    with pytest.raises(DataError, match=r"'TTS120', 'TTS121'.*Hint: name it with"):
        read_zones(tmp_path / "zones.shp")
