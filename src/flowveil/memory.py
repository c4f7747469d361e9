"""Memory that is done with, given back to the system.

Arrays of up to 32 MB come from the heap of the C library, one heap a thread, and go back there. What is free in the
midst of a heap stays with the process. After a walk in which thousands of such arrays came and went, that can be more
than what is left of it, and what comes next is too large to fit in between.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress


def give_back() -> None:
    """Give free memory back, where the C library has a way to say so (glibc). It changes nothing else."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
