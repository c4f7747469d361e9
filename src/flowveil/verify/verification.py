"""One verification of a release, a derived release or a series, its result, and the certificate of
it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import glob
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

import shapely

from flowveil import __version__
from flowveil.core.errors import FlowveilError, ParameterError, with_value
from flowveil.core.flows import Flows
from flowveil.published.about import period_in_words
from flowveil.published.derive import Derivation, Within, derive_published, parse_pick
from flowveil.published.document import PagePart, fill, page
from flowveil.published.folder import MANIFEST, hash_file
from flowveil.published.read_release import map_of_statement, read_published
from flowveil.published.sentences import sentences
from flowveil.reading import Reading
from flowveil.reading.areas import parse_area
from flowveil.reading.engines import read_flows
from flowveil.release.folder import ReleaseFolder, taken_at_its_word
from flowveil.release.statement import Statement
from flowveil.release.zone_map import FrozenMap
from flowveil.request.keywords import ReadingKeywords
from flowveil.system.paths import named_path
from flowveil.verify.from_flows import recount_trips, trips_from_flows, zone_map
from flowveil.verify.rebuild import check_files, check_parameters, check_rebuild, compare_with
from flowveil.verify.recount import Places, Result
from flowveil.verify.recount.tree import resolution_of
from flowveil.verify.recount.trips import UnreadableInputError, read_trips
from flowveil.zoning.files import ZoneMap, read_zones
from flowveil.zoning.grids import stated_grid
from flowveil.zoning.outside import with_outside
from flowveil.zoning.places import read_places

#: Stated where persons were recounted otherwise than the release counted them.
FOLDED = (
    "The recount ignored upper and lower case in names of persons, which is safer; the release"
    " distinguishes it."
)


@dataclass(frozen=True)
class Verification:
    """What a verification found."""

    findings: tuple[str, ...] = ()  # one line for each contradiction
    not_compared: tuple[str, ...] = ()  # what could not be compared, or only bounded
    compared: Mapping[str, Any] = field(
        default_factory=dict
    )  # who read the input, the kind, the number of cells
    sha256: Mapping[str, str] = field(default_factory=dict)  # hash of every file of the folder
    report: Mapping[str, Any] | None = None  # report.json; None if the folder does not hold

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the release."""
        return not self.findings

    def made_strict(self) -> Verification:
        """Returns the same with what could not be compared as findings, unless there are others."""
        missed = tuple(note for note in self.not_compared if not note.startswith(FOLDED))
        return replace(self, findings=self.findings or missed)

    def __repr__(self) -> str:
        if self.findings:
            return f"<Verification: {len(self.findings)} findings>"
        cells = self.compared.get("cells")
        return "<Verification holds" + (f": {cells:,} cells recounted>" if cells else ">")

    def __bool__(self) -> bool:
        raise TypeError("A Verification is neither true nor false. Hint: use .holds or .findings.")


@dataclass(frozen=True)
class PrivateFiles:
    """What only the operator has, and a report does not contain; None where it is not given."""

    zones_of: Any = None  # the earlier release, or zone map, whose zones the release says it has
    stricter: Any = None  # list of places with stricter thresholds
    l_places: Any = None  # list of places by which locations are counted
    revision: Sequence[
        str | PathLike[str]
    ] = ()  # folders of the releases that it revises, the oldest first


def _folder(directory: str | PathLike[str], what: str) -> Path:
    folder = named_path(directory, what=what)
    if not folder.is_dir():
        raise ParameterError(f"There is no release '{directory}'.")
    return folder


def verify_release(
    directory: str | PathLike[str],
    *,
    against: Any,
    expect: Mapping[str, Any] | None = None,
    strict: bool = False,
    noise: bool = True,
    private: PrivateFiles | None = None,
    **reading: Unpack[ReadingKeywords],
) -> Verification:
    """Recounts a release from the raw trips and rebuilds its folder.

    Args:
        directory: a release folder.
        against: the trips it was made from, in any form `read_trips` takes. CSV and Parquet files
            are read by the recount's own reader; for other inputs the engine reads them, and
            ``compared`` says so.
        expect: guarantee that the reader requires: ``k``, ``protect``, ``k_population``, ``l``.
        strict: whether what could not be compared is a finding.
        noise: whether the counts of a noisy release are tested. Not before publishing: refusing a
            draw would change its distribution.
        private: files that only the operator has.
        **reading: how to read the trips, where it differs from what the report says; ``zones`` is
            the operator's map.

    Examples:
        >>> flowveil.verify_release("release", against="trips.csv")
        <Verification holds: 18 cells recounted>
    """
    folder = _folder(directory, "the release")
    with TemporaryDirectory(prefix="flowveil-verify-") as copy:
        findings, sha256 = check_files(folder, Path(copy))
        release = ReleaseFolder(Path(copy))
        found = _verify(
            release,
            findings,
            sha256,
            private or PrivateFiles(),
            reading,
            name=directory,
            against=against,
            expect=expect or {},
            noise=noise,
        )
    return found.made_strict() if strict else found


def _verify(
    release: ReleaseFolder,
    findings: list[str],
    sha256: Mapping[str, str],
    private: PrivateFiles,
    reading: Mapping[str, Any],
    *,
    name: object,
    against: Any,
    expect: Mapping[str, Any],
    noise: bool,
) -> Verification:
    """Verifies the copy of a folder, with the findings on its files."""
    try:
        statement = None if findings else release.statement
    except ParameterError as problem:
        findings = [str(problem)]
    if findings or statement is None:
        return Verification(tuple(findings), sha256=sha256)
    if statement.derived_from is not None:
        raise ParameterError(
            f"'{name}' was computed from a published release, not from trips. Hint: flowveil"
            " verify DIR --from SOURCE compares it with its source; verify the source against the"
            " trips."
        )
    notes: list[str] = []
    reading = {name: value for name, value in reading.items() if value is not None}
    grid = stated_grid(statement.parameters.get("zones"))
    if grid is not None:
        reading.setdefault("zones", grid)
    if "zones" in reading:
        with taken_at_its_word(name):
            reading["zones"] = map_as_stated(statement, reading["zones"])
    findings = check_parameters(release)
    findings += check_rebuild(release, map_of_statement(statement, reading.get("zones")), notes)
    if findings:
        return Verification(tuple(findings), tuple(notes), sha256=sha256)
    if _folds_case(statement, expect, reading.get("person_case")):
        reading["person_case"] = "fold"
        confirmed = with_value("person_case", "keep")
        notes.append(f"{FOLDED} Hint: if such persons are different, confirm it with {confirmed}.")
    result = _recount(release, against, private, reading, expect=expect, test_noise=noise)
    notes += [note for note in result.notes if note not in notes]
    report = None if result.findings else release.report
    return Verification(result.findings, tuple(notes), result.counted, sha256, report)


def _recount(
    release: ReleaseFolder,
    against: Any,
    private: PrivateFiles,
    reading: Mapping[str, Any],
    **how: Any,
) -> Result:
    """Recounts with the recount's own reader.

    With the engine's flows where it cannot read the input.
    """
    parameters = dict(release.statement.parameters)
    hierarchy, tree = (
        parameters.get("hierarchy"),
        (reading["zones"].hierarchy if "zones" in reading else None),
    )
    if tree is not None and parameters.get("outside") == "keep":
        tree = with_outside(tree)
    area = parse_area(reading.get("within"))
    try:
        trips = read_trips(
            against,
            {**parameters, **{name: reading[name] for name in ("person_case",) if name in reading}},
            zones=None if tree is None else zone_map(tree, hierarchy),
            area=None if area is None else area.stored,
        )
    except UnreadableInputError:
        trips = trips_from_flows(
            read_as_stated(release.statement, against, **reading), hierarchy=hierarchy
        )
    resolution = int(resolution_of(trips.origins[:1])[0]) if trips.origin_map is None else None
    if private.stricter is not None:
        places = read_places(private.stricter, asking=True).located(resolution, tree)
        trips = replace(trips, stricter=Places(places.tile, places.k, places.l))  # type: ignore[arg-type]
    if private.l_places is not None:
        places = read_places(private.l_places, asking=False)
        trips = replace(
            trips, l_places=Places(places.tiles_on(resolution, tree), places.k, places.l)
        )
    return recount_trips(
        release, trips, zones_of=private.zones_of, revision=private.revision, **how
    )


def read_as_stated(statement: Statement, source: Any, **changes: Any) -> Flows:
    """Reads trips with an engine as a statement says that they were read."""
    engine = {name: changes.pop(name) for name in ("engine", "progress") if name in changes}
    sliced = read_flows(source, Reading.from_parameters(statement.parameters, **changes), **engine)
    if statement.facets.folds:
        return sliced.folded(statement.fold_trees)
    return sliced


def map_as_stated(statement: Statement, given: Any) -> ZoneMap:
    """Returns the operator's map, read with the columns that the statement names."""
    return (
        given
        if isinstance(given, ZoneMap)
        else read_zones(given, **(statement.parameters.get("zones") or {}))
    )


def _folds_case(
    statement: Statement, expect: Mapping[str, Any] | None, person_case: str | None
) -> bool:
    """Whether persons are recounted without case although the release keeps it.

    Its author could spell one as two.
    """
    # A text that names one unit, or several texts.
    expected = "people" in ((expect or {}).get("protect") or ())
    claimed = "people" in statement.guarantee or statement.guarantee.get("unit") == "person"
    return (
        person_case is None
        and statement.parameters.get("person_case") == "keep"
        and (claimed or expected)
    )


def verify_derived(
    directory: str | PathLike[str],
    source: str | PathLike[str],
    *,
    zones: Any = None,
    zones_of: Any = None,
    within: Any = None,
    strict: bool = False,
) -> Verification:
    """Computes a derived release again from its source folder and compares every byte.

    Needs no raw trips.

    Args:
        directory: the derived folder.
        source: the folder that it was computed from.
        zones: the operator's map, where the source is on one.
        zones_of, within: the release or frozen map, and the area, that the derivation used; as for
            `derive`.
        strict: whether what could not be compared is a finding.

    Raises ParameterError if a folder is not a release, or an input that the derivation used is not
    given.

    Examples:
        >>> made = flowveil.derive("release", "coarser", level=5)
        >>> flowveil.verify_derived("coarser", source="release")
        <Verification holds>
    """
    folder, origin = _folder(directory, "the release"), _folder(source, "the source")
    with TemporaryDirectory(prefix="flowveil-verify-") as copy:
        copies = [Path(copy) / name for name in ("derived", "source")]
        for place in copies:
            place.mkdir()
        own, sha256 = check_files(folder, copies[0])
        others, source_sha256 = check_files(origin, copies[1])
        findings = [*own, *(f"source: {line}" for line in others)]
        if findings:
            return Verification(tuple(findings), sha256=sha256)
        release, base = map(ReleaseFolder, copies)
        statement = release.statement
        if statement.derived_from is None:
            raise ParameterError(
                f"'{directory}' is no derived release. Hint: verify it with --against INPUT."
            )
        if source_sha256[MANIFEST] != statement.derived_from:
            return Verification(
                ("report.json: derived_from is not the hash of the source's manifest",),
                sha256=sha256,
            )
        how = _derivation(statement, zones_of, area_of_zones(within))
        notes: list[str] = []
        findings = _compare_derived(release, base, how, notes, zones=zones, source=origin)
    compared = {"read_by": "source", "kind": statement.kind}
    report = None if findings else release.report
    found = Verification(tuple(findings), tuple(notes), compared, sha256, report)
    return found.made_strict() if strict else found


def _compare_derived(
    release: ReleaseFolder,
    base: ReleaseFolder,
    how: Derivation,
    notes: list[str],
    *,
    zones: Any,
    source: Path,
) -> list[str]:
    """Returns findings of a comparison with what a derivation makes of the source."""
    statement = release.statement
    try:
        with taken_at_its_word(source):
            given = None if zones is None else map_as_stated(base.statement, zones)
            published = read_published(base, map_of_statement(base.statement, given))
            if published is None:
                raise ParameterError(
                    "The source belongs to no map, so it cannot be computed again."
                )
            stated: dict[str, Any] = {"formats": statement.formats, "about": statement.about}
            assert statement.derived_from is not None
            derived = derive_published(
                published, how, manifest_sha256=statement.derived_from, **stated
            )
            return compare_with(release, derived, notes)
    except FlowveilError as problem:
        return [f"the folder cannot be computed again from its source: {problem}"]


def _derivation(statement: Statement, zones_of: Any, within: Within | None) -> Derivation:
    """Returns what a statement says was computed.

    Raises ParameterError if a zone map or an area is not given.
    """
    how = statement.parameters.get("derive") or {}
    if "zones_of" in how and zones_of is None:
        raise ParameterError(
            "The release has the zones of another one. Hint: give that release with --zones-of."
        )
    if "within" in how and within is None:
        raise ParameterError(
            "The release holds the cells inside an area. Hint: give the area with --within."
        )
    listed = {name: tuple(how.get(name, ())) for name in ("sum", "drop")}
    zones = FrozenMap.read(zones_of) if "zones_of" in how else None
    area = within if "within" in how else None
    return Derivation(
        parse_pick(how.get("pick", ())),
        level=how.get("level"),
        zones_of=zones,
        within=area,
        **listed,
    )


def area_of_zones(given: Any) -> Within | None:
    """Returns an area for whole zones, from what `read_trips` takes as ``within``."""
    if given is None or isinstance(given, Within):
        return given
    area = parse_area(given)
    assert area is not None
    if area.cells:
        return Within(area.text, frozenset(format(cell, "x") for cell in area.cells))
    outline = area.outline
    if area.box is not None:
        west, south, east, north = area.box
        spans = [(west, east)] if west < east else [(west, 180), (-180, east)]
        outline = shapely.union_all(
            [shapely.box(left, south, right, north) for left, right in spans]
        )
    return Within(area.text, outline=outline)


def check_suffix(path: str | PathLike[str]) -> None:
    """Raises ParameterError for a file that is neither JSON nor HTML by its name."""
    if Path(path).suffix.lower() not in (".json", ".html"):
        raise ParameterError(f"A certificate is .json or .html; found '{Path(path).suffix}'.")


def certificate(
    found: Verification,
    *,
    expected: Mapping[str, Any],
    source: str | PathLike[str] | None,
    **signed: str | None,
) -> dict[str, Any]:
    """Returns the content of a certificate.

    Private: the hash of a small input lets a reader test guesses.

    Nothing is repeated of a report that something contradicts. Every file of the ``source`` is
    hashed. ``signed`` has short texts: ``date`` and ``signer``.
    """
    report = found.report
    stated = None if report is None else Statement.from_report(report)
    return {
        "certificate": "flowveil verification",
        "verified_with": __version__,
        "made_with": None if report is None else report["version"],
        "holds": False if found.findings else None if found.not_compared else True,
        "findings": list(found.findings),
        "not_compared": list(found.not_compared),
        "expected": {
            name: value for name, value in expected.items() if value not in (None, (), [])
        },
        "method": stated and stated.method,
        "guarantee": stated and dict(stated.guarantee),
        "cells": report and report["published"]["cells"],
        "about": stated and dict(stated.about),
        "statement": [] if stated is None else sentences(stated),
        "columns": stated and stated.parameters.get("columns"),
        "confirmed": stated and list(stated.confirmed),
        "input_sha256": {} if source is None else _hash_inputs(source),
        "release_sha256": dict(sorted(found.sha256.items())),
        **{name: text for name, text in signed.items() if text is not None},
    }


#: Facts of a certificate in the order of the page, and what they are called for people.
_FACTS = {
    "place": "place",
    "signed": "what was signed",
    "signer": "signed by",
    "date": "date",
    "expected": "required",
    "compared": "compared with",
    "cells": "published cells",
    "method": "method",
    "columns": "columns of the input",
    "confirmed": "confirmed by the operator",
    "made_with": "made with flowveil",
    "verified_with": "verified with flowveil",
}
_HASHES = (
    ("inputs", "SHA-256 of the input", "input_sha256"),
    ("hashes", "SHA-256 of the files of the release", "release_sha256"),
)


def _in_words(value: Any) -> str:
    """Returns a value as a person writes it, without brackets."""
    if isinstance(value, Mapping):
        named = (f"{str(n).replace('_', ' ')}: {_in_words(v)}" for n, v in value.items())
        return "; ".join(named)
    if isinstance(value, list | tuple):
        return ", ".join(map(_in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _hash_inputs(source: str | PathLike[str]) -> dict[str, str]:
    """Returns the SHA-256 of every input file, by its path below the common folder.

    Empty without files.
    """
    path = Path(source)
    names = (
        [str(path)]
        if path.is_file()
        else glob(f"{path}/**" if path.is_dir() else str(path), recursive=True)
    )
    files = sorted(Path(name) for name in names if Path(name).is_file())
    top = Path(os.path.commonpath([file.parent for file in files])) if files else path
    return {file.relative_to(top).as_posix(): hash_file(file) for file in files}


def certificate_text(content: Mapping[str, Any], path: str | PathLike[str]) -> str:
    """The certificate as JSON or as a page, by the suffix of its file."""
    if Path(path).suffix.lower() == ".json":
        return (
            json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
            + "\n"
        )
    verdict = {
        True: "The release holds",
        False: "The release does NOT hold",
        None: "Nothing contradicts the release",
    }
    facts = {name: content[name] for name in _FACTS if content.get(name)}
    about = content.get("about") or {}
    named = [("title", about.get("title") or "none was given")]
    named += [("period", period_in_words(about["period"]))] if about.get("period") else []
    rows = [*named, *((_FACTS[name], _in_words(value)) for name, value in facts.items())]
    findings = [*content["findings"], *content["not_compared"]] or ["None."]
    protected = content["statement"] or ["Not repeated here."]
    parts = [
        PagePart("findings", "Findings", fill("list.html", lines=findings)),
        PagePart("statement", "What is and is not protected", fill("list.html", lines=protected)),
        PagePart("facts", "What was verified", fill("pairs.html", rows=rows)),
        *(
            PagePart(name, heading, fill("pairs.html", rows=list(content[key].items())))
            for name, heading, key in _HASHES
            if content[key]
        ),
    ]
    lead = f"Recounted from the trips with flowveil {content['verified_with']}."
    return page(
        title="Certificate of a verification",
        heading=verdict[content["holds"]],
        lead=lead,
        parts=parts,
    )
