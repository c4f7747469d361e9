"""What lies on the workbench: the files, the choices, the jobs, the candidates and the releases.

There is one desk for a server. Every page that is open shows it and is told when it changes, so a reload loses nothing
and a second tab sees the same.
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
from flowveil.workbench.choices import Asked, choices_of
from flowveil.workbench.guard import RefusedError
from flowveil.workbench.jobs import DONE, Job, Jobs
from flowveil.workbench.workspace import TRIPS, ZONES, below, is_kind, listing

#: What is chosen when trips are new.
_FIRST: dict[str, Any] = {"k": 10, "max_suppressed": 0.1, "method": "twincut"}
#: Candidates that fit beside each other.
MOST_PINS = 3
#: Seconds between two messages to a page, and after which it is told that all is quiet.
_PACE, _QUIET = 0.1, 15.0
#: Pages that may listen at once.
MOST_LISTENERS = 24
#: Jobs that a page may start by name, with the choices that lie on the desk.
STARTED = ("look", "read", "describe", "preview", "run", "frontier", "check")


@dataclass(frozen=True)
class File:
    """A file that was chosen.

    Attributes:
        path: where it is.
        name: what it is called, for the page and for the command.
        kept: whether it is outside the private folder and will still be there.
        stamp: its path, its size and when it was written last: what shows later that it is another one.
    """

    path: Path
    name: str
    kept: bool
    stamp: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        now = os.stat(self.path)
        object.__setattr__(self, "stamp", [str(self.path), now.st_size, now.st_mtime_ns])

    @property
    def said(self) -> str:
        """What a command calls it."""
        return str(self.path) if self.kept else self.name


@dataclass(eq=False)
class Desk:
    """Everything that pages show.

    Attributes:
        room: the private folder.
        root: the folder that the server was started in.
        max_upload: most bytes of one file.
        ledger: the folder that remembers all releases of the data set, if there is one.
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
        self._news = asyncio.Event()
        self._listeners = 0
        self.closing = False

    # ---- telling ---------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Tell all pages."""
        self.version += 1
        news, self._news = self._news, asyncio.Event()
        news.set()

    def state(self) -> dict[str, Any]:
        """What pages show; results are fetched by themselves."""
        return {
            "version": self.version,
            "folder": self.root.name or str(self.root),
            "max_upload": self.max_upload,
            "ledger": None if self.ledger is None else str(self.ledger),
            "files": {
                role: {"name": file.name, "kept": file.kept, "size": file.stamp[1]} for role, file in self.files.items()
            },
            "choices": self.choices,
            "jobs": [job.to_dict() for job in self.jobs],
            "pins": self.pins,
            "releases": [{n: v for n, v in release.items() if n != "folder"} for release in self.releases],
        }

    def listen(self) -> AsyncIterator[str]:
        """Messages for one page: the state whenever it has changed.

        Raises:
            RefusedError: too many listen already.
        """
        if self._listeners >= MOST_LISTENERS:
            raise RefusedError(503, "Too many pages are open.")
        return self._messages()

    async def _messages(self) -> AsyncIterator[str]:
        # Many that ask at once are all let in before the first of them is counted: those too many hear nothing.
        if self._listeners >= MOST_LISTENERS:
            return
        self._listeners += 1
        try:
            while not self.closing:
                news = self._news
                yield f"data: {json.dumps(self.state())}\n\n"
                await asyncio.sleep(_PACE)
                while not news.is_set():
                    try:
                        await asyncio.wait_for(news.wait(), _QUIET)
                    except TimeoutError:
                        yield ": quiet\n\n"
        finally:
            self._listeners -= 1

    async def close(self) -> None:
        """Stop everything."""
        self.closing = True
        self.changed()
        await self.jobs.close()

    # ---- files -----------------------------------------------------------------------------------------------

    def place(self, role: str, file: File) -> None:
        """Put a file on the desk; new trips clear it of what was about others."""
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
        """Take a file from below the folder that the server was started in.

        Raises:
            RefusedError: there is no such file, or it is of another kind.
        """
        place = below(self.root, asked)
        if not is_kind(place, TRIPS if role == "trips" else ZONES):
            raise RefusedError(415, "Files of this kind are not read here.")
        self.place(role, File(place, place.name, kept=True))

    def browse(self, role: str, asked: str) -> list[dict[str, object]]:
        """What can be picked in a folder."""
        return listing(self.root, asked, TRIPS if role == "trips" else ZONES)

    def remove_zones(self) -> None:
        """Take the map off the desk."""
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
            path.unlink(missing_ok=True)
        for pattern in ("flows-*", "pin-*"):
            for path in (self.room / "files").glob(pattern):
                path.unlink(missing_ok=True)

    def empty(self) -> None:
        """Take all trips off the desk; releases stay."""
        self._clear()
        for file in self.files.values():
            if not file.kept:
                file.path.unlink(missing_ok=True)
        self.files.clear()
        self.choices = dict(_FIRST)
        self.changed()

    # ---- jobs ------------------------------------------------------------------------------------------------

    def choose(self, content: Any) -> None:
        """Take over what a page chose.

        Raises:
            ParameterError: it cannot be.
        """
        self.choices = choices_of(content)
        self.changed()

    def recipe(self) -> str:
        """The recipe of what is chosen, with the files by the names that their owner gave them.

        Raises:
            ParameterError: the choices contradict each other, or there are no trips yet.
        """
        trips, zones = self.files.get("trips"), self.files.get("zones")
        if trips is None:
            raise ParameterError("There are no trips yet. Hint: drop a file first.")
        recorded = None if self.ledger is None else {"ledger": str(self.ledger)}
        return Asked.of(self.choices).recipe(trips.said, None if zones is None else zones.said, recorded)

    def task(self, choices: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a worker needs to know: files and choices.

        Raises:
            ParameterError: there are no trips yet.
        """
        if "trips" not in self.files:
            raise ParameterError("There are no trips yet. Hint: drop a file first.")
        zones = self.files.get("zones")
        return {
            "room": str(self.room),
            "source": self.files["trips"].stamp,
            "zones": None if zones is None else zones.stamp,
            "called": {file.path.name: file.name for file in self.files.values() if not file.kept},
            "choices": dict(self.choices if choices is None else choices),
        }

    def start(self, kind: str, content: Any = None) -> Job:
        """Start a job on what lies here; with choices of its own, where a page tries others than it keeps.

        Raises:
            ParameterError: it cannot be.
        """
        choices = self.choices if content is None else choices_of(content)
        task = self.task(choices)
        Asked.of(choices)
        if kind == "check":
            task["releases"] = [(release["title"], release["folder"]) for release in self.releases]
            task["ledger"] = None if self.ledger is None else str(self.ledger)
        return self.jobs.start(kind, task, asked=dict(choices))

    def demo(self, people: int) -> Job:
        """Make a synthetic survey and put it on the desk."""
        path = self.room / "files" / f"{secrets.token_hex(8)}.parquet"

        def then(_: Job) -> None:
            self.place("trips", File(path, "demo.parquet", kept=False))
            self.choices |= {"weight": "weight", "title": "Travel in Île-de-France, a synthetic survey"}
            self.choices |= {"source": "Made by flowveil demo; no real person is in it", "licence": "CC0 1.0"}
            self.changed()

        return self.jobs.start("demo", {"out": str(path), "people": people}, asked={}, then=then)

    def unpack(self, packed: Path, name: str) -> Job:
        """Take over a release that was dropped, to compare new ones with it."""
        out = self.room / "releases" / secrets.token_hex(8)

        def then(_: Job) -> None:
            self.releases.append({"id": out.name, "title": name, "folder": str(out), "own": False})

        task = {"packed": str(packed), "out": str(out)}
        return self.jobs.start("unpack", task, asked={}, then=then, leftover=(packed, out))

    def forget(self, id_: str) -> None:
        """Take a dropped release away: new ones are not compared with it any more. Those made here stay.

        Raises:
            RefusedError: there is no such release.
        """
        found = [release for release in self.releases if release["id"] == id_ and not release["own"]]
        if not found:
            raise RefusedError(404, "There is no such release.")
        self.releases.remove(found[0])
        shutil.rmtree(found[0]["folder"], ignore_errors=True)
        self.changed()

    # ---- candidates and releases -------------------------------------------------------------------------------

    def pin(self, id_: str) -> None:
        """Keep a full run to see it beside others.

        Raises:
            RefusedError: there is no such run, or there are as many as fit.
        """
        job = self.jobs.get(id_)
        if job is None or job.kind != "run" or job.state != DONE:
            raise RefusedError(404, "There is no such run.")
        if len(self.pins) >= MOST_PINS:
            raise ParameterError(f"{MOST_PINS} candidates fit side by side. Hint: take one away first.")
        if any(pin["id"] == id_ for pin in self.pins):
            return
        with open(job.result, encoding="utf-8") as file:
            result = json.load(file)
        for name in ("flows", "zones"):
            shutil.copy(job.result.with_suffix(f".{name}"), self.room / "files" / f"pin-{id_}.{name}")
        self.pins.append({"id": id_, "choices": result["choices"], "figures": result["figures"]})
        self.changed()

    def unpin(self, id_: str) -> None:
        """Take a candidate away."""
        self.pins = [pin for pin in self.pins if pin["id"] != id_]
        for path in (self.room / "files").glob("pin-*"):
            if path.stem not in {f"pin-{pin['id']}" for pin in self.pins}:
                path.unlink(missing_ok=True)
        self.changed()

    def beside(self) -> Job:
        """Put the candidates side by side."""
        stems = [str(self.room / "files" / f"pin-{pin['id']}") for pin in self.pins]
        if not stems:
            raise ParameterError("There is no candidate yet.")
        return self.jobs.start("beside", {**self.task(), "pins": stems}, asked={"pins": [p["id"] for p in self.pins]})

    def publish(self, *, read: bool, accepted: bool) -> Job:
        """Publish what was checked.

        Args:
            read: whether whoever publishes has read what is and what is not protected.
            accepted: whether what the comparison with earlier releases found is accepted.

        Raises:
            ParameterError: it was not checked with these choices, not read, or something was found.
        """
        done = [job for job in self.jobs if job.kind == "check" and job.state == DONE]
        if not done or done[-1].asked != self.choices:
            raise ParameterError("These choices were not checked yet. Hint: sign off first.")
        with open(done[-1].result, encoding="utf-8") as file:
            audit = json.load(file)["audit"]
        if len(audit["compared"]) != len(self.releases):
            raise ParameterError("There is a new release to compare with. Hint: sign off again.")
        if not read:
            raise ParameterError("Read and tick what is and what is not protected first.")
        if audit["not_compared"] and not audit["failures"] and not accepted:
            raise ParameterError("Not everything could be compared with earlier releases. Hint: sign off again.")
        if audit["failures"] and not accepted:
            raise ParameterError("The comparison with earlier releases found something. Hint: sign off again.")
        asked, trips, zones = Asked.of(self.choices), self.files["trips"], self.files.get("zones")
        out = self.room / "releases" / secrets.token_hex(8)
        noisy = not asked.thresholds
        accepted = accepted and bool(audit["failures"])
        recorded: dict[str, Any] = {}
        if self.ledger is not None:
            recorded = {"ledger": str(self.ledger), **({"accept_differencing": True} if accepted else {})}
        names = trips.said, None if zones is None else zones.said, recorded

        def then(_: Job) -> None:
            title = asked.about.get("title") or f"Release {sum(r['own'] for r in self.releases) + 1}"
            self.releases.append(
                {
                    **{"id": out.name, "title": title, "folder": str(out), "own": True, "noisy": noisy},
                    **{"command": asked.command(*names), "python": asked.python(*names)},
                    "recipe": asked.recipe(*names),
                }
            )

        task = {**self.task(), "out": str(out), "recorded": recorded}
        return self.jobs.start("publish", task, asked=dict(self.choices), then=then, leftover=(out,))
