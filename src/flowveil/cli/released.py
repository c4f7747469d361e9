"""Publishing a release, or several slices, and saying what came of it.

What is printed on standard output is what is published, because a log is read by more people than the data. Measures of
the trips go to standard error, and only to a terminal or on request.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
    with output.working("Verifying and writing"):
        folder = publish(release, out, **writing)
    _say_published(output, folder, flows.intake)
    _say_measures(output, release, flows, wanted=show_measures)
    return release


def publish_slices(output: Output, sliced: Any, request: Request, writing: Mapping[str, Any]) -> Any:
    """Anonymise the slices of a request, publish them and print what is published; return the release."""
    from flowveil import __version__
    from flowveil.api import publish
    from flowveil.execution import anonymize_request
    from flowveil.release.unfinished import Unfinished
    from flowveil.series.ledger import recording_nothing

    out = str(request.output.out)
    with output.working("Anonymising slices") as progress, recording_nothing(**_recorded(writing)):
        kept = Unfinished.beside(out, __version__) if request.resources.resume else None
        family = anonymize_request(request, sliced, progress=progress, resume=kept)
    with output.working("Verifying and writing"):
        folder = publish(family, out, **writing)
    if kept is not None:
        kept.remove()
    _say_published(output, folder, sliced.intake)
    _say_measures(output, family, sliced, wanted=request.output.show_measures)
    return family


def _recorded(writing: Mapping[str, Any]) -> dict[str, Any]:
    return {name: writing.get(name) for name in ("ledger", "epsilon_total")}


def _say_published(output: Output, folder: Path, intake: Any) -> None:
    """Print what the folder says, and how the columns of the input were understood."""
    from flowveil.release.folder import ReleaseFolder

    report = ReleaseFolder(folder).report
    sentences = report["published"]["sentences"]
    for line in sentences:
        if line.startswith("Weak:"):
            output.warn(line)
    # Counts of rows together with published counts would show what is suppressed.
    output.say(*intake.about_reading(counted=False))
    output.say(*_release_lines(report, folder))
    output.result({"release": str(folder), "notes_on_reading": list(intake.notes), **report})


def _release_lines(report: Mapping[str, Any], folder: Path) -> Iterator[str]:
    figures = report["published"]
    if "slices" in figures:
        yield f"{len(figures['slices']):,} slices are published."
    numbers = "noisy counts" if report["kind"] == "noisy" else "cells"
    yield (
        f"Published {figures['cells']:,} {numbers} between {figures['origin_zones']:,} origin and "
        f"{figures['destination_zones']:,} destination zones."
    )
    yield from figures["sentences"]
    yield f"Report: {folder / 'report.html'}"


def _say_measures(output: Output, release: Any, flows: Any, *, wanted: bool) -> None:
    """Print measures of the raw trips for the operator: to a terminal, or on request."""
    if output.as_json or not (wanted or (sys.stderr.isatty() and not output.quiet)) or release.kind == "noisy":
        return
    intake = flows.intake
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in sorted(intake.left_out.items())) or "none"
    lines = [f"Read {intake.rows:,} rows; dropped: {dropped}."]
    parts = release.metrics()
    measured = parts if "trips" in parts else {}
    for basis, values in measured.items():
        said = f"{values['suppressed_share']:.2%} of {basis} suppressed"
        metres = values.get("generalization_distance_m")
        moved = "" if metres is None else f"; trip ends moved by {metres:,.0f} m on average"
        lines.append(f"Measured: {said}{moved}.")
    output.complain("Private, not for publication:\n" + "\n".join(f"  {line}" for line in lines))
