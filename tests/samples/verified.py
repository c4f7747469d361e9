"""Verification of a folder against flows in memory, as tests need it.

Files, rebuild and recount.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flowveil.release.boundary import public_map
from flowveil.release.folder import ReleaseFolder
from flowveil.verify.from_flows import recount_flows
from flowveil.verify.rebuild import check_files, check_rebuild
from flowveil.zoning.restriction import refined


def findings_of(
    folder: Path, flows: Any, *, notes: list[str] | None = None, **given: Any
) -> list[str]:
    """Everything that contradicts a release of these flows."""
    with TemporaryDirectory() as copy:
        found, _ = check_files(folder, Path(copy))
    if found:
        return found
    lines: list[str] = [] if notes is None else notes
    try:
        release = ReleaseFolder(folder)
        statement = release.statement
        moved = refined(flows, statement.parameters.get("hierarchy"))[0]
    except ValueError as problem:
        return [str(problem)]
    whole = moved.slices[0]
    found = check_rebuild(release, public_map(whole, boxed=statement.boxes is not None), lines)
    if found:
        return found
    result = recount_flows(folder, flows, **given)
    lines += result.notes
    return list(result.findings)
