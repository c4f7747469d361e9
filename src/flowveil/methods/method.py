"""A method as users name it: its function, what it promises, and its options, read from the signature."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flowveil.errors import ParameterError, did_you_mean
from flowveil.flows import Flows
from flowveil.zoning.refinement import Read, Refinement, check_hierarchy, refined


@dataclass(frozen=True)
class Method:
    """A registered method.

    Attributes:
        name: what users write.
        plan: the function, which returns a `Plan`, or `NoisyCounts` where it promises epsilon.
        summary: one line for the help.
        homogeneous: its zones never overlap.
        same_zones_plan: the function that plans the same zones for both ends, with the same options; None if the method
            has none.
        promises: ``k``: every cell hides so many; or ``epsilon``: noisy counts under differential privacy, to which k,
            protect and max_suppressed mean nothing.
        folds: it can put steps of time together, cell by cell.
        hierarchy: the tree it works on unless another is asked for; None for a method that works on no tree, to which
            the question means nothing.
    """

    name: str
    plan: Callable[..., Any]
    summary: str
    homogeneous: bool = True
    promises: Literal["k", "epsilon"] = "k"
    folds: bool = False
    same_zones_plan: Callable[..., Any] | None = None
    hierarchy: Refinement | None = "h3"

    def planner(self, flows: Flows) -> Callable[..., Any]:
        """The function that plans for these flows.

        Raises:
            ParameterError: both ends are to have the same zones, or an end may be anywhere outside an area, and the
                method cannot do that.
        """
        if flows.intake.outside == "keep" and (self.promises == "epsilon" or self.hierarchy is None):
            raise ParameterError(
                f"Method '{self.name}' cannot keep trips with an end outside the area (--outside keep): it needs to "
                "know where all of them lie. Hint: --outside drop, or a method that works on a tree, such as twincut."
            )
        if not flows.same_zones:
            return self.plan
        if self.same_zones_plan is None:
            raise ParameterError(
                f"Method '{self.name}' cannot give both ends the same zones (--same-zones). Hint: use twincut, "
                "odkanon, oigh or suppression."
            )
        return self.same_zones_plan

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The method's own options, by name."""
        parameters = inspect.signature(self.plan).parameters
        return {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY and n != "max_suppressed"}

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise ParameterError for an option the method does not have."""
        for name in options:
            if name not in self.options:
                allowed = ", ".join(self.options) or "none"
                raise ParameterError(
                    f"Method '{self.name}' has no option '{name}'; allowed: {allowed}."
                    + did_you_mean(name, self.options)
                )

    def check_times(self, flows: Flows) -> None:
        """Refuse times that fold where the method cannot put them together.

        Raises:
            ParameterError: the flows have times, and the method does not fold them.
        """
        if flows.times is not None and not self.folds:
            raise ParameterError(f"Method '{self.name}' cannot fold time. Hint: --method paircut does.")

    def refuse_thresholds(self, given: Sequence[str]) -> None:
        """Say that a method that adds noise keeps no thresholds, rather than ignore that somebody asked for them.

        Raises:
            ParameterError: some were given, and the method promises no k.
        """
        if given and self.promises != "k":
            raise ParameterError(
                f"Method '{self.name}' adds noise and promises no smallest cell: {', '.join(given)} cannot be kept by "
                "it. Hint: leave that out and give epsilon, and bound where persons are known."
            )

    def on_hierarchy(self, flows: Read, asked: str | None) -> tuple[Read, dict[str, str]]:
        """The flows on the tree that was asked for, or on the one that the method works on; and what to record of it.

        Raises:
            ParameterError: halves were asked for, and the method works on no tree, or this tree cannot be refined.
        """
        check_hierarchy(asked)
        if self.hierarchy is None:
            if asked == "halves":
                raise ParameterError(
                    f"Method '{self.name}' does not merge zones of a tree, so hierarchy='halves' means nothing to it. "
                    "Hint: leave it out."
                )
            return flows, {}
        flows, name = refined(flows, asked, default=self.hierarchy)
        return flows, {"hierarchy": name}

    def parameters(self, flows: Flows, asked: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Everything needed to run it again, defaults included. A threshold that was worked out is not a parameter."""
        defaults = {n: p.default for n, p in self.options.items() if p.default is not inspect.Parameter.empty}
        return {
            **asked,
            "options": {**defaults, **options},
            **flows.intake.parameters(),
            **({} if flows.times is None else {"slices": {"every": flows.times.every, "fold_time": True}}),
        }

    def parse_option(self, name: str, text: str) -> Any:
        """Read an option that was given as text, by the type of the signature."""
        self.check_options({name: text})
        hint = typing.get_type_hints(self.plan)[name]
        choices = [a for a in (typing.get_args(hint) or (hint,)) if a is not type(None)]
        if typing.get_origin(hint) is Literal:
            if text not in choices:
                raise ParameterError(f"Option '{name}' must be one of {', '.join(choices)}; found '{text}'.")
            return text
        if text.lower() in ("none", "") and len(choices) < len(typing.get_args(hint)):
            return None
        for kind in choices:
            # One of several forms may be a word, such as the 'auto' of a number that is chosen by the method.
            if typing.get_origin(kind) is Literal and text in typing.get_args(kind):
                return text
            try:
                return _PARSERS[kind](text)
            except (ValueError, KeyError):
                continue
        wanted = " or ".join(getattr(k, "__name__", str(k)) for k in choices)
        raise ParameterError(f"Option '{name}' must be {wanted}; found '{text}'.")


def _parse_bool(text: str) -> bool:
    if text.lower() in ("true", "yes", "1"):
        return True
    if text.lower() in ("false", "no", "0"):
        return False
    raise ValueError(text)


_PARSERS: dict[Any, Callable[[str], Any]] = {bool: _parse_bool, int: int, float: float, str: str}
