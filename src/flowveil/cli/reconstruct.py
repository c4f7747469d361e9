"""``flowveil reconstruct``: a matrix between the reader's areas, estimated from a published release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flowveil.cli.from_request import PLACE, request_from, set_option
from flowveil.cli.output import Output, with_output


@click.command()
@click.argument("directory", type=PLACE, metavar="RELEASE")
@click.option("--zones", required=True, metavar="N|FILE", help="An H3 resolution, the release's map, or any polygons.")
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
@set_option
@with_output
def reconstruct(output: Output, directory: str, out: str, zones: str, changes: tuple[str, ...], **wishes: Any) -> None:
    """Estimate the flows of RELEASE between your own areas. Needs the published files alone; the result is no count."""
    from flowveil.api import read_zones
    from flowveil.api import reconstruct as estimate
    from flowveil.execution import map_columns

    chosen: Any = int(zones) if zones.isdecimal() else zones
    request = request_from({}, None, changes)
    if not zones.isdecimal() and request.arguments("map"):
        chosen = read_zones(zones, **map_columns(request))
    path, table = Path(out), estimate(directory, chosen, out=out, **wishes)
    output.result({"table": str(path), "rows": len(table)})
    output.say(f"Estimated flows between {len(table):,} pairs of areas: {path}")
