"""Plans and releases of slices: one plan for each slice, in parallel, or common zones for all.

A run can keep its plans in a checkpoint, from which a later run resumes. A plan read from it is applied and recounted
like a new one, so a manipulated file cannot publish anything below the guarantee. Reading it executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.errors import InfeasibleError, OutputError, ParameterError, option
from flowveil.flows import Flows
from flowveil.methods.odkanon import Cuts, common_cuts
from flowveil.methods.zones_of import MapCells
from flowveil.output import write_files
from flowveil.paths import open_regular
from flowveil.reading.limits import is_limited
from flowveil.release.plan import NodeZones, Plan, Suppression
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
    checkpoint: Checkpoint | None = None

    def plan(self, key: Key) -> Plan | None:
        """Returns the plan of a slice, from the checkpoint if it has one; None if nothing can be published."""
        part, plan = self.flows.together(self.flows.members(key)), None
        file = None if self.checkpoint is None else self.checkpoint.file(key, part, self.run)
        if self.checkpoint is not None and file is not None:
            with suppress(OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
                return self.checkpoint.read(file, self.flows, part)
        with suppress(InfeasibleError):
            plan = self.run.plan(part)
        if self.checkpoint is not None and file is not None and (arrays := _arrays_of(plan, self.flows)) is not None:
            self.checkpoint.write(file, arrays)
        return plan

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
    """Yields the plans in the order of the keys; after a few seconds, worker processes plan the remaining slices."""
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


# ---- checkpoints -----------------------------------------------------------------------------------------------

#: Entries of a file: arrays of the plan, and its other fields as JSON. The file of an infeasible slice has none.
_ARRAYS = ("origin_zone", "destination_zone", "kept", "origin_nodes", "destination_nodes", "fields")


@dataclass(frozen=True)
class Checkpoint:
    """A private folder with the plan of each slice decided by this ``version``, which shows what is suppressed."""

    folder: Path
    version: str = ""

    def file(self, key: Key, part: Flows, run: Run) -> Path:
        """Returns the file of a slice: its name is a hash of everything that the plan depends on."""
        digest = hashlib.sha256(repr((self.version, key, run.method.name, run.guarantee, run.parameters)).encode())
        people = () if part.people is None else (part.people.cell, part.people.person)
        trees = [array for tree in (part.origins, part.destinations) for array in (tree.parent, tree.code)]
        for array in (part.origin, part.destination, part.trips, *part.added().values(), *people, *trees):
            digest.update(pickle.dumps(array))
        return self.folder / digest.hexdigest()

    def write(self, file: Path, arrays: dict[str, Any]) -> None:
        """Writes a plan."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_private()
        except OSError:
            raise OutputError(
                f"Plans of slices cannot be kept for a later run ({option('resume')}): their folder cannot be written, "
                f"or others may read it. Hint: remove '{self.folder}'."
            ) from None

        def save(path: Path) -> None:
            with open(path, "wb") as stream:
                np.savez(stream, allow_pickle=False, **arrays)

        write_files({file: save}, private=True)

    def read(self, file: Path, flows: SlicedFlows, part: Flows) -> Plan | None:
        """Returns a plan from an untrusted file; raises OSError, ValueError, ... if it is none."""
        self._check_private()
        with open_regular(file) as stream, np.load(stream, allow_pickle=False) as content:
            arrays = {name: np.asarray(content[name]) for name in content.files}
        if not arrays:
            return None
        origin, destination, kept, *nodes, text = (arrays.pop(name) for name in _ARRAYS)
        trees, values = (flows.origins, flows.destinations), json.loads(text.tobytes())
        # All numbers are valid indices of flows, zones and nodes; cells are recounted later.
        stops = (len(nodes[0]), len(nodes[1]), *(tree.n_nodes for tree in trees))
        for own, stop in zip((origin, destination, *nodes), stops, strict=True):
            if own.dtype != np.int32 or own.ndim != 1 or np.any((own < 0) | (own >= stop)):
                raise ValueError("not a plan")
        if arrays or kept.dtype != np.bool_ or {origin.shape, destination.shape, kept.shape} != {(len(part),)}:
            raise ValueError("not a plan")
        zones_o, zones_d = (NodeZones(tree, own) for tree, own in zip(trees, nodes, strict=True))
        rule, notes = Suppression(**values["suppression"]), dict(values["notes"])
        same = bool(values["homogeneous"])
        return Plan(origin, destination, kept, zones_o, zones_d, same, suppression=rule, notes=notes)

    def _check_private(self) -> None:
        """Raises PermissionError for a folder that is a link, or that others can read."""
        found = os.lstat(self.folder)
        is_private = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
        if not stat.S_ISDIR(found.st_mode) or not is_private:
            raise PermissionError("not private")


def _arrays_of(plan: Plan | None, flows: SlicedFlows) -> dict[str, Any] | None:
    """Returns the content of the file of a plan; None if it has parts that arrays and JSON cannot hold."""
    if plan is None:
        return {}
    ends = ((plan.origin_zones, flows.origins), (plan.destination_zones, flows.destinations))
    nodes = [own.nodes for own, tree in ends if type(own) is NodeZones and own.hierarchy is tree]
    values = {"homogeneous": plan.homogeneous, "suppression": vars(plan.suppression), "notes": dict(plan.notes)}
    if len(nodes) < 2 or any(part is not None for part in (plan.boxes, plan.frozen, plan.stricter)):
        return None
    with suppress(TypeError, ValueError):
        text = json.dumps(values, allow_nan=False)
        if json.loads(text) == values:
            fields = np.frombuffer(text.encode(), np.uint8)
            arrays = (plan.origin_zone, plan.destination_zone, plan.kept, *nodes, fields)
            return dict(zip(_ARRAYS, arrays, strict=True))
    return None
