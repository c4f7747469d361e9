"""``flowveil compare``: several methods and k side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from flowveil.cli.options import PLACE, hierarchy, method_options, reading, reading_of
from flowveil.cli.output import Output, with_output
from flowveil.errors import ParameterError

#: Options that go to the library as they are.
_SETTINGS = ("methods", "max_suppressed", "time_limit", "hierarchy")


@click.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--methods", default="all", show_default=True, help="Methods, comma-separated.")
@click.option("--k", default="5,10,20", show_default=True, help="One or several k, comma-separated.")
@click.option(
    "--protect",
    multiple=True,
    help="A protection to compare (repeatable), units joined by + [people where persons are known, else trips].",
)
@click.option("--max-suppressed", type=float, default=0.1, show_default=True, help="Share that may be suppressed.")
@click.option("--time-limit", type=float, default=300, show_default=True, help="Seconds that one run may take.")
@click.option(
    "--option", "options", multiple=True, metavar="METHOD.NAME=VALUE", help="Option of a method (repeatable)."
)
@click.option("--time", metavar="COLUMN", help="Column of the time, with --every and --fold-time.")
@click.option("--every", metavar="STEP", help="Step of time that is folded: hour, weekday-hour, 1h, ...")
@click.option("--fold-time", is_flag=True, help="Compare several weights of an hour: fine places against short times.")
@hierarchy
@click.option("--out", type=PLACE, required=True, help="Folder of the tables and the page; not for publication.")
@reading
@with_output
def compare(output: Output, source: str, out: str, **given: Any) -> None:
    """Run several methods and k on INPUT: tables, trade-off charts, maps side by side. Internal."""
    from flowveil.api import read_slices, read_trips
    from flowveil.experiments.comparison import compare_flows
    from flowveil.experiments.comparison_tables import check_folder, to_markdown

    settings: dict[str, Any] = {name: given.pop(name) for name in _SETTINGS}
    settings["k"] = _steps(given.pop("k"))
    settings["protect"] = given.pop("protect") or None
    settings["options"] = _options_by_method(given.pop("options"))
    times = {name: given.pop(name) for name in ("time", "every")}
    if given.pop("fold_time") != all(times.values()) or any(times.values()) != all(times.values()):
        raise ParameterError("--fold-time, --time and --every are given together here, or none of them.")
    check_folder(out)
    with output.working("Reading") as progress:
        if all(times.values()):
            flows = read_slices(source, progress=progress, **times, **reading_of(given)).folded()
        else:
            flows = read_trips(source, progress=progress, **reading_of(given))
    with output.working("Comparing") as progress:
        found = compare_flows(flows, progress=progress, **settings)
    folder = found.write(out)
    said = {"columns": flows.intake.columns, "notes": list(flows.intake.notes)}
    runs = [{"method": r.method, "k": r.k, "protect": list(r.protect), "status": r.status} for r in found.runs]
    output.result({"comparison": str(folder), "runs": runs, **said})
    output.say(*flows.intake.about_reading())
    output.say(to_markdown(found), f"Page: {folder / 'comparison.html'}")


def _steps(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ParameterError(f"--k must be whole numbers, comma-separated; found '{text}'.") from None


def _options_by_method(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    chosen: dict[str, dict[str, Any]] = {}
    for text in texts:
        method, dot, rest = text.partition(".")
        if not dot:
            raise ParameterError(f"--option must be METHOD.NAME=VALUE here; found '{text}'.")
        chosen.setdefault(method, {}).update(method_options(method, [rest]))
    return chosen
