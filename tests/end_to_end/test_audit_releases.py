"""Two safe releases of Santiago, subtracted.

As many groups as direct subtraction finds, and as many as are true.
"""

from __future__ import annotations

from pathlib import Path

import h3
import pyarrow.parquet as pq
import pytest

from flowveil.apps.cli import main
from flowveil.verify.audit.published import read_release
from flowveil.verify.audit.subtraction import confined_groups
from samples.drafts import unchecked
from samples.parts import first_rows

pytestmark = pytest.mark.real


def directly(coarse: Path, fine: Path, k: int) -> dict[tuple[str, str], int]:
    """The remainder of each cell without the finer cells inside it, where that is above 0 and below
    k."""
    rows = [pq.read_table(folder / "flows.parquet").to_pylist() for folder in (coarse, fine)]
    cells = {(r["origin_zone"], r["destination_zone"]): r["trips"] for r in rows[0]}
    left = {}
    for row in rows[1]:
        ends = [
            [
                row[end],
                *(h3.cell_to_parent(row[end], r) for r in range(h3.get_resolution(row[end]))),
            ]
            for end in ("origin_zone", "destination_zone")
        ]
        for pair in ((o, d) for o in ends[0] for d in ends[1]):
            if pair in cells:
                left[pair] = left.get(pair, cells[pair]) - row["trips"]
    return {pair: value for pair, value in left.items() if 0 < value < k}


def test_santiago_with_two_limits(shared_data: Path, tmp_path: Path):
    trips = str(first_rows(shared_data / "santiago_taxi" / "trips.parquet", 200_000, tmp_path))
    ends = [
        "--origin",
        "o_lat,o_lon",
        "--destination",
        "d_lat,d_lon",
        "--resolution",
        "8",
        "--hierarchy",
        "h3",
    ]
    folders = [tmp_path / limit for limit in ("0.05", "0.1")]
    with unchecked():
        for folder in folders:
            main(
                [
                    "anonymize",
                    trips,
                    "--method",
                    "twincut",
                    *ends,
                    "--quiet",
                    "--max-suppressed",
                    folder.name,
                    "--out",
                    str(folder),
                ]
            )
    found = confined_groups([read_release(folder) for folder in folders])
    for absent, (coarse, fine) in ((1, folders), (0, folders[::-1])):
        left = {
            (g.origin, g.destination): g.low
            for g in found.groups
            if g.kind == "remainder" and g.absent == absent
        }
        assert left.items() >= directly(coarse, fine, 10).items()
    assert found.contradictions == 0
    assert len(directly(*folders, 10)) > 100
