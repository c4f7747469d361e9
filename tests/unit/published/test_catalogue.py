"""Metadata, data dictionary and README.txt say what is in a folder; validators of others agree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil.core.errors import ParameterError
from flowveil.published.dictionary import KNOWN, columns_of, translated_meanings
from flowveil.published.language import languages
from flowveil.published.matrices import lookup_codes
from samples.drafts import unchecked
from samples.releases import city_flows, read_json, release_of

ABOUT = {
    "title": "Trips",
    "publisher": "City of Paris",
    "contact": "Data office, data@example.org",
    "issued": "2024-04-15",
    "base_url": "https://data.example.org/trips",
    "licence": "CC BY 4.0",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    release = release_of(city_flows(), budget="volume")
    place = tmp_path_factory.mktemp("catalogue") / "r"
    with unchecked():
        return release.write(place, formats="csv,wide,omx,fgb,dcat,croissant", **ABOUT)


def test_every_column_of_every_table_is_described(folder):
    package = read_json(folder / "datapackage.json")
    described = {one["path"]: one.get("schema", {}).get("fields") for one in package["resources"]}
    described |= {one["path"]: one["columns"] for one in package["resources"] if "columns" in one}
    for name in ("flows.parquet", "zones.parquet"):
        columns = {one["name"]: one for one in described[name]}
        assert list(columns) == pq.read_schema(folder / name).names
        assert all(columns[known]["description"] for known in columns)
        assert set(columns) <= set(KNOWN)
    header = (folder / "flows.csv").read_text("utf-8").splitlines()[0]
    assert header == ",".join(f'"{one["name"]}"' for one in described["flows.csv"])
    web = read_json(folder / "flows.csv-metadata.json")
    titles = [column["titles"] for column in web["tableSchema"]["columns"]]
    assert titles == [one["name"] for one in described["flows.csv"]]


def test_columns_are_described_in_the_language_of_the_release(folder):
    assert set(translated_meanings()) | {"en"} == set(languages())
    assert all(set(own) == set(KNOWN) for own in translated_meanings().values())
    report = read_json(folder / "report.json")
    report["statement"]["about"]["language"] = "fr"
    (trips,) = columns_of(pa.schema([("trips", pa.int64())]), report)
    assert (trips.meaning, trips.unit) == ("Nombre de déplacements", "trips")


def test_the_package_is_valid_for_frictionless(folder, monkeypatch):
    frictionless = pytest.importorskip("frictionless", reason="frictionless is not installed")
    monkeypatch.chdir(folder)
    report = frictionless.validate("datapackage.json")
    assert report.valid, report.flatten(["name", "type", "message"])
    (folder / "flows.csv").write_text("a\n1\n", encoding="utf-8")
    assert not frictionless.validate("datapackage.json").valid


@pytest.mark.parametrize("name", ["dcat.jsonld", "croissant.json"])
def test_linked_data_are_triples_about_every_file(folder, name):
    rdflib = pytest.importorskip("rdflib", reason="rdflib is not installed")
    content = read_json(folder / name)
    if name == "croissant.json":
        # The parser would fetch the vocabulary: the context of the file alone is enough.
        assert isinstance(content["@context"], dict)
    graph = rdflib.Graph().parse(data=json.dumps(content), format="json-ld")
    texts = {str(one) for triple in graph for one in triple}
    for file in ("flows.parquet", "zones.parquet", "README.txt", "datapackage.json"):
        assert any(text.endswith(f"trips/{file}") for text in texts), file
    days = {str(one) for one in graph.objects() if str(one) == "2024-04-15"}
    assert days == {"2024-04-15"}


def test_metadata_name_publisher_and_contact_apart(folder):
    content = read_json(folder / "dcat.jsonld")
    assert content["dct:publisher"]["foaf:name"] == "City of Paris"
    assert content["dcat:contactPoint"]["vcard:fn"] == "Data office, data@example.org"
    cells = next(
        one
        for one in content["dcat:distribution"]
        if one["dcat:downloadURL"]["@id"] == "https://data.example.org/trips/flows.parquet"
    )
    size = str((folder / "flows.parquet").stat().st_size)
    assert cells["dcat:byteSize"]["@value"] == size
    sha256 = read_json(folder / "manifest.json")["sha256"]["flows.parquet"]
    assert cells["spdx:checksum"]["spdx:checksumValue"]["@value"] == sha256
    assert content["dct:identifier"] == f"sha256:{sha256}"


#: What mobilityDCAT-AP 1.1.0 demands of each class, and what values begin with.
MANDATORY = {
    "dcat:Dataset": {
        "dct:title": "",
        "dct:description": "",
        "dct:publisher": "",
        "dct:spatial": "",
        "dct:accrualPeriodicity": "http://publications.europa.eu/resource/authority/frequency/",
        "mobilitydcatap:mobilityTheme": "https://w3id.org/mobilitydcat-ap/mobility-theme/",
        "dcat:distribution": "",
    },
    "dcat:Distribution": {
        "dcat:accessURL": "https://data.example.org/trips/",
        "mobilitydcatap:mobilityDataStandard": "",
        "dct:format": "http://publications.europa.eu/resource/authority/file-type/",
        "dct:rights": "",
    },
    "dct:RightsStatement": {
        "dct:type": "https://w3id.org/mobilitydcat-ap/conditions-for-access-and-usage/"
    },
    "foaf:Agent": {"foaf:name": ""},
    "vcard:Kind": {"vcard:fn": "", "vcard:hasEmail": "mailto:"},
    "spdx:Checksum": {"spdx:algorithm": "", "spdx:checksumValue": ""},
}


def test_metadata_have_what_national_access_points_demand(folder):
    rdflib = pytest.importorskip("rdflib", reason="rdflib is not installed")
    content = read_json(folder / "dcat.jsonld")
    graph = rdflib.Graph().parse(data=json.dumps(content), format="json-ld")

    def address(name):
        prefix, _, word = name.partition(":")
        return rdflib.URIRef(content["@context"][prefix] + word)

    for kind, demanded in MANDATORY.items():
        subjects = list(graph.subjects(rdflib.RDF.type, address(kind)))
        assert subjects, kind
        for subject in subjects:
            for name, start in demanded.items():
                values = [str(value) for value in graph.objects(subject, address(name))]
                assert values, f"{kind} without {name}"
                assert all(value.startswith(start) for value in values), values


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("issued", "15.4.2024"), ("modified", "2024-02-30"), ("base_url", "ftp://data/x")],
)
def test_days_and_addresses_are_checked(name, wrong, tmp_path):
    release = release_of(city_flows(), budget="volume")
    with pytest.raises(ParameterError, match=name):
        release.write(tmp_path / "r", **{name: wrong})
    assert not list(tmp_path.iterdir())


def test_readme_names_every_file_and_what_must_not_be_concluded(folder):
    text = (folder / "README.txt").read_text("utf-8")
    listed = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert {path.name for path in folder.iterdir()} <= listed
    assert "it is not zero" in " ".join(text.split())
    assert "Not protected: outside knowledge" in text
    assert max(map(len, text.splitlines())) <= 78


def test_codes_that_are_numbers_are_in_the_order_of_numbers():
    assert lookup_codes({"10", "9", "1"}) == [1, 9, 10]
    # As numbers these would be other codes.
    assert lookup_codes({"010", "9"}) == ["010", "9"]
    assert lookup_codes({"outside", "9"}) == ["9", "outside"]
    assert lookup_codes({str(2**31), "1"}) == ["1", str(2**31)]


def test_aequilibrae_finds_the_zones_of_its_network(tmp_path):
    """AequilibraE takes the first lookup for the zones of the model."""
    aequilibrae = pytest.importorskip("aequilibrae.matrix", reason="AequilibraE is not installed")
    codes = np.array([1, 2, 9, 10, 11, 100])
    rng = np.random.default_rng(0)
    square = rng.integers(20, 90, (6, 6))
    row, column = np.indices(square.shape).reshape(2, -1)
    trips = pa.table({"o": codes[row], "d": codes[column], "n": square.ravel()})
    places = {"zone": codes, "lat": 48 + codes / 100, "lon": 2 + codes % 7 / 100}
    flows = flowveil.read_trips(
        trips, origin_tile="o", destination_tile="d", trips="n", zones=pa.table(places)
    )
    release = flowveil.anonymize(flows, "suppression", k=5, protect="trips")
    folder = release.write(tmp_path / "r", formats="omx")
    matrix = aequilibrae.AequilibraeMatrix()
    matrix.load(str(folder / "flows.omx"))
    matrix.computational_view(["trips"])
    assert matrix.index.tolist() == codes.tolist()
    assert (np.asarray(matrix.matrix_view).reshape(6, 6) == square).all()
