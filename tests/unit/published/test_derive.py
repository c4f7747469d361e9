"""Derived releases: sums of published cells, a full folder, verified against their source without
raw trips."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import h3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import flowveil
from flowveil.apps.cli import main
from flowveil.core.errors import OutputError, ParameterError
from flowveil.published.derive import Derivation, derive_published
from flowveil.release.statement import Published, Statement
from flowveil.zoning.public_map import H3Map
from reference.derive import grouped
from samples.hourly import hourly_trips
from samples.segmented import survey

K = {"k": 5, "protect": "trips"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of every kind that can be derived from, made once."""
    place = tmp_path_factory.mktemp("sources")
    trips = hourly_trips()
    where = {"resolution": 8, "person": "who", "weight": "w"}
    flows = flowveil.read_trips(trips, **where)
    for method in ("twincut", "paircut", "layercut"):
        flowveil.anonymize(flows, method=method, **K).write(place / method, title="T")
    table = survey()
    by_sex = flowveil.read_slices(table, by=["sex"], resolution=8, person="person_id")
    flowveil.anonymize_slices(by_sex, common_zones=True, **K).write(place / "common")
    flowveil.anonymize_slices(by_sex, **K).write(place / "own")
    both = flowveil.read_slices(
        table, by=["sex"], time="t", every="1h", resolution=6, person="person_id"
    )
    flowveil.anonymize_slices(both, common_zones=True, **K).write(place / "hours")
    week = flowveil.read_slices(
        trips, time="start", every="weekday-hour", resolution=6, person="who"
    )
    flowveil.anonymize_slices(week, common_zones=True, **K).write(place / "week")
    folded = flowveil.read_slices(
        trips, time="start", every="hour", resolution=7, person="who"
    ).folded()
    flowveil.anonymize(folded, **K).write(place / "folded")
    flowveil.anonymize(flows, method="mondrian", **K).write(place / "boxed")
    return place


def rows_of(table):
    return table.to_pylist()


def cells(folder):
    return pq.read_table(folder / "flows.parquet")


@pytest.mark.parametrize("method", ["twincut", "paircut", "layercut"])
@pytest.mark.parametrize("level", [3, 6, 7])
def test_coarser_zones_are_the_sums_over_ancestors(folders, method, level):
    derived = flowveil.derive(folders / method, level=level)
    assert rows_of(derived.flows) == grouped(rows_of(cells(folders / method)), level)
    assert "layer" not in derived.flows.column_names
    assert derived.report["kind"] == "plain"
    shares = json.loads((folders / method / "report.json").read_text(encoding="utf-8"))[
        "statement"
    ]["shares"]
    assert derived.report["statement"]["shares"] == shares
    # What is stated of nested zones is true of their tiles.
    disjoint = True
    for end in ("origin", "destination"):
        listed = [row["h3_cells"] for row in rows_of(derived.zones) if row["role"] in (end, "both")]
        tiles = [tile for own in listed for cell in own for tile in h3.cell_to_children(cell, 8)]
        disjoint &= len(set(tiles)) == len(tiles)
    assert derived.report["statement"]["homogeneous"] == disjoint


def test_deriving_twice_is_deriving_once(folders, tmp_path):
    flowveil.derive(folders / "layercut", tmp_path / "fine", level=7)
    twice = flowveil.derive(tmp_path / "fine", level=5)
    assert twice.flows.equals(flowveil.derive(folders / "layercut", level=5).flows)


def test_a_derived_folder_is_complete_and_verifies_against_its_source(folders, tmp_path):
    source, out = folders / "layercut", tmp_path / "out"
    flowveil.derive(
        source, out, level=6, drop="weight", formats="csv,omx,gpkg,geojson", title="New"
    )
    assert flowveil.verify_derived(out, source).findings == ()
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["statement"]["about"] == {"title": "New"}
    assert report["published"]["sentences"][0].startswith("Derived:")
    assert report["published"]["command"].startswith(
        "flowveil derive SOURCE --level 6 --drop weight --out DIR"
    )
    with pytest.raises(ParameterError, match="--from"):
        flowveil.verify_release(out, against=hourly_trips())
    with pytest.raises(ParameterError, match="analyze its source"):
        flowveil.analyze(out, against=hourly_trips())
    with pytest.raises(ParameterError, match="no derived release"):
        flowveil.verify_derived(source, out)
    with pytest.raises(OutputError, match="is the source"):
        flowveil.derive(source, source, level=6)


def signed(folder):
    """Make the manifest agree with the files again, as a forger would."""
    import hashlib

    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for name in manifest["sha256"]:
        manifest["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    text = json.dumps(manifest, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    (folder / "manifest.json").write_text(text, encoding="utf-8")


def test_a_changed_cell_or_another_source_is_found(folders, tmp_path):
    source, out = folders / "twincut", tmp_path / "out"
    flowveil.derive(source, out, level=7)
    table = cells(out)
    more = pa.array([table["trips"][0].as_py() + 1, *table["trips"].to_pylist()[1:]])
    pq.write_table(
        table.set_column(2, "trips", more), out / "flows.parquet", compression="zstd", version="2.6"
    )
    assert not flowveil.verify_derived(out, source).holds
    signed(out)
    assert "flows.parquet" in flowveil.verify_derived(out, source).findings[0]
    assert "derived_from" in flowveil.verify_derived(out, folders / "layercut").findings[0]
    shutil.copytree(source, tmp_path / "changed")
    (tmp_path / "changed" / "flows.parquet").write_bytes((out / "flows.parquet").read_bytes())
    with pytest.raises(ParameterError, match="not as it was published"):
        flowveil.derive(tmp_path / "changed", level=7)


def test_slices_are_added_up(folders):
    source = cells(folders / "common")
    derived = flowveil.derive(folders / "common", sum="sex")
    assert rows_of(derived.flows) == grouped(rows_of(source), 8)
    assert (derived.report["kind"], derived.report["statement"]["slice_columns"]) == ("plain", [])
    assert "slices" not in derived.report["parameters"]
    picked = flowveil.derive(folders / "common", pick={"sex": "F"})
    assert set(picked.flows["sex"].to_pylist()) == {"F"}
    assert picked.report["statement"]["shares"] is None


def test_sums_need_common_zones(folders):
    with pytest.raises(ParameterError, match=r"different zones.*--level") as refused:
        flowveil.derive(folders / "own", sum="sex")
    level = int(str(refused.value).split("--level ")[1].split()[0])
    derived = flowveil.derive(folders / "own", sum="sex", level=level)
    assert derived.report["statement"]["homogeneous"]
    assert pc.sum(derived.flows["trips"]) == pc.sum(cells(folders / "own")["trips"])


def test_units_of_time_are_added_up(folders, tmp_path):
    source = cells(folders / "hours")
    days = flowveil.derive(folders / "hours", tmp_path / "days", sum="hour")
    assert {len(text) for text in days.flows["time"].to_pylist()} == {10}
    assert days.report["parameters"]["slices"]["every"] == "day"
    months = flowveil.derive(tmp_path / "days", sum=["day", "sex"])
    assert set(months.flows["time"].to_pylist()) == {"2024-03"}
    whole = flowveil.derive(folders / "hours", sum=["time", "sex"])
    assert whole.report["statement"]["timezone"] is None
    for table in (days, months, whole):
        assert pc.sum(table.flows["trips"]) == pc.sum(source["trips"])
    assert flowveil.verify_derived(tmp_path / "days", folders / "hours").findings == ()
    hours = flowveil.derive(folders / "week", sum="weekday")
    assert hours.report["parameters"]["slices"]["every"] == "hour"
    assert all(len(text) == 5 and text.endswith(":00") for text in hours.flows["time"].to_pylist())
    weekdays = flowveil.derive(folders / "week", sum="hour")
    assert set(weekdays.flows["time"].to_pylist()) <= {
        "1 Mon",
        "2 Tue",
        "3 Wed",
        "4 Thu",
        "5 Fri",
        "6 Sat",
        "7 Sun",
    }
    assert weekdays.report["parameters"]["slices"]["every"] == "weekday"


def test_folded_times_stay_with_coarser_zones_and_can_be_added_up(folders):
    source = rows_of(cells(folders / "folded"))
    coarser = flowveil.derive(folders / "folded", level=5)
    assert rows_of(coarser.flows) == grouped(source, 5, keep=("time_from", "time_to"))
    assert coarser.report["kind"] == "folded"
    timeless = flowveil.derive(folders / "folded", sum="time", level=5)
    assert rows_of(timeless.flows) == grouped(source, 5)
    assert timeless.report["kind"] == "plain"


def test_an_area_keeps_zones_that_lie_in_it_as_a_whole(folders, tmp_path):
    source = folders / "twincut"
    area = h3.latlng_to_cell(48.85, 2.35, 5)
    inside = flowveil.derive(source, tmp_path / "out", within=area)
    expected = [
        row
        for row in rows_of(cells(source))
        if all(
            h3.get_resolution(code) >= 5 and h3.cell_to_parent(code, 5) == area
            for code in (row[f"{end}_zone"].partition(".")[0] for end in ("origin", "destination"))
        )
    ]
    assert rows_of(inside.flows) == expected != []
    assert inside.report["statement"]["shares"] is None
    assert flowveil.verify_derived(tmp_path / "out", source, within=area).findings == ()
    with pytest.raises(ParameterError, match="--within"):
        flowveil.verify_derived(tmp_path / "out", source)
    # A box that cuts every zone has none inside; one around all of them has all.
    with pytest.raises(ParameterError, match="Nothing is left"):
        flowveil.derive(source, within="2.35,48.85,2.3501,48.8501")
    assert flowveil.derive(source, within="-20,30,30,70").flows.equals(cells(source))


def test_coarser_zones_keep_closeness_and_a_part_of_the_area_does_not(tmp_path):
    flows = flowveil.read_trips(hourly_trips(), resolution=8, person="who")
    flowveil.anonymize(flows, method="twincut", t=0.9, **K).write(tmp_path / "source")
    stated = [
        flowveil.derive(tmp_path / "source", **how).report["parameters"].get("t")
        for how in ({"level": 6}, {"within": h3.latlng_to_cell(48.85, 2.35, 5)})
    ]
    assert stated == [0.9, None]


def test_zones_of_another_release(folders, tmp_path):
    flowveil.derive(folders / "twincut", tmp_path / "coarse", level=6)
    derived = flowveil.derive(folders / "twincut", tmp_path / "same", zones_of=tmp_path / "coarse")
    assert derived.flows.equals(cells(tmp_path / "coarse"))
    found = flowveil.verify_derived(
        tmp_path / "same", folders / "twincut", zones_of=tmp_path / "coarse"
    )
    assert found.findings == ()
    with pytest.raises(ParameterError, match="overlap"):
        flowveil.derive(folders / "twincut", zones_of=folders / "paircut")


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("boxed", {"level": 5}, "boxes"),
        ("twincut", {"level": 100}, "0 to 8, the levels of this release; found 100"),
        ("twincut", {"sum": "sex"}, "has no slices"),
        ("common", {"sum": "sax"}, "Did you mean 'sex'"),
        ("common", {"pick": {"sex": "Q"}}, "no slice with sex = 'Q'"),
        ("common", {"pick": ["sex"]}, "COLUMN=VALUE"),
        ("twincut", {"drop": "trips"}, "--drop can leave out: weight"),
        ("twincut", {"level": 5, "zones_of": "x"}, "neither"),
    ],
)
def test_what_cannot_be_derived_is_refused(folders, name, how, message):
    with pytest.raises(ParameterError, match=message):
        flowveil.derive(folders / name, **how)


def test_a_release_on_a_map_needs_the_map(tmp_path):
    zones = pa.table({"zone": ["a1", "a2", "b1", "b2"], "district": ["A", "A", "B", "B"]})
    pq.write_table(zones, tmp_path / "map.parquet")
    rng = np.random.default_rng(1)
    ends = {
        f"{end}_tile": rng.choice(["a1", "a2", "b1", "b2"], 400)
        for end in ("origin", "destination")
    }
    columns = {
        "origin_tile": "origin_tile",
        "destination_tile": "destination_tile",
        "no_person": True,
    }
    area = flowveil.read_zones(tmp_path / "map.parquet", levels=["district", "zone"])
    flows = flowveil.read_trips(pa.table(ends), zones=area, **columns)
    flowveil.anonymize(flows, method="twincut", hierarchy="h3", **K).write(tmp_path / "source")
    with pytest.raises(ParameterError, match="--zones"):
        flowveil.derive(tmp_path / "source", level=0)
    derived = flowveil.derive(tmp_path / "source", tmp_path / "out", level=0, zones=area)
    assert set(derived.flows["origin_zone"].to_pylist()) == {"A", "B"}
    assert pc.sum(derived.flows["trips"]) == pc.sum(cells(tmp_path / "source")["trips"])
    assert flowveil.verify_derived(tmp_path / "out", tmp_path / "source", zones=area).findings == ()


def test_noise_of_sums_is_bounded_not_understated(tmp_path):
    region = h3.cell_to_parent(h3.latlng_to_cell(48.85, 2.35, 6), 6)
    flows = flowveil.read_trips(hourly_trips(), resolution=8, person="who")
    flowveil.anonymize(flows, method="laplace", epsilon=1, bound=5, level=7, region=region).write(
        tmp_path / "noisy"
    )
    before = json.loads((tmp_path / "noisy" / "report.json").read_text(encoding="utf-8"))
    derived = flowveil.derive(tmp_path / "noisy", level=6)
    assert derived.report["kind"] == "noisy"
    assert derived.report["guarantee"]["epsilon"] == before["guarantee"]["epsilon"]
    summed = len(cells(tmp_path / "noisy"))
    assert len(derived.flows) == 1
    assert derived.report["guarantee"]["deviation"] == pytest.approx(
        before["guarantee"]["deviation"] * summed**0.5
    )
    assert any(
        "at most" in line
        for line in derived.report["published"]["sentences"]
        if line.startswith("Noisy")
    )


def test_a_release_in_memory_derives_what_its_folder_does(tmp_path):
    trips = hourly_trips()
    release = flowveil.anonymize(
        flowveil.read_trips(trips, resolution=8, person="who", weight="w"), **K
    )
    derived = release.derive(level=6)
    derived.write(tmp_path / "out")
    release.write(tmp_path / "source")
    assert flowveil.verify_derived(tmp_path / "out", tmp_path / "source").findings == ()
    assert flowveil.read_release(tmp_path / "source").derive(level=6).flows.equals(derived.flows)


def published(columns, **stated):
    """Public inputs of one cell, as a later version may write them."""
    cells = {
        "origin_zone": ["85283473fffffff"],
        "destination_zone": ["85283473fffffff"],
        "trips": [10],
        **columns,
    }
    statement = Statement("m", {"resolution": 5}, {"k": 5, "protect": ["trips"], "trips": 5})
    return Published(pa.table(cells), replace(statement, **stated), H3Map(5))


def test_means_are_not_added_up():
    means = published({"mean_minutes": [12.5], "weight": [3.0]})
    for drop in ((), ("mean_minutes",)):
        dropped = derive_published(means, Derivation(level=4, drop=drop), manifest_sha256="0" * 64)
        assert dropped.cells.column_names == ["origin_zone", "destination_zone", "trips", "weight"]
        assert dropped.statement.parameters["derive"]["drop"] == ["mean_minutes"]
    kept = derive_published(means, Derivation(drop=("weight",)), manifest_sha256="0" * 64)
    assert kept.cells.column_names == ["origin_zone", "destination_zone", "trips", "mean_minutes"]


def test_a_claim_about_listed_places_is_not_repeated_for_coarser_zones():
    stricter = {"k": 20, "l": None, "places": 3}
    source = published({}, parameters={"resolution": 5, "stricter": stricter, "dominance": 0.5})
    coarser = derive_published(
        source, Derivation(level=4), manifest_sha256="0" * 64
    ).statement.parameters
    assert "stricter" not in coarser
    assert coarser["dominance"] == 0.5


def test_the_command_line_derives_and_verifies(folders, tmp_path, capsys):
    out = str(tmp_path / "out")
    main(
        [
            "derive",
            str(folders / "common"),
            "--pick",
            "sex=F",
            "--pick",
            "sex=M",
            "--sum",
            "sex",
            "--out",
            out,
        ]
    )
    assert "Derived:" in capsys.readouterr().out
    main(["verify", out, "--from", str(folders / "common")])
    assert "holds" in capsys.readouterr().out
    for words, code, message in (
        (["verify", out, "--from", str(folders / "own")], 3, "derived_from"),
        (["verify", out, "--against", "trips.csv"], 2, "--from"),
        (["verify", out], 2, "--against INPUT, or --from SOURCE"),
        (["derive", str(folders / "own"), "--sum", "sex", "--out", out], 2, "different zones"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == code
        assert message in capsys.readouterr().err
