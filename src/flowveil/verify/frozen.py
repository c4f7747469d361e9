"""The zones of a release held against the map of the earlier release that they are said to be those of.

The map is read anew, from the earlier folder or the file, and hashed by the rule of docs/series.md. What lies above a
zone is followed by what the library h3 says, or by the parents of the user's own map.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h3.api.basic_int as h3_int

from flowveil.paths import open_regular
from flowveil.verify.files import LOOKUP
from flowveil.verify.h3_parts import cells_in, parts_around

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.verify.database import Database

METHOD = "zones-of"
#: What is said where the earlier release is not at hand.
NOT_COMPARED = (
    "zones.parquet: the zones are said to be those of an earlier release, which was not given, so they were not "
    "compared with it. Hint: --zones-of EARLIER."
)
_TOP = "all"


@dataclass(frozen=True, eq=False)
class _Frozen:
    """The content of a frozen map."""

    about: Mapping[str, Any]
    rows: list[dict[str, Any]]

    def sha256(self) -> str:
        lines = (json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in (dict(self.about), *self.rows))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def zones(self, role: str) -> dict[str, list[str]]:
        """The zones of an end, and the tiles of each where they are those of the user's own map."""
        return {row["zone"]: row.get("tiles") or [] for row in self.rows if row["role"] in (role, "both")}


def check_frozen(
    db: Database, zones: Any, report: Mapping[str, Any], flows: Flows, zones_of: Any, unread: list[str]
) -> Iterator[str]:
    """Compare the zones, and where they overlap the cells, with those of the earlier release.

    Args:
        db: with ``published_rows``.
        zones: the rows of zones.parquet.
        report: the content of report.json.
        flows: the input, on trees to the top.
        zones_of: the earlier folder, or the frozen map as a file or a table; None where it is not at hand.
        unread: gets a line where it is not.
    """
    said = report["parameters"].get("zones_of")
    if (report["method"] == METHOD) != (said is not None):
        yield "report.json: its method and its parameters disagree on whether the zones are those of an earlier release"
        return
    if said is None:
        if zones_of is not None:
            yield "report.json: does not say that its zones are those of an earlier release"
        return
    if zones_of is None:
        unread.append(NOT_COMPARED)
        return
    frozen = _read(zones_of)
    if frozen is None:
        yield "the earlier release, whose zones these are said to be, cannot be read"
        return
    if frozen.sha256() != said:
        yield "report.json: its zones are said to be those of another release than the one that was given"
        return
    yield from _check_form(report, frozen)
    yield from _check_ends(zones, frozen, flows)
    if not frozen.about["homogeneous"]:
        cells = {(r["zone"], d) for r in frozen.rows for d in r["destinations"] or ()}
        new = [
            c for c in db.rows("SELECT DISTINCT origin_zone, destination_zone FROM published_rows") if c not in cells
        ]
        if new:
            yield f"flows.parquet: {len(new)} cells are none of the earlier release"


def _check_form(report: Mapping[str, Any], frozen: _Frozen) -> Iterator[str]:
    parameters, about = report["parameters"], frozen.about
    pairs = {
        "homogeneous": (report["homogeneous"], about["homogeneous"]),
        "hierarchy": (parameters.get("hierarchy"), about["hierarchy"]),
        "resolution": (parameters.get("resolution"), about["resolution"]),
        "same_zones": (bool(parameters.get("same_zones")), about["same_zones"]),
    }
    for name, (here, there) in pairs.items():
        if here != there:
            yield f"report.json: '{name}' is not what it was in the earlier release"


def _check_ends(zones: Any, frozen: _Frozen, flows: Flows) -> Iterator[str]:
    """Whether each zone is an earlier one, or one of the coarsest nodes that overlap none of them."""
    listed = list(zip(zones["zone"].to_pylist(), zones["role"].to_pylist(), strict=True))
    above = _way_up(frozen, flows)
    for role in ("origin", "destination"):
        earlier = frozen.zones(role)
        here = [zone for zone, at in listed if at in (role, "both")]
        strange = [zone for zone in here if zone not in earlier]
        if strange and frozen.about["homogeneous"] and above is not None:
            holding = {node for zone in earlier for node in (zone, *above(zone))}
            strange = [zone for zone in strange if not _fills(zone, above(zone), earlier, holding)]
        if strange:
            yield f"zones.parquet: {len(strange)} {role} zones are none of the earlier release, nor fill its gaps"
        if frozen.about["map_sha256"] is not None:
            tiles = _tiles_below(flows)
            moved = sum(zone in earlier and sorted(tiles.get(zone, ())) != earlier[zone] for zone in here)
            if moved:
                yield f"zones.parquet: {moved} {role} zones have other tiles on this map than in the earlier release"


def _fills(zone: str, above: list[str], earlier: Mapping[str, Any], holding: set[str]) -> bool:
    """Whether a zone overlaps no earlier one, and what it lies in does."""
    return zone not in holding and not any(node in earlier for node in above) and bool(above) and above[0] in holding


# ---- the way up ------------------------------------------------------------------------------------------------------


def _way_up(frozen: _Frozen, flows: Flows) -> Callable[[str], list[str]] | None:
    """What each code lies in, the smallest first; None where nobody knows."""
    if frozen.about["resolution"] is not None:
        return lambda code: above_in_h3(code, halves=frozen.about["hierarchy"] == "halves")
    return None if flows.whole_map is None else climbing(flows.whole_map)


def climbing(tree: Any) -> Callable[[str], list[str]]:
    """What each code of a map lies in, the smallest first."""
    codes, parent = tree.code.tolist(), tree.parent.tolist()
    number = {code: node for node, code in enumerate(codes)}

    def climb(code: str) -> list[str]:
        way, node = [], number.get(code, -1)
        while node >= 0 and parent[node] >= 0:
            node = parent[node]
            way.append(codes[node])
        return way

    return climb


def above_in_h3(code: str, *, halves: bool) -> list[str]:
    """The cells, and with halves the parts of cells, that a code lies in, the smallest first."""
    cells = cells_in(code)
    if not cells:
        return [_TOP] if code == "outside" else []
    way, cell = [], cells[0]
    if "." in code:
        parent = int(code.partition(".")[0], 16)
        parts = parts_around(cell, parent, h3_int.get_resolution(cell))
        way += [*parts[parts.index(code) + 1 :], f"{parent:x}"]
        cell = parent
    return [*way, *_above_cell(cell, halves=halves)]


@lru_cache(maxsize=1 << 14)
def _above_cell(cell: int, *, halves: bool) -> tuple[str, ...]:
    """The same of a cell: kept, because thousands of cells lie in the same few."""
    resolution = h3_int.get_resolution(cell)
    if resolution == 0:
        return (_TOP,)
    parent = h3_int.cell_to_parent(cell, resolution - 1)
    parts = parts_around(cell, parent, resolution) if halves else ()
    return (*parts, f"{parent:x}", *_above_cell(parent, halves=halves))


def _tiles_below(flows: Flows) -> dict[str, list[str]]:
    tree = flows.whole_map
    if tree is None:
        return {}
    codes, parent = tree.code.tolist(), tree.parent.tolist()
    below: dict[str, list[str]] = {}
    inner = set(parent)
    for tile in (node for node in range(len(parent)) if node not in inner):
        node = tile
        while node >= 0:
            below.setdefault(codes[node], []).append(codes[tile])
            node = parent[node]
    return below


# ---- reading ---------------------------------------------------------------------------------------------------------


def map_hash(source: Any) -> str | None:
    """The hash of what a frozen map, or the folder of a release, says of its zones; None where it cannot be read."""
    frozen = _read(source)
    return None if frozen is None else frozen.sha256()


def _read(source: Any) -> _Frozen | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if isinstance(source, pa.Table):
            return _from_table(source)
        place = Path(source)
        if place.is_dir():
            return _from_folder(place)
        with open_regular(place) as file:
            return _from_table(pq.read_table(io.BytesIO(file.read())))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
        return None


def _from_table(table: Any) -> _Frozen:
    about = json.loads(table.schema.metadata[b"flowveil"])
    del about["format"]
    return _Frozen(about, table.to_pylist())


def _from_folder(place: Path) -> _Frozen:
    import pyarrow.parquet as pq

    with open_regular(place / "report.json") as file:
        report = json.load(file)
    with open_regular(place / "zones.parquet") as file:
        zones = pq.read_table(io.BytesIO(file.read())).to_pylist()
    tiles: dict[tuple[str, str], list[str]] = {}
    in_cells = bool(zones) and "h3_cells" in zones[0]
    if not in_cells:
        with open_regular(place / LOOKUP) as file:
            for row in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")):
                tiles.setdefault((row["zone"], row["role"]), []).append(row["tile"])
    rows = []
    for zone in zones:
        made_of = (
            {"h3_cells": zone["h3_cells"]}
            if in_cells
            else {"tiles": sorted(tiles.get((zone["zone"], zone["role"]), ()))}
        )
        rows.append({"zone": zone["zone"], "role": zone["role"], "level": zone["level"], **made_of})
    if not report["homogeneous"]:
        _add_destinations(place, rows)
    parameters = report["parameters"]
    text = "".join(
        json.dumps([row["zone"], row.get("tiles")], ensure_ascii=False) + "\n"
        for row in sorted(rows, key=lambda row: (row["zone"], row.get("tiles")))
    )
    about = {
        "hierarchy": parameters.get("hierarchy", "h3"),
        "resolution": parameters.get("resolution"),
        "same_zones": bool(parameters.get("same_zones")),
        "homogeneous": report["homogeneous"],
        "map_sha256": None if in_cells else hashlib.sha256(text.encode()).hexdigest(),
    }
    return _Frozen(about, rows)


def _add_destinations(place: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow.parquet as pq

    with open_regular(place / "flows.parquet") as file:
        cells = pq.read_table(io.BytesIO(file.read()), columns=["origin_zone", "destination_zone"]).to_pylist()
    of_origin: dict[str, set[str]] = {}
    for cell in cells:
        of_origin.setdefault(cell["origin_zone"], set()).add(cell["destination_zone"])
    for row in rows:
        row["destinations"] = None if row["role"] == "destination" else sorted(of_origin[row["zone"]])
