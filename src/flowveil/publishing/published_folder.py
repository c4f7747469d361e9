"""A release folder, read back for users: its tables, its page, and what can be made of it."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from flowveil.published import document
from flowveil.published.read_release import to_frame
from flowveil.publishing import api
from flowveil.release.folder import ReleaseFolder

if TYPE_CHECKING:
    from flowveil.published.derive import Derived


@dataclass(frozen=True, eq=False)
class PublishedFolder:
    """What a release folder holds."""

    path: Path  # the folder
    flows: pa.Table  # the cells, as in flows.parquet
    zones: pa.Table  # the zones, as in zones.parquet
    report: dict[str, Any]  # the content of report.json

    def __repr__(self) -> str:
        return f"<PublishedFolder: {len(self.flows):,} flows, {len(self.zones):,} zones>"

    def zones_frame(self) -> Any:
        """Returns the zones as a GeoDataFrame in degrees; see `to_frame`."""
        return to_frame(self, "zones", "geopandas")

    def flows_frame(self) -> Any:
        """Returns the cells as a GeoDataFrame of lines between the centres of their zones."""
        return to_frame(self, "flows", "geopandas")

    def derive(
        self, out: str | PathLike[str] | None = None, **how: Unpack[api.DerivingKeywords]
    ) -> Derived:
        """Computes another table from this release; see `flowveil.derive`."""
        return api.derive(self.path, out, **how)

    def picture(self, path: str | PathLike[str], **style: Unpack[api.PictureKeywords]) -> Path:
        """Draws a map into a PNG, SVG or PDF file; see `flowveil.picture`."""
        return api.picture(self.path, path, **style)

    @property
    def map(self) -> str:
        """The page of the release with its maps, as HTML for a notebook."""
        return document.frame((self.path / "report.html").read_text(encoding="utf-8"))

    def _repr_html_(self) -> str:
        return self.map


def read_release(folder: str | PathLike[str]) -> PublishedFolder:
    """Reads a published folder; nothing is verified.

    Raises DataError if it is not a release that can be read.

    Examples:
        >>> flowveil.read_release("release")
        <PublishedFolder: 18 flows, 7 zones>
    """
    files = ReleaseFolder(Path(folder))
    return PublishedFolder(Path(folder), files.flows, files.zones, files.report)
