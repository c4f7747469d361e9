"""``flowveil reconstruct``: a matrix between the reader's areas, estimated from a published release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flowveil.cli.options import PLACE, reading_of
from flowveil.cli.output import Output, with_output


@click.command()
@click.argument("directory", type=PLACE, metavar="RELEASE")
@click.option("--zones", required=True, metavar="N|FILE", help="An H3 resolution, the release's map, or any polygons.")
@click.option("--zones-tile", metavar="COLUMN", help="The map's column of zone codes.")
@click.option("--zones-parent", metavar="COLUMN", help="The map's column of each zone's parent.")
@click.option("--zones-levels", metavar="A,B,...", help="The map's nested codes, coarsest to finest.")
@click.option("--zones-lat", metavar="COLUMN", help="The map's column of the latitude of each zone's centre.")
@click.option("--zones-lon", metavar="COLUMN", help="The map's column of the longitude.")
@click.option("--zones-root", metavar="CODE", help="Code of a root above several topmost zones.")
@click.option(
    "--population", type=PLACE, metavar="FILE", help="Inhabitants: lat, lon, population; or zone, population."
)
@click.option("--land", type=PLACE, metavar="FILE", help="Polygons of land: no trip starts or ends elsewhere.")
@click.option("--decay/--no-decay", default=True, help="Fit how trips get rarer with distance (default: yes).")
@click.option("--whole", is_flag=True, help="Whole trips; totals are kept.")
@click.option("--bounds", is_flag=True, help="Also the trips that cells prove, and the most that they allow.")
@click.option("--per", type=click.Choice(["day"]), help="The mean of a day of the declared period.")
@click.option("--totals", type=PLACE, metavar="FILE", help="Known totals: area, origins, destinations.")
@click.option("--out", type=PLACE, required=True, metavar="FILE", help="The table: .parquet, .csv, .omx or .gpkg.")
@with_output
def reconstruct(output: Output, directory: str, out: str, **given: Any) -> None:
    """Estimate the flows of RELEASE between your own areas. Needs the published files alone; the result is no count."""
    from flowveil.api import reconstruct as estimate

    wishes = ("population", "land", "decay", "whole", "bounds", "per", "totals")
    asked = {name: given.pop(name) for name in wishes}
    zones = given["zones"]
    chosen = int(zones) if zones.isdecimal() else reading_of(given)["zones"]
    path, table = Path(out), estimate(directory, chosen, out=out, **asked)
    output.result({"table": str(path), "rows": len(table)})
    output.say(f"Estimated flows between {len(table):,} pairs of areas: {path}")
