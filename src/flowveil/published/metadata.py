"""dcat.jsonld: a release described for data portals and national access points, from what is published of it.

One ``dcat:Dataset`` by DCAT-AP and mobilityDCAT-AP 1.1. Nothing is invented: who publishes is the declared contact, the
frequency is stated as unknown, and a missing licence is stated as missing. Addresses of files are relative, so that
they are right wherever the folder is published.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import shapely

_EU = "http://publications.europa.eu/resource/authority"
_MOBILITY = "https://w3id.org/mobilitydcat-ap"
_CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "gsp": "http://www.opengis.net/ont/geosparql#",
    "mobilitydcatap": f"{_MOBILITY}#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
#: File types of the EU vocabulary by suffix; others are octet streams.
_FILE_TYPES = {
    ".parquet": "PARQUET", ".csv": "CSV", ".geojson": "GEOJSON", ".gpkg": "GPKG", ".json": "JSON", ".html": "HTML",
    ".omx": "HDF",
}  # fmt: skip
_LICENCES = {"cc by 4.0": "CC_BY_4_0", "cc0 1.0": "CC0", "cc0": "CC0", "cc by-sa 4.0": "CC_BYSA_4_0"}
_EMAIL = re.compile(r"[^\s<>,;]+@[^\s<>,;]+\.[^\s<>,;]+")


def describe_release(
    files: Sequence[str], zones: pa.Table, *, title: str, about: Mapping[str, str], sentences: Sequence[str]
) -> dict[str, Any]:
    """Returns the content of dcat.jsonld.

    Args:
        files: names of the files of the folder.
        zones: the published zones; at least one has an outline.
        title: of the release.
        about: what the operator declared; ``contact`` is needed.
        sentences: what is and is not protected.
    """
    contact, licence = about["contact"], about.get("licence")
    dataset: dict[str, Any] = {
        "@context": _CONTEXT,
        "@id": "./",
        "@type": "dcat:Dataset",
        "dct:title": title,
        "dct:description": {"@language": "en", "@value": " ".join(["Numbers of trips between areas.", *sentences])},
        "dct:publisher": _agent(contact),
        "dct:accrualPeriodicity": _link(f"{_EU}/frequency/UNKNOWN"),
        "dct:conformsTo": _link("http://www.opengis.net/def/crs/EPSG/0/4326"),
        "dct:spatial": {"@type": "dct:Location", "dcat:bbox": _bounds(zones)},
        "dcat:theme": _link(f"{_EU}/data-theme/TRAN"),
        "dcat:keyword": [{"@language": "en", "@value": word} for word in ("origin-destination matrix", "anonymised")],
        "mobilitydcatap:mobilityTheme": _link(f"{_MOBILITY}/mobility-theme/traffic-volume"),
        "dcat:distribution": [_distribution(name, licence) for name in files],
    }
    email = _EMAIL.search(contact)
    if email is not None:
        kind = {"@type": "vcard:Kind", "vcard:fn": contact, "vcard:hasEmail": _link(f"mailto:{email.group()}")}
        dataset["dcat:contactPoint"] = kind
    if "source" in about:
        dataset["dct:provenance"] = {"@type": "dct:ProvenanceStatement", "rdfs:label": about["source"]}
    if "period" in about:
        first, _, last = about["period"].partition("/")
        days = {"dcat:startDate": first, "dcat:endDate": last or first}
        dataset["dct:temporal"] = {"@type": "dct:PeriodOfTime", **{k: _typed("xsd:date", v) for k, v in days.items()}}
    return dataset


def write_metadata(path: Path, content: Mapping[str, Any]) -> None:
    """Writes the file; the same content gives the same bytes."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def _distribution(name: str, licence: str | None) -> dict[str, Any]:
    described: dict[str, Any] = {
        "@type": "dcat:Distribution",
        "dct:title": {"@language": "en", "@value": name},
        "dcat:accessURL": _link(name),
        "dcat:downloadURL": _link(name),
        "dct:format": _link(f"{_EU}/file-type/{_FILE_TYPES.get(Path(name).suffix, 'OCTET')}"),
        "dct:rights": {
            "@type": "dct:RightsStatement",
            "rdfs:label": "No licence is stated." if licence is None else f"Licence: {licence}",
        },
        "mobilitydcatap:mobilityDataStandard": {
            "@type": "mobilitydcatap:MobilityDataStandard",
            "rdfs:label": "none: a table of trips between zones",
        },
    }
    if licence is not None:
        described["dct:license"] = _licence(licence)
    return described


def _licence(licence: str) -> dict[str, Any]:
    if licence.startswith(("http://", "https://")) and not re.search(r"\s", licence):
        return _link(licence)
    known = _LICENCES.get(licence.lower().replace("-by", " by").replace("cc-", "cc "))
    return _link(f"{_EU}/licence/{known}") if known else {"@type": "dct:LicenseDocument", "rdfs:label": licence}


def _agent(contact: str) -> dict[str, Any]:
    email = _EMAIL.search(contact)
    mail = {} if email is None else {"foaf:mbox": _link(f"mailto:{email.group()}")}
    return {"@type": "foaf:Agent", "foaf:name": contact, **mail}


def _bounds(zones: pa.Table) -> dict[str, str]:
    """Returns the rectangle around all zones, to a hundredth of a degree outwards."""
    outlines = shapely.from_wkb(zones["geometry"].to_numpy(zero_copy_only=False))
    west, south, east, north = shapely.total_bounds(outlines).tolist()
    west, south = max(math.floor(west * 100) / 100, -180.0), max(math.floor(south * 100) / 100, -90.0)
    east, north = min(math.ceil(east * 100) / 100, 180.0), min(math.ceil(north * 100) / 100, 90.0)
    corners = [(west, south), (east, south), (east, north), (west, north), (west, south)]
    return _typed("gsp:wktLiteral", f"POLYGON(({', '.join(f'{x:.2f} {y:.2f}' for x, y in corners)}))")


def _link(address: str) -> dict[str, str]:
    return {"@id": address}


def _typed(kind: str, value: str) -> dict[str, str]:
    return {"@type": kind, "@value": value}
