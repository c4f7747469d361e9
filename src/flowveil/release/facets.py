"""Facets: the four independent facts that say what a release is.

Sentences, page, exports, derive, audit and analysis ask facets. `Facets.kind` is one word for them,
which report.json has for readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flowveil.core.dimensions import Use
from flowveil.core.times import TIME

Kind = Literal["plain", "layered", "boxed", "folded", "sliced", "noisy"]


@dataclass(frozen=True)
class Facets:
    """What a release is.

    Attributes:
        counts: exact, or with noise.
        zones: nodes of a tree, or boxes.
        layers: cells come in layers: a cell counts the trips that earlier layers left.
        dimensions: how the release uses each further column of the trips: ``separate``, one matrix
            for each value; or ``fold``, cells have a node of its tree.
    """

    counts: Literal["exact", "noisy"] = "exact"
    zones: Literal["nodes", "boxes"] = "nodes"
    layers: bool = False
    dimensions: Mapping[str, Use] = field(default_factory=dict)

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> Facets:
        """Returns the facets of a release by its report.json, of earlier versions as well."""
        statement = report.get("statement") or {}
        return cls.stated(
            guarantee=report.get("guarantee") or {},
            parameters=report.get("parameters") or {},
            boxes=statement.get("boxes"),
            layers=bool(statement.get("layers")),
            slice_columns=statement.get("slice_columns") or (),
        )

    @classmethod
    def stated(
        cls,
        *,
        guarantee: Mapping[str, Any],
        parameters: Mapping[str, Any],
        boxes: Any,
        layers: bool,
        slice_columns: Any,
    ) -> Facets:
        """Returns the facets of a release by what it states; noise has a mechanism."""
        folds = [*(parameters.get("fold") or ())]
        if (parameters.get("slices") or {}).get("fold_time"):
            folds.append(TIME)
        return cls(
            counts="noisy" if "mechanism" in guarantee else "exact",
            zones="nodes" if boxes is None else "boxes",
            layers=layers,
            dimensions={**dict.fromkeys(slice_columns, "separate"), **dict.fromkeys(folds, "fold")},
        )

    @property
    def is_noisy(self) -> bool:
        """Whether counts have noise."""
        return self.counts == "noisy"

    @property
    def has_boxes(self) -> bool:
        """Whether zones are boxes."""
        return self.zones == "boxes"

    @property
    def separates(self) -> bool:
        """Whether there is a matrix for each value of a dimension."""
        return "separate" in self.dimensions.values()

    @property
    def folds(self) -> bool:
        """Whether cells have nodes of a dimension."""
        return "fold" in self.dimensions.values()

    @property
    def counts_nodes(self) -> bool:
        """Whether counts are exact, zones nodes, and nothing folds.

        Such zones can be kept for another release, and such counts revised.
        """
        return not (self.is_noisy or self.has_boxes or self.folds)

    @property
    def kind(self) -> Kind:
        """One word for readers: the first that applies."""
        if self.is_noisy:
            return "noisy"
        if self.separates:
            return "sliced"
        if self.has_boxes:
            return "boxed"
        if self.folds:
            return "folded"
        return "layered" if self.layers else "plain"
