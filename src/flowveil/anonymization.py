"""From flows to a release: `anonymize` for one matrix, `anonymize_slices` for many.

A `Run` is a method with its guarantee and options. It plans a matrix, applies the plan and recounts every cell. Slices
use one run for each slice; then differences between the matrices are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from types import MappingProxyType
from typing import Any, Literal, overload

from flowveil.errors import DataError, InfeasibleError, ParameterError, option, with_value
from flowveil.flows import Flows
from flowveil.guarantee import DIFFERENCING, Guarantee, check_max_suppressed, confirmed
from flowveil.methods import METHODS, Method, find_method
from flowveil.methods.noise_by_slice import noisy_matrices
from flowveil.methods.zones_of import ZonesOf
from flowveil.paths import named_path
from flowveil.progress import lines_every, log
from flowveil.reading.limits import about, room_for
from flowveil.record_values import refuse_numbers
from flowveil.release.noisy import NoisyRelease, NoisySlices, nothing_left
from flowveil.release.plan import CellRule, Plan
from flowveil.release.post_rules import PostRules, refusal, suppressed_share
from flowveil.release.release import Release, SlicedRelease
from flowveil.release.revision import Earlier, revise
from flowveil.release.subtraction import Differencing, differences, refuse_differences
from flowveil.slice_plans import Checkpoint, SliceTask, release_slices
from flowveil.slices import SlicedFlows, declared_values, refuse_many_combinations
from flowveil.times import Every
from flowveil.zoning.places import read_places

#: The most accurate matrix; the finest map of disjoint zones; the finest cells of places and times.
DEFAULT_METHOD, DEFAULT_OF_MAPS, DEFAULT_OF_FOLDS = "layercut", "twincut", "paircut"
#: Bytes that deciding and writing take: in any case, for each flow, and for each pair of flow and person. Above what
#: `python -m benchmarks.memory` and `benchmarks.scale` measure for the method that takes most.
DECIDED, FLOW_DECIDED, PERSON_DECIDED = 150 << 20, 700, 320


class _Default(int):
    """A default that differs from the same number given by the caller."""


_DEFAULT_K = _Default(10)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds as the caller gave them; None where nothing was given. ``usual_share`` is the method's default."""

    k: int | None = None
    protect: str | Sequence[str] | None = None
    max_suppressed: float | None = None
    k_population: float | None = None
    l: int | None = None  # noqa: E741  # the papers' letter
    allow_small_k: bool | None = None
    population_only: bool | None = None
    usual_share: float = field(default=0.1, kw_only=True)

    @property
    def given(self) -> list[str]:
        """The names of those that were given."""
        return [name for name, value in vars(self).items() if name != "usual_share" and value not in (None, False)]

    @property
    def share(self) -> float:
        """The share that may be suppressed."""
        return self.usual_share if self.max_suppressed is None else self.max_suppressed


@dataclass(frozen=True, eq=False)
class Run:
    """A method with its options, what every matrix that it makes must satisfy, and the parameters to run it again."""

    method: Method
    guarantee: Guarantee
    max_suppressed: float
    options: dict[str, Any]
    parameters: dict[str, Any]

    @classmethod
    def from_request(cls, method: Method, flows: Flows, asked: Thresholds, options: Mapping[str, Any]) -> Run:
        """Checks a request and turns it into thresholds for these flows."""
        check_max_suppressed(asked.share)
        method.planner(flows)
        k = 10 if asked.k is None else asked.k
        given: dict[str, Any] = {"k_population": asked.k_population, "l": asked.l}
        guarantee = Guarantee.resolve(flows, k=k, protect=asked.protect, **given)
        weak = {"allow_small_k": bool(asked.allow_small_k), "population_only": bool(asked.population_only)}
        thresholds = {
            **{"k": guarantee.k, "protect": list(guarantee.units), **given, "max_suppressed": asked.share},
            "confirmed": confirmed(guarantee, flows, **weak),
        }
        parameters = method.parameters(flows, thresholds, options)
        if flows.l_places is not None:
            parameters["l_places"] = {"places": int(flows.l_places.count.sum())}
        return cls(method, guarantee, asked.share, dict(options), parameters)

    def plan(self, flows: Flows) -> Plan:
        """Returns the plan of the method for these flows."""
        people = 0 if flows.people is None else flows.people.n_rows
        room_for(
            DECIDED + len(flows) * FLOW_DECIDED + people * PERSON_DECIDED,
            what=f"deciding on {about(len(flows))} flows with {self.method.name}",
            hint=f"use larger tiles ({option('resolution')}) or a smaller area ({option('within')})",
        )
        decide = self.method.planner(flows)
        plan = decide(*self.guarantee.to_fixed_point(flows), max_suppressed=self.max_suppressed, **self.options)
        if not isinstance(plan, Plan):
            raise ParameterError(f"Method '{self.method.name}' must return a Plan; found {type(plan).__name__}.")
        is_own = self.method.name not in METHODS and not isinstance(self.method, ZonesOf)
        if is_own and (share := suppressed_share(flows, plan, self.guarantee.basis)) > self.max_suppressed + 1e-9:
            raise InfeasibleError(
                f"Method '{self.method.name}' suppresses {share:.1%} of the {self.guarantee.basis}; allowed are "
                f"{self.max_suppressed:.1%}. Hint: give a larger {option('max_suppressed')}, or change the method.",
                best={"suppressed": share},
            )
        return plan

    def planned(self, flows: Flows, afterwards: PostRules) -> Plan:
        """Returns what the rules that come afterwards leave of the plan; the parameters say which rules these were."""

        def decide(max_suppressed: float, *, cell_rule: CellRule | None = None) -> Plan:
            options = self.options if cell_rule is None else {**self.options, "cell_rule": cell_rule}
            return replace(self, max_suppressed=max_suppressed, options=options).plan(flows)

        how: dict[str, Any] = {"max_suppressed": self.max_suppressed, "in_layers": self.method.takes_cell_rule}
        plan, parameters = afterwards.plan(decide, flows, self.guarantee, **how)
        self.parameters.update(parameters)
        return plan

    def release(self, flows: Flows, plan: Plan) -> Release:
        """Applies a plan and recounts every cell."""
        return Release.from_plan(
            flows, plan, self.guarantee, method=self.method.name, parameters=MappingProxyType(self.parameters)
        )


# ---- one matrix ------------------------------------------------------------------------------------------------


@overload
def anonymize(flows: Flows, method: Literal["laplace", "topdown", "privtree"], **options: Any) -> NoisyRelease: ...


@overload
def anonymize(
    flows: Flows,
    method: str | Method | Callable[..., Plan] | None = None,
    k: int | None = 10,
    protect: str | Sequence[str] | None = None,
    max_suppressed: float | None = None,
    **options: Any,
) -> Release: ...


def anonymize(
    flows: Flows,
    method: str | Method | Callable[..., Plan] | None = None,
    k: int | None = _DEFAULT_K,
    protect: str | Sequence[str] | None = None,
    max_suppressed: float | None = None,
    *,
    k_population: float | None = None,
    l: int | None = None,  # noqa: E741  # the papers' letter
    hierarchy: str | None = None,
    zones_of: Any = None,
    revision: Any = None,
    dominance: float | None = None,
    stricter: Any = None,
    l_places: Any = None,
    t: float | None = None,
    allow_small_k: bool = False,
    population_only: bool = False,
    **options: Any,
) -> Release | NoisyRelease:
    """Makes an OD matrix publishable.

    Every cell of the returned release is recounted from the flows and satisfies the guarantee. With a noisy method
    (``laplace``, ``topdown``, ``privtree``) the result is a `NoisyRelease`; thresholds do not apply and are refused.

    Args:
        flows: what `read_trips` returns, or ``read_slices(...).folded()`` for cells of places, times and groups.
        method: a name of `flowveil.METHODS`, a `Method`, or a function ``(flows, guarantee, *, max_suppressed,
            **options) -> Plan``. By default ``layercut``; ``twincut`` if zones must not overlap, ``paircut`` for folds.
        k: threshold of every cell.
        protect: ``trips``, ``people``, ``population`` or several; by default people if persons are known, else trips.
        max_suppressed: share that may be suppressed; by default that of the method.
        k_population: threshold of the population; by default k times the mean weight of a trip.
        l: fewest tiles in which the trips of a cell begin, and in which they end.
        hierarchy: ``h3`` for the tree of the flows, ``halves`` for the same refined in steps of two.
        zones_of: an earlier release, or its zone map, whose zones are used; no method is given then.
        revision: the earlier releases of these trips, oldest first; cells change only if the change is safe.
        dominance: largest share of the trips of a cell that one person may make.
        stricter: list of places with a ``k`` or ``l`` that cells around them must reach; it is not published.
        l_places: points of interest that ``l`` counts, instead of tiles.
        t: largest distance (total variation) of the destinations of an origin zone from those of all published trips,
            and of the origins of a destination zone. Other zones are suppressed. For zones that do not overlap.
        allow_small_k: confirms a k below 3.
        population_only: confirms that only the population is protected although persons are known.
        **options: options of the method.

    Raises:
        ParameterError: a parameter is out of range or unknown, or a confirmation is missing.
        DataError: the data does not have what the guarantee needs, or has no flows.
        InfeasibleError: no release can meet the guarantee.
        GuaranteeError: the recount contradicts the method; nothing may be published.
    """
    _check_type(flows, Flows, "flows", "read_trips")
    rules = PostRules.from_request(dominance=dominance, stricter=stricter, revision=revision, t=t)
    zones = zones_of if rules.earlier is None else rules.earlier.zones_of(zones_of)
    chosen = _chosen(method, _default_method(flows, rules), zones, revise=revision is not None)
    given = (None if k is _DEFAULT_K else k, protect, max_suppressed, k_population, l, allow_small_k, population_only)
    asked = Thresholds(*given, usual_share=chosen.max_suppressed)
    return _release(flows, chosen, asked, rules, options, hierarchy=hierarchy, l_places=l_places)


def _release(
    flows: Flows,
    chosen: Method,
    asked: Thresholds,
    rules: PostRules,
    options: Mapping[str, Any],
    *,
    hierarchy: str | None,
    l_places: Any,
) -> Release | NoisyRelease:
    """Checks the request against the method and the flows, plans, and returns the recounted release."""
    chosen.check_options(options)
    check_max_suppressed(asked.share)
    chosen.check_folds(flows)
    if len(flows) == 0:
        raise DataError("There are no flows to anonymise.")
    if chosen.promises != "k":
        chosen.refuse_thresholds([*asked.given, *rules.given])
    elif rules.t is not None and not chosen.homogeneous:
        raise refusal()
    _check_numbers(flows, chosen, revision=rules.earlier)
    rules = rules.on(flows)
    flows, on_tree = chosen.on_hierarchy(flows, hierarchy)
    if l_places is not None:
        flows = _with_places(flows, l_places, chosen, asked, rules)
    log.info("Anonymising with %s", chosen.name)
    if chosen.promises != "k":
        counts = chosen.planner(flows)(flows, **options)
        return NoisyRelease.of(flows, counts, method=chosen.name, parameters=chosen.parameters(flows, {}, options))
    run = Run.from_request(chosen, flows, asked, options)
    run.parameters.update(on_tree)
    prepared = run.guarantee.prepare(flows)
    release = run.release(prepared, run.planned(prepared, rules))
    return release if rules.earlier is None else revise(release, rules.earlier)


def _check_type(flows: Any, expected: type, what: str, reader: str) -> None:
    """Raises ParameterError for flows of another type."""
    if not isinstance(flows, expected):
        hint = "slices are for anonymize_slices" if isinstance(flows, SlicedFlows) else f"pass what {reader} returns"
        raise ParameterError(f"Needs {what}; found {type(flows).__name__}. Hint: {hint}.")


def _with_places(flows: Flows, l_places: Any, method: Method, asked: Thresholds, afterwards: PostRules) -> Flows:
    """The flows with listed places, which locations are counted by."""
    if method.promises != "k":
        method.refuse_thresholds(["l_places"])
    if asked.l is None:
        raise ParameterError(
            f"Listed places say what {option('l')} counts, and it is not given. Hint: for example {with_value('l', 3)}."
        )
    if method.hierarchy is None or flows.folds:
        raise ParameterError("l is counted by listed places for zones of a tree: not for boxes, nor with folds.")
    if afterwards.stricter is not None or afterwards.earlier is not None:
        raise ParameterError(
            "l is not counted by listed places together with higher thresholds around places (stricter), nor in a "
            "revision. Hint: leave one of them out."
        )
    return replace(flows, l_places=read_places(l_places, asking=False).counted_on(flows))


def _check_numbers(flows: Flows, method: Method | None, **others: Any) -> None:
    """Refuses means, totals and medians with what could reveal one person's value by a difference."""
    if flows.values is not None:
        unfit = method is not None and (method.promises != "k" or method.hierarchy is None)
        refuse_numbers({f"method '{method.name}'" if method is not None else "": unfit, **others})


def _default_method(flows: Flows, rules: PostRules) -> str:
    """Returns the default: LayerCut, unless columns fold, or zones must not overlap."""
    if flows.folds:
        return DEFAULT_OF_FOLDS
    return DEFAULT_OF_MAPS if flows.same_zones or rules.t is not None else DEFAULT_METHOD


def _chosen(
    method: str | Method | Callable[..., Plan] | None, default: str, zones_of: Any, *, revise: bool = False
) -> Method:
    """Returns the method, the default or that of fixed zones."""
    if zones_of is None:
        return find_method(method or default)
    if method is not None:
        raise ParameterError(
            "A method chooses zones, and those of an earlier release are fixed: --method and --zones-of (method, "
            "zones_of) cannot be combined. Hint: leave one of them out."
        )
    return ZonesOf.over(zones_of, revise=revise)


# ---- slices ----------------------------------------------------------------------------------------------------


def anonymize_slices(
    flows: SlicedFlows,
    method: str | Method | Callable[..., Plan] | None = None,
    k: int | None = None,
    protect: str | Sequence[str] | None = None,
    max_suppressed: float | None = None,
    *,
    k_population: float | None = None,
    l: int | None = None,  # noqa: E741  # the papers' letter
    hierarchy: str | None = None,
    total: bool = False,
    also_every: Sequence[str] = (),
    common_zones: bool = False,
    zones_of: Any = None,
    revision: Any = None,
    accept_differencing: bool = False,
    allow_small_k: bool = False,
    population_only: bool = False,
    workers: int = 1,
    resume: Checkpoint | PathLike[str] | str | None = None,
    progress: Callable[[float], None] | None = None,
    values: Mapping[str, Sequence[str] | str] | None = None,
    **options: Any,
) -> SlicedRelease | NoisySlices:
    """Makes the matrix of every slice publishable; a slice without safe cells, or of under k persons, is suppressed.

    Raises InfeasibleError if no slice can be published, or if subtraction would reveal protected values.

    Args:
        flows: what `read_slices` returns.
        method: as for `anonymize`; by default ``twincut``, and ``odkanon`` for common zones.
        k, protect, max_suppressed, k_population, l, hierarchy, zones_of, revision, allow_small_k, population_only: as
            for `anonymize`; the share is that of each slice.
        total, also_every: also publish the matrix of all slices together, or those of longer steps of time.
        common_zones: give all slices the same zones, safe in each.
        accept_differencing: publish although differences between matrices are below the guarantee.
        workers, resume, progress: processes; private folder for checkpoints; called with the share that is done.
        values: for noisy methods, which return `NoisySlices`: known values of each slice column; for times a period.
        **options: options of the method.
    """
    _check_type(flows, SlicedFlows, "sliced flows", "read_slices")
    asked = Thresholds(k, protect, max_suppressed, k_population, l, allow_small_k, population_only)
    exact_only = {"resume": resume, "accept_differencing": accept_differencing}
    if revision is not None:
        kept = {"total": total, "also_every": also_every, "common_zones": common_zones, "values": values, **exact_only}
        how = {"method": method, "hierarchy": hierarchy, "zones_of": zones_of, **options}
        return _revised_slices(flows, Earlier.read(revision), asked, how, [name for name in kept if kept[name]])
    chosen = _method_of_slices(method, options, common_zones, zones_of, values)
    asked = replace(asked, usual_share=chosen.max_suppressed)
    steps = [Every.parse(text) for text in also_every]
    _check_numbers(flows.slices[0], chosen, total=total, also_every=steps, accept_differencing=accept_differencing)
    if chosen.promises != "k":
        chosen.refuse_thresholds([*asked.given, *(name for name, given in exact_only.items() if given)])
        chosen.on_hierarchy(flows, hierarchy)
        return _inexact_slices(chosen, flows, values or {}, options, steps, total)
    refuse_many_combinations(flows)
    how_sliced = {**_how_sliced(flows, steps, total), "common_zones": common_zones}
    task = _slice_task(flows, chosen, asked, options, how_sliced, hierarchy=hierarchy, resume=resume)
    coarser = task.flows.coarser_keys(steps, total=total)
    return _released_slices(task, coarser, common_zones, accept_differencing, workers, progress)


def _slice_task(
    flows: SlicedFlows,
    chosen: Method,
    asked: Thresholds,
    options: Mapping[str, Any],
    how_sliced: Mapping[str, Any],
    *,
    hierarchy: str | None,
    resume: Checkpoint | PathLike[str] | str | None,
) -> SliceTask:
    """Returns the work that is the same for all slices: their flows on the tree, the run and the checkpoint."""
    flows, on_tree = chosen.on_hierarchy(flows, hierarchy)
    run = Run.from_request(chosen, flows.whole, asked, options)
    run.parameters.update({**on_tree, "slices": how_sliced})
    if run.guarantee.locations is not None:
        flows = replace(flows, slices=tuple(run.guarantee.prepare(part) for part in flows.slices))
    if resume is not None and not isinstance(resume, Checkpoint):
        resume = Checkpoint(named_path(resume, what="the checkpoint"))
    return SliceTask(flows, run, resume)


def _revised_slices(
    flows: SlicedFlows, earlier: Earlier, asked: Thresholds, how: Mapping[str, Any], refused: Sequence[str]
) -> SlicedRelease:
    """Returns the revision of a sliced release: of each of its slices, as of a single matrix."""
    _check_numbers(flows.slices[0], None, revision=True)
    if refused:
        raise ParameterError(
            f"A revision keeps slices and zones as they are; found {', '.join(map(option, refused))}. "
            "Hint: leave it out; flowveil derive computes totals."
        )
    thresholds = {name: value for name, value in vars(asked).items() if name != "usual_share"}
    stated = earlier.statements[-1]
    sliced = stated.parameters.get("slices") or {}
    if stated.slice_columns != flows.columns or sliced["every"] != (flows.every and flows.every.name):
        raise ParameterError(
            "The release that is revised has other slices. Hint: cut the trips by the same columns and steps."
        )
    releases: dict[Any, Release] = {}
    parts: dict[Any, Flows] = dict(zip(flows.keys, flows.slices, strict=True))
    for key in earlier.slices:
        own = parts.get(key)
        release = None if own is None else anonymize(own, revision=earlier.in_slice(key), **thresholds, **how)
        if own is None or release is None or (own.people is not None and own.people.total() < release.guarantee.k):
            raise InfeasibleError(
                "A slice of the release that is revised has too few trips or people now, so the slices of the revision "
                "would reveal that. Nothing was written. Hint: leave the correction out."
            )
        releases[key] = release
    first = next(iter(releases.values()))
    parameters = {**first.parameters, "slices": dict(sliced)}
    if earlier.in_slice(next(iter(releases))).common_map is None:
        # Each slice has its own map, and none is that of the release.
        parameters.pop("zones_of")
        releases = {key: replace(own, plan=replace(own.plan, frozen=None)) for key, own in releases.items()}
    made = tuple(releases), tuple(releases.values()), first.guarantee, first.method
    return SlicedRelease(flows, *made, MappingProxyType(parameters), Differencing())


def _how_sliced(flows: SlicedFlows, steps: Sequence[Every], total: bool) -> dict[str, Any]:
    """How trips were cut into slices, as the report says it."""
    return {
        "by_many": flows.intake.by_many,
        "every": flows.every and flows.every.name,
        "also_every": [step.name for step in steps],
        "total": total,
    }


def _inexact_slices(
    method: Method,
    flows: SlicedFlows,
    given: Mapping[str, Sequence[str] | str],
    options: Mapping[str, Any],
    steps: Sequence[Every],
    total: bool,
) -> NoisySlices:
    """Returns noise on the matrices of all declared slices, whether they have trips or not; or perturbed counts."""
    log.info("Anonymising with %s", method.name)
    sliced, guarantee = _how_sliced(flows, steps, total), None
    if method.promises == "perturbation":
        made = _perturbed_matrices(method, flows, options, steps, total)
        guarantee = made[0][2].guarantee
    else:
        listed = declared_values(flows.columns, flows.every, given)
        guarantee, made = noisy_matrices(method, flows, listed, options, steps=steps, total=total)
        # A period says the same as the steps in it.
        sliced["period"] = next((value.split("/") for value in given.values() if isinstance(value, str)), None)
        sliced["values"] = {name: sorted(value) for name, value in given.items() if not isinstance(value, str)}
    parameters = {**method.parameters(flows.slices[0], {}, options), "slices": sliced}
    releases = {
        key: NoisyRelease.of(own, counts, method=method.name, parameters=parameters)
        for key, own, counts in made
        if len(counts.cells)
    }
    if not releases:
        raise nothing_left(guarantee)
    keys, parts = tuple(releases), tuple(releases.values())
    return NoisySlices(flows, keys, parts, guarantee, method.name, MappingProxyType(parameters))


def _perturbed_matrices(
    method: Method, flows: SlicedFlows, options: Mapping[str, Any], steps: Sequence[Every], total: bool
) -> list[tuple[Any, Flows, Any]]:
    """Perturbs the matrix of every slice of the data, and those of longer times, each from its records alone."""
    refuse_many_combinations(flows)
    keys = [*flows.coarser_keys(steps, total=total), *flows.keys]
    inputs = [flows.together(flows.members(key)) for key in keys]
    made = [(key, own, method.planner(own)(own, **options)) for key, own in zip(keys, inputs, strict=True)]
    if (steps or total) and made[0][2].guarantee.one_table:
        raise ParameterError(
            "Slices and their sums are tables of the same trips, which mode=controlled and small_only do not protect. "
            "Hint: omit --total and further steps, or use mode=random for all counts."
        )
    return made


def _released_slices(
    task: SliceTask,
    coarser: Sequence[Any],
    common_zones: bool,
    accept_differencing: bool,
    workers: int,
    progress: Callable[[float], None] | None,
) -> SlicedRelease:
    """Returns the slices that can be published, after checking what subtraction of matrices reveals."""
    progress = progress or lines_every("Anonymising slices")
    if workers < 1:
        raise ParameterError(f"workers must be at least 1; found {workers}.")
    flows, run = task.flows, task.run
    keys = [*coarser, *flows.keys]
    made = release_slices(task, coarser, common_zones=common_zones, workers=workers, progress=progress)
    published = {key: release for key, release in zip(keys, made, strict=True) if release is not None}
    if not published:
        raise InfeasibleError(
            f"None of {len(keys)} slices can be published: even the largest zones are below the guarantee "
            f"({run.guarantee.in_words()}). Hint: lower k, or cut into fewer slices."
        )
    differencing = differences(flows, coarser, published, common_zones=common_zones)
    refuse_differences(differencing, accepted=accept_differencing)
    if differencing.short or differencing.unchecked:
        run.parameters["confirmed"].append(DIFFERENCING)
    matrices, parameters = tuple(published.values()), MappingProxyType(run.parameters)
    return SlicedRelease(flows, tuple(published), matrices, run.guarantee, run.method.name, parameters, differencing)


def _method_of_slices(
    method: str | Method | Callable[..., Plan] | None,
    options: Mapping[str, Any],
    common_zones: bool,
    zones_of: Any,
    values: Any,
) -> Method:
    if common_zones and zones_of is not None:
        raise ParameterError("--common-zones chooses zones, and those of an earlier release (--zones-of) are fixed.")
    chosen = _chosen(method, "odkanon" if common_zones else DEFAULT_OF_MAPS, zones_of)
    chosen.check_options(options)
    if common_zones and (chosen.name not in ("odkanon", "layercut") or options):
        raise ParameterError(
            "Common zones are planned by odkanon, or in layers by layercut, without options; another method, or "
            "options, cannot be combined with --common-zones."
        )
    if values is not None and chosen.promises != "epsilon":
        raise ParameterError(f"{option('values')} is for methods that add noise; others find the values in the data.")
    return chosen
