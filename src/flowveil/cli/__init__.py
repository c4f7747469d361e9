"""The command line: parses, calls the library, speaks to people. No logic of its own.

Exit codes: 0 done; 1 unexpected; 2 bad usage or bad input; 3 the guarantee cannot be met or does not hold;
130 interrupted.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from flowveil import __version__
from flowveil.cli.tabular import tabular
from flowveil.cli.talk import Talk, speaking
from flowveil.errors import FlowveilError, ParameterError
from flowveil.guarantee import UNITS
from flowveil.methods import METHODS, find_method
from flowveil.methods.epsilon import WeakPromiseWarning

INTERRUPTED = 130


class _Place(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A path of a file or a folder, whatever is there; an empty one is refused before anything is done."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        from flowveil.paths import named_path

        called = "a file" if param is None else param.metavar if isinstance(param, click.Argument) else param.opts[0]
        named_path(value, what=str(called))
        return str(value)


PLACE = _Place()


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how the input is read."""
    options = (
        click.option("--resolution", type=int, help="H3 resolution of the tiles [default: 10]."),
        click.option("--origin", metavar="LAT,LON", help="Columns of the origin's coordinates."),
        click.option("--destination", metavar="LAT,LON", help="Columns of the destination's coordinates."),
        click.option("--origin-tile", metavar="COLUMN", help="Column of the origin's tile, if already a tile."),
        click.option("--destination-tile", metavar="COLUMN", help="Column of the destination's tile."),
        click.option("--trips", metavar="COLUMN", help="Column that says how many trips a row stands for."),
        click.option("--weight", metavar="COLUMN", help="Column of the weight (represented inhabitants)."),
        click.option("--person", metavar="COLUMN", help="Column that tells persons apart."),
        click.option("--person-case", metavar="fold|keep", help="Take A7 and a7 for one person, or for two [fold]."),
        click.option("--zones", type=PLACE, metavar="FILE", help="Map whose zones are the tiles (CSV, GeoJSON, ...)."),
        click.option("--zones-tile", metavar="COLUMN", help="The map's column of zone codes."),
        click.option("--zones-parent", metavar="COLUMN", help="The map's column of each zone's parent."),
        click.option("--zones-levels", metavar="A,B,...", help="The map's nested codes, coarsest to finest."),
        click.option("--zones-name", metavar="COLUMN", help="The map's column of zone names."),
        click.option("--zones-root", metavar="CODE", help="Code of a root above several topmost zones."),
        click.option("--max-dropped", type=float, help="Largest share of unusable rows [default: 0.05]."),
        click.option("--skip-unknown", is_flag=True, default=None, help="Leave out rows whose tile is unknown."),
        click.option(
            "--partition-columns",
            metavar="A,B,...",
            help="Take these columns from folders such as month=3/, to cut trips by; other folders are only folders.",
        ),
        click.option("--engine", metavar="NAME", help="Engine that reads the input [default: duckdb]."),
    )
    for option in reversed(options):
        command = option(command)
    return command


_BY_MANY = "Allow --by a column with more than 50 values, or more than one for 100 rows."


def slicing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that cut the trips into slices."""
    options = (
        click.option("--by", multiple=True, metavar="A,B,...", help="One matrix for each combination of attributes."),
        click.option("--by-many", is_flag=True, help=_BY_MANY),
        click.option("--time", metavar="COLUMN", help="Column of the time, with --every."),
        click.option(
            "--every",
            multiple=True,
            metavar="STEP",
            help="One matrix for each step: 15min, 1h, day, weekday-hour, ... (repeatable: a day beside its hours).",
        ),
        click.option("--total", is_flag=True, help="Also publish the matrix of all slices together."),
        click.option("--common-zones", is_flag=True, help="The same zones for all slices; totals are sums of them."),
        click.option("--accept-differencing", is_flag=True, help="Publish although subtraction tells small groups."),
        click.option("--workers", type=int, help="Processes for slices [default: one for each core]."),
        click.option(
            "--internal-profile",
            type=PLACE,
            metavar="FILE",
            help="Chart of flows over time, with raw counts (SVG).",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True)
class SliceOptions:
    """How the trips are cut into slices, as given on the command line."""

    by: tuple[str, ...]
    by_many: bool
    time: str | None
    every: tuple[str, ...]
    total: bool
    common_zones: bool
    accept_differencing: bool
    workers: int | None
    internal_profile: str | None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> SliceOptions:
        """Take them out of all options."""
        taken = {field.name: options.pop(field.name) for field in fields(cls)}
        taken["by"] = tuple(name.strip() for names in taken["by"] for name in names.split(",") if name.strip())
        return cls(**taken)

    @property
    def asked_for(self) -> bool:
        """Whether there is anything to cut by, or an option that needs it."""
        needing = self.total or self.common_zones or self.internal_profile is not None
        return bool(self.by or self.time or self.every or needing)

    def check(self) -> None:
        """Raise ParameterError for options that cannot be."""
        from flowveil.slices import check_slice_columns

        check_slice_columns(self.by, time=self.time, every=self.every[0] if self.every else None)
        if self.internal_profile is not None and not self.every:
            raise ParameterError("--internal-profile needs slices by time. Hint: use --time and --every.")

    def steps(self) -> list[str]:
        """The steps of time, the finest first."""
        from flowveil.slices import Every

        known = {Every.parse(text) for text in self.every}
        return [step.name for step in sorted(known, key=lambda e: (-e.label_length, e.minutes or 0))]

    def reading(self) -> dict[str, Any]:
        """What reading needs to know."""
        every = self.steps()[0] if self.every else None
        return {"by": self.by, "by_many": self.by_many, "time": self.time, "every": every}


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given: the library's defaults serve for the others."""
    given = {name: value for name, value in options.items() if value is not None}
    of_map = {name.removeprefix("zones_"): given.pop(name) for name in list(given) if name.startswith("zones_")}
    if of_map:
        from flowveil.api import read_zones

        if "zones" not in given:
            raise ParameterError(f"--zones-{next(iter(of_map))} is given without --zones.")
        if "levels" in of_map:
            of_map["levels"] = [level.strip() for level in of_map["levels"].split(",")]
        given["zones"] = read_zones(given["zones"], **of_map)
    return given


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="flowveil")
def cli() -> None:
    """Make origin-destination matrices publishable: every published cell hides at least k."""


@cli.command()
@click.option("--out", type=PLACE, default="flowveil-demo", show_default=True, help="Folder of the release.")
@speaking
def demo(talk: Talk, out: str) -> None:
    """Publish a synthetic survey of Île-de-France, end to end."""
    from flowveil.api import anonymize as run
    from flowveil.api import read_trips
    from flowveil.publish.folder import check_target
    from flowveil.report.html import render
    from flowveil.report.internal import write_private
    from flowveil.report.summary import summarize
    from flowveil.sources.synthetic import synthetic_survey

    check_target(out)
    with talk.working("Making a synthetic survey"):
        survey = synthetic_survey()
    talk.say(f"Made a synthetic survey of {survey.num_rows:,} trips; no real person is in it.")
    with talk.working("Reading") as progress:
        flows = read_trips(survey, progress=progress)
    with talk.working("Comparing"):
        other = run(flows, method="odkanon", k=10, budget="volume")
    release = _publish(talk, flows, out, k=10)
    page = f"{out.rstrip('/')}-beside.html"
    # Not in the folder: a release holds the numbers of one release, so that all of them can be recounted.
    write_private(page, render(summarize(release), release.flows, release.zones, beside=other), folder=Path(out))
    # A survey nobody took part in: its measures may be told exactly.
    m = other.metrics()["trips"]
    talk.say(
        f"Beside it in {page}, ODkAnon with the same limit: {m['n_cells']:,} cells between "
        f"{m['n_origin_zones']:,} origin and {m['n_destination_zones']:,} destination zones; trip ends moved by "
        f"{m['generalization_distance_m']:,.0f} m."
    )


@cli.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--k", type=int, default=10, show_default=True, help="How many every cell must hide.")
@click.option("--out", type=PLACE, required=True, help="Folder of the release; replaced if it is one already.")
@click.option("--method", help=f"One of: {', '.join(METHODS)} [default: twincut; odkanon with --common-zones].")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Option of the method (repeatable).")
@click.option("--protect", multiple=True, help="trips, people or population (repeatable) [default: trips].")
@click.option("--k-population", type=float, help="Absolute threshold of the population.")
@click.option("--l", "l", type=int, help="Fewest tiles in which the trips of a cell begin, and end.")
@click.option("--max-suppressed", type=float, default=0.1, show_default=True, help="Share that may be suppressed.")
@click.option("--seed", type=int, help="Seed, for methods that draw random numbers.")
@slicing
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAMES",
    help="Exports beside Parquet, comma-separated: csv, geojson, gpkg, omx, flowmap, kepler, arrow.",
)
@click.option(
    "--basemap",
    is_flag=False,
    flag_value="default",
    metavar="[URL]",
    help="Let readers of report.html switch on a background map from a tile server ({z}, {x}, {y} in its address).",
)
@click.option(
    "--internal-report",
    type=PLACE,
    metavar="FILE",
    help="Also write a page that compares before and after. It tells raw counts: for yourself, not for publication.",
)
@reading
@speaking
def anonymize(
    talk: Talk,
    source: str,
    k: int,
    out: str,
    method: str | None,
    options: Sequence[str],
    protect: Sequence[str],
    k_population: float | None,
    l: int | None,  # noqa: E741
    max_suppressed: float,
    seed: int | None,
    formats: Sequence[str],
    basemap: str | None,
    internal_report: str | None,
    **how: Any,
) -> None:
    """Anonymise the trips of INPUT (CSV or Parquet) and publish them into a folder."""
    from flowveil.api import read_slices, read_trips
    from flowveil.publish.exports import parse_formats
    from flowveil.publish.folder import check_target
    from flowveil.report.html import tile_server
    from flowveil.report.internal import check_place

    slices = SliceOptions.taken_from(how)
    method = method or ("odkanon" if slices.common_zones else "twincut")
    parsed = _parse_options(method, options)
    _refuse_thresholds(method)
    if seed is not None and "seed" in find_method(method).options:
        parsed["seed"] = seed
    parse_formats(formats)
    check_target(out)
    if internal_report is not None:
        check_place(internal_report, release=out)
    writing = {"formats": formats, "basemap": tile_server(basemap)}
    asked = {"method": method, **parsed}
    if find_method(method).promises == "k":
        asked |= {"k": k, "protect": tuple(protect) or ("trips",), "max_suppressed": max_suppressed}
        asked |= {"k_population": k_population, "l": l}
    reading_options = _given(**how)
    if slices.asked_for:
        slices.check()
        if slices.internal_profile is not None:
            check_place(slices.internal_profile, release=out)
        if internal_report is not None:
            raise ParameterError("--internal-report is for a single matrix. Hint: for slices use --internal-profile.")
        with talk.working("Reading") as progress:
            sliced = read_slices(source, progress=progress, **slices.reading(), **reading_options)
        _publish_slices(talk, sliced, out, slices, writing, **asked)
        return
    with talk.working("Reading") as progress:
        flows = read_trips(source, progress=progress, **reading_options)
    _publish(talk, flows, out, writing=writing, internal_report=internal_report, **asked)


def _refuse_thresholds(method: str) -> None:
    """Refuse thresholds that were given in so many words, even where they are the defaults."""
    context = click.get_current_context()
    names = {"k": "--k", "protect": "--protect", "k_population": "--k-population", "l": "--l"}
    names |= {"max_suppressed": "--max-suppressed", "seed": "--seed"}
    source = {name: context.get_parameter_source(name) for name in names}
    given = [names[n] for n, s in source.items() if s is click.core.ParameterSource.COMMANDLINE]
    find_method(method).refuse_thresholds(given)


def _parse_options(method: str, options: Sequence[str]) -> dict[str, Any]:
    parsed = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise ParameterError(f"--option must be NAME=VALUE; found '{text}'.")
        parsed[name.strip()] = find_method(method).parse_option(name.strip(), value.strip())
    return parsed


def _publish(
    talk: Talk,
    flows: Any,
    out: str,
    *,
    writing: dict[str, Any] | None = None,
    internal_report: str | None = None,
    **parameters: Any,
) -> Any:
    from flowveil.api import anonymize as run
    from flowveil.publish.folder import publish
    from flowveil.report.internal import render_internal
    from flowveil.report.summary import summarize

    with talk.working("Anonymising"):
        release = run(flows, **parameters)
    with talk.working("Verifying and writing"):
        # Made first: what cannot be made must not leave a release behind and an error in front.
        pages = {} if internal_report is None else {internal_report: render_internal(release)}
        # What is printed is what is published: a log is read by more people than the data.
        report = summarize(release)
        folder = publish(release, out, private=pages, **(writing or {}))
    # Rows read minus trips published is what is suppressed: where that is withheld, so are the rows.
    intake = {} if report["withheld"] else _intake(flows)
    if intake:
        talk.say(_intake_line(flows))
    for line in flows.intake.about_persons(counted=bool(intake)):
        talk.say(line)
    for line in report["statement"]:
        if line.startswith("Weak:"):
            talk.warn(line)
    for line in _release_lines(report, folder):
        talk.say(line)
    if internal_report is not None:
        talk.say(f"Internal report, NOT for publication: {internal_report}")
    talk.result({"release": str(folder), **intake, **report})
    return release


def _publish_slices(
    talk: Talk, sliced: Any, out: str, slices: SliceOptions, writing: dict[str, Any], **parameters: Any
) -> None:
    from flowveil.api import anonymize_slices
    from flowveil.publish.folder import publish
    from flowveil.report.profile import largest_profiles, profile_chart

    with talk.working("Anonymising slices") as progress:
        family = anonymize_slices(
            sliced,
            total=slices.total,
            also_every=slices.steps()[1:],
            common_zones=slices.common_zones,
            accept_differencing=slices.accept_differencing,
            workers=slices.workers or os.cpu_count() or 1,
            progress=progress,
            **parameters,
        )
    with talk.working("Verifying and writing"):
        # Made first: what cannot be made must not leave a release behind and an error in front.
        wanted = slices.internal_profile
        charts = {} if wanted is None else {wanted: profile_chart(largest_profiles(family))}
        report = family.summary()
        folder = publish(family, out, private=charts, **writing)
    # As for single releases: rows read minus trips published is what is suppressed.
    secret = report["withheld"] or any(part["withheld"] for part in report["slices"])
    intake = {} if secret else _intake(sliced)
    if intake:
        talk.say(_intake_line(sliced))
    for line in sliced.intake.about_persons(counted=bool(intake)):
        talk.say(line)
    talk.say(f"{len(report['slices']):,} slices are published; {report['unpublished_slices']:,} hold too little.")
    for line in _release_lines(report, folder):
        talk.say(line)
    found = report["differencing"]
    if found["short"] or found["unchecked"]:
        talk.say(f"Warning: {found['short']:,} differences between the matrices are short of the guarantee.")
    if wanted is not None:
        talk.say(f"Internal chart, NOT for publication: {wanted}")
    talk.result({"release": str(folder), **intake, **report})


def _intake(flows: Any) -> dict[str, Any]:
    """What reading came to, for a machine."""
    intake = flows.intake
    return {
        "rows": intake.rows,
        "left_out": intake.left_out,
        "person_case": intake.person_case,
        "nobody": intake.nobody,
    }


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
    share = m["suppressed_share"]
    hidden = f"withheld, because {(report['withheld'] or {}).get('reason', 'it would show')}"
    yield "Suppressed: " + (hidden if share is None else f"{share:.2%} of trips")
    if m["generalization_distance_m"] is not None:
        yield f"Trip ends moved by {m['generalization_distance_m']:,.0f} m on average."
    if "people" not in guarantee["protect"]:
        yield (
            "Note: trips are counted, not people; one person may be behind several trips of a cell."
            if ("trips" in guarantee["protect"])
            else "Note: people are not counted; one person may be behind several trips of a cell."
        )
        if m["k_people"] is not None:
            yield f"The cell with the fewest people has {m['k_people']:,}."
    yield f"Report: {folder / 'report.html'}"


@cli.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--k", type=int, default=10, show_default=True, help="What safety is held against.")
@click.option("--max-suppressed", type=float, default=0.1, show_default=True, help="Share that may be suppressed.")
@reading
@speaking
def describe(talk: Talk, source: str, k: int, max_suppressed: float, **how: Any) -> None:
    """Say what is in INPUT and how much of it is safe already. Internal: counted from raw data."""
    from flowveil.api import describe as look

    with talk.working("Reading") as progress:
        found = look(source, k=k, max_suppressed=max_suppressed, progress=progress, **_given(**how))
    talk.result(found.to_dict())
    for line in found.lines():
        talk.say(line)


@cli.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--methods", default="all", show_default=True, help="Methods, comma-separated.")
@click.option("--k", default="5,10,20", show_default=True, help="One or several k, comma-separated.")
@click.option("--protect", multiple=True, help="A protection to compare (repeatable), units joined by + [trips].")
@click.option("--max-suppressed", type=float, default=0.1, show_default=True, help="Share that may be suppressed.")
@click.option("--time-limit", type=float, default=300, show_default=True, help="Seconds that one run may take.")
@click.option(
    "--option", "options", multiple=True, metavar="METHOD.NAME=VALUE", help="Option of a method (repeatable)."
)
@click.option("--out", type=PLACE, required=True, help="Folder of the tables and the page; not for publication.")
@reading
@speaking
def compare(
    talk: Talk,
    source: str,
    methods: str,
    k: str,
    protect: Sequence[str],
    max_suppressed: float,
    time_limit: float,
    options: Sequence[str],
    out: str,
    **how: Any,
) -> None:
    """Run several methods and k on INPUT: tables, trade-off charts, maps side by side. Internal."""
    from flowveil.api import read_trips
    from flowveil.experiments.comparison import compare_flows
    from flowveil.report.comparison import check_folder, to_markdown

    steps = _parse_steps(k)
    chosen: dict[str, dict[str, Any]] = {}
    for text in options:
        method, dot, rest = text.partition(".")
        if not dot:
            raise ParameterError(f"--option must be METHOD.NAME=VALUE here; found '{text}'.")
        chosen.setdefault(method, {}).update(_parse_options(method, [rest]))
    check_folder(out)
    with talk.working("Reading") as progress:
        flows = read_trips(source, progress=progress, **_given(**how))
    with talk.working("Comparing") as progress:
        found = compare_flows(
            flows,
            methods=methods,
            k=steps,
            protect=tuple(protect) or ("trips",),
            max_suppressed=max_suppressed,
            time_limit=time_limit,
            options=chosen,
            progress=progress,
        )
    folder = found.write(out)
    talk.result(
        {
            "comparison": str(folder),
            "runs": [
                {"method": r.method, "k": r.k, "protect": list(r.protect), "status": r.status} for r in found.runs
            ],
        }
    )
    for line in flows.intake.about_persons():
        talk.say(line)
    talk.say(to_markdown(found))
    talk.say(f"Page: {folder / 'comparison.html'}")


def _parse_steps(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ParameterError(f"--k must be whole numbers, comma-separated; found '{text}'.") from None


@cli.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@click.option("--out", type=PLACE, required=True, metavar="FILE", help="The picture: .png, .svg or .pdf.")
@click.option("--show", default="origins", show_default=True, help="origins, destinations, both or flows.")
@click.option("--basis", default="trips", show_default=True, help="trips or weight.")
@click.option("--lines", type=int, default=200, show_default=True, help="How many of the largest flows to draw.")
@click.option("--width", type=float, help="Width in inches.")
@click.option("--dpi", type=int, default=200, show_default=True, help="Dots per inch of a PNG.")
@click.option("--title", help="Text above the map.")
@speaking
def picture(talk: Talk, directory: str, out: str, **style: Any) -> None:
    """Draw a map of the release in DIR for a paper; the published files are all it needs."""
    from flowveil.api import picture as draw

    path = draw(directory, out, **style)
    talk.result({"picture": str(path)})
    talk.say(f"Picture: {path}")


@cli.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@click.option("--against", type=PLACE, required=True, metavar="INPUT", help="The trips the release was made from.")
@click.option("--k", type=int, help="The k that the release must have at the least.")
@click.option(
    "--protect", multiple=True, type=click.Choice(UNITS), help="A unit that the release must protect (repeatable)."
)
@click.option("--k-population", type=float, help="The population threshold that it must have at the least.")
@click.option("--l", "l", type=int, help="The l that it must have at the least.")
@click.option(
    "--strict",
    is_flag=True,
    help="Fail where something cannot be compared, because another version of flowveil or of a library wrote it.",
)
@reading
@speaking
def verify(
    talk: Talk,
    directory: str,
    against: str,
    k: int | None,
    protect: Sequence[str],
    k_population: float | None,
    l: int | None,  # noqa: E741
    strict: bool,
    **how: Any,
) -> None:
    """Recount the release in DIR from the raw trips; exit 3 and a reason for each way it falls short.

    A release says itself what it guarantees. Say with --k and --protect what it must guarantee.
    """
    from flowveil.api import verify_folder
    from flowveil.release.folder import ReleaseFolder
    from flowveil.verify.rendering import not_compared

    expect = {"k": k, "protect": tuple(protect), "k_population": k_population, "l": l}
    unread: list[str] = []
    with talk.working("Recounting"):
        findings = verify_folder(
            directory, against=against, expect=expect, unread=unread, strict=strict, **_given(**how)
        )
    note = None if strict else not_compared(Path(directory))
    talk.result({"release": directory, "holds": not findings, "findings": findings, "unread": unread, "note": note})
    for finding in [*findings, *unread]:
        if not talk.as_json:
            click.echo(finding, err=True)
    if findings:
        sys.exit(3)
    if note is not None:
        talk.say(note)
    report = ReleaseFolder(Path(directory)).report
    proved = "every cell was recounted from the raw trips."
    if report["kind"] == "boxed" and not report["boxes"]["disjoint"]:
        proved = (
            "no cell claims more than lies in its boxes. Boxes share flows, so cells cannot be recounted one by one."
        )
    if report["kind"] == "noisy":
        proved = "it has the form of its promise, and its counts can be noise of the stated law on the raw ones."
    talk.say(f"{directory} holds: {proved} {report['statement'][0]}")
    for line in report["statement"][1:]:
        if line.startswith("Not protected: subtraction"):
            talk.say(f"But: {line}")
    used = ", ".join(f"{role} from '{name}'" for role, name in report["parameters"]["columns"].items() if name)
    case = report["parameters"].get("person_case") if report["parameters"]["columns"].get("person") else None
    talk.say(f"Read as the release says: {used}{f'; upper and lower case of persons: {case}' if case else ''}.")


cli.add_command(tabular)


@cli.command()
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--by", multiple=True, required=True, metavar="COLUMN", help="Segments by this attribute (repeatable).")
@click.option("--by-many", is_flag=True, help=_BY_MANY)
@click.option("--out", type=PLACE, required=True, help="Folder of the results; an earlier study there is continued.")
@click.option("--methods", default="all", show_default=True, metavar="A,B,...", help="Methods to compare.")
@click.option(
    "--protect", multiple=True, help="trips, people, population or a+b (repeatable) [default: trips, population]."
)
@click.option("--k", type=int, default=10, show_default=True, help="How many every cell must hide.")
@click.option("--max-suppressed", type=float, default=0.1, show_default=True, help="Share that may be suppressed.")
@click.option("--time-limit", type=float, default=7200, show_default=True, help="Seconds that one run may take.")
@click.option("--workers", type=int, help="Runs side by side [default: one for each core].")
@reading
@speaking
def study(
    talk: Talk,
    source: str,
    by: Sequence[str],
    by_many: bool,
    out: str,
    methods: str,
    protect: Sequence[str],
    k: int,
    max_suppressed: float,
    time_limit: float,
    workers: int | None,
    **how: Any,
) -> None:
    """Run the experiment of the papers: segments, methods and protections, as tables."""
    from flowveil.api import read_slices
    from flowveil.experiments.study import check_folder, run_study

    check_folder(out)
    attributes = tuple(name.strip() for names in by for name in names.split(",") if name.strip())
    with talk.working("Reading") as progress:
        flows = read_slices(source, by=attributes, by_many=by_many, progress=progress, **_given(**how))
    names = None if methods == "all" else [name.strip() for name in methods.split(",")]
    protections = tuple(protect) or (("trips",) if flows.whole.weight is None else ("trips", "population"))
    try:
        with talk.working("Running") as progress:
            found = run_study(
                flows,
                out,
                methods=names,
                protections=protections,
                k=k,
                max_suppressed=max_suppressed,
                time_limit=time_limit,
                workers=workers or os.cpu_count() or 1,
                progress=progress,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Runs that were done are kept in '{out}'; the same command goes on there.") from None
    by_status: dict[str, int] = {}
    for row in found.rows:
        by_status[row["status"]] = by_status.get(row["status"], 0) + 1
    for line in flows.intake.about_persons():
        talk.say(line)
    talk.say(", ".join(f"{n:,} results {status}" for status, n in sorted(by_status.items())) + ".")
    talk.say(f"Tables: {Path(out) / 'tables.md'}, {Path(out) / 'tables.tex'}")
    talk.result({"study": out, "results": by_status})


@cli.command()
@click.argument("name", metavar="netmob25|porto|nyc-tlc|gps")
@click.argument("source", type=PLACE, metavar="SRC")
@click.option("--out", type=PLACE, required=True, metavar="FILE", help="Parquet file of the trips.")
@click.option("--individuals", type=PLACE, metavar="FILE", help="netmob25: the file of individuals.")
@click.option("--zones", type=PLACE, metavar="FILE", help="nyc-tlc: the zone table.")
@click.option("--person", metavar="COLUMN", help="gps: column that tells persons apart.")
@click.option("--time", metavar="COLUMN", help="gps: column of the time.")
@click.option("--lat", metavar="COLUMN", help="gps: column of the latitude.")
@click.option("--lon", metavar="COLUMN", help="gps: column of the longitude.")
@click.option("--gap", type=float, metavar="SECONDS", help="gps, netmob25: no point for so long ends a trip.")
@click.option("--dwell", type=float, metavar="SECONDS", help="gps: staying for so long ends a trip; 0: gaps only.")
@click.option("--dwell-radius", type=float, metavar="METRES", help="gps: how near is staying.")
@speaking
def prepare(talk: Talk, name: str, source: str, out: str, dwell: float | None, **options: Any) -> None:
    """Make one table of trips from the files of a known data set."""
    from flowveil.output import check_file
    from flowveil.sources import prepare as make
    from flowveil.sources import write_trips

    check_file(out)
    given = {option: value for option, value in options.items() if value is not None}
    if dwell is not None:
        given["dwell"] = dwell or None
    with talk.working("Preparing"):
        prepared = make(name, source, **given)
        path = write_trips(prepared, out)
    talk.say(f"Wrote {prepared.trips.num_rows:,} trips to {path}. They are raw data: anonymise them before publishing.")
    for reason, count in prepared.left_out.items():
        talk.say(f"Left out: {count:,} {reason}.")
    for note in prepared.notes:
        talk.say(f"Note: {note}")
    talk.result({"trips": prepared.trips.num_rows, "out": str(path), "left_out": dict(prepared.left_out)})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and turn errors into messages and exit codes."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        # A sign that the terminal cannot show must not turn a finished command into a failed one.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        # A polite kill is an interrupt: it must leave the old release in place and no draft behind.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Without its own error handling click returns the code of an Exit instead of raising it.
        with warnings.catch_warnings():
            # Commands say it in their own words.
            warnings.simplefilter("ignore", WeakPromiseWarning)
            code = cli.main(args=words, standalone_mode=False)
        if code:
            sys.exit(code)
    except click.ClickException as wrong:
        _fail(wrong.format_message(), kind="UsageError", code=2, words=words)
    except (KeyboardInterrupt, click.Abort) as stopped:
        # click wraps the interrupt; what a command has to say of it is inside.
        what = str(stopped.__cause__ or stopped) or "Nothing was written."
        _fail(f"Interrupted. {what}", kind="Interrupted", code=INTERRUPTED, words=words)
    except FlowveilError as error:
        _fail(str(error), kind=type(error).__name__, code=error.exit_code, words=words)
    except BrokenPipeError:
        # The reader of our output has gone, which is not our failure.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            # Python 3.11 wraps an interrupt that comes while a class is being made, as in an import.
            _fail("Interrupted. Nothing was written.", kind="Interrupted", code=INTERRUPTED, words=words)
        # The message of a foreign error may quote a row of the input: name its kind and nothing else.
        if os.environ.get("FLOWVEIL_TRACEBACK"):
            raise
        _fail(
            f"Unexpected {type(error).__name__}; nothing was written. "
            "Hint: set FLOWVEIL_TRACEBACK=1 to see where (the trace may quote your data).",
            kind=type(error).__name__,
            code=1,
            words=words,
        )


def _fail(message: str, *, kind: str, code: int, words: Sequence[str]) -> None:
    if "--json" in words:
        click.echo(json.dumps({"error": {"kind": kind, "message": message}}))
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)
