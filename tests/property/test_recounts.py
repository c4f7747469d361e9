"""The recount finds what a slow one finds, on random cells over random trips."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil.verify.recount import recount
from reference.recount import ancestors, problems
from samples.recounted import PARENTS, TILES, trips_of, write_folder

ZONES = sorted(PARENTS)
trips = st.fixed_dictionaries(
    {
        "origin": st.sampled_from(TILES),
        "destination": st.sampled_from(TILES),
        "person": st.one_of(st.none(), st.integers(0, 5)),
        "weight": st.integers(0, 3_000_000),
    }
)


@st.composite
def worlds(draw):
    """Trips, and cells around them with right numbers.

    Some are changed, removed or doubled afterwards.
    """
    rows = draw(st.lists(trips, min_size=3, max_size=40))
    lift = draw(st.fixed_dictionaries({zone: st.integers(0, 3) for zone in TILES}))
    layered = draw(st.booleans())
    groups: dict[tuple, list] = {}
    for row in rows:
        pair = tuple(
            ancestors(row[end], PARENTS)[min(lift[row[end]], len(ancestors(row[end], PARENTS)) - 1)]
            for end in ("origin", "destination")
        )
        groups.setdefault((*pair, draw(st.integers(1, 2)) if layered else 0), []).append(row)
    cells = []
    for (origin, destination, layer), own in sorted(groups.items()):
        if draw(st.integers(0, 3)) == 0 and len(groups) > 1:
            continue
        cell = {"origin_zone": origin, "destination_zone": destination, "trips": len(own)}
        cell["weight"] = sum(row["weight"] for row in own) / 1_000_000
        cells.append({**cell, **({"layer": layer} if layered else {})})
    if cells and draw(st.booleans()):
        changed = draw(st.sampled_from(cells))
        changed["trips"] += draw(st.sampled_from([0, 1]))
    return rows, cells


@settings(max_examples=120, deadline=None)
@given(
    worlds(),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from(["trips", "people", "population", "locations"]),
)
def test_a_slow_recount_agrees(world, homogeneous, k, unit):
    rows, cells = world
    if not cells:
        return
    layered = "layer" in cells[0]
    guarantee = {"k": k, "trips": 1, unit: k * 10**6 if unit == "population" else k}
    least = {name: value for name, value in guarantee.items() if name != "k"}
    # Trips are protected by k itself.
    guarantee["trips"] = least["trips"] = k
    wrong = problems(cells, rows, PARENTS, least, homogeneous=homogeneous and not layered)
    stated = {
        **guarantee,
        **({"population": guarantee["population"] / 10**6} if unit == "population" else {}),
    }
    raw = trips_of(rows)
    with tempfile.TemporaryDirectory() as place:
        folder = write_folder(
            Path(place), cells, raw, stated, homogeneous=homogeneous and not layered
        )
        if unit == "population":
            _give_population(folder, stated["population"])
        found = recount(folder, raw).findings
    assert bool(found) == bool(wrong), (found, wrong)


def _give_population(folder, least):
    import json

    report = json.loads((folder / "report.json").read_text())
    report["parameters"]["k_population"] = least
    (folder / "report.json").write_text(json.dumps(report))
