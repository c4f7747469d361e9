"""Secret thresholds: k plus an amount that no reader can compute, drawn for every possible cell.

The amount G is geometric: P(G >= j) = 2**-j, with a mean of 1. It is a function of a key, the step
of the search and the codes of the cell's nodes (SipHash-2-4), so the same input gives the same
release. The key is the BLAKE2b hash of the flows, and of the publisher's secret key if one was
given. docs/methods/layercut.md has the proof that nothing about the parts of a cell can be proven.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowveil.core.arrays import AnyArray, Counts, Positions, Words
from flowveil.core.flows import Flows, to_fixed_point
from flowveil.core.hierarchy import Hierarchy
from flowveil.core.secret_key import SecretKey

#: The largest amount: the zero bits of a hash of 64 bits.
LARGEST = 64
#: Constants of SipHash.
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


@dataclass(frozen=True, eq=False, repr=False)
class SecretThresholds:
    """Draws the secret amounts of a run."""

    _key: tuple[int, int]

    @classmethod
    def from_flows(cls, flows: Flows, key: SecretKey | None = None) -> SecretThresholds:
        """Derives the key from the flows and, if it is given, the publisher's key."""
        digest = hashlib.blake2b(digest_size=16) if key is None else key.hasher()
        for tree, leaf in flows.ends:
            digest.update(node_words(tree)[tree.leaf_node[leaf]].astype("<u8").tobytes())
        columns: list[Any] = [flows.trips, *flows.added().values()]
        if flows.people is not None:
            columns.append(flows.people.count(len(flows)))
        for column in columns:
            digest.update(b"none" if column is None else _whole(column).tobytes())
        half = digest.digest()
        return cls((int.from_bytes(half[:8], "little"), int.from_bytes(half[8:], "little")))

    def amounts(self, step: int | Positions, nodes: Sequence[Words]) -> Counts:
        """Returns the amount of each cell in a step of the search, from the words of its nodes.

        One step for all cells, or one for each.
        """
        label = np.full(len(nodes[0]), step, dtype=np.uint64)
        return trailing_zeros(siphash(self._key, [label, *nodes]))

    def __repr__(self) -> str:
        return "<SecretThresholds>"


def node_words(tree: Hierarchy) -> Words:
    """Returns a number for each node that depends on its code alone."""
    if tree.code.dtype == np.uint64:
        return tree.code
    hashes = (hashlib.blake2b(code.encode(), digest_size=8).digest() for code in tree.code.tolist())
    return np.frombuffer(b"".join(hashes), dtype="<u8").astype(np.uint64)


def _whole(column: AnyArray) -> AnyArray:
    whole = column if column.dtype.kind in "iu" else to_fixed_point(column)
    return whole.astype("<i8")


def trailing_zeros(words: Words) -> Counts:
    """Returns the number of zero bits below the lowest bit that is set; 64 for zero."""
    lowest = words & (~words + np.uint64(1))
    return np.bitwise_count(lowest - np.uint64(1)).astype(np.int64)


def siphash(key: tuple[int, int], words: Sequence[Words]) -> Words:
    """Returns SipHash-2-4 of messages of whole words, one message for each position."""
    state = [
        np.full(len(words[0]), start ^ key[half % 2], dtype=np.uint64)
        for half, start in enumerate(_START)
    ]
    length = np.full(len(words[0]), (8 * len(words) % 256) << 56, dtype=np.uint64)
    for word in (*words, length):
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    _rounds(state, 4)
    return np.asarray(state[0] ^ state[1] ^ state[2] ^ state[3])


def _rounds(state: list[Words], number: int) -> None:
    for _ in range(number):
        _add_rotate(state, 0, 1, 13, 32)
        _add_rotate(state, 2, 3, 16, 0)
        _add_rotate(state, 0, 3, 21, 0)
        _add_rotate(state, 2, 1, 17, 32)


def _add_rotate(state: list[Words], left: int, right: int, bits: int, half: int) -> None:
    state[left] += state[right]
    state[right] = _rotated(state[right], bits)
    state[right] ^= state[left]
    if half:
        state[left] = _rotated(state[left], half)


def _rotated(words: Words, bits: int) -> Words:
    rotated = words << np.uint64(bits)
    rotated |= words >> np.uint64(64 - bits)
    return rotated
