"""Checks of ε, and OpenDP mechanisms, shared by everything that adds noise.

ε bounds the factor exp(ε) by which one person may change the probability of a release. At 10 that factor is 22,026, at
20 it is 485 million, and noise of scale 1/20 changes one count in 240 million. A larger ε is refused.
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import GuaranteeError, MissingExtraError, ParameterError

Counts = NDArray[np.int64]

#: Largest ε that is accepted.
LARGEST_EPSILON = 20.0
#: ε above this gives a warning.
WEAK_EPSILON = 10.0
#: Counts in one call of OpenDP.
_BATCH_SIZE = 1 << 16


class WeakPromiseWarning(UserWarning):
    """The requested ε protects little."""


def check_epsilon(epsilon: Any) -> float:
    """Returns ε as a float; warns if it is weak.

    Raises:
        ParameterError: it is not a number above 0, or too large to protect anything.
    """
    is_number = isinstance(epsilon, (int, float)) or hasattr(epsilon, "__float__")
    if isinstance(epsilon, (bool, str)) or not is_number or not math.isfinite(epsilon) or epsilon <= 0:
        raise ParameterError(f"epsilon must be a number above 0; found {epsilon!r}.")
    if epsilon > LARGEST_EPSILON:
        raise ParameterError(
            f"epsilon must be at most {LARGEST_EPSILON:g}; found {epsilon:g}. With more, the noise vanishes and "
            "the raw numbers would be published as protected. Hint: epsilon=1 is a common choice."
        )
    weak = weakness(float(epsilon))
    if weak:
        warnings.warn(weak, WeakPromiseWarning, stacklevel=3)
    return float(epsilon)


def weakness(epsilon: float) -> str | None:
    """Returns the warning for a weak ε; None for others."""
    if epsilon <= WEAK_EPSILON:
        return None
    return (
        f"Weak: ε = {epsilon:g} is above {WEAK_EPSILON:g}. Whether one person is in the data may change the "
        f"probability of a release by a factor of {math.exp(epsilon):,.3g}."
    )


def noise_scale(sensitivity: int, epsilon: float) -> float:
    """Returns the scale of discrete Laplace noise: sensitivity / ε, rounded up."""
    scale = sensitivity / epsilon
    while Fraction(scale) * Fraction(epsilon) < sensitivity:
        scale = math.nextafter(scale, math.inf)
    return scale


def gaussian_deviation(squared_sensitivity: int, epsilon: float, delta: float) -> float:
    """Returns the standard deviation of discrete Gaussian noise for (ε, δ), rounded up.

    Noise of standard deviation σ is ρ-zCDP with ρ = Δ²/(2σ²), which implies (ρ + 2 √(ρ ln(1/δ)), δ)-differential
    privacy (Bun and Steinke 2016, Proposition 1.3; Canonne, Kamath and Steinke 2020 for the discrete distribution). The
    largest feasible ρ is (√(ln(1/δ) + ε) - √ln(1/δ))².

    Args:
        squared_sensitivity: Δ²: the squared L2 distance by which one person (or record) can change all counts.
        epsilon: the budget.
        delta: δ.
    """
    logarithm = math.log(1 / delta)
    # The difference of the two roots would lose digits for small ε.
    root = epsilon / (math.sqrt(logarithm + epsilon) + math.sqrt(logarithm))
    deviation = math.sqrt(squared_sensitivity / 2) / root
    return deviation * (1 + 1e-12)


def opendp_gaussian(counts: Counts, *, squared_sensitivity: int, epsilon: float, delta: float) -> Counts:
    """Releases integers under (ε, δ) by OpenDP's discrete Gaussian mechanism of `gaussian_deviation`.

    Raises:
        MissingExtraError: OpenDP is not installed.
        GuaranteeError: OpenDP's accounting exceeds the budget.
    """
    dp = _opendp()
    deviation = gaussian_deviation(squared_sensitivity, epsilon, delta)
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measure: Any = dp.m.make_gaussian(*space, scale=deviation)
    # Rounded up: the sensitivity must not be below the true one.
    change = math.nextafter(math.sqrt(squared_sensitivity), math.inf)
    spent = dp.c.make_zCDP_to_approxDP(measure).map(change).epsilon(delta)
    if spent > epsilon:
        raise GuaranteeError(f"OpenDP promises ε = {spent!r} at δ = {delta!r} where {epsilon!r} was asked for.")
    return _in_parts(measure, counts)


def opendp_laplace(counts: Counts, *, sensitivity: int, epsilon: float) -> Counts:
    """Releases integers under ε by OpenDP's discrete Laplace mechanism of scale `noise_scale`.

    Args:
        counts: the integers to release.
        sensitivity: the L1 distance by which one person (or record) can change all of them.
        epsilon: the budget. OpenDP confirms that it is kept, rounding included.

    Raises:
        MissingExtraError: OpenDP is not installed.
        GuaranteeError: OpenDP's accounting exceeds the budget.
    """
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measure: Any = dp.m.make_laplace(*space, scale=noise_scale(sensitivity, epsilon))
    if measure.map(sensitivity) > epsilon:
        raise GuaranteeError(f"OpenDP promises ε = {measure.map(sensitivity)!r} where {epsilon!r} was asked for.")
    return _in_parts(measure, counts)


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        raise MissingExtraError(
            "Noise is drawn with OpenDP, which is not installed. Hint: pip install 'flowveil[dp]'."
        ) from None
    dp.enable_features("contrib")
    return dp


def _in_parts(measure: Any, counts: Counts) -> Counts:
    """Applies a mechanism to counts in batches; the noise of different counts is independent."""
    parts = [
        np.array(measure(counts[i : i + _BATCH_SIZE].tolist()), dtype=np.int64)
        for i in range(0, len(counts), _BATCH_SIZE)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
