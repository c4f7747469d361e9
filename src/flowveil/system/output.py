"""Atomic output: places are tested before anything is computed, and results replace them completely
or not at all.

Results are written into a hidden, locked folder next to their place and renamed
(docs/decisions/0001-one-boundary.md). The next run removes unlocked drafts of killed processes,
and restores an earlier result that was moved aside. A draft contains that name and the inode number
of the folder, so copies from archives or synchronised disks are not touched.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path

from flowveil.core.errors import OutputError
from flowveil.system.paths import read_json

try:
    import fcntl
except ImportError:  # Windows has no locks, so no draft is considered stale.
    fcntl = None  # type: ignore[assignment]

Place = str | PathLike[str]
#: A text, or a function that writes a file to a path.
Content = str | Callable[[Path], object]

#: The `format` entry of a release's manifest.json; a folder without it is never overwritten.
RELEASE_FORMAT = "flowveil release"
#: Folders that DuckDB spills to start with this.
SPILL = "flowveil-raw-trips-"
_ROOM = re.compile(r"\.flowveil-draft-[0-9a-f]{16}")
#: Entries of a hidden folder: the result, the earlier content of its place, and a withdrawn result.
_NEW, _OLD, _BACK = "new", "old", "back"
#: The note that marks a hidden folder as a draft, and its largest size.
_NOTE, _NOTE_BYTES = "draft.json", 1 << 14
#: Hidden folders of this process with their target, registered before they are created. An
#: interrupt can come between any two steps; remains are removed when Python exits.
_ROOMS: dict[Path, tuple[int, Path]] = {}


# ---- places --------------------------------------------------------------------------------------


def real_place(path: Place) -> Path:
    """Returns the place that a path names, links followed."""
    text = os.fspath(path)
    shown = ascii(text if len(text) <= 80 else text[:77] + "...")
    if not text:
        raise OutputError("The output has no name. Hint: name a file or folder.")
    try:
        # Libraries take names as UTF-8.
        text.encode("utf-8")
        target = Path(os.path.realpath(text))
        os.lstat(target)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise OutputError(
            f"{shown} cannot be written: a part of its path is a file. Hint: name another."
        ) from None
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise OutputError(
            f"{shown} cannot be written: {reason}. Hint: choose another, shorter name."
        ) from None
    except ValueError:
        raise OutputError(
            f"{shown} cannot be written: the name has a sign that no name can have. Hint: use plain"
            " text."
        ) from None
    return target


def try_place(path: Place) -> Path:
    """Tests whether a place is writable, by creating and removing a draft.

    Existing content is not touched.
    """
    target = real_place(path)
    parent = next(place for place in target.parents if os.path.lexists(place))
    if parent != target.parent:
        # Missing parents are made when the result is written; here it is only checked that they can
        # be.
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise OutputError(f"'{path}' cannot be written: '{parent}' is not a writable folder.")
        return target
    try:
        with Draft(path):
            return target
    except OSError as problem:
        raise OutputError(
            f"The parent of '{path}' is not writable"
            f" ({problem.strerror or type(problem).__name__}); results are prepared there and then"
            " renamed. Hint: choose another place or ask for the rights."
        ) from None


def check_file(path: Place) -> Path:
    """Refuse a place where no file can be written, before anything is computed.

    Return it with links followed.
    """
    target = real_place(path)
    if target.is_dir():
        raise OutputError(f"'{path}' is a folder; a file is needed. Hint: name a file in it.")
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        raise OutputError(
            f"'{path}' is not a regular file, and would be replaced by one. Hint: name another"
            " file."
        )
    return try_place(path)


def place_for_folder(path: Place) -> Path:
    """Returns the place of a folder, links followed; refuses that of a file."""
    target = real_place(path)
    if target.exists() and not target.is_dir():
        raise OutputError(f"'{path}' is a file; a folder is needed. Hint: name a new folder.")
    return target


def check_private_folder(path: Place, what: str, is_one: Callable[[set[str]], bool]) -> None:
    """Refuses a place inside a release, and a folder that cannot be written or holds something else
    than ``what``.

    ``is_one`` recognises an earlier result, which may be replaced, by the names of its files.
    """
    refuse_inside_release(path)
    target = place_for_folder(path)
    names = set(os.listdir(target)) if target.is_dir() else set()
    if names and not is_one(names):
        raise OutputError(
            f"'{path}' holds something else than {what}. Nothing was changed. Hint: name a new"
            " folder."
        )
    try_place(path)


def write_files(files: Mapping[Place, Content], *, private: bool = False) -> None:
    """Writes files atomically together: after an error nothing has changed.

    Only their owner may read private ones.
    """
    with explained(*files), ExitStack() as stack:
        drafts = [stack.enter_context(Draft(check_file(path))) for path in files]
        for draft, content in zip(drafts, files.values(), strict=True):
            _write(draft.new, content)
            if private:
                os.chmod(draft.new, 0o600)
        for draft in drafts:
            draft.take_place()


def write_folder(path: Place, files: Mapping[str, Content]) -> None:
    """Writes a folder of files atomically, replacing an existing one."""
    with explained(path), Draft(path) as draft:
        os.mkdir(draft.new)
        for name, content in files.items():
            _write(draft.new / name, content)
        sync_folder(draft.new)
        draft.take_place()


def _write(path: Path, content: Content) -> None:
    """Writes a file and syncs it to disk."""
    if isinstance(content, str):
        path.write_bytes(content.encode("utf-8"))
    else:
        content(path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def explained(*paths: Place) -> Iterator[None]:
    """Converts OSError into OutputError with the paths and the reason."""
    try:
        yield
    except OutputError:
        raise
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        named = ", ".join(f"'{path}'" for path in paths)
        raise OutputError(
            f"{named} cannot be written: {reason}. What was there is untouched. "
            "Hint: check the free space and the rights of the folder."
        ) from problem


# ---- drafts --------------------------------------------------------------------------------------


class Draft:
    """A file or folder before it takes its place; a context manager that leaves no draft behind.

    ``new`` is the path for the result, initially missing; ``target`` the place, links followed. An
    exception in the context reverts what has taken its place.
    """

    def __init__(self, path: Place) -> None:
        self.target = real_place(path)

    def __enter__(self) -> Draft:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        remove_stale_drafts(self.target.parent)
        self._room, self._lock = _locked_room(self.target)
        self.new = self._room / _NEW
        self._old = self._room / _OLD / self.target.name
        self._taking = False
        return self

    def take_place(self) -> None:
        """Moves the result to the target and the earlier content aside.

        After an error, the target is unchanged.
        """
        os.mkdir(self._old.parent)
        if self.target.is_dir():
            os.rename(self.target, self._old)
        elif self.target.exists():
            # A second name, so that the place is never empty; moved if links are not supported.
            try:
                os.link(self.target, self._old)
            except OSError:
                os.rename(self.target, self._old)
        self._taking = True
        os.rename(self.new, self.target)
        sync_folder(self.target.parent)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None and self._taking and not os.path.lexists(self.new):
                os.rename(self.target, self._room / _BACK)
            _put_back(self._room, self.target.name)
        finally:
            _remove_room(self._room, self.target)
            if self._lock is not None:
                os.close(self._lock)


@atexit.register
def remove_own_drafts() -> None:
    """Removes drafts of this process after an interrupt.

    Content moved aside is restored to an empty place.
    """
    for room, (process, target) in list(_ROOMS.items()):
        # A forked process has the list of its parent.
        if process == os.getpid():
            with suppress(OSError):
                _put_back(room, target.name)
                _remove_room(room, target)


def remove_stale_drafts(folder: Path) -> None:
    """Removes drafts of killed processes.

    An earlier result that was moved aside is restored under its noted name.
    """
    for room in _stale_folders(folder, lambda name: bool(_ROOM.fullmatch(name))):
        with suppress(OSError):
            name = _noted_name(room)
            if name is None:
                _remove_empty(room)
            else:
                _put_back(room, name)
                _remove(room)


def _stale_folders(parent: Path, is_ours: Callable[[str], bool]) -> Iterator[Path]:
    """Yields, locked in turn, folders of this user that no living process has locked.

    None without file locks.
    """
    try:
        folders = [parent / entry.name for entry in os.scandir(parent) if is_ours(entry.name)]
    except OSError:
        return
    for folder in folders:
        try:
            lock = lock_folder(folder)
        except OSError:
            continue
        if lock is not None:
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    yield folder
            finally:
                os.close(lock)


def sync_folder(folder: Path) -> None:
    """Syncs the names in a folder to disk, if the system supports it (not on Windows)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _put_back(room: Path, name: str) -> None:
    """Restores what was moved aside, if its place is empty."""
    aside = room / _OLD / name
    if os.path.lexists(aside) and not os.path.lexists(room.parent / name):
        os.rename(aside, room.parent / name)


def _remove(room: Path) -> None:
    """Removes a hidden folder, its note last, so that an interrupted removal still leaves a
    draft.
    """
    for name in (_NEW, _OLD, _BACK):
        inside = room / name
        shutil.rmtree(inside, ignore_errors=True)
        with suppress(OSError):
            inside.unlink(missing_ok=True)
    shutil.rmtree(room, ignore_errors=True)


def _remove_empty(room: Path) -> None:
    """Removes a hidden folder whose process was killed before its note was written, or after it was
    removed.
    """
    note = room / _NOTE
    if os.path.lexists(note) and os.lstat(note).st_size == 0 and os.listdir(room) == [_NOTE]:
        note.unlink()
    os.rmdir(room)


def _remove_room(room: Path, target: Path) -> None:
    """Removes a hidden folder of this process, unless it has content to restore to an empty
    place.
    """
    if os.path.lexists(target) or not os.path.lexists(room / _OLD / target.name):
        _remove(room)
        _ROOMS.pop(room, None)


def _noted_name(room: Path) -> str | None:
    """Returns the target name of a hidden folder.

    None for a folder that flowveil did not create.
    """
    try:
        entries, old = set(os.listdir(room)), room / _OLD
        if not entries <= {_NEW, _OLD, _BACK, _NOTE} or not stat.S_ISREG(
            os.lstat(room / _NOTE).st_mode
        ):
            return None
        with open(room / _NOTE, "rb") as file:
            noted = json.loads(file.read(_NOTE_BYTES))
        name, folder = noted["target"], noted["folder"]
        moved = set(os.listdir(old)) if _OLD in entries and not old.is_symlink() else set()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    plain = isinstance(name, str) and name not in ("", ".", "..") and name == os.path.basename(name)
    ours = plain and folder == os.lstat(room).st_ino and not old.is_symlink() and moved <= {name}
    return name if ours else None


def _locked_room(target: Path) -> tuple[Path, int | None]:
    """Returns a new hidden folder, readable by its owner only, and its lock.

    None if the system has no locks.
    """
    while True:
        room = target.parent / f".flowveil-draft-{secrets.token_hex(8)}"
        _ROOMS[room] = os.getpid(), target
        lock = None
        try:
            created, lock = _create_locked(room)
            if created:
                note = {"target": target.name, "folder": os.lstat(room).st_ino}
                (room / _NOTE).write_text(json.dumps(note), encoding="ascii")
                return room, lock
        except BaseException:
            _remove_room(room, target)
            if lock is not None:
                os.close(lock)
            raise
        _ROOMS.pop(room, None)


def _create_locked(folder: Path) -> tuple[bool, int | None]:
    """Creates a folder with mode 0700 and its lock.

    False if another process took it for stale before it was locked.
    """
    os.mkdir(folder, 0o700)
    try:
        lock = lock_folder(folder)
    except OSError as problem:
        # Other errors mean that folders cannot be locked here.
        return not isinstance(problem, BlockingIOError), None
    return lock is not None or fcntl is None, lock


def lock_folder(room: Path) -> int | None:
    """Locks a folder; None if it is missing or there are no locks.

    BlockingIOError: a living process has locked it.
    """
    if fcntl is None:
        return None
    with ExitStack() as stack, suppress(FileNotFoundError):
        handle = os.open(room, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        stack.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have removed it between opening and locking.
        if os.path.samestat(os.fstat(handle), os.lstat(room)):
            stack.pop_all()
            return handle
    return None


def check_place(path: Place, *, release: Place | None = None) -> None:
    """Refuse a file that cannot be written, or that lies inside a release.

    Nothing is computed or written.
    """
    refuse_inside_release(path, release=release)
    check_file(path)


def refuse_inside_release(path: Place, *, release: Place | None = None) -> None:
    """Refuses a place inside a release folder, or in one that is about to be written."""
    target = real_place(path)
    around = {Path(os.path.realpath(release))} if release is not None else set()
    if around & {target, *target.parents} or any(
        _is_release(folder) for folder in (target, *target.parents)
    ):
        raise OutputError(
            f"'{path}' lies inside a release, and private files are not for publication. Hint: name"
            " a place outside of it."
        )


def write_private(path: Place, document: str, *, folder: Place | None = None) -> Path:
    """Writes a document that only its owner may read, outside of all releases and of ``folder``."""
    check_place(path, release=folder)
    write_files(
        {path: lambda file: file.write_text(document, encoding="utf-8", newline="")}, private=True
    )
    return Path(path)


def make_private_folder(directory: Place, *, release: Place | None = None) -> Path:
    """Create a folder that only its owner may enter (mode 0700).

    An existing folder keeps its mode.
    """
    refuse_inside_release(directory, release=release)
    target = place_for_folder(directory)
    try:
        target.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"'{directory}' cannot be written: {problem.strerror}.") from problem
    return target


def write_private_files(folder: Path, files: Mapping[str, Content]) -> None:
    """Write files with mode 0600 into a folder made by `make_private_folder`."""
    write_files({folder / name: content for name, content in files.items()}, private=True)


def _is_release(folder: Path) -> bool:
    try:
        return bool(read_json(folder / "manifest.json")["format"] == RELEASE_FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


# ---- scratch folders -----------------------------------------------------------------------------


@contextmanager
def scratch_folder(prefix: str = SPILL, parent: str | Path | None = None) -> Iterator[Path]:
    """Creates a locked folder with mode 0700, removed at the end.

    First removes those left by killed processes.
    """
    system = Path(tempfile.gettempdir())
    place = system if parent is None else Path(parent)
    for folder in {place, system}:
        for dead in _stale_folders(folder, lambda name: name.startswith(prefix)):
            shutil.rmtree(dead, ignore_errors=True)
    created = False
    while not created:
        path = place / f"{prefix}{secrets.token_hex(8)}"
        created, lock = _create_locked(path)
    try:
        yield path
    finally:
        # Child processes that are about to end may still create a file.
        for _ in range(3):
            shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)
