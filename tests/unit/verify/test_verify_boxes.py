"""verify on releases made of boxes: sound ones pass, each kind of tampering is found."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import shapely
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flowveil import Flows, Hierarchy, InfeasibleError, anonymize
from flowveil.cli import cli
from flowveil.release.release import Release
from flowveil.verify import verify_release
from flowveil.verify.boxes import Rectangles
from samples.drafts import unchecked
from samples.placed import placed_problems, star
from samples.releases import city_flows, edit_report, edit_table

METHODS = {
    "mondrian": ("mondrian", {}),
    "relaxed": ("mondrian", {"partitioning": "relaxed"}),
    "glove": ("glove", {}),
    "glove-sk": ("glove-sk", {}),
    "curvecut": ("curvecut", {}),
}


def release_of(kind: str, flows: Flows | None = None, **asked) -> Release:
    method, options = METHODS[kind]
    asked = {"k": 5, "protect": "trips", "allow_small_k": True, "population_only": True, **asked}
    return anonymize(flows or city_flows(), method, **asked, **options)


@pytest.fixture(params=["mondrian", "relaxed"])
def kind(request) -> str:
    """Of each kind that verify tells apart one: it reads whether boxes are disjoint, not how they were made."""
    return request.param


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A release of a kind and its folder, written once."""
    place = tmp_path_factory.mktemp("written")

    @cache
    def of(kind: str) -> tuple[Release, Path]:
        release = release_of(kind)
        with unchecked():
            return release, release.write(place / kind)

    return of


@pytest.fixture
def copy_of(written, tmp_path):
    """The release of a kind, and a copy of its folder to tamper with."""

    def of(kind: str) -> tuple[Release, Path]:
        release, folder = written(kind)
        return release, shutil.copytree(folder, tmp_path / "out")

    return of


def change_table(folder: Path, name: str, change) -> None:
    """Replace a table by what a function of its columns returns."""

    def as_rows(rows):
        columns = change({c: [row[c] for row in rows] for c in rows[0]})
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    edit_table(folder, name, as_rows)


@pytest.mark.parametrize(
    ("kind", "protect", "l"),
    [
        ("mondrian", ("trips", "people", "population"), None),
        ("relaxed", "people", 3),
        ("glove", "population", None),
        ("glove-sk", "trips", 3),
        ("curvecut", ("trips", "people", "population"), 3),
    ],
)
def test_sound_releases_hold(tmp_path, kind, protect, l):  # noqa: E741
    # What is written is verified before it is there.
    assert release_of(kind, protect=protect, l=l).write(tmp_path / "out").is_dir()


# Each is a release that is written and recounted; the contract tests try every method on every kind of map.
@settings(max_examples=6, deadline=None)
@given(placed_problems(), st.sampled_from(list(METHODS)), st.sampled_from([0.0, 0.3]))
def test_whatever_is_released_holds(tmp_path_factory, problem, kind, max_suppressed):
    flows, guarantee = problem
    try:
        release = release_of(kind, flows, k=guarantee.k, l=guarantee.locations, max_suppressed=max_suppressed)
    except InfeasibleError:
        assume(False)
    # What is written is verified before it is there.
    assert release.write(tmp_path_factory.mktemp("release") / "out").is_dir()


def test_a_cell_with_more_than_lies_in_its_boxes_and_one_below_the_guarantee(copy_of, kind):
    release, folder = copy_of(kind)

    def change(columns):
        columns["trips"][0] = 2
        columns["trips"][3] += 10_000
        return columns

    change_table(folder, "flows.parquet", change)
    findings = verify_release(folder, release.input)
    wanted = {
        "relaxed": ["1 cells have more trips than lie in their boxes", "1 cells have fewer than 5 trips"],
        "mondrian": ["2 cells have another number of trips than the recount"],
    }
    assert all(f"flows.parquet: {line}" in findings for line in wanted[kind]), findings


def test_fewer_people_in_a_box_than_promised(copy_of, kind):
    """All trips are made by one person: no box can hide them, whatever the counts say."""
    release, folder = copy_of(kind)
    flows = release.input
    edit_report(folder, lambda r: r["guarantee"].update(people=5, protect=["trips", "people"]))
    one = Flows.from_pairs(
        flows.origin,
        flows.destination,
        flows.trips,
        origins=flows.origins,
        destinations=flows.destinations,
        weight=flows.weight,
        person=np.zeros(len(flows), int),
    )
    assert any("have fewer than 5 people" in f for f in verify_release(folder, one))


def test_fewer_tiles_in_a_box_than_promised(tmp_path, kind):
    """All trips end in one tile: whatever else the boxes cover, nobody's destination is hidden among two."""
    flows = city_flows()
    flows = Flows.from_pairs(
        flows.origin, flows.destination * 0, flows.trips, origins=flows.origins, destinations=flows.destinations
    )
    release = release_of(kind, flows)
    with unchecked():
        folder = release.write(tmp_path / "out")
    edit_report(folder, lambda r: (r["guarantee"].update(locations=2), r["parameters"].update(l=2)))
    assert f"flows.parquet: {len(release.cells)} cells have trips that begin, or end, in fewer than 2 tiles" in (
        verify_release(folder, flows)
    )


def test_too_much_in_total(tmp_path):
    """Each cell alone could be true, all together cannot: two boxes share the flows of one."""
    tree = star(np.zeros(3), np.array([0.0, 0.02, 0.04]))
    flows = Flows.from_pairs([0, 1, 2], [0, 0, 0], [5, 6, 5], origins=tree, destinations=tree)
    release = release_of("relaxed", flows, k=5)
    with unchecked():
        folder = release.write(tmp_path / "out")
    change_table(folder, "flows.parquet", lambda c: {**c, "trips": [t + 1 for t in c["trips"]]})
    assert any("than lie in their boxes" in f or "than the input has" in f for f in verify_release(folder, flows))


def test_trips_left_out_of_a_cell(copy_of):
    """What lies in one box only is counted there or suppressed; a report that says nothing is, is found out."""
    release, folder = copy_of("relaxed")

    def fewer(columns):
        most = int(np.argmax(columns["trips"]))
        columns["trips"][most] = 5
        return columns

    change_table(folder, "flows.parquet", fewer)
    assert any("suppressed_share by trips contradicts" in f for f in verify_release(folder, release.input))


def test_a_claim_to_be_disjoint(tmp_path):
    release = release_of("glove", max_suppressed=0.0)
    with unchecked():
        folder = release.write(tmp_path / "out")
    edit_report(folder, lambda r: r["boxes"].update(disjoint=True))
    findings = "\n".join(verify_release(folder, release.input))
    assert "flows of the input fall into two published cells" in findings


def test_edges_off_the_grid_and_tiles_that_are_told_say_where_somebody_was(copy_of, kind):
    release, folder = copy_of(kind)
    assert release.zones["tiles"].null_count == len(release.zones)

    def shrink(columns):
        west, south, east, north = shapely.from_wkb(columns["geometry"][0]).bounds
        columns["geometry"][0] = shapely.to_wkb(shapely.box(west, south, east - 1e-5, north))
        columns["tiles"][1] = 1
        return columns

    change_table(folder, "zones.parquet", shrink)
    findings = "\n".join(verify_release(folder, release.input))
    assert "1 origin zones have edges off the declared grid" in findings or (
        "1 destination zones have edges off the declared grid" in findings
    )
    assert "code that does not say their bounds" in findings
    assert "zones have another number of possible tiles" in findings


def test_a_shape_that_is_no_rectangle(copy_of):
    release, folder = copy_of("mondrian")

    def cut_a_corner(columns):
        west, south, east, north = shapely.from_wkb(columns["geometry"][0]).bounds
        triangle = shapely.polygons([(west, south), (east, south), (east, north)])
        columns["geometry"][0] = shapely.to_wkb(triangle)
        return columns

    change_table(folder, "zones.parquet", cut_a_corner)
    assert any("are not made of rectangles" in f for f in verify_release(folder, release.input))


@pytest.mark.parametrize("boxes", [{}, {"disjoint": 1, "grid_lon": 1, "grid_lat": 1}, {"disjoint": True}])
def test_boxes_that_are_not_described(copy_of, boxes):
    release, folder = copy_of("mondrian")
    edit_report(folder, lambda r: r.update(boxes=boxes))
    assert any("'boxes" in f for f in verify_release(folder, release.input))


def test_an_input_without_a_map(copy_of):
    release, folder = copy_of("mondrian")
    flows = release.input
    bare = Hierarchy(flows.origins.parent, flows.origins.code, flows.origins.base_level, kind="h3")
    blind = Flows.from_pairs(
        flows.origin, flows.destination, flows.trips, origins=bare, destinations=bare, weight=flows.weight
    )
    findings = "\n".join(verify_release(folder, blind))
    assert "does not say where its origin tiles lie" in findings


def test_findings_tell_no_value_below_the_guarantee(tmp_path, kind):
    release = release_of(kind, k=40)
    with unchecked():
        folder = release.write(tmp_path / "out")
    change_table(folder, "flows.parquet", lambda c: {**c, "trips": [37] * len(c["trips"])})
    assert "37" not in "\n".join(f for f in verify_release(folder, release.input) if "37 cells" not in f)


@pytest.mark.parametrize(
    ("kind", "proved"), [("mondrian", "every cell was recounted"), ("glove", "cannot be recounted")]
)
def test_the_command_line_says_what_was_proved(tmp_path, trips_csv, kind, proved):
    # A name that looks like a pattern is a name.
    method, out = METHODS[kind][0], str(tmp_path / "b[1]")
    asked = ["anonymize", str(trips_csv), "--method", method, "--k", "5", "--resolution", "8", "--out", out]
    with unchecked():
        done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(cli, ["verify", out, "--against", str(trips_csv)])
    assert done.exit_code == 0, done.output
    assert proved in done.output


def test_rectangles_of_nothing_and_of_broken_shapes():
    found = Rectangles.of(
        [None, b"no shape", shapely.to_wkb(shapely.box(0, 0, 1, 1)), shapely.to_wkb(shapely.Point(0, 0))]
    )
    assert found.sound.tolist() == [False, False, True, False]
    assert found.tile_counts(np.array([0.5, 1.0]), np.array([0.0, 0.5])).tolist() == [0, 0, 1, 0]
