"""``flowveil demo``: a synthetic survey, end to end."""

from __future__ import annotations

from pathlib import Path

import click

from flowveil.cli.from_request import PLACE
from flowveil.cli.output import Output, with_output
from flowveil.cli.released import publish_one

_ABOUT = {
    "title": "Travel in Île-de-France, a synthetic survey",
    "source": "Made by flowveil demo; no real person is in it",
    "licence": "CC0 1.0",
}


@click.command()
@click.option("--out", type=PLACE, default="flowveil-demo", show_default=True, help="Folder of the release.")
@with_output
def demo(output: Output, out: str) -> None:
    """Publish a synthetic survey of Île-de-France, end to end."""
    from flowveil.api import anonymize, read_trips
    from flowveil.private_files import write_private
    from flowveil.published.folder import check_target
    from flowveil.published.html import render
    from flowveil.published.report import summarize
    from flowveil.sources.synthetic import synthetic_survey

    check_target(out)
    with output.working("Making a synthetic survey"):
        survey = synthetic_survey()
    output.say(f"Made a synthetic survey of {survey.num_rows:,} trips; no real person is in it.")
    with output.working("Reading") as progress:
        flows = read_trips(survey, weight="weight", progress=progress)
    with output.working("Comparing"):
        other = anonymize(flows, method="odkanon", k=10, budget="volume")
    release = publish_one(output, flows, out, {"k": 10}, writing=_ABOUT)
    page = f"{out.rstrip('/')}-beside.html"
    # Not in the folder: a release holds the numbers of one release, so that all of them can be recounted.
    write_private(
        page,
        render(summarize(release, about=_ABOUT), release.flows, release.zones, side_by_side=other),
        folder=Path(out),
    )
    # Nobody took part in this survey: its measures may be printed exactly.
    m = other.metrics()["trips"]
    output.say(
        f"For comparison, {page} shows ODkAnon with the same limit beside it: {m['n_cells']:,} cells between "
        f"{m['n_origin_zones']:,} origin and {m['n_destination_zones']:,} destination zones; trip ends moved by "
        f"{m['generalization_distance_m']:,.0f} m."
    )
