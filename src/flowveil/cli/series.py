"""``flowveil series``: one release for each month or day, all over the same zones."""

from __future__ import annotations

import click

from flowveil.cli.from_request import PLACE, READING, with_request
from flowveil.cli.output import Output, with_output
from flowveil.errors import ParameterError
from flowveil.request import Request


@click.command()
@click.argument("source", type=PLACE, metavar="FOLDER")
@click.option("--every", metavar="month|day", help="Length of a step [default: month].")
@click.option("--revision", is_flag=True, help="Publish a revision of a published step whose trips have changed.")
@with_request(
    "out",
    "k",
    "protect",
    "max_suppressed",
    "method",
    "zones_of",
    "formats",
    "ledger",
    *READING,
    "no_person",
    required=("out",),
)
@with_output
def series(output: Output, source: str, every: str | None, revision: bool, request: Request) -> None:
    """Publish the trips of FOLDER (or a file) step by step over one map; run it again as trips are added.

    Steps that are published already are verified against the trips and left alone. A published step whose trips
    have changed is refused, unless --revision is given.
    """
    from flowveil.api import publish_series
    from flowveil.execution import anonymize_arguments, reading_arguments, resources

    if request.slices.time is None:
        raise ParameterError("A series needs the column of the time. Hint: --time COLUMN.")
    # The map of a series is that of its first step, or the one that is given: its steps choose nothing themselves.
    asked = anonymize_arguments(request.with_values(zones_of=None, revision=None))
    # Steps are compared zone by zone, which needs one map; layers are kept on request.
    asked["method"] = request.method.method or "twincut"
    with resources(request):
        made = publish_series(
            source,
            str(request.output.out),
            every=every or next(iter(request.slices.every), "month"),
            zones_of=request.method.zones_of,
            asked=asked,
            on_step=lambda step: output.say(f"Publishing {step}"),
            formats=request.output.formats,
            ledger=request.output.ledger,
            accept_differencing=request.slices.accept_differencing,
            revision=revision,
            **reading_arguments(request),
        )
    n, new = len(made.index["steps"]), len(made.published)
    output.say(f"{n:,} steps are published over one map, {new:,} of them now. Page: {made.place / 'index.html'}")
    for loss in made.losses:
        # A measure of raw trips, for the operator.
        click.echo(str(loss), err=True)
    if made.unpublished:
        output.say("Steps that hold too little are not published.")
    output.result({"series": str(made.place), "published": list(made.published), **made.index})
