"""Reads OMX files (HDF5) from untrusted sources without executing anything they contain.

HDF5 can hold pickled Python objects in attributes (PyTables loads, and so runs, them), links to other files, virtual
data sets, types with code attached, and filters loaded from plug-ins. None of these is followed or loaded. Before a
number is read, the file must satisfy:

- groups ``data`` with square matrices of numbers and ``lookup`` with one number or text for each zone;
- hard links only, no named types;
- numbers and fixed-length text only, stored in this file, uncompressed or compressed by deflate, shuffle or fletcher32;
- bounded sizes, known from the header: zones, text length, uncompressed chunk size.

Only attributes of numbers and fixed-length text are read; of others the name alone is reported. Files of openmatrix,
ActivitySim and AequilibraE satisfy this: their empty attributes have a null data space, and the chunks of small
matrices may extend beyond the matrix. Other groups are listed in `Omx.further` and ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np

from flowveil.errors import DataError, MissingExtraError

#: deflate, shuffle, fletcher32: part of every HDF5 library, so none is loaded from elsewhere.
_FILTERS = frozenset({1, 2, 3})
_MOST_MATRICES = 1_000
_MOST_ATTRIBUTES = 100
_LONGEST_TEXT = 4_096
#: Largest uncompressed chunk in bytes.
_LARGEST_CHUNK = 1 << 26


@dataclass(frozen=True, eq=False)
class Omx:
    """An open OMX file that passed all checks.

    Attributes:
        zones: rows and columns of every matrix.
        matrices: data sets by name; read them by slices of rows.
        lookups: by name, a value for each zone; text as bytes.
        attributes: by path and name; None if the value is empty, or neither a number nor fixed-length text.
        further: paths of objects that are not part of OMX; none of them is opened.
    """

    zones: int
    matrices: Mapping[str, Any]
    lookups: Mapping[str, np.ndarray]
    attributes: Mapping[str, Mapping[str, Any]]
    further: tuple[str, ...]


@contextmanager
def open_omx(path: str | PathLike[str], *, most_zones: int) -> Iterator[Omx]:
    """Open an OMX file for reading.

    Args:
        path: a regular file.
        most_zones: largest number of zones allowed; memory grows with its square.

    Raises:
        DataError: it is not an HDF5 file, or violates a rule above. Messages name matrices, never values.
        MissingExtraError: h5py is not installed.
    """
    try:
        import h5py
    except ImportError:
        raise MissingExtraError(
            "OMX needs h5py, which is not installed. Hint: pip install 'flowveil[exports]'."
        ) from None
    try:
        file = h5py.File(fspath(path), "r", locking=False)
    except Exception:
        raise DataError("is not an HDF5 file.") from None
    with file:
        try:
            omx = _check_file(h5py, file, most_zones)
        except DataError:
            raise
        except Exception:
            # Messages of the library may quote the content of the file.
            raise DataError("cannot be read: its HDF5 structure is damaged.") from None
        yield omx


def _check_file(h5py: Any, file: Any, most_zones: int) -> Omx:
    if file.userblock_size:
        raise DataError("has bytes before its HDF5 header.")
    further: list[str] = []
    groups = {name: _member(h5py, file, name, h5py.Group) for name in ("data", "lookup") if name in file}
    if "data" not in groups:
        raise DataError("has no group 'data', so it is not an OMX file.")
    further += [f"/{name}" for name in file if name not in groups]
    sets: dict[str, dict[str, Any]] = {"data": {}, "lookup": {}}
    for group, content in groups.items():
        if len(content) > _MOST_MATRICES:
            raise DataError(f"has more than {_MOST_MATRICES:,} entries in a group.")
        for name in content:
            sets[group][name] = _member(h5py, content, name, h5py.Dataset)
    zones = _zones(sets["data"], most_zones)
    for name, node in sets["data"].items():
        _check_dataset(h5py, node, f"matrix {name!a}", kinds="iuf")
    for name, node in sets["lookup"].items():
        if node.shape != (zones,):
            found = " x ".join(map(str, node.shape or ())) or "no"
            raise DataError(f"has a lookup {name!a} with {found} values for {zones:,} zones.")
        _check_dataset(h5py, node, f"lookup {name!a}", kinds="iufS")
    nodes = {"/": file} | {f"/{name}": group for name, group in groups.items()}
    nodes |= {f"/{group}/{name}": node for group, content in sets.items() for name, node in content.items()}
    return Omx(
        zones=zones,
        matrices=sets["data"],
        lookups={name: node[:] for name, node in sets["lookup"].items()},
        attributes={path: _attributes(h5py, node) for path, node in nodes.items()},
        further=tuple(further),
    )


def _member(h5py: Any, group: Any, name: str, kind: Any) -> Any:
    """Returns an entry of a group, opened only if it is a hard link to the expected kind of object."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DataError(f"has a link to another place instead of {name!a}; links are not followed.")
    if group.get(name, getclass=True) is not kind:
        raise DataError(f"has an entry {name!a} that is neither a matrix nor a lookup.")
    return group[name]


def _zones(matrices: Mapping[str, Any], most: int) -> int:
    """Returns the number of zones, after checking that all matrices are square and equal in size."""
    if not matrices:
        raise DataError("has no matrix.")
    zones = None
    for name, node in matrices.items():
        shape = node.shape
        size = "empty" if shape is None else " x ".join(map(str, shape))
        if shape is None or len(shape) != 2 or shape[0] != shape[1]:
            raise DataError(f"has a matrix {name!a} that is {size}; square matrices are needed.")
        if zones is not None and shape[0] != zones:
            raise DataError(f"has matrices of different sizes: {name!a} is {size}, another is {zones} x {zones}.")
        zones = int(shape[0])
    if zones is None or zones > most:
        raise DataError(f"has more than {most:,} zones.")
    return zones


def _check_dataset(h5py: Any, node: Any, label: str, *, kinds: str) -> None:
    # The class of the HDF5 type: its numpy type hides enumerations, references and variable-length text.
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
        raise DataError(f"has a {label} compressed by a filter other than deflate, shuffle and fletcher32.")
    if node.chunks is not None and int(np.prod(node.chunks, dtype=object)) * node.dtype.itemsize > _LARGEST_CHUNK:
        raise DataError(f"has a {label} in chunks of more than {_LARGEST_CHUNK:,} bytes.")


def _attributes(h5py: Any, node: Any) -> dict[str, Any]:
    if len(node.attrs) > _MOST_ATTRIBUTES:
        raise DataError(f"has more than {_MOST_ATTRIBUTES} attributes in one place.")
    found: dict[str, Any] = {}
    for name in node.attrs:
        # The low-level interface converts nothing: only numbers and fixed-length text are read.
        attribute = node.attrs.get_id(name)
        kind = attribute.get_type()
        plain = kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT) or (
            kind.get_class() == h5py.h5t.STRING and not kind.is_variable_str()
        )
        found[name] = None
        # PyTables writes an empty text with a null data space, whose storage size HDF5 reports as an error.
        is_empty = attribute.get_space().get_simple_extent_type() == h5py.h5s.NULL
        if plain and not is_empty and attribute.get_storage_size() <= _LONGEST_TEXT:
            values = np.empty(attribute.shape, dtype=attribute.dtype)
            attribute.read(values)
            found[name] = values
    return found
