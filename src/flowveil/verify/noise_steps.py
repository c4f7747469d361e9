"""Whether a budget, in one or several steps, adds up to what is promised, and each has the noise that it pays for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import h3.api.basic_int as h3_cells
import numpy as np

_TOLERANCE = 1e-9
_LARGEST = 1 << 31
#: How many steps of a floating-point number two ways of working it out may differ by.
_LAST_DIGITS = 32
#: Which methods spend their budget in steps.
_IN_STEPS = ("topdown", "privtree")


def check_steps(report: Mapping[str, Any], *, in_cells: bool) -> Iterator[str]:
    """Contradictions between the steps of a report, its promise and what was asked for.

    Args:
        report: the content of report.json; the numbers of its promise are in their ranges.
        in_cells: whether zones are H3 cells, below cells of a region; else they are those of a map.
    """
    promise = report["guarantee"]
    steps = promise.get("steps")
    if (report["method"] in _IN_STEPS) != (steps is not None):
        yield "report.json: a budget in steps does not belong to this method, or is missing"
        return
    if steps is None:
        if promise["epsilon"] * promise["scale"] > promise["bound"] * (1 + _TOLERANCE):
            yield "report.json: says more noise than its ε asks for"
        elif not _is_deviation(promise, gaussian=False):
            yield "report.json: the standard deviation is not that of noise of this scale"
        return
    kind, other = ("rho", "epsilon") if "rho" in promise else ("epsilon", "rho")
    parts = [step.get(kind, 0) for step in steps]
    if min(parts) <= 0 or any(other in step or not 0 < step["scale"] <= _LARGEST for step in steps):
        yield "report.json: a step of the budget is out of its range"
        return
    if sum(parts) > promise[kind] * (1 + _TOLERANCE):
        yield f"report.json: the steps spend more than the {'ρ' if kind == 'rho' else 'ε'} that is promised"
    if kind == "rho" and _log_delta(promise["rho"], promise["epsilon"]) > math.log(promise["delta"] or 1e-300) + 1e-6:
        yield "report.json: noise of this ρ does not keep ε and δ"
    if any(_spent(kind, step["scale"], promise["bound"]) > part for step, part in zip(steps, parts, strict=True)):
        yield f"report.json: the noise of a step does not keep its part of {'ρ' if kind == 'rho' else 'ε'}"
    if not all(_is_deviation(step, gaussian=kind == "rho") for step in steps):
        yield "report.json: the standard deviation of a step is not that of its scale"
    if (steps[-1]["scale"], steps[-1]["deviation"]) != (promise["scale"], promise["deviation"]):
        yield "report.json: the noise of the last step is not that of the published counts"
    names = [step["of"] for step in steps]
    if report["method"] == "privtree":
        yield from _check_parts(report, names)
    else:
        yield from _check_names(names, promise["domain"], in_cells)
    yield from _check_budget(report, [part / promise[kind] for part in parts])


def _is_deviation(noise: Mapping[str, Any], *, gaussian: bool) -> bool:
    """Whether the stated standard deviation is that of discrete noise of the stated scale, to the last digits.

    Readers are told how far off a count may be: a smaller or larger figure than the noise has is a wrong statement.
    """
    scale, said = noise["scale"], noise["deviation"]
    if not gaussian:
        found = math.sqrt(2 * math.exp(-1 / scale)) / -math.expm1(-1 / scale)
    elif scale > 10:
        found = scale
    else:
        # Beyond 200 the chances are below exp(-200): the sum is complete.
        chances = [math.exp(-(x / scale) * (x / scale) / 2) for x in range(1, 200)]
        squares = math.fsum(x**2 * chance for x, chance in enumerate(chances, 1))
        found = math.sqrt(2 * squares / (1 + 2 * math.fsum(chances)))
    return bool(abs(found - said) <= _LAST_DIGITS * math.ulp(found))


def _spent(kind: str, scale: float, bound: int) -> float:
    """What noise of this scale costs: of ε, or of ρ."""
    spent = bound / scale if kind == "epsilon" else (bound / scale) ** 2 / 2
    return spent * (1 - _TOLERANCE)


def _log_delta(rho: float, epsilon: float) -> float:
    """The logarithm of the smallest δ that ρ keeps with this ε, over many orders α (Canonne, Kamath, Steinke 2020)."""
    above = np.exp(np.linspace(math.log(1e-5), math.log(1e7), 200_000))
    alpha = 1 + above
    with np.errstate(over="ignore", invalid="ignore"):
        logs = above * (alpha * rho - epsilon) - np.log(above) + alpha * np.log1p(-1 / alpha)
    return float(np.nanmin(logs))


def _check_names(names: list[str], domain: Mapping[str, Any], in_cells: bool) -> Iterator[str]:
    """Whether the steps are those of the region, or, on a map, levels in order."""
    if in_cells:
        places = topmost(domain.get("region", ()))
        if not places:
            yield "report.json: steps need a region"
            return
        first = min(h3_cells.get_resolution(place) for place in places) + (len(places) == 1)
        expected = ["all", *map(str, range(first, domain["level"] + 1))]
    else:
        expected = ["all", *sorted((name for name in names[1:] if name.isdigit()), key=int)]
    if names != expected or len(set(names)) != len(names):
        yield "report.json: the steps are not those of the zones"


def topmost(region: Any) -> set[int]:
    """The cells of a region that lie in no other; none where the region is not one of cells."""
    try:
        cells = {int(code, 16) for code in region}
        level = {cell: h3_cells.get_resolution(cell) for cell in cells if h3_cells.is_valid_cell(cell)}
    except (TypeError, ValueError, OverflowError):
        return set()
    if len(level) < len(cells):
        return set()
    return {c for c in cells if all(h3_cells.cell_to_parent(c, r) not in cells for r in range(level[c]))}


def _check_parts(report: Mapping[str, Any], names: list[str]) -> Iterator[str]:
    """Whether the noise on divisions is what the decay asks for; docs/methods/privtree.md says where that is from."""
    promise, decay = report["guarantee"], report["parameters"].get("options", {}).get("decay")
    if names != ["divisions", "counts"]:
        yield "report.json: the steps are not those of divisions and counts"
    elif isinstance(decay, bool) or not isinstance(decay, int | float) or not decay > 1:
        yield "report.json: the decay is not a number above 1"
    else:
        first = promise["steps"][0]
        if first["epsilon"] * first["scale"] * (decay - 1) < promise["bound"] * (2 * decay - 1) * (1 - _TOLERANCE):
            yield "report.json: the noise on divisions does not keep its part of ε"


def _check_budget(report: Mapping[str, Any], shares: list[float]) -> Iterator[str]:
    """Whether the shares are those that were asked for."""
    asked = report["parameters"].get("options", {}).get("budget")
    if asked is None:
        return
    try:
        wanted = [float(text) for text in str(asked).split(",")]
    except ValueError:
        wanted = []
    if len(wanted) != len(shares) or any(abs(a - b) > _TOLERANCE for a, b in zip(wanted, shares, strict=True)):
        yield "report.json: the steps do not have the shares of the budget that were asked for"
