"""A published folder, read back. The recount of `verify` has a separate reader.

The folder may come from anybody: only regular files are opened, and tables are read only if they
unpack to about as much as a release of their size does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.core.errors import FlowveilError, ParameterError
from flowveil.release.statement import Statement, check_report
from flowveil.system.paths import open_regular, read_json

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that a table may claim and bytes that it may unpack to, by its size.
_ROWS, _ROWS_PER_BYTE = 1_000, 16
_UNPACKED, _UNPACKED_PER_BYTE = 1 << 26, 100
_OWN = ("flows.parquet", "zones.parquet", "report.json")


@dataclass(frozen=True)
class ReleaseFolder:
    """The folder of a release; files are read lazily; only the form of report.json is checked."""

    path: Path

    @cached_property
    def flows(self) -> pa.Table:
        """The published matrices."""
        table, statement = self._table("flows.parquet"), self.statement
        slices = statement.parameters.get("slices") or {}
        totals = any(
            table[name].null_count for name in statement.slice_columns if name in table.column_names
        )
        if totals or slices.get("total") or slices.get("also_every"):
            raise ParameterError(
                f"'{self.path}' holds a total, or a longer step, next to its slices, as version 0.3"
                " published them: counts below the guarantee may follow by subtraction. Hint:"
                " withdraw it, publish the slices alone with --common-zones, and add them up:"
                " `flowveil derive RELEASE --sum COLUMN --out TOTAL`."
            )
        return table

    @cached_property
    def zones(self) -> pa.Table:
        """The published zones."""
        return self._table("zones.parquet")

    @cached_property
    def report(self) -> dict[str, Any]:
        """The content of report.json."""
        try:
            report = read_json(self.path / "report.json")
        except (OSError, ValueError):
            raise self._unreadable("report.json") from None
        check_report(report)
        return dict(report)

    @cached_property
    def statement(self) -> Statement:
        """What the release states."""
        return Statement.from_checked(self.report)

    @cached_property
    def lookup(self) -> pa.Table:
        """Which tiles of a map of one's own each zone holds."""
        import pyarrow as pa
        from pyarrow import csv

        try:
            texts = csv.ConvertOptions(
                column_types=dict.fromkeys(("zone", "role", "tile"), pa.string())
            )
            with open_regular(self.path / "lookup.csv") as file:
                found = csv.read_csv(file, convert_options=texts)
            # A map with names has one more column.
            if found.column_names[:3] != ["zone", "role", "tile"] or found.column_names[3:] not in (
                [],
                ["tile_name"],
            ):
                raise self._unreadable("lookup.csv")
            return found
        except (OSError, pa.ArrowException):
            raise ParameterError(
                "The release is not on a user's map: it has no lookup.csv."
            ) from None

    def check_manifest(self) -> None:
        """Refuse a folder in which a table or the report is not the file that its manifest
        lists.
        """
        try:
            listed = dict(read_json(self.path / "manifest.json")["sha256"])
            files = [name for name in (*_OWN, "lookup.csv") if name in listed]
            found = {name: self.sha256(name) for name in files}
        except (OSError, ValueError, KeyError, TypeError):
            raise self._unreadable("manifest.json") from None
        if not set(_OWN) <= set(files) or any(found[name] != listed[name] for name in files):
            raise ParameterError(
                f"'{self.path}' is not as it was published: its manifest lists other files. Hint:"
                " put the release back, or make it again."
            )

    def sha256(self, name: str) -> str:
        """The hash of a file."""
        with open_regular(self.path / name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _table(self, name: str) -> pa.Table:
        try:
            return read_bounded(self.path / name)
        except (OSError, ValueError):
            raise self._unreadable(name) from None

    def _unreadable(self, name: str) -> ParameterError:
        return ParameterError(
            f"'{self.path}' holds no release that can be read. Hint: name the folder with {name}"
            " in it."
        )


@dataclass(frozen=True)
class FolderSlice(ReleaseFolder):
    """One matrix of a sliced release, read as if it had been published alone."""

    whole: ReleaseFolder  # the folder of the sliced release
    key: tuple[str | None, ...]  # the values of its slice columns

    @cached_property
    def flows(self) -> pa.Table:
        """The cells of the matrix, without the slice columns."""
        table, names = self.whole.flows, self.whole.statement.slice_columns
        keys = zip(*(table[name].to_pylist() for name in names), strict=True)
        return table.filter([key == self.key for key in keys]).drop_columns(list(names))

    @cached_property
    def zones(self) -> pa.Table:
        """The zones of these cells, each in the role that it has here."""
        return zones_in(self.flows, self.whole.zones)

    @cached_property
    def statement(self) -> Statement:
        """What the release states, of one matrix."""
        stated = self.whole.statement
        parameters = {name: value for name, value in stated.parameters.items() if name != "slices"}
        return replace(stated, slice_columns=(), parameters=parameters)


def zones_in(flows: pa.Table, zones: pa.Table) -> pa.Table:
    """Returns the zones, of those of all slices, that occur in one matrix, each in the role that it
    has there.
    """
    import pyarrow.compute as pc

    starts, ends = (
        pc.and_(
            pc.is_in(zones["zone"], value_set=flows[f"{end}_zone"]),
            pc.not_equal(zones["role"], other),
        )
        for end, other in (("origin", "destination"), ("destination", "origin"))
    )
    roles = pc.if_else(pc.and_(starts, ends), "both", pc.if_else(starts, "origin", "destination"))
    there = zones.set_column(zones.column_names.index("role"), "role", roles)
    return there.filter(pc.or_(starts, ends))


@contextmanager
def taken_at_its_word(name: object) -> Iterator[None]:
    """Turns errors of reading the unverified folder of this name into a ParameterError."""
    import pyarrow as pa
    from shapely.errors import ShapelyError

    try:
        yield
    except FlowveilError:
        raise
    except (
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        pa.ArrowException,
        ShapelyError,
    ):
        raise ParameterError(
            f"'{name}' holds no release that can be read: a column or an entry is missing, or is"
            " not that of a release."
        ) from None


def read_bounded(path: Path) -> pa.Table:
    """Reads a Parquet file that may be hostile.

    Raises OSError or ValueError if it is not a plain, bounded table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_regular(path) as file:
        size = file.seek(0, 2)
        try:
            table = pq.ParquetFile(file)
            groups = [table.metadata.row_group(i) for i in range(table.metadata.num_row_groups)]
            if table.metadata.num_rows > _ROWS + _ROWS_PER_BYTE * size:
                raise ValueError("claims more rows than fit")
            if (
                sum(group.total_byte_size for group in groups)
                > _UNPACKED + _UNPACKED_PER_BYTE * size
            ):
                raise ValueError("would unpack to far more than it holds")
            return table.read()
        except pa.ArrowException as problem:
            raise ValueError("cannot be read") from problem
