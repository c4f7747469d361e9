from __future__ import annotations

import h3
import pyarrow as pa

from flowveil.verify.audit.published import published_release
from flowveil.verify.audit.zone_forest import ground_of

CELL = h3.latlng_to_cell(48.85, 2.35, 7)


def release(codes: dict[str, list[str]], parameters: dict):
    names = sorted(codes)
    flows = pa.table(
        {
            "origin_zone": names,
            "destination_zone": names,
            "trips": pa.array([9] * len(names), pa.int64()),
        }
    )
    report = {
        "kind": "plain", "method": "twincut", "parameters": parameters,
        "guarantee": {"k": 5, "protect": ["trips"], "trips": 5, "population": None},
        "statement": {"about": {}, "homogeneous": True, "suppression": {"rule": "short cells"}},
    }  # fmt: skip
    zones = pa.table(
        {
            "zone": names,
            "h3_cells": pa.array([codes[name] for name in names], pa.list_(pa.string())),
        }
    )
    return published_release(flows, zones, report)


def test_the_zone_of_everything_holds_what_lies_outside_the_area_where_that_is_kept():
    base = h3.cell_to_parent(CELL, 0)
    kept = {"within": "1,2,3,4", "outside": "keep"}
    coarse, fine = release({"all": [base]}, kept), release({CELL: [CELL], "outside": []}, kept)
    ground = ground_of({0: coarse, 1: fine})
    everything, (cell, outside) = ground.nodes[0, 0][0], ground.nodes[1, 0]
    assert ground.parent[outside] == ground.parent[cell] == everything
    # Without trips from outside, everything is what was seen.
    dropped = ground_of(
        {0: release({"all": [base]}, {}), 1: release({CELL: [CELL], "outside": []}, {})}
    )
    assert dropped.parent[dropped.nodes[1, 0][1]] == -1
