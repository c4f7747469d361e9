"""The matrix and its zones in the formats that other tools read.

Every export holds the rows of ``flows.parquet`` and ``zones.parquet`` and nothing else: each writer gets the two
published tables, so no export can disclose more than they do. Bytes are the same for the same release: no time, no
host, no random name is written. Text in a CSV file is written so that no spreadsheet runs it
(`flowveil.published.spreadsheets`); the other formats keep every code as it is.

| name | files | read by |
|---|---|---|
| csv | flows.csv, zones.csv | anything |
| geojson | flows.geojson, zones.geojson | QGIS, web maps |
| gpkg | release.gpkg (layers zones, flows) | QGIS, ArcGIS, geopandas |
| omx | flows.omx, omx_zones.csv | Visum, TransCAD, Cube, openmatrix |
| flowmap | flowmap_locations.csv, flowmap_flows.csv | flowmap.blue, Flowmap City |
| kepler | kepler.json (data and configuration) | kepler.gl |
| arrow | flows.arrow, zones.arrow | Arrow, pandas, polars, DuckDB |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from flowveil.errors import MissingExtraError, ParameterError, did_you_mean
from flowveil.published.about import one_line
from flowveil.published.geopackage import write_geopackage
from flowveil.published.slices import overview
from flowveil.published.spreadsheets import write_csv
from flowveil.times import TIME_COLUMNS

#: Zones of an OMX matrix: it is square and dense for whoever reads it.
MAX_OMX_ZONES = 20_000
#: Rows of a batch of an Arrow file: fixed, because it is part of the bytes.
_ROWS_PER_BATCH = 1 << 20
#: An OMX matrix is packed in squares of so many rows and columns.
_OMX_PIECE = 256
#: What a release is about; see `flowveil.published.about`.
About = Mapping[str, str]
_VOLUMES = ("trips", "weight")
#: Matrices of an OMX file; estimates replace counts where cells are layers.
_MATRICES = (*_VOLUMES, "estimate", "estimate_weight")
#: Formats whose tables may have slice columns.
_OF_SLICES = ("csv", "arrow")
#: Formats whose flows may have times.
_OF_TIMES = ("csv", "geojson", "gpkg", "kepler", "arrow")


@dataclass(frozen=True)
class Format:
    """An export format.

    Attributes:
        name: what users write.
        files: the files it consists of.
        write: writes them into a folder, from the flows, the zones and what the release is about.
        needs_map: whether it cannot do without places.
    """

    name: str
    files: tuple[str, ...]
    write: Callable[[Path, pa.Table, pa.Table, About], None]
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
    sliced: bool = False,
    folded: bool = False,
    revised: bool = False,
) -> None:
    """Refuse what cannot be written, before anything is.

    Args:
        formats: what is wanted.
        zones: how many zones there are.
        mapped: whether all have a place.
        sliced: whether there are several matrices.
        folded: whether cells have times.
        revised: whether cells say if their value is a new one.

    Raises:
        ParameterError: a format needs places that the zones do not have, or fewer zones.
        MissingExtraError: a library is not installed.
    """
    for wanted in formats:
        if sliced and wanted.name not in _OF_SLICES:
            raise ParameterError(
                f"'{wanted.name}' holds one matrix, slices are several. Allowed: parquet, {', '.join(_OF_SLICES)}."
            )
        if revised and wanted.name not in _OF_SLICES:
            raise ParameterError(
                f"'{wanted.name}' has no place for what is revised. Allowed: parquet, {', '.join(_OF_SLICES)}."
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
        if wanted.name == "omx":
            _load("h5py", wanted.name)
            if zones > MAX_OMX_ZONES:
                raise ParameterError(
                    f"An OMX matrix is square: {zones:,} zones would make {zones**2:,} entries; "
                    f"allowed are {MAX_OMX_ZONES:,} zones. Hint: choose csv or arrow, or coarser zones."
                )


def _load(module: str, format_name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"The format '{format_name}' needs {module}, which is not installed. Hint: pip install 'flowveil[exports]'."
        ) from None


# ---- plain tables ------------------------------------------------------------------------------------------------


def _write_csv(folder: Path, flows: pa.Table, zones: pa.Table, about: About) -> None:  # noqa: ARG001
    write_csv(flows, folder / "flows.csv")
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


def _write_arrow(folder: Path, flows: pa.Table, zones: pa.Table, about: About) -> None:  # noqa: ARG001
    for table, name in ((flows, "flows.arrow"), (zones, "zones.arrow")):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(_without_hidden(table), max_chunksize=_ROWS_PER_BATCH)


def _without_hidden(table: pa.Table) -> pa.Table:
    """The same table with nothing but zeros where it is empty: Arrow writes what lies under a null as it is."""
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


def _write_geojson(folder: Path, flows: pa.Table, zones: pa.Table, about: About) -> None:
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


def _write_gpkg(folder: Path, flows: pa.Table, zones: pa.Table, about: About) -> None:
    outlines = shapely.from_wkb(zones["geometry"].to_numpy(zero_copy_only=False))
    parts = np.array([_as_multi(shape) for shape in outlines], dtype=object)
    layers = {
        "zones": (_with_listed_cells(zones).drop_columns(["geometry"]), parts, "MULTIPOLYGON"),
        "flows": (flows, *_layer_of_lines(lines(flows, zones))),
    }
    write_geopackage(folder / "release.gpkg", layers, description=one_line(about))


def _layer_of_lines(drawn: Any) -> tuple[Any, str]:
    """Lines of one type, and its name: lines cut at the 180th meridian are of two parts."""
    if not any(shape is not None and shape.geom_type == "MultiLineString" for shape in drawn):
        return drawn, "LINESTRING"
    multi = [None if s is None else shapely.MultiLineString(list(shapely.get_parts(s))) for s in drawn]
    return np.array([*multi, None], dtype=object)[:-1], "MULTILINESTRING"


def _as_multi(shape: Any) -> Any:
    return shapely.MultiPolygon([shape]) if shape is not None and shape.geom_type == "Polygon" else shape


# ---- tools of the trade ------------------------------------------------------------------------------------------


def _write_omx(folder: Path, flows: pa.Table, zones: pa.Table, about: About) -> None:  # noqa: ARG001
    """Open Matrix: square, over all zones of both ends in text order.

    Rows and columns are numbered from 1 (lookup ``index``); ``zone_code`` holds the codes, and so does omx_zones.csv
    for tools that read numbers only. 0 means that no cell is published: there were no trips, or too few;
    the attribute ``ZERO_MEANS`` says so. An estimate (`flowveil.published.reconstruction.estimate_tables`) is a matrix
    named ``estimate``.
    """
    h5py = _load("h5py", "omx")
    zero = "no trip is estimated" if "estimate" in flows.column_names else "not published: none, or too few"
    codes = np.unique(zones["zone"].to_numpy(zero_copy_only=False).astype(np.str_))
    n = len(codes)
    value_set = pa.array(codes.tolist(), pa.string())
    row, column = (
        pc.index_in(flows[name], value_set=value_set).to_numpy() for name in ("origin_zone", "destination_zone")
    )
    numbers = np.arange(1, n + 1, dtype=np.int32)
    piece = (min(n, _OMX_PIECE),) * 2
    # The oldest form of HDF5, which every program reads; no times, so that bytes repeat.
    with h5py.File(folder / "flows.omx", "w", libver=("earliest", "v108")) as file:
        file.attrs.create("OMX_VERSION", np.bytes_("0.2"))
        file.attrs.create("SHAPE", np.array([n, n], dtype=np.int32))
        file.attrs.create("ZERO_MEANS", np.bytes_(zero))
        file.attrs.create("WRITTEN_BY", np.bytes_(f"flowveil with HDF5 {h5py.version.hdf5_version}"))
        data, lookup = file.create_group("data"), file.create_group("lookup")
        for name in (v for v in _MATRICES if v in flows.column_names):
            matrix = data.create_dataset(
                name,
                (n, n),
                np.float64,
                chunks=piece,
                compression="gzip",
                compression_opts=1,
                shuffle=True,
                track_times=False,
            )
            volume = flows[name].to_numpy().astype(np.float64)
            # Flows are sorted by origin: a block of rows at a time, never the whole square.
            for start in range(0, n, _OMX_PIECE):
                first, last = np.searchsorted(row, (start, start + _OMX_PIECE))
                if first == last:
                    continue
                block = np.zeros((min(_OMX_PIECE, n - start), n))
                block[row[first:last] - start, column[first:last]] = volume[first:last]
                matrix[start : start + _OMX_PIECE] = block
        lookup.create_dataset("index", data=numbers, track_times=False)
        lookup.create_dataset("zone_code", data=np.char.encode(codes, "utf-8"), track_times=False)
        names = names_by_code(zones)
        if names:
            said = np.char.encode([names.get(code, "") for code in codes.tolist()], "utf-8")
            lookup.create_dataset("zone_name", data=said, track_times=False)
    listed: dict[str, Any] = {"index": numbers, "zone": value_set}
    if names:
        listed["name"] = pa.array([names.get(code) for code in codes.tolist()], pa.string())
    write_csv(pa.table(listed), folder / "omx_zones.csv")


def _summed_layers(flows: pa.Table) -> pa.Table:
    """Returns one row for each pair of zones: cells of several layers are added up."""
    return overview(flows, (), None) if "layer" in flows.column_names else flows


def names_by_code(zones: pa.Table) -> dict[str, str]:
    """What the zones that have a name are called; empty where none has."""
    if "name" not in zones.column_names:
        return {}
    pairs = zip(zones["zone"].to_pylist(), zones["name"].to_pylist(), strict=True)
    return {code: name for code, name in pairs if name}


def _write_flowmap(folder: Path, flows: pa.Table, zones: pa.Table, about: About) -> None:  # noqa: ARG001
    """The two sheets of flowmap.blue: locations (id, name, lat, lon) and flows (origin, dest, count)."""
    places: dict[str, tuple[float, float]] = {}
    for zone, lat, lon in zip(*(zones[c].to_pylist() for c in ("zone", "lat", "lon")), strict=True):
        places.setdefault(zone, (lat, lon))
    ids = pa.array(list(places), pa.string())
    lat, lon = (pa.array([place[i] for place in places.values()], pa.float64()) for i in (0, 1))
    names = names_by_code(zones)
    called = pa.array([names.get(code, code) for code in places], pa.string())
    write_csv(pa.table({"id": ids, "name": called, "lat": lat, "lon": lon}), folder / "flowmap_locations.csv")
    flows = _summed_layers(flows)
    table = pa.table({"origin": flows["origin_zone"], "dest": flows["destination_zone"], "count": flows["trips"]})
    write_csv(table, folder / "flowmap_flows.csv")


def _write_kepler(folder: Path, flows: pa.Table, zones: pa.Table, about: About) -> None:
    """A map of kepler.gl that opens by drag and drop: two data sets and two layers."""
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
    ends = np.concatenate((start, stop))
    ends = ends[~np.isnan(ends).any(axis=1)]
    center = np.median(ends, axis=0)
    span = max(float(np.ptp(ends, axis=0).max()), 1e-3)
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
    flows_layer = {
        "id": "flows",
        "type": "arc",
        "config": {
            "dataId": "flows",
            "label": "flows",
            "color": [31, 95, 191],
            "columns": {
                "lat0": "origin_lat",
                "lng0": "origin_lng",
                "lat1": "destination_lat",
                "lng1": "destination_lng",
            },
            "isVisible": True,
            "visConfig": {"opacity": 0.6, "thickness": 2, "sizeRange": [0, 12], "targetColor": [194, 81, 12]},
        },
        "visualChannels": {"sizeField": {"name": "trips", "type": "integer"}, "sizeScale": "sqrt"},
    }
    return {
        "visState": {"filters": [], "layers": [flows_layer, zones_layer]},
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
        Format("omx", ("flows.omx", "omx_zones.csv"), _write_omx),
        Format("flowmap", ("flowmap_locations.csv", "flowmap_flows.csv"), _write_flowmap, needs_map=True),
        Format("kepler", ("kepler.json",), _write_kepler, needs_map=True),
        Format("arrow", ("flows.arrow", "zones.arrow"), _write_arrow),
    )
}
