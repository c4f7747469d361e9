"""A published release, read back from its folder for notebooks: tables, geopandas frames, pictures and a map."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowveil.published.document import frame
from flowveil.published.frames import frame as table_frame
from flowveil.release.folder import ReleaseFolder


@dataclass(frozen=True, eq=False)
class PublishedFolder:
    """What a release folder holds.

    Attributes:
        path: the folder.
        flows: the cells, as in flows.parquet.
        zones: the zones, as in zones.parquet.
        report: the content of report.json.
    """

    path: Path
    flows: pa.Table
    zones: pa.Table
    report: dict[str, Any]

    def zones_frame(self) -> Any:
        """Returns the zones as a GeoDataFrame in degrees; see `flowveil.published.frames.frame`."""
        return table_frame(self, "zones", "geopandas")

    def flows_frame(self) -> Any:
        """Returns the cells as a GeoDataFrame of lines between the centres of their zones."""
        return table_frame(self, "flows", "geopandas")

    def picture(self, path: str | PathLike[str], **style: Any) -> Path:
        """Draws a map into a PNG, SVG or PDF file; see `flowveil.picture`."""
        draw: Any = import_module("flowveil.api").picture
        return Path(draw(self.path, path, **style))

    @property
    def map(self) -> str:
        """The page of the release with its maps, as HTML for a notebook."""
        return frame((self.path / "report.html").read_text(encoding="utf-8"))

    def _repr_html_(self) -> str:
        return self.map


def read_release(folder: str | PathLike[str]) -> PublishedFolder:
    """Reads a published folder; nothing is verified.

    Raises:
        DataError: it is not a release that can be read.
    """
    found = ReleaseFolder(Path(folder))
    return PublishedFolder(Path(folder), found.flows, found.zones, found.report)
