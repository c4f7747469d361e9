"""Checkpoints of a run over slices: the plans made so far, in a folder next to the release, so that a run can resume.

A plan reveals which flows are suppressed. So the folder is hidden, readable by its owner alone, and removed when the
release is written. A plan read from it is applied and recounted like a new one, so a manipulated file cannot publish
anything below the guarantee. Files contain arrays of numbers and JSON; reading them executes nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flowveil.errors import OutputError
from flowveil.flows import Flows
from flowveil.paths import open_regular
from flowveil.release.plan import Plan, Suppression
from flowveil.release.zones import NodeZones
from flowveil.slices import SlicedFlows

#: Entries of a file: arrays of the plan, and its other fields as JSON. Files with other entries are ignored.
_ARRAYS = ("origin_zone", "destination_zone", "kept", "origin_nodes", "destination_nodes")
_FIELDS = "fields"


@dataclass(frozen=True)
class Checkpoint:
    """A folder with one file for each planned slice.

    Attributes:
        folder: created with the first file.
        version: version of the program; plans of other versions are not used.
    """

    folder: Path
    version: str = ""

    @classmethod
    def next_to(cls, out: str | os.PathLike[str], version: str) -> Checkpoint:
        """Returns the checkpoint of a release that will be written to ``out``."""
        place = Path(out).expanduser()
        return cls(place.parent / f".{place.name}.checkpoint", version)

    def get(self, name: str) -> bytes | None:
        """Returns the content of a file; None if it is missing or not private."""
        try:
            self._check_private()
            with open_regular(self.folder / name) as file:
                return file.read()
        except OSError:
            return None

    def put(self, name: str, content: bytes) -> None:
        """Writes a file, atomically.

        Raises:
            OutputError: the folder cannot be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_private()
            draft = self.folder / f"{name}.{os.getpid()}"
            draft.unlink(missing_ok=True)
            with open(draft, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(content)
            draft.replace(self.folder / name)
        except OSError:
            raise OutputError(
                "Plans of slices cannot be kept for a later run (--resume): their folder cannot be written, or others "
                f"may read it. Hint: remove '{self.folder}'."
            ) from None

    def _check_private(self) -> None:
        """Refuses a folder that is a link, or that others can read."""
        found = os.lstat(self.folder)
        is_private = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
        if not stat.S_ISDIR(found.st_mode) or not is_private:
            raise PermissionError("not private")

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def fingerprint(flows: Flows, settings: Iterable[Any]) -> str:
    """Returns a hash of flows, trees and settings."""
    digest = hashlib.sha256(repr(list(settings)).encode())
    people = () if flows.people is None else (flows.people.cell, flows.people.person)
    trees = [array for tree in (flows.origins, flows.destinations) for array in (tree.parent, tree.code)]
    for array in (flows.origin, flows.destination, flows.trips, *flows.added().values(), *people, *trees):
        # An array of objects holds addresses, not contents.
        has_text = array is not None and array.dtype == object
        digest.update(repr(array.tolist()).encode() if has_text else repr(array is None).encode())
        if array is not None and not has_text:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# ---- a plan in bytes ---------------------------------------------------------------------------------------------


def pack_plan(plan: Plan | None, flows: SlicedFlows) -> bytes | None:
    """Returns a plan as named arrays and JSON; None if it has parts that these cannot hold.

    Args:
        plan: the plan, or None if nothing can be published.
        flows: the slices, whose trees the plan refers to.
    """
    buffer = io.BytesIO()
    if plan is None:
        np.savez(buffer, allow_pickle=False)
        return buffer.getvalue()
    zones = (plan.origin_zones, plan.destination_zones)
    trees = (flows.origins, flows.destinations)
    plain = all(type(own) is NodeZones and own.hierarchy is tree for own, tree in zip(zones, trees, strict=True)) and (
        plan.boxes is None and plan.frozen is None and plan.stricter is None
    )
    values = {"homogeneous": plan.homogeneous, "suppression": vars(plan.suppression), "notes": dict(plan.notes)}
    try:
        text = json.dumps(values, allow_nan=False)
        if not plain or json.loads(text) != values:
            return None
    except (TypeError, ValueError):
        return None
    nodes = [own.nodes for own in zones if isinstance(own, NodeZones)]
    arrays = (plan.origin_zone, plan.destination_zone, plan.kept, *nodes)
    content = dict(zip(_ARRAYS, arrays, strict=True))
    np.savez(buffer, allow_pickle=False, **content, **{_FIELDS: np.frombuffer(text.encode(), np.uint8)})
    return buffer.getvalue()


def unpack_plan(content: bytes, flows: SlicedFlows, part: Flows) -> Plan | None:
    """Returns the plan in bytes of `pack_plan`; None for a slice that publishes nothing.

    Args:
        content: untrusted bytes.
        flows: the slices.
        part: the flows that the plan is for.

    Raises:
        ValueError: it is no plan for these flows.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            if not file.files:
                return None
            if sorted(file.files) != sorted((*_ARRAYS, _FIELDS)):
                raise ValueError("not a plan")
            arrays = {name: np.asarray(file[name]) for name in file.files}
        values = json.loads(arrays.pop(_FIELDS).tobytes())
        plan = Plan(
            origin_zone=arrays["origin_zone"],
            destination_zone=arrays["destination_zone"],
            kept=arrays["kept"],
            origin_zones=NodeZones(flows.origins, arrays["origin_nodes"]),
            destination_zones=NodeZones(flows.destinations, arrays["destination_nodes"]),
            homogeneous=bool(values["homogeneous"]),
            suppression=Suppression(**values["suppression"]),
            notes=dict(values["notes"]),
        )
    except (OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as problem:
        raise ValueError("not a plan") from problem
    _check_numbers(plan, part)
    return plan


def _check_numbers(plan: Plan, part: Flows) -> None:
    """Raises ValueError unless all numbers are valid indices of flows, zones and nodes. Cells are recounted later."""
    for zone, zones in ((plan.origin_zone, plan.origin_zones), (plan.destination_zone, plan.destination_zones)):
        assert isinstance(zones, NodeZones)
        for numbers, n, stop in ((zone, len(part), len(zones.nodes)), (zones.nodes, None, zones.hierarchy.n_nodes)):
            shape = numbers.shape if n is None else (n,)
            whole = numbers.dtype == np.int32 and numbers.ndim == 1 and numbers.shape == shape
            if not whole or np.any((numbers < 0) | (numbers >= stop)):
                raise ValueError("not a plan")
    if plan.kept.dtype != np.bool_ or plan.kept.shape != (len(part),):
        raise ValueError("not a plan")
