"""What TwinCut saves by remembering what it has evaluated: with and without, in one run, for the same zones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import numpy as np

import flowveil
from benchmarks.tables import DATA

SETS = {
    "Santiago, resolution 9": ("santiago_taxi/trips.parquet", 9),
    "San Francisco, resolution 10": ("cabspotting_sf/trips.parquet", 10),
}
#: The module: the package has a function of the same name.
TWINCUT = import_module("flowveil.methods.twincut")


@contextmanager
def forgetful() -> Iterator[None]:
    """TwinCut without its memory."""
    remembered, TWINCUT.MOST_REMEMBERED = TWINCUT.MOST_REMEMBERED, 0
    try:
        yield
    finally:
        TWINCUT.MOST_REMEMBERED = remembered


def main() -> None:
    if not DATA.is_dir():
        print("The public data sets are not beside the repository.")
        return
    print("| data | limit | remembering (processor seconds) | not | ratio | same zones |\n|---|---|---:|---:|---:|---|")
    for name, (path, resolution) in SETS.items():
        flows = flowveil.read_trips(DATA / path, resolution=resolution)
        guarantee = flowveil.Guarantee.resolve(flows, k=10, protect="trips")
        for limit in (0.01, 0.1):
            times, plans = [], []
            for remember in (True, False):
                start = time.process_time()
                if remember:
                    plans.append(TWINCUT.twincut(flows, guarantee, max_suppressed=limit, time_limit=3600.0))
                else:
                    with forgetful():
                        plans.append(TWINCUT.twincut(flows, guarantee, max_suppressed=limit, time_limit=3600.0))
                times.append(time.process_time() - start)
            columns = ("origin_zone", "destination_zone", "kept")
            same = all(np.array_equal(getattr(plans[0], c), getattr(plans[1], c)) for c in columns)
            print(
                f"| {name} | {limit:.0%} | {times[0]:.1f} | {times[1]:.1f} | {times[1] / times[0]:.2f} | "
                f"{'yes' if same else 'NO'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
