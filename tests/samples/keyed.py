"""Trips for methods that need record keys, and tables of their releases."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np


def write_trips(path: Path, n: int = 400, *, corrected: bool = False) -> list[dict[str, str]]:
    """Trips between nine places, more between some.

    Corrected: another value in a column that no table uses.
    """
    rng = np.random.default_rng(1)
    rows = []
    for i in range(n):
        o, d = rng.geometric(0.3, 2) % 9
        rows.append(
            {
                "trip": f"t{i}",
                "start_lat": f"{48.80 + 0.02 * (o // 3):.3f}",
                "start_lon": f"{2.30 + 0.03 * (o % 3):.3f}",
                "end_lat": f"{48.80 + 0.02 * (d // 3):.3f}",
                "end_lon": f"{2.30 + 0.03 * (d % 3):.3f}",
                "sex": "fm"[i % 2],
                "note": "late" if corrected else "",
            }
        )
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows if not corrected else rows[::-1])
    return rows


def table_of(release) -> dict[tuple, int]:
    names = [name for name in release.flows.column_names if name != "trips"]
    return {tuple(row[name] for name in names): row["trips"] for row in release.flows.to_pylist()}
