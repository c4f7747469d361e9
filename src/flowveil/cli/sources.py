"""Commands that make trips: ``demo`` publishes a synthetic survey, ``prepare`` reads known data sets."""

from __future__ import annotations

import shlex
from typing import Any

import click

from flowveil.cli.from_request import PLACE
from flowveil.cli.output import Output, with_output
from flowveil.cli.released import publish_one
from flowveil.errors import ParameterError

_ABOUT = {
    "title": "Travel in Île-de-France, a synthetic survey",
    "source": "Made by flowveil demo; it contains no real person",
    "licence": "CC0 1.0",
}


@click.command()
@click.option("--out", type=PLACE, default="flowveil-demo", show_default=True, help="Folder of the release.")
@with_output
def demo(output: Output, out: str) -> None:
    """Publish a synthetic survey of Île-de-France, end to end."""
    from flowveil.api import read_trips
    from flowveil.published.folder import check_target
    from flowveil.sources.synthetic import synthetic_survey

    check_target(out)
    with output.working("Making a synthetic survey"):
        survey = synthetic_survey()
    output.say(f"Made a synthetic survey of {survey.num_rows:,} trips; it contains no real person.")
    with output.working("Reading") as progress:
        flows = read_trips(survey, weight="weight", progress=progress)
    # The survey is synthetic: measures computed from its trips reveal nothing.
    publish_one(output, flows, out, {"k": 10}, writing=_ABOUT, show_measures=not output.quiet)


#: Options that are numbers: seconds, and metres.
_NUMBERS = ("stay", "handover", "gap", "dwell", "dwell_radius")
_TEXTS = ("time_format", "timezone", "lat", "lon", "trip", "occupied", "antenna", "keep_one_point")


def _parsed(texts: tuple[str, ...]) -> dict[str, Any]:
    """Returns options from NAME=VALUE.

    Raises:
        ParameterError: a text has another form, an option is unknown, or a number cannot be read.
    """
    given: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in (*_NUMBERS, *_TEXTS):
            known = ", ".join((*_NUMBERS, *_TEXTS))
            raise ParameterError(f"--option is NAME=VALUE, with one of {known}; found '{text}'.")
        try:
            given[name] = float(value) if name in _NUMBERS else value.strip()
        except ValueError:
            raise ParameterError(f"--option {name} must be a number; found '{value}'.") from None
    if "keep_one_point" in given:
        given["keep_one_point"] = given["keep_one_point"] == "true"
    if "dwell" in given:
        # 0 cuts trips at gaps only.
        given["dwell"] = given["dwell"] or None
    return given


@click.command()
@click.argument("name", metavar="netmob25|porto|nyc-tlc|gps|cdr")
@click.argument("source", type=PLACE, metavar="SRC")
@click.option("--out", type=PLACE, required=True, metavar="FILE", help="Parquet file of the trips.")
@click.option("--individuals", type=PLACE, metavar="FILE", help="netmob25: the file of individuals.")
@click.option("--zones", type=PLACE, metavar="FILE", help="nyc-tlc: the zone table.")
@click.option("--person", metavar="COLUMN", help="gps, cdr: column that identifies the person.")
@click.option("--time", metavar="COLUMN", help="gps, cdr: column of the time.")
@click.option("--antennas", type=PLACE, metavar="FILE", help="cdr: table of antennas with latitude and longitude.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="gps, cdr, netmob25: an option of docs/sources, such as gap=600 or lat=latitude (repeatable).",
)
@with_output
def prepare(output: Output, name: str, source: str, out: str, options: tuple[str, ...], **files: Any) -> None:
    """Make one table of trips from the files of a known data set."""
    from flowveil.output import check_file
    from flowveil.sources import prepare as make
    from flowveil.sources import write_trips

    check_file(out)
    given = {option: value for option, value in files.items() if value is not None} | _parsed(options)
    with output.working("Preparing"):
        prepared = make(name, source, **given)
        path = write_trips(prepared, out)
    n = prepared.trips.num_rows
    output.say(f"Wrote {n:,} trips to {path}. They are raw data: anonymise them before publishing.")
    output.say(f"Next: {shlex.join(['flowveil', 'anonymize', str(path), '--out', 'release'])}")
    output.say(*(f"Dropped: {count:,} {reason}." for reason, count in prepared.dropped.items()))
    output.say(*(f"Note: {note}" for note in prepared.notes))
    output.result({"trips": n, "out": str(path), "dropped": dict(prepared.dropped), "notes": list(prepared.notes)})
