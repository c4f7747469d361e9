"""flowveil: origin-destination matrices that can be published."""

from __future__ import annotations

__version__ = "0.1.0"
