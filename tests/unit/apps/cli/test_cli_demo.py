"""The demo: a synthetic survey published end to end."""

from __future__ import annotations

import json

import flowveil
from flowveil.apps.cli import main
from flowveil.reading.sources.synthetic import synthetic_survey
from samples.drafts import unchecked


def test_the_demo_publishes_a_survey_that_verify_accepts(tmp_path, capsys, monkeypatch):
    survey = synthetic_survey(people=300)
    monkeypatch.setattr("flowveil.reading.sources.synthetic.synthetic_survey", lambda: survey)
    # Spread evenly over areas, which takes less than a reconstruction.
    monkeypatch.setattr("flowveil.analysis.areas.MOST_ROWS", 0)
    out = tmp_path / "demo"
    # It is verified below.
    with unchecked():
        main(["demo", "--out", str(out)])
    message = capsys.readouterr().out
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    # Persons are known, so they are protected; nothing says that a cell is one person's.
    assert report["guarantee"]["protect"] == ["people"]
    assert "every published cell holds at least 10 people" in message
    assert "fewest people" not in message
    assert report["statement"]["about"]["licence"] == "CC0 1.0"
    assert flowveil.verify_release(out, against=survey, weight="weight").findings == ()
