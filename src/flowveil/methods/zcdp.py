"""The zero-concentrated differential privacy (ρ) that ε and δ allow.

ρ adds up over steps, unlike ε and δ of Gaussian noise. A mechanism with ρ satisfies, for every α above 1,

    δ = exp((α - 1)(α ρ - ε)) / (α - 1) * (1 - 1 / α)**α

(Canonne, Kamath and Steinke 2020, proposition 12 and corollary 13). Any single α is a proof. α and the largest ρ are
searched in floating point; the result is then proved with many digits, rounded in favour of privacy.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction

_DIGITS = 50
#: Upper bound of rounding errors.
_SPOILT = Decimal(10) ** -30


def largest_rho(epsilon: float, delta: float) -> Fraction:
    """Returns a ρ that provably keeps ε and δ, less than a millionth below the largest that this proof allows.

    Args:
        epsilon: ε, above 0.
        delta: δ, above 0 and below 1.
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
    with localcontext(prec=_DIGITS):
        a, r, e = _decimal(alpha), _decimal(rho), Decimal(epsilon)
        log_delta = (a - 1) * (a * r - e) - (a - 1).ln() + a * (1 - 1 / a).ln()
        return log_delta + _SPOILT <= Decimal(delta).ln()


def _decimal(value: Fraction) -> Decimal:
    with localcontext(prec=_DIGITS, rounding=ROUND_CEILING):
        return Decimal(value.numerator) / Decimal(value.denominator)


def _log_delta(alpha: float, rho: float, epsilon: float) -> float:
    return (alpha - 1) * (alpha * rho - epsilon) - math.log(alpha - 1) + alpha * math.log1p(-1 / alpha)


def _best_alpha(rho: float, epsilon: float) -> float:
    """Returns the α with the smallest bound, by ternary search: the bound is unimodal."""
    low, high = math.log(1e-6), math.log(max(10.0, 4 * epsilon / rho if rho > 0 else 1e9))
    for _ in range(120):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        smaller = _log_delta(1 + math.exp(a), rho, epsilon) < _log_delta(1 + math.exp(b), rho, epsilon)
        low, high = (low, b) if smaller else (a, high)
    return 1 + math.exp((low + high) / 2)
