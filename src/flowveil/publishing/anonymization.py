"""From flows to a release: `anonymize`, for one matrix or one for each slice.

A `Run` is a method with its guarantee and options. It plans a matrix, applies the plan and recounts
every cell. Slices use one run for each slice; then differences between the matrices are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from types import MappingProxyType
from typing import Any, Literal, overload

import numpy as np

from flowveil.core.errors import DataError, InfeasibleError, ParameterError, option
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee, check_max_suppressed, confirmed
from flowveil.core.secret_key import SecretKey, as_key
from flowveil.core.secret_thresholds import SecretThresholds
from flowveil.core.slices import declared_values, refuse_many_combinations
from flowveil.core.times import Every
from flowveil.methods import METHODS, Method, find_method
from flowveil.methods.noise_by_slice import noisy_matrices
from flowveil.methods.noise_guarantee import protected_unit, with_unit
from flowveil.methods.zones_of import ZonesOf
from flowveil.publishing.release import NoisyRelease, Release, SlicedRelease
from flowveil.publishing.slice_plans import Checkpoint, SliceTask, release_slices
from flowveil.reading.matrices import MATRIX
from flowveil.release.noisy import NothingLeftError
from flowveil.release.plan import CellRule, Plan
from flowveil.release.post_rules import PostRules, suppressed_share
from flowveil.release.revision import Earlier, revise
from flowveil.request import support
from flowveil.system.limits import about, room_for
from flowveil.system.paths import named_path
from flowveil.system.progress import lines_every, log
from flowveil.zoning.places import read_places
from flowveil.zoning.restriction import to_the_top

#: The most accurate matrix; the finest map of disjoint zones.
DEFAULT_METHOD, DEFAULT_OF_MAPS = "layercut", "twincut"
#: Features that need a matrix for each value.
_OF_SLICES = ("common_zones", "values", "resume", "zones_of", "revision")
#: Bytes that deciding and writing take: in any case, for each flow, and for each pair of flow and
#: person. Above what `python -m benchmarks.memory` and `benchmarks.scale` measure for the method
#: that takes most.
DECIDED, FLOW_DECIDED, PERSON_DECIDED = 150 << 20, 700, 320


class _Default(int):
    """A default that differs from the same number given by the caller."""


_DEFAULT_K = _Default(10)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds as the caller gave them; None where nothing was given.

    ``usual_share`` is the method's default.
    """

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
        return [
            name
            for name, value in vars(self).items()
            if name != "usual_share" and value not in (None, False)
        ]

    @property
    def share(self) -> float:
        """The share that may be suppressed."""
        return self.usual_share if self.max_suppressed is None else self.max_suppressed


@dataclass(frozen=True, eq=False)
class Secrecy:
    """Whether cells must reach more than k, by secret amounts, and the key that these follow
    from besides the flows.
    """

    wanted: bool = True
    key: SecretKey | None = None

    @classmethod
    def from_request(cls, wanted: bool | str, key_file: Any) -> Secrecy:
        """Reads the key."""
        wanted = str(wanted).lower() != "false"
        return cls(wanted, as_key(key_file))

    def public_trees(self, method: Method, flows: Flows) -> Flows:
        """Returns the flows on trees up to the top of the map where thresholds are secret.

        The smallest zone around all trips is not public.
        """
        return to_the_top(flows) if self.wanted and method.takes_secret_thresholds else flows

    def thresholds(self, method: Method, flows: Flows) -> SecretThresholds | None:
        """Returns the secret thresholds for flows; None if the method, or the request, has none."""
        if not (self.wanted and method.takes_secret_thresholds):
            return None
        return SecretThresholds.from_flows(flows, self.key)


@dataclass(frozen=True, eq=False)
class Run:
    """A method with its options, what every matrix that it makes must satisfy, and the parameters
    to run it again.
    """

    method: Method
    guarantee: Guarantee
    max_suppressed: float
    options: dict[str, Any]
    parameters: dict[str, Any]
    secrecy: Secrecy

    @classmethod
    def from_request(
        cls,
        method: Method,
        flows: Flows,
        asked: Thresholds,
        options: Mapping[str, Any],
        secrecy: Secrecy,
    ) -> Run:
        """Checks a request and turns it into thresholds for these flows."""
        check_max_suppressed(asked.share)
        method.planner(flows)
        k = 10 if asked.k is None else asked.k
        given: dict[str, Any] = {"k_population": asked.k_population, "l": asked.l}
        guarantee = Guarantee.resolve(flows, k=k, protect=asked.protect, **given)
        weak = {
            "allow_small_k": bool(asked.allow_small_k),
            "population_only": bool(asked.population_only),
        }
        thresholds = {
            **{
                "k": guarantee.k,
                "protect": list(guarantee.units),
                **given,
                "max_suppressed": asked.share,
            },
            "confirmed": confirmed(guarantee, flows, **weak),
        }
        parameters = method.parameters(flows, thresholds, options)
        if flows.l_places is not None:
            parameters["l_places"] = {"places": int(flows.l_places.count.sum())}
        if not secrecy.wanted:
            parameters["secret_thresholds"] = "false"
        return cls(method, guarantee, asked.share, dict(options), parameters, secrecy)

    def plan(self, flows: Flows) -> Plan:
        """Returns the plan of the method for these flows."""
        people = 0 if flows.people is None else flows.people.n_rows
        room_for(
            DECIDED + len(flows) * FLOW_DECIDED + people * PERSON_DECIDED,
            what=f"deciding on {about(len(flows))} flows with {self.method.name}",
            hint=(
                f"use larger tiles ({option('resolution')}) or a smaller area ({option('within')})"
            ),
        )
        decide = self.method.planner(flows)
        secret = self.secrecy.thresholds(self.method, flows)
        plan = decide(
            *self.guarantee.to_fixed_point(flows),
            max_suppressed=self.max_suppressed,
            **self.options,
            **({} if secret is None else {"secret": secret}),
        )
        if not isinstance(plan, Plan):
            raise ParameterError(
                f"Method '{self.method.name}' must return a Plan; found {type(plan).__name__}."
            )
        is_own = self.method.name not in METHODS and not isinstance(self.method, ZonesOf)
        if (
            is_own
            and (share := suppressed_share(flows, plan, self.guarantee.basis))
            > self.max_suppressed + 1e-9
        ):
            raise InfeasibleError(
                f"Method '{self.method.name}' suppresses {share:.1%} of the {self.guarantee.basis};"
                f" allowed are {self.max_suppressed:.1%}. Hint: give a larger"
                f" {option('max_suppressed')}, or change the method.",
                best={"suppressed": share},
            )
        return plan

    def planned(self, flows: Flows, afterwards: PostRules) -> Plan:
        """Returns what the rules that come afterwards leave of the plan.

        The parameters say which rules these were.
        """

        def decide(max_suppressed: float, *, cell_rule: CellRule | None = None) -> Plan:
            options = (
                self.options if cell_rule is None else {**self.options, "cell_rule": cell_rule}
            )
            return replace(self, max_suppressed=max_suppressed, options=options).plan(flows)

        how: dict[str, Any] = {
            "max_suppressed": self.max_suppressed,
            "in_layers": self.method.takes_cell_rule,
        }
        plan, parameters = afterwards.plan(decide, flows, self.guarantee, **how)
        self.parameters.update(parameters)
        return plan

    def release(self, flows: Flows, plan: Plan) -> Release:
        """Applies a plan and recounts every cell."""
        parameters = self.parameters
        if "districts" in plan.notes:
            districts = {"districts": plan.notes["districts"]}
            parameters = {**parameters, "options": {**parameters["options"], **districts}}
        if plan.folded is not None and "fold" in parameters:
            used = np.unique(plan.origin_zone[plan.kept])
            trees = {
                fold.name: fold.stated(nodes[used])
                for fold, nodes in zip(plan.folded.folds, plan.folded.fold_nodes, strict=True)
                if fold.every is None
            }
            parameters = {**parameters, "fold": trees}
        return Release.from_plan(
            flows,
            plan,
            self.guarantee,
            method=self.method.name,
            parameters=MappingProxyType(parameters),
        )


# ---- one matrix ----------------------------------------------------------------------------------


@overload
def anonymize(
    flows: Flows, method: Literal["laplace", "topdown", "privtree", "posterior"], **options: Any
) -> NoisyRelease: ...


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
    secret_thresholds: bool | str = True,
    key_file: Any = None,
    allow_small_k: bool = False,
    population_only: bool = False,
    separate: bool = False,
    common_zones: bool = False,
    values: Mapping[str, Sequence[str] | str] | None = None,
    workers: int = 1,
    resume: Checkpoint | PathLike[str] | str | None = None,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Any:
    """Makes OD flows publishable.

    Every cell of the returned release is recounted from the flows and satisfies the guarantee. With
    a noisy method (``laplace``, ``topdown``, ``privtree``, ``posterior``) thresholds do not apply
    and are refused; there ``protect`` is the unit, ``trips`` or ``people``.

    Times and attributes of the flows are part of the cells: every trip is counted in one cell, of
    places, an interval and a value (`Flows.folded`). With ``separate``, or a method that cannot do
    that, each of their values is a slice, planned alone, and ``release["08:00"]`` is the release
    of one. A slice without safe cells, or of under k persons, is suppressed. Sums are computed
    from what is published (`flowveil.derive`), never from the trips.

    Args:
        flows: what `read_trips` returns; ``.folded()`` for cells of places, times and groups.
        method: a name of `flowveil.METHODS`, a `Method`, or a function ``(flows, guarantee, *,
            max_suppressed, **options) -> Plan``. By default ``layercut``; ``twincut`` if zones must
            not overlap.
        k: threshold of every cell.
        protect: ``trips``, ``people``, ``population`` or several; by default people if persons are
            known, else trips.
        max_suppressed: share that may be suppressed, of each slice; by default that of the method.
        k_population: threshold of the population; by default k times the mean weight of a trip.
        l: fewest tiles in which the trips of a cell begin, and in which they end.
        hierarchy: ``h3`` for the tree of the flows, ``halves`` for the same refined in steps of
            two.
        zones_of: an earlier release, or its zone map, whose zones are used; no method is given
            then.
        revision: the earlier releases of these trips, oldest first; cells change only if the change
            is safe.
        dominance: largest share of the trips of a cell that one person may make.
        stricter: list of places with a ``k`` or ``l`` that cells around them must reach; it is not
            published.
        l_places: points of interest that ``l`` counts, instead of tiles.
        t: largest distance (total variation) of the destinations of an origin zone from those of
            all published trips, and of the origins of a destination zone. Other zones are
            suppressed. For zones that do not overlap.
        secret_thresholds: whether cells of ``layercut`` and ``paircut`` must have k plus a secret
            amount, so that nothing about parts of a cell can be proven. False for comparisons.
        key_file: file with the secret key of these amounts (`flowveil key FILE`). By default they
            follow from the flows alone.
        allow_small_k: confirms a k below 3.
        population_only: confirms that only the population is protected although persons are known.
        separate: a matrix for each value of the times and attributes.
        common_zones: give all slices the same zones, safe in each, so that they can be added up.
        values: known values of each separate dimension, for noise; for times a period.
        workers, resume, progress: of slices: processes; private folder for checkpoints; called with
            the share that is done.
        **options: options of the method.

    Raises:
        ParameterError: a parameter is out of range or unknown, or a confirmation is missing.
        DataError: the data does not have what the guarantee needs, or has no flows.
        InfeasibleError: no release can meet the guarantee.
        GuaranteeError: the recount contradicts the method; nothing may be published.

    Examples:
        >>> flows = flowveil.read_trips("trips.csv", resolution=7, person="person_id")
        >>> release = flowveil.anonymize(flows, k=10)
        >>> release
        <Release layercut: 41 cells, at least 10 people in each>
        >>> release.write("new-release").name
        'new-release'
    """
    if not isinstance(flows, Flows):
        raise ParameterError(
            f"Needs flows; found {type(flows).__name__}. Hint: pass what read_trips returns."
        )
    asked = Thresholds(
        None if k is _DEFAULT_K else k,
        protect,
        max_suppressed,
        k_population,
        l,
        allow_small_k,
        population_only,
    )
    of_slices: dict[str, Any] = {"common_zones": common_zones, "values": values, "resume": resume}
    features = support.asked_of(
        {
            **vars(asked),
            **of_slices,
            **_features_of(flows),
            "dominance": dominance,
            "stricter": stricter,
            "l_places": l_places,
            "t": t,
            "method": method,
            "zones_of": zones_of,
            "revision": revision,
            "hierarchy": hierarchy,
            "secret_thresholds": str(secret_thresholds),
            "key_file": key_file,
            "options": options or None,
            "districts": options.get("districts"),
        }
    )
    usual = _default_method(flows, t) if method is None else method
    if not separate and folds_by_default(usual, features, flows.slice_columns, flows.every):
        flows = flows.folded()
    _check_features(features, flows, support.Expected(None, None, overlap=None))
    if "l_places" in features:
        support.check_needs(features - {"outside"})
    if flows.slice_columns:
        how: dict[str, Any] = {"method": method, "hierarchy": hierarchy, "zones_of": zones_of}
        how |= options
        if revision is not None:
            return _revised_slices(flows, Earlier.read(revision), asked, how)
        secret = {"secret_thresholds": secret_thresholds, "key_file": key_file}
        return _anonymize_slices(
            flows,
            asked,
            features,
            **how,
            **of_slices,
            **secret,
            separate=separate,
            workers=workers,
            progress=progress,
        )
    rules = PostRules.from_request(dominance=dominance, stricter=stricter, revision=revision, t=t)
    zones = zones_of if rules.earlier is None else rules.earlier.zones_of(zones_of)
    chosen = _chosen(method, _default_method(flows, t), zones, revise=revision is not None)
    asked = replace(asked, usual_share=chosen.max_suppressed)
    _check_features(features, flows, chosen.expected)
    secrecy = Secrecy.from_request(secret_thresholds, key_file)
    return _release(
        flows, chosen, asked, rules, options, secrecy, hierarchy=hierarchy, l_places=l_places
    )


def _release(
    flows: Flows,
    chosen: Method,
    asked: Thresholds,
    rules: PostRules,
    options: Mapping[str, Any],
    secrecy: Secrecy,
    *,
    hierarchy: str | None,
    l_places: Any,
) -> Release | NoisyRelease:
    """Checks the request against the method and the flows, plans, and returns the recounted
    release.
    """
    chosen.check_options(options)
    check_max_suppressed(asked.share)
    if len(flows) == 0:
        raise DataError("There are no flows to anonymise.")
    rules = rules.on(flows)
    flows, on_tree = chosen.on_hierarchy(flows, hierarchy)
    flows = secrecy.public_trees(chosen, flows)
    if l_places is not None:
        flows = replace(flows, l_places=read_places(l_places, asking=False).counted_on(flows))
    log.info("Anonymising with %s", chosen.name)
    if chosen.counts == "noisy":
        unit = {} if asked.protect is None else {"protect": list(protected_unit(asked.protect))}
        flows = with_unit(flows, asked.protect)
        counts = chosen.planner(flows)(flows, **options)
        return NoisyRelease.of(
            flows, counts, method=chosen.name, parameters=chosen.parameters(flows, unit, options)
        )
    run = Run.from_request(chosen, flows, asked, options, secrecy)
    run.parameters.update(on_tree)
    prepared = run.guarantee.prepare(flows)
    release = run.release(prepared, run.planned(prepared, rules))
    return release if rules.earlier is None else revise(release, rules.earlier)


def _features_of(flows: Flows) -> dict[str, Any]:
    """Returns the features that flows ask for by how they were read."""
    folds_time = [fold.every is not None for fold in flows.folds]
    return {
        "mean": flows.values,
        "same_zones": flows.same_zones,
        "outside": flows.intake.outside,
        "fold_time": any(folds_time),
        "fold": not all(folds_time),
    }


def _check_features(features: Collection[str], flows: Flows, expected: support.Expected) -> None:
    """Refuses features that do not go together, or not with these flows."""
    dimensions: support.Dimensions = "none"
    if flows.slice_columns:
        dimensions = "separate"
    elif flows.folds:
        dimensions = "fold"
    support.check(features, replace(expected, dimensions=dimensions))


def _default_method(flows: Flows, t: float | None) -> str:
    """Returns the default: LayerCut, unless zones must not overlap."""
    return DEFAULT_OF_MAPS if flows.same_zones or t is not None else DEFAULT_METHOD


def _chosen(
    method: str | Method | Callable[..., Plan] | None,
    default: str,
    zones_of: Any,
    *,
    revise: bool = False,
) -> Method:
    """Returns the method, the default or that of fixed zones."""
    if zones_of is None:
        return find_method(method or default)
    return ZonesOf.over(zones_of, revise=revise)


# ---- slices --------------------------------------------------------------------------------------


def folds_by_default(
    method: Any, features: Collection[str], columns: Sequence[str], every: Every | None
) -> bool:
    """Returns whether times and attributes are part of the cells of one release.

    Not with a method that cannot do that, a feature that needs slices, or steps without a tree.
    Matrices of one file are never added up: they may count the same trips, or minutes.
    """
    if not columns or MATRIX in columns or any(name in features for name in _OF_SLICES):
        return False
    has_tree = every is None or every.name not in ("week", "weekday")
    return has_tree and find_method(method).folds


def anonymize_slices(flows: Flows, *arguments: Any, **named: Any) -> Any:
    """Calls `anonymize` with ``separate``."""
    return anonymize(flows, *arguments, **{"separate": True, **named})


def _anonymize_slices(
    flows: Flows,
    asked: Thresholds,
    features: Collection[str],
    *,
    method: str | Method | Callable[..., Plan] | None,
    hierarchy: str | None,
    zones_of: Any,
    common_zones: bool,
    values: Mapping[str, Sequence[str] | str] | None,
    secret_thresholds: bool | str,
    key_file: Any,
    separate: bool,
    workers: int,
    resume: Checkpoint | PathLike[str] | str | None,
    progress: Callable[[float], None] | None,
    **options: Any,
) -> SlicedRelease:
    """Returns the release of every slice; InfeasibleError if none can be published."""
    chosen = _method_of_slices(flows, method, options, common_zones, zones_of)
    _check_features(features, flows, chosen.expected)
    asked = replace(asked, usual_share=chosen.max_suppressed)
    if chosen.counts == "noisy":
        chosen.on_hierarchy(flows, hierarchy)
        unit = {} if asked.protect is None else {"protect": list(protected_unit(asked.protect))}
        if unit:
            flows = with_unit(flows, asked.protect)
        return _noisy_slices(chosen, flows, values or {}, options, unit)
    refuse_many_combinations(flows)
    how_sliced = {**_how_sliced(flows), "common_zones": common_zones}
    if separate:
        how_sliced["separate"] = True
    secrecy = Secrecy.from_request(secret_thresholds, key_file)
    if common_zones:
        # Cells that are planned for all slices are published in each of them where it has k.
        secrecy = replace(secrecy, wanted=False)
    task = _slice_task(
        flows, chosen, asked, options, how_sliced, secrecy, hierarchy=hierarchy, resume=resume
    )
    return _released_slices(task, common_zones, workers, progress)


def _slice_task(
    flows: Flows,
    chosen: Method,
    asked: Thresholds,
    options: Mapping[str, Any],
    how_sliced: Mapping[str, Any],
    secrecy: Secrecy,
    *,
    hierarchy: str | None,
    resume: Checkpoint | PathLike[str] | str | None,
) -> SliceTask:
    """Returns the work that is the same for all slices.

    Their flows on the tree, the run and the checkpoint.
    """
    flows, on_tree = chosen.on_hierarchy(flows, hierarchy)
    flows = secrecy.public_trees(chosen, flows)
    run = Run.from_request(chosen, flows.whole, asked, options, secrecy)
    run.parameters.update({**on_tree, "slices": how_sliced})
    if run.guarantee.locations is not None:
        flows = run.guarantee.prepare(flows)
    if resume is not None and not isinstance(resume, Checkpoint):
        resume = Checkpoint(named_path(resume, what="the checkpoint"))
    return SliceTask(flows, run, resume)


def _revised_slices(
    flows: Flows,
    earlier: Earlier,
    asked: Thresholds,
    how: Mapping[str, Any],
) -> SlicedRelease:
    """Returns the revision of a sliced release: of each of its slices, as of a single matrix."""
    thresholds = {name: value for name, value in vars(asked).items() if name != "usual_share"}
    stated = earlier.statements[-1]
    sliced = stated.parameters.get("slices") or {}
    if stated.slice_columns != flows.slice_columns or sliced["every"] != (
        flows.every and flows.every.name
    ):
        raise ParameterError(
            "The release that is revised has other slices. Hint: cut the trips by the same columns"
            " and steps."
        )
    releases: dict[Any, Release] = {}
    parts: dict[Any, Flows] = dict(flows.split())
    for key in earlier.slices:
        own = parts.get(key)
        release = (
            None
            if own is None
            else anonymize(own, revision=earlier.in_slice(key), **thresholds, **how)
        )
        if (
            own is None
            or release is None
            or (own.people is not None and own.people.total() < release.guarantee.k)
        ):
            raise InfeasibleError(
                "A slice of the release that is revised has too few trips or people now, so the"
                " slices of the revision would reveal that. Nothing was written. Hint: leave the"
                " correction out."
            )
        releases[key] = release
    first = next(iter(releases.values()))
    parameters = {**first.parameters, "slices": dict(sliced)}
    if earlier.in_slice(next(iter(releases))).common_map is None:
        # Each slice has its own map, and none is that of the release.
        parameters.pop("zones_of")
        releases = {
            key: replace(own, plan=replace(own.plan, frozen=None)) for key, own in releases.items()
        }
    made = tuple(releases), tuple(releases.values()), first.guarantee, first.method
    return SlicedRelease(flows, *made, MappingProxyType(parameters))


def _how_sliced(flows: Flows) -> dict[str, Any]:
    """How trips were cut into slices, as the report says it."""
    return {"by_many": flows.intake.by_many, "every": flows.every and flows.every.name}


def _noisy_slices(
    method: Method,
    flows: Flows,
    given: Mapping[str, Sequence[str] | str],
    options: Mapping[str, Any],
    unit: Mapping[str, Any],
) -> SlicedRelease:
    """Returns noise on the matrices of all declared slices, whether they have trips or not."""
    log.info("Anonymising with %s", method.name)
    sliced = _how_sliced(flows)
    listed = declared_values(flows.slice_columns, flows.every, given)
    guarantee, made = noisy_matrices(method, flows, listed, options)
    # A period says the same as the steps in it.
    sliced["period"] = next(
        (value.split("/") for value in given.values() if isinstance(value, str)), None
    )
    sliced["values"] = {
        name: sorted(value) for name, value in given.items() if not isinstance(value, str)
    }
    parameters = {**method.parameters(flows, unit, options), "slices": sliced}
    releases = {
        key: NoisyRelease.of(own, counts, method=method.name, parameters=parameters)
        for key, own, counts in made
        if len(counts.cells)
    }
    if not releases:
        raise NothingLeftError(guarantee)
    keys, parts = tuple(releases), tuple(releases.values())
    return SlicedRelease(flows, keys, parts, guarantee, method.name, MappingProxyType(parameters))


def _released_slices(
    task: SliceTask,
    common_zones: bool,
    workers: int,
    progress: Callable[[float], None] | None,
) -> SlicedRelease:
    """Returns the slices that can be published."""
    progress = progress or lines_every("Anonymising slices")
    if workers < 1:
        raise ParameterError(f"workers must be at least 1; found {workers}.")
    flows, run = task.flows, task.run
    made = release_slices(task, common_zones=common_zones, workers=workers, progress=progress)
    published = {
        key: release
        for key, release in zip(flows.slice_keys, made, strict=True)
        if release is not None
    }
    if not published:
        raise InfeasibleError(
            f"None of {len(flows.slices)} slices can be published: even the largest zones are below"
            f" the guarantee ({run.guarantee.in_words()}). Hint: lower k, or cut into fewer slices."
        )
    matrices, parameters = tuple(published.values()), MappingProxyType(run.parameters)
    return SlicedRelease(
        flows, tuple(published), matrices, run.guarantee, run.method.name, parameters
    )


def _method_of_slices(
    flows: Flows,
    method: str | Method | Callable[..., Plan] | None,
    options: Mapping[str, Any],
    common_zones: bool,
    zones_of: Any,
) -> Method:
    default = "odkanon" if common_zones else _default_method(flows, None)
    chosen = _chosen(method, default, zones_of)
    chosen.check_options(options)
    return chosen
