"""Runs a `Request`: checks it, reads the trips, anonymises and publishes them.

The command line, recipes and the workbench all run their requests here, so that the same request gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.errors import ParameterError, option
from flowveil.request import Request, find_setting
from flowveil.settings import split

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.methods import Method
    from flowveil.slices import SlicedFlows

Progress = Callable[[float], None]

#: Settings that have no meaning for a single matrix.
_NEED_SLICES = ("total", "common_zones", "fold_time", "fold", "resume", "time_format", "timezone")
#: Settings of the reading that only slices have.
_OF_SLICES = ("by", "by_many", "every")
#: Thresholds that noise cannot keep.
_THRESHOLDS = (
    "k", "protect", "max_suppressed", "k_population", "l", "l_places", "dominance", "stricter", "t",
    "allow_small_k", "population_only",
)  # fmt: skip
#: Rules that exist for a single matrix only.
_SINGLE = ("dominance", "stricter", "l_places", "t")


# ---- the request -----------------------------------------------------------------------------------------------


def with_matrices(request: Request) -> Request:
    """Several matrices of an OMX file become slices, unless trips are sliced by something else or one is chosen."""
    source = request.input.input
    if request.slices.by or source is None or not source.casefold().endswith(".omx") or not Path(source).is_file():
        return request
    from flowveil.reading.matrices import MATRIX, matrix_names

    several = len(request.input.matrix or matrix_names(Path(source))) > 1
    return request.with_values(by=(MATRIX,)) if several else request


def has_slices(request: Request) -> bool:
    """Whether several matrices, or one with times, are made."""
    slices = request.slices
    unused = ("time_format", "timezone") if only_for_ledger(request) else ()
    needing = any(request.given.get(name) for name in _NEED_SLICES if name not in unused)
    timed = slices.time and not only_for_ledger(request)
    return slices.during is None and bool(slices.by or timed or slices.every or needing)


def has_folds(request: Request) -> bool:
    """Whether one matrix is made whose cells have times or groups of values."""
    return bool(request.slices.fold_time or request.slices.fold)


def only_for_ledger(request: Request) -> bool:
    """Returns whether the time column makes no slices and only the ledger uses its days."""
    slices = request.slices
    return bool(slices.time and request.output.ledger and not slices.every and slices.during is None)


def method_name(request: Request) -> str | None:
    """The name of the method that a request means; None over the zones of an earlier release."""
    if request.method.zones_of is not None or request.method.revision:
        return request.method.method
    slices = request.slices
    from flowveil.anonymization import DEFAULT_METHOD, DEFAULT_OF_FOLDS, DEFAULT_OF_MAPS

    needs_map = has_slices(request) or request.zones.same_zones or request.protection.t is not None
    default = DEFAULT_OF_MAPS if needs_map else DEFAULT_METHOD
    default = "odkanon" if slices.common_zones else DEFAULT_OF_FOLDS if has_folds(request) else default
    return request.method.method or default


def find_request_method(request: Request) -> Method | None:
    """Returns the method of a request; None over the zones of an earlier release."""
    from flowveil.methods import find_method

    name = method_name(request)
    return None if name is None else find_method(name)


def adds_noise(request: Request) -> bool:
    """Whether the method guarantees ε instead of k."""
    method = find_request_method(request)
    return method is not None and method.promises == "epsilon"


def parsed_options(request: Request) -> dict[str, Any]:
    """The options of the method in their own types."""
    method = find_request_method(request)
    if method is None:
        return {}
    given = request.method.options.items()
    texts = {name: ",".join(map(str, v)) if isinstance(v, list | tuple) else str(v) for name, v in given}
    options = {name: method.parse_option(name, text) for name, text in texts.items()}
    if request.method.seed is not None and "seed" in method.options:
        options["seed"] = request.method.seed
    return options


def steps_of(request: Request) -> list[str]:
    """The steps of time, the finest first."""
    from flowveil.times import Every

    known = {Every.parse(text) for text in request.slices.every}
    return [step.name for step in sorted(known, key=lambda e: (-e.label_length, e.minutes or 0))]


# ---- refusals before reading ---------------------------------------------------------------------------------------


def check_request(request: Request) -> None:
    """Refuse what cannot be done, before anything is read."""
    from flowveil.published.about import checked
    from flowveil.published.exports import check_formats, parse_formats

    checked(_about(request))
    _check_method(request)
    _check_numbers(request)
    several = ("by", "every", "total", "common_zones", "fold_time", "fold", "resume")
    if request.slices.during is not None:
        if any(name in request.given for name in several):
            raise ParameterError(
                f"{option('during')} makes one matrix: give it with {option('time')}, not with slices."
            )
    elif has_slices(request):
        _check_slices(request)
    if request.zones.zones is None:
        for name in request.arguments("map"):
            raise ParameterError(f"{option(name)} is given without {option('zones')}.")
    how = {"folded": has_folds(request), "revised": bool(request.method.revision)}
    contact = request.output.contact is not None
    check_formats(parse_formats(request.output.formats), zones=0, mapped=True, contact=contact, **how)


def _check_method(request: Request) -> None:
    method = find_request_method(request)
    if method is None:
        if request.method.options:
            raise ParameterError(f"{_flag('options')} is for a method, and --zones-of has none. Hint: leave it out.")
        return
    if request.method.zones_of is None and not request.method.revision:
        given = [_flag(name) for name in (*_THRESHOLDS, "seed") if name in request.given]
        method.refuse_thresholds(given)
        parsed_options(request)
    exact = ("resume", "accept_differencing")
    if method.promises != "k" and has_slices(request) and any(name in request.given for name in exact):
        raise ParameterError(f"{' and '.join(map(option, exact))} are not for methods that add noise.")
    if (request.input.key_file is not None) != (method.promises == "perturbation"):
        raise ParameterError(
            f"Method '{method.name}' needs a secret key: {_flag('key_file')} FILE; flowveil key FILE writes a new one."
            if method.promises == "perturbation"
            else f"{_flag('key_file')} is for methods that perturb counts; '{method.name}' does not."
        )
    if request.slices.values and method.promises != "epsilon":
        raise ParameterError(f"{option('values')} is for methods that add noise; others find the values in the data.")


def _check_numbers(request: Request) -> None:
    """Refuses means, totals and medians with what could reveal one person's value by a difference."""
    from flowveil.record_values import STATISTICS, refuse_numbers

    if not any(name in request.given for name in STATISTICS):
        return
    method = find_request_method(request)
    given = {_flag(name): name in request.given for name in ("total", "accept_differencing", "revision")}
    given["a second --every"] = len(steps_of(request)) > 1
    given["--engine spark"] = request.resources.engine == "spark"
    if method is not None:
        given[f"method '{method.name}'"] = method.promises != "k" or method.hierarchy is None
    refuse_numbers(given)


def _check_slices(request: Request) -> None:
    from flowveil.slices import check_slice_columns

    slices, steps = request.slices, request.slices.every
    time = None if only_for_ledger(request) else slices.time
    check_slice_columns((*slices.by, *slices.fold), time=time, every=steps[0] if steps else None)
    for name in _SINGLE:
        if name in request.given:
            raise ParameterError(f"{_flag(name)} is for a single matrix: not for slices, nor with folds.")
    if not has_folds(request):
        return
    refused = ("by", "total", "common_zones", "accept_differencing", "resume", "zones_of", "revision")
    several = [_flag(name) for name in refused if name in request.given]
    several += ["a second --every"] if len(steps_of(request)) > 1 else []
    if several or bool(steps) != slices.fold_time:
        wrong = "no --every was given" if slices.fold_time else "--every was given without --fold-time"
        found = f"found {', '.join(several)}" if several else wrong
        raise ParameterError(
            "--fold-time and --fold make one matrix of cells that have times or groups: of one --time and one --every, "
            f"and a tree for each attribute, without other slices or earlier zones; {found}."
        )


def _flag(name: str) -> str:
    return option(name, flag=find_setting(name).flag)


# ---- reading -------------------------------------------------------------------------------------------------------


@contextmanager
def resources(request: Request) -> Iterator[None]:
    """Apply the limits of memory and threads, and the Spark cluster, inside the block."""
    from flowveil.engines.spark_session import cluster
    from flowveil.reading.limits import limits

    given = request.resources
    with ExitStack() as stack:
        stack.enter_context(limits(memory=given.memory_limit, threads=given.threads, temp_dir=given.temp_dir))
        if given.spark_master is not None or given.driver_flows is not None:
            stack.enter_context(cluster(master=given.spark_master, driver_flows=given.driver_flows))
        yield


def reading_arguments(request: Request, *, zones: Any = None) -> dict[str, Any]:
    """Returns the arguments of `flowveil.read_trips`, without slices and numbers; ``zones`` is the map, if read."""
    left_out = (*_OF_SLICES, *request.numbers.given)
    given = {name: value for name, value in request.arguments("reading").items() if name not in left_out}
    if request.resources.engine is not None:
        given["engine"] = request.resources.engine
    protect = request.protection.protect
    if protect and not any("people" in unit for unit in protect):
        given["ask_person"] = False
    if zones is not None:
        given["zones"] = zones
    elif request.zones.zones is not None and request.arguments("map"):
        from flowveil.zoning.files import read_zones

        given["zones"] = read_zones(request.zones.zones, **map_columns(request))
    like = request.method.zones_of or (request.method.revision[-1] if request.method.revision else None)
    return given if like is None else {**_read_like(like), **given}


def map_columns(request: Request) -> dict[str, Any]:
    """The columns of the map, as `flowveil.read_zones` takes them."""
    return {name.removeprefix("zones_"): value for name, value in request.arguments("map").items()}


def _read_like(earlier: str) -> dict[str, Any]:
    """How the trips of an earlier release were read."""
    from flowveil.release.folder import ReleaseFolder
    from flowveil.release.zone_map import FrozenMap

    path = Path(earlier)
    about = {"resolution": None, "same_zones": None} | dict(
        ReleaseFolder(path).statement.parameters if path.is_dir() else FrozenMap.read(path).about
    )
    like = {"resolution": about["resolution"], "same_zones": about["same_zones"]}
    return {name: value for name, value in like.items() if value}


def slicing_arguments(request: Request) -> dict[str, Any]:
    """Returns the arguments of `flowveil.read_slices` in addition to `reading_arguments`."""
    slices = request.slices
    # With noise the values are declared: a large number of them reveals nothing.
    by_many = slices.by_many or adds_noise(request)
    steps = steps_of(request)
    return {"by": (*slices.by, *slices.fold), "by_many": by_many, "every": steps[0] if steps else None}


def read_request(
    request: Request, *, source: Any = None, zones: Any = None, progress: Progress | None = None
) -> Flows | SlicedFlows:
    """Read the trips of a request, or of ``source``: slices where it has several matrices, else flows."""
    from flowveil.engines import read_slices, read_trips
    from flowveil.zoning.files import read_tree

    source = request.input.input if source is None else source
    how = {**reading_arguments(request, zones=zones), **request.numbers.given}
    if not has_slices(request):
        if request.slices.during is None and not only_for_ledger(request):
            how.pop("time", None)
        return read_trips(source, progress=progress, **how)
    trees = {name: read_tree(place) for name, place in request.slices.fold.items()}
    sliced = read_slices(source, progress=progress, **slicing_arguments(request), **how)
    return sliced.folded(trees) if has_folds(request) else sliced


# ---- anonymising and writing ---------------------------------------------------------------------------------------


def anonymize_arguments(request: Request) -> dict[str, Any]:
    """What `flowveil.anonymize` and `flowveil.anonymize_slices` take of a request: method, thresholds, options."""
    given = {name: value for name, value in request.arguments("anonymize").items() if name not in ("options", "seed")}
    method = method_name(request)
    given |= {} if method is None else {"method": method}
    if request.method.zones_of is not None:
        from flowveil.release.zone_map import FrozenMap

        given["zones_of"] = FrozenMap.read(request.method.zones_of)
    return {**given, **parsed_options(request)}


def slice_arguments(request: Request) -> dict[str, Any]:
    """Returns the arguments of `flowveil.anonymize_slices` alone."""
    named = ("total", "common_zones", "accept_differencing")
    given: dict[str, Any] = {name: True for name in named if name in request.given}
    given |= {"also_every": steps_of(request)[1:], "workers": request.resources.workers or os.cpu_count() or 1}
    return given | ({"values": declared_values(request)} if adds_noise(request) else {})


def declared_values(request: Request) -> dict[str, list[str] | str]:
    """The values of slice columns that were declared for noise; a period represents the times in it."""
    from flowveil.times import TIME, Every

    given: dict[str, list[str] | str] = {}
    for text in request.slices.values:
        name, equals, values = text.partition("=")
        if not equals:
            raise ParameterError(f"{option('values')} must be NAME=VALUE,VALUE; found '{text}'.")
        given[name.strip()] = values.strip() if name.strip() == TIME else list(split(values))
    steps, period = steps_of(request), request.output.period
    if steps and TIME not in given and not Every.parse(steps[0]).is_periodic and period is not None:
        given[TIME] = period
    return given


def _about(request: Request) -> dict[str, Any]:
    from flowveil.published.about import ENTRIES

    return {name: getattr(request.output, name) for name in ENTRIES}


def writing_arguments(request: Request) -> dict[str, Any]:
    """What `flowveil.api.publish` takes of a request, checked."""
    from flowveil.api import refuse_total_without_ledger
    from flowveil.published.about import checked
    from flowveil.published.html import tile_server
    from flowveil.published.user_outlines import read_own_lines

    output = request.output
    if output.ledger is None:
        refuse_total_without_ledger(output.epsilon_total)
    if output.context is not None:
        read_own_lines(output.context)
    plain = ("formats", "context", "replace_stronger", "ledger", "epsilon_total")
    return {
        **checked(_about(request)),
        **{name: getattr(output, name) for name in plain},
        "basemap": tile_server(output.basemap),
        "accept_differencing": request.slices.accept_differencing,
    }


def anonymize_request(request: Request, flows: Any, *, progress: Progress | None = None, resume: Any = None) -> Any:
    """Anonymise what `read_request` returned."""
    from flowveil.anonymization import anonymize, anonymize_slices
    from flowveil.flows import Flows

    asked: Mapping[str, Any] = anonymize_arguments(request)
    if isinstance(flows, Flows):
        return anonymize(flows, **asked)
    return anonymize_slices(flows, progress=progress, resume=resume, **slice_arguments(request), **asked)
