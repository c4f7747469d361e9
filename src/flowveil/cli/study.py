"""``flowveil study``: the papers' experiment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from flowveil.cli.options import BY_MANY, PLACE, hierarchy, listed, reading, reading_of, workers_of
from flowveil.cli.output import Output, with_output

#: Options that go to the library as they are.
_SETTINGS = ("k", "max_suppressed", "time_limit", "hierarchy")


@click.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--by", multiple=True, required=True, metavar="COLUMN", help="Segments by this attribute (repeatable).")
@click.option("--by-many", is_flag=True, help=BY_MANY)
@click.option("--out", type=PLACE, required=True, help="Folder of the results; an earlier study there is continued.")
@click.option("--methods", default="all", show_default=True, metavar="A,B,...", help="Methods to compare.")
@click.option(
    "--protect", multiple=True, help="trips, people, population or a+b (repeatable) [default: trips, population]."
)
@click.option("--k", type=int, default=10, show_default=True, help="How many every cell must hide.")
@click.option("--max-suppressed", type=float, default=0.1, show_default=True, help="Share that may be suppressed.")
@click.option("--time-limit", type=float, default=7200, show_default=True, help="Seconds that one run may take.")
@hierarchy
@click.option("--workers", type=int, help="Runs side by side [default: one for each core].")
@reading
@with_output
def study(output: Output, source: str, out: str, methods: str, **given: Any) -> None:
    """Run the experiment of the papers: segments, methods and protections, as tables."""
    from flowveil.api import read_slices
    from flowveil.experiments.study import check_folder, run_study

    check_folder(out)
    settings: dict[str, Any] = {name: given.pop(name) for name in _SETTINGS}
    settings["methods"] = None if methods == "all" else listed(methods)
    settings["workers"] = workers_of(given.pop("workers"))
    protect = given.pop("protect")
    cut = {"by": tuple(name for names in given.pop("by") for name in listed(names)), "by_many": given.pop("by_many")}
    with output.working("Reading") as progress:
        flows = read_slices(source, progress=progress, **cut, **reading_of(given))
    settings["protections"] = protect or (("trips",) if flows.whole.weight is None else ("trips", "population"))
    try:
        with output.working("Running") as progress:
            found = run_study(flows, out, progress=progress, **settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Runs that were done are kept in '{out}'; the same command goes on there.") from None
    by_status = Counter(row["status"] for row in found.rows)
    output.say(*flows.intake.about_reading())
    output.say(", ".join(f"{n:,} results {status}" for status, n in sorted(by_status.items())) + ".")
    output.say(f"Tables: {Path(out) / 'tables.md'}, {Path(out) / 'tables.tex'}")
    said = {"columns": flows.intake.columns, "notes": list(flows.intake.notes)}
    output.result({"study": out, "results": dict(by_status), **said})
