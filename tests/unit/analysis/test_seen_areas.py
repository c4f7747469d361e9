from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from flowveil.disclosure.areas import published_areas
from hypothesis import given, settings
from hypothesis import strategies as st

import flowveil
from conftest import trip_table
from flowveil.analysis.seen_areas import area_errors
from flowveil.published.report import summarize
from samples.releases import edit_report
from samples.remembered import desk, verify_release


def slow_error(release, level: int) -> tuple[float, int]:
    """The share of trips that is missing where it belongs, pair of tiles by pair of tiles; and cells in several."""
    flows, plan, cells = release.input, release.plan, release.cells

    def area(tree, tile):
        node = int(tree.leaf_node[tile])
        while tree.parent[node] >= 0 and tree.level[tree.parent[node]] >= level:
            node = int(tree.parent[node])
        return node

    areas = [[area(tree, t) for t in range(tree.n_tiles)] for tree in (flows.origins, flows.destinations)]
    there, got = defaultdict(float), defaultdict(float)
    for o, d, n in zip(flows.origin.tolist(), flows.destination.tolist(), flows.trips.tolist(), strict=True):
        there[areas[0][o], areas[1][d]] += n
    crossing = 0
    for a, b, n in zip(cells.origin.tolist(), cells.destination.tolist(), cells.trips.tolist(), strict=True):
        node_a, node_b = plan.origin_zones.nodes[a], plan.destination_zones.nodes[b]
        tiles_a = range(flows.origins.leaf_start[node_a], flows.origins.leaf_stop[node_a])
        tiles_b = range(flows.destinations.leaf_start[node_b], flows.destinations.leaf_stop[node_b])
        touched = set()
        for i in tiles_a:
            for j in tiles_b:
                got[areas[0][i], areas[1][j]] += n / len(tiles_a) / len(tiles_b)
                touched.add((areas[0][i], areas[1][j]))
        crossing += len(touched) > 1
    missing = sum(max(n - got[pair], 0.0) for pair, n in there.items())
    return missing / sum(there.values()), crossing


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from(["odkanon", "twincut", "paircut", "atg-dual"]),
    st.sampled_from(["h3", "halves"]),
)
def test_errors_are_those_of_a_slow_sum_over_pairs_of_tiles(seed, method, hierarchy):
    flows = flowveil.read_trips(trip_table(80, seed=seed), resolution=8)
    release = flowveil.anonymize(flows, method=method, k=4, protect="trips", hierarchy=hierarchy, max_suppressed=0.3)
    found = area_errors([release])
    assert [one.level for one in found] == [7, 6]
    for one in found:
        error, crossing = slow_error(release, one.level)
        assert one.error == pytest.approx(error)
        assert one.crossing == crossing


def release_of(n: int, **options):
    flows = flowveil.read_trips(trip_table(n), resolution=8)
    return flowveil.anonymize(flows, protect="trips", method="odkanon", **options)


def test_an_error_is_published_where_many_cells_lie_across_areas_and_withheld_where_few_do():
    many = release_of(2000, k=5, max_suppressed=0.1)
    metrics = many.metrics()
    open_entries = published_areas(many, metrics)
    exact = area_errors([many])
    assert [e["level"] for e in open_entries] == [7, 6]
    for entry, one in zip(open_entries, exact, strict=True):
        told = one.crossing and (one.crossing < 10 or one.misplaced < max(one.crossing, 5))
        assert entry["error"] == (None if told else float(f"{one.error:.2g}"))
    assert any(e["error"] is not None for e in open_entries)
    # Where the suppressed share or the loss is withheld, nothing is said.
    closed = {"trips": {**metrics["trips"], "suppressed_share": None}}
    assert {e["error"] for e in published_areas(many, closed)} == {None}
    few = release_of(60, k=5, max_suppressed=0.1)
    for entry, one in zip(published_areas(few, few.metrics()), area_errors([few]), strict=True):
        assert (entry["error"] is None) == (0 < one.crossing < 10 or 0 < one.crossing > one.misplaced)


def slices_of(n: int, *, few: int = 0, **options):
    """Two slices of many trips; and one that is too small to be published, if asked for."""
    mode = pa.array((["bus", "car"] * n)[: n - few] + ["ski"] * few)
    slices = flowveil.read_slices(trip_table(n).append_column("mode", mode), by="mode", resolution=8)
    return flowveil.anonymize_slices(slices, "odkanon", protect="trips", **options)


def test_slices_are_held_against_their_own_trips_and_one_that_is_not_published_is_missing():
    release = slices_of(1000, few=8, k=9, max_suppressed=0.1)
    assert list(release.keys) == [("bus",), ("car",)]
    held, parts = release.releases, dict(zip(release.input.keys, release.input.slices, strict=True))
    for one in area_errors(held, [parts["ski",]]):
        slow = [slow_error(part, one.level) for part in held]
        missing = sum(error * part.input.trips.sum() for (error, _), part in zip(slow, held, strict=True)) + 8
        assert one.error == pytest.approx(missing / 1000)
        assert one.crossing == sum(crossing for _, crossing in slow)


@pytest.mark.parametrize("made", [release_of, slices_of])
def test_verify_finds_another_error_one_that_must_be_withheld_and_one_that_is_missing(tmp_path, made):
    release = made(2000, k=5, max_suppressed=0.1)
    release.write(tmp_path / "r")
    said = json.loads((tmp_path / "r" / "report.json").read_text("utf-8"))["between_areas"]
    assert said == published_areas(release, summarize(release)["measures"])
    at = next(i for i, entry in enumerate(said) if entry["error"])
    with desk(tmp_path / "changed") as copied:
        for change in (
            lambda entries: entries[at].update(error=float(f"{entries[at]['error'] * 1.2:.2g}")),
            lambda entries: entries[at].update(error=None),
            lambda entries: entries[0].update(level=entries[0]["level"] - 3),
        ):
            place = copied(tmp_path / "r")
            edit_report(place, lambda report, change=change: change(report["between_areas"]))
            assert any("between areas" in line for line in verify_release(place, release.input))


def test_areas_that_hold_whole_cells_lose_what_is_suppressed_and_no_more():
    flows = flowveil.read_trips(trip_table(400), resolution=8)
    release = flowveil.anonymize(flows, method="suppression", k=3, protect="trips", max_suppressed=0.9)
    share = 1 - release.cells.trips.sum() / flows.trips.sum()
    for one in area_errors([release]):
        assert one.crossing == 0
        assert one.error == pytest.approx(float(share))
        assert np.isclose(one.misplaced, 0)
