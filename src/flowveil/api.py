"""The front door: read trips, describe, anonymise and compare them, check and picture a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from flowveil.engines import read_flows, read_slices, read_trips
from flowveil.errors import DataError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.methods import find_method
from flowveil.paths import named_path
from flowveil.reading import Reading
from flowveil.release.noisy import NoisyCounts, NoisyRelease
from flowveil.release.plan import Release
from flowveil.release.sliced import anonymize_slices
from flowveil.slices import SlicedFlows

if TYPE_CHECKING:
    from flowveil.experiments.comparison import Comparison
    from flowveil.experiments.description import Description
    from flowveil.experiments.study import Study
    from flowveil.methods.twin_trees import Goal
    from flowveil.methods.twincut import FrontierPoint
    from flowveil.sources.gps import Prepared

__all__ = [
    "anonymize",
    "anonymize_slices",
    "compare",
    "describe",
    "frontier",
    "picture",
    "prepare",
    "read_slices",
    "read_trips",
    "read_zones",
    "run_study",
    "verify_folder",
]


def read_zones(source: Any, **columns: Any) -> Any:
    """Read a map of zones and the hierarchy over them; see `flowveil.zoning.files.read_zones`."""
    from flowveil.zoning.files import read_zones as read

    return read(source, **columns)


@overload
def anonymize(flows: Flows, method: Literal["laplace"], **options: Any) -> NoisyRelease: ...


@overload
def anonymize(
    flows: Flows,
    method: str = "odkanon",
    k: int = 10,
    protect: str | Sequence[str] = "trips",
    max_suppressed: float = 0.1,
    **options: Any,
) -> Release: ...


def anonymize(
    flows: Flows,
    method: str = "twincut",
    k: int = 10,
    protect: str | Sequence[str] = "trips",
    max_suppressed: float = 0.1,
    *,
    k_population: float | None = None,
    l: int | None = None,  # noqa: E741  # the papers' letter
    **options: Any,
) -> Release | NoisyRelease:
    """Make an OD matrix publishable.

    Every cell of the returned release was counted anew from the flows and satisfies the guarantee. With a noisy
    method (``laplace``) the release is a `NoisyRelease`: noisy counts under differential privacy, to which k,
    protect, max_suppressed and l do not apply; giving them is refused.

    Args:
        flows: what `read_trips` returns.
        method: name of a method; see `flowveil.METHODS`.
        k: how many every cell must hide.
        protect: what is counted: ``trips``, ``people`` or ``population``, or several of them.
        max_suppressed: share that may be suppressed: of the volume, unless the method's page says otherwise.
        k_population: absolute threshold where the population is protected; by default k times the mean weight.
        l: fewest tiles in which the trips of a cell begin, and in which they end.
        **options: options of the method.

    Raises:
        ParameterError: a parameter is out of range or unknown.
        DataError: the data does not have what the guarantee needs, or has no flows.
        InfeasibleError: no release can meet the guarantee.
        GuaranteeError: the recount contradicts the method; nothing may be published.
    """
    if not isinstance(flows, Flows):
        hint = "slices are for anonymize_slices" if isinstance(flows, SlicedFlows) else "pass what read_trips returns"
        raise ParameterError(f"anonymize needs flows; found {type(flows).__name__}. Hint: {hint}.")
    chosen = find_method(method)
    chosen.check_options(options)
    if isinstance(max_suppressed, bool) or not isinstance(max_suppressed, int | float):
        raise ParameterError(f"max_suppressed must be a number; found {type(max_suppressed).__name__}.")
    if not 0 <= max_suppressed < 1:
        raise ParameterError(f"max_suppressed must be at least 0 and below 1; found {max_suppressed!r}.")
    if len(flows) == 0:
        raise DataError("There are no flows to anonymise.")
    if chosen.noisy:
        given = {
            "k": k != 10,
            "protect": protect not in ("trips", ("trips",), ["trips"]),
            "max_suppressed": max_suppressed != 0.1,
            "k_population": k_population is not None,
            "l": l is not None,
        }
        refuse_thresholds(method, [name for name, is_given in given.items() if is_given])
    asked: dict[str, Any] = {"k_population": k_population, "l": l, "max_suppressed": max_suppressed}
    decided: Any
    if chosen.noisy:
        decided = chosen.plan(flows, **options)
    else:
        guarantee = Guarantee.resolve(flows, k=k, protect=protect, k_population=k_population, l=l)
        flows = guarantee.prepare(flows)
        decided = chosen.plan(flows, guarantee, max_suppressed=max_suppressed, **options)
    if isinstance(decided, NoisyCounts):
        return NoisyRelease.of(flows, decided, method=method, parameters=chosen.parameters(flows, {}, options))
    asked = {"k": guarantee.k, "protect": list(guarantee.units), **asked}
    parameters = chosen.parameters(flows, asked, options)
    return Release.from_plan(flows, decided, guarantee, method=method, parameters=parameters)


def refuse_thresholds(method: str, given: Sequence[str]) -> None:
    """Say that a noisy method keeps no thresholds, rather than ignore that somebody asked for them.

    Raises:
        ParameterError: something was given.
    """
    if given:
        raise ParameterError(
            f"Method '{method}' adds noise and promises no smallest cell: {', '.join(given)} cannot be kept by it. "
            "Hint: leave that out and give epsilon, and bound where persons are known."
        )


def describe(source: Any, *, k: int = 10, max_suppressed: float = 0.1, **reading: Any) -> Description:
    """What is in the data, and how much of it is safe already. Internal: counted from raw data, not for publication.

    Args:
        source: flows, or trips in any form `read_trips` takes.
        k: what safety is held against.
        max_suppressed: share that may be suppressed, for the floor and the advice.
        **reading: how to read the trips; see `read_trips`.
    """
    from flowveil.experiments.description import describe_flows

    flows = source if isinstance(source, Flows) else read_trips(source, **reading)
    return describe_flows(flows, k=k, max_suppressed=max_suppressed)


def frontier(
    flows: Flows,
    *,
    k: int = 10,
    protect: str | Sequence[str] = "trips",
    objective: Goal = "error",
    k_population: float | None = None,
    l: int | None = None,  # noqa: E741
) -> tuple[FrontierPoint, ...]:
    """How fine homogeneous zones can be for every share that may be suppressed, in one run. Internal.

    Args:
        flows: what `read_trips` returns.
        k: how many every cell must hide.
        protect: what is counted; see `anonymize`.
        objective: what TwinCut makes small: ``error``, ``metres``, ``reconstruction`` or ``cells``.
        k_population: absolute threshold where the population is protected.
        l: fewest tiles in which the trips of a cell begin, and in which they end.
    """
    from flowveil.methods.twincut import frontier as sweep

    guarantee = Guarantee.resolve(flows, k=k, protect=protect, k_population=k_population, l=l)
    return sweep(guarantee.prepare(flows), guarantee, objective=objective)


def compare(
    source: Any,
    *,
    methods: str | Sequence[str] = "all",
    k: int | Sequence[int] = (5, 10, 20),
    protect: Sequence[str | Sequence[str]] = ("trips",),
    max_suppressed: float = 0.1,
    time_limit: float = 300.0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    **reading: Any,
) -> Comparison:
    """Run several methods, several k and several protections on the same input.

    Args:
        source: flows, or trips in any form `read_trips` takes.
        methods: names, or ``all``.
        k: one or several.
        protect: the protections to compare; each is a unit, or several units joined by ``+`` or in a sequence.
        max_suppressed: share that may be suppressed.
        time_limit: seconds that one run may take, not counting the start of its process; it is then stopped and shown
            as such.
        options: options by method.
        **reading: how to read the trips; see `read_trips`.

    Returns:
        All runs, with published measures only; ``write(directory)`` makes tables, charts and one page.
    """
    from flowveil.experiments.comparison import compare_flows

    flows = source if isinstance(source, Flows) else read_trips(source, **reading)
    return compare_flows(
        flows,
        methods=methods,
        k=k,
        protect=protect,
        max_suppressed=max_suppressed,
        time_limit=time_limit,
        options=options,
    )


def run_study(source: Any, directory: str | PathLike[str], *, by: str | Sequence[str] = (), **settings: Any) -> Study:
    """Run the experiment of the papers: every method on everybody and on every segment, for every protection.

    Args:
        source: what `read_slices` returns, or trips in any form it takes.
        directory: where the results go; an earlier study there is continued.
        by: the attributes that segments are made by, where the source is not read yet.
        **settings: ``methods``, ``protections``, ``k``, ``max_suppressed``, ``time_limit``, ``workers``, ``progress``,
            see `flowveil.experiments.study.run_study`; and how to read the trips, see `read_slices`.

    Returns:
        All results; the folder has them as tidy tables, as Markdown and as LaTeX.
    """
    from flowveil.experiments.study import run_study as run

    of_study = {name: settings.pop(name) for name in run.__kwdefaults__ or {} if name in settings}
    if isinstance(source, SlicedFlows):
        if by or settings:
            raise ParameterError("The source is read already: 'by' and how to read it cannot be given again.")
        return run(source, directory, **of_study)
    return run(read_slices(source, by=by, **settings), directory, **of_study)


def prepare(name: str, source: Any, **options: Any) -> Prepared:
    """Make trips from the files of a known data set; see `flowveil.sources.prepare`."""
    from flowveil.sources import prepare as make

    return make(name, source, **options)


def picture(
    release: Release | NoisyRelease | str | PathLike[str],
    path: str | PathLike[str],
    *,
    show: str = "origins",
    **style: Any,
) -> Path:
    """Draw a map of a release into a PNG, SVG or PDF file.

    Args:
        release: a release, or the folder of one: published files are enough.
        path: the file; its suffix says the format.
        show: ``origins``, ``destinations``, ``both`` or ``flows``.
        **style: see `flowveil.report.pictures.draw`.
    """
    from flowveil.report.pictures import picture_of_folder

    if isinstance(release, Release | NoisyRelease):
        return release.picture(path, show=show, **style)
    return picture_of_folder(named_path(release, what="the release"), path, show=show, **style)


def verify_folder(
    directory: str | PathLike[str],
    *,
    against: Any,
    expect: Mapping[str, Any] | None = None,
    unread: list[str] | None = None,
    strict: bool = False,
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
        strict: whether it is a finding that another version made the release: its page, its texts and its text
            exports can be made again, and compared byte by byte, by the version that made them alone.
        **reading: how to read them, where it should differ from what the release's report says.

    Returns:
        One plain line for each contradiction; empty when the release holds.
    """
    from flowveil.verify.exports import EXPORTS
    from flowveil.verify.files import check_folder
    from flowveil.verify.release import verify_release

    folder = named_path(directory, what="the release")
    if not folder.is_dir():
        raise ParameterError(f"'{folder.name}' is not a folder. Hint: name the folder that holds manifest.json.")
    findings = check_folder(folder, exports=EXPORTS)
    if findings:
        # The report says how to read the trips; it is not asked before it is known to be the one that was published.
        return findings
    recorded = _parameters_of(folder)
    engine = {name: reading.pop(name) for name in ("engine", "progress") if name in reading}
    sliced = read_flows(against, Reading.from_parameters(recorded, **reading), **engine)
    flows = sliced if recorded.get("slices") is not None else sliced.whole
    return verify_release(folder, flows, expect=expect, unread=unread, strict=strict)


def _parameters_of(folder: Path) -> dict[str, Any]:
    """What the release's own report says of how it was made."""
    from flowveil.verify.files import read_json

    try:
        parameters = read_json(folder / "report.json")["parameters"]
        return dict(parameters) if isinstance(parameters["columns"], dict) else {}
    except (OSError, ValueError, KeyError, TypeError):
        # A report that cannot be read is a finding; the verification itself says so.
        return {}
