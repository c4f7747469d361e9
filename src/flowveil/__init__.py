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
    from flowveil.analysis.api import compare as compare
    from flowveil.analysis.api import describe as describe
    from flowveil.analysis.api import frontier as frontier
    from flowveil.analysis.api import run_study as run_study
    from flowveil.analysis.audit import audit
    from flowveil.analysis.private import PrivateView as PrivateView
    from flowveil.analysis.release_analysis import analyze as analyze
    from flowveil.publishing.api import derive as derive
    from flowveil.publishing.api import freeze as freeze
    from flowveil.publishing.api import picture as picture
    from flowveil.publishing.api import reconstruct as reconstruct
    from flowveil.publishing.published_folder import read_release as read_release
    from flowveil.publishing.series.steps import publish_series as publish_series
    from flowveil.publishing.series.verification import verify_series as verify_series
    from flowveil.reading.engines import read_slices as read_slices
    from flowveil.reading.engines import read_trips as read_trips
    from flowveil.reading.engines.spark_session import cluster as cluster
    from flowveil.reading.sources import prepare as prepare
    from flowveil.verify.verification import verify_derived as verify_derived
    from flowveil.verify.verification import verify_release as verify_release
    from flowveil.zoning.files import read_tree as read_tree
    from flowveil.zoning.files import read_zones as read_zones

    audit_releases = audit

__version__ = "0.4.0"

#: The public names of each module.
_PUBLIC = {
    "analysis.release_analysis": "analyze",
    "publishing.anonymization": "anonymize anonymize_slices",
    "analysis.api": "compare describe",
    "analysis.audit": "audit_releases",
    "publishing.api": "derive freeze picture reconstruct",
    "reading.engines": "read_slices read_trips",
    "core.errors": "DataError FlowveilError GuaranteeError InfeasibleError ParameterError",
    "core.flows": "Flows SlicedFlows",
    "core.guarantee": "Guarantee",
    "core.hierarchy": "Hierarchy",
    "methods": "METHODS Method",
    "publishing.published_folder": "read_release",
    "release.plan": "Plan",
    "publishing.release": "Release",
    "publishing.series.steps": "publish_series",
    "reading.sources": "prepare",
    "verify.verification": "verify_release",
    "zoning.files": "read_zones",
}
#: Names that are found here as well, for scripts that already use them.
_OTHERS = {
    "analysis.api": "frontier run_study",
    "analysis.private": "PrivateView",
    "reading.engines.spark_session": "cluster",
    "core.errors": "HierarchyError MissingExtraError OutputError",
    "system.limits": "limits",
    "release.plan": "NodeZones Suppression Zones",
    "publishing.release": "NoisyRelease SlicedRelease",
    "publishing.series.verification": "verify_series",
    "verify.verification": "verify_derived",
    "zoning.files": "read_tree",
}
_ALIASES = {"audit_releases": "audit", "SlicedFlows": "Flows"}
_MODULE_OF = {
    name: module
    for listed in (_OTHERS, _PUBLIC)
    for module, names in listed.items()
    for name in names.split()
}

__all__ = [*sorted(" ".join(_PUBLIC.values()).split()), "__version__"]  # all are texts


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name == "verify_folder":
        raise AttributeError(
            "verify_folder was removed. Hint: verify_release(folder, against=...).holds and"
            " .findings."
        )
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'flowveil' has no attribute {name!r}")
    found = getattr(import_module(f"flowveil.{_MODULE_OF[name]}"), _ALIASES.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
