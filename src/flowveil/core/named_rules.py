"""Thresholds as others publish, by name: ``--rule NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class NamedRule:
    """What every published cell holds at least, and who publishes so."""

    about: str
    k: int
    protect: str


#: The rules, by name. "More than 15" is k = 16.
RULES: Mapping[str, NamedRule] = MappingProxyType(
    {
        "mds": NamedRule("reports of the Mobility Data Specification", 10, "trips"),
        "ine": NamedRule("mobility of the Spanish statistical office", 16, "people"),
        "flowkit": NamedRule("FlowKit's redacted aggregates", 16, "people"),
        "carpool": NamedRule("the French register of carpooling", 6, "trips"),
    }
)
