"""Commands that need published files alone.

``derive``, ``picture``, ``reconstruct`` and ``freeze``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from flowveil.apps.cli import command as shared
from flowveil.apps.cli.command import (
    PLACE,
    Output,
    numbers,
    place,
    several,
    with_output,
    with_request,
)
from flowveil.request.request import Derive, Request, settings

#: Options for the columns of a map of the reader.
_MAP = tuple(one.name for one in settings(call="map", tier=("common", "all")))

_WRITTEN = (
    "formats",
    "title",
    "source",
    "period",
    "licence",
    "publisher",
    "contact",
    "issued",
    "modified",
    "base_url",
    "language",
    "replace_stronger",
    "ledger",
)


@click.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@with_request("out", "zones_of", "within", "zones", "formats", "title", "ledger", required=("out",))
@shared.with_section(Derive)
@with_output
def derive(output: Output, directory: str, request: Request, wishes: Derive) -> None:
    """Compute a table from the published release in DIR.

    Coarser zones, sums over slices, some slices, another format.

    Needs no raw data and reveals nothing beyond DIR. Publish the finest table once and derive the
    others.
    """
    from flowveil.apps.cli.anonymize import release_lines
    from flowveil.publishing.api import derive as compute

    out = str(request.output.out)
    chosen: dict[str, Any] = {name: request.given.get(name) for name in ("zones_of", "within")}
    chosen |= {"zones": own_zones(request)}
    chosen |= {name: value for name, value in request.output.given.items() if name in _WRITTEN}
    with output.working("Deriving"):
        made = compute(directory, out, **wishes.given, **chosen)
    output.say(*release_lines(made.report, out, verbose=output.verbose))
    dropped = set(made.report["parameters"]["derive"].get("drop", ())) - set(wishes.drop)
    if dropped:
        output.complain(
            f"Left out: {', '.join(sorted(dropped))}. Means, totals and medians cannot be added up."
        )
    output.result(made.report)


def own_zones(request: Request, zones: str | None = None) -> Any:
    """Returns the file of the user's map, read if the request says how."""
    from flowveil.publishing.run import map_columns
    from flowveil.zoning.files import read_zones

    path = zones or request.zones.zones
    return read_zones(path, **map_columns(request)) if path and request.arguments("map") else path


#: Settings of --style.
_STYLE: dict[str, Callable[[str], Any]] = {
    "basis": str,
    "lines": int,
    "width": float,
    "dpi": int,
    "zoom": float,
}
_STYLE_HELP = (
    "basis=trips|weight, lines=200 (largest flows), width (inches), dpi=200, zoom=1 (repeatable)."
)


@click.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@place("--out", "FILE", "The picture: .png, .svg or .pdf.", required=True)
@click.option(
    "--show",
    help="answer, origins, destinations, both or flows [default: answer, as on the page].",
)
@click.option(
    "--question",
    metavar="LINK",
    help="What the link to an answer has behind #: from=Providencia&hour=8.",
)
@click.option(
    "--place",
    callback=numbers(float, 2),
    metavar="LAT,LON",
    help="Only the cells whose origin zone holds this place.",
)
@several("--style", "style", "NAME=VALUE", _STYLE_HELP)
@click.option("--title", help="Text above the map [default: the title of the release].")
@click.option(
    "--bbox",
    callback=numbers(float),
    metavar="W,S,E,N",
    help="Degrees to show [default: nearly all trips].",
)
@place("--over", "DIR", "Another release, whose zones are outlined over the map.")
@with_output
def picture(output: Output, directory: str, out: str, **style: Any) -> None:
    """Draw a map of the release in DIR for a paper, from its published files."""
    from flowveil.publishing.api import picture as draw

    further = {
        "lines": 200,
        "dpi": 200,
        **shared.named_values("--style", style.pop("style"), _STYLE),
    }
    path = draw(directory, out, **style, **further)
    output.result({"picture": str(path)})
    output.say(f"Picture: {path}")


@click.command()
@click.argument("directory", type=PLACE, metavar="RELEASE")
@click.option(
    "--zones",
    required=True,
    metavar="N|FILE",
    help="An H3 resolution, the release's map, or any polygons.",
)
@place("--population", "FILE", "Inhabitants: lat, lon, population; or zone, population.")
@place("--land", "FILE", "Polygons of land: no trip starts or ends elsewhere.")
@click.option(
    "--decay/--no-decay", default=True, help="Fit how trips get rarer with distance (default: yes)."
)
@click.option(
    "--whole/--no-whole",
    default=None,
    help="Whole trips; totals are kept (default: in CSV, where parts below 0.05 have no row).",
)
@click.option(
    "--bounds", is_flag=True, help="Also the trips that cells prove, and the most that they allow."
)
@click.option("--per", type=click.Choice(["day"]), help="The mean of a day of the declared period.")
@place("--totals", "FILE", "Known totals: area, origins, destinations.")
@several("--sum", "sum", "COLUMN", "Add up a dimension: time, or an attribute (repeatable).")
@place("--out", "FILE", "The table: .parquet, .csv, .omx or .gpkg.", required=True)
@with_request(*_MAP)
@with_output
def reconstruct(
    output: Output, directory: str, out: str, zones: str, request: Request, **wishes: Any
) -> None:
    """Estimate the flows of RELEASE between your own areas. The result is an estimate."""
    from flowveil.publishing.api import reconstruct as estimate

    chosen = int(zones) if zones.isdecimal() else own_zones(request, zones)
    path, table = Path(out), estimate(directory, chosen, out=out, **wishes)
    output.result({"table": str(path), "rows": len(table)})
    output.say(f"Estimated flows between {len(table):,} pairs of areas: {path}")


@click.command()
@click.argument("release", type=PLACE, metavar="RELEASE")
@place("--out", "FILE", "Parquet file of the frozen map.", required=True)
@with_output
def freeze(output: Output, release: str, out: str) -> None:
    """Write the zones of RELEASE into a file, without its counts, for `anonymize --zones-of`."""
    from flowveil.publishing.api import freeze as make

    frozen = make(release, out=out)
    ends = {end: len(frozen.zones(end)) for end in ("origin", "destination")}
    output.say(
        f"Frozen: {ends['origin']:,} origin zones and {ends['destination']:,} destination zones in"
        f" {out}"
    )
    output.result(
        {"map": out, "sha256": frozen.sha256, **{f"n_{end}_zones": n for end, n in ends.items()}}
    )
