"""Options of each method as fields of the page.

They follow from the signature of the method, so a new option has a field without code here. Options for tests are not
offered, and are refused if a page sends them.
"""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flowveil.flows import Flows
from flowveil.methods import METHODS, Method
from flowveil.zoning.h3 import parent_of, resolution_of

#: Options that a browser may not set: noise with a fixed seed protects no one.
REFUSED = ("unsafe_seed_for_tests",)
#: What options are called, for people.
_WORDS = {
    "epsilon": "Privacy loss (epsilon): the smaller, the more noise",
    "delta": "Chance that the promise fails (delta)",
    "bound": "Most trips of one person that count",
    "level": "Level of the zones (for hexagons, their resolution)",
    "region": "Cells or zones that the noise covers; it must be no secret that trips are there",
    "budget": "How it is divided (budget)",
    "decay": "Drop at each division (decay)",
    "divide_above": "Divide cells above",
    "objective": "Make small",
    "effort": "Effort of the search",
    "time_limit": "Seconds that the search may take",
    "spend": "Use up what may be suppressed",
    "time_weight": "Weight of time against place",
    "levels": "Levels at which a pair may become safe",
    "beta": "Share of the pairs that may be suppressed (beta)",
    "v_target": "Trips that an origin area aims at",
    "lambda_": "Largest mean size of areas",
    "partitioning": "Cuts",
    "grid_m": "Grid of the boxes, in metres",
    "neighbors": "Neighbours that are looked at",
    "window": "Window of the search",
}
#: Initial values of required options of noise. Without a map, `proposed_region` gives those of region and level.
_BEGIN = {"epsilon": "1"}
_BEGIN_WITH_PEOPLE = {"bound": "3"}
#: Share of the trip ends that a proposed region holds, the most cells that it has, and levels below them.
_HELD, _MOST_CELLS, _LEVELS_BELOW = 0.98, 12, 3


@dataclass(frozen=True)
class Field:
    """One option of a method.

    Attributes:
        name: its name in the method.
        label: its meaning.
        usual: its default.
        choices: allowed values, if they are a list.
        step: step of a number; empty for a text.
        begin, begin_with_people: initial value when the method is chosen: always, and if people are known.
    """

    name: str
    label: str
    usual: str
    choices: tuple[str, ...]
    step: str
    begin: str
    begin_with_people: str


def fields_of(method: Method) -> list[Field]:
    """The options of a method."""
    hints = typing.get_type_hints(method.plan)
    return [_field(method, name, hints[name]) for name in method.options if name not in REFUSED]


def _field(method: Method, name: str, hint: Any) -> Field:
    kinds = [kind for kind in (typing.get_args(hint) or (hint,)) if kind is not type(None)]
    words = typing.get_origin(hint) is Literal
    default = method.options[name].default
    choices = tuple(map(str, kinds)) if words else ("true", "false") if bool in kinds else ()
    plain = len(kinds) == 1 and not choices
    noisy = method.promises != "k"
    return Field(
        name,
        _WORDS.get(name, name),
        "" if default in (None, inspect.Parameter.empty) else str(default).lower() if choices else str(default),
        choices,
        "1" if plain and kinds[0] is int else "any" if plain and kinds[0] is float else "",
        *(start.get(name, "") if noisy else "" for start in (_BEGIN, _BEGIN_WITH_PEOPLE)),
    )


def proposed_region(flows: Flows) -> dict[str, str]:
    """Options for noise over hexagons: a few large cells that hold nearly all trip ends, and a level of zones in them.

    A proposal for the operator, who knows whether the region is public: a city is, the only cell that one person
    visited is not. Cells with few trips are not proposed.
    """
    trees = ((flows.origins, flows.origin), (flows.destinations, flows.destination))
    if any(tree.kind != "h3" or tree.code.dtype != np.uint64 for tree, _ in trees):
        return {}
    tiles = np.concatenate([tree.code[tree.leaf_node][tile] for tree, tile in trees])
    trips = np.concatenate([flows.trips, flows.trips])
    finest = int(resolution_of(tiles).min())
    for resolution in range(min(4, finest), -1, -1):
        cells, at = np.unique(parent_of(tiles, resolution), return_inverse=True)
        volume = np.bincount(at, weights=trips)
        order = np.argsort(-volume, kind="stable")
        needed = int(np.searchsorted(np.cumsum(volume[order]), _HELD * volume.sum())) + 1
        if needed <= _MOST_CELLS:
            named = ",".join(f"{int(cell):x}" for cell in np.sort(cells[order[:needed]]))
            return {"region": named, "level": str(min(finest, resolution + _LEVELS_BELOW))}
    return {}


def offers() -> list[tuple[Method, list[Field]]]:
    """Every method with its fields, in the order of the registry."""
    return [(method, fields_of(method)) for method in METHODS.values()]
