"""Perturbed releases: the form of their statement, and with the secret key every count computed again.

Section 12 of docs/reference/recount.md defines the keys, the look-up of noise, and random and controlled rounding.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .inputs import Counts, Release, Trips
from .tree import Codes, Ints, ZoneMap, build_tree, parent_cells

_MODULUS = 1 << 32
_FORM = "report.json: the stated table"
#: Said where the key was not given.
NO_KEY = "The secret key was not given (--key-file), so only the form and the largest error were checked, no counts."
_PAIRS = "those with trips whose perturbed count is above 0"


def read_secret(path: Any) -> bytes:
    """Returns the secret of a key file."""
    return bytes.fromhex(Path(path).read_text("ascii").strip())


def fingerprint(secret: bytes) -> str:
    """Returns the fingerprint of a key."""
    return hmac.digest(secret, b"flowveil: fingerprint of a key", "sha256").hex()[:16]


def record_keys(secret: bytes, records: Iterable[str]) -> Counts:
    """Returns the key of each record, given as the text of its columns."""
    texts = (f"record{record}".encode() for record in records)
    return np.array([int.from_bytes(hmac.digest(secret, text, "sha256")[:4]) for text in texts], dtype=np.int64)


def check_form(release: Release, expect: Mapping[str, Any]) -> Iterator[str]:
    """Yields contradictions in what the release states."""
    stated, statement = release.guarantee, release.statement
    required = [name for name, value in expect.items() if value]
    if required:
        yield f"report.json: a perturbed release has no smallest cell, so {', '.join(required)} cannot hold"
    if statement.get("shares") is not None or release.has("weight"):
        yield "the release states shares or weights, which would reveal true counts"
    if stated["mechanism"] != _mechanism(stated) or stated["domain"] != {
        "level": stated["domain"].get("level"), "pairs": _PAIRS, "zones_from_data": True,
    }:  # fmt: skip
        yield "report.json: describes the perturbation in other words than its parameters"
    counts = release.trips()
    ends = ["origin_zone", "destination_zone", *release.slice_columns]
    if release.flows.select(ends).group_by(ends).aggregate([]).num_rows < len(release):
        yield "flows.parquet: a pair is listed twice"
    if "base" in stated:
        yield from _check_rounding(release, counts)
        return
    yield from _check_table(stated)
    if np.any(counts <= int(stated["small"])):
        yield "flows.parquet: has counts that are never published"


def _mechanism(stated: Mapping[str, Any]) -> str:
    """Returns the description of the perturbation; any other text could carry information."""
    if "base" not in stated:
        return "noise from a published table, looked up with the sum of record keys; 0 stays 0"
    base, how = int(stated["base"]), "as the sum of record keys says, with probability remainder / base"
    if stated["mode"] == "controlled":
        how = "so that totals of origins, of destinations and of all are rounded too (Cox 1987)"
    of = f"counts below {base}, the others are exact" if stated["small_only"] else "counts"
    return f"{of}: rounded to multiples of {base}, up or down {how}; 0 stays 0"


def _check_rounding(release: Release, counts: Counts) -> Iterator[str]:
    """Checks the form of rounded counts."""
    stated, slices = release.guarantee, release.parameters.get("slices") or {}
    base, most = int(stated["base"]), (stated["base"] // 2) * (stated["base"] - stated["base"] // 2)
    if base < 2 or stated["maximum"] != base - 1 or not np.isclose(stated["deviation"] ** 2, most):
        yield "report.json: the stated error is not that of rounding to this base"
    if stated["mode"] not in ("random", "controlled"):
        yield "report.json: the mode of rounding is not known"
    if np.any(counts < base if stated["small_only"] else counts % base > 0):
        yield "flows.parquet: has counts that are never published"
    if (stated["mode"] == "controlled" or stated["small_only"]) and (slices.get("total") or slices.get("also_every")):
        yield "flows.parquet: has slices and their sums, which this way of rounding does not allow"


def _check_table(stated: Mapping[str, Any]) -> Iterator[str]:
    """Checks that the table is of distributions with the stated properties."""
    most, small = int(stated["maximum"]), int(stated["small"])
    table, noise = np.array(stated["table"], dtype=np.int64), np.arange(-most, most + 1)
    if table.shape != (most + small + 1, 2 * most + 1) or np.any(table < 0) or np.any(table.sum(1) != _MODULUS):
        yield f"{_FORM} is not one of distributions for this maximum"
        return
    after = np.arange(1, len(table) + 1)[:, None] + noise
    if np.any(table[(after < 0) | ((after > 0) & (after <= small))]):
        yield f"{_FORM} leads to negative counts, or to counts that are never published"
    if np.any(table @ noise):
        yield f"{_FORM} is biased"
    variance = (table @ noise**2) / _MODULUS
    if not np.allclose([*variance, stated["deviation"] ** 2], stated["variance"], rtol=0, atol=1e-5):
        yield f"{_FORM} has another variance than the stated one"


def check_counts(
    release: Release, trips: Trips, assigned: Sequence[tuple[Ints, Ints]], notes: list[str]
) -> Iterator[str]:
    """Computes every count again; without the secret key, checks that no error is larger than stated.

    ``assigned`` has, by detail of slices, the slice of each row, and the cell that counts it, -1 for none.
    """
    stated = release.guarantee
    has_key = trips.keys is not None
    if not has_key:
        notes.append(NO_KEY)
    elif trips.key != stated["key"]:
        yield "report.json: the release was made with another key"
        return
    published, zones = release.trips(), [_zones(release, *end) for end in trips.ends]
    seen, wrong, missing = np.zeros(len(release), dtype=np.int64), 0, 0
    for of_slice, cell in assigned:
        pairs = _Pairs.from_rows(of_slice, zones, trips)
        own = cell[pairs.row]
        listed = own >= 0
        shown = np.where(listed, published[own], 0)
        differs = shown != _perturbed(stated, pairs) if has_key else np.abs(shown - pairs.counts) > stated["maximum"]
        if stated.get("small_only"):
            differs |= (shown != pairs.counts) & (pairs.counts >= stated["base"])
        # All rows of a pair are in its cell, and a cell has one pair.
        wrong += int(np.any(cell != own[pairs.of_row])) + int(np.sum(differs & listed))
        missing += int(np.sum(differs & ~listed))
        seen += np.bincount(own[listed], minlength=len(seen))
    wrong += int(np.sum(seen != 1))
    given = "the key and the trips give" if has_key else "the trips and the stated error allow"
    if wrong:
        yield f"flows.parquet: {wrong} counts are not those that {given}"
    if missing:
        yield f"flows.parquet: {missing} pairs are missing that {given.replace('allow', 'require')}"


@dataclass(frozen=True)
class _Pairs:
    """The pairs of zones of slices, by the codes of origin and destination: their zones, trips and cell keys."""

    of_slice: Any
    origin: Any
    destination: Any
    counts: Counts
    keys: Counts
    row: Any  # the first row of each pair
    of_row: Any  # the pair of each row

    @classmethod
    def from_rows(cls, of_slice: Any, zones: Sequence[Any], trips: Trips) -> _Pairs:
        columns = np.stack([of_slice, *zones]).astype(np.int64)
        width = columns.max(axis=1, initial=0) + 1
        key = (columns[0] * width[1] + columns[1]) * width[2] + columns[2]
        pair, row, of_row = np.unique(key, return_index=True, return_inverse=True)
        counts, keys = np.zeros(len(pair), dtype=np.int64), np.zeros(len(pair), dtype=np.int64)
        np.add.at(counts, of_row, trips.trips)
        # 64 bits overflow after 2**31 rows, and the remainder stays right.
        np.add.at(keys, of_row, 0 if trips.keys is None else trips.keys)
        names, origin, destination = columns[:, row]
        return cls(names, origin, destination, counts, keys % _MODULUS, row, of_row)


def _perturbed(stated: Mapping[str, Any], pairs: _Pairs) -> Counts:
    """Returns what the release should say of these pairs."""
    if "base" in stated:
        base = int(stated["base"])
        remainder: Counts = np.where(stated["small_only"] & (pairs.counts >= base), 0, pairs.counts % base)
        if stated["mode"] == "controlled":
            tables = np.split(np.arange(len(remainder)), np.flatnonzero(np.diff(pairs.of_slice)) + 1)
            raised: Counts = np.concatenate([_controlled(pairs, remainder, base, own) for own in tables])
            return pairs.counts - remainder + raised
        return pairs.counts - remainder + base * (_mixed(pairs.keys) * base < remainder * _MODULUS)
    running = np.cumsum(np.array(stated["table"], dtype=np.int64), axis=1)
    row = running[np.minimum(pairs.counts, len(running)) - 1]
    noise: Counts = np.argmax(row > _mixed(pairs.keys)[:, None], axis=1) - int(stated["maximum"])
    return pairs.counts + noise


def _mixed(keys: Counts) -> Counts:
    mixed = keys.astype(np.uint64)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor) % np.uint64(_MODULUS)
    return mixed.astype(np.int64)


def _controlled(pairs: _Pairs, remainder: Counts, base: int, table: Any) -> Counts:
    """Returns each remainder of one table rounded to 0 or the base, by the procedure that the module describes."""
    names = [(("o", o), ("d", d)) for o, d in np.stack((pairs.origin, pairs.destination), axis=1)[table].tolist()]
    value, key = (dict(zip(names, of[table].tolist(), strict=True)) for of in (remainder, pairs.keys))
    rows: dict[Any, int] = {}
    columns: dict[Any, int] = {}
    for (o, d), x in value.items():
        rows[o], columns[d] = rows.get(o, 0) + x, columns.get(d, 0) + x
    value |= {(o, ("d", -1)): -rows[o] % base for o in sorted(rows)}
    value |= {(("o", -1), d): -columns[d] % base for d in sorted(columns)}
    value[("o", -1), ("d", -1)] = sum(rows.values()) % base
    left: dict[Any, list[tuple[Any, Any]]] = {}
    for edge, x in value.items():
        for node in edge if x else ():
            left.setdefault(node, []).append(edge)
    cycles = 0
    for start in [*sorted(rows), ("o", -1)]:
        nodes, path = [start], list[Any]()
        while True:
            edge = _last(left.get(nodes[-1], []), value, base, path[-1] if path else None)
            if edge is None:
                break
            path.append(edge)
            nodes.append(edge[edge[0] == nodes[-1]])
            at = nodes.index(nodes[-1])
            if at == len(nodes) - 1:
                continue
            cycle, path, nodes = path[at:], path[:at], nodes[: at + 1]
            sign = {e: (-1) ** n for n, e in enumerate(cycle)}
            up = min(base - value[e] if sign[e] > 0 else value[e] for e in cycle)
            down = min(value[e] if sign[e] > 0 else base - value[e] for e in cycle)
            drawn = _mixed(np.array([(sum(key.get(e, 0) for e in cycle) + cycles) % _MODULUS]))
            step = up if int(drawn[0]) * (up + down) < down * _MODULUS else -down
            value.update({e: value[e] + sign[e] * step for e in cycle})
            cycles += 1
    return np.array([value[edge] for edge in names], dtype=np.int64)


def _last(edges: list[Any], value: Mapping[Any, int], base: int, arrival: Any) -> Any:
    """Returns the last edge of a node that is not rounded yet, other than the arrival. Removes rounded ones."""
    while edges and value[edges[-1]] in (0, base):
        edges.pop()
    if not edges or edges[-1] != arrival:
        return edges[-1] if edges else None
    while len(edges) > 1 and value[edges[-2]] in (0, base):
        del edges[-2]
    return edges[-2] if len(edges) > 1 else None


def _zones(release: Release, tiles: Codes, tile: Ints, of_map: ZoneMap | None) -> Any:
    """Returns the rank, by codes, of the zone of each row at one end: its tile, or that of the stated level."""
    level = release.guarantee["domain"]["level"]
    if level != "tiles" and of_map is None:
        tiles = parent_cells(tiles, int(level))
    elif level != "tiles":
        tree = build_tree(tiles, of_map, halves=False)
        height = np.argmax(tree.up == tree.up[-1], axis=0)
        tiles = tree.code[tree.up[np.maximum(height - int(level), 0), np.arange(len(tiles))]]
    return np.unique(tiles, return_inverse=True)[1][tile]
