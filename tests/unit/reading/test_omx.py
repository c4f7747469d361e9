"""OMX files of the reference library are read.

What a file may not contain is named in the message.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import flowveil
from flowveil.core.errors import DataError
from flowveil.reading.matrices import open_omx

h5py = pytest.importorskip("h5py")
openmatrix = pytest.importorskip("openmatrix")

N = 25
ZONES = pa.table(
    {
        "zone": [str(100 + i) for i in range(N)],
        "lat": 1 + np.arange(N) / 10,
        "lon": 5 + np.arange(N) % 4,
    }
)
CELLS = np.random.default_rng(0).integers(0, 30, (N, N)).astype(float)


class Trap:
    """Sets a flag when it is unpickled."""

    sprung = False

    def __reduce__(self) -> object:
        return (setattr, (Trap, "sprung", True))


def write(
    path: Path, matrices: dict[str, np.ndarray], lookups: dict[str, list[int]], **attributes: object
) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with openmatrix.open_file(str(path), "w") as file:
            for name, cells in matrices.items():
                file[name] = cells
                for key, value in attributes.items():
                    file[name].attrs[key] = value
            for name, values in lookups.items():
                file.create_mapping(name, values)
    return path


def trips_of(flows: flowveil.Flows) -> np.ndarray:
    found = np.zeros((N, N))
    origin, destination = (
        t.code[t.leaf_node].astype(int) - 100 for t in (flows.origins, flows.destinations)
    )
    found[origin[flows.origin], destination[flows.destination]] = flows.trips
    return found


#: How programs write their files: matrices, lookups, and what has to be chosen.
WRITERS = {
    "openmatrix": ({"trips": CELLS}, {"taz": list(range(100, 100 + N))}, {}),
    "openmatrix, large chunks": (
        {"trips": CELLS.astype(np.float32)},
        {"taz": list(range(100, 100 + N))},
        {},
    ),
    "ActivitySim": (
        {
            f"{mode}_TRIPS__{period}": CELLS
            for mode in ("DRIVE", "WALK", "BIKE")
            for period in ("EA", "AM", "MD")
        },
        {"zone_number": list(range(100, 100 + N))},
        {"matrix": "WALK_TRIPS__AM"},
    ),
    "AequilibraE": (
        {"matrix": CELLS},
        {"main_index": list(range(100, 100 + N)), "second": list(range(N))},
        {"lookup": "main_index"},
    ),
}


@pytest.mark.parametrize(("matrices", "lookups", "chosen"), WRITERS.values(), ids=WRITERS)
def test_files_of_the_reference_library_are_read(tmp_path, matrices, lookups, chosen) -> None:
    path = write(tmp_path / "m.omx", matrices, lookups, description="")
    assert np.array_equal(trips_of(flowveil.read_trips(path, zones=ZONES, **chosen)), CELLS)


def test_nothing_is_unpickled(tmp_path) -> None:
    path = write(tmp_path / "m.omx", {"trips": CELLS}, {}, payload=Trap())
    with open_omx(path) as omx:
        assert np.array_equal(omx.matrices["trips"][:], CELLS)
    assert not Trap.sprung


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: file.create_dataset("data/wide", data=np.ones((N, 30))),
            "'wide' that is 25 x 30; square",
        ),
        (lambda file: file.create_dataset("data/more", data=np.ones((30, 30))), "different sizes"),
        (
            lambda file: file.create_dataset("lookup/short", data=np.arange(7)),
            "lookup 'short' with 7 values for 25",
        ),
        (
            lambda file: file.create_dataset(
                "lookup/names", data=["a"] * N, dtype=h5py.string_dtype()
            ),
            "lookup 'names'",
        ),
        (
            lambda file: file.__setitem__("data/far", h5py.ExternalLink("other.omx", "/data/x")),
            "link to another place",
        ),
        (
            lambda file: file.create_dataset("data/lzf", data=CELLS, compression="lzf"),
            "matrix 'lzf' compressed by",
        ),
        (
            lambda file: file.create_group("data/deep"),
            "'deep' that is neither a matrix nor a lookup",
        ),
    ],
)
def test_the_message_names_what_is_wrong(tmp_path, change, message) -> None:
    path = write(tmp_path / "m.omx", {"trips": CELLS}, {})
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(DataError, match=message), open_omx(path):
        pass
