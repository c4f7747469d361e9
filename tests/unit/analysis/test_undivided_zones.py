"""What zones that were not divided say of their parts.

Planted leaks are found, and certain conclusions hold.
"""

from __future__ import annotations

import h3
import numpy as np
import pyarrow as pa
import pytest

from flowveil import anonymize, read_trips
from flowveil import audit_releases as audit
from flowveil.analysis.shadow_releases import _score, _shown_nodes, minimality
from flowveil.core.errors import InfeasibleError
from flowveil.verify.audit.published import published_release
from flowveil.verify.audit.trips import cells_containing
from reference.minimality import short_parts
from samples.drafts import unchecked


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """An audit needs the files, not their recount."""
    with unchecked():
        yield


ABOVE = h3.latlng_to_cell(48.85, 2.35, 7)
TILES = sorted(h3.cell_to_children(ABOVE, 9))
PLACE = {"lat": 48.85, "lon": 2.35}


def table(counts):
    """n trips between two tiles, each by another person."""
    rows = [pair for pair, n in counts.items() for _ in range(n)]
    return pa.table(
        {
            "from_h3": [TILES[o] for o, _ in rows],
            "to_h3": [TILES[d] for _, d in rows],
            "person": [f"p{i}" for i in range(len(rows))],
        }
    )


def read(counts, **how):
    return read_trips(table(counts), origin_tile="from_h3", destination_tile="to_h3", **how)


def published(release):
    return published_release(release.flows, release.zones, release.summary())


#: Tiles 0 to 6 are siblings. Were it not for tile 1, the origins would be divided.
LEAK = {(0, 8): 40, (1, 8): 4, (2, 8): 30}


@pytest.mark.parametrize("method", ["twincut", "paircut"])
def test_the_part_that_kept_a_zone_whole_is_found(method):
    flows = read(LEAK)
    # With secret thresholds a zone says nothing of its parts.
    exact = {"secret_thresholds": False} if method == "paircut" else {}
    release = published(anonymize(flows, method, 10, "trips", 0.0, hierarchy="h3", **exact))
    alone = minimality(release)
    assert (alone.certain, alone.blocked, alone.share) == (1, None, 0.5)
    found = minimality(release, flows, tries=5)
    assert (found.blocked, found.short, found.tried, found.divided, found.confined) == (
        1,
        1,
        1,
        1,
        1,
    )


def test_nothing_is_given_away_where_no_part_is_short_or_nothing_was_chosen(tmp_path):
    flows = read({(0, 8): 40, (2, 8): 30})
    release = anonymize(flows, "twincut", 10, "trips", 0.0, hierarchy="h3")
    found = minimality(published(release), flows, tries=5)
    assert (found.certain, found.blocked, found.tried, found.share) == (0, 0, 0, 0)
    # The same zones over other trips, some of whose parts are short: the zones owe nothing to them.
    anonymize(read(LEAK), "twincut", 10, "trips", 0.0, hierarchy="h3").write(tmp_path / "earlier")
    anonymize(read(LEAK), zones_of=tmp_path / "earlier", k=10, protect="trips").write(
        tmp_path / "kept"
    )
    one = audit([tmp_path / "kept"], against=table(LEAK), shadows=2).releases[0]
    assert (one.minimality.short, one.minimality.share) == (1, 0)
    # Persons are known, and the kept zones can be recounted without one of them.
    assert one.membership.shadows == 40


def test_an_audit_fails_on_what_the_choice_of_zones_gives_away(tmp_path):
    anonymize(read(LEAK), "twincut", 10, "trips", 0.0, hierarchy="h3").write(tmp_path / "all")
    assert audit([tmp_path / "all"], fail_on={"minimality": 0.4}).failures == [
        "Minimality is 0.5, above 0.4."
    ]
    anonymize(read(LEAK), "twincut", 10, "trips", 0.01, hierarchy="h3").write(tmp_path / "some")
    # Where something may be suppressed, the folder alone says nothing: the method has to be run.
    assert (
        audit([tmp_path / "some"], fail_on={"minimality": 0.4})
        .failures[0]
        .endswith("was not computed.")
    )
    tried = audit([tmp_path / "some"], against=table(LEAK), shadows=2, fail_on={"minimality": 0.4})
    assert tried.failures == ["Minimality is 0.5, above 0.4."]


@pytest.mark.parametrize("seed", range(6))
def test_parts_are_those_counted_one_by_one_and_what_is_certain_holds(seed):
    random = np.random.default_rng(seed)
    counts = {
        (int(o), int(d)): int(random.integers(1, 14)) for o, d in random.integers(0, 14, (25, 2))
    }
    method, hierarchy = random.choice(["twincut", "paircut"]), str(random.choice(["h3", "halves"]))
    limit = float(random.choice([0.0, 0.2]))
    try:
        release = anonymize(read(counts), str(method), 5, "trips", limit, hierarchy=hierarchy)
    except InfeasibleError:
        pytest.skip("nothing can be published")
    found, slow = minimality(published(release), release.input), short_parts(release, 5)
    assert (found.blocked, found.short) == (len(slow), sum(slow.values()))
    if limit == 0:
        # Of every zone with several tiles in use that is in one cell, and of every nested cell of
        # one, a part is short.
        plan, cells, concluded = release.plan, release.cells, set()
        for end, (zones, own) in enumerate(
            ((plan.origin_zones, cells.origin), (plan.destination_zones, cells.destination))
        ):
            several = np.flatnonzero(
                (zones.size[own] > 1) & (not plan.homogeneous or np.bincount(own)[own] == 1)
            )
            concluded |= {
                (end, int(zones.nodes[own[c]]) if plan.homogeneous else int(c)) for c in several
            }
        assert concluded <= set(slow)
        assert found.certain >= len(concluded)


def test_membership_places_trips_in_the_first_layer_that_publishes_a_cell_around_them():
    rng, n = np.random.default_rng(1), 1500
    ends = {
        f"{end}_{axis}": at + 0.03 * rng.standard_normal(n)
        for end in ("start", "end")
        for axis, at in PLACE.items()
    }
    flows = read_trips(pa.table({**ends, "person": rng.integers(0, 300, n)}), resolution=9)
    release = anonymize(flows, "layercut", k=10, protect="trips", hierarchy="h3")
    deepest = cells_containing(flows, _shown_nodes(release), np.arange(len(flows)))
    differing = np.flatnonzero((release.cell_of_flow >= 0) & (deepest != release.cell_of_flow))
    people = flows.people
    everybody, (one, *_) = np.unique(people.person), people.person[np.isin(people.cell, differing)]
    cell = release.cell_of_flow[people.cell[people.person == one]]
    volume = release.cells.trips[np.maximum(cell, 0)]
    expected = float(np.sum(np.where(cell >= 0, people.trips[people.person == one] / volume, 0.0)))
    assert _score(published(release), flows, everybody, one) == pytest.approx(expected)
