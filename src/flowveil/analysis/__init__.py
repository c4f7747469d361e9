"""What only the operator may see: measures, comparisons, studies and descriptions, computed from raw trips.

All figures are exact and none is withheld. Nothing made here may be written into a release folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowveil.analysis.release_analysis import Analysis, analyze, analyze_release, summary_lines

__all__ = ["Analysis", "analyze", "analyze_release", "summary_lines"]


def __getattr__(name: str) -> Any:
    # Loaded at the first use: measures are needed without the readers and methods that `analyze` needs.
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("flowveil.analysis.release_analysis"), name)
    raise AttributeError(f"module 'flowveil.analysis' has no attribute '{name}'")
