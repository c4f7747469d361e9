"""What report.json claims: its form, held against the schema, and its guarantee, held against the input.

Whatever passes the schema can be recounted without surprise: from here on, an exception is a fault of the program.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.paths import read_json
from flowveil.verify.database import literal
from flowveil.verify.units import UNITS

if TYPE_CHECKING:
    from flowveil.flows import Flows

#: Measures may differ by this share: they pass through decimal text. Weights and thresholds may not.
TOLERANCE = 1e-9
_AXES = ("lon", "lat")


@cache
def schema() -> Mapping[str, Any]:
    """The schema of report.json, which every release meets."""
    found: Mapping[str, Any] = json.loads(files("flowveil.verify").joinpath("report.schema.json").read_text("utf-8"))
    return found


@cache
def _validator() -> Any:
    # Where it is installed, as beside JupyterLab, jsonschema imports this and compiles grammars of addresses for
    # seconds. The schema speaks of none.
    unneeded = "rfc3987_syntax"
    hidden = unneeded not in sys.modules
    if hidden:
        sys.modules[unneeded] = None  # type: ignore[assignment]  # how an import is refused
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend
    finally:
        if hidden:
            del sys.modules[unneeded]
    # JSON Schema takes 5.0 and -0.0 for whole numbers; a release writes none of them so.
    whole = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    return extend(Draft202012Validator, type_checker=whole)(schema())


def read_report(place: Path) -> tuple[Mapping[str, Any] | None, list[str]]:
    """The content of report.json, or None and what is wrong with its form."""
    try:
        report = read_json(place / "report.json")
    except (OSError, ValueError):
        return None, ["report.json: not readable, or not the report of a release"]
    problems = sorted({_place(error) for error in _validator().iter_errors(report)})
    found = [f"report.json: {where} is not what report.schema.json asks for" for where in problems]
    return (None if found else report), found


def _place(error: Any) -> str:
    """Where a report differs from the schema, in words of the schema alone: those of the report may be a message."""
    known = _names(schema())
    path = [str(name) if isinstance(name, int) or name in known else "..." for name in error.absolute_path]
    return f"'{'/'.join(path)}'" if path else "it"


def _names(part: Any) -> set[str]:
    if isinstance(part, list):
        return set().union(*map(_names, part)) if part else set()
    if not isinstance(part, Mapping):
        return set()
    own = set(part["properties"]) if isinstance(part.get("properties"), Mapping) else set()
    return own.union(*map(_names, part.values()))


@dataclass(frozen=True)
class Claims:
    """What the report of a release without noise claims, as far as it can be recounted.

    Attributes:
        report: all of it.
        guarantee: its thresholds; a population that is k times the mean weight is filled in.
        of_total: the same for the total of what is suppressed: raised where more is asked around listed places.
    """

    report: Mapping[str, Any]
    guarantee: Mapping[str, Any]
    of_total: Mapping[str, Any]

    @classmethod
    def of(cls, report: Mapping[str, Any], flows: Flows) -> Claims:
        """The claims of a report; where the suppressed volume is withheld, a mean weight is not given as a number.

        The cells were held against it all the same, so the recount must be too.
        """
        claims = cls(report, report["guarantee"], report["guarantee"])
        guarantee = {**claims.guarantee}
        if "population" in guarantee and guarantee["population"] is None:
            guarantee["population"] = _mean_population(flows, claims.k)
        raised, highest = {**guarantee}, (claims.parameters.get("stricter") or {}).get("k") or 0
        for name, unit in UNITS.items():
            if guarantee.get(name) is not None and highest > claims.k:
                raised[name] = _mean_population(flows, highest) if unit.weighed else highest
        return replace(claims, guarantee=guarantee, of_total=raised)

    @property
    def kind(self) -> str:
        """``plain``, ``sliced`` or ``boxed``."""
        return str(self.report["kind"])

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What was asked for."""
        found: Mapping[str, Any] = self.report["parameters"]
        return found

    @property
    def homogeneous(self) -> bool:
        """Whether the zones of each end are disjoint."""
        return bool(self.report["homogeneous"])

    @property
    def measures(self) -> Mapping[str, Mapping[str, Any]]:
        """The measures by basis: of the matrix, or of all finest slices together."""
        found: Mapping[str, Mapping[str, Any]] = self.report["measures"]
        return found

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """The slice columns; none for one matrix."""
        return tuple(self.report.get("slice_columns", ()))

    @property
    def slices(self) -> list[tuple[tuple[str | None, ...], Mapping[str, Mapping[str, Any]]]]:
        """The values and the measures of each published slice; none for one matrix."""
        columns = self.slice_columns
        return [
            (tuple(part["slice"].get(c) for c in columns), part["measures"]) for part in self.report.get("slices", ())
        ]

    def withheld(self, key: tuple[str | None, ...] | None = None) -> Mapping[str, list[str]]:
        """The measures that are listed as withheld, by basis; of one slice, or of all of the release."""
        part = self.report
        if key is not None:
            columns = self.slice_columns
            part = next(s for s in part["slices"] if tuple(s["slice"].get(c) for c in columns) == key)
        found = part["withheld"]
        return {} if found is None else found["measures"]

    @property
    def levels(self) -> int | None:
        """How far the rule that takes out hopeless flows lifts them; None where cells are suppressed as a whole."""
        rule = self.report["suppression"]
        return int(rule["levels"]) if rule["rule"] == "hopeless flows" else None

    @property
    def beta(self) -> float:
        """The share of the flows that may be taken out as hopeless."""
        return float(self.report["suppression"]["beta"])

    @property
    def shared(self) -> bool:
        """Whether all slices have the same zones, and coarser matrices are sums of published cells of finer ones."""
        return self.kind == "sliced" and self.parameters["slices"]["common_zones"] is True

    @property
    def overlapping(self) -> bool:
        """Whether a flow may lie in several published cells, so that nobody can know in which it is counted."""
        return self.kind == "boxed" and not self.report["boxes"]["disjoint"]

    @property
    def revised(self) -> bool:
        """Whether cells may have the values of an earlier release."""
        return "revision_of" in self.parameters

    @property
    def population_is_given(self) -> bool:
        """Whether the population's threshold was given as a number, which is then never called k."""
        return self.parameters.get("k_population") is not None

    @property
    def k(self) -> float:
        """What measures are held against: the k that is claimed or, where none is, the one that was asked for."""
        return self.guarantee.get("k") or self.parameters.get("k") or 0

    @property
    def counts_tiles(self) -> bool:
        """Whether tiles must be counted: of every cell, or around listed places."""
        around = (self.parameters.get("stricter") or {}).get("l")
        return self.threshold("locations") is not None or around is not None

    def threshold(self, unit: str) -> float | None:
        """What every cell must reach in a unit, or None where the unit is not protected."""
        return self.guarantee.get(unit)

    def safe(self, *, total: bool = False) -> str:
        """SQL: whether a group with trips, people, weight, begin_tiles, end_tiles reaches every threshold.

        Args:
            total: whether it is the total of what is suppressed, whose locations are not asked for.
        """
        terms, asked = ["true"], self.of_total if total else self.guarantee
        for name, unit in UNITS.items():
            if asked.get(name) is not None:
                terms.append(f"coalesce({unit.column}, 0) >= {literal(asked[name])}")
        if not total and self.threshold("locations") is not None:
            least = literal(self.threshold("locations"))
            terms.append(f"begin_tiles >= {least} AND end_tiles >= {least}")
        return "(" + " AND ".join(terms) + ")"


def mean_population(weight: Any, trips: Any, k: float) -> float:
    """The k-fold mean weight of a trip, rounded up to a millionth: weights are whole millionths, added up as such."""
    total, n = int(np.sum(np.rint(np.asarray(weight) * 1e6).astype(np.int64))), int(np.sum(trips))
    return math.ceil(Fraction(k) * total / n) / 1e6 if n else 0.0


def _mean_population(flows: Flows, k: float) -> float | None:
    return None if flows.weight is None or len(flows) == 0 else mean_population(flows.weight, flows.trips, k)


def check_guarantee(claims: Claims, flows: Flows) -> Iterator[str]:
    """Hold the guarantee against itself, against the parameters and against what the input can count."""
    guarantee, said = claims.guarantee, claims.report["guarantee"]
    if claims.levels is not None and (not 0 <= claims.beta < 1 or claims.shared):
        yield "report.json: the suppression rule 'hopeless flows' is not one that a release can have"
    if claims.kind == "boxed" and (claims.homogeneous or min(claims.report["boxes"][f"grid_{a}"] for a in _AXES) <= 0):
        yield "report.json: 'boxes' does not say their grid, or says that they partition the map"
    withheld = [part["withheld"] for part in (claims.report, *claims.report.get("slices", ()))]
    if said.get("population", 0) is None and not any(withheld):
        yield "report.json: the guarantee in population is not a number"
    protected = [unit for unit in UNITS if claims.threshold(unit) is not None]
    if not protected:
        yield "report.json: the guarantee protects no unit"
    if sorted(guarantee.get("protect", protected)) != sorted(protected):
        yield "report.json: the guarantee has thresholds for other units than it says it protects"
    for unit in protected:
        if not UNITS[unit].known(flows):
            yield f"report.json: the guarantee protects {UNITS[unit].missing}"
    if protected == ["population"] and claims.population_is_given:
        if guarantee.get("k") is not None:
            yield "report.json: the guarantee calls k what is a population given as a number"
    elif (guarantee.get("k") or 0) < 1:
        yield "report.json: the guarantee has no k of at least 1"
    if _asked_units(claims) != set(protected):
        yield "report.json: the parameters protect other units than the guarantee"
    for unit, least in _asked_for(claims, flows).items():
        if (claims.threshold(unit) or 0) < least:
            yield f"report.json: the guarantee in {unit} is weaker than the parameters ask for"


def check_expected(claims: Claims, expect: Mapping[str, Any], flows: Flows) -> Iterator[str]:
    """Compare the guarantee that the release claims with the one its reader asks for.

    k is asked of every unit that the reader names, or of one at the least where none is named; of the population it
    asks k times the mean weight of the input, unless the reader says how much is enough.
    """
    k, named = expect.get("k"), tuple(expect.get("protect") or ())
    for unit in named:
        if claims.threshold(unit) is None:
            yield f"report.json: the release does not protect {unit}"
    if k is not None:
        enough = expect.get("k_population")
        weight = enough or _mean_population(flows, k) or math.inf
        asked = {name: weight if unit.weighed else k for name, unit in UNITS.items()}
        claimed = [unit for unit in named or UNITS if claims.threshold(unit) is not None]
        short = [unit for unit in claimed if (claims.threshold(unit) or 0) < asked[unit]]
        if short and (named or short == claimed):
            yield f"report.json: the release claims a k of less than {k} in {', '.join(short)}"
    for unit, name in (("population", "k_population"), ("locations", "l")):
        least = expect.get(name)
        if least is not None and (claims.threshold(unit) or 0) < least:
            yield f"report.json: the release claims less than {least} in {unit}"


def _asked_units(claims: Claims) -> set[str]:
    asked = claims.parameters.get("protect") or ()
    return {asked} if isinstance(asked, str) else set(asked)


def _asked_for(claims: Claims, flows: Flows) -> dict[str, float]:
    """The least thresholds that the parameters, and the guarantee's own k, ask for."""
    units = _asked_units(claims)
    k = max(claims.k, claims.parameters.get("k") or 0)
    asked = {
        name: k
        for name, unit in UNITS.items()
        if not unit.weighed and (name in units or claims.threshold(name) is not None)
    }
    absolute = claims.parameters.get("k_population")
    mean = _mean_population(flows, k)
    if absolute is not None:
        asked["population"] = absolute
    elif "population" in units and mean is not None:
        asked["population"] = mean
    locations = claims.parameters.get("l")
    if locations is not None:
        asked["locations"] = locations
    return asked
