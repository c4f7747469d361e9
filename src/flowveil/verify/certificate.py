"""A certificate of a verification: what was compared with what, and the result. Private: it has hashes of the input."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from glob import glob
from os import PathLike
from pathlib import Path
from typing import Any

from flowveil import __version__
from flowveil.errors import ParameterError
from flowveil.published.document import Part, fill, page
from flowveil.published.folder import hash_file
from flowveil.published.sentences import sentences
from flowveil.release.statement import Statement

SUFFIXES = (".json", ".html")


def check_suffix(path: str | PathLike[str]) -> None:
    """Refuse a file that is neither JSON nor HTML by its name.

    Raises:
        ParameterError: it is another.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ParameterError(f"A certificate is {' or '.join(SUFFIXES)}; found '{Path(path).suffix}'.")


def certificate(
    *,
    sha256: Mapping[str, str],
    report: Mapping[str, Any] | None,
    expected: Mapping[str, Any],
    findings: Sequence[str],
    not_compared: Sequence[str],
    source: str | PathLike[str] | None,
    date: str | None = None,
    signer: str | None = None,
) -> dict[str, Any]:
    """Returns the content of a certificate. Private: the hash of a small input lets a reader test guesses.

    Args:
        sha256: of the files of the folder.
        report: its report.json; None where something contradicts it: then nothing of it is repeated.
        expected: the guarantee that was required.
        findings: what contradicts the release.
        not_compared: what could not be compared.
        source: the trips: a file, a folder or a pattern of files; each is hashed.
        date: a date, or another short text.
        signer: who signs.
    """
    statement = None if report is None else Statement.from_report(report)
    return {
        "certificate": "flowveil verification",
        "verified_with": __version__,
        "made_with": None if report is None else report["version"],
        "holds": False if findings else None if not_compared else True,
        "findings": list(findings),
        "not_compared": list(not_compared),
        "expected": {name: value for name, value in expected.items() if value not in (None, (), [])},
        "method": None if statement is None else statement.method,
        "guarantee": None if statement is None else dict(statement.guarantee),
        "cells": None if report is None else report["published"]["cells"],
        "statement": [] if statement is None else sentences(statement),
        "columns": None if statement is None else statement.parameters.get("columns"),
        "confirmed": None if statement is None else list(statement.confirmed),
        "input_sha256": {} if source is None else _hash_inputs(source),
        "release_sha256": dict(sorted(sha256.items())),
        **({} if date is None else {"date": date}),
        **({} if signer is None else {"signer": signer}),
    }


def _hash_inputs(source: str | PathLike[str]) -> dict[str, str]:
    """Returns the SHA-256 of every input file, by its path below the common folder; empty without files."""
    path = Path(source)
    names = [str(path)] if path.is_file() else glob(f"{path}/**" if path.is_dir() else str(path), recursive=True)
    files = sorted(Path(name) for name in names if Path(name).is_file())
    top = Path(os.path.commonpath([file.parent for file in files])) if files else path
    return {file.relative_to(top).as_posix(): hash_file(file) for file in files}


def certificate_text(content: Mapping[str, Any], path: str | PathLike[str]) -> str:
    """The certificate as JSON or as a page, by the suffix of its file."""
    if Path(path).suffix.lower() == ".json":
        return json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    verdict = {True: "The release holds", False: "The release does NOT hold", None: "Nothing contradicts the release"}
    facts = [
        (name.replace("_", " "), value)
        for name, value in content.items()
        if name not in ("certificate", "findings", "not_compared", "statement", "release_sha256")
    ]
    parts = [
        Part("findings", "Findings", _list([*content["findings"], *content["not_compared"]] or ["None."])),
        Part("statement", "What is and is not protected", _list(content["statement"] or ["Not repeated here."])),
        Part("facts", "What was verified", _table([(name, _said(value)) for name, value in facts])),
        Part("hashes", "sha256 of the files", _table(list(content["release_sha256"].items()))),
    ]
    return page(
        title="Certificate of a verification",
        heading=verdict[content["holds"]],
        lead=f"Recounted from the trips with flowveil {content['verified_with']}.",
        parts=parts,
    )


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _list(lines: Sequence[str]) -> Any:
    return fill("list.html", lines=lines)


def _table(rows: Sequence[tuple[str, str]]) -> Any:
    return fill("pairs.html", rows=rows)
