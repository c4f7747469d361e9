"""Families: published in one folder, verified slice by slice, refused where subtraction reveals a cell."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil.analysis.pages.before_after import largest_profiles, profile_chart
from flowveil.anonymization import anonymize, anonymize_slices
from flowveil.cli import main
from flowveil.engines import read_slices
from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy
from flowveil.slices import Every, SlicedFlows
from flowveil.verify.from_flows import recount_flows
from samples.drafts import unchecked
from samples.releases import edit_report, edit_table
from samples.segmented import survey
from samples.verified import findings_of


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """What is written is verified by the tests themselves."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def trips() -> pa.Table:
    return survey()


@pytest.fixture(scope="module")
def by_sex(trips):
    return read_slices(trips, by="sex", resolution=7, weight="weight")


@pytest.fixture(scope="module")
def family(by_sex):
    return anonymize_slices(by_sex, k=5)


@pytest.fixture(scope="module")
def accepted(by_sex):
    """With its total; the subtraction reveals cells, and that is accepted."""
    return anonymize_slices(by_sex, k=5, method="atg-dual", total=True, accept_differencing=True)


@pytest.fixture(scope="module")
def common(by_sex):
    """With its total, over common zones."""
    return anonymize_slices(by_sex, k=5, total=True, common_zones=True, max_suppressed=0.3)


def test_one_folder_holds_all_slices(by_sex, family, tmp_path: Path):
    folder = family.write(tmp_path / "release", formats="csv")
    table = pq.read_table(folder / "flows.parquet")
    assert table.column_names == ["origin_zone", "destination_zone", "trips", "weight", "sex"]
    assert min(table["trips"].to_pylist()) >= 5
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert [s["slice"] for s in report["published"]["slices"]] == [{"sex": "F"}, {"sex": "M"}]
    # One set of shares, of all slices together: none of a single slice, and not how many are missing.
    assert report["statement"]["shares"]["suppressed"] >= 1 - family_share(by_sex, family)
    assert not any("suppressed" in name for s in report["published"]["slices"] for name in s)
    assert findings_of(folder, by_sex) == []
    everything = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"SECRET" not in everything


def family_share(flows: SlicedFlows, family) -> float:
    return sum(r.cells.trips.sum() for r in family.releases) / sum(part.trips.sum() for part in flows.slices)


def test_the_mean_weight_is_a_rule_and_not_a_number(by_sex):
    report = anonymize_slices(
        by_sex, "suppression", k=5, protect=["people", "population"], max_suppressed=0.9
    ).summary()
    assert report["guarantee"]["population"] is None


def test_a_slice_of_few_people_is_not_published_even_with_many_trips(by_sex):
    rare = by_sex.slices[by_sex.keys.index(("X",))]
    assert rare.trips.sum() >= 3
    family = anonymize_slices(by_sex, k=3, method="suppression")
    assert ("X",) not in family.keys
    assert len(family) == len(by_sex) - 1


def test_a_total_next_to_its_slices_is_refused_where_subtraction_reveals_a_cell(by_sex, accepted):
    with pytest.raises(InfeasibleError, match="--common-zones") as caught:
        anonymize_slices(by_sex, k=5, method="atg-dual", total=True)
    assert "differences" in str(caught.value)
    assert accepted.differencing.short > 0


def test_an_accepted_family_says_so_and_subtraction_is_recounted_from_the_files(
    by_sex, accepted, trips, tmp_path: Path, capsys
):
    folder = accepted.write(tmp_path / "release")
    said = json.loads((folder / "manifest.json").read_text("utf-8"))["statement"]
    assert any(line.startswith("Not protected: subtraction") for line in said)
    pq.write_table(trips, tmp_path / "trips.parquet")
    main(["verify", str(folder), "--against", str(tmp_path / "trips.parquet")])
    assert "But: Not protected: subtraction" in capsys.readouterr().out
    unsaid(folder)
    assert any("subtract" in line or "differ" in line for line in recount_flows(folder, by_sex).findings)


def unsaid(folder: Path) -> None:
    """The same release, which does not say that differences are accepted."""
    edit_report(folder, lambda report: report["statement"].update(differencing_accepted=False))


def test_common_zones_publish_a_total_that_tells_nothing(by_sex, common, tmp_path: Path):
    assert common.differencing.short == 0
    folder = common.write(tmp_path / "release")
    assert findings_of(folder, by_sex) == []


def test_a_day_next_to_its_hours(trips, tmp_path: Path):
    hours = read_slices(trips, time="t", every="1h", resolution=6)
    family = anonymize_slices(hours, k=5, also_every=["day"], total=True, common_zones=True, max_suppressed=0.3)
    assert {len(key[0] or "") for key in family.keys} <= {0, 10, 16}
    folder = family.write(tmp_path / "release")
    assert findings_of(folder, hours) == []
    with pytest.raises(ParameterError, match="whole steps"):
        anonymize_slices(hours, k=5, also_every=["weekday"])


def one_place(**trips: int) -> SlicedFlows:
    """Slices of one pair of tiles, by hour."""
    tree = Hierarchy(parent=np.array([-1], np.int32), code=np.array(["here"]))
    only = np.zeros(1, dtype=np.int64)
    return SlicedFlows(
        columns=("time",),
        keys=tuple((f"2024-03-0{name[1]}T0{name[3]}:00",) for name in trips),
        slices=tuple(
            Flows.from_pairs(only, only, np.array([n]), origins=tree, destinations=tree) for n in trips.values()
        ),
        every=Every.parse("1h"),
    )


def test_days_and_totals_over_common_zones_are_sums_of_published_hours(tmp_path: Path):
    # True values would reveal it: Monday (12) minus its published hour (10) is 2, and omitting Monday reveals that too.
    week = one_place(d4h8=10, d4h9=2, d5h8=9, d5h9=9)
    family = anonymize_slices(week, k=10, total=True, also_every=["day"], common_zones=True)
    assert set(family.keys) == {(None,), ("2024-03-04",), ("2024-03-04T08:00",)}
    assert [release.cells.trips.tolist() for release in family.releases] == [[10], [10], [10]]
    folder = family.write(tmp_path / "release")
    assert findings_of(folder, week) == []
    edit_table(
        folder, "flows.parquet", lambda rows: [{**r, "trips": 12 if r["time"] is None else r["trips"]} for r in rows]
    )
    assert recount_flows(folder, week).findings


def test_a_total_of_short_slices_needs_a_confirmation(tmp_path: Path):
    """18 trips in two hours that are both missing, so below 10: each has 9."""
    few = one_place(d4h8=9, d4h9=9)
    with pytest.raises(InfeasibleError, match="something is suppressed"):
        anonymize_slices(few, k=10, total=True)
    family = anonymize_slices(few, k=10, total=True, accept_differencing=True)
    assert family.keys == ((None,),)
    assert findings_of(family.write(tmp_path / "release"), few) == []
    with pytest.raises(InfeasibleError):
        anonymize_slices(few, k=10, total=True, common_zones=True)


def segments(**cells: dict[tuple[str, str], int]) -> SlicedFlows:
    """Slices by sex over a tree of two areas with two tiles each; a weight of 2 for each trip, 7 in cells of three."""
    parents = [-1, 0, 0, 1, 1, 2, 2]
    tree, _ = Hierarchy.from_parents(parents, np.array(["R", "A", "B", "a1", "a2", "b1", "b2"]))
    number = {str(code): i for i, code in enumerate(tree.code[tree.leaf_node])}
    slices = []
    for own in cells.values():
        trips = np.array(list(own.values()))
        slices.append(
            Flows.from_pairs(
                np.array([number[o] for o, _ in own]),
                np.array([number[d] for _, d in own]),
                trips,
                origins=tree,
                destinations=tree,
                weight=trips * np.where(trips == 3, 7.0, 2.0),
            )
        )
    return SlicedFlows(columns=("sex",), keys=tuple((name,) for name in cells), slices=tuple(slices))


def test_slices_minus_a_total_do_not_give_what_the_total_suppresses():
    # Both slices publish a1 and a2 as one zone, 12 + 10; the total publishes a1 alone, 14: the rest, 8, was suppressed.
    flows = segments(
        F={("a1", "b1"): 6, ("a2", "b1"): 6, ("b1", "b1"): 88}, M={("a1", "b1"): 8, ("a2", "b1"): 2, ("b1", "b1"): 89}
    )
    with pytest.raises(InfeasibleError, match="--common-zones"):
        anonymize_slices(flows, k=10, total=True)
    family = anonymize_slices(flows, k=10, total=True, common_zones=True)
    total, parts = family[(None,)], [family[("F",)], family[("M",)]]
    assert total.cells.trips.sum() == sum(part.cells.trips.sum() for part in parts)


def test_the_place_of_an_unpublished_slice_is_not_told_by_a_total():
    own = {("a1", "b1"): 20, ("a2", "b2"): 20, ("b1", "a1"): 20}
    family = anonymize_slices(
        segments(F=own, M=own, X={("a2", "b2"): 1}), k=10, total=True, common_zones=True, max_suppressed=0.0
    )
    assert ("X",) not in family.keys
    total, parts = family[(None,)].cells, [family[(name,)].cells for name in ("F", "M")]
    assert total.trips.tolist() == (parts[0].trips + parts[1].trips).tolist()


def test_locations_hold_in_every_slice_and_in_differences(by_sex, tmp_path: Path):
    family = anonymize_slices(by_sex, k=3, l=2, total=True, common_zones=True, max_suppressed=0.5)
    assert all(min(map(min, release.cells.n_tiles())) >= 2 for release in family.releases)
    assert findings_of(family.write(tmp_path / "common"), by_sex) == []

    # The total is safe and so is the first hour; the remainder are ten trips between two single tiles.
    tree, _ = Hierarchy.from_parents([-1, 0, 0], np.array(["R", "a", "b"]))
    hours = [Flows.from_pairs([0, 1], [0, 1], [5, 5], origins=tree, destinations=tree)]
    hours.append(Flows.from_pairs([0], [0], [10], origins=tree, destinations=tree))
    keys = (("2024-03-01T01:00",), ("2024-03-01T02:00",))
    flows = SlicedFlows(columns=("time",), keys=keys, slices=tuple(hours), every=Every.parse("1h"))
    asked = {"method": "oigh", "k": 5, "max_suppressed": 0.0, "total": True, "accept_differencing": True}
    assert anonymize_slices(flows, **asked).differencing.short == 0
    family = anonymize_slices(flows, l=2, **asked)
    assert family.keys == ((None,), keys[0])
    assert family.differencing.short == 1
    folder = family.write(tmp_path / "release")
    assert findings_of(folder, flows) == []
    unsaid(folder)
    assert recount_flows(folder, flows).findings


def test_flows_and_slices_are_not_mixed_up(by_sex):
    with pytest.raises(ParameterError, match="read_slices"):
        anonymize_slices(by_sex.whole)
    with pytest.raises(ParameterError, match="anonymize_slices"):
        anonymize(by_sex)


def test_boxes_are_no_slices(by_sex):
    with pytest.raises(ParameterError, match="boxes"):
        anonymize_slices(by_sex, k=5, method="mondrian")


@pytest.mark.parametrize(
    "change",
    [
        lambda row: {**row, "trips": row["trips"] + 1},
        lambda row: {**row, "sex": {"F": "M", "M": "F"}[row["sex"]]},
        lambda row: {**row, "sex": {"F": "F", "M": "X"}[row["sex"]]},
    ],
    ids=["counts", "slices", "an unpublished slice"],
)
def test_a_changed_slice_is_found(by_sex, family, change, tmp_path: Path):
    folder = family.write(tmp_path / "release")
    edit_table(folder, "flows.parquet", lambda rows: [change(row) for row in rows])
    assert recount_flows(folder, by_sex).findings
    assert findings_of(folder, by_sex)


def test_profiles_show_before_and_after(trips):
    hours = read_slices(trips, time="t", every="1h", resolution=7)
    family = anonymize_slices(hours, k=2, allow_small_k=True, protect="trips", method="suppression")
    profiles = largest_profiles(family, n=10**6)
    assert sum(profile.before.sum() for profile in profiles) == len(trips)
    published = sum(int(r.cells.trips.sum()) for r in family.releases)
    assert sum(profile.after.sum() for profile in profiles) == pytest.approx(published)
    assert "Not for publication" in profile_chart(profiles)


def test_slices_on_the_command_line(trips, tmp_path: Path, capsys):
    path, out = tmp_path / "trips.parquet", tmp_path / "release"
    pq.write_table(trips, path)
    common = [str(path), "--by", "sex", "--k", "5", "--resolution", "7", "--out", str(out)]
    main(["anonymize", *common, "--total", "--common-zones", "--max-suppressed", "0.3"])
    main(["verify", str(out), "--against", str(path)])
    with pytest.raises(SystemExit) as ended:
        main(["anonymize", *common, "--total", "--method", "atg-dual"])
    assert ended.value.code == 3
    assert "SECRET" not in capsys.readouterr().out


@pytest.mark.slow
def test_processes_change_nothing(by_sex, monkeypatch):
    monkeypatch.setattr("flowveil.slice_plans.SECONDS_ALONE", 0.0)
    one, two = (anonymize_slices(by_sex, k=5, hierarchy="h3", workers=workers) for workers in (1, 2))
    assert one.keys == two.keys
    for a, b in zip(one.releases, two.releases, strict=True):
        assert np.array_equal(a.cells.trips, b.cells.trips)
        # Trees do not come back from the processes: all slices share the ones that were refined here.
        assert b.plan.origin_zones.hierarchy is two.releases[0].input.origins
