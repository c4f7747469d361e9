"""Cell keys: every count gets a small, repeatable perturbation that depends on its own records alone.

After the Australian Bureau of Statistics (Fraser and Wooton 2005; docs/methods/cellkey.md). Records have keys
(`flowveil.record_keys`); the key of a cell is their sum modulo 2**32, and with the count looks up the noise in a table
of largest entropy (Giessing 2016). The table follows from public parameters; the secret key of records is the only
secret. 0 stays 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flowveil.errors import DataError, ParameterError, option
from flowveil.flows import Cells, Flows, group_pairs
from flowveil.guarantee import check_whole
from flowveil.hierarchy import Ints
from flowveil.methods.public_domain import PairDomain, pair_domain
from flowveil.record_keys import MODULUS, Keys, sum_keys
from flowveil.release.noisy import NoisyCounts, Perturbation

#: Largest maximum of the noise: the table of every distribution is published.
LARGEST_MAXIMUM = 20
_ITERATIONS = 200


def cellkey(
    flows: Flows, *, maximum: int = 5, variance: float = 3.0, small: int = 2, level: int | None = None
) -> NoisyCounts:
    """Perturbs the count of every pair of zones by its cell key.

    Args:
        flows: flows with record keys.
        maximum: largest absolute perturbation of a count.
        variance: variance of the perturbation of every count.
        small: counts from 1 to this are never published.
        level: level of the zones in their hierarchy (the resolution, for H3); tiles by default.

    Raises:
        ParameterError: no distribution has these properties, the level does not exist, or flows have no record keys.
        DataError: the flows have fractions of trips.
    """
    table = noise_table(maximum, variance, small)
    cumulative = np.cumsum(table, axis=1)
    pairs = KeyedPairs.from_flows(flows, level)
    row = np.minimum(pairs.cells.trips, len(table)) - 1
    key = spread(pairs.keys)
    noise = np.full(len(key), -maximum, dtype=np.int64)
    for column in range(2 * maximum):
        noise += key >= cumulative[row, column]
    return pairs.released(
        pairs.cells.trips + noise,
        "noise from a published table, looked up with the sum of record keys; 0 stays 0",
        maximum=maximum,
        deviation=math.sqrt(variance),
        details={"variance": variance, "small": small, "table": table.tolist()},
    )


def noise_table(maximum: int, variance: float, small: int) -> Keys:
    """Returns how many of all 2**32 cell keys give each noise: a row for each count from 1 on, a column for each noise.

    The last row is that of all larger counts. Every row has mean exactly 0 and no noise that leads below 0 or to a
    count from 1 to ``small``; its variance is the given one within 1e-6. ParameterError if no such distribution exists.
    """
    check_whole("maximum", maximum, most=LARGEST_MAXIMUM)
    check_whole("small", small, least=0, most=LARGEST_MAXIMUM - 2)
    # The tightest rows: 1, which can lose one trip only, and the counts that are never published themselves.
    least, most = max((i * (small + 1 - i) for i in range(1, small + 1)), default=0), maximum
    is_number = isinstance(variance, int | float | np.number) and not isinstance(variance, bool)
    if maximum < small + 2 or not is_number or not least < variance < most:
        raise ParameterError(
            f"variance must be above {least} and below {most} for maximum = {maximum} and small = {small}, and maximum "
            f"at least small + 2; found variance = {variance!r}. Hint: a larger maximum, or a smaller small."
        )
    noise = np.arange(-maximum, maximum + 1)
    rows = []
    for count in range(1, maximum + small + 2):
        after = count + noise
        allowed = (after == 0) | (after > small)
        row = np.zeros(len(noise), dtype=np.int64)
        row[allowed] = _whole_shares(noise[allowed], _largest_entropy(noise[allowed], float(variance)))
        rows.append(row)
    return np.stack(rows)


def _largest_entropy(noise: Ints, variance: float) -> Any:
    """Returns the distribution p(x) ∝ exp(a x + b x²) with mean 0 and this variance, by damped Newton steps."""
    x = np.stack((noise, noise.astype(np.float64) ** 2))
    target, theta = np.array([0.0, variance]), np.zeros(2)

    def dual(theta: Any) -> tuple[float, Any]:
        exponent = theta @ x
        weight = np.exp(exponent - exponent.max())
        return float(np.log(weight.sum()) + exponent.max() - theta @ target), weight / weight.sum()

    value, p = dual(theta)
    for _ in range(_ITERATIONS):
        gradient = x @ p - target
        if np.abs(gradient).max() < 1e-12:
            break
        step = np.linalg.lstsq((x * p) @ x.T - np.outer(x @ p, x @ p), gradient, rcond=None)[0]
        size = 1.0
        while size > 1e-12 and not dual(theta - size * step)[0] <= value:
            size /= 2
        theta = theta - size * step
        value, p = dual(theta)
    if np.abs(x @ p - target).max() > 1e-6:
        raise ParameterError(
            "No table was found for this variance, which is next to its limit. Hint: another variance."
        )
    return p


def _whole_shares(noise: Ints, p: Any) -> Keys:
    """Returns the distribution in whole shares of 2**32, with a sum and a mean that are exact."""
    shares: Keys = np.floor(p * MODULUS).astype(np.int64)
    pairs = np.flatnonzero(np.diff(noise) == 1)
    at = pairs[np.argmax(np.minimum(p[pairs], p[pairs + 1]))]
    rest, mean = MODULUS - int(shares.sum()), -int(noise @ shares)
    # Two neighbouring numbers take what rounding left: rest = a + b, mean = x a + (x + 1) b.
    shares[at + 1] += mean - int(noise[at]) * rest
    shares[at] += rest - (mean - int(noise[at]) * rest)
    return shares


@dataclass(frozen=True, eq=False)
class KeyedPairs:
    """The pairs of zones with trips, their true counts in order, and the sum of the record keys of each."""

    flows: Flows
    domain: PairDomain
    cells: Cells
    keys: Keys

    @classmethod
    def from_flows(cls, flows: Flows, level: int | None) -> KeyedPairs:
        """Counts the pairs of zones of a level, and sums their keys."""
        if flows.keys is None:
            raise ParameterError(
                f"This method needs record keys. Hint: {option('key_file')} FILE; flowveil key FILE writes a new key."
            )
        if flows.trips.dtype != np.int64:
            raise DataError("Whole trips are perturbed, and the input has fractions. Hint: use a method that keeps k.")
        domain = pair_domain(flows, level, None, listed=False)
        ends = domain.origins.zone[flows.origin], domain.destinations.zone[flows.destination]
        group = group_pairs(*ends, len(domain.origins.zones), len(domain.destinations.zones))
        cells = Cells(group.origin, group.destination, group.sum(flows.trips))
        return cls(flows, domain, cells, sum_keys(group.row, flows.keys, len(cells)))

    def released(
        self, counts: Keys, mechanism: str, *, maximum: int, deviation: float, details: Mapping[str, Any]
    ) -> NoisyCounts:
        """Returns the result of a method: the perturbed counts above 0.

        ``mechanism`` says how counts are perturbed; ``maximum`` and ``deviation`` are the largest absolute perturbation
        and its standard deviation; ``details`` are further parameters of the guarantee.
        """
        flows, listed = self.flows, counts > 0
        pairs = "those with trips whose perturbed count is above 0"
        described = {"level": self.domain.described["level"], "pairs": pairs, "zones_from_data": True}
        return NoisyCounts(
            plan=self.domain.plan(flows),
            cells=Cells(self.cells.origin[listed], self.cells.destination[listed], counts[listed]),
            guarantee=Perturbation(mechanism, maximum, deviation, flows.intake.key, described, details),
            left_out={},
            repeatable=flows.intake.key is None,
        )


def with_trial_keys(flows: Flows) -> Flows:
    """Returns flows with made-up keys where they have none, to measure a method. Its release cannot be written."""
    if flows.keys is not None:
        return flows
    return replace(flows, keys=np.random.default_rng(0).integers(0, MODULUS, len(flows)))


def spread(keys: Keys) -> Keys:
    """Returns a fixed permutation of the numbers below 2**32 (the finaliser of MurmurHash3).

    Cell keys of disjoint cells add up to the key of their union; after this permutation their noise does not.
    """
    mixed = keys.astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    return (mixed ^ (mixed >> np.uint32(16))).astype(np.int64)
