"""The folder of a study: one file for each result as soon as it is there, and a note of what the results are of."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

from flowveil.analysis.runs import FAILED, TIMED_OUT
from flowveil.errors import OutputError
from flowveil.output import real_place, try_place, write_files
from flowveil.paths import named_path
from flowveil.private_files import refuse_inside_release

MARKER = "study.json"
RUNS = "runs"
FORMAT = "flowveil study"


def check_folder(directory: str | PathLike[str]) -> None:
    """Refuse a folder that cannot be written, before anything is read; folders above it may be missing.

    Raises:
        OutputError: it is a file, its name cannot be, what is above it is not writable, or it lies inside a release.
    """
    target = real_place(directory)
    refuse_inside_release(directory)
    if target.exists() and not target.is_dir():
        raise OutputError(f"'{directory}' is a file; a folder is needed. Hint: name a new folder.")
    there = next(place for place in (target, *target.parents) if place.is_dir())
    try_place(there / MARKER)


def open_folder(directory: str | PathLike[str], studied: str) -> Path:
    """The folder, ready for results of these data; an earlier study of the same data is continued.

    Raises:
        OutputError: it cannot be written, or holds something else.
    """
    folder = named_path(directory, what="the study")
    check_folder(folder)
    marker, note = folder / MARKER, {"format": FORMAT, "input": studied, "use": "not for publication"}
    try:
        if folder.exists() and any(folder.iterdir()):
            if not marker.exists():
                raise OutputError(f"'{directory}' is not empty and holds no study. Hint: name a new folder.")
            found = _marked(marker)
            if found != note:
                raise OutputError(
                    f"'{directory}' holds a study of other data: of other trips, segments or zones. Nothing was "
                    "written. Hint: name a new folder."
                )
        else:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            store(marker, note)
        (folder / RUNS).mkdir(exist_ok=True)
    except OutputError:
        raise
    except OSError as problem:
        raise OutputError(f"'{directory}' cannot be written: {problem.strerror}.") from problem
    return folder


def _marked(marker: Path) -> Any:
    try:
        return json.loads(marker.read_text(encoding="utf-8"))
    except ValueError:
        return None


def is_done(path: Path, time_limit: float) -> bool:
    """Whether there is a result; a run that was stopped after a shorter time is tried again."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return bool(found["status"] not in (TIMED_OUT, FAILED) or found.get("limit", 0) >= time_limit)
    except (OSError, ValueError, KeyError):
        return False


def store(path: Path, outcome: dict[str, Any]) -> None:
    """Write a result."""
    write_files({path: json.dumps(outcome, sort_keys=True)}, private=True)
