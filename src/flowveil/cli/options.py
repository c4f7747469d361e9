"""Options that several commands take, and how they go to the library."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import click

from flowveil.engines.spark_session import cluster
from flowveil.errors import ParameterError
from flowveil.flows import ADDED
from flowveil.methods import find_method
from flowveil.zoning.refinement import HIERARCHIES

Command = TypeVar("Command", bound=Callable[..., Any])
Taken = TypeVar("Taken")

BY_MANY = "Allow --by a column with more than 50 values, or more than one value or combination for 100 rows."


class _Place(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A path of a file or a folder, whatever is there; an empty one is refused before anything is done."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        from flowveil.paths import named_path

        called = "a file" if param is None else param.metavar if isinstance(param, click.Argument) else param.opts[0]
        named_path(value, what=str(called))
        return str(value)


PLACE = _Place()


def options(*declared: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Add options to a command, in the order in which its help lists them."""

    def add(command: Command) -> Command:
        for option in reversed(declared):
            command = option(command)
        return command

    return add


def taken(kind: type[Taken], given: dict[str, Any]) -> Taken:
    """Take the fields of a dataclass out of what was given on the command line."""
    return kind(**{field.name: given.pop(field.name) for field in fields(kind)})  # type: ignore[arg-type]


def listed(text: str) -> list[str]:
    """The names in a text, separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def bbox_of(text: str) -> list[float]:
    """West, south, east and north from a text with commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(f"--bbox must be four numbers, comma-separated; found '{text}'.") from None


# ---- reading -----------------------------------------------------------------------------------------------------

reading = options(
    click.option("--resolution", type=int, help="H3 resolution of the tiles [default: 10]."),
    click.option("--origin", metavar="LAT,LON", help="Columns of the origin's coordinates."),
    click.option("--destination", metavar="LAT,LON", help="Columns of the destination's coordinates."),
    click.option("--origin-tile", metavar="COLUMN", help="Column of the origin's tile, if it is a tile already."),
    click.option("--destination-tile", metavar="COLUMN", help="Column of the destination's tile."),
    click.option("--trips", metavar="COLUMN", help="Column of the number of trips of a row; fractions are allowed."),
    *(click.option(f"--{column.name}", metavar="COLUMN", help=column.about) for column in ADDED.values()),
    click.option("--person", metavar="COLUMN", help="Column that identifies the person."),
    click.option("--no-person", is_flag=True, default=None, help="No column identifies persons."),
    click.option("--person-case", metavar="fold|keep", help="Take A7 and a7 for one person, or for two [fold]."),
    click.option(
        "--zones",
        type=PLACE,
        metavar="FILE",
        help="Map whose zones are the tiles: codes, or polygons for coordinates (CSV, GeoJSON, ...).",
    ),
    click.option("--zones-tile", metavar="COLUMN", help="The map's column of zone codes."),
    click.option("--zones-parent", metavar="COLUMN", help="The map's column of each zone's parent."),
    click.option("--zones-levels", metavar="A,B,...", help="The map's nested codes, coarsest to finest."),
    click.option("--zones-lat", metavar="COLUMN", help="The map's column of the latitude of each zone's centre."),
    click.option("--zones-lon", metavar="COLUMN", help="The map's column of the longitude."),
    click.option("--zones-name", metavar="COLUMN", help="The map's column of zone names."),
    click.option("--zones-root", metavar="CODE", help="Code of a root above several topmost zones."),
    click.option(
        "--within",
        metavar="AREA",
        help="Only trips inside west,south,east,north, H3 cells separated by commas, or the polygons of a file.",
    ),
    click.option(
        "--outside",
        metavar="drop|keep",
        help="Trips with one end outside the area or map: not used, or kept with that end as one zone [drop].",
    ),
    click.option("--matrix", metavar="A,B,...", help="Matrices of an OMX file [default: all, each as a slice]."),
    click.option("--lookup", metavar="NAME", help="Lookup of an OMX file that has the codes of the zones."),
    click.option("--wide", is_flag=True, default=None, help="INPUT is a CSV matrix: a column for each destination."),
    click.option("--remote", is_flag=True, default=None, help="Allow INPUT to be an address: s3:// or https://."),
    click.option("--same-zones", is_flag=True, default=None, help="One set of zones for origins and destinations."),
    click.option("--max-dropped", type=float, help="Largest share of rows or trips to drop [default: 0.05]."),
    click.option("--skip-unknown", is_flag=True, default=None, help="Drop rows whose tile is unknown."),
    click.option(
        "--partition-columns",
        metavar="A,B,...",
        help="Take these columns from the names of folders such as month=3/; all other folder names are ignored.",
    ),
    click.option("--engine", metavar="duckdb|spark", help="Engine that reads the input [default: duckdb]."),
    click.option(
        "--spark-master",
        metavar="URL",
        expose_value=False,
        callback=lambda ctx, _, url: ctx.with_resource(cluster(master=url)),
        help="Spark cluster that reads, with --engine spark [default: what Spark's settings say].",
    ),
    click.option(
        "--driver-flows",
        type=int,
        metavar="N",
        expose_value=False,
        callback=lambda ctx, _, rows: ctx.with_resource(cluster(driver_flows=rows)),
        help="Most rows of flows and their persons that the driver of the Spark cluster takes [default: 20 million]. "
        "Where they are more, persons stay on the cluster and are counted there.",
    ),
)


#: How times are written: for every command that takes them. The message on times that are not recognised names it.
time_forms = options(
    click.option("--time-format", metavar="FORMAT", help="How times are written, as for strptime: '%d/%m/%y %H:%M'."),
    click.option("--timezone", metavar="NAME", help="Local time for Unix times and times in UTC: Europe/Paris."),
)


def reading_of(given: dict[str, Any], *, protect: Sequence[str] | None = None) -> dict[str, Any]:
    """The reading options that were given, with the map read: the library's defaults serve for the others.

    Args:
        given: all options of the command that were not taken yet.
        protect: the units that the user chose; if people are not among them, persons need not be named.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if protect and not any("people" in unit for unit in protect):
        given["ask_person"] = False
    of_map = {name.removeprefix("zones_"): given.pop(name) for name in list(given) if name.startswith("zones_")}
    if of_map:
        from flowveil.api import read_zones

        if "zones" not in given:
            raise ParameterError(f"--zones-{next(iter(of_map))} is given without --zones.")
        if "levels" in of_map:
            of_map["levels"] = [level.strip() for level in of_map["levels"].split(",")]
        given["zones"] = read_zones(given["zones"], **of_map)
    return given


def reading_like(zones_of: str, how: dict[str, Any]) -> dict[str, Any]:
    """How to read trips for the zones of an earlier release: as that one was read, where nothing else is said."""
    from flowveil.release.frozen import FrozenMap

    about = FrozenMap.of(zones_of).about
    like = {"resolution": about["resolution"], "same_zones": about["same_zones"]}
    return {**{name: value for name, value in like.items() if value}, **how}


hierarchy = click.option(
    "--hierarchy",
    metavar="|".join(HIERARCHIES),
    help="Tree above the tiles: as it is (h3), or refined in steps of two [default: what the method's page says].",
)

# ---- slices ------------------------------------------------------------------------------------------------------

slicing = options(
    click.option("--by", multiple=True, metavar="A,B,...", help="One matrix for each combination of attributes."),
    click.option("--by-many", is_flag=True, help=BY_MANY),
    click.option("--time", metavar="COLUMN", help="Column of the time, with --every."),
    click.option(
        "--every",
        multiple=True,
        metavar="STEP",
        help="One matrix for each step: 15min, 1h, day, weekday-hour, ... (repeatable: days and their hours).",
    ),
    click.option("--time-format", metavar="FORMAT", help="How times are written, as for strptime: '%d/%m/%y %H:%M'."),
    click.option("--during", metavar="STEP", help="Only the trips of this month (2024-01) or day, by --time."),
    click.option("--timezone", metavar="NAME", help="Local time for Unix times and times in UTC: Europe/Paris."),
    click.option(
        "--fold-time", is_flag=True, help="Put steps together where they are too small, cell by cell (paircut)."
    ),
    click.option("--total", is_flag=True, help="Also publish the matrix of all slices together."),
    click.option(
        "--values",
        multiple=True,
        metavar="NAME=VALUE,...",
        help="With noise: the values of a slice column, known without the data (repeatable); others are left out.",
    ),
    click.option("--common-zones", is_flag=True, help="The same zones for all slices; totals are sums of them."),
    click.option("--accept-differencing", is_flag=True, help="Publish although subtraction reveals small groups."),
    click.option("--workers", type=int, help="Processes for slices [default: one for each core]."),
    click.option(
        "--resume",
        is_flag=True,
        help="Keep decided slices beside OUT; a later run continues.",
    ),
    click.option(
        "--internal-profile",
        type=PLACE,
        metavar="FILE",
        help="Chart of flows over time (SVG). It shows raw counts: for yourself, not for publication.",
    ),
)


@dataclass(frozen=True)
class SliceOptions:
    """How the trips are cut into slices, as given on the command line."""

    by: tuple[str, ...]
    by_many: bool
    time: str | None
    every: tuple[str, ...]
    time_format: str | None
    timezone: str | None
    during: str | None
    fold_time: bool
    total: bool
    common_zones: bool
    accept_differencing: bool
    workers: int | None
    resume: bool
    internal_profile: str | None
    values: tuple[str, ...]

    def one_step(self) -> dict[str, Any]:
        """How to read the trips of one step alone.

        Raises:
            ParameterError: something else is asked for that makes several matrices.
        """
        several = self._attributes() or self.every or self.total or self.common_zones or self.fold_time or self.resume
        if several or self.internal_profile is not None:
            raise ParameterError("--during makes one matrix: it goes with --time alone, not with slices.")
        named = {"time": self.time, "time_format": self.time_format, "timezone": self.timezone}
        return {"during": self.during, **{name: value for name, value in named.items() if value is not None}}

    @property
    def asked_for(self) -> bool:
        """Whether there is anything to cut by, or an option that needs it."""
        needing = (
            self.total
            or self.common_zones
            or self.fold_time
            or self.resume
            or self.internal_profile is not None
            or self.time_format
            or self.timezone
        )
        return bool(self._attributes() or self.time or self.every or needing)

    def check(self) -> None:
        """Raise ParameterError for options that cannot be."""
        from flowveil.slices import check_slice_columns

        check_slice_columns(self._attributes(), time=self.time, every=self.every[0] if self.every else None)
        if self.internal_profile is not None and not self.every:
            raise ParameterError("--internal-profile needs slices by time. Hint: use --time and --every.")
        if self.fold_time:
            self._check_fold()

    def _check_fold(self) -> None:
        """Refuse what makes several matrices: times that fold make one."""
        several = {
            "--by": bool(self._attributes()),
            "a second --every": len(self._steps()) > 1,
            "--total": self.total,
            "--common-zones": self.common_zones,
            "--accept-differencing": self.accept_differencing,
            "--resume": self.resume,
            "--internal-profile": self.internal_profile is not None,
        }
        given = [name for name, is_given in several.items() if is_given]
        if given or not self.every:
            found = f"found {', '.join(given)}" if given else "no --every was given"
            raise ParameterError(
                f"--fold-time makes one matrix of cells that have times, of one --time and one --every; {found}."
            )

    def reading(self) -> dict[str, Any]:
        """What reading needs to know."""
        every = self._steps()[0] if self.every else None
        return {
            "by": self._attributes(),
            "by_many": self.by_many,
            "time": self.time,
            "every": every,
            "time_format": self.time_format,
            "timezone": self.timezone,
        }

    def publishing(self) -> dict[str, Any]:
        """What anonymising needs to know."""
        return {
            "total": self.total,
            "also_every": self._steps()[1:],
            "common_zones": self.common_zones,
            "accept_differencing": self.accept_differencing,
            "workers": workers_of(self.workers),
        }

    def declared(self, period: str | None) -> dict[str, list[str] | str]:
        """The values of slice columns that were given; a period stands for the times in it."""
        from flowveil.slices import TIME, Every

        given: dict[str, list[str] | str] = {}
        for text in self.values:
            name, equals, values = text.partition("=")
            if not equals:
                raise ParameterError(f"--values must be NAME=VALUE,VALUE; found '{text}'.")
            given[name.strip()] = values.strip() if name.strip() == TIME else listed(values)
        if self.every and TIME not in given and not Every.parse(self._steps()[0]).is_periodic and period is not None:
            given[TIME] = period
        return given

    def _attributes(self) -> tuple[str, ...]:
        return tuple(name for names in self.by for name in listed(names))

    def _steps(self) -> list[str]:
        """The steps of time, the finest first."""
        from flowveil.slices import Every

        known = {Every.parse(text) for text in self.every}
        return [step.name for step in sorted(known, key=lambda e: (-e.label_length, e.minutes or 0))]


def workers_of(given: int | None) -> int:
    """How many processes to use."""
    return given or os.cpu_count() or 1


# ---- methods -----------------------------------------------------------------------------------------------------


def method_options(method: str, texts: Sequence[str]) -> dict[str, Any]:
    """The options of a method from NAME=VALUE."""
    parsed = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ParameterError(f"--option must be NAME=VALUE; found '{text}'.")
        parsed[name.strip()] = find_method(method).parse_option(name.strip(), value.strip())
    return parsed


def options_by_method(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The options of several methods from METHOD.NAME=VALUE."""
    chosen: dict[str, dict[str, Any]] = {}
    for text in texts:
        method, dot, rest = text.partition(".")
        if not dot:
            raise ParameterError(f"--option must be METHOD.NAME=VALUE here; found '{text}'.")
        chosen.setdefault(method, {}).update(method_options(method, [rest]))
    return chosen


method_limits = click.option(
    "--max-suppressed",
    multiple=True,
    metavar="SHARE|METHOD=SHARE",
    help="Share that may be suppressed, of all methods or of one (repeatable) [default: 0.1].",
)


def limits_of(texts: Sequence[str]) -> dict[str, Any]:
    """What may be suppressed: ``max_suppressed`` where a share of all is given, and ``limits`` by method."""
    found: dict[str, Any] = {"limits": {}}
    for text in texts:
        method, equals, share = text.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            raise ParameterError(f"--max-suppressed must be SHARE or METHOD=SHARE; found '{text}'.") from None
        if equals:
            found["limits"][find_method(method.strip()).name] = number
        else:
            found["max_suppressed"] = number
    return found
