"""The mechanisms of OpenDP: the oracle for flowveil's samplers of discrete noise."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp

from flowveil.methods.epsilon import noise_scale

#: Counts in one call of OpenDP.
BATCH_SIZE = 1 << 16


def opendp_laplace(counts: np.ndarray, *, sensitivity: int, epsilon: float) -> np.ndarray:
    """Returns the counts with OpenDP's discrete Laplace noise of scale `noise_scale`."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measure = dp.m.make_laplace(*space, scale=noise_scale(sensitivity, epsilon))
    assert measure.map(sensitivity) <= epsilon
    batches = np.split(counts, range(BATCH_SIZE, len(counts), BATCH_SIZE))
    return np.concatenate([np.array(measure(batch.tolist()), dtype=np.int64) for batch in batches])
