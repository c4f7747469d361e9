"""The check of a draft, which is made once for the same bytes and the same input.

Many tests write a release that another test has written, to look at another side of it. Every release is recounted
before it is there, which is most of what writing it costs. The recount is a function of the files and of the flows, so
what held once holds again; what did not hold, and drafts that are held against more than their input, are recounted
every time.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

from flowveil.errors import DataError
from samples.verified import findings_of

#: Drafts that held, by all that the recount is given.
_HELD: set[bytes] = set()


def verify_once(draft: Path, flows: Any, **given: Any) -> list[str]:
    """The findings of `flowveil.verify.verify_release` on a draft."""
    known = (
        _name(draft, flows) if given == {"law": False, "zones_of": None, "stricter": None, "revision": None} else None
    )
    if known in _HELD:
        return []
    findings = findings_of(draft, flows, **given)
    if known is not None and not findings:
        _HELD.add(known)
    return findings


def _name(draft: Path, flows: Any) -> bytes | None:
    """A name for a draft with its input; None where the input is not here as a whole."""
    try:
        found = hashlib.sha256(pickle.dumps(flows))
    except (pickle.PicklingError, DataError):
        return None
    for file in sorted(draft.iterdir()):
        content = file.read_bytes()
        found.update(f"{file.name} {len(content)} ".encode() + content)
    return found.digest()
