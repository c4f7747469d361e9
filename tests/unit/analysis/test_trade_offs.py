"""Error and suppressed share are shown together, with an explanation."""

from __future__ import annotations

from flowveil.analysis.pages.trade_offs import best, joint_part, share_in_words, verdict
from flowveil.published.charts import Mark, colour_of

RUNS = [
    Mark("fine", 0.1, 40.0, 0),
    Mark("coarse", 0.05, 400.0, 1),
    Mark("worse", 0.1, 500.0, 2),
    Mark("suppression", 0.98, 2.0, 3),
]


def test_runs_that_another_beats_in_both_are_not_on_the_front() -> None:
    assert [run.name for run in best(RUNS)] == ["coarse", "fine", "suppression"]


def test_the_verdict_names_the_finest_within_the_limit_and_runs_above_it() -> None:
    lines = verdict(RUNS, 0.1)
    expected = (
        "Of the runs that suppress at most 10%, fine is the finest: an error of 40 tiles, with"
        " 90.0%"
    )
    assert lines[0].startswith(expected)
    assert any(line.startswith("suppression suppresses 98% of the volume") for line in lines)
    assert verdict(RUNS[3:], 0.1)[0] == "No run suppresses at most 10%."
    assert share_in_words(0.997) == "over 99%"


def test_a_dominated_run_is_faded_and_each_keeps_its_colour() -> None:
    content = str(joint_part({"k = 5": RUNS}, max_suppressed=0.1).content)
    assert "worse (beaten)" in content
    assert "coarse (beaten)" not in content
    assert content.count('opacity="0.4"') == 1
    assert "share of the volume published" in content
    for run in RUNS:
        assert colour_of(run.place) in content
