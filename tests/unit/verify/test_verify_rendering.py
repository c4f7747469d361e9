"""Lies in what people read, in shapes and in measures, with every hash made right again: each is found."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import h3
import pyarrow.parquet as pq
import pytest
import shapely

from conftest import trip_table
from flowveil import anonymize, read_trips
from flowveil.anonymization import anonymize_slices
from flowveil.cli import main
from flowveil.engines import read_slices
from flowveil.published.exports import FORMATS
from flowveil.published.html import render
from flowveil.published.report import REASONS, json_text, words
from flowveil.verify.structure import _FETCHED, NOT_READ, _keeps_to_itself
from samples.drafts import unchecked
from samples.releases import city_flows, edit_report, edit_table, read_json, rehash, release_of, write_json
from samples.remembered import desk, known, verify_release
from samples.segmented import survey

TEXTS = ["csv", "geojson", "flowmap", "kepler"]
SERVER = "https://tiles.example/{z}/{x}/{y}.png"


def made(kind: str):
    """A release and the flows it is of."""
    if kind == "sliced":
        family = anonymize_slices(read_slices(survey(), by="sex", resolution=7, weight="weight"), k=5)
        return family, family.input
    if kind == "noisy":
        region = h3.latlng_to_cell(48.85, 2.35, 5)
        flows = read_trips(trip_table(300), resolution=9, weight="weight")
        return anonymize(flows, "laplace", epsilon=1.0, bound=5, region=region, level=6), flows
    if kind == "plain":
        # Enough zones of several tiles that the error is told.
        flows = city_flows(rows=4000, around=5)
        return release_of(flows, protect=["trips", "people"], budget="volume"), flows
    flows = city_flows()
    return anonymize(flows, {"boxed": "mondrian", "overlapping": "glove"}[kind], k=5), flows


KINDS = ["plain", "sliced", "noisy", "boxed", "overlapping"]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Of each kind: its name, its folder, the flows it is of and the release."""

    @cache
    def of(kind: str):
        release, flows = made(kind)
        formats = "csv" if kind == "sliced" else TEXTS
        # Verified by `test_a_folder_made_again_holds`.
        with unchecked():
            folder = release.write(tmp_path_factory.mktemp("good") / "release", formats=formats, basemap=SERVER)
        return kind, folder, flows, release

    return of


@pytest.fixture(scope="module", params=KINDS)
def good(request, made_once):
    return made_once(request.param)


def only(*kinds: str):
    """For what is checked in the same way in other kinds of releases."""
    return pytest.mark.parametrize("good", kinds, indirect=True)


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    with desk(tmp_path_factory.mktemp("desk") / "release") as copied:
        yield copied


@pytest.fixture
def folder(good, copied):
    return copied(good[1])


@pytest.fixture
def kind(good) -> str:
    return good[0]


@pytest.fixture
def findings(good, folder):
    """What verify finds after a change."""
    return lambda **how: verify_release(folder, good[2], **how)


def edit_text(folder, name, old, new) -> None:
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    rehash(folder)


def make_again(folder) -> None:
    """Page, texts, exports and hashes of a changed report or table, as an attacker who has the program makes them."""
    report = read_json(folder / "report.json")
    formats = [f for f in FORMATS.values() if (folder / f.files[0]).is_file()]
    report |= words(report, [f.name for f in formats])
    write_json(folder / "report.json", report)
    flows, zones = pq.read_table(folder / "flows.parquet"), pq.read_table(folder / "zones.parquet")
    (folder / "report.html").write_text(render(report, flows, zones), encoding="utf-8")
    for wanted in formats:
        wanted.write(folder, flows, zones, report["about"])
    manifest = read_json(folder / "manifest.json")
    write_json(folder / "manifest.json", {**manifest, "statement": report["statement"]})
    rehash(folder)


def test_a_folder_made_again_holds(folder, findings):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    make_again(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert findings(strict=True) == []


# ---- what people read -------------------------------------------------------------------------------------------


@only("plain", "noisy")
def test_a_number_more_in_the_page(folder, findings):
    edit_text(folder, "report.html", "<h2", "<p>3 trips went home.</p><h2")
    assert findings() == ["report.html: is not the page that report.json and the tables come to"]


@only("plain", "sliced", "noisy")
def test_lies_in_the_words_of_the_report(folder, findings):
    lies = {"statement": ["Protected: everybody."], "command": "flowveil --all", "cross_check": []}
    report = read_json(folder / "report.json")
    told = {name: lie for name, lie in lies.items() if name in report}
    write_json(folder / "report.json", {**report, **told})
    write_json(folder / "manifest.json", {**read_json(folder / "manifest.json"), "statement": told["statement"]})
    rehash(folder)
    found = findings()
    assert all(f"report.json: its {entry} is not what its other entries come to" in found for entry in told)


@only("plain", "noisy")
def test_another_word_in_the_manifest(folder, findings):
    manifest = read_json(folder / "manifest.json")
    for change in ({"version": "0"}, {"format": "release"}):
        write_json(folder / "manifest.json", {**manifest, **change})
        assert findings() == ["manifest.json: its version or format is not that of report.json"]


@only("plain")
def test_a_report_written_otherwise(folder, findings):
    (folder / "report.json").write_text(json.dumps(read_json(folder / "report.json")), encoding="utf-8")
    rehash(folder)
    assert findings() == ["report.json: its text is not written as a release writes it"]


@only("plain", "noisy")
def test_a_note_that_no_method_makes(folder, findings):
    edit_report(folder, lambda r: r.update(notes={"steps": "three trips from 8a1fb46622dffff"}))
    make_again(folder)
    assert any("report.schema.json" in line for line in findings())


@only("plain", "sliced")
def test_a_reason_that_is_none(folder, findings):
    def change(report):
        withheld = report["withheld"] or {"measures": {"trips": []}}
        report["withheld"] = {**withheld, "reason": "one cell has 3 trips"}

    edit_report(folder, change)
    make_again(folder)
    assert "report.json: a reason for withholding is not one that a release can have" in findings()


@only("plain")
def test_a_reason_for_withholding_nothing(folder, findings):
    withheld = {"measures": {"trips": [], "weight": []}, "reason": REASONS[0]}
    edit_report(folder, lambda r: r.update(withheld=withheld))
    make_again(folder)
    assert any("where nothing is withheld" in line for line in findings())


# ---- text exports -----------------------------------------------------------------------------------------------


MORE = {
    "zones.geojson": ('"features"', '"raw": 3, "features"'),
    "flows.geojson": ('"type": "Feature",', '"type": "Feature", "id": 3,'),
    "kepler.json": ('{"datasets":[', '{"datasets":[{"version":"v1","data":{"id":"raw","allData":[],"fields":[]}},'),
    "zones.csv": ("POLYGON", "POLYGON "),
}


@only("plain", "overlapping")
def test_more_in_exports(folder, findings):
    changes = {name: change for name, change in MORE.items() if (folder / name).is_file()}
    places = folder / "flowmap_locations.csv"
    if places.is_file():
        # Another name for a place.
        first = places.read_text(encoding="utf-8").splitlines()[1].split(",")
        changes[places.name] = (",".join(first[:2]), f"{first[0]},home of Anna")
    for name, (old, new) in changes.items():
        edit_text(folder, name, old, new)
    assert sorted(findings()) == sorted(f"{name}: is not what the tables come to" for name in changes)


# ---- shapes -----------------------------------------------------------------------------------------------------


@only("plain", "noisy", "boxed")
def test_a_zone_elsewhere(folder, findings):
    def move(rows):
        rows[0]["lat"] += 1e-4
        rows[0]["area_km2"] += 1e-4
        # A corner more on an edge: the same area, but not the outline.
        ring = shapely.get_coordinates(shapely.from_wkb(rows[0]["geometry"])).tolist()
        middle = [(a + b) / 2 for a, b in zip(ring[0], ring[1], strict=True)]
        rows[0]["geometry"] = shapely.to_wkb(shapely.Polygon([ring[0], middle, *ring[1:]]), byte_order=1)
        return rows

    edit_table(folder, "zones.parquet", move)
    make_again(folder)
    found = findings()
    for what in ("centre", "area", "outline"):
        assert any(f"another {what} than their code means" in line for line in found)


# ---- measures ---------------------------------------------------------------------------------------------------

MEASURES = {
    "c_dm",
    "c_avg",
    "cells_under_k_population",
    "mean_generalization_error",
    "reconstruction_loss",
    "distribution_distance",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "floor_generalization_error",
    "floor_ratio",
}


def told(measures) -> list[tuple[str, str]]:
    return [(name, basis) for basis in measures for name in sorted(MEASURES) if measures[basis].get(name) is not None]


def test_measures_that_are_not_so(folder, findings, kind):
    report = read_json(folder / "report.json")
    blocks = [report["measures"], *(part["measures"] for part in report.get("slices", ())[:1])]
    # In a family, both of one slice and of all together.
    changed = [(i, *which) for i, measures in enumerate(blocks) for which in told(measures)]
    missing = MEASURES - {name for i, name, _ in changed if i == len(blocks) - 1}
    # Of the slices, one is not published: what is counted against the mean weight of all trips is withheld.
    few_zones = {"mean_generalization_error", "floor_generalization_error", "floor_ratio"}
    assert missing == {"noisy": MEASURES, "sliced": {"cells_under_k_population", *few_zones}}.get(kind, set())
    for i, name, basis in changed:
        # Where boxes share flows, distances are bounded only.
        factor = 100 if kind == "overlapping" and name.startswith("generalization") else 1.2
        was = blocks[i][basis][name]
        blocks[i][basis][name] = type(was)(float(f"{(was + 1) * factor:.2g}"))
    write_json(folder / "report.json", report)
    make_again(folder)
    expected = sorted(f"report.json: {name} by {basis} contradicts the recount" for _, name, basis in changed)
    assert sorted(line for line in findings() if "contradicts" in line) == expected


def test_measures_withheld_for_no_reason(folder, findings, kind):
    report = read_json(folder / "report.json")
    blocks = [report["measures"], *(part["measures"] for part in report.get("slices", ())[:1])]
    # Where boxes share flows, nobody can count the cells that are suppressed, so their volume may be withheld.
    names = {"generalization_distance_m"} if kind == "overlapping" else MEASURES
    changed = [(i, *which) for i, m in enumerate(blocks) for which in told(m) if which[0] in names]
    for i, name, basis in changed:
        blocks[i][basis][name] = None
    write_json(folder / "report.json", report)
    make_again(folder)
    missing = sorted(line for line in findings() if "without a reason" in line)
    assert missing == sorted(f"report.json: {n} by {b} is withheld without a reason" for _, n, b in changed)


@only("plain")
def test_more_digits_than_may_be_told(good, folder, findings):
    exact = good[3].metrics()["trips"]["generalization_distance_m"]
    assert read_json(folder / "report.json")["measures"]["trips"]["generalization_distance_m"] is not None
    edit_report(folder, lambda r: r["measures"]["trips"].update(generalization_distance_m=exact))
    make_again(folder)
    assert findings() == ["report.json: generalization_distance_m by trips contradicts the recount"]


@only("sliced")
def test_lies_about_slices_as_a_whole(folder, findings):
    edit_report(folder, lambda r: r.update(unpublished_slices=0, differencing={**r["differencing"], "comparisons": 1}))
    make_again(folder)
    assert len([line for line in findings() if "contradicts the recount" in line]) == 2


# ---- another version --------------------------------------------------------------------------------------------


def test_another_version_is_recounted_and_its_rendering_is_not(tmp_path, trips_csv, capsys):
    out = tmp_path / "out"
    with unchecked():
        main(["anonymize", str(trips_csv), "--k", "5", "--resolution", "7", "--out", str(out), "--quiet"])
    edit_report(out, lambda r: r.update(version="99.0", statement=["Protected: as we say now."]))
    manifest = read_json(out / "manifest.json")
    (out / "manifest.json").write_text(
        json_text({**manifest, "version": "99.0", "statement": ["Protected: as we say now."]}), encoding="utf-8"
    )
    with desk(out), known(out):
        capsys.readouterr()
        main(["verify", str(out), "--against", str(trips_csv)])
        said = capsys.readouterr()
        assert "rendering not compared: made by flowveil 99.0" in said.err
        # What holds is said in the words of whoever counted it.
        assert "at least 5 people" in said.out
        assert "as we say now" not in said.out
        main(["verify", str(out), "--against", str(trips_csv), "--quiet"])
        assert "rendering not compared: made by flowveil 99.0" in capsys.readouterr().err
        main(["verify", str(out), "--against", str(trips_csv), "--json"])
        assert json.loads(capsys.readouterr().out)["holds"] is None
        with pytest.raises(SystemExit) as left:
            main(["verify", str(out), "--against", str(trips_csv), "--strict"])
        assert left.value.code == 3
        assert "rendering not compared: made by flowveil 99.0" in capsys.readouterr().err
        edit_report(out, lambda r: r["measures"]["trips"].update(c_dm=1.0))
        with pytest.raises(SystemExit) as left:
            main(["verify", str(out), "--against", str(trips_csv)])
        assert left.value.code == 3


def test_names_of_columns_give_the_terminal_no_orders(tmp_path, capsys):
    table = trip_table(300)
    named = [f"{name}\x07" if name == "start_lat" else name for name in table.column_names]
    trips, out = tmp_path / "trips.parquet", tmp_path / "out"
    pq.write_table(table.rename_columns(named), trips)
    ends = ["--origin", "start_lat\x07,start_lon", "--destination", "end_lat,end_lon"]
    with unchecked():
        main(["anonymize", str(trips), *ends, "--k", "5", "--resolution", "7", "--out", str(out), "--quiet"])
    capsys.readouterr()
    main(["verify", str(out), "--against", str(trips)])
    said = capsys.readouterr().out
    assert "origin from 'start_lat" in said
    assert "\x07" not in said


OTHERWISE = {
    "report.html": ("</body>", '<script src="https://example.org/x.js"></script></body>'),
    "zones.geojson": ('"features"', '"raw": 3, "features"'),
    "flows.geojson": ('"coordinates":[[2', '"coordinates":[[3'),
    "kepler.json": MORE["kepler.json"],
    "flowmap_locations.csv": (",48.", ",47."),
    "zones.csv": ("POLYGON ((2", "POLYGON ((3"),
}
#: One at a time: data sets that are none of a release end the check of the file.
INSIDE_KEPLER = [
    ('"properties":{}', '"properties":{"raw":3}'),
    ('"coordinates":[[[2', '"coordinates":[[[3'),
    ('"label":"flows"', '"label":"raw"'),
    ('"analyzerType":""', '"analyzerType":"three trips"'),
    ('"color":[31', '"color":[31337'),
]


def _of_another_version(folder) -> None:
    edit_report(folder, lambda r: r.update(version="99.0"))
    write_json(folder / "manifest.json", {**read_json(folder / "manifest.json"), "version": "99.0"})


@only("plain", "sliced", "noisy")
def test_the_form_of_what_another_version_rendered(folder, findings):
    _of_another_version(folder)
    assert findings() == []
    changes = {name: change for name, change in OTHERWISE.items() if (folder / name).is_file()}
    for name, (old, new) in changes.items():
        edit_text(folder, name, old, new)
    assert sorted(finding.partition(":")[0] for finding in findings()) == sorted(changes)


@pytest.mark.parametrize("good", ["plain"], indirect=True)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Content-Security-Policy", "Content-Policy"),
        ("default-src 'none'", "default-src *"),
        ("script-src 'unsafe-inline'", "script-src https://example.org"),
        ("img-src https://tiles.example", "img-src https://tiles.example https://example.org"),
        ("base-uri 'none'", "base-uri 'none'; connect-src https://example.org"),
        ("<head>", "<head><script>3</script>"),
        ("</body>", '<meta http-equiv="refresh" content="0; url=//example.org"></body>'),
    ],
)
def test_a_page_of_another_version_that_may_fetch(folder, findings, old, new):
    _of_another_version(folder)
    edit_text(folder, "report.html", old, new)
    assert findings() == ["report.html: fetches something from elsewhere, or may"]


def test_a_page_made_to_be_looked_at_for_ever():
    """Each of many beginnings of a tag is looked at once; with looking ahead to the end this would take hours."""
    assert _FETCHED.search("<img " * 300_000) is None
    assert not _keeps_to_itself("<!doctype html><html><head>" + "<meta " * 300_000, None)


@pytest.mark.parametrize("good", ["plain"], indirect=True)
@pytest.mark.parametrize(("old", "new"), INSIDE_KEPLER)
def test_more_inside_kepler_of_another_version(folder, findings, old, new):
    _of_another_version(folder)
    edit_text(folder, "kepler.json", old, new)
    assert [finding.partition(":")[0] for finding in findings()] == ["kepler.json"]


@pytest.mark.parametrize("good", ["plain"], indirect=True)
def test_who_is_hidden_is_counted_whatever_the_version(folder, findings):
    _of_another_version(folder)
    edit_report(folder, lambda r: r["cross_check"][0].update(k=1000))
    assert findings() == ["report.json: its cross_check is not what its other entries come to"]


@pytest.mark.parametrize("good", ["plain"], indirect=True)
def test_what_is_not_read_of_another_version_is_said_and_documented(folder, findings):
    _of_another_version(folder)
    unread = []
    assert findings(unread=unread) == []
    assert unread == [f"{name}: not read: {what}" for name, what in NOT_READ.items()]
    # With --strict each is a finding.
    assert findings(strict=True)[:-1] == unread
    page = Path(__file__).parents[3] / "docs" / "threat-model.md"
    lines = [line.removeprefix("- ") for line in page.read_text(encoding="utf-8").splitlines()]
    assert [line for line in lines if line.partition("`: ")[0].strip("`") in NOT_READ] == [
        f"`{name}`: {what}" for name, what in NOT_READ.items()
    ]


@pytest.mark.parametrize("good", ["sliced"], indirect=True)
def test_differences_that_there_cannot_be(folder, findings):
    edit_report(folder, lambda r: r["differencing"].update(differences=31337))
    make_again(folder)
    line = "report.json: its numbers of differences between matrices are none that these matrices can have"
    assert findings() == [line]


def _one_more(listed):
    listed.append("n_cells")


CONCERNED = "report.json: the measures listed as withheld are not those that its reasons concern"


@pytest.mark.parametrize(
    ("good", "change", "said"),
    [
        ("sliced", _one_more, CONCERNED),
        ("noisy", _one_more, CONCERNED),
        ("noisy", list.pop, CONCERNED),
        # What is not listed is missing for no reason, which ends the recount of slices.
        ("sliced", list.pop, "mean_generalization_error by trips is withheld without a reason"),
        ("sliced", lambda listed: listed.append(listed[0]), "'slices/0/withheld' is not what report.schema.json asks"),
        ("noisy", lambda listed: listed.append(listed[0]), "'withheld/measures/trips' is not what report.schema.json"),
    ],
    indirect=["good"],
)
def test_withheld_is_what_the_reasons_concern(folder, findings, kind, change, said):
    report = read_json(folder / "report.json")
    part = report if kind == "noisy" else report["slices"][0]
    change(part["withheld"]["measures"]["trips"])
    write_json(folder / "report.json", report)
    make_again(folder)
    found = findings()
    assert any(said in line for line in found), found


@pytest.mark.parametrize("good", ["sliced"], indirect=True)
def test_what_is_withheld_is_listed(folder, findings):
    """Values are missing by right, but the report does not say so."""

    def list_the_share_alone(report):
        for part in (report, *report["slices"]):
            measures = (part["withheld"] or {"measures": {}})["measures"]
            measures.update({basis: [n for n in names if n == "suppressed_share"] for basis, names in measures.items()})

    edit_report(folder, list_the_share_alone)
    make_again(folder)
    found = [line for line in findings() if "withheld without a reason" in line]
    assert any("suppressed_share" not in line for line in found)
    edit_report(folder, lambda r: [part.update(withheld=None) for part in (r, *r["slices"])])
    make_again(folder)
    found = [line for line in findings() if "withheld without a reason" in line]
    assert any("suppressed_share" in line for line in found)
