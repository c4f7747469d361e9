"""``flowveil anonymize`` and ``flowveil run``: from trips to a release folder."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from flowveil.cli.from_request import PLACE, RequestCommand, with_request
from flowveil.cli.output import Output, with_output
from flowveil.errors import ParameterError
from flowveil.request import Request, settings

#: Every setting that is an option.
_OPTIONS = [one.name for one in settings(tier=("common", "all")) if one.name != "input"]


@click.command(cls=RequestCommand)
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--save-recipe", type=PLACE, metavar="FILE", help="Also write the complete request as a recipe (TOML).")
@with_request(*_OPTIONS)
@with_output
def anonymize(output: Output, source: str, request: Request, save_recipe: str | None) -> None:
    """Anonymise the trips of INPUT and publish them into a folder.

    INPUT is a CSV or Parquet file, a folder or pattern of such files, a matrix (OMX, --wide) or a table of a database
    (duckdb:FILE?table=NAME, sqlite:..., postgresql://host/db?table=NAME).
    """
    publish_request(output, request.with_values(input=source), save_recipe=save_recipe)


@click.command()
@click.argument("recipe", type=PLACE, metavar="RECIPE")
@click.option("--input", "source", type=PLACE, metavar="INPUT", help="Other trips than those of the recipe.")
@click.option("--out", type=PLACE, metavar="DIR", help="Another folder than that of the recipe.")
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="Another value, such as protection.k=20 (repeatable)."
)
@with_output
def run(output: Output, recipe: str, source: str | None, out: str | None, changes: tuple[str, ...]) -> None:
    """Repeat a run from RECIPE, a file that `flowveil anonymize --save-recipe` wrote."""
    from flowveil.recipe import read_recipe

    request = read_recipe(recipe, changes=changes)
    given = {"input": source, "out": out}
    publish_request(output, request.with_values(**{name: place for name, place in given.items() if place is not None}))


def publish_request(output: Output, request: Request, *, save_recipe: str | None = None) -> None:
    """Check, read, anonymise and publish a request, and print what is published."""
    from flowveil.cli.released import publish_one, publish_slices
    from flowveil.execution import (
        anonymize_arguments,
        check_request,
        has_slices,
        read_request,
        resources,
        with_matrices,
        writing_arguments,
    )
    from flowveil.published.folder import check_target

    if request.input.input is None:
        raise ParameterError("There are no trips: input.input is missing. Hint: --input FILE.")
    if request.output.out is None:
        raise ParameterError("The folder of the release is missing. Hint: --out DIR.")
    out, given = request.output.out, request
    request = with_matrices(request)
    check_request(request)
    check_target(out)
    writing = writing_arguments(request)
    _say_default(output, request)
    with resources(request):
        asked = anonymize_arguments(request)
        with output.working("Reading") as progress:
            flows = read_request(request, progress=progress)
        if has_slices(request) and not request.slices.fold_time:
            release = publish_slices(output, flows, request, writing)
        else:
            show = request.output.show_measures
            release = publish_one(output, flows, out, asked, writing=writing, show_measures=show)
        if save_recipe is not None:
            _save(given, save_recipe)
            output.say(f"Recipe: {save_recipe}")
        output.say(f"Verify: {_verify_command(request)}")
        over_map = request.method.zones_of is not None and not request.method.revision and not has_slices(request)
        if over_map and (request.output.show_measures or (sys.stderr.isatty() and not output.quiet)):
            _print_loss(output, release, request.value("new_map_at"))


def _verify_command(request: Request) -> str:
    """Returns the command that verifies the release."""
    given = (("--against", request.input.input), ("--zones", request.zones.zones))
    places = [part for flag, place in given if place is not None for part in (flag, str(place))]
    return shlex.join(["flowveil", "verify", str(request.output.out), *places])


def _say_default(output: Output, request: Request) -> None:
    """Says which method is used, where none is named and it is not the usual one."""
    from flowveil.anonymization import DEFAULT_METHOD
    from flowveil.execution import method_name

    name = method_name(request)
    if request.method.method is None and name not in (None, DEFAULT_METHOD):
        output.say(f"Method: {name}, the default for these options; {DEFAULT_METHOD} is the default for one matrix.")


def _save(request: Request, path: str) -> None:
    """Write the recipe, with the options of the method in their own types."""
    from flowveil import __version__
    from flowveil.execution import parsed_options
    from flowveil.recipe import write_recipe

    parsed = {name: value for name, value in parsed_options(request).items() if name in request.method.options}
    kept = {name: value for name, value in parsed.items() if value is not None}
    write_recipe(request.with_values(options={**request.method.options, **kept}), path, version=__version__)


def _print_loss(output: Output, release: Any, new_map_at: float) -> None:
    """Prints on stderr how much finer a new map would be: a measure of raw trips, for the operator."""
    from flowveil.series.loss import loss_against_best

    with output.working("Measuring against the best map"):
        loss = loss_against_best(release)
    for line in ["There is no better map of these trips."] if loss is None else loss.in_words(new_map_at):
        click.echo(line, err=True)
