"""Files that only the operator may read: where they may be written, and with which permissions.

They hold raw counts. So they are refused inside every release folder, and created with mode 0600.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from flowveil.errors import OutputError
from flowveil.output import Content, check_file, real_place, write_files
from flowveil.paths import read_json

#: The `format` entry of a release's manifest.json.
_RELEASE_FORMAT = "flowveil release"


def check_place(path: str | PathLike[str], *, release: str | PathLike[str] | None = None) -> None:
    """Refuse a file that cannot be written, or that lies inside a release. Nothing is computed or written.

    Raises:
        OutputError: it cannot be written, or it lies inside a release.
    """
    refuse_inside_release(path, release=release)
    check_file(path)


def refuse_inside_release(path: str | PathLike[str], *, release: str | PathLike[str] | None = None) -> None:
    """Refuse a place inside a release folder.

    Args:
        path: a file or folder.
        release: a folder in which a release is about to be written.

    Raises:
        OutputError: it lies there.
    """
    target = real_place(path)
    around = {Path(os.path.realpath(release))} if release is not None else set()
    if around & {target, *target.parents} or any(_is_release(folder) for folder in (target, *target.parents)):
        raise OutputError(
            f"'{path}' lies inside a release, and private files are not for publication. Hint: name a place outside "
            "of it."
        )


def write_private(path: str | PathLike[str], document: str, *, folder: str | PathLike[str] | None = None) -> Path:
    """Write a document that only its owner may read.

    Args:
        path: the file.
        document: its text.
        folder: a release folder in which it must not lie, besides those that exist.

    Raises:
        OutputError: the file would lie inside a release, or cannot be written.
    """
    check_place(path, release=folder)
    write_files({path: lambda file: file.write_text(document, encoding="utf-8", newline="")}, private=True)
    return Path(path)


def make_private_folder(directory: str | PathLike[str], *, release: str | PathLike[str] | None = None) -> Path:
    """Create a folder that only its owner may enter (mode 0700). An existing folder keeps its mode.

    Raises:
        OutputError: it is a file, lies inside a release, or cannot be created.
    """
    refuse_inside_release(directory, release=release)
    target = real_place(directory)
    if target.exists() and not target.is_dir():
        raise OutputError(f"'{directory}' is a file; a folder is needed. Hint: name a new folder.")
    try:
        target.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"'{directory}' cannot be written: {problem.strerror}.") from problem
    return target


def write_private_files(folder: Path, files: Mapping[str, Content]) -> None:
    """Write files with mode 0600 into a folder made by `make_private_folder`.

    Raises:
        OutputError: one cannot be written.
    """
    write_files({folder / name: content for name, content in files.items()}, private=True)


def _is_release(folder: Path) -> bool:
    try:
        content = read_json(folder / "manifest.json")
        return bool(content["format"] == _RELEASE_FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False
