"""The typed keywords of calls are those of the settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_module_is_what_the_tool_writes():
    """After a change of the settings: `python tools/keywords.py`."""
    command = [sys.executable, ROOT / "tools/keywords.py", "--check"]
    assert subprocess.run(command, check=False).returncode == 0
