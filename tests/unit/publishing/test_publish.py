"""The recount before publishing is part of every user's path."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
#: Places that replace the recount: the sample for all tests, other processes, a race.
REPLACES = {"samples/drafts.py", "end_to_end/test_determinism.py", "unit/published/test_folder.py"}
#: Files that publish without it, because they verify or look at what is written. Never more.
MOST_UNCHECKED = 61


def test_few_tests_publish_without_the_recount():
    replaces, unchecked = set(), 0
    for path in TESTS.rglob("*.py"):
        if path == Path(__file__):
            continue
        text = path.read_text("utf-8")
        unchecked += "import unchecked" in text
        if re.search(r"setattr\([^)]*recount_flows|\.recount_flows = |\"recount_flows\", \d", text):
            replaces.add(path.relative_to(TESTS).as_posix())
    assert replaces == REPLACES
    assert unchecked <= MOST_UNCHECKED
