"""The papers' experiments: their set-ups and table numbers, exact measures for the data holder, and
many matrices."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import flowveil
from conftest import trip_table
from flowveil.analysis.paper_results import PublishedResults, impossible, published_results
from flowveil.analysis.papers import PRESETS, authors_measures
from flowveil.analysis.study import describe_data
from flowveil.analysis.study_tables import study_sheets
from flowveil.analysis.tables import HEADS
from flowveil.apps.cli import main
from flowveil.core.errors import OutputError, ParameterError
from flowveil.reading.sources.synthetic import synthetic_survey
from flowveil.system.output import RELEASE_FORMAT
from flowveil.tabular.compare import CompareGrid
from reference import tabular_survey
from samples import stage
from samples.processes import in_this_process
from samples.stage import city_trips

#: What the readers of the survey say.
READ = {"resolution": 6, "weight": "weight"}
CLI = ("--resolution", "5", "--weight", "weight", "--set", "resources.workers=1", "--k", "5")


@pytest.fixture(scope="module", autouse=True)
def _one_process():
    with in_this_process():
        yield


@pytest.fixture(scope="module")
def survey() -> pa.Table:
    return synthetic_survey(people=40)


@pytest.fixture(scope="module")
def trips(survey, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("survey") / "trips.parquet"
    pq.write_table(survey, path)
    return path


def _studied(*arguments: object) -> None:
    main(["study", *map(str, arguments)])


def _labels(folder: Path) -> list[str]:
    return re.findall(r"\*\*Table (.*?)\.\*\*", (folder / "tables.md").read_text("utf-8"))


PAGES = Path(__file__).parents[3] / "docs"
_COMMAND = re.compile(r"`(flowveil [^`]*)`|^(flowveil .*)$", re.MULTILINE)


def _commands(page: str) -> list[str]:
    """Every complete command that a page prints, in a block or in a line."""
    text = (PAGES / page).read_text("utf-8").replace("\\\n", " ")
    printed = [line or block for line, block in _COMMAND.findall(text)]
    return [command for command in printed if " --" in command and "RELEASE" not in command]


@pytest.fixture(scope="module")
def made_data(tmp_path_factory) -> Path:
    """The files that the pages name, with made records."""
    folder = tmp_path_factory.mktemp("pages")
    city = city_trips().drop_columns(["home_iris", "work_iris"])
    pq.write_table(city, folder / "trips.parquet")
    pq.write_table(city.select(city.column_names[:4]), folder / "turin.parquet")
    lines = [
        f'"{i}","A","","","{20000000 + i % 9}","{1372636858 + 60 * i}","A","False",'
        f'"[[{-8.61 - (i % 7) / 200:.6f},41.14],[{-8.60 + (i % 5) / 200:.6f},41.16]]"'
        for i in range(300)
    ]
    head = (
        '"TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE",'
        '"MISSING_DATA","POLYLINE"'
    )
    (folder / "train.csv").write_text("\n".join([head, *lines]), "utf-8")
    pa.csv.write_csv(tabular_survey.survey().slice(0, 400), folder / "survey.csv")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", ["papers.md", "study.md", "tabular/compare.md", "wishes.md"])
def test_every_printed_command_runs_as_it_is_printed(page, made_data, monkeypatch, tmp_path):
    """On made data in one folder; commands that follow each other find each other's output."""
    folder = tmp_path / "here"
    shutil.copytree(made_data, folder)
    monkeypatch.chdir(folder)
    # So few trips have no hour of 5,000, and two syntheses are enough to run.
    few = replace(PRESETS["matet-2023"], fewest_trips=1)
    monkeypatch.setitem(PRESETS, "matet-2023", few)
    monkeypatch.setattr(
        CompareGrid, "__post_init__", lambda grid: object.__setattr__(grid, "repeats", 2)
    )
    commands = _commands(page)
    (folder / "stage").mkdir()
    stage.build(folder / "stage")
    for name in ("patients.csv", "bins.json"):
        shutil.copy(folder / "stage" / name, folder / name)
    pq.write_table(pq.read_table("trips.parquet"), "survey.parquet")
    assert (
        len(commands)
        >= {"papers.md": 12, "study.md": 3, "tabular/compare.md": 1, "wishes.md": 13}[page]
    )
    for command in dict.fromkeys(commands):
        assert main_code(shlex.split(command)[1:]) == 0, command


def main_code(words: list[str]) -> int:
    """The exit code of a command."""
    try:
        main(words)
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def test_options_that_the_pages_name_in_text_exist(capsys):
    """In sentences: `study --k-population`, `compare --within`, `tabular compare --noise`."""
    for command, options in (
        (["study"], ["--k-population", "--within", "--published", "--reading", "--sample"]),
        (["compare"], ["--k-population", "--within"]),
        (["tabular", "compare"], ["--noise", "--delta"]),
    ):
        everything = "--help" if command[0] == "tabular" else "--help-all"
        assert main_code([*command, everything]) == 0
        text = capsys.readouterr().out
        assert [name for name in options if name not in text] == [], command


# ---- internal ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def internal(survey, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("internal") / "study"
    settings = {"methods": ["odkanon", "oigh"], "protections": ["trips"], "k": 5}
    flowveil.run_study(survey, out, by="sex", **settings, **READ)
    return out


def test_internal_measures_are_exact_and_all_segments_are_there(survey, internal):
    rows = pq.read_table(internal / "results.parquet").to_pylist()
    assert {row["segment"] for row in rows} == {None, *pc.unique(survey["sex"]).to_pylist()}
    flows = flowveil.read_slices(survey, by="sex", **READ).whole
    release = flowveil.anonymize(flows, "odkanon", k=5, protect="trips")
    (found,) = (
        r for r in rows if (r["segment"], r["method"], r["basis"]) == (None, "odkanon", "trips")
    )
    for name, value in release.metrics()["trips"].items():
        assert found[name] == value


def test_everything_internal_is_marked(internal):
    mark = "not for publication"
    for name in ("tables.md", "tables.tex"):
        text = (internal / name).read_text("utf-8").lower()
        tables = text.count("**table") or text.count(r"\begin{table}")
        assert text.count(mark) == tables + 1 > 1
    page = (internal / "study.html").read_text("utf-8")
    assert 'class="internal"' in page
    assert page.lower().count(mark) > page.count("<h3")
    for rows in (csv.DictReader((internal / "results.csv").open(encoding="utf-8")),):
        assert {row["use"] for row in rows} == {mark}
    assert {row["use"] for row in pq.read_table(internal / "results.parquet").to_pylist()} == {mark}


def test_exact_measures_lie_in_no_release(survey, tmp_path):
    flows = flowveil.read_slices(survey, by="sex", **READ)
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "manifest.json").write_text(
        json.dumps({"format": RELEASE_FORMAT}), "utf-8"
    )
    settings = {"methods": ["oigh"], "protections": ["trips"], "k": 5}
    with pytest.raises(OutputError, match="inside a release"):
        flowveil.run_study(flows, tmp_path / "release" / "study", **settings)
    compared = flowveil.compare(flows.whole, methods="odkanon", k=5, protect="trips")
    with pytest.raises(OutputError, match="inside a release"):
        compared.write(tmp_path / "release" / "comparison")
    for text in (
        compared.write(tmp_path / "c") / name for name in ("comparison.md", "comparison.html")
    ):
        assert "exact" in text.read_text("utf-8")


# ---- the set-up ----------------------------------------------------------------------------------


def test_each_method_has_its_own_limit_and_options(survey, tmp_path):
    found = flowveil.run_study(
        survey,
        tmp_path / "study",
        methods=["odkanon", "oigh", "atg-soft"],
        k=5,
        limits={"oigh": 0.0},
        options={"odkanon": {"budget": "volume"}, "atg-soft": {"v_target": 100.0}},
        **READ,
    )
    rows = {(row["method"], row["protect"]): row for row in found.rows if row["basis"] == "trips"}
    flows = flowveil.read_trips(survey, **READ)
    own = flowveil.anonymize(flows, "odkanon", k=5, protect="trips", budget="volume").metrics()[
        "trips"
    ]
    assert rows["odkanon", "trips"]["mean_generalization_error"] == own["mean_generalization_error"]
    assert (
        rows["oigh", "trips"]["suppressed_share"]
        == 0
        < rows["odkanon", "trips"]["suppressed_share"]
    )
    # A target is in trips, like k: for the population both are taken times the mean weight.
    assert rows["atg-soft", "trips"]["v_target"] == 100
    mean = float(flows.weight.sum() / flows.trips.sum())
    assert rows["atg-soft", "population"]["v_target"] == pytest.approx(100 * mean)
    # No segments were requested.
    assert {row["by"] for row in found.rows} == {None}
    with pytest.raises(ParameterError, match="option"):
        flowveil.run_study(flows_of(survey), tmp_path / "b", options={"oigh": {"v_target": 1}})
    with pytest.raises(ParameterError, match="trees"):
        flowveil.run_study(flows_of(survey), tmp_path / "b", trees="mine")


def flows_of(survey: pa.Table) -> flowveil.Flows:
    return flowveil.read_slices(survey, by="sex", **READ)


def test_a_segment_over_its_own_trees_equals_a_run_on_its_trips_alone(survey, tmp_path):
    settings = {"methods": ["odkanon"], "protections": ["trips"], "k": 5}
    errors = {}
    for trees in ("own", "common"):
        found = flowveil.run_study(flows_of(survey), tmp_path / trees, trees=trees, **settings)
        (row,) = (r for r in found.rows if r["segment"] == "female" and r["basis"] == "trips")
        errors[trees] = row["mean_generalization_error"]
    alone = flowveil.read_trips(survey.filter(pc.equal(survey["sex"], "female")), **READ)
    expected = flowveil.anonymize(alone, "odkanon", k=5, protect="trips").metrics()["trips"]
    assert errors["own"] == expected["mean_generalization_error"] < errors["common"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "labels"),
    [
        ("odkanon-report", [str(n) for n in range(2, 20)]),
        ("odkanon-thesis", ["5.1", *(f"5.{n}" for n in range(5, 22))]),
        ("odkanon-abstract", ["1", "2"]),
    ],
)
def test_a_preset_numbers_the_tables_as_its_paper_does(preset, labels, trips, tmp_path):
    out = tmp_path / "study"
    fewer = () if preset == "odkanon-abstract" else ("--methods", "odkanon,oigh")
    _studied(trips, "--preset", preset, *fewer, *CLI, "--out", out)
    found = _labels(out)
    assert found[: len(labels)] == labels
    assert all(label.startswith("A") for label in found[len(labels) : -1])
    # The last table shows our results next to the published ones.
    assert found[-1] == "P"
    text = (out / "tables.md").read_text("utf-8")
    if preset != "odkanon-abstract":
        last = text[text.index(f"Table {labels[-1]}.") :]
        assert (
            "segmenting on profession, protecting the population, calculating metrics on the"
            " population" in last
        )
        done = [
            r for r in pq.read_table(out / "results.parquet").to_pylist() if r["status"] == "done"
        ]
        assert {r["suppressed_share"] for r in done if r["method"] == "oigh"} == {0.0}
    else:
        assert (
            "| Protecting | Data | Method | misplaced (%) | OD dimension | G | C_DM | E |" in text
        )


def _table_p(study) -> list[tuple]:
    """The rows of the last table: table, protection, method, data, measure, ours, theirs, ratio,
    reason."""
    (sheet,) = (sheet for sheet in study_sheets(study) if sheet.label == "P")
    return list(sheet.rows)


def test_published_numbers_stand_next_to_ours_with_ratio_and_reason(survey, tmp_path):
    flows = flowveil.read_slices(survey, by=["sex", "profession"], **READ)
    found = flowveil.run_study(
        flows, tmp_path / "s", preset="odkanon-report", methods=["odkanon", "atg-dual"], k=5
    )
    rows = _table_p(found)
    (error,) = (r for r in rows if r[:5] == ("4", "trips", "ODkAnon", "all", "G"))
    (own,) = (
        r
        for r in found.rows
        if (r["by"], r["method"], r["protect"], r["basis"]) == (None, "odkanon", "trips", "trips")
    )
    ours = own["mean_generalization_error"]
    assert error[5:8] == (ours, 601.8, ours / 601.8)
    # Reasons are computed: the trips of both, and the authors' reading of the same cells.
    assert f"other data: {survey.num_rows:,} trips here, 81,291 in the paper" in error[8]
    theirs = own["authors_mean_generalization_error"]
    assert (f"gives {theirs:,.2f} for ours" in error[8]) == (abs(theirs / ours - 1) > 0.01)
    # The papers' ATG-Soft keeps a limit on suppression: it is compared with ATG-Dual. Sexes match,
    # and every row names its protection.
    assert {r[2] for r in rows} == {"-", "ODkAnon", "ATG-Dual (published: ATG-Soft)"}
    assert {r[3] for r in rows if r[0] == "8"} == {"M", "F"}
    assert {(r[0], r[1]) for r in rows if r[0] in "4567"} == {
        ("4", "trips"),
        ("5", "trips"),
        ("6", "the population"),
        ("7", "the population"),
    }
    # The data set, the k that is reached, and more digits from the authors' notebook.
    assert ("2", "-", "-", "all", "trips", survey.num_rows, 81_291) in {r[:7] for r in rows}
    assert {r[4] for r in rows if r[:2] == ("3", "the population")} == {
        "k trips",
        "cells below k trips",
        "k population",
    }
    assert {r[6] for r in rows if r[0] == "notebook"} >= {54_289_709, 601.859, 1.912119}
    # A run that the paper stopped has no ratio.
    (stopped,) = (r for r in rows if r[0] == "6" and r[6] == ">7,200" and r[2].startswith("ATG"))
    assert stopped[7] == "-"
    assert "stopped in the paper" in stopped[8]


def test_no_reason_quotes_a_number_that_is_not_of_this_study_or_of_the_paper(survey, tmp_path):
    """Also nothing of the synthetic survey, whose figures the documentation quotes."""
    found = flowveil.run_study(
        survey, tmp_path / "s", preset="odkanon-thesis", by="none", methods=["odkanon"], k=5, **READ
    )
    known = {survey.num_rows, *found.data.values()}
    known |= {value for row in found.rows for value in row.values() if isinstance(value, float)}
    known |= {entry.value for entry in published_results()} | {26_742, 10}
    known.add(5 * found.data["weight"] / found.data["trips"])
    for row in _table_p(found):
        for text in re.findall(r"[\d,]*\d(?:\.\d+)?(?:e\+?\d+)?", row[8]):
            number = float(text.replace(",", ""))
            assert any(number == pytest.approx(value, rel=6e-3) for value in known), row


def test_impossible_published_numbers_are_named():
    entries = {entry[:5]: entry for entry in published_results()}

    def found(table: str, segment: str, method: str, measure: str) -> str:
        return impossible(entries["odkanon-report", table, segment, method, measure], "trips")

    assert found("12", "[10-20]", "mondrian", "c_dm") == (
        "impossible: with k = 10 and mean class 1.35 k one class alone gives 182"
    )
    assert found("12", "[10-20]", "atg-soft", "c_dm")
    assert not found("12", "[10-20]", "odkanon", "c_dm")
    assert not found("4", "", "mondrian", "c_dm")
    # Without a C_AVG, k alone: a class of 10 gives 100.
    alone = PublishedResults("odkanon-report", "nowhere", "", "mondrian", "c_dm", 13.0)
    assert impossible(alone, "trips").endswith("gives 100")
    civ = entries["matet-2023", "6", "civ", "atg-soft", "reconstruction_loss"]
    assert "at most 2" in impossible(civ, "trips")
    for key in (("4", "", "odkanon"), ("8", "M", "odkanon"), ("16", "Cat. 2", "oigh")):
        for measure in ("c_dm", "c_avg", "mean_generalization_error", "reconstruction_loss"):
            assert not found(*key, measure)


def test_every_published_number_is_of_a_known_paper_and_measure():
    results = published_results()
    assert {entry.preset for entry in results} <= {*PRESETS, "odkanon-notebook"}
    assert {entry.measure for entry in results} <= set(HEADS)
    assert all(entry.value >= 0 or entry.method == "laplace" for entry in results)
    assert len({entry[:5] for entry in results}) == len(results)
    # As many as the papers print: 20 rows of OD dimensions and 160 of segments with a distance.
    distances = [e for e in results if e.measure == "generalization_distance_m" and e.segment]
    assert len(distances) == 8 + 8 + 4 + 4 + 28 + 28 + 14 + 14 + 32 + 32 + 16 + 16
    assert sum(entry.is_bound for entry in results) == 8


def test_a_study_of_matrices_is_compared_with_its_own_row(survey, tmp_path):
    chosen = {"time": "start_time", "every": "hour", "fewest_trips": 60, "sample": 1}
    chosen |= {"preset": "matet-2023", "methods": ["atg-dual", "oigh"], "k": 10}
    rows = {}
    for name in (None, "nyc"):
        found = flowveil.run_study(survey, tmp_path / str(name), published=name, **chosen, **READ)
        rows[name] = _table_p(found)
    assert {row[0] for row in rows[None]} == {"3"}
    assert all("mean over four data sets" in r[8] for r in rows[None] if r[8])
    assert {row[0] for row in rows["nyc"]} == {"2", "5", "6"}
    assert {row[3] for row in rows["nyc"]} == {"nyc"}
    (error,) = (r for r in rows["nyc"] if r[2] == "OIGH" and r[4] == "G")
    assert error[6] == 7.0
    assert "other matrices" in error[8]
    with pytest.raises(ParameterError, match="senegal_crop"):
        flowveil.run_study(survey, tmp_path / "x", published="paris", **chosen, **READ)
    with pytest.raises(ParameterError, match="--time and --every"):
        flowveil.run_study(survey, tmp_path / "x", published="nyc", methods=["oigh"], **READ)


def test_presets_keep_their_limit_and_rows_above_a_limit_are_marked(survey, tmp_path):
    assert all(
        "atg-soft" not in p.methods for p in PRESETS.values() if p.name.startswith("odkanon")
    )
    found = flowveil.run_study(
        survey, tmp_path / "s", methods=["atg-soft"], max_suppressed=0.0, k=5, **READ
    )
    assert max(row["suppressed_share"] for row in found.rows) > 0
    assert "(above the limit of 0)" in (tmp_path / "s" / "tables.md").read_text("utf-8")


def test_a_limit_is_compared_in_the_unit_that_it_is_of(survey, tmp_path):
    """A run that keeps its limit on the population may suppress a larger share of the trips."""
    settings = {"methods": ["atg-dual"], "protections": ["population"], "population_only": True}
    settings["k"] = 5
    found = flowveil.run_study(survey, tmp_path / "s", max_suppressed=0.1, **settings, **READ)
    shares = {row["basis"]: row for row in found.rows}
    assert shares["trips"]["suppressed_share"] > 0.1 >= shares["weight"]["suppressed_share"]
    share = shares["weight"]["suppressed_share"]
    assert shares["trips"]["limited_share"] == pytest.approx(share)
    assert "above the limit" not in (tmp_path / "s" / "tables.md").read_text("utf-8")


def test_fairness_ranks_by_measures_that_can_be_compared(internal):
    text = (internal / "tables.md").read_text("utf-8")
    fairness = text[text.index("Fairness between segments") :]
    measures = {
        line.split("|")[3].strip() for line in fairness.splitlines() if line.startswith("|")
    } - {"", "---"}
    assert measures <= {"Measure", "misplaced (%)", "GDM (m)", "suppressed (%)"}
    assert "GDM (m)" in measures


def test_the_threshold_of_the_population_can_be_given(survey, tmp_path):
    settings = {"methods": ["oigh"], "protections": ["population"], "population_only": True, "k": 5}
    found = flowveil.run_study(survey, tmp_path / "a", k_population=1e6, **settings, **READ)
    assert min(row["k_population"] for row in found.rows) >= 1e6
    with pytest.raises(ParameterError, match="k_population"):
        flowveil.run_study(survey, tmp_path / "b", k_population=0, **settings, **READ)


def test_the_population_alone_is_refused_as_in_anonymize(survey, trips, tmp_path, capsys):
    asked = {"methods": ["oigh"], "k": 5, **READ}
    for call in (
        lambda: flowveil.anonymize(
            flowveil.read_trips(survey, **READ), "oigh", k=5, protect="population"
        ),
        lambda: flowveil.compare(survey, protect=["trips", "population"], **asked),
        lambda: flowveil.run_study(survey, tmp_path / "s", protections=["population"], **asked),
    ):
        with pytest.raises(ParameterError, match="--population-only"):
            call()
    for command in ("compare", "study"):
        with pytest.raises(SystemExit):
            main(
                [
                    command,
                    str(trips),
                    "--protect",
                    "population",
                    *CLI,
                    "--out",
                    str(tmp_path / command),
                ]
            )
        assert "--population-only" in capsys.readouterr().err
        assert not (tmp_path / command).exists()
    # The papers protect the population alone: their presets need no confirmation.
    flowveil.run_study(survey, tmp_path / "preset", preset="odkanon-report", by="none", **asked)


def test_authors_measures_equal_a_slow_count(survey, tmp_path):
    """Trees of the published trips, pairs of tiles as penalty, all trips for the mean weight."""
    within = "841fb47ffffffff"
    settings = {
        "methods": ["odkanon", "atg-dual"],
        "protections": ["trips", "population"],
        "population_only": True,
        "k": 5,
    }
    found = flowveil.run_study(
        survey, tmp_path / "s", reading="authors", within=within, **settings, **READ
    )
    flows = flowveil.read_trips(survey, within=within, **READ)
    everywhere = flowveil.read_trips(survey, **READ)
    assert 0 < flows.trips.sum() < everywhere.trips.sum()
    threshold = 5 * everywhere.weight.sum() / everywhere.trips.sum()
    assert found.settings.k_population == pytest.approx(threshold)
    release = flowveil.anonymize(flows, "odkanon", k=5, protect="trips")
    plan, kept = release.plan, release.cell_of_flow >= 0
    tiles_o = {(z, t) for z, t in zip(plan.origin_zone[kept], flows.origin[kept], strict=True)}
    tiles_d = {
        (z, t) for z, t in zip(plan.destination_zone[kept], flows.destination[kept], strict=True)
    }
    for basis, least in (("trips", 5), ("weight", threshold)):
        (row,) = (
            r
            for r in found.rows
            if (r["method"], r["protect"], r["basis"]) == ("odkanon", "trips", basis)
        )
        squares = numerator = counted = below = 0.0
        volume = release.cells.volume(basis)
        for o, d, v in zip(release.cells.origin, release.cells.destination, volume, strict=True):
            if v < least:
                below += 1
                continue
            tiles = sum(z == o for z, _ in tiles_o) + sum(z == d for z, _ in tiles_d)
            squares, numerator, counted = squares + v * v, numerator + v * tiles, counted + v
        penalty = kept.sum() * (~kept).sum()
        assert row["c_dm"] == pytest.approx(squares + penalty)
        assert row["mean_generalization_error"] == pytest.approx(numerator / counted)
        assert row["c_avg"] == pytest.approx(volume.sum() / len(volume) / least)
        unit = "trips" if basis == "trips" else "population"
        assert row[f"cells_under_k_{unit}"] == below
        own = release.metrics()[basis]["reconstruction_loss"]
        assert row["reconstruction_loss"] <= own
    # Their port of ATG suppresses trips after the cut: its trees have all tiles.
    (row,) = (
        r
        for r in found.rows
        if (r["method"], r["protect"], r["basis"]) == ("atg-dual", "trips", "trips")
    )
    dual = flowveil.anonymize(flows, "atg-dual", k=5, protect="trips")
    cells = dual.cells.trips.astype(float)
    hidden = flows.trips.sum() - cells.sum()
    assert row["c_dm"] == (cells**2).sum() + hidden * cells.sum()
    own = dual.metrics()["trips"]["mean_generalization_error"]
    assert row["mean_generalization_error"] == own
    assert "as the authors' program does" in (tmp_path / "s" / "tables.md").read_text("utf-8")
    with pytest.raises(ParameterError, match="reading"):
        flowveil.run_study(survey, tmp_path / "b", reading="mine", **settings, **READ)


#: The five cells of resolution 6 that the authors' scripts keep.
CENTRAL_PARIS = "861fb4667ffffff,861fb4677ffffff,861fb466fffffff,861fb4647ffffff,861fb475fffffff"


@pytest.mark.slow
def test_the_authors_program_and_the_papers_formulas_on_the_synthetic_survey():
    """What the authors' program prints for the same trips; formulas (1) to (3) on both bases."""
    survey = synthetic_survey()
    flows = flowveil.read_trips(survey, weight="weight", within=CENTRAL_PARIS)
    all_trips = flowveil.read_trips(survey, weight="weight")
    threshold = float(10 * all_trips.weight.sum() / all_trips.trips.sum())
    release = flowveil.anonymize(flows, "odkanon", k=10, protect="trips")
    trips, population = (
        authors_measures(release, basis, threshold) for basis in ("trips", "weight")
    )
    assert trips["c_dm"] == 43_167_805
    assert trips["cells_under_k_trips"] == 0
    assert population["c_dm"] == pytest.approx(1.526e13, rel=1e-4)
    assert population["c_avg"] == pytest.approx(3.928, rel=1e-4)
    assert population["mean_generalization_error"] == pytest.approx(525.73, abs=0.005)
    assert population["cells_under_k_population"] == 102
    ours = release.metrics()["weight"]
    assert ours["c_dm"] == pytest.approx(2.787e14, rel=2e-4)
    assert ours["c_avg"] == pytest.approx(5.96, abs=0.005)
    assert ours["cells_under_k_population"] == 52


def test_named_protections_answer_whether_a_column_holds_persons(survey, tmp_path, capsys):
    """As `anonymize --protect trips` does: a column that looks like persons needs no further
    answer."""
    path = tmp_path / "trips.parquet"
    renamed = ["rider" if name == "person_id" else name for name in survey.column_names]
    pq.write_table(survey.rename_columns(renamed), path)
    asked = (str(path), "--methods", "oigh", "--k", "5", "--resolution", "5")
    with pytest.raises(SystemExit):
        main(["compare", *asked, "--out", str(tmp_path / "a")])
    assert "--person" in capsys.readouterr().err
    main(["compare", *asked, "--protect", "trips", "--out", str(tmp_path / "b")])
    assert (tmp_path / "b" / "comparison.csv").exists()


def test_the_represented_population_is_a_sum_over_persons(survey):
    flows = flowveil.read_slices(survey, by="sex", **READ)
    weight = dict(zip(survey["person_id"].to_pylist(), survey["weight"].to_pylist(), strict=True))
    assert describe_data(flows, 5, ())["population"] == pytest.approx(sum(weight.values()))


def test_reasons_of_failed_runs_are_in_the_results(survey, tmp_path):
    flowveil.run_study(
        survey, tmp_path / "s", methods=["suppression"], max_suppressed=0.0, k=10**6, **READ
    )
    rows = pq.read_table(tmp_path / "s" / "results.parquet").to_pylist()
    assert all(row["status"] != "done" and row["reason"] for row in rows)
    assert "No result: Suppression" in (tmp_path / "s" / "tables.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("preset", "labels"),
    [("odkanon-turin", ["5.1", "5.3"]), ("odkanon-porto", ["5.1", "5.4"])],
)
def test_the_other_cities_of_the_thesis_have_presets(preset, labels, trips, tmp_path):
    out = tmp_path / "study"
    _studied(
        trips,
        "--preset",
        preset,
        "--resolution",
        "5",
        "--set",
        "resources.workers=1",
        "--k",
        "5",
        "--out",
        out,
    )
    assert _labels(out) == [*labels, "A1", "P"]
    text = (out / "tables.md").read_text("utf-8")
    assert "| ATG-Dual (published: ATG-Soft) |" in text[text.index("Table P") :]


def test_participants_are_people(trips, tmp_path):
    out = tmp_path / "study"
    _studied(
        trips, "--methods", "oigh", "--protect", "trips", "--protect", "people", *CLI, "--out", out
    )
    titles = [
        line
        for line in (out / "tables.md").read_text("utf-8").splitlines()
        if line.startswith("**Table")
    ]
    assert any("protecting trips, calculating metrics on trips" in title for title in titles)
    assert all(
        ("participants" in title) == ("protecting the participants" in title) for title in titles
    )
    assert any("participants" in title for title in titles)


# ---- many matrices -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def matrices(survey, tmp_path_factory):
    out = tmp_path_factory.mktemp("matrices") / "study"
    # Without persons the unit of Laplace is a trip, as in the paper.
    path = out.parent / "trips.parquet"
    pq.write_table(survey.drop_columns(["person_id"]), path)
    arguments = (
        "--time",
        "start_time",
        "--every",
        "hour",
        "--resolution",
        "5",
        "--k",
        "5",
        "--set",
        "resources.workers=1",
    )
    chosen = ("--fewest-trips", "60", "--sample", "3")
    _studied(path, "--preset", "matet-2023", *arguments, *chosen, "--out", out)
    return out


def test_the_benchmark_has_the_tables_of_matet_and_publishes_nothing(matrices):
    assert _labels(matrices) == ["2", "3", "5", "6", "A1", "A2", "P"]
    assert {path.name for path in matrices.iterdir()} == {
        "results.csv",
        "results.parquet",
        "runs",
        "study.html",
        "study.json",
        "tables.md",
        "tables.tex",
    }
    text = (matrices / "tables.md").read_text("utf-8")
    assert text.lower().count("not for publication") == len(_labels(matrices)) + 1
    page = (matrices / "study.html").read_text("utf-8")
    assert page.count("Times that of ATG-Dual") == 5
    rows = pq.read_table(matrices / "results.parquet").to_pylist()
    assert len({row["segment"] for row in rows}) == 3
    assert {row["method"] for row in rows} >= {
        "atg-dual",
        "glove",
        "mondrian",
        "laplace",
        "suppression",
    }


def test_means_and_ratios_are_those_of_the_runs(matrices):
    rows = [
        row
        for row in pq.read_table(matrices / "results.parquet").to_pylist()
        if row["basis"] == "trips"
    ]
    loss = {(row["method"], row["segment"]): row["reconstruction_loss"] for row in rows}
    text = (matrices / "tables.md").read_text("utf-8")
    table = text[text.index("**Table 3.**") : text.index("**Table 5.**")]
    (line,) = (line for line in table.splitlines() if "| OIGH |" in line)
    own = [value for (method, _), value in loss.items() if method == "oigh"]
    assert line.split("|")[4].strip() == f"{np.mean(own):.2f}"
    times = [
        value / loss["atg-dual", step] for (method, step), value in loss.items() if method == "oigh"
    ]
    ratios = text[text.index("Reconstruction loss E") :]
    (line,) = [line for line in ratios.splitlines() if "| OIGH |" in line][:1]
    assert line.split("|")[6].strip() == f"{np.median(times):.2f}"
    noisy = [row for row in rows if row["method"] == "laplace"]
    assert all(
        row["mean_generalization_error"] is None and row["reconstruction_loss"] > 0 for row in noisy
    )


def test_what_a_benchmark_cannot_be_of_is_refused(survey, tmp_path):
    with pytest.raises(ParameterError, match="--time and --every"):
        flowveil.run_study(survey, tmp_path / "a", preset="matet-2023", **READ)
    times = {"time": "start_time", "every": "hour"}
    with pytest.raises(ParameterError, match="segments"):
        flowveil.run_study(
            survey, tmp_path / "a", preset="odkanon-report", by="none", **times, **READ
        )
    with pytest.raises(ParameterError, match="not by both"):
        flowveil.run_study(survey, tmp_path / "a", by="sex", methods=["oigh"], **times, **READ)
    with pytest.raises(ParameterError, match=r"laplace\.bound"):
        flowveil.run_study(survey, tmp_path / "a", **times, **READ)
    assert not (tmp_path / "a").exists()


# ---- figures -------------------------------------------------------------------------------------


def test_two_runs_are_drawn_over_each_other_and_not_into_a_release(tmp_path):
    """Of one town: how useful a comparison is, is counted by the square kilometre."""
    pytest.importorskip("matplotlib")
    trips, picture, out = (
        tmp_path / "trips.parquet",
        tmp_path / "figure.svg",
        tmp_path / "comparison",
    )
    pq.write_table(trip_table(), trips)
    drawn = (
        "--protect",
        "trips",
        "--protect",
        "population",
        "--population-only",
        "--methods",
        "odkanon",
        *CLI[2:4],
        "--k",
        "5",
    )
    drawn += ("--resolution", "6")
    main(["compare", str(trips), *drawn, "--out", str(out), "--picture", str(picture)])
    text = picture.read_text("utf-8")
    # Below the map, and in the description for those who do not see it.
    assert text.count("Dark outlines: 1 zone of another release") == 2
    assert "k = 5 trips and, outlined, odkanon, k = 5 population" in text
    assert "Not for publication" in text
    found = flowveil.compare(
        str(trips),
        methods="odkanon",
        k=5,
        protect=("trips", "population"),
        population_only=True,
        **READ,
    )
    (tmp_path / "manifest.json").write_text(json.dumps({"format": RELEASE_FORMAT}), "utf-8")
    with pytest.raises(OutputError, match="inside a release"):
        found.picture(tmp_path / "other.svg")
    with pytest.raises(ParameterError, match="allowed"):
        found.picture(tmp_path.parent / "other.svg", show="nothing")
