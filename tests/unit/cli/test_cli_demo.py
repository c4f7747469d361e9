"""The demo: a release by TwinCut, and a page outside of it that shows ODkAnon beside it."""

from __future__ import annotations

import json
import re

import flowveil
from flowveil.cli import main
from flowveil.sources.synthetic import synthetic_survey
from samples.drafts import unchecked


def test_the_demo_shows_twincut_and_odkanon_side_by_side(tmp_path, capsys, monkeypatch):
    survey = synthetic_survey(people=300)
    monkeypatch.setattr("flowveil.sources.synthetic.synthetic_survey", lambda: survey)
    out = tmp_path / "demo"
    # It is verified below.
    with unchecked():
        main(["demo", "--out", str(out)])
    said = capsys.readouterr().out
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["method"] == "twincut"
    # Persons are known, so they are what is protected; nothing says that a cell is one person's.
    assert report["guarantee"]["protect"] == ["people"]
    assert "every published cell holds at least 10 people" in said
    assert "fewest people" not in said
    page = (tmp_path / "demo-beside.html").read_text(encoding="utf-8")
    assert "twincut and odkanon side by side" in re.findall(r"<h2[^>]*>([^<]*)</h2>", page)
    flows = flowveil.read_trips(survey)
    other = flowveil.anonymize(flows, "odkanon", 10, budget="volume").metrics()["trips"]
    assert f"{other['n_cells']:,} cells" in said
    assert f'<td class="number">{other["n_cells"]:,}</td>' in page
    mine = report["measures"]["trips"]
    assert mine["mean_generalization_error"] < other["mean_generalization_error"]
    assert mine["floor_ratio"] >= 1
    # A release holds the numbers of one release.
    assert "odkanon" not in (out / "report.html").read_text(encoding="utf-8")
    assert flowveil.verify_folder(out, against=survey) == []


def test_a_release_of_ones_own_shows_no_other(tmp_path, trips_csv):
    out = tmp_path / "out"
    with unchecked():
        main(["anonymize", str(trips_csv), "--k", "5", "--resolution", "8", "--out", str(out), "--quiet"])
    page = (out / "report.html").read_text(encoding="utf-8")
    assert 'id="beside"' not in page
    assert 'id="frontier"' not in page
