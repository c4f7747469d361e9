"""Title, source, period, licence and contact of a release, as the operator declares them; and dcat.jsonld.

No recount can check free text. So it is short, one line of visible characters, and escaped in every file. dcat.jsonld
describes a release for data portals by DCAT-AP and mobilityDCAT-AP 1.1, with relative addresses; what is not declared
is stated as unknown or missing.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import shapely

from flowveil.errors import ParameterError, did_you_mean
from flowveil.published.maps import geometries

#: The entries in the order of pages, with what a page calls them.
ENTRIES = {"title": "Title", "source": "Source", "period": "Period", "licence": "Licence", "contact": "Contact"}
LONGEST = 200
#: A day, or the first and the last day, as ISO 8601 writes them.
PERIOD = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(/[0-9]{4}-[0-9]{2}-[0-9]{2})?")


def checked(about: Mapping[str, Any]) -> dict[str, str]:
    """Returns the given entries, stripped; ParameterError for unknown, long or invisible ones and wrong periods."""
    given: dict[str, str] = {}
    for name, text in about.items():
        if name not in ENTRIES:
            raise ParameterError(
                f"A release is described by {', '.join(ENTRIES)}; found '{name}'." + did_you_mean(name, ENTRIES)
            )
        if text is None:
            continue
        if not isinstance(text, str) or not text.strip() or len(text.strip()) > LONGEST:
            raise ParameterError(f"--{name} is a text of 1 to {LONGEST} signs. Hint: leave it out, or shorten it.")
        if any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for sign in text.strip()):
            raise ParameterError(f"--{name} is one line of visible signs; it has others. Hint: type it again.")
        given[name] = text.strip()
    period = given.get("period")
    if period is not None:
        try:
            days = [date.fromisoformat(day) for day in period.split("/")] if PERIOD.fullmatch(period) else []
        except ValueError:
            days = []
        if not days or days[0] > days[-1]:
            raise ParameterError(
                f"--period is the first and the last day, like 2024-01-01/2024-03-31, or one day; found '{period}'."
            )
    return {name: given[name] for name in ENTRIES if name in given}


def title(report: Mapping[str, Any], area: str | None = None) -> str:
    """Returns the title that was given, or one from the area's name, or one from the number of zones."""
    given = report["statement"]["about"].get("title")
    if given is not None:
        return str(given)
    if area is not None:
        return f"Trips in {area}"
    published = report["published"]
    return f"Trips between {published['origin_zones']:,} and {published['destination_zones']:,} areas"


def described(about: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns names and texts of all entries but the title; the period is spelled out."""
    others = {name: about[name] for name in ENTRIES if name in about and name != "title"}
    return [(ENTRIES[name], period_in_words(text) if name == "period" else text) for name, text in others.items()]


def one_line(about: Mapping[str, str]) -> str:
    """Returns all entries in one line."""
    return ". ".join(f"{called}: {about[name]}" for name, called in ENTRIES.items() if name in about)


def period_in_words(text: str) -> str:
    """Returns a period like "1 January 2024 to 31 March 2024"."""
    days = [date.fromisoformat(day) for day in text.split("/")]
    return " to ".join(dict.fromkeys(f"{day.day} {_MONTHS[day.month - 1]} {day.year}" for day in days))


#: Not those of the machine's language: the page is in English.
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


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
    """Returns the content of dcat.jsonld: a contact is declared, and at least one zone has an outline."""
    contact, licence = about["contact"], about.get("licence")
    email = _EMAIL.search(contact)
    mailbox = {} if email is None else {"foaf:mbox": _link(f"mailto:{email.group()}")}
    dataset: dict[str, Any] = {
        "@context": _CONTEXT,
        "@id": "./",
        "@type": "dcat:Dataset",
        "dct:title": title,
        "dct:description": {"@language": "en", "@value": " ".join(["Numbers of trips between areas.", *sentences])},
        "dct:publisher": {"@type": "foaf:Agent", "foaf:name": contact, **mailbox},
        "dct:accrualPeriodicity": _link(f"{_EU}/frequency/UNKNOWN"),
        "dct:conformsTo": _link("http://www.opengis.net/def/crs/EPSG/0/4326"),
        "dct:spatial": {"@type": "dct:Location", "dcat:bbox": _bounds(zones)},
        "dcat:theme": _link(f"{_EU}/data-theme/TRAN"),
        "dcat:keyword": [{"@language": "en", "@value": word} for word in ("origin-destination matrix", "anonymised")],
        "mobilitydcatap:mobilityTheme": _link(f"{_MOBILITY}/mobility-theme/traffic-volume"),
        "dcat:distribution": [_distribution(name, licence) for name in files],
    }
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


def _distribution(name: str, licence: str | None) -> dict[str, Any]:
    rights = "No licence is stated." if licence is None else f"Licence: {licence}"
    standard = "none: a table of trips between zones"
    return {
        "@type": "dcat:Distribution",
        "dct:title": {"@language": "en", "@value": name},
        "dcat:accessURL": _link(name),
        "dcat:downloadURL": _link(name),
        "dct:format": _link(f"{_EU}/file-type/{_FILE_TYPES.get(Path(name).suffix, 'OCTET')}"),
        "dct:rights": {"@type": "dct:RightsStatement", "rdfs:label": rights},
        "mobilitydcatap:mobilityDataStandard": {"@type": "mobilitydcatap:MobilityDataStandard", "rdfs:label": standard},
        **({} if licence is None else {"dct:license": _licence(licence)}),
    }


def _licence(licence: str) -> dict[str, Any]:
    if licence.startswith(("http://", "https://")) and not re.search(r"\s", licence):
        return _link(licence)
    known = _LICENCES.get(licence.lower().replace("-by", " by").replace("cc-", "cc "))
    return _link(f"{_EU}/licence/{known}") if known else {"@type": "dct:LicenseDocument", "rdfs:label": licence}


def _bounds(zones: pa.Table) -> dict[str, str]:
    """Returns the rectangle around all zones, to a hundredth of a degree outwards."""
    west, south, east, north = shapely.total_bounds(geometries(zones)).tolist()
    west, south = max(math.floor(west * 100) / 100, -180.0), max(math.floor(south * 100) / 100, -90.0)
    east, north = min(math.ceil(east * 100) / 100, 180.0), min(math.ceil(north * 100) / 100, 90.0)
    corners = [(west, south), (east, south), (east, north), (west, north), (west, south)]
    return _typed("gsp:wktLiteral", f"POLYGON(({', '.join(f'{x:.2f} {y:.2f}' for x, y in corners)}))")


def _link(address: str) -> dict[str, str]:
    return {"@id": address}


def _typed(kind: str, value: str) -> dict[str, str]:
    return {"@type": kind, "@value": value}
