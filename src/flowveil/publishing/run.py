"""Runs a `Request`: checks it, reads the trips, anonymises and publishes them.

The command line, recipes and the workbench all run their requests here, so that the same request
gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.core.errors import ParameterError, option
from flowveil.request import support
from flowveil.request.request import Request
from flowveil.request.settings import split

if TYPE_CHECKING:
    from flowveil.core.flows import Flows
    from flowveil.methods import Method

Progress = Callable[[float], None]

#: Settings that have no meaning for a single matrix.
_NEED_SLICES = (
    "common_zones", "separate", "fold_time", "fold", "resume", "time_format", "timezone",
)  # fmt: skip
#: Settings of the reading that only slices have.
_OF_SLICES = ("by", "by_many", "every")


# ---- the request ---------------------------------------------------------------------------------


def with_matrices(request: Request) -> Request:
    """Several matrices of an OMX file become slices, unless trips are sliced by something else or
    one is chosen.
    """
    from flowveil.reading.formats import time_and_zones

    source, slices = request.input.input, request.slices
    time, _ = time_and_zones(request.input.source_format)
    if time is not None and slices.time is None and (slices.every or slices.during):
        request = request.with_values(time=time)
    if (
        request.slices.by
        or source is None
        or not source.casefold().endswith(".omx")
        or not Path(source).is_file()
    ):
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
    """Whether one release is made whose cells have times or values."""
    from flowveil.core.times import Every
    from flowveil.publishing.anonymization import folds_by_default

    slices = request.slices
    if slices.fold_time or slices.fold:
        return True
    if slices.separate or not has_slices(request) or not (slices.by or slices.every):
        return False
    every = Every.parse(slices.every[0]) if slices.every else None
    columns = (*slices.by, *slices.every)
    return folds_by_default(method_name(request), request.given, columns, every)


def only_for_ledger(request: Request) -> bool:
    """Returns whether the time column makes no slices and only the ledger uses its days."""
    slices = request.slices
    return bool(
        slices.time and request.output.ledger and not slices.every and slices.during is None
    )


def method_name(request: Request) -> str | None:
    """The name of the method that a request means; None over the zones of an earlier release."""
    if request.method.zones_of is not None or request.method.revision:
        return request.method.method
    from flowveil.publishing.anonymization import DEFAULT_METHOD, DEFAULT_OF_MAPS

    needs_map = request.zones.same_zones or request.protection.t is not None
    default = DEFAULT_OF_MAPS if needs_map else DEFAULT_METHOD
    default = "odkanon" if request.slices.common_zones else default
    return request.method.method or default


def find_request_method(request: Request) -> Method | None:
    """Returns the method of a request; None over the zones of an earlier release."""
    from flowveil.methods import find_method

    name = method_name(request)
    return None if name is None else find_method(name)


def adds_noise(request: Request) -> bool:
    """Whether the method guarantees ε instead of k."""
    method = find_request_method(request)
    return method is not None and method.counts == "noisy"


def parsed_options(request: Request) -> dict[str, Any]:
    """The options of the method in their own types."""
    method = find_request_method(request)
    if method is None:
        return {}
    given = request.method.options.items()
    texts = {
        name: ",".join(map(str, v)) if isinstance(v, list | tuple) else str(v) for name, v in given
    }
    options = {name: method.parse_option(name, text) for name, text in texts.items()}
    if request.method.seed is not None and "seed" in method.options:
        options["seed"] = request.method.seed
    if request.zones.districts is not None:
        options["districts"] = method.parse_option("districts", request.zones.districts)
    return options


def step_of(request: Request) -> str | None:
    """The step of time as flowveil names it."""
    from flowveil.core.times import Every

    every = request.slices.every
    return Every.parse(every[0]).name if every else None


# ---- refusals before reading ---------------------------------------------------------------------


def check_request(request: Request) -> None:
    """Refuse what cannot be done, before anything is read."""
    from flowveil.published.about import checked
    from flowveil.published.exports import check_formats, parse_formats

    checked(_about(request))
    features = support.asked_of(request.given)
    support.check(features, expected_of(request))
    support.check_needs(features)
    parsed_options(request)
    if request.slices.during is None and has_slices(request):
        _check_slices(request)
    how = {"folded": has_folds(request), "revised": bool(request.method.revision)}
    publisher = bool(request.output.contact or request.output.publisher)
    check_formats(
        parse_formats(request.output.formats), zones=0, mapped=True, publisher=publisher, **how
    )


def expected_of(request: Request) -> support.Expected:
    """What the release of a request will be."""
    method = find_request_method(request)
    dimensions: support.Dimensions = (
        "fold" if has_folds(request) else "separate" if has_slices(request) else "none"
    )
    expected = support.Expected() if method is None else method.expected
    return replace(expected, dimensions=dimensions)


def _check_slices(request: Request) -> None:
    from flowveil.core.slices import check_slice_columns

    slices, steps = request.slices, request.slices.every
    time = None if only_for_ledger(request) else slices.time
    check_slice_columns((*slices.by, *slices.fold), time=time, every=steps[0] if steps else None)
    if slices.fold_time and not steps:
        raise ParameterError("--fold-time needs a step of time. Hint: --every hour, for example.")


# ---- reading -------------------------------------------------------------------------------------


@contextmanager
def resources(request: Request) -> Iterator[None]:
    """Apply the limits of memory and threads, and the Spark cluster, inside the block."""
    from flowveil.reading.engines.spark_session import cluster
    from flowveil.system.limits import limits

    given = request.resources
    with ExitStack() as stack:
        stack.enter_context(
            limits(memory=given.memory_limit, threads=given.threads, temp_dir=given.temp_dir)
        )
        if given.spark_master is not None or given.driver_flows is not None:
            stack.enter_context(cluster(master=given.spark_master, driver_flows=given.driver_flows))
        yield


def reading_arguments(request: Request, *, zones: Any = None) -> dict[str, Any]:
    """Returns the arguments of `flowveil.read_trips`, without slices and numbers.

    ``zones`` is the map, if read.
    """
    left_out = (*_OF_SLICES, *request.numbers.given)
    given = {
        name: value for name, value in request.arguments("reading").items() if name not in left_out
    }
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
    like = request.method.zones_of or (
        request.method.revision[-1] if request.method.revision else None
    )
    return given if like is None else {**_read_like(like), **given}


def map_columns(request: Request) -> dict[str, Any]:
    """The columns of the map, as `flowveil.read_zones` takes them."""
    given = {name.removeprefix("zones_"): value for name, value in request.arguments("map").items()}
    return {**({"crs": request.input.crs} if request.input.crs else {}), **given}


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
    """Returns the arguments of `flowveil.read_trips` for slices."""
    slices = request.slices
    # With noise the values are declared: a large number of them reveals nothing.
    by_many = slices.by_many or adds_noise(request)
    return {
        "by": (*slices.by, *slices.fold),
        "by_many": by_many,
        "every": step_of(request),
    }


def read_request(
    request: Request, *, source: Any = None, zones: Any = None, progress: Progress | None = None
) -> Flows:
    """Read the trips of a request, or of ``source``.

    Slices where it has several matrices, else flows.
    """
    from flowveil.reading.engines import read_trips
    from flowveil.zoning.files import read_tree

    source = request.input.input if source is None else source
    how = {**reading_arguments(request, zones=zones), **request.numbers.given}
    if not has_slices(request):
        if request.slices.during is None and not only_for_ledger(request):
            how.pop("time", None)
        return read_trips(source, progress=progress, **how)
    trees = {name: read_tree(place) for name, place in request.slices.fold.items()}
    sliced = read_trips(source, progress=progress, **slicing_arguments(request), **how)
    return sliced.folded(trees) if has_folds(request) else sliced


# ---- anonymising and writing ---------------------------------------------------------------------


def anonymize_arguments(request: Request) -> dict[str, Any]:
    """What `flowveil.anonymize` and `flowveil.anonymize_slices` take of a request.

    Method, thresholds, options.
    """
    given = {
        name: value
        for name, value in request.arguments("anonymize").items()
        if name not in ("options", "seed")
    }
    method = method_name(request)
    given |= {} if method is None else {"method": method}
    if request.method.zones_of is not None:
        from flowveil.release.zone_map import FrozenMap

        given["zones_of"] = FrozenMap.read(request.method.zones_of)
    return {**given, **parsed_options(request)}


def slice_arguments(request: Request) -> dict[str, Any]:
    """Returns the arguments of `flowveil.anonymize_slices` alone."""
    given: dict[str, Any] = {"workers": request.resources.workers or os.cpu_count() or 1}
    given["separate"] = request.slices.separate
    given |= {"common_zones": True} if request.slices.common_zones else {}
    return given | ({"values": declared_values(request)} if adds_noise(request) else {})


def declared_values(request: Request) -> dict[str, list[str] | str]:
    """The values of slice columns that were declared for noise.

    A period represents the times in it.
    """
    from flowveil.core.times import TIME, Every

    given: dict[str, list[str] | str] = {}
    for text in request.slices.values:
        name, equals, values = text.partition("=")
        if not equals:
            raise ParameterError(f"{option('values')} must be NAME=VALUE,VALUE; found '{text}'.")
        given[name.strip()] = values.strip() if name.strip() == TIME else list(split(values))
    step, period = step_of(request), request.output.period
    if step and TIME not in given and not Every.parse(step).is_periodic and period is not None:
        given[TIME] = period
    return given


def _about(request: Request) -> dict[str, Any]:
    from flowveil.published.about import ENTRIES

    return {name: getattr(request.output, name) for name in ENTRIES}


def writing_arguments(request: Request) -> dict[str, Any]:
    """What `flowveil.publishing.api.publish` takes of a request, checked."""
    from flowveil.published.about import checked
    from flowveil.published.html import tile_server
    from flowveil.published.user_outlines import read_own_lines

    output = request.output
    if output.context is not None:
        read_own_lines(output.context)
    plain = ("formats", "context", "replace_stronger", "ledger", "epsilon_total")
    return {
        **checked(_about(request)),
        **{name: getattr(output, name) for name in plain},
        "basemap": tile_server(output.basemap),
        "accept_differencing": output.accept_differencing,
    }


def anonymize_request(
    request: Request, flows: Any, *, progress: Progress | None = None, resume: Any = None
) -> Any:
    """Anonymise what `read_request` returned."""
    from flowveil.publishing.anonymization import anonymize

    asked = anonymize_arguments(request)
    if flows.slice_columns:
        asked |= {"progress": progress, "resume": resume, **slice_arguments(request)}
    return anonymize(flows, **asked)
