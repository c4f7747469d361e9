"""Flows whose persons are elsewhere, without a cluster: the blocks are in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flowveil.flows import Flows
from flowveil.hierarchy import Ints
from flowveil.remote_people import Counting, Counts, RemotePeople
from flowveil.slices import SlicedFlows


class BlocksHere:
    """Rows of persons in n blocks; the block of a person does not depend on the order of persons."""

    def __init__(self, flow: Ints, person: Ints, *, n_flows: int, n_blocks: int) -> None:
        self.n_flows, self.n_rows = n_flows, len(flow)
        order = np.lexsort((person, flow))
        flow, person = flow[order], person[order]
        block = person * 2654435761 % n_blocks
        self.blocks = [(flow[block == b], person[block == b]) for b in range(n_blocks)]

    def summed(self, counting: Counting, asked: Any) -> Counts:
        return np.sum([counting(flow, person, asked) for flow, person in self.blocks], axis=0)


def distant(flows: Any, *, n_blocks: int = 3) -> Any:
    """The same flows, or slices of flows, with their persons elsewhere."""
    parts = flows.slices if isinstance(flows, SlicedFlows) else (flows,)
    start = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int32)
    flow = np.concatenate([part.people.cell + first for part, first in zip(parts, start[:-1], strict=True)])
    person = np.concatenate([part.people.person for part in parts]).astype(np.int64)
    blocks = BlocksHere(flow, person, n_flows=int(start[-1]), n_blocks=n_blocks)
    moved: list[Flows] = []
    for part, first in zip(parts, start[:-1], strict=True):
        rows = np.arange(len(part), dtype=np.int32)
        moved.append(replace(part, people=RemotePeople(blocks, rows + first, rows)))
    return replace(flows, slices=tuple(moved)) if isinstance(flows, SlicedFlows) else moved[0]
