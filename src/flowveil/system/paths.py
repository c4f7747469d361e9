"""Paths given by users, and untrusted files.

Empty paths are refused: Python takes them for the current folder, and a script may have an unset
variable. Files of release folders are untrusted. They are opened here, without following links and
without reading pipes or devices; JSON that parsers understand differently is refused.
"""

from __future__ import annotations

import json
import os
import stat
from io import BufferedReader
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from flowveil.core.errors import ParameterError

#: Largest accepted sizes of files of a release, in bytes.
_LARGEST = {
    "manifest.json": 1 << 20,
    "report.json": 1 << 28,
    "report.html": 1 << 30,
    "context.geojson": 1 << 22,
}
_LARGEST_OTHER = 1 << 33
#: Larger numbers in JSON are refused.
_LARGEST_WHOLE, _LARGEST_FRACTION = 1 << 63, 1e100


def named_path(path: str | PathLike[str], *, what: str) -> Path:
    """Returns the path that the user gave; refuses an empty one.

    ``what`` it should name is for the message.
    """
    # Path("") is '.', so only the given text can be checked.
    if not fspath(path).strip():
        raise ParameterError(
            f"The path of {what} is empty. Hint: is a variable of your script not set?"
        )
    return Path(path)


def most_bytes(name: str) -> int:
    """Returns the largest accepted size of a file of this name."""
    return _LARGEST.get(name, _LARGEST_OTHER)


class NotRegularError(OSError):
    """A file that is not a regular one, or too large."""


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file of limited size for reading; never waits, never follows a link.

    Else raises OSError.
    """
    # Checked through the handle: the name could be replaced in between.
    flags = (
        os.O_RDONLY
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_BINARY", 0)
    )
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise NotRegularError("not a regular file")
    handle = os.open(path, flags)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes(path.name):
            raise NotRegularError("not a regular file, or too large")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file that all parsers understand alike.

    Else raises OSError or ValueError.
    """
    with open_regular(path) as file:
        return parse_json(file.read())


def parse_json(content: bytes) -> Any:
    """Parses JSON bytes; raises ValueError like `read_json`."""
    try:
        text = content.decode("utf-8")
        return json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_int=lambda digits: _bounded(int(digits), _LARGEST_WHOLE),
            parse_float=lambda digits: _bounded(float(digits), _LARGEST_FRACTION),
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate entries")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _bounded(number: float, most: float) -> float:
    if not -most <= number < most:
        raise ValueError("a number that no table can hold")
    return number
