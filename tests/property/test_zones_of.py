"""The zones of an earlier release on random new trips, against the obvious recount.

And verified.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import h3.api.basic_str as h3
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil import InfeasibleError, anonymize, freeze, read_trips
from reference.zones_of import recounted, recounted_layers
from samples.drafts import unchecked
from samples.verified import findings_of

#: Two neighbourhoods in one base cell, a pentagon, and one on the other side of the earth.
PLACES = [
    h3.latlng_to_cell(48.85, 2.35, 2),
    h3.latlng_to_cell(48.2, 4.0, 2),
    sorted(h3.get_pentagons(2))[0],
]
NEAR = [tile for place in PLACES[:2] for tile in sorted(h3.cell_to_children(place, 4))[::6]]
FAR = [tile for place in PLACES[2:] for tile in sorted(h3.cell_to_children(place, 4))[::9]]
trips_near = st.lists(
    st.tuples(st.sampled_from(NEAR), st.sampled_from(NEAR)), min_size=12, max_size=60
)
trips_anywhere = st.lists(
    st.tuples(st.sampled_from(NEAR + FAR), st.sampled_from(NEAR + FAR)), min_size=8, max_size=60
)
K = 3


def flows_of(trips, *, same_zones):
    table = pa.table({"o": [o for o, _ in trips], "d": [d for _, d in trips]})
    return read_trips(
        table, origin_tile="o", destination_tile="d", resolution=4, same_zones=same_zones
    )


def cells_of(release):
    rows = release.flows.to_pylist()
    layered = release.kind == "layered"
    return {
        (row["origin_zone"], row["destination_zone"], *([row["layer"]] if layered else [])): row[
            "trips"
        ]
        for row in rows
    }


# Every example is two releases and a recount.
@settings(max_examples=14, deadline=None)
@given(
    trips_near,
    trips_anywhere,
    st.sampled_from(
        ["twincut", "odkanon", "suppression", "paircut", "atg-dual", "layercut", "layercut"]
    ),
    st.sampled_from(["h3", "halves"]),
    st.booleans(),
)
def test_new_trips_are_recounted_over_the_earlier_zones(
    earlier, later, method, hierarchy, same_zones
):
    nested = method in ("paircut", "atg-dual", "layercut")
    how = {"same_zones": same_zones and not nested}
    with tempfile.TemporaryDirectory() as place:
        folder, new = Path(place) / "earlier", Path(place) / "new"
        try:
            with unchecked():
                anonymize(flows_of(earlier, **how), method, k=K, hierarchy=hierarchy).write(folder)
        except InfeasibleError:
            return
        frozen, halves = freeze(folder), hierarchy == "halves"
        flows = flows_of(later, **how)
        zones = [set(frozen.zones(end)) for end in ("origin", "destination")]
        if nested:
            expected = recounted_layers(later, set(frozen.cells), k=K, halves=halves)
            if method != "layercut":
                expected = {cell[:2]: n for cell, n in expected.items()}
        else:
            expected = recounted(later, *zones, k=K, halves=halves)
        if not expected:
            with pytest.raises(InfeasibleError):
                anonymize(flows, zones_of=frozen, k=K, max_suppressed=0.999)
            return
        release = anonymize(flows, zones_of=frozen, k=K, max_suppressed=0.999)
        assert cells_of(release) == expected
        with unchecked():
            release.write(new)
        assert findings_of(new, flows, zones_of=folder) == []
