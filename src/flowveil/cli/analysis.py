"""Commands that measure raw trips: ``describe`` and ``analyze``. Private."""

from __future__ import annotations

import click

from flowveil.cli.from_request import PLACE, READING, with_request
from flowveil.cli.output import Output, with_output
from flowveil.request import Request


@click.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@with_request("k", "protect", *READING, "every")
@with_output
def describe(output: Output, source: str, request: Request) -> None:
    """Say what is in INPUT, how much is safe already, and what methods would give. Private."""
    from flowveil.api import describe as look
    from flowveil.execution import reading_arguments, resources, steps_of

    named = ("k", "max_suppressed", "hierarchy", "protect")
    asked = {name: value for name, value in request.given.items() if name in named}
    with resources(request), output.working("Reading") as progress:
        steps = steps_of(request)
        description = look(
            source, **asked, every=steps[0] if steps else None, progress=progress, **reading_arguments(request)
        )
    output.result(description.to_dict())
    output.say(*description.lines())


@click.command()
@click.argument("directory", type=PLACE, metavar="RELEASE")
@click.option("--against", type=PLACE, required=True, metavar="INPUT", help="The trips the release was made from.")
@click.option("--districts", type=PLACE, metavar="FILE", help="Your polygons: errors between them are computed too.")
@click.option("--out", type=PLACE, metavar="DIR", help="Private folder for measures.json and the before/after page.")
@click.option(
    "--dpia", type=PLACE, metavar="FILE", help="Text of a data protection impact assessment, Markdown. Private."
)
@with_request("zones", "within")
@with_output
def analyze(
    output: Output,
    directory: str,
    against: str,
    districts: str | None,
    out: str | None,
    dpia: str | None,
    request: Request,
) -> None:
    """Compute every measure of RELEASE from the raw trips: before and after. Not for publication.

    Trips are read as the release's report says. Give --zones and --within where it was made with a file.
    """
    from flowveil.analysis.release_analysis import analyze as measure
    from flowveil.execution import reading_arguments
    from flowveil.private_files import check_place, refuse_inside_release, write_private

    if out is not None:
        refuse_inside_release(out, release=directory)
    if dpia is not None:
        check_place(dpia, release=directory)
    reading = reading_arguments(request)
    with output.working("Analysing"):
        analysis = measure(directory, against=against, districts=districts, **reading)
    if out is not None:
        output.say(f"Private folder, NOT for publication: {analysis.write(out, release=directory)}")
    if dpia is not None:
        from flowveil.analysis.dpia import dpia_text

        with output.working("Auditing"):
            text = dpia_text(directory, analysis, against=against, **reading)
        output.say(f"Impact assessment, NOT for publication: {write_private(dpia, text, folder=directory)}")
    output.result({"release": directory, **analysis.to_dict()})
    output.say(*analysis.lines())
