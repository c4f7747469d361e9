"""A certificate of a verification: what was held against what, and what came of it, for whoever keeps the files.

It holds hashes, the guarantee, the columns, the versions and the findings; no path of the machine, and no date unless
one is given: the same verification gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from flowveil import __version__
from flowveil.errors import ParameterError
from flowveil.published.document import Part, fill, page
from flowveil.published.sentences import statement

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
    unread: Sequence[str],
    source: str | PathLike[str] | None,
    date: str | None = None,
) -> dict[str, Any]:
    """The content of a certificate.

    Args:
        sha256: of the files of the folder.
        report: its report.json; None where it could not be read, or something contradicts it: then nothing of it is
            repeated.
        expected: what the guarantee was asked to be at the least.
        findings: what contradicts the release.
        unread: what could not be compared.
        source: the trips, if they are one file; its hash says which they were.
        date: a date, or any other short text, of whoever asks for the certificate.
    """
    parameters = {} if report is None else report["parameters"]
    return {
        "certificate": "flowveil verification",
        "verified_with": __version__,
        "made_with": None if report is None else report["version"],
        "holds": False if findings else None if unread else True,
        "findings": list(findings),
        "not_compared": list(unread),
        "expected": {name: value for name, value in expected.items() if value not in (None, (), [])},
        "method": None if report is None else report["method"],
        "guarantee": None if report is None else report["guarantee"],
        "statement": [] if report is None else statement(report),
        "columns": parameters.get("columns"),
        "confirmed": parameters.get("confirmed"),
        "input_sha256": None if source is None else _hash_of_input(source),
        "release_sha256": dict(sorted(sha256.items())),
        **({} if date is None else {"date": date}),
    }


def _hash_of_input(source: str | PathLike[str]) -> str | None:
    """The hash of the trips; None where they are several files or not a file."""
    path = Path(source)
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
