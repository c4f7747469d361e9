"""Plans and releases of slices: one plan for each slice, in parallel, or common zones for all.

A run can keep its plans in a checkpoint, from which a later run resumes. A plan read from it is
applied and recounted like a new one, so a manipulated file cannot publish anything below the
guarantee. Reading it executes nothing.
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
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.core.errors import InfeasibleError, OutputError, option
from flowveil.core.flows import Flows
from flowveil.core.remote_people import RemotePeople
from flowveil.methods.odkanon import common_cuts
from flowveil.methods.zones_of import MapCells
from flowveil.publishing.release import Release
from flowveil.release.plan import NodeZones, Plan, Suppression
from flowveil.request import support
from flowveil.system.limits import is_limited
from flowveil.system.output import write_files
from flowveil.system.paths import open_regular
from flowveil.system.workers import DONE, run_tasks

if TYPE_CHECKING:
    from flowveil.publishing.anonymization import Run


#: Seconds to wait before worker processes are started, which takes a second.
SECONDS_ALONE = 3.0


def release_slices(
    task: SliceTask,
    *,
    common_zones: bool,
    workers: int,
    progress: Callable[[float], None],
) -> list[Release | None]:
    """Returns the release of each slice; None if it cannot be published."""
    if common_zones and task.run.method.name == "layercut":
        return _share_layers(task, progress)
    return _share_zones(task, progress) if common_zones else _plan_each(task, workers, progress)


@dataclass(frozen=True, eq=False)
class SliceTask:
    """What a process needs to plan any slice."""

    flows: Flows
    run: Run
    checkpoint: Checkpoint | None = None

    def plan(self, number: int) -> Plan | None:
        """Returns the plan of a slice, from the checkpoint if it has one.

        None if nothing can be published.
        """
        part, plan = self.flows.slices[number], None
        file = (
            None
            if self.checkpoint is None
            else self.checkpoint.file(self.flows.slice_keys[number], part, self.run)
        )
        if self.checkpoint is not None and file is not None:
            with suppress(
                OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error
            ):
                return self.checkpoint.read(file, self.flows, part)
        with suppress(InfeasibleError):
            plan = self.run.plan(part)
        if (
            self.checkpoint is not None
            and file is not None
            and (arrays := _arrays_of(plan, self.flows)) is not None
        ):
            self.checkpoint.write(file, arrays)
        return plan

    def release(self, flows: Flows, plan: Plan | None) -> Release | None:
        """Returns the release of a slice; None if it must not or cannot be published.

        A published slice reveals that its people have its values. So it needs k people where
        persons are known, whatever unit is protected.
        """
        if plan is not None and plan.facets.has_boxes:
            method = self.run.method.name
            support.check({"by"}, support.Expected(zones="boxes", method=method))
        if plan is None or (
            flows.people is not None and flows.people.total() < self.run.guarantee.k
        ):
            return None
        try:
            return self.run.release(flows, plan)
        except InfeasibleError:
            return None


def _share_zones(task: SliceTask, progress: Callable[[float], None]) -> list[Release | None]:
    """Returns releases over one pair of cuts."""
    flows, run = task.flows, task.run
    cuts = common_cuts(flows, run.guarantee, max_suppressed=run.max_suppressed)
    made = []
    for done, own in enumerate(flows.slices):
        merged = cuts.merge(own)
        kept = run.guarantee.safe(merged.cells)[merged.row]
        made.append(task.release(own, Plan.from_cuts(own, cuts.origin, cuts.destination, kept)))
        progress((done + 1) / len(flows.slices))
    return made


def _share_layers(task: SliceTask, progress: Callable[[float], None]) -> list[Release | None]:
    """Returns releases over the cells that LayerCut plans for all slices.

    Trips of short cells go on to later ones.
    """
    flows, run = task.flows, task.run
    cells = MapCells.from_plan(run.plan(flows.whole))
    made, suppressed, whole = [], 0.0, 0.0
    for done, own in enumerate(flows.slices):
        plan = cells.assign(*run.guarantee.to_fixed_point(own))
        release = task.release(own, plan)
        volume = own.volume(run.guarantee.basis).astype(float)
        suppressed += float(
            volume.sum() if release is None else volume[release.cell_of_flow < 0].sum()
        )
        whole += float(volume.sum())
        made.append(release)
        progress((done + 1) / len(flows.slices))
    if suppressed > run.max_suppressed * whole:
        raise InfeasibleError(
            f"Over common layers about {suppressed / whole:.0%} would be suppressed; allowed are"
            f" {run.max_suppressed:.0%}. Hint: allow more (--max-suppressed), lower k, or cut into"
            " fewer slices."
        )
    return made


# ---- one plan for each slice, in parallel --------------------------------------------------------


def _plan_each(
    task: SliceTask, workers: int, progress: Callable[[float], None]
) -> list[Release | None]:
    releases = []
    for done, (own, plan) in enumerate(zip(task.flows.slices, _plans(task, workers), strict=True)):
        # Applied and recounted in this process.
        releases.append(task.release(own, plan))
        progress((done + 1) / len(task.flows.slices))
    return releases


def _plans(task: SliceTask, workers: int) -> Iterator[Plan | None]:
    """Yields the plans in the order of the slices.

    After a few seconds, worker processes plan the remaining slices.
    """
    workers = 1 if is_limited() or isinstance(task.flows.people, RemotePeople) else workers
    start = time.monotonic()
    at, n = 0, len(task.flows.slices)
    while at < n and (workers == 1 or time.monotonic() - start < SECONDS_ALONE):
        yield task.plan(at)
        at += 1
    if at == n:
        return
    wanted = min(workers, (os.cpu_count() or 1) * 2)
    if task.flows.values is not None:
        # Values of records decide nothing.
        task = replace(task, flows=replace(task.flows, values=None))
    with closing(run_tasks(_planned, task, range(at, n), workers=wanted, in_order=True)) as planned:
        for ended in planned:
            if ended.how != DONE:
                raise ended.error or RuntimeError(
                    "A worker process ended; memory may have run out."
                )
            yield ended.result and _on_trees(
                ended.result, task.flows.origins, task.flows.destinations
            )


def _planned(task: SliceTask, number: int) -> Plan | None:
    """Plans a slice in a worker process.

    The trees stay there, because they are large and the same in all plans.
    """
    plan = task.plan(number)
    return plan and _on_trees(plan, None, None)


def _on_trees(plan: Plan, origins: Any, destinations: Any) -> Plan:
    """Returns a plan whose zones refer to other trees."""
    zones = [
        replace(own, hierarchy=tree) if isinstance(own, NodeZones) else own
        for own, tree in ((plan.origin_zones, origins), (plan.destination_zones, destinations))
    ]
    return replace(plan, origin_zones=zones[0], destination_zones=zones[1])


# ---- checkpoints ---------------------------------------------------------------------------------

#: Entries of a file: arrays of the plan, and its other fields as JSON. The file of an infeasible
#: slice has none.
_ARRAYS = ("origin_zone", "destination_zone", "kept", "origin_nodes", "destination_nodes", "fields")


@dataclass(frozen=True)
class Checkpoint:
    """A private folder with the plan of each slice decided by this ``version``, which shows what is
    suppressed.
    """

    folder: Path
    version: str = ""

    def file(self, key: tuple[str, ...], part: Flows, run: Run) -> Path:
        """Returns the file of a slice: its name is a hash of everything that the plan depends
        on.
        """
        secret = None if run.secrecy.key is None else run.secrecy.key.fingerprint
        decided_by = (self.version, key, run.method.name, run.guarantee, run.parameters, secret)
        digest = hashlib.sha256(repr(decided_by).encode())
        people = () if part.people is None else (part.people.cell, part.people.person)
        trees = [
            array
            for tree in (part.origins, part.destinations)
            for array in (tree.parent, tree.code)
        ]
        for array in (
            part.origin,
            part.destination,
            part.trips,
            *part.added().values(),
            *people,
            *trees,
        ):
            digest.update(pickle.dumps(array))
        return self.folder / digest.hexdigest()

    def write(self, file: Path, arrays: dict[str, Any]) -> None:
        """Writes a plan."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_private()
        except OSError:
            raise OutputError(
                f"Plans of slices cannot be kept for a later run ({option('resume')}): their folder"
                f" cannot be written, or others may read it. Hint: remove '{self.folder}'."
            ) from None

        def save(path: Path) -> None:
            with open(path, "wb") as stream:
                np.savez(stream, allow_pickle=False, **arrays)

        write_files({file: save}, private=True)

    def read(self, file: Path, flows: Flows, part: Flows) -> Plan | None:
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
        if (
            arrays
            or kept.dtype != np.bool_
            or {origin.shape, destination.shape, kept.shape} != {(len(part),)}
        ):
            raise ValueError("not a plan")
        zones_o, zones_d = (NodeZones(tree, own) for tree, own in zip(trees, nodes, strict=True))
        rule, notes = Suppression(**values["suppression"]), dict(values["notes"])
        same = bool(values["homogeneous"])
        return Plan(
            origin,
            destination,
            kept,
            zones_o,
            zones_d,
            same,
            suppression=rule,
            notes=notes,
            secret_thresholds=bool(values["secret_thresholds"]),
        )

    def _check_private(self) -> None:
        """Raises PermissionError for a folder that is a link, or that others can read."""
        found = os.lstat(self.folder)
        is_private = not hasattr(os, "getuid") or (
            found.st_uid == os.getuid() and not found.st_mode & 0o077
        )
        if not stat.S_ISDIR(found.st_mode) or not is_private:
            raise PermissionError("not private")


def _arrays_of(plan: Plan | None, flows: Flows) -> dict[str, Any] | None:
    """Returns the content of the file of a plan.

    None if it has parts that arrays and JSON cannot hold.
    """
    if plan is None:
        return {}
    ends = ((plan.origin_zones, flows.origins), (plan.destination_zones, flows.destinations))
    nodes = [own.nodes for own, tree in ends if type(own) is NodeZones and own.hierarchy is tree]
    values = {
        "homogeneous": plan.homogeneous,
        "suppression": vars(plan.suppression),
        "notes": dict(plan.notes),
        "secret_thresholds": plan.secret_thresholds,
    }
    if len(nodes) < 2 or any(
        part is not None for part in (plan.boxes, plan.frozen, plan.stricter, plan.layer)
    ):
        return None
    with suppress(TypeError, ValueError):
        text = json.dumps(values, allow_nan=False)
        if json.loads(text) == values:
            fields = np.frombuffer(text.encode(), np.uint8)
            arrays = (plan.origin_zone, plan.destination_zone, plan.kept, *nodes, fields)
            return dict(zip(_ARRAYS, arrays, strict=True))
    return None
