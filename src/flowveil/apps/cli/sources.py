"""Commands that make trips: ``demo`` publishes a synthetic survey, ``prepare`` reads known data
sets.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click

from flowveil.apps.cli.anonymize import publish_flows
from flowveil.apps.cli.command import PLACE, Output, named_values, place, several, with_output
from flowveil.request.request import Request

_ABOUT = {
    "title": "Travel in Île-de-France, a synthetic survey",
    "source": "Made by flowveil demo; it contains no real person",
    "licence": "CC0 1.0",
}


@click.command()
@click.option(
    "--out", type=PLACE, default="flowveil-demo", show_default=True, help="Folder of the release."
)
@with_output
def demo(output: Output, out: str) -> None:
    """Publish a synthetic survey of Île-de-France, end to end."""
    from flowveil.published.folder import check_target
    from flowveil.reading.engines import read_trips
    from flowveil.reading.sources.synthetic import synthetic_survey

    check_target(out)
    with output.working("Making a synthetic survey"):
        survey = synthetic_survey()
    output.say(f"Made a synthetic survey of {survey.num_rows:,} trips; it contains no real person.")
    with output.working("Reading") as progress:
        flows = read_trips(survey, weight="weight", progress=progress)
    # The survey is synthetic: measures computed from its trips reveal nothing.
    request = Request.from_flat({"k": 10, "out": out, "show_measures": not output.quiet})
    publish_flows(output, flows, request, _ABOUT)


#: What --option takes: seconds and metres, texts, and a flag. A dwell of 0 cuts trips at gaps only.
_OPTIONS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("stay", "handover", "gap", "dwell_radius"), float),
    "dwell": lambda text: float(text) or None,
    **dict.fromkeys(("time_format", "timezone", "lat", "lon", "trip", "occupied", "antenna"), str),
    "keep_one_point": lambda text: text == "true",
}


@click.command()
@click.argument("name", metavar="netmob25|porto|nyc-tlc|gps|cdr")
@click.argument("source", type=PLACE, metavar="SRC")
@place("--out", "FILE", "Parquet file of the trips.", required=True)
@place("--individuals", "FILE", "netmob25: the file of individuals.")
@place("--zones", "FILE", "nyc-tlc: the zone table.")
@click.option("--person", metavar="COLUMN", help="gps, cdr: column that identifies the person.")
@click.option("--time", metavar="COLUMN", help="gps, cdr: column of the time.")
@place("--antennas", "FILE", "cdr: table of antennas with latitude and longitude.")
@several(
    "--option",
    "options",
    "NAME=VALUE",
    "Option of docs/sources, such as gap=600 or lat=latitude (repeatable).",
)
@with_output
def prepare(
    output: Output, name: str, source: str, out: str, options: tuple[str, ...], **files: Any
) -> None:
    """Make one table of trips from the files of a known data set."""
    from flowveil.reading.sources import prepare as make
    from flowveil.reading.sources import write_trips
    from flowveil.system.output import check_file

    check_file(out)
    given = {option: value for option, value in files.items() if value is not None}
    given |= named_values("--option", options, _OPTIONS)
    with output.working("Preparing"):
        prepared = make(name, source, **given)
        path = write_trips(prepared, out)
    n = prepared.trips.num_rows
    output.say(f"Wrote {n:,} trips to {path}. They are raw data: anonymise them before publishing.")
    output.say(f"Next: {shlex.join(['flowveil', 'anonymize', str(path), '--out', 'release'])}")
    output.say(*(f"Dropped: {count:,} {reason}." for reason, count in prepared.dropped.items()))
    output.say(*(f"Note: {note}" for note in prepared.notes))
    output.result(
        {
            "trips": n,
            "out": str(path),
            "dropped": dict(prepared.dropped),
            "notes": list(prepared.notes),
        }
    )
