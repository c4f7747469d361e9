"""Changed release folders against verify: never a traceback, a hang, a write outside, or "holds".

    python -m benchmarks.fuzz_verify 100000 [--first 0] [--log FILE] [--files NAME ...]

Each number is one changed folder, the same on every machine with the same libraries (but for the
noise of a noisy release): a release of a few cells is copied, one to three files of it are changed
(bytes, JSON, Parquet, OMX, GeoPackage, Arrow, the kind of file), in three of five cases all hashes
are made right again, and verify runs on it. Which release it is goes by the number: `RELEASES` has
every kind. Work is done in processes of some thousand folders, so that a crash or an endless loop
inside a library is seen and named by its number. With ``--log`` lines are added to a file, and the
same command goes on where it was stopped. Two in parallel:

    for first in 0 50000; do
      nohup nice -n 19 python -m benchmarks.fuzz_verify 50000 --first $first --log fuzz-$first.log &
    done

A changed folder may hold only if it says the same: every file but the manifest has the bytes that
were published, and the manifest is the same JSON with no entry twice. Any other folder that holds
is reported. Where a file claims that another version of a library wrote it, verify says what it
could not compare; that is not "holds".
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import pickle
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import flowveil
from benchmarks.fuzz_releases import RELEASES, Held
from flowveil.system.paths import read_json
from samples.verified import findings_of

#: A folder of a few cells takes a fraction of a second of processor time. What is still at work
#: after so long by the clock hangs; that is longer, because a busy machine makes anything wait.
SECONDS = 30
HANGS = 600
PER_PROCESS = 5000
MEMORY = 8 << 30
# ---- changes -------------------------------------------------------------------------------------


def change_bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = (
        rng.randrange(len(content))
        if rng.random() < 0.6
        else max(0, len(content) - 1 - rng.randrange(600))
    )
    length = rng.choice((1, 1, 2, 4, 8, 64))
    kind = rng.randrange(6)
    if kind == 0:
        content[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        content[at : at + length] = rng.randbytes(length)
    elif kind == 2:
        content[at:at] = rng.randbytes(length)
    elif kind == 3:
        del content[at : at + length]
    elif kind == 4:
        content[at : at + length] = rng.choice((b"\x00", b"\xff", b"\x7f")) * length
    else:
        content[at:at] = content[at : at + length]
    path.write_bytes(bytes(content))


def change_json(path: Path, rng: random.Random) -> None:
    text = path.read_text("utf-8")
    if rng.random() < 0.2:
        # Only text can have an entry twice.
        path.write_text(
            text.replace("{", '{"' + rng.choice(("measures", "version", "raw")) + '": 3, ', 1),
            "utf-8",
        )
        return
    content = json.loads(text)
    places = list(_places(content))
    if rng.random() < 0.4:
        # Most entries are texts and coordinates; numbers are what is counted with.
        places = [(h, k) for h, k in places if isinstance(h[k], int | float)] or places
    holder, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(("raw", "k", "note", "é", ""))] = rng.choice(
            (3, None, "three trips", [3], {})
        )
    elif kind == 2:
        holder[key] = _retyped(holder[key])
    elif kind == 3:
        holder[key] = rng.choice(
            ([holder[key]], [[[holder[key]]]], {"0": holder[key]}, [holder[key]] * 3)
        )
    elif kind == 4:
        holder[key] = rng.choice(
            (True, None, "", "x", [], {}, [[]], "\u0000", "\x1b[2J", holder[key])
        )
    else:
        holder[key] = rng.choice(_NUMBERS)
    write_json(path, content)


#: JSON has no NaN and no infinity; readers take them all the same.
_NUMBERS = (
    *(
        0,
        -0.0,
        -1,
        1,
        0.1,
        1e-320,
        2**31,
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63),
        -(2**63) - 1,
        10**30,
        -(10**400),
    ),
    *(1e100, 1e101, -1e308, float("nan"), float("inf"), float("-inf")),
)


def _retyped(value: Any) -> Any:
    """A number as text, a text as a number, anything else as text."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() else len(value)
    return json.dumps(value)


def write_json(path: Path, content: Any) -> None:
    path.write_text(
        json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False) + "\n", "utf-8"
    )


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of every object and list."""
    pairs = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in list(pairs):
        yield content, key
        yield from _places(value)


def changed_table(table: pa.Table, rng: random.Random) -> pa.Table:
    rows = table.to_pylist()
    kind = rng.randrange(8)
    name = rng.choice(table.column_names)
    if kind == 0:
        rows.pop(rng.randrange(len(rows)))
    elif kind == 1:
        rows.insert(rng.randrange(len(rows)), rng.choice(rows))
    elif kind == 2:
        rng.shuffle(rows)
    elif kind == 3:
        row = rng.choice(rows)
        whole = (0, -1, row[name], 2**31 - 1, 2**63 - 1, -(2**63))
        fraction = (float("nan"), float("inf"), -0.0, -1.0, 1e300, 1e-320)
        odd = {"int": whole, "float": fraction, "bytes": (b"", b"\1")}
        row[name] = rng.choice(
            (None, *odd.get(type(row[name]).__name__, ("", "all", "8" * 16, "x")))
        )
    elif kind == 4:
        return table.replace_schema_metadata(
            {**(table.schema.metadata or {}), b"note": b"three trips"}
        )
    elif kind == 5:
        return table.append_column("people", pa.array([3] * len(table)))
    elif kind == 6:
        return table.drop_columns([name])
    else:
        fields = [f.with_metadata({"note": "3"}) if f.name == name else f for f in table.schema]
        return table.cast(pa.schema(fields, table.schema.metadata))
    try:
        return pa.Table.from_pylist(rows, schema=table.schema)
    except (pa.ArrowInvalid, OverflowError):
        # A number that the column's type does not have.
        return table.slice(1)


def change_parquet(path: Path, rng: random.Random) -> None:
    if rng.random() < 0.2:
        # As if another version had written it, so that bytes are not compared.
        content = path.read_bytes()
        path.write_bytes(
            content.replace(b"parquet-cpp-arrow version 2", b"parquet-cpp-arrow version 1")
        )
        if rng.random() < 0.7:
            change_bytes(path, rng)
        return
    table = pq.read_table(path)
    table = changed_table(table, rng) if rng.random() < 0.8 else table
    form = rng.choice(
        (
            {"compression": "zstd", "version": "2.6"},
            {},
            {"use_dictionary": False},
            {"row_group_size": 2},
        )
    )
    pq.write_table(table, path, **form)


def change_arrow(path: Path, rng: random.Random) -> None:
    with pa.OSFile(str(path)) as file:
        table = changed_table(pa.ipc.open_file(file).read_all(), rng)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def change_omx(path: Path, rng: random.Random) -> None:
    import h5py

    with h5py.File(path, "a") as file:
        if rng.random() < 0.5:
            file.attrs.create("WRITTEN_BY", np.bytes_("flowveil with HDF5 1.0.0"))
        kind = rng.randrange(6)
        place = file[rng.choice(("/", "data", "lookup", "data/trips", "lookup/zone_code"))]
        if kind == 0:
            place.attrs[rng.choice(("TITLE", "SHAPE", "note"))] = rng.choice(
                (3, "three", b"cos\nsystem\n", [1, 2])
            )
        elif kind == 1:
            file["data/trips"][0, 0] += 1
        elif kind == 2:
            file["data"].create_dataset(
                "raw", data=rng.choice((3, [3], ["three"], np.ones((2, 2))))
            )
        elif kind == 3:
            file["data/raw"] = rng.choice(
                (h5py.SoftLink("/data"), h5py.ExternalLink("/etc/passwd", "/"))
            )
        elif kind == 4:
            del file[rng.choice(("data", "lookup", "data/trips", "lookup/index"))]
        else:
            file["lookup/raw"] = file["data"]
    if rng.random() < 0.5:
        change_bytes(path, rng)


def change_geopackage(path: Path, rng: random.Random) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    statements = rng.choice(
        (
            ["CREATE TABLE raw (n)", "INSERT INTO raw VALUES (3)"],
            ["CREATE TABLE raw (n)", "INSERT INTO raw VALUES (randomblob(9000))", "DROP TABLE raw"],
            ["DROP TABLE flows", f"CREATE VIEW flows AS {endless}"],
            ["CREATE TRIGGER t AFTER INSERT ON flows BEGIN SELECT 1; END"],
            ["UPDATE flows SET trips = trips + 1 WHERE fid = 1"],
            ["UPDATE gpkg_contents SET description = 'three'"],
            [
                "PRAGMA writable_schema = ON",
                "UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'flows'",
            ],
            ["PRAGMA journal_mode = WAL"],
            ["VACUUM"],
        )
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        for statement in statements:
            base.execute(statement)
    if rng.random() < 0.3:
        change_bytes(path, rng)


def change_kind(path: Path, rng: random.Random) -> None:
    kind = rng.randrange(5)
    content = path.read_bytes()
    path.unlink()
    if kind == 0:
        path.symlink_to("/dev/zero")
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.mkdir()
    elif kind == 3:
        path.with_name(
            rng.choice(("raw.csv", "flows.pkl", "\x1b[2J", "flows.parquet.bak"))
        ).write_bytes(content)
    # Otherwise it is missing.


_STRUCTURED: dict[str, Callable[[Path, random.Random], None]] = {
    ".json": change_json,
    ".geojson": change_json,
    ".parquet": change_parquet,
    ".arrow": change_arrow,
    ".omx": change_omx,
    ".gpkg": change_geopackage,
}


def change_folder(folder: Path, rng: random.Random, files: Sequence[str]) -> list[str]:
    """Change one to three files; the names of what was done."""
    done = []
    for name in rng.sample(sorted(files), min(rng.choice((1, 1, 1, 2, 3)), len(files))):
        path = folder / name
        structured = _STRUCTURED.get(path.suffix)
        chance = rng.random()
        # The files are links to the published ones, which do not change.
        own_copy(path)
        change = (
            change_kind
            if chance < 0.05
            else structured
            if structured and chance < 0.6
            else change_bytes
        )
        change(path, rng)
        done.append(f"{change.__name__} {name}")
    if rng.random() < 3 / 5:
        rehash(folder)
        done.append("hashes made right")
    return done


def own_copy(path: Path) -> None:
    """The same bytes in a separate file."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


def rehash(folder: Path) -> None:
    place = folder / "manifest.json"
    if place.is_symlink() or not place.is_file():
        return
    own_copy(place)
    try:
        manifest = json.loads(place.read_text("utf-8"))
        manifest["sha256"] = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.iterdir())
            if path.name != "manifest.json" and path.is_file() and not path.is_symlink()
        }
    except (OSError, ValueError, TypeError):
        return
    write_json(place, manifest)


def says_the_same(folder: Path, published: Path) -> bool:
    """Returns whether a folder has the published files, the manifest as JSON and the others byte by
    byte.

    Tables of another version of flowveil are compared by value, as verify does.
    """
    names = {path.name for path in published.iterdir()}
    if {path.name for path in folder.iterdir()} != names or any(
        path.is_symlink() for path in folder.iterdir()
    ):
        return False
    if read_json(published / "report.json")["version"] != flowveil.__version__:
        same_tables = [
            n for n in names if n.endswith(".parquet") and _same_table(folder / n, published / n)
        ]
    else:
        same_tables = []
    same = all(
        (folder / n).read_bytes() == (published / n).read_bytes()
        for n in names - {"manifest.json", *same_tables}
    )
    manifests = [read_json(place / "manifest.json") for place in (folder, published)]
    for manifest in manifests:
        for name in same_tables:
            manifest["sha256"].pop(name, None)
    return bool(same and manifests[0] == manifests[1])


def _same_table(one: Path, other: Path) -> bool:
    return bool(pq.read_table(one).equals(pq.read_table(other), check_metadata=True))


# ---- runs ----------------------------------------------------------------------------------------


def run(first: int, count: int, files: Sequence[str] | None = None) -> list[str]:
    """Tries n folders; prints a line for each that breaks a rule."""
    with tempfile.TemporaryDirectory(prefix="flowveil-fuzz-") as place:
        return [line for _, line in tried(first, count, files, Path(place)) if line]


def tried(
    first: int, count: int, files: Sequence[str] | None, place: Path
) -> Iterator[tuple[int, str | None]]:
    """Before each folder its number, and after it, if it does what none may, its number and a line
    on that.

    Args:
        first, count: the numbers.
        files: change none but these.
        place: holds the releases that are changed.
    """
    _limit_memory()
    with tempfile.TemporaryDirectory(prefix="work-", dir=place) as work:
        folder = Path(work, "changed")
        releases: dict[Callable[[Path], Held], Held] = {}
        for number in range(first, first + count):
            yield number, None
            make = RELEASES[number % len(RELEASES)]
            published = place / make.__name__
            if make not in releases:
                releases[make] = made(make, place)
                # A release that does not hold would hide every changed folder that does.
                shutil.copytree(published, folder)
                findings = findings_of(folder, releases[make].flows, **releases[make].against)
                if findings:
                    yield (
                        number,
                        (
                            f"{number}: {make.__name__[1:]} does not hold as it was published:"
                            f" {findings[0]}"
                        ),
                    )
                shutil.rmtree(folder)
            names = sorted(
                path.name for path in published.iterdir() if not files or path.name in files
            )
            folder.mkdir()
            for path in published.iterdir():
                os.link(path, folder / path.name)
            done = change_folder(folder, random.Random(number), names)
            problem = _tried(folder, releases[make], published)
            if problem:
                yield number, f"{number}: {problem} ({make.__name__[1:]}: {'; '.join(done)})"
            shutil.rmtree(folder)


def made(make: Callable[[Path], Held], place: Path) -> Held:
    """A release of this kind, made once in a place.

    The holder's side of it is read again by every process.
    """
    kept = place / f"{make.__name__}.held"
    if not kept.exists():
        held = make(place / make.__name__)
        kept.write_bytes(pickle.dumps(held))
        return held
    found: Held = pickle.loads(kept.read_bytes())
    return found


def _limit_memory() -> None:
    """Limits the memory, so that excessive use is an error."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY if most < 0 else min(MEMORY, most), most))


def _tried(folder: Path, held: Held, published: Path) -> str | None:
    before = _listing(folder)
    faulthandler.dump_traceback_later(HANGS, exit=True)
    start = time.process_time()
    try:
        notes: list[str] = []
        findings = findings_of(folder, held.flows, notes=notes, **held.against)
    except Exception:
        return "traceback: " + traceback.format_exc().strip().replace("\n", " | ")
    finally:
        faulthandler.cancel_dump_traceback_later()
    if _listing(folder) != before:
        return "wrote into the folder or next to it"
    if not findings and not notes and not says_the_same(folder, published):
        return "holds"
    if any("\n" in line or not line.isprintable() for line in findings):
        return "a finding that is not one plain line"
    took = time.process_time() - start
    return f"took {took:.0f} s" if took > SECONDS else None


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    around = [folder.parent, *folder.parent.rglob("*")]
    return sorted((str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in around)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--files", nargs="+")
    parser.add_argument(
        "--log",
        type=Path,
        help="a file that lines are added to; what it has tried is not tried again",
    )
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        for number, line in tried(chosen.first, chosen.count, chosen.files, chosen.worker):
            print(line or f"{_AT}{number}", flush=True)
        return
    end, bad = chosen.first + chosen.count, 0
    first = _next(chosen.log, chosen.first)
    with tempfile.TemporaryDirectory(prefix="flowveil-fuzz-") as place:
        while first < end:
            first, lines = _block(first, min(PER_PROCESS, end - first), chosen.files, place)
            bad += len(lines)
            text = "\n".join([*lines, f"{first} is next, {bad} problems"])
            print(text, flush=True)
            if chosen.log:
                with chosen.log.open("a", encoding="utf-8") as log:
                    log.write(text + "\n")
    sys.exit(1 if bad else 0)


_AT = "at "


def _block(
    first: int, count: int, files: Sequence[str] | None, place: str
) -> tuple[int, list[str]]:
    """Tries folders in a separate process; returns the next number and the problems."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.fuzz_verify",
        str(count),
        "--first",
        str(first),
        "--worker",
        place,
    ]
    ended = subprocess.run(
        [*command, *(["--files", *files] if files else [])],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = ended.stdout.splitlines()
    problems = [line for line in lines if not line.startswith(_AT)]
    if ended.returncode == 0:
        return first + count, problems
    last = max(
        (int(line.removeprefix(_AT)) for line in lines if line.startswith(_AT)), default=first
    )
    said = ended.stderr.strip().replace("\n", " | ")
    return last + 1, [*problems, f"{last}: the process ended with {ended.returncode}: {said}"]


def _next(log: Path | None, first: int) -> int:
    lines = log.read_text("utf-8").splitlines() if log and log.is_file() else []
    return max((int(line.split()[0]) for line in lines if " is next, " in line), default=first)


if __name__ == "__main__":
    main()
