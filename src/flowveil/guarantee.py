"""Guarantee: who is hidden in every published cell.

A guarantee is a set of thresholds, one for each unit it protects. A cell is safe when it reaches all of them. Every
unit is monotone (merging cells never lowers a value), and that is all the methods rely on, so every method works
for every guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import DataError, ParameterError, did_you_mean
from flowveil.flows import Cells, Flows

UNITS = ("trips", "people", "population")


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
        protect: str | Sequence[str] = "trips",
        k_population: float | None = None,
        l: int | None = None,  # noqa: E741  # the papers' letter
    ) -> Guarantee:
        """Turn what the user asks for into thresholds for these flows.

        Args:
            flows: what will be protected; needed to see which units the data has, and their mean weight.
            k: at least 1.
            protect: one or several of ``trips``, ``people``, ``population``.
            k_population: absolute threshold of the population; by default k times the mean weight of a trip.
            l: fewest tiles in which a cell's trips begin, and in which they end.

        Raises:
            ParameterError: k or l out of range, unknown unit.
            DataError: the data has no persons or no weights.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ParameterError(f"k must be a whole number of at least 1; found {k!r}.")
        units = (protect,) if isinstance(protect, str) else tuple(protect)
        if not units:
            raise ParameterError(f"Nothing is protected; name at least one of {', '.join(UNITS)}.")
        for unit in units:
            if unit not in UNITS:
                raise ParameterError(
                    f"Unknown unit '{unit}' to protect; allowed: {', '.join(UNITS)}." + did_you_mean(str(unit), UNITS)
                )
        if "people" in units and flows.people is None:
            raise DataError(
                "People cannot be protected: the input has no person column. "
                "Hint: name it with --person (person=...), or protect trips and say so to your readers."
            )
        if k_population is not None and "population" not in units:
            raise ParameterError("k_population is given but the population is not among the protected units.")
        if l is not None and (isinstance(l, bool) or not isinstance(l, int | np.integer) or l < 1):
            raise ParameterError(f"l must be a whole number of at least 1; found {l!r}.")
        return cls(
            k=int(k),
            trips=int(k) if "trips" in units else None,
            people=int(k) if "people" in units else None,
            population=_population_threshold(flows, k, k_population) if "population" in units else None,
            locations=None if l is None else int(l),
            population_is_given=k_population is not None,
        )

    @property
    def basis(self) -> str:
        """What a run counts as volume: weight when the population is protected, else trips."""
        return "trips" if self.population is None else "weight"

    @property
    def units(self) -> tuple[str, ...]:
        """The protected units."""
        return tuple(u for u in UNITS if getattr(self, u) is not None)

    @property
    def claimed_k(self) -> int | None:
        """What may be called k: None where all that is protected is a population given as a number."""
        held = self.trips is not None or self.people is not None or not self.population_is_given
        return self.k if held else None

    def prepare(self, flows: Flows) -> Flows:
        """The flows with all that `safe` counts in the cells merged from them; the same ones where nothing is missing.

        Tiles are carried through merges only where locations are protected, because they cost as much as people do.
        """
        return flows if self.locations is None else flows.located()

    def safe(self, cells: Cells) -> NDArray[np.bool_]:
        """Which cells reach every threshold, by what is counted in them.

        Raises:
            DataError: the cells do not carry what is protected: persons, weights, or the tiles of `prepare`.
        """
        ok = np.ones(len(cells), dtype=np.bool_)
        if self.trips is not None:
            ok &= cells.trips >= self.trips
        if self.population is not None:
            ok &= cells.volume("weight") >= self.population
        if self.people is not None:
            ok &= self._people_of(cells) >= self.people
        if self.locations is not None:
            for tiles in self._tiles_of(cells):
                ok &= tiles >= self.locations
        return ok

    @staticmethod
    def _people_of(cells: Cells) -> NDArray[np.int64]:
        people = cells.n_people()
        if people is None:
            raise DataError("People are protected, but these cells carry no persons.")
        return people

    @staticmethod
    def _tiles_of(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        tiles = cells.n_tiles()
        if tiles is None:
            raise DataError("Locations are protected, but these cells carry no tiles; see Guarantee.prepare.")
        return tiles

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports: only the thresholds that are set; ``k`` is None where nothing is held against it."""
        named: dict[str, Any] = {"k": self.claimed_k, "protect": list(self.units)}
        for unit in (*UNITS, "locations"):
            threshold = getattr(self, unit)
            if threshold is not None:
                named[unit] = threshold
        return named


def _population_threshold(flows: Cells, k: int, k_population: float | None) -> float:
    if flows.weight is None:
        raise DataError(
            "The population cannot be protected: the input has no weights. "
            "Hint: name the column with --weight (weight=...)."
        )
    if k_population is not None:
        if not np.isfinite(k_population) or k_population <= 0:
            raise ParameterError(f"k_population must be above 0; found {k_population!r}.")
        return float(k_population)
    total = float(np.sum(flows.weight))
    if total == 0:
        raise DataError("The population cannot be protected: all weights are zero. Hint: give k_population.")
    return k * total / float(np.sum(flows.trips))


def check_max_suppressed(share: float) -> None:
    """Refuse a share of suppression that is none.

    Raises:
        ParameterError: it is not a number of at least 0 and below 1.
    """
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise ParameterError(f"max_suppressed must be a number; found {type(share).__name__}.")
    if not 0 <= share < 1:
        raise ParameterError(f"max_suppressed must be at least 0 and below 1; found {share!r}.")
