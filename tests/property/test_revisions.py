"""Revisions of random releases against the obvious rule, and verified; whatever was published before stays covered."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil import InfeasibleError, anonymize, read_trips
from flowveil.zoning.files import read_zones

TILES = ["A", "B", "C"]
MAP = read_zones(pa.table({"tile": TILES, "parent": ["all"] * 3}), root="all")
K = 3
trips = st.lists(st.tuples(st.sampled_from(TILES), st.sampled_from(TILES), st.integers(0, 5)), min_size=6, max_size=45)


def flows_of(rows):
    table = pa.table({"o": [r[0] for r in rows], "d": [r[1] for r in rows], "p": [f"p{r[2]}" for r in rows]})
    return read_trips(table, zones=MAP, origin_tile="o", destination_tile="d", person="p")


def cells_of(rows):
    return {pair: [r for r in rows if r[:2] == pair] for pair in {r[:2] for r in rows}}


def cells_in_layers(rows, listed):
    """The trips of each published cell: those of its tiles that no cell of an earlier layer has."""
    found = {cell: [] for cell in listed}
    for row in rows:
        around = [c for c in listed if all(zone in (tile, "all") for zone, tile in zip(c[:2], row[:2], strict=True))]
        if around:
            found[min(around, key=lambda cell: cell[2])].append(row)
    return found


def is_safe(rows, protect):
    return len(rows) >= K if protect == "trips" else len({p for *_, p in rows}) >= K


def fewest_people(rows, n):
    """How many people at least made n of these trips."""
    made = sorted(Counter(p for *_, p in rows).values(), reverse=True)
    return next((m for m in range(len(made) + 1) if sum(made[:m]) >= n), 0)


def expected(chain, cells, protect):
    """What a revision publishes: (value, whether it is new), by the rule of docs/series.md."""
    latest = chain[-1]
    shown = {pair: (value, False) for pair, value in latest.items()}
    for pair, here in cells.items():
        if not is_safe(here, protect) or latest.get(pair) == len(here):
            continue
        changes = [len(here) - before[pair] for before in chain if pair in before]
        if protect == "trips":
            fine = all(change == 0 or abs(change) >= K for change in changes)
        else:
            fine = all(change == 0 or (change > 0 and fewest_people(here, change) >= K) for change in changes)
        if fine:
            shown[pair] = (len(here), True)
    return shown


@settings(max_examples=6, deadline=None)
@given(trips, trips, trips, st.sampled_from(["trips", "people"]))
def test_a_revision_shows_changes_that_reach_the_guarantee_and_no_others(first, second, third, protect):
    asked = {"k": K, "protect": protect, "max_suppressed": 0.999}
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / name for name in ("first", "second", "third")]
        try:
            anonymize(flows_of(first), "suppression", **asked).write(folders[0])
        except InfeasibleError:
            return
        chain = [{pair: len(rows) for pair, rows in cells_of(first).items() if is_safe(rows, protect)}]
        for n, rows in ((1, [*first, *second]), (2, [*first, *second[::2], *third])):
            release = anonymize(flows_of(rows), revision=folders[:n], **asked)
            listed = release.flows.to_pylist()
            found = {(r["origin_zone"], r["destination_zone"]): (r["trips"], r["revised"]) for r in listed}
            assert found == expected(chain, cells_of(rows), protect)
            # Verified before it appears, by an independent recount of what may be revised.
            release.write(folders[n])
            chain.append({pair: value for pair, (value, _) in found.items()})


@settings(max_examples=12, deadline=None)
@given(trips, trips, st.sampled_from(["trips", "people"]))
def test_a_revision_in_layers_keeps_every_cell_and_shows_whole_changes(first, second, protect):
    asked = {"k": K, "protect": protect, "max_suppressed": 0.999}
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / name for name in ("first", "second", "third")]
        try:
            release = anonymize(flows_of(first), "layercut", **asked)
        except InfeasibleError:
            return
        release.write(folders[0])
        chain = [values_of(release)]
        for n, rows in ((1, [*first, *second]), (2, [*first[::2], *second])):
            try:
                release = anonymize(flows_of(rows), revision=folders[:n], **asked)
            except InfeasibleError:
                # A zone without trips, or nothing that reaches the guarantee.
                return
            marked = dict(zip(values_of(release), release.flows["revised"].to_pylist(), strict=True))
            found = {cell: (value, marked[cell]) for cell, value in values_of(release).items()}
            now = {cell: own for cell, own in cells_in_layers(rows, list(chain[-1])).items() if own}
            assert found == expected(chain, now, protect)
            release.write(folders[n])
            chain.append(values_of(release))


def values_of(release):
    """The trips of each cell, by its zones and layer."""
    return {(r["origin_zone"], r["destination_zone"], r["layer"]): r["trips"] for r in release.flows.to_pylist()}
