"""``flowveil reconstruct``: the flows of a release between areas of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flowveil.cli.from_request import PLACE, recipe_options, request_from
from flowveil.cli.output import Output, with_output


@click.command()
@click.argument("directory", type=PLACE, metavar="RELEASE")
@click.option("--zones", required=True, metavar="N|FILE", help="An H3 resolution, or the map of the release.")
@click.option("--out", type=PLACE, required=True, metavar="FILE", help="The table: .parquet, .csv or .omx.")
@recipe_options
@with_output
def reconstruct(
    output: Output, directory: str, zones: str, out: str, recipe: str | None, changes: tuple[str, ...]
) -> None:
    """Spread the cells of RELEASE evenly over areas of your own; the published files and the map are all it needs."""
    from flowveil.api import read_zones
    from flowveil.api import reconstruct as spread
    from flowveil.execution import map_columns

    chosen: Any = int(zones) if zones.isdecimal() else zones
    request = request_from({}, recipe, changes)
    if not zones.isdecimal() and request.arguments("map"):
        chosen = read_zones(zones, **map_columns(request))
    path, table = Path(out), spread(directory, chosen, out=out)
    output.result({"table": str(path), "rows": len(table)})
    output.say(f"Estimated flows between {len(table):,} pairs of areas: {path}")
