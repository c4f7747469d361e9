"""Libraries that a file of tests cannot do without.

`pytest.importorskip` imports them, in every process that collects the tests, whether it runs these
or not: seconds each for the large ones.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*libraries: str) -> None:
    """Skip the file that says so where one of these is not installed; nothing is imported."""
    for name in libraries:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
