"""``flowveil anonymize``: from trips to a release folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import click

from flowveil.cli.help import GroupedCommand
from flowveil.cli.options import (
    PLACE,
    SliceOptions,
    hierarchy,
    listed,
    method_options,
    reading,
    reading_like,
    reading_of,
    slicing,
    taken,
)
from flowveil.cli.output import Output, with_output
from flowveil.cli.released import publish_one, publish_slices
from flowveil.errors import ParameterError
from flowveil.guarantee import UNITS
from flowveil.methods import METHODS, Method, find_method
from flowveil.release.frozen import FrozenMap
from flowveil.series.loss import NEW_MAP_AT

#: What is asked of every cell, by the names of the library and of the command line.
_THRESHOLDS = {"k": "--k", "protect": "--protect", "max_suppressed": "--max-suppressed"}
_THRESHOLDS |= {"k_population": "--k-population", "l": "--l", "dominance": "--dominance", "stricter": "--stricter"}
_THRESHOLDS |= {"l_places": "--l-places"}
_THRESHOLDS |= {"allow_small_k": "--yes-k-below-3", "population_only": "--population-only"}


@dataclass(frozen=True)
class _Wanted:
    """What to make, and where it goes."""

    out: str
    method: str | None
    options: Sequence[str]
    hierarchy: str | None
    zones_of: str | None
    revision: Sequence[str]
    new_map_at: float
    seed: int | None
    formats: Sequence[str]
    basemap: str | None
    context: str | None
    internal_report: str | None
    replace_stronger: bool
    ledger: str | None
    epsilon_total: float | None
    audit: bool
    title: str | None
    source_text: str | None
    period: str | None
    licence: str | None
    contact: str | None

    @property
    def adds_noise(self) -> bool:
        """Whether the method promises ε and no k."""
        return self.method is not None and find_method(self.method).promises == "epsilon"

    def check(self, *, internal: Sequence[str | None]) -> dict[str, Any]:
        """Refuse what cannot be written, before anything is read; return what writing needs to know."""
        from flowveil.api import refuse_total_without_ledger
        from flowveil.publish.exports import parse_formats
        from flowveil.publish.folder import check_target
        from flowveil.report.about import checked
        from flowveil.report.html import tile_server
        from flowveil.report.internal import check_place
        from flowveil.report.own_lines import read_own_lines

        parse_formats(self.formats)
        check_target(self.out)
        if self.ledger is None:
            refuse_total_without_ledger(self.epsilon_total)
        if self.context is not None:
            read_own_lines(self.context)
        for path in internal:
            if path is not None:
                check_place(path, release=self.out)
        about = {"title": self.title, "source": self.source_text, "period": self.period}
        about |= {"licence": self.licence, "contact": self.contact}
        return {
            **checked(about),
            "formats": self.formats,
            "basemap": tile_server(self.basemap),
            "context": self.context,
            "replace_stronger": self.replace_stronger,
            "ledger": self.ledger,
            "epsilon_total": self.epsilon_total,
            "audit": self.audit,
        }


class _Anonymize(GroupedCommand):
    groups: ClassVar[Mapping[str, Sequence[str]]] = {
        "Most used": (
            "--k", "--out", "--protect", "--method", "--max-suppressed", "--resolution", "--origin", "--destination",
            "--zones", "--format",
        ),
        "Input": (),
        "Protection": (
            "--k-population", "--l", "--l-places", "--dominance", "--stricter", "--yes-k-below-3", "--population-only",
            "--ledger", "--epsilon-total", "--audit",
        ),
        "Method": (
            "--option", "--seed", "--same-zones", "--hierarchy", "--zones-of", "--revision", "--new-map-at",
        ),
        "Slices": (
            "--by", "--by-many", "--time", "--every", "--values", "--during", "--total", "--common-zones",
            "--fold-time", "--accept-differencing", "--workers", "--resume",
        ),
        "What it is about": ("--title", "--source", "--period", "--licence", "--contact"),
        "Output": (
            "--basemap", "--context", "--replace-stronger", "--internal-report", "--internal-profile", "--json",
            "--quiet", "--help",
        ),
    }  # fmt: skip


@click.command(cls=_Anonymize)
@click.argument("source", type=PLACE, metavar="INPUT")
@click.option("--k", type=int, default=10, show_default=True, help="How many every cell must hide.")
@click.option("--out", type=PLACE, required=True, help="Folder of the release; replaced if it is one already.")
@click.option(
    "--method",
    help=f"One of: {', '.join(METHODS)} [default: twincut; odkanon with --common-zones, paircut with --fold-time].",
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Option of the method (repeatable).")
@hierarchy
@click.option(
    "--zones-of",
    type=PLACE,
    metavar="EARLIER",
    help="Publish over the zones of an earlier release (its folder, or a map that freeze wrote).",
)
@click.option(
    "--new-map-at",
    type=float,
    default=NEW_MAP_AT,
    show_default=True,
    metavar="SHARE",
    help="With --zones-of: advise a new map where the loss is at least this.",
)
@click.option(
    "--revision",
    multiple=True,
    type=PLACE,
    metavar="EARLIER",
    help="Correct this earlier release of the same trips (repeatable: the first, then its revisions). A cell gets its "
    "new value where the change by itself reaches the guarantee, and keeps the earlier one elsewhere.",
)
@click.option(
    "--protect",
    multiple=True,
    help=f"{', '.join(UNITS)} (repeatable) [default: people where a person column is known, else trips].",
)
@click.option("--k-population", type=float, help="Absolute threshold of the population.")
@click.option("--l", "l", type=int, help="Fewest tiles in which the trips of a cell begin, and end.")
@click.option(
    "--l-places",
    type=PLACE,
    metavar="FILE",
    help="Points of interest (tile, or lat and lon): --l counts those in these tiles instead of the tiles.",
)
@click.option(
    "--dominance",
    type=float,
    metavar="SHARE",
    help="Also suppress cells in which one person makes more than this share of the trips.",
)
@click.option(
    "--stricter",
    type=PLACE,
    metavar="FILE",
    help="Places (tile, or lat and lon) around which cells must reach the k or l that the file gives them.",
)
@click.option("--max-suppressed", type=float, default=0.1, show_default=True, help="Share that may be suppressed.")
@click.option("--yes-k-below-3", "allow_small_k", is_flag=True, help="Confirm a k below 3, which is refused otherwise.")
@click.option(
    "--population-only",
    is_flag=True,
    help="Confirm that the population alone is protected although persons are known.",
)
@click.option(
    "--replace-stronger",
    is_flag=True,
    help="Confirm that an earlier release with a stronger guarantee may be replaced.",
)
@click.option(
    "--ledger",
    type=PLACE,
    metavar="DIR",
    help="Audit against all earlier releases of this data set, which DIR remembers, and record this one.",
)
@click.option(
    "--epsilon-total",
    type=float,
    metavar="X",
    help="With --ledger and noise: refuse what would bring ε of all noisy releases above X. Kept; it can only be "
    "lowered.",
)
@click.option(
    "--audit",
    is_flag=True,
    help="Attack the release before it is written, as far as that takes seconds; the report says what was found.",
)
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
    "--title", metavar="TEXT", help="Title of the page and the files [default: made from the number of areas]."
)
@click.option("--source", "source_text", metavar="TEXT", help="Where the trips come from, for readers.")
@click.option("--period", metavar="DAY/DAY", help="First and last day of the trips, like 2024-01-01/2024-03-31.")
@click.option("--licence", metavar="TEXT", help="Licence of the release, like CC BY 4.0.")
@click.option("--contact", metavar="TEXT", help="Contact for readers' questions.")
@click.option(
    "--basemap",
    is_flag=False,
    flag_value="default",
    metavar="[URL]",
    help="Let readers of report.html switch on a background map from a tile server ({z}, {x}, {y} in its address).",
)
@click.option(
    "--context",
    type=PLACE,
    metavar="FILE",
    help="Draw your own outlines (districts, roads) on the maps of report.html: GeoJSON; its lines and names are "
    "published.",
)
@click.option(
    "--internal-report",
    type=PLACE,
    metavar="FILE",
    help="Also write a page that compares before and after. It shows raw counts: for yourself, not for publication.",
)
@reading
@with_output
def anonymize(output: Output, source: str, **given: Any) -> None:
    """Anonymise the trips of INPUT and publish them into a folder.

    INPUT is a CSV or Parquet file, a folder or a pattern of such files ('trips/*.parquet'), or a matrix (OMX, --wide).
    """
    from flowveil.api import read_slices, read_trips

    wanted, slices = taken(_Wanted, given), taken(SliceOptions, given)
    slices = _cut_by_matrix(slices, source, given["matrix"])
    asked = _asked(wanted, slices, {name: given.pop(name) for name in _THRESHOLDS})
    writing = wanted.check(internal=(wanted.internal_report, slices.internal_profile))
    writing["accept_differencing"] = slices.accept_differencing
    how = reading_of(given, protect=asked.get("protect"))
    if wanted.revision:
        _refuse_with_revision(wanted, slices)
    like = wanted.zones_of or (wanted.revision[-1] if wanted.revision else None)
    if like is not None:
        how = reading_like(like, how)
    if slices.during is not None:
        how |= slices.one_step()
    if slices.during is not None or not slices.asked_for:
        with output.working("Reading") as progress:
            flows = read_trips(source, progress=progress, **how)
        release = publish_one(output, flows, wanted.out, asked, writing=writing, internal_report=wanted.internal_report)
        if wanted.zones_of is not None and not wanted.revision:
            _say_loss(output, release, wanted.new_map_at)
        return
    slices.check()
    for name in ("dominance", "stricter", "l_places"):
        if asked.pop(name, None) is not None:
            raise ParameterError(
                f"--{name.replace('_', '-')} is for a single matrix: not for slices, nor for folded times."
            )
    if slices.fold_time:
        with output.working("Reading") as progress:
            timed = read_slices(source, progress=progress, **slices.reading(), **how).folded()
        publish_one(output, timed, wanted.out, asked, writing=writing, internal_report=wanted.internal_report)
        return
    if wanted.internal_report is not None:
        raise ParameterError("--internal-report is for a single matrix. Hint: for slices use --internal-profile.")
    if wanted.adds_noise:
        slices = _with_noise(slices)
        asked["values"] = slices.declared(wanted.period)
    elif slices.values:
        raise ParameterError("--values is for methods that add noise; others find the values in the data.")
    with output.working("Reading") as progress:
        sliced = read_slices(source, progress=progress, **slices.reading(), **how)
    publish_slices(output, sliced, wanted.out, slices, asked, writing)


def _with_noise(slices: SliceOptions) -> SliceOptions:
    """What slices may have with noise: no chart of raw counts; and values that are declared may be many."""
    if slices.internal_profile is not None or slices.resume or slices.accept_differencing:
        raise ParameterError("--internal-profile, --resume and --accept-differencing are not for methods of noise.")
    return replace(slices, by_many=True)


def _refuse_with_revision(wanted: _Wanted, slices: SliceOptions) -> None:
    """Refuse what a revision cannot have, before anything is read."""
    if wanted.internal_report is not None or (slices.asked_for and slices.during is None):
        raise ParameterError("--revision is for one matrix, and there is no internal report of it. Hint: leave it out.")


def _say_loss(output: Output, release: Any, new_map_at: float) -> None:
    from flowveil.series.loss import loss_against_best

    if output.quiet:
        return
    with output.working("Measuring against the best map"):
        loss = loss_against_best(release)
    output.say(*(["There is no better map of these trips."] if loss is None else loss.in_words(new_map_at)))


def _cut_by_matrix(slices: SliceOptions, source: str, chosen: str | None) -> SliceOptions:
    """Several matrices of an OMX file become slices, unless trips are cut otherwise or one is chosen."""
    if slices.by or not source.casefold().endswith(".omx") or not Path(source).is_file():
        return slices
    from flowveil.reading.matrices import MATRIX, matrix_names

    several = len(listed(chosen) if chosen else matrix_names(Path(source))) > 1
    return replace(slices, by=(MATRIX,)) if several else slices


def _asked(wanted: _Wanted, slices: SliceOptions, thresholds: dict[str, Any]) -> dict[str, Any]:
    """What the library is asked for: the method, its options and the thresholds."""
    if wanted.zones_of is not None or wanted.revision:
        return _asked_of_zones(wanted, thresholds)
    name = wanted.method or ("odkanon" if slices.common_zones else "paircut" if slices.fold_time else "twincut")
    on_tree = {} if wanted.hierarchy is None else {"hierarchy": wanted.hierarchy}
    method, parsed = find_method(name), method_options(name, wanted.options)
    _refuse_thresholds(method)
    if wanted.seed is not None and "seed" in method.options:
        parsed["seed"] = wanted.seed
    if method.promises != "k":
        return {"method": name, **on_tree, **parsed}
    return {"method": name, **on_tree, **thresholds, "protect": thresholds["protect"] or None, **parsed}


def _asked_of_zones(wanted: _Wanted, thresholds: dict[str, Any]) -> dict[str, Any]:
    """The same where the zones are those of an earlier release: there is no method, and it has no options."""
    if wanted.options:
        raise ParameterError("--option is for a method, and --zones-of has none. Hint: leave it out.")
    zones_of = None if wanted.zones_of is None else FrozenMap.of(wanted.zones_of)
    chosen: dict[str, Any] = {"method": wanted.method, "hierarchy": wanted.hierarchy, "zones_of": zones_of}
    chosen |= {"revision": wanted.revision} if wanted.revision else {}
    return {**chosen, **thresholds, "protect": thresholds["protect"] or None}


def _refuse_thresholds(method: Method) -> None:
    """Refuse thresholds that were given in so many words to a method that promises no k, even the defaults."""
    context = click.get_current_context()
    source = {said: context.get_parameter_source(n) for n, said in {**_THRESHOLDS, "seed": "--seed"}.items()}
    method.refuse_thresholds([said for said, s in source.items() if s is click.core.ParameterSource.COMMANDLINE])
