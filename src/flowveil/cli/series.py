"""``flowveil series``: one release for each month or day, all over the same zones."""

from __future__ import annotations

from typing import Any

import click

from flowveil.cli.options import PLACE, hierarchy, method_options, reading, reading_like, reading_of
from flowveil.cli.output import Output, with_output
from flowveil.guarantee import UNITS


@click.command()
@click.argument("source", type=PLACE, metavar="FOLDER")
@click.option("--time", required=True, metavar="COLUMN", help="Column of the time.")
@click.option("--every", default="month", show_default=True, metavar="month|day", help="Length of a step.")
@click.option("--out", type=PLACE, required=True, help="Folder of the series; an earlier one is continued.")
@click.option(
    "--zones-of", type=PLACE, metavar="EARLIER", help="Zones of all steps [default: those of the first step]."
)
@click.option("--revision", is_flag=True, help="Publish a revision of a published step whose trips have changed.")
@click.option("--k", type=int, default=10, show_default=True, help="How many every cell must hide.")
@click.option("--protect", multiple=True, help=f"{', '.join(UNITS)} (repeatable) [default: as for anonymize].")
@click.option("--k-population", type=float, help="Absolute threshold of the population.")
@click.option("--l", "l", type=int, help="Fewest tiles in which the trips of a cell begin, and end.")
@click.option(
    "--max-suppressed", type=float, default=0.1, show_default=True, help="Largest suppressed share of a step."
)
@click.option("--yes-k-below-3", "allow_small_k", is_flag=True, help="Confirm a k below 3, which is refused otherwise.")
@click.option("--population-only", is_flag=True, help="Confirm that the population alone is protected.")
@click.option("--method", help="Method that chooses the zones of the first step [default: twincut].")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Option of the method (repeatable).")
@hierarchy
@click.option("--time-format", metavar="FORMAT", help="Format of times in text that are not recognised.")
@click.option("--timezone", metavar="NAME", help="Local time for Unix times and times in UTC.")
@click.option("--format", "formats", multiple=True, metavar="NAMES", help="Exports of each step, as for anonymize.")
@click.option("--ledger", type=PLACE, metavar="DIR", help="Ledger of this data set, as for anonymize.")
@click.option("--accept-differencing", is_flag=True, help="Publish although subtraction reveals small groups.")
@reading
@with_output
def series(output: Output, source: str, time: str, every: str, out: str, zones_of: str | None, **given: Any) -> None:
    """Publish the trips of FOLDER (or a file) step by step over one map; run it again as trips are added.

    Steps that are published already are verified against the trips and left alone. A published step whose trips
    have changed is refused, unless --revision is given.
    """
    from flowveil.api import publish_series

    names = ("k", "protect", "k_population", "l", "max_suppressed", "allow_small_k", "population_only")
    asked = {name: given.pop(name) for name in names}
    asked["protect"] = asked["protect"] or None
    method, options = given.pop("method"), given.pop("options")
    asked |= {"method": method, "hierarchy": given.pop("hierarchy"), **method_options(method or "twincut", options)}
    writing = {name: given.pop(name) for name in ("formats", "ledger", "accept_differencing", "revision")}
    how = reading_of(given, protect=asked["protect"])
    if zones_of is not None:
        how = reading_like(zones_of, how)
    made = publish_series(
        source,
        out,
        time=time,
        every=every,
        zones_of=zones_of,
        asked=asked,
        on_step=lambda step: output.say(f"Publishing {step}"),
        **writing,
        **how,
    )
    n, new = len(made.index["steps"]), len(made.published)
    output.say(f"{n:,} steps are published over one map, {new:,} of them now. Page: {made.place / 'index.html'}")
    if made.unpublished:
        output.say("Steps that hold too little are not published.")
    output.result({"series": str(made.place), "published": list(made.published), **made.index})
