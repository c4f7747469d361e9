"""``flowveil anonymize`` and ``flowveil run``.

From trips to a release folder, and saying what came of it.

What is printed on standard output is what is published, because a log is read by more people than
the data. Measures of the trips go to standard error, and only to a terminal or on request.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from flowveil.apps.cli.command import (
    PLACE,
    Output,
    PublishCommand,
    several,
    with_output,
    with_request,
)
from flowveil.core.errors import ParameterError
from flowveil.published.sentences import missing
from flowveil.release.facets import Facets
from flowveil.request.request import Request, settings

#: Every setting that is an option.
_OPTIONS = [one.name for one in settings(tier=("common", "all")) if one.name != "input"]


@click.command(cls=PublishCommand)
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option(
    "--save-recipe",
    type=PLACE,
    metavar="FILE",
    help="Also write the complete request as a recipe (TOML).",
)
@with_request(*_OPTIONS)
@with_output
def anonymize(output: Output, source: str, request: Request, save_recipe: str | None) -> None:
    """Anonymise the trips of INPUT and publish them into a folder.

    INPUT is a CSV or Parquet file, a folder or pattern of such files, a matrix (OMX, or CSV with
    --set input.wide=true), or a table of a database (duckdb:FILE?table=NAME, sqlite:...,
    postgresql://host/db?table=NAME).
    """
    publish_request(output, request.with_values(input=source), save_recipe=save_recipe)


@click.command()
@click.argument("recipe", type=PLACE, metavar="RECIPE")
@click.option(
    "--input", "source", type=PLACE, metavar="INPUT", help="Other trips than those of the recipe."
)
@click.option("--out", type=PLACE, metavar="DIR", help="Another folder than that of the recipe.")
@several("--set", "changes", "NAME=VALUE", "Another value, such as protection.k=20 (repeatable).")
@with_output
def run(
    output: Output, recipe: str, source: str | None, out: str | None, changes: tuple[str, ...]
) -> None:
    """Repeat a run from RECIPE, a file that `flowveil anonymize --save-recipe` wrote."""
    from flowveil.request.recipe import read_recipe

    request = read_recipe(recipe, changes=changes)
    given = {"input": source, "out": out}
    publish_request(
        output,
        request.with_values(**{name: place for name, place in given.items() if place is not None}),
    )


def publish_request(output: Output, request: Request, *, save_recipe: str | None = None) -> None:
    """Check, read, anonymise and publish a request, and print what is published."""
    from flowveil.published.folder import check_target
    from flowveil.publishing import run

    if request.input.input is None:
        raise ParameterError("There are no trips: input.input is missing. Hint: --input FILE.")
    if request.output.out is None:
        raise ParameterError("The folder of the release is missing. Hint: --out DIR.")
    out, given = request.output.out, request
    request = run.with_matrices(request)
    run.check_request(request)
    check_target(out)
    writing = run.writing_arguments(request)
    _say_default(output, request)
    with run.resources(request):
        # Checked before the trips are read.
        run.anonymize_arguments(request)
        with output.working("Reading") as progress:
            flows = run.read_request(request, progress=progress)
        # With noise, nothing that is printed may depend on the trips.
        if not run.adds_noise(request):
            _print_overview(output, flows)
        release = publish_flows(output, flows, request, writing)
        if save_recipe is not None:
            _save(given, save_recipe)
            output.say(f"Recipe: {save_recipe}")
        output.say(f"Verify: {shlex.join(_verify_words(request))}")
        over_map = (
            request.method.zones_of is not None
            and not request.method.revision
            and not run.has_slices(request)
        )
        if over_map and (
            request.output.show_measures or (sys.stderr.isatty() and not output.quiet)
        ):
            _print_loss(output, release, request.value("new_map_at"))


def _print_overview(output: Output, flows: Any) -> None:
    """Prints what was read on stderr, in rounded numbers."""
    from flowveil.reading.overview import overview

    if not output.quiet:
        click.echo(overview(flows), err=True)


def _verify_words(request: Request) -> list[str]:
    """Returns the command that verifies the release, with every file that it needs."""
    words = ["flowveil", "verify", str(request.output.out), "--against", str(request.input.input)]
    method, protection = request.method, request.protection
    options = {
        "--zones": request.zones.zones,
        "--zones-of": method.zones_of,
    }
    words += [
        word for name, value in options.items() if value is not None for word in (name, str(value))
    ]
    places = {
        "protection.stricter": protection.stricter,
        "protection.l_places": protection.l_places,
    }
    files = [(name, value) for name, value in places.items() if value is not None]
    files += [("method.revision", earlier) for earlier in method.revision]
    return words + [word for name, value in files for word in ("--set", f"{name}={value}")]


def _say_default(output: Output, request: Request) -> None:
    """Says which method is used, where none is named and it is not the usual one."""
    from flowveil.publishing.anonymization import DEFAULT_METHOD
    from flowveil.publishing.run import method_name

    name = method_name(request)
    if request.method.method is None and name not in (None, DEFAULT_METHOD):
        output.say(
            f"Method: {name}, the default for these options; without them it is {DEFAULT_METHOD}."
        )


def _save(request: Request, path: str) -> None:
    """Write the recipe, with the options of the method in their own types."""
    from flowveil import __version__
    from flowveil.publishing.run import parsed_options
    from flowveil.request.recipe import write_recipe

    parsed = {
        name: value
        for name, value in parsed_options(request).items()
        if name in request.method.options
    }
    kept = {name: value for name, value in parsed.items() if value is not None}
    write_recipe(
        request.with_values(options={**request.method.options, **kept}), path, version=__version__
    )


def _print_loss(output: Output, release: Any, new_map_at: float) -> None:
    """Prints on stderr how much finer a new map would be.

    A measure of raw trips, for the operator.
    """
    from flowveil.analysis.release_analysis import loss_against_best, loss_lines

    with output.working("Measuring against the best map"):
        loss = loss_against_best(release)
    for line in (
        ["There is no better map of these trips."]
        if loss is None
        else loss_lines(*loss, new_map_at)
    ):
        click.echo(line, err=True)


def publish_flows(output: Output, flows: Any, request: Request, writing: Mapping[str, Any]) -> Any:
    """Anonymise the flows or slices of a request, publish them and print what is published.

    Return the release.
    """
    from flowveil import __version__
    from flowveil.publishing.api import publish
    from flowveil.publishing.ledger.ledger import recording_nothing
    from flowveil.publishing.run import anonymize_request
    from flowveil.publishing.slice_plans import Checkpoint

    out, is_sliced = str(request.output.out), bool(flows.slice_columns)
    recorded = {name: writing.get(name) for name in ("ledger", "epsilon_total")}
    label = "Anonymising slices" if is_sliced else "Anonymising"
    with output.working(label) as progress, recording_nothing(**recorded):
        place = Path(out).expanduser()
        kept = (
            Checkpoint(place.parent / f".{place.name}.checkpoint", __version__)
            if request.resources.resume
            else None
        )
        release = anonymize_request(request, flows, progress=progress, resume=kept)
    with output.working("Writing and recounting"):
        folder = publish(release, out, **writing)
    if kept is not None:
        shutil.rmtree(kept.folder, ignore_errors=True)
    _print_release(output, release, folder, show_measures=request.output.show_measures)
    return release


def _print_release(output: Output, release: Any, folder: Path, *, show_measures: bool) -> None:
    """Prints what is published on stdout.

    What only the operator may see on stderr, on request or in a terminal.
    """
    from flowveil.analysis.release_analysis import collapse_lines
    from flowveil.system.paths import read_json

    report = read_json(folder / "report.json")
    for line in report["published"]["sentences"]:
        if line.startswith("Weak:"):
            output.warn(line)
    output.say(*release_lines(report, folder, verbose=output.verbose))
    # A map that has collapsed to one zone or nearly so.
    for line in (
        collapse_lines(release) if release.facets.counts_nodes and not release.slice_columns else ()
    ):
        output.warn(line)
    if show_measures or (sys.stderr.isatty() and not output.quiet):
        for line in _private_lines(release):
            click.echo(line, err=True)
    output.result(report)


def _private_lines(release: Any) -> Iterator[str]:
    from flowveil.analysis.release_analysis import summary_lines

    summary = release.input.intake
    yield "For the operator, not for publication:"
    dropped = ", ".join(
        f"{count:,} ({reason})" for reason, count in sorted(summary.dropped.items())
    )
    others = {
        "Dropped": dropped,
        "Outside the area": summary.outside_rows,
        "Without trips": summary.empty_rows,
    }
    yield " ".join(
        [
            f"  Read {summary.rows:,} rows.",
            *(f"{name}: {rows}." for name, rows in others.items() if rows),
        ]
    )
    for line in (*summary.about_reading(), *summary_lines(release)):
        yield f"  {line}"


def release_lines(
    report: Mapping[str, Any], folder: str | Path, *, verbose: bool = False
) -> Iterator[str]:
    """Yields what is published, protected and missing, for a person; everything if verbose."""
    published = report["published"]
    what = "noisy counts" if Facets.from_report(report).is_noisy else "cells"
    slices = f"{len(published['slices']):,} slices: " if "slices" in published else ""
    yield (
        f"Published {slices}{published['cells']:,} {what} between {published['origin_zones']:,}"
        f" origin and {published['destination_zones']:,} destination zones."
    )
    yield from published["sentences"] if verbose else _briefly(report)
    more = "" if verbose else " (what is protected and what is not; here with -v)"
    yield f"Report: {Path(folder) / 'report.html'}{more}"


def _briefly(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields what changes from run to run: the guarantee, and what is missing."""
    said = report["published"]["sentences"]
    if said[0].startswith("Derived:"):
        yield said[0]
    protected = next(line for line in said if line.startswith("Protected:"))
    open_to = [
        f" {who.capitalize()} are not protected."
        for who in ("people", "participants")
        if any(line.startswith(f"Not protected: {who}.") for line in said)
    ]
    yield "".join([protected, *open_to])
    if report["statement"]["shares"] is not None:
        yield f"Missing: {missing(report)}."
