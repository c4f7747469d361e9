"""``flowveil describe``: what is in the data."""

from __future__ import annotations

from typing import Any

import click

from flowveil.cli.options import PLACE, hierarchy, reading, reading_of
from flowveil.cli.output import Output, with_output


@click.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--k", type=int, default=10, show_default=True, help="How many a flow must hide to be safe.")
@click.option("--max-suppressed", type=float, default=0.1, show_default=True, help="Share that may be suppressed.")
@hierarchy
@reading
@with_output
def describe(output: Output, source: str, k: int, max_suppressed: float, hierarchy: str | None, **how: Any) -> None:
    """Say what is in INPUT and how much of it is safe already. Internal: counted from raw data."""
    from flowveil.api import describe as look

    with output.working("Reading") as progress:
        asked: dict[str, Any] = {"k": k, "max_suppressed": max_suppressed, "hierarchy": hierarchy}
        found = look(source, **asked, progress=progress, **reading_of(how))
    output.result(found.to_dict())
    output.say(*found.lines())
