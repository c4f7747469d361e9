"""``flowveil verify``: a release recounted from the raw trips.

``audit``: what a reader can compute from releases.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from flowveil.apps.cli.command import (
    PLACE,
    READING,
    Output,
    RequestCommand,
    named_values,
    place,
    several,
    with_output,
    with_request,
)
from flowveil.core.errors import ParameterError, option
from flowveil.request.request import Request

#: What --fail-on limits.
_SHARES = ("homogeneity", "dominance", "linkage", "membership", "minimality")
_CERTIFICATE = (
    "Also write a certificate of what was verified and found: .json or .html (repeatable). Private."
)


@click.command(cls=RequestCommand)
@click.argument("directory", type=PLACE, metavar="DIR")
@place("--against", "INPUT", "The trips the release was made from.")
@click.option(
    "--from",
    "source",
    type=PLACE,
    metavar="SOURCE",
    help="The release that a derived one was made from.",
)
@click.option(
    "--strict", is_flag=True, help="Fail where another version wrote what cannot be compared."
)
@several("--certificate", "certificates", "FILE", _CERTIFICATE, type=PLACE)
@click.option(
    "--certificate-date", metavar="TEXT", help="A date for the certificate; it has none otherwise."
)
@click.option("--signer", metavar="TEXT", help="Who signs the certificate.")
@with_request(
    "rule",
    "k",
    "protect",
    # --from names the source of a derived release here.
    *(name for name in READING if name != "source_format"),
    "zones_of",
    k="Smallest k that you require. [default: what the release states]",
    protect=(
        "Unit that must be protected: trips, people or population (repeatable). [default: as the"
        " release states]"
    ),
    zones_of="The earlier release, or frozen map, whose zones the release says it has.",
)
@with_output
def verify(
    output: Output, directory: str, against: str | None, request: Request, **given: Any
) -> None:
    """Recount the release in DIR from the raw trips and rebuild its folder.

    Exit 3 and a reason if it falls short.

    A release states what it guarantees. Require more with --k and --protect. A derived release is
    computed again from its source with --from.
    """
    source, strict = given.pop("source"), given.pop("strict")
    if (against is None) == (source is None):
        raise ParameterError("Give --against INPUT, or --from SOURCE for a derived release.")
    if against is None:
        _verify_derived(output, directory, source, request, strict=strict, **given)
        return
    from flowveil.publishing.run import reading_arguments, resources
    from flowveil.publishing.series.verification import verify_series
    from flowveil.system.output import check_place, write_files
    from flowveil.verify import verification as check

    paths = given["certificates"]
    for path in paths:
        # What cannot be written is refused before anything is recounted.
        check.check_suffix(path)
        check_place(path, release=directory)
    expect = {name: request.given.get(name) for name in ("k", "protect", "k_population", "l")}
    names = ("zones_of", "stricter", "l_places")
    files = {name: request.given[name] for name in (*names, "revision") if name in request.given}
    private = check.PrivateFiles(**files)
    # Zones of an earlier release say nothing about the reading: the report of this one does.
    reading = reading_arguments(request.with_values(zones_of=None, revision=None))
    how = {**reading, "strict": strict, "expect": expect}
    is_series = (Path(directory) / "index.json").is_file() and not (
        Path(directory) / "manifest.json"
    ).exists()
    if is_series and (paths or any(vars(private).values())):
        raise ParameterError(
            f"--certificate, {', '.join(map(option, names))} and --set method.revision are for one"
            " release; a series has its own map."
        )
    run: Any = verify_series if is_series else partial(check.verify_release, private=private)
    with resources(request), output.working("Recounting"):
        found = run(directory, against=against, **how)
    if paths:
        signed = {"date": given["certificate_date"], "signer": given["signer"]}
        content = check.certificate(found, expected=expect, source=against, **signed)
        write_files({path: check.certificate_text(content, path) for path in paths}, private=True)
    _print_verdict(output, directory, found)
    if is_series:
        output.say(
            f"{directory} holds: every cell of every step was recounted from the raw trips, over"
            " one map."
        )
    else:
        output.say(*_what_holds(directory, found))


def _verify_derived(
    output: Output, directory: str, source: str, request: Request, *, strict: bool, **given: Any
) -> None:
    from flowveil.apps.cli.published import own_zones
    from flowveil.verify.verification import verify_derived

    if {"k", "protect"} & set(request.given) or any(given.values()):
        raise ParameterError(
            "--k, --protect and certificates are for releases that are verified with --against."
        )
    how = {
        "zones": own_zones(request),
        "zones_of": request.method.zones_of,
        "within": request.zones.within,
    }
    with output.working("Computing again"):
        found = verify_derived(directory, source, strict=strict, **how)
    _print_verdict(output, directory, found)
    output.say(
        f"{directory} holds: every file is what {source} produces. Verify that release against its"
        " trips."
    )


def _print_verdict(output: Output, directory: str, found: Any) -> None:
    """Prints what was found, and exits with 3 if the release does not hold."""
    content = {"findings": list(found.findings), "not_compared": list(found.not_compared)}
    output.result(
        {"release": directory, "holds": found.holds, **content, "compared": dict(found.compared)}
    )
    output.complain(*dict.fromkeys([*found.findings, *found.not_compared]))
    if not found.holds:
        sys.exit(3)


def _what_holds(directory: str, found: Any) -> Iterator[str]:
    """Yields what was verified. Texts of the folder are not repeated."""
    from flowveil.published.sentences import sentences
    from flowveil.release.statement import Statement

    statement = Statement.from_report(found.report)
    verified = (
        "every cell was recounted from the raw trips, and every file follows from what is"
        " published."
    )
    if statement.boxes is not None and not statement.boxes["disjoint"]:
        verified = (
            "no cell claims more trips than its boxes contain. Boxes share flows, so cells can only"
            " be bounded."
        )
    elif statement.facets.is_noisy:
        verified = (
            "it has the form of its promise, and its counts can be noise of the stated"
            " distribution."
        )
    first, *others = sentences(statement)
    yield (
        f"{directory} holds{' as far as it could be compared' if found.not_compared else ''}:"
        f" {verified} {first}"
    )
    for line in others:
        if line.startswith("Not protected: subtraction"):
            yield f"But: {line}"
    # Names from a folder are printed without control characters.
    columns = [(role, name) for role, name in statement.parameters["columns"].items() if name]
    used = (
        f"{role} from " + (f"'{name}'" if name.isprintable() else ascii(name))
        for role, name in columns
    )
    yield f"Read as the release states: {', '.join(used)}."


@click.command()
@click.argument("folders", nargs=-1, required=True, type=PLACE, metavar="RELEASE...")
@place("--against", "INPUT", "The trips: say how much of what can be computed is true.")
@place("--out", "FOLDER", "Also write audit.json, audit.md and audit.html. Internal.")
@click.option(
    "--show-cells",
    is_flag=True,
    help="List groups with their zones in --out and --json: for the holder.",
)
@several(
    "--fail-on",
    "fail_on",
    "NAME=SHARE",
    f"Exit 3 if above a share: {', '.join(_SHARES)} (repeatable).",
)
@click.option(
    "--shadows",
    type=int,
    default=0,
    help=(
        "Runs of the method with --against: N pairs a person for membership, N zones for minimality"
        " [0: left out]."
    ),
)
@with_request("zones")
@with_output
def audit(output: Output, folders: tuple[str, ...], request: Request, **given: Any) -> None:
    """Attack published releases as a reader would.

    Exit 0 if nothing below the guarantee was found and everything was compared, 3 if something is
    disclosed, 4 if not everything could be compared: the list of what was not comes first.

    Several releases are subtracted from each other. Which trips each holds is stated by its
    --period: releases without one are taken to be of the same trips.
    """
    from flowveil.analysis.audit import NAMES, audit, audit_files, audit_lines
    from flowveil.publishing.run import reading_arguments, resources
    from flowveil.system.output import check_private_folder, refuse_inside_release, write_folder

    out, show_cells = given.pop("out"), given.pop("show_cells")
    asked = {name: given.pop(name) for name in ("against", "shadows")}
    asked["seed"] = request.method.seed or 0
    limits = named_values("--fail-on", given.pop("fail_on"), dict.fromkeys(_SHARES, float))
    if out is not None:
        # Refused before anything is computed.
        for folder in folders:
            refuse_inside_release(out, release=folder)
        check_private_folder(out, "an audit", lambda names: names <= set(NAMES))
    with resources(request), output.working("Auditing"):
        found = audit(folders, fail_on=limits, **asked, **reading_arguments(request))
    if out is not None:
        write_folder(out, audit_files(found, show_cells=show_cells))
    output.result(found.to_dict(show_cells=show_cells))
    output.say(
        f"{found.sentence}.",
        *(f"Not compared: {line}" for line in found.not_compared),
        *audit_lines(found),
    )
    if out is not None:
        output.say(f"Internal audit, NOT for publication: {Path(out) / 'audit.html'}")
    output.complain(*found.failures)
    if found.failures:
        sys.exit(3)
    if found.not_compared:
        output.complain("Not everything could be compared; this says nothing about the rest.")
        sys.exit(4)
