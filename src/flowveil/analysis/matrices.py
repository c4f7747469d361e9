"""Which steps of time a study runs: the benchmark of Matet et al. is over many matrices, chosen at random."""

from __future__ import annotations

import numpy as np

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.slices import SlicedFlows


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
