"""Types of numpy arrays, named after what they hold.

The type of the elements is part of each name's meaning: counts and positions are whole numbers of
64 bits, trees use 32 bits, and H3 cells are words of 64 bits.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Which elements of another array are meant.
Mask = NDArray[np.bool_]
#: How often something occurs: trips, people, cells.
Counts = NDArray[np.int64]
#: Positions in another array.
Positions = NDArray[np.int64]
#: Identifiers without an order, and sums of fixed-point numbers.
Numbers = NDArray[np.int64]
#: Nodes, depths and leaves of a tree.
Ints = NDArray[np.int32]
#: Codes of small sets.
Int8s = NDArray[np.int8]
#: Coordinates, shares, costs and weights.
Floats = NDArray[np.float64]
#: H3 cells at any resolution.
Cells64 = NDArray[np.uint64]
#: Bit patterns: random words, keys.
Words = NDArray[np.uint64]
#: Names and codes of zones.
Texts = NDArray[np.str_]
#: Shapely geometries.
Outlines = NDArray[np.object_]
#: An array of any type.
AnyArray = NDArray[Any]


def repr_of_sizes(holder: Any) -> str:
    """Returns a ``__repr__`` that names the sizes of what a dataclass holds, and no value of it.

    Arrays, trees and tables of trips hold codes, counts and persons: a log, a traceback or a
    notebook must not show them.
    """
    parts = []
    for field in fields(holder):
        value = getattr(holder, field.name)
        if isinstance(value, np.ndarray):
            parts.append(f"{field.name}: {len(value):,} {value.dtype.name}")
        elif hasattr(value, "__dataclass_fields__"):
            parts.append(f"{field.name}: {type(value).__name__}")
    return f"<{type(holder).__name__} {', '.join(parts)}>"
