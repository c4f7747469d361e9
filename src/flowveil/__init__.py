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
    from flowveil.analysis import analyze as analyze
    from flowveil.api import audit_releases as audit_releases
    from flowveil.api import compare as compare
    from flowveil.api import derive as derive
    from flowveil.api import describe as describe
    from flowveil.api import freeze as freeze
    from flowveil.api import frontier as frontier
    from flowveil.api import picture as picture
    from flowveil.api import prepare as prepare
    from flowveil.api import publish_series as publish_series
    from flowveil.api import read_zones as read_zones
    from flowveil.api import reconstruct as reconstruct
    from flowveil.api import run_study as run_study
    from flowveil.api import verify_derived as verify_derived
    from flowveil.api import verify_folder as verify_folder
    from flowveil.api import verify_release as verify_release
    from flowveil.api import verify_series as verify_series
    from flowveil.engines import read_slices as read_slices
    from flowveil.engines import read_trips as read_trips
    from flowveil.engines.spark_session import cluster as cluster
    from flowveil.published.read_release import read_release as read_release

__version__ = "0.3.0"

#: The module of each public name.
_PUBLIC = {
    "METHODS": "methods",
    "DataError": "errors",
    "Flows": "flows",
    "FlowveilError": "errors",
    "Guarantee": "guarantee",
    "GuaranteeError": "errors",
    "Hierarchy": "hierarchy",
    "InfeasibleError": "errors",
    "Method": "methods",
    "ParameterError": "errors",
    "Plan": "release.plan",
    "Release": "release.release",
    "SlicedFlows": "slices",
    "analyze": "analysis",
    "anonymize": "anonymization",
    "anonymize_slices": "anonymization",
    "audit_releases": "api",
    "compare": "api",
    "derive": "api",
    "describe": "api",
    "freeze": "api",
    "picture": "api",
    "prepare": "api",
    "publish_series": "api",
    "read_release": "published.read_release",
    "read_slices": "engines",
    "read_trips": "engines",
    "read_zones": "api",
    "reconstruct": "api",
    "verify_release": "api",
}
#: Names that are found here as well, for scripts that already use them.
_OTHERS = {
    "HierarchyError": "errors",
    "MissingExtraError": "errors",
    "NodeZones": "release.zones",
    "NoisyRelease": "release.noisy",
    "OutputError": "errors",
    "SlicedRelease": "release.sliced",
    "Suppression": "release.plan",
    "Zones": "release.zones",
    "cluster": "engines.spark_session",
    "frontier": "api",
    "limits": "reading.limits",
    "run_study": "api",
    "verify_derived": "api",
    "verify_folder": "api",
    "verify_series": "api",
}

__all__ = [*_PUBLIC, "__version__"]  # all are texts


def __getattr__(name: str) -> Any:
    """Load a public name."""
    module = _PUBLIC.get(name) or _OTHERS.get(name)
    if module is None:
        raise AttributeError(f"module 'flowveil' has no attribute {name!r}")
    found = getattr(import_module(f"flowveil.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
