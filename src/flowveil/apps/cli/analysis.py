"""Private commands on raw trips: ``describe``, ``analyze``, ``compare`` and ``study``."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowveil.analysis.papers import PRESETS, READINGS, TREES, segmented_by
from flowveil.apps.cli.command import (
    PLACE,
    READING,
    Output,
    RequestCommand,
    numbers,
    place,
    several,
    with_output,
    with_request,
)
from flowveil.core.errors import ParameterError
from flowveil.methods import find_method
from flowveil.request.request import Request
from flowveil.request.settings import split

if TYPE_CHECKING:
    pass


@click.command(cls=RequestCommand)
@click.argument("source", type=PLACE, metavar="INPUT")
@with_request("k", "protect", *READING, "every")
@with_output
def describe(output: Output, source: str, request: Request) -> None:
    """Say what is in INPUT, how much is safe already, and what methods would give. Private."""
    from flowveil.analysis.api import describe as look
    from flowveil.publishing.run import reading_arguments, resources, step_of

    named = ("k", "max_suppressed", "hierarchy", "protect")
    asked = {name: value for name, value in request.given.items() if name in named}
    with resources(request), output.working("Reading") as progress:
        description = look(
            source,
            **asked,
            every=step_of(request),
            districts=request.zones.districts,
            progress=progress,
            **reading_arguments(request),
        )
    output.result(description.to_dict())
    output.say(*description.lines())


@click.command(cls=RequestCommand)
@click.argument("directory", type=PLACE, metavar="RELEASE")
@place("--against", "INPUT", "The trips the release was made from.", required=True)
@place("--districts", "FILE", "Your polygons: errors between them are computed too.")
@place("--out", "DIR", "Private folder for measures.json and the before/after page.")
@place("--dpia", "FILE", "Text of a data protection impact assessment, Markdown. Private.")
@with_request(*READING)
@with_output
def analyze(
    output: Output,
    directory: str,
    out: str | None,
    dpia: str | None,
    request: Request,
    **given: Any,
) -> None:
    """Compute every measure of RELEASE from the raw trips: before and after. Not for publication.

    Trips are read as the release's report says. Give --zones and --within where it was made with a
    file.
    """
    from flowveil.analysis.release_analysis import analyze as measure
    from flowveil.apps.cli.published import own_zones
    from flowveil.publishing.run import reading_arguments
    from flowveil.system.output import check_place, refuse_inside_release, write_private

    if out is not None:
        refuse_inside_release(out, release=directory)
    if dpia is not None:
        check_place(dpia, release=directory)
    reading = reading_arguments(request)
    if given["districts"] is not None and request.zones.zones is None:
        # Without a map of the release, named columns are those of the districts.
        given["districts"] = own_zones(request, given["districts"])
    with output.working("Analysing"):
        analysis = measure(directory, **given, **reading)
    if out is not None:
        output.say(f"Private folder, NOT for publication: {analysis.write(out, release=directory)}")
    if dpia is not None:
        from flowveil.analysis.dpia import dpia_text

        with output.working("Auditing"):
            text = dpia_text(directory, analysis, against=given["against"], **reading)
        output.say(
            f"Impact assessment, NOT for publication: {write_private(dpia, text, folder=directory)}"
        )
    output.result({"release": directory, **analysis.to_dict()})
    output.say(*analysis.lines())


_LIMIT = "Share that may be suppressed, of all methods or of one (repeatable) [default: 0.1]."
method_option = several(
    "--option", "options", "METHOD.NAME=VALUE", "Option of a method (repeatable)."
)
method_limits = several("--max-suppressed", "max_suppressed", "SHARE|METHOD=SHARE", _LIMIT)


def _shared(request: Request, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that both commands have.

    Of the population, the tree, options and limits of methods.
    """
    limits: dict[str, Any] = {"limits": {}}
    for text in given.pop("max_suppressed"):
        method, equals, share = text.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            raise ParameterError(
                f"--max-suppressed must be SHARE or METHOD=SHARE; found '{text}'."
            ) from None
        if equals:
            limits["limits"][find_method(method.strip()).name] = number
        else:
            limits["max_suppressed"] = number
    options: dict[str, dict[str, Any]] = {}
    for text in given.pop("options"):
        method, dot, rest = text.partition(".")
        name, equals, value = (part.strip() for part in rest.partition("="))
        if not dot or not equals:
            raise ParameterError(f"--option must be METHOD.NAME=VALUE here; found '{text}'.")
        options.setdefault(method, {})[name] = find_method(method).parse_option(name, value)
    return {
        "k_population": request.protection.k_population,
        "population_only": request.protection.population_only,
        "hierarchy": request.method.hierarchy,
        "options": options,
        **limits,
    }


@click.command(cls=RequestCommand)
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--methods", default="all", show_default=True, help="Methods, comma-separated.")
@click.option(
    "--k", callback=numbers(int), default="5,10,20", show_default=True, help="k, comma-separated."
)
@click.option(
    "--protect",
    multiple=True,
    help=(
        "A protection to compare (repeatable), units joined by + [people where persons are known,"
        " else trips]."
    ),
)
@method_limits
@click.option(
    "--time-limit",
    type=float,
    default=300,
    show_default=True,
    help="Seconds that one run may take.",
)
@method_option
@click.option(
    "--epsilon",
    callback=numbers(float),
    metavar="NUMBERS",
    help="ε of methods that add noise; adds these.",
)
@place("--picture", "FILE", "Also draw the zones of a run, or of two runs over each other.")
@place("--out", None, "Folder of the tables and the page; not for publication.", required=True)
@with_request(*READING, "every", "fold_time", "population_only", "k_population")
@with_output
def compare(
    output: Output, source: str, out: str, protect: tuple[str, ...], request: Request, **given: Any
) -> None:
    """Run several methods and k on INPUT: tables, trade-off charts and maps. Private."""
    from flowveil.analysis.comparison import check_folder, compare_flows
    from flowveil.analysis.experiment import Settings
    from flowveil.publishing.run import read_request, resources
    from flowveil.system.output import check_place

    choices = Settings(
        methods=given["methods"],
        k=given["k"],
        protections=protect or None,
        time_limit=given["time_limit"],
        epsilon=given["epsilon"] or (),
        **_shared(request, given),
    )
    slices = request.slices
    if (slices.time is None) != (not slices.every) or (slices.fold_time and not slices.every):
        raise ParameterError("--time and --every are given together here, or none of them.")
    check_folder(out)
    picture = given.pop("picture")
    if picture is not None:
        check_place(picture)
    # Named protections answer whether a column holds persons, as in anonymize. Numbers of a recipe
    # are not compared.
    others = dict.fromkeys(request.numbers.given)
    reading = request.with_values(
        protect=[unit for units in protect for unit in units.split("+")], **others
    )
    with resources(request):
        with output.working("Reading") as progress:
            flows = read_request(reading, source=source, progress=progress)
        with output.working("Comparing") as progress:
            comparison = compare_flows(flows, choices, progress=progress)
    folder = comparison.write(out)
    if picture is not None:
        output.say(f"Picture, NOT for publication: {comparison.picture(picture)}")
    runs: list[dict[str, Any]] = [
        {"k": run.k, "protect": list(run.protect)} for run in comparison.runs
    ]
    runs += [{"epsilon": run.epsilon} for run in comparison.noisy]
    for run, row in zip((*comparison.runs, *comparison.noisy), runs, strict=True):
        row |= {"method": run.method, "status": run.status}
    summary = {"columns": flows.intake.columns, "notes": list(flows.intake.notes)}
    output.result({"comparison": str(folder), "runs": runs, **summary})
    output.say(*flows.intake.about_reading())
    output.say(comparison.to_markdown(), f"Page: {folder / 'comparison.html'}")


#: Options that the library takes unchanged.
_SETTINGS = (
    "preset",
    "k",
    "trees",
    "reading",
    "time_limit",
    "fewest_trips",
    "sample",
    "published",
    "random_groups",
)


@click.command(cls=RequestCommand)
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option(
    "--preset",
    metavar="|".join(PRESETS),
    help="The set-up of a paper, and the numbers of its tables.",
)
@click.option(
    "--by",
    multiple=True,
    metavar="COLUMN",
    help="Segments by this attribute (repeatable); 'none': no segments.",
)
@place("--out", None, "Folder of the results; an earlier study there is continued.", required=True)
@click.option(
    "--methods", metavar="A,B,...", help="Methods to compare [default: all, or the preset's]."
)
@click.option(
    "--protect",
    multiple=True,
    help="trips, people, population or a+b (repeatable) [default: trips, population].",
)
@click.option("--k", type=int, help="How many every cell must hide [default: 10].")
@method_limits
@method_option
@click.option(
    "--trees",
    metavar="|".join(TREES),
    help=(
        "Segments over the trees of all tiles, or of the segment as in the papers [default: common,"
        " or the preset's]."
    ),
)
@click.option(
    "--reading",
    metavar="|".join(READINGS),
    help=(
        "Measures as defined here, or as the program of the ODkAnon authors computes them [default:"
        " ours]."
    ),
)
@click.option(
    "--time-limit",
    type=float,
    default=7200,
    show_default=True,
    help="Seconds that one run may take.",
)
@click.option(
    "--published",
    metavar="NAME",
    help=(
        "With matet-2023, the published data set to compare with, as nyc or civ [default: the one"
        " with as many tiles]."
    ),
)
@click.option(
    "--random-groups",
    type=int,
    default=0,
    metavar="N",
    help="Also N splits into random groups of the sizes of the segments, as a yardstick.",
)
@click.option("--fewest-trips", type=int, help="Skip time steps with fewer trips.")
@click.option(
    "--sample",
    type=int,
    metavar="N",
    help="Only N of the time steps, drawn at random, the same every time.",
)
@with_request(*READING, "every", "population_only", "k_population")
@with_output
def study(
    output: Output, source: str, out: str, methods: str | None, request: Request, **given: Any
) -> None:
    """Run the experiments of the papers: segments or many matrices, methods and protections, as
    tables. Private.
    """
    from flowveil.analysis.api import read_for_study, threshold_of_study
    from flowveil.analysis.study import check_folder, run_study
    from flowveil.publishing.run import reading_arguments, resources, step_of

    settings: dict[str, Any] = {name: given.pop(name) for name in _SETTINGS}
    settings |= {
        **_shared(request, given),
        "methods": None if methods in (None, "all") else list(split(methods)),
        "workers": request.resources.workers or os.cpu_count() or 1,
        "protections": given.pop("protect") or None,
    }
    by = segmented_by(
        settings["preset"], [name for names in given.pop("by") for name in split(names)]
    )
    step = step_of(request)
    check_folder(out)
    with resources(request):
        # A study is private, so it need not ask whether a column holds persons.
        how = {
            **reading_arguments(request),
            "ask_person": False,
            **({} if step is None else {"every": step}),
        }
        with output.working("Reading") as progress:
            flows = read_for_study(
                source, by=by, by_many=request.slices.by_many, progress=progress, **how
            )
        settings |= threshold_of_study(source, settings, how)
        try:
            with output.working("Running") as progress:
                results = run_study(flows, out, progress=progress, **settings)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Finished runs are kept in '{out}'; the same command continues there."
            ) from None
    by_status = Counter(row["status"] for row in results.rows)
    output.say(*flows.intake.about_reading())
    output.say(
        ", ".join(f"{n:,} results {status}" for status, n in sorted(by_status.items())) + "."
    )
    output.say(f"Tables: {Path(out) / 'tables.md'}, {Path(out) / 'tables.tex'}")
    output.say("NOT for publication: measures are exact.")
    summary = {"columns": flows.intake.columns, "notes": list(flows.intake.notes)}
    output.result({"study": out, "results": dict(by_status), **summary})
