"""How many tiles there are in cells and parts of cells: the SQL for all nodes against one code after the other."""

from __future__ import annotations

from pathlib import Path

import duckdb
import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa

from flowveil import anonymize
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy
from flowveil.verify import verify_release
from flowveil.verify.h3_parts import cells_in, parts_around
from flowveil.verify.raw import _possible_in_parts

FINEST = 7


def test_tiles_of_parts_are_those_of_their_cells() -> None:
    """Below hexagons and pentagons of every resolution, and in all of them."""
    codes = {"all"}
    for start in (h3_int.latlng_to_cell(48.8, 2.3, FINEST), *h3_int.get_pentagons(FINEST)[:2]):
        for resolution in range(1, FINEST + 1):
            parent = h3_int.cell_to_parent(start, resolution - 1)
            for child in h3_int.cell_to_children(parent, resolution):
                codes |= {f"{child:x}", f"{parent:x}", *parts_around(child, parent, resolution)}
    con = duckdb.connect()
    con.register("seen", pa.table({"node": sorted(codes), "text": sorted(codes)}))
    found = dict(con.execute(_possible_in_parts("seen", FINEST)).fetchall())
    expected = {
        code: sum(h3_int.cell_to_children_size(cell, FINEST) for cell in cells_in(code)) for code in codes - {"all"}
    }
    assert found == {**expected, "all": h3_int.get_num_cells(FINEST)}


def test_codes_are_told_apart_behind_a_nul(tmp_path: Path) -> None:
    """Two tiles whose codes begin alike up to it are two."""
    tree, _ = Hierarchy.from_parents([-1, 0, 0, 1, 1, 2, 2], np.array(["R", "X", "Y", "a\0b", "a\0c", "y1", "y2"]))
    ends = np.random.default_rng(1).integers(0, 4, (2, 300))
    flows = Flows.from_pairs(*ends, origins=tree, destinations=tree)
    assert verify_release(anonymize(flows, k=5).write(tmp_path / "release"), flows) == []
