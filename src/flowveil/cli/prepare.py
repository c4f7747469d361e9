"""``flowveil prepare``: trips from the files of a known data set."""

from __future__ import annotations

from typing import Any

import click

from flowveil.cli.from_request import PLACE
from flowveil.cli.output import Output, with_output


@click.command()
@click.argument("name", metavar="netmob25|porto|nyc-tlc|gps|cdr")
@click.argument("source", type=PLACE, metavar="SRC")
@click.option("--out", type=PLACE, required=True, metavar="FILE", help="Parquet file of the trips.")
@click.option("--individuals", type=PLACE, metavar="FILE", help="netmob25: the file of individuals.")
@click.option("--zones", type=PLACE, metavar="FILE", help="nyc-tlc: the zone table.")
@click.option("--person", metavar="COLUMN", help="gps, cdr: column that identifies the person.")
@click.option("--time", metavar="COLUMN", help="gps, cdr: column of the time.")
@click.option("--time-format", metavar="FORMAT", help="gps, cdr: how times are written, as for strptime.")
@click.option("--timezone", metavar="NAME", help="gps, cdr: local time for Unix times and times in UTC.")
@click.option("--lat", metavar="COLUMN", help="gps: column of the latitude.")
@click.option("--lon", metavar="COLUMN", help="gps: column of the longitude.")
@click.option("--trip", metavar="COLUMN", help="gps: column that marks the points of a trip; no trip is cut then.")
@click.option("--antenna", metavar="COLUMN", help="cdr: column of the antenna.")
@click.option("--antennas", type=PLACE, metavar="FILE", help="cdr: table of antennas with latitude and longitude.")
@click.option("--stay", type=float, metavar="SECONDS", help="cdr: shorter visits are not ends of trips.")
@click.option(
    "--handover", type=float, metavar="SECONDS", help="cdr: to another antenna and back within this time is not a trip."
)
@click.option(
    "--gap", type=float, metavar="SECONDS", help="gps, netmob25: a trip ends at such a gap; cdr: longest trip."
)
@click.option("--dwell", type=float, metavar="SECONDS", help="gps: a trip ends at such a stay; 0: at gaps only.")
@click.option("--dwell-radius", type=float, metavar="METRES", help="gps: points within this distance are one place.")
@click.option(
    "--keep-one-point",
    is_flag=True,
    default=None,
    help="netmob25: keep trips of one point, which end where they start.",
)
@with_output
def prepare(output: Output, name: str, source: str, out: str, dwell: float | None, **options: Any) -> None:
    """Make one table of trips from the files of a known data set."""
    from flowveil.output import check_file
    from flowveil.sources import prepare as make
    from flowveil.sources import write_trips

    check_file(out)
    given = {option: value for option, value in options.items() if value is not None}
    if dwell is not None:
        given["dwell"] = dwell or None
    with output.working("Preparing"):
        prepared = make(name, source, **given)
        path = write_trips(prepared, out)
    n = prepared.trips.num_rows
    output.say(f"Wrote {n:,} trips to {path}. They are raw data: anonymise them before publishing.")
    output.say(*(f"Dropped: {count:,} {reason}." for reason, count in prepared.dropped.items()))
    output.say(*(f"Note: {note}" for note in prepared.notes))
    output.result({"trips": n, "out": str(path), "dropped": dict(prepared.dropped), "notes": list(prepared.notes)})
