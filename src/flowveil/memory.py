"""Returns free memory to the operating system.

Arrays of up to 32 MB come from heaps of the C library, one per thread. Free memory inside a heap stays with the
process; after thousands of such arrays it can exceed the memory in use.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress


def give_back() -> None:
    """Releases free memory if the C library supports it (glibc). No other effect."""
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
