"""Rules that are not monotone: dominance, t-closeness, stricter places, revisions.

Methods rely on monotonicity, so these rules do not enter their search. For a method that plans one set of cells they
are applied after planning, and suppress whole cells. A method in layers takes them as a `CellRule`: a cell that breaks
a rule is not published in its layer, and its trips go on to the next. What is suppressed counts towards the limit.

A revision publishes cells again that readers know already, so it cannot be combined with such a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Ints
from flowveil.release.closeness import check_closeness, plan_close, refusal
from flowveil.release.dominance import check_dominance, dominance_rule, without_dominated
from flowveil.release.plan import CellRule, Plan
from flowveil.release.release import Release
from flowveil.release.revision import Earlier, revise
from flowveil.release.stricter import plan_stricter, stricter_rule, too_much_suppressed
from flowveil.zoning.places import read_places

#: A limit on suppression that every plan keeps.
_NO_LIMIT = float(np.nextafter(1, 0))


class Planner(Protocol):
    """Plans flows within a share that may be suppressed; with a rule if the method takes one."""

    def __call__(self, max_suppressed: float, *, cell_rule: CellRule | None = None) -> Plan:
        """Returns the plan."""
        ...


@dataclass(frozen=True, eq=False)
class PostRules:
    """The requested rules; None for those that are not set.

    Attributes:
        dominance: the largest share of a cell's trips that one person may make.
        stricter: the list of places around which cells must reach more, as it was given.
        earlier: the releases that are revised.
        t: the largest distance of the trips of a zone from all published trips.
    """

    dominance: float | None = None
    stricter: Any = None
    earlier: Earlier | None = None
    t: float | None = None

    @classmethod
    def from_request(
        cls, *, dominance: float | None, stricter: Any, revision: Any, t: float | None = None
    ) -> PostRules:
        """Checks that the rules can be combined.

        Raises:
            ParameterError: the share is out of range, or a rule is combined with a revision.
        """
        earlier = None if revision is None else Earlier.of(revision)
        if earlier is not None and dominance is not None:
            raise ParameterError("A revision cannot suppress dominated cells: the earlier release shows them.")
        if earlier is not None and stricter is not None:
            raise ParameterError("A revision cannot ask more around listed places: the earlier release shows them.")
        if earlier is not None and t is not None:
            raise ParameterError("A revision cannot suppress distant zones (t): the earlier release shows them.")
        check_dominance(dominance)
        check_closeness(t)
        return cls(dominance, stricter, earlier, t)

    @property
    def given(self) -> list[str]:
        """The names of the rules that are set."""
        return [name for name in ("dominance", "stricter", "t") if getattr(self, name) is not None]

    def zones_of(self, given: Any) -> Any:
        """The zones that are kept: those of the release that is revised, or those that were given."""
        return given if self.earlier is None else self.earlier.zones_of(given)

    def on(self, flows: Flows) -> PostRules:
        """The same with the list of places read, by the tiles of these flows.

        Raises:
            DataError, ParameterError: the list cannot be read, or a place is not on the map.
        """
        if self.stricter is None:
            return self
        return replace(self, stricter=read_places(self.stricter, asking=True).on(flows))

    def plan(
        self, decide: Planner, flows: Flows, guarantee: Guarantee, *, max_suppressed: float, in_layers: bool
    ) -> tuple[Plan, dict[str, Any]]:
        """Plans flows under the rules.

        Args:
            decide: the method.
            flows: what is anonymised, prepared for the guarantee.
            guarantee: what every cell must satisfy.
            max_suppressed: the largest share of the volume that may be suppressed in all.
            in_layers: whether the method takes rules on cells.

        Returns:
            The plan, and what the report says of the rules.

        Raises:
            InfeasibleError: more would be suppressed than may be.
        """
        parameters: dict[str, Any] = {}
        if self.stricter is not None:
            parameters["stricter"] = {"places": len(self.stricter), **self.stricter.highest}
        if self.dominance is not None:
            parameters["dominance"] = float(self.dominance)
        if self.t is not None:
            parameters["t"] = float(self.t)
            if in_layers:
                raise refusal()
        if in_layers and parameters:
            return self._plan_layers(decide, flows, guarantee, max_suppressed), parameters

        def plan_within(share: float) -> Plan:
            if self.stricter is None:
                plan = decide(share)
            else:
                plan = plan_stricter(decide, flows, self.stricter, guarantee, max_suppressed=share)
            if self.dominance is None:
                return plan
            return without_dominated(flows, plan, self.dominance, max_suppressed=share, basis=guarantee.basis)

        if self.t is None:
            return plan_within(max_suppressed), parameters
        plan = plan_close(plan_within, flows, self.t, max_suppressed=max_suppressed, basis=guarantee.basis)
        return plan, parameters

    def _plan_layers(self, decide: Planner, flows: Flows, guarantee: Guarantee, max_suppressed: float) -> Plan:
        rules: list[CellRule] = []
        if self.stricter is not None:
            rules.append(stricter_rule(flows, self.stricter, guarantee))
        if self.dominance is not None:
            rules.append(dominance_rule(flows, self.dominance))

        def breaks_any(rows: NDArray[np.int64], cell: NDArray[np.int64], nodes: Sequence[Ints]) -> NDArray[np.bool_]:
            broken: NDArray[np.bool_] = np.any([rule(rows, cell, nodes) for rule in rules], axis=0)
            return broken

        try:
            plan = decide(max_suppressed, cell_rule=breaks_any)
        except InfeasibleError:
            # Without the rules the method may fail as well, and says why.
            decide(max_suppressed)
            volume = flows.volume(guarantee.basis).astype(np.float64)
            kept = _kept_without_limit(decide, breaks_any)
            share = 1.0 if kept is None else float(volume[~kept].sum() / volume.sum())
            raise too_much_suppressed(share, max_suppressed) from None
        return replace(plan, stricter=self.stricter)

    def revised(self, release: Release) -> Release:
        """The release, or what may be published of it next to the earlier ones."""
        return release if self.earlier is None else revise(release, self.earlier)


def _kept_without_limit(decide: Planner, rule: CellRule) -> NDArray[np.bool_] | None:
    try:
        return decide(_NO_LIMIT, cell_rule=rule).kept
    except InfeasibleError:
        return None
