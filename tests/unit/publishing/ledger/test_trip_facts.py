"""What the ledger calls disjoint is disjoint.

All pairs of readings of all parts of a small table.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import h3
import numpy as np
import pyarrow as pa
import pytest

from flowveil import read_slices, read_trips
from flowveil.publishing.ledger.trip_facts import shares_no_trip, trip_facts

#: In place of a ledger: hashes without a key.
LEDGER: Any = SimpleNamespace(
    keyed_hash=lambda *parts: hashlib.sha256("\0".join(parts).encode()).hexdigest()
)
NORTH, SOUTH, EDGE = (49.2, 2.3), (48.5, 2.3), (48.85, 2.35)
#: Between the centres of the large and of the small tile around one point: it is in different areas
#: by size of tiles.
CENTRES = [h3.cell_to_latlng(h3.latlng_to_cell(*EDGE, resolution))[0] for resolution in (5, 7)]
BORDER = sum(CENTRES) / 2
AREAS = (f"2,48,3,{BORDER}", f"2,{BORDER},3,50", "2,48.4,3,48.6", "2,48,3,50")
#: Day, attribute, the same attribute as another file spells it, start and end.
ROWS = (
    ("2024-01-31", "1", "01", NORTH, NORTH),
    ("2024-02-01", "f", "F", SOUTH, SOUTH),
    (None, "g", "g", NORTH, SOUTH),
    ("2024-02-02", "2", "2.0", EDGE, EDGE),
)
#: The number of trips says which rows were counted.
TABLE = pa.table(
    {
        "t": [day and f"{day} 08:00:00" for day, *_ in ROWS],
        "other": ["2024-03-01 08:00:00"] * len(ROWS),
        "sex": [row[1] for row in ROWS],
        "respelled": [row[2] for row in ROWS],
        **{f"start_{axis}": [row[3][n] for row in ROWS] for n, axis in enumerate(("lat", "lon"))},
        **{f"end_{axis}": [row[4][n] for row in ROWS] for n, axis in enumerate(("lat", "lon"))},
        "bits": [1 << row for row in range(len(ROWS))],
    }
)


def readings() -> Iterator[tuple[str, pa.Table, dict[str, Any]]]:
    parts = [TABLE.take(part) for n in range(1, 5) for part in combinations(range(4), n)]
    for part in parts:
        yield "days", part, {"time": "t"}
        yield "values", part, {"by": "sex"}
        renamed = [
            {"sex": "before", "respelled": "sex"}.get(name, name) for name in part.column_names
        ]
        yield "values", part.rename_columns(renamed), {"by": "sex"}
    yield "days", TABLE, {"time": "other"}
    yield "days", TABLE, {"time": "t", "during": "2024-02"}
    for area, outside, resolution in product(AREAS, ("drop", "keep"), (5, 7)):
        yield "areas", TABLE, {"within": area, "outside": outside, "resolution": resolution}


@pytest.mark.slow
def test_all_pairs_of_readings_that_are_called_disjoint_share_no_trip():
    read = []
    for kind, part, how in readings():
        how = {"resolution": 7, "max_dropped": 1.0, "no_person": True, "trips": "bits", **how}
        try:
            flows = (
                read_slices(part, by_many=True, **how) if "by" in how else read_trips(part, **how)
            )
        except ValueError:
            # No row of this part is in the area, or has a time.
            continue
        tables = flows.slices if "by" in how else (flows,)
        read.append(
            (kind, flows, trip_facts(flows, LEDGER), sum(int(np.sum(one.trips)) for one in tables))
        )
    proved: Counter[str] = Counter()
    for (kind, _, earlier, before), (other, flows, facts, after) in product(read, read):
        if shares_no_trip(facts, earlier, flows):
            assert not before & after, (kind, earlier, facts)
            proved[kind if kind == other else "mixed"] += 1
    # Each kind of proof succeeds for some pairs.
    assert min(proved[kind] for kind in ("days", "values", "areas")) > 0
