"""What all noisy methods share: the checked guarantee, the bounded trips of each person, and the
result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import Counts, Ints
from flowveil.core.errors import DataError, ParameterError, option, with_value
from flowveil.core.flows import Cells, Flows, group_pairs
from flowveil.core.guarantee import check_whole
from flowveil.methods.epsilon import check_epsilon
from flowveil.methods.public_domain import PairDomain
from flowveil.release.noisy import NoisyCounts, PrivacyLoss
from flowveil.release.plan import Plan

#: Largest δ: the probability with which a person's trips may be published unprotected.
LARGEST_DELTA = 0.01
#: Largest noise scale: beyond it counts are useless, and the sampler's tables do not cover it.
LARGEST_SCALE = 1e6


@dataclass(frozen=True)
class NoiseGuarantee:
    """Validated parameters; ``bound`` is the most trips that one unit contributes, 1 for a trip."""

    unit: Literal["person", "trip"]
    epsilon: float
    delta: float
    bound: int

    @classmethod
    def from_options(
        cls,
        method: str,
        flows: Flows,
        *,
        epsilon: float | None,
        delta: float,
        bound: int | None,
        seed: int | None,
    ) -> NoiseGuarantee:
        """Validates the options of a method.

        Raises ParameterError if one is missing, out of range or does not fit.
        """
        if epsilon is None:
            raise ParameterError(
                f"{method} needs epsilon, the ε of differential privacy: how much one person may"
                " change the probability of any release. Hint: epsilon=1 is a common choice;"
                " smaller protects more."
            )
        epsilon = check_epsilon(epsilon)
        is_number = isinstance(delta, int | float | np.integer | np.floating) and not isinstance(
            delta, bool
        )
        if not is_number or not 0 <= delta <= LARGEST_DELTA:
            raise ParameterError(
                f"delta must be at least 0 and at most {LARGEST_DELTA}; found {delta!r}. With"
                " probability δ the trips of a person may simply be published. Hint: far less than"
                " one over the number of persons."
            )
        check_whole("bound", 1 if bound is None else bound)
        check_whole("unsafe_seed_for_tests", 0 if seed is None else seed, least=0)
        unit, most = _unit_and_bound(method, flows, bound)
        check_scale("bound / epsilon", most / epsilon)
        return cls(unit, epsilon, float(delta), most)


def protected_unit(protect: str | Sequence[str]) -> tuple[str]:
    """Returns the unit that noise protects; raises ParameterError unless it is trips or people."""
    units = (protect,) if isinstance(protect, str) else tuple(protect)
    if units not in (("trips",), ("people",)):
        raise ParameterError(
            f"Noise protects either trips or people; found {', '.join(map(str, units))}. Hint:"
            f" {with_value('protect', 'people')} and a bound on the trips of a person."
        )
    return (units[0],)


def with_unit(flows: Flows, protect: str | Sequence[str] | None) -> Flows:
    """Returns the flows without persons if single trips are protected.

    By default people are protected where they are known.
    """
    if protect is None:
        return flows
    if protected_unit(protect) == ("trips",):
        return replace(flows, people=None)
    if flows.people is None:
        raise ParameterError(
            "People cannot be protected, because the input does not distinguish them. Hint: name"
            f" the column ({option('person')}), or {with_value('protect', 'trips')}."
        )
    return flows


def check_scale(what: str, scale: float | Fraction) -> None:
    """Raises ParameterError if noise of a scale would hide the counts."""
    if scale > LARGEST_SCALE:
        raise ParameterError(
            f"The {what} gives noise of scale {float(scale):,.0f}, which makes the counts useless;"
            f" at most {LARGEST_SCALE:,.0f} is allowed. Hint: a larger epsilon or share of it, or a"
            " smaller bound."
        )


def _unit_and_bound(
    method: str, flows: Flows, bound: int | None
) -> tuple[Literal["person", "trip"], int]:
    if flows.people is None:
        if bound is not None:
            raise ParameterError(
                "bound is given, but persons are not known, or only trips are protected, so the"
                " trips of a person cannot be bounded. Hint: name the column with --person"
                " (person=...) and protect people, or omit bound; the unit is then a trip."
            )
        return "trip", 1
    if bound is None:
        raise ParameterError(
            f"{method} needs a bound if persons are known: most trips of one person that are"
            " counted. Do not derive it from the data. Hint: what is plausible in the time that"
            " the data covers, such as 4 trips a day."
        )
    return "person", int(bound)


@dataclass(frozen=True, eq=False)
class CountedTrips:
    """The counted trips of each flow before any noise, and the plan with its zones."""

    flows: Flows
    privacy: NoiseGuarantee
    domain: PairDomain
    plan: Plan
    trips: Counts

    @classmethod
    def from_flows(cls, flows: Flows, privacy: NoiseGuarantee, domain: PairDomain) -> CountedTrips:
        """Counts the trips of the flows inside the domain, at most the bound of each person."""
        plan = domain.plan(flows)
        trips = counted_trips(
            flows, plan.kept, bound=None if privacy.unit == "trip" else privacy.bound
        )
        return cls(flows, privacy, domain, plan, trips)

    def table(self) -> Cells:
        """Returns the counted trips of the pairs of zones that have any."""
        plan = self.plan
        origin = np.where(self.trips > 0, plan.origin_zone, np.int32(-1))
        group = group_pairs(
            origin, plan.destination_zone, len(plan.origin_zones), len(plan.destination_zones)
        )
        return Cells(group.origin, group.destination, group.sum(self.trips))

    def released(
        self, cells: Cells, loss: dict[str, Any], seed: int | None, *, plan: Plan | None = None
    ) -> NoisyCounts:
        """Returns the result of a method: the noisy counts to publish.

        ``loss`` has the fields of `PrivacyLoss` other than unit, ε, δ and bound. ``plan`` has zones
        that differ from those of the domain.
        """
        return NoisyCounts(
            plan=plan or self.plan,
            cells=cells,
            guarantee=PrivacyLoss(
                **vars(self.privacy), **{"threshold": None, "domain": self.domain.described, **loss}
            ),
            left_out=self._uncounted(),
            repeatable=seed is not None,
        )

    def _uncounted(self) -> dict[str, int]:
        """Returns the trips that are not counted, by reason. Exact, so for the data holder only."""
        trips, people = self.flows.trips, self.flows.people
        kept = self.plan.kept
        inside = known = int(trips[kept].sum())
        if people is not None and people.trips is not None:
            known = int(people.trips[kept[people.cell]].sum())
        return {
            "outside the region": int(trips[~kept].sum()),
            "of unknown persons": inside - known,
            "beyond the bound": known - int(self.trips.sum()),
        }


def counted_trips(flows: Flows, inside: NDArray[np.bool_], *, bound: int | None) -> Counts:
    """Returns the counted trips of each flow, before any noise.

    Removing one person changes the sums over any grouping of flows by at most ``bound`` in total
    (L1): the sensitivity of all noise. Without a bound persons are not known, and every trip
    counts.
    """
    if flows.trips.dtype != np.int64:
        raise DataError(
            "Noise is added to whole trips, and the input has fractions: modelled or expanded"
            " trips, of which no one can say what a single person contributes. Hint: use a method"
            " that protects by k."
        )
    if bound is None:
        return np.where(inside, flows.trips, 0)
    people = flows.people
    if people is None or people.trips is None:
        raise DataError(
            "The flows do not contain the trips of each person, so they cannot be bounded. "
            "Hint: read them with read_trips, or build them with Flows.from_pairs."
        )
    rows = inside[people.cell]
    trips = bounded_trips(people.person[rows], people.trips[rows], bound)
    return np.bincount(people.cell[rows], weights=trips, minlength=len(flows)).astype(np.int64)


def bounded_trips(person: Ints, trips: Counts, bound: int) -> Counts:
    """Returns at most ``bound`` trips of each person, spread over the person's rows in proportion
    to the trips.

    Of a person with n trips above the bound, every (n / bound)-th trip in row order is counted. The
    choice depends on that person's trips alone, if the order of the person's rows does too.
    """
    if len(person) == 0:
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(person, kind="stable")
    each = trips[order]
    first = np.append(True, person[order][1:] != person[order][:-1])
    start = np.flatnonzero(first)
    number = np.cumsum(first) - 1
    total = np.add.reduceat(each, start)
    if total.max() > np.iinfo(np.int32).max:
        raise DataError(
            "A person has more than 2,147,483,647 trips. Hint: is this column really a person?"
        )
    reached = np.cumsum(each) - (np.cumsum(each) - each)[start][number]
    n = total[number]
    most = np.int64(min(bound, np.iinfo(np.int32).max))
    spread = (reached * most + n // 2) // n - ((reached - each) * most + n // 2) // n
    out = np.empty(len(trips), dtype=np.int64)
    out[order] = np.where(n > most, spread, each)
    return out
