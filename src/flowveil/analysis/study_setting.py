"""What a study runs: methods with what is asked of each, protections and trees."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowveil.analysis.presets import TREES, Preset, find_preset
from flowveil.analysis.runs import check_runs, listed, methods_of, on_tree
from flowveil.errors import ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import UNITS
from flowveil.methods import METHODS, Method, find_method
from flowveil.slices import SlicedFlows
from flowveil.zoning.refinement import refined

#: Options that are volumes. They are given in trips, like k, and multiplied by the mean weight of a trip, like k, where
#: the population is protected.
_VOLUMES = ("v_target",)


@dataclass(frozen=True, eq=False)
class Setting:
    """What a study runs.

    Attributes:
        methods: by name, in order.
        protections: the protected units of each protection.
        k: how many every cell must hide.
        max_suppressed, limits: share that may be suppressed, and by method where it differs.
        options: options by method.
        hierarchy: the tree of all methods that work on one; by default what each one's page says.
        trees: whether segments are over trees of their ``own`` tiles, or over the ``common`` ones.
        preset: the paper whose set-up and tables it has, if any.
        k_population: threshold of the population; None for k times the mean weight of a trip.
    """

    methods: Mapping[str, Method]
    protections: tuple[tuple[str, ...], ...]
    k: int
    max_suppressed: float
    limits: Mapping[str, float]
    options: Mapping[str, Mapping[str, Any]]
    hierarchy: str | None
    trees: str
    preset: Preset | None
    k_population: float | None = None

    @classmethod
    def of(
        cls,
        flows: SlicedFlows,
        *,
        preset: str | None,
        methods: Any,
        protections: Sequence[str] | None,
        k: int | None,
        k_population: float | None,
        max_suppressed: float | None,
        limits: Mapping[str, float] | None,
        options: Mapping[str, Mapping[str, Any]] | None,
        trees: str | None,
        hierarchy: str | None,
        time_limit: float,
    ) -> Setting:
        """Fill in what was not given, from the preset first, and refuse what cannot be run.

        Raises:
            ParameterError: a name or number is not allowed.
            DataError: the data has no persons or weights that a protection needs.
        """
        paper = find_preset(preset)
        if paper is not None and paper.is_of_matrices != (flows.every is not None):
            raise ParameterError(
                f"The preset '{preset}' compares methods over "
                + ("many matrices. Hint: give --time and --every." if paper.is_of_matrices else "segments, not times.")
            )
        of_paper = Preset("", "", (), trees="common") if paper is None else paper
        wanted = methods if methods is not None and methods != "all" else of_paper.methods or None
        chosen = methods_of(wanted, same_zones=flows.intake.same_zones)
        if wanted is None and flows.every is not None:
            chosen.append(METHODS["laplace"])
        whole = flows.whole
        given = protections or _usual_protections(flows)
        found = cls(
            methods={method.name: method for method in chosen},
            protections=tuple(tuple(listed(text, "+")) for text in given),
            k=of_paper.k if k is None else k,
            max_suppressed=of_paper.max_suppressed if max_suppressed is None else max_suppressed,
            limits={**of_paper.limits, **(limits or {})},
            options=_options(whole, chosen, of_paper.options, options or {}),
            hierarchy=hierarchy,
            trees=of_paper.trees if trees is None else trees,
            preset=paper,
            k_population=k_population,
        )
        found._check(flows, time_limit)
        return found

    def _check(self, flows: SlicedFlows, time_limit: float) -> None:
        if self.trees not in TREES:
            raise ParameterError(f"trees must be {' or '.join(TREES)}; found {self.trees!r}.")
        for name in self.limits:
            find_method(self.methods.get(name, name))
        shares = [self.max_suppressed, *self.limits.values()]
        check_runs(
            flows.whole,
            tuple(self.methods.values()),
            k=[self.k],
            protect=self.protections,
            max_suppressed=shares,
            time_limit=time_limit,
        )
        # What cannot be refined is refused before anything is run.
        refined(flows, self.hierarchy)

    def share_of(self, method: str) -> float:
        """The share that a method may suppress."""
        return self.limits.get(method, self.max_suppressed)

    def asked(self, whole: Flows, method: str, protect: Sequence[str]) -> dict[str, Any]:
        """What is asked of a run.

        Args:
            whole: everybody's flows: thresholds of the population are theirs, so that segments can be compared.
            method: name of the method.
            protect: the protected units.
        """
        chosen, options = self.methods[method], dict(self.options.get(method, {}))
        if chosen.promises != "k":
            return {"method": chosen, **options}
        asked: dict[str, Any] = {"method": chosen, "k": self.k, "protect": tuple(protect)}
        asked |= {"max_suppressed": self.share_of(method), **on_tree(chosen, self.hierarchy)}
        if self.k_population is not None and not (math.isfinite(self.k_population) and self.k_population > 0):
            raise ParameterError(f"k_population must be above 0; found {self.k_population!r}.")
        if "population" in protect:
            usual = UNITS["population"].threshold(whole, self.k)
            asked["k_population"] = usual if self.k_population is None else self.k_population
            volumes = {name: options[name] for name in _VOLUMES if isinstance(options.get(name), int | float)}
            options |= {name: asked["k_population"] / self.k * value for name, value in volumes.items()}
        return asked | options

    def named(self, method: str) -> dict[str, Any]:
        """All that decides the result of a run of a method, beside its flows: stored results are named after it."""
        named: dict[str, Any] = {"k": self.k, "max_suppressed": self.share_of(method), "hierarchy": self.hierarchy}
        named |= {} if self.k_population is None else {"k_population": self.k_population}
        named |= {"trees": self.trees, "options": dict(self.options.get(method, {}))}
        return named | _code(self.methods[method])


def _usual_protections(flows: SlicedFlows) -> tuple[str, ...]:
    """Trips and, where there are weights, the population; over many matrices the trips alone, as in the paper."""
    return ("trips",) if flows.whole.weight is None or flows.every is not None else ("trips", "population")


def _options(
    flows: Flows,
    methods: Sequence[Method],
    usual: Mapping[str, Mapping[str, Any]],
    given: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """The options of each method: those of the preset, and over them those that were given.

    Raises:
        ParameterError: a method has no such option, or a noisy one lacks its bound.
    """
    of_name = {method.name: method for method in methods}
    for name, chosen in given.items():
        (of_name.get(name) or find_method(name)).check_options(chosen)
    merged = {name: {**usual.get(name, {}), **given.get(name, {})} for name in of_name}
    if "laplace" in merged:
        # Nothing of it is published, so its list of zones may come from the data, and its noise may be repeatable.
        domain = {"region": "observed"} if flows.whole_map is None else {}
        merged["laplace"] = {"epsilon": 1.0, "unsafe_seed_for_tests": 0, **domain, **merged["laplace"]}
        if flows.people is None and "bound" not in given.get("laplace", {}):
            # Without persons the unit is a trip, which needs no bound.
            merged["laplace"].pop("bound", None)
        if flows.people is not None and "bound" not in merged["laplace"]:
            raise ParameterError(
                "laplace needs a bound where persons are known: the most trips of one person that are counted. "
                "Hint: --option laplace.bound=4, or name methods without it."
            )
    return {name: options for name, options in merged.items() if options}


def _code(method: Method) -> dict[str, str]:
    """What decides the results of a method of one's own; of ours it is the version."""
    if METHODS.get(method.name) == method:
        return {}
    try:
        source = inspect.getsource(method.plan)
    except (OSError, TypeError):
        source = ""
    return {"code": f"{method.plan.__module__}:{getattr(method.plan, '__qualname__', '')}:{source}"}
