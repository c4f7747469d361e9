"""Changed release folders against verify: never a traceback, a hang, a write outside, or "holds".

    python -m benchmarks.fuzz_verify 100000 [--first 0] [--files NAME ...]

Each number is one changed folder, the same on every machine with the same libraries: a release of a few cells with all
exports is copied, one to three files of it are changed (bytes, JSON, Parquet, OMX, GeoPackage, Arrow, the kind of
file), in two of three cases all hashes are made right again, and verify runs on it. Work is done in processes of a few
hundred folders, so that a crash or an endless loop inside a library is seen and named by its number.

A changed folder may hold only if it says the same: every file but the manifest has the bytes that were published (an
export may be missing, together with its line in the manifest), and the manifest is the same JSON with no entry twice.
Any other folder that holds is reported. Where a file claims that another version of a library wrote it, verify says
what it could not compare; that is not "holds".
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
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
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy
from flowveil.verify import verify_release
from flowveil.verify.exports import EXPORTS
from flowveil.verify.files import read_json

#: A folder of a few cells takes a fraction of a second.
SECONDS = 60
PER_PROCESS = 500
MEMORY = 8 << 30
FORMATS = "csv,geojson,gpkg,omx,flowmap,kepler,arrow"


def small_flows() -> Flows:
    """Trips between seven hexagons, with weights and a few that must be suppressed."""
    import h3.api.basic_int as h3

    from flowveil.zoning.h3 import h3_hierarchy

    rng = np.random.default_rng(1)
    tiles = np.sort(np.array(h3.cell_to_children(h3.latlng_to_cell(48.85, 2.35, 6), 7), dtype=np.uint64))
    tree: Hierarchy = h3_hierarchy(tiles)
    rows = 120
    return Flows.from_pairs(
        (rng.beta(1, 3, rows) * len(tiles)).astype(np.int32),
        (rng.beta(2, 2, rows) * len(tiles)).astype(np.int32),
        origins=tree,
        destinations=tree,
        weight=np.round(rng.uniform(1, 9, rows), 2),
    )


def publish(folder: Path) -> Flows:
    flows = small_flows()
    flowveil.anonymize(flows, method="odkanon", k=4, budget="volume").write(folder, formats=FORMATS)
    return flows


# ---- changes -----------------------------------------------------------------------------------------------------


def change_bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content)) if rng.random() < 0.6 else max(0, len(content) - 1 - rng.randrange(600))
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
        path.write_text(text.replace("{", '{"' + rng.choice(("measures", "version", "raw")) + '": 3, ', 1), "utf-8")
        return
    content = json.loads(text)
    holder, key = rng.choice(list(_places(content)))
    kind = rng.randrange(4)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(("raw", "k", "note", "é", ""))] = rng.choice((3, None, "three trips", [3], {}))
    else:
        odd = (0, -1, 1e308, 10**30, True, None, "", "x", [], {}, [[]], "\u0000", 0.1, holder[key])
        holder[key] = rng.choice(odd)
    path.write_text(json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of every object and list."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
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
        odd = {"int": (0, -1, row[name], 2**31 - 1), "float": (float("nan"), -0.0, 1e300), "bytes": (b"", b"\1")}
        row[name] = rng.choice((None, *odd.get(type(row[name]).__name__, ("", "all", "8" * 16, "x"))))
    elif kind == 4:
        return table.replace_schema_metadata({**(table.schema.metadata or {}), b"note": b"three trips"})
    elif kind == 5:
        return table.append_column("people", pa.array([3] * len(table)))
    elif kind == 6:
        return table.drop_columns([name])
    else:
        fields = [f.with_metadata({"note": "3"}) if f.name == name else f for f in table.schema]
        return table.cast(pa.schema(fields, table.schema.metadata))
    return pa.Table.from_pylist(rows, schema=table.schema)


def change_parquet(path: Path, rng: random.Random) -> None:
    if rng.random() < 0.2:
        # As if another version had written it, so that bytes are not compared.
        content = path.read_bytes()
        path.write_bytes(content.replace(b"parquet-cpp-arrow version 2", b"parquet-cpp-arrow version 1"))
        if rng.random() < 0.7:
            change_bytes(path, rng)
        return
    table = pq.read_table(path)
    table = changed_table(table, rng) if rng.random() < 0.8 else table
    form = rng.choice(({"compression": "zstd", "version": "2.6"}, {}, {"use_dictionary": False}, {"row_group_size": 2}))
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
            place.attrs[rng.choice(("TITLE", "SHAPE", "note"))] = rng.choice((3, "three", b"cos\nsystem\n", [1, 2]))
        elif kind == 1:
            file["data/trips"][0, 0] += 1
        elif kind == 2:
            file["data"].create_dataset("raw", data=rng.choice((3, [3], ["three"], np.ones((2, 2)))))
        elif kind == 3:
            file["data/raw"] = rng.choice((h5py.SoftLink("/data"), h5py.ExternalLink("/etc/passwd", "/")))
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
            ["PRAGMA writable_schema = ON", "UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'flows'"],
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
        path.with_name(rng.choice(("raw.csv", "flows.pkl", "\x1b[2J", "flows.parquet.bak"))).write_bytes(content)
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
        change = change_kind if chance < 0.05 else structured if structured and chance < 0.6 else change_bytes
        change(path, rng)
        done.append(f"{change.__name__} {name}")
    if rng.random() < 2 / 3:
        rehash(folder)
        done.append("hashes made right")
    return done


def rehash(folder: Path) -> None:
    place = folder / "manifest.json"
    if place.is_symlink() or not place.is_file():
        return
    try:
        manifest = json.loads(place.read_text("utf-8"))
        manifest["sha256"] = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.iterdir())
            if path.name != "manifest.json" and path.is_file() and not path.is_symlink()
        }
    except (OSError, ValueError, TypeError):
        return
    text = json.dumps(manifest, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    place.write_text(text, "utf-8")


def says_the_same(folder: Path, published: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    wanted = {path.name for path in published.iterdir()}
    if not wanted - set(EXPORTS) <= names <= wanted or any(path.is_symlink() for path in folder.iterdir()):
        return False
    if any((folder / n).read_bytes() != (published / n).read_bytes() for n in names - {"manifest.json"}):
        return False
    manifest = read_json(published / "manifest.json")
    manifest["sha256"] = {name: value for name, value in manifest["sha256"].items() if name in names}
    return bool(read_json(folder / "manifest.json") == manifest)


# ---- runs --------------------------------------------------------------------------------------------------------


def run(first: int, count: int, files: Sequence[str] | None = None) -> list[str]:
    """Try so many folders; a line for each that does what none may."""
    _limit_memory()
    problems = []
    with tempfile.TemporaryDirectory(prefix="flowveil-fuzz-") as place:
        published = Path(place, "published")
        flows = publish(published)
        names = files or sorted(path.name for path in published.iterdir())
        for number in range(first, first + count):
            folder = Path(place, "work", "changed")
            shutil.copytree(published, folder)
            done = change_folder(folder, random.Random(number), names)
            problem = _tried(folder, flows, published)
            if problem:
                problems.append(f"{number}: {problem} ({'; '.join(done)})")
            shutil.rmtree(Path(place, "work"))
    return problems


def _limit_memory() -> None:
    """What asks for more ends as an error here, not as a machine without memory."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY if most < 0 else min(MEMORY, most), most))


def _tried(folder: Path, flows: Flows, published: Path) -> str | None:
    before = _listing(folder)
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    start = time.perf_counter()
    try:
        unread: list[str] = []
        findings = verify_release(folder, flows, unread=unread)
    except Exception:
        return "traceback: " + traceback.format_exc().strip().replace("\n", " | ")
    finally:
        faulthandler.cancel_dump_traceback_later()
    if _listing(folder) != before:
        return "wrote into the folder or beside it"
    if not findings and not unread and not says_the_same(folder, published):
        return "holds"
    if any("\n" in line or not line.isprintable() for line in findings):
        return "a finding that is not one plain line"
    return f"took {time.perf_counter() - start:.0f} s" if time.perf_counter() - start > SECONDS / 2 else None


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    around = [folder.parent, *folder.parent.rglob("*")]
    return sorted((str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in around)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--files", nargs="+")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        print("\n".join(run(chosen.first, chosen.count, chosen.files)))
        return
    bad = 0
    for first in range(chosen.first, chosen.first + chosen.count, PER_PROCESS):
        count = min(PER_PROCESS, chosen.first + chosen.count - first)
        command = [sys.executable, "-m", "benchmarks.fuzz_verify", str(count), "--first", str(first), "--worker"]
        if chosen.files:
            command += ["--files", *chosen.files]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in ended.stdout.splitlines() if line]
        if ended.returncode:
            lines.append(f"{first} to {first + count - 1}: the process ended with {ended.returncode}\n{ended.stderr}")
        bad += len(lines)
        print(f"{first + count:,} folders, {bad:,} problems", *lines, sep="\n", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
