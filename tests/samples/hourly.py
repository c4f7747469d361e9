"""Trips with times and purposes, for tests of folds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

PLACES = {
    "origin_lat": 48.85,
    "origin_lon": 2.35,
    "destination_lat": 48.86,
    "destination_lon": 2.36,
}


#: The tree of the purposes.
PURPOSES = {
    "work": "work or study",
    "study": "work or study",
    "shop": "free time",
    "leisure": "free time",
    "home": "",
}


def hourly_trips(n: int = 1_800) -> pa.Table:
    """Trips of 300 people around a city over three weeks, most of them in the morning, for five
    purposes."""
    rng = np.random.default_rng(5)
    hours = np.clip(rng.normal(9, 4, n), 0, 23.99) + 24 * rng.integers(0, 21, n)
    places = {name: base + rng.normal(0, 0.02, n) for name, base in PLACES.items()}
    return pa.table(
        {
            **places,
            "who": [f"P{i}" for i in rng.integers(0, 300, n)],
            "w": rng.uniform(0.5, 3, n),
            "start": np.datetime64("2022-10-24T00:00:00") + (hours * 3600).astype("timedelta64[s]"),
            "purpose": rng.choice(list(PURPOSES), n, p=[0.4, 0.1, 0.2, 0.1, 0.2]),
        }
    )
