"""Mutated trip files against a slow reader: read right, or refused with a message of flowveil.

Nothing else.

    python -m benchmarks.fuzz_reading --count 20000

Half of the files are CSV, whose header and rows are changed as files of the world are (encodings,
byte order marks, quotes, other delimiters, decimal commas, blank lines, columns twice, missing and
strange values, huge numbers), and then byte by byte; half are Parquet with the same values in other
types, dictionaries, lists and structs among them. What is accepted must equal what Python's own csv
module and h3 make of the same bytes, row by row; everything that is raised must be a
`FlowveilError`.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import random
import tempfile
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import h3.api.basic_int as h3_int
import pyarrow as pa
import pyarrow.parquet as pq

from flowveil.core.errors import FlowveilError
from flowveil.core.flows import Flows
from flowveil.reading.engines import read_trips

NAMES = ("o_lat", "o_lon", "d_lat", "d_lon", "uid", "n", "note")
_MISSING = {"", "na", "n/a", "nan", "<na>", "null", "none", "nil", "\\n"}
_STRANGE = (
    "",
    "NA",
    "null",
    "x",
    "1e400",
    "-1",
    "1.5",
    "99999999999999999999",
    "1,5",
    " 3 ",
    "0",
    "inf",
    "-0",
    "1_000",
    "١٢",
    "0x10",
    "1e3",
    "+4",
    "true",
    '"',
    "'",
    "\t",
    "48.85 N",
    "-9",
    "2**53",
    "9007199254740993",
    "1.0",
    "NaN",
    "é",
)
_RESOLUTION = 7
#: What two readings are compared by: trips of each pair, rows, rows left out, and persons of each
#: pair.
Reading = tuple[dict[tuple[int, int], float], int, int, dict[tuple[int, int], int]]


def rows_of(rng: random.Random) -> list[list[str]]:
    """A few good trips, some of their fields replaced by strange ones."""
    rows = [
        [
            f"{48.8 + rng.random() / 50:.4f}",
            f"{2.3 + rng.random() / 50:.4f}",
            "48.86",
            "2.36",
            f"p{rng.randrange(4)}",
            str(rng.randrange(1, 9)),
            "note",
        ]
        for _ in range(rng.randrange(1, 6))
    ]
    for _ in range(rng.randrange(3)):
        rng.choice(rows)[rng.randrange(len(NAMES))] = rng.choice(_STRANGE)
    return rows


def csv_bytes(rng: random.Random, rows: list[list[str]]) -> bytes:
    """A text file of these rows, written and damaged in some way."""
    names = list(NAMES)
    if rng.random() < 0.15:
        names[rng.randrange(len(names))] = rng.choice([*NAMES, "", " uid", "UID", "x"])
    if rng.random() < 0.15:
        rows = [[cell.replace(".", ",") for cell in row] for row in rows]
    if rng.random() < 0.1:
        rng.choice(rows).append("more")
    if rng.random() < 0.1:
        rng.choice(rows).pop()
    text = io.StringIO()
    csv.writer(
        text,
        delimiter=rng.choice(",,,;\t|"),
        quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
        lineterminator=rng.choice(["\n", "\n", "\r\n", "\n\n"]),
    ).writerows([names, *rows])
    content = text.getvalue().encode(
        rng.choice(["utf-8"] * 6 + ["utf-8-sig", "utf-8-sig", "utf-16", "cp1252"]), "replace"
    )
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        at = rng.randrange(len(content) + 1)
        change = rng.randrange(3)
        new = bytes([rng.choice(b',;\t"\n\r \x00\xff\xe9abc0123456789.-')])
        content = content[:at] + (new if change else b"") + content[at + (change != 1) :]
    return content


def parquet_table(rng: random.Random, rows: list[list[str]]) -> pa.Table:
    """A table of these rows, its columns in one of many types."""
    columns = []
    for i in range(len(NAMES)):
        texts = [row[i] for row in rows]
        kind = rng.choice(
            [
                pa.string(),
                pa.large_string(),
                pa.float64(),
                pa.float32(),
                pa.int64(),
                "dictionary",
                "list",
                "struct",
                "decimal",
                pa.null(),
                pa.bool_(),
                pa.timestamp("us"),
                pa.binary(),
            ]
        )
        columns.append(_typed(kind if rng.random() < 0.3 else None, texts, number=i not in (4, 6)))
    names = list(NAMES)
    if rng.random() < 0.1:
        names[rng.randrange(len(names))] = rng.choice(NAMES)
    return pa.table(columns, names=names)


def _typed(kind: Any, texts: list[str], *, number: bool) -> Any:
    values: list[Any] = [None if t.lower() in _MISSING else t for t in texts]
    if kind is None:
        try:
            return pa.array([None if v is None else float(v) for v in values] if number else values)
        except ValueError:
            return pa.array(values, pa.string())
    if kind == "dictionary":
        return pa.array(values, pa.string()).dictionary_encode()
    if kind == "list":
        return pa.array([[v] for v in values], pa.list_(pa.string()))
    if kind == "struct":
        return pa.array([{"a": v} for v in values], pa.struct([("a", pa.string())]))
    try:
        if kind == "decimal":
            return pa.array(
                [None if v is None else round(Decimal(v), 4) for v in values], pa.decimal128(20, 4)
            )
        if kind in (pa.float64(), pa.float32()):
            return pa.array([None if v is None else float(v) for v in values], kind)
        if kind in (pa.int64(), pa.bool_()):
            return pa.array(
                [None if v is None else int(float(v)) for v in values], pa.int64()
            ).cast(kind)
        return pa.array([None] * len(values) if kind == pa.null() else values, kind)
    except (ValueError, ArithmeticError, pa.ArrowException, TypeError):
        return pa.array(values, pa.string())


def independent(names: list[str], rows: list[list[Any]]) -> Reading | None:
    """What the rows are, one by one; None where they must be refused."""
    at = {
        name: [
            i for i, n in enumerate(names) if n == name or (n.strip() == name and name not in names)
        ]
        for name in NAMES
    }
    if any(len(at[name]) != 1 for name in NAMES[:6]):
        return None
    trips: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    people: dict[tuple[int, int], set[str]] = {}
    left_out = 0
    for row in rows:
        if len(row) != len(names):
            return None
        try:
            *ends, count = (_number(row[at[name][0]]) for name in (*NAMES[:4], "n"))
        except ValueError:
            return None
        if count < 0 or count > 2**53:
            return None
        a, b, c, d = ends
        off = abs(a) > 90 or abs(c) > 90 or abs(b) > 180 or abs(d) > 180
        if (
            count < 0.5e-6
            or any(map(math.isnan, (*ends, count)))
            or off
            or a == b == 0
            or c == d == 0
        ):
            left_out += 1
            continue
        pair = (h3_int.latlng_to_cell(a, b, _RESOLUTION), h3_int.latlng_to_cell(c, d, _RESOLUTION))
        trips[pair] += (
            Fraction(round(count * 10**6), 10**6) if count < 2**33 else Fraction(int(count))
        )
        who = str("" if row[at["uid"][0]] is None else row[at["uid"][0]]).strip()
        people.setdefault(pair, set()).add(who)
    totals = {pair: float(total) for pair, total in trips.items()}
    return totals, len(rows), left_out, {pair: len(who) for pair, who in people.items()}


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in _MISSING:
            return math.nan
        if not text.isascii() or "_" in text:
            raise ValueError
        return float(text)
    return float(value)


def read_text(content: bytes) -> tuple[list[str], list[list[Any]]] | None:
    """Names and rows by Python's csv module; None where the bytes are no table.

    Errors in an unused column do no harm: bytes that are no UTF-8 are kept as marks, which no value
    that counts may have, a blank after a quote is passed over, and so is an empty field behind the
    last.
    """
    try:
        text = content.decode("utf-8-sig", "surrogateescape")
        head = text.splitlines()[0]
        delimiter = max(",;\t|", key=head.count)
        records = [
            row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row
        ]
    except (csv.Error, IndexError):
        return None
    if not records:
        return None
    names = records[0]
    width = len(names)
    rows = [list(row[:width] if row[width:] == [""] else row) for row in records[1:]]
    used = [i for i, name in enumerate(names) if name.strip() in NAMES[:6]]
    broken = any(_is_marked(row[i]) for row in rows for i in used if i < len(row))
    return None if broken or any(map(_is_marked, (names[i] for i in used))) else (names, rows)


def _is_marked(text: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in text)


def summary(flows: Flows) -> Reading:
    """The same of what flowveil read."""
    origin = flows.origins.code[flows.origins.leaf_node[flows.origin]].tolist()
    destination = flows.destinations.code[flows.destinations.leaf_node[flows.destination]].tolist()
    pairs = list(zip(origin, destination, strict=True))
    people = flows.n_people()
    return (
        dict(zip(pairs, flows.trips.tolist(), strict=True)),
        flows.intake.rows,
        sum(flows.intake.left_out.values()),
        {} if people is None else dict(zip(pairs, people.tolist(), strict=True)),
    )


def one(seed: int, folder: Path) -> tuple[str, str]:
    """Make and read one file: how it ended, and what is wrong, if anything is."""
    rng = random.Random(seed)
    rows = rows_of(rng)
    path = folder / ("t.csv" if rng.random() < 0.5 else "t.parquet")
    truth: tuple[list[str], list[list[Any]]] | None
    if path.suffix == ".csv":
        path.write_bytes(csv_bytes(rng, rows))
        truth = read_text(path.read_bytes())
    else:
        table = parquet_table(rng, rows)
        pq.write_table(table, path)
        truth = (
            table.column_names,
            [list(row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)],
        )
    ends = {"origin": "o_lat,o_lon", "destination": "d_lat,d_lon"}
    try:
        flows = read_trips(
            path, **ends, person="uid", trips="n", max_dropped=1, resolution=_RESOLUTION
        )
    except FlowveilError:
        return "refused", ""
    except Exception as error:
        return "crashed", f"{type(error).__name__}: {error}"
    expected = None if truth is None else independent(*truth)
    if expected is None:
        return "read", "read, although another reader refuses it"
    found = summary(flows)
    if found[:3] != expected[:3]:
        return "read", f"{found[:3]} where {expected[:3]} is right"
    more = [pair for pair, n in found[3].items() if n > expected[3][pair]]
    return "read", "more people than there are" if more else ""


def main() -> None:
    """Reads n files and prints what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    ended: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.first + options.count):
            how, wrong = one(seed, Path(folder))
            ended[how] += 1
            if wrong:
                ended["wrong"] += 1
                print(f"seed {seed}: {wrong}", flush=True)
            if seed % 1000 == 999:
                print(seed + 1, dict(ended), flush=True)
    print(dict(ended), flush=True)


if __name__ == "__main__":
    main()
