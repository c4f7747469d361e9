"""The files of a ledger: chained lines, a key, and the head of the chain. All have mode 0600.

Each line of ``ledger.jsonl`` carries an HMAC over itself and the chain before it; ``head.json``
holds the length and the end of the chain, with an HMAC. So changed, removed, moved and missing
lines are noticed.
An older copy of the whole folder is not, so `write_backup` marks its copy, and a restored one is
refused until the operator acknowledges it. After a crash the chain may be one line longer than the
head says, which is accepted, and an incomplete last line is removed.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import secrets
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any

from flowveil.core.errors import OutputError
from flowveil.system.output import real_place, refuse_inside_release, sync_folder

try:
    import fcntl
except ImportError:  # Windows: nothing can be locked.
    fcntl = None  # type: ignore[assignment]

LEDGER, SECRET, HEAD = "ledger.jsonl", "secret", "head.json"
FORMAT = "flowveil ledger"
_SECRET_BYTES = 32
_CHAIN, _HMAC = "chain", "hmac"


@dataclass
class LedgerFile:
    """A locked ledger."""

    place: Path  # its folder
    file: IO[bytes]  # open for reading and writing, at its end
    entries: list[dict[str, Any]]  # lines without their chain, the oldest first
    secret: bytes  # key of all hashes
    chain: str  # end of the chain

    def append(self, entry: Mapping[str, Any]) -> None:
        """Writes a line and makes it durable."""
        line = {"format": FORMAT, **entry}
        chain = _next_chain(self.secret, self.chain, _text(line))
        self.file.write(_text({**line, _CHAIN: chain}) + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        self.entries.append(line)
        self.chain = chain
        self.write_head()

    def write_head(self) -> None:
        """Records the length and the end of the chain, atomically."""
        new = self.place / f"{HEAD}.new"
        new.unlink(missing_ok=True)
        _create_private(new, self._head())
        os.replace(new, self.place / HEAD)
        sync_folder(self.place)

    def _head(self, **more: Any) -> bytes:
        head = {"entries": len(self.entries), _CHAIN: self.chain, **more}
        return _text({**head, _HMAC: _head_hmac(self.secret, head)})

    def keyed_hash(self, *parts: str) -> str:
        """Returns an HMAC of some texts: without the key, no guess can be tested."""
        return hmac.new(self.secret, "\0".join(parts).encode(), hashlib.sha256).hexdigest()

    def write_backup(self, path: Path) -> None:
        """Writes a tar file of the ledger, whose head is marked as a copy.

        OutputError if it exists.
        """
        lines, head = (self.place / LEDGER).read_bytes(), self._head(backup=True)
        files = {LEDGER: lines, SECRET: self.secret, HEAD: head}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o600
                archive.addfile(member, io.BytesIO(content))
        try:
            _create_private(path, buffer.getvalue())
        except OSError as problem:
            raise OutputError(
                f"The backup '{path}' cannot be written: {problem.strerror}."
            ) from None


@contextmanager
def open_ledger(
    directory: str | PathLike[str], *, create: bool = True, accept_restored: bool = False
) -> Iterator[LedgerFile]:
    """Opens a ledger, locked until the block ends.

    OutputError if it cannot be read or locked, or was changed.

    ``create`` makes one if it is missing, ``accept_restored`` acknowledges that it was restored
    from a backup.
    """
    place = real_place(directory)
    if fcntl is None:
        raise OutputError(
            "A ledger cannot be locked on this system. Hint: leave --ledger out and audit by hand."
        )
    if not create and not (place / LEDGER).is_file():
        raise OutputError(
            f"'{directory}' holds no ledger. Hint: name the folder that --ledger was given."
        )
    if create:
        refuse_inside_release(directory)
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(place / LEDGER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
    except OSError as problem:
        raise OutputError(
            f"The ledger '{directory}' cannot be opened: {problem.strerror}."
        ) from None
    with open(descriptor, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield _checked(place, file, accept_restored=accept_restored)


def _checked(place: Path, file: IO[bytes], *, accept_restored: bool) -> LedgerFile:
    """Reads all lines and compares them with the chain and its head."""
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if not content and not any((place / name).exists() for name in (SECRET, HEAD)):
        _create_private(place / SECRET, secrets.token_bytes(_SECRET_BYTES))
        LedgerFile(place, file, [], _read_secret(place), "").write_head()
    secret = _read_secret(place)
    head = _read_head(place, secret)
    if head.get("backup") and not accept_restored:
        raise OutputError(
            f"This ledger was restored from a backup with {head['entries']:,} lines. Releases"
            " published after the backup are not in it, and new ones would not be checked against"
            " them. Hint: if none was published, run `flowveil ledger DIR --accept-restored`; else"
            " publish none of these trips with it."
        )
    entries, chains = _read_chain(whole.splitlines(), secret)
    # A crash may come between a line and its head.
    if (
        not head["entries"] <= len(entries) <= head["entries"] + 1
        or chains[head["entries"]] != head[_CHAIN]
    ):
        raise _broken(
            f"it has {len(entries):,} lines, and its head records {head['entries']:,} or other ones"
        )
    file.truncate(len(whole))
    file.seek(len(whole))
    ledger = LedgerFile(place, file, entries, secret, chains[-1])
    if head.get("backup") or len(entries) != head["entries"]:
        ledger.write_head()
    return ledger


def _read_chain(lines: list[bytes], secret: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the entries, and the chain before each and at the end."""
    entries, chains = list[dict[str, Any]](), [""]
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if entry["format"] != FORMAT:
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _broken(f"line {number} does not belong there") from None
        stored = entry.pop(_CHAIN, None)
        chain = _next_chain(secret, chains[-1], _text(entry))
        if not (isinstance(stored, str) and _is_same(stored, chain)):
            raise _broken(f"line {number} was changed or moved, or follows a removed one")
        entries.append(entry)
        chains.append(chain)
    return entries, chains


def _next_chain(secret: bytes, chain: str, line: bytes) -> str:
    return hmac.new(secret, chain.encode() + b"\0" + line, hashlib.sha256).hexdigest()


def _head_hmac(secret: bytes, head: Mapping[str, Any]) -> str:
    return hmac.new(secret, b"head\0" + _text(head), hashlib.sha256).hexdigest()


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _text(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, sort_keys=True, ensure_ascii=False).encode()


def _broken(what: str) -> OutputError:
    return OutputError(
        f"The ledger is not as it was written: {what}. Nothing can be checked against it. Hint: put"
        " back its last copy, made with `flowveil ledger DIR --backup FILE`."
    )


def _read_head(place: Path, secret: bytes) -> dict[str, Any]:
    try:
        head = json.loads((place / HEAD).read_bytes())
        stored = head.pop(_HMAC)
        if not _is_same(stored, _head_hmac(secret, head)):
            raise ValueError
    except FileNotFoundError:
        raise _broken(f"{HEAD} is missing") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _broken(f"{HEAD} cannot be read, or was changed") from None
    return dict(head)


def _read_secret(place: Path) -> bytes:
    """Returns the key of a ledger."""
    try:
        secret = (place / SECRET).read_bytes()
    except OSError as problem:
        raise OutputError(
            f"The key of the ledger ('{SECRET}') cannot be read: {problem.strerror}."
        ) from None
    if len(secret) != _SECRET_BYTES:
        raise _broken(f"the key '{SECRET}' is incomplete")
    return secret


def _create_private(path: Path, content: bytes) -> None:
    """Writes a new file that its owner alone can read, and makes it durable."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
