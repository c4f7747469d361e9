"""Checks of ε, and the noise that ε and δ require, shared by everything that adds noise.

ε bounds the factor exp(ε) by which one person may change the probability of a release; above 20 it
is refused. ρ of zero-concentrated differential privacy adds up over steps. It implies, for every α
above 1,

    δ = exp((α - 1)(α ρ - ε)) / (α - 1) * (1 - 1 / α)**α

(Canonne, Kamath and Steinke 2020, corollary 13). α and the largest ρ are searched in floating
point; the result is then proved with many digits, rounded in favour of privacy.
"""

from __future__ import annotations

import math
import warnings
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Any

from flowveil.core.errors import ParameterError

#: Largest ε that is accepted.
LARGEST_EPSILON = 20.0
#: ε above this gives a warning.
WEAK_EPSILON = 10.0
#: Digits of proofs about ρ, and an upper bound of their rounding errors.
_DIGITS, _SPOILT = 50, Decimal(10) ** -30


class WeakPromiseWarning(UserWarning):
    """The requested ε protects little."""


def check_epsilon(epsilon: Any) -> float:
    """Returns ε as a float.

    Warns if it is weak, and raises ParameterError if it is not a number that protects.
    """
    is_number = isinstance(epsilon, (int, float)) or hasattr(epsilon, "__float__")
    if (
        isinstance(epsilon, (bool, str))
        or not is_number
        or not math.isfinite(epsilon)
        or epsilon <= 0
    ):
        raise ParameterError(f"epsilon must be a number above 0; found {epsilon!r}.")
    if epsilon > LARGEST_EPSILON:
        raise ParameterError(
            f"epsilon must be at most {LARGEST_EPSILON:g}; found {epsilon:g}. With more, the noise"
            " vanishes and the raw numbers would be published as protected. Hint: epsilon=1 is a"
            " common choice."
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
        f"Weak: ε = {epsilon:g} is above {WEAK_EPSILON:g}. Whether one person is in the data may"
        f" change the probability of a release by a factor of {math.exp(epsilon):,.3g}."
    )


def rounded_up(scale: Fraction) -> float:
    """Returns the scale as a float, rounded up."""
    nearest = float(scale)
    return nearest if Fraction(nearest) >= scale else math.nextafter(nearest, math.inf)


def noise_scale(sensitivity: int, epsilon: float) -> float:
    """Returns the scale of discrete Laplace noise: sensitivity / ε, rounded up."""
    return rounded_up(sensitivity / Fraction(epsilon))


def gaussian_deviation(squared_sensitivity: int, epsilon: float, delta: float) -> float:
    """Returns the standard deviation of discrete Gaussian noise for (ε, δ) and a squared L2
    sensitivity Δ², rounded up.

    Noise of standard deviation σ is ρ-zCDP with ρ = Δ²/(2σ²), which implies (ρ + 2 √(ρ ln(1/δ)),
    δ)-differential privacy (Bun and Steinke 2016, Proposition 1.3; Canonne, Kamath and Steinke 2020
    for the discrete distribution). The largest feasible ρ is (√(ln(1/δ) + ε) - √ln(1/δ))².
    """
    logarithm = math.log(1 / delta)
    # The difference of the two roots would lose digits for small ε.
    root = epsilon / (math.sqrt(logarithm + epsilon) + math.sqrt(logarithm))
    return math.sqrt(squared_sensitivity / 2) / root * (1 + 1e-12)


def largest_rho(epsilon: float, delta: float) -> Fraction:
    """Returns a ρ that provably keeps ε and δ (0 < δ < 1), less than a millionth below the largest
    by this proof.
    """
    low, high = 0.0, epsilon
    for _ in range(80):
        middle = (low + high) / 2
        enough = _log_delta(_best_alpha(middle, epsilon), middle, epsilon) <= math.log(delta)
        low, high = (middle, high) if enough else (low, middle)
    alpha = Fraction(_best_alpha(low, epsilon))
    rho = Fraction(low)
    while True:
        rho *= 1 - Fraction(1, 10**7)
        if keeps(rho, epsilon, delta, alpha):
            return rho


def keeps(rho: Fraction, epsilon: float, delta: float, alpha: Fraction) -> bool:
    """Returns whether ρ keeps ε and δ by the bound for this α, with every rounding against it."""
    with localcontext(prec=_DIGITS, rounding=ROUND_CEILING):
        a, r = (Decimal(value.numerator) / Decimal(value.denominator) for value in (alpha, rho))
    with localcontext(prec=_DIGITS):
        log_delta = (a - 1) * (a * r - Decimal(epsilon)) - (a - 1).ln() + a * (1 - 1 / a).ln()
        return log_delta + _SPOILT <= Decimal(delta).ln()


def _log_delta(alpha: float, rho: float, epsilon: float) -> float:
    return (
        (alpha - 1) * (alpha * rho - epsilon) - math.log(alpha - 1) + alpha * math.log1p(-1 / alpha)
    )


def _best_alpha(rho: float, epsilon: float) -> float:
    """Returns the α with the smallest bound, by ternary search: the bound is unimodal."""
    low, high = math.log(1e-6), math.log(max(10.0, 4 * epsilon / rho if rho > 0 else 1e9))
    for _ in range(120):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        smaller = _log_delta(1 + math.exp(a), rho, epsilon) < _log_delta(
            1 + math.exp(b), rho, epsilon
        )
        low, high = (low, b) if smaller else (a, high)
    return 1 + math.exp((low + high) / 2)
