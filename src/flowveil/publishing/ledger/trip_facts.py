"""What a ledger stores of the trips of a release, and the proof that two releases share no trip.

The proof is a column with disjoint values in both (the days of the same time column, read in the
same way, or values of an attribute), or all tiles of one outside the study area of the other. A
declared period is not a property of the trips, and proves nothing. Days and values may be wrong,
so places are compared as well (`trip_sketch`). Stored are names of columns,
keyed hashes of days and values, and the area; nothing of a single trip.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.core.times import TIME
from flowveil.reading.areas import read_stored_area
from flowveil.reading.matrices import MATRIX

if TYPE_CHECKING:
    from flowveil.core.arrays import Ints
    from flowveil.core.flows import Flows
    from flowveil.core.hierarchy import Hierarchy
    from flowveil.publishing.ledger.ledger_file import LedgerFile

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_ENDS = ("origin", "destination", "origin_tile", "destination_tile")


def trip_facts(given: Flows, ledger: LedgerFile) -> dict[str, Any]:
    """Returns the facts of the input of a release, hashed with the key of a ledger."""
    summary = given.intake
    return {
        "time": _time_facts(summary, ledger),
        "attributes": _attribute_facts(given, ledger),
        "tiling": _tiling(given),
        "area": None if summary.outside == "keep" else summary.outline,
        "keeps_outside": summary.outside == "keep",
    }


def shares_no_trip(facts: Mapping[str, Any], earlier: Mapping[str, Any], given: Flows) -> bool:
    """Returns whether the facts of a new release, with its input, and of an earlier one prove that
    they share no trip.

    Only as far as days and values are right: see `trip_sketch`.
    """
    one, other = facts["time"], earlier["time"]
    if (
        one
        and other
        and all(one[name] == other[name] for name in ("column", "timezone", "time_format"))
    ):
        is_complete = not one["missing"] and not other["missing"]
        if is_complete and set(one["days"]).isdisjoint(other["days"]):
            return True
    common = facts["attributes"].keys() & earlier["attributes"].keys()
    is_disjoint = any(
        set(facts["attributes"][name]).isdisjoint(earlier["attributes"][name]) for name in common
    )
    # On other tiles the flows cannot be compared, so renamed values would not be noticed.
    has_same_tiles = facts["tiling"] == earlier["tiling"]
    if is_disjoint and has_same_tiles:
        return True
    is_comparable = has_same_tiles and facts["tiling"] is not None and earlier["area"] is not None
    return is_comparable and not facts["keeps_outside"] and _is_outside(given, earlier["area"])


def _time_facts(summary: Any, ledger: LedgerFile) -> dict[str, Any] | None:
    found = summary.days
    if found is None:
        return None
    days = [
        day
        for day in sorted(found.days)
        if summary.during is None or day.startswith(summary.during)
    ]
    return {
        "column": found.column,
        "timezone": found.timezone,
        "time_format": found.time_format,
        "days": [ledger.keyed_hash("day", day) for day in days],
        # A step of time has no trip without a time.
        "missing": found.missing and summary.during is None,
    }


def _attribute_facts(given: Flows, ledger: LedgerFile) -> dict[str, list[str]]:
    """Hashes of the values of each attribute. Rows without a value are in no slice."""
    # Matrices of one file are no attribute of a trip: the same trip may be in several.
    return {
        name: sorted(
            {ledger.keyed_hash("value", name, _canonical(key[at])) for key in given.slice_keys}
        )
        for at, name in enumerate(given.slice_columns)
        if name not in (TIME, MATRIX)
    }


def _canonical(value: str) -> str:
    """One spelling of a value, whatever type a file has for it.

    Numbers (1, 01, 1.0), truth values (true, 1), dates (a day, or its midnight), accents, letters
    of other width, blanks and characters without width.
    """
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold())
    text = " ".join("".join(one for one in text if unicodedata.category(one) != "Cf").split())
    text = {"true": "1", "false": "0"}.get(text, text)
    if _DATE.match(text):
        with suppress(ValueError):
            return datetime.fromisoformat(text).isoformat()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return str(number.normalize() + 0) if number.is_finite() else text


def _tiling(given: Flows) -> str | None:
    """How the ends of a trip become tiles; None if that is not known."""
    tree, summary = given.whole_map, given.intake
    geography = None if tree is None else tree.geography
    columns = [f"{name}={summary.columns[name]}" for name in _ENDS if name in summary.columns]
    if not columns:
        return None
    if summary.resolution is not None:
        tiles = f"h3 {summary.resolution}"
    elif tree is not None and geography is not None:
        centers = np.concatenate(geography.centers(tree.leaf_node)).tobytes()
        codes = "\n".join(tree.code_text(tree.leaf_node).tolist()).encode()
        tiles = f"map {hashlib.sha256(codes + centers).hexdigest()}"
    else:
        return None
    return "; ".join([tiles, str(summary.crs), *columns])


def _is_outside(given: Flows, stored: str) -> bool:
    """Whether no trip has both ends in an area: none begins there, or none ends there."""
    area, flows = read_stored_area(stored), given
    if area is None:
        return False

    def is_free(tree: Hierarchy, tiles: Ints) -> bool:
        nodes = tree.leaf_node[tiles]
        if given.intake.resolution is not None:
            texts = (code.partition(".")[0] for code in tree.code_text(nodes).tolist())
            codes = np.array([int(text, 16) for text in texts], dtype=np.uint64)
            return not area.holds_cells(codes).any()
        return tree.geography is not None and not area.holds(*tree.geography.centers(nodes)).any()

    seen = [np.unique(end) for end in (given.origin, given.destination)]
    return is_free(flows.origins, seen[0]) or is_free(flows.destinations, seen[1])
