"""Higher thresholds around listed places: suppressed where cells fall short of them, recounted, and never named."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import h3
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from flowveil import anonymize, read_trips, read_zones, verify_folder
from flowveil.cli import main
from flowveil.errors import DataError, GuaranteeError, InfeasibleError, OutputError, ParameterError
from flowveil.zoning.places import read_places
from samples.drafts import unchecked

RESOLUTION = 9
CENTER = h3.latlng_to_cell(48.85, 2.35, RESOLUTION)
#: A parent, its children that trips use, and one that they do not.
PARENT = h3.cell_to_parent(CENTER, RESOLUTION - 1)
CLINIC, A, B, *_, UNSEEN = sorted(h3.cell_to_children(PARENT, RESOLUTION))
FAR = h3.latlng_to_cell(48.95, 2.55, RESOLUTION)


def trips(*, to_clinic=20, away=60, more=()):
    rows = [(A, CLINIC)] * to_clinic + [pair for pair in ((A, B), (B, A), (FAR, A), (B, FAR)) for _ in range(away)]
    rows += list(more)
    return pa.table({"origin_tile": [o for o, _ in rows], "destination_tile": [d for _, d in rows]})


def read(table):
    return read_trips(table, resolution=RESOLUTION, origin_tile="origin_tile", destination_tile="destination_tile")


@cache
def usual_flows():
    return read(trips())


def listed(tile=CLINIC, **asked):
    return pa.table({"tile": [tile], **{name: [value] for name, value in (asked or {"k": 30}).items()}})


def released(places, method="suppression", table=None, **asked):
    flows = usual_flows() if table is None else read(table)
    return anonymize(flows, method, k=5, stricter=places, **asked)


def draft(release, place):
    """A release that is not recounted before it is there: the tests do that, or need only its files."""
    with unchecked():
        return release.write(place)


def test_a_cell_around_a_place_is_suppressed_where_it_falls_short_there_and_no_other(tmp_path):
    assert sorted(released(None).cells.trips.tolist()) == [20, 60, 60, 60, 60]
    assert sorted(released(listed(k=20)).cells.trips.tolist()) == [20, 60, 60, 60, 60]
    release = released(listed())
    assert release.cells.trips.tolist() == [60] * 4
    draft(release, tmp_path / "release")
    report = json.loads((tmp_path / "release" / "report.json").read_text("utf-8"))
    assert report["parameters"]["stricter"] == {"places": 1, "k": 30, "l": None}
    assert "--stricter PLACES" in report["command"]
    assert any("more around 1 listed place" in line and "k = 30" in line for line in report["statement"])
    texts = [f.read_bytes() for f in (tmp_path / "release").iterdir() if f.suffix != ".parquet"]
    assert not any(CLINIC.encode() in text for text in texts)
    how = {"against": trips(), "unread": (unread := [])}
    assert verify_folder(tmp_path / "release", stricter=listed(), **how) == []
    assert unread == []
    assert verify_folder(tmp_path / "release", **how) == []
    assert "the list was not given" in unread[0]


@pytest.mark.parametrize(
    ("made_with", "held_against", "finding"),
    [
        (listed(k=6), listed(k=30), "2 cells around listed places fall short"),
        (listed(k=30), listed(k=6), "2 cells that reach the guarantee are missing"),
        (listed(k=30), listed(A, k=30), "1 cells that reach the guarantee are missing"),
        (listed(k=30), listed(l=2), "1 cells around listed places fall short"),
    ],
)
def test_verify_finds_a_cell_that_is_short_around_a_place_and_one_that_is_missing(
    tmp_path, made_with, held_against, finding
):
    """The report is that of the list it is held against, so that only the cells can give it away."""
    table = trips(to_clinic=20, more=[(B, CLINIC)] * 20 + [(FAR, CLINIC)] * 60)
    release = released(made_with, table=table, max_suppressed=0.3)
    places = read_places(held_against, asking=True).on(read(table))
    said = {**release.parameters, "stricter": {"places": 1, **places.highest}}
    forged = replace(release, parameters=said, plan=replace(release.plan, stricter=places))
    with pytest.raises(GuaranteeError, match=finding):
        forged.write(tmp_path / "release")
    assert not (tmp_path / "release").exists()


def test_another_list_than_the_stated_one_is_found(tmp_path):
    draft(released(listed()), tmp_path / "release")
    found = verify_folder(tmp_path / "release", against=trips(), stricter=listed(k=40))
    assert any("another than the one that was given" in line for line in found)
    draft(released(None), tmp_path / "plain")
    found = verify_folder(tmp_path / "plain", against=trips(), stricter=listed())
    assert any("does not say that more is asked" in line for line in found)


@pytest.mark.parametrize("hierarchy", ["h3", "halves"])
def test_a_place_that_nobody_went_to_counts_too(hierarchy, tmp_path):
    """A cell published below the higher threshold would say that none of its trips ended at the place."""
    flows = read(trips(to_clinic=4, more=[(FAR, B)] * 4))
    asked = {"k": 10, "max_suppressed": 0, "hierarchy": hierarchy}
    cells = len(anonymize(flows, "twincut", **asked).cells)
    with pytest.raises(InfeasibleError):
        anonymize(flows, "twincut", **asked, stricter=listed(UNSEEN, k=10**6))
    elsewhere = listed(h3.latlng_to_cell(40.0, 2.0, RESOLUTION), k=10**6)
    release = anonymize(flows, "twincut", **asked, stricter=elsewhere)
    # What is written is verified before it is there.
    release.write(tmp_path / "release")
    assert len(release.cells) == cells


def test_the_method_leaves_room_and_the_share_that_is_needed_suffices():
    rng = np.random.default_rng(5)
    tiles = sorted(h3.grid_disk(CENTER, 2))
    pairs = rng.integers(0, len(tiles), (2000, 2))
    table = trips(more=[(tiles[o], tiles[d]) for o, d in pairs], away=0)
    for method in ("twincut", "odkanon"):
        asked = {"method": method, "table": table, "max_suppressed": 0.02}
        with pytest.raises(InfeasibleError, match="would be needed") as short:
            released(listed(tiles[0], k=1500), **asked)
        needed = short.value.best["suppressed"]
        assert 0.02 < needed < 1
        release = released(listed(tiles[0], k=1500), **{**asked, "max_suppressed": needed})
        assert 0 < release.metrics()["trips"]["suppressed_share"] <= needed


def test_the_total_of_what_is_suppressed_reaches_the_higher_threshold_or_is_withheld(tmp_path):
    """Four cells of 7 to the clinic: their sum of 28 is no secret where 5 are asked, and one where 30 are."""
    table = trips(to_clinic=0, more=[(o, CLINIC) for o in (A, B, FAR, UNSEEN) for _ in range(7)])
    for k, withheld in ((8, False), (28, False), (29, True)):
        release = released(listed(k=k), table=table, max_suppressed=0.3)
        share = release.summary()["measures"]["trips"]["suppressed_share"]
        assert (share is None) == withheld
        if k > 8:
            # What is written is verified before it is there.
            release.write(tmp_path / f"release-{k}")


def test_l_is_raised_around_a_place_and_recounted(tmp_path):
    release = released(listed(l=2), table=trips(), max_suppressed=0.3)
    assert release.cells.trips.tolist() == [60] * 4
    draft(release, tmp_path / "release")
    assert verify_folder(tmp_path / "release", against=trips(), stricter=listed(l=2)) == []


def test_places_on_a_map_by_code_and_by_coordinates(tmp_path):
    geo = [
        {"type": "Feature", "properties": {"zone": name, "parent": parent}, "geometry": square(x)}
        for name, parent, x in (("a", "west", 0), ("b", "west", 1), ("c", "east", 2), ("d", "east", 3))
    ]
    (tmp_path / "map.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": geo}))
    rows = [("a", "c")] * 20 + [("b", "d")] * 60 + [("d", "a")] * 60
    table = pa.table({"from": [o for o, _ in rows], "to": [d for _, d in rows]})
    zones = read_zones(tmp_path / "map.geojson", root="all")
    how = {"zones": zones, "origin_tile": "from", "destination_tile": "to"}
    at = pa.table({"lat": [0.5], "lon": [2.5], "k": [30]})
    for places in (listed("c"), at):
        release = anonymize(read_trips(table, **how), "suppression", k=5, stricter=places, max_suppressed=0.3)
        assert sorted(release.cells.trips.tolist()) == [60, 60]
        draft(release, tmp_path / "release")
        assert verify_folder(tmp_path / "release", against=table, stricter=places, zones=zones) == []
    with pytest.raises(DataError, match="1 of the listed places are on no tile"):
        anonymize(read_trips(table, **how), "suppression", k=5, stricter=listed("zz"))


def square(x):
    ring = [[x, 0], [x + 1, 0], [x + 1, 1], [x, 1], [x, 0]]
    return {"type": "Polygon", "coordinates": [ring]}


def test_a_release_without_the_rule_neither_replaces_nor_revises_one_with_it(tmp_path):
    draft(released(listed()), tmp_path / "release")
    with pytest.raises(ParameterError, match="cells around listed places"):
        anonymize(usual_flows(), k=5, revision=tmp_path / "release")
    with pytest.raises(OutputError, match="lower thresholds around listed places"):
        released(None).write(tmp_path / "release")


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        (pa.table({"tile": [CLINIC]}), "1 places without a threshold"),
        (pa.table({"k": [30]}), "does not say where"),
        (pa.table({"tile": [CLINIC], "k": [0]}), "not a whole number of at least 1"),
        (pa.table({"tile": ["somewhere"], "k": [30]}), "not an H3 cell"),
        (pa.table({"tile": [PARENT], "k": [30]}), "coarser than the tiles"),
        (pa.table({"lat": [95.0], "lon": [2.0], "k": [30]}), "off the earth"),
        ("no-such-file.csv", "There is no file"),
    ],
)
def test_lists_that_say_nothing_are_refused(places, problem):
    with pytest.raises(DataError, match=problem):
        released(places)


def test_what_cannot_be_had_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="not for boxes"):
        released(listed(), "mondrian")
    with pytest.raises(ParameterError, match="stricter"):
        anonymize(usual_flows(), "laplace", stricter=listed(), epsilon=1.0)
    csv.write_csv(trips().append_column("sex", pa.array(["f", "m"] * 130)), tmp_path / "trips.csv")
    csv.write_csv(listed(), tmp_path / "places.csv")
    words = ["anonymize", str(tmp_path / "trips.csv"), "--k", "5", "--resolution", "9", "--origin-tile", "origin_tile"]
    words += ["--destination-tile", "destination_tile", "--method", "suppression"]
    words += ["--stricter", str(tmp_path / "places.csv"), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--by", "sex"])
    assert ended.value.code == 2
    with unchecked():
        main(words)
    checked = ["verify", str(tmp_path / "out"), "--against", str(tmp_path / "trips.csv"), "--strict"]
    main([*checked, "--stricter", str(tmp_path / "places.csv")])
    with pytest.raises(SystemExit) as ended:
        main(checked)
    assert ended.value.code == 3
