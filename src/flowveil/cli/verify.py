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

_CERTIFICATE = ("certificates", "certificate_date", "signer")


@click.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@click.option("--against", type=PLACE, metavar="INPUT", help="The trips the release was made from.")
@click.option("--from", "source", type=PLACE, metavar="SOURCE", help="The release that a derived one was made from.")
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
    help="Also write a certificate of what was verified and found: .json or .html (repeatable). Private.",
)
@click.option("--certificate-date", metavar="TEXT", help="A date for the certificate; it has none otherwise.")
@click.option("--signer", metavar="TEXT", help="Who signs the certificate.")
@with_request(
    "k",
    "protect",
    "zones",
    "zones_of",
    k="Smallest k that you require. [default: what the release states]",
    protect="Unit that must be protected: trips, people or population (repeatable). [default: as the release states]",
    zones_of="The earlier release, or frozen map, whose zones the release says it has.",
)
@with_output
def verify(output: Output, directory: str, against: str | None, request: Request, **given: Any) -> None:
    """Recount the release in DIR from the raw trips and rebuild its folder; exit 3 and a reason if it falls short.

    A release states what it guarantees. Require more with --k and --protect. A derived release is computed again from
    its source with --from.
    """
    source, strict = given.pop("source"), given.pop("strict")
    if (against is None) == (source is None):
        raise ParameterError("Give --against INPUT, or --from SOURCE for a derived release.")
    if against is None:
        _verify_derived(output, directory, source, request, strict=strict, **given)
        return
    from flowveil.execution import resources
    from flowveil.verify.verification import PrivateFiles, verify_release, verify_series

    certificates = given.pop("certificates")
    signed = {"date": given.pop("certificate_date"), "signer": given.pop("signer")}
    _check_certificates(certificates, directory)
    expect = {name: request.given.get(name) for name in ("k", "protect", "k_population", "l")}
    private = PrivateFiles(
        zones_of=request.method.zones_of,
        stricter=request.protection.stricter,
        l_places=request.protection.l_places,
        revision=request.method.revision,
    )
    how = {**_reading(request), "strict": strict, "expect": expect}
    is_series = (Path(directory) / "index.json").is_file() and not (Path(directory) / "manifest.json").exists()
    with resources(request), output.working("Recounting"):
        if is_series:
            _refuse_of_series(certificates, private)
            found = verify_series(directory, against=against, **how)
        else:
            found = verify_release(directory, against=against, private=private, **how)
    content = {"findings": list(found.findings), "not_compared": list(found.not_compared)}
    output.result({"release": directory, "holds": found.holds, **content, "compared": dict(found.compared)})
    _write_certificates(certificates, directory, against, expect, found, signed)
    for line in dict.fromkeys([*found.findings, *found.not_compared]):
        output.complain(line)
    if not found.holds:
        sys.exit(3)
    if is_series:
        output.say(f"{directory} holds: every cell of every step was recounted from the raw trips, over one map.")
    else:
        output.say(*_what_holds(directory, found))


def _verify_derived(
    output: Output, directory: str, source: str, request: Request, *, strict: bool, **given: Any
) -> None:
    from flowveil.api import read_zones, verify_derived
    from flowveil.execution import map_columns

    if {"k", "protect"} & set(request.given) or any(given[name] for name in _CERTIFICATE):
        raise ParameterError("--k, --protect and certificates are for releases that are verified with --against.")
    zones: Any = request.zones.zones
    if zones is not None and request.arguments("map"):
        zones = read_zones(zones, **map_columns(request))
    how = {"zones": zones, "zones_of": request.method.zones_of, "within": request.zones.within}
    with output.working("Computing again"):
        found = verify_derived(directory, source, strict=strict, **how)
    content = {"findings": list(found.findings), "not_compared": list(found.not_compared)}
    output.result({"release": directory, "holds": found.holds, **content, "compared": dict(found.compared)})
    for line in dict.fromkeys([*found.findings, *found.not_compared]):
        output.complain(line)
    if not found.holds:
        sys.exit(3)
    output.say(f"{directory} holds: every file is what {source} produces. Verify that release against its trips.")


def _reading(request: Request) -> dict[str, Any]:
    """Returns how to read the trips, where it differs from what the release states."""
    from flowveil.execution import reading_arguments

    # Zones of an earlier release say nothing about the reading: the report of this one does.
    return reading_arguments(request.with_values(zones_of=None, revision=None))


def _refuse_of_series(certificates: Sequence[str], private: Any) -> None:
    if certificates or any(vars(private).values()):
        raise ParameterError(
            "--certificate, --zones-of, --stricter, --l-places and --revision are for one release; a series has its "
            "own map."
        )


def _check_certificates(paths: Sequence[str], directory: str) -> None:
    """Refuses what cannot be written, before anything is recounted."""
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
    found: Any,
    signed: Mapping[str, str | None],
) -> None:
    from flowveil.output import write_files
    from flowveil.release.folder import ReleaseFolder
    from flowveil.verify.certificate import certificate, certificate_text

    if not paths:
        return
    content = certificate(
        sha256=found.sha256,
        report=ReleaseFolder(Path(directory)).report if found.holds else None,
        expected=expect,
        findings=found.findings,
        not_compared=found.not_compared,
        source=against,
        **signed,
    )
    write_files({path: certificate_text(content, path) for path in paths}, private=True)


def _what_holds(directory: str, found: Any) -> Iterator[str]:
    """Yields what was verified. Texts of the folder are not repeated."""
    from flowveil.published.sentences import sentences
    from flowveil.release.folder import ReleaseFolder

    statement = ReleaseFolder(Path(directory)).statement
    verified = "every cell was recounted from the raw trips, and every file follows from what is published."
    if statement.boxes is not None and not statement.boxes["disjoint"]:
        verified = "no cell claims more trips than its boxes contain. Boxes share flows, so cells can only be bounded."
    if statement.kind == "noisy":
        verified = "it has the form of its promise, and its counts can be noise of the stated distribution."
    first, *others = sentences(statement)
    yield f"{directory} holds{' as far as it could be compared' if found.not_compared else ''}: {verified} {first}"
    for line in others:
        if line.startswith("Not protected: subtraction"):
            yield f"But: {line}"
    columns = statement.parameters["columns"]
    used = ", ".join(f"{role} from {_quoted(name)}" for role, name in columns.items() if name)
    yield f"Read as the release states: {used}."


def _quoted(name: str) -> str:
    """Returns a name from a folder in quotation marks, without control characters."""
    return f"'{name}'" if name.isprintable() else ascii(name)
