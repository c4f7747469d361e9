"""Releases that are written and not recounted first.

Every release is verified before it is there, which takes longer than all the rest of writing it. Tests of what a page
looks like, or of what is in the files, need no recount; that a wrong draft is never published is for
`unit/verify/test_verify.py` and `unit/publish/test_folder.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def unchecked() -> Iterator[None]:
    """What is written here is not verified."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flowveil.published.folder._check_draft", lambda *_: None)
        yield
