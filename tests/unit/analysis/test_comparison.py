"""Several methods and k on the same input: bounded in time, exact, written once."""

from __future__ import annotations

import csv
import io
import re

import pytest

import flowveil
from flowveil.analysis import experiment
from flowveil.analysis.areas import area_accuracy, default_levels, main_level
from flowveil.analysis.comparison import FILES
from flowveil.analysis.experiment import WARM_UP_FLOWS, RunTask, Source
from flowveil.core.errors import DataError, OutputError, ParameterError
from flowveil.methods import find_method
from samples.hourly import hourly_trips
from samples.processes import in_this_process
from samples.releases import city_flows

#: What a run calls.
ANONYMIZE = "flowveil.analysis.experiment.anonymize"


@pytest.fixture(scope="module")
def flows():
    return city_flows(rows=3000)


@pytest.fixture(scope="module")
def found(flows):
    with in_this_process():
        return flowveil.compare(
            flows,
            methods="odkanon,suppression",
            k=(10, 5, 100_000),
            protect=("trips", "trips+people"),
            options={"odkanon": {"budget": "volume"}},
            time_limit=120,
        )


def test_every_combination_is_run_in_order(found):
    order = [(run.protection, run.k, run.method) for run in found.runs]
    assert order == [
        (protection, k, method)
        for protection in ("trips", "trips+people")
        for k in (5, 10, 100_000)
        for method in ("odkanon", "suppression")
    ]


def test_a_run_is_the_release_that_anonymize_makes(flows, found):
    run = next(
        run for run in found.runs if (run.method, run.k, run.protection) == ("odkanon", 10, "trips")
    )
    release = flowveil.anonymize(flows, "odkanon", k=10, protect="trips", budget="volume")
    assert run.flows.equals(release.flows)
    assert run.zones.equals(release.zones)
    (planner,) = area_accuracy(release, levels=[main_level(default_levels(flows))])
    assert next(iter(run.measures.items())) == ("misplaced", planner.misplaced)
    assert {name: run.measures[name] for name in release.metrics()["trips"]} == release.metrics()[
        "trips"
    ]
    assert run.seconds > 0


def test_what_cannot_be_met_is_shown_as_such(found):
    impossible = [run for run in found.runs if run.k == 100_000]
    assert {run.status for run in impossible} == {"infeasible"}
    assert all(run.reason and run.flows is None and run.seconds is None for run in impossible)
    for text in (found.to_csv(), found.to_markdown(), found.to_latex()):
        assert "infeasible" in text


def test_a_run_that_takes_too_long_is_stopped(flows):
    found = flowveil.compare(flows, methods="odkanon", k=10, time_limit=0.001)
    (run,) = found.runs
    assert (run.status, run.flows) == ("timed out", None)
    assert run.reason == "stopped after 0.001 seconds"


def test_a_process_that_ends_is_shown_as_failed(flows, monkeypatch):
    monkeypatch.setattr(experiment.workers, "START_LIMIT", 0.001)
    (run,) = flowveil.compare(flows, methods="odkanon", k=10).runs
    assert run.status == "failed"
    assert "did not start, or ended without a result" in run.reason


def test_what_the_first_call_compiles_is_not_measured(flows, monkeypatch):
    """The process runs the same method, options and protection on a few flows before the clock
    starts."""
    calls = []

    def watched(some, **asked):
        calls.append((len(some), asked))
        raise RuntimeError("too few flows")

    monkeypatch.setattr(ANONYMIZE, watched)
    asked = {
        "method": find_method("odkanon"),
        "k": 10,
        "protect": ("trips", "people"),
        "budget": "volume",
    }
    experiment.prepare(Source(flows), RunTask(asked))
    experiment.execute(Source(flows), RunTask(asked))
    (few, before), (n, after) = calls
    assert 0 < few <= WARM_UP_FLOWS < n == len(flows)
    # Nothing is published here, so nothing has to be confirmed.
    asked |= {"allow_small_k": True, "population_only": True}
    assert before == {**asked, "k": 2}
    assert after == asked


def test_runs_that_are_not_in_the_charts_are_named(found):
    text = found.to_html()
    (said,) = re.findall("Not in the charts: (.*?)</p>", text)
    named = said.rstrip(".").split(", ")
    assert len(named) == len(set(named)) == 4
    assert "odkanon at k = 100000 protecting trips+people (infeasible)" in named


def test_a_run_that_breaks_is_named_without_its_message(flows, monkeypatch):
    def broken(*_, **__):
        raise KeyError("SECRET0001")

    monkeypatch.setattr(ANONYMIZE, broken)
    run = experiment.execute(Source(flows), RunTask({"method": find_method("odkanon")}))
    assert (run.status, run.reason) == ("failed", "unexpected KeyError")


def test_nothing_below_k_leaves_a_run(found):
    for run in found.runs:
        if run.flows is not None:
            assert min(run.flows["trips"].to_pylist()) >= run.k


def test_tables_have_a_row_a_run(found):
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert len(rows) == len(found.runs)
    assert rows[0]["method"] == "odkanon"
    assert (
        float(rows[0]["mean_generalization_error"])
        == found.runs[0].measures["mean_generalization_error"]
    )
    first, sheet = map(str.strip, found.to_markdown().split("\n\n"))
    assert first.startswith("Not for publication")
    # A head and a rule; the planner's errors are the first measures.
    assert sheet.count("\n") - 1 == len(found.runs)
    assert len({line.count("|") for line in sheet.splitlines()}) == 1
    assert sheet.startswith(
        "| method | guarantee | seconds | misplaced (%) | missed (%) | productions off (%) | attractions off (%)"
        " | trip length (ratio) | accessibility off (%) |"
    )
    latex = found.to_latex()
    assert latex.count(r"\\") == len(found.runs) + 1
    text = re.sub(r"\$.*?\$", "", latex.split("\n", 1)[1])
    assert "%" not in text.replace(r"\%", "")
    assert "_" not in text.replace(r"\_", "")


def test_it_is_written_into_a_separate_folder(found, tmp_path):
    out = found.write(tmp_path / "out")
    assert sorted(p.name for p in out.iterdir()) == sorted(FILES)
    found.write(out)
    text = (out / "comparison.html").read_text(encoding="utf-8")
    assert "NOT FOR PUBLICATION" in text
    assert text.count("<svg") == 16
    (out / "thesis.docx").write_text("years of work")
    with pytest.raises(OutputError, match="something else than a comparison"):
        found.write(out)


def test_wrong_arguments_stop_before_anything_runs(flows, monkeypatch):
    monkeypatch.setattr(
        experiment.workers, "run_tasks", lambda *_, **__: pytest.fail("something was run")
    )
    with pytest.raises(ParameterError, match="Did you mean 'odkanon'"):
        flowveil.compare(flows, methods="odkannon")
    with pytest.raises(ParameterError, match="k must be"):
        flowveil.compare(flows, k=[10, 0])
    with pytest.raises(ParameterError, match="no option 'bugdet'"):
        flowveil.compare(flows, options={"odkanon": {"bugdet": "volume"}})
    with pytest.raises(ParameterError, match="time limit"):
        flowveil.compare(flows, time_limit=0)
    with pytest.raises(ParameterError, match="nothing to compare"):
        flowveil.compare(flows, methods=[])
    with pytest.raises(DataError, match="no person column"):
        flowveil.compare(city_flows(persons=False), protect=["people"])


def test_twincut_brings_the_frontier_along(flows, tmp_path):
    with in_this_process():
        found = flowveil.compare(
            flows, methods="twincut,odkanon", k=10, options={"twincut": {"effort": 0.0}}
        )
    (frontier,) = found.frontiers
    assert (frontier.k, frontier.protect) == (10, ("people",))
    exact = flowveil.frontier(flows, k=10)
    shares, errors = zip(*frontier.points, strict=True)
    assert list(shares) == sorted(set(shares))
    for point in exact:
        # Rounded upwards in the share, so never better than what is.
        told = [error for share, error in frontier.points if share <= point.suppressed_share]
        assert all(error >= point.value * 0.994 for error in told)
    assert all(error == float(f"{error:.3g}") for error in errors)
    text = (found.write(tmp_path / "out") / "comparison.html").read_text(encoding="utf-8")
    assert "What suppressing more or less would give" in text
    assert "NOT FOR PUBLICATION" in text


@pytest.mark.slow
def test_without_twincut_or_time_there_is_no_frontier(flows, found):
    assert found.frontiers == ()
    assert flowveil.compare(flows, methods="twincut", k=10, time_limit=1e-6).frontiers == ()


def test_an_hour_is_worth_what_a_run_takes_by_itself():
    flows = flowveil.read_slices(
        hourly_trips(300), time="start", every="hour", resolution=7
    ).folded()
    own = flowveil.anonymize(flows, "paircut", k=6).plan.notes["time_weight"]
    with in_this_process():
        weights = [run.time_weight for run in flowveil.compare(flows, methods="paircut", k=6).runs]
    assert weights[len(weights) // 2] == own
