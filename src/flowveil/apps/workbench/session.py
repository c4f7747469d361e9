"""The state of the workbench: files, choices, jobs and releases.

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
from flowveil.apps.workbench.choices import (
    NO_TRIPS,
    cell_choices,
    choices_in_recipe,
    choices_of,
    page_request,
    stamp_of,
)
from flowveil.apps.workbench.guard import RefusedError
from flowveil.apps.workbench.jobs import DONE, Job, Jobs, remove
from flowveil.core.errors import ParameterError
from flowveil.request.database_address import database_address
from flowveil.request.recipe import recipe_text
from flowveil.request.request import Request, command_line

#: Endings of the names of files, by their role.
ENDINGS: dict[str, tuple[str, ...]] = {
    "trips": (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".parquet", ".omx"),
    "zones": (".csv", ".parquet", ".geojson", ".json", ".gpkg"),
    "release": (".zip",),
    "recipe": (".toml",),
    "ledger": (),  # folders
}
#: Roles of files that a page may send.
UPLOADED = ("trips", "zones", "release")
#: Upper bound for the listed entries of a folder.
MOST_LISTED = 500
#: Choices for new trips.
_FIRST: dict[str, Any] = {"k": 10}
#: Shortest time between two messages to a page, and time after which an idle one gets a comment, in
#: seconds.
_PACE, _QUIET = 0.1, 15.0
#: Upper bound for the characters of a signer's name.
_LONGEST_SIGNER = 120
#: Upper bound for pages that listen.
MOST_LISTENERS = 24
#: Questions that a file may ask.
_QUESTIONS = {"person": "Who travelled?", "row": "What is one row?"}
#: Upper bound for the characters of the address of a table.
_LONGEST_ADDRESS = 300
#: What was ticked and who signs, before a release is published; and upper bounds for it.
_UNSIGNED: dict[str, Any] = {"ticks": [], "accepted": False, "signer": ""}
_MOST_TICKS, _LONGEST_TICK = 100, 2_000
#: Parts of a release that pages do not get.
_HIDDEN = ("folder", "task", "recipe", "choices")
#: Jobs that a page may start by name with the choices of the session.
STARTED = ("inspect", "read", "describe", "run", "errors", "check")


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
    """An input file, or a table of a database, and its name on the page."""

    path: Path | str  # a text is the address of a table in a database
    name: str
    kept: bool  # whether it is outside the private folder and outlives the session
    stamp: list[Any] = field(init=False)  # see `stamp_of`

    def __post_init__(self) -> None:
        object.__setattr__(self, "stamp", stamp_of(str(self.path)))

    def remove(self) -> None:
        """Removes the file if it is in the private folder."""
        if not self.kept:
            Path(self.path).unlink(missing_ok=True)


@dataclass(eq=False)
class Session:
    """Everything that pages show."""

    room: Path  # the private folder
    root: Path  # the folder that the server was started in
    max_upload: int = 2 * 10**9  # upper bound for the bytes of one file
    ledger: Path | None = None  # folder of the ledger
    files: dict[str, SessionFile] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=lambda: dict(_FIRST))
    signing: dict[str, Any] = field(default_factory=lambda: dict(_UNSIGNED))
    releases: list[dict[str, Any]] = field(default_factory=list)
    #: Choices of an earlier release for the next trips, and their name.
    last_time: dict[str, Any] | None = None
    #: Questions that the trips ask, once they were inspected.
    asked: dict[str, bool] = field(default_factory=dict)
    #: Whether the trips have people and weights, once they were read.
    facts: dict[str, bool] = field(default_factory=dict)
    version: int = 0

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.room, self.changed)
        self._change = asyncio.Event()
        self._listeners = 0
        self._has_fixed_ledger = self.ledger is not None
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
            "endings": {role: ENDINGS[role] for role in ("trips", "zones")},
            "last_time": None if self.last_time is None else self.last_time["name"],
            "files": shown,
            "choices": self.choices,
            "unanswered": self.unanswered(),
            "defaults": page.defaults_of(page_request(self.choices)),
            "keys": page.keys_of(self.choices),
            "unavailable": page.unavailable(
                self.choices, facts=self.facts, mapped="zones" in self.files
            ),
            "jobs": [job.to_dict() for job in self.jobs],
            "signing": self.signing,
            "releases": [
                {n: v for n, v in one.items() if n not in _HIDDEN} for one in self.releases
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
            self.choices = dict(_FIRST if self.last_time is None else self.last_time["choices"])
        else:
            self.jobs.cancel_all()
            self.asked = {}
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

    def read_database(self, text: Any) -> None:
        """Sets a table of a database as the trips.

        RefusedError if its file is not below the folder that the server was started in.
        """
        address = database_address(text.strip()) if isinstance(text, str) else None
        if address is None or len(text) > _LONGEST_ADDRESS:
            raise ParameterError(
                "This is not the address of a table. Hint: duckdb:FILE?table=NAME,"
                " sqlite:FILE?table=NAME or postgresql://host/db?table=NAME."
            )
        if address.query is not None:
            raise ParameterError("A table has a name (?table=NAME) here, and no query.")
        source = address.moved(lambda place: str(below(self.root, place)))
        self.set_file("trips", SessionFile(source, address.text, kept=True))

    def use_ledger(self, asked: Any) -> None:
        """Sets the folder of the ledger, which may be new, or none.

        ParameterError if the server was started with one.
        """
        if self._has_fixed_ledger:
            raise ParameterError("The ledger was chosen when flowveil serve was started.")
        if asked is None:
            self.ledger = None
        elif isinstance(asked, str) and asked:
            folder, _, name = asked.rpartition("/")
            try:
                place = below(self.root, asked)
            except RefusedError as problem:
                if problem.status != 404 or not name.isprintable() or name in ("", "."):
                    raise
                place = below(self.root, folder) / name
            if place.exists() and not place.is_dir():
                raise ParameterError("A ledger is a folder.")
            self.ledger = place
        else:
            raise ParameterError("A ledger is a folder below that of the workbench.")
        self.changed()

    def remember(self, choices: Mapping[str, Any], name: str) -> None:
        """Keeps choices for the next trips: all but the period, which is another one."""
        kept = {one: value for one, value in choices.items() if one != "period"}
        self.last_time = {"name": name, "choices": kept}
        self.changed()

    def forget_last_time(self) -> None:
        """Removes the choices for the next trips."""
        self.last_time = None
        self.changed()

    def open_recipe(self, text: str, name: str) -> None:
        """Takes the choices of a recipe, for the trips that are there and for the next ones."""
        choices = choices_in_recipe(text)
        if "trips" in self.files:
            self.choose(choices)
        self.remember(choices, name)

    def unanswered(self) -> list[str]:
        """Returns the questions of the trips that are not answered: who travelled (``person``), and
        what a row is (``row``).
        """
        given = self.choices
        answered = {
            "person": "person" in given,
            "row": any(given.get(name) for name in ("trips", "weight", "row_is_trip")),
        }
        return [
            name
            for name, is_answered in answered.items()
            if self.asked.get(name) and not is_answered
        ]

    def _require_answers(self) -> None:
        for name in self.unanswered():
            raise ParameterError(f"The question ‘{_QUESTIONS[name]}’ is not answered yet.")

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
        self.signing, self.facts, self.asked = dict(_UNSIGNED), {}, {}
        # A process that is killed while it writes its result leaves the folder of a draft.
        remove((self.room / "jobs").iterdir())
        for pattern in ("flows-*", "draft-*"):
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

    def task(self, choices: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the task of a worker: files and choices; ParameterError if trips are missing."""
        self._require_trips()
        zones = self.files.get("zones")
        return {
            "room": str(self.room),
            "source": self.files["trips"].stamp,
            "zones": None if zones is None else zones.stamp,
            "upload_names": {
                Path(file.path).name: file.name for file in self.files.values() if not file.kept
            },
            "choices": dict(self.choices if choices is None else choices),
            "ledger": None if self.ledger is None else str(self.ledger),
        }

    def start(self, kind: str, content: Any = None) -> Job:
        """Starts a job with the choices of the session, or with others that a page only tries."""
        choices = self.choices if content is None else choices_of(content)
        task = self.task(choices)
        page_request(choices)
        if content is None and kind in ("run", "errors", "check"):
            self._require_answers()
        if kind == "check":
            task["releases"] = [(release["title"], release["folder"]) for release in self.releases]
            task["release_ids"] = [release["id"] for release in self.releases]
        then = {"read": self._note_facts, "inspect": self._note_questions}.get(kind)
        return self.jobs.start(
            kind, task, request=dict(choices), keys=page.keys_of(choices), then=then
        )

    def _note_questions(self, job: Job) -> None:
        """Keeps which questions the trips ask."""
        found = json.loads(job.result.read_text(encoding="utf-8"))
        self.asked = {"person": found["asks_person"], "row": bool(found["counts"])}

    def _note_facts(self, job: Job) -> None:
        """Keeps whether the trips have people and weights: units of others are not offered."""
        intake = json.loads(job.result.read_text(encoding="utf-8"))
        self.facts = {name: bool(intake[name]) for name in ("people", "weight")}

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

    def note_signing(self, content: Mapping[str, Any]) -> None:
        """Keeps what was ticked and who signs, so that a reload loses nothing."""
        ticks, accepted, signer = (content.get(name) for name in _UNSIGNED)
        if (
            not isinstance(ticks, list)
            or len(ticks) > _MOST_TICKS
            or not all(isinstance(one, str) and len(one) <= _LONGEST_TICK for one in ticks)
            or not isinstance(accepted, bool)
            or not isinstance(signer, str)
            or len(signer) > _LONGEST_SIGNER
        ):
            raise ParameterError("Ticks and the name of the signer must be texts.")
        self.signing = {"ticks": ticks, "accepted": accepted, "signer": signer}
        self.changed()

    def publish(self, *, read: bool, accepted: bool, signer: str) -> Job:
        """Starts the job that publishes the checked release.

        The signer confirms to have ``read`` what is and what is not protected, and has ``accepted``
        the findings of the comparison with earlier releases; ParameterError without these, or if
        the choices were not checked.
        """
        audit = self._checked()["audit"]
        ledger = None if self.ledger is None else str(self.ledger)
        has_changed = audit["release_ids"] != [release["id"] for release in self.releases]
        has_changed |= audit["ledger_folder"] != ledger
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

        def then(job: Job) -> None:
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
            sentence = json.loads(job.result.read_text(encoding="utf-8"))["sentence"]
            release |= {"sentence": sentence, "choices": task["choices"]}
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
