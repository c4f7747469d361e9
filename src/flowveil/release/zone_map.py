"""A frozen map: the zones of a release, read from its folder, for later releases with the same
zones.

Releases with the same zones are comparable: there is nothing to subtract but whole cells. A frozen
map lists the zones, their tree and what each is made of; if zones overlap, also which pairs of them
are cells, and in which layers. It has no counts, so a later release can be made without the earlier
one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowveil.core.errors import ParameterError
from flowveil.release.folder import ReleaseFolder, read_bounded, taken_at_its_word

FORMAT = "flowveil frozen map"
#: The entry of the file's metadata that says what the rows alone do not.
METADATA = b"flowveil"
#: What each zone is made of: H3 cells, or tiles of the user's own map.
CELLS, TILES = "h3_cells", "tiles"
#: The layers of the cells of an origin zone.
LAYERS = "layers"
_TEXTS = pa.list_(pa.string())
_KINDS = {
    **{"zone": pa.string(), "role": pa.string(), "level": pa.int32()},
    **{CELLS: _TEXTS, TILES: _TEXTS, "destinations": _TEXTS, LAYERS: pa.list_(pa.int8())},
}


@dataclass(frozen=True, eq=False)
class FrozenMap:
    """Zones that were published once."""

    # Zone, role, level, and h3_cells or tiles, sorted by zone and role; where zones overlap also
    # ``destinations``: the destination zones with which an origin zone makes a cell; and of a
    # release in layers ``layers``: the layers of these cells.
    table: pa.Table
    # ``hierarchy``, ``resolution``, ``same_zones``, ``homogeneous``, and ``map_sha256``, which is
    # that of what the folder says of the user's own map.
    about: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<FrozenMap: {len(self.table):,} zones>"

    @classmethod
    def read(cls, source: Any) -> FrozenMap:
        """From a folder, its path, a file of `write`, its table, or what is one already."""
        if isinstance(source, FrozenMap):
            return source
        if isinstance(source, pa.Table):
            return _from_table(source)
        if isinstance(source, ReleaseFolder):
            with taken_at_its_word(source.path):
                return _from_folder(source)
        path = Path(source)
        if path.is_dir():
            return cls.read(ReleaseFolder(path))
        try:
            table = read_bounded(path)
        except (OSError, ValueError):
            raise ParameterError(
                f"'{path}' is neither the folder of a release nor a frozen map. "
                "Hint: flowveil freeze RELEASE --out FILE."
            ) from None
        return _from_table(table)

    @property
    def hierarchy(self) -> str:
        """The tree of the zones: ``h3`` or ``halves``."""
        return str(self.about["hierarchy"])

    @property
    def homogeneous(self) -> bool:
        """Whether the zones of each end are disjoint.

        Where they are not, `cells` lists the cells.
        """
        return bool(self.about["homogeneous"])

    @cached_property
    def sha256(self) -> str:
        """The hash of ``about`` and of the zones in their order, as lines of JSON."""
        rows = [dict(self.about), *self.table.to_pylist()]
        text = "".join(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in rows)
        return hashlib.sha256(text.encode()).hexdigest()

    def zones(self, end: str) -> list[str]:
        """The codes of the zones of an end, ``origin`` or ``destination``."""
        listed = zip(self.table["zone"].to_pylist(), self.table["role"].to_pylist(), strict=True)
        return [zone for zone, role in listed if role in (end, "both")]

    @property
    def in_layers(self) -> bool:
        """Whether the release has layers."""
        return LAYERS in self.table.column_names

    @property
    def cells(self) -> list[tuple[str, str, int]]:
        """Origin zone, destination zone and layer of each cell, where zones overlap.

        Layer 0 without layers.
        """
        found = []
        for row in self.table.to_pylist():
            destinations = row["destinations"] or ()
            layers = (row[LAYERS] or ()) if self.in_layers else (0,) * len(destinations)
            found += [(row["zone"], *cell) for cell in zip(destinations, layers, strict=True)]
        return found

    def as_table(self) -> pa.Table:
        """The table with all that is frozen, the rest in its metadata."""
        about = json.dumps({"format": FORMAT, **self.about}, sort_keys=True)
        return self.table.replace_schema_metadata({METADATA: about.encode()})

    def write(self, path: str | PathLike[str]) -> Path:
        """Write a Parquet file that holds all of it."""
        from flowveil.system.output import write_files

        table = self.as_table()
        write_files(
            {path: lambda place: pq.write_table(table, place, compression="zstd", version="2.6")}
        )
        return Path(path)


def _from_folder(folder: ReleaseFolder) -> FrozenMap:
    folder.check_manifest()
    statement = folder.statement
    facets, parameters, homogeneous = statement.facets, statement.parameters, statement.homogeneous
    if not facets.counts_nodes:
        kinds = {"boxed": "boxes", "noisy": "noisy counts"}
        what = kinds.get(facets.kind, "cells of places and times")
        raise ParameterError(
            f"The zones of a release of {what} cannot be kept: only zones of a tree can. Hint:"
            " --method twincut."
        )
    if facets.separates and not parameters["slices"]["common_zones"] and statement.zones_of is None:
        raise ParameterError(
            "Each slice of this release has separate zones, so it has no common map to keep. Hint:"
            " make it with --common-zones or --zones-of, or name a release of one matrix."
        )
    zones = folder.zones
    own = CELLS if CELLS in zones.column_names else TILES
    columns = {name: zones[name].combine_chunks() for name in ("zone", "role", "level")}
    columns[own] = zones[CELLS].combine_chunks() if own == CELLS else _tiles(folder)
    if not homogeneous:
        columns |= _cells(folder)
    about = {
        "hierarchy": parameters.get("hierarchy", "h3"),
        "resolution": parameters.get("resolution"),
        "same_zones": bool(parameters.get("same_zones")),
        "homogeneous": bool(homogeneous),
        "map_sha256": None if own == CELLS else _hash_of_tiles(columns),
    }
    return FrozenMap(_typed(pa.table(columns)), _checked(about, own))


def _checked(about: Mapping[str, Any], own: str) -> Mapping[str, Any]:
    """Returns ``about`` if later releases can be made from the map."""
    resolution = about["resolution"]
    if own == CELLS and (type(resolution) is not int or not 0 <= resolution <= 15):
        raise ParameterError(
            "The release does not say at which resolution its trips were read, so its zones cannot"
            " be kept. Hint: make it from trips that flowveil has read."
        )
    if about["hierarchy"] not in ("h3", "halves"):
        raise ParameterError("The release does not say on which tree its zones stand.")
    return about


def _typed(table: pa.Table) -> pa.Table:
    return table.cast(
        pa.schema([(name, _KINDS[name]) for name in table.column_names])
    ).combine_chunks()


def _tiles(folder: ReleaseFolder) -> pa.Array:
    """The tiles of each zone, by the release's own table of them."""
    below: dict[tuple[str, str], list[str]] = {}
    for row in folder.lookup.to_pylist():
        below.setdefault((row["zone"], row["role"]), []).append(row["tile"])
    keys = zip(folder.zones["zone"].to_pylist(), folder.zones["role"].to_pylist(), strict=True)
    # A zone of one slice may have both roles in the whole release.
    return pa.array(
        [sorted(below.get(key, below.get((key[0], "both"), []))) for key in keys], _TEXTS
    )


def _hash_of_tiles(columns: Mapping[str, Any]) -> str:
    rows = zip(columns["zone"].to_pylist(), columns[TILES].to_pylist(), strict=True)
    text = "".join(
        json.dumps([zone, tiles], ensure_ascii=False) + "\n" for zone, tiles in sorted(rows)
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _cells(folder: ReleaseFolder) -> dict[str, pa.Array]:
    """The destination zones with which each origin zone makes a cell, and their layers.

    Null for a destination zone.
    """
    columns = {"destinations": "destination_zone", LAYERS: "layer"}
    columns = {
        name: column for name, column in columns.items() if column in folder.flows.column_names
    }
    of_origin: dict[str, set[tuple[Any, ...]]] = {}
    names = ["origin_zone", *columns.values()]
    for origin, *cell in zip(*(folder.flows[name].to_pylist() for name in names), strict=True):
        of_origin.setdefault(origin, set()).add(tuple(cell))
    listed = zip(folder.zones["zone"].to_pylist(), folder.zones["role"].to_pylist(), strict=True)
    cells = [None if role == "destination" else sorted(of_origin[zone]) for zone, role in listed]
    return {
        name: pa.array(
            [None if some is None else [cell[at] for cell in some] for some in cells], _KINDS[name]
        )
        for at, name in enumerate(columns)
    }


def _from_table(table: pa.Table) -> FrozenMap:
    try:
        about = json.loads((table.schema.metadata or {})[METADATA])
        if about.pop("format") != FORMAT:
            raise KeyError
        wanted = {"hierarchy", "resolution", "same_zones", "homogeneous", "map_sha256"}
        own = CELLS if CELLS in table.column_names else TILES
        columns = [
            "zone",
            "role",
            "level",
            own,
            *([] if about["homogeneous"] else ["destinations"]),
        ]
        in_layers = [*columns, LAYERS] if "destinations" in columns else columns
        if set(about) != wanted or table.column_names not in (columns, in_layers):
            raise KeyError
        return FrozenMap(_typed(table.replace_schema_metadata(None)), _checked(about, own))
    except ParameterError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, pa.ArrowException):
        raise ParameterError(
            "This table is not a frozen map. Hint: flowveil freeze RELEASE --out FILE."
        ) from None
