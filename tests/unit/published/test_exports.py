"""Every export is read by those it is for, and carries the rows of the release, no more and no
less."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import geopandas
import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import flowveil
from flowveil.core.errors import MissingExtraError, ParameterError
from flowveil.published.exports import FORMATS, parse_formats
from flowveil.published.matrices import list_matrices
from flowveil.publishing.publish import publish
from samples.drafts import unchecked
from samples.releases import (
    city_flows,
    content,
    edit_table,
    read_json,
    region_flows,
    rehash,
    release_of,
)
from samples.segmented import survey
from samples.verified import findings_of

#: The format dcat names who publishes.
CONTACT = {"contact": "Data office, data@example.org"}


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """One test verifies the folder that all look at."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def release():
    return release_of(city_flows(), budget="volume")


@pytest.fixture(scope="module")
def folder(release, tmp_path_factory):
    return publish(
        release, tmp_path_factory.mktemp("exports") / "out", formats=list(FORMATS), **CONTACT
    )


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "out")


def as_rows(table: pa.Table) -> list[tuple]:
    return sorted(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def rows_of(folder):
    return pq.read_table(folder / "flows.parquet")


def test_the_folder_lists_and_hashes_every_export(folder):
    names = {name for f in FORMATS.values() for name in f.files}
    assert names < {p.name for p in folder.iterdir()}
    assert names < set(read_json(folder / "manifest.json")["sha256"])
    assert (
        f"--format {','.join(FORMATS)}" in read_json(folder / "report.json")["published"]["command"]
    )


def test_the_same_release_gives_the_same_bytes(release, folder, tmp_path):
    again = publish(release, tmp_path / "again", formats=",".join(FORMATS), **CONTACT)
    assert content(again) == content(folder)


def test_csv(folder):
    with open(folder / "flows.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("origin_zone", "origin_name", "origin_size"),
        *("destination_zone", "destination_name", "destination_size"),
        *("trips", "weight"),
    ]
    assert all(row["origin_name"] and row["origin_size"].endswith((" km²", " ha")) for row in rows)
    found = sorted(
        (r["origin_zone"], r["destination_zone"], int(r["trips"]), float(r["weight"])) for r in rows
    )
    assert found == as_rows(rows_of(folder))
    with open(folder / "zones.csv", encoding="utf-8", newline="") as file:
        zones = list(csv.DictReader(file))
    expected = geopandas.read_parquet(folder / "zones.parquet")
    assert [z["zone"] for z in zones] == expected["zone"].tolist()
    shapes = shapely.from_wkt([z["geometry"] for z in zones])
    assert shapely.equals_exact(shapes, expected.geometry.to_numpy(), tolerance=1e-6).all()


@pytest.mark.parametrize(("name", "layer"), [("{}.geojson", None), ("release.gpkg", "{}")])
def test_geopandas_reads_zones_and_flows(folder, name, layer):
    frames = {
        kind: geopandas.read_file(
            folder / name.format(kind), **({} if layer is None else {"layer": kind})
        )
        for kind in ("flows", "zones")
    }
    flows, zones = frames["flows"], frames["zones"]
    assert flows.crs.equals("EPSG:4326")
    assert zones.crs.equals("EPSG:4326")
    columns = ["origin_zone", "destination_zone", "trips", "weight"]
    assert sorted(flows[columns].itertuples(index=False, name=None)) == as_rows(rows_of(folder))
    assert set(flows.geom_type) == {"LineString"}
    expected = geopandas.read_parquet(folder / "zones.parquet")
    assert (
        zones[["zone", "role", "tiles"]].to_numpy().tolist()
        == expected[["zone", "role", "tiles"]].to_numpy().tolist()
    )
    assert np.allclose(
        shapely.area(zones.geometry.to_numpy()),
        shapely.area(expected.geometry.to_numpy()),
        rtol=1e-5,
    )
    center = dict(
        zip(expected["zone"], zip(expected["lon"], expected["lat"], strict=True), strict=True)
    )
    first = flows.iloc[0]
    assert np.allclose(first.geometry.coords[0], center[first.origin_zone], atol=1e-6)
    assert np.allclose(first.geometry.coords[1], center[first.destination_zone], atol=1e-6)


def test_openmatrix_reads_the_square_and_its_lookup(folder):
    openmatrix = pytest.importorskip("openmatrix")
    with openmatrix.open_file(str(folder / "flows.omx"), "r") as file:
        assert file.version() == b"0.2"
        assert sorted(file.list_matrices()) == ["trips", "weight"]
        assert {"index", "zone"} <= set(file.list_mappings())
        index = file.mapping("index")
        codes = [code.decode() for code in file.map_entries("zone")]
        assert list(index) == list(range(1, len(codes) + 1))
        assert tuple(file.shape()) == (len(codes), len(codes))
        trips, weight = np.array(file["trips"]), np.array(file["weight"])
    with open(folder / "omx_zones.csv", encoding="utf-8", newline="") as file:
        assert [(int(r["row"]), r["zone"]) for r in csv.DictReader(file)] == list(
            enumerate(codes, start=1)
        )
    o, d = np.nonzero(trips)
    found = sorted(
        (codes[i], codes[j], int(trips[i, j]), weight[i, j]) for i, j in zip(o, d, strict=True)
    )
    assert found == as_rows(rows_of(folder))


def test_flowmap_has_the_documented_columns(folder):
    with open(folder / "flowmap_locations.csv", encoding="utf-8", newline="") as file:
        locations = list(csv.DictReader(file))
    with open(folder / "flowmap_flows.csv", encoding="utf-8", newline="") as file:
        flows = list(csv.DictReader(file))
    assert list(locations[0]) == ["id", "name", "lat", "lon"]
    assert list(flows[0]) == ["origin", "dest", "count"]
    ids = [place["id"] for place in locations]
    assert len(ids) == len(set(ids))
    assert {f["origin"] for f in flows} | {f["dest"] for f in flows} == set(ids)
    assert sorted((f["origin"], f["dest"], int(f["count"])) for f in flows) == as_rows(
        rows_of(folder).drop(["weight"])
    )
    assert all(-90 <= float(p["lat"]) <= 90 and -180 <= float(p["lon"]) <= 180 for p in locations)


def test_kepler_has_data_and_a_configuration_that_fit(folder):
    content = json.loads((folder / "kepler.json").read_text(encoding="utf-8"))
    sets = {entry["data"]["id"]: entry["data"] for entry in content["datasets"]}
    assert all(entry["version"] == "v1" for entry in content["datasets"])
    for data in sets.values():
        assert all(len(row) == len(data["fields"]) for row in data["allData"])
    names = [field["name"] for field in sets["flows"]["fields"]]
    rows = [dict(zip(names, row, strict=True)) for row in sets["flows"]["allData"]]
    found = sorted((r["origin_zone"], r["destination_zone"], r["trips"], r["weight"]) for r in rows)
    assert found == as_rows(rows_of(folder))
    for layer in content["config"]["config"]["visState"]["layers"]:
        known = {field["name"] for field in sets[layer["config"]["dataId"]]["fields"]}
        assert set(layer["config"]["columns"].values()) <= known


def test_arrow(folder):
    for name in ("flows", "zones"):
        with pa.memory_map(str(folder / f"{name}.arrow")) as file:
            table = pq.read_table(folder / f"{name}.parquet")
            shown = pa.ipc.open_file(file).read_all()
            kept = [column for column in table.column_names if column not in ("bbox", "name")]
            assert shown.select(kept).equals(table.select(kept))
            # Names stand next to codes.
            assert {column for column in shown.column_names if column.endswith("name")}


# ---- the recount ---------------------------------------------------------------------------------


def test_a_release_with_exports_holds(release, folder):
    assert findings_of(folder, release.input) == []


def _csv_value(folder):
    path = folder / "flows.csv"
    first, second, *rest = path.read_text(encoding="utf-8").splitlines()
    *cells, trips, weight = second.split(",")
    cells += [str(int(trips) + 1), weight]
    path.write_text("\n".join([first, ",".join(cells), *rest]) + "\n", encoding="utf-8")


def _csv_row(folder):
    path = folder / "flowmap_flows.csv"
    path.write_text(path.read_text(encoding="utf-8") + '"secret","place",1\n', encoding="utf-8")


def _geojson_column(folder):
    path = folder / "flows.geojson"
    content = json.loads(path.read_text(encoding="utf-8"))
    for feature in content["features"]:
        feature["properties"]["people"] = 3
    path.write_text(json.dumps(content), encoding="utf-8")


def _kepler_zone(folder):
    path = folder / "kepler.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["datasets"][1]["data"]["allData"].pop()
    path.write_text(json.dumps(content), encoding="utf-8")


TAMPERED = {
    "flows.csv": (_csv_value, "1 of its flows have another trips than the release"),
    "flowmap_flows.csv": (_csv_row, "its flows are not those of the release"),
    "flows.geojson": (_geojson_column, "has 1 columns that a release does not have"),
    "kepler.json": (_kepler_zone, "its zones are not those of the release"),
}


def test_exports_that_say_something_else_are_found(release, copy):
    for change, _ in TAMPERED.values():
        change(copy)
    for _ in range(2):
        findings = findings_of(copy, release.input)
        assert {line.partition(":")[0] for line in findings} - {"manifest.json"} == set(TAMPERED)
        assert "secret" not in str(findings)
        rehash(copy)


def test_an_export_that_is_not_listed_is_extra_and_one_that_is_listed_must_be_there(release, copy):
    manifest = read_json(copy / "manifest.json")
    del manifest["sha256"]["flows.csv"]
    (copy / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (copy / "flows.arrow").unlink()
    assert {line.partition(":")[0] for line in findings_of(copy, release.input)} == {
        "flows.arrow",
        "flows.csv",
    }


def test_an_export_of_a_changed_matrix_is_found(release, copy):
    edit_table(copy, "flows.parquet", lambda rows: rows[1:])
    found = {line.partition(":")[0] for line in findings_of(copy, release.input)}
    assert {"flows.csv", "flows.geojson", "flows.arrow", "flows.omx", "release.gpkg"} <= found


# ---- what cannot be written ----------------------------------------------------------------------


def test_unknown_formats_and_maps_that_are_not_there(tmp_path):
    with pytest.raises(
        ParameterError, match=r"Unknown format 'cvs'; allowed: parquet, csv.*Did you mean 'csv'"
    ):
        parse_formats("parquet,cvs")
    assert [f.name for f in parse_formats(("csv, CSV", "parquet", "omx"))] == ["csv", "omx"]
    nowhere = release_of(region_flows(), budget="volume")
    for name in ("geojson", "gpkg", "flowmap", "kepler"):
        with pytest.raises(ParameterError, match="no place on a map"):
            nowhere.write(tmp_path / "out", formats=name)
    assert list(tmp_path.iterdir()) == []
    out = nowhere.write(tmp_path / "out", formats="csv,omx,arrow")
    assert findings_of(out, nowhere.input) == []


def test_a_missing_library_is_named_with_its_extra(release, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match=r"flowveil\[exports\]"):
        release.write(tmp_path / "out", formats="omx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["h3", "map"])
def test_omx_of_layers_is_the_estimate_and_is_rebuilt(kind, tmp_path):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(5)
    columns = {
        f"{end}_{x}": y + rng.normal(0, 0.05, 600)
        for end in "od"
        for x, y in (("lat", 48.85), ("lon", 2.35))
    }
    pq.write_table(pa.table(columns), tmp_path / "trips.parquet")
    reading, given = {"resolution": 8}, {}
    if kind == "map":
        x, y = (a.ravel() / 25 for a in np.meshgrid(range(51, 67), range(1215, 1230)))
        boxes = shapely.box(x, y, x + 0.04, y + 0.04)
        geopandas.GeoDataFrame(
            {"code": [f"t{i:03d}" for i in range(len(x))]}, geometry=boxes, crs=4326
        ).to_file(tmp_path / "map.geojson")
        given = {"zones": tmp_path / "map.geojson"}
        reading = {"zones": flowveil.read_zones(given["zones"])}
    ends = {"origin": ("o_lat", "o_lon"), "destination": ("d_lat", "d_lon")}
    trips = flowveil.read_trips(tmp_path / "trips.parquet", **ends, **reading)
    folder = flowveil.anonymize(trips, "layercut", k=10).write(tmp_path / "out", formats="omx")
    published = pq.read_table(folder / "flows.parquet")
    assert max(published["layer"].to_pylist()) > 1
    with h5py.File(folder / "flows.omx") as file:
        assert list(file["data"]) == ["estimate"]
        assert file.attrs["ZERO_MEANS"] == b"no trip is estimated"
        codes, estimate = (
            # The lookup has the name of the codes on the map.
            [code.decode() for code in file[f"lookup/{'code' if given else 'zone'}"][:]],
            file["data/estimate"][:],
        )
    assert estimate.sum() == pytest.approx(sum(published["trips"].to_pylist()))
    if kind == "map":
        table = flowveil.reconstruct(folder, reading["zones"])
        number = {code: i for i, code in enumerate(codes)}
        o, d = (
            [number[code] for code in table[end].to_pylist()] for end in ("origin", "destination")
        )
        assert np.allclose(estimate[o, d], table["trips"].to_numpy())
    found = flowveil.verify_release(folder, against=tmp_path / "trips.parquet", **given)
    assert (found.findings, found.not_compared) == ((), ())


# ---- slices --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sliced(tmp_path_factory):
    """Every export of slices over common zones."""
    read = flowveil.read_slices(
        survey(), by=["sex"], time="t", every="1h", resolution=6, person="person_id"
    )
    release = flowveil.anonymize_slices(read, k=5, protect="trips", common_zones=True)
    return release, publish(
        release, tmp_path_factory.mktemp("slices") / "out", formats=list(FORMATS), **CONTACT
    )


def slices_of(folder):
    """The published cells by slice."""
    found = {}
    for row in rows_of(folder).to_pylist():
        cell = (row["origin_zone"], row["destination_zone"])
        found.setdefault((row["sex"], row["time"]), {})[cell] = row["trips"]
    return found


def test_openmatrix_reads_a_matrix_for_each_slice(sliced):
    openmatrix = pytest.importorskip("openmatrix")
    _, folder = sliced
    expected, found = slices_of(folder), {}
    with openmatrix.open_file(str(folder / "flows.omx"), "r") as file:
        codes = [code.decode() for code in file.map_entries("zone")]
        for name in file.list_matrices():
            said = {key: file[name].attrs[key].decode() for key in ("sex", "time", "volume")}
            key = (said["sex"], said["time"])
            square = np.array(file[name])
            found[key] = {
                (codes[i], codes[j]): square[i, j] for i, j in zip(*np.nonzero(square), strict=True)
            }
            assert said["volume"] == "trips"
            assert name == "_".join(part.replace(":", "_") for part in (said["sex"], said["time"]))
    assert found == expected
    assert len(found) > 3
    with open(folder / "omx_matrices.csv", encoding="utf-8", newline="") as file:
        listed = {row["matrix"]: (row["sex"], row["time"]) for row in csv.DictReader(file)}
    assert set(listed.values()) == set(expected)


def test_aequilibrae_reads_a_matrix_for_each_slice(sliced):
    aequilibrae = pytest.importorskip("aequilibrae.matrix")
    _, folder = sliced
    with open(folder / "omx_matrices.csv", encoding="utf-8", newline="") as file:
        listed = {row["matrix"]: (row["sex"], row["time"]) for row in csv.DictReader(file)}
    matrix = aequilibrae.AequilibraeMatrix()
    matrix.load(str(folder / "flows.omx"))
    assert sorted(matrix.names) == sorted(listed)
    name, key = next(iter(listed.items()))
    matrix.computational_view([name])
    assert matrix.index.tolist() == list(range(1, len(matrix.index) + 1))
    assert matrix.matrix_view.sum() == sum(slices_of(folder)[key].values())


def test_the_wide_table_has_a_column_for_each_slice(sliced):
    _, folder = sliced
    table = pq.read_table(folder / "flows_wide.parquet")
    assert table.column_names[:4] == ["O", "O_name", "D", "D_name"]
    expected = slices_of(folder)
    assert len(table.column_names) == 4 + len(expected)
    pairs = list(zip(table["O"].to_pylist(), table["D"].to_pylist(), strict=True))
    assert pairs == sorted({pair for cells in expected.values() for pair in cells})
    for column, cells in zip(table.column_names[4:], expected.values(), strict=True):
        values = dict(zip(pairs, table[column].to_pylist(), strict=True))
        assert {pair: value for pair, value in values.items() if value is not None} == cells
    with open(folder / "flows_wide.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == table.column_names
    # An empty field is "not published", never 0.
    assert sum(value == "" for row in rows for value in row.values()) == sum(
        c.null_count for c in table.columns
    )


def test_maps_have_slices_as_columns(sliced):
    _, folder = sliced
    rows = rows_of(folder).to_pylist()
    for place, given in (
        (folder / "flows.geojson", {}),
        (folder / "release.gpkg", {"layer": "flows"}),
    ):
        found = geopandas.read_file(place, **given)
        assert found["sex"].tolist() == [row["sex"] for row in rows]
        assert found["trips"].tolist() == [row["trips"] for row in rows]
    with open(folder / "flowmap_flows.csv", encoding="utf-8", newline="") as file:
        flows = list(csv.DictReader(file))
    assert list(flows[0]) == ["origin", "dest", "count", "sex", "time"]
    found = [(row["sex"], row["time"], int(row["count"])) for row in flows]
    assert found == [(row["sex"], row["time"], row["trips"]) for row in rows]
    kepler = json.loads((folder / "kepler.json").read_text(encoding="utf-8"))
    data = kepler["datasets"][0]["data"]
    assert {"sex", "time"} <= {field["name"] for field in data["fields"]}
    assert len(data["allData"]) == len(rows)
    flow = kepler["config"]["config"]["visState"]["layers"][0]
    assert (flow["type"], flow["config"]["columns"]["count"]) == ("flow", "trips")


def test_exports_of_slices_are_rebuilt(sliced):
    release, folder = sliced
    assert findings_of(folder, release.input) == []


def test_slices_with_different_zones_are_estimated_between_common_areas(tmp_path):
    h5py = pytest.importorskip("h5py")
    read = flowveil.read_slices(survey(), by=["sex"], resolution=8, person="person_id")
    release = flowveil.anonymize_slices(read, k=5, protect="trips")
    folder = release.write(tmp_path / "out", formats="omx,wide")
    expected = {sex: sum(cells.values()) for sex, cells in _by_sex(folder).items()}
    with h5py.File(folder / "flows.omx") as file:
        sums = {name: file["data"][name][:].sum() for name in file["data"]}
        codes = [code.decode() for code in file["lookup/zone"][:]]
    assert sums == {f"estimate_{sex}": pytest.approx(total) for sex, total in expected.items()}
    assert len({h3.get_resolution(code) for code in codes}) == 1
    assert findings_of(folder, release.input) == []


def _by_sex(folder):
    found = {}
    for row in rows_of(folder).to_pylist():
        found.setdefault(row["sex"], {})[row["origin_zone"], row["destination_zone"]] = row["trips"]
    return found


def test_names_of_matrices_are_plain_and_distinct():
    keys = ["a/b", "a b", "é", None, "..", "a_b_2", ""]
    flows = pa.table(
        {
            "origin_zone": ["x"] * len(keys),
            "destination_zone": ["y"] * len(keys),
            "trips": list(range(len(keys))),
            "weight": [1.0] * len(keys),
            "what": pa.array(keys, pa.string()),
        }
    )
    matrices = list_matrices(flows, ["what"])
    names = [matrix.name for matrix in matrices]
    assert len(set(names)) == len(names) == 2 * len(keys)
    assert names[:4] == ["a_b", "a_b_weight", "a_b_2", "a_b_weight_2"]
    assert not any("/" in name or " " in name or name in (".", "..") for name in names)


# ---- metadata ------------------------------------------------------------------------------------

LINK = {
    "type": "object",
    "properties": {"@id": {"type": "string", "minLength": 1}},
    "required": ["@id"],
}
ONE_TEXT = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "object", "required": ["@language", "@value"]},
    ]
}
#: Mandatory properties of mobilityDCAT-AP 1.1: those of Dataset (4.10.1), and of Distribution.
MOBILITY_DCAT = {
    "type": "object",
    "required": [
        *(
            "@context",
            "@type",
            "dct:title",
            "dct:description",
            "dct:publisher",
            "dct:accrualPeriodicity",
        ),
        *("dct:spatial", "mobilitydcatap:mobilityTheme", "dcat:distribution"),
    ],
    "properties": {
        "@type": {"const": "dcat:Dataset"},
        "dct:title": ONE_TEXT,
        "dct:description": ONE_TEXT,
        "dct:publisher": {"type": "object", "required": ["@type", "foaf:name"]},
        "dct:accrualPeriodicity": LINK,
        "dct:spatial": {"type": "object", "required": ["@type", "dcat:bbox"]},
        "mobilitydcatap:mobilityTheme": LINK,
        "dcat:contactPoint": {"type": "object", "required": ["vcard:fn", "vcard:hasEmail"]},
        "dcat:distribution": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": [
                    "dcat:accessURL",
                    "mobilitydcatap:mobilityDataStandard",
                    "dct:format",
                    "dct:rights",
                ],
                "properties": {
                    "dcat:accessURL": LINK,
                    "dct:format": LINK,
                    "dct:license": {"type": "object"},
                },
            },
        },
    },
}


def test_metadata_has_what_access_points_require_and_nothing_invented(release, folder, tmp_path):
    import jsonschema

    content = read_json(folder / "dcat.jsonld")
    jsonschema.validate(content, MOBILITY_DCAT)
    prefixes = {name.partition(":")[0] for name in _names(content) if not name.startswith("@")}
    assert prefixes <= set(content["@context"])
    listed = {entry["dcat:downloadURL"]["@id"] for entry in content["dcat:distribution"]}
    assert listed == {path.name for path in folder.iterdir()} - {"dcat.jsonld", "manifest.json"}
    assert "dct:temporal" not in content
    assert not any("dct:license" in entry for entry in content["dcat:distribution"])
    said = {
        "title": "Trips",
        "source": "Survey",
        "period": "2024-01-01/2024-03-31",
        "licence": "CC BY 4.0",
    }
    full = publish(release, tmp_path / "out", formats="dcat", **CONTACT, **said)
    content = read_json(full / "dcat.jsonld")
    jsonschema.validate(content, MOBILITY_DCAT)
    assert content["dct:title"] == "Trips"
    assert content["dct:temporal"]["dcat:endDate"] == {"@type": "xsd:date", "@value": "2024-03-31"}
    assert content["dct:publisher"]["foaf:mbox"] == {"@id": "mailto:data@example.org"}
    assert content["dcat:distribution"][0]["dct:license"]["@id"].endswith("/licence/CC_BY_4_0")
    west, south, east, north = shapely.from_wkt(
        content["dct:spatial"]["dcat:bbox"]["@value"]
    ).bounds
    zones = geopandas.read_parquet(full / "zones.parquet").total_bounds
    assert (west <= zones[0], south <= zones[1], east >= zones[2], north >= zones[3]) == (True,) * 4
    with pytest.raises(ParameterError, match="names who publishes"):
        publish(release, tmp_path / "none", formats="dcat")


def _names(content):
    if isinstance(content, dict):
        return {*content, *(name for inner in content.values() for name in _names(inner))} - set(
            content if "dcat" in content else ()
        )
    return (
        {name for inner in content for name in _names(inner)}
        if isinstance(content, list)
        else set()
    )


def test_the_geopackage_brings_a_style_for_each_layer(folder):
    # SQLite keeps texts: QGIS reads the style of a layer from this table.
    with closing(sqlite3.connect(folder / "release.gpkg")) as base:
        rows = base.execute(
            "SELECT f_table_name, useAsDefault, styleQML FROM layer_styles"
        ).fetchall()
    assert [(name, default) for name, default, _ in rows] == [("zones", 1), ("flows", 1)]
    for _, _, qml in rows:
        assert ElementTree.fromstring(qml).tag == "qgis"
    expression = next(
        option.get("value")
        for option in ElementTree.fromstring(rows[1][2]).iter()
        if option.get("name") == "expression"
    )
    assert f"{float(max(rows_of(folder)['trips'].to_pylist()))!r}" in expression
    assert set(geopandas.list_layers(folder / "release.gpkg")["name"]) == {
        "zones",
        "flows",
        "layer_styles",
    }


def test_aequilibrae_finds_the_demand_of_its_own_project(tmp_path):
    """A matrix of a project goes through a release and comes back between the same zones."""
    aequilibrae = pytest.importorskip("aequilibrae.matrix")
    packed = Path(aequilibrae.__file__).parents[1] / "reference_files" / "sioux_falls.zip"
    with zipfile.ZipFile(packed) as project:
        project.extract("matrices/demand.omx", tmp_path)
        project.extract("project_database.sqlite", tmp_path)
    with closing(sqlite3.connect(tmp_path / "project_database.sqlite")) as network:
        nodes = network.execute("SELECT node_id FROM nodes WHERE is_centroid = 1 ORDER BY 1")
        centroids = [node for (node,) in nodes]
    # In another order, so that rows have to be found by their code.
    places = {
        "taz": centroids[::-1],
        "lat": np.linspace(43, 44, 24),
        "lon": np.linspace(-97, -96, 24),
    }
    zones = flowveil.read_zones(pa.table(places), tile="taz")
    flows = flowveil.read_trips(tmp_path / "matrices" / "demand.omx", zones=zones)
    release = flowveil.anonymize(flows, "twincut", k=10)
    with unchecked():
        folder = release.write(tmp_path / "release", formats="omx")
    demand, published = aequilibrae.AequilibraeMatrix(), aequilibrae.AequilibraeMatrix()
    for matrix, path, name in (
        (demand, tmp_path / "matrices" / "demand.omx", "matrix"),
        (published, folder / "flows.omx", "trips"),
    ):
        matrix.load(str(path))
        matrix.computational_view([name])
    # AequilibraE takes the first lookup: the codes of the network, as numbers, under their name.
    assert published.index_names[0] == "taz"
    assert published.index.tolist() == demand.index.tolist() == centroids
    assert np.array_equal(published.matrix_view, demand.matrix_view)
    assert published.matrix_view.sum() == 360_600
