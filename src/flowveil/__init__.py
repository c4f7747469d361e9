"""flowveil: origin-destination matrices that can be published.

```python
import flowveil

flows = flowveil.read_trips("trips.parquet")
release = flowveil.anonymize(flows, k=10)
release.write("release")
```

Names are loaded when they are used, so that ``import flowveil`` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowveil.analysis.release_analysis import analyze as analyze
    from flowveil.api import compare as compare
    from flowveil.api import derive as derive
    from flowveil.api import describe as describe
    from flowveil.api import freeze as freeze
    from flowveil.api import frontier as frontier
    from flowveil.api import picture as picture
    from flowveil.api import reconstruct as reconstruct
    from flowveil.api import run_study as run_study
    from flowveil.audit.auditing import audit
    from flowveil.engines import read_slices as read_slices
    from flowveil.engines import read_trips as read_trips
    from flowveil.engines.spark_session import cluster as cluster
    from flowveil.published.read_release import read_release as read_release
    from flowveil.series.steps import publish_series as publish_series
    from flowveil.sources import prepare as prepare
    from flowveil.verify.verification import verify_derived as verify_derived
    from flowveil.verify.verification import verify_release as verify_release
    from flowveil.verify.verification import verify_series as verify_series
    from flowveil.zoning.files import read_tree as read_tree
    from flowveil.zoning.files import read_zones as read_zones

    audit_releases = audit

__version__ = "0.3.0"

#: The public names of each module.
_PUBLIC = {
    "analysis.release_analysis": "analyze",
    "anonymization": "anonymize anonymize_slices",
    "api": "compare derive describe freeze picture reconstruct",
    "audit.auditing": "audit_releases",
    "engines": "read_slices read_trips",
    "errors": "DataError FlowveilError GuaranteeError InfeasibleError ParameterError",
    "flows": "Flows",
    "guarantee": "Guarantee",
    "hierarchy": "Hierarchy",
    "methods": "METHODS Method",
    "published.read_release": "read_release",
    "release.plan": "Plan",
    "release.release": "Release",
    "series.steps": "publish_series",
    "slices": "SlicedFlows",
    "sources": "prepare",
    "verify.verification": "verify_release",
    "zoning.files": "read_zones",
}
#: Names that are found here as well, for scripts that already use them.
_OTHERS = {
    "api": "frontier run_study",
    "engines.spark_session": "cluster",
    "errors": "HierarchyError MissingExtraError OutputError",
    "reading.limits": "limits",
    "release.noisy": "NoisyRelease",
    "release.plan": "NodeZones Suppression Zones",
    "release.release": "SlicedRelease",
    "verify.verification": "verify_derived verify_series",
    "zoning.files": "read_tree",
}
_ALIASES = {"audit_releases": "audit"}
_MODULE_OF = {
    name: module for listed in (_OTHERS, _PUBLIC) for module, names in listed.items() for name in names.split()
}

__all__ = [*sorted(" ".join(_PUBLIC.values()).split()), "__version__"]  # all are texts


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name == "verify_folder":
        raise AttributeError(
            "verify_folder was removed. Hint: verify_release(folder, against=...).holds and .findings."
        )
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'flowveil' has no attribute {name!r}")
    found = getattr(import_module(f"flowveil.{_MODULE_OF[name]}"), _ALIASES.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
