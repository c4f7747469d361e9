"""``flowveil reconstruct``: the flows of a release between areas of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flowveil.cli.options import PLACE, reading_of
from flowveil.cli.output import Output, with_output


@click.command()
@click.argument("directory", type=PLACE, metavar="RELEASE")
@click.option("--zones", required=True, metavar="N|FILE", help="An H3 resolution, or the map of the release.")
@click.option("--zones-tile", metavar="COLUMN", help="The map's column of zone codes.")
@click.option("--zones-parent", metavar="COLUMN", help="The map's column of each zone's parent.")
@click.option("--zones-levels", metavar="A,B,...", help="The map's nested codes, coarsest to finest.")
@click.option("--zones-lat", metavar="COLUMN", help="The map's column of the latitude of each zone's centre.")
@click.option("--zones-lon", metavar="COLUMN", help="The map's column of the longitude.")
@click.option("--zones-root", metavar="CODE", help="Code of a root above several topmost zones.")
@click.option("--out", type=PLACE, required=True, metavar="FILE", help="The table: .parquet, .csv or .omx.")
@with_output
def reconstruct(output: Output, directory: str, out: str, **given: Any) -> None:
    """Spread the cells of RELEASE evenly over areas of your own; the published files and the map are all it needs."""
    from flowveil.api import reconstruct as spread

    zones = given["zones"]
    chosen = int(zones) if zones.isdecimal() else reading_of(given)["zones"]
    path, table = Path(out), spread(directory, chosen, out=out)
    output.result({"table": str(path), "rows": len(table)})
    output.say(f"Estimated flows between {len(table):,} pairs of areas: {path}")
