"""What kept zones cost: shown to the operator only."""

from __future__ import annotations

from flowveil import anonymize
from flowveil.analysis.release_analysis import loss_against_best, loss_lines
from unit.release.test_zone_map import MAP, flows_on

TRIPS = [("N1", "N2")] * 6 + [("N2", "N2")] * 2 + [("N3", "N2")] * 2


def test_the_loss_is_measured_against_the_best_map_of_the_same_trips(tmp_path):
    flows = flows_on(MAP, TRIPS)
    anonymize(flows, "odkanon", k=5).write(tmp_path / "earlier")
    loss = loss_against_best(anonymize(flows, zones_of=tmp_path / "earlier", k=5))
    assert loss is not None
    assert loss[0] >= loss[1]
    assert "3.0 tiles" in loss_lines(3.0, 2.0)[0]
    assert "Advice" in loss_lines(3.0, 2.0)[1]
    assert len(loss_lines(2.9, 2.0)) == 1
