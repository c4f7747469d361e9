"""The posterior of noisy counts, one pair at a time, for comparison with
`flowveil.methods.posterior_counts` and `posterior_slices`."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np


def gravity_model(noisy, totals, distance_class, rounds: int = 12):
    """Proportional fitting of a full table to distance classes, starts and ends."""
    n = len(noisy)
    pairs = [(i, j) for i in range(n) for j in range(n)]
    model = dict.fromkeys(pairs, 1.0)
    starts = [max(sum(float(noisy[i][j]) for j in range(n)), 1) for i in range(n)]
    ends = [max(sum(float(noisy[i][j]) for i in range(n)), 1) for j in range(n)]
    sides = (
        ([max(int(total), 1) for total in totals], lambda i, j: int(distance_class[i][j])),
        (starts, lambda i, _: i),
        (ends, lambda _, j: j),
    )
    for _ in range(rounds):
        for wanted, group in sides:
            reached = [0.0] * len(wanted)
            for i, j in pairs:
                reached[group(i, j)] += model[i, j]
            for i, j in pairs:
                model[i, j] *= wanted[group(i, j)] / reached[group(i, j)]
    return np.array([[model[i, j] for j in range(n)] for i in range(n)])


def corrected(model, noisy, neighbours, variance: float):
    """The gravity model, corrected by pairs with a neighbouring end and by the reverse pair."""
    n = len(model)
    out = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            around = [(k, j) for k in neighbours[i] if k >= 0]
            around += [(i, k) for k in neighbours[j] if k >= 0]
            around.append((j, i))
            seen, hoped = (sum(float(table[pair]) for pair in around) for table in (noisy, model))
            trust = hoped**2 / (hoped**2 + hoped + len(around) * variance)
            out[i, j] = model[i, j] * min(max(1 + trust * (seen / hoped - 1), 0.05), 20)
    return out


def count_tails(noisy_values, epsilon: float, *, low: int, most: int, rounds: int = 60):
    """P(count >= j | noisy count) for the pairs of one kind, by expectation maximisation."""
    q = math.exp(-epsilon)

    def likelihood(noisy: int, true: int) -> float:
        return (1 - q) / (1 + q) * q ** abs(noisy - true)

    prior = [(3.0 if true == 0 else 1.0) / (most + 3) for true in range(most + 1)]

    def posterior(noisy: int) -> list[float]:
        weights = [likelihood(noisy, true) * p for true, p in enumerate(prior)]
        return [weight / sum(weights) for weight in weights]

    for _ in range(rounds):
        each = [posterior(max(noisy, low)) for noisy in noisy_values]
        prior = [sum(one[true] for one in each) / len(each) for true in range(most + 1)]
    return {
        noisy: [sum(posterior(max(noisy, low))[j:]) for j in range(1, most + 1)]
        for noisy in noisy_values
    }


def allocate_trips(noisy, tails, expected, distance_class, totals):
    """The trips of each class given one by one, most probable first."""
    n = len(noisy)
    counts = np.where(tails.small, 0, noisy)
    for one, total in enumerate(totals):
        members = [(i, j) for i in range(n) for j in range(n) if distance_class[i, j] == one]
        choices = []
        for i, j in members:
            if not tails.small[i, j]:
                continue
            kind, row = int(tails.kind[i, j]), max(int(noisy[i, j]) - tails.lowest, 0)
            choices += [
                (-p, kind, row, number, -expected[i, j], i, j)
                for number, p in enumerate(tails.tails[kind][row].tolist())
            ]
        left = int(total) - sum(int(counts[pair]) for pair in members)
        for *_, i, j in sorted(choices)[: max(left, 0)]:
            counts[i, j] += 1
    return counts


def estimate_counts(noisy, totals, districts, epsilon: float, *, low: int, most: int, large: int):
    """All steps, without a limit on false flows; the totals of the classes are given."""
    noise_variance = 2 * math.exp(-epsilon) / (1 - math.exp(-epsilon)) ** 2
    small, seen, variance = noisy <= large, noisy.astype(float), noise_variance
    for _ in range(2):
        model = gravity_model(seen, totals, districts.distance_class)
        expected = corrected(model, seen, districts.neighbours, variance)
        kind = np.clip(np.floor(3 * np.log2(np.maximum(expected, 2.0**-13))), -39, 12) + 39
        tails = SimpleNamespace(small=small, kind=kind.astype(int), lowest=low, tails={})
        means = noisy.astype(float)
        for one in np.unique(kind[small]).astype(int).tolist():
            values = noisy[small & (kind == one)].tolist()
            found = count_tails(values, epsilon, low=low, most=most)
            table = np.zeros((most - low + 1, most))
            for value, tail in found.items():
                table[max(value - low, 0)] = tail
                means[small & (kind == one) & (noisy == value)] = sum(tail)
            tails.tails[one] = table
        seen, variance = means, 0.0
    return allocate_trips(noisy, tails, expected, districts.distance_class, totals)


def expected_parts(totals, seen, profile, variance: float):
    """Each pair divided like all trips, corrected by the pairs with the same end."""
    n_slices = len(profile)
    out = []
    for origin, destination, trips in zip(*totals, strict=True):
        row = []
        for t in range(n_slices):
            value = trips * profile[t]
            for end, ends in ((origin, totals[0]), (destination, totals[1])):
                rows = [i for i, one in enumerate(ends) if one == end]
                hoped = sum(totals[2][i] * profile[t] for i in rows)
                trust = hoped**2 / (hoped**2 + hoped + len(rows) * variance)
                observed = sum(float(seen[i][t]) for i in rows)
                value *= min(max(1 + trust * (observed / hoped - 1), 0.05), 20)
            row.append(value)
        out.append([value * trips / sum(row) for value in row])
    return np.array(out)


def allocate_parts(totals, noisy, tails, least: float):
    """The trips of each pair given one by one to its most probable slices; all counts are small."""
    counts = np.zeros_like(noisy)
    for i, trips in enumerate(totals):
        choices = []
        for t, value in enumerate(noisy[i].tolist()):
            chances = tails.tails[int(tails.kind[i, t])][max(value - tails.lowest, 0)]
            late = chances[0] < least
            choices += [(late, -np.float32(p), t) for p in chances.tolist()]
        for *_, t in sorted(choices, key=lambda one: one[:2])[:trips]:
            counts[i, t] += 1
    return counts
