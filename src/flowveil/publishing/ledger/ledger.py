"""The ledger of a data set: which releases were made from its trips, and the rule for the next one.

A release from raw trips is accepted only if it provably shares no trip with any earlier release, is
the same release again, or is a revision (docs/decisions/0024-ledger.md). Days and values are a
proof (`trip_facts`) unless places contradict it (`trip_sketch`). Noisy releases are exempt; their ε
add up (`budget`). The line of a release is durable before the release appears, so after a crash the
ledger may hold a release that was never published, and never the other way round.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowveil.core.errors import FlowveilError, InfeasibleError, ParameterError
from flowveil.core.guarantee import DIFFERENCING
from flowveil.core.times import TIME
from flowveil.published.about import ENTRIES
from flowveil.published.folder import MANIFEST, check_target
from flowveil.publishing.ledger.budget import SPENT, Budget, budget_with, cost_of
from flowveil.publishing.ledger.ledger_file import LEDGER, LedgerFile, open_ledger
from flowveil.publishing.ledger.trip_facts import shares_no_trip, trip_facts
from flowveil.publishing.ledger.trip_sketch import shares_trips, trip_sketch
from flowveil.publishing.publish import folder_content, publish
from flowveil.release.counts import Publishable
from flowveil.release.noisy import NothingLeftError, PrivacyLoss
from flowveil.request import support
from flowveil.system.output import real_place
from flowveil.system.paths import read_json
from flowveil.zoning.grids import is_on_file

#: Entries of a statement that are chosen for the folder, and say nothing of the trips.
_NOT_OF_TRIPS = ("about", "formats", "basemap", "context", "ledger")


@dataclass(frozen=True)
class LedgerCheck:
    """What the rule says of a new release."""

    releases: int  # how many earlier releases it was compared with
    overlapping: tuple[
        str, ...
    ] = ()  # those with which it may share trips, each with what to do instead
    repeated: Mapping[str, Any] | None = None  # the entry of the same release, published before

    @property
    def is_clean(self) -> bool:
        """Whether the release may be published."""
        return not self.overlapping or self.repeated is not None

    def in_words(self) -> str:
        """Which earlier releases may hold the same trips, and what to do instead."""
        more = f" ({len(self.overlapping) - 1:,} more)" if len(self.overlapping) > 1 else ""
        return (
            f"{self.overlapping[0]}{more}"
            if self.overlapping
            else "No earlier release shares trips with it."
        )


# ---- publishing ----------------------------------------------------------------------------------


def publish_recorded(
    release: Publishable,
    directory: str | PathLike[str],
    *,
    ledger: str | PathLike[str],
    accept_differencing: bool = False,
    epsilon_total: float | None = None,
    **writing: Any,
) -> Path:
    """Checks a release against the ledger, which is made if it is new, publishes and records it.

    Arguments as for `Release.write`; ``writing`` goes to `flowveil.publishing.publish.publish`.
    Raises, before anything is written, InfeasibleError if an earlier release may hold the same
    trips or ε would exceed the total, ParameterError if the total would be raised or the release
    has no noise, OutputError if the ledger cannot be used or was changed.
    """
    release.check_publishable()
    check_target(directory)
    _refuse_inside(ledger, directory)
    if epsilon_total is not None:
        support.check({"epsilon_total"}, support.Expected(counts=release.facets.counts, zones=None))
    with open_ledger(ledger) as book:
        stated: Any = release
        entry: dict[str, Any] | None
        new: dict[str, Any] = {"name": Path(directory).name, "recorded": _now()}
        if release.facets.is_noisy:
            # The same counts a second time are recorded again: they may be another draw.
            budget = budget_with(book.entries, stated.guarantee, epsilon_total)
            entry = {**new, **cost_of(stated.guarantee, budget.total)}
            stated = replace(stated, parameters={**release.parameters, "ledger": budget.to_dict()})
        else:
            new |= _facts_of(release, book, writing)
            check = _check(release, new, book)
            if not check.is_clean and not accept_differencing:
                raise InfeasibleError(
                    f"{check.in_words()} Nothing was written. Hint: after an audit,"
                    " --accept-differencing (accept_differencing=True) overrules this, and the"
                    " statement says so to readers."
                )
            verdict = (
                check.repeated["verdict"]
                if check.repeated
                else {"overlapping": len(check.overlapping)}
            )
            stated = _with_verdict(stated, verdict)
            entry = None if check.repeated else {**new, "verdict": verdict}

        def record(draft: Path) -> None:
            if entry is not None:
                book.append({**entry, **_published(draft)})

        return publish(stated, directory, before_rename=record, **writing)


def check_ledger(
    release: Publishable, *, ledger: str | PathLike[str], **writing: Any
) -> LedgerCheck:
    """Returns what `publish_recorded` would decide with the same arguments.

    Records nothing and makes no ledger.
    """
    release.check_publishable()
    if release.facets.is_noisy or not (real_place(ledger) / LEDGER).exists():
        return LedgerCheck(releases=0)
    with open_ledger(ledger) as book:
        return _check(
            release, {"name": "the new release", **_facts_of(release, book, writing)}, book
        )


def check_source(source: Path, *, ledger: str | PathLike[str]) -> None:
    """Raises InfeasibleError for a release that is not in the ledger.

    Nothing may be derived from it.
    """
    manifest = _published(source)["manifest"]
    with open_ledger(ledger, create=False) as book:
        if all(entry.get("manifest") != manifest for entry in book.entries):
            raise InfeasibleError(
                f"'{source}' is not in the ledger, so nothing says that it was published under its"
                " rule. Nothing was written. Hint: derive from a release that the ledger lists"
                " (flowveil ledger DIR)."
            )


def record_derived(folder: Path, *, ledger: str | PathLike[str]) -> None:
    """Lists a derived release in the ledger.

    A function of a recorded release, it reveals nothing new.
    """
    published = _published(folder)
    with open_ledger(ledger, create=False) as book:
        if all(entry.get("manifest") != published["manifest"] for entry in book.entries):
            book.append({"name": folder.name, "recorded": _now(), **published})


def _check(release: Publishable, new: Mapping[str, Any], book: LedgerFile) -> LedgerCheck:
    """Applies the rule to all earlier releases from raw trips, withdrawn ones included.

    They were public.
    """
    revised = set(release.parameters.get("revision_of", ()))
    earlier = [
        (number, entry)
        for number, entry in enumerate(book.entries, start=1)
        if _is_from_trips(entry)
    ]
    repeated = next((entry for _, entry in earlier if entry.get("content") == new["content"]), None)
    overlapping = []
    for number, entry in earlier:
        if entry.get("flows") in revised:
            continue
        if (
            not _is_comparable(entry)
            or shares_trips(new["sketch"], entry["sketch"])
            or not shares_no_trip(new["facts"], entry["facts"], release.input)
        ):
            overlapping.append(_refusal(number, entry, new))
    return LedgerCheck(len(earlier), tuple(overlapping), repeated)


def _is_comparable(entry: Mapping[str, Any]) -> bool:
    """Whether an entry has all that the rule compares."""
    return "facts" in entry and "sketch" in entry


def _is_from_trips(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is a release of exact counts from raw trips."""
    report = entry.get("report") or {}
    is_derived = (report.get("statement") or {}).get("derived_from") is not None
    return (
        SPENT not in entry
        and "withdraws" not in entry
        and report.get("kind") != "noisy"
        and not is_derived
    )


def _facts_of(release: Publishable, book: LedgerFile, writing: Mapping[str, Any]) -> dict[str, Any]:
    """What the rule compares: the statement, and keyed hashes of the trips."""
    published = folder_content(
        release, **{name: writing[name] for name in ENTRIES if name in writing}
    ).published
    report = published.statement.to_report()
    return {
        "report": report,
        "content": _content_hash(report, published.cells),
        "facts": trip_facts(release.input, book),
        "sketch": trip_sketch(release.input, book),
    }


def _published(draft: Path) -> dict[str, Any]:
    """What an entry records of a written folder: its report without figures, and hashes."""
    report = read_json(draft / "report.json")
    manifest = (draft / MANIFEST).read_bytes()
    return {
        "report": {name: value for name, value in report.items() if name != "published"},
        "manifest": hashlib.sha256(manifest).hexdigest(),
        "flows": json.loads(manifest)["sha256"]["flows.parquet"],
    }


def _content_hash(report: Mapping[str, Any], cells: pa.Table) -> str:
    """Returns a hash of the statement and the cells, the same for every version, title and
    export.
    """
    stated = {
        name: value for name, value in report["statement"].items() if name not in _NOT_OF_TRIPS
    }
    stated["period"] = report["statement"]["about"].get("period")
    found = hashlib.sha256(json.dumps({**report, "statement": stated}, sort_keys=True).encode())
    for name, column in zip(cells.column_names, cells.columns, strict=True):
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        values = (
            column.to_numpy().tobytes() if is_number else json.dumps(column.to_pylist()).encode()
        )
        found.update(f"\0{name}\0{len(values)}\0".encode() + values)
    return found.hexdigest()


def _with_verdict(release: Any, verdict: Mapping[str, Any]) -> Any:
    """The release, whose statement says what the ledger decided."""
    parameters = {**release.parameters, "ledger": dict(verdict)}
    confirmed = parameters.get("confirmed", [])
    if verdict["overlapping"] and DIFFERENCING not in confirmed:
        parameters["confirmed"] = [*confirmed, DIFFERENCING]
    return replace(release, parameters=parameters)


def _refuse_inside(ledger: str | PathLike[str], directory: str | PathLike[str]) -> None:
    place, out = real_place(ledger), real_place(directory)
    if place == out or out in place.parents:
        raise ParameterError(
            "The ledger cannot be inside the release. Hint: name another folder with --ledger."
        )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- what a refusal says -------------------------------------------------------------------------


def _refusal(number: int, entry: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Names an earlier release, why it may share trips, and the closest table that can be
    derived.
    """
    name = (
        f"'{entry['name']}' (number {number} of the ledger)"
        if "name" in entry
        else f"number {number} of the ledger"
    )
    if not _is_comparable(entry):
        return (
            f"Nothing proves that the new release shares no trip with {name}: an earlier version"
            " recorded it without the days, values and places of its trips. Hint: a new data set"
            " needs a new ledger."
        )
    if shares_trips(new["sketch"], entry["sketch"]):
        return (
            f"The new release is of the same trips as {name}, or of nearly the same: their places"
            " say so, whatever days and values say."
            f" {_capitalized(_derive_instead(entry, new))}."
        )
    facts = entry["facts"]
    return (
        f"Nothing proves that the new release shares no trip with {name}: no time column or"
        " attribute of both has disjoint values, and their study areas are not"
        f" disjoint.{_missing_time(facts, new['facts'])} If they share trips:"
        f" {_derive_instead(entry, new)}. For parts and totals, publish the smallest parts"
        " (flowveil series, or --by) and derive the totals."
    )


def _missing_time(facts: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What a time column would prove."""
    times = (facts["time"], new["time"])
    if None in times:
        return (
            " A declared --period proves nothing. Hint: name the time column of both (--time"
            " COLUMN)."
        )
    if any(time["missing"] for time in times):
        return f" Some trips have no time in column '{times[1]['column']}'. Hint: remove them."
    return ""


def _derive_instead(entry: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The command that computes the closest table from the earlier release."""
    earlier, wanted = _columns(entry), _columns(new)
    sums = "".join(f" --sum {column}" for column in earlier if column not in wanted)
    on_map = " --zones MAP" * is_on_file(entry["report"]["parameters"].get("zones"))
    command = f"flowveil derive {entry['name']}{on_map} --out {new['name']}{sums}"
    if set(wanted) <= set(earlier):
        level = "" if set(earlier) > set(wanted) else " --level N"
        return f"derive it instead, which reveals nothing new: {command}{level}"
    both = list(dict.fromkeys([*earlier, *wanted]))
    attributes = ",".join(column for column in both if column != TIME)
    options = [f"--by {attributes}"] * bool(attributes) + ["--time COLUMN --every STEP"] * (
        TIME in both
    )
    lacking = ", ".join(column for column in wanted if column not in earlier)
    closest = f". What comes closest now: {command}" * bool(sums)
    return (
        f"it has no column {lacking} and cannot be cut by it afterwards. With other trips, publish"
        f" {','.join(both)} first ({' '.join(options)} --common-zones) and derive both{closest}"
    )


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _columns(entry: Mapping[str, Any]) -> list[str]:
    return list(entry["report"]["statement"]["slice_columns"])


# ---- noise ---------------------------------------------------------------------------------------


@contextmanager
def recording_nothing(
    ledger: str | PathLike[str] | None, *, epsilon_total: float | None = None
) -> Iterator[None]:
    """With a ledger, records noise that leaves nothing to publish.

    That outcome is known then, and has cost its ε.

    If the total does not allow it, it is refused in the same words as any other release
    (InfeasibleError): the message must not reveal whether anything was left.
    """
    try:
        yield
    except NothingLeftError as nothing:
        if ledger is not None:
            try:
                with open_ledger(ledger) as book:
                    budget = budget_with(book.entries, nothing.promise, epsilon_total)
                    book.append({"recorded": _now(), **cost_of(nothing.promise, budget.total)})
            except FlowveilError as problem:
                # Without a trace of the outcome.
                raise problem from None
        raise


def budget_against(release: Publishable, *, ledger: str | PathLike[str]) -> Budget:
    """Returns the sums of ε and δ with a new noisy release, or refuses it.

    Records nothing and makes no ledger.
    """
    promise: PrivacyLoss = release.guarantee
    if not (real_place(ledger) / LEDGER).exists():
        return budget_with((), promise, None)
    with open_ledger(ledger) as book:
        return budget_with(book.entries, promise, None)


# ---- the operator's view -------------------------------------------------------------------------


def list_entries(book: LedgerFile) -> list[dict[str, Any]]:
    """Returns one row for each release: number, name, date, what it is, and whether it was
    withdrawn.
    """
    withdrawn = {entry["withdraws"] for entry in book.entries if "withdraws" in entry}
    rows = []
    for number, entry in enumerate(book.entries, start=1):
        if "withdraws" in entry:
            continue
        report = entry.get("report") or {}
        rows.append(
            {
                "number": number,
                "name": entry.get("name"),
                "recorded": entry.get("recorded"),
                "kind": report.get("kind", "nothing left"),
                "method": report.get("method"),
                "columns": list((report.get("statement") or {}).get("slice_columns", ())),
                "epsilon": entry[SPENT]["epsilon"] if SPENT in entry else None,
                "from_trips": _is_from_trips(entry),
                "proves_disjointness": _is_comparable(entry),
                "withdrawn": number in withdrawn,
            }
        )
    return rows


def withdraw(book: LedgerFile, name: str) -> int:
    """Marks a release (name or number) as withdrawn; returns its number.

    It still counts: readers may have kept it.
    """
    rows = [row for row in list_entries(book) if name in (row["name"], str(row["number"]))]
    if len(rows) != 1:
        listed = ", ".join(str(row["number"]) for row in rows)
        found = f"it is the name of {listed}" if rows else "it is neither"
        raise ParameterError(
            f"--withdraw takes the name or number of one release; of '{name}', {found}."
        )
    if rows[0]["withdrawn"]:
        raise ParameterError(f"'{name}' is withdrawn already.")
    book.append({"withdraws": rows[0]["number"], "recorded": _now()})
    return int(rows[0]["number"])
