"""Noise on the matrices of many slices: the total cost, and the counted trips.

Every trip is in one slice, and the bound limits a person's trips over all slices, so the ε of one matrix is the ε of
all (docs/methods/topdown.md#slices). Matrices of longer time steps, and of everything, contain the same trips again:
each such layer costs ε again. The list of matrices is public: a slice without trips gets noise like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError
from flowveil.flows import Flows
from flowveil.hierarchy import Ints
from flowveil.methods.epsilon import check_epsilon
from flowveil.methods.method import Method
from flowveil.methods.noise_guarantee import Counts, bounded_trips
from flowveil.methods.public_domain import pair_domain
from flowveil.release.noisy import NoisyCounts, PrivacyLoss
from flowveil.slices import MOST_SLICES, Key, SlicedFlows
from flowveil.times import TIME, Every

_SEED = "unsafe_seed_for_tests"


class _Counted(NamedTuple):
    """The counted trips of one slice: at most the bound of each person over all slices."""

    origin: Ints
    destination: Ints
    trips: Counts
    person: Ints | None

    def select(self, kept: NDArray[np.bool_]) -> _Counted:
        person = None if self.person is None else self.person[kept]
        return _Counted(self.origin[kept], self.destination[kept], self.trips[kept], person)


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
    made: list[tuple[Key, Flows, NoisyCounts]] = []
    for layer in layers:
        for key, members in layer.items():
            counted_flows = _flows_of([counted[member] for member in members], flows)
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
) -> dict[tuple[str, ...], _Counted]:
    """Returns the counted trips of each declared slice; those of a person do not depend on other persons."""
    first = flows.slices[0]
    level, region, listed = options.get("level"), options.get("region"), not options.get("delta")
    domain = pair_domain(first, level, region, listed=listed, method=method.name)
    read = dict(zip(flows.keys, flows.slices, strict=True))
    parts = {key: _rows(read[key], domain) for key in finest if key in read}
    nothing = np.zeros(0, dtype=np.int32)
    empty = _Counted(nothing, nothing, nothing.astype(np.int64), None if first.people is None else nothing)
    if first.people is not None and options.get("bound") is not None and parts:
        persons = [part.person for part in parts.values() if part.person is not None]
        trips = np.concatenate([part.trips for part in parts.values()])
        bounded = bounded_trips(np.concatenate(persons), trips, int(options["bound"]))
        edges = np.cumsum([len(part.trips) for part in parts.values()])[:-1]
        for (key, part), bounded_part in zip(parts.items(), np.split(bounded, edges), strict=True):
            parts[key] = part._replace(trips=bounded_part).select(bounded_part > 0)
    return {key: parts.get(key, empty) for key in finest}


def _rows(part: Flows, domain: Any) -> _Counted:
    """Returns the trips of a slice inside the region, by person if persons are known."""
    inside = domain.plan(part).kept
    people = part.people
    if people is None:
        return _Counted(part.origin, part.destination, part.trips, None).select(inside)
    if people.trips is None:
        raise DataError(
            "The slices do not contain the trips of each person, so they cannot be bounded. "
            "Hint: read them with read_slices."
        )
    rows = _Counted(part.origin[people.cell], part.destination[people.cell], people.trips, people.person)
    return rows.select(inside[people.cell])


def _flows_of(parts: Sequence[_Counted], flows: SlicedFlows) -> Flows:
    """Returns the counted trips of some slices as one table."""
    first = flows.slices[0]
    return Flows.from_pairs(
        np.concatenate([part.origin for part in parts]),
        np.concatenate([part.destination for part in parts]),
        np.concatenate([part.trips for part in parts]),
        origins=flows.origins,
        destinations=flows.destinations,
        person=None if first.people is None else np.concatenate([p.person for p in parts if p.person is not None]),
        intake=flows.intake,
        whole_map=first.whole_map,
    )
