"""axe-core finds nothing on the pages, light and dark. It is an npm package, fetched by .ci/run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import trip_table
from flowveil import anonymize, read_trips
from flowveil.experiments.comparison import Comparison, Run
from flowveil.report.study import render_study

AXE = Path(os.environ.get("AXE_CORE", Path(__file__).resolve().parents[2] / "build" / "axe-core" / "axe.min.js"))
pytestmark = pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not there (AXE_CORE names its axe.min.js)")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    release = anonymize(read_trips(trip_table(3000), resolution=8), k=5, protect="trips")
    found = {"report": release.write(folder / "release", title="Trips", source="A test") / "report.html"}
    found["internal"] = release.write_internal_report(folder / "internal.html")
    measures = {"suppressed_share": 0.1, "mean_generalization_error": 12.0}
    runs = tuple(
        Run(m, 5, ("trips",), "done", measures=measures, seconds=1.0, flows=release.flows, zones=release.zones)
        for m in ("twincut", "odkanon")
    )
    found["comparison"] = Comparison(runs, 60.0, 0.1).write(folder / "comparison") / "comparison.html"
    study = render_study({}, [("Results", ["Method", "G"], [["TwinCut", "1"]], [False, True])], notes=["A note."],
                         lead="One method.", max_suppressed=0.1)  # fmt: skip
    found["study"] = folder / "study.html"
    found["study"].write_text(study, encoding="utf-8")
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "internal", "comparison", "study"])
def test_nothing_is_found(name, scheme, pages, open_page):
    with open_page(pages[name], color_scheme=scheme, bypass_csp=True) as opened:
        opened.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = opened.page.evaluate("axe.run()")["violations"]
        assert not [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
        opened.keep(f"axe-{name}-{scheme}")
