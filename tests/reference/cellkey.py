"""Cell keys, record by record and number by number."""

from __future__ import annotations

import hmac
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scipy.optimize import minimize

WHOLE = 2**32


def record_key(secret: bytes, values: Iterable[str]) -> int:
    """The key of a record with these values, by Python's HMAC."""
    message = "".join(["record", *(f"\x1f{value}" for value in values)])
    return int.from_bytes(hmac.new(secret, message.encode(), "sha256").digest()[:4])


def mixed(key: int) -> int:
    """The finaliser of MurmurHash3."""
    key ^= key >> 16
    key = key * 0x85EBCA6B % WHOLE
    key ^= key >> 13
    key = key * 0xC2B2AE35 % WHOLE
    return key ^ (key >> 16)


def distribution(count: int, maximum: int, variance: float, small: int) -> dict[int, float]:
    """The distribution of the largest entropy, by a general optimiser over the probabilities themselves."""
    noise = [x for x in range(-maximum, maximum + 1) if count + x == 0 or count + x > small]
    limits = (
        {"type": "eq", "fun": lambda p: sum(p) - 1},
        {"type": "eq", "fun": lambda p: sum(x * q for x, q in zip(noise, p, strict=True))},
        {"type": "eq", "fun": lambda p: sum(x * x * q for x, q in zip(noise, p, strict=True)) - variance},
    )
    found = minimize(
        lambda p: sum(q * math.log(max(q, 1e-300)) for q in p),
        [1 / len(noise)] * len(noise),
        bounds=[(0, 1)] * len(noise),
        constraints=limits,
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    return dict(zip(noise, found.x.tolist(), strict=True))


def perturbed(count: int, key: int, table: Sequence[Sequence[int]]) -> int:
    """The published count of a cell: the noise at which the running sum of its row exceeds the key."""
    if count == 0:
        return 0
    row = table[min(count, len(table)) - 1]
    running, maximum = 0, len(row) // 2
    for x, share in enumerate(row):
        running += share
        if mixed(key) < running:
            return count + x - maximum
    raise AssertionError("a row of the table is not complete")


def cells(rows: Iterable[tuple[Any, Any, int, int]], zone_of: Mapping[Any, Any]) -> dict[tuple[Any, Any], list[int]]:
    """Trips and keys of each pair of zones, from rows of origin, destination, trips and key."""
    found: dict[tuple[Any, Any], list[int]] = defaultdict(lambda: [0, 0])
    for origin, destination, trips, key in rows:
        cell = found[zone_of[origin], zone_of[destination]]
        cell[0] += trips
        cell[1] = (cell[1] + key) % WHOLE
    return dict(found)
