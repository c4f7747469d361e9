"""Every attack finds a leak that was planted, and nothing where there is none."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from flowveil.disclosure import withholding

from flowveil import anonymize, anonymize_slices, read_slices, read_trips
from flowveil import audit_releases as audit
from flowveil.audit.auditing import in_one_line
from flowveil.audit.published import published_release, read_release
from flowveil.audit.suppressed import suppressed_bounds
from flowveil.cli import main
from flowveil.errors import GuaranteeError, ParameterError
from flowveil.published.report import summarize
from flowveil.published.tables import flows_table, zones_table
from flowveil.verify import verify_release
from samples.drafts import unchecked
from samples.releases import rehash

PLACES = [(48.85, 2.35), (48.87, 2.37), (48.83, 2.31), (48.90, 2.20)]


def table(rows):
    """Trips of (origin, destination, person)."""
    return pa.table(
        {
            "start_lat": [PLACES[o][0] for o, _, _ in rows],
            "start_lon": [PLACES[o][1] for o, _, _ in rows],
            "end_lat": [PLACES[d][0] for _, d, _ in rows],
            "end_lon": [PLACES[d][1] for _, d, _ in rows],
            "person": [p for _, _, p in rows],
        }
    )


def several(o, d, n, *, first=0, each=1):
    return [(o, d, f"p{first + i}") for i in range(n) for _ in range(each)]


def release_of(rows, **asked):
    flows = read_trips(table(rows), person="person")
    return anonymize(flows, "suppression", **{"k": 5, "protect": "trips", "max_suppressed": 0.9, **asked})


def published(release):
    return published_release(flows_table(release), zones_table(release), summarize(release))


ROWS = [
    *several(0, 1, 8),
    *several(1, 0, 8),
    *several(2, 3, 9),
    *several(0, 2, 1),
    *several(1, 2, 1),
    *several(2, 1, 1),
]


@pytest.mark.parametrize("kept", ["suppressed_share", "c_dm", "reconstruction_loss"])
def test_a_measure_that_is_not_withheld_gives_the_suppressed_trips(kept):
    release = release_of(ROWS)
    report = summarize(release)
    assert report["measures"]["trips"][kept] is None
    found = suppressed_bounds(published_release(flows_table(release), zones_table(release), report))
    assert (found.known, found.confined) == (0, 0)
    # The rule switched off for this measure alone: its value as it is, rounded as it would be published.
    value = release.metrics()["trips"][kept]
    report["measures"]["trips"][kept] = float(f"{value:.4g}") if kept == "reconstruction_loss" else value
    found = suppressed_bounds(published_release(flows_table(release), zones_table(release), report))
    assert found.confined == 1
    assert found.bounds == ((3, 3),)


def test_the_rule_of_withholding_switched_off_is_found(monkeypatch):
    release = release_of(ROWS)
    assert audit([published(release)]).confined == 0
    monkeypatch.setattr(withholding, "reason_to_withhold", lambda *_: None)
    assert audit([published(release)]).confined == 1


def test_a_total_that_fills_the_pairs_is_counted_apart():
    # Two origin zones and two destination zones; what is not listed is one pair, which all suppressed trips fill.
    rows = [*several(0, 1, 8), *several(1, 1, 8), *several(0, 0, 8), *several(1, 0, 4)]
    release = release_of(rows)
    report = summarize(release)
    report["measures"]["trips"]["c_dm"] = release.metrics()["trips"]["c_dm"]
    found = suppressed_bounds(published_release(flows_table(release), zones_table(release), report))
    assert found.filled == 1


def test_a_zone_whose_trips_all_go_to_one_zone_is_homogeneous():
    origins, destinations = audit([published(release_of(ROWS))]).releases[0].homogeneity
    assert (origins.zones, origins.above, origins.l_distinct) == (3, 3, 1)
    mixed = [*several(0, 1, 8), *several(0, 2, 8), *several(0, 3, 8)]
    origins, destinations = audit([published(release_of(mixed))]).releases[0].homogeneity
    assert (origins.above, origins.l_distinct, origins.t) == (0, 3, 0.0)
    assert origins.l_entropy == pytest.approx(3)
    assert destinations.above == 3


def test_a_cell_of_one_commuter_is_dominated(tmp_path):
    rows = [*several(0, 1, 8), *several(2, 3, 1, each=7), *several(2, 3, 2, first=50)]
    found = audit([_written(rows, tmp_path)], against=table(rows), fail_on={"dominance": 0.4})
    one = found.releases[0]
    assert (one.dominance.cells, one.dominance.one, one.dominance.p_percent) == (2, 1, 1)
    assert one.dominance.largest == pytest.approx(7 / 9)
    assert one.true_cells is True
    assert found.failures == ["Dominance is 0.5, above 0.4."]


def _written(rows, tmp_path, **asked):
    folder = tmp_path / f"release{len(list(tmp_path.iterdir()))}"
    return _draft(release_of(rows, **asked), folder)


def _draft(release, folder):
    """An attack needs the files, not their recount."""
    with unchecked():
        return release.write(folder)


def test_a_person_whose_trips_nobody_else_has_is_linked(tmp_path):
    # Twelve people go there and back; one has ways of her own, often enough to be published.
    rows = [*several(0, 1, 12), *several(1, 0, 12), *[(o, d, "alone") for o, d in ((2, 3), (3, 2), (3, 0))] * 6]
    one_known, two_known, *_ = audit([_written(rows, tmp_path)], against=table(rows)).releases[0].linkage
    assert (one_known.persons, one_known.alone, one_known.median) == (13, pytest.approx(1 / 13), 12)
    assert (two_known.persons, two_known.alone) == (1, 1)


def test_membership_is_seen_where_one_person_is_a_cell_and_not_in_a_crowd(tmp_path):
    pairs = [(o, d) for o in range(4) for d in range(4) if o != d]
    alone = [(o, d, f"p{i}") for i, (o, d) in enumerate(pairs) for _ in range(20)]
    crowd = several(0, 1, 40)
    found = [
        audit([_written(rows, tmp_path)], against=table(rows), shadows=6).releases[0].membership
        for rows in (alone, crowd)
    ]
    assert (found[0].targets, found[0].shadows, found[0].advantage) == (5, 30, 1.0)
    assert found[0].low > 0.8
    assert found[1].low <= 0 or found[1].advantage < 0.7
    # Her way is nobody else's, but all that is published is how many go from anywhere to anywhere.
    own = [(o, d, f"p{i}") for i, (o, d) in enumerate(pairs) for _ in range(3)]
    flows = read_trips(table(own), person="person")
    coarse = _draft(anonymize(flows, "oigh", k=6, protect="trips", max_suppressed=0.0), tmp_path / "coarse")
    coarse = audit([coarse], against=table(own), shadows=6).releases[0].membership
    assert coarse.low <= 0


def test_an_audit_fails_by_exit_code_and_writes_counts_only(tmp_path, capsys):
    rows = [*several(0, 1, 30), *several(0, 2, 4)]
    one = _written(rows, tmp_path)
    out = tmp_path / "audit"
    main(["audit", str(one), "--out", str(out)])
    content = json.loads((out / "audit.json").read_text("utf-8"))
    assert (content["confined"], content["failures"], "groups" in content) == (0, [], False)
    assert "not for publication" in (out / "audit.html").read_text("utf-8").lower()
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(one), "--fail-on", "homogeneity=0.5"])
    assert ended.value.code == 3
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(one), "--out", str(one)])
    assert ended.value.code == 2
    assert read_release(one).k == 5
    capsys.readouterr()


def test_what_an_audit_may_fail_on_is_named():
    with pytest.raises(ParameterError, match="homogeneity, dominance"):
        audit([published(release_of(ROWS))], fail_on={"beauty": 0.1})
    with pytest.raises(ParameterError, match="at least 2"):
        audit([published(release_of(ROWS))], shadows=1)


def test_random_numbers_do_not_depend_on_the_run(tmp_path):
    random = np.random.default_rng(1)
    rows = [
        (int(o), int(d), f"p{int(p)}")
        for o, d, p in zip(*(random.integers(0, n, 300) for n in (4, 4, 40)), strict=True)
    ]
    folder = _written(rows, tmp_path)
    first, second = (audit([folder], against=table(rows)).to_dict() for _ in range(2))
    assert first == second


def test_a_report_says_which_audits_were_run_and_verify_counts_them_anew(tmp_path):
    folder, flows = tmp_path / "release", read_trips(table(ROWS), person="person")
    release_of(ROWS).write(folder, audit=True)
    report = json.loads((folder / "report.json").read_text("utf-8"))
    ends = [{"end": "origin", "zones": 3, "above": 3}, {"end": "destination", "zones": 3, "above": 3}]
    assert report["parameters"]["audit"] == {"suppressed": 0, "homogeneity": ends}
    assert "--audit" in report["command"]
    assert any(line.startswith("Checked: the measures") for line in report["statement"])
    report["parameters"]["audit"]["homogeneity"][0]["above"] = 0
    (folder / "report.json").write_text(json.dumps(report), "utf-8")
    rehash(folder)
    assert "report.json: its audit of homogeneity is not what the cells come to" in verify_release(folder, flows)
    with pytest.raises(ParameterError, match="not for boxes"):
        anonymize(flows, "mondrian", k=5, protect="trips").write(tmp_path / "boxes", audit=True)


def test_an_audit_refuses_a_release_whose_measures_disclose_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(withholding, "reason_to_withhold", lambda *_: None)
    with pytest.raises(GuaranteeError, match="suppressed trips below the guarantee"):
        release_of(ROWS).write(tmp_path / "release", audit=True)
    assert not (tmp_path / "release").exists()


def test_trips_are_placed_into_kept_zones_as_well(tmp_path):
    earlier = _written(several(0, 1, 30) + several(2, 3, 30), tmp_path)
    rows = [*several(0, 1, 8), *several(2, 3, 1, each=7), *several(2, 3, 2, first=50)]
    flows = read_trips(table(rows), person="person")
    _draft(anonymize(flows, zones_of=earlier, k=5, protect="trips", max_suppressed=0.9), tmp_path / "kept")
    one = audit([tmp_path / "kept"], against=table(rows)).releases[0]
    assert one.true_cells is True
    assert one.dominance.one == 1


def test_trips_are_placed_into_the_cells_of_their_slice_over_kept_zones_too(tmp_path):
    crowd = [*several(0, 1, 60), *several(2, 3, 60)]
    rows = [*crowd, *crowd, *several(0, 3, 1, each=9)]
    trips = table(rows).append_column("kind", pa.array(["a"] * len(crowd) + ["b"] * (len(crowd) + 9)))
    sliced = read_slices(trips, by="kind", person="person")
    for n, zones_of in enumerate((None, _written(crowd, tmp_path))):
        method = "suppression" if zones_of is None else None
        release = anonymize_slices(sliced, method, k=5, protect="trips", max_suppressed=0.9, zones_of=zones_of)
        _draft(release, tmp_path / f"sliced{n}")
        one = audit([tmp_path / f"sliced{n}"], against=trips).releases[0]
        assert one.true_cells is True
        # Over zones of their own, one commuter is a cell of slice b; over the crowd's zones as well.
        assert (one.dominance.cells, one.dominance.one) == (5, 1)


def test_what_was_not_attacked_is_not_called_safe():
    assert in_one_line(disclosed=False, noisy=[False]) == "Nothing below the guarantee was found"
    assert in_one_line(disclosed=False, noisy=[False, True]).endswith("noisy counts were not attacked")
    assert "Nothing below" not in in_one_line(disclosed=False, noisy=[True, True])
    assert in_one_line(disclosed=True, noisy=[True, False]).startswith("Something is disclosed; noisy")
