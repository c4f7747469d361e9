"""The files of a release folder: a pure function of what is published.

`write_files` makes every file of a folder from a `Published` alone. `check_target` and
`refuse_weaker` decide whether a folder may be written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowveil.core.errors import OutputError
from flowveil.published.catalogue import Catalogue, croissant, datapackage, dcat
from flowveil.published.estimate import Estimate, estimate
from flowveil.published.exports import (
    MATRIX_FORMATS,
    Format,
    Tables,
    check_formats,
    parse_formats,
    write_json,
)
from flowveil.published.html import render
from flowveil.published.readme import readme
from flowveil.published.reconstruction import dimensions_of, estimate_tables
from flowveil.published.report import json_text, make_report, manifest
from flowveil.published.spreadsheets import csv_schema, write_csv
from flowveil.published.tables import has_nested_zones, lookup_table, zones_table
from flowveil.published.user_outlines import CONTEXT, own_lines
from flowveil.release.facets import Facets
from flowveil.release.statement import Published
from flowveil.system.output import (
    RELEASE_FORMAT,
    Place,
    place_for_folder,
    real_place,
    sync_folder,
    try_place,
)
from flowveil.system.paths import read_json

MANIFEST = "manifest.json"
LOOKUP = "lookup.csv"
README = "README.txt"
DATAPACKAGE = "datapackage.json"
ESTIMATE = "estimate.parquet"
#: Fixed, because the size of row groups is part of the bytes.
ROWS_PER_GROUP = 1 << 20
#: What file managers leave behind; no reason to refuse a folder.
_LITTER = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})


class FolderContent:
    """The tables and the report of a release, each computed once, from what is published."""

    def __init__(self, published: Published) -> None:
        self.published = published

    @property
    def flows(self) -> pa.Table:
        """The published cells."""
        return self.published.cells

    @cached_property
    def zones(self) -> pa.Table:
        """The published zones."""
        return zones_table(self.published)

    @cached_property
    def estimate(self) -> Estimate | None:
        """The flows between areas of one public size; None where no estimate is made."""
        return estimate(self.published, self.zones)

    @cached_property
    def report(self) -> dict[str, Any]:
        """The content of report.json."""
        return make_report(self.published, self.zones)

    def page(self, *, compact: bool = False) -> str:
        """The content of report.html."""
        outlines = () if self.published.outlines is None else own_lines(self.published.outlines)
        return render(
            self.report,
            self.flows,
            self.zones,
            estimate=self.estimate,
            outlines=outlines,
            compact=compact,
        )

    def formats(self) -> tuple[Format, ...]:
        """The exports of the folder, all of which can hold this release."""
        statement, zones = self.published.statement, self.zones
        wanted = parse_formats(statement.formats)
        check_formats(
            wanted,
            zones=len(zones),
            mapped=zones["lat"].null_count < len(zones),
            folded=statement.facets.folds,
            revised=bool(statement.revision_of),
            publisher=bool({"publisher", "contact"} & set(statement.about)),
        )
        return wanted

    def exported(self, wanted: Format) -> Tables:
        """The tables that an export holds: as published, or an estimate where a square needs common
        zones.

        That is where cells of one matrix cannot be compared with those of the others: in layers, on
        other zones, or of several hours.
        """
        statement, flows, zones = self.published.statement, self.flows, self.zones
        every = (statement.parameters.get("slices") or {}).get("every")
        columns = statement.slice_columns
        folded = wanted.name in MATRIX_FORMATS and statement.facets.folds
        if folded or (
            wanted.name == "omx"
            and (
                "layer" in flows.column_names
                or (columns and has_nested_zones(flows, (), self.published.map))
            )
        ):
            flows, zones = estimate_tables(self.published, zones)
            columns = tuple(dimensions_of(self.published))
        # Bounds are GeoParquet's; other formats compute their own.
        zones = zones.drop_columns([name for name in ("bbox",) if name in zones.column_names])
        return Tables(flows, zones, self.report, columns, every)


def write_files(content: FolderContent, folder: Path) -> dict[str, str]:
    """Writes every file of a release into an empty folder.

    Returns the SHA-256 of each but the manifest, by name.
    """
    report, formats, outlines = content.report, content.formats(), content.published.outlines
    tables = {"flows.parquet": content.flows, "zones.parquet": content.zones}
    tables |= {} if content.estimate is None else {ESTIMATE: content.estimate.table}
    for name, table in tables.items():
        pq.write_table(
            table, folder / name, row_group_size=ROWS_PER_GROUP, compression="zstd", version="2.6"
        )
    texts = {"report.json": json_text(report), "report.html": content.page()}
    texts |= {} if outlines is None else {CONTEXT: outlines}
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode("utf-8"))
    lookup = lookup_table(content.published, content.zones)
    if lookup is not None:
        write_csv(lookup, folder / LOOKUP)
    names = [*tables, *texts, *([] if lookup is None else [LOOKUP])]
    for wanted in formats:
        if wanted.write is not None:
            wanted.write(folder, content.exported(wanted))
    names += [name for wanted in formats for name in wanted.files]
    names += [README, DATAPACKAGE]
    schemas = {name: table.schema for name, table in tables.items()}
    _write_metadata(content, folder, names, schemas)
    sha256 = {name: hash_file(folder / name) for name in names}
    (folder / MANIFEST).write_bytes(json_text(manifest(report, sha256)).encode("utf-8"))
    for name in (*names, MANIFEST):
        with open(folder / name, "rb+") as file:
            os.fsync(file.fileno())
    sync_folder(folder)
    return sha256


def _write_metadata(
    content: FolderContent,
    folder: Path,
    names: Sequence[str],
    schemas: Mapping[str, pa.Schema],
) -> None:
    """Writes what describes all other files of a folder: README.txt, then the metadata."""
    report, columns = content.report, content.flows.column_names
    text = readme(report, sorted([*names, MANIFEST]), columns)
    (folder / README).write_text(text, encoding="utf-8", newline="\n")
    described = {**schemas, **_csv_schemas(folder, schemas.values())}
    catalogue = Catalogue.of_folder(folder, described, report, content.zones)
    made = {DATAPACKAGE: datapackage, "croissant.json": croissant, "dcat.jsonld": dcat}
    for name, make in made.items():
        if name in names:
            write_json(make(catalogue), folder / name)
            catalogue = catalogue.with_file(folder / name)


def _csv_schemas(folder: Path, known: Iterable[pa.Schema]) -> dict[str, pa.Schema]:
    """Returns the columns of the CSV files of a folder; codes made of digits stay texts."""
    types = {field.name: field.type for schema in known for field in schema}
    schemas = {}
    for path in sorted(folder.glob("*.csv")):
        read = csv_schema(path)
        schemas[path.name] = pa.schema(
            [(field.name, types.get(field.name, field.type)) for field in read]
        )
    return schemas


def check_target(directory: str | PathLike[str], *, overwrite: bool = True) -> None:
    """Refuses (OutputError) a folder that is not new, empty or (``overwrite``) a release alone, or
    not writable.
    """
    target = place_for_folder(directory)
    try:
        found = {entry.name for entry in os.scandir(target)} - _LITTER if target.exists() else set()
    except OSError as problem:
        raise OutputError(f"'{directory}' cannot be read: {problem.strerror}.") from problem
    listed = files_of_release(target)
    if found and listed is None:
        raise OutputError(
            f"'{directory}' is not empty and holds no release of flowveil ({len(found)} entries"
            " found); only a new folder, an empty one or an earlier release is written to. Hint:"
            " name a new folder."
        )
    if found and not overwrite:
        raise OutputError(f"'{directory}' holds a release already, and it may not be overwritten.")
    strangers = sorted(found - (listed or set()))
    if strangers:
        shown = ", ".join(f"'{name}'" for name in strangers[:5])
        raise OutputError(
            f"'{directory}' holds a release and {len(strangers)} entries that are not part of it"
            f" ({shown}); replacing the release would delete them. Hint: move them away, or name a"
            " new folder."
        )
    try_place(directory)


def refuse_weaker(directory: Place, report: Mapping[str, Any]) -> None:
    """Refuses (OutputError) to replace a release whose guarantee is stronger, or cannot be read."""
    target = real_place(directory)
    if not (target / MANIFEST).exists():
        return
    try:
        weaker = weaker_in(read_json(target / "report.json"), report)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        weaker = ["a guarantee that cannot be compared: that of the earlier release cannot be read"]
    if weaker:
        raise OutputError(
            f"'{directory}' holds a release with a stronger guarantee; the new one would have"
            f" {', '.join(weaker)}. Nothing was changed. Hint: name a new folder; if you mean it,"
            " confirm it with --set output.replace_stronger=true (replace_stronger=True)."
        )


def files_of_release(folder: Path) -> set[str] | None:
    """Returns the files that the manifest of a release lists, and the manifest.

    None without such a manifest.
    """
    try:
        content = read_json(folder / MANIFEST)
        if content["format"] != RELEASE_FORMAT:
            return None
        return {MANIFEST, *map(str, content["sha256"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def hash_file(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weaker_in(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns, from both report.json, what a release guarantees less than the one it would replace,
    as phrases.

    A unit that the earlier release protects is missing, or its threshold is lower; ε or δ is
    higher, or protects trips instead of persons; a k replaces an ε. Trips are not missing where as
    many people are protected: each of them made a trip.
    """
    old, new = earlier["guarantee"], now["guarantee"]
    if Facets.from_report(earlier).is_noisy:
        if not Facets.from_report(now).is_noisy:
            return ["a k in place of an ε"]
        higher = [
            f"a higher {sign}"
            for sign, name in (("ε", "epsilon"), ("δ", "delta"))
            if new[name] > old[name]
        ]
        return higher + (
            ["trips in place of persons"]
            if (old["unit"], new["unit"]) == ("person", "trip")
            else []
        )
    return (
        []
        if Facets.from_report(now).is_noisy
        else [*_weaker_thresholds(earlier, now), *_weaker_rules(earlier, now)]
    )


def _weaker_rules(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The rules that are applied after a method.

    Dominance, t-closeness, and higher thresholds around listed places.
    """
    old, new = earlier["parameters"], now["parameters"]
    if old.get("dominance") is not None and not (new.get("dominance") or 1) <= old["dominance"]:
        yield "cells that one person may dominate more"
    if old.get("t") is not None and not (new.get("t") or 1) <= old["t"]:
        yield "zones that may be farther from all trips (t)"
    places, there = old.get("stricter"), new.get("stricter") or {}
    if places is not None and any(
        (there.get(name) or 0) < (value or 0) for name, value in places.items()
    ):
        yield "lower thresholds around listed places, or fewer places"


def _weaker_thresholds(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    before, after = earlier["guarantee"], now["guarantee"]
    for unit in [unit for unit in ("trips", "people", "population", "locations") if unit in before]:
        old, new = before[unit], after.get(unit)
        if unit == "trips" and after.get("people", 0) >= old:
            continue
        if unit == "population" and unit in after and old is None and new is None:
            # Both follow from k: the mean weight differs a little from one input to the next.
            old, new = before["k"], after["k"]
        if unit not in after:
            yield f"{unit} not protected any more"
        elif old is None or new is None:
            # One is a number, the other a multiple of a mean weight that is withheld.
            yield f"a threshold of {unit} that cannot be compared"
        elif new < old:
            yield f"a lower threshold of {unit}"
