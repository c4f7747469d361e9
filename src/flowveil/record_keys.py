"""Record keys: a keyed hash of every record, so that methods can perturb the same cell in the same way in every table.

The key of a record is the first 32 bits of an HMAC-SHA-256 under a secret key file. The message is the record's id, or
all columns of its row: nothing else, so a record has the same key in every table of the same data. The cell key is the
sum of the record keys modulo 2**32, which is additive over merges of cells.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowveil.errors import OutputError, ParameterError

Keys = NDArray[np.int64]
#: Record keys and cell keys are below this.
MODULUS = 1 << 32
#: Column of record keys in tables of the engines.
RECORD_KEY = "record_key"
_FORM = re.compile(rb"[0-9a-f]{64}\n?")
_BLOCK = 64
_SEPARATOR = "chr(31)"
_HINT = "Hint: flowveil key FILE writes a new one."


@dataclass(frozen=True, eq=False, repr=False)
class SecretKey:
    """A secret key of 256 bits. Only its fingerprint is ever shown."""

    _secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the key and reveal nothing of it."""
        return hmac.digest(self._secret, b"flowveil: fingerprint of a key", "sha256").hex()[:16]

    def blocks(self) -> tuple[bytes, bytes]:
        """Returns the inner and the outer block of HMAC, because DuckDB has SHA-256 and no HMAC."""
        padded = self._secret.ljust(_BLOCK, b"\0")
        return bytes(byte ^ 0x36 for byte in padded), bytes(byte ^ 0x5C for byte in padded)

    def __repr__(self) -> str:
        return f"<SecretKey {self.fingerprint}>"


def create_key(path: str | PathLike[str]) -> SecretKey:
    """Writes a new random key into a new file that only its owner may read; OutputError if the file exists."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise OutputError(f"'{path}' exists, and a key is never overwritten. Hint: name a new file.") from None
    except OSError as problem:
        raise OutputError(f"'{path}' cannot be written: {problem.strerror}.") from None
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(f"{secrets.token_hex(32)}\n")
        stream.flush()
        os.fsync(stream.fileno())
    return read_key(path)


def read_key(path: str | PathLike[str]) -> SecretKey:
    """Reads a key file; ParameterError, which never quotes it, if it is missing, readable by others or malformed."""
    try:
        with open(path, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_BLOCK + 2)
    except OSError as problem:
        raise ParameterError(f"The key file '{path}' cannot be read: {problem.strerror}. {_HINT}") from None
    if not stat.S_ISREG(mode):
        raise ParameterError(f"The key file '{path}' is not a plain file. {_HINT}")
    if os.name == "posix" and mode & 0o077:
        raise ParameterError(
            f"The key file '{path}' may be read by others (mode {stat.S_IMODE(mode):04o}). Hint: chmod 600 it; if "
            "others have read it, the noise of its releases can be removed."
        )
    if not _FORM.fullmatch(content):
        raise ParameterError(f"The key file '{path}' does not have 64 hexadecimal digits. {_HINT}")
    if len(set(content.strip())) < 6:
        raise ParameterError(f"The key file '{path}' was not drawn at random. {_HINT}")
    return SecretKey(bytes.fromhex(content.decode("ascii").strip()))


def as_key(given: SecretKey | str | PathLike[str] | None) -> SecretKey | None:
    """Returns a key from a file name, or unchanged."""
    return given if given is None or isinstance(given, SecretKey) else read_key(Path(given))


# ---- SQL -------------------------------------------------------------------------------------------------------------


def set_key(con: Any, key: SecretKey | None) -> None:
    """Makes the key known to a database connection, as variables: it is in no text of SQL, so in no message."""
    if key is not None:
        for name, block in zip(("inner", "outer"), key.blocks(), strict=True):
            con.execute(f"SET VARIABLE flowveil_{name} = ?", [block])


def record_key_sql(columns: Iterable[tuple[str, str]]) -> str:
    """Returns SQL: the record key, after `set_key`, from SQL and type of the columns of the message, in order."""
    texts = f" || {_SEPARATOR} || ".join(["'record'", *(_text_sql(*column) for column in columns)])
    inner = f"sha256(getvariable('flowveil_inner') || encode({texts}))"
    outer = f"sha256(getvariable('flowveil_outer') || unhex({inner}))"
    return f"CAST(CAST('0x' || left({outer}, 8) AS UBIGINT) AS BIGINT)"


def _text_sql(column: str, kind: str) -> str:
    """Returns SQL: a value as text. Moments are microseconds: engines give them different types."""
    if kind.startswith("TIMESTAMP"):
        column = f"epoch_us({column if 'ZONE' in kind else f'CAST({column} AS TIMESTAMP)'})"
    return f"coalesce(trim(CAST({column} AS VARCHAR)), '')"


# ---- sums ------------------------------------------------------------------------------------------------------------


def sum_keys(row: NDArray[Any], keys: Keys, n: int) -> Keys:
    """Returns the sums of keys over rows of the same number, modulo `MODULUS`; rows of -1 are left out."""
    kept = row >= 0
    row, keys = row[kept], keys[kept]
    # In halves of 16 bits: sums of doubles are exact below 2**53.
    high, low = (np.bincount(row, weights=half, minlength=n).astype(np.int64) for half in (keys >> 16, keys & 0xFFFF))
    return ((high % 65536 << 16) + low) % MODULUS


def merged_keys(parts: Iterable[Any], row: NDArray[Any], n: int) -> Mapping[str, Keys | None]:
    """Returns the field ``keys`` of tables that are concatenated and merged; None if one has none."""
    found: list[Any] = [getattr(part, "keys", None) for part in parts]
    return {"keys": None if any(keys is None for keys in found) else sum_keys(row, np.concatenate(found), n)}
