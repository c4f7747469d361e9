"""How trips are read: one frozen `Reading`, made by a front end and passed to an engine."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.core.errors import ParameterError, option
from flowveil.core.slices import check_slice_columns
from flowveil.core.times import Every
from flowveil.core.unit_names import check_counted
from flowveil.core.values import P_PERCENT, SHARE, STATISTICS, Numbers
from flowveil.reading.areas import Area, parse_area
from flowveil.reading.columns import ROLES, ColumnMap, list_names
from flowveil.reading.formats import time_and_zones
from flowveil.reading.numbers import check_separators
from flowveil.reading.times import check_time_options
from flowveil.request import support
from flowveil.request.request import find_setting, settings
from flowveil.zoning.grids import parse_grid, stated_grid

if TYPE_CHECKING:
    from flowveil.zoning.files import ZoneMap

_CRS_CODE = re.compile(r"[A-Za-z]{2,10}:[0-9A-Za-z_]{1,20}")
_PROJ_TEXT = re.compile(r"(\+[a-z0-9_]{1,12}(=[A-Za-z0-9_.,:+-]{1,40})? *){2,30}")
#: Labels of the time steps that can be read alone.
_LABELS = {"month": re.compile(r"\d{4}-\d{2}"), "day": re.compile(r"\d{4}-\d{2}-\d{2}")}
_CHECKED = (
    *("resolution", "max_dropped", "person_case", "outside"),
    *("thousands", "source_format"),
)
#: Settings that a report records under the names that users give; columns, zones and slices are
#: recorded separately.
_PLAIN = tuple(one.name for one in settings(call="reading") if one.recorded)


@dataclass(frozen=True)
class Reading:
    """All settings that determine the flows of a source.

    The same rows and the same `Reading` give the same flows.

    `flowveil.request.request` describes them all; what differs from what users give:

    Attributes:
        columns: the roles of columns; those that are not named are recognised.
        outside: None or ``keep``: trips with one end outside the area, in no zone, or with a code
            that is not on the map are not used, or that end becomes the tile `outside`. Trips with
            both ends outside are never used.
        timezone: the zone of local times, for Unix times and times with a zone. Default: the zone
            of the column; Unix times and times in UTC are refused. After reading, the zone that was
            used.
        ask_person: whether to refuse a table with a column that looks like persons if no person is
            named. Not recorded.
        remote: whether an address of another machine may be read. Not recorded.
        between, value_share, p_percent: bounds and rules of the columns of numbers; see
            `flowveil.core.values`.
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
    thousands: str | None = None
    counted: str | None = None
    source_format: str | None = None
    column_names: tuple[str, ...] = ()
    pad_codes: bool = False
    ask_person: bool = True
    remote: bool = False
    between: tuple[str, ...] = ()
    value_share: float = SHARE
    p_percent: float = P_PERCENT

    def __post_init__(self) -> None:
        for name in (
            "resolution",
            "max_dropped",
            "person_case",
            "outside",
            "thousands",
            "source_format",
        ):
            value = getattr(self, name)
            find_setting(name).check(value.item() if isinstance(value, np.generic) else value)
        asked = {name: getattr(self, name) for name in ("outside", "within", "zones")}
        asked |= {"timezone": self.timezone or None, "time_format": self.time_format or None}
        support.check_needs(support.asked_of({**asked, "time": self.columns.time or None}))
        if len(set(self.partition_columns)) < len(self.partition_columns):
            raise ParameterError("A partition column is named twice; each can be named once.")
        if self.crs is not None:
            object.__setattr__(self, "crs", _publishable_crs(self.crs))
        check_time_options(self.time_format, self.timezone)
        check_separators(self.thousands, decimal_comma=self.decimal_comma)
        check_counted(self.counted)
        if self.columns.by or self.every is not None:
            check_slice_columns(self.columns.by, time=self.slice_time, every=self.every)
        taken = set(self.numbers.columns) & set(self.columns.by) if self.numbers else ()
        if taken:
            raise ParameterError(
                f"A slice column and a published number are both called '{min(taken)}'. Rename one."
            )

    @property
    def numbers(self) -> Numbers | None:
        """The means, totals and medians that cells publish; None without any."""
        columns = {role: getattr(self.columns, role) for role in STATISTICS}
        return Numbers.from_settings(
            columns, self.between, share=self.value_share, p_percent=self.p_percent
        )

    @property
    def slice_time(self) -> str | None:
        """The time column, if trips are sliced by it.

        Without a step it is read only for the days of the ledger.
        """
        return None if self.every is None else self.columns.time

    @property
    def slice_names(self) -> tuple[str, ...]:
        """The columns by which trips are sliced, the time last."""
        return self.columns.by if self.slice_time is None else (*self.columns.by, self.slice_time)

    @classmethod
    def from_arguments(
        cls,
        *,
        zones: Any = None,
        within: Any = None,
        outside: str | None = None,
        every: str | None = None,
        partition_columns: str | Iterable[str] = (),
        matrix: str | Iterable[str] = (),
        column_names: str | Iterable[str] = (),
        between: str | Iterable[str] = (),
        no_person: bool = False,
        **given: Any,
    ) -> Reading:
        """Makes a reading from the arguments of `flowveil.read_slices`."""
        if no_person:
            asked = support.asked_of({"no_person": True, "person": given.get("person") or None})
            support.check(asked, support.Expected(None, None))
            given["person"] = ""
        usual = time_and_zones(given.get("source_format"))
        zones = _map_of(zones, crs=given.get("crs"), usual=usual[1])
        if usual[0] is not None and given.get("time") is None and (every or given.get("during")):
            given["time"] = usual[0]
        columns = ColumnMap.parse(**{role: given.pop(role) for role in ROLES if role in given})
        if given.get("during") is not None:
            every = _step_of_label(given["during"], columns, every)
        return cls(
            columns=columns,
            every=None if every is None else Every.parse(every),
            zones=zones,
            within=parse_area(within),
            outside=None if outside == "drop" else outside,
            partition_columns=list_names(partition_columns),
            matrix=list_names(matrix),
            column_names=list_names(column_names),
            between=(between,) if isinstance(between, str) else tuple(between),
            **{name: value for name, value in given.items() if value is not None},
        )

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], **changes: Any) -> Reading:
        """Returns the reading of a release, from the parameters in its report.

        Changes are arguments of `read_slices` that differ. They must include the map, if the
        release has one: a report has only the names of its columns.
        """
        columns, slices = parameters.get("columns", {}), parameters.get("slices")
        given: dict[str, Any] = {role: columns[role] for role in ROLES if role in columns}
        given |= {name: parameters[name] for name in _PLAIN if parameters.get(name) is not None}
        if slices is not None:
            given |= {"every": slices.get("every"), "by_many": slices.get("by_many") is True}
        # The questions about persons and trips were answered when the release was made.
        if not {"trips", "weight", "person"} & set(given):
            given["trips"] = ""
        given |= {"ask_person": False, **changes}
        if parameters.get("zones"):
            if given.get("zones") is None:
                given["zones"] = stated_grid(parameters["zones"])
            if given["zones"] is None:
                raise ParameterError(
                    "The release was made on a map that it does not contain. Hint: give the map"
                    " with --zones."
                )
            given["zones"] = _map_of(given["zones"], **parameters["zones"])
        return cls.from_arguments(**given)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings that `ReadSummary` records.

        All that change the release, so no time without slices.
        """
        used = self
        if self.every is None:
            used = replace(
                self, columns=replace(self.columns, time=None), timezone=None, time_format=None
            )
        return {
            "columns": used.columns.as_recorded(),
            "resolution": self.resolution if self.zones is None else None,
            "zones": {} if self.zones is None else self.zones.columns,
            "by_many": self.by_many,
            "within": None if self.within is None else self.within.text,
            "outline": None if self.within is None else self.within.stored,
            **{
                name: getattr(used, name) for name in _PLAIN if name not in ("resolution", "within")
            },
        }


def _publishable_crs(crs: str) -> str:
    """Returns a code or a PROJ text of a reference system.

    It is published, and WKT may contain any words.
    """
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    try:
        system = CRS.from_user_input(crs)
        if _CRS_CODE.fullmatch(crs) or _PROJ_TEXT.fullmatch(crs):
            return crs
        code = system.to_authority()
        with warnings.catch_warnings():
            # PROJ texts cannot name every datum.
            warnings.simplefilter("ignore", UserWarning)
            text = ":".join(code) if code else system.to_proj4()
        if _CRS_CODE.fullmatch(text) or _PROJ_TEXT.fullmatch(text):
            return text
    except CRSError:
        pass
    shown = repr(crs) if len(crs) <= 40 else "another text"
    raise ParameterError(
        f"crs (--crs) must be a code such as EPSG:25832, or a PROJ or WKT text; found {shown}."
        " Hint: https://epsg.io lists codes."
    )


def _step_of_label(during: Any, columns: ColumnMap, every: str | None) -> str:
    """Returns the time step of a label."""
    named = [
        name for name, form in _LABELS.items() if isinstance(during, str) and form.fullmatch(during)
    ]
    if not named:
        raise ParameterError(
            f"{option('during')} must be a month such as 2024-01, or a day such as 2024-01-31."
        )
    asked = {"during": during, "by": columns.by or None, "every": every}
    features = support.asked_of({**asked, "time": columns.time or None})
    support.check_needs(features)
    support.check(features, support.Expected(None, None))
    return named[0]


def _map_of(
    zones: Any, usual: Mapping[str, str] | None = None, **columns: str | None
) -> ZoneMap | None:
    """Returns the user's map, read if necessary; None if the tiles are H3 cells.

    ``usual`` are the columns of a layout, which are used if the map has them all.
    """
    if zones is None:
        return None
    from flowveil.zoning.files import ZoneMap, has_columns, read_zones

    if isinstance(zones, ZoneMap):
        return zones
    if parse_grid(zones) is not None:
        # Its coordinates are degrees, whatever those of the trips are.
        columns.pop("crs", None)
        return read_zones(zones, **columns)
    if usual and has_columns(zones, usual.values()):
        columns = {**usual, **columns}
    return read_zones(zones, **columns)
