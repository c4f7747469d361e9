"""Where the zones of several releases lie, as nodes of one forest: two zones nest or are disjoint.

H3 cells are ranges of whole numbers (base cell, then one digit of seven a level), so a zone is a
few ranges. The zones of a map without H3 cells are placed by their outlines. From the largest to
the smallest, the parent of each zone is the smallest one that contains it. A zone may contain a
rest that no child covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowveil.core.arrays import Positions
from flowveil.core.errors import DataError
from flowveil.core.hierarchy import OUTSIDE, VIRTUAL_ROOT
from flowveil.zoning.h3 import resolution_of

if TYPE_CHECKING:
    from flowveil.verify.audit.published import PublishedMatrix, PublishedRelease

Ranges = list[tuple[int, int]]

_FINEST = 15
#: Outlines that share a border overlap by rounding; a zone is inside another if this share of it
#: is.
_INSIDE = 1 - 1e-6
#: Where places without a position stand: behind all H3 cells.
_NOWHERE = 128 * 7**_FINEST


@dataclass(frozen=True, eq=False)
class Ground:
    """A forest of the zones of several releases."""

    parent: Positions  # of each node; -1 at the top. Parents come before their children
    size: Positions  # how much each node covers, in a unit of this forest
    nodes: Mapping[tuple[int, int], Positions]  # of the zones of each release and end (0: origins)
    codes: Mapping[int, str]  # of the zone of each node; "" for -1

    def ends(self, release: int, matrix: PublishedMatrix) -> tuple[Positions, Positions]:
        """The nodes of the origin and of the destination of each cell."""
        return self.nodes[release, 0][matrix.origin], self.nodes[release, 1][matrix.destination]

    def nearest(self, marked: Positions) -> Positions:
        """For each node, the smallest marked one that holds it or is it.

        -1 if no marked one does.
        """
        is_marked = np.zeros(len(self.parent), dtype=np.bool_)
        is_marked[marked] = True
        found = np.full(len(self.parent), -1, dtype=np.int64)
        for node, (above, own) in enumerate(
            zip(self.parent.tolist(), is_marked.tolist(), strict=True)
        ):
            found[node] = node if own else found[above] if above >= 0 else -1
        return found


def ground_of(numbered: Mapping[int, PublishedRelease]) -> Ground:
    """Returns the forest of all zones.

    DataError if two overlap in part, or have neither H3 cells nor outlines.
    """
    known: dict[tuple[str, str], Ranges] = {}
    shapes: dict[tuple[str, str], bytes] = {}
    releases = numbered.values()
    for release in releases:
        for code in {*release.origin_zones, *release.destination_zones}:
            if code in release.h3_cells:
                known[release.ground, code] = ranges_of(release.h3_cells[code])
            elif code in release.outlines:
                shapes[release.ground, code] = release.outlines[code]
            else:
                known[release.ground, code] = []
    if shapes and any(known.values()):
        # Placed in two ways, the same ground would count twice.
        raise DataError(
            "Some of these releases have zones of H3 cells, others zones of a map: they cannot be"
            " compared."
        )
    if shapes:
        known |= _placed_outlines(shapes)
    # Zones without a place are the same where their codes are: `outside`, or a list of codes
    # without a map.
    unplaced = sorted(key for key, ranges in known.items() if not ranges)
    codes = {code for _, code in unplaced} - {OUTSIDE}
    if len({tuple(sorted({*r.origin_zones, *r.destination_zones} & codes)) for r in releases}) > 1:
        raise DataError(
            "These releases have zones of which neither H3 cells nor outlines are published, and"
            " not the same ones: how they nest is not known. Hint: publish them with a map"
            " (--zones)."
        )
    for number, key in enumerate(unplaced):
        known[key] = [(_NOWHERE + number, _NOWHERE + number + 1)]
    for release in releases:
        # Where trips from and to outside the area are kept, the zone of everything holds them too.
        if (release.ground, VIRTUAL_ROOT) in known and release.report["parameters"].get(
            "outside"
        ) == "keep":
            known[release.ground, VIRTUAL_ROOT] = [(0, 3 * _NOWHERE)]
    return _forest(numbered, known)


def ranges_of(cells: Sequence[str]) -> Ranges:
    """The H3 cells as ranges of numbers in base seven, neighbours joined."""
    number = np.array([int(cell, 16) for cell in cells], dtype=np.uint64)
    resolution = resolution_of(number)
    start = ((number >> np.uint64(45)) & np.uint64(127)).astype(np.int64)
    for level in range(1, _FINEST + 1):
        digit = ((number >> np.uint64(3 * (_FINEST - level))) & np.uint64(7)).astype(np.int64)
        start = start * 7 + np.where(level <= resolution, digit, 0)
    stop = start + 7 ** (_FINEST - resolution)
    joined: Ranges = []
    for first, last in sorted(zip(start.tolist(), stop.tolist(), strict=True)):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def _placed_outlines(shapes: Mapping[tuple[str, str], bytes]) -> dict[tuple[str, str], Ranges]:
    """Ranges for zones that have outlines: each begins with what no smaller zone in it covers."""
    import shapely

    keys = sorted(shapes)
    outlines = shapely.make_valid(shapely.from_wkb([shapes[key] for key in keys]))
    area = shapely.area(outlines)
    order = sorted(range(len(keys)), key=lambda i: (-area[i], keys[i]))
    tree = shapely.STRtree(outlines)
    holders: list[list[int]] = [[] for _ in keys]
    point, holder = tree.query(shapely.point_on_surface(outlines), predicate="within")
    for i, j in zip(point.tolist(), holder.tolist(), strict=True):
        holders[i].append(j)
    above = {}
    for i in order:
        larger = [j for j in holders[i] if j != i and area[i] < area[j] * _INSIDE]
        same = [
            j
            for j in holders[i]
            if j < i and area[i] >= area[j] * _INSIDE and area[j] >= area[i] * _INSIDE
        ]
        above[i] = min(same) if same else min(larger, key=lambda j: (area[j], j), default=-1)
    children: dict[int, list[int]] = {}
    for i in order:
        children.setdefault(above[i], []).append(i)
    ranges: dict[tuple[str, str], Ranges] = {}
    place = _NOWHERE * 2

    def put(i: int) -> None:
        nonlocal place
        first, inside = place, children.get(i, [])
        twins = [j for j in inside if area[j] >= area[i] * _INSIDE]
        filled = sum(float(area[j]) for j in inside)
        if not twins and filled < float(area[i]) * _INSIDE:
            place += 1
        for j in inside:
            put(j)
        ranges[keys[i]] = [(first, place)]

    for top in children.get(-1, []):
        put(top)
    return ranges


def _forest(
    releases: Mapping[int, PublishedRelease], known: Mapping[tuple[str, str], Ranges]
) -> Ground:
    distinct = {tuple(ranges) for ranges in known.values()}
    ordered = sorted(distinct, key=lambda ranges: (-sum(b - a for a, b in ranges), ranges))
    number = {ranges: i for i, ranges in enumerate(ordered)}
    edges = np.unique(
        np.array([edge for ranges in ordered for pair in ranges for edge in pair], dtype=np.int64)
    )
    owner = np.full(max(len(edges) - 1, 0), -1, dtype=np.int64)
    parent, size = np.full(len(ordered), -1, dtype=np.int64), np.zeros(len(ordered), dtype=np.int64)
    for node, ranges in enumerate(ordered):
        spans = np.searchsorted(edges, np.array(ranges))
        above = np.unique(np.concatenate([owner[a:b] for a, b in spans]))
        if len(above) > 1:
            raise DataError(
                "Zones of these releases overlap in part: they are not of one map and cannot be"
                " compared."
            )
        parent[node] = above[0]
        size[node] = sum(b - a for a, b in ranges)
        for a, b in spans:
            owner[a:b] = node
    nodes: dict[tuple[int, int], Positions] = {}
    codes = {-1: ""}
    for i, release in releases.items():
        for end, zones in enumerate((release.origin_zones, release.destination_zones)):
            own = [number[tuple(known[release.ground, code])] for code in zones]
            nodes[i, end] = np.array(own, dtype=np.int64)
            codes.update(zip(own, zones, strict=True))
    return Ground(parent, size, nodes, codes)
