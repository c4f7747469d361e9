"""A published folder read back, for those who draw, quote or continue it. `verify` has a reader of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ReleaseFolder:
    """The folder of a release; a file is read when it is asked for, and nothing in it is checked.

    Attributes:
        path: the folder.
    """

    path: Path

    @cached_property
    def flows(self) -> pa.Table:
        """The published matrices."""
        return self._table("flows.parquet")

    @cached_property
    def zones(self) -> pa.Table:
        """The published zones."""
        return self._table("zones.parquet")

    @cached_property
    def report(self) -> dict[str, Any]:
        """The content of report.json."""
        try:
            return dict(json.loads((self.path / "report.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise self._unreadable("report.json") from None

    @cached_property
    def lookup(self) -> pa.Table:
        """Which tiles of a map of one's own each zone holds."""
        import pyarrow as pa
        from pyarrow import csv

        try:
            texts = csv.ConvertOptions(column_types=dict.fromkeys(("zone", "role", "tile"), pa.string()))
            return csv.read_csv(self.path / "lookup.csv", convert_options=texts)
        except (OSError, pa.ArrowException):
            raise ParameterError("The release is not on a map of its own: it has no lookup.csv.") from None

    def _table(self, name: str) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_table(self.path / name)
        except (OSError, pa.ArrowException):
            raise self._unreadable(name) from None

    def _unreadable(self, name: str) -> ParameterError:
        return ParameterError(
            f"'{self.path}' holds no release that can be read. Hint: name the folder with {name} in it."
        )
