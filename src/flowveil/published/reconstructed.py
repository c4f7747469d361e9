"""A reconstruction as a file: Parquet, CSV, or OMX in the areas asked for."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flowveil.errors import MissingExtraError, ParameterError
from flowveil.output import check_file, write_files
from flowveil.published.exports import MAX_OMX_ZONES
from flowveil.published.spreadsheets import write_csv

SUFFIXES = (".parquet", ".csv", ".omx")


def check_out(path: str | PathLike[str]) -> None:
    """Refuse a file that cannot be written, before anything is computed.

    Raises:
        ParameterError: its suffix is of no format.
        OutputError: nothing can be written there.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ParameterError(f"The table must be {', '.join(SUFFIXES)}; found '{Path(path).suffix}'.")
    check_file(path)


def write_reconstructed(table: pa.Table, path: str | PathLike[str], *, sliced: bool) -> None:
    """Write a table of estimated flows.

    Raises:
        ParameterError: OMX is asked for, and there are several matrices or too many areas.
        MissingExtraError: OMX needs h5py.
    """
    kind = Path(path).suffix.lower()
    if kind == ".omx":
        _check_omx(table, sliced=sliced)
    write = {
        ".parquet": lambda place: pq.write_table(table, place, compression="zstd", version="2.6"),
        ".csv": lambda place: write_csv(table, place),
        ".omx": lambda place: _write_omx(table, place),
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
            data.create_dataset(name, data=matrix, compression="gzip", compression_opts=1, track_times=False)
        lookup.create_dataset("index", data=np.arange(1, n + 1, dtype=np.int32), track_times=False)
        lookup.create_dataset("zone_code", data=np.char.encode(np.array(codes), "utf-8"), track_times=False)
