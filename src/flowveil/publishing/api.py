"""Functions over a release or its folder: write, derive, freeze, reconstruct, picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from flowveil.core.errors import DataError, ParameterError
from flowveil.release.counts import Publishable
from flowveil.release.folder import ReleaseFolder, taken_at_its_word
from flowveil.request import support
from flowveil.request.keywords import FolderKeywords, WritingKeywords
from flowveil.system.paths import named_path
from flowveil.zoning.files import read_zones

if TYPE_CHECKING:
    import pyarrow as pa

    from flowveil.published.derive import Derived
    from flowveil.publishing.release import UserRelease
    from flowveil.release.statement import Published
    from flowveil.release.zone_map import FrozenMap


class StyleKeywords(TypedDict, total=False):
    """How a picture is drawn; see `flowveil.published.pictures.Style`."""

    basis: str
    lines: int
    width: float | None
    dpi: int
    title: str | None
    caption: str | None
    bbox: Sequence[float] | None
    zoom: float


class PictureKeywords(StyleKeywords, total=False):
    """What a picture of a release shows, and how: `picture`."""

    show: str
    place: tuple[float, float] | None
    over: UserRelease | str | PathLike[str] | None


class ReconstructionKeywords(TypedDict, total=False):
    """How flows between areas are estimated: `reconstruct`."""

    out: str | PathLike[str] | None
    population: Any
    land: Any
    decay: bool
    whole: bool | None
    bounds: bool
    per: Literal["day"] | None
    totals: Any
    sum: str | Sequence[str]


class DerivingKeywords(FolderKeywords, total=False):
    """What is derived, and how it is written: `derive`."""

    level: int | None
    zones_of: Any
    sum: str | Sequence[str]
    pick: Mapping[str, Any] | Sequence[str]
    within: Any
    drop: str | Sequence[str]
    zones: Any


def picture(
    release: UserRelease | str | PathLike[str],
    path: str | PathLike[str],
    *,
    show: str | None = None,
    question: str | None = None,
    place: tuple[float, float] | None = None,
    over: UserRelease | str | PathLike[str] | None = None,
    **style: Unpack[StyleKeywords],
) -> Path:
    """Draw a map of a release into a PNG, SVG or PDF file.

    Of slices, the sum of the finest, without totals.

    Args:
        release: a release, or the folder of one: published files are enough.
        path: the file; its suffix says the format.
        show: ``answer`` (as the page draws it), ``origins``, ``destinations``, ``both`` or
            ``flows``. By default ``answer``, or ``origins`` where the page has no estimate or a
            place, a style or another release is given.
        question: what the link to an answer has behind ``#``: ``from=Providencia&hour=8``.
        place: latitude and longitude: draw only the cells whose origin zone holds it, of all sizes
            where zones nest.
        over: another release, or its folder, whose zones are drawn as outlines over the map.
        **style: see `flowveil.published.pictures.draw`. The caption names the guarantee and the
            source; the title is that of the release, unless others are given.

    Examples:
        >>> flowveil.picture("release", "map.png", show="origins").name
        'map.png'
    """
    from flowveil.published.answer_picture import data_of, draw_answer
    from flowveil.published.html import promise
    from flowveil.published.pictures import cells_from, draw
    from flowveil.published.report import summed
    from flowveil.release.folder import zones_in
    from flowveil.release.statement import Statement

    is_folder = isinstance(release, str | PathLike)
    with taken_at_its_word(release) if is_folder else nullcontext():
        if not isinstance(release, str | PathLike):
            release.check_publishable()
            flows, zones, report = release.flows, release.zones, release.summary()
        else:
            folder = ReleaseFolder(named_path(release, what="the release"))
            flows, zones, report = folder.flows, folder.zones, folder.report
        further = {name for name, value in style.items() if value is not None} - {"dpi", "lines"}
        plain = place is None and over is None and not further
        if show == "answer" and not plain:
            raise ParameterError(
                "A picture of an answer takes no place, no other release and no style but dpi."
                " Hint: choose origins, destinations or flows."
            )
        if question is not None and (show not in (None, "answer") or not plain):
            raise ParameterError("A question belongs to a picture of an answer.")
        if show == "answer" or (show is None and plain):
            page = _page_of(release)
            if show == "answer" or question is not None or data_of(page) is not None:
                how = {"dpi": style["dpi"]} if "dpi" in style else {}
                return draw_answer(page, path, question=question or "", **how)
        show = show or "origins"
        flows = summed(flows, Statement.from_report(report))
        zones = zones_in(flows, zones)
        if place is not None:
            flows = cells_from(flows, zones, place)
            zones = zones_in(flows, zones)
        about = report["statement"]["about"]
        source = [f"Source: {about['source']}"] if "source" in about else []
        look: dict[str, Any] = {"caption": ". ".join([promise(report), *source]), **style}
        if look.get("title") is None:
            look["title"] = about.get("title")
        if over is not None:
            look["over"] = (
                ReleaseFolder(named_path(over, what="the other release"))
                if isinstance(over, str | PathLike)
                else over
            ).zones
        return draw(flows, zones, path, show=show, **look)


def _page_of(release: UserRelease | str | PathLike[str]) -> str:
    """Returns report.html; empty where the folder has none that can be read."""
    from flowveil.publishing.publish import folder_content
    from flowveil.system.paths import open_regular

    if not isinstance(release, str | PathLike):
        return folder_content(release).page()
    try:
        with open_regular(named_path(release, what="the release") / "report.html") as file:
            return file.read().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def reconstruct(
    release: str | PathLike[str],
    zones: Any,
    *,
    out: str | PathLike[str] | None = None,
    population: Any = None,
    land: Any = None,
    decay: bool = True,
    whole: bool | None = None,
    bounds: bool = False,
    per: Literal["day"] | None = None,
    totals: Any = None,
    sum: str | Sequence[str] = (),  # the name of the option
) -> pa.Table:
    """Estimate the flows of a published release between areas of choice.

    See `flowveil.published.disaggregation`.

    Args:
        release: the folder; its published files are enough. A release in memory has
            `release.private.reconstruct`, which knows the tiles that have trips.
        zones: an H3 resolution; the release's own map, whose tiles are the areas; or any map with
            outlines: what `read_zones` returns, or what it takes.
        out: also write the table: .parquet, .csv, .omx or .gpkg.
        population: a file or table of ``lat``, ``lon`` and ``population``, or of ``zone`` and
            ``population`` for the tiles of the release's map.
        land: polygons outside of which no trip starts or ends.
        decay: fit how trips get rarer with distance.
        whole: round to whole trips, totals kept; by default in a CSV file.
        bounds: add ``trips_low`` and ``trips_high``: trips that cells prove, and the most that they
            allow.
        per: ``day``: the mean of a day of the declared period.
        totals: known totals to scale to: ``area``, ``origins`` and ``destinations``, or one of the
            two.
        sum: dimensions to add up, such as ``time``.

    Returns:
        ``origin``, ``destination``, a column for each dimension, ``time`` first, ``trips`` and,
        where known, ``weight``.

    Examples:
        >>> matrix = flowveil.reconstruct("release", 5, bounds=True)
        >>> matrix.column_names
        ['origin', 'destination', 'trips', 'trips_low', 'trips_high']
    """
    from flowveil.published.reconstruction import (
        Wishes,
        check_out,
        reconstruct_tables,
        write_reconstructed,
    )
    from flowveil.zoning.files import ZoneMap, load_table, read_outlines

    if out is not None:
        check_out(out)
    is_csv = out is not None and Path(out).suffix.lower() == ".csv"
    folder = ReleaseFolder(named_path(release, what="the release"))
    own = folder.report["parameters"].get("zones") or {}
    areas = zones if isinstance(zones, int | ZoneMap) else _areas_of_reader(zones, own)
    wishes = Wishes(
        population=None if population is None else load_table(population, what="the population")[0],
        land=None if land is None else read_outlines(land),
        decay=decay,
        whole=is_csv if whole is None else whole,
        bounds=bounds,
        per=per,
        totals=None if totals is None else load_table(totals, what="the totals")[0],
        sum=(sum,) if isinstance(sum, str) else tuple(sum),
    )
    with taken_at_its_word(folder.path):
        lookup = folder.lookup if (folder.path / "lookup.csv").exists() else None
        table = reconstruct_tables(
            folder.flows, folder.zones, folder.report, areas, lookup=lookup, wishes=wishes
        )
    if out is not None:
        write_reconstructed(table, out, areas=areas)
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
    **writing: Unpack[FolderKeywords],
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
        **writing: ``formats``, ``overwrite``, ``replace_stronger``, and ``title``, ``source``, ...
            in place of those of the source; ``ledger``, which must hold the source and lists the
            new folder.

    Raises:
        ParameterError: the source has no such column, value or level; slices to be added up have
            different zones.
        InfeasibleError: the source is not in the ledger.
        OutputError: the folder may not or cannot be written.

    Examples:
        >>> flowveil.derive("release", level=5)
        <Derived: 1 cells>
        >>> flowveil.derive("release", "coarse", level=5, title="Coarser zones")
        <Derived: 1 cells>
    """
    from flowveil.published.folder import MANIFEST
    from flowveil.published.read_release import map_of_statement, read_published
    from flowveil.publishing.ledger.ledger import check_source, record_derived

    wanted: dict[str, Any] = {**writing}
    ledger = wanted.pop("ledger", None)
    folder = ReleaseFolder(named_path(release, what="the release"))
    with taken_at_its_word(folder.path):
        folder.check_manifest()
        own = folder.statement.parameters.get("zones") or {}
        given = (
            zones
            if zones is None or not isinstance(zones, str | PathLike)
            else read_zones(zones, **own)
        )
        source = read_published(folder, map_of_statement(folder.statement, given))
        if source is None:
            raise ParameterError(
                "The release belongs to no map, so nothing can be derived from it."
            )
        keep = {
            name: wanted.pop(name) for name in ("overwrite", "replace_stronger") if name in wanted
        }
        chosen = {
            "level": level,
            "zones_of": zones_of,
            "sum": sum,
            "pick": pick,
            "within": within,
            "drop": drop,
        }
        made = derive_content(source, folder.sha256(MANIFEST), **chosen, **wanted)
        # Everything is computed before anything is written.
        made.report  # noqa: B018
    if out is not None:
        if ledger is not None:
            check_source(folder.path, ledger=ledger)
        made.write(out, source=folder.path, **keep)
        if ledger is not None:
            record_derived(Path(out), ledger=ledger)
    return made


def derive_content(
    release: Published, manifest_sha256: str, /, *, formats: Any = (), **how: Any
) -> Derived:
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
    stated: dict[str, Any] = {
        "manifest_sha256": manifest_sha256,
        "formats": names,
        "about": checked(how),
    }
    return Derived(derive_published(release, derivation, **stated))


def freeze(release: str | PathLike[str], *, out: str | PathLike[str] | None = None) -> FrozenMap:
    """Returns the zones of a published release folder, without its counts, for ``anonymize(...,
    zones_of=...)``.

    ``out`` is a Parquet file into which they are also written.

    Examples:
        >>> flowveil.freeze("release")
        <FrozenMap: 7 zones>
    """
    from flowveil.release.zone_map import FrozenMap

    frozen = FrozenMap.read(named_path(release, what="the release"))
    if out is not None:
        frozen.write(named_path(out, what="the frozen map"))
    return frozen


# ---- what releases do ----------------------------------------------------------------------------


def derive_release(release: Publishable, **how: Any) -> Derived:
    """Returns what `derive` computes from the folder that ``release.write(...)`` makes without
    further arguments.
    """
    from tempfile import TemporaryDirectory

    from flowveil.published.folder import MANIFEST, hash_file, write_files
    from flowveil.publishing.publish import folder_content

    release.check_publishable()
    content = folder_content(release)
    with TemporaryDirectory(prefix="flowveil-derive-") as folder:
        write_files(content, Path(folder))
        manifest = hash_file(Path(folder) / MANIFEST)
    return derive_content(content.published, manifest, **how)


def publish(
    release: Publishable, directory: str | PathLike[str], **writing: Unpack[WritingKeywords]
) -> Path:
    """Writes a release folder.

    See `flowveil.publishing.publish.publish`, and `flowveil.publishing.ledger.ledger` with a
    ledger.
    """
    from flowveil.publishing.ledger.ledger import publish_recorded
    from flowveil.publishing.publish import publish as write

    given: dict[str, Any] = {**writing}
    ledger = given.pop("ledger", None)
    recording: dict[str, Any] = {
        name: given.pop(name) for name in ("accept_differencing", "epsilon_total") if name in given
    }
    numbers = release.parameters.get("between") or None
    features = support.asked_of({**recording, "ledger": ledger, "mean": numbers})
    support.check(features, support.Expected(counts=release.facets.counts, zones=None))
    support.check_needs(features)
    if ledger is None:
        return write(release, directory, **given)
    return publish_recorded(release, directory, ledger=ledger, **recording, **given)


def notebook_view(release: Publishable) -> str:
    """Returns maps and figures as HTML for a notebook."""
    from flowveil.published.document import frame
    from flowveil.publishing.publish import folder_content

    release.check_publishable()
    return frame(folder_content(release).page(compact=True))
