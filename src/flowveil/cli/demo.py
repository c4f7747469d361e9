"""``flowveil demo``: a synthetic survey, end to end."""

from __future__ import annotations

import click

from flowveil.cli.from_request import PLACE
from flowveil.cli.output import Output, with_output
from flowveil.cli.released import publish_one

_ABOUT = {
    "title": "Travel in Île-de-France, a synthetic survey",
    "source": "Made by flowveil demo; it contains no real person",
    "licence": "CC0 1.0",
}


@click.command()
@click.option("--out", type=PLACE, default="flowveil-demo", show_default=True, help="Folder of the release.")
@with_output
def demo(output: Output, out: str) -> None:
    """Publish a synthetic survey of Île-de-France, end to end."""
    from flowveil.api import read_trips
    from flowveil.published.folder import check_target
    from flowveil.sources.synthetic import synthetic_survey

    check_target(out)
    with output.working("Making a synthetic survey"):
        survey = synthetic_survey()
    output.say(f"Made a synthetic survey of {survey.num_rows:,} trips; it contains no real person.")
    with output.working("Reading") as progress:
        flows = read_trips(survey, weight="weight", progress=progress)
    # The survey is synthetic: measures computed from its trips reveal nothing.
    publish_one(output, flows, out, {"k": 10}, writing=_ABOUT, show_measures=not output.quiet)
