"""The state of the workbench: files, choices, jobs, candidates and releases.

A server has one session. Every open page shows it and receives each change, so a reload loses nothing and a second tab
shows the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowveil.errors import ParameterError
from flowveil.workbench.choices import NO_TRIPS, PageRequest, cell_choices, choices_of
from flowveil.workbench.guard import RefusedError
from flowveil.workbench.jobs import DONE, Job, Jobs
from flowveil.workbench.workspace import TRIPS, ZONES, below, is_kind, listing

#: Choices for new trips.
_FIRST: dict[str, Any] = {"k": 10}
#: Upper bound for candidates: more do not fit next to each other.
MOST_PINS = 3
#: Shortest time between two messages to a page, and time after which an idle one gets a comment, in seconds.
_PACE, _QUIET = 0.1, 15.0
#: Upper bound for the characters of a signer's name.
_LONGEST_SIGNER = 120
#: Upper bound for pages that listen.
MOST_LISTENERS = 24
#: Jobs that a page may start by name with the choices of the session.
STARTED = ("inspect", "read", "describe", "preview", "run", "frontier", "check")


@dataclass(frozen=True)
class File:
    """An input file.

    Attributes:
        path: its path.
        name: its name on the page.
        kept: whether it is outside the private folder and outlives the session.
        stamp: path, size and time of the last change, to notice later that it was replaced.
    """

    path: Path
    name: str
    kept: bool
    stamp: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        now = os.stat(self.path)
        object.__setattr__(self, "stamp", [str(self.path), now.st_size, now.st_mtime_ns])

    @property
    def command_name(self) -> str:
        """Its name in a command line."""
        return str(self.path) if self.kept else self.name


@dataclass(eq=False)
class Session:
    """Everything that pages show.

    Attributes:
        room: the private folder.
        root: the folder that the server was started in.
        max_upload: upper bound for the bytes of one file.
        ledger: folder of the ledger; None without one.
    """

    room: Path
    root: Path
    max_upload: int = 2 * 10**9
    ledger: Path | None = None
    files: dict[str, File] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=lambda: dict(_FIRST))
    pins: list[dict[str, Any]] = field(default_factory=list)
    releases: list[dict[str, Any]] = field(default_factory=list)
    version: int = 0

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.room, self.changed)
        self._change = asyncio.Event()
        self._listeners = 0
        self.closing = False

    # ---- messages to pages -------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Sends the state to all pages."""
        self.version += 1
        change, self._change = self._change, asyncio.Event()
        change.set()

    def state(self) -> dict[str, Any]:
        """Returns the state for pages, without the results of jobs."""
        return {
            "version": self.version,
            "folder": self.root.name or str(self.root),
            "max_upload": self.max_upload,
            "ledger": None if self.ledger is None else str(self.ledger),
            "files": {
                role: {"name": file.name, "kept": file.kept, "size": file.stamp[1]} for role, file in self.files.items()
            },
            "choices": self.choices,
            "defaults": PageRequest.from_choices(self.choices).defaults,
            "jobs": [job.to_dict() for job in self.jobs],
            "pins": self.pins,
            "releases": [{n: v for n, v in one.items() if n not in ("folder", "task")} for one in self.releases],
        }

    def listen(self) -> AsyncIterator[str]:
        """Returns the event stream of one page: the state after each change.

        Raises:
            RefusedError: too many pages listen.
        """
        if self._listeners >= MOST_LISTENERS:
            raise RefusedError(503, "Too many pages are open.")
        return self._messages()

    async def _messages(self) -> AsyncIterator[str]:
        # Concurrent requests pass `listen` before the first of them is counted. Excess listeners get an empty stream.
        if self._listeners >= MOST_LISTENERS:
            return
        self._listeners += 1
        try:
            while not self.closing:
                change = self._change
                yield f"data: {json.dumps(self.state())}\n\n"
                await asyncio.sleep(_PACE)
                while not change.is_set():
                    try:
                        await asyncio.wait_for(change.wait(), _QUIET)
                    except TimeoutError:
                        yield ": quiet\n\n"
        finally:
            self._listeners -= 1

    async def close(self) -> None:
        """Stops all jobs and event streams."""
        self.closing = True
        self.changed()
        await self.jobs.close()

    # ---- files -----------------------------------------------------------------------------------------------

    def set_file(self, role: str, file: File) -> None:
        """Sets the trips or the map. New trips remove everything made from earlier ones."""
        old = self.files.get(role)
        if role == "trips":
            self._clear()
            self.choices = dict(_FIRST)
        else:
            self.jobs.cancel_all()
        self.files[role] = file
        if old is not None and not old.kept and old.path != file.path:
            old.path.unlink(missing_ok=True)
        self.jobs.warm_up()
        self.changed()

    def pick(self, role: str, asked: str) -> None:
        """Sets a file from below the folder that the server was started in.

        Raises:
            RefusedError: the file is missing or of another kind.
        """
        place = below(self.root, asked)
        if not is_kind(place, TRIPS if role == "trips" else ZONES):
            raise RefusedError(415, "Files of this kind are not read here.")
        self.set_file(role, File(place, place.name, kept=True))

    def browse(self, role: str, asked: str) -> list[dict[str, object]]:
        """Lists the files that can be picked in a folder."""
        return listing(self.root, asked, TRIPS if role == "trips" else ZONES)

    def remove_zones(self) -> None:
        """Removes the map."""
        old = self.files.pop("zones", None)
        if old is not None:
            self.jobs.cancel_all()
            if not old.kept:
                old.path.unlink(missing_ok=True)
            self.choices = {name: value for name, value in self.choices.items() if not name.startswith("zones_")}
            self.changed()

    def _clear(self) -> None:
        self.jobs.cancel_all()
        self.pins.clear()
        for path in (self.room / "jobs").iterdir():
            # A process that is killed while it writes its result leaves the folder of a draft.
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for pattern in ("flows-*", "pin-*"):
            for path in (self.room / "files").glob(pattern):
                path.unlink(missing_ok=True)

    def empty(self) -> None:
        """Removes all files; releases stay."""
        self._clear()
        for file in self.files.values():
            if not file.kept:
                file.path.unlink(missing_ok=True)
        self.files.clear()
        self.choices = dict(_FIRST)
        self.changed()

    # ---- jobs ------------------------------------------------------------------------------------------------

    def choose(self, content: Any) -> None:
        """Sets the choices of a page.

        Raises:
            ParameterError: a choice is unknown, out of range, or contradicts another one.
        """
        choices = choices_of(content)
        PageRequest.from_choices(choices)
        self.choices = choices
        self.changed()

    def recipe(self) -> str:
        """Returns the recipe of the choices, with the original names of the files.

        Raises:
            ParameterError: the choices contradict each other, or trips are missing.
        """
        trips, zones = self.files.get("trips"), self.files.get("zones")
        if trips is None:
            raise ParameterError(NO_TRIPS)
        recorded = None if self.ledger is None else {"ledger": str(self.ledger)}
        return PageRequest.from_choices(self.choices).recipe(
            trips.command_name, None if zones is None else zones.command_name, recorded
        )

    def task(self, choices: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the task of a worker: files and choices.

        Raises:
            ParameterError: trips are missing.
        """
        if "trips" not in self.files:
            raise ParameterError(NO_TRIPS)
        zones = self.files.get("zones")
        return {
            "room": str(self.room),
            "source": self.files["trips"].stamp,
            "zones": None if zones is None else zones.stamp,
            "upload_names": {file.path.name: file.name for file in self.files.values() if not file.kept},
            "choices": dict(self.choices if choices is None else choices),
        }

    def start(self, kind: str, content: Any = None) -> Job:
        """Starts a job with the choices of the session, or with others that a page only tries.

        Raises:
            ParameterError: a choice is unknown, out of range, or contradicts another one.
        """
        choices = self.choices if content is None else choices_of(content)
        task = self.task(choices)
        PageRequest.from_choices(choices)
        if kind == "check":
            task["releases"] = [(release["title"], release["folder"]) for release in self.releases]
            task["release_ids"] = [release["id"] for release in self.releases]
            task["ledger"] = None if self.ledger is None else str(self.ledger)
        return self.jobs.start(kind, task, request=dict(choices))

    def demo(self, people: int) -> Job:
        """Makes a synthetic survey and sets it as the trips."""
        path = self.room / "files" / f"{secrets.token_hex(8)}.parquet"

        def then(_: Job) -> None:
            self.set_file("trips", File(path, "demo.parquet", kept=False))
            self.choices |= {"weight": "weight", "title": "Travel in Île-de-France, a synthetic survey"}
            self.choices |= {"source": "Made by flowveil demo; no real person is in it", "licence": "CC0 1.0"}
            self.changed()

        return self.jobs.start("demo", {"out": str(path), "people": people}, request={}, then=then)

    def unpack(self, packed: Path, name: str) -> Job:
        """Unpacks an uploaded release, to compare new ones with it."""
        out = self.room / "releases" / secrets.token_hex(8)

        def then(_: Job) -> None:
            self.releases.append({"id": out.name, "title": name, "folder": str(out), "own": False})

        task = {"packed": str(packed), "out": str(out)}
        return self.jobs.start("unpack", task, request={}, then=then, leftover=(packed, out))

    def remove_release(self, id_: str) -> None:
        """Removes an uploaded release from the comparison. Releases of this session stay.

        Raises:
            RefusedError: the release is unknown.
        """
        found = [release for release in self.releases if release["id"] == id_ and not release["own"]]
        if not found:
            raise RefusedError(404, "This release is unknown.")
        self.releases.remove(found[0])
        shutil.rmtree(found[0]["folder"], ignore_errors=True)
        self.changed()

    # ---- candidates and releases -------------------------------------------------------------------------------

    def pin(self, id_: str) -> None:
        """Keeps a full run as a candidate.

        Raises:
            RefusedError: the run is unknown.
            ParameterError: there are `MOST_PINS` candidates already.
        """
        job = self.jobs.get(id_)
        if job is None or job.kind != "run" or job.state != DONE:
            raise RefusedError(404, "This run is unknown.")
        if len(self.pins) >= MOST_PINS:
            raise ParameterError(f"At most {MOST_PINS} candidates can be compared. Hint: remove one first.")
        if any(pin["id"] == id_ for pin in self.pins):
            return
        with open(job.result, encoding="utf-8") as file:
            result = json.load(file)
        for name in ("flows", "zones"):
            shutil.copy(job.result.with_suffix(f".{name}"), self.room / "files" / f"pin-{id_}.{name}")
        self.pins.append({"id": id_, "choices": result["choices"], "figures": result["figures"]})
        self.changed()

    def unpin(self, id_: str) -> None:
        """Removes a candidate."""
        self.pins = [pin for pin in self.pins if pin["id"] != id_]
        for path in (self.room / "files").glob("pin-*"):
            if path.stem not in {f"pin-{pin['id']}" for pin in self.pins}:
                path.unlink(missing_ok=True)
        self.changed()

    def compare_pins(self) -> Job:
        """Starts the job that draws the candidates next to each other."""
        stems = [str(self.room / "files" / f"pin-{pin['id']}") for pin in self.pins]
        if not stems:
            raise ParameterError("No candidate was kept yet.")
        return self.jobs.start(
            "candidates", {**self.task(), "pins": stems}, request={"pins": [p["id"] for p in self.pins]}
        )

    def slice_map(self, id_: Any, number: Any) -> Job:
        """Starts the job that draws one slice of a full run.

        Raises:
            RefusedError: the run or the slice is unknown.
        """
        run = self.jobs.get(id_) if isinstance(id_, str) else None
        if run is None or run.kind != "run" or run.state != DONE or type(number) is not int or number < 0:
            raise RefusedError(404, "This run is unknown.")
        task = {**self.task(run.request), "run": str(run.result), "slice": number}
        return self.jobs.start("slice", task, request={"run": id_, "slice": number})

    def publish(self, *, read: bool, accepted: bool, signer: str) -> Job:
        """Starts the job that publishes the checked release.

        Args:
            read: whether the signer confirms to have read what is and what is not protected.
            accepted: whether the signer accepts the findings of the comparison with earlier releases.
            signer: name for the certificate.

        Raises:
            ParameterError: these choices were not checked, the text was not confirmed, the signer is missing, or a
                finding was not accepted.
        """
        done = [job for job in self.jobs if job.kind == "check" and job.state == DONE]
        if not done or cell_choices(done[-1].request) != cell_choices(self.choices):
            raise ParameterError("These choices were not checked yet. Hint: sign off first.")
        with open(done[-1].result, encoding="utf-8") as file:
            audit = json.load(file)["audit"]
        if audit["release_ids"] != [release["id"] for release in self.releases]:
            raise ParameterError("The releases to compare with have changed. Hint: sign off again.")
        if not read:
            raise ParameterError("Read and tick what is and what is not protected first.")
        if not signer.strip() or len(signer) > _LONGEST_SIGNER or not signer.isprintable():
            raise ParameterError("The name of the person who signs is missing or too long.")
        if audit["not_compared"] and not audit["failures"] and not accepted:
            raise ParameterError("Not everything could be compared with earlier releases. Hint: sign off again.")
        if audit["failures"] and not accepted:
            raise ParameterError("The comparison with earlier releases found something. Hint: sign off again.")
        asked, trips, zones = PageRequest.from_choices(self.choices), self.files["trips"], self.files.get("zones")
        out = self.room / "releases" / secrets.token_hex(8)
        recorded: dict[str, Any] = {}
        if self.ledger is not None:
            differing = accepted and bool(audit["failures"])
            recorded = {"ledger": str(self.ledger), **({"accept_differencing": True} if differing else {})}
        names = trips.command_name, None if zones is None else zones.command_name, recorded

        def then(_: Job) -> None:
            title = asked.about.get("title") or f"Release {sum(r['own'] for r in self.releases) + 1}"
            self.releases.append(
                {
                    **{"id": out.name, "title": title, "folder": str(out), "own": True},
                    **{"noisy": not asked.thresholds, "slice_columns": asked.slice_columns},
                    **{"command": asked.command(*names), "python": asked.python(*names)},
                    **{"recipe": asked.recipe(*names), "task": self.task()},
                }
            )

        compared = {name: audit[name] for name in ("compared", "not_compared", "failures", "ledger") if name in audit}
        task = {**self.task(), "out": str(out), "recorded": recorded, "signer": signer.strip(), "audit": compared}
        return self.jobs.start("publish", task, request=dict(self.choices), then=then, leftover=(out,))

    def follow_up(self, kind: str, id_: Any, content: Any) -> Job:
        """Starts a job on a published release: its analysis, its DPIA text, or a table derived from it.

        Raises:
            RefusedError: the release is unknown.
        """
        release = self.own_release(id_)
        task = {**release["task"], "release": release["folder"], "derive": content if kind == "derive" else {}}
        return self.jobs.start(kind, task, request={"release": release["id"]})

    def own_release(self, id_: Any) -> dict[str, Any]:
        """Returns a release of this session.

        Raises:
            RefusedError: the release is unknown.
        """
        for release in self.releases:
            if release["id"] == id_ and release["own"]:
                return release
        raise RefusedError(404, "This release is unknown.")
