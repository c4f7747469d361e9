"""Maps of grids: all cells in a box, their places and parents, from codes alone."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pyproj
import pytest
import shapely
from hypothesis import assume, given
from hypothesis import settings as trials
from hypothesis import strategies as st

import flowveil
from flowveil.apps.cli import main
from flowveil.core.errors import DataError, ParameterError
from flowveil.published.read_release import map_of_statement
from flowveil.release.folder import ReleaseFolder
from flowveil.zoning.grids import parse_grid, proposed_grid
from reference import grids as reference

OSLO = "10.6,59.85,10.9,59.97"
#: Sizes with some thousand cells.
SIZES = {"geohash": "6", "quadkey": "14", "s2": "13", "inspire": "1km"}


def test_codes_are_those_of_the_grids() -> None:
    """Values that their documentations give."""
    known = {
        "geohash:9:10.4073,57.6490,10.4075,57.6492": "u4pruydqq",
        "quadkey:3:0,0,90,67": "120",
        "s2:20:11.770,49.703,11.771,49.704": "47a1cbd5955",
        "inspire:1km:11.5,48.1,11.6,48.2": "1kmN2779E4437",
    }
    for text, code in known.items():
        assert code in parse_grid(text).cells().levels[-1].tolist()
    to_metres = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:3035", always_xy=True)
    cells = parse_grid("inspire:RES200m:2.30,48.84,2.36,48.87").cells()
    for code, lat, lon in zip(cells.levels[-1].tolist(), cells.lat, cells.lon, strict=True):
        x, y = to_metres.transform(lon, lat)
        low = int(y // 200 * 200), int(x // 200 * 200)
        assert code == "CRS3035RES200mN{}E{}".format(*low)


@trials(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(set(SIZES) - {"inspire"})),
    st.floats(-179, 178),
    st.floats(-84, 83),
    st.floats(0.05, 0.6),
)
def test_cells_are_those_whose_centres_lie_in_the_box(grid, west, south, width):
    box = (west, south, west + width, south + width)
    text = f"{grid}:{SIZES[grid]}:{','.join(f'{edge:.6f}' for edge in box)}"
    try:
        cells = parse_grid(text).cells()
    except ParameterError:
        assume(False)
    codes = cells.levels[-1].tolist()
    assert len(set(codes)) == len(codes)
    places = np.array([getattr(reference, grid)(code) for code in codes])
    assert np.allclose(places, np.stack((cells.lat, cells.lon), axis=1), atol=1e-9)
    west, south, east, north = parse_grid(text).box
    assert ((cells.lat >= south) & (cells.lat <= north)).all()
    assert ((cells.lon >= west) & (cells.lon <= east)).all()
    # Every point in the middle of the box is in one cell: none is missing.
    inner = shapely.box(west, south, east, north).buffer(-0.45 * width).envelope
    covered = shapely.union_all(cells.outlines).buffer(1e-6)
    assert width < 0.3 or covered.contains(inner)


@pytest.mark.parametrize("grid", SIZES)
def test_parents_hold_their_children(grid):
    cells = parse_grid(f"{grid}:{SIZES[grid]}:{OSLO}").cells()
    for coarse, fine in zip(cells.levels, cells.levels[1:], strict=False):
        parents: dict[str, set[str]] = {}
        for above, below in zip(coarse.tolist(), fine.tolist(), strict=True):
            parents.setdefault(below, set()).add(above)
        assert all(len(above) == 1 for above in parents.values())
    assert shapely.contains_xy(cells.outlines, cells.lon, cells.lat).all()


def test_codes_of_other_things_are_no_grid():
    assert proposed_grid(["10001", "10002", "20001"]) is None
    assert proposed_grid(["IT-1", "IT-2"]) is None
    assert proposed_grid(["8a1fb46622dffff", "8a1fb46622d7fff"]) is None
    assert proposed_grid([]) is None
    assert parse_grid("zones.csv") is None
    with pytest.raises(ParameterError, match="box of the grid"):
        parse_grid("geohash:5:10,60,9,61")
    with pytest.raises(ParameterError, match="at most 200,000"):
        parse_grid("geohash:8:0,0,20,20").cells()


@pytest.mark.parametrize("grid", SIZES)
def test_a_table_of_codes_is_read_by_the_command_that_is_proposed(grid, tmp_path, capsys):
    codes = parse_grid(f"{grid}:{SIZES[grid]}:{OSLO}").cells().levels[-1].tolist()
    rows = [f"{codes[i]},{codes[-1 - j]},{1 + i + j}" for i in range(9) for j in range(9)]
    path, out = tmp_path / "od.csv", tmp_path / "release"
    path.write_text("\n".join(["start,end,n", *rows]))
    words = ["anonymize", str(path), "--trips", "n", "--no-person", "--out", str(out)]
    with pytest.raises(SystemExit):
        main(words)
    hint = re.search(r"Hint: (--zones .*?) reads them", capsys.readouterr().err)[1]
    main([*words, *shlex.split(hint)])
    report = json.loads((out / "report.json").read_text("utf-8"))
    total = sum(1 + i + j for i in range(9) for j in range(9))
    assert f"Read 81 rows: {total} trips. Trips lie around Oslo" in capsys.readouterr().err
    assert hint.startswith(f"--zones {report['parameters']['zones']['grid']} ")
    # No map is needed afterwards: the statement names it.
    found = flowveil.verify_release(out, against=path)
    assert found.holds, found.findings
    derived = flowveil.derive(out, level=0)
    assert derived.report["published"]["trips"] == report["published"]["trips"]


def test_a_release_names_a_grid_and_no_file(tmp_path):
    cells = parse_grid(f"geohash:5:{OSLO}").cells().levels[-1].tolist()
    path = tmp_path / "od.csv"
    path.write_text("\n".join(["start,end", *[f"{cells[0]},{cells[1]}"] * 30]))
    ends = {"origin_tile": "start", "destination_tile": "end"}
    flows = flowveil.read_trips(path, zones=f"geohash:5:{OSLO}", **ends)
    statement = ReleaseFolder(flowveil.anonymize(flows, k=10).write(tmp_path / "r")).statement
    forged = {**statement.parameters, "zones": {"grid": str(path)}}
    object.__setattr__(statement, "parameters", forged)
    with pytest.raises(ParameterError, match="a grid that does not exist"):
        map_of_statement(statement, None)
    with pytest.raises(DataError, match="leave the map out"):
        flowveil.read_zones(path, grid=f"geohash:5:{OSLO}")
