"""What kept zones cost: said to the data holder, but for errors that the report withholds."""

from __future__ import annotations

from flowveil import anonymize
from flowveil.series.loss import Loss, loss_against_best
from unit.release.test_frozen import MAP, flows_on

TRIPS = [("N1", "N2")] * 6 + [("N2", "N2")] * 2 + [("N3", "N2")] * 2


def test_an_error_that_the_report_withholds_is_not_printed_either(tmp_path):
    flows = flows_on(MAP, TRIPS)
    anonymize(flows, "odkanon", k=5).write(tmp_path / "earlier")
    release = anonymize(flows, zones_of=tmp_path / "earlier", k=5)
    assert release.summary()["measures"]["trips"]["mean_generalization_error"] is None
    loss = loss_against_best(release)
    assert loss is not None
    assert not any(sign.isdigit() for sign in loss.in_words()[0])
    assert "3.0 tiles" in Loss(3.0, 2.0).in_words()[0]
    assert "Advice" in Loss(3.0, 2.0, disclosed=False).in_words()[1]
