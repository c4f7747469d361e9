"""Rules that are not monotone: dominance, t-closeness, stricter places, revisions.

Methods rely on monotonicity, so these rules do not enter their search. They are applied after
planning, and suppress whole cells (t-closeness: whole zones, the farthest first), which count
towards the limit. A method in layers takes them as a `CellRule`: a refused cell's trips go on to
the next layer. docs/decisions/0007-post-rules.md has the reasons. A cell is around a stricter place
whether or not a trip ends there: otherwise it would reveal that none does. A revision publishes
cells again that readers know already, so it cannot be combined with such a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Floats, Ints, Mask, Positions
from flowveil.core.errors import DataError, InfeasibleError, ParameterError, option
from flowveil.core.flows import Flows, group_pairs
from flowveil.core.guarantee import Guarantee
from flowveil.release.plan import CellRule, Plan
from flowveil.release.revision import Earlier
from flowveil.request import support
from flowveil.zoning.places import Places, read_places, tiling

#: A limit on suppression that every plan keeps.
_NO_LIMIT = float(np.nextafter(1, 0))
#: Shares of the limit on suppression that the method itself gets with t-closeness, in the order of
#: the trials.
_SHARES_OF_METHOD = (1.0, 0.5, 0.25, 0.0)
#: Runs of the method that leave more of the limit to stricter places; the last one suppresses
#: nothing.
_TRIES = 3


class Planner(Protocol):
    """Plans flows within a share that may be suppressed; with a rule if the method takes one."""

    def __call__(self, max_suppressed: float, *, cell_rule: CellRule | None = None) -> Plan:
        """Returns the plan."""


@dataclass(frozen=True, eq=False)
class PostRules:
    """The requested rules; None for those that are not set."""

    dominance: float | None = None  # the largest share of a cell's trips that one person may make
    stricter: Any = None  # the list of places around which cells must reach more, as it was given
    earlier: Earlier | None = None  # the releases that are revised
    t: float | None = None  # the largest distance of the trips of a zone from all published trips

    @classmethod
    def from_request(
        cls, *, dominance: float | None, stricter: Any, revision: Any, t: float | None = None
    ) -> PostRules:
        """Checks the shares and reads the revised release."""
        for name, value, hint in (("dominance", dominance, "0.5 is one half"), ("t", t, "0.8")):
            if value is not None and not 0 < value < 1:
                raise ParameterError(
                    f"{name} must be above 0 and below 1; found {value}. Hint: {hint}."
                )
        return cls(dominance, stricter, None if revision is None else Earlier.read(revision), t)

    @property
    def given(self) -> list[str]:
        """The names of the rules that are set."""
        return [name for name in ("dominance", "stricter", "t") if getattr(self, name) is not None]

    def on(self, flows: Flows) -> PostRules:
        """Returns the same with the list of places read, by the tiles of these flows."""
        if self.stricter is None:
            return self
        return replace(
            self, stricter=read_places(self.stricter, asking=True).located(*tiling(flows))
        )

    def plan(
        self,
        decide: Planner,
        flows: Flows,
        guarantee: Guarantee,
        *,
        max_suppressed: float,
        in_layers: bool,
    ) -> tuple[Plan, dict[str, Any]]:
        """Plans flows under the rules; returns the plan, and what the report says of the rules.

        ``flows`` are prepared for the guarantee; ``max_suppressed`` is the largest share of the
        volume that may be suppressed in all; ``in_layers`` says whether the method takes rules on
        cells.
        """
        parameters: dict[str, Any] = {}
        if self.stricter is not None:
            parameters["stricter"] = {"places": len(self.stricter), **self.stricter.highest}
        shares = {"dominance": self.dominance, "t": self.t}
        parameters |= {name: float(share) for name, share in shares.items() if share is not None}
        if in_layers and parameters:
            return self._plan_layers(decide, flows, guarantee, max_suppressed), parameters

        def plan_within(share: float) -> Plan:
            if self.stricter is None:
                plan = decide(share)
            else:
                plan = _plan_stricter(decide, flows, self.stricter, guarantee, max_suppressed=share)
            if self.dominance is None:
                return plan
            return _without_dominated(
                flows, plan, self.dominance, max_suppressed=share, basis=guarantee.basis
            )

        if self.t is None:
            return plan_within(max_suppressed), parameters
        plan = _plan_close(
            plan_within, flows, self.t, max_suppressed=max_suppressed, basis=guarantee.basis
        )
        return plan, parameters

    def _plan_layers(
        self, decide: Planner, flows: Flows, guarantee: Guarantee, max_suppressed: float
    ) -> Plan:
        rules: list[CellRule] = []
        if self.stricter is not None:
            rules.append(_stricter_rule(flows, self.stricter, guarantee))
        if self.dominance is not None:
            rules.append(_dominance_rule(flows, self.dominance))

        def breaks_any(rows: Positions, cell: Positions, nodes: Sequence[Ints]) -> Mask:
            return np.asarray(np.any([rule(rows, cell, nodes) for rule in rules], axis=0))

        try:
            plan = decide(max_suppressed, cell_rule=breaks_any)
        except InfeasibleError:
            # Without the rules the method may fail as well, and says why.
            decide(max_suppressed)
            try:
                share = suppressed_share(
                    flows, decide(_NO_LIMIT, cell_rule=breaks_any), guarantee.basis
                )
            except InfeasibleError:
                share = 1.0
            raise _too_much_suppressed(share, max_suppressed) from None
        return replace(plan, stricter=self.stricter)


def suppressed_share(flows: Flows, plan: Plan, basis: str) -> float:
    """Returns the share of the volume that a plan suppresses."""
    volume = flows.volume(basis).astype(np.float64)
    return float(volume[~plan.kept].sum() / volume.sum())


def _without_broken(plan: Plan, rule: CellRule) -> Plan:
    """Returns the plan without the cells that break a rule."""
    rows = np.flatnonzero(plan.kept)
    origin, destination = plan.origin_zone[rows], plan.destination_zone[rows]
    cell = group_pairs(
        origin, destination, len(plan.origin_zones), len(plan.destination_zones)
    ).row.astype(np.int64)
    kept, nodes = plan.kept.copy(), plan.nodes
    broken = rule(rows, cell, (nodes[0][origin], nodes[1][destination]))
    kept[rows] = ~broken[cell]
    return replace(plan, kept=kept)


def _expected_of(plan: Plan, flows: Flows) -> support.Expected:
    """Returns what the release of a plan will be; methods of users state little before."""
    return support.Expected(
        zones="nodes" if plan.boxes is None else "boxes",
        dimensions="fold" if flows.folds else "none",
        overlap=not plan.homogeneous,
        whole_cells=plan.suppression.rule == "short cells",
    )


# ---- dominance -----------------------------------------------------------------------------------


def _without_dominated(
    flows: Flows, plan: Plan, share: float, *, max_suppressed: float, basis: str
) -> Plan:
    """Returns the plan without the cells in which one person makes more than ``share`` of the
    trips.
    """
    support.check({"dominance"}, _expected_of(plan, flows))
    left = _without_broken(plan, _dominance_rule(flows, share))
    if not left.kept.any() or suppressed_share(flows, left, basis) > max_suppressed:
        raise InfeasibleError(
            f"Cells in which one person makes more than {share:.0%} of the trips cannot be"
            f" suppressed within the limit of {max_suppressed:.0%}. Hint: a larger"
            f" {option('dominance')} or {option('max_suppressed')}, or fewer and larger zones."
        )
    return left


def _dominance_rule(flows: Flows, share: float) -> CellRule:
    people = flows.people
    if people is None or people.trips is None:
        raise DataError(
            f"{option('dominance')} needs persons. Hint: name their column with {option('person')}."
        )

    def is_dominated(rows: Positions, cell: Positions, nodes: Sequence[Ints]) -> Mask:  # noqa: ARG001
        of_flow = np.full(len(flows), -1, dtype=np.int64)
        of_flow[rows] = cell
        n_cells = int(cell.max(initial=0)) + 1
        largest, _ = people.largest(of_flow, n_cells)
        inside = of_flow >= 0
        return largest > share * np.bincount(
            of_flow[inside], weights=flows.trips[inside], minlength=n_cells
        )

    return is_dominated


# ---- stricter places -----------------------------------------------------------------------------


def _plan_stricter(
    decide: Callable[[float], Plan],
    flows: Flows,
    places: Places,
    guarantee: Guarantee,
    *,
    max_suppressed: float,
) -> Plan:
    """Returns a plan whose cells reach the thresholds of listed places.

    The method gets less to suppress if needed.
    """
    rule = _stricter_rule(flows, places, guarantee)
    allowed, share = max_suppressed, 1.0
    for left in range(_TRIES, -1, -1):
        try:
            decided = decide(allowed)
        except InfeasibleError:
            if left == _TRIES:
                raise
            break
        support.check({"stricter"}, _expected_of(decided, flows))
        # Numbers in the notes of the method describe the cells before suppression.
        notes = {
            name: value
            for name, value in decided.notes.items()
            if isinstance(value, str | bool | None)
        }
        plan = replace(_without_broken(decided, rule), stricter=places, notes=notes)
        share = suppressed_share(flows, plan, guarantee.basis)
        if share <= max_suppressed and plan.kept.any():
            return plan
        if allowed == 0:
            break
        # What the places took this time, they may take next time: the method gets the rest, or half
        # of what it had.
        rest = max_suppressed - (share - suppressed_share(flows, decided, guarantee.basis))
        allowed = 0.0 if left == 1 else max(0.0, min(rest, allowed / 2))
    raise _too_much_suppressed(share, max_suppressed)


def _too_much_suppressed(share: float, allowed: float) -> InfeasibleError:
    """Returns the error for rules that suppress more than the limit.

    It says which share suffices.
    """
    needed = math.ceil(round(share * 100, 6)) / 100
    if needed >= 1:
        reason = "nothing would be left to publish. Hint: weaker rules, or larger zones."
    else:
        reason = (
            f"{needed:.0%} would be needed. Hint: --max-suppressed {needed:g}, or weaker rules."
        )
    return InfeasibleError(
        "Cells that break a rule (stricter places, dominance) cannot be suppressed within the"
        f" limit of {allowed:.0%}: {reason}",
        best={"suppressed": needed},
    )


def _stricter_rule(flows: Flows, places: Places, guarantee: Guarantee) -> CellRule:
    if guarantee.population_is_given and places.highest["k"] is not None:
        raise ParameterError(
            "A higher k around listed places cannot be combined with a population that is given as"
            " a number (k_population), which has nothing to do with k. Hint: leave --k-population"
            " out."
        )
    if places.highest["l"] is not None:
        flows = flows.with_tile_members()
    trees = (flows.origins, flows.destinations)
    of_nodes = {
        name: [places.thresholds_of_nodes(tree, flows.whole_map, name) for tree in trees]
        for name in ("k", "l")
    }

    def is_below(rows: Positions, cell: Positions, nodes: Sequence[Ints]) -> Mask:
        n_cells = int(cell.max(initial=0)) + 1
        of_flow = np.full(len(flows), -1, dtype=np.int32)
        of_flow[rows] = cell
        cells = flows.merge(of_flow, np.zeros(len(flows), dtype=np.int32), n_cells, 1).cells
        inside, below = cell >= 0, np.zeros(n_cells, dtype=np.bool_)
        for name, thresholds in of_nodes.items():
            required = np.zeros(n_cells, dtype=np.int64)
            required[cell[inside]] = np.maximum(
                *(of[node[inside]] for of, node in zip(thresholds, nodes, strict=True))
            )
            here = required[cells.origin]
            for least in np.unique_values(here[here > 0]).tolist():
                short = (here == least) & ~guarantee.raised(flows, **{name: least}).safe(cells)
                below[cells.origin[short]] = True
        return below

    return is_below


# ---- t-closeness ---------------------------------------------------------------------------------


def total_variation(
    own: NDArray[Any], other: NDArray[Any], trips: NDArray[Any], n_own: int, n_other: int
) -> Floats:
    """Returns for each zone of one end the distance of its trips from all trips.

    0 for a zone without trips.

    ``own`` and ``other`` are the zones of each cell at this end and at the other, all pairs
    distinct; ``n_own`` and ``n_other`` count them. Products of counts are exact below 2**53, so
    that equal distances are equal numbers.
    """
    each = np.asarray(trips, dtype=np.float64)
    total = np.bincount(own, weights=each, minlength=n_own).astype(np.float64)
    whole = np.bincount(other, weights=each, minlength=n_other).astype(np.float64)
    n = float(each.sum())
    expected = whole[other] * total[own]
    # Over pairs without trips the differences sum to what is expected there.
    apart = (
        np.bincount(own, weights=np.abs(each * n - expected) - expected, minlength=n_own)
        + n * total
    )
    distance: Floats = np.divide(apart, 2 * n * total, out=np.zeros(n_own), where=total > 0)
    return np.clip(distance, 0.0, 1.0)


def _plan_close(
    decide: Callable[[float], Plan], flows: Flows, t: float, *, max_suppressed: float, basis: str
) -> Plan:
    """Returns a plan with every zone within ``t``.

    The method may suppress the whole limit, then less, then nothing.
    """
    for share in _SHARES_OF_METHOD:
        try:
            plan = decide(share * max_suppressed)
        except InfeasibleError:
            if share == 1:
                raise
            break
        close = without_distant(flows, plan, t, max_suppressed=max_suppressed, basis=basis)
        if close is not None:
            return close
    raise InfeasibleError(
        f"Zones whose trips are farther than t = {t:g} from all trips cannot be suppressed within"
        f" the limit of {max_suppressed:.0%}. Hint: a larger t or --max-suppressed, or a larger k"
        " for coarser zones."
    )


def without_distant(
    flows: Flows, plan: Plan, t: float, *, max_suppressed: float, basis: str
) -> Plan | None:
    """Returns the plan without zones farther than ``t``, origins first on ties.

    None if that suppresses too much.
    """
    support.check({"t"}, _expected_of(plan, flows))
    sizes = len(plan.origin_zones), len(plan.destination_zones)
    cells = group_pairs(
        np.where(plan.kept, plan.origin_zone, np.int32(-1)), plan.destination_zone, *sizes
    )
    trips = cells.sum(flows.trips).astype(np.float64)
    volume = flows.volume(basis).astype(np.float64)
    limit, left = max_suppressed * volume.sum(), cells.sum(volume).astype(np.float64)
    is_shown = np.ones(len(trips), dtype=np.bool_)
    while is_shown.any() and volume.sum() - left[is_shown].sum() <= limit:
        origin, destination, shown = (
            cells.origin[is_shown],
            cells.destination[is_shown],
            trips[is_shown],
        )
        ends = (origin, destination, shown, *sizes), (destination, origin, shown, *sizes[::-1])
        distance = np.concatenate([total_variation(*end) for end in ends])
        farthest = int(np.argmax(distance))
        if distance[farthest] <= t:
            return replace(plan, kept=np.append(is_shown, False)[cells.row])
        is_shown &= (
            cells.origin != farthest
            if farthest < sizes[0]
            else cells.destination != farthest - sizes[0]
        )
    return None
