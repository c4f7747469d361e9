"""The door through which every OMX file is read: a file of somebody else's is looked at, never trusted.

HDF5 holds much more than matrices: pickled Python objects in attributes (which PyTables loads, and so runs), links to
other files, views on other data sets, types with code behind them, filters loaded from plug-ins. None of it is followed
or loaded here. Before a number is read, the file must have a plain form:

- two groups, ``data`` with square matrices of numbers and ``lookup`` with one number or text for each zone;
- hard links only: no soft link, no external one; no named type;
- plain numbers and text of fixed length; stored in this file; packed by deflate, shuffle or fletcher32, or not at all;
- sizes within bounds, known from the header: zones, the length of a text, and what one packed piece may unpack to.

Attributes are never loaded as objects: those of plain numbers or text are given as they are, of others only the name.
What a file holds beside the two groups is listed in `Omx.further` and left alone.
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
#: What one packed piece may unpack to.
_LARGEST_CHUNK = 1 << 26


@dataclass(frozen=True, eq=False)
class Omx:
    """An open OMX file of plain form.

    Attributes:
        zones: rows and columns of every matrix.
        matrices: by name, to be read by slices of rows.
        lookups: by name, a value for each zone; text as bytes.
        attributes: by path and name; None for a value that is neither a number nor text of fixed length.
        further: paths of what no OMX file has; nothing of it is opened.
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
        most_zones: how many zones are allowed; a matrix has the square of it.

    Raises:
        DataError: it is not an HDF5 file, or not of the plain form above. Nothing in the message is from the file.
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
            found = _looked_at(h5py, file, most_zones)
        except DataError:
            raise
        except Exception:
            # Whatever a broken file makes the library raise may quote its content.
            raise DataError("is broken: HDF5 cannot read it.") from None
        yield found


def _looked_at(h5py: Any, file: Any, most_zones: int) -> Omx:
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
    for node in sets["data"].values():
        _check_dataset(h5py, node, (zones, zones), kinds="iuf")
    for node in sets["lookup"].values():
        _check_dataset(h5py, node, (zones,), kinds="iufS")
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
    """An entry of a group, opened only if it is a hard link to the kind expected."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DataError("has a link to another place, which is not followed.")
    if group.get(name, getclass=True) is not kind:
        raise DataError("has an entry that is neither a matrix nor a lookup.")
    return group[name]


def _zones(matrices: Mapping[str, Any], most: int) -> int:
    shapes = {node.shape for node in matrices.values()}
    if len(shapes) != 1:
        raise DataError("has no matrix, or matrices of different shapes.")
    shape = shapes.pop()
    if shape is None or len(shape) != 2 or shape[0] != shape[1]:
        raise DataError("has a matrix that is not square.")
    if shape[0] > most:
        raise DataError(f"has more than {most:,} zones.")
    return int(shape[0])


def _check_dataset(h5py: Any, node: Any, shape: tuple[int, ...], *, kinds: str) -> None:
    if node.shape != shape or node.maxshape != shape:
        raise DataError("has a lookup that does not fit its matrices, or one that may grow.")
    # The class of the type itself: what numpy makes of it hides enumerations, references and text of any length.
    plain = {h5py.h5t.INTEGER, h5py.h5t.FLOAT} | ({h5py.h5t.STRING} if "S" in kinds else set())
    stored = node.id.get_type()
    if stored.get_class() not in plain or stored.committed() or node.dtype.kind not in kinds:
        raise DataError("has values that are neither numbers nor text of fixed length.")
    if node.dtype.itemsize > _LONGEST_TEXT:
        raise DataError(f"has text longer than {_LONGEST_TEXT:,} bytes.")
    made = node.id.get_create_plist()
    if made.get_external_count() or made.get_layout() not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED):
        raise DataError("has values that are stored elsewhere.")
    if any(made.get_filter(i)[0] not in _FILTERS for i in range(made.get_nfilters())):
        raise DataError("is packed by a filter other than deflate, shuffle and fletcher32.")
    if node.chunks is not None and int(np.prod(node.chunks, dtype=object)) * node.dtype.itemsize > _LARGEST_CHUNK:
        raise DataError(f"has packed pieces of more than {_LARGEST_CHUNK:,} bytes.")


def _attributes(h5py: Any, node: Any) -> dict[str, Any]:
    if len(node.attrs) > _MOST_ATTRIBUTES:
        raise DataError(f"has more than {_MOST_ATTRIBUTES} attributes in one place.")
    found: dict[str, Any] = {}
    for name in node.attrs:
        # At this level nothing is converted: numbers and fixed text come as numpy arrays, all else stays closed.
        attribute = node.attrs.get_id(name)
        kind = attribute.get_type()
        plain = kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT) or (
            kind.get_class() == h5py.h5t.STRING and not kind.is_variable_str()
        )
        found[name] = None
        if plain and attribute.get_storage_size() <= _LONGEST_TEXT:
            values = np.empty(attribute.shape, dtype=attribute.dtype)
            attribute.read(values)
            found[name] = values
    return found
