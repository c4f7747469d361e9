"""The ledger of a data set: every release that was made from it, by content, and the audit of a new one against them.

One ledger is one data set. ``ledger.jsonl`` has one JSON object for each release: its published tables, its report and
a fingerprint of the input. There is no raw data in it and no person. The fingerprint is keyed with ``secret``, a file
that only its owner can read: without it nobody can test a guess at the trips.

The file is locked from the first look to the last byte, so of two runs the second is audited against the first. The
line of a release is on the disk before the release takes its place: after a crash the ledger may know a release that
was never published, and never the other way round. A line that a crash left incomplete belongs to no release, and the
next run removes it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flowveil.audit.published import PublishedRelease, published_release
from flowveil.audit.subtraction import Groups, confined_groups
from flowveil.errors import DataError, FlowveilError, InfeasibleError, OutputError, ParameterError
from flowveil.output import real_place
from flowveil.publication import folder_content, publish
from flowveil.published.about import ENTRIES
from flowveil.published.folder import check_target
from flowveil.release.confirmation import DIFFERENCING
from flowveil.release.noisy import NothingLeftError, PrivacyLoss
from flowveil.release.release import Publishable
from flowveil.series.budget import SPENT, Budget, budget_with, cost_of
from flowveil.slices import SlicedFlows

try:
    import fcntl
except ImportError:  # Windows: nothing can be locked.
    fcntl = None  # type: ignore[assignment]

LEDGER, SECRET = "ledger.jsonl", "secret"
FORMAT = "flowveil ledger"
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Audit:
    """What a new release reveals together with the earlier ones.

    Attributes:
        releases: how many earlier releases it was held against.
        groups: groups of trips that are confined below the guarantee.
        single_cells: those of them that are one pair of zones.
        single_trips: those that are exactly one trip.
        unchecked: comparisons that could not be made.
    """

    releases: int
    groups: int = 0
    single_cells: int = 0
    single_trips: int = 0
    unchecked: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether all could be compared, and nothing was found."""
        return not self.groups and not self.unchecked

    def in_words(self) -> str:
        """What was found: counts, never cells."""
        singles = f"{self.single_cells:,} single cells, {self.single_trips:,} single trips"
        said = [f"{self.groups:,} groups below the guarantee ({singles})"]
        if self.unchecked:
            said.append(f"{self.unchecked:,} comparisons that could not be made")
        return (
            f"Subtracted from the {self.releases:,} earlier release{'s' * (self.releases != 1)} of this ledger, the "
            f"new one leaves {' and '.join(said)}."
        )


def publish_recorded(
    release: Publishable,
    directory: str | PathLike[str],
    *,
    ledger: str | PathLike[str],
    accept_differencing: bool = False,
    epsilon_total: float | None = None,
    **writing: Any,
) -> Path:
    """Audit a release against all of the ledger, publish it, and record it.

    Args:
        release: what to publish.
        directory: its folder.
        ledger: the folder of the ledger; made if it is new.
        accept_differencing: confirms that it may be published although the audit finds something. The counts are then
            in its report.
        epsilon_total: what ε of all noisy releases of the ledger may come to. Stored, and from then on only lowered.
        **writing: see `flowveil.published.folder.publish`.

    Raises:
        InfeasibleError: together with earlier releases it would reveal groups below the guarantee, or that could not be
            checked, and it was not confirmed; or ε would exceed the total. Nothing was written.
        ParameterError: there is a total, but the release has no noise, or the total would be raised.
        OutputError: the ledger cannot be read, written or locked.
    """
    release.check_publishable()
    check_target(directory)
    _refuse_inside(ledger, directory)
    if release.kind == "noisy":
        return _publish_noise(release, directory, ledger, epsilon_total, writing)
    if epsilon_total is not None:
        raise ParameterError("--epsilon-total (epsilon_total) is for methods that add noise; this one has no ε.")
    with _locked(ledger) as book:
        tables = _tables(release)
        earlier = _others(book, tables)
        own = book.fingerprint(release.input)
        audit = _held(release, earlier, own, writing)
        if not audit.is_clean and not accept_differencing:
            raise _refused(audit)
        release = _said(release, audit)
        line = {"format": FORMAT, **tables, "fingerprint": own}
        # The same release a second time is one release. Lines of noise that left nothing are no release at all.
        known = any(tables.items() <= entry.items() for entry in book.entries)

        def record(report: Mapping[str, Any]) -> None:
            if not known:
                book.append({**line, "report": report})

        return publish(release, directory, before_rename=record, **writing)


def _publish_noise(
    release: Any,
    directory: str | PathLike[str],
    ledger: str | PathLike[str],
    total: float | None,
    writing: Mapping[str, Any],
) -> Path:
    """Publish noisy counts if what they and the earlier ones cost stays within the total, and record the cost.

    Subtracting noise gives nothing that is certain, so there is no audit. The same counts a second time are recorded
    again: they may be another draw, and nobody could tell.
    """
    with _locked(ledger) as book:
        budget = budget_with(book.entries, release.guarantee, total)
        line = {"format": FORMAT, **_tables(release)}
        line |= {"fingerprint": book.fingerprint(release.input), **cost_of(release.guarantee, budget.total)}
        said = replace(release, parameters={**release.parameters, "ledger": budget.to_dict()})

        def record(report: Mapping[str, Any]) -> None:
            book.append({**line, "report": report})

        return publish(said, directory, before_rename=record, **writing)


@contextmanager
def recording_nothing(ledger: str | PathLike[str] | None, *, epsilon_total: float | None = None) -> Iterator[None]:
    """With a ledger, record noise that leaves nothing to publish: that it does is known then, and has cost its ε.

    What the total does not allow is refused here as it is when something is left, in the same words: else whoever has
    used up the total could go on to ask whether anything is left.

    Raises:
        NothingLeftError: nothing is left, and that is recorded.
        InfeasibleError: nothing is left, and not even that may be known any more: ε would exceed the total.
        ParameterError: the total would be raised.
        OutputError: the ledger cannot be read, written or locked.
    """
    try:
        yield
    except NothingLeftError as nothing:
        if ledger is not None:
            try:
                _record_nothing(nothing.promise, ledger, epsilon_total)
            except FlowveilError as problem:
                # Without a trace of the outcome, which is what may not be known.
                raise problem from None
        raise


def _record_nothing(promise: PrivacyLoss, ledger: str | PathLike[str], epsilon_total: float | None) -> None:
    with _locked(ledger) as book:
        budget = budget_with(book.entries, promise, epsilon_total)
        book.append({"format": FORMAT, **cost_of(promise, budget.total)})


def budget_against(release: Publishable, *, ledger: str | PathLike[str]) -> Budget:
    """What noisy counts and the earlier ones of a ledger come to; nothing is recorded, and no ledger is made.

    Raises:
        InfeasibleError: the total does not allow them.
        OutputError: the ledger cannot be read or locked.
    """
    promise: PrivacyLoss = release.guarantee  # type: ignore[attr-defined]
    if not (real_place(ledger) / LEDGER).exists():
        return budget_with((), promise, None)
    with _locked(ledger) as book:
        return budget_with(book.entries, promise, None)


def audit_against(release: Publishable, *, ledger: str | PathLike[str], **writing: Any) -> Audit:
    """What `publish_recorded` would find; nothing is recorded, and a ledger that is not there yet is not made.

    Args:
        release: what is to be published.
        ledger: the folder of the ledger.
        **writing: what it is about, as it would be published.

    Raises:
        OutputError: the ledger cannot be read or locked.
    """
    release.check_publishable()
    if not (real_place(ledger) / LEDGER).exists():
        return Audit(releases=0)
    with _locked(ledger) as book:
        return _held(release, _others(book, _tables(release)), book.fingerprint(release.input), writing)


def _tables(release: Publishable) -> dict[str, str]:
    return {"flows": _packed(release.flows), "zones": _packed(release.zones)}


def _others(book: _Book, tables: Mapping[str, str]) -> list[dict[str, Any]]:
    """All releases of the ledger but this one itself, and but noise that left nothing to publish."""
    published = [entry for entry in book.entries if "flows" in entry or SPENT not in entry]
    return [entry for entry in published if {name: entry.get(name) for name in tables} != tables]


def _held(release: Publishable, earlier: Sequence[Mapping[str, Any]], own: str, writing: Mapping[str, Any]) -> Audit:
    compared = [entry for entry in earlier if not _is_revised_by(entry, release)]
    return _audited(release, compared, own, {name: writing[name] for name in ENTRIES if name in writing})


def _refuse_inside(ledger: str | PathLike[str], directory: str | PathLike[str]) -> None:
    place, out = real_place(ledger), real_place(directory)
    if place == out or out in place.parents:
        raise ParameterError("The ledger cannot be inside the release. Hint: name another folder with --ledger.")


def _is_revised_by(entry: Mapping[str, Any], release: Publishable) -> bool:
    """Whether a revision is one of this release: then every change by itself reaches the guarantee."""
    revision = getattr(release, "revision", None)
    if revision is None:
        return False
    flows = _table(entry, "flows")
    return any(flows.equals(folder.flows) for folder in revision.earlier.folders)


def _audited(release: Publishable, earlier: Sequence[Mapping[str, Any]], own: str, about: Mapping[str, Any]) -> Audit:
    """Hold a release against earlier ones. Noise is left out: subtracting it gives nothing that is certain.

    Which trips a release holds is stated by its period. Where the fingerprint of the input is the same, they are the
    same trips whatever is stated: periods of the same trips cannot be others.
    """
    exact = {at: entry for at, entry in enumerate(earlier) if SPENT not in entry}
    known = {at: read for at, entry in exact.items() if not (read := _unpacked(entry)).noisy}
    if release.kind == "noisy" or not known:
        return Audit(releases=0)
    new = published_release(
        release.flows, release.zones, folder_content(release, **about).report, name="the new release"
    )
    same = {at for at in known if earlier[at].get("fingerprint") == own}
    held = [replace(read, period=new.period) if at in same else read for at, read in known.items()]
    try:
        found = confined_groups([*held, new], newest=len(held))
    except DataError:
        return Audit(releases=len(held), unchecked=len(held))
    return _counted(found, held)


def _counted(found: Groups, exact: list[PublishedRelease]) -> Audit:
    # Slices of one release are settled when it is made.
    unchecked = sum(len(set(places)) > 1 for places, _ in found.unchecked)
    groups = [group for group in found.groups if len(set(group.releases)) > 1]
    return Audit(
        releases=len(exact),
        groups=len(groups),
        single_cells=sum(group.single for group in groups),
        single_trips=sum(group.unit == "trips" and group.low == group.high == 1 for group in groups),
        unchecked=unchecked + found.contradictions,
    )


def _refused(audit: Audit) -> InfeasibleError:
    return InfeasibleError(
        f"{audit.in_words()} Nothing was written. Hint: publish over the same zones (--zones-of EARLIER), leave "
        "this release out, say with --period or --during which trips it is of where they are others, or confirm it "
        "with --accept-differencing (accept_differencing=True); the counts are then in its report."
    )


def _said(release: Any, audit: Audit) -> Any:
    """The release, whose parameters say what the audit found."""
    parameters = {**release.parameters, "ledger": dict(vars(audit))}
    if not audit.is_clean and DIFFERENCING not in parameters["confirmed"]:
        parameters["confirmed"] = [*parameters["confirmed"], DIFFERENCING]
    return replace(release, parameters=parameters)


# ---- the file ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Book:
    """A ledger that is locked.

    Attributes:
        file: open for reading and writing, at the end of its last whole line.
        entries: the releases.
        secret: what fingerprints are keyed with.
    """

    file: IO[bytes]
    entries: list[dict[str, Any]]
    secret: bytes

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write a line and make it durable."""
        self.file.write(json.dumps(entry, sort_keys=True, ensure_ascii=False).encode() + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def fingerprint(self, flows: Any) -> str:
        """The input as it was read, keyed: tiles, trips and weights of every flow, slice by slice, on any tree."""
        keyed = hmac.new(self.secret, digestmod=hashlib.sha256)
        for part in flows.slices if isinstance(flows, SlicedFlows) else (flows,):
            trees = ((part.origins, part.origin), (part.destinations, part.destination))
            ends = [tree.code_text(tree.leaf_node)[tile] for tree, tile in trees]
            # Trees order their tiles differently; the codes do not.
            order = np.lexsort((ends[1], ends[0]))
            for column in (*ends, part.trips, *part.added().values()):
                values = np.zeros(0) if column is None else column[order]
                keyed.update("\n".join(map(str, values.tolist())).encode() + b"\n\n")
        return keyed.hexdigest()


@contextmanager
def _locked(directory: str | PathLike[str]) -> Iterator[_Book]:
    """A ledger, locked until the block ends; made where there is none.

    Raises:
        OutputError: it cannot be read, written or locked.
    """
    place = real_place(directory)
    if fcntl is None:
        raise OutputError("A ledger cannot be locked on this system. Hint: leave --ledger out and audit by hand.")
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(place / LEDGER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise OutputError(f"The ledger '{directory}' cannot be opened: {problem.strerror}.") from None
    with open(descriptor, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield _Book(file, _read(file), _secret(place))


def _read(file: IO[bytes]) -> list[dict[str, Any]]:
    """All releases; an incomplete last line is removed.

    Raises:
        OutputError: a whole line is not one of a ledger.
    """
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    try:
        entries = [json.loads(line) for line in whole.splitlines()]
        if any(entry["format"] != FORMAT for entry in entries):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise OutputError(
            "The ledger has a line that does not belong there, so nothing can be audited against it. "
            "Hint: put back an earlier copy of ledger.jsonl."
        ) from None
    file.truncate(len(whole))
    file.seek(len(whole))
    return entries


def _secret(place: Path) -> bytes:
    """The secret of a ledger, made once, for its owner alone. The ledger is locked, so only one run makes it."""
    path = place / SECRET
    try:
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_SECRET_BYTES))
                file.flush()
                os.fsync(file.fileno())
        secret = path.read_bytes()
    except OSError as problem:
        raise OutputError(f"The secret of the ledger cannot be read or made: {problem.strerror}.") from None
    if len(secret) != _SECRET_BYTES:
        raise OutputError("The secret of the ledger is not whole. Hint: put back an earlier copy of the file 'secret'.")
    return secret


def _packed(table: pa.Table) -> str:
    """A table as text: Parquet in base64."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", version="2.6")
    return base64.b64encode(buffer.getvalue()).decode()


def _table(entry: Mapping[str, Any], name: str) -> pa.Table:
    return pq.read_table(io.BytesIO(base64.b64decode(entry[name])))


def _unpacked(entry: Mapping[str, Any]) -> PublishedRelease:
    try:
        flows, zones = _table(entry, "flows"), _table(entry, "zones")
        return published_release(flows, zones, entry["report"], name="an earlier release")
    except (KeyError, ValueError, TypeError, pa.ArrowException, ParameterError):
        raise OutputError("A release of the ledger cannot be read. Hint: put back an earlier copy of it.") from None
