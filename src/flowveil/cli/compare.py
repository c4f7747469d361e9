"""``flowveil compare``: several methods and k on the same trips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from flowveil.cli.by_method import limits_of, method_limits, options_by_method
from flowveil.cli.from_request import PLACE, READING, with_request
from flowveil.cli.output import Output, with_output
from flowveil.errors import ParameterError
from flowveil.request import Request

if TYPE_CHECKING:
    from flowveil.flows import Flows

#: Options that go to the library as they are.
_SETTINGS = ("methods", "time_limit")


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
@click.option(
    "--option", "options", multiple=True, metavar="METHOD.NAME=VALUE", help="Option of a method (repeatable)."
)
@click.option(
    "--epsilon", metavar="NUMBERS", help="ε of methods that add noise, comma-separated; they are then compared too."
)
@click.option("--picture", type=PLACE, metavar="FILE", help="Also draw the zones; those of two runs over each other.")
@click.option("--out", type=PLACE, required=True, help="Folder of the tables and the page; not for publication.")
@with_request(*READING, "every", "fold_time")
@with_output
def compare(output: Output, source: str, out: str, request: Request, **given: Any) -> None:
    """Run several methods and k on INPUT: tables, trade-off charts, maps side by side. Internal."""
    from flowveil.analysis.comparison import compare_flows
    from flowveil.analysis.comparison_tables import check_folder, to_markdown
    from flowveil.execution import read_request, resources
    from flowveil.private_files import check_place

    settings: dict[str, Any] = {name: given.pop(name) for name in _SETTINGS}
    settings["hierarchy"] = request.method.hierarchy
    settings["k"] = _steps(given.pop("k"))
    settings["epsilon"] = _numbers(given.pop("epsilon"))
    settings["protect"] = given.pop("protect") or None
    settings["options"] = options_by_method(given.pop("options"))
    settings |= limits_of(given.pop("max_suppressed"))
    slices = request.slices
    if len({slices.fold_time, slices.time is not None, bool(slices.every)}) > 1:
        raise ParameterError("--fold-time, --time and --every are given together here, or none of them.")
    picture = given.pop("picture")
    check_folder(out)
    if picture is not None:
        check_place(picture)
    with resources(request):
        with output.working("Reading") as progress:
            flows = read_request(request, source=source, progress=progress)
        with output.working("Comparing") as progress:
            found = compare_flows(cast("Flows", flows), progress=progress, **settings)
    folder = found.write(out)
    if picture is not None:
        output.say(f"Picture, NOT for publication: {found.picture(picture)}")
    said = {"columns": flows.intake.columns, "notes": list(flows.intake.notes)}
    runs: list[dict[str, Any]] = [
        {"method": r.method, "k": r.k, "protect": list(r.protect), "status": r.status} for r in found.runs
    ]
    runs += [{"method": r.method, "epsilon": r.epsilon, "status": r.status} for r in found.noisy]
    output.result({"comparison": str(folder), "runs": runs, **said})
    output.say(*flows.intake.about_reading())
    output.say(to_markdown(found), f"Page: {folder / 'comparison.html'}")


def _steps(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ParameterError(f"--k must be whole numbers, comma-separated; found '{text}'.") from None


def _numbers(text: str | None) -> list[float] | tuple[()]:
    try:
        return () if text is None else [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ParameterError(f"--epsilon must be numbers, comma-separated; found '{text}'.") from None
