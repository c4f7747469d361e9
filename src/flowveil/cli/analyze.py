"""``flowveil analyze``: the private measures of a published release."""

from __future__ import annotations

import click

from flowveil.cli.from_request import PLACE, with_request
from flowveil.cli.output import Output, with_output
from flowveil.request import Request


@click.command()
@click.argument("directory", type=PLACE, metavar="RELEASE")
@click.option("--against", type=PLACE, required=True, metavar="INPUT", help="The trips the release was made from.")
@click.option("--districts", type=PLACE, metavar="FILE", help="Your polygons: errors between them are computed too.")
@click.option("--out", type=PLACE, metavar="DIR", help="Private folder for measures.json and the before/after page.")
@with_request("zones", "within")
@with_output
def analyze(
    output: Output, directory: str, against: str, out: str | None, districts: str | None, request: Request
) -> None:
    """Compute every measure of RELEASE from the raw trips: before and after. Not for publication.

    Trips are read as the release's report says. Give --zones and --within where it was made with a file.
    """
    from flowveil.analysis.release_analysis import analyze as measure
    from flowveil.execution import reading_arguments
    from flowveil.private_files import refuse_inside_release

    if out is not None:
        refuse_inside_release(out, release=directory)
    with output.working("Analysing"):
        found = measure(directory, against=against, districts=districts, **reading_arguments(request))
    if out is not None:
        output.say(f"Private folder, NOT for publication: {found.write(out, release=directory)}")
    output.result({"release": directory, **found.to_dict()})
    output.say(*found.lines())
