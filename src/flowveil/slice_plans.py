"""Plans and releases of slices: one plan for each slice, in parallel, or common zones for all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.methods.odkanon import Cuts, common_cuts
from flowveil.methods.zones_of import MapCells
from flowveil.reading.limits import is_limited
from flowveil.release.plan import NodeZones, Plan
from flowveil.release.release import Release
from flowveil.remote_people import RemotePeople
from flowveil.slices import Key, SlicedFlows
from flowveil.workers import DONE, run_tasks

if TYPE_CHECKING:
    from flowveil.anonymization import Run


#: Seconds to wait before worker processes are started, which takes a second.
SECONDS_ALONE = 3.0


def release_slices(
    task: SliceTask,
    coarser: Sequence[Key],
    *,
    common_zones: bool,
    workers: int,
    progress: Callable[[float], None],
) -> list[Release | None]:
    """Returns the release of each coarser matrix and then of each slice; None if it cannot be published."""
    keys = [*coarser, *task.flows.keys]
    if common_zones and task.run.method.name == "layercut":
        return _share_layers(task, coarser, progress)
    return _share_zones(task, keys, progress) if common_zones else _plan_each(task, keys, workers, progress)


@dataclass(frozen=True, eq=False)
class SliceTask:
    """What a process needs to plan any slice."""

    flows: SlicedFlows
    run: Run

    def plan(self, key: Key) -> Plan | None:
        """Returns the plan of a slice; None if nothing can be published."""
        try:
            return self.run.plan(self.flows.together(self.flows.members(key)))
        except InfeasibleError:
            return None

    def release(self, flows: Flows, plan: Plan | None) -> Release | None:
        """Returns the release of a slice; None if it must not or cannot be published.

        A published slice reveals that its people have its values. So it needs k people where persons are known,
        whatever unit is protected.
        """
        if plan is not None and plan.kind == "boxed":
            raise ParameterError(
                f"The zones of '{self.run.method.name}' are boxes, whose slices cannot be recounted together. "
                "Hint: choose a method whose zones are nodes of a tree."
            )
        if plan is None or (flows.people is not None and flows.people.total() < self.run.guarantee.k):
            return None
        try:
            return self.run.release(flows, plan)
        except InfeasibleError:
            return None


def _share_zones(task: SliceTask, keys: Sequence[Key], progress: Callable[[float], None]) -> list[Release | None]:
    """Returns releases over one pair of cuts. Coarser matrices are sums of published cells of the finest slices.

    So they disclose nothing that the slices do not. Their true values would reveal suppressed parts by subtraction.
    """
    flows, run = task.flows, task.run
    cuts = common_cuts(flows, run.guarantee, max_suppressed=run.max_suppressed)
    finest = [_over_cuts(own, cuts, task) for own in flows.slices]
    published: dict[Key, Release | None] = dict(zip(flows.keys, finest, strict=True))
    for done, key in enumerate(keys):
        if key not in published:
            shown = [(flows.slices[m], finest[m]) for m in flows.members(key)]
            parts = [own.select(release.cell_of_flow >= 0) for own, release in shown if release is not None]
            published[key] = _over_cuts(flows.added_up(parts), cuts, task) if parts else None
        progress((done + 1) / len(keys))
    return [published[key] for key in keys]


def _share_layers(task: SliceTask, coarser: Sequence[Key], progress: Callable[[float], None]) -> list[Release | None]:
    """Returns releases over the cells that LayerCut plans for all slices; trips of short cells go on to later ones."""
    flows, run = task.flows, task.run
    if coarser:
        raise ParameterError(
            "A total, or a longer step, cannot be the sum of slices in layers: a trip can be in different layers of "
            "two slices. Hint: --common-zones without --method, or --method twincut."
        )
    cells = MapCells.from_plan(run.plan(flows.whole))
    made, suppressed, whole = [], 0.0, 0.0
    for done, own in enumerate(flows.slices):
        plan = cells.assign(*run.guarantee.to_fixed_point(own))
        release = task.release(own, plan)
        volume = own.volume(run.guarantee.basis).astype(float)
        suppressed += float(volume.sum() if release is None else volume[release.cell_of_flow < 0].sum())
        whole += float(volume.sum())
        made.append(release)
        progress((done + 1) / len(flows.slices))
    if suppressed > run.max_suppressed * whole:
        raise InfeasibleError(
            f"Over common layers about {suppressed / whole:.0%} would be suppressed; allowed are "
            f"{run.max_suppressed:.0%}. Hint: allow more (--max-suppressed), lower k, or cut into fewer slices."
        )
    return made


def _over_cuts(flows: Flows, cuts: Cuts, task: SliceTask) -> Release | None:
    merged = cuts.merge(flows)
    kept = task.run.guarantee.safe(merged.cells)[merged.row]
    return task.release(flows, Plan.from_cuts(flows, cuts.origin, cuts.destination, kept))


# ---- one plan for each slice, in parallel ------------------------------------------------------------------


def _plan_each(
    task: SliceTask, keys: Sequence[Key], workers: int, progress: Callable[[float], None]
) -> list[Release | None]:
    releases = []
    for done, (key, plan) in enumerate(zip(keys, _plans(task, keys, workers), strict=True)):
        # Applied and recounted in this process.
        releases.append(task.release(task.flows.together(task.flows.members(key)), plan))
        progress((done + 1) / len(keys))
    return releases


def _plans(task: SliceTask, keys: Sequence[Key], workers: int) -> Iterator[Plan | None]:
    """Yields the plans in the order of the keys. After a few seconds the remaining slices go to worker processes.

    No worker processes are used if memory is limited, or if persons stay on a cluster.
    """
    workers = 1 if is_limited() or isinstance(task.flows.slices[0].people, RemotePeople) else workers
    start = time.monotonic()
    at = 0
    while at < len(keys) and (workers == 1 or time.monotonic() - start < SECONDS_ALONE):
        yield task.plan(keys[at])
        at += 1
    if at == len(keys):
        return
    wanted = min(workers, (os.cpu_count() or 1) * 2)
    if task.flows.slices[0].values is not None:
        # Values of records decide nothing.
        parts = tuple(replace(part, values=None) for part in task.flows.slices)
        task = replace(task, flows=replace(task.flows, slices=parts))
    with closing(run_tasks(_planned, task, keys[at:], workers=wanted, in_order=True)) as planned:
        for ended in planned:
            if ended.how != DONE:
                raise ended.error or RuntimeError("A worker process ended; memory may have run out.")
            yield ended.result and _on_trees(ended.result, task.flows.origins, task.flows.destinations)


def _planned(task: SliceTask, key: Key) -> Plan | None:
    """Plans a slice in a worker process; the trees stay there, because they are large and the same in all plans."""
    plan = task.plan(key)
    return plan and _on_trees(plan, None, None)


def _on_trees(plan: Plan, origins: Any, destinations: Any) -> Plan:
    """Returns a plan whose zones refer to other trees."""
    zones = [
        replace(own, hierarchy=tree) if isinstance(own, NodeZones) else own
        for own, tree in ((plan.origin_zones, origins), (plan.destination_zones, destinations))
    ]
    return replace(plan, origin_zones=zones[0], destination_zones=zones[1])
