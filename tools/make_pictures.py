"""Make the pictures of docs/workbench.md and of the README: those that the browser tests take.

python tools/make_pictures.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TAKEN, SHOWN = ROOT / "build" / "screenshots", ROOT / "docs" / "pictures"


def main() -> None:
    """Run the tests that take them, and copy each that is shown already."""
    tests = ["tests/browser/test_workbench.py", "-k", "mouse or demonstration"]
    kept = {**os.environ, "SCREENSHOTS": "1"}
    subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT, env=kept, check=True)
    for picture in sorted(SHOWN.glob("workbench-*.png")):
        shutil.copy(TAKEN / picture.name, picture)


if __name__ == "__main__":
    main()
