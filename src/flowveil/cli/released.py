"""Publishing a release, or several slices, and saying what came of it."""

from __future__ import annotations

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
) -> Any:
    """Anonymise flows, publish them and print what is published; return the release."""
    from flowveil.api import anonymize, publish
    from flowveil.series.ledger import recording_nothing

    writing = writing or {}
    with output.working("Anonymising"), recording_nothing(**_recorded(writing)):
        release = anonymize(flows, **asked)
    with output.working("Verifying and writing"):
        # What is printed is what is published: a log is read by more people than the data.
        report = release.summary()
        folder = publish(release, out, **writing)
    report = _with_audit(report, folder)
    intake = _say_intake(output, flows, secret=bool(report["withheld"]))
    _warn_of_weakness(output, report)
    output.say(*_release_lines(report, folder))
    output.result({"release": str(folder), **intake, **report})
    return release


def _recorded(writing: Mapping[str, Any]) -> dict[str, Any]:
    return {name: writing.get(name) for name in ("ledger", "epsilon_total")}


def publish_slices(output: Output, sliced: Any, out: str, request: Request, writing: Mapping[str, Any]) -> None:
    """Anonymise the slices of a request, publish them and print what is published."""
    from flowveil import __version__
    from flowveil.api import publish
    from flowveil.execution import anonymize_request
    from flowveil.release.unfinished import Unfinished
    from flowveil.series.ledger import recording_nothing

    with output.working("Anonymising slices") as progress, recording_nothing(**_recorded(writing)):
        kept = Unfinished.beside(out, __version__) if request.resources.resume else None
        family = anonymize_request(request, sliced, progress=progress, resume=kept)
    with output.working("Verifying and writing"):
        report = family.summary()
        folder = publish(family, out, **writing)
    if kept is not None:
        kept.remove()
    report = _with_audit(report, folder)
    secret = report["withheld"] or any(part["withheld"] for part in report["slices"])
    intake = _say_intake(output, sliced, secret=bool(secret))
    _warn_of_weakness(output, report)
    unpublished = report.get("unpublished_slices")
    hold_too_little = "" if unpublished is None else f"; {unpublished:,} hold too little to be published"
    output.say(f"{len(report['slices']):,} slices are published{hold_too_little}.")
    output.say(*_release_lines(report, folder))
    found = report.get("differencing")
    if found is not None and (found["short"] or found["unchecked"]):
        output.say(f"Warning: {found['short']:,} differences between the matrices are short of the guarantee.")
    output.result({"release": str(folder), **intake, **report})


def _with_audit(report: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The report as it was published: with what an audit found, where there was one."""
    from flowveil.release.folder import ReleaseFolder

    published = ReleaseFolder(folder).report
    return published if {"ledger", "audit"} & set(published["parameters"]) else report


def _warn_of_weakness(output: Output, report: Mapping[str, Any]) -> None:
    for line in report["statement"]:
        if line.startswith("Weak:"):
            output.warn(line)


def _say_intake(output: Output, flows: Any, *, secret: bool) -> dict[str, Any]:
    """Print what reading came to, and return it for a machine.

    Rows read minus trips published is what is suppressed: where that is withheld, so are the rows.
    """
    intake = flows.intake
    if not secret:
        output.say(_intake_line(flows))
    output.say(*intake.about_reading(counted=not secret))
    named = ("rows", "left_out", "person_case", "nobody")
    said = {"columns": dict(intake.columns), "notes_on_reading": list(intake.notes)}
    return said if secret else {**said, **{name: getattr(intake, name) for name in named}}


def _intake_line(flows: Any) -> str:
    intake = flows.intake
    what = f"{len(flows):,} {'slices' if hasattr(flows, 'slices') else 'flows'}"
    text = (
        f"Read {intake.rows:,} rows: {what} between {flows.origins.n_tiles:,} origin and "
        f"{flows.destinations.n_tiles:,} destination tiles."
    )
    if intake.left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(intake.left_out.items()))
        text += f" Left out: {reasons}."
    return text


def _suppressed(report: Mapping[str, Any]) -> str:
    """The suppressed share, first in the unit that the limit is a share of."""
    basis = "weight" if "population" in report["guarantee"]["protect"] else "trips"
    shares = {unit: report["measures"][unit]["suppressed_share"] for unit in report["measures"]}
    if shares[basis] is None:
        return f"Suppressed: withheld, because {(report['withheld'] or {}).get('reason', 'it would show')}"
    ordered = sorted(shares, key=lambda unit: unit != basis)
    said = ", ".join(f"{shares[unit]:.2%} of {unit}" for unit in ordered if shares[unit] is not None)
    rule = report["suppression"]
    return f"Suppressed: {said}" + (
        f" (the limit is {rule['beta']:.0%} of the flows)" if rule["rule"] == "hopeless flows" else ""
    )


def _release_lines(report: dict[str, Any], folder: Path) -> Iterator[str]:
    m = report["measures"]["trips"]
    guarantee = report["guarantee"]
    if report["kind"] == "noisy":
        yield (
            f"Published {m['n_cells']:,} noisy counts between {m['n_origin_zones']:,} origin and "
            f"{m['n_destination_zones']:,} destination zones."
        )
        yield from report["statement"]
        yield f"Report: {folder / 'report.html'}"
        return
    yield (
        f"Published {m['n_cells']:,} cells between {m['n_origin_zones']:,} origin and "
        f"{m['n_destination_zones']:,} destination zones. {report['statement'][0]}"
    )
    yield _suppressed(report)
    yield from (line for line in report["statement"] if line.startswith("Checked: the measures"))
    if "ledger" in report["parameters"]:
        yield next(line for line in report["statement"] if "of the same data set" in line)
    if m["generalization_distance_m"] is not None:
        yield f"Trip ends moved by {m['generalization_distance_m']:,.0f} m on average beyond the tiles of the input."
    if "people" not in guarantee["protect"]:
        yield (
            "Note: trips are counted, not people; one person may be behind several trips of a cell."
            if ("trips" in guarantee["protect"])
            else "Note: people are not counted; one person may be behind several trips of a cell."
        )
        if m["k_people"] is not None:
            yield f"The cell with the fewest people has {m['k_people']:,}."
    yield f"Report: {folder / 'report.html'}"
