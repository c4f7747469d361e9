"""The methods, one file each, named after its paper.

A method is a function ``(flows, guarantee, *, max_suppressed, **options) -> Plan``, or, if it adds
noise, ``(flows, **options) -> NoisyCounts``. Registering it in `METHODS` is enough; options and
their types are read from the signature. Methods of users (docs/methods/your-own.md) are recounted
like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from flowveil.core.errors import ParameterError, did_you_mean
from flowveil.methods.atg import atg_dual, atg_soft
from flowveil.methods.curvecut import curvecut
from flowveil.methods.glove import glove, glove_sk
from flowveil.methods.laplace import laplace
from flowveil.methods.layercut import layercut
from flowveil.methods.method import Method
from flowveil.methods.mondrian import mondrian
from flowveil.methods.odkanon import odkanon
from flowveil.methods.oigh import oigh, one_level, suppression
from flowveil.methods.paircut import paircut
from flowveil.methods.posterior import posterior, posterior_of_slices
from flowveil.methods.privtree import privtree
from flowveil.methods.topdown import topdown
from flowveil.methods.twincut import twincut
from flowveil.methods.twincut_same_zones import twincut_same_zones

__all__ = ["METHODS", "Method", "find_method", "k_methods"]

#: One line for the help, by name.
_SUMMARIES = {
    "twincut": (
        "fine zones that do not overlap, within the limit on suppression (ours; the default for one"
        " map)"
    ),
    "odkanon": "greedy merging into zones that do not overlap (Armenante et al. 2025)",
    "paircut": (
        "fine cells that do not intersect, within the limit on suppression, with a proven gap"
        " (ours)"
    ),
    "layercut": (
        "PairCut in layers: nearly every trip is published, in a cell as fine as it can be (ours;"
        " the default)"
    ),
    "oigh": (
        "one level for all origins and one for all destinations (as adapted by Matet et al. 2023)"
    ),
    "suppression": "unchanged tiles, cells below the threshold suppressed without limit (baseline)",
    "atg-dual": (
        "best destination cut for each origin zone, hard limit on suppression (Matet et al. 2023)"
    ),
    "atg-soft": "the same with a hard limit on zone sizes instead (Matet et al. 2023)",
    "mondrian": "median cuts of coordinates into boxes, nothing suppressed (LeFevre et al. 2006)",
    "glove": (
        "greedy merging of boxes below the threshold (Gramaglia and Fiore 2015, by Matet et al."
        " 2023)"
    ),
    "glove-sk": "scikit-learn's clustering, blind to volumes (baseline, Matet et al. 2023)",
    "curvecut": (
        "small boxes, which overlap, within the limit on suppression (ours, after Ghinita et al."
        " 2007)"
    ),
    "laplace": (
        "noisy counts, differentially private; --option epsilon=1, no k (baseline, Matet et al."
        " 2023)"
    ),
    "topdown": (
        "noisy counts, consistent from the top down, differentially private "
        "(after Boninsegna and Silvestri 2025)"
    ),
    "privtree": (
        "noisy counts of cells as fine as the noise allows, differentially private (after Zhang et"
        " al. 2016)"
    ),
    "posterior": (
        "whole counts between districts, estimated from noisy ones, differentially private (ours)"
    ),
}
#: Traits of methods with boxes as zones, with noise, and with cells that may fold time.
_BOXES: dict[str, Any] = {"homogeneous": False, "hierarchy": None}
_NOISE: dict[str, Any] = {"counts": "noisy", "hierarchy": None}
_FOLDING: dict[str, Any] = {"homogeneous": False, "folds": True, "hierarchy": "halves"}
_PLANS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "twincut": (twincut, {"same_zones_plan": twincut_same_zones, "hierarchy": "halves"}),
    "odkanon": (odkanon, {"same_zones_plan": odkanon, "common_zones": True}),
    "paircut": (paircut, _FOLDING),
    "layercut": (layercut, {**_FOLDING, "max_suppressed": 0.01, "common_zones": True}),
    "oigh": (oigh, {"same_zones_plan": one_level}),
    "suppression": (suppression, {"same_zones_plan": suppression}),
    "atg-dual": (atg_dual, {"homogeneous": False}),
    "atg-soft": (atg_soft, {"homogeneous": False}),
    "mondrian": (mondrian, _BOXES),
    "glove": (glove, _BOXES),
    "glove-sk": (glove_sk, _BOXES),
    "curvecut": (curvecut, _BOXES),
    "laplace": (laplace, _NOISE),
    "topdown": (topdown, {**_NOISE, "homogeneous": False}),
    "privtree": (privtree, {**_NOISE, "homogeneous": False}),
    "posterior": (posterior, {**_NOISE, "plan_slices": posterior_of_slices}),
}
METHODS: dict[str, Method] = {
    name: Method(name, plan, _SUMMARIES[name], **traits) for name, (plan, traits) in _PLANS.items()
}
#: Methods of version 0.3.
_REMOVED = ("cellkey", "rounding")
#: Valid names of methods; the name is used in reports and commands.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")


def find_method(method: str | Method | Callable[..., Any]) -> Method:
    """Returns the method for a name, a `Method` or a function.

    ParameterError if unknown, invalid or named as ours.
    """
    if not isinstance(method, str):
        custom = _from_object(method)
        if custom.name in METHODS and custom.plan is not METHODS[custom.name].plan:
            raise ParameterError(
                f"A user-defined method cannot be called '{custom.name}': flowveil has a method of"
                " that name. Hint: Method('another-name', function, 'what it does')."
            )
        return custom
    known = METHODS.get(method) or _registered(method)
    if known is None and method in _REMOVED:
        raise ParameterError(
            f"Method '{method}' was removed: it promised neither k nor ε, and a person who is added"
            " between two releases changes exactly her cells. Hint: --method topdown for noise;"
            " statistical offices have the packages cellKey and ptable (R)."
        )
    if known is None:
        names = method_names()
        raise ParameterError(
            f"Unknown method '{method}'; allowed: {', '.join(names)}." + did_you_mean(method, names)
        )
    return known


def method_names() -> tuple[str, ...]:
    """Returns the names of all methods, those of other packages last."""
    return (*METHODS, *(name for name in sorted(_entry_points()) if name not in METHODS))


def k_methods() -> tuple[str, ...]:
    """Returns the names of all methods that guarantee k, those of other packages last."""
    return tuple(name for name in method_names() if find_method(name).counts == "exact")


def _from_object(given: Any, *, name: str | None = None) -> Method:
    """Returns a method from a `Method`, or from a function, named after it by default."""
    if isinstance(given, Method):
        method = given
    elif callable(given):
        function_name = (
            str(getattr(given, "__name__", type(given).__name__)).strip("_").replace("_", "-")
        )
        summary = " ".join(
            (getattr(given, "__doc__", None) or "").strip().partition("\n\n")[0].split()
        )
        method = Method(name or function_name, given, summary or "a user-defined method")
    else:
        raise ParameterError(
            f"method must be a name, a function or a Method; found {type(given).__name__}."
        )
    if _NAME.fullmatch(method.name) is None:
        raise ParameterError(
            "Invalid name of a method: letters, digits, '-', '_' and '.' are allowed, starting with"
            " a letter. Hint: wrap a lambda or a partial function: Method('my-name', function,"
            " 'what it does')."
        )
    return method


@cache
def _entry_points() -> dict[str, EntryPoint]:
    """Returns the methods that other packages registered, by name; nothing is loaded."""
    return {entry.name: entry for entry in entry_points(group="flowveil.methods")}


@cache
def _registered(name: str) -> Method | None:
    """Returns the method that another package registered under a name.

    None if the name is unknown.
    """
    if (entry := _entry_points().get(name)) is None:
        return None
    try:
        loaded = entry.load()
    except Exception as problem:
        raise ParameterError(
            f"Method '{name}' is registered by another package, but cannot be loaded:"
            f" {type(problem).__name__}. Hint: install that package again, or remove it."
        ) from None
    if isinstance(loaded, Method) and loaded.name != name:
        raise ParameterError(
            f"Method '{name}' is registered under a different name than its own, '{loaded.name}'."
        )
    return _from_object(loaded, name=name)
