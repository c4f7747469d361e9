"""Locations by listed places: every cell has so many at both ends, counted one by one, and verify counts them anew."""

from __future__ import annotations

import json

import h3
import numpy as np
import pyarrow as pa
import pytest

from flowveil import anonymize, anonymize_slices, audit_releases, read_slices, read_trips, verify_folder
from flowveil.cli import main
from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import PlaceCounts
from samples.drafts import unchecked
from samples.releases import rehash

TILES = sorted(h3.cell_to_children(h3.latlng_to_cell(48.85, 2.35, 7), 9))[:14]
METHODS = ["twincut", "paircut", "odkanon", "atg-dual", "oigh", "suppression"]


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


def drawn(seed):
    """Trips between tiles, and a list in which a tile has no, one, or several places."""
    random = np.random.default_rng(seed)
    pairs = random.integers(0, 14, (60, 2))
    rows = [(int(o), int(d)) for o, d in pairs for _ in range(int(random.integers(1, 9)))]
    trips = pa.table({"from_h3": [TILES[o] for o, _ in rows], "to_h3": [TILES[d] for _, d in rows]})
    listed = [tile for tile in TILES for _ in range(int(random.choice([0, 1, 1, 4])))]
    # The last is somewhere else: nobody goes there.
    return trips, pa.table({"tile": [*listed, h3.latlng_to_cell(45.0, 4.0, 9)]})


def read(trips):
    return read_trips(trips, origin_tile="from_h3", destination_tile="to_h3")


def fewest_places(release, listed):
    """The places at the poorer end of each cell, one by one."""
    held = {tile: listed["tile"].to_pylist().count(tile) for tile in TILES}
    flows, found = release.input, {}
    for flow, cell in enumerate(release.cell_of_flow.tolist()):
        for end, (tree, tile) in enumerate(((flows.origins, flows.origin), (flows.destinations, flows.destination))):
            code = str(tree.code_text(tree.leaf_node[tile[flow : flow + 1]])[0])
            found.setdefault(cell, (set(), set()))[end].add(code)
    return [min(sum(held[code] for code in end) for end in ends) for cell, ends in found.items() if cell >= 0]


@pytest.mark.parametrize("method", METHODS)
def test_every_cell_begins_and_ends_among_so_many_listed_places(method, tmp_path):
    made = None
    for seed in range(2):
        trips, listed = drawn(seed)
        try:
            release = anonymize(read(trips), method, 5, "trips", 0.5, l=3, l_places=listed)
        except InfeasibleError:
            continue
        assert min(fewest_places(release, listed)) >= 3
        assert release.parameters["l_places"] == {"places": len(listed)}
        made = made or (release, trips, listed)
    release, trips, listed = made
    if method in ("suppression", "paircut"):
        # Verify knows cells, of zones that overlap or not; the method is a word to it.
        release.write(tmp_path / "release")
        assert verify_folder(tmp_path / "release", against=trips, l_places=listed) == []


def test_places_of_a_tile_are_told_apart_from_those_of_others():
    counts = PlaceCounts(np.array(["a", "b"]), np.array([3, 1]))
    tree = read(drawn(0)[0]).origins
    codes = tree.code_text(tree.leaf_node)
    counts = PlaceCounts(np.sort(codes[:2]), np.array([3, 1]))
    assert counts.of_tiles(tree)[:4].tolist() == [3, 1, 0, 0]
    row, place = counts.rows(tree, np.array([1, 0, 2, 0], np.int32), 2)
    assert row.tolist() == [0, 1, 1, 3, 3]
    assert place.tolist() == [2, 0, 1, 0, 1]


def test_another_list_and_a_cell_that_is_short_are_found(tmp_path):
    trips, listed = drawn(1)
    folder = tmp_path / "release"
    anonymize(read(trips), "twincut", 5, "trips", 0.5, l=3, l_places=listed).write(folder)
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert any("listed places, which are not named here" in line for line in report["statement"])
    assert "--l-places PLACES" in report["command"]
    # Nobody can run the method again from the folder alone.
    one = audit_releases([folder], against=trips, shadows=2).releases[0]
    assert (one.membership, one.minimality.tried) == (None, 0)
    with pytest.raises(ParameterError, match="--l-places"):
        verify_folder(folder, against=trips)
    # As many places, all of them where nobody goes.
    elsewhere = pa.table({"tile": [listed["tile"][-1].as_py()] * len(listed)})
    findings = verify_folder(folder, against=trips, l_places=elsewhere)
    assert any("in fewer than 3" in finding for finding in findings)
    fewer = verify_folder(folder, against=trips, l_places=listed.slice(1))
    assert "report.json: does not say that locations are the listed places that were given" in fewer
    report["parameters"]["l_places"]["places"] += 1
    (folder / "report.json").write_text(json.dumps(report), "utf-8")
    rehash(folder)
    assert verify_folder(folder, against=trips, l_places=listed)


def test_what_cannot_be_counted_by_places_is_refused(tmp_path, capsys):
    trips, listed = drawn(2)
    flows = read(trips)
    with pytest.raises(ParameterError, match="is not given"):
        anonymize(flows, "twincut", 5, "trips", l_places=listed)
    for method in ("mondrian", "glove", "curvecut"):
        with pytest.raises(ParameterError, match="not for boxes"):
            anonymize(flows, method, 5, "trips", l=3, l_places=listed)
    strict = pa.table({"tile": [TILES[0]], "k": [9]})
    with pytest.raises(ParameterError, match="stricter"):
        anonymize(flows, "twincut", 5, "trips", l=3, l_places=listed, stricter=strict)
    with pytest.raises(ParameterError, match="l_places"):
        anonymize_slices(read_slices(trips.append_column("s", pa.array(["x"] * len(trips))), by="s"), l_places=listed)
    import pyarrow.csv as pa_csv

    pa_csv.write_csv(trips, tmp_path / "trips.csv")
    pa_csv.write_csv(listed, tmp_path / "places.csv")
    common = [str(tmp_path / "trips.csv"), "--l-places", str(tmp_path / "places.csv")]
    asked = ["--k", "5", "--l", "3", "--max-suppressed", "0.5", "--protect", "trips"]
    main(["anonymize", *common, *asked, "--out", str(tmp_path / "out")])
    main(["verify", str(tmp_path / "out"), "--against", *common])
    assert "holds" in capsys.readouterr().out.lower()
