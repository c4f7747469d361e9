"""Posterior: noise on all pairs of districts of a public region, and the table that it suggests.

Every pair of districts is counted with discrete Laplace noise, and so is every distance class. The
published whole counts are a function of these noisy numbers and of public geometry
(`flowveil.methods.posterior_counts`), so they cost nothing more. docs/methods/posterior.md contains
the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from flowveil.core.arrays import Counts, Ints
from flowveil.core.errors import ParameterError, option
from flowveil.core.flows import Cells, Flows
from flowveil.methods.discrete_noise import Bits, DiscreteLaplace, random_bits
from flowveil.methods.epsilon import rounded_up
from flowveil.methods.noise_guarantee import CountedTrips, NoiseGuarantee
from flowveil.methods.posterior_counts import Districts, estimate_counts
from flowveil.methods.posterior_slices import PairTotals, estimate_parts
from flowveil.methods.public_domain import PairDomain, district_domain
from flowveil.methods.topdown import parse_shares
from flowveil.release.noisy import NoiseStep, NoisyCounts

#: Largest number of pairs of districts: the tables of all pairs take some 40 bytes each.
MOST_PAIRS = 30_000_000
#: Largest scale of the noise on pairs. With more, whole counts of single pairs say nothing.
LARGEST_PAIR_SCALE = 60
#: Default share of listed pairs that are expected to be false. With ε = 1, up to 15 % are.
FALSE_FLOWS = 0.08
#: Largest number of pairs of districts times slices.
MOST_PARTS = 1_000_000_000
#: Uses of the parts of the budget, and their default shares: of one matrix, and of slices. The last
#: is that of the published counts.
PARTS = ("distance classes", "pairs of districts")
PARTS_OF_SLICES = (*PARTS, "slices of the pairs found")
BUDGET, BUDGET_OF_SLICES = "0.02,0.98", "0.02,0.38,0.6"

MECHANISM = (
    "discrete Laplace noise on the counts of all pairs of districts and of distance classes; the"
    " published whole counts are the most probable ones given these noisy counts"
)
MECHANISM_OF_SLICES = MECHANISM.replace("; the", ", and of the pairs found in each slice; the")


def posterior(
    flows: Flows,
    *,
    epsilon: float | None = None,
    bound: int | None = None,
    districts: int | None = None,
    region: str | None = None,
    budget: str | None = None,
    false_flows: float = FALSE_FLOWS,
    unsafe_seed_for_tests: int | None = None,
) -> NoisyCounts:
    """Estimates whole counts of all pairs of districts from noisy ones.

    Args:
        flows, epsilon, bound, unsafe_seed_for_tests: as in `flowveil.methods.laplace.laplace`.
        districts: the level of the districts in the hierarchy (the resolution, for H3). By default
            H3 resolution 7, or the zones of the user's map.
        region: H3 cells, or codes of the user's map, separated by commas. By default the study area
            of the flows (within), or the whole map.
        budget: the shares of ε for distance classes and for pairs, separated by a comma; their sum
            is 1. 0.02,0.98 by default. Slices have a third one, 0.02,0.38,0.6 by default.
        false_flows: the largest expected share of listed pairs that had no trips. 1 minimises the
            error of the table.

    Raises ParameterError and DataError as `flowveil.methods.laplace.laplace`, or if the districts
    would come from the data, are too many, or have no places.
    """
    asked = _Request.from_options(
        flows, PARTS, epsilon, bound, districts, region, budget, false_flows, unsafe_seed_for_tests
    )
    counted = CountedTrips.from_flows(flows, asked.privacy, asked.domain)
    totals = PairTotals.from_table(asked.estimate(counted.table()))
    return asked.released(counted, totals, totals.trips)


def posterior_of_slices(
    slices: Sequence[Flows],
    *,
    epsilon: float | None = None,
    bound: int | None = None,
    districts: int | None = None,
    region: str | None = None,
    budget: str | None = None,
    false_flows: float = FALSE_FLOWS,
    unsafe_seed_for_tests: int | None = None,
) -> list[NoisyCounts]:
    """Estimates the matrices of slices that share one ε: all trips first, then pairs by slice.

    A person has at most ``bound`` trips in all slices together; that is not checked. Options and
    errors are those of `posterior`.
    """
    asked = _Request.from_options(
        slices[0], PARTS_OF_SLICES, epsilon, bound, districts, region, budget, false_flows,
        unsafe_seed_for_tests,
    )  # fmt: skip
    n_pairs = len(asked.domain.origins.zones) ** 2
    if n_pairs * len(slices) > MOST_PARTS:
        raise ParameterError(
            f"{n_pairs:,} pairs of districts in {len(slices):,} slices are too many; at most"
            f" {MOST_PARTS:,} are allowed. Hint: fewer slices, or a coarser level"
            f" ({option('districts')})."
        )
    counted = [CountedTrips.from_flows(part, asked.privacy, asked.domain) for part in slices]
    tables = [part.table() for part in counted]
    totals = PairTotals.from_table(asked.estimate(*tables))
    noisy = noisy_parts(tables, totals, asked.noise.distributions[-1], asked.bits)
    parts = estimate_parts(
        totals,
        noisy,
        epsilon=1 / float(asked.noise.distributions[-1].scale),
        false_flows=asked.false_flows,
    )
    return [
        asked.released(part, totals, trips) for part, trips in zip(counted, parts.T, strict=True)
    ]


def check_share(name: str, value: float) -> None:
    """Raises ParameterError unless a value is above 0 and at most 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= 1:
        raise ParameterError(f"{name} must be a number above 0 and at most 1; found {value!r}.")


@dataclass(frozen=True, eq=False)
class _Request:
    """Validated options, the public districts, and the noise."""

    privacy: NoiseGuarantee
    noise: _Noise
    domain: PairDomain
    geometry: Districts
    false_flows: float
    seed: int | None
    bits: Bits

    @classmethod
    def from_options(
        cls,
        flows: Flows,
        parts: Sequence[str],
        epsilon: float | None,
        bound: int | None,
        districts: int | None,
        region: str | None,
        budget: str | None,
        false_flows: float,
        seed: int | None,
    ) -> _Request:
        """Validates the options of the method."""
        privacy = NoiseGuarantee.from_options(
            "posterior", flows, epsilon=epsilon, delta=0.0, bound=bound, seed=seed
        )
        check_share("false_flows", false_flows)
        default = BUDGET if parts == PARTS else BUDGET_OF_SLICES
        noise = _Noise.from_options(privacy, default if budget is None else budget, parts)
        domain = district_domain("posterior", flows, districts, region)
        return cls(privacy, noise, domain, _geometry(domain), false_flows, seed, random_bits(seed))

    def estimate(self, *tables: Cells) -> Counts:
        """Returns the counts of all pairs, from noisy ones; tables of several slices are added."""
        of_classes, of_pairs = self.noise.distributions[:2]
        noisy, totals = noisy_counts(tables, self.geometry, (of_classes, of_pairs), self.bits)
        return estimate_counts(
            noisy,
            totals,
            self.geometry,
            epsilon=1 / float(of_pairs.scale),
            class_epsilon=1 / float(of_classes.scale),
            false_flows=self.false_flows,
        )

    def released(self, counted: CountedTrips, pairs: PairTotals, trips: Counts) -> NoisyCounts:
        """Returns the result with the pairs that have trips."""
        listed = trips > 0
        cells = Cells(pairs.origin[listed], pairs.destination[listed], trips[listed])
        loss: dict[str, Any] = {
            "mechanism": MECHANISM if len(self.noise.steps) == len(PARTS) else MECHANISM_OF_SLICES,
            "scale": self.noise.steps[-1].scale,
            "deviation": self.noise.steps[-1].deviation,
            "steps": self.noise.steps,
        }
        return counted.released(cells, loss, self.seed)


@dataclass(frozen=True, eq=False)
class _Noise:
    """The noise that the parts of the budget pay for, and its entries in the report."""

    distributions: Sequence[DiscreteLaplace]
    steps: tuple[NoiseStep, ...]

    @classmethod
    def from_options(
        cls, privacy: NoiseGuarantee, budget: str, names: Sequence[str] = PARTS
    ) -> _Noise:
        """Converts shares into noise, in exact fractions."""
        parts = [share * Fraction(privacy.epsilon) for share in parse_shares(budget, names)]
        least = min(parts[1:])
        if privacy.bound > LARGEST_PAIR_SCALE * least:
            raise ParameterError(
                f"Noise of scale {float(privacy.bound / least):,.0f} on single pairs of"
                f" districts leaves nothing to estimate; at most {LARGEST_PAIR_SCALE} is allowed."
                " Hint: a larger epsilon, a smaller bound, or the methods topdown and privtree."
            )
        distributions = [DiscreteLaplace(privacy.bound / part) for part in parts]
        steps = tuple(
            NoiseStep(
                name,
                rounded_up(distribution.scale),
                distribution.standard_deviation,
                epsilon=float(part),
            )
            for name, distribution, part in zip(names, distributions, parts, strict=True)
        )
        return cls(distributions, steps)


def _geometry(domain: PairDomain) -> Districts:
    """Returns the public geometry of the districts."""
    zones = domain.origins.zones
    if len(zones) ** 2 > MOST_PAIRS:
        raise ParameterError(
            f"The region has {len(zones):,} districts and {len(zones) ** 2:,} pairs of them; at"
            f" most {MOST_PAIRS:,} are allowed. Hint: a coarser level ({option('districts')}), or a"
            f" smaller area ({option('within')})."
        )
    centers = zones.centers(np.arange(len(zones), dtype=np.int32))
    if centers is None:
        raise ParameterError(
            "posterior needs the places of the districts, and the map has none. Hint: a map with"
            " coordinates or outlines, or the method topdown."
        )
    return Districts.from_centers(*centers)


def noisy_counts(
    tables: Sequence[Cells],
    districts: Districts,
    distributions: Sequence[DiscreteLaplace],
    bits: Bits,
) -> tuple[Counts, Counts]:
    """Returns the noisy counts of all pairs and of all distance classes, in all slices together.

    This function and `noisy_parts` alone see true counts. A trip is in one pair and in one class.
    """
    of_classes, of_pairs = distributions
    totals = of_classes.draw(districts.n_classes, bits)
    noisy = of_pairs.draw(districts.n**2, bits).reshape(districts.n, districts.n)
    for table in tables:
        of_table = districts.distance_class[table.origin, table.destination]
        np.add.at(totals, of_table, table.trips)
        noisy[table.origin, table.destination] += table.trips
    return noisy, totals


def noisy_parts(
    tables: Sequence[Cells], pairs: PairTotals, distribution: DiscreteLaplace, bits: Bits
) -> Counts:
    """Returns the noisy counts of some pairs in each slice: a row for each pair.

    A trip is in one pair and in one slice.
    """
    shape = len(pairs.trips), len(tables)
    noisy = distribution.draw(shape[0] * shape[1], bits).reshape(shape)
    # Pairs are sorted, so a row is found by its key.
    keys = _pair_keys(pairs.origin, pairs.destination)
    for number, table in enumerate(tables):
        of_table = _pair_keys(table.origin, table.destination)
        is_listed = np.isin(of_table, keys)
        row = np.searchsorted(keys, of_table[is_listed])
        noisy[row, number] += table.trips[is_listed]
    return noisy


def _pair_keys(origin: Ints, destination: Ints) -> Counts:
    """Returns one number for each pair, in the order of pairs."""
    return (origin.astype(np.int64) << 32) + destination
