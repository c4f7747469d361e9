"""The front door: read trips, describe, anonymise and compare them, check and picture a release."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.errors import DataError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.methods import Method, find_method
from flowveil.plan import Release
from flowveil.trips import read_trips

if TYPE_CHECKING:
    from flowveil.comparison import Comparison
    from flowveil.description import Description

__all__ = ["anonymize", "compare", "describe", "picture", "read_trips", "read_zones", "verify_folder"]

#: What `read_trips` takes by the name of a role, and what else decides how rows are read.
_ROLES = ("origin", "destination", "origin_tile", "destination_tile", "person", "weight", "trips")
_READING = ("max_dropped", "skip_unknown")


def read_zones(source: Any, **columns: Any) -> Any:
    """Read a map of zones and the hierarchy over them; see `flowveil.zoning.files.read_zones`."""
    from flowveil.zoning.files import read_zones as read

    return read(source, **columns)


def anonymize(
    flows: Flows,
    method: str = "odkanon",
    k: int = 10,
    protect: str | Sequence[str] = "trips",
    max_suppressed: float = 0.1,
    *,
    k_population: float | None = None,
    l: int | None = None,  # noqa: E741  # the papers' letter
    **options: Any,
) -> Release:
    """Make an OD matrix publishable.

    Every cell of the returned release was counted anew from the flows and satisfies the guarantee.

    Args:
        flows: what `read_trips` returns.
        method: name of a method; see `flowveil.METHODS`.
        k: how many every cell must hide.
        protect: what is counted: ``trips``, ``people`` or ``population``, or several of them.
        max_suppressed: share that may be suppressed: of the volume, unless the method's page says otherwise.
        k_population: absolute threshold where the population is protected; by default k times the mean weight.
        l: fewest tiles under each end of a cell.
        **options: options of the method.

    Raises:
        ParameterError: a parameter is out of range or unknown.
        DataError: the data does not have what the guarantee needs, or has no flows.
        InfeasibleError: no release can meet the guarantee.
        GuaranteeError: the recount contradicts the method; nothing may be published.
    """
    if not isinstance(flows, Flows):
        raise ParameterError(
            f"anonymize needs flows; found {type(flows).__name__}. Hint: pass what read_trips returns."
        )
    chosen = find_method(method)
    chosen.check_options(options)
    if isinstance(max_suppressed, bool) or not isinstance(max_suppressed, int | float):
        raise ParameterError(f"max_suppressed must be a number; found {type(max_suppressed).__name__}.")
    if not 0 <= max_suppressed < 1:
        raise ParameterError(f"max_suppressed must be at least 0 and below 1; found {max_suppressed!r}.")
    if len(flows) == 0:
        raise DataError("There are no flows to anonymise.")
    guarantee = Guarantee.resolve(flows, k=k, protect=protect, k_population=k_population, l=l)
    plan = chosen.plan(flows, guarantee, max_suppressed=max_suppressed, **options)
    asked = {"k_population": k_population, "l": l, "max_suppressed": max_suppressed}
    parameters = _parameters(flows, chosen, guarantee, asked, options)
    return Release.from_plan(flows, plan, guarantee, method=method, parameters=parameters)


def _parameters(
    flows: Flows, method: Method, guarantee: Guarantee, asked: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Everything needed to run it again, defaults included. A threshold that was worked out is not a parameter."""
    defaults = {n: p.default for n, p in method.options.items() if p.default is not inspect.Parameter.empty}
    return {
        "k": guarantee.k,
        "protect": list(guarantee.units),
        **asked,
        "options": {**defaults, **options},
        "resolution": flows.intake.resolution,
        "columns": dict(flows.intake.columns),
        "max_dropped": flows.intake.max_dropped,
        "skip_unknown": flows.intake.skip_unknown,
        "zones": dict(flows.intake.zones),
    }


def describe(source: Any, *, k: int = 10, max_suppressed: float = 0.1, **reading: Any) -> Description:
    """What is in the data, and how much of it is safe already. Internal: counted from raw data, not for publication.

    Args:
        source: flows, or trips in any form `read_trips` takes.
        k: what safety is held against.
        max_suppressed: share that may be suppressed, for the floor and the advice.
        **reading: how to read the trips; see `read_trips`.
    """
    from flowveil.description import describe_flows

    flows = source if isinstance(source, Flows) else read_trips(source, **reading)
    return describe_flows(flows, k=k, max_suppressed=max_suppressed)


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
    from flowveil.comparison import compare_flows

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


def picture(
    release: Release | str | PathLike[str], path: str | PathLike[str], *, show: str = "origins", **style: Any
) -> Path:
    """Draw a map of a release into a PNG, SVG or PDF file.

    Args:
        release: a release, or the folder of one: published files are enough.
        path: the file; its suffix says the format.
        show: ``origins``, ``destinations``, ``both`` or ``flows``.
        **style: see `flowveil.report.pictures.draw`.
    """
    from flowveil.report.pictures import picture_of_folder

    if isinstance(release, Release):
        return release.picture(path, show=show, **style)
    return picture_of_folder(Path(release), path, show=show, **style)


def verify_folder(
    directory: str | PathLike[str], *, against: Any, expect: Mapping[str, Any] | None = None, **reading: Any
) -> list[str]:
    """Recount a release folder from its files and the raw input.

    Args:
        directory: a release folder.
        against: the trips it was made from, in any form `read_trips` takes.
        expect: what the guarantee must be at the least: ``k``, ``protect``, ``k_population``, ``l``. Without it the
            release is held against the guarantee that it claims.
        **reading: how to read them, where it should differ from what the release's report says.

    Returns:
        One plain line for each contradiction; empty when the release holds.
    """
    from flowveil.verify import verify_release

    folder = Path(directory)
    if not folder.is_dir():
        raise ParameterError(f"'{folder.name}' is not a folder. Hint: name the folder that holds manifest.json.")
    recorded = _parameters_of(folder)
    how = {name: recorded["columns"][name] for name in _ROLES if name in recorded.get("columns", {})}
    how |= {name: recorded[name] for name in ("resolution", *_READING) if recorded.get(name) is not None}
    how |= reading
    if recorded.get("zones"):
        how["zones"] = _same_zones(recorded["zones"], how.get("zones"))
    return verify_release(folder, read_trips(against, **how), expect=expect)


def _parameters_of(folder: Path) -> dict[str, Any]:
    """What the release's own report says of how it was made."""
    try:
        parameters = json.loads((folder / "report.json").read_text(encoding="utf-8"))["parameters"]
        return dict(parameters) if isinstance(parameters["columns"], dict) else {}
    except (OSError, ValueError, KeyError, TypeError):
        # A report that cannot be read is a finding; the verification itself says so.
        return {}


def _same_zones(recorded: dict[str, str], source: Any) -> Any:
    """The map, read as it was read for the release."""
    from flowveil.zoning.files import ZoneMap, read_zones

    if source is None:
        raise ParameterError(
            "The release was made on a map of its own, which it does not contain. Hint: give the map with --zones."
        )
    return source if isinstance(source, ZoneMap) else read_zones(source, **recorded)
