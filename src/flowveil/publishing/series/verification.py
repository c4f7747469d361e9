"""Verification of a series: every release of it, and the files of the series itself."""

from __future__ import annotations

from os import PathLike
from typing import Any, Unpack

from flowveil.core.errors import FlowveilError
from flowveil.publishing.series.index import MAP, check_index, read_index, releases_of
from flowveil.release.folder import ReleaseFolder
from flowveil.request.keywords import ReadingKeywords
from flowveil.system.paths import named_path
from flowveil.verify.verification import (
    PrivateFiles,
    Verification,
    map_as_stated,
    verify_release,
)


def verify_series(
    directory: str | PathLike[str],
    *,
    against: Any,
    strict: bool = False,
    **reading: Unpack[ReadingKeywords],
) -> Verification:
    """Verifies every release of a series, and the files of the series itself.

    Arguments as for `verify_release`.

    Examples:
        >>> reading = {"resolution": 6, "person": "person_id"}
        >>> flowveil.publish_series("trips.csv", "days", time="t", every="day", **reading)
        <Series: 2 steps published>
        >>> flowveil.verify_series("days", against="trips.csv").holds
        True
    """
    place, zones = named_path(directory, what="the series"), reading.get("zones")
    steps = [str(entry["step"]) for entry in (read_index(place) or {}).get("steps", ())]
    if steps and zones is not None:
        zones = map_as_stated(ReleaseFolder(place / steps[0]).statement, zones)
    findings, notes = check_index(place, zones), list[str]()
    for step in () if findings else steps:
        *before, newest = releases_of(place, step)
        try:
            over_map = ReleaseFolder(newest).statement.zones_of is not None
        except FlowveilError as problem:
            findings.append(f"{step}: {problem}")
            continue
        private = PrivateFiles(zones_of=place / MAP if over_map else None, revision=before)
        found = verify_release(newest, against=against, strict=strict, private=private, **reading)
        findings += [f"{step}: {line}" for line in found.findings]
        notes += [f"{step}: {line}" for line in found.not_compared]
    return Verification(tuple(findings), tuple(notes), {"steps": len(steps)})
