"""Metadata of a release for data portals: Frictionless, DCAT-AP, Croissant and schema.org.

Each is a function of the published tables, report.json and what the operator declared. Addresses
are relative to the folder unless the operator gives the address of the folder. No time is taken
from the machine: days of issue are declared, so that the same release gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import shapely

from flowveil.published.about import title
from flowveil.published.dictionary import ROWS, DictionaryColumn, columns_of, frictionless_schema
from flowveil.published.maps import geometries

#: Media types of the files of a folder, by suffix.
MEDIA_TYPES = {
    ".parquet": "application/vnd.apache.parquet",
    ".csv": "text/csv",
    ".geojson": "application/geo+json",
    ".gpkg": "application/geopackage+sqlite3",
    ".json": "application/json",
    ".jsonld": "application/ld+json",
    ".html": "text/html",
    ".omx": "application/x-hdf5",
    ".arrow": "application/vnd.apache.arrow.file",
    ".fgb": "application/octet-stream",
    ".pmtiles": "application/vnd.pmtiles",
    ".txt": "text/plain",
}


@dataclass(frozen=True)
class File:
    """A file of a folder, as metadata describe it."""

    name: str
    size: int
    sha256: str
    columns: tuple[DictionaryColumn, ...] = ()

    @classmethod
    def read(cls, path: Path, columns: Sequence[DictionaryColumn] = ()) -> File:
        """Returns the description of a file, with its hash."""
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path.name, path.stat().st_size, digest, tuple(columns))

    @property
    def media_type(self) -> str:
        """The media type of the file's suffix."""
        return MEDIA_TYPES.get(Path(self.name).suffix, "application/octet-stream")


@dataclass(frozen=True, eq=False)
class Catalogue:
    """What all metadata files are made from."""

    files: Sequence[File]
    report: Mapping[str, Any]
    zones: pa.Table
    about: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_folder(
        cls, folder: Path, tables: Mapping[str, pa.Schema], report: Mapping[str, Any], zones: Any
    ) -> Catalogue:
        """Describes the files that are in a folder; ``tables`` are schemas by file name."""
        files = []
        for path in sorted(folder.iterdir()):
            columns = columns_of(tables[path.name], report) if path.name in tables else []
            files.append(File.read(path, columns))
        return cls(files, report, zones, report["statement"]["about"])

    def with_file(self, path: Path) -> Catalogue:
        """Returns the catalogue with one more file."""
        return replace(self, files=[*self.files, File.read(path)])

    @property
    def title(self) -> str:
        """The title of the page."""
        return title(self.report)

    @property
    def description(self) -> str:
        """What the numbers are, and what is protected."""
        return " ".join(["Numbers of trips between areas.", *self.report["published"]["sentences"]])

    @property
    def publisher(self) -> str | None:
        """Who publishes; the contact where no publisher is declared."""
        return self.about.get("publisher") or self.about.get("contact")

    def address(self, name: str = "") -> str:
        """Returns the address of a file: absolute where the operator declared one."""
        base = self.about.get("base_url")
        return (name or "./") if base is None else f"{base.rstrip('/')}/{name}"


def json_text(content: Mapping[str, Any]) -> str:
    """Returns metadata as a file holds them."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


# ---- Frictionless ------------------------------------------------------------------------------


def datapackage(catalogue: Catalogue) -> dict[str, Any]:
    """Returns datapackage.json: every file with size and hash, every table with its columns."""
    about, resources = catalogue.about, []
    for file in catalogue.files:
        suffix = Path(file.name).suffix.removeprefix(".")
        # Programs that check a package parse tables in CSV; all other files they only hash.
        kind = "table" if suffix == "csv" else "file"
        resource: dict[str, Any] = {
            "type": kind,
            "name": re.sub(r"[^a-z0-9._-]", "-", file.name.lower()),
            "path": file.name,
            "format": suffix,
            "mediatype": file.media_type,
            "bytes": file.size,
            "hash": f"sha256:{file.sha256}",
        }
        stem = Path(file.name).stem
        if stem in ROWS:
            resource["description"] = ROWS[stem]
        if file.columns:
            key = "schema" if suffix == "csv" else "columns"
            schema = frictionless_schema(file.columns)
            resource[key] = schema if key == "schema" else schema["fields"]
        resources.append(resource)
    package: dict[str, Any] = {
        "name": "origin-destination-matrix",
        "title": catalogue.title,
        "description": catalogue.description,
        "keywords": ["origin-destination matrix", "mobility", "anonymised"],
    }
    if "base_url" in about:
        package["homepage"] = catalogue.address()
    if "licence" in about:
        package["licenses"] = [_package_licence(about["licence"])]
    if catalogue.publisher is not None:
        package["contributors"] = [{"title": catalogue.publisher, "role": "publisher"}]
    if "source" in about:
        package["sources"] = [{"title": about["source"]}]
    return {**package, "resources": resources}


def _package_licence(licence: str) -> dict[str, str]:
    if licence.startswith(("http://", "https://")):
        return {"path": licence, "title": licence}
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", licence).strip("-").upper()
    return {"name": name, "title": licence}


# ---- schema.org and Croissant ------------------------------------------------------------------


def schema_org(report: Mapping[str, Any], zones: pa.Table | None) -> dict[str, Any]:
    """Returns the description that search engines read from the page."""
    about = report["statement"]["about"]
    dataset: dict[str, Any] = {
        "@context": "https://schema.org/",
        "@type": "Dataset",
        "name": title(report),
        "description": " ".join(
            ["Numbers of trips between areas.", *report["published"]["sentences"]]
        ),
        "keywords": ["origin-destination matrix", "mobility", "anonymised"],
        "isAccessibleForFree": True,
        "variableMeasured": "number of trips",
        "measurementTechnique": f"flowveil, method {report['method']}",
    }
    who = about.get("publisher") or about.get("contact")
    if who is not None:
        dataset["creator"] = {"@type": "Organization", "name": who}
    names = {"licence": "license", "period": "temporalCoverage", "issued": "datePublished"}
    names |= {"modified": "dateModified", "base_url": "url"}
    dataset |= {theirs: about[ours] for ours, theirs in names.items() if ours in about}
    bounds = None if zones is None else _box(zones)
    if bounds is not None:
        west, south, east, north = bounds
        box = f"{south:.2f} {west:.2f} {north:.2f} {east:.2f}"
        dataset["spatialCoverage"] = {
            "@type": "Place",
            "geo": {"@type": "GeoShape", "box": box},
        }
    return dataset


_CROISSANT_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "sc": "https://schema.org/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "column": "cr:column",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "recordSet": "cr:recordSet",
    "source": "cr:source",
}
_CROISSANT_TYPES = {
    "string": "sc:Text",
    "integer": "sc:Integer",
    "number": "sc:Float",
    "boolean": "sc:Boolean",
}


def croissant(catalogue: Catalogue) -> dict[str, Any]:
    """Returns croissant.json: the files and the columns of the Parquet tables, for programs that
    learn from data (MLCommons Croissant 1.0).
    """
    described = schema_org(catalogue.report, catalogue.zones)
    described |= {"@context": _CROISSANT_CONTEXT, "@type": "sc:Dataset"}
    described["conformsTo"] = "http://mlcommons.org/croissant/1.0"
    described["distribution"] = [
        {
            "@type": "cr:FileObject",
            "@id": file.name,
            "name": file.name,
            "contentUrl": catalogue.address(file.name),
            "contentSize": f"{file.size} B",
            "encodingFormat": file.media_type,
            "sha256": file.sha256,
        }
        for file in catalogue.files
    ]
    described["recordSet"] = [
        {
            "@type": "cr:RecordSet",
            "@id": Path(file.name).stem,
            "name": Path(file.name).stem,
            "field": [_croissant_field(file, column) for column in file.columns],
        }
        for file in catalogue.files
        if file.columns and file.name.endswith(".parquet")
    ]
    return described


def _croissant_field(file: File, column: DictionaryColumn) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{Path(file.name).stem}/{column.name}",
        "name": column.name,
        "description": column.meaning,
        "dataType": _CROISSANT_TYPES[column.type],
        "source": {"fileObject": {"@id": file.name}, "extract": {"column": column.name}},
    }


# ---- DCAT-AP -----------------------------------------------------------------------------------


_EU = "http://publications.europa.eu/resource/authority"
_MOBILITY = "https://w3id.org/mobilitydcat-ap"
_DCAT_CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "adms": "http://www.w3.org/ns/adms#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "gsp": "http://www.opengis.net/ont/geosparql#",
    "mobilitydcatap": f"{_MOBILITY}#",
    "spdx": "http://spdx.org/rdf/terms#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
#: File types of the EU vocabulary by suffix; others are octet streams.
_FILE_TYPES = {
    ".parquet": "PARQUET",
    ".csv": "CSV",
    ".geojson": "GEOJSON",
    ".gpkg": "GPKG",
    ".json": "JSON",
    ".html": "HTML",
    ".omx": "HDF",
    ".jsonld": "JSON_LD",
    ".txt": "TXT",
}
_LICENCES = {
    "cc by 4.0": "CC_BY_4_0",
    "cc0 1.0": "CC0",
    "cc0": "CC0",
    "cc by-sa 4.0": "CC_BYSA_4_0",
}
#: Languages of pages, and steps of series, in the vocabularies of the EU.
_LANGUAGES = {"en": "ENG", "fr": "FRA", "es": "SPA", "de": "DEU", "it": "ITA", "pt": "POR"}
_FREQUENCIES = {"month": "MONTHLY", "day": "DAILY"}
_EMAIL = re.compile(r"[^\s<>,;]+@[^\s<>,;]+\.[^\s<>,;]+")


def dcat(catalogue: Catalogue) -> dict[str, Any]:
    """Returns dcat.jsonld, by DCAT-AP and mobilityDCAT-AP 1.1.

    What is not declared is stated as unknown or missing.
    """
    about, publisher = catalogue.about, str(catalogue.publisher)
    dataset: dict[str, Any] = {
        "@context": _DCAT_CONTEXT,
        "@id": catalogue.address(),
        "@type": "dcat:Dataset",
        "dct:title": catalogue.title,
        "dct:description": {"@language": "en", "@value": catalogue.description},
        "dct:identifier": _identifier(catalogue),
        "dct:language": _languages(about),
        "dct:publisher": _agent(publisher),
        "dct:accrualPeriodicity": _link(f"{_EU}/frequency/UNKNOWN"),
        "dct:conformsTo": _link("http://www.opengis.net/def/crs/EPSG/0/4326"),
        "dct:spatial": {"@type": "dct:Location", "dcat:bbox": _bounds(catalogue.zones)},
        "dcat:theme": _link(f"{_EU}/data-theme/TRAN"),
        "dcat:keyword": [
            {"@language": "en", "@value": word}
            for word in ("origin-destination matrix", "anonymised")
        ],
        "mobilitydcatap:mobilityTheme": _link(f"{_MOBILITY}/mobility-theme/traffic-volume"),
        "dcat:distribution": [_distribution(catalogue, file) for file in catalogue.files],
    }
    for name in ("issued", "modified"):
        if name in about:
            dataset[f"dct:{name}"] = _typed("xsd:date", about[name])
    dataset |= _contact(about)
    if "source" in about:
        dataset["dct:provenance"] = {
            "@type": "dct:ProvenanceStatement",
            "rdfs:label": about["source"],
        }
    if "period" in about:
        first, _, last = about["period"].partition("/")
        dataset["dct:temporal"] = _period(first, last or first)
    return dataset


def dcat_series(
    steps: Mapping[str, Mapping[str, Any]],
    zones: pa.Table,
    *,
    every: str,
    period: tuple[str, str],
) -> dict[str, Any] | None:
    """Returns dcat.jsonld of a series: a dcat:DatasetSeries and the dataset of each step.

    ``steps`` are the contents of report.json by folder. None if no publisher is declared, or no
    zone has a place.
    """
    name, newest = list(steps.items())[-1]
    about = newest["statement"]["about"]
    publisher = about.get("publisher") or about.get("contact")
    if publisher is None or _box(zones) is None:
        return None
    base = about.get("base_url", "").rstrip("/").removesuffix(name) or "./"
    series: dict[str, Any] = {
        "@id": base,
        "@type": "dcat:DatasetSeries",
        "dct:title": about.get("title", "Series of releases"),
        "dct:description": {
            "@language": "en",
            "@value": f"Numbers of trips between the same zones, one release for each {every}.",
        },
        "dct:language": _languages(about),
        "dct:publisher": _agent(publisher),
        "dct:accrualPeriodicity": _link(f"{_EU}/frequency/{_FREQUENCIES[every]}"),
        "dct:spatial": {"@type": "dct:Location", "dcat:bbox": _bounds(zones)},
        "dct:temporal": _period(*period),
        "dcat:theme": _link(f"{_EU}/data-theme/TRAN"),
        **_contact(about),
    }
    members = [
        {
            "@id": f"{base}{folder}/",
            "@type": "dcat:Dataset",
            "dct:title": title(report),
            "dcat:inSeries": _link(base),
        }
        for folder, report in steps.items()
    ]
    return {"@context": _DCAT_CONTEXT, "@graph": [series, *members]}


def _agent(name: str) -> dict[str, Any]:
    return {"@type": "foaf:Agent", "foaf:name": name, **_mailbox(name)}


def _contact(about: Mapping[str, str]) -> dict[str, Any]:
    email = _EMAIL.search(about.get("contact", ""))
    if email is None:
        return {}
    point = {"@type": "vcard:Kind", "vcard:fn": about["contact"]}
    return {"dcat:contactPoint": {**point, "vcard:hasEmail": _link(f"mailto:{email.group()}")}}


def _languages(about: Mapping[str, str]) -> Any:
    """Returns English, in which statements are, and the language of the page."""
    codes = dict.fromkeys(["en", about.get("language", "en")])
    links = [_link(f"{_EU}/language/{_LANGUAGES[code]}") for code in codes]
    return links if len(links) > 1 else links[0]


def _period(first: str, last: str) -> dict[str, Any]:
    days = {"dcat:startDate": first, "dcat:endDate": last}
    return {
        "@type": "dct:PeriodOfTime",
        **{name: _typed("xsd:date", day) for name, day in days.items()},
    }


def _identifier(catalogue: Catalogue) -> str:
    """Returns what identifies the release: the hash of its cells."""
    return next(f"sha256:{f.sha256}" for f in catalogue.files if f.name == "flows.parquet")


def _mailbox(text: str) -> dict[str, Any]:
    email = _EMAIL.search(text)
    return {} if email is None else {"foaf:mbox": _link(f"mailto:{email.group()}")}


def _distribution(catalogue: Catalogue, file: File) -> dict[str, Any]:
    licence = catalogue.about.get("licence")
    rights = "No licence is stated." if licence is None else f"Licence: {licence}"
    conditions = "other" if licence is None else "licence-provided"
    standard = "none: a table of trips between zones"
    address = catalogue.address(file.name)
    return {
        "@type": "dcat:Distribution",
        "dct:title": {"@language": "en", "@value": file.name},
        "dcat:accessURL": _link(address),
        "dcat:downloadURL": _link(address),
        "dcat:byteSize": _typed("xsd:nonNegativeInteger", str(file.size)),
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": _link("http://spdx.org/rdf/terms#checksumAlgorithm_sha256"),
            "spdx:checksumValue": _typed("xsd:hexBinary", file.sha256),
        },
        "dct:format": _link(f"{_EU}/file-type/{_FILE_TYPES.get(Path(file.name).suffix, 'OCTET')}"),
        "dct:rights": {
            "@type": "dct:RightsStatement",
            "rdfs:label": rights,
            "dct:type": _link(f"{_MOBILITY}/conditions-for-access-and-usage/{conditions}"),
        },
        "mobilitydcatap:mobilityDataStandard": {
            "@type": "mobilitydcatap:MobilityDataStandard",
            "rdfs:label": standard,
        },
        **({} if licence is None else {"dct:license": _licence(licence)}),
    }


def _licence(licence: str) -> dict[str, Any]:
    if licence.startswith(("http://", "https://")) and not re.search(r"\s", licence):
        return _link(licence)
    known = _LICENCES.get(licence.lower().replace("-by", " by").replace("cc-", "cc "))
    return (
        _link(f"{_EU}/licence/{known}")
        if known
        else {"@type": "dct:LicenseDocument", "rdfs:label": licence}
    )


def _box(zones: pa.Table) -> tuple[float, float, float, float] | None:
    """Returns the rectangle around all zones, to a hundredth of a degree outwards."""
    west, south, east, north = shapely.total_bounds(geometries(zones)).tolist()
    if math.isnan(west):
        return None
    return (
        max(math.floor(west * 100) / 100, -180.0),
        max(math.floor(south * 100) / 100, -90.0),
        min(math.ceil(east * 100) / 100, 180.0),
        min(math.ceil(north * 100) / 100, 90.0),
    )


def _bounds(zones: pa.Table) -> dict[str, str]:
    """Returns the rectangle as text; at least one zone has an outline."""
    box = _box(zones)
    assert box is not None
    west, south, east, north = box
    corners = [(west, south), (east, south), (east, north), (west, north), (west, south)]
    text = ", ".join(f"{x:.2f} {y:.2f}" for x, y in corners)
    return _typed("gsp:wktLiteral", f"POLYGON(({text}))")


def _link(address: str) -> dict[str, str]:
    return {"@id": address}


def _typed(kind: str, value: str) -> dict[str, str]:
    return {"@type": kind, "@value": value}
