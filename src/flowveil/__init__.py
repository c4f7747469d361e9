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
    from flowveil.analysis.audit import Audit as Audit
    from flowveil.analysis.audit import audit
    from flowveil.analysis.comparison import Comparison as Comparison
    from flowveil.analysis.description import Description as Description
    from flowveil.analysis.private import PrivateView as PrivateView
    from flowveil.analysis.release_analysis import Analysis as Analysis
    from flowveil.analysis.release_analysis import analyze as analyze
    from flowveil.analysis.study import Study as Study
    from flowveil.core.dimensions import Dimension as Dimension
    from flowveil.core.errors import DataError as DataError
    from flowveil.core.errors import FlowveilError as FlowveilError
    from flowveil.core.errors import GuaranteeError as GuaranteeError
    from flowveil.core.errors import HierarchyError as HierarchyError
    from flowveil.core.errors import InfeasibleError as InfeasibleError
    from flowveil.core.errors import MissingExtraError as MissingExtraError
    from flowveil.core.errors import OutputError as OutputError
    from flowveil.core.errors import ParameterError as ParameterError
    from flowveil.core.flows import Flows as Flows
    from flowveil.core.guarantee import Guarantee as Guarantee
    from flowveil.core.hierarchy import Hierarchy as Hierarchy
    from flowveil.core.read_summary import ReadSummary as ReadSummary
    from flowveil.methods import METHODS as METHODS
    from flowveil.methods import Method as Method
    from flowveil.methods.twincut import FrontierPoint as FrontierPoint
    from flowveil.published.derive import Derived as Derived
    from flowveil.publishing.anonymization import anonymize as anonymize
    from flowveil.publishing.anonymization import anonymize_slices as anonymize_slices
    from flowveil.publishing.api import derive as derive
    from flowveil.publishing.api import freeze as freeze
    from flowveil.publishing.api import picture as picture
    from flowveil.publishing.api import reconstruct as reconstruct
    from flowveil.publishing.published_folder import PublishedFolder as PublishedFolder
    from flowveil.publishing.published_folder import read_release as read_release
    from flowveil.publishing.release import NoisyRelease as NoisyRelease
    from flowveil.publishing.release import Release as Release
    from flowveil.publishing.release import SlicedRelease as SlicedRelease
    from flowveil.publishing.release import UserRelease as UserRelease
    from flowveil.publishing.series.steps import Series as Series
    from flowveil.publishing.series.steps import publish_series as publish_series
    from flowveil.publishing.series.verification import verify_series as verify_series
    from flowveil.publishing.slice_plans import Checkpoint as Checkpoint
    from flowveil.reading.engines import read_slices as read_slices
    from flowveil.reading.engines import read_trips as read_trips
    from flowveil.reading.engines.spark_session import cluster as cluster
    from flowveil.reading.sources import prepare as prepare
    from flowveil.reading.sources.tables import Prepared as Prepared
    from flowveil.release.facets import Facets as Facets
    from flowveil.release.plan import NodeZones as NodeZones
    from flowveil.release.plan import Plan as Plan
    from flowveil.release.plan import Suppression as Suppression
    from flowveil.release.plan import Zones as Zones
    from flowveil.release.zone_map import FrozenMap as FrozenMap
    from flowveil.system.limits import limits as limits
    from flowveil.verify.audit.published import PublishedRelease as PublishedRelease
    from flowveil.verify.verification import PrivateFiles as PrivateFiles
    from flowveil.verify.verification import Verification as Verification
    from flowveil.verify.verification import verify_derived as verify_derived
    from flowveil.verify.verification import verify_release as verify_release
    from flowveil.zoning.files import ZoneMap as ZoneMap
    from flowveil.zoning.files import read_tree as read_tree
    from flowveil.zoning.files import read_zones as read_zones

    audit_releases = audit
    SlicedFlows = Flows

__version__ = "0.4.0"

#: The public names of each module: functions, the types that they take or return, and errors.
_PUBLIC = {
    "analysis.api": "compare describe frontier run_study",
    "analysis.audit": "Audit audit_releases",
    "analysis.comparison": "Comparison",
    "analysis.description": "Description",
    "analysis.private": "PrivateView",
    "analysis.release_analysis": "Analysis analyze",
    "analysis.study": "Study",
    "core.dimensions": "Dimension",
    "core.errors": (
        "DataError FlowveilError GuaranteeError HierarchyError InfeasibleError MissingExtraError"
        " OutputError ParameterError"
    ),
    "core.flows": "Flows SlicedFlows",
    "core.guarantee": "Guarantee",
    "core.hierarchy": "Hierarchy",
    "core.read_summary": "ReadSummary",
    "methods": "METHODS Method",
    "methods.twincut": "FrontierPoint",
    "published.derive": "Derived",
    "publishing.anonymization": "anonymize anonymize_slices",
    "publishing.api": "derive freeze picture reconstruct",
    "publishing.published_folder": "PublishedFolder read_release",
    "publishing.release": "NoisyRelease Release SlicedRelease UserRelease",
    "publishing.series.steps": "Series publish_series",
    "publishing.series.verification": "verify_series",
    "publishing.slice_plans": "Checkpoint",
    "reading.engines": "read_slices read_trips",
    "reading.engines.spark_session": "cluster",
    "reading.sources": "prepare",
    "reading.sources.tables": "Prepared",
    "release.facets": "Facets",
    "release.plan": "NodeZones Plan Suppression Zones",
    "release.zone_map": "FrozenMap",
    "system.limits": "limits",
    "verify.audit.published": "PublishedRelease",
    "verify.verification": "PrivateFiles Verification verify_derived verify_release",
    "zoning.files": "ZoneMap read_tree read_zones",
}
_ALIASES = {"audit_releases": "audit", "SlicedFlows": "Flows"}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}

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
