"""Paths that users give, and files that somebody else has made.

Python takes an empty path for the current folder. A script whose variable is unset would then read, or write, whatever
happens to lie there; so an empty path is refused wherever one is taken.

A release folder comes from somebody. Whoever reads one opens its files here: a link could lead anywhere, reading a pipe
or a device never ends, and JSON that readers understand differently says two things.
"""

from __future__ import annotations

import json
import os
import stat
from io import BufferedReader
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from flowveil.errors import ParameterError

#: More bytes than these files of a release have, and than any other has; hashing them is still a matter of a minute.
_LARGEST = {"manifest.json": 1 << 20, "report.json": 1 << 28, "report.html": 1 << 30, "context.geojson": 1 << 22}
_LARGEST_OTHER = 1 << 33
#: Numbers of JSON beyond these are refused where they are read, so that nothing that counts or compares meets them.
_LARGEST_WHOLE, _LARGEST_FRACTION = 1 << 63, 1e100


def named_path(path: str | PathLike[str], *, what: str) -> Path:
    """The path as it was given.

    Args:
        path: what the user gave.
        what: what it should name, for the message.

    Raises:
        ParameterError: it is empty, or blank.
    """
    # Path("") is '.', and so is what was made of it: only the text that was given can be empty.
    if not fspath(path).strip():
        raise ParameterError(f"The path of {what} is empty. Hint: is a variable of your script not set?")
    return Path(path)


def most_bytes(name: str) -> int:
    """More bytes than a file of this name has in any release."""
    return _LARGEST.get(name, _LARGEST_OTHER)


class NotRegularError(OSError):
    """A file that is not a regular one, or larger than any file of a release."""


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading, if it is a regular one of a sane size; never waits, never follows a link.

    Raises:
        OSError: it is missing, cannot be read, or is something else.
    """
    # Looked at through the handle: between a look at the name and the opening it could be exchanged.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
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
    """The content of a JSON file that every reader understands alike.

    Raises:
        OSError: it is missing or not a regular file.
        ValueError: it is not JSON in UTF-8, has an entry twice (readers differ in which they take), or a number that is
            none, or larger than any of a release.
    """
    with open_regular(path) as file:
        return parse_json(file.read())


def parse_json(content: bytes) -> Any:
    """The same of bytes; raises ValueError like `read_json`."""
    try:
        text = content.decode("utf-8")
        return json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_int=_whole_number,
            parse_float=_fraction,
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


def _whole_number(digits: str) -> int:
    number = int(digits)
    if not -_LARGEST_WHOLE <= number < _LARGEST_WHOLE:
        raise ValueError("a whole number that no table can hold")
    return number


def _fraction(digits: str) -> float:
    number = float(digits)
    if not abs(number) <= _LARGEST_FRACTION:
        raise ValueError("a number whose square is too large for a computer")
    return number
