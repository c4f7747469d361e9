"""What is decided of slices before all of them are: kept beside the release to come, so that a run can go on.

A plan says which flows are suppressed, so the folder is for whoever runs the command and nobody else: hidden, readable
by its owner alone, and removed when the release is written. A plan that is found again is applied and recounted like a
new one, so whatever stands in the folder, nothing below the guarantee is published. Files hold arrays of numbers and
JSON: reading them runs nothing.
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

#: Arrays of a plan, and what it says besides; a file with any other entry is none.
_ARRAYS = ("origin_zone", "destination_zone", "kept", "origin_nodes", "destination_nodes")
_SAID = "said"


@dataclass(frozen=True)
class Unfinished:
    """A folder with one file for each slice that is decided.

    Attributes:
        folder: made when something is put into it.
        version: of the program; what another one decided is not taken.
    """

    folder: Path
    version: str = ""

    @classmethod
    def beside(cls, out: str | os.PathLike[str], version: str) -> Unfinished:
        """The folder that goes with a release that is to be written."""
        place = Path(out).expanduser()
        return cls(place.parent / f".{place.name}.unfinished", version)

    def get(self, name: str) -> bytes | None:
        """What was put there under a name; None where nothing was, or something else than a file of ours."""
        try:
            self._refuse_others()
            with open_regular(self.folder / name) as file:
                return file.read()
        except OSError:
            return None

    def put(self, name: str, content: bytes) -> None:
        """Keep something; whole or not at all.

        Raises:
            OutputError: the folder cannot be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_others()
            draft = self.folder / f"{name}.{os.getpid()}"
            draft.unlink(missing_ok=True)
            with open(draft, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(content)
            draft.replace(self.folder / name)
        except OSError:
            raise OutputError(
                "What is decided of slices cannot be kept beside the release (--resume): its folder cannot be written, "
                f"or others may read it. Hint: remove '{self.folder}'."
            ) from None

    def _refuse_others(self) -> None:
        """A folder that is a link, or that others can look into, is not used: plans show what is suppressed."""
        found = os.lstat(self.folder)
        ours = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
        if not stat.S_ISDIR(found.st_mode) or not ours:
            raise PermissionError("a folder of others")

    def remove(self) -> None:
        """Remove the folder, once it is no longer needed."""
        shutil.rmtree(self.folder, ignore_errors=True)


def fingerprint(flows: Flows, settings: Iterable[Any]) -> str:
    """A name that is the same only for the same flows, trees and settings."""
    found = hashlib.sha256(repr(list(settings)).encode())
    people = () if flows.people is None else (flows.people.cell, flows.people.person)
    trees = [array for tree in (flows.origins, flows.destinations) for array in (tree.parent, tree.code)]
    for array in (flows.origin, flows.destination, flows.trips, *flows.added().values(), *people, *trees):
        # An array of objects holds addresses, not contents.
        has_text = array is not None and array.dtype == object
        found.update(repr(array.tolist()).encode() if has_text else repr(array is None).encode())
        if array is not None and not has_text:
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


# ---- a plan in bytes ---------------------------------------------------------------------------------------------


def packed(plan: Plan | None, flows: SlicedFlows) -> bytes | None:
    """A plan as named arrays and JSON, which can be read without running anything; None where it is more than that.

    Args:
        plan: what was decided, or None where nothing can be published.
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
    said = {"homogeneous": plan.homogeneous, "suppression": vars(plan.suppression), "notes": dict(plan.notes)}
    try:
        text = json.dumps(said, allow_nan=False)
        if not plain or json.loads(text) != said:
            return None
    except (TypeError, ValueError):
        return None
    nodes = [own.nodes for own in zones if isinstance(own, NodeZones)]
    arrays = (plan.origin_zone, plan.destination_zone, plan.kept, *nodes)
    content = dict(zip(_ARRAYS, arrays, strict=True))
    np.savez(buffer, allow_pickle=False, **content, **{_SAID: np.frombuffer(text.encode(), np.uint8)})
    return buffer.getvalue()


def unpacked(content: bytes, flows: SlicedFlows, part: Flows) -> Plan | None:
    """The plan in these bytes, or None for one that publishes nothing.

    Args:
        content: what `packed` has made, or anything else.
        flows: the slices.
        part: the flows that the plan is for.

    Raises:
        ValueError: it is no plan for these flows.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            if not file.files:
                return None
            if sorted(file.files) != sorted((*_ARRAYS, _SAID)):
                raise ValueError("no plan")
            found = {name: np.asarray(file[name]) for name in file.files}
        said = json.loads(found.pop(_SAID).tobytes())
        plan = Plan(
            origin_zone=found["origin_zone"],
            destination_zone=found["destination_zone"],
            kept=found["kept"],
            origin_zones=NodeZones(flows.origins, found["origin_nodes"]),
            destination_zones=NodeZones(flows.destinations, found["destination_nodes"]),
            homogeneous=bool(said["homogeneous"]),
            suppression=Suppression(**said["suppression"]),
            notes=dict(said["notes"]),
        )
    except (OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as problem:
        raise ValueError("no plan") from problem
    _check(plan, part)
    return plan


def _check(plan: Plan, part: Flows) -> None:
    """Whether its numbers are numbers of these flows, zones and nodes; what they come to is recounted later."""
    for zone, zones in ((plan.origin_zone, plan.origin_zones), (plan.destination_zone, plan.destination_zones)):
        assert isinstance(zones, NodeZones)
        for numbers, n, stop in ((zone, len(part), len(zones.nodes)), (zones.nodes, None, zones.hierarchy.n_nodes)):
            shape = numbers.shape if n is None else (n,)
            whole = numbers.dtype == np.int32 and numbers.ndim == 1 and numbers.shape == shape
            if not whole or np.any((numbers < 0) | (numbers >= stop)):
                raise ValueError("no plan")
    if plan.kept.dtype != np.bool_ or plan.kept.shape != (len(part),):
        raise ValueError("no plan")
