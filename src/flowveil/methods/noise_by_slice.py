"""Noise on the matrices of many slices: the total cost, and the counted trips.

Every trip is in one slice, and the bound limits a person's trips over all slices, so the ε of one
matrix is the ε of all (docs/methods/topdown.md#slices). The list of matrices is public: a slice
without trips gets noise like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.core.errors import DataError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.slices import MOST_SLICES, Key
from flowveil.methods.method import Method
from flowveil.methods.noise_guarantee import bounded_trips
from flowveil.methods.public_domain import PairDomain, district_domain, pair_domain
from flowveil.release.noisy import NoisyCounts, PrivacyLoss

_SEED = "unsafe_seed_for_tests"


#: Counted trips of a slice, at most the bound of each person over all slices: arguments of
#: `Flows.from_pairs`.
_Rows = dict[str, NDArray[Any]]


def noisy_matrices(
    method: Method,
    flows: Flows,
    values: Mapping[str, Sequence[str]],
    options: Mapping[str, Any],
) -> tuple[PrivacyLoss, list[tuple[Key, Flows, NoisyCounts]]]:
    """Returns the guarantee of all, and for each matrix its key, the counted flows and the counts.

    Slices without declared ``values`` are not counted. ``options`` are those of the method.
    """
    keys = list(product(*(values[name] for name in flows.slice_columns)))
    if len(keys) > MOST_SLICES:
        raise ParameterError(
            f"{len(keys):,} matrices would be made; at most {MOST_SLICES:,} are allowed."
        )
    counted = _counted(method, flows, keys, options)
    parts = [
        Flows.from_pairs(
            **counted[key],
            origins=flows.origins,
            destinations=flows.destinations,
            intake=flows.intake,
            whole_map=flows.whole_map,
        )
        for key in keys
    ]
    if method.plan_slices is not None:
        counts = method.plan_slices(parts, **options)
    else:
        seed = options.get(_SEED)
        drawn = [{} if seed is None else {_SEED: seed + n} for n in range(len(parts))]
        counts = [
            method.plan(part, **{**options, **seeded})
            for part, seeded in zip(parts, drawn, strict=True)
        ]
    made = list(zip(keys, parts, counts, strict=True))
    guarantee = made[0][2].guarantee
    assert isinstance(guarantee, PrivacyLoss)
    return guarantee, made


def _counted(
    method: Method,
    flows: Flows,
    finest: Sequence[tuple[str, ...]],
    options: Mapping[str, Any],
) -> dict[tuple[str, ...], _Rows]:
    """Returns the counted trips of each declared slice.

    Those of a person do not depend on other persons.
    """
    first = flows.slices[0]
    level, region, listed = options.get("level"), options.get("region"), not options.get("delta")
    domain = (
        district_domain(method.name, first, options.get("districts"), region)
        if "districts" in method.options
        else pair_domain(first, level, region, listed=listed, method=method.name)
    )
    read = dict(flows.split())
    parts = {key: _rows(read[key], domain) for key in finest if key in read}
    persons = {} if first.people is None else {"person": np.zeros(0, dtype=np.int32)}
    empty: _Rows = {
        **dict.fromkeys(("origin", "destination", "trips"), np.zeros(0, dtype=np.int64)),
        **persons,
    }
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
            "Hint: read them with read_trips."
        )
    return _selected(
        {**_selected(rows, people.cell), "trips": people.trips, "person": people.person},
        inside[people.cell],
    )


def _selected(rows: _Rows, which: NDArray[Any]) -> _Rows:
    return {name: values[which] for name, values in rows.items()}


def _joined(parts: Sequence[_Rows]) -> _Rows:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
