"""Flows whose persons are elsewhere, without a cluster: the blocks are in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flowveil.core.arrays import Counts, Ints
from flowveil.core.flows import Flows
from flowveil.core.remote_people import Counting, RemotePeople


class BlocksHere:
    """Rows of persons in n blocks.

    The block of a person does not depend on the order of persons.
    """

    def __init__(self, flow: Ints, person: Ints, *, n_flows: int, n_blocks: int) -> None:
        self.n_flows, self.n_rows = n_flows, len(flow)
        order = np.lexsort((person, flow))
        flow, person = flow[order], person[order]
        block = person * 2654435761 % n_blocks
        self.blocks = [(flow[block == b], person[block == b]) for b in range(n_blocks)]

    def summed(self, counting: Counting, asked: Any) -> Counts:
        return np.sum([counting(flow, person, asked) for flow, person in self.blocks], axis=0)


def distant(flows: Flows, *, n_blocks: int = 3) -> Flows:
    """The same flows with their persons elsewhere."""
    blocks = BlocksHere(
        flows.people.cell,
        flows.people.person.astype(np.int64),
        n_flows=len(flows),
        n_blocks=n_blocks,
    )
    rows = np.arange(len(flows), dtype=np.int32)
    return replace(flows, people=RemotePeople(blocks, rows, rows))
