"""What is asked of cells after a method has decided: rules that are not monotone, with which methods cannot search.

Each suppresses whole cells, and what it takes out counts towards the limit on suppression. A revision publishes cells
again that readers know already, so none of these rules can be asked for beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.release.dominance import check_dominance, without_dominated
from flowveil.release.plan import Plan
from flowveil.release.release import Release
from flowveil.release.revision import Earlier, revise
from flowveil.release.stricter import plan_stricter
from flowveil.zoning.places import read_places


@dataclass(frozen=True, eq=False)
class PostRules:
    """What was asked for; None where nothing was.

    Attributes:
        dominance: the largest share of a cell's trips that one person may make.
        stricter: the list of places around which cells must reach more, as it was given.
        earlier: the releases that are revised.
    """

    dominance: float | None = None
    stricter: Any = None
    earlier: Earlier | None = None

    @classmethod
    def of(cls, *, dominance: float | None, stricter: Any, revision: Any) -> PostRules:
        """What was asked for, after a look at whether it goes together.

        Raises:
            ParameterError: the share is none, or a rule is asked for beside a revision.
        """
        earlier = None if revision is None else Earlier.of(revision)
        if earlier is not None and dominance is not None:
            raise ParameterError("A revision cannot suppress dominated cells: the earlier release shows them.")
        if earlier is not None and stricter is not None:
            raise ParameterError("A revision cannot ask more around listed places: the earlier release shows them.")
        check_dominance(dominance)
        return cls(dominance, stricter, earlier)

    @property
    def given(self) -> list[str]:
        """The names of the rules that were asked for."""
        return [name for name in ("dominance", "stricter") if getattr(self, name) is not None]

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
        return PostRules(self.dominance, read_places(self.stricter, asking=True).on(flows), self.earlier)

    def plan(
        self, decide: Callable[[float], Plan], flows: Flows, guarantee: Guarantee, *, max_suppressed: float
    ) -> tuple[Plan, dict[str, Any]]:
        """What the method decides and the rules leave, and what the report says of the rules.

        Args:
            decide: what the method decides within a share that it may suppress.
            flows: what is anonymised, prepared for the guarantee.
            guarantee: what every cell must satisfy.
            max_suppressed: the largest share of the volume that may be suppressed in all.

        Raises:
            InfeasibleError: more would be suppressed than may be.
        """
        said: dict[str, Any] = {}
        if self.stricter is None:
            plan = decide(max_suppressed)
        else:
            plan = plan_stricter(decide, flows, self.stricter, guarantee, max_suppressed=max_suppressed)
            said["stricter"] = {"places": len(self.stricter), **self.stricter.highest}
        if self.dominance is not None:
            plan = without_dominated(flows, plan, self.dominance, max_suppressed=max_suppressed, basis=guarantee.basis)
            said["dominance"] = float(self.dominance)
        return plan, said

    def revised(self, release: Release) -> Release:
        """The release, or what may be published of it beside the earlier ones."""
        return release if self.earlier is None else revise(release, self.earlier)
