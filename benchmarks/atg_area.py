"""ATG with the area of a zone in tiles, as its paper has it, and with the H3 resolution number in
its place.

The ODkAnon papers report ATG as coarser than ODkAnon. The program that is published with them takes
the resolution number of a cell for its area. Finer cells have larger numbers, so the finest zone is
the dearest: the cost is upside down. Here both areas go through the same search, on the same flows:
only the sizes that it reads are exchanged. What comes out is measured in tiles for both. k = 10
trips, at most 10 % suppressed.

    python -m benchmarks atg_area
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import flowveil
from benchmarks.tables import DATA, H3_SETS
from flowveil.core.arrays import Ints
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods.pruning import PairTree, best_cut, dual_multiplier
from flowveil.publishing.release import Release
from flowveil.reading.sources.synthetic import synthetic_survey
from flowveil.release.plan import NodeZones, Plan
from flowveil.zoning.h3 import resolution_of

K, LIMIT = 10, 0.1
#: The cells that the ODkAnon authors' scripts keep.
CENTRAL_PARIS = "861fb4667ffffff,861fb4677ffffff,861fb466fffffff,861fb4647ffffff,861fb475fffffff"
#: The thesis has 1,000 for Paris and Porto.
TARGETS: tuple[Any, ...] = ("auto", 1000.0)


def main() -> None:
    print("| data | method | area of a zone | v_target | Ḡ | zones (o × d) | cells | suppressed |")
    print("|---|---|---|---:|---:|---|---:|---:|")
    trips = synthetic_survey()
    print_rows("synthetic survey", flowveil.read_trips(trips, resolution=10))
    print_rows(
        "synthetic survey, central Paris",
        flowveil.read_trips(trips, resolution=10, within=CENTRAL_PARIS),
    )
    for name, (path, how) in H3_SETS.items() if DATA.is_dir() else ():
        print_rows(name, flowveil.read_trips(DATA / path, **how))


def print_rows(name: str, flows: flowveil.Flows) -> None:
    """The rows of one data set."""
    asked: dict[str, Any] = {"k": K, "protect": "trips", "max_suppressed": LIMIT}
    for budget in ("rows", "volume"):
        release = flowveil.anonymize(flows, "odkanon", **asked, budget=budget)
        print(_row(name, f"ODkAnon, budget of {budget}", "", "", release), flush=True)
    for target in TARGETS:
        tiles = flowveil.anonymize(flows, "atg-dual", **asked, v_target=target)
        found = tiles.plan.notes["v_target"]
        print(_row(name, "ATG-Dual", "tiles", f"{found:,.0f}", tiles), flush=True)
        # The same target for both: with the other area there is nothing that could be balanced.
        print(
            _row(
                name, "ATG-Dual", "resolution number", f"{found:,.0f}", by_resolution(flows, found)
            ),
            flush=True,
        )


def by_resolution(flows: flowveil.Flows, target: float) -> Release:
    """What ATG-Dual makes where the resolution number of a cell is taken for its area.

    The steps and their code are those of `flowveil.methods.atg`. The release is over the unrefined
    trees, so it is recounted and measured like any other.
    """
    guarantee = flowveil.Guarantee.resolve(flows, k=K, protect="trips")
    tree = flows.origins
    emitted = np.bincount(flows.origin, weights=flows.trips, minlength=tree.n_tiles)
    cut = best_cut(tree, (tree.sum_over(emitted) - target) ** 2)
    zone = tree.zone_of_tile(cut)[flows.origin]
    pairs = PairTree.from_flows(
        flows,
        guarantee,
        zone=zone,
        zone_size=_resolutions(tree)[cut],
        tile=flows.destination,
        tree=_with_resolutions(flows.destinations),
    )
    multiplier = dual_multiplier(pairs, LIMIT * float(flows.trips.sum()))
    assert multiplier is not None
    node, kept = pairs.nodes(multiplier)
    used, place = np.unique(flows.destinations.narrowest[node], return_inverse=True)
    plan = Plan(
        origin_zone=zone,
        destination_zone=place.astype(np.int32),
        kept=kept,
        origin_zones=NodeZones(tree, cut),
        destination_zones=NodeZones(flows.destinations, used.astype(np.int32)),
        homogeneous=False,
    )
    return Release.from_plan(flows, plan, guarantee, method="atg-dual", parameters={})


def _resolutions(tree: Hierarchy) -> Ints:
    """The resolution of each node.

    0 above several base cells, which is coarser than all others here.
    """
    return np.where(tree.code == 0, 0, resolution_of(tree.code)).astype(np.int32)


def _with_resolutions(tree: Hierarchy) -> Hierarchy:
    """The same tree, whose nodes have their resolution for a size."""
    other = replace(tree)
    # What is worked out at the first call is put there before it.
    other.__dict__["size"] = _resolutions(tree)
    return other


def _row(name: str, method: str, area: str, target: str, release: Release) -> str:
    measures = release.metrics()["trips"]
    zones = f"{measures['n_origin_zones']:,} × {measures['n_destination_zones']:,}"
    error, gone = measures["mean_generalization_error"], measures["suppressed_share"]
    return (
        f"| {name} | {method} | {area} | {target} | {error:,.1f} | {zones} |"
        f" {measures['n_cells']:,} | {gone:.1%} |"
    )


if __name__ == "__main__":
    main()
