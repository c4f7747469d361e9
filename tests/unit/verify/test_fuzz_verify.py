"""Changed folders, all files of them; `python -m benchmarks.fuzz_verify 100000` tries more."""

from __future__ import annotations

import pytest

fuzz = pytest.importorskip("benchmarks.fuzz_verify", reason="needs the repository's folder benchmarks")


def test_changed_folders_never_hold_and_never_crash():
    assert fuzz.run(0, 200) == []
