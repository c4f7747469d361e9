"""``flowveil study``: the experiments of the papers."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import click

from flowveil.analysis.presets import PRESETS, READINGS, TREES, segmented_by
from flowveil.cli.by_method import limits_of, method_limits, method_option, options_by_method
from flowveil.cli.from_request import PLACE, READING, with_request
from flowveil.cli.output import Output, with_output
from flowveil.request import Request
from flowveil.settings import split

#: Options that the library takes unchanged.
_SETTINGS = ("preset", "k", "trees", "reading", "time_limit", "fewest_trips", "sample")


@click.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--preset", metavar="|".join(PRESETS), help="The set-up of a paper, and the numbers of its tables.")
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Segments by this attribute (repeatable); 'none': no segments.",
)
@click.option("--out", type=PLACE, required=True, help="Folder of the results; an earlier study there is continued.")
@click.option("--methods", metavar="A,B,...", help="Methods to compare [default: all, or the preset's].")
@click.option(
    "--protect", multiple=True, help="trips, people, population or a+b (repeatable) [default: trips, population]."
)
@click.option("--k", type=int, help="How many every cell must hide [default: 10].")
@method_limits
@method_option
@click.option(
    "--trees",
    metavar="|".join(TREES),
    help="Segments over the trees of all tiles, or of their own as in the papers [default: common, or the preset's].",
)
@click.option(
    "--reading",
    metavar="|".join(READINGS),
    help="Measures as defined here, or as the program of the ODkAnon authors computes them [default: ours].",
)
@click.option("--time-limit", type=float, default=7200, show_default=True, help="Seconds that one run may take.")
@click.option("--fewest-trips", type=int, help="Skip time steps with fewer trips.")
@click.option("--sample", type=int, metavar="N", help="Only N of the time steps, drawn at random, the same every time.")
@with_request(*READING, "every", "k_population", "population_only", "within")
@with_output
def study(output: Output, source: str, out: str, methods: str | None, request: Request, **given: Any) -> None:
    """Run the experiments of the papers: segments or many matrices, methods and protections, as tables. Private."""
    from flowveil.analysis.study import check_folder, run_study
    from flowveil.api import read_for_study, threshold_of_study
    from flowveil.execution import reading_arguments, resources, steps_of

    settings: dict[str, Any] = {name: given.pop(name) for name in _SETTINGS}
    settings["hierarchy"] = request.method.hierarchy
    settings["k_population"] = request.protection.k_population
    settings["population_only"] = request.protection.population_only
    settings["methods"] = None if methods in (None, "all") else list(split(methods))
    settings["workers"] = request.resources.workers or os.cpu_count() or 1
    settings["options"] = options_by_method(given.pop("options"))
    settings["protections"] = given.pop("protect") or None
    settings |= limits_of(given.pop("max_suppressed"))
    by = segmented_by(settings["preset"], [name for names in given.pop("by") for name in split(names)])
    steps = steps_of(request)
    check_folder(out)
    with resources(request):
        # A study is private, so it need not ask whether a column holds persons.
        how = {**reading_arguments(request), "ask_person": False, **({"every": steps[0]} if steps else {})}
        with output.working("Reading") as progress:
            flows = read_for_study(source, by=by, by_many=request.slices.by_many, progress=progress, **how)
        settings |= threshold_of_study(source, settings, how)
        try:
            with output.working("Running") as progress:
                results = run_study(flows, out, progress=progress, **settings)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Runs that were done are kept in '{out}'; the same command continues there."
            ) from None
    by_status = Counter(row["status"] for row in results.rows)
    output.say(*flows.intake.about_reading())
    output.say(", ".join(f"{n:,} results {status}" for status, n in sorted(by_status.items())) + ".")
    output.say(f"Tables: {Path(out) / 'tables.md'}, {Path(out) / 'tables.tex'}")
    output.say("NOT for publication: measures are exact.")
    summary = {"columns": flows.intake.columns, "notes": list(flows.intake.notes)}
    output.result({"study": out, "results": dict(by_status), **summary})
