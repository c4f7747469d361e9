"""flowveil: origin-destination matrices that can be published.

```python
import flowveil

flows = flowveil.read_trips("trips.parquet")
release = flowveil.anonymize(flows, k=10)
release.write("release")
```
"""

from __future__ import annotations

from flowveil.api import (
    anonymize,
    anonymize_slices,
    audit_releases,
    compare,
    describe,
    freeze,
    frontier,
    picture,
    prepare,
    publish_series,
    read_slices,
    read_trips,
    read_zones,
    reconstruct,
    run_study,
    verify_folder,
    verify_release,
    verify_series,
)
from flowveil.engines.spark_session import cluster
from flowveil.errors import (
    DataError,
    FlowveilError,
    GuaranteeError,
    HierarchyError,
    InfeasibleError,
    MissingExtraError,
    OutputError,
    ParameterError,
)
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.hierarchy import Hierarchy
from flowveil.methods import METHODS, Method
from flowveil.reading.limits import limits
from flowveil.release.noisy import NoisyRelease
from flowveil.release.plan import Plan, Suppression
from flowveil.release.release import Release
from flowveil.release.sliced import SlicedRelease
from flowveil.release.zones import NodeZones, Zones
from flowveil.slices import SlicedFlows

__version__ = "0.3.0"

__all__ = [
    "METHODS",
    "DataError",
    "Flows",
    "FlowveilError",
    "Guarantee",
    "GuaranteeError",
    "Hierarchy",
    "HierarchyError",
    "InfeasibleError",
    "Method",
    "MissingExtraError",
    "NodeZones",
    "NoisyRelease",
    "OutputError",
    "ParameterError",
    "Plan",
    "Release",
    "SlicedFlows",
    "SlicedRelease",
    "Suppression",
    "Zones",
    "__version__",
    "anonymize",
    "anonymize_slices",
    "audit_releases",
    "cluster",
    "compare",
    "describe",
    "freeze",
    "frontier",
    "limits",
    "picture",
    "prepare",
    "publish_series",
    "read_slices",
    "read_trips",
    "read_zones",
    "reconstruct",
    "run_study",
    "verify_folder",
    "verify_release",
    "verify_series",
]
