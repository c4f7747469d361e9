"""The state of the workbench: files, choices, jobs, candidates and releases.

A server has one session. Every open page shows it and receives each change, so a reload loses
nothing and a second tab shows the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowveil import __version__
from flowveil.apps.workbench import choices as page
from flowveil.apps.workbench.choices import NO_TRIPS, cell_choices, choices_of, page_request
from flowveil.apps.workbench.guard import RefusedError
from flowveil.apps.workbench.jobs import DONE, Job, Jobs, remove
from flowveil.core.errors import ParameterError
from flowveil.request.recipe import recipe_text
from flowveil.request.request import Request, command_line

#: Endings of the names of files, by their role.
ENDINGS: dict[str, tuple[str, ...]] = {
    "trips": (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".parquet", ".omx"),
    "zones": (".csv", ".parquet", ".geojson", ".json", ".gpkg"),
    "release": (".zip",),
}
#: Upper bound for the listed entries of a folder.
MOST_LISTED = 500
#: Choices for new trips.
_FIRST: dict[str, Any] = {"k": 10}
#: Upper bound for candidates: more do not fit next to each other.
MOST_PINS = 3
#: Shortest time between two messages to a page, and time after which an idle one gets a comment, in
#: seconds.
_PACE, _QUIET = 0.1, 15.0
#: Upper bound for the characters of a signer's name.
_LONGEST_SIGNER = 120
#: Upper bound for pages that listen.
MOST_LISTENERS = 24
#: Jobs that a page may start by name with the choices of the session.
STARTED = ("inspect", "read", "describe", "preview", "run", "frontier", "check")


def below(root: Path, asked: str) -> Path:
    """Resolves a relative path below a folder.

    RefusedError if it leads out, or a part of it is hidden or missing.
    """
    refused = RefusedError(
        403, "Only files below the folder that flowveil serve was started in can be picked."
    )
    parts = asked.replace("\\", "/").split("/") if asked else []
    if (
        "\0" in asked
        or os.path.isabs(asked)
        or any(part in ("", "..") or part.startswith(".") for part in parts)
    ):
        raise refused
    base = Path(os.path.realpath(root))
    try:
        place = Path(os.path.realpath(base.joinpath(*parts), strict=True))
    except (OSError, ValueError):
        raise RefusedError(404, "This file is not below the folder.") from None
    # Links to hidden files count as hidden.
    if not place.is_relative_to(base) or any(
        part.startswith(".") for part in place.relative_to(base).parts
    ):
        raise refused
    return place


def listing(root: Path, asked: str, suffixes: tuple[str, ...]) -> list[dict[str, object]]:
    """Lists folders and files with the given endings in a folder below the root, folders first."""
    folder = below(root, asked)
    if not folder.is_dir():
        raise RefusedError(404, "This folder is unknown.")
    found: list[dict[str, object]] = []
    for entry in sorted(os.scandir(folder), key=lambda e: (not e.is_dir(), e.name.casefold())):
        if entry.name.startswith(".") or len(found) == MOST_LISTED:
            continue
        path = f"{asked}/{entry.name}" if asked else entry.name
        with contextlib.suppress(RefusedError, OSError):
            place = below(root, path)
            if place.is_dir():
                found.append({"name": entry.name, "path": path, "folder": True})
            elif _is_kind(place, suffixes):
                found.append(
                    {
                        "name": entry.name,
                        "path": path,
                        "folder": False,
                        "size": place.stat().st_size,
                    }
                )
    return found


def _is_kind(place: Path, suffixes: tuple[str, ...]) -> bool:
    return place.name.casefold().endswith(suffixes) and stat.S_ISREG(os.stat(place).st_mode)


def suffix_of(name: str, suffixes: tuple[str, ...]) -> str:
    """Returns the ending of a file name; RefusedError if it is not known."""
    found = [suffix for suffix in suffixes if name.casefold().endswith(suffix)]
    if not found:
        raise RefusedError(
            415, f"Files of this kind are not read here. Known are {', '.join(suffixes)}."
        )
    return max(found, key=len)


@dataclass(frozen=True)
class SessionFile:
    """An input file, and its name on the page."""

    path: Path
    name: str
    kept: bool  # whether it is outside the private folder and outlives the session
    stamp: list[Any] = field(
        init=False
    )  # path, size and time of the last change, to notice that it was replaced

    def __post_init__(self) -> None:
        now = os.stat(self.path)
        object.__setattr__(self, "stamp", [str(self.path), now.st_size, now.st_mtime_ns])

    def remove(self) -> None:
        """Removes the file if it is in the private folder."""
        if not self.kept:
            self.path.unlink(missing_ok=True)


@dataclass(eq=False)
class Session:
    """Everything that pages show."""

    room: Path  # the private folder
    root: Path  # the folder that the server was started in
    max_upload: int = 2 * 10**9  # upper bound for the bytes of one file
    ledger: Path | None = None  # folder of the ledger
    files: dict[str, SessionFile] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=lambda: dict(_FIRST))
    pins: list[dict[str, Any]] = field(default_factory=list)
    releases: list[dict[str, Any]] = field(default_factory=list)
    version: int = 0

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.room, self.changed)
        self._change = asyncio.Event()
        self._listeners = 0
        self.closing = False

    def changed(self) -> None:
        """Sends the state to all pages."""
        self.version += 1
        change, self._change = self._change, asyncio.Event()
        change.set()

    def state(self) -> dict[str, Any]:
        """Returns the state for pages, without the results of jobs."""
        shown = {
            role: {"name": f.name, "kept": f.kept, "size": f.stamp[1]}
            for role, f in self.files.items()
        }
        return {
            "version": self.version,
            "folder": self.root.name or str(self.root),
            "max_upload": self.max_upload,
            "ledger": None if self.ledger is None else str(self.ledger),
            "files": shown,
            "choices": self.choices,
            "defaults": page.defaults_of(page_request(self.choices)),
            "jobs": [job.to_dict() for job in self.jobs],
            "pins": self.pins,
            "releases": [
                {n: v for n, v in one.items() if n not in ("folder", "task")}
                for one in self.releases
            ],
        }

    def listen(self) -> AsyncIterator[str]:
        """Returns the event stream of one page: the state after each change.

        RefusedError if too many listen.
        """
        if self._listeners >= MOST_LISTENERS:
            raise RefusedError(503, "Too many pages are open.")
        return self._messages()

    async def _messages(self) -> AsyncIterator[str]:
        # Concurrent requests pass `listen` before the first of them is counted. Excess listeners
        # get an empty stream.
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

    def set_file(self, role: str, file: SessionFile) -> None:
        """Sets the trips or the map. New trips remove everything made from earlier ones."""
        old = self.files.get(role)
        if role == "trips":
            self._clear()
            self.choices = dict(_FIRST)
        else:
            self.jobs.cancel_all()
        self.files[role] = file
        if old is not None and old.path != file.path:
            old.remove()
        self.jobs.warm_up()
        self.changed()

    def pick(self, role: str, asked: str) -> None:
        """Sets a file from below the folder that the server was started in.

        RefusedError if it is of another kind.
        """
        place = below(self.root, asked)
        if not _is_kind(place, ENDINGS[role]):
            raise RefusedError(415, "Files of this kind are not read here.")
        self.set_file(role, SessionFile(place, place.name, kept=True))

    def remove_zones(self) -> None:
        """Removes the map."""
        if "zones" in self.files:
            self.jobs.cancel_all()
            self.files.pop("zones").remove()
            self.choices = {
                name: value for name, value in self.choices.items() if not name.startswith("zones_")
            }
            self.changed()

    def _clear(self) -> None:
        self.jobs.cancel_all()
        self.pins.clear()
        # A process that is killed while it writes its result leaves the folder of a draft.
        remove((self.room / "jobs").iterdir())
        for pattern in ("flows-*", "pin-*"):
            remove((self.room / "files").glob(pattern))

    def empty(self) -> None:
        """Removes all files; releases stay."""
        self._clear()
        for file in self.files.values():
            file.remove()
        self.files.clear()
        self.choices = dict(_FIRST)
        self.changed()

    def choose(self, content: Any) -> None:
        """Sets the choices of a page.

        ParameterError if one is unknown, out of range, or contradicts another one.
        """
        choices = choices_of(content)
        page_request(choices)
        self.choices = choices
        self.changed()

    def _complete(self, *, accepted: bool = False) -> Request:
        """Returns the request of the choices with its ledger, and its files as a command line names
        them.
        """
        self._require_trips()
        named = {
            role: str(file.path) if file.kept else file.name for role, file in self.files.items()
        }
        values: dict[str, Any] = {
            "input": named["trips"],
            "zones": named.get("zones"),
            "out": "release",
        }
        if self.ledger is not None:
            values |= {
                "ledger": str(self.ledger),
                **({"accept_differencing": True} if accepted else {}),
            }
        return page_request(self.choices).with_values(**values)

    def _require_trips(self) -> None:
        if "trips" not in self.files:
            raise ParameterError(NO_TRIPS)

    def recipe(self) -> str:
        """Returns the recipe of the choices."""
        return recipe_text(self._complete(), version=__version__)

    def task(self, choices: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the task of a worker: files and choices; ParameterError if trips are missing."""
        self._require_trips()
        zones = self.files.get("zones")
        return {
            "room": str(self.room),
            "source": self.files["trips"].stamp,
            "zones": None if zones is None else zones.stamp,
            "upload_names": {
                file.path.name: file.name for file in self.files.values() if not file.kept
            },
            "choices": dict(self.choices if choices is None else choices),
            "ledger": None if self.ledger is None else str(self.ledger),
        }

    def start(self, kind: str, content: Any = None) -> Job:
        """Starts a job with the choices of the session, or with others that a page only tries."""
        choices = self.choices if content is None else choices_of(content)
        task = self.task(choices)
        page_request(choices)
        if kind == "check":
            task["releases"] = [(release["title"], release["folder"]) for release in self.releases]
            task["release_ids"] = [release["id"] for release in self.releases]
        return self.jobs.start(kind, task, request=dict(choices))

    def demo(self, people: int) -> Job:
        """Makes a synthetic survey and sets it as the trips."""
        path = self.room / "files" / f"{secrets.token_hex(8)}.parquet"

        def then(_: Job) -> None:
            self.set_file("trips", SessionFile(path, "demo.parquet", kept=False))
            self.choices |= {
                "weight": "weight",
                "title": "Travel in Île-de-France, a synthetic survey",
            }
            self.choices |= {
                "source": "Made by flowveil demo; no real person is in it",
                "licence": "CC0 1.0",
            }
            self.changed()

        return self.jobs.start("demo", {"out": str(path), "people": people}, request={}, then=then)

    def unpack(self, packed: Path, name: str) -> Job:
        """Unpacks an uploaded release, to compare new ones with it."""
        out = self.room / "releases" / secrets.token_hex(8)

        def then(_: Job) -> None:
            self.releases.append({"id": out.name, "title": name, "folder": str(out), "own": False})

        task = {"packed": str(packed), "out": str(out)}
        return self.jobs.start("unpack", task, request={}, then=then, leftover=(packed, out))

    def remove_release(self, id_: Any) -> None:
        """Removes an uploaded release from the comparison. Releases of this session stay."""
        release = self.release(id_, own=False)
        self.releases.remove(release)
        shutil.rmtree(release["folder"], ignore_errors=True)
        self.changed()

    def _run(self, id_: Any) -> Job:
        """Returns a full run that is done; RefusedError if it is unknown."""
        job = self.jobs.get(id_) if isinstance(id_, str) else None
        if job is None or job.kind != "run" or job.state != DONE:
            raise RefusedError(404, "This run is unknown.")
        return job

    def pin(self, id_: Any) -> None:
        """Keeps a full run as a candidate, up to `MOST_PINS` of them."""
        job = self._run(id_)
        if len(self.pins) >= MOST_PINS:
            raise ParameterError(
                f"At most {MOST_PINS} candidates can be compared. Hint: remove one first."
            )
        if any(pin["id"] == id_ for pin in self.pins):
            return
        result = json.loads(job.result.read_text(encoding="utf-8"))
        for name in ("flows", "zones"):
            shutil.copy(
                job.result.with_suffix(f".{name}"), self.room / "files" / f"pin-{id_}.{name}"
            )
        self.pins.append({"id": id_, "choices": result["choices"], "figures": result["figures"]})
        self.changed()

    def unpin(self, id_: Any) -> None:
        """Removes a candidate."""
        self.pins = [pin for pin in self.pins if pin["id"] != id_]
        kept = {f"pin-{pin['id']}" for pin in self.pins}
        remove(path for path in (self.room / "files").glob("pin-*") if path.stem not in kept)
        self.changed()

    def compare_pins(self) -> Job:
        """Starts the job that draws the candidates next to each other."""
        ids = [pin["id"] for pin in self.pins]
        if not ids:
            raise ParameterError("No candidate was kept yet.")
        stems = [str(self.room / "files" / f"pin-{id_}") for id_ in ids]
        return self.jobs.start("candidates", {**self.task(), "pins": stems}, request={"pins": ids})

    def slice_map(self, id_: Any, number: Any) -> Job:
        """Starts the job that draws one slice of a full run."""
        run = self._run(id_)
        if type(number) is not int or number < 0:
            raise RefusedError(404, "This run is unknown.")
        task = {**self.task(run.request), "run": str(run.result), "slice": number}
        return self.jobs.start("slice", task, request={"run": id_, "slice": number})

    def publish(self, *, read: bool, accepted: bool, signer: str) -> Job:
        """Starts the job that publishes the checked release.

        The signer confirms to have ``read`` what is and what is not protected, and has ``accepted``
        the findings of the comparison with earlier releases; ParameterError without these, or if
        the choices were not checked.
        """
        audit = self._checked()["audit"]
        has_changed = audit["release_ids"] != [release["id"] for release in self.releases]
        unsigned = not signer.strip() or len(signer) > _LONGEST_SIGNER or not signer.isprintable()
        again = "Hint: sign off again."
        for is_wrong, problem in (
            (has_changed, f"The releases to compare with have changed. {again}"),
            (not read, "Read and tick what is and what is not protected first."),
            (unsigned, "The name of the person who signs is missing or too long."),
            (
                audit["failures"] and not accepted,
                f"The comparison with earlier releases found something. {again}",
            ),
            (
                audit["not_compared"] and not accepted,
                f"Not everything could be compared with earlier ones. {again}",
            ),
        ):
            if is_wrong:
                raise ParameterError(problem)
        differing = accepted and bool(audit["failures"])
        request, out = (
            self._complete(accepted=differing),
            self.room / "releases" / secrets.token_hex(8),
        )
        task = self.task()

        def then(_: Job) -> None:
            title = (
                page.about_of(request).get("title")
                or f"Release {sum(r['own'] for r in self.releases) + 1}"
            )
            release = {
                "id": out.name,
                "title": title,
                "folder": str(out),
                "own": True,
                "task": task,
            }
            release |= {
                "noisy": not page.thresholds_of(request),
                "slice_columns": page.slice_columns(request),
            }
            release |= {"command": command_line(request), "python": page.python_code(request)}
            self.releases.append({**release, "recipe": recipe_text(request, version=__version__)})

        compared = {
            name: audit[name]
            for name in ("compared", "not_compared", "failures", "ledger")
            if name in audit
        }
        more = {"out": str(out), "accepted": differing, "signer": signer.strip(), "audit": compared}
        return self.jobs.start(
            "publish", {**task, **more}, request=dict(self.choices), then=then, leftover=(out,)
        )

    def _checked(self) -> Any:
        """Returns the result of the last check; ParameterError if it was of other choices."""
        done = [job for job in self.jobs if job.kind == "check" and job.state == DONE]
        if not done or cell_choices(done[-1].request) != cell_choices(self.choices):
            raise ParameterError("These choices were not checked yet. Hint: sign off first.")
        return json.loads(done[-1].result.read_text(encoding="utf-8"))

    def follow_up(self, kind: str, id_: Any, content: Any) -> Job:
        """Starts a job on a published release: its analysis, its DPIA text, or a table derived from
        it.
        """
        release = self.release(id_)
        task = {
            **release["task"],
            "release": release["folder"],
            "derive": content if kind == "derive" else {},
        }
        return self.jobs.start(kind, task, request={"release": release["id"]})

    def release(self, id_: Any, *, own: bool = True) -> dict[str, Any]:
        """Returns a release of this session, or an uploaded one; RefusedError if it is unknown."""
        for release in self.releases:
            if release["id"] == id_ and release["own"] == own:
                return release
        raise RefusedError(404, "This release is unknown.")
