"""A table computed from a published release alone.

Coarser zones, sums over slices, some slices, a part of the area.

A derived release is a function of public inputs, so it reveals nothing beyond its source. Every
cell is a cell of the source or a sum of cells, so each threshold still holds: trips and weights add
up, people and tiles are at least those of the largest part, and no person has a larger share of a
sum than of a part. Sums are exact, whatever their order.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from flowveil.core.errors import GuaranteeError, OutputError, ParameterError, did_you_mean
from flowveil.core.times import TIME, TIME_COLUMNS, Every
from flowveil.core.values import STATISTICS, value_columns
from flowveil.published.folder import FolderContent, check_target, refuse_weaker, write_files
from flowveil.published.folds import Fold, folds_of
from flowveil.published.tables import ENDS, SUMS, add_up, has_nested_zones, zones_table
from flowveil.release.statement import Published, Statement
from flowveil.release.zone_map import FrozenMap
from flowveil.system.output import Draft, explained, real_place
from flowveil.zoning.public_map import H3Map, TreeMap, zone_chains

#: Part of its area by which a zone may lie outside an area and still count as inside: outlines are
#: rounded.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Within:
    """An area, for zones that are completely inside."""

    text: str  # as the report states it
    cells: frozenset[str] = frozenset()  # codes of H3 cells; empty where the area is drawn
    outline: Any = None  # polygon in degrees; None for cells


@dataclass(frozen=True)
class Derivation:
    """What to compute. The steps are taken in the order of the fields."""

    # Slices to keep, as column and value; of a fold, cells completely inside the values.
    pick: tuple[tuple[str, str], ...] = ()
    level: int | None = None  # level of the zones: an H3 resolution, or a level of the map
    zones_of: FrozenMap | None = None  # zones of another release, or of a frozen map
    sum: tuple[str, ...] = ()  # slice columns to add up, or units of time
    within: Within | None = None  # keep cells with both zones inside
    drop: tuple[str, ...] = ()  # columns to leave out

    def to_parameters(self) -> dict[str, Any]:
        """Returns what the statement records."""
        recorded = {
            "pick": [f"{name}={value}" for name, value in self.pick],
            "level": self.level,
            "zones_of": None if self.zones_of is None else self.zones_of.sha256,
            "sum": list(self.sum),
            "within": None if self.within is None else self.within.text,
            "drop": list(self.drop),
        }
        return {name: value for name, value in recorded.items() if value not in (None, [])}


def parse_pick(given: Mapping[str, Any] | Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Returns the slices to keep, from ``{"sex": "f"}``, ``{"sex": ["f", "m"]}`` or
    ``["sex=f"]``.
    """
    pairs: list[tuple[str, str]] = []
    if isinstance(given, Mapping):
        for name, values in given.items():
            listed = [values] if isinstance(values, str) else values
            pairs += [(str(name), str(value)) for value in listed]
        return tuple(pairs)
    for text in [given] if isinstance(given, str) else given:
        name, sign, value = text.partition("=")
        if not sign or not value.strip():
            raise ParameterError(f"--pick must be COLUMN=VALUE; found '{text}'.")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


def derive_published(
    source: Published,
    how: Derivation,
    *,
    manifest_sha256: str,
    formats: Sequence[str] = (),
    about: Mapping[str, str] | None = None,
) -> Published:
    """Returns the derived release; entries of ``about`` replace those of the source.

    Raises ParameterError for what the source does not have, slices of different zones, or an empty
    result, and GuaranteeError if a cell is smaller than every cell of the source: a bug.
    """
    statement = source.statement
    slices, fold = (dict(statement.parameters.get(name) or {}) for name in ("slices", "fold"))
    table = _Table(source.cells, statement.slice_columns, slices, fold)
    table = _drop(_pick(table, how.pick), how.drop)
    coarser, most = how.level is not None or how.zones_of is not None, 1
    if coarser:
        table = replace(table, cells=_with_coarser_zones(table.cells, source, how))
    merged = coarser or bool(how.sum)
    if merged:
        others = [
            name
            for name in table.cells.column_names
            if name not in {*table.keys, *SUMS, "layer", "revised"}
        ]
        # A mean of two cells needs the number of values in each, which is not published.
        how, table = replace(how, drop=(*how.drop, *others)), _drop(table, others)
        for name in how.sum:
            table = _summed(table, name, source)
        cells, most = add_up(table.cells, table.keys)
        table = replace(table, cells=cells)
    if how.within is not None:
        table = replace(table, cells=_inside(table.cells, how.within, source))
    if not len(table.cells):
        raise ParameterError(
            "Nothing is left of this release. Hint: pick other slices, or a larger area."
        )
    # Noisy counts may be negative, and are not compared.
    for name in SUMS if not statement.facets.is_noisy else ():
        if (
            name in table.cells.column_names
            and pc.min(table.cells[name]).as_py() < pc.min(source.cells[name]).as_py()
        ):
            raise GuaranteeError(
                f"A derived cell has fewer {name} than every published one; nothing was written."
            )
    stated = replace(
        _statement(source, table, how, merged=merged, most=most),
        derived_from=manifest_sha256,
        formats=tuple(formats),
        about={**statement.about, **(about or {})},
    )
    return Published(table.cells, stated, source.map, source.outlines)


class Derived(FolderContent):
    """A derived release in memory: its tables ``flows`` and ``zones``, its ``report`` and its
    page.
    """

    def __repr__(self) -> str:
        return f"<Derived: {len(self.flows):,} cells>"

    def write(
        self,
        directory: str | PathLike[str],
        *,
        overwrite: bool = True,
        replace_stronger: bool = False,
        source: str | PathLike[str] | None = None,
    ) -> Path:
        """Writes the release folder, to a draft that is renamed.

        After an OutputError what was there is untouched.

        ``overwrite`` allows to replace an earlier release, ``replace_stronger`` also one with a
        stronger guarantee; the folder of the ``source`` is never replaced.
        """
        if source is not None and real_place(directory) == real_place(source):
            raise OutputError(
                f"'{directory}' is the source; both are needed to verify. Hint: name a new folder."
            )
        check_target(directory, overwrite=overwrite)
        self.formats()
        with explained(directory), Draft(directory) as draft:
            os.mkdir(draft.new)
            if not replace_stronger:
                refuse_weaker(directory, self.report)
            write_files(self, draft.new)
            check_target(directory, overwrite=overwrite)
            draft.take_place()
        return Path(directory)

    def _repr_html_(self) -> str:
        from flowveil.published.document import frame

        return frame(self.page(compact=True))


@dataclass(frozen=True, eq=False)
class _Table:
    """Cells on their way, with the slice columns and the description of slices that belong to
    them.
    """

    cells: pa.Table
    slice_columns: tuple[str, ...]
    slices: dict[str, Any]
    fold: dict[str, Any]

    @property
    def keys(self) -> list[str]:
        """The columns that identify a row once layers are added up, in the order of sorting."""
        folds = [name for name in self.cells.column_names if name in (*self.fold, *TIME_COLUMNS)]
        return [*self.slice_columns, *folds, *ENDS]


def _pick(table: _Table, pick: Sequence[tuple[str, str]]) -> _Table:
    """Returns the cells of the chosen slices, and of folds those completely inside the chosen
    values.
    """
    cells = table.cells
    folds = {
        fold.name: fold
        for fold in folds_of(cells, {"fold": table.fold, "slices": table.slices})
        if fold.name not in table.slice_columns
    }
    kept = np.ones(len(cells), dtype=np.bool_)
    for name in dict.fromkeys(name for name, _ in pick):
        values = [value for column, value in pick if column == name]
        if name in folds:
            kept &= _inside_values(folds[name], values)
            continue
        _check_column(table, name, "--pick")
        known = pc.unique(table.cells[name]).to_pylist()
        for value in values:
            _check_value(name, value, known, value in known)
        kept &= pc.is_in(cells[name], value_set=pa.array(values, pa.string())).to_numpy()
    return replace(table, cells=cells.filter(pa.array(kept)))


def _inside_values(fold: Fold, values: Sequence[str]) -> NDArray[np.bool_]:
    """Returns which cells have no other value of a fold than those of some values and groups."""
    chosen = np.zeros(len(fold.labels) + 1, dtype=np.int64)
    for value in values:
        own = fold.values_of(value)
        _check_value(fold.name, value, fold.labels, own is not None)
        first, stop = own or (0, 0)
        chosen[first:stop] = 1
    before = np.concatenate([[0], np.cumsum(chosen)])
    return np.asarray(before[fold.stop] - before[fold.first] == fold.stop - fold.first)


def _check_value(name: str, value: str, known: Sequence[str], is_known: object) -> None:
    if not is_known:
        shown = ", ".join(f"'{one}'" for one in known[:5]) + " ..." * (len(known) > 5)
        raise ParameterError(f"The release has no slice with {name} = '{value}'; found {shown}.")


def _drop(table: _Table, names: Sequence[str]) -> _Table:
    optional = [
        name for name in table.cells.column_names if name not in {*table.keys, "trips", "layer"}
    ]
    for name in names:
        if name not in optional:
            allowed = ", ".join(optional) or "none"
            raise ParameterError(
                f"--drop can leave out: {allowed}; found '{name}'.{did_you_mean(name, optional)}"
            )
    return replace(table, cells=table.cells.drop_columns(list(dict.fromkeys(names))))


def _check_column(table: _Table, name: str, flag: str) -> None:
    if name not in table.slice_columns:
        has = (
            f"has the slice columns {', '.join(table.slice_columns)}"
            if table.slice_columns
            else "has no slices"
        )
        has += f", and folds {', '.join(table.fold)}" * bool(table.fold)
        raise ParameterError(
            f"{flag}: the release {has}; found '{name}'.{did_you_mean(name, table.slice_columns)}"
        )


def _summed(table: _Table, name: str, source: Published) -> _Table:
    """Returns the table with a column, or a unit of time, added up; equal rows are merged later."""
    every = table.slices.get("every")  # the shortest step of time
    if TIME_COLUMNS[0] in table.cells.column_names and name in (TIME, *TIME_COLUMNS, every):
        return replace(table, cells=table.cells.drop_columns(list(TIME_COLUMNS)), slices={})
    if name in table.fold:
        others = {other: parents for other, parents in table.fold.items() if other != name}
        return replace(table, cells=table.cells.drop_columns([name]), fold=others)
    label: tuple[slice, str] | None = None
    column = name
    if name not in table.slice_columns and TIME in table.slice_columns and every is not None:
        label = _coarser_label(every, name)
        column = TIME if label is not None or name == every else name
    _check_column(table, column, "--sum")
    cells = table.cells
    rest = tuple(one for one in table.slice_columns if one != column)
    _refuse_different_zones(cells, name, rest, source)
    slices = dict(table.slices)
    if column == TIME:
        slices["every"] = None if label is None else label[1]
    at = cells.column_names.index(column)
    if label is None:
        return _Table(cells.remove_column(at), rest, slices if rest else {}, {})
    labels = pc.utf8_slice_codeunits(cells[column], label[0].start, label[0].stop)
    return replace(table, cells=cells.set_column(at, column, labels), slices=slices)


def _coarser_label(every: str, unit: str) -> tuple[slice, str] | None:
    """The part of labels that stays where a unit of time is added up, and the step that is left.

    None if none is.
    """
    step = Every.parse(every)
    if every == "weekday-hour" and unit == "weekday":
        return slice(len("1 Mon "), step.label_length), "hour"
    left = {("weekday-hour", "hour"): "weekday", ("day", "day"): "month"}.get((every, unit))
    left = "day" if step.minutes is not None and unit == "hour" else left
    return None if left is None else (slice(0, Every.parse(left).label_length), left)


def _refuse_different_zones(
    cells: pa.Table, name: str, rest: Sequence[str], source: Published
) -> None:
    """Refuses sums over slices whose zones overlap without being the same."""
    if source.statement.boxes is None and not has_nested_zones(cells, rest, source.map):
        return
    codes = [code for end in ENDS for code in pc.unique(cells[end]).to_pylist()]
    coarsest = min(chain[0][1] for chain in zone_chains(source.map, codes))
    is_level = source.statement.boxes is None and coarsest >= 0
    raise ParameterError(
        f"--sum {name}: the slices have different zones, so their cells cannot be added up."
        + f" Hint: --level {math.floor(coarsest)} gives all of them the same zones." * is_level
    )


def _with_coarser_zones(cells: pa.Table, source: Published, how: Derivation) -> pa.Table:
    """Returns the cells with their zones renamed; equal rows are merged later."""
    if how.level is not None and how.zones_of is not None:
        raise ParameterError(
            "--level and --zones-of both choose the zones. Hint: give one of them."
        )
    if source.statement.boxes is not None:
        raise ParameterError(
            "The zones of this release are boxes, which have no levels. Hint: leave --level out."
        )
    if how.zones_of is not None and not how.zones_of.homogeneous:
        raise ParameterError(
            "The zones of the other release overlap. Hint: name a release whose zones do not."
        )
    if how.level is not None and isinstance(source.map, H3Map | TreeMap):
        finest = (
            source.map.resolution
            if isinstance(source.map, H3Map)
            else int(source.map.tree.level.max())
        )
        if not 0 <= how.level <= finest:
            raise ParameterError(
                f"--level must be 0 to {finest}, the levels of this release; found {how.level}."
            )
    for end in ENDS:
        # Of the whole release, whatever slices are picked.
        codes = pc.unique(source.cells[end]).to_pylist()
        chains = zone_chains(source.map, codes)
        if how.zones_of is None:
            # A zone that is not finer stays as it is.
            level = -1 if how.level is None else how.level
            coarser = [
                next((code for code, height in one if height <= level), one[-1][0])
                for one in chains
            ]
        else:
            wanted = set(how.zones_of.zones(end.removesuffix("_zone")))
            coarser = [
                next((code for code, _ in chain if code in wanted), chain[0][0]) for chain in chains
            ]
            if not wanted & set(coarser):
                raise ParameterError(
                    "No zone of this release is inside a zone of the other one: check --zones-of."
                )
        places = pc.index_in(cells[end], value_set=pa.array(codes, pa.string()))
        cells = cells.set_column(
            cells.column_names.index(end), end, pa.array(coarser, pa.string()).take(places)
        )
    return cells


def _inside(cells: pa.Table, within: Within, source: Published) -> pa.Table:
    """Returns the cells with both zones inside an area; a zone that is partly inside is not."""
    codes = sorted({code for end in ENDS for code in pc.unique(cells[end]).to_pylist()})
    if within.outline is None:
        inside = [
            any(code in within.cells for code, _ in chain)
            for chain in zone_chains(source.map, codes)
        ]
    else:
        shown = zones_table(replace(source, cells=cells))
        outlines = shapely.from_wkb(shown["geometry"].to_numpy(zero_copy_only=False))
        if all(shape is None for shape in outlines):
            raise ParameterError(
                "The zones of this release have no place on a map. Hint: leave --within out."
            )
        common, area = (
            shapely.area(shapely.intersection(outlines, within.outline)),
            shapely.area(outlines),
        )
        inside = ((area > 0) & (common >= (1 - _ROUNDING) * area)).tolist()
    kept = pa.array(
        [code for code, is_inside in zip(codes, inside, strict=True) if is_inside], pa.string()
    )
    return cells.filter(pc.and_(*(pc.is_in(cells[end], value_set=kept) for end in ENDS)))


def _statement(
    source: Published, table: _Table, how: Derivation, *, merged: bool, most: int
) -> Statement:
    """Returns what is stated of the result; a claim that does not carry over is left out."""
    before, columns = source.statement, table.cells.column_names
    parameters = {
        name: value
        for name, value in before.parameters.items()
        if name not in ("slices", "fold", "derive")
    }
    folds = {name for name, use in before.facets.dimensions.items() if use == "fold"}
    inside = sorted({name for name, _ in how.pick} & folds)
    parameters["derive"] = how.to_parameters() | ({"inside": inside} if inside else {})
    if table.slices:
        parameters["slices"] = table.slices
    if table.fold:
        parameters["fold"] = table.fold
    if merged and (how.level is not None or how.zones_of is not None):
        # A coarser zone may contain a listed place whose own cells are suppressed.
        parameters.pop("stricter", None)
    parameters = _without_dropped(parameters, columns)
    homogeneous = before.homogeneous
    if before.boxes is None and not {"layer", *TIME_COLUMNS, *table.fold} & set(columns):
        homogeneous = not has_nested_zones(table.cells, table.slice_columns, source.map)
    if how.within is not None or not homogeneous:
        # Other zones were part of the whole. Coarser zones keep t: a sum of zones is no farther
        # than the farthest.
        parameters.pop("t", None)
    guarantee = before.guarantee
    if before.facets.is_noisy and most > 1:
        # Noise that was drawn for each count is independent: variances add up. Noise of several
        # steps is not, but deviations never exceed their sum.
        factor = most if guarantee.get("steps") else math.sqrt(most)
        guarantee = {**guarantee, "deviation": guarantee["deviation"] * factor}
    has_time = TIME in table.slice_columns or TIME_COLUMNS[0] in columns
    kept_zones = None if merged else before.zones_of
    return replace(
        before,
        layers="layer" in columns,
        parameters=parameters,
        guarantee=guarantee,
        homogeneous=homogeneous,
        suppression={"rule": "sums"}
        if merged and not before.facets.is_noisy
        else before.suppression,
        slice_columns=table.slice_columns,
        timezone=before.timezone if has_time else None,
        shares=before.shares if how.within is None and not how.pick else None,
        revision_of=() if merged else before.revision_of,
        zones_of=kept_zones if how.zones_of is None else how.zones_of.sha256,
    )


def _without_dropped(parameters: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Returns the parameters without the means, totals and medians that are not in the table."""
    roles = dict(parameters.get("columns", {}))
    gone = {
        column.strip() for name, (_, column) in value_columns(roles).items() if name not in columns
    }
    for role in STATISTICS if gone else ():
        left = [
            column
            for column in roles.pop(role, "").split(",")
            if column and column.strip() not in gone
        ]
        roles |= {role: ",".join(left)} if left else {}
    between = [
        text
        for text in parameters.get("between", ())
        if text.rpartition("=")[0].strip() not in gone
    ]
    rules = {"between", "value_share", "p_percent"} if not between else set()
    return {name: value for name, value in parameters.items() if name not in rules} | (
        {"columns": roles, **({"between": between} if between else {})} if gone else {}
    )
