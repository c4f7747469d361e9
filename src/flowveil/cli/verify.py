"""``flowveil verify``: a release recounted from the raw trips."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flowveil.cli.from_request import PLACE, with_request
from flowveil.cli.output import Output, with_output
from flowveil.errors import ParameterError
from flowveil.request import Request


@click.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@click.option("--against", type=PLACE, required=True, metavar="INPUT", help="The trips the release was made from.")
@click.option(
    "--strict",
    is_flag=True,
    help="Fail where something cannot be compared, because another version of flowveil or of a library wrote it.",
)
@click.option(
    "--certificate",
    "certificates",
    multiple=True,
    type=PLACE,
    metavar="FILE",
    help="Also write a certificate of what was verified and found: .json or .html (repeatable).",
)
@click.option("--certificate-date", metavar="TEXT", help="A date for the certificate; it has none otherwise.")
@with_request("k", "protect", "zones", "zones_of", "revision")
@with_output
def verify(output: Output, directory: str, against: str, strict: bool, request: Request, **given: Any) -> None:
    """Recount the release in DIR from the raw trips; exit 3 and a reason for each way it falls short.

    A release says itself what it guarantees. Say with --k and --protect what it must guarantee.
    """
    from flowveil.api import verify_folder
    from flowveil.execution import resources
    from flowveil.verify.persons import FOLDED, folds_instead
    from flowveil.verify.rendering import not_compared

    certificates, date = given.pop("certificates"), given.pop("certificate_date")
    _check_certificates(certificates, directory)
    expect = {name: request.given.get(name) for name in ("k", "protect", "k_population", "l")}
    zones_of, stricter, revision = request.method.zones_of, request.protection.stricter, request.method.revision
    l_places, how = request.protection.l_places, _reading(request)
    unread: list[str] = []
    if (Path(directory) / "index.json").is_file() and not (Path(directory) / "manifest.json").exists():
        _refuse_of_series(
            [*certificates, *revision, *([stricter] if stricter else []), *([l_places] if l_places else [])], zones_of
        )
        _verify_series(output, directory, against, expect, strict=strict, how=how)
        return
    with resources(request), output.working("Recounting"):
        findings = verify_folder(
            directory,
            against=against,
            expect=expect,
            unread=unread,
            strict=strict,
            zones_of=zones_of,
            stricter=stricter,
            l_places=l_places,
            revision=revision or None,
            **how,
        )
    note = None if strict else not_compared(Path(directory))
    case = request.people.person_case
    persons = FOLDED if folds_instead(Path(directory), expect=expect, person_case=case) else None
    # Neither true nor false where nothing contradicts the release, but not all of it could be compared.
    holds = False if findings else None if unread or note else True
    said = {"findings": findings, "unread": unread, "note": note, "persons": persons}
    output.result({"release": directory, "holds": holds, **said})
    noted = [*unread, *([note] if note else [])]
    _write_certificates(certificates, directory, against, expect, findings, noted, date)
    for line in dict.fromkeys([*findings, *unread, *([note] if note else [])]):
        output.complain(line)
    if findings:
        sys.exit(3)
    output.say(*_what_holds(directory, case="fold" if persons else case, whole=holds is True))
    if persons is not None:
        output.say(persons)


def _reading(request: Request) -> dict[str, Any]:
    """How to read the trips, where it differs from what the release says."""
    from flowveil.execution import reading_arguments

    # Zones of an earlier release say nothing about the reading: the report of this one does.
    return reading_arguments(request.with_values(zones_of=None, revision=None))


def _refuse_of_series(given: Sequence[str], zones_of: str | None) -> None:
    if given or zones_of is not None:
        raise ParameterError(
            "--certificate, --zones-of, --stricter, --l-places and --revision are for one release; a series "
            "has its own map."
        )


def _verify_series(
    output: Output, directory: str, against: str, expect: Mapping[str, Any], *, strict: bool, how: dict[str, Any]
) -> None:
    """Recount every step of a series, and what stands beside them."""
    from flowveil.api import verify_series

    unread: list[str] = []
    with output.working("Recounting"):
        findings = verify_series(directory, against=against, expect=expect, unread=unread, strict=strict, **how)
    holds = False if findings else None if unread else True
    output.result({"series": directory, "holds": holds, "findings": findings, "unread": unread})
    for line in (*findings, *unread):
        output.complain(line)
    if findings:
        sys.exit(3)
    output.say(f"{directory} holds: every cell of every step was recounted from the raw trips, over one map.")


def _check_certificates(paths: Sequence[str], directory: str) -> None:
    """Refuse what cannot be written, before anything is recounted."""
    from flowveil.private_files import check_place
    from flowveil.verify.certificate import check_suffix

    for path in paths:
        check_suffix(path)
        check_place(path, release=directory)


def _write_certificates(
    paths: Sequence[str],
    directory: str,
    against: str,
    expect: Mapping[str, Any],
    findings: Sequence[str],
    unread: Sequence[str],
    date: str | None,
) -> None:
    from flowveil.output import write_files
    from flowveil.release.folder import ReleaseFolder
    from flowveil.verify.certificate import certificate, certificate_text
    from flowveil.verify.files import hashes

    if not paths:
        return
    content = certificate(
        sha256=hashes(Path(directory)),
        report=None if findings else ReleaseFolder(Path(directory)).report,
        expected=expect,
        findings=findings,
        unread=unread,
        source=against,
        date=date,
    )
    write_files({path: certificate_text(content, path) for path in paths})


def _what_holds(directory: str, *, case: str | None, whole: bool) -> Iterator[str]:
    """What was proved, and how the input was read for it, in words of this program: those of the folder are not asked.

    Args:
        directory: a release that nothing contradicts, so that its thresholds are recounted ones.
        case: what was done with upper and lower case of persons; None where the release decided on that.
        whole: whether all of it could be compared.
    """
    from flowveil.published.sentences import statement
    from flowveil.release.folder import ReleaseFolder

    report = ReleaseFolder(Path(directory)).report
    proved = "every cell was recounted from the raw trips."
    if report["kind"] == "boxed" and not report["boxes"]["disjoint"]:
        proved = (
            "no cell claims more than lies in its boxes. Boxes share flows, so cells cannot be recounted one by one."
        )
    if report["kind"] == "noisy":
        proved = "it has the form of its promise, and its counts can be noise of the stated law on the raw ones."
    first, *others = statement(report)
    yield f"{directory} holds{'' if whole else ' as far as it could be compared'}: {proved} {first}"
    for line in others:
        if line.startswith("Not protected: subtraction"):
            yield f"But: {line}"
    columns = report["parameters"]["columns"]
    used = ", ".join(f"{role} from {_shown(name)}" for role, name in columns.items() if name)
    case = (case or report["parameters"].get("person_case")) if columns.get("person") else None
    parameters = report["parameters"]
    used += f"; upper and lower case of persons: {case}" if case else ""
    used += f"; times written {_shown(parameters['time_format'])}" if parameters.get("time_format") else ""
    used += f"; local time of {_shown(parameters['timezone'])}" if parameters.get("timezone") else ""
    yield f"Read as the release says: {used}."


def _shown(name: str) -> str:
    """A name from a folder, in quotation marks and without signs that a terminal obeys."""
    return f"'{name}'" if name.isprintable() else ascii(name)
