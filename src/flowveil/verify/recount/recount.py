"""Recounts a release from the raw trips: an independent check that its numbers are right and its
guarantee holds.

This package imports nothing of flowveil, so a mistake in the program cannot repeat itself here. It
follows the specification, docs/reference/recount.md, section by section. Findings have numbers of
cells, never a value of a cell, a place or a person.
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

from . import geometry, inputs, noise, revisions, values
from .inputs import (
    MILLION,
    Counts,
    FolderError,
    PersonRows,
    Release,
    Trips,
    texts_of,
    with_places,
    worth_of,
)
from .slices import find_slices
from .tree import Ints, build_tree, count_overlaps, zones_around

Mask = NDArray[np.bool_]
#: What groups of rows contain, by unit: one number for each group.
Counted = Mapping[str, Counts]
_ENDS = ("origin", "destination")


@dataclass(frozen=True)
class Result:
    """What a recount found."""

    findings: tuple[str, ...]  # one line for each contradiction; empty if the release holds
    notes: tuple[str, ...]  # what could not be compared, or only bounded
    counted: dict[str, Any]  # what was compared: kind, number of cells, units, who read the input


def recount(
    folder: str | Path,
    trips: Trips,
    *,
    earlier: Sequence[Any] = (),
    expect: Any = None,
    test_noise: bool = True,
) -> Result:
    """Compares a release folder with the raw trips, read as the report says.

    ``earlier`` are the folders of the releases that this one revises, the oldest first; empty if
    not available. ``expect`` is the guarantee that the reader requires: ``k``, ``protect``,
    ``k_population``, ``l``. ``test_noise`` tests the counts of a noisy release; not before it is
    published.
    """
    notes: list[str] = []
    counted: dict[str, Any] = {"read_by": trips.read_by}
    try:
        release = Release(Path(folder), trips)
        counted |= {"kind": release.kind, "cells": len(release), "units": list(release.protected)}
        if release.is_noisy:
            findings = [*noise.check_form(release, trips, expect or {})]
        else:
            findings = [
                *inputs.check_guarantee(release, trips),
                *inputs.check_expected(release, trips, expect or {}),
            ]
        if not findings:
            findings = list(_Recount(release, trips, notes).run(earlier, test_noise=test_noise))
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        pa.ArrowException,
    ) as error:
        # A report with other entries than those of version 0.3 can fail anywhere, and must not
        # hold.
        reason = (
            str(error)
            if isinstance(error, FolderError)
            else "not readable, or not of the form of this version"
        )
        findings = [f"the release cannot be recounted: {reason}"]
    return Result(tuple(findings), tuple(notes), counted)


def _sum(values: Counts, group: Ints, n: int) -> Counts:
    """Returns sums by group; exact, because totals stay below 2**53."""
    kept = group >= 0
    return np.bincount(group[kept], weights=values[kept], minlength=n).astype(np.int64)


def _distinct(group: Ints, member: Ints, n: int, worth: Counts) -> Counts:
    """Returns the distinct members of each group; ``worth`` is what each counts."""
    kept = group >= 0
    key = np.unique(group[kept].astype(np.int64) * len(worth) + member[kept])
    return np.bincount(key // len(worth), weights=worth[key % len(worth)], minlength=n).astype(
        np.int64
    )


def _numbered(*columns: NDArray[Any]) -> tuple[Ints, int, NDArray[np.int64]]:
    """Returns the number of each row's combination of values (-1 if one is), how many there are,
    and a row of each.
    """
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        key = key * (int(column.max(initial=0)) + 1) + column
    kept = np.flatnonzero(np.logical_and.reduce([column >= 0 for column in columns]))
    _, first, number = np.unique(key[kept], return_index=True, return_inverse=True)
    found = np.full(len(key), -1, dtype=np.int32)
    found[kept] = number
    return found, len(first), kept[first]


def _safe(counted: Counted, least: Mapping[str, float]) -> Mask:
    """Returns which groups reach every threshold."""
    safe: Mask = np.logical_and.reduce(
        [counted[unit] >= threshold for unit, threshold in least.items()]
    )
    return safe


def _say(problems: Mapping[str, Any]) -> Iterator[str]:
    """Yields a finding for each problem that cells have."""
    for problem, wrong in problems.items():
        if np.any(wrong):
            yield f"flows.parquet: {int(np.sum(wrong))} {problem}"


class _Recount:
    """The recount of a release."""

    def __init__(self, release: Release, trips: Trips, notes: list[str]) -> None:
        self.release, self.trips, self.notes = release, trips, notes
        self.own_tiles, self.ends, self.maps = zip(*trips.ends, strict=True)
        self.tiles = [with_places(tiles, trips.stricter) for tiles in self.own_tiles]
        halves = release.parameters.get("hierarchy") == "halves"
        self.trees = [
            build_tree(*one, halves=halves) for one in zip(self.tiles, self.maps, strict=True)
        ]
        #: Node of the origin and of the destination zone of each cell; -1 for zones without a tile
        #: of the input.
        self.zone: list[NDArray[np.int64]] = []
        for end, tree in zip(_ENDS, self.trees, strict=True):
            codes = pa.array(tree.code.tolist(), pa.string())
            found = pc.index_in(release.flows[f"{end}_zone"].cast(pa.string()), value_set=codes)
            self.zone.append(found.fill_null(-1).to_numpy().astype(np.int64))
        layers = (
            release.flows["layer"].to_numpy() if release.has("layer") else np.zeros(len(release))
        )
        self.layer = layers.astype(np.int64)
        self.of_slice = trips.of_slice()
        self.containers, self.slice_of_cell, self.n_slices = find_slices(release, trips)
        listed = trips.l_places if release.parameters.get("l_places") is not None else None
        #: Thresholds; one for locations also if only listed places have one, so that they are
        #: counted.
        self.least = dict(release.least)
        if (release.parameters.get("stricter") or {}).get("l") is not None:
            self.least.setdefault("locations", 0)
        self.worth = [worth_of(tiles, listed) for tiles in self.own_tiles]

    def run(self, earlier: Sequence[Any], *, test_noise: bool = True) -> Iterator[str]:
        """Yields every finding, section by section."""
        values.check_form(self.release)
        removed = self._hopeless()
        row, cell = self._pairs_in_boxes() if self.release.has_boxes else self._pairs_in_zones()
        row, cell = row[~removed[row]], cell[~removed[row]]
        if self.release.has_boxes and not self.release.statement["boxes"]["disjoint"]:
            yield from self._bound_boxes(row, cell)
            assigned = None
        else:
            cell, twice = self._assign(row, cell)
            yield from _say({"flows of the input fall into two published cells": twice})
            if self.release.is_noisy:
                of_rows = [(self.containers[0][self.of_slice], cell)]
                if test_noise:
                    yield from noise.check_counts(self.release, self.trips, of_rows)
                return
            yield from self._check_cells(cell)
            if self.release.statement["homogeneous"]:
                yield from self._check_homogeneous(cell, removed)
            assigned = cell
        yield from self._check_lists()
        yield from self._check_people_of_slices()
        yield from self._check_revision(assigned, earlier)
        yield from self._check_shares()

    def _check_revision(self, cell: Ints | None, earlier: Sequence[Any]) -> Iterator[str]:
        if self.release.is_revision and cell is not None:
            counted = self._count(cell, len(self.release), self.release.least)
            yield from revisions.check(self.release, self.trips, cell, counted, earlier, self.notes)
        elif not self.release.is_revision and self.release.has("revised"):
            yield "flows.parquet: says which cells are revised, but the release is no revision"

    def _count(self, group: Ints, n: int, least: Mapping[str, float]) -> Counted:
        """Counts groups of rows: trips and weights, and the other units that have a threshold."""
        trips, counted = self.trips, {"trips": _sum(self.trips.trips, group, n)}
        if trips.weight is not None:
            counted["population"] = _sum(trips.weight, group, n)
        if "people" in least and trips.persons is not None:
            counted["people"] = trips.persons.count(group, n)
        if "locations" in least:
            counted["locations"] = self._locations(group, n, self.ends)
        return counted

    def _locations(self, group: Ints, n: int, ends: Sequence[Ints]) -> Counts:
        """Counts the distinct tiles, or listed places, at each end of each group.

        Returns the fewer.
        """
        tiles = [
            _distinct(group, end, n, worth) for end, worth in zip(ends, self.worth, strict=True)
        ]
        return np.minimum(*tiles)

    def _check_people_of_slices(self) -> Iterator[str]:
        """Section 8: k persons in every slice and span, where persons are known."""
        if self.trips.persons is None or (
            not self.release.is_folded and not self.release.slice_columns
        ):
            return
        few = 0
        for container in self.containers:
            people = self.trips.persons.count(container[self.of_slice], self.n_slices)
            few += int(np.sum(people[np.unique(container[container >= 0])] < self.release.k))
        what = "spans of time or groups of values" if self.release.is_folded else "slices"
        yield from _say({f"{what} have fewer than k people": few})

    def _assign(self, row: Any, cell: Any) -> tuple[Ints, Mask]:
        """Returns the cell of each row, -1 for none, and which rows are in two.

        With layers, the first one counts.
        """
        first = np.full(len(self.trips), np.iinfo(np.int64).max)
        np.minimum.at(first, row, self.layer[cell])
        counts = self.layer[cell] == first[row]
        found = np.full(len(self.trips), -1, dtype=np.int32)
        found[row[counts]] = cell[counts]
        return found, np.bincount(row[counts], minlength=len(self.trips)) > 1

    def _pairs_in_zones(self) -> tuple[Any, Any]:
        """Returns all pairs of a row and a cell around it.

        A rectangle in the orders of tiles, slice after slice.
        """
        known = (self.zone[0] >= 0) & (self.zone[1] >= 0)
        if not known.all() and not self.release.is_noisy:
            raise FolderError(
                f"flows.parquet: {int(np.sum(~known))} cells have zones that hold no tile of the"
                " input"
            )
        cells, (tree_o, tree_d), wide = (
            np.flatnonzero(known),
            self.trees,
            np.int64(len(self.tiles[0])),
        )
        before, a, b = self.slice_of_cell[cells] * wide, self.zone[0][cells], self.zone[1][cells]
        low = np.stack((before + tree_o.start[a], tree_d.start[b]), axis=1)
        high = np.stack((before + tree_o.stop[a], tree_d.stop[b]), axis=1)
        rows, found = [], []
        for container in self.containers:
            held = container[self.of_slice]
            at = np.flatnonzero(held >= 0)
            x = held[at] * wide + tree_o.position[self.trips.origin[at]]
            y = tree_d.position[self.trips.destination[at]]
            row, cell = geometry.pairs_inside(np.stack((x, y), axis=1), low, high)
            rows.append(at[row])
            found.append(cells[cell])
        return np.concatenate(rows), np.concatenate(found)

    def _pairs_in_boxes(self) -> tuple[Any, Any]:
        """The same for boxes."""
        release, grid = self.release, self.release.statement["boxes"]
        bounds, points = [], []
        for end, tiles, of_map, tile in zip(
            _ENDS, self.own_tiles, self.maps, self.ends, strict=True
        ):
            encoded = (
                release.flows[f"{end}_zone"].combine_chunks().cast(pa.string()).dictionary_encode()
            )
            of_zone = geometry.bounds_of(encoded.dictionary)
            off = geometry.count_off_grid(of_zone, grid["grid_lon"], grid["grid_lat"])
            if off:
                raise FolderError(f"zones.parquet: {off} zones are no boxes on the declared grid")
            bounds.append(of_zone[encoded.indices.to_numpy()])
            points.append(geometry.centers_of(tiles, of_map)[tile])
        if any(np.isnan(point).all() for point in points):
            raise FolderError(
                "the input does not say where its tiles lie, so nothing in boxes can be recounted"
            )
        low, high, number = geometry.corners_of(*bounds)
        row, box = geometry.pairs_inside(np.concatenate(points, axis=1), low, high)
        return row, number[box]

    def _bound_boxes(self, row: Any, cell: Any) -> Iterator[str]:
        """Section 10: what must hold whichever of several boxes counts a trip."""
        release, trips, n = self.release, self.trips, len(self.release)
        self.notes.append(
            "Boxes overlap: which of them counts a trip is not published, so cells were only"
            " bounded."
        )
        alone = np.bincount(row, minlength=len(trips))[row] == 1
        most: dict[str, Any] = {"trips": release.trips(), "population": release.weight()}
        for basis, unit, raw in (
            ("trips", "trips", trips.trips),
            ("weight", "population", trips.weight),
        ):
            published = most[unit]
            if raw is None or published is None:
                continue
            inside = np.bincount(cell, weights=raw[row], minlength=n)
            sure = np.bincount(cell[alone], weights=raw[row[alone]], minlength=n)
            over = (published > inside) | (published < 0)
            yield from _say({f"cells have more {basis} than lie in their boxes": over})
            # Negative if more is published than the input has.
            if np.maximum(sure - published, 0).sum() > int(raw.sum()) - int(published.sum()):
                yield f"flows.parquet: cells lack more {basis} than are suppressed"
        if "locations" in release.least:
            most["locations"] = self._locations(cell, n, [end[row] for end in self.ends])
        if "people" in release.least and trips.persons is not None:
            # Rows in several cells are counted in several passes, each with every row in one cell.
            order = np.argsort(row, kind="stable")
            turn = np.arange(len(row)) - np.searchsorted(row[order], row[order])
            most["people"] = np.zeros(n, dtype=np.int64)
            for number in range(int(turn.max(initial=-1)) + 1):
                group = np.full(len(trips), -1, dtype=np.int32)
                group[row[order[turn == number]]] = cell[order[turn == number]]
                most["people"] += trips.persons.count(group, n)
        yield from _say(
            {
                f"cells have too few {u} for the guarantee": most[u] < x
                for u, x in release.least.items()
            }
        )

    def _hopeless(self) -> Mask:
        """Section 3: the rows that the rule `hopeless flows` removes."""
        rule, trips, release = self.release.statement["suppression"], self.trips, self.release
        if rule["rule"] != "hopeless flows":
            return np.zeros(len(trips), dtype=np.bool_)
        lifted = [
            tree.lifted(int(rule["levels"]), len(own))[end]
            for tree, own, end in zip(self.trees, self.own_tiles, self.ends, strict=True)
        ]
        container = self.containers[0][self.of_slice]
        group, n, _ = _numbered(container, *lifted)
        safe = _safe(self._count(group, n, release.least), release.least)
        flow, n_flows, row = _numbered(container, *self.ends)
        volume = trips.weight if "population" in release.least else trips.trips
        assert volume is not None
        allowed = np.floor(
            np.bincount(container[row], minlength=self.n_slices) * float(rule["beta"])
        )
        hopeless = np.flatnonzero(~safe[group[row]])
        amount, row = _sum(volume, flow, n_flows)[hopeless], row[hopeless]
        rank = [
            np.argsort(np.argsort(own))[end[row]]
            for own, end in zip(self.own_tiles, self.ends, strict=True)
        ]
        order = np.lexsort((rank[1], rank[0], amount, container[row]))
        held = container[row[order]]
        turn = np.arange(len(order)) - np.searchsorted(held, held)
        removed = np.zeros(n_flows + 1, dtype=np.bool_)
        removed[hopeless[order[turn < allowed[held]]]] = True
        return removed[flow]

    def _check_cells(self, cell: Ints) -> Iterator[str]:
        """Sections 4, 5 and 6."""
        release = self.release
        counted = self._count(cell, len(release), self.least)
        problems = {
            "cells hold no flow of the input": counted["trips"] == 0,
            "cells have another number of trips than the recount": (
                counted["trips"] != release.trips()
            ),
        }
        weight = release.weight()
        if weight is not None:
            problems["cells have another weight than the recount"] = counted["population"] != weight
        for unit, threshold in release.least.items():
            problems[f"cells have too few {unit} for the guarantee"] = counted[unit] < threshold
        problems[
            "cells have one person who makes more of the trips than the rule of dominance allows"
        ] = self._dominated(cell, counted)
        problems |= values.compare(release, self.trips, cell)
        if not release.has_boxes:
            below = self._below_places(counted, self.zone)
            problems["cells around listed places are below what is required there"] = below
        if release.parameters.get("t") is not None:
            if not release.is_plain or not release.statement["homogeneous"]:
                yield (
                    "report.json: states t-closeness, but not of one matrix of zones that do not"
                    " overlap"
                )
            else:
                far = _far_from_all(
                    self.zone[0], self.zone[1], counted["trips"], float(release.parameters["t"])
                )
                problems["cells are of zones farther from all published trips than t"] = far
        looked_at = np.ones(len(release), dtype=np.bool_)
        if release.is_revision and release.has("revised"):
            # Cells that are not revised have the values of an earlier release.
            looked_at &= release.flows["revised"].to_numpy()
        yield from _say({problem: wrong & looked_at for problem, wrong in problems.items()})
        for column in values.of_persons(release, self.trips):
            yield (
                f"flows.parquet: has numbers of column '{column}', which belongs to the person:"
                " nearly every person has one value of it"
            )

    def _check_homogeneous(self, cell: Ints, removed: Mask) -> Iterator[str]:
        """Section 7."""
        release = self.release
        if release.has_boxes or self.layer.max() > 0:
            yield "report.json: boxes and layers are not homogeneous"
            return
        slices, zones = self.slice_of_cell, self.zone
        for zone, tree, role in zip(zones, self.trees, _ENDS, strict=True):
            n = count_overlaps(slices, zone, tree)
            if n:
                yield (
                    f"flows.parquet: {n} {role} zones overlap others, but the report says"
                    " homogeneous"
                )
                return
        if release.parameters.get("same_zones") and count_overlaps(
            np.concatenate((slices, slices)), np.concatenate(zones), self.trees[0]
        ):
            yield (
                "flows.parquet: origin and destination zones differ, but the report says that they"
                " are the same"
            )
        if release.parameters.get("stricter") is not None and self.trips.stricter is None:
            return
        for container in self.containers:
            held = np.where((cell < 0) & ~removed, container[self.of_slice], -1)
            nodes = [
                zones_around(held, end, slices, zone, tree)
                for end, zone, tree in zip(self.ends, zones, self.trees, strict=True)
            ]
            group, n, first = _numbered(held, *nodes)
            counted = self._count(group, n, self.least)
            allowed = self._dominated(group, counted) | self._below_places(
                counted, [node[first] for node in nodes]
            )
            missing = _safe(counted, release.least) & ~allowed
            yield from _say({"cells that reach the guarantee are missing": missing})

    def _dominated(self, group: Ints, counted: Counted) -> Mask:
        """Returns the groups in which one person makes more than the allowed share of the trips."""
        share, persons, held = (
            self.release.parameters.get("dominance"),
            self.trips.persons,
            counted["trips"],
        )
        found = np.zeros(len(held), dtype=np.bool_)
        if share is not None and isinstance(persons, PersonRows) and persons.trips is not None:
            of_group, made = persons.members(group)
            found[of_group[made > float(share) * held[of_group]]] = True
        return found

    def _check_lists(self) -> Iterator[str]:
        """Whether what the post rules need is available, and is what the report says."""
        parameters, trips = self.release.parameters, self.trips
        if (
            parameters.get("dominance") is not None
            and getattr(trips.persons, "trips", None) is None
        ):
            if trips.persons is None:
                yield (
                    "report.json: states a rule of dominance, but the input has no persons to count"
                )
            else:
                self.notes.append(
                    "The rule of dominance was not recounted: trips of single persons are not"
                    " available."
                )
        for name, places in (("stricter", trips.stricter), ("l_places", trips.l_places)):
            stated = parameters.get(name)
            if stated is None and places is not None:
                yield f"report.json: does not say that the list of places ({name}) was used"
            elif stated is not None and places is None:
                self.notes.append(
                    f"Cells were not recounted with the listed places ({name}): the list was not"
                    " given."
                )
                if name == "l_places" and "locations" in self.release.least:
                    yield "report.json: locations are listed places, but the list was not given"
            elif places is not None:
                highest = {
                    letter: int(getattr(places, letter).max(initial=0)) or None
                    for letter in ("k", "l")
                }
                if stated != {
                    "places": len(places.tile),
                    **(highest if name == "stricter" else {}),
                }:
                    yield (
                        f"report.json: the list of places ({name}) is another than the one that was"
                        " given"
                    )

    def _below_places(self, counted: Counted, zones: Sequence[NDArray[Any]]) -> Mask:
        """Returns the groups whose zones contain a listed place and which do not reach what is
        required there.
        """
        below, places = np.zeros(len(zones[0]), dtype=np.bool_), self.trips.stricter
        if places is None or self.release.parameters.get("stricter") is None:
            return below
        k, least_l = (
            np.maximum(*(self._required(end, values)[zone] for end, zone in enumerate(zones)))
            for values in (places.k, places.l)
        )
        for value in np.unique(k[k > 0]).tolist():
            for unit in self.release.protected:
                if unit == "population" and self.release.parameters.get("k_population") is not None:
                    continue
                least = self.trips.population(value) if unit == "population" else value
                below |= (k == value) & (counted[unit] < (least or 0))
        return below | (counted["locations"] < least_l) if least_l.any() else below

    def _required(self, end: int, values: Counts) -> Counts:
        """Returns the highest k or l that is required of each node: that of the places in it."""
        assert self.trips.stricter is not None
        tree, number = (
            self.trees[end],
            {code: i for i, code in enumerate(texts_of(self.tiles[end]).tolist())},
        )
        required = np.zeros(len(tree.code), dtype=np.int64)
        at = [number[code] for code in self.trips.stricter.tile.tolist()]
        for nodes in tree.up:
            np.maximum.at(required, nodes[at], values)
        return required

    def _check_shares(self) -> Iterator[str]:
        """Section 11."""
        stated, trips, release = self.release.statement.get("shares"), self.trips, self.release
        if stated is None or release.is_revision:
            if (stated is None) != release.is_revision:
                yield "report.json: shares are missing, or stated by a revision"
            return
        basis = "weight" if "population" in release.least else "trips"
        unread = trips.unread_volume(basis)
        if unread is None:
            self.notes.append(
                "shares were not compared: the volume of rows that could not be read is unknown"
            )
            return
        raw_trips, published = (
            Fraction(int(v.sum()), trips.unit) for v in (trips.trips, release.trips())
        )
        volume, weight = raw_trips, release.weight()
        step = min(
            Fraction(1), max(Fraction(1, 100), Fraction(release.k) / max(Fraction(1), published))
        )
        if basis == "weight" and trips.weight is not None and weight is not None:
            volume, published = (
                Fraction(int(values.sum()), MILLION) for values in (trips.weight, weight)
            )
        whole, lost = max(Fraction(1), volume + sum(unread)), max(Fraction(0), volume - published)
        rows = Fraction(0) if trips.rows is None else Fraction(trips.dropped, max(1, trips.rows))
        per_trip = volume / max(Fraction(1), raw_trips)
        is_split = bool(release.statement.get("slice_columns")) or release.has("layer")
        is_split |= release.statement.get("thresholds", "k") != "k"
        limit = (
            Fraction(str(release.parameters.get("max_suppressed") or 0))
            if is_split
            else Fraction(0)
        )
        expected = {
            "dropped": shown_share(max(unread[0] / whole, rows), step),
            "outside": (
                shown_share(unread[1] / whole, step)
                if release.parameters.get("within") is not None
                or release.parameters.get("outside") == "keep"
                else None
            ),
            "suppressed": max(
                _shown_suppressed(lost, whole, step, self._omitted_pairs(), per_trip, release.k),
                shown_share(limit, step),
            ),
            "step": float(step),
        }
        wrong = [
            name
            for name, value in expected.items()
            if (stated.get(name) is None) != (value is None)
            or abs((stated.get(name) or 0) - (value or 0)) > 1e-12
        ]
        if wrong or stated.get("basis") != basis:
            yield (
                f"report.json: shares ({', '.join(wrong) or 'basis'}) are not what the recount"
                " gives"
            )

    def _omitted_pairs(self) -> int | None:
        """Returns how many pairs of listed zones have no cell.

        None if the release does not list them by omission.
        """
        statement, omitted = self.release.statement, -len(self.release)
        if not statement["homogeneous"] or statement["suppression"]["rule"] != "short cells":
            return None
        for one in np.unique(self.slice_of_cell):
            own = self.slice_of_cell == one
            omitted += len(np.unique(self.zone[0][own])) * len(np.unique(self.zone[1][own]))
        return omitted


def _shown_suppressed(
    lost: Fraction, whole: Fraction, step: Fraction, pairs: int | None, per_trip: Fraction, k: int
) -> float:
    """Returns the stated suppressed share.

    ``pairs`` are the omitted ones of a homogeneous release.
    """
    full, rest = per_trip * (k - 1), whole - lost

    def show(volume: Fraction) -> float:
        return shown_share(volume / max(rest + volume, Fraction(1)), step)

    shown = show(lost)
    if k > 2 and full:
        above = (lost // full + 1) * full
        shown = show(above) if above - lost <= per_trip else shown
    if pairs is None:
        return shown
    most, nearly = (full * max(n, 0) for n in (pairs, pairs - 1))
    return shown if lost > most or shown < show(nearly) else max(shown, show(most))


def _far_from_all(origin: Any, destination: Any, trips: Counts, t: float) -> NDArray[np.bool_]:
    """Returns which cells have a zone whose trips are farther than t, in total variation, from all
    trips.
    """
    far = np.zeros(len(trips), dtype=np.bool_)
    for own, other in ((origin, destination), (destination, origin)):
        _, zone = np.unique(own, return_inverse=True)
        _, there = np.unique(other, return_inverse=True)
        of_all = np.bincount(there, weights=trips) / max(trips.sum(), 1e-300)
        share = trips / np.maximum(np.bincount(zone, weights=trips), 1e-300)[zone]
        # Where a zone has no trips, all have their share.
        present, absent = (
            np.abs(share - of_all[there]),
            1 - np.bincount(zone, weights=of_all[there]),
        )
        distance = (np.bincount(zone, weights=present) + absent) / 2
        far |= distance[zone] > t + 1e-9
    return far


def shown_share(share: Fraction, step: Fraction) -> float:
    """Returns the smallest multiple of the step that is not below a share.

    At least one step, at most 1.
    """
    return float(min(Fraction(1), max(1, math.ceil(share / step)) * step))
