"""The data set of a study: its numbers as the papers tabulate them, and the steps of time that are run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.slices import SlicedFlows


def data_of(flows: SlicedFlows, k: int, steps: Sequence[str]) -> dict[str, float]:
    """The numbers, by name; those of matrices where the data are cut by time."""
    if flows.every is not None:
        return _of_matrices(flows, k, steps)
    whole = flows.whole
    ends = [tree.code[tree.leaf_node] for tree in (whole.origins, whole.destinations)]
    found: dict[str, float] = {"trips": int(whole.trips.sum()), "od_pairs": len(whole)}
    found |= {"origin_tiles": len(ends[0]), "destination_tiles": len(ends[1])}
    found["tiles"] = len(np.union1d(*ends))
    if whole.people is not None:
        found["people"] = len(np.unique_values(whole.people.person))
    if whole.weight is not None:
        found["weight"] = float(whole.weight.sum())
        represented = _represented_population(flows)
        if represented is not None:
            found["population"] = represented
    return found


def _represented_population(flows: SlicedFlows) -> float | None:
    """Return the sum of the persons' weights, as the papers define it; None unless every weight is determined.

    Flows hold the weight of each cell and the trips of each person in it. A cell in which all weights but one are known
    determines that one. A person whose weight differs between trips has none.
    """
    rows, weights, n_cells = [], [], 0
    for part in flows.slices:
        if part.people is None or part.weight is None or part.people.trips is None:
            return None
        rows.append(np.stack([part.people.cell + n_cells, part.people.person, part.people.trips]).astype(np.int64))
        weights.append(part.weight)
        n_cells += len(part)
    (cell, person, trips), weight = np.hstack(rows), np.concatenate(weights)
    known = np.full(int(person.max(initial=-1)) + 1, np.nan)
    n_known = -1
    while n_known < (n_known := int(np.count_nonzero(~np.isnan(known)))):
        unknown = np.isnan(known[person])
        rest = weight - np.bincount(cell, np.where(unknown, 0.0, trips * known[person]), minlength=n_cells)
        last = unknown & (np.bincount(cell, unknown, minlength=n_cells)[cell] == 1)
        known[person[last]] = rest[cell[last]] / trips[last]
    of_persons = known[np.unique_values(person)]
    if np.isnan(of_persons).any():
        return None
    total = np.bincount(cell, trips * known[person], minlength=n_cells)
    return float(of_persons.sum()) if np.allclose(total, weight, rtol=1e-4) else None


def _of_matrices(flows: SlicedFlows, k: int, steps: Sequence[str]) -> dict[str, float]:
    """Means over all matrices, those that are not run too."""
    n_tiles = _n_tiles(flows.slices[0])
    safe = [part.trips >= k for part in flows.slices]
    trips = [int(part.trips.sum()) for part in flows.slices]
    pairs = [len(part) for part in flows.slices]
    hidden = zip(flows.slices, safe, trips, strict=True)
    return {
        "matrices": len(flows),
        "matrices_run": len(steps),
        "tiles": n_tiles,
        "mean_od_pairs": float(np.mean(pairs)),
        "density": float(np.mean(pairs)) / n_tiles**2,
        "mean_trips": float(np.mean(trips)),
        "safe_od_pairs": float(np.mean([part.mean() for part in safe])),
        "safe_trips": float(np.mean([part.trips[is_safe].sum() / n for part, is_safe, n in hidden])),
    }


def _n_tiles(flows: Flows) -> int:
    """Tiles of the map, or, where no map was given, tiles in which any trip begins or ends."""
    if flows.whole_map is not None:
        return flows.whole_map.n_tiles
    ends = [tree.code[tree.leaf_node] for tree in (flows.origins, flows.destinations)]
    return len(np.union1d(*ends))


def chosen_matrices(flows: SlicedFlows, *, fewest_trips: int, sample: int | None) -> tuple[str, ...]:
    """The steps of time that are run, in order.

    Args:
        flows: flows cut by the time alone.
        fewest_trips: steps with fewer are left out.
        sample: so many of the others, drawn at random, the same ones every time; all by default.

    Raises:
        ParameterError: no step can be drawn.
        InfeasibleError: no step has so many trips.
    """
    if sample is not None and sample < 1:
        raise ParameterError(f"sample must be at least 1; found {sample}.")
    volume = [int(part.trips.sum()) for part in flows.slices]
    large = [key[0] for key, trips in zip(flows.keys, volume, strict=True) if trips >= fewest_trips]
    if not large:
        raise InfeasibleError(
            f"None of {len(volume):,} steps of time has {fewest_trips:,} trips. "
            "Hint: lower --fewest-trips, or take longer steps."
        )
    if sample is None or sample >= len(large):
        return tuple(large)
    drawn = np.random.default_rng(0).choice(len(large), size=sample, replace=False)
    return tuple(large[i] for i in sorted(drawn.tolist()))
