"""Exports: cells and zones in the formats of other tools.

Every writer gets published tables alone, so no export can disclose more than they do. The same
release gives the same bytes: no time, no host, no random name is written. Text in a CSV file is
written so that no spreadsheet runs it (`flowveil.published.spreadsheets`); the other formats keep
every code unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

from flowveil.core.errors import ParameterError, did_you_mean
from flowveil.core.times import TIME_COLUMNS
from flowveil.core.values import value_columns
from flowveil.published.about import one_line
from flowveil.published.dictionary import columns_of, csvw_metadata
from flowveil.published.geodata import check_gdal, write_flatgeobuf, write_pmtiles
from flowveil.published.geopackage import as_multi, write_geopackage
from flowveil.published.maps import ENDS, floats, geometries, zone_of_flow, zones_of
from flowveil.published.matrices import (
    check_omx,
    lookup_codes,
    matrices_table,
    wide_table,
    write_omx,
)
from flowveil.published.spreadsheets import write_csv
from flowveil.published.tables import SUMS, add_up
from flowveil.published.zone_names import names_by_code, zone_names

#: Rows of a batch of an Arrow file: fixed, because it is part of the bytes.
_ROWS_PER_BATCH = 1 << 20
#: Formats whose cells have all columns of the release.
_OF_ALL_COLUMNS = ("csv", "geojson", "gpkg", "fgb", "pmtiles", "arrow", "dcat", "croissant")
#: Formats of matrices: folds have an estimate for each of their values.
MATRIX_FORMATS = ("omx", "wide")
#: Formats whose flows may have folds.
_OF_FOLDS = (*_OF_ALL_COLUMNS, *MATRIX_FORMATS, "kepler")


@dataclass(frozen=True, eq=False)
class Tables:
    """What an export is written from: published tables, and what they are about."""

    flows: pa.Table  # the cells
    zones: pa.Table  # the zones
    report: Mapping[str, Any]  # content of report.json
    slice_columns: tuple[str, ...] = ()  # columns of the flows that distinguish matrices
    every: str | None = None  # shortest step of time, if time is one of them

    @property
    def about(self) -> dict[str, str]:
        """What the operator declared: title, source, ..."""
        return dict(self.report["statement"]["about"])

    @cached_property
    def without_layers(self) -> pa.Table:
        """The cells with equal pairs of one slice added up."""
        keys = [*self.slice_columns, "origin_zone", "destination_zone"]
        return add_up(self.flows, keys)[0] if "layer" in self.flows.column_names else self.flows

    @cached_property
    def named_zones(self) -> pa.Table:
        """The zones with a name where there is one: the publisher's, else the nearest town."""
        names = pa.array([name or None for name in zone_names(self.zones)], pa.string())
        if "name" in self.zones.column_names:
            at = self.zones.schema.get_field_index("name")
            return self.zones.set_column(at, "name", names)
        return self.zones.append_column("name", names)

    @cached_property
    def names(self) -> dict[str, str]:
        """The name of each zone that has one, by code."""
        return names_by_code(self.zones)

    def with_names(self, flows: pa.Table, **codes: str) -> pa.Table:
        """Returns cells with a column of names behind each of these columns of codes."""
        for column, name in codes.items():
            texts = [self.names.get(code) for code in flows[column].to_pylist()]
            at = flows.schema.get_field_index(column) + 1
            flows = flows.add_column(at, name, pa.array(texts, pa.string()))
        return flows


@dataclass(frozen=True)
class Format:
    """An export format."""

    name: str  # what users write
    files: tuple[str, ...]  # the files it consists of
    #: Writes them into a folder; None for metadata, which describe all other files and come last.
    write: Callable[[Path, Tables], None] | None = None
    needs_map: bool = False  # whether it cannot do without places


def format_names() -> tuple[str, ...]:
    """Returns the names that `--format` takes; Parquet is always written."""
    return ("parquet", *FORMATS)


def parse_formats(names: str | Iterable[str]) -> tuple[Format, ...]:
    """The formats of a comma-separated list or of several names.

    ``parquet`` is always written and adds nothing.

    In the order of `FORMATS`, whatever the order of the names: so a report follows from what is
    written.
    """
    listed = (
        names.split(",")
        if isinstance(names, str)
        else [part for name in names for part in name.split(",")]
    )
    wanted = dict.fromkeys(name.strip().lower() for name in listed if name.strip())
    for name in wanted:
        if name not in FORMATS and name != "parquet":
            raise ParameterError(
                f"Unknown format '{name}'; allowed: parquet, {', '.join(FORMATS)}."
                + did_you_mean(name, FORMATS)
            )
    return tuple(known for name, known in FORMATS.items() if name in wanted)


def check_formats(
    formats: Sequence[Format],
    *,
    zones: int,
    mapped: bool,
    folded: bool = False,
    revised: bool = False,
    publisher: bool = True,
) -> None:
    """Refuses what cannot be written (ParameterError), or needs a library (MissingExtraError),
    before any work.

    ``zones`` is their number, ``mapped`` whether all have a place, ``folded`` whether cells have
    folds, ``revised`` whether they say if their value is a new one, ``publisher`` whether who
    publishes is declared.
    """
    for wanted in formats:
        name, problem = wanted.name, None
        if revised and name not in _OF_ALL_COLUMNS:
            problem = (
                f"'{name}' has no place for what is revised. Allowed: parquet,"
                f" {', '.join(_OF_ALL_COLUMNS)}."
            )
        elif folded and name not in _OF_FOLDS:
            allowed = ", ".join(_OF_FOLDS)
            problem = (
                f"'{name}' has no place for the times or groups of cells. Allowed with folds:"
                f" parquet, {allowed}."
            )
        elif wanted.needs_map and not mapped:
            problem = (
                f"The zones of this release have no place on a map, which '{name}' needs. "
                "Hint: leave it out; csv, omx and arrow do without."
            )
        elif name == "dcat" and not publisher:
            problem = (
                "'dcat' names who publishes the release, and neither a publisher nor a contact is"
                " given. Hint: --set output.publisher=TEXT or --set output.contact=TEXT; --title,"
                " --source, --period and output.licence are used as well."
            )
        if problem is not None:
            raise ParameterError(problem)
        if name == "omx":
            check_omx(zones)
        if name in ("fgb", "pmtiles"):
            check_gdal(name)


def _write_csv(folder: Path, tables: Tables) -> None:
    """Both tables with names and sizes in words, and what each column means (CSVW)."""
    zones = tables.named_zones
    # Seven decimals are a centimetre.
    wkt = shapely.to_wkt(geometries(zones), rounding_precision=7)
    flat = _with_listed_cells(zones).drop_columns(["geometry"])
    flat = flat.append_column("geometry", pa.array(wkt.tolist(), pa.string()))
    for stem, table in (("flows", _for_people(tables)), ("zones", flat)):
        write_csv(table, folder / f"{stem}.csv")
        metadata = csvw_metadata(f"{stem}.csv", columns_of(table.schema, tables.report))
        write_json(metadata, folder / f"{stem}.csv-metadata.json")


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Writes metadata for programs and for people who open the file."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def _for_people(tables: Tables) -> pa.Table:
    """Returns the cells as people read them: names and sizes next to codes, the layer last."""
    flows = tables.with_names(
        tables.flows, origin_zone="origin_name", destination_zone="destination_name"
    )
    area = tables.zones["area_km2"].to_pylist()
    sizes = dict(zip(tables.zones["zone"].to_pylist(), map(_size_in_words, area), strict=True))
    for end in ENDS:
        texts = [sizes.get(code) for code in flows[f"{end}_zone"].to_pylist()]
        at = flows.schema.get_field_index(f"{end}_name") + 1
        flows = flows.add_column(at, f"{end}_size", pa.array(texts, pa.string()))
    if "layer" not in flows.column_names:
        return flows
    return flows.select([name for name in flows.column_names if name != "layer"] + ["layer"])


def _size_in_words(km2: float | None) -> str | None:
    """Returns an area with two digits that count."""
    if km2 is None or not km2 > 0:
        return None
    if km2 < 0.095:
        return f"{float(f'{km2 * 100:.2g}'):g} ha"
    return f"{float(f'{km2:.2g}'):,g} km²"


def _with_listed_cells(zones: pa.Table) -> pa.Table:
    """Zones for formats that know no lists: their H3 cells as one text, with blanks between."""
    if "h3_cells" not in zones.column_names:
        return zones
    at = zones.schema.get_field_index("h3_cells")
    return zones.set_column(at, "h3_cells", pc.binary_join(zones["h3_cells"], " "))


def _write_arrow(folder: Path, tables: Tables) -> None:
    named = _named_flows(tables), tables.named_zones
    for table, name in zip(named, ("flows.arrow", "zones.arrow"), strict=True):
        with (
            pa.OSFile(str(folder / name), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(_without_hidden(table), max_chunksize=_ROWS_PER_BATCH)


def _without_hidden(table: pa.Table) -> pa.Table:
    """Returns the table with zeros under its nulls: Arrow writes the bytes below a null, which
    could hold anything.
    """
    columns = []
    for column in (pa.concat_arrays(column.chunks) for column in table.columns):
        if column.null_count:
            empty = {"string": "", "binary": b""}.get(str(column.type), 0)
            filled = pc.fill_null(column, pa.scalar(empty, column.type)).buffers()
            known = pa.concat_arrays([column.is_valid()]).buffers()[1]
            column = pa.Array.from_buffers(column.type, len(column), [known, *filled[1:]])
        columns.append(column)
    return pa.table(columns, schema=table.schema)


def centers(flows: pa.Table, zones: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Longitude and latitude of both ends of every flow."""
    ends = []
    for end in ENDS:
        listed = zones_of(zones, end)
        at = zone_of_flow(flows, listed, end)
        # The last row is for zones that are not listed.
        ends.append(
            np.column_stack(
                [np.append(floats(listed, name), np.nan)[at] for name in ("lon", "lat")]
            )
        )
    return ends[0], ends[1]


def lines(flows: pa.Table, zones: pa.Table) -> Any:
    """A straight line from centre to centre for every flow; None where an end has no place.

    Lines take the shorter way around the globe. Those that cross the 180th meridian are cut there
    into two (RFC 7946).
    """
    ends = np.stack(centers(flows, zones), axis=1)
    placed = ~np.isnan(ends).any(axis=(1, 2))
    drawn = np.full(len(ends), None, dtype=object)
    drawn[placed] = shapely.linestrings(ends[placed])
    across = np.flatnonzero(placed)[np.abs(np.diff(ends[placed, :, 0])[:, 0]) > 180]
    for i in across.tolist():
        (x0, y0), (x1, y1) = ends[i].tolist()
        edge = 180.0 if x0 > 0 else -180.0
        if abs(x0) == 180 or abs(x1) == 180:
            # An end on the meridian itself, which has two longitudes.
            drawn[i] = shapely.LineString(
                [(-x0 if abs(x0) == 180 else x0, y0), (-x1 if abs(x1) == 180 else x1, y1)]
            )
            continue
        y = y0 + (y1 - y0) * (edge - x0) / (x1 + 2 * edge - x0)
        drawn[i] = shapely.MultiLineString([[(x0, y0), (edge, y)], [(-edge, y), (x1, y1)]])
    return drawn


def _rounded(shapes: Any) -> Any:
    """Returns shapes with seven decimals: a centimetre."""
    return shapely.transform(shapes, lambda xy: np.round(xy, 7))


def _named_flows(tables: Tables) -> pa.Table:
    return tables.with_names(
        tables.flows, origin_zone="origin_name", destination_zone="destination_name"
    )


def _write_geojson(folder: Path, tables: Tables) -> None:
    flows, zones = _named_flows(tables), tables.named_zones
    metadata = (
        f'"metadata": {json.dumps(tables.about, ensure_ascii=False)}, ' if tables.about else ""
    )
    layers = {
        "zones": (zones.drop_columns(["geometry"]), geometries(zones)),
        "flows": (flows, lines(flows, zones)),
    }
    for name, (properties, shapes) in layers.items():
        rows = zip(properties.to_pylist(), shapely.to_geojson(_rounded(shapes)), strict=True)
        with open(folder / f"{name}.geojson", "w", encoding="utf-8", newline="\n") as file:
            file.write(f'{{"type": "FeatureCollection", {metadata}"features": [')
            for number, (row, shape) in enumerate(rows):
                named = json.dumps(row, ensure_ascii=False)
                feature = (
                    f'{{"type": "Feature", "properties": {named}, "geometry": {shape or "null"}}}'
                )
                file.write(("," if number else "") + f"\n{feature}")
            file.write("\n]}\n")


def _drawn_layers(tables: Tables) -> dict[str, tuple[pa.Table, Any, str]]:
    """Returns zones and flows as layers of geodata: columns, shapes, and the type of all shapes."""
    flows, zones = _named_flows(tables), tables.named_zones
    drawn, kind = lines(flows, zones), "LINESTRING"
    # Lines cut at the 180th meridian have two parts; all lines of a layer have the same type.
    if (shapely.get_type_id(drawn) == shapely.GeometryType.MULTILINESTRING).any():
        drawn, kind = as_multi(drawn), "MULTILINESTRING"
    return {
        "zones": (
            _with_listed_cells(zones).drop_columns(["geometry"]),
            as_multi(geometries(zones)),
            "MULTIPOLYGON",
        ),
        "flows": (flows, drawn, kind),
    }


def _write_gpkg(folder: Path, tables: Tables) -> None:
    layers = _drawn_layers(tables)
    write_geopackage(folder / "release.gpkg", layers, description=one_line(tables.about))


def _write_flatgeobuf(folder: Path, tables: Tables) -> None:
    for name, layer in _drawn_layers(tables).items():
        write_flatgeobuf(folder / f"{name}.fgb", *layer)


def _write_pmtiles(folder: Path, tables: Tables) -> None:
    for name, layer in _drawn_layers(tables).items():
        write_pmtiles(folder / f"{name}.pmtiles", *layer)


def _write_omx(folder: Path, tables: Tables) -> None:
    """Open Matrix, with the codes of rows and the slices of matrices in CSV files for programs that
    read numbers.
    """
    zones, flows = tables.zones, tables.without_layers
    codes = lookup_codes(set(zones["zone"].to_pylist()))
    names = tables.names
    write_omx(
        folder / "flows.omx",
        flows,
        codes,
        names=names,
        slice_columns=tables.slice_columns,
        lookup_name=_lookup_name(tables.report["parameters"]),
    )
    listed = {
        "row": pa.array(range(1, len(codes) + 1), pa.int32()),
        "zone": pa.array([str(code) for code in codes], pa.string()),
    }
    if names:
        listed["name"] = pa.array([names.get(str(code)) for code in codes], pa.string())
    write_csv(pa.table(listed), folder / "omx_zones.csv")
    write_csv(matrices_table(flows, tables.slice_columns), folder / "omx_matrices.csv")


def _lookup_name(parameters: Mapping[str, Any]) -> str:
    """Returns what the input calls the codes of zones: the lookup of its OMX file, or the column of
    its map.
    """
    own = parameters.get("lookup") or (parameters.get("zones") or {}).get("tile")
    return own if isinstance(own, str) and own else "zone"


def _write_wide(folder: Path, tables: Tables) -> None:
    table = wide_table(tables.without_layers, tables.slice_columns)
    table = tables.with_names(table, O="O_name", D="D_name")
    write_csv(table, folder / "flows_wide.csv")
    pq.write_table(table, folder / "flows_wide.parquet", compression="zstd", version="2.6")


def _write_flowmap(folder: Path, tables: Tables) -> None:
    """The two sheets of flowmap.blue: locations (id, name, lat, lon) and flows (origin, dest,
    count, slice columns).
    """
    zones, flows, names = tables.zones, tables.without_layers, tables.names
    codes = zones["zone"].to_pylist()
    called = pa.array([names.get(code, code) for code in codes], pa.string())
    places = pa.table(
        {"id": zones["zone"], "name": called, "lat": zones["lat"], "lon": zones["lon"]}
    )
    first = sorted({code: row for row, code in reversed([*enumerate(codes)])}.values())
    write_csv(places.take(first), folder / "flowmap_locations.csv")
    table = pa.table(
        {"origin": flows["origin_zone"], "dest": flows["destination_zone"], "count": flows["trips"]}
    )
    for name in tables.slice_columns:
        table = table.append_column(_free_name(name, table.column_names), flows[name])
    write_csv(table, folder / "flowmap_flows.csv")


def _free_name(name: str, taken: Iterable[str]) -> str:
    """Returns the name, with underscores where another column has it, in capitals or not."""
    used = {one.lower() for one in taken}
    while name.lower() in used:
        name += "_"
    return name


def _write_kepler(folder: Path, tables: Tables) -> None:
    """A map of kepler.gl that opens by drag and drop: two data sets.

    Flows as a flow layer, and as arcs.
    """
    # The flow layer adds up the flows of a pair, so only the finest slices are in it; filters
    # choose among them.
    zones, about = tables.named_zones, tables.about
    flows = tables.with_names(
        tables.without_layers if tables.slice_columns else tables.flows,
        origin_zone="origin_name",
        destination_zone="destination_name",
    )
    start, stop = centers(flows, zones)
    ends = ("origin_zone", "origin_name", "destination_zone", "destination_name")
    flow_columns = {c: flows[c].to_pylist() for c in ends}
    numbers = value_columns(tables.report["parameters"].get("columns", {}))
    flow_columns |= {
        c: flows[c].to_pylist() for c in (*SUMS, *numbers, *TIME_COLUMNS) if c in flows.column_names
    }
    for end, points in zip(ENDS, (start, stop), strict=True):
        for name, axis in (("lat", 1), ("lng", 0)):
            flow_columns[f"{end}_{name}"] = [
                None if value != value else value for value in points[:, axis].tolist()
            ]
    for name in (*(tables.report["parameters"].get("fold") or ()), *tables.slice_columns):
        flow_columns[_free_name(name, flow_columns)] = flows[name].to_pylist()
    shown = [
        c for c in ("zone", "name", "role", "level", "tiles", "area_km2") if c in zones.schema.names
    ]
    zone_columns = {c: zones[c].to_pylist() for c in shown}
    zone_columns["_geojson"] = [
        (
            None
            if g is None
            else {
                "type": "Feature",
                "properties": {},
                "geometry": json.loads(shapely.to_geojson(g)),
            }
        )
        for g in _rounded(geometries(zones))
    ]
    name = about.get("title", "Origin-destination matrix")
    content = {
        "datasets": [_kepler_data("flows", flow_columns), _kepler_data("zones", zone_columns)],
        "config": {"version": "v1", "config": _kepler_config(start, stop)},
        "info": {"app": "kepler.gl", "title": name, "description": one_line(about)},
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    (folder / "kepler.json").write_text(text + "\n", encoding="utf-8", newline="\n")


def _kepler_data(name: str, columns: dict[str, list[Any]]) -> dict[str, Any]:
    kinds = {dict: "geojson", int: "integer", float: "real", str: "string"}
    known = {c: next((v for v in values if v is not None), "") for c, values in columns.items()}
    fields = [
        {"name": c, "type": kinds[type(v)], "format": "", "analyzerType": ""}
        for c, v in known.items()
    ]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    data = {"id": name, "label": name, "color": [31, 95, 191], "allData": rows, "fields": fields}
    return {"version": "v1", "data": data}


def _kepler_layer(kind: str, data: str, name: str = "", **config: Any) -> dict[str, Any]:
    name = name or data
    return {"id": name, "type": kind, "config": {"dataId": data, "label": name, **config}}


def _kepler_config(start: np.ndarray, stop: np.ndarray) -> dict[str, Any]:
    points = np.concatenate((start, stop))
    points = points[~np.isnan(points).any(axis=1)]
    center = np.median(points, axis=0)
    span = max(float(np.ptp(points, axis=0).max()), 1e-3)
    look: dict[str, Any] = {
        "opacity": 0.15,
        "stroked": True,
        "filled": True,
        "strokeOpacity": 0.6,
        "thickness": 0.5,
    }
    zones_layer = _kepler_layer(
        "geojson",
        "zones",
        color=[127, 176, 223],
        columns={"geojson": "_geojson"},
        isVisible=True,
        visConfig=look,
    )
    ends = {
        "lat0": "origin_lat",
        "lng0": "origin_lng",
        "lat1": "destination_lat",
        "lng1": "destination_lng",
    }
    columns = {
        **ends,
        "count": "trips",
        "sourceName": "origin_name",
        "targetName": "destination_name",
    }
    look = {"opacity": 0.9, "flowClusteringEnabled": False, "maxTopFlowsDisplayNum": 5000}
    flows_layer = _kepler_layer(
        "flow", "flows", columnMode="LAT_LNG", columns=columns, isVisible=True, visConfig=look
    )
    # For versions of kepler.gl without the flow layer, which skip it.
    look = {"opacity": 0.6, "thickness": 2, "sizeRange": [0, 12], "targetColor": [194, 81, 12]}
    arcs_layer = _kepler_layer(
        "arc",
        "flows",
        name="arcs",
        color=[31, 95, 191],
        columns=ends,
        isVisible=False,
        visConfig=look,
    )
    size = {"sizeField": {"name": "trips", "type": "integer"}, "sizeScale": "sqrt"}
    view = {"latitude": round(float(center[1]), 5), "longitude": round(float(center[0]), 5)}
    zoom = round(float(np.clip(np.log2(360 / span), 1, 16)), 2)
    return {
        "visState": {
            "filters": [],
            "layers": [flows_layer, {**arcs_layer, "visualChannels": size}, zones_layer],
        },
        "mapState": {**view, "zoom": zoom, "pitch": 30, "bearing": 0},
        "mapStyle": {"styleType": "light"},
    }


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format(
            "csv",
            ("flows.csv", "zones.csv", "flows.csv-metadata.json", "zones.csv-metadata.json"),
            _write_csv,
        ),
        Format("geojson", ("flows.geojson", "zones.geojson"), _write_geojson, needs_map=True),
        Format("gpkg", ("release.gpkg",), _write_gpkg, needs_map=True),
        Format("fgb", ("flows.fgb", "zones.fgb"), _write_flatgeobuf, needs_map=True),
        Format("pmtiles", ("flows.pmtiles", "zones.pmtiles"), _write_pmtiles, needs_map=True),
        Format("omx", ("flows.omx", "omx_zones.csv", "omx_matrices.csv"), _write_omx),
        Format("wide", ("flows_wide.csv", "flows_wide.parquet"), _write_wide),
        Format(
            "flowmap",
            ("flowmap_locations.csv", "flowmap_flows.csv"),
            _write_flowmap,
            needs_map=True,
        ),
        Format("kepler", ("kepler.json",), _write_kepler, needs_map=True),
        Format("arrow", ("flows.arrow", "zones.arrow"), _write_arrow),
        Format("dcat", ("dcat.jsonld",), needs_map=True),
        Format("croissant", ("croissant.json",)),
    )
}
