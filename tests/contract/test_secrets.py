"""Nothing of the input but what is published.

Every byte of every artefact of every command that writes.

Secrets are planted where they would go unnoticed: unused categories of dictionaries, unused
columns, rows that are left out, file names, persons, and the metadata of Arrow and pandas. Then
every file that a command writes is searched raw, unpacked (zip, gzip, zlib, the zstd pages of
Parquet) and decoded (Parquet and Arrow written again without compression; the dictionaries of
Parquet whole, with entries that no row uses).
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import trip_table
from flowveil.apps.cli import cli, main
from flowveil.published.exports import FORMATS
from samples.drafts import unchecked
from samples.processes import in_this_process

#: Distinct numbers, so that a failure says which one was found.
SECRETS = {
    "file name": "SECRETFILE",
    "person": "SECRET0",
    "unused category": "SECRETCATEGORY",
    "column": "SECRETCOLUMN",
    "value of an unused column": "SECRETVALUE",
    "schema metadata": "SECRETMETA",
    "field metadata": "SECRETFIELD",
    "left-out row": "SECRETROW",
}


def planted(table: pa.Table, path: Path, *, category: str) -> Path:
    """Write a table as Parquet with everything that could leak.

    ``category`` gets unused categories.
    """
    column = table[category].combine_chunks()
    values = [*dict.fromkeys(column.to_pylist()), SECRETS["unused category"]]
    place = {value: i for i, value in enumerate(values)}
    coded = pa.DictionaryArray.from_arrays(
        pa.array([place[v] for v in column.to_pylist()], pa.int32()), pa.array(values)
    )
    table = table.set_column(table.column_names.index(category), category, coded)
    table = table.append_column(
        SECRETS["column"], pa.array([SECRETS["value of an unused column"]] * table.num_rows)
    )
    fields = [field.with_metadata({"note": SECRETS["field metadata"]}) for field in table.schema]
    table = table.cast(
        pa.schema(fields, metadata={"pandas": json.dumps({"creator": SECRETS["schema metadata"]})})
    )
    pq.write_table(table, path)
    return path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("inputs") / SECRETS["file name"]
    folder.mkdir()
    # Every person is called SECRET and a number; the last rows are left out for want of a place.
    trips = trip_table(240)
    sex = ["f", "m"] * 118 + [SECRETS["left-out row"]] * 4
    lat = np.append(trips["start_lat"].to_numpy()[:-4], [np.nan] * 4)
    trips = trips.set_column(0, "start_lat", pa.array(lat)).append_column("sex", pa.array(sex))
    trips = trips.append_column("day", pa.array(["2024-01-05"] * 240))
    trips = trips.append_column("minutes", pa.array([5 + i * 7 % 50 for i in range(240)]))
    rng = np.random.default_rng(2)
    records = pa.table(
        {
            "age": rng.integers(18, 90, 60),
            "job": rng.choice(["a", "b", "c"], 60),
            "illness": rng.choice(["flu", "none"], 60),
        }
    )
    points = pa.table(
        {
            "person": ["p1"] * 20 + ["p2"] * 20,
            "time": pa.array(np.tile(np.arange(20) * 60_000_000, 2), pa.timestamp("us")),
            "lat": 48.85 + np.tile(np.clip(np.arange(20) - 8, 0, 4) / 4 * 0.05, 2),
            "lon": [2.35] * 40,
        }
    )
    visits = pa.table({"from": ["A", "B", "C", "D"] * 25, "to": ["B", "A", "D", "C"] * 25})
    zones = pa.table(
        {"zone": list("ABCD"), "lat": [48.8, 48.81, 48.9, 48.91], "lon": [2.3, 2.31, 2.4, 2.41]}
    )
    place = {"lat": [48.85], "lon": [2.35], "k": [7], "why": ["SECRETVALUE"]}
    outline = {"type": "LineString", "coordinates": [[2.3, 48.8], [2.4, 48.9]]}
    said = {"name": "Seine", "owner": "SECRETVALUE", "SECRETCOLUMN": 1}
    lines = {
        "type": "FeatureCollection",
        "name": "SECRETMETA",
        "features": [
            {"type": "Feature", "id": "SECRETROW", "properties": said, "geometry": outline}
        ],
    }
    (folder / "SECRETFILE-lines.geojson").write_text(json.dumps(lines))
    pq.write_table(pa.table(place), folder / "SECRETFILE-places.parquet")
    recipe = (
        '[input]\ninput = "SECRETFILE-trips.parquet"\n[zones]\nresolution = 8\n[protection]\nk'
        " = 5\n"
    )
    (folder / "SECRETFILE-recipe.toml").write_text(recipe)
    return {
        "recipe": folder / "SECRETFILE-recipe.toml",
        "places": folder / "SECRETFILE-places.parquet",
        "lines": folder / "SECRETFILE-lines.geojson",
        "visits": planted(visits, folder / "SECRETFILE-visits.parquet", category="from"),
        "zones": planted(zones, folder / "SECRETFILE-zones.parquet", category="zone"),
        "trips": planted(trips, folder / "SECRETFILE-trips.parquet", category="sex"),
        "records": planted(records, folder / "SECRETFILE-records.parquet", category="illness"),
        "points": planted(points, folder / "SECRETFILE-points.parquet", category="person"),
    }


READ = ("--resolution", "8", "--k", "5")
#: Every export; one names who publishes.
EXPORTS = ("--set", "output.contact=Office", "--format", ",".join(FORMATS))


@pytest.fixture(scope="module")
def release(inputs, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A release that commands read and do not change."""
    place = str(tmp_path_factory.mktemp("published") / "release")
    main(["anonymize", str(inputs["trips"]), *READ, "--method", "twincut", "--out", place])
    return place


TABLE = (
    "--quasi",
    "age",
    "--quasi",
    "job",
    "--sensitive",
    "illness",
    "--identifier",
    SECRETS["column"],
)
IPF = ("--variable", "age", "--variable", "illness", "--domains-from-data")
#: What each command is run with; {name} is an input, {out} what it writes. Every command that
#: writes is here.
RUNS: dict[str, list[tuple[str, ...]]] = {
    "anonymize": [
        ("{trips}", *READ, "--out", "{out}", "--person", "person_id", *EXPORTS),
        ("{trips}", *READ, "--out", "{out}", "--by", "sex", "--format", "csv,arrow"),
        (
            "{trips}",
            *READ,
            "--out",
            "{out}",
            "--person",
            "person_id",
            "--mean",
            "minutes",
            "--between",
            "minutes=0,60",
            "--method",
            "twincut",
            *EXPORTS,
        ),
        (
            "{visits}",
            "--k",
            "5",
            "--out",
            "{out}",
            "--origin-tile",
            "from",
            "--destination-tile",
            "to",
            "--zones",
            "{zones}",
            "--zones-tile",
            "zone",
            *EXPORTS,
        ),
        (
            "{trips}",
            "--resolution",
            "8",
            "--out",
            "{out}",
            "--method",
            "laplace",
            "--option",
            "epsilon=1",
            "--option",
            "bound=2",
            "--option",
            "delta=0.01",
            "--option",
            "level=5",
            "--format",
            "csv,arrow",
        ),
        (
            "{trips}",
            *READ,
            "--out",
            "{out}",
            "--person",
            "person_id",
            "--ledger",
            "{out}-ledger",
            "--set",
            "protection.dominance=0.9",
            "--set",
            "protection.stricter={places}",
            "--set",
            "output.context={lines}",
            "--max-suppressed",
            "0.5",
        ),
        (
            "{trips}",
            *READ,
            "--out",
            "{out}",
            "--by",
            "sex",
            "--set",
            "resources.resume=true",
            "--max-suppressed",
            "0.5",
        ),
        ("{trips}", *READ, "--out", "{out}", "--zones-of", "{release}", "--max-suppressed", "0.9"),
        (
            "{trips}",
            "--resolution",
            "7",
            "--out",
            "{out}",
            "--method",
            "privtree",
            "--option",
            "epsilon=4",
            "--option",
            "bound=2",
            "--option",
            "region=851fb467fffffff",
        ),
    ],
    "analyze": [("{release}", "--against", "{trips}", "--out", "{out}")],
    "run": [("{recipe}", "--out", "{out}")],
    "verify": [
        ("{release}", "--against", "{trips}", "--certificate", "{out}.json"),
        ("{release}", "--against", "{trips}", "--certificate", "{out}.html"),
    ],
    "compare": [("{trips}", *READ, "--out", "{out}", "--methods", "odkanon,suppression")],
    "study": [
        (
            "{trips}",
            *READ,
            "--out",
            "{out}",
            "--by",
            "sex",
            "--methods",
            "suppression",
            "--set",
            "resources.workers=1",
        )
    ],
    "picture": [("{release}", "--out", "{out}.svg"), ("{release}", "--out", "{out}.png")],
    "reconstruct": [("{release}", "--zones", "7", "--out", "{out}.parquet")],
    "key": [("{out}.key",)],
    "freeze": [("{release}", "--out", "{out}.parquet")],
    "derive": [("{release}", "--level", "6", *EXPORTS, "--out", "{out}")],
    "series": [("{trips}", *READ, "--time", "day", "--out", "{out}")],
    "audit": [("{release}", "--against", "{trips}", "--out", "{out}", "--show-cells")],
    "prepare": [("gps", "{points}", "--out", "{out}.parquet")],
    "tabular mondrian": [
        ("{records}", "--out", "{out}.parquet", "--k", "5", *TABLE),
        ("{records}", "--out", "{out}.csv", "--k", "5", *TABLE),
    ],
    "tabular ipf": [
        ("{records}", "--out", "{out}.parquet", "--epsilon", "1", *IPF),
        ("{records}", "--out", "{out}.parquet", "--epsilon", "none", *IPF),
    ],
    "tabular compare": [
        (
            "{records}",
            "--out",
            "{out}",
            *TABLE,
            "--k",
            "5",
            "--epsilon",
            "1",
            "--set",
            "priorn=0",
            "--set",
            "repeats=1",
        ),
    ],
}
#: Commands that write nothing, the demo, which reads nothing, and the workbench, whose release is
#: held equal to that of the command line, byte by byte, in its own tests; and the ledger, whose
#: files `anonymize` writes.
SILENT = {"completion", "demo", "describe", "ledger", "serve"}


#: How a zstd frame begins.
ZSTD = b"\x28\xb5\x2f\xfd"


def readings(content: bytes) -> Iterator[bytes]:
    """A file's bytes, and those of what is packed in it."""
    yield content
    if content[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.namelist():
                yield entry.encode()
                yield from readings(archive.read(entry))
    elif content[:2] == b"\x1f\x8b":
        yield from readings(gzip.decompress(content))
    elif content[:4] == b"PAR1":
        file = pq.ParquetFile(io.BytesIO(content))
        yield str(file.metadata.metadata).encode() + str(file.schema_arrow).encode()
        yield from pages(content)
        # Whatever the pages are packed with: the dictionary in the file, not the part that rows
        # use.
        kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary)
        texts = [
            field.name
            for field in file.schema_arrow
            if any(is_kind(field.type) for is_kind in kinds)
        ]
        for column in pq.read_table(
            io.BytesIO(content), columns=texts, read_dictionary=texts
        ).columns:
            yield from (str(chunk.dictionary.to_pylist()).encode() for chunk in column.chunks)
        sink = io.BytesIO()
        pq.write_table(file.read(), sink, compression="none", use_dictionary=False)
        yield sink.getvalue()
        yield str(file.read().to_pydict()).encode()
    elif content[:6] == b"ARROW1":
        with pa.ipc.open_file(io.BytesIO(content)) as file:
            table = file.read_all()
        yield str(table.schema.to_string(show_field_metadata=True)).encode()
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        yield sink.getvalue()
    elif content[1:8] == b"HDF\r\n\x1a\n" or content[:8] == b"\x89PNG\r\n\x1a\n":
        # Compressed blocks of either are zlib streams.
        start = content.find(b"\x78")
        while start >= 0:
            with suppress(zlib.error):
                yield zlib.decompressobj().decompress(content[start:])
            start = content.find(b"\x78", start + 1)


def pages(content: bytes) -> Iterator[bytes]:
    """What each zstd frame in a file unpacks to."""
    start = content.find(ZSTD)
    while start >= 0:
        stream = pa.CompressedInputStream(pa.BufferReader(content[start:]), "zstd")
        page = bytearray()
        # The bytes after a frame are no frame, so it ends in an error; byte by byte nothing before
        # that is lost.
        with suppress(OSError):
            while byte := stream.read(1):
                page += byte
        yield bytes(page)
        start = content.find(ZSTD, start + 1)


def secrets_in(path: Path) -> set[str]:
    texts = {name: (text.encode(), text.encode("utf-16-le")) for name, text in SECRETS.items()}
    content = [path.name.encode(), *readings(path.read_bytes())]
    return {
        name
        for name, forms in texts.items()
        if any(form in part for form in forms for part in content)
    }


def leaves(group: click.Group, prefix: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def test_every_command_that_writes_is_searched():
    assert set(RUNS) | SILENT == set(leaves(cli))


@pytest.mark.parametrize(
    ("command", "words"), [(command, words) for command, runs in RUNS.items() for words in runs]
)
@pytest.mark.slow
def test_nothing_but_what_is_published_is_in_any_file(
    command, words, inputs, release, tmp_path, capsys
):
    names = {name: str(path) for name, path in inputs.items()} | {
        "out": str(tmp_path / "written" / "out")
    }
    names["release"] = release
    (tmp_path / "written").mkdir()
    capsys.readouterr()
    with unchecked(), in_this_process():
        main([*command.split(), *(word.format(**names) for word in words)])
    said = capsys.readouterr()
    files = [path for path in sorted((tmp_path / "written").rglob("*")) if path.is_file()]
    assert files
    # A certificate is private, and names the files that it hashed.
    named = {"file name"} if command == "verify" else set()
    assert {path.name: found for path in files if (found := secrets_in(path) - named)} == {}
    # Hints repeat the paths of the command line.
    printed = said.out + said.err
    for path in inputs.values():
        printed = printed.replace(str(path), "").replace(os.path.relpath(path), "")
    printed = printed.replace(str(inputs["trips"].parent), "")
    assert not [name for name, text in SECRETS.items() if text in printed]


@pytest.mark.parametrize("store_schema", [False, True])
@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip"])
def test_the_search_finds_an_entry_of_a_dictionary_that_no_row_uses(
    tmp_path, compression, store_schema
):
    # Zones as in a release, and a person between them: the rows alone do not show it.
    zones = [f"86{i * 7919:05x}fffffff" for i in range(60)]
    column = pa.DictionaryArray.from_arrays(
        pa.array([0, 1] * 200, pa.int32()), [*zones, SECRETS["person"]]
    )
    path = tmp_path / "flows.parquet"
    pq.write_table(
        pa.table({"origin_zone": column}), path, compression=compression, store_schema=store_schema
    )
    assert SECRETS["person"] not in str(pq.read_table(path).to_pydict())
    assert secrets_in(path) == {"person"}
    if compression == "zstd":
        assert SECRETS["person"].encode() not in path.read_bytes()
        assert any(SECRETS["person"].encode() in page for page in pages(path.read_bytes()))


def test_the_search_finds_what_is_packed(tmp_path):
    """The search itself: a secret in each kind of container is found."""
    word = SECRETS["person"]
    table = pa.table({"a": pa.array([word] * 100).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
        pa.ipc.new_file(
            sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as writer,
    ):
        writer.write_table(table)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.csv", word * 100)
    (tmp_path / "a.gz").write_bytes(gzip.compress((word * 100).encode()))
    for path in tmp_path.iterdir():
        assert secrets_in(path) == {"person"}, path.name
