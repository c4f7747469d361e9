"""Releases on trees of halves: published, verified by independent code, and refused where trees
cannot be refined."""

from __future__ import annotations

import json
import shutil
from functools import cache

import h3.api.basic_str as h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil.core.errors import ParameterError
from reference.halves import cells_of
from samples.drafts import unchecked
from samples.releases import edit_report, rehash
from samples.verified import findings_of

CITY = (48.85, 2.35)


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


def trips(n=800, seed=1, **columns):
    draw = np.random.default_rng(seed)
    places = {
        name: center + draw.normal(0, 0.02, n)
        for name, center in zip(
            ("start_lat", "start_lon", "end_lat", "end_lon"), CITY * 2, strict=True
        )
    }
    return pa.table({**places, **columns})


def grid_map(side=6):
    """Tiles on a grid, whose rows are districts: neighbours are exactly as far apart as others."""
    code = [f"t{i:02}" for i in range(side * side)]
    return pa.table(
        {
            "code": code,
            "district": [f"d{i // side}" for i in range(side * side)],
            "lat": [48 + i // side / 100 for i in range(side * side)],
            "lon": [2 + i % side / 100 for i in range(side * side)],
        }
    )


def mapped_trips(zones, n=4000):
    draw = np.random.default_rng(3)
    code = np.array(zones["code"].to_pylist())
    ends = code[np.minimum(draw.geometric(0.08, (2, n)) - 1, len(code) - 1)]
    return pa.table({"o": ends[0], "d": ends[1]})


@cache
def read_city():
    return flowveil.read_trips(trips(), resolution=8)


@cache
def on_halves(method):
    return flowveil.anonymize(read_city(), method, k=10, hierarchy="halves")


@cache
def read_mapped():
    zones = grid_map()
    read = flowveil.read_zones(zones, levels="district,code", lat="lat", lon="lon")
    return flowveil.read_trips(
        mapped_trips(zones), zones=read, origin_tile="o", destination_tile="d"
    )


@cache
def mapped_on_halves():
    return flowveil.anonymize(read_mapped(), "paircut", k=10, hierarchy="halves")


# Two that take parts, one end after the other or pair by pair, and one that takes whole levels; the
# contract tests decide on halves with every method.
@pytest.mark.parametrize("method", ["twincut", "paircut", "oigh"])
def test_a_release_on_halves_is_what_the_rule_says(method, tmp_path):
    """verify agrees with the trips, and the cells that zones list are those of their codes."""
    flows, release = read_city(), on_halves(method)
    # Exports are made of the same tables, whichever method chose the zones.
    formats = "csv,geojson,gpkg,arrow,kepler" if method == "paircut" else "csv"
    folder = release.write(tmp_path / "release", formats=formats)
    report = json.loads((folder / "report.json").read_text())
    assert report["parameters"]["hierarchy"] == "halves"
    assert "--hierarchy halves" in report["published"]["command"]
    assert findings_of(folder, flows) == []
    zones = pq.read_table(folder / "zones.parquet")
    assert zones.schema.field("h3_cells").type == pa.list_(pa.string())
    codes, listed = zones["zone"].to_pylist(), zones["h3_cells"].to_pylist()
    assert [set(cells) for cells in listed] == [cells_of(code) for code in codes]
    assert zones["level"].to_pylist() == [
        h3.get_resolution(code.partition(".")[0]) for code in codes
    ]
    assert method == "oigh" or any("." in code for code in codes)


def test_slices_and_maps_of_ones_own_are_refined_too(tmp_path):
    draw = np.random.default_rng(2)
    table = trips(sex=draw.choice(["f", "m"], 800))
    sliced = flowveil.read_slices(table, resolution=8, by="sex")
    family = flowveil.anonymize_slices(sliced, k=10, hierarchy="halves")
    assert findings_of(family.write(tmp_path / "slices"), sliced) == []

    folder = mapped_on_halves().write(tmp_path / "map")
    assert findings_of(folder, read_mapped()) == []
    zones = pq.read_table(folder / "zones.parquet")
    parts = [code for code in zones["zone"].to_pylist() if "~" in code]
    assert parts
    assert "h3_cells" not in zones.column_names


def test_both_ends_can_have_the_same_parts(tmp_path):
    flows = flowveil.read_trips(trips(), resolution=8, same_zones=True)
    folder = flowveil.anonymize(flows, k=10).write(tmp_path / "release")
    zones = pq.read_table(folder / "zones.parquet")
    assert any("." in code for code in zones["zone"].to_pylist())
    assert findings_of(folder, flows) == []


def test_parts_of_a_map_owe_nothing_to_the_trips():
    """The same parts whichever tiles were seen.

    A row of six is cut in three and three, these in two and one.
    """
    tree = mapped_on_halves().input.whole_map
    up = {
        str(c): None if p < 0 else str(tree.code[p])
        for c, p in zip(tree.code, tree.parent, strict=True)
    }
    assert up["t00"] == up["t01"] == "d0~1~1"
    assert up["t02"] == up["d0~1~1"] == "d0~1"
    assert up["t05"] == "d0~2"
    assert up["d0~2"] == up["d0~1"] == "d0"
    assert up["d0"] == up["d1"] == "all~1~1"
    assert up["all~1"] == "all"
    assert dict(zip(tree.code.tolist(), tree.level.tolist(), strict=True))["d0~1~1"] == 0


def test_verify_finds_zones_that_are_other_parts(tmp_path):
    """An invalid code of a part, other cells than those of the code, and a report that says the
    tree is another."""
    flows = read_city()
    folder = on_halves("paircut").write(tmp_path / "release")

    def tampered(change):
        copy = tmp_path / "tampered"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        change(copy)
        rehash(copy)
        return " ".join(findings_of(copy, flows))

    def other_cells(copy):
        zones = pq.read_table(copy / "zones.parquet")
        listed = [cells[:1] for cells in zones["h3_cells"].to_pylist()]
        at = zones.schema.get_field_index("h3_cells")
        changed = zones.set_column(at, "h3_cells", pa.array(listed, pa.list_(pa.string())))
        pq.write_table(
            changed,
            copy / "zones.parquet",
            compression="zstd",
            version="2.6",
            row_group_size=1 << 20,
        )

    def plain_tree(copy):
        edit_report(copy, lambda report: report["parameters"].update(hierarchy="h3"))

    assert "zones.parquet" in tampered(other_cells)
    assert tampered(plain_tree)


def test_halves_of_a_tree_that_cannot_be_refined_are_refused():
    zones = grid_map()
    marked = zones.set_column(0, "code", pa.array([c + "~" for c in zones["code"].to_pylist()]))
    ward = flowveil.read_zones(zones.drop_columns(["district"]), tile="code")
    placeless = flowveil.read_zones(zones.select(["code", "district"]), levels="district,code")
    for read, table, reason in (
        (ward, zones, "is binary already"),
        (placeless, zones, "no map with centres"),
        (
            flowveil.read_zones(marked, levels="district,code", lat="lat", lon="lon"),
            marked,
            "marked with '~'",
        ),
    ):
        flows = flowveil.read_trips(
            mapped_trips(table), zones=read, origin_tile="o", destination_tile="d"
        )
        with pytest.raises(ParameterError, match=reason):
            flowveil.anonymize(flows, "paircut", k=10, hierarchy="halves")
        assert flowveil.anonymize(flows, "paircut", k=10).parameters["hierarchy"] == "h3"
    flows = read_city()
    for method in ("mondrian", "laplace"):
        with pytest.raises(ParameterError, match=r"hierarchy.* cannot be combined with"):
            flowveil.anonymize(flows, method, hierarchy="halves")
    with pytest.raises(ParameterError, match="must be one of h3, halves"):
        flowveil.anonymize(flows, hierarchy="thirds")


def test_reconstruction_onto_a_resolution_takes_whole_cells():
    release = on_halves("paircut")
    found = release.reconstruct(6)
    assert all(h3.get_resolution(code) == 6 for code in found.zoning.codes)
    assert np.isclose(found.trips.sum(), release.cells.trips.sum())
