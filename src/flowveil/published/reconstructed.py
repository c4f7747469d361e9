"""An estimated matrix as a file: Parquet, CSV, OMX or GeoPackage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from flowveil.errors import ParameterError
from flowveil.output import check_file, write_files
from flowveil.published.geopackage import write_geopackage
from flowveil.published.matrices import ESTIMATED, check_omx, write_omx
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
    table: pa.Table, path: str | PathLike[str], *, slice_columns: Sequence[str], outline: Callable[[str], Any]
) -> None:
    """Write a table of estimated flows.

    Args:
        table: the flows.
        path: the file; its suffix is the format. Every format says that values are estimates: a column ``kind``, or in
            OMX the names of the matrices, ``estimate`` and ``estimate_weight``.
        slice_columns: columns that distinguish matrices.
        outline: the outline of an area, for a GeoPackage; None where it has none.

    Raises:
        ParameterError: too many areas for OMX.
        MissingExtraError: OMX needs h5py.
    """
    kind = Path(path).suffix.lower()
    if kind == ".omx":
        check_omx(len(_areas(table)))
    marked = table.append_column("kind", pa.array(["estimate"] * len(table), pa.string()))
    write = {
        ".parquet": lambda place: pq.write_table(marked, place, compression="zstd", version="2.6"),
        ".csv": lambda place: write_csv(marked, place),
        ".omx": lambda place: _write_omx(table, place, slice_columns),
        ".gpkg": lambda place: _write_geopackage(marked, place, outline),
    }
    write_files({path: write[kind]})


def _areas(table: pa.Table) -> list[str]:
    return sorted({*table["origin"].to_pylist(), *table["destination"].to_pylist()})


def _write_omx(table: pa.Table, place: Path, slice_columns: Sequence[str]) -> None:
    renamed = table.rename_columns([ESTIMATED.get(name, name) for name in table.column_names])
    write_omx(place, renamed, _areas(table), slice_columns=slice_columns)


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
