"""The front door: read trips, describe, anonymise and compare them, check and picture a release."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flowveil.analysis.areas import spread_release as spread_release
from flowveil.analysis.measures import measure as measure
from flowveil.engines import read_slices, read_trips
from flowveil.errors import DataError, ParameterError, option
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.methods import find_method
from flowveil.paths import named_path
from flowveil.published.read_release import to_frame as to_frame
from flowveil.record_values import refuse_numbers
from flowveil.release.folder import ReleaseFolder, taken_at_its_word
from flowveil.release.release import Publishable
from flowveil.slices import SlicedFlows
from flowveil.zoning.files import read_zones

if TYPE_CHECKING:
    import pyarrow as pa

    from flowveil.analysis.comparison import Comparison
    from flowveil.analysis.description import Description
    from flowveil.analysis.study import Study
    from flowveil.methods.twin_trees import Goal
    from flowveil.methods.twincut import FrontierPoint
    from flowveil.published.derive import Derived
    from flowveil.release.statement import Published
    from flowveil.release.zone_map import FrozenMap


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
        k: the threshold of safe flows.
        protect, max_suppressed, hierarchy: of the floor, the estimates and the advice; see `anonymize`.
        time, every: column and step of the time, to estimate what folding it would give; ``hour`` by default.
        **reading: how to read the trips; see `read_trips`.
    """
    from flowveil.analysis.description import describe_flows

    # A description says which columns look like persons; nothing is published.
    reading.setdefault("ask_person", False)
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
        k, protect, k_population, l, hierarchy: see `anonymize`.
        objective: what is made small: ``error``, ``metres``, ``reconstruction`` or ``cells``.
        up_to: larger shares are not computed; they take most of the time.
        progress: called with the share that is done.
    """
    from flowveil.methods.paircut import frontier as of_cells
    from flowveil.methods.twincut import frontier as of_zones

    sweeps: dict[str, Callable[..., tuple[FrontierPoint, ...]]] = {"twincut": of_zones, "paircut": of_cells}
    if method not in sweeps:
        raise ParameterError(f"method must be one of {', '.join(sweeps)}; found {method!r}.")
    flows, _ = find_method(method).on_hierarchy(flows, hierarchy)
    guarantee = Guarantee.resolve(flows, k=k, protect=protect, k_population=k_population, l=l)
    asked = guarantee.to_fixed_point(guarantee.prepare(flows))
    return sweeps[method](*asked, objective=objective, up_to=up_to, progress=progress or (lambda _: None))


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
    epsilon: float | Sequence[float] = (),
    **reading: Any,
) -> Comparison:
    """Run several methods, several k and several protections on the same input.

    Args:
        source: flows, or trips in any form `read_trips` takes.
        methods: names, or ``all``; or functions (see `anonymize`) of modules that can be imported.
        k: one or several.
        protect: the protections to compare; each is a unit, or several units joined by ``+`` or in a sequence. By
            default people where persons are known, else trips.
        max_suppressed, limits: share that may be suppressed; the same by method, where it differs.
        time_limit: seconds after which a run is stopped and shown as such, not counting the start of its process.
        options: options by method.
        hierarchy: ``h3`` or ``halves`` for all methods that work on a tree; by default what each one's page says.
        epsilon: one or several ε for methods that add noise, which are then among ``all``; their region, level and
            bound are ``options``.
        **reading: ``k_population`` and ``population_only`` as in `anonymize`; how to read the trips, see `read_trips`.

    Returns:
        All runs with exact measures; ``write(directory)`` makes tables, charts and one page. None of it is for
        publication.
    """
    from flowveil.analysis.comparison import compare_flows
    from flowveil.analysis.experiment import Settings

    further = {name: reading.pop(name) for name in ("k_population", "population_only") if name in reading}
    flows = source if isinstance(source, Flows) else read_trips(source, **reading)
    choices = Settings(
        methods=methods,
        k=k,
        protections=protect,
        max_suppressed=max_suppressed,
        limits=limits or {},
        time_limit=time_limit,
        options=options or {},
        hierarchy=hierarchy,
        epsilon=epsilon,
        **further,
    )
    return compare_flows(flows, choices)


def run_study(source: Any, directory: str | PathLike[str], *, by: str | Sequence[str] = (), **settings: Any) -> Study:
    """Run an experiment of the papers: every method on everybody and on every segment, or on every step of time.

    Args:
        source: what `read_slices` returns, or trips in any form it takes.
        directory: where the results go; an earlier study there is continued.
        by: the attributes that segments are made by, where the source is not read yet; those of the preset by default,
            ``none`` for no segments.
        **settings: those of `flowveil.analysis.study.run_study`, such as ``preset``, ``methods`` and ``k``; and how to
            read the trips, see `read_slices`, with ``time`` and ``every`` for a matrix of each step.

    Returns:
        All results; the folder has them as tidy tables, as Markdown and as LaTeX.
    """
    from flowveil.analysis.experiment import Settings
    from flowveil.analysis.papers import segmented_by
    from flowveil.analysis.study import run_study as run

    names = ("workers", "progress", *(field.name for field in fields(Settings)))
    of_study = {name: settings.pop(name) for name in names if name in settings}
    if isinstance(source, SlicedFlows):
        if by or settings:
            raise ParameterError("The source is read already: 'by' and how to read it cannot be given again.")
        return run(source, directory, **of_study)
    named = by.split(",") if isinstance(by, str) and by else by
    by = segmented_by(of_study.get("preset"), [name.strip() for name in named])
    flows = read_for_study(source, by=by, **settings)
    return run(flows, directory, **{**of_study, **threshold_of_study(source, of_study, settings)})


def threshold_of_study(source: Any, settings: Mapping[str, Any], reading: Mapping[str, Any]) -> dict[str, float | None]:
    """The population's threshold of a study in the authors' reading, where a study area is cut out; else nothing."""
    from flowveil.analysis.papers import authors_threshold, find_preset

    if settings.get("reading") != "authors" or settings.get("k_population") is not None or not reading.get("within"):
        return {}
    preset = find_preset(settings.get("preset"))
    k = settings.get("k") or (10 if preset is None else preset.k)
    return {"k_population": authors_threshold(source, k, reading)}


def read_for_study(source: Any, *, by: Sequence[str], by_many: bool = False, **how: Any) -> SlicedFlows:
    """Returns the flows by attributes or by time; all flows together without either."""
    if by or "time" in how or "every" in how:
        return read_slices(source, by=by, by_many=by_many, **how)
    return SlicedFlows((), ((),), (read_trips(source, **how),))


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
        **style: see `flowveil.published.pictures.draw`. The caption names the guarantee and the source; the title is
            that of the release, unless others are given.
    """
    from flowveil.published.html import promise
    from flowveil.published.pictures import cells_from, draw
    from flowveil.published.report import summed
    from flowveil.release.folder import zones_in
    from flowveil.release.statement import Statement

    with nullcontext() if isinstance(release, Publishable) else taken_at_its_word(release):
        if isinstance(release, Publishable):
            release.check_publishable()
            flows, zones, report = release.flows, release.zones, release.summary()
        else:
            folder = ReleaseFolder(named_path(release, what="the release"))
            flows, zones, report = folder.flows, folder.zones, folder.report
        flows = summed(flows, Statement.from_report(report))
        zones = zones_in(flows, zones)
        if place is not None:
            flows = cells_from(flows, zones, place)
            zones = zones_in(flows, zones)
        about = report["statement"]["about"]
        source = [f"Source: {about['source']}"] if "source" in about else []
        style = {"caption": ". ".join([promise(report), *source]), **style}
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
    from flowveil.published.reconstruction import Wishes, check_out, outline_of, reconstruct_tables, write_reconstructed
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
        slices = folder.report["statement"]["slice_columns"]
        write_reconstructed(table, out, slice_columns=slices, outline=outline_of(areas))
    return table


def _areas_of_reader(zones: Any, columns: Mapping[str, Any]) -> Any:
    """The map of a release by its own columns, or another map by the columns that it has."""
    try:
        return read_zones(zones, **columns)
    except (DataError, ParameterError):
        if not columns:
            raise
        return read_zones(zones)


def derive(
    release: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    level: int | None = None,
    zones_of: Any = None,
    sum: str | Sequence[str] = (),  # the name of the option
    pick: Mapping[str, Any] | Sequence[str] = (),
    within: Any = None,
    drop: str | Sequence[str] = (),
    zones: Any = None,
    **writing: Any,
) -> Derived:
    """Computes a table from a published release alone; see `flowveil.published.derive`.

    Args:
        release: the folder of the source.
        out: also write a release folder.
        level: level of the zones: an H3 resolution, or a level of the map; coarser zones are kept.
        zones_of: zones of another release: its folder, or a frozen map.
        sum: slice columns to add up, or units of time: ``hour``, ``weekday``, ``day``, ``time``.
        pick: slices to keep: ``{"sex": "f"}``, or ``["sex=f"]``; None is the matrix of all values.
        within: keep cells whose zones both lie inside this area as a whole.
        drop: columns to leave out.
        zones: the operator's map, for a release on one.
        **writing: ``formats``, ``overwrite``, ``replace_stronger``, and ``title``, ``source``, ... in place of those
            of the source; ``ledger``, which must hold the source and lists the new folder.

    Raises:
        ParameterError: the source has no such column, value or level; slices to be added up have different zones.
        InfeasibleError: the source is not in the ledger.
        OutputError: the folder may not or cannot be written.
    """
    from flowveil.published.folder import MANIFEST
    from flowveil.published.read_release import map_of_statement, read_published
    from flowveil.series.ledger import check_source, record_derived

    ledger = writing.pop("ledger", None)
    folder = ReleaseFolder(named_path(release, what="the release"))
    with taken_at_its_word(folder.path):
        folder.check_manifest()
        own = folder.statement.parameters.get("zones") or {}
        given = zones if zones is None or not isinstance(zones, str | PathLike) else read_zones(zones, **own)
        source = read_published(folder, map_of_statement(folder.statement, given))
        if source is None:
            raise ParameterError("The release belongs to no map, so nothing can be derived from it.")
        keep = {name: writing.pop(name) for name in ("overwrite", "replace_stronger") if name in writing}
        chosen = {"level": level, "zones_of": zones_of, "sum": sum, "pick": pick, "within": within, "drop": drop}
        made = derive_content(source, folder.sha256(MANIFEST), **chosen, **writing)
        # Everything is computed before anything is written.
        made.report  # noqa: B018
    if out is not None:
        if ledger is not None:
            check_source(folder.path, ledger=ledger)
        made.write(out, source=folder.path, **keep)
        if ledger is not None:
            record_derived(Path(out), ledger=ledger)
    return made


def derive_content(source: Published, manifest_sha256: str, *, formats: Any = (), **how: Any) -> Derived:
    """Returns the derived release of public inputs in memory; ``how`` has arguments of `derive`."""
    from flowveil.published.about import checked
    from flowveil.published.derive import Derivation, Derived, derive_published, parse_pick
    from flowveil.published.exports import parse_formats
    from flowveil.release.zone_map import FrozenMap
    from flowveil.verify.verification import area_of_zones

    zones_of, columns = how.pop("zones_of", None), [how.pop(name, ()) for name in ("sum", "drop")]
    listed = [(one,) if isinstance(one, str) else tuple(one) for one in columns]
    derivation = Derivation(
        pick=parse_pick(how.pop("pick", ())),
        level=how.pop("level", None),
        zones_of=None if zones_of is None else FrozenMap.read(zones_of),
        sum=listed[0],
        within=area_of_zones(how.pop("within", None)),
        drop=listed[1],
    )
    names = [one.name for one in parse_formats(formats)]
    stated: dict[str, Any] = {"manifest_sha256": manifest_sha256, "formats": names, "about": checked(how)}
    return Derived(derive_published(source, derivation, **stated))


def freeze(release: str | PathLike[str], *, out: str | PathLike[str] | None = None) -> FrozenMap:
    """Returns the zones of a published release folder, without its counts, for ``anonymize(..., zones_of=...)``.

    ``out`` is a Parquet file into which they are also written.
    """
    from flowveil.release.zone_map import FrozenMap

    frozen = FrozenMap.read(named_path(release, what="the release"))
    if out is not None:
        frozen.write(named_path(out, what="the frozen map"))
    return frozen


# ---- what releases do --------------------------------------------------------------------------------------------


def folder_content(release: Publishable, **writing: Any) -> Any:
    """Returns tables, report and page of a release; see `flowveil.publication.folder_content`."""
    from flowveil.publication import folder_content as make

    return make(release, **writing)


def derive_release(release: Publishable, **how: Any) -> Derived:
    """Returns what `derive` computes from the folder that ``release.write(...)`` makes without further arguments."""
    from tempfile import TemporaryDirectory

    from flowveil.published.folder import MANIFEST, hash_file, write_files

    release.check_publishable()
    content = folder_content(release)
    with TemporaryDirectory(prefix="flowveil-derive-") as folder:
        write_files(content, Path(folder))
        manifest = hash_file(Path(folder) / MANIFEST)
    return derive_content(content.published, manifest, **how)


def publish(release: Publishable, directory: str | PathLike[str], **writing: Any) -> Path:
    """Writes a release folder; see `flowveil.publication.publish`, and `flowveil.series.ledger` with a ledger."""
    from flowveil.publication import publish as write
    from flowveil.series.ledger import publish_recorded

    recording = {name: writing.pop(name) for name in ("accept_differencing", "epsilon_total") if name in writing}
    ledger = writing.pop("ledger", None)
    if release.parameters.get("between"):
        refuse_numbers({"accept_differencing": recording.get("accept_differencing")})
    if ledger is None:
        refuse_total_without_ledger(recording.get("epsilon_total"))
        return write(release, directory, **writing)
    return publish_recorded(release, directory, ledger=ledger, **recording, **writing)


def refuse_total_without_ledger(total: float | None) -> None:
    """Raises ParameterError if there is a total, because nothing could be added up for it."""
    if total is not None:
        raise ParameterError(
            f"{option('epsilon_total')} is about all noisy releases of a data set, which a ledger records. "
            f"Hint: name its folder with {option('ledger')}."
        )


def notebook_view(release: Publishable) -> str:
    """Returns maps and figures as HTML for a notebook."""
    from flowveil.published.document import frame

    release.check_publishable()
    return frame(folder_content(release).page(compact=True))
