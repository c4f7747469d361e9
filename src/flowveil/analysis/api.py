"""What the operator asks of trips before anything is published: describe, compare, study.

Nothing of it is for publication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Unpack

from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows
from flowveil.core.guarantee import Guarantee
from flowveil.methods import find_method
from flowveil.reading.engines import read_trips
from flowveil.request.keywords import ReadingKeywords, TimelessReading

if TYPE_CHECKING:
    from flowveil.analysis.comparison import Comparison
    from flowveil.analysis.description import Description
    from flowveil.analysis.study import Study
    from flowveil.methods.twin_trees import Goal
    from flowveil.methods.twincut import FrontierPoint


def describe(
    source: Any,
    *,
    k: int = 10,
    protect: str | Sequence[str] | None = None,
    max_suppressed: float = 0.1,
    hierarchy: str | None = None,
    time: str | None = None,
    every: str | None = None,
    districts: Any = None,
    **reading: Unpack[TimelessReading],
) -> Description:
    """What is in the data, how much of it is safe already, and what methods would give.

    Internal: not for publication.

    Args:
        source: flows, or trips in any form `read_trips` takes.
        k: the threshold of safe flows.
        protect, max_suppressed, hierarchy: of the floor, the estimates and the advice; see
            `anonymize`.
        time, every: column and step of the time, to estimate what folding it would give; ``hour``
            by default.
        districts: areas that readers care about, between which errors are computed: a level of the
            tree, or a file or table of polygons.
        **reading: how to read the trips; see `read_trips`.

    Examples:
        >>> flowveil.describe("trips.csv", resolution=7, person="person_id", k=10)
        <Description of 83 flows, internal>
    """
    from flowveil.analysis.description import describe_flows

    # A description says which columns look like persons; nothing is published.
    reading.setdefault("ask_person", False)
    if every is not None and time is None:
        raise ParameterError("every is a step of time. Hint: give time (--time COLUMN) with it.")
    if isinstance(source, Flows):
        flows = source
    elif time is not None:
        flows = read_trips(source, time=time, every=every or "hour", **reading).folded()
    else:
        flows = read_trips(source, **reading)
    return describe_flows(
        flows,
        k=k,
        protect=protect,
        max_suppressed=max_suppressed,
        hierarchy=hierarchy,
        districts=districts,
    )


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
        method: ``twincut`` for zones that do not overlap, ``paircut`` for cells that do not
            intersect.
        k, protect, k_population, l, hierarchy: see `anonymize`.
        objective: what is made small: ``error``, ``metres``, ``reconstruction`` or ``cells``.
        up_to: larger shares are not computed; they take most of the time.
        progress: called with the share that is done.

    Examples:
        >>> flows = flowveil.read_trips("trips.csv", resolution=7, person="person_id")
        >>> points = flowveil.frontier(flows, k=10)
        >>> points[0].suppressed_share <= points[-1].suppressed_share
        True
    """
    from flowveil.methods.paircut import frontier as of_cells
    from flowveil.methods.twincut import frontier as of_zones

    sweeps: dict[str, Callable[..., tuple[FrontierPoint, ...]]] = {
        "twincut": of_zones,
        "paircut": of_cells,
    }
    if method not in sweeps:
        raise ParameterError(f"method must be one of {', '.join(sweeps)}; found {method!r}.")
    flows, _ = find_method(method).on_hierarchy(flows, hierarchy)
    guarantee = Guarantee.resolve(flows, k=k, protect=protect, k_population=k_population, l=l)
    asked = guarantee.to_fixed_point(guarantee.prepare(flows))
    return sweeps[method](
        *asked, objective=objective, up_to=up_to, progress=progress or (lambda _: None)
    )


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
    k_population: float | None = None,
    population_only: bool = False,
    **reading: Unpack[ReadingKeywords],
) -> Comparison:
    """Run several methods, several k and several protections on the same input.

    Args:
        source: flows, or trips in any form `read_trips` takes.
        methods: names, or ``all``; or functions (see `anonymize`) of modules that can be imported.
        k: one or several.
        protect: the protections to compare; each is a unit, or several units joined by ``+`` or in
            a sequence. By default people where persons are known, else trips.
        max_suppressed, limits: share that may be suppressed; the same by method, where it differs.
        time_limit: seconds after which a run is stopped and shown as such, not counting the start
            of its process.
        options: options by method.
        hierarchy: ``h3`` or ``halves`` for all methods that work on a tree; by default what each
            one's page says.
        epsilon: one or several ε for methods that add noise, which are then among ``all``; their
            region, level and bound are ``options``.
        k_population, population_only: see `anonymize`.
        **reading: how to read the trips; see `read_trips`.

    Returns:
        All runs with exact measures; ``write(directory)`` makes tables, charts and one page. None
        of it is for publication.

    Examples:
        >>> flowveil.compare(
        ...     "trips.csv", methods=["twincut"], k=10, resolution=7, person="person_id"
        ... )
        <Comparison of 1 runs, private>
    """
    from flowveil.analysis.comparison import compare_flows
    from flowveil.analysis.experiment import Settings

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
        k_population=k_population,
        population_only=population_only,
    )
    return compare_flows(flows, choices)


def run_study(
    source: Any, directory: str | PathLike[str], *, by: str | Sequence[str] = (), **settings: Any
) -> Study:
    """Run an experiment of the papers: every method on everybody and on every segment, or on every
    step of time.

    Args:
        source: flows, or trips in any form it takes.
        directory: where the results go; an earlier study there is continued.
        by: the attributes that segments are made by, where the source is not read yet; those of the
            preset by default, ``none`` for no segments.
        **settings: those of `flowveil.analysis.study.run_study`, such as ``preset``, ``methods``
            and ``k``; and how to read the trips, see `read_trips`, with ``time`` and ``every`` for
            a matrix of each step.

    Returns:
        All results; the folder has them as tidy tables, as Markdown and as LaTeX.
    """
    from flowveil.analysis.experiment import Settings
    from flowveil.analysis.papers import segmented_by
    from flowveil.analysis.study import run_study as run

    names = ("workers", "progress", *(field.name for field in fields(Settings)))
    of_study = {name: settings.pop(name) for name in names if name in settings}
    if isinstance(source, Flows):
        if by or settings:
            raise ParameterError(
                "The source is read already: 'by' and how to read it cannot be given again."
            )
        return run(source, directory, **of_study)
    named = by.split(",") if isinstance(by, str) and by else by
    by = segmented_by(of_study.get("preset"), [name.strip() for name in named])
    flows = read_for_study(source, by=by, **settings)
    return run(flows, directory, **{**of_study, **threshold_of_study(source, of_study, settings)})


def threshold_of_study(
    source: Any, settings: Mapping[str, Any], reading: Mapping[str, Any]
) -> dict[str, float | None]:
    """The population's threshold of a study in the authors' reading, where a study area is cut out.

    Else nothing.
    """
    from flowveil.analysis.papers import authors_threshold, find_preset

    if (
        settings.get("reading") != "authors"
        or settings.get("k_population") is not None
        or not reading.get("within")
    ):
        return {}
    preset = find_preset(settings.get("preset"))
    k = settings.get("k") or (10 if preset is None else preset.k)
    return {"k_population": authors_threshold(source, k, reading)}


def read_for_study(source: Any, *, by: Sequence[str], by_many: bool = False, **how: Any) -> Flows:
    """Returns the flows by attributes or by time; all flows together without either."""
    sliced: dict[str, Any] = {"by": by, "by_many": by_many} if by else {}
    return read_trips(source, **sliced, **how)
