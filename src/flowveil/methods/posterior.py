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

from flowveil.core.arrays import Counts
from flowveil.core.errors import ParameterError, option
from flowveil.core.flows import Cells, Flows
from flowveil.methods.discrete_noise import Bits, DiscreteLaplace, random_bits
from flowveil.methods.epsilon import rounded_up
from flowveil.methods.noise_guarantee import CountedTrips, NoiseGuarantee
from flowveil.methods.posterior_counts import Districts, estimate_counts
from flowveil.methods.public_domain import PairDomain, district_domain
from flowveil.methods.topdown import parse_shares
from flowveil.release.noisy import NoiseStep, NoisyCounts

#: Largest number of pairs of districts: the tables of all pairs take some 40 bytes each.
MOST_PAIRS = 30_000_000
#: Largest scale of the noise on pairs. With more, whole counts of single pairs say nothing.
LARGEST_PAIR_SCALE = 60
#: Default share of listed pairs that are expected to be false. With ε = 1, up to 15 % are.
FALSE_FLOWS = 0.08
#: Uses of the two parts of the budget; the last is that of the pairs.
PARTS = ("distance classes", "pairs of districts")

MECHANISM = (
    "discrete Laplace noise on the counts of all pairs of districts and of distance classes; the"
    " published whole counts are the most probable ones given these noisy counts"
)


def posterior(
    flows: Flows,
    *,
    epsilon: float | None = None,
    bound: int | None = None,
    districts: int | None = None,
    region: str | None = None,
    budget: str = "0.02,0.98",
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
            is 1.
        false_flows: the largest expected share of listed pairs that had no trips. 1 minimises the
            error of the table.

    Raises ParameterError and DataError as `flowveil.methods.laplace.laplace`, or if the districts
    would come from the data, are too many, or have no places.
    """
    privacy = NoiseGuarantee.from_options(
        "posterior", flows, epsilon=epsilon, delta=0.0, bound=bound, seed=unsafe_seed_for_tests
    )
    check_share("false_flows", false_flows)
    noise = _Noise.from_options(privacy, budget)
    domain = district_domain("posterior", flows, districts, region)
    geometry = _geometry(domain)
    counted = CountedTrips.from_flows(flows, privacy, domain)
    bits = random_bits(unsafe_seed_for_tests)
    noisy, class_totals = noisy_counts(counted.table(), geometry, noise.distributions, bits)
    of_classes, of_pairs = (float(distribution.scale) for distribution in noise.distributions)
    counts = estimate_counts(
        noisy,
        class_totals,
        geometry,
        epsilon=1 / of_pairs,
        class_epsilon=1 / of_classes,
        false_flows=false_flows,
    )
    origin, destination = np.nonzero(counts)
    cells = Cells(
        origin.astype(np.int32), destination.astype(np.int32), counts[origin, destination]
    )
    loss: dict[str, Any] = {
        "mechanism": MECHANISM,
        "scale": noise.steps[-1].scale,
        "deviation": noise.steps[-1].deviation,
        "steps": noise.steps,
    }
    return counted.released(cells, loss, unsafe_seed_for_tests)


def check_share(name: str, value: float) -> None:
    """Raises ParameterError unless a value is above 0 and at most 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= 1:
        raise ParameterError(f"{name} must be a number above 0 and at most 1; found {value!r}.")


@dataclass(frozen=True, eq=False)
class _Noise:
    """The noise that the two parts of the budget pay for, and its entries in the report."""

    distributions: Sequence[DiscreteLaplace]
    steps: tuple[NoiseStep, ...]

    @classmethod
    def from_options(cls, privacy: NoiseGuarantee, budget: str) -> _Noise:
        """Converts shares into noise, in exact fractions."""
        parts = [share * Fraction(privacy.epsilon) for share in parse_shares(budget, PARTS)]
        if privacy.bound > LARGEST_PAIR_SCALE * parts[1]:
            raise ParameterError(
                f"Noise of scale {float(privacy.bound / parts[1]):,.0f} on single pairs of"
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
            for name, distribution, part in zip(PARTS, distributions, parts, strict=True)
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
    table: Cells,
    districts: Districts,
    distributions: Sequence[DiscreteLaplace],
    bits: Bits,
) -> tuple[Counts, Counts]:
    """Returns the noisy counts of all pairs and of all distance classes.

    The only function that sees true counts. A trip is in one pair and in one class.
    """
    of_classes, of_pairs = distributions
    of_table = districts.distance_class[table.origin, table.destination]
    totals = np.zeros(districts.n_classes, dtype=np.int64)
    np.add.at(totals, of_table, table.trips)
    totals += of_classes.draw(len(totals), bits)
    noisy = of_pairs.draw(districts.n**2, bits).reshape(districts.n, districts.n)
    noisy[table.origin, table.destination] += table.trips
    return noisy, totals
