"""Every attack finds a leak that was planted, and nothing else."""

from __future__ import annotations

from itertools import product

import h3
import numpy as np
import pyarrow as pa
import pytest

from flowveil import anonymize, anonymize_slices, read_slices, read_trips
from flowveil import audit_releases as audit
from flowveil.analysis import shadow_releases
from flowveil.analysis.audit import Verdict
from flowveil.analysis.shadow_releases import membership
from flowveil.core.errors import ParameterError
from flowveil.verify.audit.parts import SECRET, bounded_parts
from flowveil.verify.audit.published import published_release, read_release
from flowveil.verify.audit.single_release import homogeneity
from flowveil.verify.audit.zone_forest import ranges_of
from samples.drafts import unchecked

PLACES = [(48.85, 2.35), (48.87, 2.37), (48.83, 2.31), (48.90, 2.20)]


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """An audit needs the files, not their recount."""
    with unchecked():
        yield


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


def written(rows, tmp_path, method="suppression", **asked):
    flows = read_trips(table(rows), person="person")
    asked = {"k": 5, "protect": "trips", "max_suppressed": 0.9, **asked}
    return anonymize(flows, method, **asked).write(tmp_path / f"r{len(list(tmp_path.iterdir()))}")


# ---- homogeneity ---------------------------------------------------------------------------------


def test_a_zone_whose_trips_all_go_to_one_zone_is_homogeneous(tmp_path):
    rows = [*several(0, 1, 8), *several(1, 0, 8), *several(2, 3, 9), *several(0, 2, 1)]
    origins, destinations = audit([written(rows, tmp_path)]).releases[0].homogeneity
    assert (origins.zones, origins.above, origins.l_distinct) == (3, 3, 1)
    mixed = [*several(0, 1, 8), *several(0, 2, 8), *several(0, 3, 8)]
    origins, destinations = audit([written(mixed, tmp_path)]).releases[0].homogeneity
    assert (origins.above, origins.l_distinct, origins.t) == (0, 3, 0.0)
    assert origins.l_entropy == pytest.approx(3)
    assert destinations.above == 3


#: Published cells have k exactly: what a reader proves of parts is tested.
EXACT = {"secret_thresholds": False}


def number_of(tile):
    """The number of a tile in the order of codes."""
    (first, _), *_ = ranges_of([tile])
    return first // 7 ** (15 - h3.get_resolution(tile))


ABOVE = h3.latlng_to_cell(48.85, 2.35, 7)
FAR = h3.latlng_to_cell(48.6, 2.0, 7)
TILES = sorted(h3.cell_to_children(ABOVE, 8))


def layered(cells, *, k=5, **report):
    """A layered release of (origin, destination, trips, layer)."""
    names = ("origin_zone", "destination_zone", "trips", "layer")
    flows = pa.table(dict(zip(names, zip(*sorted(cells), strict=True), strict=True)))
    codes = sorted({code for cell in cells for code in cell[:2]})
    tiles = [7 ** (8 - h3.get_resolution(code)) for code in codes]
    zones = pa.table(
        {
            "zone": codes,
            "role": ["both"] * len(codes),
            "tiles": tiles,
            "h3_cells": [[c] for c in codes],
        }
    )
    stated = {
        **{"kind": "layered", "method": "layercut", "published": {}},
        "guarantee": {"k": k, "protect": ["trips"], "trips": k},
        "parameters": {"resolution": 8, **report.pop("parameters", {})},
        "statement": {"homogeneous": False, "suppression": {"rule": "short cells"}, **report},
    }
    return published_release(flows, zones, stated)


def test_trips_in_coarser_layers_count_for_a_zone():
    """A zone with one cell, whose other trips are in cells around it, is not homogeneous."""
    alone = [(TILES[0], FAR, 20, 1), (TILES[1], FAR, 20, 1), (TILES[1], ABOVE, 9, 1)]
    origins, _ = homogeneity(layered(alone))
    assert (origins.zones, origins.above) == (2, 1)
    origins, _ = homogeneity(layered([*alone, (ABOVE, TILES[3], 70, 2)]))
    # 10 of its 30 trips: a seventh of those of the zone around it. That zone has 50 of 119.
    assert (origins.zones, origins.above, origins.l_distinct) == (3, 0, 2)


# ---- parts of cells ------------------------------------------------------------------------------


def test_a_cell_of_few_pairs_proves_trips_of_each_unless_thresholds_are_secret():
    cells = [(TILES[0], FAR_TILE, 5, 1) for FAR_TILE in sorted(h3.cell_to_children(FAR, 8))]
    cells = [*cells[:5], (TILES[0], FAR, 7, 2)]
    found, parts = bounded_parts(layered(cells))
    # Two pairs of at most four trips each have seven.
    assert (found.cells, found.parts, found.close) == (1, 2, 2)
    assert {(part.low, part.high) for part in parts} == {(3, 4)}
    one = audit([layered(cells)])
    assert one.verdict is Verdict.CONFINED
    assert "2 pairs of tiles" in one.failures[0]
    # Two pairs of at most four trips have eight: four each.
    assert audit([layered([*cells[:5], (TILES[0], FAR, 8, 2)])]).verdict is Verdict.DISCLOSED
    assert bounded_parts(layered(cells, thresholds=SECRET)) is None
    assert bounded_parts(layered([*cells[:5], (TILES[0], FAR, 4, 2)]))[0].parts == 0


def test_what_is_proven_of_parts_is_true(tmp_path):
    """Small worlds of one pair of zones, and what layercut with exact thresholds publishes."""
    rng = np.random.default_rng(0)
    destinations, proven = sorted(h3.cell_to_children(FAR, 8)), 0
    for world in range(30):
        counts = {
            (o, d): int(n)
            for (o, d), n in zip(
                product(TILES[:2], destinations), rng.poisson(rng.choice([3, 5]), 14), strict=True
            )
        }
        rows = [pair for pair, n in counts.items() for _ in range(n)]
        flows = read_trips(
            pa.table({"start_h3": [o for o, _ in rows], "end_h3": [d for _, d in rows]}),
            resolution=8,
        )
        release = anonymize(flows, "layercut", 5, protect="trips", hierarchy="h3", **EXACT)
        tiles = {tile: number_of(tile) for tile in (*TILES, *destinations)}
        truth = {(tiles[o], tiles[d]): n for (o, d), n in counts.items()}
        found = release.write(tmp_path / str(world))
        _, parts = bounded_parts(read_release(found))
        for part in parts:
            n = truth.get((part.origin, part.destination), 0)
            assert part.low <= n <= part.high
            proven += 1
    assert proven > 0


# ---- with the trips ------------------------------------------------------------------------------


def test_a_cell_of_one_commuter_is_dominated(tmp_path):
    rows = [*several(0, 1, 8), *several(2, 3, 1, each=7), *several(2, 3, 2, first=50)]
    folder = written(rows, tmp_path)
    found = audit([folder], against=table(rows), fail_on={"dominance": 0.4})
    one = found.releases[0]
    assert (one.dominance.cells, one.dominance.one, one.dominance.p_percent) == (2, 1, 1)
    assert one.dominance.largest == pytest.approx(7 / 9)
    assert one.true_cells is True
    assert found.failures == ["Dominance is 0.5, above 0.4."]


def test_trips_are_placed_into_the_cells_of_their_slice(tmp_path):
    crowd = [*several(0, 1, 60), *several(2, 3, 60)]
    rows = [*crowd, *crowd, *several(0, 3, 1, each=9)]
    kind = ["a"] * len(crowd) + ["b"] * (len(crowd) + 9)
    trips = table(rows).append_column("kind", pa.array(kind))
    sliced = read_slices(trips, by="kind", person="person")
    asked = {"k": 5, "protect": "trips", "max_suppressed": 0.9}
    folder = anonymize_slices(sliced, "suppression", **asked).write(tmp_path / "sliced")
    one = audit([folder], against=trips).releases[0]
    assert one.true_cells is True
    assert (one.dominance.cells, one.dominance.one) == (5, 1)


def test_a_person_whose_trips_nobody_else_has_is_linked(tmp_path):
    # Twelve people go there and back; one has ways of her own, often enough to be published.
    own = [(o, d, "alone") for o, d in ((2, 3), (3, 2), (3, 0))] * 6
    rows = [*several(0, 1, 12), *several(1, 0, 12), *own]
    one_known, two_known, *_ = (
        audit([written(rows, tmp_path)], against=table(rows)).releases[0].linkage
    )
    assert (one_known.persons, one_known.alone, one_known.median) == (13, pytest.approx(1 / 13), 12)
    assert (two_known.persons, two_known.alone) == (1, 1)


def test_two_known_trips_leave_those_who_made_both(tmp_path):
    """The intersection, not the union: of two crowds, two people are in both."""
    rows = [*several(0, 1, 10), *several(1, 0, 10, first=8)]
    one_known, *_ = audit([written(rows, tmp_path)], against=table(rows)).releases[0].linkage
    assert (one_known.persons, one_known.median, one_known.raw_median) == (2, 10, 10)
    rows += [(2, 3, f"p{person}") for person in (8, 9, 30, 31, 32, 33)]
    _, two_known, *_ = audit([written(rows, tmp_path)], against=table(rows)).releases[0].linkage
    assert (two_known.persons, two_known.median, two_known.below_k) == (2, 2, 1)


def test_membership_is_seen_where_one_person_is_a_cell_and_not_in_a_crowd(tmp_path):
    pairs = [(o, d) for o in range(4) for d in range(4) if o != d]
    alone = [(o, d, f"p{i}") for i, (o, d) in enumerate(pairs) for _ in range(20)]
    crowd = several(0, 1, 40)
    found = [
        membership(read_release(written(rows, tmp_path)), read_trips(table(rows), person="person"),
                   targets=8, shadows=6)
        for rows in (alone, crowd)
    ]  # fmt: skip
    assert (found[0].targets, found[0].shadows, found[0].advantage) == (8, 48, 1.0)
    assert found[0].low > 0.8
    assert found[1].low <= 0
    assert found[1].advantage < 0.7


def test_the_interval_of_membership_is_that_of_persons_and_not_of_answers(tmp_path, monkeypatch):
    """Two cabs of four are recognised every time: any number of answers leaves the mean open."""
    rows = [(0, 1, f"p{i}") for i in range(4) for _ in range(10)]
    release, flows = read_release(written(rows, tmp_path)), read_trips(table(rows), person="person")
    monkeypatch.setattr(
        shadow_releases,
        "_score",
        lambda *given: float(given[3] % 2 and given[3] in given[2]),
    )
    for shadows in (10, 1000):
        found = membership(release, flows, targets=4, shadows=shadows)
        assert found.advantage == 0.5
        # Student's t with three degrees of freedom, and a standard error of 0.29.
        assert found.low < -0.4
        assert found.high == 1


def test_random_numbers_do_not_depend_on_the_run(tmp_path):
    random = np.random.default_rng(1)
    drawn = zip(*(random.integers(0, n, 300).tolist() for n in (4, 4, 40)), strict=True)
    rows = [(o, d, f"p{p}") for o, d, p in drawn]
    folder = written(rows, tmp_path)
    first, second = (audit([folder], against=table(rows)).to_dict() for _ in range(2))
    assert first == second


def test_what_an_audit_may_fail_on_is_named(tmp_path):
    folder = written(several(0, 1, 8), tmp_path)
    with pytest.raises(ParameterError, match="homogeneity, dominance"):
        audit([folder], fail_on={"beauty": 0.1})
    with pytest.raises(ParameterError, match="at least 2"):
        audit([folder], shadows=1)
