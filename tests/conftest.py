"""What tests share: the public data sets, where they are, and small trip files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

#: A slow machine finds what a fast one finds.
settings.register_profile("flowveil", deadline=None, suppress_health_check=[HealthCheck.too_slow])
#: Two verdicts on one commit are the same; who runs the tests at home looks for something new every
#: time.
settings.register_profile("ci", settings.get_profile("flowveil"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "flowveil")

#: Fixtures of the browser: loaded here, so that there is one browser for all modules.
pytest_plugins = ["browser.pages"]

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data sets; tests that need it are skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the public data sets are not next to the repository")
    return SHARED_DATA


def trip_table(n: int = 400, *, seed: int = 0) -> pa.Table:
    """Trips between a few hot spots of one city, with persons and weights."""
    rng = np.random.default_rng(seed)
    spots = rng.normal((48.85, 2.35), (0.02, 0.03), size=(12, 2))
    ends = [spots[rng.integers(0, len(spots), n)] + rng.normal(0, 0.001, (n, 2)) for _ in range(2)]
    person = rng.integers(0, n // 4, n)
    return pa.table(
        {
            "start_lat": ends[0][:, 0],
            "start_lon": ends[0][:, 1],
            "end_lat": ends[1][:, 0],
            "end_lon": ends[1][:, 1],
            "person_id": [f"SECRET{p:04d}" for p in person],
            "weight": 100 + 50 * np.sin(person),
        }
    )


@pytest.fixture
def small_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show the surroundings of a small area: those of a continent take seconds."""
    from flowveil.published import basemap_context, maps

    found = basemap_context.context_of(np.array([2.3, 48.8, 2.4, 48.9]))
    monkeypatch.setattr(maps, "context_of", lambda _: found)


@pytest.fixture
def trips() -> pa.Table:
    return trip_table()


@pytest.fixture
def trips_csv(tmp_path: Path, trips: pa.Table) -> Path:
    from pyarrow import csv

    path = tmp_path / "trips.csv"
    csv.write_csv(trips, path)
    return path
