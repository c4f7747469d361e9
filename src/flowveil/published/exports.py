"""Exports: cells and zones in the formats of other tools.

Every writer gets published tables alone, so no export can disclose more than they do. The same release gives the same
bytes: no time, no host, no random name is written. Text in a CSV file is written so that no spreadsheet runs it
(`flowveil.published.spreadsheets`); the other formats keep every code unchanged.

| name | files | read by |
|---|---|---|
| csv | flows.csv, zones.csv | anything |
| geojson | flows.geojson, zones.geojson | QGIS, web maps |
| gpkg | release.gpkg (layers zones, flows) | QGIS, ArcGIS, geopandas |
| omx | flows.omx, omx_zones.csv, omx_matrices.csv | Visum, TransCAD, Cube, AequilibraE, openmatrix |
| wide | flows_wide.csv, flows_wide.parquet (a column for each matrix) | spreadsheets, AequilibraE, pandas |
| flowmap | flowmap_locations.csv, flowmap_flows.csv | flowmap.blue, Flowmap City |
| kepler | kepler.json (data and configuration) | kepler.gl |
| arrow | flows.arrow, zones.arrow | Arrow, pandas, polars, DuckDB |
| dcat | dcat.jsonld (metadata by DCAT-AP and mobilityDCAT-AP) | data portals, national access points |
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
import shapely

from flowveil.errors import ParameterError, did_you_mean
from flowveil.published.about import one_line, title
from flowveil.published.geopackage import write_geopackage
from flowveil.published.matrices import check_omx, matrices_table, write_omx, write_wide
from flowveil.published.metadata import describe_release, write_metadata
from flowveil.published.slices import ENDS, add_up, finest_rows
from flowveil.published.spreadsheets import write_csv
from flowveil.times import TIME_COLUMNS

#: Rows of a batch of an Arrow file: fixed, because it is part of the bytes.
_ROWS_PER_BATCH = 1 << 20
#: What a release is about; see `flowveil.published.about`.
About = Mapping[str, str]
_VOLUMES = ("trips", "weight")
#: Formats whose cells have all columns of the release.
_OF_ALL_COLUMNS = ("csv", "geojson", "gpkg", "arrow", "dcat")
#: Formats whose flows may have times.
_OF_TIMES = (*_OF_ALL_COLUMNS, "kepler")


@dataclass(frozen=True, eq=False)
class Tables:
    """What an export is written from: published tables, and what they are about.

    Attributes:
        flows: the cells.
        zones: the zones.
        report: content of report.json.
        slice_columns: columns of the flows that distinguish matrices.
        every: shortest step of time, if time is one of them.
    """

    flows: pa.Table
    zones: pa.Table
    report: Mapping[str, Any]
    slice_columns: tuple[str, ...] = ()
    every: str | None = None

    @property
    def about(self) -> About:
        """What the operator declared: title, source, ..."""
        return dict(self.report["statement"]["about"])

    @cached_property
    def without_layers(self) -> pa.Table:
        """The cells with equal pairs of one slice added up."""
        return add_up(self.flows, [*self.slice_columns, *ENDS])[0] if "layer" in self.flows.column_names else self.flows

    @property
    def finest(self) -> pa.Table:
        """The cells that programs may add up: without layers, and without matrices of all values or longer steps."""
        found = finest_rows(self.without_layers, self.slice_columns, self.every)
        return found if len(found) else self.without_layers


@dataclass(frozen=True)
class Format:
    """An export format.

    Attributes:
        name: what users write.
        files: the files it consists of.
        write: writes them into a folder.
        needs_map: whether it cannot do without places.
    """

    name: str
    files: tuple[str, ...]
    write: Callable[[Path, Tables], None]
    needs_map: bool = False


def parse_formats(names: str | Iterable[str]) -> tuple[Format, ...]:
    """The formats of a comma-separated list or of several names; ``parquet`` is always written and adds nothing.

    In the order of `FORMATS`, whatever the order of the names: so a report follows from what is written.

    Raises:
        ParameterError: one is not known.
    """
    listed = names.split(",") if isinstance(names, str) else [part for name in names for part in name.split(",")]
    wanted = dict.fromkeys(name.strip().lower() for name in listed if name.strip())
    for name in wanted:
        if name not in FORMATS and name != "parquet":
            raise ParameterError(
                f"Unknown format '{name}'; allowed: parquet, {', '.join(FORMATS)}." + did_you_mean(name, FORMATS)
            )
    return tuple(known for name, known in FORMATS.items() if name in wanted)


def check_formats(
    formats: Sequence[Format],
    *,
    zones: int,
    mapped: bool,
    folded: bool = False,
    revised: bool = False,
    contact: bool = True,
) -> None:
    """Refuse what cannot be written, before anything is.

    Args:
        formats: what is wanted.
        zones: how many zones there are.
        mapped: whether all have a place.
        folded: whether cells have times.
        revised: whether cells say if their value is a new one.
        contact: whether a contact is declared.

    Raises:
        ParameterError: a format needs places that the zones do not have, or fewer zones.
        MissingExtraError: a library is not installed.
    """
    for wanted in formats:
        if revised and wanted.name not in _OF_ALL_COLUMNS:
            raise ParameterError(
                f"'{wanted.name}' has no place for what is revised. Allowed: parquet, {', '.join(_OF_ALL_COLUMNS)}."
            )
        if folded and wanted.name not in _OF_TIMES:
            raise ParameterError(
                f"'{wanted.name}' has no place for the times of cells. Allowed with --fold-time: parquet, "
                f"{', '.join(_OF_TIMES)}."
            )
        if wanted.needs_map and not mapped:
            raise ParameterError(
                f"The zones of this release have no place on a map, which '{wanted.name}' needs. "
                "Hint: leave it out; csv, omx and arrow do without."
            )
        if wanted.name == "dcat" and not contact:
            raise ParameterError(
                "'dcat' names who publishes the release, and no contact is given. Hint: --set output.contact=TEXT; "
                "--title, --source, --period and output.licence are used as well."
            )
        if wanted.name == "omx":
            check_omx(zones)


# ---- plain tables ------------------------------------------------------------------------------------------------


def _write_csv(folder: Path, tables: Tables) -> None:
    zones = tables.zones
    write_csv(tables.flows, folder / "flows.csv")
    outlines = zones["geometry"].to_numpy(zero_copy_only=False)
    # Seven decimals are a centimetre.
    wkt = shapely.to_wkt(shapely.from_wkb(outlines), rounding_precision=7)
    geometry = pa.array(
        [text if raw is not None else None for text, raw in zip(wkt, outlines, strict=True)], pa.string()
    )
    flat = _with_listed_cells(zones).drop_columns(["geometry"])
    write_csv(flat.append_column("geometry", geometry), folder / "zones.csv")


def _with_listed_cells(zones: pa.Table) -> pa.Table:
    """Zones for formats that know no lists: their H3 cells as one text, with blanks between."""
    if "h3_cells" not in zones.column_names:
        return zones
    at = zones.schema.get_field_index("h3_cells")
    return zones.set_column(at, "h3_cells", pc.binary_join(zones["h3_cells"], " "))


def _write_dcat(folder: Path, tables: Tables) -> None:
    """Metadata of everything that is in the folder: the last format to be written."""
    files = sorted(path.name for path in folder.iterdir() if path.name != "dcat.jsonld")
    sentences = tables.report["published"]["sentences"]
    content = describe_release(files, tables.zones, title=title(tables.report), about=tables.about, sentences=sentences)
    write_metadata(folder / "dcat.jsonld", content)


def _write_arrow(folder: Path, tables: Tables) -> None:
    for table, name in ((tables.flows, "flows.arrow"), (tables.zones, "zones.arrow")):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(_without_hidden(table), max_chunksize=_ROWS_PER_BATCH)


def _without_hidden(table: pa.Table) -> pa.Table:
    """Returns the table with zeros under its nulls: Arrow writes the bytes below a null, which could hold anything."""
    columns = []
    for column in (pa.concat_arrays(column.chunks) for column in table.columns):
        if column.null_count:
            empty = {"string": "", "binary": b""}.get(str(column.type), 0)
            filled = pc.fill_null(column, pa.scalar(empty, column.type)).buffers()
            known = pa.concat_arrays([column.is_valid()]).buffers()[1]
            column = pa.Array.from_buffers(column.type, len(column), [known, *filled[1:]])
        columns.append(column)
    return pa.table(columns, schema=table.schema)


# ---- places ------------------------------------------------------------------------------------------------------


def centers(flows: pa.Table, zones: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Longitude and latitude of both ends of every flow."""
    ends = []
    for end in ("origin", "destination"):
        listed = zones.filter(pc.is_in(zones["role"], value_set=pa.array([end, "both"])))
        at = pc.index_in(flows[f"{end}_zone"], value_set=listed["zone"].combine_chunks())
        ends.append(np.column_stack([listed[c].take(at).to_numpy(zero_copy_only=False) for c in ("lon", "lat")]))
    return ends[0], ends[1]


def lines(flows: pa.Table, zones: pa.Table) -> Any:
    """A straight line from centre to centre for every flow; None where an end has no place.

    Lines take the shorter way around the globe. Those that cross the 180th meridian are cut there into two (RFC 7946).
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
            drawn[i] = shapely.LineString([(-x0 if abs(x0) == 180 else x0, y0), (-x1 if abs(x1) == 180 else x1, y1)])
            continue
        y = y0 + (y1 - y0) * (edge - x0) / (x1 + 2 * edge - x0)
        drawn[i] = shapely.MultiLineString([[(x0, y0), (edge, y)], [(-edge, y), (x1, y1)]])
    return drawn


def _write_geojson(folder: Path, tables: Tables) -> None:
    flows, zones, about = tables.flows, tables.zones, tables.about
    outlines = shapely.from_wkb(zones["geometry"].to_numpy(zero_copy_only=False))
    _feature_collection(folder / "zones.geojson", zones.drop_columns(["geometry"]), outlines, about)
    _feature_collection(folder / "flows.geojson", flows, lines(flows, zones), about)


def _feature_collection(path: Path, properties: pa.Table, shapes: Any, about: About) -> None:
    rounded = shapely.transform(shapes, lambda xy: np.round(xy, 7))
    geometry = shapely.to_geojson(rounded)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        metadata = f'"metadata": {json.dumps(dict(about), ensure_ascii=False)}, ' if about else ""
        file.write(f'{{"type": "FeatureCollection", {metadata}"features": [\n')
        for number, (row, shape) in enumerate(zip(properties.to_pylist(), geometry, strict=True)):
            comma = ",\n" if number else ""
            named = json.dumps(row, ensure_ascii=False)
            file.write(f'{comma}{{"type": "Feature", "properties": {named}, "geometry": {shape or "null"}}}')
        file.write("\n]}\n")


def _write_gpkg(folder: Path, tables: Tables) -> None:
    flows, zones = tables.flows, tables.zones
    outlines = shapely.from_wkb(zones["geometry"].to_numpy(zero_copy_only=False))
    parts = np.array([_as_multi(shape) for shape in outlines], dtype=object)
    layers = {
        "zones": (_with_listed_cells(zones).drop_columns(["geometry"]), parts, "MULTIPOLYGON"),
        "flows": (flows, *_layer_of_lines(lines(flows, zones))),
    }
    write_geopackage(folder / "release.gpkg", layers, description=one_line(tables.about))


def _layer_of_lines(drawn: Any) -> tuple[Any, str]:
    """Lines of one type, and its name: lines cut at the 180th meridian are of two parts."""
    if not any(shape is not None and shape.geom_type == "MultiLineString" for shape in drawn):
        return drawn, "LINESTRING"
    multi = [None if s is None else shapely.MultiLineString(list(shapely.get_parts(s))) for s in drawn]
    return np.array([*multi, None], dtype=object)[:-1], "MULTILINESTRING"


def _as_multi(shape: Any) -> Any:
    return shapely.MultiPolygon([shape]) if shape is not None and shape.geom_type == "Polygon" else shape


# ---- tools of the trade ------------------------------------------------------------------------------------------


def _write_omx(folder: Path, tables: Tables) -> None:
    """Open Matrix, with the codes of rows and the slices of matrices in CSV files for programs that read numbers."""
    zones, flows = tables.zones, tables.without_layers
    codes = sorted(set(zones["zone"].to_pylist()))
    names = names_by_code(zones)
    write_omx(folder / "flows.omx", flows, codes, names=names, slice_columns=tables.slice_columns)
    listed = {"index": pa.array(range(1, len(codes) + 1), pa.int32()), "zone": pa.array(codes, pa.string())}
    if names:
        listed["name"] = pa.array([names.get(code) for code in codes], pa.string())
    write_csv(pa.table(listed), folder / "omx_zones.csv")
    write_csv(matrices_table(flows, tables.slice_columns), folder / "omx_matrices.csv")


def _write_wide(folder: Path, tables: Tables) -> None:
    write_wide(folder, tables.without_layers, tables.slice_columns)


def names_by_code(zones: pa.Table) -> dict[str, str]:
    """What the zones that have a name are called; empty where none has."""
    if "name" not in zones.column_names:
        return {}
    pairs = zip(zones["zone"].to_pylist(), zones["name"].to_pylist(), strict=True)
    return {code: name for code, name in pairs if name}


def _write_flowmap(folder: Path, tables: Tables) -> None:
    """The two sheets of flowmap.blue: locations (id, name, lat, lon) and flows (origin, dest, count, slice columns).

    The page adds up the flows of a pair, so only the finest slices are in it.
    """
    zones, flows = tables.zones, tables.finest
    places: dict[str, tuple[float, float]] = {}
    for zone, lat, lon in zip(*(zones[c].to_pylist() for c in ("zone", "lat", "lon")), strict=True):
        places.setdefault(zone, (lat, lon))
    ids = pa.array(list(places), pa.string())
    lat, lon = (pa.array([place[i] for place in places.values()], pa.float64()) for i in (0, 1))
    names = names_by_code(zones)
    called = pa.array([names.get(code, code) for code in places], pa.string())
    write_csv(pa.table({"id": ids, "name": called, "lat": lat, "lon": lon}), folder / "flowmap_locations.csv")
    table = pa.table({"origin": flows["origin_zone"], "dest": flows["destination_zone"], "count": flows["trips"]})
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
    """A map of kepler.gl that opens by drag and drop: two data sets; flows as a flow layer, and as arcs.

    The flow layer adds up the flows of a pair, so only the finest slices are in it; filters choose among them.
    """
    zones, about = tables.zones, tables.about
    flows = tables.finest if tables.slice_columns else tables.flows
    start, stop = centers(flows, zones)
    volumes = [v for v in _VOLUMES if v in flows.column_names]
    flow_columns = {
        "origin_zone": flows["origin_zone"].to_pylist(),
        "destination_zone": flows["destination_zone"].to_pylist(),
        **{v: flows[v].to_pylist() for v in (*volumes, *TIME_COLUMNS) if v in flows.column_names},
        "origin_lat": _degrees(start[:, 1]),
        "origin_lng": _degrees(start[:, 0]),
        "destination_lat": _degrees(stop[:, 1]),
        "destination_lng": _degrees(stop[:, 0]),
    }
    for name in tables.slice_columns:
        flow_columns[_free_name(name, flow_columns)] = flows[name].to_pylist()
    shapes = shapely.transform(
        shapely.from_wkb(zones["geometry"].to_numpy(zero_copy_only=False)), lambda xy: np.round(xy, 7)
    )
    zone_columns = {
        **{
            c: zones[c].to_pylist()
            for c in ("zone", "name", "role", "level", "tiles", "area_km2")
            if c in zones.schema.names
        },
        "_geojson": [
            None if g is None else {"type": "Feature", "properties": {}, "geometry": json.loads(shapely.to_geojson(g))}
            for g in shapes
        ],
    }
    content = {
        "datasets": [_kepler_data("flows", flow_columns), _kepler_data("zones", zone_columns)],
        "config": {"version": "v1", "config": _kepler_config(start, stop)},
        "info": {
            "app": "kepler.gl",
            "title": about.get("title", "Origin-destination matrix"),
            "description": one_line(about),
        },
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    (folder / "kepler.json").write_text(text + "\n", encoding="utf-8", newline="\n")


def _kepler_data(name: str, columns: dict[str, list[Any]]) -> dict[str, Any]:
    def kind(values: list[Any]) -> str:
        known = next((v for v in values if v is not None), "")
        if isinstance(known, dict):
            return "geojson"
        return "integer" if isinstance(known, int) else "real" if isinstance(known, float) else "string"

    fields = [{"name": c, "type": kind(v), "format": "", "analyzerType": ""} for c, v in columns.items()]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    data = {"id": name, "label": name, "color": [31, 95, 191], "allData": rows, "fields": fields}
    return {"version": "v1", "data": data}


def _degrees(values: np.ndarray) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


def _kepler_config(start: np.ndarray, stop: np.ndarray) -> dict[str, Any]:
    points = np.concatenate((start, stop))
    points = points[~np.isnan(points).any(axis=1)]
    center = np.median(points, axis=0)
    span = max(float(np.ptp(points, axis=0).max()), 1e-3)
    zones_layer = {
        "id": "zones",
        "type": "geojson",
        "config": {
            "dataId": "zones",
            "label": "zones",
            "color": [127, 176, 223],
            "columns": {"geojson": "_geojson"},
            "isVisible": True,
            "visConfig": {"opacity": 0.15, "stroked": True, "filled": True, "strokeOpacity": 0.6, "thickness": 0.5},
        },
    }
    ends = {"lat0": "origin_lat", "lng0": "origin_lng", "lat1": "destination_lat", "lng1": "destination_lng"}
    flows_layer = {
        "id": "flows",
        "type": "flow",
        "config": {
            "dataId": "flows",
            "label": "flows",
            "columnMode": "LAT_LNG",
            "columns": {**ends, "count": "trips", "sourceName": "origin_zone", "targetName": "destination_zone"},
            "isVisible": True,
            "visConfig": {"opacity": 0.9, "flowClusteringEnabled": False, "maxTopFlowsDisplayNum": 5000},
        },
    }
    # For versions of kepler.gl without the flow layer, which skip it.
    arcs_layer = {
        "id": "arcs",
        "type": "arc",
        "config": {
            "dataId": "flows",
            "label": "arcs",
            "color": [31, 95, 191],
            "columns": ends,
            "isVisible": False,
            "visConfig": {"opacity": 0.6, "thickness": 2, "sizeRange": [0, 12], "targetColor": [194, 81, 12]},
        },
        "visualChannels": {"sizeField": {"name": "trips", "type": "integer"}, "sizeScale": "sqrt"},
    }
    return {
        "visState": {"filters": [], "layers": [flows_layer, arcs_layer, zones_layer]},
        "mapState": {
            "latitude": round(float(center[1]), 5),
            "longitude": round(float(center[0]), 5),
            "zoom": round(float(np.clip(np.log2(360 / span), 1, 16)), 2),
            "pitch": 30,
            "bearing": 0,
        },
        "mapStyle": {"styleType": "light"},
    }


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("csv", ("flows.csv", "zones.csv"), _write_csv),
        Format("geojson", ("flows.geojson", "zones.geojson"), _write_geojson, needs_map=True),
        Format("gpkg", ("release.gpkg",), _write_gpkg, needs_map=True),
        Format("omx", ("flows.omx", "omx_zones.csv", "omx_matrices.csv"), _write_omx),
        Format("wide", ("flows_wide.csv", "flows_wide.parquet"), _write_wide),
        Format("flowmap", ("flowmap_locations.csv", "flowmap_flows.csv"), _write_flowmap, needs_map=True),
        Format("kepler", ("kepler.json",), _write_kepler, needs_map=True),
        Format("arrow", ("flows.arrow", "zones.arrow"), _write_arrow),
        Format("dcat", ("dcat.jsonld",), _write_dcat, needs_map=True),
    )
}
