"""Run all benchmarks but the long ones, or those named: ``python -m benchmarks methods ingest``."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

PRIVATE = {"__main__", "same_releases", "stopwatch", "choosing_pictures", "paircut_pictures"}

#: Take minutes to hours: run only when named.
LONG = {
    "atg_area",
    "atg_gap",
    "audits",
    "choosing_sets",
    "fairness",
    "halves_table",
    "held_out",
    "k_or_epsilon",
    "minimality",
    "noise",
    "layers",
    "planner",
    "posterior",
    "posterior_parts",
    "sizes",
    "soak",
    "twincut_table",
}


def main() -> None:
    known = sorted(
        m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if m.name not in PRIVATE
    )
    chosen = sys.argv[1:] or [name for name in known if name not in LONG]
    unknown = set(chosen) - set(known)
    if unknown:
        sys.exit(f"Unknown benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}.")
    for name in chosen:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


main()
