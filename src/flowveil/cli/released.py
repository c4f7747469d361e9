"""Publishing a release, or several slices, and saying what came of it.

What is printed on standard output is what is published, because a log is read by more people than the data. Measures of
the trips go to standard error, and only to a terminal or on request.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from flowveil.cli.output import Output
from flowveil.request import Request


def publish_one(
    output: Output,
    flows: Any,
    out: str,
    asked: Mapping[str, Any],
    *,
    writing: Mapping[str, Any] | None = None,
    show_measures: bool = False,
) -> Any:
    """Anonymise flows, publish them and print what is published; return the release."""
    from flowveil.api import anonymize, publish
    from flowveil.series.ledger import recording_nothing

    writing = writing or {}
    with output.working("Anonymising"), recording_nothing(**_recorded(writing)):
        release = anonymize(flows, **asked)
    with output.working("Writing and recounting"):
        folder = publish(release, out, **writing)
    _print_release(output, release, folder, show_measures=show_measures)
    return release


def publish_slices(output: Output, sliced: Any, request: Request, writing: Mapping[str, Any]) -> Any:
    """Anonymise the slices of a request, publish them and print what is published; return the release."""
    from flowveil import __version__
    from flowveil.api import publish
    from flowveil.execution import anonymize_request
    from flowveil.release.checkpoint import Checkpoint
    from flowveil.series.ledger import recording_nothing

    out = str(request.output.out)
    with output.working("Anonymising slices") as progress, recording_nothing(**_recorded(writing)):
        kept = Checkpoint.next_to(out, __version__) if request.resources.resume else None
        family = anonymize_request(request, sliced, progress=progress, resume=kept)
    with output.working("Writing and recounting"):
        folder = publish(family, out, **writing)
    if kept is not None:
        kept.remove()
    _print_release(output, family, folder, show_measures=request.output.show_measures)
    return family


def _recorded(writing: Mapping[str, Any]) -> dict[str, Any]:
    return {name: writing.get(name) for name in ("ledger", "epsilon_total")}


def _print_release(output: Output, release: Any, folder: Path, *, show_measures: bool) -> None:
    """Prints what is published on stdout; what only the operator may see on stderr, on request or in a terminal."""
    from flowveil.paths import read_json

    report = read_json(folder / "report.json")
    for line in report["published"]["sentences"]:
        if line.startswith("Weak:"):
            output.warn(line)
    output.say(*release_lines(report, folder))
    for line in _collapse_lines(release):
        output.warn(line)
    if show_measures or (sys.stderr.isatty() and not output.quiet):
        for line in _private_lines(release):
            click.echo(line, err=True)
    output.result(report)


def _collapse_lines(release: Any) -> list[str]:
    """What to say of a map that has collapsed to one zone or nearly so."""
    from flowveil.analysis.collapse import collapse_lines

    return collapse_lines(release) if release.kind in ("plain", "layered") else []


def _private_lines(release: Any) -> Iterator[str]:
    from flowveil.analysis import summary_lines

    summary = release.input.intake
    yield "For the operator, not for publication:"
    dropped = ", ".join(f"{count:,} ({reason})" for reason, count in sorted(summary.dropped.items()))
    others = {"Dropped": dropped, "Outside the area": summary.outside_rows, "Without trips": summary.empty_rows}
    yield " ".join([f"  Read {summary.rows:,} rows.", *(f"{name}: {rows}." for name, rows in others.items() if rows)])
    for line in (*summary.about_reading(), *summary_lines(release)):
        yield f"  {line}"


def release_lines(report: Mapping[str, Any], folder: str | Path) -> Iterator[str]:
    """Yields what is published, for a person."""
    published = report["published"]
    what = "noisy counts" if report["kind"] == "noisy" else "cells"
    if "slices" in published:
        yield f"Published {len(published['slices']):,} slices."
    yield (
        f"Published {published['cells']:,} {what} between {published['origin_zones']:,} origin and "
        f"{published['destination_zones']:,} destination zones."
    )
    yield from published["sentences"]
    yield f"Report: {Path(folder) / 'report.html'}"
