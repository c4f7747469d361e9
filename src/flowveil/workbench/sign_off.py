"""The sentence that a person signs before a release is published, and the certificate that repeats it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flowveil.times import TIME
from flowveil.verify.certificate import certificate, certificate_text

_STEPS = {"hour": "hour of the day", "weekday": "day of the week", "weekday-hour": "hour of the week"}


def sign_off_sentence(report: Mapping[str, Any], audit: Mapping[str, Any], *, signer: str | None = None) -> str:
    """Returns what is signed: who is protected, which hours, tiles and cells, what was compared, and who signs.

    Args:
        report: content of report.json; every number is taken from it.
        audit: ``compared`` and ``not_compared`` releases, ``failures`` of the comparison, and the number of releases in
            the ``ledger``.
        signer: the person who signs; None before that.
    """
    published, statement = report["published"], report["statement"]
    parts = [
        f"{_protection(report)}.",
        f"It has {published['cells']:,} cells with {published['trips']:,} trips, {_slices(statement, report)}.",
        f"The finest places are {_tiles(report['parameters'])}.",
        _comparison(audit),
    ]
    if signer is not None:
        parts.append(f"Signed by {signer}.")
    return " ".join(parts)


def _protection(report: Mapping[str, Any]) -> str:
    if report["kind"] == "noisy":
        return f"Noise protects this release: {report['guarantee'].get('rule') or report['method']}"
    stated, k = report["guarantee"], report["guarantee"]["k"]
    units = [_unit_text(unit, stated.get(unit), k) for unit in stated.get("protect") or ["trips"]]
    return f"Every cell of this release covers at least {' and '.join(units)}"


def _unit_text(unit: str, value: float | None, k: int) -> str:
    if unit == "population":
        return f"a population of {value:,}" if value else f"a population of {k:,} mean weights of a trip"
    return f"{value or k:,} {unit}"


def _slices(statement: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    columns: Sequence[str] = statement["slice_columns"]
    if not columns:
        return "with times joined where they were small" if report["kind"] == "folded" else "for all times together"
    every = (report["parameters"].get("slices") or {}).get("every")
    names = [_STEPS.get(every, f"steps of {every}") if name == TIME and every else name for name in columns]
    zone = f" in {statement['timezone']} time" if statement["timezone"] else ""
    return f"in {len(report['published']['slices']):,} slices by {' and '.join(names)}{zone}"


def _tiles(parameters: Mapping[str, Any]) -> str:
    return "zones of your map" if parameters.get("zones") else f"H3 cells of resolution {parameters['resolution']}"


def _comparison(audit: Mapping[str, Any]) -> str:
    compared, missing = list(audit["compared"]), list(audit["not_compared"])
    if audit.get("ledger"):
        compared.append(f"{audit['ledger']} releases of the ledger")
    if not compared:
        return "It was compared with no earlier release."
    text = f"It was compared with {', '.join(compared)}."
    if audit.get("failures"):
        text += f" Accepted although the comparison found: {'; '.join(audit['failures'])}"
    return f"{text} Not compared: {'; '.join(missing)}." if missing else text


def write_certificate(
    folder: Path, verification: Any, *, source: Path | None, sentence: str, signer: str, place: Path
) -> None:
    """Writes the private certificate of a published release, with the signed sentence."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    content = certificate(
        sha256=json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["sha256"],
        report=report,
        expected={},
        findings=verification.findings,
        not_compared=verification.not_compared,
        source=source,
        signer=signer,
    )
    place.write_text(certificate_text({**content, "signed": sentence}, place), encoding="utf-8")
