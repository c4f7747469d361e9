"""Which ε is a promise, and the noise that keeps it: shared by everything that adds noise.

ε bounds the factor exp(ε) by which one person may change the probability of a release. At 10 that factor is 22,026, at
20 it is 485 million: no promise any more. Where a person has one trip, noise of scale 1/20 changes one count in 240
million: the raw matrix, called protected. A larger ε is refused.

The noise on counts comes from OpenDP: exact integer arithmetic and the system's secure random numbers. Differences of
floating-point logarithms, as in numpy's Laplace sampler, leak the count in their last bits.
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

#: Above this the noise vanishes: refused.
LARGEST_EPSILON = 20.0
#: Above this the promise is weak: warned of.
WEAK_EPSILON = 10.0
#: Counts that OpenDP gets at a time.
_COUNTS_AT_ONCE = 1 << 16


class WeakPromiseWarning(UserWarning):
    """The ε asked for hides little."""


def check_epsilon(epsilon: Any) -> float:
    """Return ε as a number; warn of a weak one.

    Raises:
        ParameterError: it is not a number above 0, or so large that nothing would be hidden.
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
    """What is to be said of a weak ε; None for others."""
    if epsilon <= WEAK_EPSILON:
        return None
    return (
        f"Weak: ε = {epsilon:g} is above {WEAK_EPSILON:g}. Whether one person is in the data may change the "
        f"probability of a release by a factor of {math.exp(epsilon):,.3g}."
    )


def noise_scale(sensitivity: int, epsilon: float) -> float:
    """The scale of discrete Laplace noise: sensitivity / ε, rounded up, so that there is never less noise."""
    scale = sensitivity / epsilon
    while Fraction(scale) * Fraction(epsilon) < sensitivity:
        scale = math.nextafter(scale, math.inf)
    return scale


def gaussian_deviation(squared_sensitivity: int, epsilon: float, delta: float) -> float:
    """The standard deviation of discrete Gaussian noise for (ε, δ), rounded up, so that there is never less noise.

    Noise of standard deviation σ is ρ-zCDP with ρ = Δ²/(2σ²), and that is (ρ + 2 √(ρ ln(1/δ)), δ)-differentially
    private (Bun and Steinke 2016, Proposition 1.3; Canonne, Kamath and Steinke 2020 for the discrete law). The largest
    ρ that fits is (√(ln(1/δ) + ε) - √ln(1/δ))².

    Args:
        squared_sensitivity: Δ²: by how much one person (or record) can change all counts together, as a sum of squares.
        epsilon: the budget.
        delta: δ.
    """
    logarithm = math.log(1 / delta)
    # Not the difference of two roots, which loses digits where ε is small.
    root = epsilon / (math.sqrt(logarithm + epsilon) + math.sqrt(logarithm))
    deviation = math.sqrt(squared_sensitivity / 2) / root
    return deviation * (1 + 1e-12)


def opendp_gaussian(counts: Counts, *, squared_sensitivity: int, epsilon: float, delta: float) -> Counts:
    """Release whole numbers under (ε, δ) by OpenDP's discrete Gaussian mechanism of `gaussian_deviation`.

    Raises:
        MissingExtraError: OpenDP is not installed.
        GuaranteeError: OpenDP's own accounting is above the budget; nothing is returned.
    """
    dp = _opendp()
    deviation = gaussian_deviation(squared_sensitivity, epsilon, delta)
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measure: Any = dp.m.make_gaussian(*space, scale=deviation)
    # Rounded up: a sensitivity below the true one would be no promise.
    change = math.nextafter(math.sqrt(squared_sensitivity), math.inf)
    spent = dp.c.make_zCDP_to_approxDP(measure).map(change).epsilon(delta)
    if spent > epsilon:
        raise GuaranteeError(f"OpenDP promises ε = {spent!r} at δ = {delta!r} where {epsilon!r} was asked for.")
    return _in_parts(measure, counts)


def opendp_laplace(counts: Counts, *, sensitivity: int, epsilon: float) -> Counts:
    """Release whole numbers under ε by OpenDP's discrete Laplace mechanism of scale `noise_scale`.

    Args:
        counts: what is to be released.
        sensitivity: by how much one person (or record) can change all of them together, as a sum of absolute changes.
        epsilon: the budget. OpenDP itself confirms that it is kept, rounding included.

    Raises:
        MissingExtraError: OpenDP is not installed.
        GuaranteeError: OpenDP's own accounting is above the budget; nothing is returned.
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
    """What a mechanism makes of counts, some at a time: noise of different counts is independent."""
    parts = [
        np.array(measure(counts[i : i + _COUNTS_AT_ONCE].tolist()), dtype=np.int64)
        for i in range(0, len(counts), _COUNTS_AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
