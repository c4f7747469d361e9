"""The names of zones and the table of their tiles, held against the map: both follow from the map and the zones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.paths import open_regular
from flowveil.verify.exports import csv_text
from flowveil.verify.files import LOOKUP

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.hierarchy import Hierarchy


def has_names(flows: Flows, kind: str) -> bool:
    """Whether the zones of a release have names: the map does, and they are its own."""
    return kind != "boxed" and flows.whole_map is not None and flows.whole_map.names is not None


def check_names(zones: Any, flows: Flows, kind: str) -> Iterator[str]:
    """Compare the names in zones.parquet with those of the map."""
    if not has_names(flows, kind) or flows.whole_map is None or flows.whole_map.names is None:
        return
    named = dict(zip(_codes(flows.whole_map), flows.whole_map.names.tolist(), strict=True))
    published = zip(zones["zone"].to_pylist(), zones["name"].to_pylist(), strict=True)
    wrong = sum(named.get(code) != (name or "") for code, name in published)
    if wrong:
        yield f"zones.parquet: {wrong} zones have another name than on the map"


def check_lookup(place: Path, zones: Any, flows: Flows, kind: str) -> Iterator[str]:
    """Compare the table of tiles with the map, byte by byte.

    Args:
        place: the release folder.
        zones: the rows of zones.parquet.
        flows: the input, with the map it is on.
        kind: that of the release.
    """
    there, tree = (place / LOOKUP).is_file(), flows.whole_map
    if tree is None or kind == "boxed":
        if there:
            yield f"{LOOKUP}: extra file: the release is on no map of its own"
        return
    if not there:
        yield f"{LOOKUP}: missing"
        return
    with open_regular(place / LOOKUP) as file:
        if file.read() != _expected(zones, tree).encode():
            yield f"{LOOKUP}: is not what the zones and the map come to"


def _codes(tree: Hierarchy) -> list[str]:
    codes: list[str] = tree.code_text(np.arange(len(tree.code), dtype=np.int32)).tolist()
    return codes


def _expected(zones: Any, tree: Hierarchy) -> str:
    """The text of the table: the tiles of each zone are found by climbing from every tile to the root."""
    code, parent = _codes(tree), tree.parent.tolist()
    wanted = set(zones["zone"].to_pylist())
    inner = set(parent)
    below: dict[str, list[int]] = {}
    for tile in (node for node in range(len(parent)) if node not in inner):
        node = tile
        while node >= 0:
            if code[node] in wanted:
                below.setdefault(code[node], []).append(tile)
            node = parent[node]
    heads = ["zone", "role", "tile"] + ([] if tree.names is None else ["tile_name"])
    lines = [_line(heads)]
    for zone, role in zip(zones["zone"].to_pylist(), zones["role"].to_pylist(), strict=True):
        for text, tile in sorted((code[tile], tile) for tile in below.get(zone, ())):
            name = [] if tree.names is None else [str(tree.names[tile])]
            lines.append(_line([zone, role, text, *name]))
    return "".join(lines)


def _line(fields: Sequence[str]) -> str:
    """A line of a CSV file: texts in quotation marks, nothing where there is none."""
    return ",".join('"' + csv_text(f).replace('"', '""') + '"' if f else "" for f in fields) + "\n"
