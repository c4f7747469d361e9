"""What protecting the population or people costs, against protecting trips, for every method on the synthetic survey.

Both sides of a ratio take turns in the same run. Population protection sums weights and repeats no trip, so it must
cost about the same; people do not add up and cost more.
"""

from __future__ import annotations

from collections.abc import Callable

import flowveil
from benchmarks.stopwatch import interleaved
from flowveil.errors import FlowveilError
from flowveil.sources.synthetic import synthetic_survey

#: What the project asks: at most so many times the time of protecting trips.
ASKED = {"population": 1.5, "people": 3.0}


def run(flows: flowveil.Flows, method: str, protect: str) -> Callable[[], object]:
    return lambda: flowveil.anonymize(flows, method=method, protect=protect)


def main() -> None:
    flows = flowveil.read_trips(synthetic_survey())
    print(f"{len(flows):,} flows of the synthetic survey")
    print(f"{'method':12} {'protect':12} {'trips':>8} {'this':>8} {'ratio':>6} {'asked':>6}")
    for method in flowveil.METHODS:
        for protect, asked in ASKED.items():
            try:
                base, this = interleaved(run(flows, method, "trips"), run(flows, method, protect), repeat=3)
            except FlowveilError as problem:
                print(f"{method:12} {protect:12} {type(problem).__name__}")
                continue
            print(f"{method:12} {protect:12} {base:7.3f}s {this:7.3f}s {this / base:6.2f} {asked:6.1f}", flush=True)
