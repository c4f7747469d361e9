"""Whether counts that were made to fit from the top down can be what they are said to be: counted trips with noise.

The correction mixes the draws of a family (the pairs below one pair of coarser zones), so single draws cannot be
recovered, and the questions of `flowveil.verify.law` cannot be asked. Two others can, each with a bound that holds for
any number of pairs.

**Exact families.** The published count of a pair above zero is its count plus its draw minus a number t of its family,
plus 0 or 1. So where all m pairs of a family that have trips are published exactly, their draws lie among two
neighbouring numbers, t - 1 and t. For fixed t that has a chance of (p(t - 1) + p(t))**m; summed over all t, 2 p**(m -
1) at most, p being the chance of the likeliest two neighbours, 0 and 1. That event depends on the family's own draws
alone, so families are independent; and for independent events of chances π the sum of log(1 / π) / 2 over those that
happen exceeds log(1 / α) + sum(log(1 + sqrt(π))) with a chance of α at most (Markov's inequality for exp of it).

**The total.** The published counts sum to the first noisy number, which is off by one draw of the first step.

A part of a family serves as well as all of it, so where the tree is ragged only what surely belongs together is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_cells
import numpy as np

from flowveil.verify.database import Database
from flowveil.verify.law import FALSE_ALARM, QUESTIONS, Zones, columns_of, load_pairs

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy


def check_walk(promise: Mapping[str, Any], flows: Flows, db: Database) -> Iterator[str]:
    """Findings on the published numbers of a release made from the top down, against the raw flows.

    Args:
        promise: what the report says of the noise; its numbers are in their ranges.
        flows: the flows it was made from.
        db: with ``published_rows``.
    """
    import pyarrow as pa

    zones = [Zones.of(flows, tree, promise["domain"]) for tree in (flows.origins, flows.destinations)]
    load_pairs(db, promise, flows, zones)
    above = _parents(flows, promise["domain"], set().union(*(end.every for end in zones)))
    db.store("above", pa.table({"zone": pa.array(list(above), pa.string()), "up": pa.array(list(above.values()))}))
    first, last = promise["steps"][0], promise["steps"][-1]
    for count in ("c", "raw"):
        size, exact = columns_of(
            db,
            f"SELECT count(*) AS m, count(*) FILTER (y = {count}) AS e FROM counted "
            "LEFT JOIN (SELECT origin_zone AS o, destination_zone AS d, trips AS y FROM published_rows) USING (o, d) "
            "JOIN above a ON a.zone = o JOIN above b ON b.zone = d WHERE c > 0 GROUP BY a.up, b.up",
        )
        two = _likeliest_two(last["scale"], gaussian="rho" in promise)
        if len(promise["steps"]) > 1 and _too_exact(size, exact == size, two):
            yield "flows.parquet: more counts are exact than noise of this scale leaves: these are counts, not noise"
            return
    published, counted = (
        db.one(f"SELECT coalesce(sum({column}), 0) FROM {table}")
        for column, table in (("trips", "published_rows"), ("c", "counted"))
    )
    off = abs(published - counted)
    rare = math.log(2 * QUESTIONS / FALSE_ALARM)
    if off > first["scale"] * (math.sqrt(2 * rare) if "rho" in promise else rare):
        yield "flows.parquet: the published trips sum to more or less than noise on the whole leaves"


def _likeliest_two(scale: float, *, gaussian: bool = False) -> float:
    """The chance of a draw of 0 or 1; of the Gaussian law, a number that is not below it."""
    if not gaussian:
        return -math.expm1(-1 / scale)
    one = math.exp(-1 / (2 * scale**2))
    # The weights of all numbers sum to at least those of three of them, and to at least the integral.
    return min(1.0, (1 + one) / max(1 + 2 * one, scale * math.sqrt(2 * math.pi)))


def _too_exact(size: Any, exact: Any, two: float) -> bool:
    """Whether more families are exact than chance allows."""
    log_chance = np.minimum(0.0, math.log(2) + (size - 1) * math.log(two))
    allowed = math.log(QUESTIONS / FALSE_ALARM) + float(np.sum(np.log1p(np.exp(log_chance / 2))))
    return float(np.sum(-log_chance[exact])) / 2 > allowed


def _parents(flows: Flows, domain: Mapping[str, Any], zones: set[str]) -> dict[str, str]:
    """The zone above each zone on the step before the last; the zone itself where it may have stood there already."""
    tree = flows.origins
    if tree.kind == "h3" and tree.code.dtype == np.uint64:
        region, level = set(domain.get("region", ())), int(domain["level"])
        lifted = {z: h3_cells.cell_to_parent(int(z, 16), max(0, level - 1)) for z in zones}
        return {z: z if z in region else f"{up:x}" for z, up in lifted.items()}
    return _parents_on_map(tree if flows.whole_map is None else flows.whole_map, zones)


def _parents_on_map(tree: Hierarchy, zones: set[str]) -> dict[str, str]:
    codes = tree.code_text(np.arange(tree.n_nodes, dtype=np.int32)).tolist()
    node = {code: i for i, code in enumerate(codes) if code in zones}
    deepest = max(int(tree.depth[i]) for i in node.values())
    return {z: codes[int(tree.parent[i])] if 0 < tree.depth[i] == deepest else z for z, i in node.items()}
