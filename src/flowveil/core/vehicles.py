"""Columns that identify vehicles, which several persons may use one after the other."""

from __future__ import annotations

import re

#: Words of vehicles in names of columns.
VEHICLES = frozenset({"vehicle", "car", "taxi", "cab", "bike", "scooter", "truck", "medallion"})
#: Shared mobility (MDS, GBFS) calls its vehicles so.
_DEVICE = "device"
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def names_vehicles(column: str) -> bool:
    """Returns whether a column of persons, by its name, identifies vehicles.

    >>> names_vehicles("vehicle_id"), names_vehicles("deviceId"), names_vehicles("person_id")
    (True, True, False)
    """
    words = {word.casefold() for word in _WORDS.findall(column)}
    stems = {word.removesuffix("id") for word in words}
    return bool((words | stems) & (VEHICLES | {_DEVICE}))
