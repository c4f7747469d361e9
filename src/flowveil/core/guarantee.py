"""The guarantee: thresholds that every published cell must reach, one for each protected unit.

Every unit is monotone: merging cells never lowers a value. Methods rely on nothing else, so every
method works for every guarantee. To add a unit, add it to `UNITS` and give `Guarantee` a field of
its name. A unit that sums a column names a column of `flowveil.core.flows.SUM_COLUMNS`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flowveil.core.arrays import AnyArray, Ints
from flowveil.core.errors import DataError, ParameterError, did_you_mean
from flowveil.core.flows import MILLION, Cells, Flows, is_fixed_point, to_fixed_point


@dataclass(frozen=True)
class Unit:
    """What a guarantee counts in a cell."""

    name: str
    title: str
    smallest: tuple[str, str]  # title and meaning of the measure "smallest value of a cell"
    short: str  # meaning of the measure that counts cells below the threshold
    value: Callable[
        [Cells], AnyArray | None
    ]  # of cells, never lowered by merging; None if the data lacks it
    threshold: Callable[[Cells, int], float]  # of this input for k
    in_words: Callable[
        [float], str
    ]  # the threshold as text, rounded down, so that the claim is never stronger
    missing: str = ""  # message if the data lacks the unit
    basis: str = "trips"  # what a run counts as volume if the unit is protected
    column: str = ""  # of `flowveil.core.flows.SUM_COLUMNS`, if one is summed
    counts_persons: bool = False

    def of(self, cells: Cells) -> AnyArray:
        """Returns the value of each cell; raises DataError if the cells do not have it."""
        values = self.value(cells)
        if values is None:
            raise DataError(self.missing)
        return values


def _k_mean_weights(flows: Cells, k: int) -> float:
    """Returns k times the mean weight, rounded up to a millionth.

    With equal weights, exactly k trips reach it.
    """
    total = int(np.sum(to_fixed_point(flows.volume("weight"))))
    if flows.trips.dtype == np.int64:
        return -(-k * total // int(np.sum(flows.trips))) / MILLION
    return -(-k * total * MILLION // int(np.sum(to_fixed_point(flows.trips)))) / MILLION


#: Units that ``protect`` accepts, in reading order.
UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit(
            "trips",
            "Trips",
            ("Fewest trips in a cell", "The smallest published cell, in trips."),
            "Published cells with fewer than k trips.",
            lambda cells: cells.trips,
            lambda _, k: k,
            lambda least: f"{least:,} trips",
        ),
        Unit(
            "people",
            "Different people",
            (
                "Fewest people in a cell",
                (
                    "Different persons behind the cell that has the fewest; known only where the"
                    " input names persons."
                ),
            ),
            "Published cells with fewer than k different persons.",
            lambda cells: cells.n_people(),
            lambda _, k: k,
            lambda least: f"{least:,} people",
            missing=(
                "People cannot be protected: the input has no person column. Hint: name it with"
                " --person (person=...), or protect trips and say so to your readers."
            ),
            counts_persons=True,
        ),
        Unit(
            "population",
            "Population (sum of weights)",
            ("Smallest population of a cell", "The smallest sum of weights of a published cell."),
            "Published cells whose weights sum to less than the threshold, or than k mean weights.",
            lambda cells: cells.weight,
            _k_mean_weights,
            lambda least: f"a population of {math.floor(least) if least >= 10 else least:,}",
            missing=(
                "The population cannot be protected: the input has no weights. "
                "Hint: name the column with --weight (weight=...)."
            ),
            basis="weight",
            column="weight",
        ),
    )
}
#: Protected by ``l``: against learning the destination of a person who is known to be in a cell.
LOCATIONS = Unit(
    "locations",
    "Tiles in which its trips begin, and in which they end",
    ("Fewest tiles of a cell", "Tiles in which its trips begin, or end, whichever are fewer."),
    "Published cells of fewer than l tiles.",
    lambda cells: None if (tiles := cells.n_tiles()) is None else np.minimum(*tiles),
    lambda _, k: k,
    lambda least: f"{least} tiles in which trips begin, and in which they end",
    missing="Locations are protected, but these cells carry no tiles; see Guarantee.prepare.",
)
ALL_UNITS: dict[str, Unit] = {**UNITS, LOCATIONS.name: LOCATIONS}


class Members(NamedTuple):
    """What a guarantee counts distinctly: the members of flow i are ``member[start[i]:start[i +
    1]]``, ascending.

    ``kind`` is the kind of each member (people, tiles of origins, tiles of destinations),
    ``fewest`` the threshold of each kind.
    """

    start: NDArray[np.int64]
    member: Ints
    kind: NDArray[np.int64]
    fewest: NDArray[np.int64]


def default_units(flows: Cells) -> tuple[str, ...]:
    """Returns the units protected by default: people if persons are known, else trips."""
    return ("trips",) if flows.people is None else ("people",)


@dataclass(frozen=True)
class Guarantee:
    """Thresholds by unit; None if a unit is not protected.

    Attributes:
        k: the requested k; thresholds of trips and (distinct) people equal it.
        population: smallest sum of weights of a cell.
        population_is_given: this threshold was given as a number. It is then independent of k and
            never called k.
        locations: smallest number of tiles in which the trips of a cell begin, and in which they
            end.
    """

    k: int
    trips: int | None = None
    people: int | None = None
    population: float | None = None
    locations: int | None = None
    population_is_given: bool = False

    @classmethod
    def resolve(
        cls,
        flows: Cells,
        *,
        k: int,
        protect: str | Sequence[str] | None = None,
        k_population: float | None = None,
        l: int | None = None,  # noqa: E741  # the papers' letter
    ) -> Guarantee:
        """Converts a request, with the arguments of `flowveil.anonymize`, into thresholds for these
        flows.

        Raises ParameterError if k or l is out of range or a unit unknown, DataError if persons or
        weights are missing.
        """
        check_whole("k", k)
        check_whole("l", 1 if l is None else l)
        protect = default_units(flows) if protect is None else protect
        units = (protect,) if isinstance(protect, str) else tuple(protect)
        if not units:
            raise ParameterError(f"Nothing is protected; name at least one of {', '.join(UNITS)}.")
        for unit in units:
            if unit not in UNITS:
                raise ParameterError(
                    f"Unknown unit '{unit}' to protect; allowed: {', '.join(UNITS)}."
                    + did_you_mean(str(unit), UNITS)
                )
        if k_population is not None and "population" not in units:
            raise ParameterError(
                "k_population is given but the population is not among the protected units."
            )
        if k_population is not None and not 0 < k_population < math.inf:
            raise ParameterError(f"k_population must be above 0; found {k_population!r}.")
        thresholds: dict[str, Any] = {}
        for name in units:
            UNITS[name].of(flows)
            given = k_population if name == "population" else None
            thresholds[name] = UNITS[name].threshold(flows, k) if given is None else float(given)
        if thresholds.get("population") == 0:
            raise DataError(
                "The population cannot be protected: all weights are zero. Hint: give k_population."
            )
        locations = None if l is None else int(l)
        return cls(
            k=int(k),
            locations=locations,
            population_is_given=k_population is not None,
            **thresholds,
        )

    @property
    def basis(self) -> str:
        """What a run counts as volume: weight if the population is protected, else trips."""
        return next((UNITS[u].basis for u in self.units if UNITS[u].basis != "trips"), "trips")

    @property
    def units(self) -> tuple[str, ...]:
        """The protected units."""
        return tuple(u for u in UNITS if getattr(self, u) is not None)

    @property
    def of_columns(self) -> dict[str, float]:
        """Thresholds of protected columns of `flowveil.core.flows.SUM_COLUMNS`, by column."""
        return {
            UNITS[name].column: getattr(self, name) for name in self.units if UNITS[name].column
        }

    @property
    def thresholds(self) -> dict[str, float]:
        """The thresholds that are set, including locations."""
        set_ones = {name: getattr(self, name) for name in ALL_UNITS}
        return {name: least for name, least in set_ones.items() if least is not None}

    @property
    def claimed_k(self) -> int | None:
        """The k that may be claimed: None if only a population given as a number is protected."""
        return None if self.population_is_given and self.units == ("population",) else self.k

    def asks(self, unit: str, flows: Cells) -> float:
        """Returns the threshold of a unit, or the one that k implies if the unit is not
        protected.
        """
        least: float | None = getattr(self, unit)
        return UNITS[unit].threshold(flows, self.k) if least is None else least

    def class_size(self, basis: str, flows: Cells) -> float:
        """Returns the smallest possible class volume if this basis were protected."""
        return self.asks(next(unit.name for unit in UNITS.values() if unit.basis == basis), flows)

    def prepare(self, flows: Flows) -> Flows:
        """Returns the flows with all data that `safe` needs in merged cells.

        Tiles only if locations are protected.
        """
        return flows if self.locations is None else flows.with_tile_members(most=self.locations)

    # the papers' letter
    def raised(self, flows: Cells, *, k: int = 0, l: int = 0) -> Guarantee:  # noqa: E741
        """Returns the same units with the thresholds of a higher k and l; never lower ones.

        A population given as a number is independent of k and stays.
        """
        thresholds: dict[str, Any] = {}
        if k > self.k:
            thresholds = {name: UNITS[name].threshold(flows, k) for name in self.units}
            if self.population_is_given:
                thresholds.pop("population", None)
            thresholds["k"] = int(k)
        if l > (self.locations or 0):
            thresholds["locations"] = int(l)
        return replace(self, **thresholds)

    def to_fixed_point(self, flows: Flows) -> tuple[Flows, Guarantee]:
        """Returns flows and guarantee with protected sums, and fractions of trips, as whole
        millionths (int64).

        Integer sums are exact in any order. Columns that are not protected stay unchanged.
        """
        columns: dict[str, Any] = {}
        thresholds: dict[str, Any] = {}
        if flows.people is not None:
            columns["people"] = flows.people.without_trips()
        if flows.trips.dtype != np.int64:
            columns["trips"] = to_fixed_point(flows.trips)
            if self.trips is not None:
                thresholds["trips"] = self.trips * MILLION
        for name, column in (
            (name, UNITS[name].column) for name in self.units if UNITS[name].column
        ):
            values, threshold = getattr(flows, column), getattr(self, name)
            if values is not None and not is_fixed_point(values):
                least = math.ceil(threshold * MILLION)
                # The smallest fixed-point number that reaches the threshold; the product above may
                # be rounded.
                thresholds[name] = next(
                    m for m in (least - 1, least, least + 1) if m / MILLION >= threshold
                )
                columns[column] = to_fixed_point(values)
        changed = {name: new for name, new in columns.items() if new is not getattr(flows, name)}
        return (
            replace(flows, **changed) if changed else flows,
            replace(self, **thresholds) if thresholds else self,
        )

    def safe(self, cells: Cells) -> NDArray[np.bool_]:
        """Returns which cells reach every threshold.

        DataError if they lack persons, weights or tiles (`prepare`).
        """
        ok = np.ones(len(cells), dtype=np.bool_)
        for name, least in self.thresholds.items():
            ok &= ALL_UNITS[name].of(cells) >= least
        return ok

    def excess(self, cells: Cells, *, most: int) -> NDArray[np.int8]:
        """Returns by how many units of k each cell exceeds its thresholds, at most ``most``.

        It is the least over the protected units, and negative for cells that are not safe. A unit
        of a population is its threshold divided by k. Locations do not count.
        """
        least: NDArray[np.int64] = np.full(len(cells), most, dtype=np.int64)
        for name in self.units:
            threshold, held = getattr(self, name), np.asarray(UNITS[name].of(cells))
            if held.dtype.kind in "iu":
                held = held.astype(np.int64)
            over = np.minimum(held - threshold, most * threshold // self.k + 1)
            np.minimum(least, over * self.k // threshold, out=least, casting="unsafe")
        return least.clip(-1, most).astype(np.int8)

    def sums(self, flows: Flows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the summed quantities that have a threshold, one row for each flow, and their
        thresholds.
        """
        least = {**({} if self.trips is None else {"trips": self.trips}), **self.of_columns}
        held = np.array([flows.volume(name) for name in least], dtype=np.float64).reshape(
            len(least), len(flows)
        )
        return np.ascontiguousarray(held.T), np.array(list(least.values()), dtype=np.float64)

    def members(self, flows: Flows) -> Members:
        """Returns the people and tiles of each flow, as far as they have a threshold."""
        kinds: list[tuple[int, Ints, Ints]] = []
        if self.people is not None and flows.people is not None:
            kinds.append((self.people, flows.people.cell, flows.people.person))
        tiles = self.prepare(flows).tiles
        if self.locations is not None and tiles is not None:
            kinds += [(self.locations, *tiles.begin), (self.locations, *tiles.end)]
        n_members = [int(member.max(initial=-1)) + 1 for *_, member in kinds]
        first = np.cumsum([0, *n_members])
        nothing = np.zeros(0, np.int32)
        flow = np.concatenate([nothing, *(flow for _, flow, _ in kinds)])
        member = np.concatenate(
            [nothing, *(own + n for (*_, own), n in zip(kinds, first, strict=False))]
        )
        order = np.argsort(flow, kind="stable")
        return Members(
            np.searchsorted(flow[order], np.arange(len(flows) + 1)),
            member[order].astype(np.int32),
            np.repeat(np.arange(len(kinds)), n_members),
            np.array([fewest for fewest, *_ in kinds], dtype=np.int64),
        )

    def in_words(self) -> str:
        """Returns the thresholds as text: '10 trips and 10 people'."""
        return " and ".join(
            ALL_UNITS[name].in_words(least) for name, least in self.thresholds.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for reports: the thresholds that are set.

        ``k`` is None if it is not claimed.
        """
        return {"k": self.claimed_k, "protect": list(self.units), **self.thresholds}


def check_whole(name: str, value: Any, *, least: int = 1, most: int | None = None) -> None:
    """Raises ParameterError unless a value is a whole number from ``least`` to ``most``."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ParameterError(f"{name} must be a whole number {allowed}; found {value!r}.")


def check_max_suppressed(share: float) -> None:
    """Raises ParameterError unless the share is a number of at least 0 and below 1."""
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise ParameterError(f"max_suppressed must be a number; found {type(share).__name__}.")
    if not 0 <= share < 1:
        raise ParameterError(f"max_suppressed must be at least 0 and below 1; found {share!r}.")


#: A smaller k is refused: of two in a cell, each knows the other.
SMALLEST_K = 3
#: A smaller k is warned of.
WEAK_K = 5
#: The confirmations, as parameters and the command line name them.
SMALL_K, POPULATION_ONLY, DIFFERENCING = "yes-k-below-3", "population-only", "accept-differencing"


class SmallKWarning(UserWarning):
    """The k asked for hides little."""


def confirmed(
    guarantee: Guarantee, flows: Cells, *, allow_small_k: bool, population_only: bool
) -> list[str]:
    """The confirmations that this guarantee needs for these flows; warns of a small k."""
    needed = []
    if guarantee.k < SMALLEST_K:
        if not allow_small_k:
            raise ParameterError(
                f"k = {guarantee.k} protects almost no one; at least {SMALLEST_K} is needed. Hint:"
                " choose a larger k; or confirm it with --yes-k-below-3 (allow_small_k=True)."
            )
        needed.append(SMALL_K)
    if guarantee.units == ("population",) and flows.people is not None:
        if not population_only:
            raise ParameterError(
                "The population alone does not suffice where persons are known: a cell may be one"
                " participant with a large weight. Hint: protect people as well (--protect"
                " population --protect people); if you mean it, confirm it with --population-only"
                " (population_only=True)."
            )
        needed.append(POPULATION_ONLY)
    usual = (
        UNITS["population"].threshold(flows, guarantee.k) if guarantee.population_is_given else 0.0
    )
    if (guarantee.population or 0.0) < usual:
        # Shown to the operator and never recorded: it reveals on which side of the number the mean
        # lies.
        warnings.warn(
            f"Weak: the population's threshold (--k-population) is below {guarantee.k} times the"
            f" mean weight of a trip: cells may hold fewer than {guarantee.k} trips.",
            SmallKWarning,
            stacklevel=5,
        )
    weak = weakness(guarantee.claimed_k)
    if weak:
        warnings.warn(weak, SmallKWarning, stacklevel=5)
    return needed


def weakness(k: int | None) -> str | None:
    """Returns the warning for a small k; None for others."""
    if k is None or k >= WEAK_K:
        return None
    return (
        f"Weak: k = {k} is below {WEAK_K}: in the smallest cells, a few insiders can single out the"
        " last person."
    )
