"""Changed folders, all files of them; `python -m benchmarks.fuzz_verify 100000` tries more."""

from __future__ import annotations

import random
import shutil

import pytest

from flowveil.verify import verify_release
from samples.drafts import unchecked

fuzz = pytest.importorskip("benchmarks.fuzz_verify", reason="needs the repository's folder benchmarks")


def test_changed_folders_never_hold_and_never_crash():
    """Every kind of release, five times or more; that each holds as it was published is said once, not in a draft."""
    with unchecked():
        assert fuzz.run(0, 75) == []


def test_what_is_remembered_changes_no_finding(tmp_path):
    """Trying many folders asks nothing twice; what is found is what verify alone finds."""
    folder = tmp_path / "work" / "changed"
    memory = fuzz.Memory(folder)
    with unchecked():
        held = {make: fuzz.made(make, tmp_path) for make in set(fuzz.RELEASES[:2])}
    for number in range(4):
        make = fuzz.RELEASES[number % 2]
        shutil.copytree(tmp_path / make.__name__, folder)
        fuzz.change_folder(folder, random.Random(number), sorted(path.name for path in folder.iterdir()))
        fuzz.rehash(folder)
        alone, together = [], []
        findings = verify_release(folder, held[make].flows, unread=alone, **held[make].against)
        for _ in range(2):
            with memory.used():
                assert verify_release(folder, held[make].flows, unread=together) == findings
            assert together == alone
            together.clear()
        shutil.rmtree(folder)
    memory.close()
