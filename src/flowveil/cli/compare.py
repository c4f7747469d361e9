"""``flowveil compare``: several methods and k on the same trips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from flowveil.cli.by_method import limits_of, method_limits, method_option, options_by_method
from flowveil.cli.from_request import PLACE, READING, with_request
from flowveil.cli.output import Output, with_output
from flowveil.errors import ParameterError
from flowveil.request import Request

if TYPE_CHECKING:
    from flowveil.flows import Flows


@click.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--methods", default="all", show_default=True, help="Methods, comma-separated.")
@click.option("--k", default="5,10,20", show_default=True, help="One or several k, comma-separated.")
@click.option(
    "--protect",
    multiple=True,
    help="A protection to compare (repeatable), units joined by + [people where persons are known, else trips].",
)
@method_limits
@click.option("--time-limit", type=float, default=300, show_default=True, help="Seconds that one run may take.")
@method_option
@click.option("--epsilon", metavar="NUMBERS", help="ε of methods that add noise, comma-separated; adds these methods.")
@click.option("--picture", type=PLACE, metavar="FILE", help="Also draw the zones; those of two runs over each other.")
@click.option("--out", type=PLACE, required=True, help="Folder of the tables and the page; not for publication.")
@with_request(*READING, "every", "fold_time", "k_population", "population_only")
@with_output
def compare(
    output: Output, source: str, out: str, picture: str | None, protect: tuple[str, ...], request: Request, **given: Any
) -> None:
    """Run several methods and k on INPUT: tables, trade-off charts and maps. Private."""
    from flowveil.analysis.comparison import check_folder, compare_flows
    from flowveil.analysis.experiment import Choices
    from flowveil.execution import read_request, resources
    from flowveil.private_files import check_place

    choices = Choices(
        methods=given["methods"],
        k=_numbers("--k", given["k"], int),
        protections=protect or None,
        k_population=request.protection.k_population,
        population_only=request.protection.population_only,
        options=options_by_method(given["options"]),
        hierarchy=request.method.hierarchy,
        time_limit=given["time_limit"],
        epsilon=() if given["epsilon"] is None else _numbers("--epsilon", given["epsilon"], float),
        **limits_of(given["max_suppressed"]),
    )
    slices = request.slices
    if len({slices.fold_time, slices.time is not None, bool(slices.every)}) > 1:
        raise ParameterError("--fold-time, --time and --every are given together here, or none of them.")
    check_folder(out)
    if picture is not None:
        check_place(picture)
    # Named protections answer whether a column holds persons, as in anonymize.
    reading = request.with_values(protect=[unit for units in protect for unit in units.split("+")])
    with resources(request):
        with output.working("Reading") as progress:
            flows = read_request(reading, source=source, progress=progress)
        with output.working("Comparing") as progress:
            comparison = compare_flows(cast("Flows", flows), choices, progress=progress)
    folder = comparison.write(out)
    if picture is not None:
        output.say(f"Picture, NOT for publication: {comparison.picture(picture)}")
    runs: list[dict[str, Any]] = [
        {"method": r.method, "k": r.k, "protect": list(r.protect), "status": r.status} for r in comparison.runs
    ]
    runs += [{"method": r.method, "epsilon": r.epsilon, "status": r.status} for r in comparison.noisy]
    summary = {"columns": flows.intake.columns, "notes": list(flows.intake.notes)}
    output.result({"comparison": str(folder), "runs": runs, **summary})
    output.say(*flows.intake.about_reading())
    output.say(comparison.to_markdown(), f"Page: {folder / 'comparison.html'}")


def _numbers(flag: str, text: str, kind: type[int] | type[float]) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ParameterError(f"{flag} must be {what}, comma-separated; found '{text}'.") from None
