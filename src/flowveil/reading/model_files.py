"""Files of transport models as tables of trips: Visum matrices in text, SUMO and MATSim in XML.

Recognised by their first bytes.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

import pyarrow as pa

from flowveil.core.errors import DataError
from flowveil.reading.matrices import DESTINATION, ORIGIN, TRIPS, Form

_OD = pa.schema([(ORIGIN, pa.string()), (DESTINATION, pa.string()), (TRIPS, pa.float64())])
_ENDS = ("start_y", "start_x", "end_y", "end_x")
_PEEKED_BYTES = 4096


def model_table(path: Path) -> tuple[pa.Table, Form | None] | None:
    """Returns the table of a file of a transport model, and the form of a matrix.

    None for other files.
    """
    try:
        with _opened(path) as file:
            start = file.read(_PEEKED_BYTES).lstrip(b"\xef\xbb\xbf \r\n\t")
    except (EOFError, zlib.error):
        raise DataError(f"'{path.name}' cannot be read: it is damaged.") from None
    reader: Callable[[Path], pa.Table] | None = None
    if start[:2].upper() in (b"$V", b"$O", b"$E"):
        reader = _visum
    elif start.startswith(b"<") and (b"<tazRelation" in start or b"<interval" in start):
        reader = _sumo
    elif start.startswith(b"<") and (b"<population" in start or b"<plans" in start):
        reader = _matsim_plans
    if reader is None:
        return None
    try:
        table = reader(path)
    except (ElementTree.ParseError, ValueError, IndexError, KeyError):
        # Messages of the parser may quote the content.
        raise DataError(f"'{path.name}' cannot be read: its structure is damaged.") from None
    return table, None if reader is _matsim_plans else Form()


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.name.casefold().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def _table(rows: Iterator[tuple[str, str, float]]) -> pa.Table:
    found = [row for row in rows if row[2]]
    columns = list(zip(*found, strict=True)) if found else [(), (), ()]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _OD, strict=True)], schema=_OD)


# ---- Visum ---------------------------------------------------------------------------------------


def _visum(path: Path) -> pa.Table:
    """Reads a matrix in the formats $O (a pair a row), $V (a full matrix) and $E (a row for each
    origin).
    """
    with _opened(path) as file:
        text = file.read().decode("utf-8-sig", errors="replace")
    lines = (line.strip() for line in text.splitlines())
    kind, *content = [line for line in lines if line and not line.startswith("*")]
    names = next((i for i, line in enumerate(content) if line.upper() == "$NAMES"), len(content))
    content = content[:names]
    # The period that the matrix is of, then its factor; $OR has them in one form or another.
    period, factor, *body = content
    del period
    scale = float(factor)
    if kind.upper().startswith("$O"):
        pairs = (line.split() for line in body)
        return _table((pair[0], pair[1], float(pair[2]) * scale) for pair in pairs)
    words = " ".join(body).split()
    if kind.upper().startswith("$E"):
        return _table(_of_origins(words, scale))
    n = int(words[0])
    codes, values = words[1 : n + 1], words[n + 1 :]
    if len(values) != n * n:
        raise ValueError("the matrix is not square")
    return _table(
        (codes[i // n], codes[i % n], float(value) * scale) for i, value in enumerate(values)
    )


def _of_origins(words: list[str], scale: float) -> Iterator[tuple[str, str, float]]:
    """Yields the cells of format $E: a minus sign and the origin, then pairs of destination and
    value.
    """
    origin, at = "", 0
    while at < len(words):
        if words[at].startswith("-"):
            origin = words[at].removeprefix("-") or words[at + 1]
            at += 1 if words[at] != "-" else 2
            continue
        yield origin, words[at], float(words[at + 1]) * scale
        at += 2


# ---- XML -----------------------------------------------------------------------------------------


def _elements(path: Path, *tags: str) -> Iterator[Any]:
    """Yields elements of a file one after the other; definitions of entities are refused."""
    with _opened(path) as file:
        head = file.read(_PEEKED_BYTES)
        if b"<!ENTITY" in head.upper():
            raise ValueError("entities are not read")
    with _opened(path) as file:
        root = None
        for event, element in ElementTree.iterparse(file, events=("start", "end")):
            if root is None:
                root = element
            if event == "end" and element.tag in tags:
                yield element
                root.clear()


def _sumo(path: Path) -> pa.Table:
    """Reads the relations of SUMO between traffic assignment zones, of all intervals together."""
    relations = _elements(path, "tazRelation")
    return _table((one.get("from"), one.get("to"), float(one.get("count"))) for one in relations)


def _matsim_plans(path: Path) -> pa.Table:
    """Reads the trips of the selected plan of every person: from one activity to the next.

    Activities of interaction, where one changes the mode, are no ends.
    """
    rows: list[tuple[str, float, float, float, float, str | None]] = []
    for person in _elements(path, "person"):
        plans = person.findall("plan")
        plan = next((one for one in plans if one.get("selected") == "yes"), None)
        if plan is None:
            continue
        stops = [
            one
            for one in (*plan.findall("activity"), *plan.findall("act"))
            if not (one.get("type") or "").endswith("interaction") and one.get("x") is not None
        ]
        for start, end in pairwise(stops):
            places = (float(one.get(axis)) for one in (start, end) for axis in "yx")
            rows.append((person.get("id"), *places, start.get("end_time")))
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    numbers = {name: pa.array(columns[i + 1], pa.float64()) for i, name in enumerate(_ENDS)}
    return pa.table(
        {
            "person": pa.array(columns[0], pa.string()),
            **numbers,
            "dep_time": pa.array(columns[5], pa.string()),
        }
    )
