"""``flowveil describe``: what is in the data."""

from __future__ import annotations

from typing import Any

import click

from flowveil.cli.options import PLACE, hierarchy, reading, reading_of, time_forms
from flowveil.cli.output import Output, with_output
from flowveil.guarantee import UNITS


@click.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--k", type=int, default=10, show_default=True, help="How many a flow must hide to be safe.")
@click.option(
    "--protect",
    multiple=True,
    help=f"What the floor and the advice are for: {', '.join(UNITS)} (repeatable) [people where known, else trips].",
)
@click.option("--max-suppressed", type=float, default=0.1, show_default=True, help="Share that may be suppressed.")
@click.option("--time", metavar="COLUMN", help="Column of the time: what folding it would give is estimated too.")
@click.option("--every", metavar="STEP", help="Step of time that is folded: hour, weekday-hour, 1h, ... [hour]")
@time_forms
@hierarchy
@reading
@with_output
def describe(output: Output, source: str, **given: Any) -> None:
    """Say what is in INPUT, how much is safe already, and what methods would give. Not for publication."""
    from flowveil.api import describe as look

    with output.working("Reading") as progress:
        asked = {name: given.pop(name) for name in ("k", "max_suppressed", "hierarchy", "time", "every")}
        asked["protect"] = given.pop("protect") or None
        found = look(source, **asked, progress=progress, **reading_of(given))
    output.result(found.to_dict())
    output.say(*found.lines())
