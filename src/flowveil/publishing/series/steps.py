"""A series: one release for each step of time, all over the same zones, published one by one
(docs/series.md).

A run continues where an earlier one ended: existing steps are verified against the trips. A step
whose trips changed is refused before anything is written, because publishing it again would publish
the difference, which may be a single trip. With revisions, changes that reach the guarantee alone
are published next to the step: ``2024-01-r1``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from flowveil.core.errors import (
    GuaranteeError,
    InfeasibleError,
    OutputError,
    ParameterError,
    option,
)
from flowveil.core.flows import Flows
from flowveil.core.values import STATISTICS
from flowveil.publishing.anonymization import DEFAULT_OF_MAPS, anonymize
from flowveil.publishing.ledger.ledger import publish_recorded
from flowveil.publishing.publish import publish
from flowveil.publishing.series.derived import DERIVED, PeriodLoss, derive_periods, period_losses
from flowveil.publishing.series.index import (
    INDEX,
    MAP,
    METADATA,
    PAGE,
    TOTALS,
    check_index,
    newest_releases,
    read_index,
    releases_of,
)
from flowveil.publishing.series.index import write_index as write_files
from flowveil.reading.engines import read_trips
from flowveil.release.folder import ReleaseFolder
from flowveil.release.zone_map import FrozenMap
from flowveil.request.keywords import TimelessReading
from flowveil.system.output import real_place
from flowveil.system.progress import log
from flowveil.verify.from_flows import recount_flows
from flowveil.zoning.files import ZoneMap, read_zones
from flowveil.zoning.restriction import flows_during

#: Steps that follow each other on the calendar.
STEPS = ("month", "day")
_LABEL = re.compile(r"\d{4}-\d{2}(-\d{2})?")
#: Entries of the folder of a series: steps, their revisions, what is computed from them, and hidden
#: files.
_ENTRY = re.compile(
    rf"{_LABEL.pattern}(-r[1-9]\d*)?|\..*|"
    + "|".join(map(re.escape, (INDEX, PAGE, TOTALS, MAP, METADATA, DERIVED)))
)
#: What decides who is hidden: the same in all steps.
_PROMISE = ("k", "protect", "k_population", "l")
_OF_EVERY_STEP = (*_PROMISE, "max_suppressed", "allow_small_k", "population_only")
#: Rules that `anonymize` knows and that later steps, which are over a map that is kept, would not
#: follow.
_OF_NO_STEP = ("dominance", "stricter", "l_places", "t")
#: Settings that a series refuses.
REFUSED = (*_OF_NO_STEP, *STATISTICS, "fold", "fold_time")


def refusal_of(names: Sequence[str]) -> str:
    """Returns why a series refuses these settings, and what to do instead."""
    return (
        f"A series cannot be asked for {', '.join(map(option, names))}: all steps have the same"
        " map and guarantee, and these are for one release. Hint: publish the steps one by one with"
        f" `anonymize`, {option('during')} and {option('zones_of')}."
    )


@dataclass(frozen=True)
class Series:
    """The result of a run."""

    place: Path  # the folder
    index: Mapping[str, Any]  # content of its index.json
    published: tuple[str, ...]  # the steps that this run published
    # how many steps hold too little. Private: it would reveal that a missing step had trips
    unpublished: int
    losses: tuple[PeriodLoss, ...] = ()  # what the derived periods lose. Private

    def __repr__(self) -> str:
        return f"<Series: {len(self.published)} steps published>"


def publish_series(
    source: Any,
    directory: str | PathLike[str],
    *,
    time: str | None,
    every: str = "month",
    zones_of: Any = None,
    revision: bool = False,
    formats: Any = (),
    about: Mapping[str, str] | None = None,
    ledger: str | PathLike[str] | None = None,
    accept_differencing: bool = False,
    on_step: Callable[[str], None] | None = None,
    asked: Mapping[str, Any] | None = None,
    **reading: Unpack[TimelessReading],
) -> Series:
    """Publishes the steps of a table of trips over one map.

    Args:
        directory: the folder of the series: new, empty, or an earlier series, which is continued.
        every: ``month`` or ``day``.
        zones_of: an earlier release, or a frozen map, whose zones all steps get; by default those
            of the first step.
        revision: publish a revision of a published step whose trips have changed, instead of
            refusing it.
        about: what every step declares: ``title``, ``publisher``, ``contact``, ...; ``base_url`` is
            the address of the series. With a publisher or a contact the series has dcat.jsonld.
        ledger, accept_differencing: as for `Release.write`; every step is checked and recorded.
        on_step: called with the label of each step that is begun.
        asked: arguments of `anonymize`; the method chooses the zones of the first step.
        **reading: how to read the trips; see `read_trips`.

    Raises:
        ParameterError: the steps, the map or the guarantee are not those that the series was begun
            with.
        InfeasibleError: a published step has other trips now and revisions were not asked for, or a
            step cannot be published over the map. Steps that were published before stay.

    Examples:
        >>> flowveil.publish_series(
        ...     "trips.csv", "series", time="t", every="day", resolution=6, person="person_id"
        ... )
        <Series: 2 steps published>
    """
    if every not in STEPS:
        raise ParameterError(f"A series has steps of a {' or a '.join(STEPS)}; found {every!r}.")
    if not time:
        raise ParameterError("A series needs the column of the time. Hint: --time COLUMN.")
    beyond = [name for name in _OF_NO_STEP if (asked or {}).get(name) is not None]
    beyond += [name for name in STATISTICS if reading.get(name)]
    if beyond:
        raise ParameterError(refusal_of(beyond))
    recorded = (
        {} if ledger is None else {"ledger": ledger, "accept_differencing": accept_differencing}
    )
    writing = {"formats": formats, **(about or {}), **recorded}
    place = _opened(directory)
    try:
        zones = reading.get("zones")
        if zones is not None and not isinstance(zones, ZoneMap):
            zones = reading["zones"] = read_zones(zones, crs=reading.get("crs"))
        sliced = read_trips(source, time=time, every=every, **reading)
        return _Run(place, sliced, every, dict(asked or {}), writing, on_step, revision, zones).go(
            zones_of
        )
    finally:
        # Where nothing was published, a new folder does not stay; one that holds anything cannot be
        # removed so.
        with suppress(OSError):
            place.rmdir()


def _opened(directory: str | PathLike[str]) -> Path:
    """The folder of the series, made if it is new.

    OutputError if it is a file, or holds something else.
    """
    place = real_place(directory)
    if place.exists() and not place.is_dir():
        raise OutputError(f"'{directory}' is a file; a folder is needed. Hint: name a new folder.")
    try:
        place.mkdir(exist_ok=True)
    except OSError as problem:
        raise OutputError(
            f"'{directory}' cannot be made: {problem.strerror}. Hint: create its parent first."
        ) from None
    strange = [name for name in os.listdir(place) if not _ENTRY.fullmatch(name)]
    if strange:
        raise OutputError(
            f"'{directory}' holds {len(strange)} entries that do not belong to a series. Hint: name"
            " a new folder."
        )
    return place


@dataclass(frozen=True)
class _Run:
    place: Path
    sliced: Flows
    every: str
    asked: dict[str, Any]
    writing: dict[str, Any]
    on_step: Callable[[str], None] | None
    revision: bool
    zones: ZoneMap | None

    def go(self, zones_of: Any) -> Series:
        labels = [key[0] for key in self.sliced.slice_keys]
        there = sorted(
            n for n in os.listdir(self.place) if _LABEL.fullmatch(n) and (self.place / n).is_dir()
        )
        index = read_index(self.place)
        if index is not None and index["every"] != self.every:
            raise ParameterError(
                f"This series has steps of a {index['every']}; found {self.every!r}."
            )
        frozen = self._map(zones_of, there)
        # Published steps that contradict the trips.
        changed = [
            label for label in there if label not in labels or not self._holds(label, frozen)
        ]
        if changed and not self.revision:
            raise InfeasibleError(
                f"{len(changed)} published steps contradict these trips ({', '.join(changed[:5])}):"
                " the trips were corrected, are read otherwise, or the files were changed. To"
                " publish a step again would publish the change, which may be a single trip."
                " Nothing was written. Hint: leave late trips out, or publish the changes that"
                " reach the guarantee alone with --revision (revision=True)."
            )
        done, published = list(there), list[str]()
        try:
            for label in changed:
                published.append(self._revise(label, frozen))
            for label in (label for label in labels if label not in there):
                if self.on_step is not None:
                    self.on_step(label)
                release = self._release(label, frozen, first=not done)
                if release is None:
                    continue
                self._refuse_other_promise(done, release.parameters)
                self._publish(release, label)
                done, published = sorted([*done, label]), [*published, label]
                frozen = frozen or self._keep(FrozenMap.read(self.place / label))
        except InfeasibleError:
            # Published steps stay, and the index lists all of them.
            if published and frozen is not None:
                self._write_index(done, frozen)
            raise
        if not done or frozen is None:
            raise InfeasibleError(
                f"None of {len(labels)} steps can be published. Hint: lower k, or take longer"
                " steps."
            )
        written = self._write_index(done, frozen)
        losses = period_losses(self.place, self.sliced, frozen, done)
        return Series(
            self.place, written, tuple(published), len(set(labels) - set(done)), tuple(losses)
        )

    def _write_index(self, done: list[str], frozen: FrozenMap) -> dict[str, Any]:
        """Writes the derived releases and the index, and compares both with the published steps."""
        derive_periods(self.place, newest_releases(self.place, done), self.zones)
        written = write_files(self.place, done, every=self.every, map_sha256=frozen.sha256)
        findings = check_index(self.place, self.zones)
        if findings:
            for name in (INDEX, TOTALS, PAGE, METADATA):
                (self.place / name).unlink(missing_ok=True)
            shutil.rmtree(self.place / DERIVED, ignore_errors=True)
            raise GuaranteeError(
                "The steps hold, but what was computed from them does not; it was removed.",
                findings=findings,
            )
        return written

    def _map(self, zones_of: Any, there: list[str]) -> FrozenMap | None:
        """The map of the series: the one that it has, the one that is given, or that of its first
        step.
        """
        given = None if zones_of is None else FrozenMap.read(zones_of)
        if (self.place / MAP).exists():
            kept = FrozenMap.read(self.place / MAP)
            if given is not None and given.sha256 != kept.sha256:
                raise ParameterError(
                    "This series was begun over other zones (--zones-of). Hint: name a new folder."
                )
            return kept
        if given is None and there:
            # A run was stopped between publishing its first step and keeping its map.
            given = FrozenMap.read(self.place / there[0])
        return None if given is None else self._keep(given)

    def _keep(self, frozen: FrozenMap) -> FrozenMap:
        frozen.write(self.place / MAP)
        return frozen

    def _release(self, label: str, frozen: FrozenMap | None, *, first: bool) -> Any:
        flows = flows_during(self.sliced, label)
        # Only a map of disjoint zones can be kept for later steps.
        asked = {**self.asked, "method": self.asked.get("method") or DEFAULT_OF_MAPS}
        if frozen is not None:
            # The method and its options have chosen the map.
            asked = {name: value for name, value in asked.items() if name in _OF_EVERY_STEP} | {
                "zones_of": frozen
            }
        try:
            return anonymize(flows, **asked)
        except InfeasibleError as short:
            # Fewer trips than one cell needs, or no cell that reaches the guarantee: such a step
            # holds too little.
            too_little = int(flows.trips.sum()) < (self.asked.get("k") or 10)
            if first or too_little or short.best.get("suppressed") == 1:
                return None
            why = str(short).partition(" Hint:")[0]
            raise InfeasibleError(
                f"Step {label} cannot be published; steps before it stay. {why} Hint: allow more in"
                " this and later steps (--max-suppressed), or begin a new series in another folder"
                " over coarser zones: those of a release with a higher k (--zones-of)."
            ) from None

    def _publish(self, release: Any, name: str) -> None:
        write = publish_recorded if "ledger" in self.writing else publish
        own, address = {}, self.writing.get("base_url")
        if address is not None:
            own["base_url"] = f"{address.rstrip('/')}/{name}"
        write(release, self.place / name, **{**self.writing, **own})
        log.info("Published %s", name)

    def _revise(self, label: str, frozen: FrozenMap | None) -> str:
        """Publishes a revision of a step next to it."""
        before = releases_of(self.place, label)
        name = f"{label}-r{len(before)}"
        if self.on_step is not None:
            self.on_step(name)
        asked = {key: value for key, value in self.asked.items() if key in _OF_EVERY_STEP}
        if (label,) not in self.sliced.slice_keys:
            raise InfeasibleError(
                f"Step {label} has no trip any more, so it cannot be revised. Steps before it stay."
            )
        release = anonymize(
            flows_during(self.sliced, label), zones_of=frozen, revision=before, **asked
        )
        self._publish(release, name)
        return name

    def _refuse_other_promise(self, done: list[str], parameters: Mapping[str, Any]) -> None:
        before = ReleaseFolder(self.place / done[0]).statement.parameters if done else parameters
        other = [name for name in _PROMISE if before.get(name) != parameters.get(name)]
        if other:
            raise ParameterError(
                f"This series was begun with another guarantee ({', '.join(other)}); all steps have"
                " the same. Hint: ask for the same, or name a new folder."
            )

    def _holds(self, label: str, frozen: FrozenMap | None) -> bool:
        *before, newest = releases_of(self.place, label)
        # The step that chose the map is over no other.
        over_it = ReleaseFolder(newest).statement.zones_of is not None
        zones_of = frozen.as_table() if over_it and frozen is not None else None
        flows = flows_during(self.sliced, label)
        return not recount_flows(newest, flows, zones_of=zones_of, revision=before).findings
