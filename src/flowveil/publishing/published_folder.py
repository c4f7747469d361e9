"""A release folder, read back for users: its tables, its page, and what can be made of it."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.errors import ParameterError
from flowveil.core.times import TIME
from flowveil.published import document
from flowveil.published.folder import ESTIMATE
from flowveil.published.read_release import to_frame
from flowveil.publishing import api
from flowveil.release.folder import ReleaseFolder, read_bounded

if TYPE_CHECKING:
    from flowveil.published.derive import Derived


@dataclass(frozen=True, eq=False, repr=False)
class PublishedFolder:
    """What a release folder holds."""

    path: Path  # the folder
    flows: pa.Table  # the cells, as in flows.parquet
    zones: pa.Table  # the zones, as in zones.parquet
    report: dict[str, Any]  # the content of report.json

    def __repr__(self) -> str:
        return f"<PublishedFolder: {len(self.flows):,} flows, {len(self.zones):,} zones>"

    def to_pandas(self, table: str = "flows") -> Any:
        """Returns the published ``flows`` or ``zones`` as a pandas table."""
        return to_frame(self, table, "pandas")

    def to_polars(self, table: str = "flows") -> Any:
        """Returns the published ``flows`` or ``zones`` as a polars table."""
        return to_frame(self, table, "polars")

    def to_geopandas(self, table: str = "zones") -> Any:
        """Returns the ``zones`` with their outlines, or ``flows`` as lines, as a geopandas table in
        EPSG:4326.
        """
        return to_frame(self, table, "geopandas")

    def estimate(
        self,
        zones: Any = None,
        *,
        hour: int | str | None = None,
        **wishes: Unpack[api.ReconstructionKeywords],
    ) -> Any:
        """Returns the estimated flows between areas; see `flowveil.reconstruct`.

        Args:
            zones: an H3 resolution, the release's own map, or polygons; by default the areas of
                estimate.parquet.
            hour: only this step of time, as the column ``time`` has it; 8 is ``08:00``.
            **wishes: further arguments of `flowveil.reconstruct`.

        Raises:
            ParameterError: the folder has no estimate.parquet, or no trips at the hour.
        """
        if zones is None:
            if wishes:
                raise ParameterError(f"{', '.join(wishes)}: needs zones. Hint: name a resolution.")
            table = self._estimate()
        else:
            table = api.reconstruct(self.path, zones, **wishes)
        if hour is None:
            return table
        step = f"{hour:02d}:00" if isinstance(hour, int) else hour
        steps = table[TIME].unique().to_pylist() if TIME in table.column_names else []
        if step not in steps:
            shown = ", ".join(sorted(steps)[:5]) or "none"
            raise ParameterError(f"The estimate has no time '{step}'; found: {shown}.")
        return table.filter(pc.equal(table[TIME], step))

    def _estimate(self) -> pa.Table:
        try:
            return read_bounded(self.path / ESTIMATE)
        except (OSError, ValueError):
            raise ParameterError(
                f"The folder has no {ESTIMATE} that can be read. Hint: name zones, such as 7."
            ) from None

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
