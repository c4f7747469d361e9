"""The front door: read trips, describe, anonymise and compare them, check and picture a release."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flowveil.anonymization import anonymize, anonymize_slices
from flowveil.engines import read_flows, read_slices, read_trips
from flowveil.errors import DataError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.measures import measure
from flowveil.methods import find_method
from flowveil.paths import named_path
from flowveil.publish.tables import flows_table, zones_table
from flowveil.reading import Reading
from flowveil.release.folder import ReleaseFolder, taken_at_its_word
from flowveil.release.release import Publishable
from flowveil.slices import SlicedFlows
from flowveil.times import TIME_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from flowveil.audit.auditing import Audit
    from flowveil.experiments.comparison import Comparison
    from flowveil.experiments.description import Description
    from flowveil.experiments.study import Study
    from flowveil.methods.twin_trees import Goal
    from flowveil.methods.twincut import FrontierPoint
    from flowveil.release.frozen import FrozenMap
    from flowveil.series.steps import Series
    from flowveil.sources.gps import Prepared

__all__ = [
    "anonymize",
    "anonymize_slices",
    "audit_releases",
    "compare",
    "describe",
    "flows_table",
    "freeze",
    "frontier",
    "measure",
    "picture",
    "prepare",
    "publish_series",
    "read_slices",
    "read_trips",
    "read_zones",
    "reconstruct",
    "run_study",
    "verify_folder",
    "verify_series",
    "zones_table",
]


def read_zones(source: Any, **columns: Any) -> Any:
    """Read a map of zones and the hierarchy over them; see `flowveil.zoning.files.read_zones`."""
    from flowveil.zoning.files import read_zones as read

    return read(source, **columns)


def describe(
    source: Any,
    *,
    k: int = 10,
    protect: str | Sequence[str] | None = None,
    max_suppressed: float = 0.1,
    hierarchy: str | None = None,
    time: str | None = None,
    every: str | None = None,
    **reading: Any,
) -> Description:
    """What is in the data, how much of it is safe already, and what methods would give. Internal: not for publication.

    Args:
        source: flows, or trips in any form `read_trips` takes.
        k: what safety is held against.
        protect: what the floor and the advice are for; by default people where persons are known, else trips.
        max_suppressed: share that may be suppressed, for the floor and the advice.
        hierarchy: ``h3`` or ``halves``: the tree of the floor and the estimates; by default those of the
            methods themselves.
        time: column of the time, to estimate what folding it would give.
        every: step of time that is folded; ``hour`` by default.
        **reading: how to read the trips; see `read_trips`.
    """
    from flowveil.experiments.description import describe_flows

    if every is not None and time is None:
        raise ParameterError("every is a step of time. Hint: give time (--time COLUMN) with it.")
    if isinstance(source, Flows):
        flows = source
    elif time is not None:
        flows = read_slices(source, time=time, every=every or "hour", **reading).folded()
    else:
        flows = read_trips(source, **reading)
    return describe_flows(flows, k=k, protect=protect, max_suppressed=max_suppressed, hierarchy=hierarchy)


def frontier(
    flows: Flows,
    *,
    method: Literal["twincut", "paircut"] = "twincut",
    k: int = 10,
    protect: str | Sequence[str] | None = None,
    objective: Goal = "error",
    k_population: float | None = None,
    l: int | None = None,  # noqa: E741
    hierarchy: str | None = None,
    up_to: float = 1.0,
    progress: Callable[[float], None] | None = None,
) -> tuple[FrontierPoint, ...]:
    """How fine a release can be for every share that may be suppressed, in one run. Internal.

    Args:
        flows: what `read_trips` returns.
        method: ``twincut`` for zones that do not overlap, ``paircut`` for cells that do not intersect.
        k: how many every cell must hide.
        protect: what is counted; see `anonymize`.
        objective: what is made small: ``error``, ``metres``, ``reconstruction`` or ``cells``.
        k_population: absolute threshold where the population is protected.
        l: fewest tiles in which the trips of a cell begin, and in which they end.
        hierarchy: ``h3`` or ``halves``; by default what the method's page says.
        up_to: larger shares are not looked at; they take most of the time.
        progress: called now and then with the share that is done.
    """
    from flowveil.methods.paircut import frontier as of_cells
    from flowveil.methods.twincut import frontier as of_zones

    sweeps = {"twincut": of_zones, "paircut": of_cells}
    if method not in sweeps:
        raise ParameterError(f"method must be one of {', '.join(sweeps)}; found {method!r}.")
    flows, _ = find_method(method).on_hierarchy(flows, hierarchy)
    guarantee = Guarantee.resolve(flows, k=k, protect=protect, k_population=k_population, l=l)
    asked = guarantee.in_millionths(guarantee.prepare(flows))
    return sweeps[method](*asked, objective=objective, up_to=up_to, progress=progress)


def compare(
    source: Any,
    *,
    methods: Any = "all",
    k: int | Sequence[int] = (5, 10, 20),
    protect: str | Sequence[str | Sequence[str]] | None = None,
    max_suppressed: float = 0.1,
    limits: Mapping[str, float] | None = None,
    time_limit: float = 300.0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    hierarchy: str | None = None,
    internal: bool = False,
    epsilon: float | Sequence[float] = (),
    **reading: Any,
) -> Comparison:
    """Run several methods, several k and several protections on the same input.

    Args:
        source: flows, or trips in any form `read_trips` takes.
        methods: names, or ``all``; methods of one's own (see `anonymize`) may stand among them, if their functions are
            in a module that can be imported.
        k: one or several.
        protect: the protections to compare; each is a unit, or several units joined by ``+`` or in a sequence. By
            default people where persons are known, else trips.
        max_suppressed: share that may be suppressed.
        limits: the same by method, where it differs.
        time_limit: seconds that one run may take, not counting the start of its process; it is then stopped and shown
            as such.
        options: options by method.
        hierarchy: ``h3`` or ``halves`` for all methods that work on a tree; by default what each one's page says.
        internal: exact measures, also those that a release would withhold.
        epsilon: one or several ε for methods that add noise, which are then among ``all``; their region, level and
            bound are ``options``.
        **reading: how to read the trips; see `read_trips`.

    Returns:
        All runs, with published measures only unless it is internal; ``write(directory)`` makes tables, charts and one
        page. None of it is for publication.
    """
    from flowveil.experiments.comparison import compare_flows

    flows = source if isinstance(source, Flows) else read_trips(source, **reading)
    return compare_flows(
        flows,
        methods=methods,
        k=k,
        protect=protect,
        max_suppressed=max_suppressed,
        limits=limits,
        time_limit=time_limit,
        options=options,
        hierarchy=hierarchy,
        internal=internal,
        epsilon=epsilon,
    )


def run_study(source: Any, directory: str | PathLike[str], *, by: str | Sequence[str] = (), **settings: Any) -> Study:
    """Run an experiment of the papers: every method on everybody and on every segment, or on every step of time.

    Args:
        source: what `read_slices` returns, or trips in any form it takes.
        directory: where the results go; an earlier study there is continued.
        by: the attributes that segments are made by, where the source is not read yet; those of the preset by default,
            ``none`` for no segments.
        **settings: ``preset``, ``methods``, ``protections``, ``k``, ``max_suppressed``, ``limits``, ``options``,
            ``trees``, ``internal``, ``time_limit``, ``workers``, ``progress``, ..., see
            `flowveil.experiments.study.run_study`; and how to read the trips, see `read_slices`, with ``time`` and
            ``every`` for a matrix of each step.

    Returns:
        All results; the folder has them as tidy tables, as Markdown and as LaTeX.
    """
    from flowveil.experiments.presets import segmented_by
    from flowveil.experiments.study import run_study as run

    of_study = {name: settings.pop(name) for name in run.__kwdefaults__ or {} if name in settings}
    if isinstance(source, SlicedFlows):
        if by or settings:
            raise ParameterError("The source is read already: 'by' and how to read it cannot be given again.")
        return run(source, directory, **of_study)
    named = by.split(",") if isinstance(by, str) and by else by
    by = segmented_by(of_study.get("preset"), [name.strip() for name in named])
    return run(read_for_study(source, by=by, **settings), directory, **of_study)


def read_for_study(source: Any, *, by: Sequence[str], by_many: bool = False, **how: Any) -> SlicedFlows:
    """The flows by attributes or by time, or of everybody together where neither is asked for."""
    if by or "time" in how or "every" in how:
        return read_slices(source, by=by, by_many=by_many, **how)
    return SlicedFlows((), ((),), (read_trips(source, **how),))


def prepare(name: str, source: Any, **options: Any) -> Prepared:
    """Make trips from the files of a known data set; see `flowveil.sources.prepare`."""
    from flowveil.sources import prepare as make

    return make(name, source, **options)


def picture(
    release: Publishable | str | PathLike[str],
    path: str | PathLike[str],
    *,
    show: str = "origins",
    place: tuple[float, float] | None = None,
    over: Publishable | str | PathLike[str] | None = None,
    **style: Any,
) -> Path:
    """Draw a map of a release into a PNG, SVG or PDF file; of slices, the sum of the finest, without totals.

    Args:
        release: a release, or the folder of one: published files are enough.
        path: the file; its suffix says the format.
        show: ``origins``, ``destinations``, ``both`` or ``flows``.
        place: latitude and longitude: draw only the cells whose origin zone holds it, of all sizes where zones nest.
        over: another release, or its folder, whose zones are drawn as outlines over the map.
        **style: see `flowveil.report.pictures.draw`. The caption names the guarantee and the source, the title is the
            release's own, unless others are given.
    """
    if isinstance(release, Publishable):
        return _drawn(release, path, show=show, place=place, over=over, style=style)
    with taken_at_its_word(release):
        return _drawn(release, path, show=show, place=place, over=over, style=style)


def _drawn(
    release: Publishable | str | PathLike[str],
    path: str | PathLike[str],
    *,
    show: str,
    place: tuple[float, float] | None,
    over: Publishable | str | PathLike[str] | None,
    style: dict[str, Any],
) -> Path:
    from flowveil.report.html import promise
    from flowveil.report.pictures import cells_from, draw
    from flowveil.report.slices import overview, zones_in

    if isinstance(release, Publishable):
        release.check_publishable()
        flows, zones, report = release.flows, release.zones, release.summary()
        columns, parameters = release.slice_columns, release.parameters
    else:
        folder = ReleaseFolder(named_path(release, what="the release"))
        flows, zones, report = folder.flows, folder.zones, folder.report
        columns, parameters = folder.report.get("slice_columns") or (), folder.report["parameters"]
    if columns:
        # A total has the trips of its slices once more.
        flows = overview(flows, columns, parameters["slices"].get("every"))
        zones = zones_in(flows, zones)
    elif TIME_COLUMNS[0] in flows.column_names:
        flows = overview(flows, TIME_COLUMNS, None)
    if place is not None:
        flows = cells_from(flows, zones, place)
        zones = zones_in(flows, zones)
    about = report.get("about", {})
    said = [promise(report), *([f"Source: {about['source']}"] if "source" in about else [])]
    style = {"caption": ". ".join(said), **style}
    if style.get("title") is None:
        style["title"] = about.get("title")
    if over is not None:
        other = over if isinstance(over, Publishable) else ReleaseFolder(named_path(over, what="the other release"))
        style["over"] = other.zones
    return draw(flows, zones, path, show=show, **style)


def reconstruct(
    release: str | PathLike[str],
    zones: Any,
    *,
    out: str | PathLike[str] | None = None,
    population: Any = None,
    land: Any = None,
    decay: bool = True,
    whole: bool = False,
    bounds: bool = False,
    per: Literal["day"] | None = None,
    totals: Any = None,
) -> pa.Table:
    """Estimate the flows of a published release between areas of choice; see `flowveil.published.disaggregation`.

    Args:
        release: the folder; its published files are enough. A release in memory has `Release.reconstruct`, which
            knows the tiles that have trips.
        zones: an H3 resolution; the release's own map, whose tiles are the areas; or any map with outlines: what
            `read_zones` returns, or what it takes.
        out: also write the table: .parquet, .csv, .omx or .gpkg.
        population: a file or table of ``lat``, ``lon`` and ``population``, or of ``zone`` and ``population`` for the
            tiles of the release's map.
        land: polygons outside of which no trip starts or ends.
        decay: fit how trips get rarer with distance.
        whole: round to whole trips, totals kept.
        bounds: add ``trips_low`` and ``trips_high``: trips that cells prove, and the most that they allow.
        per: ``day``: the mean of a day of the declared period.
        totals: known totals to scale to: ``area``, ``origins`` and ``destinations``, or one of the two.

    Returns:
        ``origin``, ``destination``, slice columns, ``trips`` and, where known, ``weight``.
    """
    from flowveil.publish.reconstructed import check_out, write_reconstructed
    from flowveil.published.reconstruction import Wishes, outline_of, reconstruct_tables
    from flowveil.zoning.files import ZoneMap, load_table, read_outlines

    if out is not None:
        check_out(out)
    folder = ReleaseFolder(named_path(release, what="the release"))
    own = folder.report["parameters"].get("zones") or {}
    areas = zones if isinstance(zones, int | ZoneMap) else _areas_of_reader(zones, own)
    wishes = Wishes(
        population=None if population is None else load_table(population, what="the population")[0],
        land=None if land is None else read_outlines(land),
        decay=decay,
        whole=whole,
        bounds=bounds,
        per=per,
        totals=None if totals is None else load_table(totals, what="the totals")[0],
    )
    with taken_at_its_word(folder.path):
        lookup = folder.lookup if (folder.path / "lookup.csv").exists() else None
        table = reconstruct_tables(folder.flows, folder.zones, folder.report, areas, lookup=lookup, wishes=wishes)
    if out is not None:
        sliced = bool(folder.report.get("slice_columns"))
        write_reconstructed(table, out, sliced=sliced, outline=outline_of(areas))
    return table


def _areas_of_reader(zones: Any, own: Mapping[str, Any]) -> Any:
    """The map of a release by its own columns, or another map by the columns that it has."""
    try:
        return read_zones(zones, **own)
    except (DataError, ParameterError):
        if not own:
            raise
        return read_zones(zones)


def freeze(release: str | PathLike[str], *, out: str | PathLike[str] | None = None) -> FrozenMap:
    """The zones of a published release, without its counts, for releases that are to have the same ones.

    Args:
        release: the folder; its published files are enough.
        out: also write them into this Parquet file.

    Returns:
        What ``anonymize(..., zones_of=...)`` takes, as it takes the folder or the file.
    """
    from flowveil.release.frozen import FrozenMap

    frozen = FrozenMap.of(named_path(release, what="the release"))
    if out is not None:
        frozen.write(named_path(out, what="the frozen map"))
    return frozen


def audit_releases(releases: Sequence[Any], *, against: Any = None, **settings: Any) -> Audit:
    """Attack published folders as a reader would; see `flowveil.audit.auditing.audit`."""
    from flowveil.audit.auditing import audit

    return audit(releases, against=against, **settings)


def verify_folder(
    directory: str | PathLike[str],
    *,
    against: Any,
    expect: Mapping[str, Any] | None = None,
    unread: list[str] | None = None,
    strict: bool = False,
    law: bool = True,
    zones_of: Any = None,
    stricter: Any = None,
    revision: Any = None,
    l_places: Any = None,
    **reading: Any,
) -> list[str]:
    """Recount a release folder from its files and the raw input.

    Args:
        directory: a release folder.
        against: the trips it was made from, in any form `read_trips` takes.
        expect: what the guarantee must be at the least: ``k``, ``protect``, ``k_population``, ``l``. Without it the
            release is held against the guarantee that it claims.
        unread: gets a line for each part of a file that could not be compared, because another version of a library
            wrote it.
        strict: whether it is a finding that something could not be compared: the lines of ``unread``, and that another
            version made the release, which alone could make its page, its texts and its text exports again.
        law: whether the numbers of a noisy release are held against the law of its noise. Not by whoever publishes only
            what passes: noise that is refused for what it happens to be has another law than the one promised.
        zones_of: the earlier release whose zones this one says it has: its folder, or the frozen map.
        stricter: the list of places around which this one says that it asks more, as `anonymize` takes it.
        revision: the folders of the releases that this one says it revises, the oldest first.
        l_places: the list of places by which this one says that it counts locations, as `anonymize` takes it.
        **reading: how to read them, where it should differ from what the release's report says.

    Returns:
        One plain line for each contradiction; empty when the release holds. Where people are protected, or expected to
        be, upper and lower case of persons are one unless ``person_case="keep"`` is given here: the word of whoever
        made the release is not enough. Findings then end with a line that says so.
    """
    from flowveil.verify import verify_release
    from flowveil.verify.claims import read_report
    from flowveil.verify.exports import EXPORTS
    from flowveil.verify.files import check_folder
    from flowveil.verify.persons import FOLDED, folds_instead
    from flowveil.zoning.places import read_places

    folder = named_path(directory, what="the release")
    if not folder.is_dir():
        raise ParameterError(f"'{folder.name}' is not a folder. Hint: name the folder that holds manifest.json.")
    findings = check_folder(folder, exports=EXPORTS)
    if findings:
        # The report says how to read the trips; it is not asked before it is known to be the one that was published,
        # and has the form of a report.
        return findings
    report, findings = read_report(folder)
    if report is None:
        return findings
    recorded = report["parameters"]
    engine = {name: reading.pop(name) for name in ("engine", "progress") if name in reading}
    folds = folds_instead(folder, expect=expect, person_case=reading.get("person_case"))
    if folds:
        reading["person_case"] = "fold"
    sliced = read_flows(against, Reading.from_parameters(recorded, **reading), **engine)
    if report["kind"] == "folded":
        flows: Flows | SlicedFlows = sliced.folded()
    else:
        flows = sliced if recorded.get("slices") is not None else sliced.whole
    if "l_places" in recorded and l_places is None:
        raise ParameterError("l was counted by listed places, so the list is needed. Hint: --l-places FILE.")
    if l_places is not None:
        if not isinstance(flows, Flows):
            raise ParameterError("l is counted by listed places for one matrix, and this release has slices.")
        flows = replace(flows, l_places=read_places(l_places, asking=False).counted_on(flows))
    places = None if stricter is None else read_places(stricter, asking=True).on(sliced.whole)
    of_holder = {"zones_of": zones_of, "stricter": places, "revision": revision}
    findings = verify_release(folder, flows, expect=expect, unread=unread, strict=strict, law=law, **of_holder)
    return [*findings, FOLDED] if findings and folds else findings


def publish_series(source: Any, directory: str | PathLike[str], **settings: Any) -> Series:
    """Publish one release for each month or day, all over the same zones; see `flowveil.series.steps.publish_series`.

    Args:
        source: trips, in any form `read_slices` takes.
        directory: the folder of the series; an earlier one is continued.
        **settings: ``time``, ``every``, ``zones_of``, ``formats``, how to read the trips, and ``asked``: what
            `anonymize` is asked for.
    """
    from flowveil.series.steps import publish_series as run

    return run(source, directory, **settings)


def verify_series(
    directory: str | PathLike[str],
    *,
    against: Any,
    expect: Mapping[str, Any] | None = None,
    unread: list[str] | None = None,
    strict: bool = False,
    **reading: Any,
) -> list[str]:
    """Recount every step of a series from the trips, and hold what stands beside the steps against them.

    Args:
        directory: the folder of the series.
        against: the trips it was made from.
        expect, unread, strict: as for `verify_folder`.
        **reading: how to read the trips, where it should differ from what the steps say.

    Returns:
        One plain line for each contradiction, with the step that it is in; empty when everything holds.
    """
    from flowveil.verify import verify_release
    from flowveil.verify.claims import read_report
    from flowveil.verify.persons import folds_instead
    from flowveil.verify.series import check_labels, check_series, steps_in
    from flowveil.zoning.steps import flows_during

    place = named_path(directory, what="the series")
    beside: list[str] = []
    findings = check_series(place, beside)
    if unread is not None:
        unread += beside
    if findings or (strict and beside):
        return findings or beside
    every, steps, frozen = steps_in(place)
    first = place / steps[0][0]
    report, findings = read_report(first)
    if report is None:
        return findings
    if folds_instead(first, expect=expect, person_case=reading.get("person_case")):
        reading["person_case"] = "fold"
    sliced = read_flows(against, Reading.from_parameters(report["parameters"], during=None, every=every, **reading))
    findings = check_labels(place, [key[0] for key in sliced.keys])
    for step, *revisions in [] if findings else steps:
        lines: list[str] = []
        *before, newest = [place / name for name in (step, *revisions)]
        found = verify_release(
            newest,
            flows_during(sliced, step),
            expect=expect,
            unread=lines,
            strict=strict,
            zones_of=frozen if "zones_of" in (read_report(newest)[0] or {}).get("parameters", {}) else None,
            revision=before or None,
        )
        findings += [f"{step}: {line}" for line in found]
        if unread is not None:
            unread += [f"{step}: {line}" for line in lines]
    return findings


# ---- what releases do, by the rooms that do it ----------------------------------------------------------------


def summarize(
    release: Publishable,
    *,
    formats: Sequence[str] = (),
    basemap: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The content of report.json; see `flowveil.report.summary.summarize`."""
    from flowveil.report.summary import summarize as summary

    return summary(release, formats=formats, basemap=basemap, about=about)


def publish(release: Publishable, directory: str | PathLike[str], **writing: Any) -> Path:
    """Write a release folder; see `flowveil.publish.folder.publish`, and `flowveil.series.ledger` with a ledger."""
    from flowveil.publish.folder import publish as write
    from flowveil.series.ledger import publish_recorded

    if writing.pop("audit", False):
        from flowveil.publish.audits import audited
        from flowveil.report.about import ENTRIES

        release = audited(release, {name: writing[name] for name in ENTRIES if name in writing})
    recording = {name: writing.pop(name) for name in ("accept_differencing", "epsilon_total") if name in writing}
    ledger = writing.pop("ledger", None)
    if ledger is None:
        refuse_total_without_ledger(recording.get("epsilon_total"))
        return write(release, directory, **writing)
    return publish_recorded(release, directory, ledger=ledger, **recording, **writing)


def refuse_total_without_ledger(total: float | None) -> None:
    """Refuse a total that nothing could be added up for.

    Raises:
        ParameterError: there is one.
    """
    if total is not None:
        raise ParameterError(
            "--epsilon-total (epsilon_total) is about all noisy releases of a data set, which a ledger remembers. "
            "Hint: name its folder with --ledger."
        )


def frame(release: Publishable, table: str, library: str) -> Any:
    """A published table as one of another library; see `flowveil.publish.frames.frame`."""
    from flowveil.publish.frames import frame as make

    return make(release, table, library)


def notebook_view(release: Publishable) -> str:
    """Maps and measures as HTML for a notebook."""
    from flowveil.report.document import frame
    from flowveil.report.html import render

    release.check_publishable()
    return frame(render(release.summary(), release.flows, release.zones, compact=True))


def write_internal_report(
    release: Publishable, path: str | PathLike[str], *, folder: str | PathLike[str] | None = None
) -> Path:
    """Write a page of raw counts for the data holder; see `flowveil.report.internal.write_internal_report`."""
    from flowveil.report.internal import write_internal_report as write

    if release.slice_columns:
        raise ParameterError("An internal report is about one matrix. Hint: write that of a slice, release[slice].")
    ((_, matrix),) = release.parts
    return write(matrix, path, folder=folder)
