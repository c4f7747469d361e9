"""An estimated matrix as a file: Parquet, CSV, OMX or GeoPackage."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

from flowveil.errors import MissingExtraError, ParameterError
from flowveil.output import check_file, write_files
from flowveil.published.exports import MAX_OMX_ZONES
from flowveil.published.geopackage import write_geopackage
from flowveil.published.spreadsheets import write_csv

SUFFIXES = (".parquet", ".csv", ".omx", ".gpkg")


def check_out(path: str | PathLike[str]) -> None:
    """Refuse a file that cannot be written, before anything is computed.

    Raises:
        ParameterError: its suffix is of no format.
        OutputError: nothing can be written there.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ParameterError(f"The table must be {', '.join(SUFFIXES)}; found '{Path(path).suffix}'.")
    check_file(path)


def write_reconstructed(
    table: pa.Table, path: str | PathLike[str], *, sliced: bool, outline: Callable[[str], Any]
) -> None:
    """Write a table of estimated flows.

    Args:
        table: the flows.
        path: the file; its suffix is the format. Every format says that values are estimates: a column ``kind``, or in
            OMX the names of the matrices, ``estimate`` and ``estimate_weight``.
        sliced: whether there are several matrices.
        outline: the outline of an area, for a GeoPackage; None where it has none.

    Raises:
        ParameterError: OMX is asked for, and there are several matrices or too many areas.
        MissingExtraError: OMX needs h5py.
    """
    kind = Path(path).suffix.lower()
    if kind == ".omx":
        _check_omx(table, sliced=sliced)
    marked = table.append_column("kind", pa.array(["estimate"] * len(table), pa.string()))
    write = {
        ".parquet": lambda place: pq.write_table(marked, place, compression="zstd", version="2.6"),
        ".csv": lambda place: write_csv(marked, place),
        ".omx": lambda place: _write_omx(table, place),
        ".gpkg": lambda place: _write_geopackage(marked, place, outline),
    }
    write_files({path: write[kind]})


def _areas(table: pa.Table) -> list[str]:
    return sorted({*table["origin"].to_pylist(), *table["destination"].to_pylist()})


def _check_omx(table: pa.Table, *, sliced: bool) -> None:
    if sliced:
        raise ParameterError("OMX holds one matrix, slices are several. Hint: choose .parquet or .csv.")
    if len(_areas(table)) > MAX_OMX_ZONES:
        raise ParameterError(f"An OMX matrix is square; allowed are {MAX_OMX_ZONES:,} areas. Hint: choose .parquet.")
    try:
        import h5py  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "OMX needs h5py, which is not installed. Hint: pip install 'flowveil[exports]'."
        ) from None


def _write_omx(table: pa.Table, place: Path) -> None:
    import h5py

    codes = _areas(table)
    n = len(codes)
    row, column = (pc.index_in(table[end], value_set=pa.array(codes)).to_numpy() for end in ("origin", "destination"))
    with h5py.File(place, "w", libver=("earliest", "v108")) as file:
        file.attrs.create("OMX_VERSION", np.bytes_("0.2"))
        file.attrs.create("SHAPE", np.array([n, n], dtype=np.int32))
        data, lookup = file.create_group("data"), file.create_group("lookup")
        for name in (name for name in ("trips", "weight") if name in table.column_names):
            matrix = np.zeros((n, n))
            matrix[row, column] = table[name].to_numpy()
            called = "estimate" if name == "trips" else f"estimate_{name}"
            data.create_dataset(called, data=matrix, compression="gzip", compression_opts=1, track_times=False)
        lookup.create_dataset("index", data=np.arange(1, n + 1, dtype=np.int32), track_times=False)
        lookup.create_dataset("zone_code", data=np.char.encode(np.array(codes), "utf-8"), track_times=False)


def _write_geopackage(table: pa.Table, place: Path, outline: Callable[[str], Any]) -> None:
    """The areas with their estimated starts and ends, and the flows as lines between their centres."""
    shapes = {code: shape for code in _areas(table) if (shape := outline(code)) is not None}
    ends = {end: np.array(table[end].to_pylist(), dtype=np.str_) for end in ("origin", "destination")}
    trips = table["trips"].to_numpy()
    codes = np.array(sorted(shapes), dtype=np.str_)
    known = {end: np.isin(names, codes) for end, names in ends.items()}
    totals = {
        name: np.bincount(np.searchsorted(codes, ends[end][known[end]]), trips[known[end]], len(codes))
        for name, end in (("starts", "origin"), ("ends", "destination"))
    }
    areas = pa.table({"area": codes.tolist(), **totals})
    drawn = np.flatnonzero(known["origin"] & known["destination"])
    centre = {code: shapely.centroid(shape).coords[0] for code, shape in shapes.items()}
    lines = [
        shapely.LineString([centre[o], centre[d]])
        for o, d in zip(ends["origin"][drawn].tolist(), ends["destination"][drawn].tolist(), strict=True)
    ]
    outlines = np.array([_as_multi(shapes[code]) for code in codes.tolist()], dtype=object)
    layers = {
        "areas": (areas, outlines, "MULTIPOLYGON"),
        "flows": (table.take(pa.array(drawn)), np.array(lines, dtype=object), "LINESTRING"),
    }
    write_geopackage(place, layers, description="Estimate from a published release; not counts.")


def _as_multi(shape: Any) -> Any:
    return shapely.MultiPolygon([shape]) if shape.geom_type == "Polygon" else shape
