"""``flowveil derive``: a table computed from a published release alone."""

from __future__ import annotations

from typing import Any

import click

from flowveil.cli.from_request import PLACE, with_request, with_section
from flowveil.cli.output import Output, with_output
from flowveil.request import Derive, Request

_WRITTEN = ("formats", "title", "source", "period", "licence", "contact", "replace_stronger", "ledger")


@click.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@with_request("out", "zones_of", "within", "zones", "formats", "title", "ledger", required=("out",))
@with_section(Derive)
@with_output
def derive(output: Output, directory: str, request: Request, wishes: Derive) -> None:
    """Compute a table from the published release in DIR: coarser zones, sums over slices, some slices, another format.

    Needs no raw data and reveals nothing beyond DIR. Publish the finest table once and derive the others.
    """
    from flowveil.api import derive as compute
    from flowveil.api import read_zones
    from flowveil.cli.released import release_lines
    from flowveil.execution import map_columns

    out, zones = str(request.output.out), request.zones.zones
    if zones is not None and request.arguments("map"):
        zones = read_zones(zones, **map_columns(request))
    chosen: dict[str, Any] = {"zones": zones, "zones_of": request.method.zones_of, "within": request.zones.within}
    chosen |= {name: value for name, value in request.output.given.items() if name in _WRITTEN}
    with output.working("Deriving"):
        made = compute(directory, out, **wishes.given, **chosen)
    output.say(*release_lines(made.report, out))
    output.result(made.report)
