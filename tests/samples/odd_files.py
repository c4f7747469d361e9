"""What a hostile folder may hold in place of a file."""

from __future__ import annotations

import os


def pipe(path, _) -> None:
    """A named pipe: opening it for reading waits for ever."""
    path.unlink()
    os.mkfifo(path)


def endless(path, _) -> None:
    """An endless file: reading it to its end fills the memory."""
    path.unlink()
    path.symlink_to("/dev/zero")
