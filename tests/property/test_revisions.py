"""Revisions of random releases against the obvious rule, and verified.

Whatever was published before stays covered.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil import InfeasibleError, anonymize, anonymize_slices, read_slices, read_trips
from flowveil.zoning.files import read_zones

TILES = ["A", "B", "C"]
MAP = read_zones(pa.table({"tile": TILES, "parent": ["all"] * 3}), root="all")
K = 3
trips = st.lists(
    st.tuples(st.sampled_from(TILES), st.sampled_from(TILES), st.integers(0, 5)),
    min_size=6,
    max_size=45,
)


def flows_of(rows):
    table = pa.table(
        {"o": [r[0] for r in rows], "d": [r[1] for r in rows], "p": [f"p{r[2]}" for r in rows]}
    )
    return read_trips(table, zones=MAP, origin_tile="o", destination_tile="d", person="p")


def cells_of(rows):
    return {pair: [r for r in rows if r[:2] == pair] for pair in {r[:2] for r in rows}}


def cells_in_layers(rows, listed):
    """The trips of each published cell: those of its tiles that no cell of an earlier layer has."""
    found = {cell: [] for cell in listed}
    for row in rows:
        around = [
            c
            for c in listed
            if all(zone in (tile, "all") for zone, tile in zip(c[:2], row[:2], strict=True))
        ]
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
            fine = all(
                change == 0 or (change > 0 and fewest_people(here, change) >= K)
                for change in changes
            )
        if fine:
            shown[pair] = (len(here), True)
    return shown


@settings(max_examples=6, deadline=None)
@given(trips, trips, trips, st.sampled_from(["trips", "people"]))
def test_a_revision_shows_changes_that_reach_the_guarantee_and_no_others(
    first, second, third, protect
):
    asked = {"k": K, "protect": protect, "max_suppressed": 0.999}
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / name for name in ("first", "second", "third")]
        try:
            anonymize(flows_of(first), "suppression", **asked).write(folders[0])
        except InfeasibleError:
            return
        chain = [
            {pair: len(rows) for pair, rows in cells_of(first).items() if is_safe(rows, protect)}
        ]
        for n, rows in ((1, [*first, *second]), (2, [*first, *second[::2], *third])):
            release = anonymize(flows_of(rows), revision=folders[:n], **asked)
            listed = release.flows.to_pylist()
            found = {
                (r["origin_zone"], r["destination_zone"]): (r["trips"], r["revised"])
                for r in listed
            }
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
            marked = dict(
                zip(values_of(release), release.flows["revised"].to_pylist(), strict=True)
            )
            found = {cell: (value, marked[cell]) for cell, value in values_of(release).items()}
            now = {cell: own for cell, own in cells_in_layers(rows, list(chain[-1])).items() if own}
            assert found == expected(chain, now, protect)
            release.write(folders[n])
            chain.append(values_of(release))


SLICED = {
    "separate zones": {"method": "suppression"},
    "nested zones": {"method": "paircut"},
    "common zones": {"common_zones": True},
    "common layers": {"method": "layercut", "common_zones": True},
}


@settings(max_examples=16, deadline=None)
@given(trips, trips, st.sampled_from(["trips", "people"]), st.sampled_from(sorted(SLICED)))
def test_slices_are_revised_like_single_matrices(first, second, protect, kind):
    asked = {"k": K, "protect": protect, "max_suppressed": 0.999, "allow_small_k": True}

    def flows_of(rows):
        columns = {
            "o": [r[0] for r in rows],
            "d": [r[1] for r in rows],
            "p": [f"p{r[2]}" for r in rows],
        }
        table = pa.table({**columns, "half": [str(n % 2) for n in range(len(rows))]})
        return read_slices(
            table,
            zones=MAP,
            origin_tile="o",
            destination_tile="d",
            person="p",
            by="half",
            by_many=True,
        )

    later = [*first, *second]
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / name for name in ("first", "second")]
        try:
            anonymize_slices(flows_of(first), **SLICED[kind], **asked).write(folders[0])
            release = anonymize_slices(flows_of(later), revision=folders[0], **asked)
        except InfeasibleError:
            return
        before, after = (
            by_slice(table)
            for table in (pq.read_table(folders[0] / "flows.parquet"), release.flows)
        )
        assert after.keys() == before.keys()
        for half, shown in after.items():
            rows = later[int(half) :: 2]
            zones = {cell[:2] for cell in shown}
            if kind in ("nested zones", "common layers"):
                cells = cells_in_layers(rows, list(before[half]))
            else:
                cells = {(*pair, 0): [r for r in rows if inside(pair, r)] for pair in zones}
            chain = [{cell: value for cell, (value, _) in before[half].items()}]
            now = {cell: own for cell, own in cells.items() if own}
            assert shown == expected(chain, now, protect)
        # Verified before it appears, by an independent recount of what may be revised.
        release.write(folders[1])


def inside(zones, row):
    return all(zone in (tile, "all") for zone, tile in zip(zones, row[:2], strict=True))


def by_slice(table):
    """The trips of each cell and whether they are revised, by slice, then by zones and layer."""
    found = {}
    for r in table.to_pylist():
        cell = (r["origin_zone"], r["destination_zone"], r.get("layer", 0))
        found.setdefault(r["half"], {})[cell] = (r["trips"], r.get("revised", False))
    return found


def values_of(release):
    """The trips of each cell, by its zones and layer."""
    return {
        (r["origin_zone"], r["destination_zone"], r["layer"]): r["trips"]
        for r in release.flows.to_pylist()
    }
