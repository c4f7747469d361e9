"""Matrices as tables of trips: OMX files, and text files with a column for each destination.

Matrices are never added up (files of transport models hold minutes and kilometres too): their names
are an attribute to slice by. OMX files (HDF5) are untrusted: they can hold pickled objects, links
to other files, types with code and plug-in filters. No attribute is read, and `_check_file` refuses
everything but plain numbers and texts of bounded size that are stored in this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from flowveil.core.errors import (
    DataError,
    MissingExtraError,
    ParameterError,
    did_you_mean,
    with_value,
)
from flowveil.core.flows import SUM_COLUMNS
from flowveil.core.headers import listed
from flowveil.reading import Reading
from flowveil.reading.sql import quoted_text

#: The columns of a matrix as a table.
ORIGIN, DESTINATION, TRIPS, MATRIX = "origin", "destination", "trips", "matrix"
_ROWS = pa.schema(
    [
        (ORIGIN, pa.string()),
        (DESTINATION, pa.string()),
        (TRIPS, pa.float64()),
        (MATRIX, pa.string()),
    ]
)
#: Upper bound for the zones; a matrix has the square of it as cells.
MOST_ZONES = 20_000
_CELLS_AT_ONCE = 1 << 24
#: deflate, shuffle, fletcher32: part of every HDF5 library, so none is loaded from elsewhere.
_FILTERS = frozenset({1, 2, 3})
_MOST_MATRICES, _LONGEST_TEXT = 1_000, 4_096
#: Largest uncompressed chunk in bytes.
_LARGEST_CHUNK = 1 << 26


@dataclass(frozen=True)
class Form:
    """The names of the matrices of an OMX file; none for a text file."""

    matrices: tuple[str, ...] = ()

    def read_as(self, reading: Reading) -> Reading:
        """Returns the reading with the columns of a matrix, unless others were named."""
        columns = reading.columns
        if len(self.matrices) > 1 and MATRIX not in columns.by:
            raise ParameterError(
                f"The file has {len(self.matrices)} matrices: {listed(self.matrices)}. They are not"
                f" added up. Hint: choose one with {with_value('matrix', self.matrices[0])}, or"
                f" publish each as a slice with {with_value('by', MATRIX)}."
            )
        counted = columns.trips
        if counted is None:
            counted = "" if TRIPS in columns.added.values() else TRIPS
        ends = columns.origin_tile or ORIGIN, columns.destination_tile or DESTINATION
        others: dict[str, Any] = {
            role: getattr(columns, role) or "" for role in ("person", *SUM_COLUMNS)
        }
        used = replace(
            columns, origin_tile=ends[0], destination_tile=ends[1], trips=counted, **others
        )
        return replace(reading, columns=used)


def matrix_names(path: Path) -> tuple[str, ...]:
    """Returns the names of the matrices of an OMX file, sorted."""
    with open_omx(path) as file:
        return tuple(sorted(file.matrices))


def omx_table(path: Path, *, matrices: Sequence[str], lookup: str | None) -> tuple[pa.Table, Form]:
    """Returns the nonzero cells of matrices of an OMX file, by default of all, as rows.

    The lookup has the codes of the zones; by default it is the only one, or the only one of texts.
    Without lookups the codes are 1, 2, 3, ...
    """
    with open_omx(path) as file:
        unknown = [name for name in matrices if name not in file.matrices]
        if unknown:
            raise ParameterError(
                f"The file has no matrix {listed(unknown)}; it has {listed(sorted(file.matrices))}."
                f"{did_you_mean(unknown[0], file.matrices)}"
            )
        names = sorted(set(matrices or file.matrices))
        codes = pa.array(_codes(file, lookup), pa.string())
        parts = [part for name in names for part in _cells(file, name, codes)]
    return pa.concat_tables([_ROWS.empty_table(), *parts]), Form(tuple(names))


def _codes(file: Omx, lookup: str | None) -> list[str]:
    lookups = file.lookups
    texts = [name for name, values in lookups.items() if values.dtype.kind == "S"]
    if lookup is None and len(lookups) > 1 and len(texts) != 1:
        likely = min(lookups, key=lambda name: (not re.search("zone|taz", name.casefold()), name))
        raise ParameterError(
            f"The file has {len(lookups)} lookups: {listed(sorted(lookups))}; which one has the"
            f" codes of the zones is not known. Hint: {with_value('lookup', likely)}, for example."
        )
    if lookup is not None and lookup not in lookups:
        known = f"it has {listed(sorted(lookups))}" if lookups else "it has none"
        raise ParameterError(f"The file has no lookup '{lookup}'; {known}.")
    name = lookup or (texts[0] if len(lookups) > 1 else next(iter(lookups), None))
    codes = [str(i + 1) for i in range(file.zones)] if name is None else _texts(lookups[name])
    if len(set(codes)) < len(codes) or "" in codes:
        raise DataError("The zones of the file have codes that are empty or duplicates.")
    return codes


def _texts(values: Any) -> list[str]:
    if values.dtype.kind == "S":
        return [value.decode("utf-8", errors="replace").strip() for value in values.tolist()]
    if values.dtype.kind == "f" and not np.all(values == np.rint(values)):
        raise DataError(
            "The lookup of the file has numbers that are not whole; codes must be whole numbers or"
            " text."
        )
    return [str(int(value)) for value in values.tolist()]


def _cells(file: Omx, name: str, codes: pa.Array) -> list[pa.Table]:
    """Returns the nonzero cells in chunks of rows; NaN stays, and is counted as missing."""
    parts, node = [], file.matrices[name]
    step = max(1, _CELLS_AT_ONCE // max(file.zones, 1))
    for first in range(0, file.zones, step):
        block = node[first : first + step]
        row, column = np.nonzero(block)
        ends = codes.take(pa.array(row + first)), codes.take(pa.array(column))
        trips = pa.array(block[row, column].astype(np.float64))
        parts.append(
            pa.Table.from_arrays(
                [*ends, trips, pa.array([name] * len(row), pa.string())], schema=_ROWS
            )
        )
    return parts


def wide_sql(relation: str, codes: Sequence[str]) -> str:
    """Returns a FROM clause (origin, destination, trips) over a table with origins in c0.

    Empty cells are no rows.
    """
    columns = ", ".join(f"c{i + 1}" for i in range(len(codes)))
    names = ", ".join(quoted_text(code) for code in codes)
    return (
        f"(SELECT c0 AS {ORIGIN}, list_extract([{names}], CAST(substr(place, 2) AS INTEGER)) AS"
        f" {DESTINATION}, {TRIPS} FROM (UNPIVOT (SELECT * FROM {relation}) ON {columns} INTO NAME"
        f" place VALUE {TRIPS}))"
    )


@dataclass(frozen=True, eq=False)
class Omx:
    """An open OMX file that passed all checks.

    Data sets of matrices, and for each lookup a value for each zone.
    """

    zones: int
    matrices: Mapping[str, Any]
    lookups: Mapping[str, np.ndarray]


@contextmanager
def open_omx(path: Path) -> Iterator[Omx]:
    """Opens an OMX file for reading; messages name the file and matrices, never values."""
    try:
        import h5py
    except ImportError:
        raise MissingExtraError(
            "OMX needs h5py, which is not installed. Hint: pip install 'flowveil[exports]'."
        ) from None
    with ExitStack() as stack:
        problem = "is not an HDF5 file."
        try:
            file = stack.enter_context(h5py.File(path, "r", locking=False))
            problem = "cannot be read: its HDF5 structure is damaged."
            omx = _check_file(h5py, file)
        except DataError as refused:
            raise DataError(f"'{path.name}' {refused}") from None
        except Exception:
            # Messages of the library may quote the content of the file.
            raise DataError(f"'{path.name}' {problem}") from None
        yield omx


def _check_file(h5py: Any, file: Any) -> Omx:
    if file.userblock_size:
        raise DataError("has bytes before its HDF5 header.")
    groups = {
        name: _member(h5py, file, name, h5py.Group) for name in ("data", "lookup") if name in file
    }
    if "data" not in groups:
        raise DataError("has no group 'data', so it is not an OMX file.")
    sets: dict[str, dict[str, Any]] = {"data": {}, "lookup": {}}
    for group, content in groups.items():
        if len(content) > _MOST_MATRICES:
            raise DataError(f"has more than {_MOST_MATRICES:,} entries in a group.")
        for name in content:
            sets[group][name] = _member(h5py, content, name, h5py.Dataset)
    zones = _zones(sets["data"])
    for name, node in sets["data"].items():
        _check_dataset(h5py, node, f"matrix {name!a}", kinds="iuf")
    for name, node in sets["lookup"].items():
        if node.shape != (zones,):
            found = " x ".join(map(str, node.shape or ())) or "no"
            raise DataError(f"has a lookup {name!a} with {found} values for {zones:,} zones.")
        _check_dataset(h5py, node, f"lookup {name!a}", kinds="iufS")
    return Omx(zones, sets["data"], {name: node[:] for name, node in sets["lookup"].items()})


def _member(h5py: Any, group: Any, name: str, kind: Any) -> Any:
    """Returns an entry of a group, opened only if it is a hard link to the expected kind of
    object.
    """
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DataError(f"has a link to another place instead of {name!a}; links are not followed.")
    if group.get(name, getclass=True) is not kind:
        raise DataError(f"has an entry {name!a} that is neither a matrix nor a lookup.")
    return group[name]


def _zones(matrices: Mapping[str, Any]) -> int:
    """Returns the number of zones, after checking that all matrices are square and equal in
    size.
    """
    if not matrices:
        raise DataError("has no matrix.")
    sizes = {}
    for name, node in matrices.items():
        shape = node.shape
        size = "empty" if shape is None else " x ".join(map(str, shape))
        if shape is None or len(shape) != 2 or shape[0] != shape[1]:
            raise DataError(f"has a matrix {name!a} that is {size}; square matrices are needed.")
        sizes[int(shape[0])] = f"{name!a} is {size}"
    if len(sizes) > 1:
        raise DataError(f"has matrices of different sizes: {', '.join([*sizes.values()][:2])}.")
    (zones,) = sizes
    if zones > MOST_ZONES:
        raise DataError(f"has more than {MOST_ZONES:,} zones.")
    return zones


def _check_dataset(h5py: Any, node: Any, label: str, *, kinds: str) -> None:
    # The class of the HDF5 type: its numpy type hides enumerations, references and variable-length
    # text.
    plain = {h5py.h5t.INTEGER, h5py.h5t.FLOAT} | ({h5py.h5t.STRING} if "S" in kinds else set())
    stored = node.id.get_type()
    if stored.get_class() not in plain or stored.committed() or node.dtype.kind not in kinds:
        allowed = "numbers or text of fixed length" if "S" in kinds else "numbers"
        raise DataError(f"has a {label} whose values are not {allowed}.")
    if node.dtype.itemsize > _LONGEST_TEXT:
        raise DataError(f"has a {label} with text longer than {_LONGEST_TEXT:,} bytes.")
    created = node.id.get_create_plist()
    layouts = (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED)
    if created.get_external_count() or created.get_layout() not in layouts:
        raise DataError(f"has a {label} whose values are stored in another file.")
    if any(created.get_filter(i)[0] not in _FILTERS for i in range(created.get_nfilters())):
        raise DataError(
            f"has a {label} compressed by a filter other than deflate, shuffle and fletcher32."
        )
    if (
        node.chunks is not None
        and int(np.prod(node.chunks, dtype=object)) * node.dtype.itemsize > _LARGEST_CHUNK
    ):
        raise DataError(f"has a {label} in chunks of more than {_LARGEST_CHUNK:,} bytes.")
