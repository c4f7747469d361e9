"""How trips are read: one frozen `Reading`, made once by the front door and handed to the engine that reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.errors import ParameterError
from flowveil.reading.areas import OUTSIDE, Area, parse_area
from flowveil.reading.columns import ROLES, ColumnMap
from flowveil.reading.partitions import parse_partition_columns
from flowveil.reading.times import check_time_options
from flowveil.slices import check_slice_columns
from flowveil.times import Every
from flowveil.zoning.h3 import MAX_RESOLUTION

if TYPE_CHECKING:
    from flowveil.zoning.files import ZoneMap

PERSON_CASES = ("fold", "keep")
#: What labels of the steps look like that trips may be read during.
_LABELS = {"month": re.compile(r"\d{4}-\d{2}"), "day": re.compile(r"\d{4}-\d{2}-\d{2}")}
#: What a report records under the name by which users give it; columns, zones and slices are recorded apart.
_PLAIN = (
    "resolution",
    "within",
    "outside",
    "max_dropped",
    "skip_unknown",
    "partition_columns",
    "person_case",
    "time_format",
    "timezone",
    "same_zones",
    "during",
    "matrix",
    "lookup",
    "wide",
    "crs",
    "decimal_comma",
)


@dataclass(frozen=True)
class Reading:
    """Everything that decides which flows a source becomes: the same rows and the same `Reading` give the same flows.

    Attributes:
        columns: which column serves as what; those that are not named are recognised.
        every: the step of time, together with the time among the columns.
        by_many: whether attributes with many values may make slices; see `flowveil.slices.refuse_many_values`.
        resolution: H3 resolution of the tiles, from 0 to 15; given tiles that are coarser keep their own.
        zones: the map whose zones are the tiles, instead of H3 cells.
        within: the study area; trips with an end outside are left out, or kept.
        outside: one of `OUTSIDE`: whether trips with one end outside the area, in no zone of a map, or with a code that
            is not on the map, are not used, or kept with that end as one tile `outside`. Trips with both ends outside
            are not used.
        max_dropped: largest share of rows, trips or weight that may be dropped, from 0 to 1.
        skip_unknown: drop rows with an unknown tile, instead of refusing them.
        partition_columns: columns that come from the folders of the files.
        matrix: of an OMX file, the matrices to read; all by default.
        lookup: of an OMX file, which lookup has the codes of the zones.
        wide: whether a text file is a matrix, with a column for each destination.
        crs: the reference system of the coordinates, as pyproj takes it; degrees of WGS 84 without it.
        decimal_comma: whether numbers in text have a decimal comma.
        ask_person: refuse a table with a column that looks like persons while no person is named. Not recorded.
        remote: whether an address of another machine may be read. Not recorded: it has no effect on the flows.
        same_zones: whether both ends get one tree, over the tiles seen at either, and so one set of zones.
        person_case: one of `PERSON_CASES`: whether persons that differ in upper and lower case only are one.
        time_format: the format of strptime by which times are read, instead of the recognised forms.
        timezone: the zone to show Unix times and times with a zone in. Without it a zone of the column is used; Unix
            times and times in UTC are refused. After reading, the zone that was used.
        during: read the trips of this month (``2024-01``) or day (``2024-01-31``) alone, by the time.
    """

    columns: ColumnMap = field(default_factory=ColumnMap)
    every: Every | None = None
    by_many: bool = False
    resolution: int = 10
    zones: ZoneMap | None = None
    within: Area | None = None
    outside: str | None = None
    max_dropped: float = 0.05
    skip_unknown: bool = False
    partition_columns: tuple[str, ...] = ()
    person_case: str = "fold"
    time_format: str | None = None
    timezone: str | None = None
    during: str | None = None
    same_zones: bool = False
    matrix: tuple[str, ...] = ()
    lookup: str | None = None
    wide: bool = False
    crs: str | None = None
    decimal_comma: bool = False
    ask_person: bool = True
    remote: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.resolution, bool) or not isinstance(self.resolution, int | np.integer):
            raise ParameterError(f"The resolution must be a whole number from 0 to {MAX_RESOLUTION}.")
        if not 0 <= self.resolution <= MAX_RESOLUTION:
            raise ParameterError(f"The resolution is {self.resolution}; allowed are 0 to {MAX_RESOLUTION} (H3).")
        if not 0 <= self.max_dropped <= 1:
            raise ParameterError(f"max_dropped is {self.max_dropped}; it is a share, allowed are 0 to 1.")
        if self.person_case not in PERSON_CASES:
            raise ParameterError(
                f"person_case (--person-case) must be one of {', '.join(PERSON_CASES)}; found {self.person_case!r}."
            )
        if self.outside is not None and self.outside not in OUTSIDE:
            raise ParameterError(f"outside (--outside) must be one of {', '.join(OUTSIDE)}; found {self.outside!r}.")
        if self.outside == "keep" and self.within is None and self.zones is None:
            raise ParameterError(
                "outside='keep' (--outside keep) needs an area that something can be outside of. Hint: --within."
            )
        if self.crs is not None:
            _check_crs(self.crs)
        check_time_options(self.time_format, self.timezone)
        if (self.time_format or self.timezone) and not self.columns.time:
            raise ParameterError("time_format and timezone (--time-format, --timezone) need a time (--time).")
        if self.columns.by or self.every is not None:
            check_slice_columns(self.columns.by, time=self.slice_time, every=self.every)

    @property
    def slice_time(self) -> str | None:
        """The time column, if trips are cut by it; without a step it is read for the days of the ledger alone."""
        return None if self.every is None else self.columns.time

    @property
    def slice_names(self) -> tuple[str, ...]:
        """The columns by which trips are cut into slices, the time last."""
        return self.columns.by if self.slice_time is None else (*self.columns.by, self.slice_time)

    @classmethod
    def of(
        cls,
        *,
        zones: Any = None,
        within: Any = None,
        outside: str | None = None,
        every: str | None = None,
        partition_columns: str | Iterable[str] = (),
        matrix: str | Iterable[str] = (),
        no_person: bool = False,
        **given: Any,
    ) -> Reading:
        """From what users give by name; see `flowveil.read_slices`.

        Raises:
            ParameterError: an argument is wrong.
        """
        if no_person:
            if given.get("person"):
                raise ParameterError("person and no_person (--person, --no-person) exclude each other.")
            given["person"] = ""
        columns = ColumnMap.parse(**{role: given.pop(role) for role in ROLES if role in given})
        if given.get("during") is not None:
            every = _step_of(given["during"], columns, every)
        return cls(
            columns=columns,
            every=None if every is None else Every.parse(every),
            zones=_map_of(zones),
            within=parse_area(within),
            outside=None if outside == "drop" else outside,
            partition_columns=parse_partition_columns(partition_columns),
            matrix=tuple(n.strip() for n in matrix.split(",") if n.strip())
            if isinstance(matrix, str)
            else tuple(matrix),
            **given,
        )

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], **changes: Any) -> Reading:
        """As the parameters of a report say that its trips were read.

        Args:
            parameters: what a report says of how its release was made.
            **changes: what shall differ, by the names of `read_slices`. The map of zones must be among them where there
                was one: a report names its columns only.

        Raises:
            ParameterError: a change is wrong, or the map is missing.
        """
        columns, slices = parameters.get("columns", {}), parameters.get("slices")
        given: dict[str, Any] = {role: columns[role] for role in ROLES if role in columns}
        given |= {name: parameters[name] for name in _PLAIN if parameters.get(name) is not None}
        if slices is not None:
            given |= {"every": slices.get("every"), "by_many": slices.get("by_many") is True}
        # What was not named when the release was made has been answered then.
        given |= {"ask_person": False, **changes}
        if parameters.get("zones"):
            if given.get("zones") is None:
                raise ParameterError(
                    "The release was made on a map of its own, which it does not contain. Hint: give the map with "
                    "--zones."
                )
            given["zones"] = _map_of(given["zones"], **parameters["zones"])
        return cls.of(**given)

    def to_dict(self) -> dict[str, Any]:
        """What `flowveil.flows.ReadSummary` keeps of it: texts and numbers, nothing of the map but its columns.

        A time column that cuts nothing is not recorded: it does not change the release.
        """
        used = self
        if self.every is None:
            used = replace(self, columns=replace(self.columns, time=None), timezone=None, time_format=None)
        return {
            "columns": used.columns.as_recorded(),
            "resolution": self.resolution if self.zones is None else None,
            "zones": {} if self.zones is None else self.zones.columns,
            "by_many": self.by_many,
            "within": None if self.within is None else self.within.text,
            "outline": None if self.within is None else self.within.stored,
            **{name: getattr(used, name) for name in _PLAIN if name not in ("resolution", "within")},
        }


def _check_crs(crs: str) -> None:
    """Raises ParameterError for an unknown reference system. Only codes are allowed, because they are published."""
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    try:
        known = re.fullmatch(r"[A-Za-z]{2,10}:[0-9A-Za-z_]{1,20}", crs) and CRS.from_user_input(crs)
    except CRSError:
        known = None
    if not known:
        raise ParameterError(
            f"crs (--crs) must be a code such as EPSG:25832; found {crs!r}. Hint: https://epsg.io lists them."
        )


def _step_of(during: Any, columns: ColumnMap, every: str | None) -> str:
    """The step of time that a label is one of.

    Raises:
        ParameterError: it is none, or trips are cut otherwise too.
    """
    named = [name for name, form in _LABELS.items() if isinstance(during, str) and form.fullmatch(during)]
    if not named:
        raise ParameterError("during (--during) must be a month such as 2024-01, or a day such as 2024-01-31.")
    if not columns.time or columns.by or every is not None:
        raise ParameterError(
            "during (--during) needs the column of the time (--time), and makes one matrix: it goes with neither by "
            "nor every."
        )
    return named[0]


def _map_of(zones: Any, **columns: str) -> ZoneMap | None:
    """The user's own map, read if it is not yet; None where the tiles are H3 cells."""
    if zones is None:
        return None
    from flowveil.zoning.files import ZoneMap, read_zones

    return zones if isinstance(zones, ZoneMap) else read_zones(zones, **columns)
