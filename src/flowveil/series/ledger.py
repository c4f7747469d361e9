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
from flowveil.confirmation import DIFFERENCING
from flowveil.errors import DataError, InfeasibleError, OutputError, ParameterError
from flowveil.output import real_place
from flowveil.publish.folder import check_target, publish
from flowveil.release.release import Publishable
from flowveil.report.about import ENTRIES
from flowveil.report.summary import summarize
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


def publish_recorded(
    release: Publishable,
    directory: str | PathLike[str],
    *,
    ledger: str | PathLike[str],
    accept_differencing: bool = False,
    **writing: Any,
) -> Path:
    """Audit a release against all of the ledger, publish it, and record it.

    Args:
        release: what to publish.
        directory: its folder.
        ledger: the folder of the ledger; made if it is new.
        accept_differencing: confirms that it may be published although the audit finds something. The counts are then
            in its report.
        **writing: see `flowveil.publish.folder.publish`.

    Raises:
        InfeasibleError: together with earlier releases it would reveal groups below the guarantee, or that could not be
            checked, and it was not confirmed. Nothing was written.
        OutputError: the ledger cannot be read, written or locked.
    """
    release.check_publishable()
    check_target(directory)
    _refuse_inside(ledger, directory)
    with _locked(ledger) as book:
        tables = {"flows": _packed(release.flows), "zones": _packed(release.zones)}
        earlier = [entry for entry in book.entries if {name: entry[name] for name in tables} != tables]
        audit = _audited(release, earlier, {name: writing[name] for name in ENTRIES if name in writing})
        if not audit.is_clean and not accept_differencing:
            raise _refused(audit)
        release = _said(release, audit)
        line = {"format": FORMAT, **tables, "fingerprint": book.fingerprint(release.input)}
        known = len(earlier) < len(book.entries)

        def record(report: Mapping[str, Any]) -> None:
            if not known:
                book.append({**line, "report": report})

        return publish(release, directory, before_it_appears=record, **writing)


def _refuse_inside(ledger: str | PathLike[str], directory: str | PathLike[str]) -> None:
    place, out = real_place(ledger), real_place(directory)
    if place == out or out in place.parents:
        raise ParameterError("The ledger cannot be inside the release. Hint: name another folder with --ledger.")


def _audited(release: Publishable, earlier: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> Audit:
    """Hold a release against earlier ones. Noise is left out: subtracting it gives nothing that is certain."""
    exact = [read for entry in earlier if not (read := _unpacked(entry)).noisy]
    if release.kind == "noisy" or not exact:
        return Audit(releases=0)
    new = published_release(release.flows, release.zones, summarize(release, about=about), name="the new release")
    try:
        found = confined_groups([*exact, new], newest=len(exact))
    except DataError:
        return Audit(releases=len(exact), unchecked=len(exact))
    return _counted(found, exact)


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
    singles = f"{audit.single_cells:,} single cells, {audit.single_trips:,} single trips"
    said = [f"{audit.groups:,} groups below the guarantee ({singles})"]
    if audit.unchecked:
        said.append(f"{audit.unchecked:,} comparisons that could not be made")
    return InfeasibleError(
        f"Subtracted from the {audit.releases:,} earlier release{'s' * (audit.releases != 1)} of this ledger, the new "
        "one leaves "
        f"{' and '.join(said)}. Nothing was written. Hint: publish over the same zones (--zones-of EARLIER), leave "
        "this release out, say with --period or --during which trips it is of where they are others, or confirm it "
        "with --accept-differencing (accept_differencing=True); the counts are then in its report."
    )


def _said(release: Any, audit: Audit) -> Any:
    """The release, whose parameters say what the audit found; of noise there is nothing to say."""
    if release.kind == "noisy":
        return release
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
        """The input as it was read, keyed: tiles, trips and weights of every flow, slice by slice."""
        keyed = hmac.new(self.secret, digestmod=hashlib.sha256)
        for part in flows.slices if isinstance(flows, SlicedFlows) else (flows,):
            trees = ((part.origins, part.origin), (part.destinations, part.destination))
            for column in (*(tree.code_text(tree.leaf_node)[tile] for tree, tile in trees), part.trips, part.weight):
                values = np.zeros(0) if column is None else column
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
            "The ledger has a line that is none of a ledger, so nothing can be audited against it. "
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


def _unpacked(entry: Mapping[str, Any]) -> PublishedRelease:
    try:
        flows, zones = (pq.read_table(io.BytesIO(base64.b64decode(entry[name]))) for name in ("flows", "zones"))
        return published_release(flows, zones, entry["report"], name="an earlier release")
    except (KeyError, ValueError, TypeError, pa.ArrowException, ParameterError):
        raise OutputError("A release of the ledger cannot be read. Hint: put back an earlier copy of it.") from None
