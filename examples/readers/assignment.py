"""Assign a released OMX matrix to a network with AequilibraE, and write the volume of each link.

    pip install aequilibrae
    python examples/readers/assignment.py release volumes.csv

A model brings its own network and connects its nodes to the zones of `zones.csv`. Here the network is made of the zones
alone: a node at the centre of each, and roads between each and its five nearest.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from aequilibrae.matrix import AequilibraeMatrix
from aequilibrae.paths import Graph, TrafficAssignment, TrafficClass

release, volumes = map(Path, sys.argv[1:])

# Codes of H3 cells are texts, so rows and columns are numbered 1, 2, ... as in omx_zones.csv. Codes that are whole
# numbers would be the index themselves. 0 is "not published".
demand = AequilibraeMatrix()
demand.load(str(release / "flows.omx"))
demand.computational_view(["trips"])
codes = pd.read_csv(release / "omx_zones.csv").set_index("zone")["row"]
zones = pd.read_csv(release / "zones.csv").assign(index=lambda table: table["zone"].map(codes)).sort_values("index")
assert zones["index"].tolist() == demand.index.tolist(), "both ends need the same zones: --same-zones"

# The network: nodes 1001, 1002, ... at the centres, joined to the centroids 1, 2, ... by connectors.
n = len(zones)
east = np.radians(zones["lon"].to_numpy()) * np.cos(np.radians(zones["lat"].mean()))
north = np.radians(zones["lat"].to_numpy())
km = 6371 * np.hypot(east[:, None] - east, north[:, None] - north)
ring = np.column_stack((np.arange(n), (np.arange(n) + 1) % n))  # makes sure that every node can be reached
nearest = np.column_stack((np.repeat(np.arange(n), 5), np.argsort(km, axis=1, kind="stable")[:, 1:6].ravel()))
roads = np.unique(np.sort(np.concatenate((ring, nearest)), axis=1), axis=0)
centroids = np.arange(1, n + 1)
network = pd.DataFrame(
    {
        "a_node": np.concatenate((centroids, roads[:, 0] + 1001)),
        "b_node": np.concatenate((centroids + 1000, roads[:, 1] + 1001)),
        "direction": 0,
    }
)
network["link_id"] = np.arange(1, len(network) + 1)
minutes = np.concatenate((np.full(n, 1.0), km[roads[:, 0], roads[:, 1]] / 50 * 60))
network["free_flow_time_ab"] = network["free_flow_time_ba"] = minutes
network["capacity_ab"] = network["capacity_ba"] = np.concatenate((np.full(n, 1e6), np.full(len(roads), 1500.0)))

graph = Graph()
graph.network = network
graph.prepare_graph(centroids)
graph.set_graph("free_flow_time")
graph.set_blocked_centroid_flows(True)

assignment = TrafficAssignment()
assignment.set_classes([TrafficClass("car", graph, demand)])
assignment.set_vdf("BPR")
assignment.set_vdf_parameters({"alpha": 0.15, "beta": 4.0})
assignment.set_capacity_field("capacity")
assignment.set_time_field("free_flow_time")
assignment.set_algorithm("bfw")
assignment.max_iter, assignment.rgap_target = 100, 1e-3
assignment.execute(log_specification=False)

result = network[["link_id", "a_node", "b_node"]].merge(assignment.results()["PCE_tot"].rename("trips"), on="link_id")
result.to_csv(volumes, index=False)
connectors = result["a_node"] <= n
published = demand.get_matrix("trips")
between = float(published.sum() - np.trace(published))
print(f"{between:,.0f} trips between zones assigned to {len(roads)} roads in {volumes}")
# Every trip between two zones uses one connector at either end.
assert np.isclose(result.loc[connectors, "trips"].sum(), 2 * between)
