"""One verification of a release, or of a series, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from flowveil.engines import read_flows
from flowveil.errors import FlowveilError, ParameterError
from flowveil.flows import Flows
from flowveil.paths import named_path
from flowveil.published.read_release import map_of_statement
from flowveil.reading import Reading
from flowveil.release.folder import ReleaseFolder
from flowveil.release.statement import Statement
from flowveil.slices import SlicedFlows
from flowveil.verify.from_flows import recount_trips, trips_from_flows
from flowveil.verify.rebuild import check_files, check_rebuild
from flowveil.verify.recount import Result
from flowveil.verify.recount.trips import UnreadableInputError, read_trips
from flowveil.zoning.files import ZoneMap, read_zones
from flowveil.zoning.places import read_places

#: Stated where persons were recounted otherwise than the release counted them.
FOLDED = (
    "The recount ignored upper and lower case in names of persons, which is safer; the release distinguishes it. "
    "Hint: if such persons are different, confirm it with --person-case keep (person_case='keep')."
)


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Attributes:
        findings: one line for each contradiction.
        not_compared: what could not be compared, or only bounded.
        compared: what was compared: who read the input, the kind, the number of cells.
        sha256: hash of every file of the folder.
    """

    findings: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    compared: Mapping[str, Any] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the release."""
        return not self.findings

    def __bool__(self) -> bool:
        raise TypeError("A Verification is neither true nor false. Hint: use .holds or .findings.")


@dataclass(frozen=True)
class PrivateFiles:
    """What only the operator has, and a report does not contain; None where it is not given.

    Attributes:
        zones_of: the earlier release, or zone map, whose zones the release says it has.
        stricter: list of places with stricter thresholds.
        l_places: list of places by which locations are counted.
        revision: folders of the releases that it revises, the oldest first.
    """

    zones_of: Any = None
    stricter: Any = None
    l_places: Any = None
    revision: Sequence[str | PathLike[str]] = ()


def verify_release(
    directory: str | PathLike[str],
    *,
    against: Any,
    expect: Mapping[str, Any] | None = None,
    strict: bool = False,
    noise: bool = True,
    private: PrivateFiles | None = None,
    **reading: Any,
) -> Verification:
    """Recounts a release from the raw trips and rebuilds its folder.

    Args:
        directory: a release folder.
        against: the trips it was made from, in any form `read_trips` takes. CSV and Parquet files are read by the
            recount's own reader; for other inputs the engine reads them, and ``compared`` says so.
        expect: guarantee that the reader requires: ``k``, ``protect``, ``k_population``, ``l``.
        strict: whether what could not be compared is a finding.
        noise: whether the counts of a noisy release are tested. Not before publishing: refusing a draw would change its
            distribution.
        private: files that only the operator has.
        **reading: how to read the trips, where it differs from what the report says; ``zones`` is the operator's map.
    """
    folder = named_path(directory, what="the release")
    if not folder.is_dir():
        raise ParameterError(f"There is no release '{directory}'.")
    findings, sha256 = check_files(folder)
    if findings:
        return Verification(tuple(findings), sha256=sha256)
    release = ReleaseFolder(folder)
    try:
        statement = release.statement
    except ParameterError as problem:
        return Verification((str(problem),), sha256=sha256)
    if statement.derived_from is not None:
        raise ParameterError(
            f"'{directory}' was computed from a published release, not from trips. Hint: flowveil verify DIR --from "
            "SOURCE compares it with its source; verify the source against the trips."
        )
    notes: list[str] = []
    given = map_of_statement(statement, _zone_map(statement, reading.get("zones")))
    if given is None:
        return Verification(
            ("report.json: states neither a resolution nor a map, so its zones lie nowhere",), (), {}, sha256
        )
    findings = check_rebuild(release, given, notes)
    if findings:
        return Verification(tuple(findings), tuple(notes), sha256=sha256)
    if _folds_case(statement, expect, reading.get("person_case")):
        reading["person_case"] = "fold"
        notes.append(FOLDED)
    result = _recount(release, against, private or PrivateFiles(), reading, expect=expect or {}, noise=noise)
    notes += [note for note in result.notes if note not in notes]
    findings = list(result.findings)
    if strict and not findings:
        findings = [note for note in notes if note != FOLDED]
    return Verification(tuple(findings), tuple(notes), result.counted, sha256)


def _recount(
    release: ReleaseFolder, against: Any, private: PrivateFiles, reading: Mapping[str, Any], **how: Any
) -> Result:
    """Recounts with the recount's own reader; with the engine's flows where it cannot read the input."""
    parameters = dict(release.statement.parameters)
    if "person_case" in reading:
        parameters["person_case"] = reading["person_case"]
    lists = {"stricter": private.stricter, "l_places": private.l_places}
    try:
        trips = read_trips(against, parameters, zones=reading.get("zones"), area=reading.get("within"), **lists)
    except UnreadableInputError:
        flows = read_as_stated(release.statement, against, **reading)
        places = None
        if private.l_places is not None:
            if not isinstance(flows, Flows):
                raise ParameterError(
                    "l is counted by listed places for one matrix, and this release has slices."
                ) from None
            flows = replace(flows, l_places=read_places(private.l_places, asking=False).counted_on(flows))
        if private.stricter is not None:
            whole = flows.whole if isinstance(flows, SlicedFlows) else flows
            places = read_places(private.stricter, asking=True).on(whole)
        trips = trips_from_flows(flows, stricter=places)
    return recount_trips(release, trips, zones_of=private.zones_of, revision=private.revision, **how)


def read_as_stated(statement: Statement, source: Any, **changes: Any) -> Flows | SlicedFlows:
    """Reads trips with an engine as a statement says that they were read."""
    engine = {name: changes.pop(name) for name in ("engine", "progress") if name in changes}
    sliced = read_flows(source, Reading.from_parameters(statement.parameters, **changes), **engine)
    if statement.kind == "folded" or (statement.parameters.get("slices") or {}).get("fold_time"):
        return sliced.folded()
    return sliced if statement.slice_columns else sliced.whole


def _zone_map(statement: Statement, given: Any) -> ZoneMap | None:
    if given is None or isinstance(given, ZoneMap):
        return given
    return read_zones(given, **(statement.parameters.get("zones") or {}))


def _folds_case(statement: Statement, expect: Mapping[str, Any] | None, person_case: str | None) -> bool:
    """Whether persons are recounted with upper and lower case as one, although the release distinguishes them.

    Five people spelled in two ways would count as ten if the release alone decided.
    """
    required = (expect or {}).get("protect") or ()
    expected = "people" in ((required,) if isinstance(required, str) else required)
    claimed = "people" in statement.guarantee or statement.guarantee.get("unit") == "person"
    return person_case is None and statement.parameters.get("person_case") == "keep" and (claimed or expected)


def verify_series(
    directory: str | PathLike[str], *, against: Any, strict: bool = False, **reading: Any
) -> Verification:
    """Verifies every release of a series, and the files of the series itself.

    Args:
        directory: the folder of the series.
        against: the trips it was made from.
        strict: as for `verify_release`.
        **reading: ``expect``, and how to read the trips.
    """
    from flowveil.series.index import MAP, check_index, read_index, releases_of

    place = named_path(directory, what="the series")
    findings = check_index(place, _zones_of_series(place, reading.get("zones")))
    index = read_index(place)
    if findings or index is None:
        return Verification(tuple(findings or ["index.json: missing or not that of a series"]))
    notes: list[str] = []
    for step in (entry["step"] for entry in index["steps"]):
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
    return Verification(tuple(findings), tuple(notes), {"steps": len(index["steps"])})


def _zones_of_series(place: Path, given: Any) -> ZoneMap | None:
    """Returns the operator's map, read as the first step says."""
    from flowveil.series.index import read_index

    if given is None or isinstance(given, ZoneMap):
        return given
    index = read_index(place) or {}
    first = next((str(entry["step"]) for entry in index.get("steps", ())), None)
    columns = {} if first is None else ReleaseFolder(place / first).statement.parameters.get("zones") or {}
    return read_zones(given, **columns)
