"""A derived release computed again from its source and compared byte by byte. Needs no raw trips."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flowveil import __version__
from flowveil.errors import FlowveilError, ParameterError
from flowveil.paths import named_path
from flowveil.published.derive import Derivation, Within, derive_published, parse_pick
from flowveil.published.folder import MANIFEST, FolderContent, write_files
from flowveil.published.read_release import map_of_statement, read_published
from flowveil.release.folder import ReleaseFolder, taken_at_its_word
from flowveil.release.statement import Statement
from flowveil.release.zone_map import FrozenMap
from flowveil.verify.rebuild import check_files, compare_folders
from flowveil.verify.verification import Verification
from flowveil.zoning.files import ZoneMap


def verify_derived(
    directory: str | PathLike[str],
    source: str | PathLike[str],
    *,
    zones: ZoneMap | None = None,
    zones_of: Any = None,
    within: Within | None = None,
    strict: bool = False,
) -> Verification:
    """Computes a derived release again from its source and compares every byte.

    Args:
        directory: the derived folder.
        source: the folder that it was computed from.
        zones: the operator's map, where the source is on one.
        zones_of: the release or frozen map whose zones it says it has.
        within: the area, where it says it has one.
        strict: whether what could not be compared is a finding.

    Raises:
        ParameterError: a folder is not a release, or an input that the derivation used is not given.
    """
    folder, origin = named_path(directory, what="the release"), named_path(source, what="the source")
    for place in (folder, origin):
        if not place.is_dir():
            raise ParameterError(f"There is no release '{place}'.")
    (own, sha256), (others, source_sha256) = check_files(folder), check_files(origin)
    findings = [*own, *(f"source: {line}" for line in others)]
    if findings:
        return Verification(tuple(findings), sha256=sha256)
    release, base = ReleaseFolder(folder), ReleaseFolder(origin)
    statement = release.statement
    if statement.derived_from is None:
        raise ParameterError(f"'{directory}' is no derived release. Hint: verify it with --against INPUT.")
    if source_sha256[MANIFEST] != statement.derived_from:
        return Verification(("report.json: derived_from is not the hash of the source's manifest",), sha256=sha256)
    how = _derivation(statement, zones_of, within)
    notes: list[str] = []
    try:
        with taken_at_its_word(origin), TemporaryDirectory(prefix="flowveil-derive-") as made:
            published = read_published(base, map_of_statement(base.statement, zones))
            if published is None:
                raise ParameterError("The source belongs to no map, so it cannot be computed again.")
            derived = derive_published(
                published,
                how,
                manifest_sha256=statement.derived_from,
                formats=statement.formats,
                about=statement.about,
            )
            write_files(FolderContent(derived), Path(made))
            same_version = release.report["version"] == __version__
            findings = list(compare_folders(folder, Path(made), notes, same_version=same_version))
    except FlowveilError as problem:
        findings = [f"the folder cannot be computed again from its source: {problem}"]
    if strict and not findings:
        findings = list(notes)
    return Verification(tuple(findings), tuple(notes), {"read_by": "source", "kind": statement.kind}, sha256)


def _derivation(statement: Statement, zones_of: Any, within: Within | None) -> Derivation:
    """Returns what a statement says was computed.

    Raises:
        ParameterError: it names a zone map or an area that is not given.
    """
    how = statement.parameters.get("derive") or {}
    if "zones_of" in how and zones_of is None:
        raise ParameterError("The release has the zones of another one. Hint: give that release with --zones-of.")
    if "within" in how and within is None:
        raise ParameterError("The release holds the cells inside an area. Hint: give the area with --within.")
    return Derivation(
        pick=parse_pick(how.get("pick", ())),
        level=how.get("level"),
        zones_of=FrozenMap.read(zones_of) if "zones_of" in how else None,
        sum=tuple(how.get("sum", ())),
        within=within if "within" in how else None,
        drop=tuple(how.get("drop", ())),
    )
