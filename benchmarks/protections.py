"""What protecting the population or people costs, against protecting trips, for every method on the
synthetic survey.

Both sides of a ratio take turns in the same run. Population protection sums weights and repeats no
trip, so it must cost about the same; people do not add up and cost more.
"""

from __future__ import annotations

from collections.abc import Callable

import flowveil
from benchmarks.stopwatch import interleaved
from flowveil.core.errors import FlowveilError
from flowveil.reading.sources.synthetic import synthetic_survey

#: Upper bound, as a multiple of the time of protecting trips.
ASKED = {"population": 1.5, "people": 3.0}


def run(flows: flowveil.Flows, method: str, protect: str) -> Callable[[], object]:
    return lambda: flowveil.anonymize(flows, method=method, protect=protect)


#: Methods that take minutes on the whole survey are measured on a part of its people.
FEWER_PEOPLE = {"glove": 800, "glove-sk": 800}


def main() -> None:
    print(
        f"{'method':12} {'protect':12} {'flows':>8} {'trips':>8} {'this':>8} {'ratio':>6}"
        f" {'asked':>6}"
    )
    for method in (name for name, known in flowveil.METHODS.items() if known.counts == "exact"):
        flows = flowveil.read_trips(
            synthetic_survey(people=FEWER_PEOPLE.get(method, 3_320)), weight="weight"
        )
        for protect, asked in ASKED.items():
            try:
                base, this = interleaved(
                    run(flows, method, "trips"), run(flows, method, protect), repeat=3
                )
            except FlowveilError as problem:
                print(
                    f"{method:12} {protect:12} {len(flows):8,} {type(problem).__name__}", flush=True
                )
                continue
            ratio = this / base
            print(
                f"{method:12} {protect:12} {len(flows):8,} {base:7.3f}s {this:7.3f}s {ratio:6.2f}"
                f" {asked:6.1f}",
                flush=True,
            )
