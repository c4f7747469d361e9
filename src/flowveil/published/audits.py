"""The audits that take seconds, run on a release before it is written; its report says that they were, and what came.

Only attacks on what is published: their outcome follows from the folder, so that saying it reveals nothing, and
`flowveil.verify.audits` counts it anew. Attacks that need the trips are for `flowveil audit --against`; their figures
are of trips that nobody else has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flowveil.audit.homogeneity import homogeneity
from flowveil.audit.published import published_release
from flowveil.audit.suppressed import suppressed_bounds
from flowveil.errors import GuaranteeError, ParameterError
from flowveil.published.report import summarize

#: Kinds of release whose zones can be told apart by their codes in any cell.
_KINDS = ("plain", "sliced")


def audited(release: Any, about: Mapping[str, Any]) -> Any:
    """The release, whose parameters say which audits were run and what they found.

    Args:
        release: what is to be published.
        about: what it is about; see `flowveil.published.about`.

    Raises:
        ParameterError: it has boxes, noise or times of its own.
        GuaranteeError: its measures give suppressed trips below the guarantee; nothing may be published.
    """
    if release.kind not in _KINDS:
        raise ParameterError(
            "--audit is for exact counts between zones of a tree: not for boxes, noise or folded times."
        )
    read = published_release(release.flows, release.zones, summarize(release, about=about), name="the new release")
    confined = suppressed_bounds(read).confined
    if confined:
        raise GuaranteeError(
            f"The measures of {confined} matrices give suppressed trips below the guarantee; nothing was published."
        )
    found = [{"end": end.end, "zones": end.zones, "above": end.above} for end in homogeneity(read)]
    return replace(release, parameters={**release.parameters, "audit": {"suppressed": confined, "homogeneity": found}})
