"""The releases of users: write, derive, draw and measure published counts.

`Release` has one matrix of exact counts, `NoisyRelease` one of noisy counts, `SlicedRelease` one
for each slice. Code that publishes, measures or draws a release asks its `facets` and its `parts`,
not its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from flowveil.core.arrays import Ints
from flowveil.core.errors import ParameterError
from flowveil.core.flows import Flows
from flowveil.published.read_release import to_frame
from flowveil.publishing import api
from flowveil.publishing.publish import folder_content
from flowveil.release.counts import ExactCounts, Family, Matrix, Publishable
from flowveil.release.facets import Facets
from flowveil.release.noisy import NoisyCounts, NothingLeftError
from flowveil.request.keywords import AboutKeywords, WritingKeywords

if TYPE_CHECKING:
    import pyarrow as pa

    from flowveil.published.derive import Derived
    from flowveil.publishing.api import PictureKeywords
    from flowveil.release.revision import Revision


class UserRelease(Publishable):
    """Writes, derives, draws and shows a release."""

    @cached_property
    def flows(self) -> pa.Table:
        """The published matrix: origin_zone, destination_zone, trips, where known weight, slice
        columns; sorted.
        """
        return self._content.flows

    @cached_property
    def zones(self) -> pa.Table:
        """The published zones, one row a zone and role, geometry as WKB (GeoParquet)."""
        return self._content.zones

    @cached_property
    def _content(self) -> Any:
        return folder_content(self)

    def summary(self) -> dict[str, Any]:
        """The content of report.json: a function of what is published."""
        report: dict[str, Any] = self._content.report
        return report

    def write(self, directory: str | PathLike[str], **writing: Unpack[WritingKeywords]) -> Path:
        """Publishes into a folder, atomically: it appears whole and verified, or not at all.

        Args:
            directory: the folder: new, empty, or an earlier release.
            overwrite: whether an earlier release may be replaced; True by default.
            formats: exports: ``csv``, ``geojson``, ``gpkg``, ``omx``, ``flowmap``, ``kepler``,
                ``arrow``; a comma-separated text or several names. Slices allow ``csv`` and
                ``arrow``.
            basemap: address of a tile server for the report's background map, which readers may
                switch on.
            context: a GeoJSON file of your own outlines (districts, roads) to draw on the report's
                maps; its lines and names are published.
            replace_stronger: confirms that an earlier release with a stronger guarantee may be
                replaced.
            ledger: folder of the ledger of this data set: refuses a release that may share trips
                with an earlier one, and records it; see docs/series.md.
            accept_differencing: publish it although it may share trips; the statement says so.
            epsilon_total: upper bound for the sum of ε of the noisy releases of a ledger. Stored at
                its first use; it can be lowered later and not raised.
            title, source, period, licence, contact: what the release is about, for its page and its
                files; the period is its first and last day, ``2024-01-01/2024-03-31``.

        Examples:
            >>> flows = flowveil.read_trips("trips.csv", resolution=7, person="person_id")
            >>> release = flowveil.anonymize(flows, "twincut", k=10)
            >>> folder = release.write("survey", formats="csv", title="Survey", licence="CC-BY-4.0")
            >>> (folder / "report.html").exists()
            True
        """
        return api.publish(self, directory, **writing)

    def derive(
        self,
        *,
        level: int | None = None,
        zones_of: Any = None,
        sum: str | Sequence[str] = (),  # the name of the option
        pick: Mapping[str, Any] | Sequence[str] = (),
        within: Any = None,
        drop: str | Sequence[str] = (),
        formats: str | Iterable[str] = (),
        **about: Unpack[AboutKeywords],
    ) -> Derived:
        """Computes another table from what this release publishes.

        See `flowveil.derive` for the arguments.
        """
        chosen = {"level": level, "zones_of": zones_of, "sum": sum, "pick": pick}
        chosen |= {"within": within, "drop": drop, "formats": formats}
        return api.derive_release(self, **chosen, **about)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The published matrix for other libraries: ``polars.DataFrame(release)`` works."""
        return self.flows.__arrow_c_stream__(requested_schema)

    def to_pandas(self, table: str = "flows") -> Any:
        """The published ``flows`` or ``zones`` as a pandas table."""
        return to_frame(self, table, "pandas")

    def to_polars(self, table: str = "flows") -> Any:
        """The published ``flows`` or ``zones`` as a polars table."""
        return to_frame(self, table, "polars")

    def to_geopandas(self, table: str = "zones") -> Any:
        """The published ``zones`` with their outlines, or ``flows`` as lines, as a geopandas table
        in EPSG:4326.
        """
        return to_frame(self, table, "geopandas")

    def picture(self, path: str | PathLike[str], **style: Unpack[PictureKeywords]) -> Path:
        """Draws a map into a PNG, SVG or PDF file; see `flowveil.picture` for the arguments."""
        return api.picture(self, path, **style)

    def _repr_html_(self) -> str:
        """Maps and measures for a notebook: only what may be published, so the notebook may be kept
        as well.
        """
        return api.notebook_view(self)

    @property
    def private(self) -> Any:
        """What only the operator may see: a `flowveil.analysis.private.PrivateView`."""
        # Analysis comes after publishing, so it is found through the public names.
        from flowveil import PrivateView

        return PrivateView(self)

    def metrics(self) -> Any:
        """All measures of one matrix; the same as ``private.metrics()``. Private."""
        return self.private.metrics()

    def reconstruct(self, zones: Any) -> Any:
        """The same as ``private.reconstruct(zones)``. Private."""
        return self.private.reconstruct(zones)


@dataclass(frozen=True, eq=False, repr=False)
class Release(ExactCounts, UserRelease):
    """Cells that may be published, with all that is needed to measure, check and write them.

    Made by `flowveil.anonymize`; a Release whose cells fall short cannot be constructed through it.
    See `flowveil.release.counts.ExactCounts` for its attributes.
    """

    def __repr__(self) -> str:
        return (
            f"<Release {self.method}: {len(self.cells)} cells, at least {self.guarantee.in_words()}"
            " in each>"
        )


@dataclass(frozen=True, eq=False, repr=False)
class NoisyRelease(NoisyCounts, Matrix, UserRelease):
    """Noisy counts that may be published, made by `flowveil.anonymize`.

    The input is internal and never written.
    """

    input: Flows
    method: str
    parameters: Mapping[str, Any]

    @classmethod
    def of(
        cls, flows: Flows, counts: NoisyCounts, *, method: str, parameters: Mapping[str, Any]
    ) -> NoisyRelease:
        """Returns the release; raises NothingLeftError if no pair is left."""
        if len(counts.cells) == 0:
            raise NothingLeftError(counts.guarantee)
        return cls(
            **vars(counts),
            input=flows,
            method=method,
            parameters=MappingProxyType(dict(parameters)),
        )

    @property
    def facets(self) -> Facets:
        """Noisy counts of nodes."""
        return Facets(counts="noisy")

    @cached_property
    def cell_of_flow(self) -> Ints:
        """Returns the published pair around each flow's pair of tiles; -1 for none."""
        return np.where(self.plan.kept, self.plan.cells_around(self.cells), -1).astype(np.int32)

    def check_publishable(self) -> None:
        """Raises ParameterError if the noise was drawn from a seed."""
        if self.repeatable:
            raise ParameterError(
                "This release cannot be written: its noise was drawn from a seed"
                " (unsafe_seed_for_tests), and an attacker who guesses the seed can remove the"
                " noise. Hint: leave the option out; noise is then drawn from the operating system."
            )

    def __repr__(self) -> str:
        # Never anything exact: a repr ends up in logs and tracebacks.
        return f"<NoisyRelease {self.method}: {len(self.cells)} pairs, {self.guarantee.in_words()}>"


@dataclass(frozen=True, eq=False, repr=False)
class SlicedRelease(Family, UserRelease):
    """The releases of all slices that can be published, made by `flowveil.anonymize`.

    Every slice is anonymised separately, and slices share no trip. With noise, ``keys`` are the
    slices in which it left something to publish, and ``guarantee`` is what all guarantee together.
    """

    @property
    def revision(self) -> Revision | None:
        """Not None if the slices revise those of an earlier release."""
        return getattr(self.releases[0], "revision", None)

    def check_publishable(self) -> None:
        """Refuses noise that can be repeated."""
        for release in self.releases:
            release.check_publishable()

    def __repr__(self) -> str:
        # Never anything exact of noise: a repr ends up in logs and tracebacks.
        return (
            f"<SlicedRelease {self.method}: {len(self)} slices by {', '.join(self.slice_columns)},"
            f" guaranteed: {self.guarantee.in_words()}>"
        )
