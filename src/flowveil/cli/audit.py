"""``flowveil audit``: what a reader can compute from published releases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from flowveil.cli.from_request import PLACE, with_request
from flowveil.cli.output import Output, with_output
from flowveil.errors import ParameterError
from flowveil.request import Request


@click.command()
@click.argument("folders", nargs=-1, required=True, type=PLACE, metavar="RELEASE...")
@click.option("--against", type=PLACE, metavar="INPUT", help="The trips: say how much of what can be computed is true.")
@click.option("--out", type=PLACE, metavar="FOLDER", help="Also write audit.json, audit.md and audit.html. Internal.")
@click.option(
    "--show-cells", is_flag=True, help="List the groups with their zones in --out and --json: for the holder."
)
@click.option(
    "--fail-on",
    multiple=True,
    metavar="NAME=SHARE",
    help="Exit 3 if homogeneity, dominance, linkage, membership or minimality is above a share (repeatable).",
)
@click.option(
    "--shadows",
    type=int,
    default=0,
    help="Runs of the method with --against: N pairs a person for membership, N zones for minimality [0: left out].",
)
@with_request("zones")
@with_output
def audit(output: Output, folders: tuple[str, ...], request: Request, **given: Any) -> None:
    """Attack published releases as a reader would.

    Exit 0 if nothing below the guarantee was found and everything was compared, 3 if something is disclosed, 4 if not
    everything could be compared: the list of what was not comes first.

    Several releases are subtracted from each other. Which trips each holds is stated by its --period: releases without
    one are taken to be of the same trips.
    """
    from flowveil.api import audit_releases
    from flowveil.audit.pages import audit_files, audit_lines
    from flowveil.execution import reading_arguments, resources
    from flowveil.output import write_folder

    out, show_cells = given.pop("out"), given.pop("show_cells")
    asked = {name: given.pop(name) for name in ("against", "shadows")}
    asked["seed"] = request.method.seed or 0
    limits = _limits(given.pop("fail_on"))
    if out is not None:
        _check_out(out, folders)
    with resources(request), output.working("Auditing"):
        found = audit_releases(folders, fail_on=limits, **asked, **reading_arguments(request))
    if out is not None:
        write_folder(out, audit_files(found, show_cells=show_cells))
    output.result(found.to_dict(show_cells=show_cells))
    output.say(f"{found.sentence}.", *(f"Not compared: {line}" for line in found.not_compared), *audit_lines(found))
    if out is not None:
        output.say(f"Internal audit, NOT for publication: {Path(out) / 'audit.html'}")
    for line in found.failures:
        output.complain(line)
    if found.failures:
        sys.exit(3)
    if found.not_compared:
        output.complain("Not everything could be compared; this says nothing about the rest.")
        sys.exit(4)


def _check_out(out: str, folders: tuple[str, ...]) -> None:
    """Refuses a release, a folder inside one, and a folder with other files, before anything is computed."""
    from flowveil.audit.pages import NAMES
    from flowveil.output import check_folder
    from flowveil.private_files import check_place

    for folder in folders:
        check_place(Path(out) / NAMES[0] if Path(out).is_dir() else out, release=folder)
    check_folder(
        out,
        refuse=lambda found: (
            None if {file.name for file in found.iterdir()} <= set(NAMES) else "holds something else than an audit"
        ),
    )


def _limits(words: tuple[str, ...]) -> dict[str, float]:
    limits = {}
    for word in words:
        name, _, share = word.partition("=")
        try:
            limits[name.strip()] = float(share)
        except ValueError:
            raise ParameterError(f"--fail-on takes NAME=SHARE, such as dominance=0.01; found '{word}'.") from None
    return limits
