"""Noise on the matrices of many slices: the total cost, and the counted trips.

Every trip is in one slice, and the bound limits a person's trips over all slices, so the ε of one matrix is the ε of
all (docs/methods/topdown.md#slices). Matrices of longer time steps, and of everything, contain the same trips again:
each such layer costs ε again. The list of matrices is public: a slice without trips gets noise like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError
from flowveil.flows import Flows
from flowveil.methods.epsilon import check_epsilon
from flowveil.methods.method import Method
from flowveil.methods.noise_guarantee import bounded_trips
from flowveil.methods.public_domain import PairDomain, pair_domain
from flowveil.release.noisy import NoisyCounts, PrivacyLoss
from flowveil.slices import MOST_SLICES, Key, SlicedFlows
from flowveil.times import TIME, Every

_SEED = "unsafe_seed_for_tests"


#: Counted trips of a slice, at most the bound of each person over all slices: arguments of `Flows.from_pairs`.
_Rows = dict[str, NDArray[Any]]


def noisy_matrices(
    method: Method,
    flows: SlicedFlows,
    values: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
    *,
    steps: Sequence[Every] = (),
    total: bool = False,
) -> tuple[PrivacyLoss, list[tuple[Key, Flows, NoisyCounts]]]:
    """Returns the guarantee of all matrices; and for each, coarsest first, its key, the counted flows and the counts.

    Slices without declared ``values`` are not counted. ``options`` are those of the method, ε that of one layer;
    ``steps`` are longer time steps with additional matrices, ``total`` adds one of everything.
    """
    finest = list(product(*(values[name] for name in flows.columns)))
    layers = _layers(flows, finest, steps, total=total)
    n = sum(len(layer) for layer in layers)
    if n > MOST_SLICES:
        raise ParameterError(f"{n:,} matrices would be made; at most {MOST_SLICES:,} are allowed.")
    epsilon = options.get("epsilon")
    if isinstance(epsilon, int | float):
        check_epsilon(epsilon * len(layers))
    counted = _counted(method, flows, finest, options)
    whole_map = flows.slices[0].whole_map
    made: list[tuple[Key, Flows, NoisyCounts]] = []
    for layer in layers:
        for key, members in layer.items():
            rows = _joined([counted[member] for member in members])
            counted_flows = Flows.from_pairs(
                **rows, origins=flows.origins, destinations=flows.destinations, intake=flows.intake, whole_map=whole_map
            )
            seed = options.get(_SEED)
            drawn = {**options, **({} if seed is None else {_SEED: seed + len(made)})}
            made.append((key, counted_flows, method.plan(counted_flows, **drawn)))
    one = made[0][2].guarantee
    assert isinstance(one, PrivacyLoss)
    together = replace(one, epsilon=one.epsilon * len(layers), delta=one.delta * len(layers), layers=len(layers))
    return together, made


def _layers(
    flows: SlicedFlows, finest: Sequence[tuple[str, ...]], steps: Sequence[Every], *, total: bool
) -> list[dict[Key, list[tuple[str, ...]]]]:
    """Returns the declared slices of each matrix; the matrices of one layer share no trip."""
    layers: list[dict[Key, list[tuple[str, ...]]]] = [{(None,) * len(flows.columns): list(finest)}] if total else []
    for step in sorted(steps, key=lambda e: e.label_length):
        if flows.every is None or not step.holds(flows.every):
            raise ParameterError(f"--every {step.name} is not made of whole steps of the finest --every.")
        layer: dict[Key, list[tuple[str, ...]]] = {}
        at = flows.columns.index(TIME)
        for key in finest:
            layer.setdefault((*key[:at], key[at][: step.label_length], *key[at + 1 :]), []).append(key)
        layers.append(layer)
    return [*layers, {key: [key] for key in finest}]


def _counted(
    method: Method, flows: SlicedFlows, finest: Sequence[tuple[str, ...]], options: Mapping[str, Any]
) -> dict[tuple[str, ...], _Rows]:
    """Returns the counted trips of each declared slice; those of a person do not depend on other persons."""
    first = flows.slices[0]
    level, region, listed = options.get("level"), options.get("region"), not options.get("delta")
    domain = pair_domain(first, level, region, listed=listed, method=method.name)
    read = dict(zip(flows.keys, flows.slices, strict=True))
    parts = {key: _rows(read[key], domain) for key in finest if key in read}
    persons = {} if first.people is None else {"person": np.zeros(0, dtype=np.int32)}
    empty: _Rows = {**dict.fromkeys(("origin", "destination", "trips"), np.zeros(0, dtype=np.int64)), **persons}
    if persons and options.get("bound") is not None and parts:
        joined = _joined(list(parts.values()))
        bounded = bounded_trips(joined["person"], joined["trips"], int(options["bound"]))
        edges = np.cumsum([len(part["trips"]) for part in parts.values()])[:-1]
        for (key, part), trips in zip(parts.items(), np.split(bounded, edges), strict=True):
            parts[key] = _selected({**part, "trips": trips}, trips > 0)
    return {key: parts.get(key, empty) for key in finest}


def _rows(part: Flows, domain: PairDomain) -> _Rows:
    """Returns the trips of a slice inside the region, by person if persons are known."""
    inside = domain.plan(part).kept
    rows: _Rows = {"origin": part.origin, "destination": part.destination, "trips": part.trips}
    people = part.people
    if people is None:
        return _selected(rows, inside)
    if people.trips is None:
        raise DataError(
            "The slices do not contain the trips of each person, so they cannot be bounded. "
            "Hint: read them with read_slices."
        )
    return _selected(
        {**_selected(rows, people.cell), "trips": people.trips, "person": people.person}, inside[people.cell]
    )


def _selected(rows: _Rows, which: NDArray[Any]) -> _Rows:
    return {name: values[which] for name, values in rows.items()}


def _joined(parts: Sequence[_Rows]) -> _Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
