"""How long the recount of a release takes, against reading the trips that it is recounted from.

Trips of a synthetic city, about 1.6 million flows, released with ODkAnon, whose rule of hopeless
flows asks most of the recount. Reading and recounting take turns in one run, so that what else the
machine does hits both.

    python -m benchmarks verify
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import flowveil
from benchmarks.ingest import write_trips
from benchmarks.stopwatch import interleaved
from samples.verified import findings_of

#: What the recount may cost, as a multiple of the reading.
TARGET = 4.0


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_700_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--resolution", type=int, default=10)
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        trips, folder = Path(place) / "trips.csv", Path(place) / "release"
        write_trips(trips, options.rows)

        def read() -> flowveil.Flows:
            return flowveil.read_trips(trips, resolution=options.resolution, person="")

        flows = read()
        flowveil.anonymize(flows, method="odkanon", k=10).write(folder)

        def recount() -> None:
            findings = findings_of(folder, flows)
            if findings:
                raise SystemExit("\n".join(findings))

        reading, recounting = interleaved(read, recount, repeat=options.repeat)
    ratio = recounting / reading
    print(
        f"{len(flows):,} flows: reading {reading:.2f} s, recount {recounting:.2f} s, {ratio:.2f}"
        " times the reading"
    )
    print(f"{'as asked' if ratio <= TARGET else 'TOO SLOW'}: at most {TARGET:g} times")


if __name__ == "__main__":
    main()
