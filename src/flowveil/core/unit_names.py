"""What is counted, in words: vehicles where a column of persons identifies them, and a name that
the operator gives to trips.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flowveil.core.errors import ParameterError, option

#: Words of vehicles in names of columns.
VEHICLES = frozenset({"vehicle", "car", "taxi", "cab", "bike", "scooter", "truck", "medallion"})
#: Shared mobility (MDS, GBFS) calls its vehicles so.
_DEVICE = "device"
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: A name of what is counted: up to three words in lower case.
_COUNTED = re.compile(r"[^\W\d_]{2,20}([ -][^\W\d_]{2,20}){0,2}")
#: Words of the guarantee, which trips must not take.
_TAKEN = frozenset({"people", "persons", "participants", "population", "vehicles"})


def names_vehicles(column: str) -> bool:
    """Returns whether a column of persons, by its name, identifies vehicles.

    >>> names_vehicles("vehicle_id"), names_vehicles("deviceId"), names_vehicles("person_id")
    (True, True, False)
    """
    words = {word.casefold() for word in _WORDS.findall(column)}
    stems = {word.removesuffix("id") for word in words}
    return bool((words | stems) & (VEHICLES | {_DEVICE}))


def check_counted(name: str | None) -> None:
    """Raises ParameterError if trips cannot be called so."""
    if name is None:
        return
    words = set(re.split(r"[ -]", name))
    if _COUNTED.fullmatch(name) is None or name != name.casefold() or words & _TAKEN:
        raise ParameterError(
            f"{option('counted')} must be a word in lower case that says what was counted, such as"
            " workers; people are counted with a column of persons."
        )


def unit_words(unit: str, parameters: Mapping[str, Any]) -> str:
    """Returns what a unit of the guarantee is called, from the parameters of a release.

    A column of vehicles counts no people.
    """
    if unit == "trips":
        return str(parameters.get("counted") or unit)
    person = (parameters.get("columns") or {}).get("person")
    return "vehicles" if unit == "people" and person and names_vehicles(person) else unit
