"""A survey with the category frequencies of the thesis's Table 24.

3,146 people, every frequency exact.

The associations are our own, of about the strength of its Table 26: a Gaussian copula whose ranks
are cut at the published frequencies.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

FREQUENCIES = {
    "Gender": (1469, 1677),
    "Education": (10, 13, 45, 165, 582, 876, 1455),
    "SocialClass": (26, 397, 1647, 651, 362, 63),
    "WorkingStatus": (1865, 265, 76, 158, 130, 393, 221, 38),
    "MaritalStatus": (2144, 1002),
    "IllegalPurchase": (1497, 1649),
}
QUASI_IDENTIFIERS = tuple(FREQUENCIES)[:5]
SENSITIVE = "IllegalPurchase"
CORRELATION = np.array(
    [
        [1.00, 0.12, 0.05, 0.40, 0.10, -0.20],
        [0.12, 1.00, 0.20, 0.12, 0.02, -0.10],
        [0.05, 0.20, 1.00, 0.18, 0.15, 0.12],
        [0.40, 0.12, 0.18, 1.00, -0.25, 0.15],
        [0.10, 0.02, 0.15, -0.25, 1.00, -0.08],
        [-0.20, -0.10, 0.12, 0.15, -0.08, 1.00],
    ]
)


def survey(seed: int = 2024) -> pa.Table:
    generator = np.random.default_rng(seed)
    n = sum(FREQUENCIES["Gender"])
    latent = generator.multivariate_normal(np.zeros(6), CORRELATION, size=n)
    columns = {}
    for i, (name, frequency) in enumerate(FREQUENCIES.items()):
        value = np.empty(n, dtype=np.int64)
        value[np.argsort(latent[:, i])] = np.repeat(np.arange(1, len(frequency) + 1), frequency)
        columns[name] = value
    return pa.table(columns)
