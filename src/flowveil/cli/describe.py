"""``flowveil describe``: what is in the data."""

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
    """Say what is in INPUT, how much is safe already, and what methods would give. Internal."""
    from flowveil.api import describe as look
    from flowveil.execution import reading_arguments, resources, steps_of

    named = ("k", "max_suppressed", "hierarchy", "protect")
    asked = {name: value for name, value in request.given.items() if name in named}
    with resources(request), output.working("Reading") as progress:
        steps = steps_of(request)
        found = look(
            source, **asked, every=steps[0] if steps else None, progress=progress, **reading_arguments(request)
        )
    output.result(found.to_dict())
    output.say(*found.lines())
