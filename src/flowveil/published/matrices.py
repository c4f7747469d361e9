"""Matrices for transport models: Open Matrix (OMX), square over common zones, and a wide table.

One matrix for each slice and volume, named by its slice: ``F_08_00`` for the trips of ``sex = F``
and ``time = 08:00``, ``F_08_00_weight`` for its weights. A release of one matrix has ``trips`` and
``weight``; an estimate is named ``estimate``, or ``estimate_F``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.errors import MissingExtraError, ParameterError
from flowveil.published.tables import ENDS, split_slices

#: Zones of an OMX matrix: programs hold it square and dense.
MAX_OMX_ZONES = 20_000
#: Entries of all matrices of one file together.
_MOST_ENTRIES = 1_000_000_000
#: Rows and columns of a chunk of an OMX matrix.
_CHUNK = 256
#: Volumes of a matrix; estimates replace counts where zones are not common.
VOLUMES = ("trips", "weight", "estimate", "estimate_weight")
#: Columns of an estimate as those of a published table.
ESTIMATED = {
    "origin": "origin_zone",
    "destination": "destination_zone",
    "trips": "estimate",
    "weight": "estimate_weight",
}
#: Names of attributes that PyTables gives a meaning.
_RESERVED = ("CLASS", "VERSION", "TITLE", "FLAVOR")
#: A whole number as programs write it: no sign, no leading zero.
_WHOLE = re.compile("0|[1-9][0-9]{0,9}")
_NOT_PRINTED = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, eq=False)
class MatrixTable:
    """One matrix of a release."""

    name: str  # what it is called in a file
    volume: str  # ``trips``, ``weight``, or an estimate of one of them
    slice: dict[str, str | None]  # value of each slice column; None for all values
    cells: pa.Table  # its rows


def list_matrices(flows: pa.Table, slice_columns: Sequence[str]) -> list[MatrixTable]:
    """Returns the matrices of a table in the order of its slices, with distinct names."""
    volumes = [name for name in VOLUMES if name in flows.column_names]
    # Means, totals and medians.
    volumes += [
        one.name
        for one in flows.schema
        if pa.types.is_floating(one.type) and one.name not in VOLUMES
    ]
    matrices: dict[str, MatrixTable] = {}
    for key, cells in split_slices(flows, slice_columns):
        # Letters, digits, dots and dashes; ``all`` for all values.
        words = (
            "all" if v is None else _NOT_PRINTED.sub("_", v).strip("_.") or "value"
            for v in key.values()
        )
        called = "_".join(words)
        for volume in volumes:
            plain = volume
            if key and volume.startswith("estimate"):
                plain = f"estimate_{called}{volume.removeprefix('estimate')}"
            elif key:
                plain = called if volume == "trips" else f"{called}_{volume}"
            numbered = (f"{plain}_{number}" for number in count(2))
            name = next(name for name in chain([plain], numbered) if name not in matrices)
            matrices[name] = MatrixTable(name, volume, key, cells)
    return list(matrices.values())


def load_h5py() -> Any:
    """Returns the library that writes OMX, or raises MissingExtraError."""
    try:
        return import_module("h5py")
    except ImportError:
        raise MissingExtraError(
            "The format 'omx' needs h5py, which is not installed. Hint: pip install"
            " 'flowveil[exports]'."
        ) from None


def check_omx(n_zones: int) -> None:
    """Refuses more zones than programs can hold (ParameterError), and a missing h5py
    (MissingExtraError).
    """
    load_h5py()
    if n_zones > MAX_OMX_ZONES:
        raise ParameterError(
            f"An OMX matrix is square: {n_zones:,} zones would make {n_zones**2:,} entries; "
            f"allowed are {MAX_OMX_ZONES:,} zones. Hint: choose csv or arrow, or coarser zones."
        )


def lookup_codes(codes: Iterable[str]) -> list[str] | list[int]:
    """Returns codes in the order of rows: as numbers where all are whole numbers.

    Codes with leading zeros, or beyond 32 bits, are texts: as numbers they would be other codes.
    """
    texts = sorted(codes)
    if texts and all(_WHOLE.fullmatch(code) and int(code) < 2**31 for code in texts):
        return sorted(map(int, texts))
    return texts


def write_omx(
    path: Path,
    flows: pa.Table,
    codes: Sequence[str] | Sequence[int],
    *,
    names: Mapping[str, str] | None = None,
    slice_columns: Sequence[str] = (),
    lookup_name: str = "zone",
) -> None:
    """Writes matrices over all zones, in the order of their codes.

    The lookup ``lookup_name`` holds the codes: as whole numbers where all codes are, so that
    programs that take the first lookup find the zones of their network. Codes that are texts are no
    use to them; there the first lookup ``index`` numbers the rows from 1, and the next has the
    texts. Each matrix has its volume and its slice as attributes. 0 means that no cell is
    published: there were no trips, or too few; the attribute ``ZERO_MEANS`` says so. Means, totals
    and medians that are not published are NaN, because 0 may be one. The same table gives the same
    bytes. ``codes`` are the distinct zones of both ends, from `lookup_codes`.
    """
    matrices, n = list_matrices(flows, slice_columns), len(codes)
    if len(matrices) * n**2 > _MOST_ENTRIES:
        raise ParameterError(
            f"{len(matrices):,} matrices of {n:,} zones are too many for one OMX file. Hint:"
            " `flowveil derive` makes coarser zones (--level) or fewer slices (--sum)."
        )
    h5py = load_h5py()
    is_estimate = any(matrix.volume.startswith("estimate") for matrix in matrices)
    # The oldest form of HDF5, which every program reads; no times, so that bytes repeat.
    with h5py.File(path, "w", libver=("earliest", "v108")) as file:
        file.attrs.create("OMX_VERSION", np.bytes_("0.2"))
        file.attrs.create("SHAPE", np.array([n, n], dtype=np.int32))
        zero = "no trip is estimated" if is_estimate else "not published: none, or too few"
        file.attrs.create("ZERO_MEANS", np.bytes_(zero))
        file.attrs.create(
            "WRITTEN_BY", np.bytes_(f"flowveil with HDF5 {h5py.version.hdf5_version}")
        )
        data, lookup = file.create_group("data"), file.create_group("lookup")
        if any(matrix.volume not in VOLUMES for matrix in matrices):
            file.attrs.create("NAN_MEANS", np.bytes_("mean, total or median not published"))
        for matrix in matrices:
            written = data.create_dataset(
                matrix.name,
                (n, n),
                np.float64,
                chunks=(min(n, _CHUNK),) * 2,
                compression="gzip",
                compression_opts=1,
                shuffle=True,
                track_times=False,
                fillvalue=None if matrix.volume in VOLUMES else np.nan,
            )
            _fill(written, matrix, codes)
            if matrix.slice:
                _describe(written, matrix)
        called = _NOT_PRINTED.sub("_", lookup_name).strip("_.")
        called = "zone" if called in ("", "index", "zone_name") else called
        if codes and isinstance(codes[0], int):
            lookup.create_dataset(called, data=np.array(codes, np.int32), track_times=False)
        else:
            numbers = np.arange(1, n + 1, dtype=np.int32)
            lookup.create_dataset("index", data=numbers, track_times=False)
            encoded = np.char.encode(np.array(codes), "utf-8")
            lookup.create_dataset(called, data=encoded, track_times=False)
        if names:
            texts = np.char.encode([names.get(str(code), "") for code in codes], "utf-8")
            lookup.create_dataset("zone_name", data=texts, track_times=False)


def _fill(written: Any, matrix: MatrixTable, codes: Sequence[str] | Sequence[int]) -> None:
    """Writes the cells in blocks of rows, never the whole square.

    Blocks without cells are not stored.
    """
    n, known = len(codes), pa.array([str(code) for code in codes], pa.string())
    row, column = (pc.index_in(matrix.cells[end], value_set=known).to_numpy() for end in ENDS)
    volume = matrix.cells[matrix.volume].to_numpy().astype(np.float64)
    order = np.argsort(row, kind="stable")
    row, column, volume = row[order], column[order], volume[order]
    for start in range(0, n, _CHUNK):
        first, last = np.searchsorted(row, (start, start + _CHUNK))
        if first == last:
            continue
        block = np.full((min(_CHUNK, n - start), n), written.fillvalue)
        block[row[first:last] - start, column[first:last]] = volume[first:last]
        written[start : start + _CHUNK] = block


def _describe(written: Any, matrix: MatrixTable) -> None:
    for name, value in (("volume", matrix.volume), *matrix.slice.items()):
        called = (
            f"slice_{name}" if name.upper() in (*_RESERVED, "VOLUME") and name != "volume" else name
        )
        written.attrs.create(called, np.bytes_(("all" if value is None else value).encode("utf-8")))


def matrices_table(flows: pa.Table, slice_columns: Sequence[str]) -> pa.Table:
    """Returns name, volume and slice of each matrix, for programs that read names only."""
    matrices = list_matrices(flows, slice_columns)
    columns: list[Sequence[str | None]] = [
        [one.name for one in matrices],
        [one.volume for one in matrices],
    ]
    columns += [[one.slice[name] for one in matrices] for name in slice_columns]
    names = ["matrix", "volume"]
    for name in slice_columns:
        # A column of the trips may have one of these names.
        names.append(f"slice_{name}" if name in ("matrix", "volume") else name)
    return pa.table([pa.array(c, pa.string()) for c in columns], names=names)


def wide_table(flows: pa.Table, slice_columns: Sequence[str]) -> pa.Table:
    """Returns a row for each published pair (``O``, ``D``), a column for each matrix.

    Null where it has no cell.
    """
    matrices = list_matrices(flows, slice_columns)
    codes = pc.unique(pa.chunked_array([*flows[ENDS[0]].chunks, *flows[ENDS[1]].chunks])).sort()
    pairs = np.unique(_pair_numbers(flows, codes))
    if len(matrices) * len(pairs) > _MOST_ENTRIES // 10:
        raise ParameterError(
            f"{len(matrices):,} columns of {len(pairs):,} pairs are too many for a wide table."
            " Hint: choose csv, or add up slices with `flowveil derive --sum`."
        )
    columns: list[Any] = [
        codes.take(pa.array(pairs // len(codes))),
        codes.take(pa.array(pairs % len(codes))),
    ]
    for matrix in matrices:
        found = pc.index_in(pa.array(pairs), value_set=pa.array(_pair_numbers(matrix.cells, codes)))
        columns.append(matrix.cells[matrix.volume].take(found))
    # A slice may be called like a column of the table.
    names = [f"{one.name}_" if one.name in ("O", "D") else one.name for one in matrices]
    return pa.table(columns, names=["O", "D", *names])


def _pair_numbers(flows: pa.Table, codes: pa.Array) -> Any:
    origin, destination = (
        pc.index_in(flows[end], value_set=codes).to_numpy().astype(np.int64) for end in ENDS
    )
    return origin * len(codes) + destination
