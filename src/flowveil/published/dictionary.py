"""The data dictionary: what every column of every published table holds, with type and unit.

One list of columns makes datapackage.json (Frictionless), the CSVW metadata next to CSV files, the
record sets of Croissant and the reference page, so that they cannot differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

import pyarrow as pa

from flowveil.core.values import value_columns
from flowveil.published.language import DEFAULT

#: Types as Frictionless names them.
ColumnType = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True)
class DictionaryColumn:
    """A column of a published table."""

    name: str
    type: ColumnType
    meaning: str
    unit: str | None = None


#: Columns that mean the same in every release, by name.
KNOWN = {
    column.name: column
    for column in (
        DictionaryColumn("origin_zone", "string", "Code of the zone in which trips begin"),
        DictionaryColumn("origin_name", "string", "Name of the zone in which trips begin"),
        DictionaryColumn("destination_zone", "string", "Code of the zone in which trips end"),
        DictionaryColumn("destination_name", "string", "Name of the zone in which trips end"),
        DictionaryColumn("origin_size", "string", "Area of the origin zone, in words"),
        DictionaryColumn("destination_size", "string", "Area of the destination zone, in words"),
        DictionaryColumn("row", "integer", "Row and column of the zone in a matrix, from 1"),
        DictionaryColumn("origin", "string", "Code of the area in which trips begin"),
        DictionaryColumn("destination", "string", "Code of the area in which trips end"),
        DictionaryColumn("trips", "integer", "Number of trips", "trips"),
        DictionaryColumn(
            "trips_low", "number", "Smallest number of trips that the cells allow", "trips"
        ),
        DictionaryColumn(
            "trips_high", "number", "Largest number of trips that the cells allow", "trips"
        ),
        DictionaryColumn(
            "weight", "number", "Sum of the weights: what the trips stand for", "weight"
        ),
        DictionaryColumn("weight_low", "number", "Smallest weight that the cells allow", "weight"),
        DictionaryColumn("weight_high", "number", "Largest weight that the cells allow", "weight"),
        DictionaryColumn("estimate", "number", "Estimated number of trips, not a count", "trips"),
        DictionaryColumn(
            "layer",
            "integer",
            "Pass in which the cell was published: each trip is in one cell; a cell of layer 2 or "
            "later counts the trips that no finer cell above it counts",
        ),
        DictionaryColumn(
            "revised", "boolean", "Whether the value replaces that of an earlier release"
        ),
        DictionaryColumn("time", "string", "Time step in which trips begin"),
        DictionaryColumn(
            "time_from", "string", "First moment of the interval in which trips begin"
        ),
        DictionaryColumn("time_to", "string", "End of the interval in which trips begin"),
        DictionaryColumn("zone", "string", "Code of the zone"),
        DictionaryColumn(
            "role", "string", "Whether trips begin (origin), end (destination) or both there"
        ),
        DictionaryColumn("name", "string", "Name of the zone on the publisher's map"),
        DictionaryColumn(
            "level", "integer", "Level of the zone in its hierarchy; H3: the resolution"
        ),
        DictionaryColumn(
            "tiles", "integer", "Number of smallest areas of the map in the zone", "tiles"
        ),
        DictionaryColumn("area_km2", "number", "Area of the zone", "km2"),
        DictionaryColumn("lat", "number", "Latitude of the centre, WGS 84", "degrees"),
        DictionaryColumn("lon", "number", "Longitude of the centre, WGS 84", "degrees"),
        DictionaryColumn(
            "geometry", "string", "Outline, longitude and latitude (Parquet WKB, CSV WKT)"
        ),
        DictionaryColumn("bbox", "string", "West, south, east and north end of the outline"),
        DictionaryColumn("h3_cells", "string", "H3 cells that make the zone"),
        DictionaryColumn("tile", "string", "Code of a smallest area of the publisher's map"),
        DictionaryColumn("tile_name", "string", "Name of a smallest area of the publisher's map"),
    )
}
#: What the rows of a table are, by the stem of its file.
ROWS = {
    "flows": "Published cells: trips from a zone to a zone",
    "zones": "Zones with their outlines",
    "estimate": "Estimated trips between areas of one size, with the range that the cells prove",
    "lookup": "Smallest areas of the publisher's map in each zone",
    "flows_wide": "Published pairs of zones, with a column for each matrix",
}


@cache
def translated_meanings() -> Mapping[str, Mapping[str, str]]:
    """Returns the meaning of each known column by language, without English."""
    text = (files("flowveil.published") / "columns.json").read_text(encoding="utf-8")
    return MappingProxyType(json.loads(text))


def columns_of(schema: pa.Schema, report: Mapping[str, Any]) -> list[DictionaryColumn]:
    """Returns the dictionary of a table: each column's type, meaning and unit.

    Meanings are in the language of the release. Columns of the operator's data (purposes, means of
    a number) are described in English by what the statement says of them.
    """
    numbers = value_columns(report["parameters"].get("columns", {}))
    language = report["statement"]["about"].get("language", DEFAULT)
    meanings = translated_meanings().get(language, {})
    columns = []
    for field in schema:
        kind = _type_of(field.type)
        known = KNOWN.get(field.name)
        if known is not None:
            # Codes and names are texts, also where all of them look like numbers.
            own = "string" if known.type == "string" else kind
            meaning = meanings.get(known.name, known.meaning)
            columns.append(DictionaryColumn(known.name, own, meaning, known.unit))
        elif field.name in numbers:
            meaning = f"{field.name.replace('_', ' ').capitalize()} over the trips of the cell"
            columns.append(DictionaryColumn(field.name, kind, meaning))
        elif kind == "string":
            columns.append(
                DictionaryColumn(field.name, kind, f"Value of '{field.name}' of the trips")
            )
        else:
            columns.append(
                DictionaryColumn(field.name, kind, f"Trips of the matrix '{field.name}'", "trips")
            )
    return columns


def _type_of(kind: pa.DataType) -> ColumnType:
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "integer"
    return "number" if pa.types.is_floating(kind) else "string"


def frictionless_schema(columns: Sequence[DictionaryColumn]) -> dict[str, Any]:
    """Returns a table schema: fields with title, description and unit."""
    fields = []
    for column in columns:
        field = {"name": column.name, "type": column.type, "description": column.meaning}
        fields.append({**field, **({} if column.unit is None else {"unit": column.unit})})
    return {"fields": fields, "missingValues": [""]}


def csvw_metadata(file: str, columns: Sequence[DictionaryColumn]) -> dict[str, Any]:
    """Returns the metadata of a CSV file: CSV on the Web, a W3C recommendation."""
    types = {"string": "string", "integer": "integer", "number": "double", "boolean": "boolean"}
    described = [
        {"name": f"column_{number}", "titles": column.name, "datatype": types[column.type]}
        | {"dc:description": column.meaning}
        for number, column in enumerate(columns, start=1)
    ]
    schema = {"columns": described}
    return {"@context": "http://www.w3.org/ns/csvw", "url": file, "tableSchema": schema}
