"""Ratios measured side by side in one run. ``make bench``, or ``python -m benchmarks NAME ...``."""

import sys
from pathlib import Path

# Some benchmarks share samples with the tests.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
