"""Random groups of the sizes of segments: how far apart groups are that differ by chance alone.

A gap between women and men means little if groups that are drawn at random differ as much: then
the method makes it. Persons are drawn whole, where they are known; otherwise single trips.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints
from flowveil.core.errors import DataError
from flowveil.core.flows import Flows, People


def random_label(by: str, split: int) -> str:
    """Returns the name of a split in the results of a study."""
    return f"{by}, random groups {split + 1}"


def random_groups(flows: Flows, by: str, split: int) -> dict[str, Flows]:
    """Returns groups that divide all trips at random, one for each value of an attribute.

    A group has as many trips as the segment of its value, up to the trips of one person. The same
    split is the same groups every time. Weights are those of the persons where they follow from the
    trips, or else shares of each pair's weight.
    """
    whole, at = flows.whole, flows.slice_columns.index(by)
    if whole.trips.dtype != np.int64:
        raise DataError("Random groups need whole trips; these are fractions.")
    values = sorted({key[at] for key in flows.slice_keys})
    sizes = np.zeros(len(values))
    for key, part in zip(flows.slice_keys, flows.slices, strict=True):
        sizes[values.index(key[at])] += part.trips.sum()
    generator = np.random.default_rng((split, at))
    people = _people_of_all(flows)
    if people is not None and people.trips is not None:
        cell, trips, unit = people.cell, people.trips, people.person
    else:
        cell = np.repeat(np.arange(len(whole), dtype=np.int32), whole.trips)
        trips, unit = np.ones(len(cell), dtype=np.int64), np.arange(len(cell), dtype=np.int32)
    group = _drawn(unit, trips, sizes, generator)
    weights = person_weights(flows)
    found = {}
    for number, value in enumerate(values):
        rows = group == number
        persons = None if people is None else unit[rows]
        of_rows = None if weights is None else weights[unit[rows]]
        found[value] = _flows_of_rows(whole, cell[rows], trips[rows], persons, of_rows)
    return found


def _people_of_all(flows: Flows) -> People | None:
    """Returns the people of all flows with their trips, from the slices; None without persons."""
    whole, n = flows.whole, flows.destinations.n_tiles
    key = whole.origin.astype(np.int64) * n + whole.destination
    cells, persons, trips = [], [], []
    for part in flows.slices:
        if part.people is None or part.people.trips is None:
            return None
        place = np.searchsorted(key, part.origin.astype(np.int64) * n + part.destination)
        cells.append(place[part.people.cell].astype(np.int32))
        persons.append(part.people.person)
        trips.append(part.people.trips)
    return People.aggregate(np.concatenate(cells), np.concatenate(persons), np.concatenate(trips))


def _drawn(
    unit: Ints, trips: NDArray[np.int64], sizes: Floats, generator: np.random.Generator
) -> Ints:
    """Returns the group of each row: units in random order fill one group after the other."""
    units, position = np.unique(unit, return_inverse=True)
    volume = np.bincount(position, weights=trips)
    order = generator.permutation(len(units))
    middle = np.cumsum(volume[order]) - volume[order] / 2
    ends = np.cumsum(sizes) * volume.sum() / sizes.sum()
    group = np.empty(len(units), dtype=np.int32)
    group[order] = np.minimum(np.searchsorted(ends, middle, side="right"), len(sizes) - 1)
    return group[position]


def _flows_of_rows(
    whole: Flows,
    cell: Ints,
    trips: NDArray[np.int64],
    person: Ints | None,
    weight: Floats | None,
) -> Flows:
    """Returns the flows of some (cell, person) rows over the trees of all flows."""
    counted = np.bincount(cell, weights=trips, minlength=len(whole)).astype(np.int64)
    kept = counted > 0
    volume = None
    if whole.weight is not None:
        share = whole.weight * counted / whole.trips
        volume = (
            np.bincount(cell, weights=trips * weight, minlength=len(whole))
            if (weight is not None)
            else share
        )
    new_cell = (np.cumsum(kept) - 1).astype(np.int32)
    people = None if person is None else People(new_cell[cell], person, trips)
    cells = replace(
        whole.select(kept),
        trips=counted[kept],
        weight=None if volume is None else volume[kept],
        people=people,
    )
    shared = {name: getattr(whole, name) for name in ("origins", "destinations", "intake")}
    return Flows.of_cells(cells, **shared, whole_map=whole.whole_map)


def person_weights(flows: Flows) -> Floats | None:
    """Returns the weight of each person, by number; NaN for numbers without trips.

    None unless every weight is determined. A cell of which all weights but one are known determines
    that one. A person whose weight differs between trips has none.
    """
    people, weight, n_cells = flows.people, flows.weight, len(flows)
    if people is None or weight is None or people.trips is None:
        return None
    cell, person, trips = people.cell, people.person, people.trips
    known = np.full(int(person.max(initial=-1)) + 1, np.nan)
    last = person >= 0
    while last.any():
        unknown = np.isnan(known[person])
        rest = weight - np.bincount(
            cell, np.where(unknown, 0.0, trips * known[person]), minlength=n_cells
        )
        last = unknown & (np.bincount(cell, unknown, minlength=n_cells)[cell] == 1)
        known[person[last]] = rest[cell[last]] / trips[last]
    total = np.bincount(cell, trips * known[person], minlength=n_cells)
    return known if np.allclose(total, weight, rtol=1e-4) else None
