"""The secret key of a publisher: 256 bits in a file that only its owner may read."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from flowveil.core.errors import OutputError, ParameterError

_FORM = re.compile(rb"[0-9a-f]{64}\n?")
_LONGEST = 66
_HINT = "Hint: flowveil key FILE writes a new one."


@dataclass(frozen=True, eq=False, repr=False)
class SecretKey:
    """A secret key of 256 bits. Only its fingerprint is ever shown."""

    _secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the key and reveal nothing of it."""
        return hmac.digest(self._secret, b"flowveil: fingerprint of a key", "sha256").hex()[:16]

    def hasher(self) -> Any:
        """Returns a keyed BLAKE2b hash of 16 bytes."""
        return hashlib.blake2b(key=self._secret, digest_size=16)

    def __repr__(self) -> str:
        return f"<SecretKey {self.fingerprint}>"


def create_key(path: str | PathLike[str]) -> SecretKey:
    """Writes a new random key into a new file that only its owner may read.

    OutputError if the file exists.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise OutputError(
            f"'{path}' exists, and a key is never overwritten. Hint: name a new file."
        ) from None
    except OSError as problem:
        raise OutputError(f"'{path}' cannot be written: {problem.strerror}.") from None
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(f"{secrets.token_hex(32)}\n")
        stream.flush()
        os.fsync(stream.fileno())
    return read_key(path)


def read_key(path: str | PathLike[str]) -> SecretKey:
    """Reads a key file.

    ParameterError, which never quotes it, if it is missing, readable by others or malformed.
    """
    try:
        with open(path, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_LONGEST)
    except OSError as problem:
        raise ParameterError(
            f"The key file '{path}' cannot be read: {problem.strerror}. {_HINT}"
        ) from None
    if not stat.S_ISREG(mode):
        raise ParameterError(f"The key file '{path}' is not a plain file. {_HINT}")
    if os.name == "posix" and mode & 0o077:
        raise ParameterError(
            f"The key file '{path}' may be read by others (mode {stat.S_IMODE(mode):04o}). Hint:"
            " chmod 600 it; if others have read it, write a new one for the next release."
        )
    if not _FORM.fullmatch(content):
        raise ParameterError(f"The key file '{path}' does not have 64 hexadecimal digits. {_HINT}")
    if len(set(content.strip())) < 6:
        raise ParameterError(f"The key file '{path}' was not drawn at random. {_HINT}")
    return SecretKey(bytes.fromhex(content.decode("ascii").strip()))


def as_key(given: SecretKey | str | PathLike[str] | None) -> SecretKey | None:
    """Returns a key from a file name, or unchanged."""
    return given if given is None or isinstance(given, SecretKey) else read_key(Path(given))
