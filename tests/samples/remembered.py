"""verify for tests that tamper with one folder again and again: what it was asked before it is not asked again.

Opening a database takes longer than all that is asked of it, and of a folder in which one thing was changed most is as
it was. `unit/verify/test_fuzz_verify.py` holds that what is remembered changes no finding.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.remembering import Memory
from flowveil.verify.order import recount as recount_anew

from flowveil.verify import verify_release as verify_anew

#: What is known of each place; a memory is of one.
_MEMORIES: dict[Path, Memory] = {}
#: What verify may be asked for besides: a memory does not tell apart what else is given.
_KNOWN = {"unread", "strict"}


@contextmanager
def desk(place: Path) -> Iterator[Callable[[Path], Path]]:
    """Copies folders to one place, one at a time, to be tampered with and verified there."""
    _MEMORIES[place] = Memory(place)

    def copied(folder: Path) -> Path:
        shutil.rmtree(place, ignore_errors=True)
        return Path(shutil.copytree(folder, place))

    try:
        yield copied
    finally:
        _MEMORIES.pop(place).close()


@contextmanager
def known(place: Path) -> Iterator[None]:
    """Where something else calls verify on a folder on a desk, as commands do."""
    with _MEMORIES[place].used():
        yield


@contextmanager
def wherever() -> Iterator[None]:
    """Whoever calls verify, and on whichever folder: what was asked before about a folder of this name is known."""
    memories: dict[Path, Memory] = {}

    def remembered(place: Path, flows: Any, expect: Any, unread: list[str], *, law: bool, holder: Any) -> list[str]:
        if expect or holder.stricter is not None:
            return recount_anew(place, flows, expect, unread, law=law, holder=holder)
        with memories.setdefault(place, Memory(place)).used():
            return recount_anew(place, flows, expect, unread, law=law, holder=holder)

    try:
        with patch("flowveil.verify.order.recount", remembered):
            yield
    finally:
        for memory in memories.values():
            memory.close()


def verify_release(folder: Path, flows: Any, **how: Any) -> list[str]:
    """The findings of `flowveil.verify.verify_release`; of a folder on a desk, with what is known of that place."""
    memory = _MEMORIES.get(folder)
    if memory is None or not set(how) <= _KNOWN:
        return verify_anew(folder, flows, **how)
    with memory.used():
        return verify_anew(folder, flows, **how)
