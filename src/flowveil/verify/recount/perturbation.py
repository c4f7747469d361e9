"""Perturbed releases: the form of what they state, and with the secret key every count computed again.

A record's key is the first 32 bits of the HMAC-SHA-256, under the secret key, of ``record`` and the columns of the
record, each preceded by the character 31: the id that the report names, or all columns of the input by name. Values are
text without outer blanks, moments are microseconds since 1970. The key of a cell is the sum of the keys of its records
modulo 2**32, mixed by the finaliser of MurmurHash3. *Cell keys*: the noise of a count n is the first column of row n of
the table (the last row for larger n) at which the running sum exceeds the cell key; columns are noise from -maximum to
maximum. Counts that become 0 are not listed, all others are.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .inputs import Counts, Release, Trips
from .tree import Codes, Ints, ZoneMap, parent_cells

_MODULUS = 1 << 32
_FORM = "report.json: the stated table"
#: Said where the key was not given.
NO_KEY = "The secret key was not given (--key-file), so only the form of the release was checked, not its counts."


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
    counts = release.trips()
    ends = ["origin_zone", "destination_zone", *release.slice_columns]
    if release.flows.select(ends).group_by(ends).aggregate([]).num_rows < len(release):
        yield "flows.parquet: a pair is listed twice"
    yield from _check_table(stated)
    if np.any(counts <= int(stated["small"])):
        yield "flows.parquet: has counts that are never published"


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
    """Computes every count again.

    Args:
        release: the release, whose form is right.
        trips: the raw trips, with the sums of their record keys if the secret key is known.
        assigned: for each detail of slices, the slice of each row, and the cell that counts it, -1 for none.
        notes: what could not be compared.
    """
    stated = release.guarantee
    if trips.keys is None:
        notes.append(NO_KEY)
        return
    if trips.key != stated["key"]:
        yield "report.json: the release was made with another key"
        return
    published, zones = release.trips(), [_zones(release, *end) for end in _ends_of(trips)]
    wrong, missing = np.ones(len(release), dtype=np.bool_), 0
    for of_slice, cell in assigned:
        cells, counts, keys = _groups(cell, trips)
        right = _perturbed(stated, counts, keys) == published[cells]
        # Unlisted pairs have the same slice and pair of zones, and became 0.
        rest = np.where(cell < 0, _combined(of_slice, *zones), -1)
        _, *unlisted = _groups(rest, trips)
        missing += int(np.sum(_perturbed(stated, *unlisted) > 0))
        wrong[cells[right]] = False
    if wrong.any():
        yield f"flows.parquet: {int(wrong.sum())} counts are not those that the key and the trips give"
    if missing:
        yield f"flows.parquet: {missing} pairs are missing that the key and the trips give"


def _groups(group: Any, trips: Trips) -> tuple[Any, Counts, Counts]:
    """Returns the distinct groups of rows, their trips and their keys; rows of -1 are left out."""
    rows = np.flatnonzero(group >= 0)
    names, place = np.unique(group[rows], return_inverse=True)
    counts, keys = np.zeros(len(names), dtype=np.int64), np.zeros(len(names), dtype=np.int64)
    np.add.at(counts, place, trips.trips[rows])
    # 64 bits overflow after 2**31 rows, and the remainder stays right.
    np.add.at(keys, place, np.asarray(trips.keys)[rows])
    return names, counts, keys % _MODULUS


def _perturbed(stated: Mapping[str, Any], counts: Counts, keys: Counts) -> Counts:
    """Returns what the release should say of cells with these counts and keys."""
    mixed = keys.astype(np.uint64)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor) % np.uint64(_MODULUS)
    key = mixed.astype(np.int64)
    running = np.cumsum(np.array(stated["table"], dtype=np.int64), axis=1)
    row = running[np.minimum(counts, len(running)) - 1]
    noise: Counts = np.argmax(row > key[:, None], axis=1) - int(stated["maximum"])
    return counts + noise


def _ends_of(trips: Trips) -> Iterator[tuple[Codes, Ints, ZoneMap | None]]:
    yield trips.origins, trips.origin, trips.origin_map
    yield trips.destinations, trips.destination, trips.destination_map


def _zones(release: Release, tiles: Codes, tile: Ints, of_map: ZoneMap | None) -> Any:
    """Returns the number of the zone of each row at one end: its tile, or the zone of the stated level around it."""
    level = release.guarantee["domain"]["level"]
    zone = tiles
    if level != "tiles" and of_map is None:
        zone = parent_cells(tiles, int(level))
    elif level != "tiles" and of_map is not None:
        place = {code: i for i, code in enumerate(of_map.code.tolist())}
        zone = np.array([_chain(of_map, place[code])[: int(level) + 1][-1] for code in tiles.tolist()])
    return np.unique(zone, return_inverse=True)[1][tile]


def _chain(of_map: ZoneMap, at: int) -> list[int]:
    """Returns the zones around a zone of a map and itself, from the root down."""
    chain = [at]
    while of_map.parent[chain[0]] >= 0:
        chain.insert(0, int(of_map.parent[chain[0]]))
    return chain


def _combined(*columns: Any) -> Any:
    """Returns one number for each combination of whole numbers from 0 on."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        key = np.unique(key * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    return key
