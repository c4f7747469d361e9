"""Noisy releases: the form of their guarantee, and one test that exact counts are not presented as
noise.

Noisy counts cannot be recounted. Checked is that the stated noise keeps the stated ε and δ, and
that no number is listed below the smallest one allowed. Section 12 of docs/reference/recount.md has
the test, and proves that an honest release fails it with a probability of at most `FALSE_ALARM`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .inputs import Counts, PersonRows, Release, Trips
from .tree import Codes, Ints, cells_inside, parent_cells, resolution_of

#: Probability that an honest release is accused. The two counts that are tried, with and without
#: the bound on the trips of a person, share it.
FALSE_ALARM = 1e-9
_TOLERANCE = 1e-9
_LARGEST = 1 << 31
#: With a larger ε hardly a count gets any noise.
_LARGEST_EPSILON = 20


def check_form(release: Release, trips: Trips, expect: Mapping[str, Any]) -> Iterator[str]:
    """Yields contradictions between the stated noise and the stated ε and δ."""
    guarantee, statement = release.guarantee, release.statement
    if required := [name for name, value in expect.items() if value]:
        yield (
            f"report.json: a noisy release has no smallest cell, so {', '.join(required)} cannot"
            " hold"
        )
    epsilon, delta = guarantee["epsilon"], guarantee["delta"]
    bound, scale, threshold = guarantee["bound"], guarantee["scale"], guarantee["threshold"]
    in_range = (
        0 < guarantee["epsilon"] <= _LARGEST_EPSILON and 0 <= delta < 1 and 1 <= bound <= _LARGEST
    )
    if not in_range or not 0 < scale <= _LARGEST or not 0 <= (threshold or 0) <= _LARGEST:
        yield (
            "report.json: ε, δ, the bound, the scale of the noise or the threshold is out of its"
            " range"
        )
        return
    ends = ["origin_zone", "destination_zone", *release.slice_columns]
    of_data = guarantee["domain"]["zones_from_data"] and "zones" in guarantee["domain"]
    for problem, is_wrong in {
        "report.json: shares of a noisy release would reveal true counts": statement.get("shares")
        is not None
        or statement["suppression"]["rule"] != "noise",
        "report.json: the noise was drawn from a seed and protects nothing": (
            release.parameters.get("options") or {}
        ).get("unsafe_seed_for_tests")
        is not None,
        "report.json: the unit is not what the input allows, or is a trip with a bound "
        "that is not 1": guarantee["unit"] != _unit(release, trips)
        or (guarantee["unit"] == "trip" and bound != 1),
        "flows.parquet: weights of a noisy release would reveal true counts": release.has("weight"),
        "flows.parquet: a pair is listed twice": release.flows.select(ends)
        .group_by(ends)
        .aggregate([])
        .num_rows
        < len(release),
        "flows.parquet: rows have fewer trips than may be published": np.any(
            release.trips() < (threshold or 1)
        ),
        "report.json: discloses the number of zones with trips, which is a count "
        "without noise": of_data,
    }.items():
        if is_wrong:
            yield problem
    yield from _check_steps(guarantee, epsilon, bound)
    if (threshold is None) != (delta == 0 or "rho" in guarantee):
        yield "report.json: a threshold goes with δ above 0 and Laplace noise, and only with these"
    elif threshold is not None and _chance_of_showing(threshold, int(bound), scale) > delta * (
        1 + _TOLERANCE
    ):
        yield "report.json: the threshold lets the pairs of a person show more often than δ"
    yield from _check_region(release, guarantee["domain"])
    declared = (release.parameters.get("slices") or {}).get("values") or {}
    for name in release.slice_columns:
        # Other slices would reveal that they occur.
        if name in declared and not set(release.flows[name].to_pylist()) <= {
            None,
            *map(str, declared[name]),
        }:
            yield f"flows.parquet: slices have values of '{name}' that were not declared"


def _unit(release: Release, trips: Trips) -> str:
    """Returns the unit that must be stated: a person where persons are known, unless the operator
    chose trips.
    """
    chosen = release.parameters.get("protect")
    return "trip" if trips.persons is None or chosen == ["trips"] else "person"


def _check_steps(guarantee: Mapping[str, Any], epsilon: float, bound: float) -> Iterator[str]:
    """Checks that the noise, or that of every step, keeps its part of the budget."""
    kind = "rho" if "rho" in guarantee else "epsilon"
    total = guarantee["rho"] if kind == "rho" else epsilon
    steps = guarantee.get("steps") or [{kind: total, "scale": guarantee["scale"]}]
    if sum(step[kind] for step in steps) > total * (1 + _TOLERANCE):
        yield "report.json: the steps spend more than the budget that is stated"
    for step in steps:
        spent = bound / step["scale"] if kind == "epsilon" else (bound / step["scale"]) ** 2 / 2
        if not 0 < step["scale"] <= _LARGEST or spent > step[kind] * (1 + _TOLERANCE):
            yield "report.json: noise of this scale does not keep the budget that is stated"
            return
    if "steps" not in guarantee and guarantee["scale"] * epsilon > bound * (1 + _TOLERANCE):
        yield "report.json: states more noise than its ε needs"
    deviations = [_standard_deviation(step["scale"], gaussian=kind == "rho") for step in steps]
    stated = [step["deviation"] for step in guarantee.get("steps") or ()] or [
        guarantee["deviation"]
    ]
    if not np.allclose(
        [*stated, guarantee["deviation"]], [*deviations, deviations[-1]], rtol=_TOLERANCE, atol=0
    ):
        yield "report.json: the standard deviation is not that of noise of this scale"
    if steps[-1]["scale"] != guarantee["scale"]:
        yield "report.json: the noise of the last step is not that of the published counts"
    if (
        kind == "rho"
        and _log_delta(guarantee["rho"], epsilon) > math.log(guarantee["delta"] or 1e-300) + 1e-6
    ):
        yield "report.json: noise of this ρ does not keep ε and δ"


def _standard_deviation(scale: float, *, gaussian: bool) -> float:
    """Returns the standard deviation of discrete Laplace noise of a scale, or of discrete Gaussian
    noise of a σ.
    """
    if not gaussian:
        q = math.exp(-1 / scale)
        return math.sqrt(2 * q) / (1 - q)
    if scale > 10:
        return scale
    x = np.arange(1, 200, dtype=np.float64)
    p = np.exp(-(x**2) / (2 * scale**2))
    return math.sqrt(2 * float(np.sum(x**2 * p)) / (1 + 2 * float(np.sum(p))))


def _log_delta(rho: float, epsilon: float) -> float:
    """Returns the logarithm of the smallest δ that ρ keeps with this ε (Canonne, Kamath, Steinke
    2020).
    """
    above = np.exp(np.linspace(math.log(1e-5), math.log(1e7), 200_000))
    with np.errstate(over="ignore", invalid="ignore"):
        logs = (
            above * ((1 + above) * rho - epsilon)
            - np.log(above)
            + (1 + above) * np.log1p(-1 / (1 + above))
        )
    return float(np.nanmin(logs))


def _chance_of_showing(threshold: int, bound: int, scale: float) -> float:
    """Returns the largest sum of P(c + X >= threshold) over the pairs that one person can fill
    alone.
    """
    q = math.exp(-1 / scale)

    def tail(least: Any) -> Any:
        m = np.asarray(least, dtype=np.float64)
        return np.where(
            m >= 1, q ** np.maximum(m, 1) / (1 + q), 1 - q ** np.maximum(1 - m, 1) / (1 + q)
        )

    pairs = np.arange(1, bound + 1) if bound <= 100_000 else np.array([1, bound])
    return float(np.max((pairs - 1) * tail(threshold - 1) + tail(threshold - (bound - pairs + 1))))


def _check_region(release: Release, domain: Mapping[str, Any]) -> Iterator[str]:
    """Checks that H3 zones have the stated level and are in the stated region."""
    level = domain.get("level")
    codes = {
        code
        for name in ("origin_zone", "destination_zone")
        for code in release.flows[name].to_pylist()
    }
    try:
        cells, region = _cells(codes), _cells(domain.get("region") or ())
    except (ValueError, OverflowError):
        return
    if not isinstance(level, int) or np.any(np.append(cells, region) >> np.uint64(59) != 1):
        return
    resolution = resolution_of(cells)
    nested = release.method in ("privtree", "topdown")
    if np.any(resolution > level if nested else resolution != level):
        yield "zones.parquet: zones have another resolution than the report says"
    elif len(region) and not cells_inside(cells, region).all():
        yield "zones.parquet: zones lie outside the region"
    n_nested = _count_nested(release)
    if n_nested:
        yield (
            f"flows.parquet: {n_nested} cells lie in other cells, so their trips would be counted"
            " twice"
        )


def _count_nested(release: Release) -> int:
    """Returns the cells of H3 zones that are inside another cell of the same slice, whether it has
    trips or not.
    """
    slices = zip(*(release.flows[name].to_pylist() for name in release.slice_columns), strict=True)
    keys = list(slices) if release.slice_columns else [()] * len(release)
    ends = [_cells(release.flows[name].to_pylist()) for name in ("origin_zone", "destination_zone")]
    levels = np.stack([resolution_of(end) for end in ends], axis=1)
    inside = np.zeros(len(release), dtype=np.bool_)
    for pair in np.unique(levels, axis=0):
        lifted = [
            parent_cells(end, level).tolist()
            for end, level in zip(ends, pair.tolist(), strict=True)
        ]
        around = list(zip(keys, *lifted, strict=True))
        listed = {around[row] for row in np.flatnonzero((levels == pair).all(axis=1))}
        finer = np.flatnonzero((levels >= pair).all(axis=1) & (levels > pair).any(axis=1))
        inside[finer] |= np.array([around[row] in listed for row in finer], dtype=np.bool_)
    return int(inside.sum())


def _cells(codes: Iterable[str]) -> Codes:
    return np.array([int(code, 16) for code in codes], dtype=np.uint64)


def _rows_in_region(release: Release, trips: Trips) -> tuple[Any, Codes]:
    """Returns the rows with both ends in the stated region of H3 cells, and the region.

    All rows without one.
    """
    stated = release.guarantee["domain"].get("region")
    if not stated or trips.origins.dtype != np.uint64:
        return np.ones(len(trips), dtype=np.bool_), np.zeros(0, dtype=np.uint64)
    region = _cells(stated)
    return (
        np.logical_and(*(cells_inside(tiles, region)[tile] for tiles, tile, _ in trips.ends)),
        region,
    )


def check_counts(
    release: Release, trips: Trips, assigned: list[tuple[Ints, Ints]]
) -> Iterator[str]:
    """The test above.

    ``assigned`` has, by detail of slices, the slice and the cell of each row, -1 for none.
    """
    if any(
        _is_exact(release, trips, counts, assigned)
        for counts in (trips.trips, _bounded(release, trips))
    ):
        yield (
            "flows.parquet: too many are exact: these are counts, not noise (false alarm:"
            f" {FALSE_ALARM:g})"
        )


def _is_exact(
    release: Release, trips: Trips, counts: Counts, assigned: list[tuple[Ints, Ints]]
) -> bool:
    guarantee, steps = release.guarantee, release.guarantee.get("steps")
    sums = np.zeros(len(release))
    for _, cell in assigned:
        sums += np.bincount(cell[cell >= 0], weights=counts[cell >= 0], minlength=len(release))
    exact = (sums > 0) & (release.trips() == sums)
    if release.method == "posterior":
        large = exact[sums >= _surely_large(guarantee["scale"])]
        # Of slices, a count may also be the total of its pair.
        scale = min(step["scale"] for step in steps or [guarantee])
        return _too_many(large, np.full(len(large), -math.expm1(-1 / scale)))
    if steps is None or release.method == "privtree":
        exact = exact[sums > 0]
        return _too_many(exact, np.full(len(exact), -math.expm1(-1 / guarantee["scale"])))
    size, whole = _families(release, trips, counts, assigned, exact)
    return len(steps) > 1 and _too_many(
        whole, 2 * _likeliest_two(steps[-1]["scale"], "rho" in guarantee) ** (size - 1)
    )


def _surely_large(scale: float) -> float:
    """Returns the true count from which posterior publishes the noisy count as it is.

    For smaller noisy counts the noise would have to be below -20 times its scale.
    """
    return int(60 + 40 * scale) + 1


def _too_many(happened: Any, chance: Any) -> bool:
    """Returns whether more independent events happened than their probabilities allow.

    A sure event says nothing.
    """
    happened, chance = happened[chance < 1], chance[chance < 1]
    n = len(happened)
    if n == 0 or happened.mean() <= chance.mean():
        return False
    share, p = float(happened.mean()), float(chance.mean())
    far = (1 - share) * math.log((1 - share) / (1 - p)) if share < 1 else 0.0
    return n * (share * math.log(share / p) + far) > math.log(2 / FALSE_ALARM)


def _likeliest_two(scale: float, gaussian: bool) -> float:
    """Returns the probability of a draw of 0 or 1; of the Gaussian, an upper bound."""
    if not gaussian:
        return -math.expm1(-1 / scale)
    one = math.exp(-1 / (2 * scale**2))
    return min(1.0, (1 + one) / max(1 + 2 * one, scale * math.sqrt(2 * math.pi)))


def _families(
    release: Release, trips: Trips, counts: Counts, assigned: Any, exact: Any
) -> tuple[Any, Any]:
    """Returns of each family of pairs its pairs with trips, and whether all are exact.

    Of maps, a pair is a family.
    """
    level, (inside, region) = release.guarantee["domain"]["level"], _rows_in_region(release, trips)
    if not len(region) or not isinstance(level, int) or level < 1:
        return np.zeros(0), np.zeros(0, dtype=np.bool_)
    zones, above = [], []
    for tiles, tile, _ in trips.ends:
        zone = parent_cells(tiles, level)
        # A zone that is a cell of the region itself existed before the last step.
        up = np.where(np.isin(zone, region), zone, parent_cells(zone, level - 1))
        zones.append(np.unique(zone, return_inverse=True)[1][tile])
        above.append(np.unique(up, return_inverse=True)[1][tile])
    # Pairs that are published undivided have the noise of an earlier step.
    ends = [_cells(release.flows[name].to_pylist()) for name in ("origin_zone", "destination_zone")]
    exact = exact & np.all([resolution_of(end) == level for end in ends], axis=0)
    sizes, whole = [], []
    for slices, cell in assigned:
        rows = np.flatnonzero(inside & (counts > 0) & (slices >= 0))
        row = rows[np.unique(np.stack((slices, *zones))[:, rows], axis=1, return_index=True)[1]]
        family = np.unique(np.stack((slices, *above))[:, row], axis=1, return_inverse=True)[1]
        hit = (cell[row] >= 0) & exact[cell[row]]
        sizes.append(np.bincount(family.ravel()))
        whole.append(np.bincount(family.ravel(), weights=hit) == sizes[-1])
    return np.concatenate(sizes), np.concatenate(whole)


def _bounded(release: Release, trips: Trips) -> Counts:
    """Returns the counted trips of each row: of a person with n trips, n above the bound, every (n
    / bound)-th.
    """
    persons, bound = trips.persons, int(release.guarantee["bound"])
    if not isinstance(persons, PersonRows) or persons.trips is None:
        return trips.trips
    order = np.lexsort((persons.row, persons.person))
    order = order[_rows_in_region(release, trips)[0][persons.row[order]]]
    row, person, made = persons.row[order], persons.person[order], persons.trips[order]
    n = np.bincount(person, weights=made).astype(np.int64)
    # Trips of each person up to and including each row.
    after, total = np.cumsum(made) - (np.cumsum(n) - n)[person], n[person]
    kept = [(passed * bound + total // 2) // total for passed in (after - made, after)]
    stays = np.where(total <= bound, made, kept[1] - kept[0])
    return np.bincount(row, weights=stays, minlength=len(trips)).astype(np.int64)
