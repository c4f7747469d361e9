"""Which ε is a promise: shared by everything that adds noise.

ε bounds the factor exp(ε) by which one person may change the probability of a release. At 10 that factor is 22,026, at
20 it is 485 million: no promise any more. Where a person has one trip, noise of scale 1/20 changes one count in 240
million: the raw matrix, called protected. A larger ε is refused.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from flowveil.errors import ParameterError

#: Above this the noise vanishes: refused.
LARGEST_EPSILON = 20.0
#: Above this the promise is weak: warned of.
WEAK_EPSILON = 10.0


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
