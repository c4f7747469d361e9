"""Recount a release from the raw trips: an independent check that its numbers are right and its guarantee holds.

This package imports nothing of flowveil, so a mistake in the program cannot repeat itself here. This page is the
specification; the code below follows it section by section.

**Input.** A release folder (report.json of version 0.3, flows.parquet, zones.parquet) and the raw `Trips`: for each
slice, origin tile and destination tile the number of trips, their weight in whole millionths, and who made them.
**Output.** A `Result`: findings (contradictions; none may remain), notes (what could not be compared, or only bounded)
and what was counted. A finding has numbers of cells, never a value of a cell, a place or a person.

1. *Zones.* A zone is a set of tiles. It is a node of a tree (tree.py) or a box (boxes.py). zones.parquet lists exactly
   the zones that flows.parquet uses, by role.
2. *Cells.* A row of flows.parquet is a cell: an origin zone, a destination zone, and where there are such columns a
   slice, a span of time (`time_from` up to, but not including, `time_to`) and a layer. It counts the trips that begin
   and end in its zones, in its slice and span. Cells of one matrix share no trip. Slices of different detail (a total,
   its parts) are different matrices of the same trips. With layers, a trip belongs to the first layer that has a cell
   around it.
3. *Suppression rule.* `short cells`: trips in no cell are suppressed. `hopeless flows` (ODkAnon): first, flows are
   removed. A flow is hopeless if the cell around it is below the guarantee after both ends are lifted by 0, 1, ...,
   `levels` steps of the tree, at most to the smallest node that holds all tiles. The highest level decides alone,
   because a cell there contains those below. At most a share `beta` of the flows (rounded down) is removed, those with
   the least volume first, then by origin code, then by destination code. Removed flows are in no cell.
4. *Counts.* `trips` is the sum of trips, `weight` the sum of weights, exact to the millionth.
5. *Guarantee.* Every cell has at least `trips` trips, `people` different persons, a weight of `population`, and its
   trips begin, and end, in at least `locations` different tiles (or listed places, if `l_places` says so). A
   population of null means k times the mean weight of a trip, rounded up to a millionth. Rows without a known person
   count as trips and add no person. The guarantee is not weaker than the parameters require.
6. *Post rules.* `dominance`: in no cell does one person make more than this share of the trips. `stricter`: cells whose
   zones contain a listed place reach the k and l listed there. `t`: for every origin zone, the destinations of its
   published trips differ from those of all published trips by a total variation of at most t; likewise for the origins
   of every destination zone. Zones that do not are removed as a whole.
7. *Homogeneous.* If the release says so, zones of one role do not overlap, and every cell that reaches the guarantee
   and the post rules is published: otherwise a missing cell would reveal something.
8. *Slices.* A published slice, or span of time, holds at least k persons where persons are known. Over common zones, a
   coarser matrix is the sum of the published cells of the finest slices.
9. *Subtraction.* A coarser matrix minus published cells of finer ones inside it leaves nothing, or a remainder that
   reaches the guarantee, unless the release says that differences are accepted.
10. *Boxes.* Where boxes may overlap, a trip may be in several, and which cell counts it is not known. Then no cell has
    more than lies in its boxes, and cells lack no more than is suppressed. A note says so.
11. *Shares.* See `_check_shares`.
12. *Revisions* (revisions.py) and *noise* (noise.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from . import boxes, noise, revisions, spans
from .release import FolderError, Release, check_expected, check_guarantee, mean_population
from .table import Counts, PersonRows, Places, Trips, far_from_all
from .tree import Codes, Ints, Tree, build_tree, cell_texts, count_overlaps, zones_around

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Result:
    """What a recount found.

    Attributes:
        findings: one line for each contradiction; empty if the release holds.
        notes: what could not be compared, or only bounded.
        counted: what was compared: kind, number of cells, units, who read the input.
    """

    findings: tuple[str, ...]
    notes: tuple[str, ...]
    counted: dict[str, Any]


def recount(
    folder: str | Path,
    trips: Trips,
    *,
    earlier: Sequence[Any] = (),
    expect: Mapping[str, Any] | None = None,
    test_noise: bool = True,
) -> Result:
    """Compare a release folder with the raw trips.

    Args:
        folder: the release.
        trips: the raw trips, read as the report says.
        earlier: folders of the releases that this one revises, the oldest first; empty if they are not available.
        expect: guarantee that the reader requires: ``k``, ``protect``, ``k_population``, ``l``.
        test_noise: whether counts of a noisy release are tested; not before it is published.
    """
    notes = list(trips.notes)
    counted: dict[str, Any] = {"read_by": trips.read_by}
    try:
        release = Release.read(Path(folder), trips)
        counted |= {"kind": release.kind, "cells": len(release), "units": list(release.protected)}
        if release.kind == "noisy":
            findings = [*noise.check_form(release, trips, expect or {})]
        else:
            findings = [*check_guarantee(release, trips), *check_expected(release, trips, expect or {})]
        if not findings:
            findings = list(_Recount(release, trips, notes).run(earlier, test_noise=test_noise))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, pa.ArrowException) as error:
        # A report with other entries than those of version 0.3 can fail anywhere, and must not hold.
        reason = str(error) if isinstance(error, FolderError) else "not readable, or not of the form of version 0.3"
        findings = [f"the release cannot be recounted: {reason}"]
    return Result(tuple(findings), tuple(notes), counted)


# ---- counting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Counted:
    """What groups of rows contain: one value for each group; None for what was not asked for."""

    trips: Counts
    weight: Counts | None
    people: Counts | None
    begins: Counts | None
    ends: Counts | None

    def value(self, unit: str) -> Counts:
        """The value that a threshold is compared with."""
        if unit == "locations":
            assert self.begins is not None
            assert self.ends is not None
            return np.minimum(self.begins, self.ends)
        found = {"trips": self.trips, "people": self.people, "population": self.weight}[unit]
        assert found is not None
        return found

    def safe(self, least: Mapping[str, float]) -> Mask:
        """Which groups reach every threshold."""
        ok = np.ones(len(self.trips), dtype=np.bool_)
        for unit, threshold in least.items():
            ok &= self.value(unit) >= threshold
        return ok


def _sum(values: Counts, group: Ints, n: int) -> Counts:
    """Sums by group; exact, because totals stay below 2**53."""
    kept = group >= 0
    if kept.all():
        return np.bincount(group, weights=values, minlength=n).astype(np.int64)
    return np.bincount(group[kept], weights=values[kept], minlength=n).astype(np.int64)


def _distinct(group: Ints, member: Ints, n: int, size: int, worth: Counts | None) -> Counts:
    """Distinct members of each group; each counts as much as it is worth, or 1."""
    kept = group >= 0
    key = np.unique(group[kept].astype(np.int64) * size + member[kept])
    value = None if worth is None else worth[key % size].astype(np.float64)
    return np.bincount(key // size, weights=value, minlength=n).astype(np.int64)


def _numbered(*columns: NDArray[Any]) -> tuple[Ints, int, NDArray[np.int64]]:
    """Number the distinct combinations of columns of small whole numbers; -1 in any column gives -1.

    Returns:
        The number of each row, how many numbers there are, and a row of each.
    """
    key = columns[0].astype(np.int64)
    out = key < 0
    for column in columns[1:]:
        out |= column < 0
        key = key * (int(column.max(initial=0)) + 1) + column
    kept = np.flatnonzero(~out)
    _, first, number = np.unique(key[kept], return_index=True, return_inverse=True)
    found = np.full(len(key), -1, dtype=np.int32)
    found[kept] = number
    return found, len(first), kept[first]


@dataclass(frozen=True, eq=False)
class _Family:
    """Cells of one matrix, or of slices of one detail: they share no trip.

    Attributes:
        cells: numbers of the cells.
        container: int32 (spans, slices): the published slice or spans that hold each slice of the input; -1 for none.
        detail: which slice columns have a value, and the length of the time label: finer slices have more.
    """

    cells: NDArray[np.int64]
    container: Ints
    detail: tuple[int, ...]

    def holds(self, finer: _Family) -> bool:
        """Whether slices of another family lie within those of this one."""
        pairs = list(zip(self.detail, finer.detail, strict=True))
        return self.detail != finer.detail and all(wide <= narrow for wide, narrow in pairs)


class _Recount:
    """The recount of a release without noise."""

    def __init__(self, release: Release, trips: Trips, notes: list[str]) -> None:
        self.release, self.trips, self.notes = release, trips, notes
        halves = release.parameters.get("hierarchy") == "halves"
        extra = None if trips.stricter is None else trips.stricter.tile
        self.tiles = [_with_places(tiles, extra) for tiles in (trips.origins, trips.destinations)]
        self.trees: list[Tree] = []
        self.zone: list[NDArray[np.int64]] = []
        for tiles, of_map, name in zip(
            self.tiles, (trips.origin_map, trips.destination_map), ("origin_zone", "destination_zone"), strict=True
        ):
            tree = build_tree(tiles, of_map, halves=halves)
            codes = pa.array(tree.code.tolist(), pa.string())
            found = pc.index_in(release.flows[name].cast(pa.string()), value_set=codes)
            self.trees.append(tree)
            self.zone.append(found.fill_null(-1).to_numpy().astype(np.int64))
        layered = "layer" in release.flows.column_names
        self.layer = release.numbers("layer").astype(np.int64) if layered else np.zeros(len(release), dtype=np.int64)
        self.slice_of_cell = np.zeros(len(release), dtype=np.int64)
        self.n_slices = 1

    def run(self, earlier: Sequence[Any], *, test_noise: bool = True) -> Iterator[str]:
        """Every finding, section by section."""
        families, problems = self._families()
        yield from problems
        if problems:
            return
        if self.release.kind == "noisy":
            yield from self._check_noise(families, test_counts=test_noise)
            return
        assigned: list[tuple[_Family, Ints]] = []
        counted_in: Mask | None = None
        # From fine to coarse: over common zones, coarser matrices are sums of what the finest publish.
        for family in sorted(families, key=lambda f: f.detail, reverse=True):
            finest = all(family.detail) and family is max(families, key=lambda f: f.detail)
            removed = self._hopeless(family)
            if self.release.common_zones and not finest:
                kept = np.zeros(len(self.trips), dtype=np.bool_) if counted_in is None else counted_in
                removed = ~kept if removed is None else removed | ~kept
            if self.release.kind == "boxed":
                cell, findings = self._assign_boxes(removed)
            else:
                cell, findings = self._assign(family, removed)
            yield from findings
            if cell is None:
                continue
            if finest:
                counted_in = cell >= 0
            assigned.append((family, cell))
            yield from self._check_cells(family, cell)
            if self.release.statement["homogeneous"]:
                yield from self._check_homogeneous(family, cell, removed)
        yield from self._check_groups_of_people(families)
        if not self.release.common_zones and len(assigned) > 1:
            yield from self._check_subtraction(assigned)
        if self.release.is_revision and assigned:
            cell = assigned[0][1]
            counted = self._count(cell, len(self.release), self.release.least)
            yield from revisions.check(self.release, self.trips, cell, counted, earlier, self.notes)
        elif "revised" in self.release.flows.column_names:
            yield "flows.parquet: says which cells are revised, but the release is no revision"
        yield from self._check_shares(families)

    def _check_noise(self, families: list[_Family], *, test_counts: bool) -> Iterator[str]:
        assigned: list[tuple[Ints, Ints]] = []
        for family in families:
            cell, findings = self._assign(family, None)
            yield from findings
            if cell is not None:
                assigned.append((family.container[0][self.trips.of_slice()], cell))
        if test_counts:
            yield from noise.check_counts(self.release, self.trips, assigned)

    # ---- slices and spans --------------------------------------------------------------------------------------------

    def _families(self) -> tuple[list[_Family], list[str]]:
        """The matrices that share no trip within themselves, and what is wrong with their slices or spans."""
        release, trips = self.release, self.trips
        every_cell = np.arange(len(release))
        if release.kind == "folded":
            return self._folded_family()
        if not release.slice_columns:
            return [_Family(every_cell, np.zeros((1, 1), dtype=np.int32), (1,))], []
        columns = [release.flows[name].to_pylist() for name in release.slice_columns]
        keys = sorted(set(zip(*columns, strict=True)), key=str)
        number = {key: n for n, key in enumerate(keys)}
        self.slice_of_cell = np.array([number[key] for key in zip(*columns, strict=True)], dtype=np.int64)
        self.n_slices = len(keys)
        families, used = [], 0
        for detail in sorted({_detail(key, release.slice_columns) for key in keys}):
            own = {key: n for n, key in enumerate(keys) if _detail(key, release.slice_columns) == detail}
            container = np.full((1, len(trips.slices)), -1, dtype=np.int32)
            for m, values in enumerate(trips.slices):
                container[0, m] = own.get(_cut(values, detail, release.slice_columns), -1)
            used += len(set(container.ravel().tolist()) - {-1})
            cells = np.flatnonzero(np.isin(self.slice_of_cell, list(own.values())))
            families.append(_Family(cells, container, detail))
        # Noise may fill declared slices without trips.
        if used < len(keys) and release.kind != "noisy":
            return [], [f"flows.parquet: {len(keys) - used} slices are not in the input"]
        return families, []

    def _folded_family(self) -> tuple[list[_Family], list[str]]:
        release, trips = self.release, self.trips
        if trips.every is None or trips.slice_columns != ("time",):
            return [], ["report.json: time is folded, but the input has no steps of time"]
        pairs = list(zip(*(release.flows[name].to_pylist() for name in spans.COLUMNS), strict=True))
        # Enclosing spans first: the position of a span among those around a step is then the same for all of its steps.
        distinct = sorted(
            sorted(set(pairs), key=lambda span: str(span[1]), reverse=True), key=lambda span: str(span[0])
        )
        labels = [key[0] for key in trips.slices]
        unknown = spans.count_unknown(distinct, trips.every, labels)
        if unknown:
            return [], [f"flows.parquet: {unknown} spans of time are none that steps fold into"]
        number = {span: n for n, span in enumerate(distinct)}
        self.slice_of_cell = np.array([number[span] for span in pairs], dtype=np.int64)
        self.n_slices = len(distinct)
        inside = [[n for n, (start, stop) in enumerate(distinct) if start <= label < stop] for label in labels]
        container = np.full((max(map(len, inside), default=1) or 1, len(labels)), -1, dtype=np.int32)
        for m, numbers in enumerate(inside):
            container[: len(numbers), m] = numbers
        return [_Family(np.arange(len(release)), container, (1,))], []

    def _check_groups_of_people(self, families: list[_Family]) -> Iterator[str]:
        """Section 8: k persons in every slice and span, where persons are known."""
        if self.trips.persons is None or (self.release.kind != "folded" and not self.release.slice_columns):
            return
        what = "spans of time" if self.release.kind == "folded" else "slices"
        few = 0
        for family in families:
            for container in family.container:
                group = container[self.trips.of_slice()]
                people = self.trips.persons.count(group, self.n_slices)
                few += int(np.sum(people[np.unique(container[container >= 0])] < self.release.k))
        if few:
            yield f"flows.parquet: {few} {what} have fewer than k people"

    # ---- which cell counts a row -------------------------------------------------------------------------------------

    def _assign(self, family: _Family, removed: Mask | None) -> tuple[Ints | None, list[str]]:
        """The cell of each row, -1 for none, and what is wrong.

        Cells are sorted by slice, layer, origin zone and where the destination zone begins in the order of tiles; the
        cell of a row is then found by binary search, once for every node above its origin.
        """
        tree_o, tree_d = self.trees
        wide = np.int64(len(self.tiles[1]) + 1)
        known = (self.zone[0][family.cells] >= 0) & (self.zone[1][family.cells] >= 0)
        if not known.all() and self.release.kind != "noisy":
            return None, [f"flows.parquet: {int(np.sum(~known))} cells have zones that hold no tile of the input"]
        cells = family.cells[known]
        a, b = self.zone[0][cells], self.zone[1][cells]
        n_layers = int(self.layer.max()) + 1
        key = ((self.slice_of_cell[cells] * n_layers + self.layer[cells]) * len(tree_o.code) + a) * wide
        order = np.lexsort((-tree_d.stop[b], key + tree_d.start[b]))
        place, number = (key + tree_d.start[b])[order], cells[order]
        reach = (key + tree_d.stop[b])[order]
        nested = int(np.sum(place[1:] < np.maximum.accumulate(reach)[:-1]))
        if nested:
            return None, [f"flows.parquet: {nested} cells lie in other cells of the same origin zone"]
        found = np.full(len(self.trips), -1, dtype=np.int32)
        twice = np.zeros(len(self.trips), dtype=np.bool_)
        waiting = np.ones(len(self.trips), dtype=np.bool_) if removed is None else ~removed
        begins_here = np.zeros(len(tree_o.code), dtype=np.bool_)
        begins_here[a] = True
        of_slice, position = self.trips.of_slice(), tree_d.position
        for layer in np.unique(self.layer[cells]).tolist():
            rows = np.flatnonzero(waiting & (found < 0))
            for container in family.container:
                held = container[of_slice[rows]].astype(np.int64)
                below = np.full(len(rows), -1, dtype=np.int32)
                for step in tree_o.up:
                    node = step[self.trips.origin[rows]]
                    # A shorter chain repeats its root, which was looked up before.
                    at = np.flatnonzero(begins_here[node] & (held >= 0) & (node != below))
                    below = node
                    self._search(
                        rows[at],
                        ((held[at] * n_layers + layer) * len(tree_o.code) + node[at]) * wide,
                        position,
                        (place, reach, number),
                        (found, twice),
                    )
        n = int(twice.sum())
        return found, [f"flows.parquet: {n} flows of the input fall into two published cells"] if n else []

    def _search(self, rows: Any, key: Any, position: Ints, cells: Any, into: tuple[Ints, Mask]) -> None:
        """Find the cells of rows among those of a slice, layer and origin zone."""
        place, reach, number = cells
        found, twice = into
        target = key + position[self.trips.destination[rows]]
        at = np.searchsorted(place, target, side="right") - 1
        hit = (at >= 0) & (place[at] >= key) & (reach[at] > target)
        rows = rows[hit]
        twice[rows[found[rows] >= 0]] = True
        found[rows] = number[at[hit]]

    def _assign_boxes(self, removed: Mask | None) -> tuple[Ints | None, list[str]]:
        """The same for boxes; None where boxes overlap, or codes are not boxes."""
        release, trips = self.release, self.trips
        grid = release.statement["boxes"]
        bounds, centers = [], []
        for end, (tiles, of_map) in enumerate(
            ((trips.origins, trips.origin_map), (trips.destinations, trips.destination_map))
        ):
            name = ("origin_zone", "destination_zone")[end]
            encoded = release.flows[name].combine_chunks().cast(pa.string()).dictionary_encode()
            of_zone = boxes.bounds_of(encoded.dictionary)
            off = boxes.off_grid(of_zone, grid["grid_lon"], grid["grid_lat"])
            if off:
                return None, [f"zones.parquet: {off} zones are no boxes on the declared grid"]
            bounds.append(of_zone[encoded.indices.to_numpy()])
            centers.append(boxes.centers_of(tiles, of_map))
        if any(np.isnan(center).all() for center in centers):
            return None, ["the input does not say where its tiles lie, so nothing in boxes can be recounted"]
        rows: list[Any] = [np.zeros(0, dtype=np.int64)]
        cells: list[Any] = [np.zeros(0, dtype=np.int64)]
        for row, cell in boxes.pairs_inside(
            centers[0][trips.origin], centers[1][trips.destination], bounds[0], bounds[1]
        ):
            rows.append(row)
            cells.append(cell)
        row, cell = np.concatenate(rows), np.concatenate(cells)
        if removed is not None:
            row, cell = row[~removed[row]], cell[~removed[row]]
        if release.overlapping:
            return None, list(self._bound_boxes(row, cell))
        found = np.full(len(trips), -1, dtype=np.int32)
        found[row] = cell
        twice = int(np.sum(np.bincount(row, minlength=len(trips)) > 1))
        return found, [f"flows.parquet: {twice} flows of the input fall into two published cells"] if twice else []

    def _bound_boxes(self, row: Any, cell: Any) -> Iterator[str]:
        """Section 10: what must hold wherever trips in several boxes are counted."""
        release, trips = self.release, self.trips
        self.notes.append("Boxes overlap: which of them counts a trip is not published, so cells were only bounded.")
        n, alone = len(release), np.bincount(row, minlength=len(trips))[row] == 1
        bases: dict[str, tuple[Counts, Counts]] = {"trips": (trips.trips, release.numbers("trips"))}
        published_weight = release.weight()
        if trips.weight is not None and published_weight is not None:
            bases["weight"] = (trips.weight, published_weight)
        for basis, (raw, published) in bases.items():
            most = np.bincount(cell, weights=raw[row], minlength=n)
            sure = np.bincount(cell[alone], weights=raw[row[alone]], minlength=n)
            over = int(np.sum((published > most) | (published < 0)))
            if over:
                yield f"flows.parquet: {over} cells have more {basis} than lie in their boxes"
            left = int(raw.sum()) - int(published.sum())
            if left < 0:
                yield f"flows.parquet: more {basis} are published than the input has"
            elif np.maximum(sure - published, 0).sum() > left:
                yield f"flows.parquet: cells lack more {basis} than are suppressed"
        least = dict(release.least)
        for unit, values in (("trips", release.numbers("trips")), ("population", published_weight)):
            threshold = least.pop(unit, None)
            if threshold is not None and values is not None and np.any(values < threshold):
                yield f"flows.parquet: {int(np.sum(values < threshold))} cells have too few {unit} for the guarantee"
        if least:
            yield from self._bound_members(row, cell, least)

    def _bound_members(self, row: Any, cell: Any, least: dict[str, float]) -> Iterator[str]:
        """The same for units whose members are counted once: all in the boxes are as many as there can be."""
        trips, n = self.trips, len(self.release)
        if "locations" in least:
            worth = self._worth()
            tiles = (trips.origin[row], trips.destination[row])
            sizes = (len(trips.origins), len(trips.destinations))
            found = [_distinct(cell, tiles[e], n, sizes[e], worth[e]) for e in (0, 1)]
            short = int(np.sum(np.minimum(*found) < least["locations"]))
            if short:
                yield f"flows.parquet: {short} cells have too few locations for the guarantee"
        if "people" in least:
            assert trips.persons is not None
            # Rows that lie in several cells are in several passes: each pass has a row in one cell.
            order = np.argsort(row, kind="stable")
            turn = np.arange(len(row)) - np.searchsorted(row[order], row[order])
            people = np.zeros(n, dtype=np.int64)
            for number in range(int(turn.max(initial=-1)) + 1):
                group = np.full(len(trips), -1, dtype=np.int32)
                at = order[turn == number]
                group[row[at]] = cell[at]
                people += trips.persons.count(group, n)
            short = int(np.sum(people < least["people"]))
            if short:
                yield f"flows.parquet: {short} cells have too few people for the guarantee"

    # ---- sections 3 to 7 ---------------------------------------------------------------------------------------------

    def _hopeless(self, family: _Family) -> Mask | None:
        """Section 3: the rows that the rule `hopeless flows` removes; None without that rule."""
        rule, trips = self.release.statement["suppression"], self.trips
        if rule["rule"] != "hopeless flows":
            return None
        seen = [np.arange(len(tiles)) < len(own) for tiles, own in zip(self.tiles, self._own_tiles(), strict=True)]
        ends = (trips.origin, trips.destination)
        lifted = [
            tree.lifted(int(rule["levels"]), mask)[end] for tree, mask, end in zip(self.trees, seen, ends, strict=True)
        ]
        container = family.container[0][trips.of_slice()]
        group, n, _ = _numbered(container, lifted[0], lifted[1])
        safe = self._count(group, n, self.release.least).safe(self.release.least)
        flow, n_flows, row = _numbered(container, trips.origin, trips.destination)
        volume = trips.weight if "population" in self.release.least else trips.trips
        assert volume is not None
        hopeless = np.flatnonzero(~safe[group[row]])
        amount, row, in_slice = _sum(volume, flow, n_flows)[hopeless], row[hopeless], container[row]
        allowed = np.floor(np.bincount(in_slice, minlength=self.n_slices) * float(rule["beta"]))
        rank = [np.argsort(np.argsort(own)) for own in self._own_tiles()]
        of_slice = container[row]
        order = np.lexsort((rank[1][trips.destination[row]], rank[0][trips.origin[row]], amount, of_slice))
        turn = np.arange(len(order)) - np.searchsorted(of_slice[order], of_slice[order])
        removed = np.zeros(n_flows + 1, dtype=np.bool_)
        removed[hopeless[order[turn < allowed[of_slice[order]]]]] = True
        return removed[flow]

    def _own_tiles(self) -> tuple[Codes, Codes]:
        return self.trips.origins, self.trips.destinations

    def _worth(self) -> tuple[Counts | None, Counts | None]:
        """How many listed places lie in each tile of both ends; None where tiles themselves are counted."""
        if self.release.parameters.get("l_places") is None or self.trips.l_places is None:
            return None, None
        listed, n = np.unique(_texts(self.trips.l_places.tile), return_counts=True)
        worth = []
        for own in self._own_tiles():
            at = np.searchsorted(listed, _texts(own)).clip(max=len(listed) - 1)
            worth.append(np.where(listed[at] == _texts(own), n[at], 0).astype(np.int64))
        return worth[0], worth[1]

    def _count(self, group: Ints, n: int, least: Mapping[str, float]) -> Counted:
        """Count groups of rows, in the units that have a threshold."""
        trips = self.trips
        begins = ends = people = None
        if "locations" in least:
            worth = self._worth()
            begins = _distinct(group, trips.origin, n, len(trips.origins), worth[0])
            ends = _distinct(group, trips.destination, n, len(trips.destinations), worth[1])
        if "people" in least and trips.persons is not None:
            people = trips.persons.count(group, n)
        weight = None if trips.weight is None else _sum(trips.weight, group, n)
        return Counted(_sum(trips.trips, group, n), weight, people, begins, ends)

    def _check_cells(self, family: _Family, cell: Ints) -> Iterator[str]:
        """Sections 4, 5 and 6 for the cells of a family."""
        release = self.release
        least = self._least_with_places()
        counted = self._count(cell, len(release), least)
        looked_at = np.zeros(len(release), dtype=np.bool_)
        looked_at[family.cells] = True
        if release.is_revision and "revised" in release.flows.column_names:
            # Cells that are not revised have the values of an earlier release.
            looked_at &= release.numbers("revised")
        problems = {
            "cells hold no flow of the input": counted.trips == 0,
            "cells have another number of trips than the recount": counted.trips != release.numbers("trips"),
        }
        weight = release.weight()
        if weight is not None and counted.weight is not None:
            problems["cells have another weight than the recount"] = counted.weight != weight
        for unit, threshold in release.least.items():
            problems[f"cells have too few {unit} for the guarantee"] = counted.value(unit) < threshold
        if release.parameters.get("dominance") is not None:
            problems["cells have one person who makes more of the trips than the rule of dominance allows"] = (
                self._dominated(cell, counted.trips)
            )
        ends = (self.zone[0], self.zone[1]) if release.kind != "boxed" else None
        if ends is not None and release.parameters.get("t") is not None:
            if release.kind != "plain" or not release.statement["homogeneous"]:
                yield "report.json: states t-closeness, but not of one matrix of zones that do not overlap"
            problems["cells are of zones farther from all published trips than t"] = far_from_all(
                *ends, counted.trips, float(release.parameters["t"])
            )
        if ends is not None and self.trips.stricter is not None and release.parameters.get("stricter") is not None:
            problems["cells around listed places are below what is required there"] = self._below_places(counted, *ends)
        for problem, wrong in problems.items():
            n = int(np.sum(wrong & looked_at))
            if n:
                yield f"flows.parquet: {n} {problem}"
        yield from self._check_lists()

    def _check_homogeneous(self, family: _Family, cell: Ints, removed: Mask | None) -> Iterator[str]:
        """Section 7."""
        release, trips = self.release, self.trips
        if release.kind == "boxed" or self.layer.max() > 0:
            yield "report.json: boxes and layers are not homogeneous"
            return
        ends = [(self.zone[0], self.trees[0]), (self.zone[1], self.trees[1])]
        slices = self.slice_of_cell[family.cells]
        for (zone, tree), role in zip(ends, ("origin", "destination"), strict=True):
            n = count_overlaps(slices, zone[family.cells], tree)
            if n:
                yield f"flows.parquet: {n} {role} zones overlap others, but the release is said to be homogeneous"
                return
        if release.parameters.get("same_zones"):
            both = np.concatenate([zone[family.cells] for zone, _ in ends])
            if count_overlaps(np.concatenate((slices, slices)), both, self.trees[0]):
                yield "flows.parquet: origin and destination zones differ, but both are said to be the same"
        if release.parameters.get("stricter") is not None and trips.stricter is None:
            return
        lost = cell < 0 if removed is None else (cell < 0) & ~removed
        for container in family.container:
            held = np.where(lost, container[trips.of_slice()], -1)
            nodes = [
                zones_around(held, end, slices, zone[family.cells], tree)
                for end, (zone, tree) in zip((trips.origin, trips.destination), ends, strict=True)
            ]
            group, n, first = _numbered(held, nodes[0], nodes[1])
            counted = self._count(group, n, self._least_with_places())
            missing = counted.safe(release.least)
            if release.parameters.get("dominance") is not None:
                missing &= ~self._dominated(group, counted.trips)
            if release.parameters.get("stricter") is not None:
                missing &= ~self._below_places(counted, nodes[0][first], nodes[1][first])
            if missing.any():
                yield f"flows.parquet: {int(missing.sum())} cells that reach the guarantee are missing"

    # ---- post rules --------------------------------------------------------------------------------------------------

    def _dominated(self, group: Ints, held: Counts) -> Mask:
        """Groups in which one person makes more than the allowed share of the trips."""
        share, persons = float(self.release.parameters["dominance"]), self.trips.persons
        found = np.zeros(len(held), dtype=np.bool_)
        if isinstance(persons, PersonRows) and persons.trips is not None:
            of_group, made = persons.members(group)
            found[of_group[made > share * held[of_group]]] = True
        return found

    def _check_lists(self) -> Iterator[str]:
        """Whether what the rules need is available, and is what the report says."""
        parameters, trips = self.release.parameters, self.trips
        if parameters.get("dominance") is not None and not (
            isinstance(trips.persons, PersonRows) and trips.persons.trips is not None
        ):
            if trips.persons is None:
                yield "report.json: states a rule of dominance, but the input has no persons to count"
            else:
                self.notes.append("The rule of dominance was not recounted: trips of single persons are not available.")
        for name, places in (("stricter", trips.stricter), ("l_places", trips.l_places)):
            stated = parameters.get(name)
            if stated is None:
                if places is not None:
                    yield f"report.json: does not say that the list of places ({name}) was used"
            elif places is None:
                self.notes.append(f"Cells were not recounted with the listed places ({name}): the list was not given.")
            elif stated != _stated_list(name, places):
                yield f"report.json: the list of places ({name}) is another than the one that was given"
        if parameters.get("l_places") is not None and trips.l_places is None and "locations" in self.release.least:
            yield "report.json: locations are listed places, but the list was not given"

    def _least_with_places(self) -> dict[str, float]:
        """The thresholds; with one for locations also where only listed places have one, so that they are counted."""
        least = dict(self.release.least)
        if (self.release.parameters.get("stricter") or {}).get("l") is not None:
            least.setdefault("locations", 0)
        return least

    def _below_places(self, counted: Counted, a: NDArray[Any], b: NDArray[Any]) -> Mask:
        """Groups whose zones contain a listed place and which do not reach what is required there."""
        assert self.trips.stricter is not None
        k, least_l = (
            np.maximum(*(self._required(end, name)[zone] for end, zone in enumerate((a, b)))) for name in ("k", "l")
        )
        below = np.zeros(len(a), dtype=np.bool_)
        given = self.release.parameters.get("k_population") is not None
        for value in np.unique(k[k > 0]).tolist():
            for unit in self.release.protected:
                if unit == "population" and given:
                    continue
                least = mean_population(self.trips, value) if unit == "population" else value
                below |= (k == value) & (counted.value(unit) < (least or 0))
        return below | (counted.value("locations") < least_l) if least_l.any() else below

    def _required(self, end: int, name: str) -> Counts:
        """The highest k or l that is required of each node: that of the places in it."""
        places = self.trips.stricter
        assert places is not None
        tree, tiles = self.trees[end], _texts(self.tiles[end])
        required = np.zeros(len(tree.code), dtype=np.int64)
        order = np.argsort(tiles)
        at = order[np.searchsorted(tiles[order], _texts(places.tile))]
        for nodes in tree.up:
            np.maximum.at(required, nodes[at], getattr(places, name))
        return required

    # ---- sections 9 and 11 -------------------------------------------------------------------------------------------

    def _check_subtraction(self, assigned: list[tuple[_Family, Ints]]) -> Iterator[str]:
        """Section 9: each kind of finer matrices is taken off alone, and all kinds together."""
        worst = 0
        for family, cell in assigned:
            finer = [(other, at) for other, at in assigned if family.holds(other)]
            covered = [(cell >= 0) & (at >= 0) & self._inside(at, cell) for _, at in finer]
            if len(covered) > 1:
                covered.append(np.logical_or.reduce(covered))
            for mask in covered:
                rest, n, _ = _numbered(np.where(mask, -1, cell))
                safe = self._count(rest, n, self.release.least).safe(self.release.least)
                worst = max(worst, int(np.sum(~safe)))
        if self.release.statement.get("differencing_accepted"):
            self.notes.append("Differences between matrices of the same trips are accepted by the publisher.")
        elif worst:
            yield f"flows.parquet: {worst} differences between its matrices are below the guarantee"

    def _inside(self, finer: Ints, coarser: Ints) -> Mask:
        """Whether the zones of one cell lie in those of another, row by row."""
        inside = np.ones(len(finer), dtype=np.bool_)
        for zone, tree in zip(self.zone, self.trees, strict=True):
            f, c = zone[finer], zone[coarser]
            inside &= (tree.start[c] <= tree.start[f]) & (tree.stop[f] <= tree.stop[c])
        return inside

    def _check_shares(self, families: list[_Family]) -> Iterator[str]:
        """Section 11: shares of the input that were dropped while reading, outside the study area, and suppressed.

        The basis is weight if the population is protected, else trips. The whole is the volume of all input rows: read,
        dropped and outside. The dropped share is the larger of those of rows and of volume. Of several matrices of the
        same trips, the finest count. A share is stated as the smallest multiple of the step that is not below it, at
        least one step and at most 1; the step is max(1 %, k / published trips), at most 1.
        """
        stated, trips, release = self.release.statement.get("shares"), self.trips, self.release
        if stated is None or release.is_revision:
            if (stated is None) != release.is_revision:
                yield "report.json: shares are missing, or stated by a revision"
            return
        basis = "weight" if "population" in release.least else "trips"
        unread = trips.unread_volume(basis)
        if unread is None:
            self.notes.append("shares were not compared: the volume of rows that could not be read is unknown")
            return
        made, weight = release.numbers("trips"), release.weight()
        cells = max(families, key=lambda family: family.detail).cells
        volume, published = (Fraction(int(values.sum()), trips.unit) for values in (trips.trips, made[cells]))
        step = min(Fraction(1), max(Fraction(1, 100), Fraction(release.k) / max(Fraction(1), published)))
        if basis == "weight" and trips.weight is not None and weight is not None:
            volume, published = (Fraction(int(values.sum()), 10**6) for values in (trips.weight, weight[cells]))
        dropped, outside = unread
        whole = max(Fraction(1), volume + dropped + outside)
        rows = Fraction(0) if trips.rows is None else Fraction(trips.dropped, max(1, trips.rows))
        shares = {
            "dropped": max(dropped / whole, rows),
            "outside": None if release.parameters.get("within") is None else outside / whole,
            "suppressed": max(Fraction(0), volume - published) / whole,
        }
        expected = {name: None if share is None else shown_share(share, step) for name, share in shares.items()}
        per_trip = volume / max(Fraction(1), Fraction(int(trips.trips.sum()), trips.unit))
        lost = max(Fraction(0), volume - published)
        expected["suppressed"] = self._shown_suppressed(cells, lost, whole, step, per_trip)
        expected["step"] = float(step)
        wrong = [name for name, value in expected.items() if not _same(stated.get(name), value)]
        if wrong or stated.get("basis") != basis:
            yield f"report.json: shares ({', '.join(wrong) or 'basis'}) are not what the recount gives"

    def _shown_suppressed(
        self, cells: Any, suppressed: Fraction, whole: Fraction, step: Fraction, per_trip: Fraction
    ) -> float:
        """The suppressed share; one that only full pairs explain is stated as that of all of them full.

        Full is an unlisted pair of listed zones with k - 1 trips of mean weight.
        """
        release, shown = self.release, shown_share(suppressed / whole, step)
        rule = release.statement["suppression"]["rule"]
        if not release.statement["homogeneous"] or rule != "short cells":
            return shown
        matrix = self.slice_of_cell[cells]
        unlisted = -len(cells)
        for one in np.unique(matrix):
            own = cells[matrix == one]
            unlisted += len(np.unique(self.zone[0][own])) * len(np.unique(self.zone[1][own]))
        rest = whole - suppressed
        most, nearly = (per_trip * max(n, 0) * (release.k - 1) for n in (unlisted, unlisted - 1))
        if suppressed > most or shown < shown_share(nearly / max(rest + nearly, Fraction(1)), step):
            return shown
        return shown_share(most / max(rest + most, Fraction(1)), step)


# ---- small parts -----------------------------------------------------------------------------------------------------


def shown_share(share: Fraction, step: Fraction) -> float:
    """The smallest multiple of the step that is not below a share: at least one step, at most 1."""
    return float(min(Fraction(1), max(1, math.ceil(share / step)) * step))


def _same(stated: Any, value: float | None) -> bool:
    if value is None:
        return stated is None
    return isinstance(stated, int | float) and abs(stated - value) <= 1e-12


def _detail(key: tuple[str | None, ...], columns: Sequence[str]) -> tuple[int, ...]:
    """How much a slice says of each column: nothing, something, or a time label of some length."""
    return tuple(
        0 if value is None else len(value) if name == "time" else 1 for value, name in zip(key, columns, strict=True)
    )


def _cut(values: tuple[str, ...], detail: tuple[int, ...], columns: Sequence[str]) -> tuple[str | None, ...]:
    """The published slice of this detail that a slice of the input lies in: labels of longer steps are prefixes."""
    return tuple(
        None if not n else value[:n] if name == "time" else value
        for value, n, name in zip(values, detail, columns, strict=True)
    )


def _texts(codes: Codes) -> Codes:
    return cell_texts(codes) if codes.dtype == np.uint64 else codes


def _with_places(tiles: Codes, places: Codes | None) -> Codes:
    """Tiles, followed by those of listed places that are not among them."""
    if places is None:
        return tiles
    if tiles.dtype == np.uint64 and places.dtype != np.uint64:
        places = np.array([int(code, 16) for code in places.tolist()], dtype=np.uint64)
    return np.concatenate((tiles, np.setdiff1d(places, tiles)))


def _stated_list(name: str, places: Places) -> dict[str, Any]:
    if name == "l_places":
        return {"places": len(places.tile)}
    highest = {letter: int(getattr(places, letter).max(initial=0)) or None for letter in ("k", "l")}
    return {"places": len(places.tile), **highest}
