"""Frozen maps: what is kept of a release, on maps of one's own, and what verify finds where it was
not kept."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest

from flowveil import InfeasibleError, ParameterError, anonymize, freeze, read_trips
from flowveil.release.zone_map import FrozenMap
from flowveil.zoning.files import read_zones
from samples.drafts import unchecked
from samples.releases import rehash
from samples.verified import findings_of

TILES = [f"{a}{b}" for a in "NS" for b in "123"]
MAP = pa.table({"tile": TILES, "parent": [t[0] for t in TILES]})


def flows_on(places, trips):
    table = pa.table({"o": [o for o, _ in trips], "d": [d for _, d in trips]})
    return read_trips(
        table, zones=read_zones(places, root="all"), origin_tile="o", destination_tile="d"
    )


def draft(release, place):
    """A release that is not recounted before it is there.

    The tests do that, or need only its zones.
    """
    with unchecked():
        return release.write(place)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    trips = [("N1", "N2")] * 6 + [("N2", "N2")] * 2 + [("N3", "N2")] * 2
    return draft(
        anonymize(flows_on(MAP, trips), "odkanon", k=5), tmp_path_factory.mktemp("made") / "earlier"
    )


def test_a_file_and_the_folder_freeze_the_same_and_hold_no_counts(earlier, tmp_path):
    frozen = freeze(earlier, out=tmp_path / "map.parquet")
    assert FrozenMap.read(tmp_path / "map.parquet").sha256 == frozen.sha256
    assert frozen.table.column_names == ["zone", "role", "level", "tiles"]
    assert frozen.about["map_sha256"] is not None


def test_tiles_never_seen_before_fall_into_the_earlier_zones_or_fill_the_rest(earlier, tmp_path):
    later = flows_on(MAP, [("N1", "N2")] * 5 + [("S1", "N2")] * 3 + [("S3", "N2")] * 2)
    release = anonymize(later, zones_of=earlier, k=5)
    assert [row["origin_zone"] for row in release.flows.to_pylist()] == ["N", "S"]
    draft(release, tmp_path / "new")
    assert findings_of(tmp_path / "new", later, zones_of=earlier) == []


def test_another_map_a_method_and_too_much_suppression_are_refused(earlier):
    moved = MAP.set_column(1, "parent", pa.array(["N", "N", "S", "S", "S", "S"]))
    trips = [("N1", "N2")] * 6
    with pytest.raises(ParameterError, match="differs from that of the earlier release"):
        anonymize(flows_on(moved, trips), zones_of=earlier, k=5)
    with pytest.raises(ParameterError, match="cannot be combined"):
        anonymize(flows_on(MAP, trips), "twincut", zones_of=earlier, k=5)
    with pytest.raises(InfeasibleError, match="would be suppressed"):
        anonymize(flows_on(MAP, trips + [("S1", "S2")] * 4), zones_of=earlier, k=5)


def test_verify_finds_zones_that_are_not_the_earlier_ones(earlier, tmp_path):
    later = flows_on(MAP, [("N1", "N2")] * 8 + [("S1", "N2")] * 5)
    other = draft(anonymize(later, "suppression", k=5), tmp_path / "own")
    assert any("does not say" in f for f in findings_of(other, later, zones_of=earlier))
    draft(anonymize(later, zones_of=earlier, k=5), tmp_path / "kept")
    assert any(
        "another zone map" in f for f in findings_of(tmp_path / "kept", later, zones_of=other)
    )
    unread: list[str] = []
    assert findings_of(tmp_path / "kept", later, notes=unread) == []
    assert "--zones-of" in unread[0]


def test_zones_that_neither_are_earlier_ones_nor_fill_gaps_are_found(
    earlier, tmp_path, monkeypatch
):
    later = flows_on(MAP, [("N1", "N2")] * 8 + [("S1", "N2")] * 5)
    frozen = freeze(earlier)
    # A planner that ignores the map: whole tiles, said to be the zones of the earlier release.
    monkeypatch.setattr("flowveil.methods.zones_of._Covering.cut", lambda self: self.tree.leaf_node)
    release = anonymize(later, zones_of=frozen, k=5)
    with pytest.raises(
        Exception, match="2 origin zones are not on the given zone map, nor fill its gaps"
    ):
        release.write(tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_boxes_and_noise_cannot_be_kept(tmp_path, earlier):
    shutil.copytree(earlier, tmp_path / "boxed")
    report = json.loads((earlier / "report.json").read_text(encoding="utf-8"))
    boxes = {"disjoint": True, "finer_than_tiles": False, "grid_lat": 0.01, "grid_lon": 0.01}
    (tmp_path / "boxed" / "report.json").write_text(
        json.dumps({**report, "statement": {**report["statement"], "boxes": boxes}}),
        encoding="utf-8",
    )
    with pytest.raises(ParameterError, match="not as it was published"):
        freeze(tmp_path / "boxed")
    rehash(tmp_path / "boxed")
    with pytest.raises(ParameterError, match="boxes cannot be kept"):
        freeze(tmp_path / "boxed")
    with pytest.raises(ParameterError, match="neither the folder of a release nor a frozen map"):
        freeze(earlier / "report.json")
