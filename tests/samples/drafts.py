"""Drafts that are not recounted before they take their places, for tests that verify what is
written themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flowveil.verify.recount import Result


@contextmanager
def unchecked() -> Iterator[None]:
    """Publish without the recount within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "flowveil.publishing.publish.recount_flows", lambda *_, **__: Result((), (), {})
        )
        yield
