"""Publish a small synthetic survey with every file that the other examples read.

    python examples/readers/make_release.py release

TwinCut with the same zones at both ends: each cell is a count, and rows and columns of the matrix are the same zones.
"""

import sys

import flowveil
from flowveil.reading.sources.synthetic import synthetic_survey

trips = synthetic_survey(people=600)
flows = flowveil.read_trips(trips, resolution=8, same_zones=True)
release = flowveil.anonymize(flows, method="twincut", k=5)
release.write(
    sys.argv[1],
    formats="csv,gpkg,omx",
    title="A week in Île-de-France",
    source="synthetic survey, no real person",
    licence="CC0-1.0",
)
print(f"{release.flows.num_rows} cells between {release.zones.num_rows} zones in {sys.argv[1]}")
