"""README.txt: what a folder holds, for people who open it without having read anything else."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flowveil.published.about import described, title

_WIDTH = 78
#: What each file is for, by name, or by suffix where several have one purpose.
PURPOSES = {
    "README.txt": "this page",
    "report.html": "the map and the answers: open it with a double click, no network is needed",
    "flows.parquet": "the numbers: trips from a zone to a zone",
    "zones.parquet": "the zones and their outlines (GeoParquet)",
    "estimate.parquet": "estimates between areas of one size, with ranges: what the map shows",
    "flows.csv": "the numbers with the names of places, for a spreadsheet",
    "zones.csv": "the zones, for a spreadsheet",
    "lookup.csv": "which areas of the publisher's map each zone holds",
    "context.geojson": "outlines for orientation",
    "report.json": "everything that the page says, for programs",
    "datapackage.json": "what every column means (Frictionless Data Package)",
    "dcat.jsonld": "metadata for data portals (DCAT-AP, mobilityDCAT-AP)",
    "croissant.json": "metadata for programs that learn from data (Croissant)",
    "manifest.json": "the SHA-256 of each file",
    "omx_zones.csv": "which zone each row of flows.omx is",
    "omx_matrices.csv": "what each matrix of flows.omx holds",
    ".omx": "matrices for transport models (Open Matrix)",
    ".gpkg": "zones and flows with styles for QGIS (GeoPackage)",
    ".geojson": "the same for web maps (GeoJSON)",
    ".fgb": "the same for web maps, with a spatial index (FlatGeobuf)",
    ".pmtiles": "the same as vector tiles (PMTiles)",
    ".arrow": "the same tables as Arrow files",
    "flows_wide.csv": "a row for each pair of zones, a column for each matrix",
    "flows_wide.parquet": "the same as Parquet",
    "flowmap_locations.csv": "the places, for flowmap.blue",
    "flowmap_flows.csv": "the flows, for flowmap.blue",
    "kepler.json": "a map for kepler.gl",
    ".json": "what each column of the CSV file of that name means (CSV on the Web)",
}
#: Beginnings of sentences of report.json that say what must not be concluded.
_LIMITS = ("Not protected", "Not claimed", "Incomplete")


def readme(report: Mapping[str, Any], files: Sequence[str], columns: Sequence[str]) -> str:
    """Returns README.txt: a function of report.json, the names of the files and the columns."""
    sentences = report["published"]["sentences"]
    about = described(report["statement"]["about"])
    limits = [line for line in sentences if line.startswith(_LIMITS)]
    others = [line for line in sentences if line not in limits]
    heading = title(report)
    parts = [
        f"{heading}\n{'=' * min(len(heading), _WIDTH)}",
        "\n".join(_wrapped(f"{name}: {text}") for name, text in about),
        "WHAT IS IN WHICH FILE\n" + "\n".join(map(_file_line, files)),
        "HOW TO READ A ROW OF THE NUMBERS\n" + _wrapped(_row_in_words(report, columns)),
        "WHAT IS GUARANTEED\n" + _listed(others),
        "WHAT IS NOT GUARANTEED, AND WHAT YOU MUST NOT CONCLUDE\n" + _listed(limits),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _row_in_words(report: Mapping[str, Any], columns: Sequence[str]) -> str:
    is_noisy = "epsilon" in report["guarantee"]
    words = [
        "'trips' trips began in 'origin_zone' and ended in 'destination_zone'. Codes, names and "
        "outlines of zones are in the zones file."
    ]
    if "weight" in columns:
        words.append("'weight' is what these trips stand for, as the publisher expanded them.")
    if "time_from" in columns:
        words.append("They began from 'time_from' on and before 'time_to'.")
    elif "time" in columns:
        words.append("They began in the step 'time'.")
    if "layer" in columns:
        words.append(
            "Every trip is in exactly one row. A row of layer 2 or later counts the trips from the "
            "one zone to the other that no row between smaller zones inside them counts, so rows "
            "can be added up, and the row alone is not the whole traffic between its zones."
        )
    if is_noisy:
        words.append("Noise was added: a number can be wrong by a few trips in both directions.")
    else:
        words.append("A pair without a row had no trips, or too few to publish: it is not zero.")
    return " ".join(words)


def _file_line(name: str) -> str:
    purpose = PURPOSES.get(name) or PURPOSES.get(Path(name).suffix, "")
    return textwrap.fill(
        f"{name:<24} {purpose}".rstrip(), _WIDTH, subsequent_indent=" " * 25, break_long_words=False
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(
        textwrap.fill(
            f"- {line}",
            _WIDTH,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )
