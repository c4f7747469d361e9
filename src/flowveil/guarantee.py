"""Guarantee: who is hidden in every published cell.

A guarantee is a set of thresholds, one for each unit it protects. A cell is safe when it reaches all of them. Every
unit is monotone (merging cells never lowers a value), and that is all the methods rely on, so every method works
for every guarantee.

`UNITS` says what a unit is: how a cell's value is taken, what k asks of it, what the data must have, and its
words. To add one, add it there and give `Guarantee` a field of its name. One that sums a column of its own names it:
a column of `flowveil.flows.SUM_COLUMNS`, which says how it is read and added up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError, did_you_mean
from flowveil.flows import MILLION, Cells, Flows, is_fixed_point, to_fixed_point

Values = NDArray[Any]

#: Sums of weights may be off by this share when they are recounted elsewhere.
_TOLERANCE = 1e-9


def _one_less(least: float, _: int) -> float:
    return least - 1


@dataclass(frozen=True)
class Unit:
    """Whom or what a guarantee counts in a cell.

    Attributes:
        name: as users, parameters and reports name it.
        title: for tables.
        smallest: title and meaning of the measure that is the smallest value of a cell.
        short: meaning of the measure that counts the cells under the threshold.
        value: of each cell; None where the data does not know it. Merging cells never lowers it.
        threshold: what k asks of a cell of this input.
        most_short: the most that a cell under a threshold can hold, given the threshold and k.
        in_words: a threshold in a sentence: "10 trips". Rounded down, never up: no more is claimed than holds.
        if_withheld: the same where the number would reveal something; of k.
        missing: what to say where the data does not have it.
        caveat: what protecting it leaves open, for readers; said unless a unit counts persons.
        basis: what a run counts as volume where the unit is protected.
        column: the column of `flowveil.flows.SUM_COLUMNS` that its value is the sum of; empty where it sums none.
        counts_persons: whether its value is a number of different persons.
    """

    name: str
    title: str
    smallest: tuple[str, str]
    short: str
    value: Callable[[Cells], Values | None]
    threshold: Callable[[Cells, int], float]
    in_words: Callable[[float], str]
    most_short: Callable[[float, int], float] = _one_less
    if_withheld: Callable[[int], str] = str
    missing: str = ""
    caveat: str = ""
    basis: str = "trips"
    column: str = ""
    counts_persons: bool = False

    @property
    def asks_k(self) -> bool:
        """Whether its threshold is k itself."""
        return self.threshold is _k

    def of(self, cells: Cells) -> Values:
        """The value of each cell.

        Raises:
            DataError: the cells do not carry it.
        """
        values = self.value(cells)
        if values is None:
            raise DataError(self.missing)
        return values


def _k(_: Cells, k: int) -> int:
    return int(k)


def _k_mean_weights(flows: Cells, k: int) -> float:
    """In whole millionths, rounded up: where all weights are alike, k trips reach it to the last digit."""
    total = int(np.sum(to_fixed_point(flows.volume("weight"))))
    if flows.trips.dtype == np.int64:
        return -(-k * total // int(np.sum(flows.trips))) / MILLION
    return -(-k * total * MILLION // int(np.sum(to_fixed_point(flows.trips)))) / MILLION


def _all_but_one_mean_weight(least: float, k: int) -> float:
    """A cell may come as close to the threshold as weights allow. Where all are alike, that is k - 1 of them."""
    return least * (k - 1) / k / (1 + _TOLERANCE)


def _population_in_words(least: float) -> str:
    return f"a population of {math.floor(least):,}" if least >= 10 else f"a population of {least}"


def _fewest_tiles(cells: Cells) -> Values | None:
    tiles = cells.n_tiles()
    return None if tiles is None else np.minimum(*tiles)


#: What can be protected by ``protect``, in reading order.
UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit(
            "trips",
            "Trips",
            ("Fewest trips in a cell", "The smallest published cell, in trips."),
            "Published cells with fewer than k trips.",
            lambda cells: cells.trips,
            _k,
            lambda least: f"{least:,} trips",
            caveat="Not protected: people. Trips were counted, not people: one person may be behind several trips, "
            "and all trips of a cell may be those of one person.",
        ),
        Unit(
            "people",
            "Different people",
            (
                "Fewest people in a cell",
                "Different persons behind the cell that has the fewest; known only where the input names persons.",
            ),
            "Published cells with fewer than k different persons.",
            lambda cells: cells.n_people(),
            _k,
            lambda least: f"{least:,} people",
            missing="People cannot be protected: the input has no person column. "
            "Hint: name it with --person (person=...), or protect trips and say so to your readers.",
            counts_persons=True,
        ),
        Unit(
            "population",
            "Population (sum of weights)",
            ("Smallest population of a cell", "The smallest sum of weights of a published cell."),
            "Published cells whose weights sum to less than the threshold, or than k mean weights.",
            lambda cells: cells.weight,
            _k_mean_weights,
            _population_in_words,
            most_short=_all_but_one_mean_weight,
            if_withheld=lambda k: f"a population of {k:,} times the mean weight of a trip",
            missing="The population cannot be protected: the input has no weights. "
            "Hint: name the column with --weight (weight=...).",
            caveat="Not protected: participants. The population of a cell is a sum of weights; a single participant "
            "with a large weight may stand for all of it, and the number of trips of a cell, which is published, may "
            "be one. Protect trips or people as well where that matters.",
            basis="weight",
            column="weight",
        ),
    )
}
#: Protected by ``l``, whatever else is: against learning where somebody went who is known to be in a cell.
LOCATIONS = Unit(
    "locations",
    "Tiles in which its trips begin, and in which they end",
    ("Fewest tiles of a cell", "Tiles in which its trips begin, or end, whichever are fewer."),
    "Published cells of fewer than l tiles.",
    _fewest_tiles,
    _k,
    lambda least: f"{least} tiles in which trips begin, and in which they end",
    missing="Locations are protected, but these cells carry no tiles; see Guarantee.prepare.",
)
ALL_UNITS: dict[str, Unit] = {**UNITS, LOCATIONS.name: LOCATIONS}


def default_units(flows: Cells) -> tuple[str, ...]:
    """What is protected unless somebody chooses: people where persons are known, else trips."""
    return ("trips",) if flows.people is None else ("people",)


@dataclass(frozen=True)
class Guarantee:
    """Thresholds by unit; None where a unit is not protected.

    Attributes:
        k: the k that was asked for; thresholds of trips and people equal it.
        trips: fewest trips of a cell.
        people: fewest distinct people of a cell.
        population: smallest sum of weights of a cell.
        population_is_given: the population's threshold was given as a number. It then has nothing to do with k, and is
            never called k: it may be far below k times the mean weight, down to a single trip.
        locations: fewest tiles in which the trips of a cell begin, and fewest in which they end.
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
        """Turn what the user asks for into thresholds for these flows.

        Args:
            flows: what will be protected; needed to see which units the data has, and their mean weight.
            k: at least 1.
            protect: one or several of `UNITS`; by default `default_units`.
            k_population: absolute threshold of the population; by default k times the mean weight of a trip.
            l: fewest tiles in which a cell's trips begin, and in which they end.

        Raises:
            ParameterError: k or l out of range, unknown unit.
            DataError: the data has no persons or no weights.
        """
        _check_whole(k, "k")
        protect = default_units(flows) if protect is None else protect
        units = (protect,) if isinstance(protect, str) else tuple(protect)
        if not units:
            raise ParameterError(f"Nothing is protected; name at least one of {', '.join(UNITS)}.")
        for unit in units:
            if unit not in UNITS:
                raise ParameterError(
                    f"Unknown unit '{unit}' to protect; allowed: {', '.join(UNITS)}." + did_you_mean(str(unit), UNITS)
                )
        if k_population is not None and "population" not in units:
            raise ParameterError("k_population is given but the population is not among the protected units.")
        if l is not None:
            _check_whole(l, "l")
        thresholds: dict[str, Any] = {}
        for name in units:
            UNITS[name].of(flows)
            given = k_population if name == "population" else None
            thresholds[name] = UNITS[name].threshold(flows, k) if given is None else _given_population(given)
        if thresholds.get("population") == 0:
            raise DataError("The population cannot be protected: all weights are zero. Hint: give k_population.")
        return cls(
            k=int(k),
            locations=None if l is None else int(l),
            population_is_given=k_population is not None,
            **thresholds,
        )

    @property
    def basis(self) -> str:
        """What a run counts as volume: weight when the population is protected, else trips."""
        return next((UNITS[u].basis for u in self.units if UNITS[u].basis != "trips"), "trips")

    @property
    def units(self) -> tuple[str, ...]:
        """The protected units."""
        return tuple(u for u in UNITS if getattr(self, u) is not None)

    @property
    def of_columns(self) -> dict[str, float]:
        """The thresholds of the columns of `flowveil.flows.SUM_COLUMNS` whose sums are protected, by column."""
        return {UNITS[name].column: getattr(self, name) for name in self.units if UNITS[name].column}

    @property
    def thresholds(self) -> dict[str, float]:
        """The thresholds that are set, those of locations included."""
        set_ones = {name: getattr(self, name) for name in ALL_UNITS}
        return {name: least for name, least in set_ones.items() if least is not None}

    @property
    def claimed_k(self) -> int | None:
        """What may be called k: None where all that is protected is a population given as a number."""
        return None if self.population_is_given and self.units == ("population",) else self.k

    def asks(self, unit: str, flows: Cells) -> float:
        """The threshold of a unit; what k would ask of it where it is not protected."""
        least: float | None = getattr(self, unit)
        return UNITS[unit].threshold(flows, self.k) if least is None else least

    def class_size(self, basis: str, flows: Cells) -> float:
        """The volume that k asks of a cell: the smallest class there could be if this basis were protected."""
        return self.asks(next(unit.name for unit in UNITS.values() if unit.basis == basis), flows)

    def prepare(self, flows: Flows) -> Flows:
        """The flows with all that `safe` counts in the cells merged from them; the same ones where nothing is missing.

        Tiles are carried through merges only where locations are protected, because they cost as much as people do.
        """
        return flows if self.locations is None else flows.located(most=self.locations)

    def raised(self, flows: Cells, *, k: int = 0, l: int = 0) -> Guarantee:  # noqa: E741  # the papers' letter
        """The same units with thresholds that a higher k and a higher l ask for; never lower ones.

        A population that was given as a number has nothing to do with k, and stays.

        Args:
            flows: the input, whose mean weight the population's threshold follows from.
            k: fewest trips, people and mean weights.
            l: fewest tiles at each end.
        """
        asked: dict[str, Any] = {}
        if k > self.k:
            asked = {name: UNITS[name].threshold(flows, k) for name in self.units}
            if self.population_is_given:
                asked.pop("population", None)
            asked["k"] = int(k)
        if l > (self.locations or 0):
            asked["locations"] = int(l)
        return replace(self, **asked)

    def to_fixed_point(self, flows: Flows) -> tuple[Flows, Guarantee]:
        """Returns flows and guarantee with protected sums, and fractions of trips, as whole millionths (int64).

        Methods add up in many orders, and sums of integers are exact in all of them. Weights that are not protected
        stay as they are: they decide nothing. Returns the same flows if there is nothing to change.
        """
        columns: dict[str, Any] = {}
        asked: dict[str, Any] = {}
        if flows.trips.dtype != np.int64:
            columns["trips"] = to_fixed_point(flows.trips)
            if self.trips is not None:
                asked["trips"] = self.trips * MILLION
        for name, column in ((name, UNITS[name].column) for name in self.units if UNITS[name].column):
            values, threshold = getattr(flows, column), getattr(self, name)
            if values is not None and not is_fixed_point(values):
                least = math.ceil(threshold * MILLION)
                # The fewest millionths whose double reaches the threshold: the product above may be off by a little.
                asked[name] = next(m for m in (least - 1, least, least + 1) if m / MILLION >= threshold)
                columns[column] = to_fixed_point(values)
        return (replace(flows, **columns), replace(self, **asked)) if columns else (flows, self)

    def safe(self, cells: Cells) -> NDArray[np.bool_]:
        """Which cells reach every threshold, by what is counted in them.

        Raises:
            DataError: the cells do not carry what is protected: persons, weights, or the tiles of `prepare`.
        """
        ok = np.ones(len(cells), dtype=np.bool_)
        for name, least in self.thresholds.items():
            ok &= ALL_UNITS[name].of(cells) >= least
        return ok

    def in_words(self) -> str:
        """The thresholds in a sentence: '10 trips and 10 people'."""
        return " and ".join(ALL_UNITS[name].in_words(least) for name, least in self.thresholds.items())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports: only the thresholds that are set; ``k`` is None where nothing is held against it."""
        return {"k": self.claimed_k, "protect": list(self.units), **self.thresholds}


def _check_whole(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ParameterError(f"{name} must be a whole number of at least 1; found {value!r}.")


def _given_population(least: float) -> float:
    if not np.isfinite(least) or least <= 0:
        raise ParameterError(f"k_population must be above 0; found {least!r}.")
    return float(least)


def check_max_suppressed(share: float) -> None:
    """Refuse a max_suppressed that is not a share.

    Raises:
        ParameterError: it is not a number of at least 0 and below 1.
    """
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise ParameterError(f"max_suppressed must be a number; found {type(share).__name__}.")
    if not 0 <= share < 1:
        raise ParameterError(f"max_suppressed must be at least 0 and below 1; found {share!r}.")
