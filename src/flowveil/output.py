"""Where results go: places are tried before anything is computed, and results take them whole or not at all.

Everything is written into a hidden folder beside its place first (``.flowveil-draft-`` and a random number). That is
the same file system, so taking the place is a rename. The hidden folder is locked as long as its process lives. What
a killed process leaves behind is not locked: the next run that writes beside it removes it, and puts the earlier
result back if the kill came between moving that aside and putting the new one there.

A folder that only looks like a draft, from an archive or a synchronised disk, is not touched. A draft has a note of the
one name that may be put back and of the number that the file system gave to the folder, which no copy has.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path
from types import TracebackType

from flowveil.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, so nothing is taken for left behind.
    fcntl = None  # type: ignore[assignment]

Place = str | PathLike[str]
#: A text, or what writes a file into the path it is given.
Content = str | Callable[[Path], object]

_ROOM = re.compile(r"\.flowveil-draft-[0-9a-f]{16}")
#: What a hidden folder may hold: the result, what stood in its place, and a result that was taken back.
_NEW, _OLD, _BACK = "new", "old", "back"
#: The note that makes a hidden folder a draft, and the most that is read of it.
_NOTE, _NOTE_BYTES = "draft.json", 1 << 14
#: Hidden folders of this process, each with the place it was made for: named here before they are made, and until they
#: are removed. An interrupt can come between any two steps of a context; what it leaves is removed when Python ends.
_ROOMS: dict[Path, tuple[int, Path]] = {}


# ---- places ------------------------------------------------------------------------------------------------------


def real_place(path: Place) -> Path:
    """The place that a path names, links followed.

    Raises:
        OutputError: nothing can have that name, or it lies below a file.
    """
    text = os.fspath(path)
    shown = ascii(text if len(text) <= 80 else text[:77] + "...")
    if not text:
        raise OutputError("The output has no name. Hint: name a file or folder.")
    try:
        # Libraries that read and write take names as UTF-8, whatever the system allows.
        text.encode("utf-8")
        target = Path(os.path.realpath(text))
        os.lstat(target)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise OutputError(f"{shown} cannot be written: a part of its path is a file. Hint: name another.") from None
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise OutputError(f"{shown} cannot be written: {reason}. Hint: choose another, shorter name.") from None
    except ValueError:
        raise OutputError(
            f"{shown} cannot be written: the name has a sign that no name can have. Hint: use plain text."
        ) from None
    return target


def try_place(path: Place) -> Path:
    """Try whether something could be written there: a draft is begun and removed, what is there is not touched.

    Raises:
        OutputError: the name cannot be, or nothing can be written into the parent, or the parent cannot be made.
    """
    target = real_place(path)
    parent = next(place for place in target.parents if os.path.lexists(place))
    if parent != target.parent:
        # Missing parents are made when the result is written; here it is only checked that they can be.
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise OutputError(f"'{path}' cannot be written: '{parent}' is no folder that can be written to.")
        return target
    try:
        with Draft(path):
            return target
    except OSError as problem:
        raise OutputError(
            f"The parent of '{path}' is not writable ({problem.strerror or type(problem).__name__}); results are "
            "prepared there and then renamed. Hint: choose another place or ask for the rights."
        ) from None


def check_file(path: Place) -> Path:
    """Refuse a place where no file can be written, before anything is computed; return it with links followed.

    Raises:
        OutputError: it is a folder or a device, its name cannot be, or its parent is not writable.
    """
    target = real_place(path)
    if target.is_dir():
        raise OutputError(f"'{path}' is a folder; a file is needed. Hint: name a file in it.")
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        raise OutputError(f"'{path}' is not a regular file, and would be replaced by one. Hint: name another file.")
    return try_place(path)


def check_folder(path: Place, *, refuse: Callable[[Path], str | None]) -> Path:
    """Refuse a place where no folder can be written, before anything is computed; return it with links followed.

    Args:
        path: the folder.
        refuse: says of a folder that is there why it may not be replaced, as the rest of a sentence, or None.

    Raises:
        OutputError: it is a file, it may not be replaced, its name cannot be, or its parent is not writable.
    """
    target = real_place(path)
    if target.exists() and not target.is_dir():
        raise OutputError(f"'{path}' is a file; a folder is needed. Hint: name a new folder.")
    reason = refuse(target) if target.is_dir() else None
    if reason is not None:
        raise OutputError(f"'{path}' {reason}. Nothing was changed. Hint: name a new folder.")
    return try_place(path)


def write_files(files: Mapping[Place, Content], *, private: bool = False) -> None:
    """Write files that take their places together: after an error all is what it was.

    Args:
        files: what goes into each file.
        private: only their owner may read them.

    Raises:
        OutputError: one cannot be written.
    """
    with explained(*files), ExitStack() as stack:
        drafts = [stack.enter_context(Draft(check_file(path))) for path in files]
        for draft, content in zip(drafts, files.values(), strict=True):
            draft.write_file(content, private=private)
        for draft in drafts:
            draft.take_place()


def write_folder(path: Place, files: Mapping[str, Content]) -> None:
    """Write a folder of files that takes its place whole; what was there is replaced.

    Raises:
        OutputError: it cannot be written; what was there is untouched.
    """
    with explained(path), Draft(path) as draft:
        os.mkdir(draft.new)
        for name, content in files.items():
            _write(draft.new / name, content)
        sync_folder(draft.new)
        draft.take_place()


def _write(path: Path, content: Content) -> None:
    """Write a file and make it durable."""
    if isinstance(content, str):
        path.write_bytes(content.encode("utf-8"))
    else:
        content(path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def explained(*paths: Place) -> Iterator[None]:
    """Say which places could not be written, and why."""
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


# ---- drafts ------------------------------------------------------------------------------------------------------


class Draft:
    """A file or folder on its way to its place; a context, at the end of which nothing of the draft is left.

    Leaving the context with an exception takes back what has taken its place.

    Attributes:
        target: the place, links followed.
        new: where the result is to be written; nothing is there at first.
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

    def write_file(self, content: Content, *, private: bool = False) -> None:
        """Write the result as a file and make it durable."""
        _write(self.new, content)
        if private:
            os.chmod(self.new, 0o600)

    def take_place(self) -> None:
        """Put the result where the target is, and what was there aside. If that fails, the target is what it was."""
        os.mkdir(self._old.parent)
        if self.target.is_dir():
            os.rename(self.target, self._old)
        elif self.target.exists():
            _keep(self.target, self._old)
        self._taking = True
        os.rename(self.new, self.target)
        sync_folder(self.target.parent)

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    """Remove what an interrupt left of this process's drafts; what was moved aside comes back to an empty place."""
    for room, (process, target) in list(_ROOMS.items()):
        # A process that was forked has the list of its parent, and nothing to tidy up there.
        if process == os.getpid():
            with suppress(OSError):
                _put_back(room, target.name)
                _remove_room(room, target)


def remove_stale_drafts(folder: Path) -> None:
    """Remove what killed processes left in a folder; drafts of living ones, of others and other things stay.

    An earlier result that had been moved aside comes back, under the name that its draft was begun for and no other.
    """
    try:
        rooms = [folder / entry.name for entry in os.scandir(folder) if _ROOM.fullmatch(entry.name)]
    except OSError:
        return
    for room in rooms:
        try:
            lock = lock_folder(room)
            if lock is None:
                continue
        except OSError:
            continue
        try:
            name = _noted_name(room) if os.fstat(lock).st_uid == os.geteuid() else None
            if name is not None:
                _put_back(room, name)
                _remove(room)
        except OSError:
            continue
        finally:
            os.close(lock)


def sync_folder(folder: Path) -> None:
    """Make names durable, where the system can: a folder cannot be opened on Windows."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)


def _keep(target: Path, aside: Path) -> None:
    """Keep a file under a second name, so that its place is never empty; move it where there are no second names."""
    try:
        os.link(target, aside)
    except OSError:
        os.rename(target, aside)


def _put_back(room: Path, name: str) -> None:
    """Put back what was moved aside, where its place is empty."""
    aside = room / _OLD / name
    if os.path.lexists(aside) and not os.path.lexists(room.parent / name):
        os.rename(aside, room.parent / name)


def _remove(room: Path) -> None:
    """Remove a hidden folder, its note last: what is left of one whose removal is cut short is still a draft."""
    for name in (_NEW, _OLD, _BACK):
        inside = room / name
        shutil.rmtree(inside, ignore_errors=True)
        with suppress(OSError):
            inside.unlink(missing_ok=True)
    shutil.rmtree(room, ignore_errors=True)


def _remove_room(room: Path, target: Path) -> None:
    """Remove a hidden folder of this process, unless it holds what has to go back to a place that is empty."""
    if os.path.lexists(target) or not os.path.lexists(room / _OLD / target.name):
        _remove(room)
        _ROOMS.pop(room, None)


def _note(room: Path, target: Path) -> None:
    """Note in a hidden folder for which name it was made, and the number of the folder in its file system."""
    (room / _NOTE).write_text(json.dumps({"target": target.name, "folder": os.lstat(room).st_ino}), encoding="ascii")


def _noted_name(room: Path) -> str | None:
    """The name that a hidden folder was made for; None for a folder that no run of ours is known to have made."""
    try:
        entries, old = set(os.listdir(room)), room / _OLD
        if not entries <= {_NEW, _OLD, _BACK, _NOTE} or not stat.S_ISREG(os.lstat(room / _NOTE).st_mode):
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
    """A new hidden folder that only its owner may read, and its lock; None where the system has no locks."""
    while True:
        room = target.parent / f".flowveil-draft-{secrets.token_hex(8)}"
        _ROOMS[room] = os.getpid(), target
        try:
            os.mkdir(room, 0o700)
            _note(room, target)
        except BaseException:
            _remove_room(room, target)
            raise
        try:
            lock = lock_folder(room)
        except BlockingIOError:
            # Somebody who tidies up was faster than our lock, and has removed it.
            _ROOMS.pop(room, None)
            continue
        except OSError:
            return room, None
        if lock is not None or fcntl is None:
            return room, lock
        _ROOMS.pop(room, None)


def lock_folder(room: Path) -> int | None:
    """Lock a hidden folder; None where it has gone, or the system has no locks.

    Raises:
        BlockingIOError: a living process has locked it.
        OSError: folders cannot be locked here.
    """
    if fcntl is None:
        return None
    try:
        handle = os.open(room, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = os.fstat(handle)
        # Between opening and locking it may have been removed by another who tidies up.
        there = os.lstat(room)
        if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
            return handle
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None
