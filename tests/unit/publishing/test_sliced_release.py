"""Slices: published in one folder, verified one by one, never next to their total."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowveil.analysis.pages.before_after import largest_profiles, profile_chart
from flowveil.apps.cli import main
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows
from flowveil.publishing.anonymization import anonymize, anonymize_slices
from flowveil.reading.engines import read_slices
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
    return anonymize_slices(by_sex, "twincut", k=5)


@pytest.fixture(scope="module")
def common(by_sex):
    """Over common zones."""
    return anonymize_slices(by_sex, k=5, common_zones=True, max_suppressed=0.3)


def test_one_folder_holds_all_slices(by_sex, family, tmp_path: Path):
    folder = family.write(tmp_path / "release", formats="csv")
    table = pq.read_table(folder / "flows.parquet")
    assert table.column_names == ["origin_zone", "destination_zone", "trips", "weight", "sex"]
    assert min(table["trips"].to_pylist()) >= 5
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert [s["slice"] for s in report["published"]["slices"]] == [{"sex": "F"}, {"sex": "M"}]
    # One set of shares, of all slices together: none of a single slice, and not how many are
    # missing.
    assert report["statement"]["shares"]["suppressed"] >= 1 - family_share(by_sex, family)
    assert not any("suppressed" in name for s in report["published"]["slices"] for name in s)
    assert findings_of(folder, by_sex) == []
    everything = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"SECRET" not in everything


def family_share(flows: Flows, family) -> float:
    return sum(r.cells.trips.sum() for r in family.releases) / sum(
        part.trips.sum() for part in flows.slices
    )


def test_the_mean_weight_is_a_rule_and_not_a_number(by_sex):
    report = anonymize_slices(
        by_sex, "suppression", k=5, protect=["people", "population"], max_suppressed=0.9
    ).summary()
    assert report["guarantee"]["population"] is None


def test_a_slice_of_few_people_is_not_published_even_with_many_trips(by_sex):
    rare = by_sex.slices[by_sex.slice_keys.index(("X",))]
    assert rare.trips.sum() >= 3
    family = anonymize_slices(by_sex, k=3, method="suppression")
    assert ("X",) not in family.keys
    assert len(family) == len(by_sex.slices) - 1


@pytest.mark.parametrize(
    "words",
    [
        ["--by", "sex", "--total"],
        ["--by", "sex", "--set", "slices.total=true"],
        ["--time", "t", "--every", "1h", "--every", "day"],
        ["--time", "t", "--every", "1h", "--set", "slices.also_every=day"],
    ],
    ids=" ".join,
)
def test_a_total_next_to_slices_is_refused_and_the_hint_works(
    words, trips, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    pq.write_table(trips, "trips.parquet")
    asked = ["anonymize", "trips.parquet", "--k", "5", "--resolution", "6", "--out", "RELEASE"]
    with pytest.raises(SystemExit) as ended:
        main([*asked, *words])
    assert ended.value.code == 2
    hint = capsys.readouterr().err
    assert "reveal counts below the guarantee by subtraction" in hint
    assert not Path("RELEASE").exists()
    column = "time" if "--time" in words else "sex"
    main([*asked, *words[: 4 if column == "time" else 2], "--common-zones"])
    command = hint.split("`")[1].replace("COLUMN", column)
    main(command.split()[1:])
    total = pq.read_table("TOTAL/flows.parquet")["trips"].to_pylist()
    assert sum(total) == sum(pq.read_table("RELEASE/flows.parquet")["trips"].to_pylist())
    assert min(total) >= 5


def test_python_refuses_a_total(by_sex):
    with pytest.raises(ParameterError, match=r"no option 'total'.*flowveil derive"):
        anonymize_slices(by_sex, k=5, total=True)


@pytest.mark.parametrize("said", [False, True])
def test_a_folder_with_a_total_next_to_its_slices_does_not_hold(by_sex, common, said, tmp_path):
    """Written by hand here: version 0.3 made such folders, and the cells are those of the trips."""
    folder = common.write(tmp_path / "release")
    assert findings_of(folder, by_sex) == []
    rows = pq.read_table(folder / "flows.parquet").to_pylist()
    total: dict[tuple[str, str], dict] = {}
    for row in rows:
        sums = total.setdefault((row["origin_zone"], row["destination_zone"]), {**row, "sex": None})
        if sums["trips"] != row["trips"] or row["sex"] != "F":
            sums |= {name: sums[name] + row[name] for name in ("trips", "weight")}
    edit_table(folder, "flows.parquet", lambda rows: [*total.values(), *rows])
    if said:
        edit_report(folder, lambda report: report["parameters"]["slices"].update(total=True))
    (found,) = recount_flows(folder, by_sex).findings
    assert "may not be published next to slices" in found
    assert "holds a total, or a longer step, next to its slices" in findings_of(folder, by_sex)[0]
    for command in (["audit", str(folder)], ["derive", str(folder), "--sum", "sex", "--out", "x"]):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 2


def test_locations_hold_in_every_slice(by_sex, tmp_path: Path):
    family = anonymize_slices(by_sex, k=3, l=2, common_zones=True, max_suppressed=0.5)
    assert all(min(map(min, release.cells.n_tiles())) >= 2 for release in family.releases)
    assert findings_of(family.write(tmp_path / "common"), by_sex) == []


def test_one_function_serves_flows_with_and_without_slices(by_sex):
    release = anonymize(by_sex, k=5, separate=True)
    assert [key for key, _ in release] == [key for key, _ in anonymize_slices(by_sex, k=5)]
    assert anonymize(by_sex, k=5).kind == "folded"
    assert release["F"].flows == release["F",].flows
    with pytest.raises(ParameterError, match="There is no release for that slice"):
        release["A"]
    for argument in ({"dominance": 0.5}, {"t": 0.5}):
        with pytest.raises(ParameterError, match="cannot be combined with slices"):
            anonymize(by_sex, k=5, separate=True, **argument)
    with pytest.raises(ParameterError, match="cannot be combined with a single matrix"):
        anonymize(by_sex.whole, k=5, common_zones=True)


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
    main(["anonymize", *common, "--common-zones", "--max-suppressed", "0.3"])
    main(["verify", str(out), "--against", str(path)])
    assert "SECRET" not in capsys.readouterr().out


@pytest.mark.slow
def test_processes_change_nothing(by_sex, monkeypatch):
    monkeypatch.setattr("flowveil.publishing.slice_plans.SECONDS_ALONE", 0.0)
    one, two = (
        anonymize_slices(by_sex, k=5, hierarchy="h3", workers=workers) for workers in (1, 2)
    )
    assert one.keys == two.keys
    for a, b in zip(one.releases, two.releases, strict=True):
        assert np.array_equal(a.cells.trips, b.cells.trips)
        # Trees do not come back from the processes: all slices share the ones that were refined
        # here.
        assert b.plan.origin_zones.hierarchy is two.releases[0].input.origins
