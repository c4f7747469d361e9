"""A method as users name it: its function, its guarantee, and its options, read from the
signature.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from flowveil.core.errors import MissingExtraError, ParameterError, did_you_mean
from flowveil.core.flows import Flows
from flowveil.request import support
from flowveil.request.request import REMOVED, find_setting
from flowveil.zoning.restriction import Refinement, refined

#: Message of methods that find no plan.
INFEASIBLE = (
    "No cell can be published within max_suppressed: even a single cell with all trips is below the"
    " threshold. Hint: lower k, or use more data."
)
#: Parameter of methods that take a `flowveil.release.plan.CellRule`.
_CELL_RULE = "cell_rule"
#: Parameter of methods that take `flowveil.core.secret_thresholds.SecretThresholds`.
_SECRET = "secret"


@dataclass(frozen=True)
class Method:
    """A registered method.

    Attributes:
        plan: the function; returns a `Plan`, or `NoisyCounts` if it does not guarantee k.
        summary: one line for the help.
        homogeneous: its zones never overlap.
        same_zones_plan: the function that plans the same zones for both ends, with the same
            options.
        plan_slices: the function of a noisy method that plans all slices together, with the same
            options. None: each slice is planned alone.
        counts: ``exact``: every cell reaches the threshold; or ``noisy``: counts under differential
            privacy, without k, protect and max_suppressed.
        folds: it can merge time steps and values of attributes, cell by cell.
        common_zones: it can plan one map for all slices.
        hierarchy: default tree; None if the method does not use a hierarchy.
        max_suppressed: default share that may be suppressed.
    """

    name: str
    plan: Callable[..., Any]
    summary: str
    homogeneous: bool = True
    counts: Literal["exact", "noisy"] = "exact"
    folds: bool = False
    common_zones: bool = False
    same_zones_plan: Callable[..., Any] | None = None
    plan_slices: Callable[..., Any] | None = None
    hierarchy: Refinement | None = "h3"
    max_suppressed: float = 0.1

    def planner(self, flows: Flows) -> Callable[..., Any]:
        """Returns the function that plans for these flows.

        Raises ParameterError if they are not supported.
        """
        if flows.intake.outside == "keep":
            support.check({"outside"}, self.expected)
        if not flows.same_zones:
            return self.plan
        support.check({"same_zones"}, self.expected)
        assert self.same_zones_plan is not None
        return self.same_zones_plan

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options of the method, by name."""
        parameters = inspect.signature(self.plan).parameters
        internal = ("max_suppressed", _CELL_RULE, _SECRET)
        return {
            n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY and n not in internal
        }

    @property
    def takes_cell_rule(self) -> bool:
        """Whether the method plans around cells that a rule refuses.

        With others, rules are applied after planning.
        """
        return _CELL_RULE in inspect.signature(self.plan).parameters

    @property
    def takes_secret_thresholds(self) -> bool:
        """Whether cells of the method must reach k plus a secret amount."""
        return _SECRET in inspect.signature(self.plan).parameters

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises ParameterError for an option that the method does not have."""
        allowed = ", ".join(self.options) or "none"
        for name in options:
            if name not in self.options:
                hint = f" {REMOVED[name]}" if name in REMOVED else did_you_mean(name, self.options)
                raise ParameterError(
                    f"Method '{self.name}' has no option '{name}'; allowed: {allowed}.{hint}"
                )

    @property
    def expected(self) -> support.Expected:
        """What a release of this method will be, and the features that the method offers."""
        boxes = self.counts == "exact" and self.hierarchy is None
        offered = {
            "same_zones": self.same_zones_plan is not None,
            "fold": self.folds,
            "fold_time": self.folds,
            "key_file": self.takes_secret_thresholds,
            "districts": "districts" in self.options,
            "common_zones": self.common_zones,
        }
        return support.Expected(
            counts=self.counts,
            zones="boxes" if boxes else "nodes",
            overlap=not self.homogeneous,
            method=self.name,
            offers=frozenset(name for name, offers in offered.items() if offers),
        )

    def on_hierarchy(self, flows: Flows, hierarchy: str | None) -> tuple[Flows, dict[str, str]]:
        """Returns the flows on the requested or default tree, and parameters.

        ParameterError for impossible halves.
        """
        find_setting("hierarchy").check(hierarchy)
        if self.hierarchy is None:
            if hierarchy == "halves":
                support.check({"hierarchy"}, self.expected)
            return flows, {}
        flows, name = refined(flows, hierarchy, default=self.hierarchy)
        return flows, {"hierarchy": name}

    def parameters(
        self, flows: Flows, request: Mapping[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns all parameters needed to repeat the run, defaults included, computed thresholds
        excluded.
        """
        defaults = {
            n: p.default
            for n, p in self.options.items()
            if p.default is not inspect.Parameter.empty
        }
        trees = {fold.name: fold.parents for fold in flows.folds if fold.every is None}
        if not trees:
            defaults.pop("fold_weight", None)
        slices: dict[str, Any] = {"by_many": True} if trees and flows.intake.by_many else {}
        if plain := [fold.name for fold in flows.folds if fold.found]:
            slices["by"] = plain
        slices |= next(
            (
                {"every": fold.every, "fold_time": True}
                for fold in flows.folds
                if fold.every is not None
            ),
            {},
        )
        return {
            **request,
            "options": {**defaults, **options},
            **flows.intake.parameters(),
            **({"slices": slices} if slices else {}),
            **({"fold": trees} if trees else {}),
        }

    def parse_option(self, name: str, text: str) -> Any:
        """Parses an option given as text, by the type in the signature."""
        self.check_options({name: text})
        hint = typing.get_type_hints(self.plan)[name]
        choices = [a for a in typing.get_args(hint) or (hint,) if a is not type(None)]
        if typing.get_origin(hint) is Literal:
            if text not in choices:
                raise ParameterError(
                    f"Option '{name}' must be one of {', '.join(choices)}; found '{text}'."
                )
            return text
        if text.lower() in ("none", "") and len(choices) < len(typing.get_args(hint)):
            return None
        for kind in choices:
            # One of several types may be a word, such as 'auto' for a number.
            if typing.get_origin(kind) is Literal and text in typing.get_args(kind):
                return text
            try:
                return _PARSERS[kind](text)
            except (ValueError, KeyError):
                continue
        wanted = " or ".join(getattr(k, "__name__", str(k)) for k in choices)
        raise ParameterError(f"Option '{name}' must be {wanted}; found '{text}'.")


@contextmanager
def boxes_extra(method: str) -> Iterator[None]:
    """Turns a failed import into a MissingExtraError that names the extra ``boxes``."""
    try:
        yield
    except ModuleNotFoundError as problem:
        raise MissingExtraError(
            f"{method} needs {problem.name}, which is not installed. Hint: pip install"
            " 'flowveil[boxes]'."
        ) from problem


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_PARSERS: dict[Any, Callable[[str], Any]] = {
    bool: lambda text: _BOOLEANS[text.lower()],
    int: int,
    float: float,
    str: str,
}
