"""What hours and persons cost with differential privacy.

    python -m benchmarks posterior_parts               writes results/posterior-parts.md

Hours: errors between districts by hour, ε = 1 for a trip. posterior counts all trips first and then
the pairs it found by hour; "each hour alone" is posterior on 24 matrices, each with all of ε. The
shares of ε of slices were chosen on San Francisco; New York is held out.

Persons: ε for a person, of whose trips at most a bound is counted. The error is against all trips,
so it contains what the bound leaves out. "Weights" counts all trips of a person with more than the
bound, each as bound / trips: the same sensitivity. It is no option of flowveil.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import flowveil
from benchmarks.planner import DATA
from benchmarks.posterior import CITIES, LEVEL, City, Truth, release_errors, spread
from flowveil.core.flows import Cells, Flows, group_pairs
from flowveil.methods.discrete_noise import DiscreteLaplace, system_bits
from flowveil.methods.noise_guarantee import CountedTrips, NoiseGuarantee
from flowveil.methods.posterior import BUDGET, FALSE_FLOWS, _geometry, noisy_counts
from flowveil.methods.posterior_counts import estimate_counts
from flowveil.methods.public_domain import PairDomain, district_domain
from flowveil.reading.sources.synthetic import synthetic_survey

RESULTS = Path(__file__).parent / "results" / "posterior-parts.md"
DRAWS = 3
TIMES = {
    "San Francisco": {"time": "start_ts", "timezone": "America/Los_Angeles"},
    "New York": {"time": "pickup_datetime", "timezone": "America/New_York"},
}
#: The five cells of resolution 6 that the ODkAnon authors' scripts keep.
PARIS = "861fb4667ffffff,861fb4677ffffff,861fb466fffffff,861fb4647ffffff,861fb475fffffff"


# ---- hours ---------------------------------------------------------------------------------------


def hourly(city: City) -> Flows:
    """The trips of a city, cut by hour."""
    how: dict[str, Any] = {**city.how, **TIMES[city.name], "every": "hour", "max_dropped": 1.0}
    return flowveil.read_trips(DATA / city.path, within=city.circle(), **how)


def hourly_errors(flows: Flows, method: str, *, alone: bool, **options: Any) -> list[float]:
    """Misplaced, missed and false shares by hour; and seconds, in one draw."""
    asked: dict[str, Any] = {"protect": "trips", **options}
    begin = time.process_time()
    parts: dict[Any, Any] = {}
    if alone:
        for key, part in flows.split():
            parts[key] = flowveil.anonymize(part, method, **asked)
    else:
        release = flowveil.anonymize(flows, method, values={}, **asked)
        parts = {key: release[key[0]] for key in release.keys}
    seconds = time.process_time() - begin
    sums = np.zeros(4)
    for key, part in flows.split():
        truth = Truth.of(part)
        trips = truth.table.sum()
        if key in parts:
            one = release_errors(truth, parts[key], 0.0)
            sums += (one.misplaced * trips, one.missed * trips, one.false * one.pairs, one.pairs)
        else:
            sums += (trips / 2, trips, 0, 0)
    total = sum(part.trips.sum() for _, part in flows.split())
    return [sums[0] / total, sums[1] / total, sums[2] / max(sums[3], 1), seconds]


def hourly_lines(city: City) -> Iterator[str]:
    """The table of a city."""
    flows = hourly(city)
    yield f"## {city.name} by hour, ε = 1 for a trip\n"
    yield "| | misplaced, % | missed, % | false flows, % | seconds |"
    yield "|---|---:|---:|---:|---:|"
    runs: tuple[tuple[str, str, bool, dict[str, Any]], ...] = (
        ("posterior", "posterior", False, {}),
        ("posterior, each hour alone", "posterior", True, {}),
        ("topdown", "topdown", False, {"level": LEVEL}),
        ("topdown, floor = 1", "topdown", False, {"level": LEVEL, "floor": 1}),
        ("privtree", "privtree", False, {"level": LEVEL}),
        ("laplace, δ = 10⁻⁶", "laplace", False, {"level": LEVEL, "delta": 1e-6}),
    )
    for name, method, alone, options in runs:
        draws = [
            hourly_errors(flows, method, alone=alone, epsilon=1.0, **options) for _ in range(DRAWS)
        ]
        *errors, seconds = zip(*draws, strict=True)
        cells = " | ".join(spread(list(error)) for error in errors)
        yield f"| {name} | {cells} | {statistics.mean(seconds):.1f} |"


# ---- persons -------------------------------------------------------------------------------------


def montpellier() -> Flows:
    """A household survey: one day of each respondent, between 110 sectors."""
    folder = DATA / "montpellier_emd"
    return flowveil.read_trips(
        folder / "legs.parquet",
        zones=flowveil.read_zones(folder / "sectors.csv", tile="sector"),
        origin_tile="o_sector",
        destination_tile="d_sector",
        person="person_id",
        skip_unknown=True,
        max_dropped=0.5,
    )


def central_paris() -> Flows:
    """The synthetic survey in central Paris."""
    return flowveil.read_trips(synthetic_survey(), resolution=9, within=PARIS, max_dropped=1.0)


def weighted_table(flows: Flows, domain: PairDomain, bound: int) -> Cells:
    """The sums of weights bound / n of the trips of persons with n above the bound, rounded."""
    plan, people = domain.plan(flows), flows.people
    assert people is not None
    assert people.trips is not None
    trips = np.where(plan.kept[people.cell], people.trips, 0)
    n = np.maximum(np.bincount(people.person, trips), 1)
    weight = trips * np.minimum(1, bound / n)[people.person]
    of_flow = np.bincount(people.cell, weight, minlength=len(flows))
    group = group_pairs(
        np.where(plan.kept, plan.origin_zone, np.int32(-1)),
        plan.destination_zone,
        len(plan.origin_zones),
        len(plan.destination_zones),
    )
    sums = group.sum(of_flow)
    return Cells(group.origin, group.destination, np.rint(sums).astype(np.int64))


def person_error(
    flows: Flows, domain: PairDomain, epsilon: float, bound: int, *, weights: bool
) -> float:
    """Misplaced share of all trips, in one draw."""
    guarantee = NoiseGuarantee("person", epsilon, 0.0, bound)
    if weights:
        table = weighted_table(flows, domain, bound)
    else:
        table = CountedTrips.from_flows(flows, guarantee, domain).table()
    shares = [Fraction(share) for share in BUDGET.split(",")]
    noise = [DiscreteLaplace(bound / (share * Fraction(epsilon))) for share in shares]
    geometry = _geometry(domain)
    noisy, totals = noisy_counts([table], geometry, noise, system_bits)
    of_classes, of_pairs = (1 / float(one.scale) for one in noise)
    counts = estimate_counts(
        noisy,
        totals,
        geometry,
        epsilon=of_pairs,
        class_epsilon=of_classes,
        false_flows=FALSE_FLOWS,
    )
    plan, true = domain.plan(flows), np.zeros_like(counts)
    kept = plan.kept
    np.add.at(true, (plan.origin_zone[kept], plan.destination_zone[kept]), flows.trips[kept])
    return float(np.abs(counts - true).sum() / 2 / true.sum())


def person_lines(name: str, flows: Flows) -> Iterator[str]:
    """The table of a survey."""
    domain = district_domain("posterior", flows, None, None)
    bounds = (1, 2, 4, 8)
    yield f"## {name}, ε for a person\n"
    yield "| | " + " | ".join(f"bound {bound}" for bound in bounds) + " |"
    yield "|---|" + "---:|" * len(bounds)
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        for weights in (False, True):
            cells = [
                spread(
                    [
                        person_error(flows, domain, epsilon, bound, weights=weights)
                        for _ in range(DRAWS)
                    ]
                )
                for bound in bounds
            ]
            yield f"| ε = {epsilon:g}{', weights' * weights} | {' | '.join(cells)} |"


def main() -> None:
    warnings.simplefilter("ignore")
    lines = [
        "# Hours and persons under differential privacy\n",
        "`python -m benchmarks posterior_parts`; mean and range of three draws with the operating"
        " system's noise.\n",
    ]
    tables = [hourly_lines(city) for city in CITIES if city.name in TIMES]
    surveys = {"Montpellier": montpellier, "Synthetic survey": central_paris}
    tables += [person_lines(name, read()) for name, read in surveys.items()]
    for table in tables:
        for line in table:
            print(line, flush=True)
            lines.append(line)
        lines.append("")
    RESULTS.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
