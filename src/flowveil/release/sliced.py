"""A family of releases: one matrix for each slice, made, checked and published together.

Every slice is anonymised by itself, so every cell of every slice satisfies the guarantee. What slices tell together is
checked besides: where a matrix stands beside finer ones that hold the same trips (a total and its segments, a day and
its hours), what is left after subtraction must satisfy the guarantee too, or the family is refused.
"""

from __future__ import annotations

import io
import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.disclosure.subtraction import Differencing, Layer, compare, too_deep
from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Cells, Flows
from flowveil.guarantee import Guarantee
from flowveil.methods import Method, find_method
from flowveil.methods.common_zones import common_cuts
from flowveil.methods.odkanon import Cuts
from flowveil.release.plan import Plan, Release, describe_thresholds
from flowveil.slices import Every, Key, SlicedFlows, holds
from flowveil.workers import DONE, run_tasks

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

#: Slices are anonymised in this process for so long before others are started: starting them takes a second.
SECONDS_ALONE = 3.0


@dataclass(frozen=True, eq=False, repr=False)
class Family:
    """The releases of all slices that can be published.

    Made by `flowveil.anonymize_slices`.

    Attributes:
        input: the flows of all slices. Internal: never written.
        keys: the slice of each release, coarsest kinds first, sorted within a kind.
        releases: the releases, in that order.
        guarantee: what every cell of every release satisfies.
        method: name of the method.
        parameters: everything needed to run it again.
        n_unpublished: matrices that were asked for and hold too little to be published; never named.
        differencing: what can be learnt by subtraction.
        common_zones: whether all releases share their zones.
    """

    input: SlicedFlows
    keys: tuple[Key, ...]
    releases: tuple[Release, ...]
    guarantee: Guarantee
    method: str
    parameters: Mapping[str, Any]
    n_unpublished: int
    differencing: Differencing
    common_zones: bool

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[Key, Release]]:
        return iter(zip(self.keys, self.releases, strict=True))

    def __getitem__(self, key: str | Key) -> Release:
        wanted = (key,) if isinstance(key, str) or key is None else tuple(key)
        try:
            return self.releases[self.keys.index(wanted)]
        except ValueError:
            raise ParameterError(
                f"There is no release for that slice. Slices are named by {', '.join(self.columns)}, in this order."
            ) from None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the slice columns."""
        return self.input.columns

    @cached_property
    def flows(self) -> pa.Table:
        """All matrices in one table; the slice columns stand last, empty for a total."""
        from flowveil.publish.tables import family_flows_table

        return family_flows_table(self)

    @cached_property
    def zones(self) -> pa.Table:
        """All zones that published cells of any slice use."""
        from flowveil.publish.tables import family_zones_table

        return family_zones_table(self)

    def write(
        self,
        directory: str | PathLike[str],
        *,
        overwrite: bool = True,
        formats: str | Iterable[str] = (),
        basemap: str | None = None,
    ) -> Path:
        """Publish into one folder, atomically: it appears whole and verified, or not at all.

        Args:
            directory: the folder: new, empty, or an earlier release.
            overwrite: whether an earlier release may be replaced.
            formats: exports beside the two tables: ``csv``, ``arrow``.
            basemap: address of a tile server for the report's background map, which readers may switch on.
        """
        from flowveil.publish.folder import publish

        return publish(self, directory, overwrite=overwrite, formats=formats, basemap=basemap)

    def __repr__(self) -> str:
        return (
            f"<Family {self.method}: {len(self)} slices by {', '.join(self.columns)}, at least "
            f"{describe_thresholds(self.guarantee)} in each cell>"
        )


def anonymize_slices(
    flows: SlicedFlows,
    method: str | None = None,
    k: int = 10,
    protect: str | Sequence[str] = "trips",
    max_suppressed: float = 0.1,
    *,
    k_population: float | None = None,
    l: int | None = None,  # noqa: E741  # the papers' letter
    total: bool = False,
    also_every: Sequence[str] = (),
    common_zones: bool = False,
    accept_differencing: bool = False,
    workers: int = 1,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Family:
    """Make the matrix of every slice publishable.

    A slice is left out, and only counted, where no cell of it can be published, and where persons are known and fewer
    than k are in it. One guarantee holds for all slices; where the population is protected, its threshold is k times
    the mean weight of a trip of all slices. The result does not depend on the number of processes.

    Args:
        flows: what `read_slices` returns.
        method: name of a method; by default ``twincut``, and ``odkanon`` where zones are common.
        k: how many every cell must hide.
        protect: what is counted: ``trips``, ``people`` or ``population``, or several of them.
        max_suppressed: share that may be suppressed, in each slice.
        k_population: absolute threshold where the population is protected.
        l: fewest tiles in which the trips of a cell begin, and in which they end.
        total: also publish the matrix of all slices together.
        also_every: also publish the matrices of these longer steps of time (``day`` beside ``1h``).
        common_zones: give all slices the same zones, planned along ODkAnon's schedule so that they are safe in each.
            Then nothing can be learnt by subtraction.
        accept_differencing: publish although differences between matrices are short of the guarantee.
        workers: processes; more than one are started only where there is enough to do.
        progress: called with the share of the slices that is done.
        **options: options of the method.

    Raises:
        ParameterError: a parameter is out of range or unknown.
        DataError: the data does not have what the guarantee needs.
        InfeasibleError: no slice can be published, or subtraction would tell what the guarantee hides.
        GuaranteeError: a recount contradicts the method; nothing may be published.
    """
    if not isinstance(flows, SlicedFlows):
        raise ParameterError(
            f"anonymize_slices needs sliced flows; found {type(flows).__name__}. Hint: pass what read_slices returns."
        )
    method = method or ("odkanon" if common_zones else "twincut")
    chosen = find_method(method)
    chosen.check_options(options)
    if chosen.noisy:
        raise ParameterError(
            f"Method '{method}' adds noise, and the same people would be in several slices: their ε would add up. "
            "Hint: release one matrix, or choose a method that merges zones."
        )
    if not 0 <= max_suppressed < 1:
        raise ParameterError(f"max_suppressed must be at least 0 and below 1; found {max_suppressed!r}.")
    if workers < 1:
        raise ParameterError(f"workers must be at least 1; found {workers}.")
    if common_zones and (method != "odkanon" or options):
        raise ParameterError(
            "Common zones are planned by odkanon without options of its own; another method, or options, cannot be "
            "combined with --common-zones."
        )
    guarantee = Guarantee.resolve(flows.whole, k=k, protect=protect, k_population=k_population, l=l)
    if guarantee.locations is not None:
        flows = replace(flows, slices=tuple(guarantee.prepare(part) for part in flows.slices))
    steps = [Every.parse(text) for text in also_every]
    coarser = flows.coarser_keys(steps, total=total)
    asked = {
        "k": guarantee.k,
        "protect": list(guarantee.units),
        "k_population": k_population,
        "l": l,
        "max_suppressed": max_suppressed,
    }
    parameters = chosen.parameters(flows.whole, asked, options)
    parameters["slices"] = {
        "by_many": flows.intake.by_many,
        "every": flows.every.name if flows.every is not None else None,
        "also_every": [step.name for step in steps],
        "total": total,
        "common_zones": common_zones,
    }
    task = _Task(flows, chosen.name, guarantee, max_suppressed, dict(options))
    keys: list[Key] = [*coarser, *flows.keys]
    if common_zones:
        releases = _share_zones(task, keys, parameters, progress)
    else:
        releases = _plan_each(task, keys, parameters, workers, progress)
    published = {key: release for key, release in zip(keys, releases, strict=True) if release is not None}
    if not published:
        raise InfeasibleError(
            f"None of {len(keys)} slices can be published: even the largest zones hold fewer than the guarantee asks "
            f"for ({describe_thresholds(guarantee)}). Hint: lower k, or cut into fewer slices."
        )
    found = _differences(flows, coarser, published, common_zones=common_zones)
    _refuse_differences(found, accepted=accept_differencing)
    return Family(
        input=flows,
        keys=tuple(published),
        releases=tuple(published.values()),
        guarantee=guarantee,
        method=method,
        parameters=MappingProxyType(parameters),
        n_unpublished=len(keys) - len(published),
        differencing=found,
        common_zones=common_zones,
    )


# ---- subtraction -------------------------------------------------------------------------------------------


def _kinds(flows: SlicedFlows, coarser: Sequence[Key]) -> list[list[Key]]:
    """The keys by kind, coarsest first: keys of one kind are disjoint and together hold everything."""
    kinds: dict[tuple[int, ...], list[Key]] = {}
    for key in (*coarser, *flows.keys):
        # Labels of one step of time are equally long; of attributes, only whether one is given makes a kind.
        last = len(key[-1]) if key[-1] is not None and flows.every is not None else 0
        kinds.setdefault((*(int(value is None) for value in key), last), []).append(key)
    return list(kinds.values())


def _finer_layers(
    flows: SlicedFlows, coarser: Sequence[Key], key: Key, published: Mapping[Key, Release]
) -> tuple[list[Flows], list[list[Layer]]]:
    """What can be subtracted from a coarser matrix.

    Returns:
        The finest slices that it is made of; and the layers to subtract: each kind of finer matrices by itself, and
        all kinds at once, because a reader may mix them.
    """
    kinds = _kinds(flows, coarser)
    own = next(i for i, kind in enumerate(kinds) if key in kind)
    members = flows.members(key)
    layers: list[Layer] = []
    for kind in kinds[own + 1 :]:
        of_part: dict[int, Release | None] = {}
        for finer in kind:
            if holds(key, finer, columns=flows.columns):
                of_part |= dict.fromkeys(flows.members(finer), published.get(finer))
        layers.append([of_part[m] for m in members])
    subtracted = [[layer] for layer in layers]
    return [flows.slices[m] for m in members], [*subtracted, layers] if len(layers) > 1 else subtracted


def _differences(
    flows: SlicedFlows, coarser: Sequence[Key], published: Mapping[Key, Release], *, common_zones: bool
) -> Differencing:
    """What subtraction tells.

    Over common zones a coarser matrix is the sum of published cells of finer ones and tells nothing new. Otherwise the
    differences of a matrix and one layer of finer ones are counted. Where anything is suppressed, what is missing from
    one matrix can follow from another and back, in more combinations than are looked at, and so with more than two
    layers: then no count settles it.
    """
    found = Differencing()
    kinds = [kind for kind in _kinds(flows, coarser) if any(key in published for key in kind)]
    complete = len(published) == len(coarser) + len(flows.keys) and all(
        bool((release.cell_of_flow >= 0).all()) for release in published.values()
    )
    if len(kinds) < 2:
        return found
    for key in coarser:
        if key in published and common_zones:
            found += Differencing(comparisons=1)
        elif key in published:
            parts, subtracted = _finer_layers(flows, coarser, key, published)
            for layers in subtracted:
                found += compare(published[key], parts, layers)
            if not complete or len(kinds) > 2 or too_deep(flows.origins, flows.destinations):
                found += Differencing(unchecked=1)
    return found


def _refuse_differences(found: Differencing, *, accepted: bool) -> None:
    if accepted or found.harmless:
        return
    hint = (
        "Hint: --common-zones gives all matrices the same zones and makes the coarser ones sums of the finer ones, so "
        "that subtraction tells nothing; or leave out the total (--total) or the longer step; or publish nevertheless "
        "with --accept-differencing."
    )
    if found.short:
        raise InfeasibleError(
            "The matrices are safe one by one but not together: subtracting them from each other gives "
            f"{found.short:,} differences above zero that are short of the guarantee, known to any reader. "
            f"Nothing was published. {hint}"
        )
    raise InfeasibleError(
        "Matrices of the same trips stand beside each other, and whether subtraction tells something cannot be "
        "settled: something is suppressed in them, or there are more than two kinds, or their zones are not nodes of "
        "one tree. "
        f"Nothing was published. {hint}"
    )


# ---- common zones ------------------------------------------------------------------------------------------


def _share_zones(
    task: _Task, keys: Sequence[Key], parameters: Mapping[str, Any], progress: Callable[[float], None] | None
) -> list[Release | None]:
    """Releases over one pair of cuts. Coarser matrices are the sums of the published cells of the finest slices.

    So they tell nothing that the slices do not tell. Their true values would: a cell of which a slice hides a part
    would give the part away, and a cell left out for that would tell that there is one.
    """
    flows, guarantee = task.flows, task.guarantee
    cuts = common_cuts(flows, guarantee, max_suppressed=task.max_suppressed)
    finest = [_over_cuts(own, cuts, task, parameters) for own in flows.slices]
    published: dict[Key, Release | None] = dict(zip(flows.keys, finest, strict=True))
    for done, key in enumerate(keys):
        if key not in published:
            shown = [(flows.slices[m], finest[m]) for m in flows.members(key)]
            parts = [own.select(release.cell_of_flow >= 0) for own, release in shown if release is not None]
            published[key] = _over_cuts(flows.added_up(parts), cuts, task, parameters) if parts else None
        if progress is not None:
            progress((done + 1) / len(keys))
    return [published[key] for key in keys]


def _over_cuts(flows: Flows, cuts: Cuts, task: _Task, parameters: Mapping[str, Any]) -> Release | None:
    merged = cuts.merge(flows, flows.origin, flows.destination)
    kept = task.guarantee.safe(merged.cells)[merged.row]
    return _release(flows, Plan.from_cuts(flows, cuts.origin, cuts.destination, kept), task, parameters)


def _release(flows: Flows, plan: Plan | None, task: _Task, parameters: Mapping[str, Any]) -> Release | None:
    """The release of a slice, or None where it must not or cannot be published.

    A published slice names its values, so where persons are known it takes k of them whatever is protected: a slice
    of few people, even with many trips, would say of them that they have these values.
    """
    if plan is not None and plan.boxes is not None:
        raise ParameterError(
            f"The zones of '{task.method}' are boxes, whose slices cannot be recounted together. "
            "Hint: choose a method whose zones are nodes of a tree."
        )
    if plan is None or n_people(flows) < task.guarantee.k:
        return None
    try:
        return Release.from_plan(flows, plan, task.guarantee, method=task.method, parameters=parameters)
    except InfeasibleError:
        return None


def n_people(cells: Cells) -> float:
    """Distinct persons of all cells together; without limit where persons are not known."""
    if cells.people is None:
        return float("inf")
    return int(np.count_nonzero(np.bincount(cells.people.person)))


# ---- one plan for each slice, in parallel ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Task:
    """What a process needs to plan any slice."""

    flows: SlicedFlows
    method: str
    guarantee: Guarantee
    max_suppressed: float
    options: dict[str, Any]

    def plan(self, key: Key) -> Plan | None:
        """The plan of a slice, or None where nothing can be published."""
        method: Method = find_method(self.method)
        flows = self.flows.together(self.flows.members(key))
        try:
            plan = method.plan(flows, self.guarantee, max_suppressed=self.max_suppressed, **self.options)
        except InfeasibleError:
            return None
        return plan if isinstance(plan, Plan) else None


def _plan_each(
    task: _Task,
    keys: Sequence[Key],
    parameters: Mapping[str, Any],
    workers: int,
    progress: Callable[[float], None] | None,
) -> list[Release | None]:
    releases = []
    for done, (key, plan) in enumerate(zip(keys, _plans(task, keys, workers), strict=True)):
        # Applied and recounted here, whoever planned it.
        releases.append(_release(task.flows.together(task.flows.members(key)), plan, task, parameters))
        if progress is not None:
            progress((done + 1) / len(keys))
    return releases


def _plans(task: _Task, keys: Sequence[Key], workers: int) -> Iterator[Plan | None]:
    """The plans in the order of the keys. What is left after a few seconds is shared among processes."""
    start = time.monotonic()
    at = 0
    while at < len(keys) and (workers == 1 or time.monotonic() - start < SECONDS_ALONE):
        yield task.plan(keys[at])
        at += 1
    if at == len(keys):
        return
    rest = keys[at:]
    wanted = min(workers, (os.cpu_count() or 1) * 2)
    with closing(run_tasks(_planned, task, rest, workers=wanted, in_order=True)) as planned:
        for ended in planned:
            if ended.how != DONE:
                raise ended.error or RuntimeError("A worker process ended; memory may have run out.")
            yield None if ended.result is None else _unpacked(ended.result, task.flows)


def _planned(task: _Task, key: Key) -> bytes | None:
    """In a process: plan a slice."""
    plan = task.plan(key)
    return None if plan is None else _packed(plan, task.flows)


def _packed(plan: Plan, flows: SlicedFlows) -> bytes:
    """A plan without the hierarchies it refers to: they are the same in all plans, and large."""

    class Packer(pickle.Pickler):
        def persistent_id(self, thing: Any) -> str | None:
            if thing is flows.origins:
                return "origins"
            return "destinations" if thing is flows.destinations else None

    buffer = io.BytesIO()
    Packer(buffer, protocol=5).dump(plan)
    return buffer.getvalue()


def _unpacked(packed: bytes, flows: SlicedFlows) -> Plan:
    class Unpacker(pickle.Unpickler):
        def persistent_load(self, name: str) -> Any:
            return getattr(flows, name)

    plan: Plan = Unpacker(io.BytesIO(packed)).load()
    return plan
