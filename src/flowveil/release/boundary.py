"""The boundary: a release with raw trips in, what may be published of it out.

Nothing else crosses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from flowveil.core.arrays import Ints
from flowveil.core.flows import MILLION, Cells, is_fixed_point, to_fixed_point
from flowveil.core.guarantee import DIFFERENCING
from flowveil.release.statement import (
    Published,
    Shares,
    Statement,
    round_share,
    share_step,
)
from flowveil.request import support
from flowveil.zoning.h3 import is_h3, resolution_of
from flowveil.zoning.public_map import BoxMap, H3Map, PublicMap, TreeMap, TwoTreesMap

if TYPE_CHECKING:
    from flowveil.core.flows import Flows
    from flowveil.release.counts import ExactCounts, Matrix, Publishable
    from flowveil.release.plan import Zones

#: Rows whose codes are made text in one batch: noisy releases have millions.
_BATCH_ROWS = 1 << 20
#: Parameters that the statement states elsewhere.
_STATED = ("confirmed", "ledger", "revision_of", "zones_of")
#: Parameters that may contain a slash and are not paths.
_NOT_PATHS = ("between", "columns", "fold", "time_format", "timezone")


def to_published(
    release: Publishable,
    *,
    about: Mapping[str, str] | None = None,
    formats: Sequence[str] = (),
    basemap: str | None = None,
    outlines: str | None = None,
) -> Published:
    """Returns what may be published of a release: recounted cells, and the statement.

    Its cells were recounted when it was made. ``about`` has title, source, period, licence and
    contact; ``outlines`` is the text of the operator's GeoJSON.
    """
    cells = cells_table(release)
    plans = [part.plan for _, part in release.parts]
    chosen = release.parameters
    confirmed = tuple(chosen.get("confirmed", ()))
    timezone = chosen.get("timezone")
    statement = Statement(
        method=release.method,
        parameters={
            n: v if n in _NOT_PATHS else _without_paths(v)
            for n, v in chosen.items()
            if n not in _STATED
        },
        guarantee=_guarantee_rule(release),
        about=dict(about or {}),
        homogeneous=all(plan.homogeneous for plan in plans),
        suppression=plans[-1].suppression.to_dict(),
        thresholds="k plus a secret amount" if _are_secret(release) else "k",
        layers=release.facets.layers,
        boxes=None if plans[-1].boxes is None else vars(plans[-1].boxes),
        slice_columns=release.slice_columns,
        timezone=timezone if isinstance(timezone, str) else None,
        shares=_shares(release),
        confirmed=confirmed,
        ledger=chosen.get("ledger"),
        revision_of=tuple(chosen.get("revision_of", ())),
        zones_of=chosen.get("zones_of"),
        differencing_accepted=DIFFERENCING in confirmed,
        formats=tuple(formats),
        basemap=basemap,
        context=outlines is not None,
    )
    # The first slice, where there are slices: all have the same trees.
    flows: Flows = release.input
    return Published(
        cells, statement, public_map(flows, boxed=plans[-1].boxes is not None), outlines
    )


def _are_secret(release: Publishable) -> bool:
    """Returns whether every cell had to reach k plus a secret amount."""
    return all(part.plan.secret_thresholds for _, part in release.parts)


def public_map(flows: Flows, *, boxed: bool) -> PublicMap:
    """Returns the map that zone codes of a release of these flows are looked up on."""
    if boxed:
        return BoxMap()
    tree = flows.origins
    if is_h3(tree):
        return H3Map(int(resolution_of(tree.code[tree.leaf_node[:1]])[0]))
    if flows.whole_map is not None:
        return TreeMap(flows.whole_map)
    return TwoTreesMap(flows.origins, flows.destinations)


def _guarantee_rule(release: Publishable) -> dict[str, Any]:
    """Returns the guarantee; k mean weights are stated as the rule, not as the number."""
    guarantee = release.guarantee
    stated: dict[str, Any] = guarantee.to_dict()
    if not release.facets.is_noisy and "population" in stated and not guarantee.population_is_given:
        stated["population"] = None
    return stated


def _without_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_paths(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(inner) for inner in value]
    is_path = isinstance(value, PathLike) or (
        isinstance(value, str) and ("/" in value or "\\" in value)
    )
    return "(a path; not published)" if is_path else value


# ---- shares --------------------------------------------------------------------------------------


def _shares(release: Publishable) -> Shares | None:
    """Returns the rounded shares; None for noise and for revisions."""
    if release.facets.is_noisy or getattr(release, "revision", None) is not None:
        return None
    guarantee = release.guarantee
    basis = guarantee.basis
    parts = [cast("ExactCounts", part) for _, part in release.parts]
    summary = release.input.intake
    tables = (release.input,)
    read = _volume(tables, basis)
    # The mean volume of a trip: 1, or the mean weight where the population is protected.
    per_trip = read / max(_volume(tables, "trips"), Fraction(1))
    published = _volume([part.cells for part in parts], basis)
    dropped = Fraction(getattr(summary, f"dropped_{basis}") or 0)
    outside = Fraction(getattr(summary, f"outside_{basis}") or 0)
    whole = max(read + dropped + outside, Fraction(1))
    dropped_rows = Fraction(
        sum(summary.dropped.values()), max(summary.rows - summary.empty_rows, 1)
    )
    step = share_step(guarantee.k, _volume([part.cells for part in parts], "trips"))
    has_area = summary.within is not None or summary.outside == "keep"
    return Shares(
        basis=basis,
        step=float(step),
        dropped=round_share(max(dropped / whole, dropped_rows), step),
        outside=round_share(outside / whole, step) if has_area else None,
        suppressed=_suppressed_share(release, parts, read - published, whole, step, per_trip),
    )


def _suppressed_share(
    release: Publishable,
    parts: Sequence[ExactCounts],
    suppressed: Fraction,
    whole: Fraction,
    step: Fraction,
    per_trip: Fraction,
) -> float:
    """Returns the rounded share of suppressed trips.

    A share that only full pairs explain looks like a smaller one.

    A pair in no cell holds at most k - 1 trips of mean weight, or a reader may assume so. If a
    share were reached first by a multiple of k - 1 trips, that number would reveal that every pair
    of so many is full; so one trip less has the same share. In a homogeneous release a share that
    is reached only if every unlisted pair of listed zones holds some is shown as that of all of
    them full. Layers, slices, and cells with secret thresholds show at least the limit that the
    operator chose, which a share never exceeds there.
    """
    guarantee = release.guarantee
    rest, full_pair = whole - suppressed, per_trip * (guarantee.k - 1)

    def show(volume: Fraction) -> float:
        return round_share(volume / max(rest + volume, Fraction(1)), step)

    shown = show(suppressed)
    if guarantee.k > 2 and full_pair:
        next_full = (suppressed // full_pair + 1) * full_pair
        shown = show(next_full) if next_full - suppressed <= per_trip else shown
    least = 0.0
    in_layers = any(part.plan.layer is not None for part in parts)
    if release.slice_columns or in_layers or _are_secret(release):
        least = round_share(Fraction(str(release.parameters.get("max_suppressed") or 0)), step)
    whole_cells = all(
        part.plan.homogeneous and part.plan.suppression.rule == "short cells" for part in parts
    )
    if not whole_cells:
        return max(shown, least)
    unlisted = sum(
        len(np.unique(part.cells.origin)) * len(np.unique(part.cells.destination)) - len(part.cells)
        for part in parts
    )
    most, nearly = (full_pair * max(n, 0) for n in (unlisted, unlisted - 1))
    return max(least, shown if suppressed > most or shown < show(nearly) else show(most), shown)


def _volume(tables: Sequence[Cells], basis: str) -> Fraction:
    """Returns the exact sum of trips or weights."""
    total = Fraction(0)
    for values in (table.volume(basis) for table in tables):
        is_whole = values.dtype.kind in "iu" and (basis == "trips" or not is_fixed_point(values))
        exact = values if values.dtype.kind in "iu" else to_fixed_point(values)
        total += Fraction(int(np.sum(exact)), 1 if is_whole else MILLION)
    return total


# ---- cells ---------------------------------------------------------------------------------------


def cells_table(release: Publishable) -> pa.Table:
    """Returns the published matrices, sorted by slice, then (origin_zone, destination_zone).

    Columns: ``origin_zone`` and ``destination_zone`` (text), ``trips`` (int64; float64 with
    fractions), where known ``weight`` (float64), requested means, totals and medians (float64, null
    where refused), in a revision ``revised``, in layers ``layer``, and one text column for each
    slice column. Where columns fold, the code of each folded attribute, and ``time_from`` and
    ``time_to``, by which rows are sorted first.
    """
    tables = []
    for key, matrix in sorted(release.parts, key=lambda part: part[0]):
        for table in _matrix_tables(matrix):
            for name, value in zip(release.slice_columns, key, strict=True):
                table = table.append_column(name, pa.array([value] * len(table), pa.string()))
            tables.append(table)
    joined = pa.concat_tables(tables)
    return joined.combine_chunks() if release.slice_columns else joined


def _matrix_tables(matrix: Matrix) -> Iterator[pa.Table]:
    """Yields one matrix in batches."""
    cells, plan = matrix.cells, matrix.plan
    origin, origin_rank = _codes_and_ranks(plan.origin_zones, cells.origin)
    destination, destination_rank = _codes_and_ranks(plan.destination_zones, cells.destination)
    ends = (origin_rank[cells.origin], destination_rank[cells.destination])
    folded = (
        {}
        if plan.folded is None
        else {name: of[cells.origin] for name, of in plan.folded.columns.items()}
    )
    layers = () if plan.layer is None else (plan.layer[cells.origin],)
    order = np.lexsort((*layers, *ends[::-1], *reversed(folded.values())))
    numbers = _numbers(matrix)
    for first in range(0, len(cells), _BATCH_ROWS):
        rows = order[first : first + _BATCH_ROWS]
        columns: dict[str, pa.Array] = {
            "origin_zone": origin.take(pa.array(cells.origin[rows])),
            "destination_zone": destination.take(pa.array(cells.destination[rows])),
            "trips": pa.array(cells.trips[rows]),
        }
        if cells.weight is not None:
            columns["weight"] = pa.array(cells.weight[rows], type=pa.float64())
        for name, values in numbers.items():
            columns[name] = pa.array(values[rows], type=pa.float64(), from_pandas=True)
        revision = getattr(matrix, "revision", None)
        if revision is not None:
            columns["revised"] = pa.array(revision.revised[rows], type=pa.bool_())
        if plan.layer is not None:
            columns["layer"] = pa.array(plan.layer[cells.origin[rows]], type=pa.int8())
        for name, texts in folded.items():
            columns[name] = pa.array(texts[rows].tolist(), type=pa.string())
        yield pa.table(columns)


def _numbers(matrix: Matrix) -> Mapping[str, Any]:
    """Returns means, totals and medians of the cells of a matrix, as far as their rules allow."""
    release = cast("ExactCounts", matrix)
    records = matrix.input.values
    if records is None:
        return {}
    # Checked when the run began; a plan of another kind is a defect of its method.
    features = {"mean"} if release.revision is None else {"mean", "revision"}
    zones: support.ZonesOf = "nodes" if matrix.plan.boxes is None else "boxes"
    support.check(features, support.Expected(zones=zones))
    return cast(
        "Mapping[str, Any]",
        records.of_cells(release.cell_of_flow, len(release.cells), k=release.guarantee.k),
    )


def _codes_and_ranks(zones: Zones, number: Ints) -> tuple[pa.Array, Ints]:
    """Returns the code of every zone that a cell uses, and its rank in text order."""
    used = np.flatnonzero(np.bincount(number, minlength=len(zones))).astype(np.int32)
    codes = zones.codes(used)
    place = np.zeros(len(zones), np.int32)
    place[used] = np.arange(len(used))
    _, rank = np.unique(codes, return_inverse=True)
    return (
        pa.array(codes.tolist(), type=pa.string()).take(pa.array(place)),
        rank.astype(np.int32)[place],
    )
