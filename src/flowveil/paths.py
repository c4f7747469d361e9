"""Paths that users give.

Python takes an empty path for the current folder. A script whose variable is unset would then read, or write, whatever
happens to lie there; so an empty path is refused wherever one is taken.
"""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from flowveil.errors import ParameterError


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
