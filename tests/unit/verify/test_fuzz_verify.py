"""Changed folders, all files of them; `python -m benchmarks.fuzz_verify 100000` tries more."""

from __future__ import annotations

import pytest

fuzz = pytest.importorskip("benchmarks.fuzz_verify", reason="needs the repository's folder benchmarks")


def test_changed_folders_never_hold_and_never_crash():
    assert fuzz.run(0, 30) == []


def test_a_report_without_one_of_its_measures():
    assert fuzz.run(20014, 1) == []
