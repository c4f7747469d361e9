"""``flowveil study``: the papers' experiment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from flowveil.cli.options import (
    BY_MANY,
    PLACE,
    hierarchy,
    limits_of,
    listed,
    method_limits,
    options_by_method,
    reading,
    reading_of,
    workers_of,
)
from flowveil.cli.output import Output, with_output
from flowveil.experiments.presets import PRESETS, TREES, segmented_by

#: Options that go to the library as they are.
_SETTINGS = ("preset", "k", "trees", "time_limit", "hierarchy", "internal", "fewest_trips", "sample")
_TIMES = ("time", "every", "time_format", "timezone")


@click.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--preset", metavar="|".join(PRESETS), help="The set-up of a paper, and the numbers of its tables.")
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Segments by this attribute (repeatable); 'none': no segments.",
)
@click.option("--by-many", is_flag=True, help=BY_MANY)
@click.option("--out", type=PLACE, required=True, help="Folder of the results; an earlier study there is continued.")
@click.option("--methods", metavar="A,B,...", help="Methods to compare [default: all, or the preset's].")
@click.option(
    "--protect", multiple=True, help="trips, people, population or a+b (repeatable) [default: trips, population]."
)
@click.option("--k", type=int, help="How many every cell must hide [default: 10].")
@method_limits
@click.option(
    "--option", "options", multiple=True, metavar="METHOD.NAME=VALUE", help="Option of a method (repeatable)."
)
@click.option(
    "--trees",
    metavar="|".join(TREES),
    help="Segments over the trees of all tiles, or of their own as in the papers [default: common, or the preset's].",
)
@click.option("--time-limit", type=float, default=7200, show_default=True, help="Seconds that one run may take.")
@click.option("--internal", is_flag=True, help="Exact measures of everything, marked as not for publication.")
@click.option("--time", metavar="COLUMN", help="Column of the time, with --every.")
@click.option("--every", metavar="STEP", help="Compare methods over the matrices of all steps: 1h, day, ... Internal.")
@click.option("--time-format", metavar="FORMAT", help="How times are written, as for strptime.")
@click.option("--timezone", metavar="NAME", help="Local time for Unix times and times in UTC.")
@click.option("--fewest-trips", type=int, help="Leave out steps with fewer trips.")
@click.option("--sample", type=int, metavar="N", help="Only N of the steps, drawn at random, the same every time.")
@hierarchy
@click.option("--workers", type=int, help="Runs side by side [default: one for each core].")
@reading
@with_output
def study(output: Output, source: str, out: str, methods: str | None, **given: Any) -> None:
    """Run the experiments of the papers: segments or many matrices, methods and protections, as tables."""
    from flowveil.api import read_for_study
    from flowveil.experiments.study import run_study
    from flowveil.experiments.study_folder import check_folder

    settings: dict[str, Any] = {name: given.pop(name) for name in _SETTINGS}
    times = {name: value for name in _TIMES if (value := given.pop(name)) is not None}
    check_folder(out, internal=settings["internal"] or "every" in times)
    settings["methods"] = None if methods in (None, "all") else listed(methods)
    settings["workers"] = workers_of(given.pop("workers"))
    settings["options"] = options_by_method(given.pop("options"))
    settings |= limits_of(given.pop("max_suppressed"))
    settings["protections"] = given.pop("protect") or None
    by = segmented_by(settings["preset"], [name for names in given.pop("by") for name in listed(names)])
    with output.working("Reading") as progress:
        protect = settings["protections"] or ("trips", "population")
        how = {"by_many": given.pop("by_many"), **times, **reading_of(given, protect=protect)}
        flows = read_for_study(source, by=by, progress=progress, **how)
    try:
        with output.working("Running") as progress:
            found = run_study(flows, out, progress=progress, **settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Runs that were done are kept in '{out}'; the same command goes on there.") from None
    by_status = Counter(row["status"] for row in found.rows)
    output.say(*flows.intake.about_reading())
    output.say(", ".join(f"{n:,} results {status}" for status, n in sorted(by_status.items())) + ".")
    output.say(f"Tables: {Path(out) / 'tables.md'}, {Path(out) / 'tables.tex'}")
    if found.internal:
        output.say("Internal, NOT for publication: measures are exact.")
    said = {"columns": flows.intake.columns, "notes": list(flows.intake.notes)}
    output.result({"study": out, "internal": found.internal, "results": dict(by_status), **said})
