"""Roles of the columns of a trip table.

Users name columns, or usual names are recognised: for ends and persons, never for counts and weights, which are only
suggested (see `candidates`). Ambiguous names are not guessed: the error lists the candidates. Used columns are recorded
in `ReadSummary.columns` and printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from flowveil.errors import DataError, ParameterError, with_value
from flowveil.flows import SUM_COLUMNS
from flowveil.headers import Header, listed, plain_name

Pair = tuple[str, str]

#: Words for the two ends of a trip, in names such as ``start_lat`` or ``lat_start``.
_ENDS: tuple[Pair, ...] = (
    ("start", "end"),
    ("origin", "destination"),
    ("origin", "dest"),
    ("orig", "dest"),
    ("o", "d"),
    ("from", "to"),
    ("pickup", "dropoff"),
    ("pu", "do"),
    ("departure", "arrival"),
    ("source", "target"),
    ("src", "dst"),
    ("startstation", "endstation"),
    ("pickupcentroid", "dropoffcentroid"),
    ("0", "1"),
    ("1", "2"),
)
_LATITUDES = ("lat", "latitude")
_LONGITUDES = ("lon", "lng", "long", "longitude")
_TILES = ("h3", "hex", "h3cell", "h3index")
#: Ambiguous words: recognised only if the column holds tiles.
_TILES_IF_HELD = (
    "",
    "tile",
    "cell",
    "id",
    "zone",
    "zoneid",
    "location",
    "locationid",
    "code",
    "geocode",
    "taz",
    "tazid",
)
PERSONS = (
    "person", "personid", "idperson", "uid", "user", "userid", "participant", "participantid",
    "respondent", "respondentid", "traveler", "travelerid", "traveller", "travellerid",
)  # fmt: skip
#: Names of counts, for hints only.
TRIPS = ("trips", "ntrips", "numtrips", "tripcount", "count", "counts", "flow", "flows", "volume", "s000")

_T = TypeVar("_T")


@dataclass(frozen=True)
class ColumnMap:
    """Column names by role; None if not named, an empty text if the user says that there is no such column.

    Attributes:
        origin, destination: latitude and longitude of each end.
        origin_tile, destination_tile: tiles of the ends, instead of coordinates.
        person: who travelled.
        weight: weight of a row, of all its trips together; see `flowveil.flows.SUM_COLUMNS`.
        trips: number of trips of a row.
        by: attributes by which trips are sliced.
        time: time by which trips are sliced.
    """

    origin: Pair | None = None
    destination: Pair | None = None
    origin_tile: str | None = None
    destination_tile: str | None = None
    person: str | None = None
    weight: str | None = None
    trips: str | None = None
    by: tuple[str, ...] = ()
    time: str | None = None

    def __post_init__(self) -> None:
        for one, other, what in (
            ("origin", "destination", "coordinates"),
            ("origin_tile", "destination_tile", "tiles"),
        ):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                given, lacking = (one, other) if getattr(self, one) is not None else (other, one)
                raise ParameterError(
                    f"{given!r} is given without {lacking!r}; {what} are needed for both ends, or for "
                    "neither: then known column names are recognised."
                )
        if self.origin is not None and self.origin_tile is not None:
            raise ParameterError("The ends are given both as coordinates and as tiles; give one of the two.")
        ends = self.ends
        if len(set(ends)) < len(ends):
            raise ParameterError(
                f"One column is named twice for the ends of a trip: {listed(ends)}. "
                "Origin and destination, latitude and longitude need different columns."
            )

    @classmethod
    def parse(
        cls,
        *,
        origin: str | Sequence[str] | None = None,
        destination: str | Sequence[str] | None = None,
        origin_tile: str | None = None,
        destination_tile: str | None = None,
        by: str | Sequence[str] = (),
        **others: str | None,
    ) -> ColumnMap:
        """Makes a map from the arguments of users: pairs and lists may be texts with commas.

        Raises:
            ParameterError: an end does not have two names, or only one end is given.
        """
        return cls(
            origin=parse_pair(origin, role="origin"),
            destination=parse_pair(destination, role="destination"),
            origin_tile=origin_tile or None,
            destination_tile=destination_tile or None,
            by=tuple(n.strip() for n in by.split(",") if n.strip()) if isinstance(by, str) else tuple(by),
            **others,
        )

    @property
    def ends(self) -> tuple[str, ...]:
        """The columns of the two ends: four coordinates or two tiles; empty if not known yet."""
        if self.origin is not None and self.destination is not None:
            return (*self.origin, *self.destination)
        if self.origin_tile is not None and self.destination_tile is not None:
            return (self.origin_tile, self.destination_tile)
        return ()

    @property
    def has_tiles(self) -> bool:
        """Whether the ends are given as tiles."""
        return self.origin_tile is not None

    def names(self) -> tuple[str, ...]:
        """Returns every column that is used, the ends first."""
        counted = (self.person, *self.added.values(), self.trips)
        return (*self.ends, *(name for name in counted if name), *self.slice_names())

    @property
    def added(self) -> dict[str, str]:
        """The named columns of `flowveil.flows.SUM_COLUMNS`, by role."""
        return {role: name for role in SUM_COLUMNS if (name := getattr(self, role))}

    def slice_names(self) -> tuple[str, ...]:
        """Returns the columns by which trips are sliced, the time last."""
        return (*self.by, self.time) if self.time else self.by

    def as_recorded(self) -> dict[str, str]:
        """Returns column names by role, for `ReadSummary.columns`."""
        recorded = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value != ():
                recorded[field.name] = value if isinstance(value, str) else ",".join(value)
        return recorded


#: The roles of columns, under the names of the arguments.
ROLES = tuple(role.name for role in fields(ColumnMap))


def parse_pair(value: str | Sequence[str] | None, *, role: str) -> Pair | None:
    """Returns latitude and longitude column from ``"lat,lon"`` or from a pair of names.

    Raises:
        ParameterError: it is neither.
    """
    if value is None:
        return None
    parts = [p.strip() for p in value.split(",")] if isinstance(value, str) else list(value)
    if len(parts) != 2 or not all(isinstance(p, str) and p for p in parts):
        raise ParameterError(
            f"{role!r} must name a latitude and a longitude column, found {len(parts)} "
            f"name{'' if len(parts) == 1 else 's'}. Allowed: 'lat_column,lon_column' or a pair of names. "
            f"Hint: for a column of H3 cells use '{role}_tile' (--{role}-tile)."
        )
    return (parts[0], parts[1])


def complete(
    wanted: ColumnMap,
    names: Sequence[str],
    *,
    holds_tiles: Callable[[str], bool],
    cells: bool = True,
    partitions: Sequence[str] = (),
    header: Callable[[], Header] | None = None,
    counts: Callable[[Sequence[str]], str] = lambda _: "",
) -> ColumnMap:
    """Checks the named columns and recognises the others.

    Args:
        wanted: the columns that the user named.
        names: the columns of the table.
        holds_tiles: whether a column's first values are tiles; called for ambiguous names only.
        cells: whether tiles are H3 cells, which have usual names. Columns with tiles of a map are recognised by their
            content, before coordinates.
        partitions: columns from the paths of files; only slices may use them.
        header: decides whether messages may quote names.
        counts: suggests a column of counts among all but these, for a message.

    Returns:
        A map with both ends, and a person if a column is recognised; weight and trips only if they were named.

    Raises:
        DataError: named columns are missing (all are reported) or occur twice, or several columns fit one role.
        ParameterError: a partition column has a role other than slicing.
    """
    header = header or (lambda: Header(names))
    named = _resolve(wanted, names, header)
    _refuse_partitions(named, partitions)
    in_files = [name for name in names if name not in partitions]
    if not named.ends:
        named = _recognise_ends(named, in_files, holds_tiles, header, counts, cells=cells)
    if named.person is None:
        named = replace(named, person=_recognise_one("person", PERSONS, named, in_files))
    _refuse_doubles(named, names)
    persons = [n for n in named.slice_names() if n == named.person or plain_name(n) in PERSONS]
    if persons:
        raise ParameterError(
            f"Column {listed(persons)} identifies persons; trips cannot be sliced by it. "
            "Allowed: attributes that many people share."
        )
    return named


def _resolve(wanted: ColumnMap, names: Sequence[str], header: Callable[[], Header]) -> ColumnMap:
    """Replaces every given name by the spelling in the table, which may have outer blanks."""
    by_stripped = {name.strip(): name for name in reversed(names)}
    missing = [name for name in wanted.names() if name not in names and name.strip() not in by_stripped]
    if missing:
        about = header()
        lines = "".join(f"\n- '{name}'.{about.did_you_mean(name)}" for name in missing)
        raise DataError(
            f"{len(missing)} named column{'s are' if len(missing) > 1 else ' is'} missing:{lines}\n{about.described()}"
        )

    def spelled(name: str) -> str:
        return name if name in names or not name else by_stripped[name.strip()]

    changes: dict[str, str | tuple[str, ...]] = {}
    for field in fields(wanted):
        value = getattr(wanted, field.name)
        if isinstance(value, str):
            changes[field.name] = spelled(value)
        elif value is not None:
            changes[field.name] = tuple(map(spelled, value))
    return replace(wanted, **changes)  # type: ignore[arg-type]  # each role keeps its own type


def _recognise_ends(
    named: ColumnMap,
    names: Sequence[str],
    holds_tiles: Callable[[str], bool],
    header: Callable[[], Header],
    counts: Callable[[Sequence[str]], str],
    *,
    cells: bool,
) -> ColumnMap:
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(plain_name(name), []).append(name)

    def coordinates() -> list[ColumnMap]:
        return [
            replace(named, origin=o, destination=d)
            for start, end in _ENDS
            for o, d in _alike(_coordinates(by_key, start), _coordinates(by_key, end))
        ]

    def tiles(words: Iterable[str], holds: Callable[[str], bool] = lambda _: True) -> list[ColumnMap]:
        return [
            replace(named, origin_tile=o, destination_tile=d)
            for start, end in _ENDS
            for o, d in _alike(_spelled(by_key, start, words), _spelled(by_key, end, words))
            if holds(o) and holds(d)
        ]

    if cells:
        found = coordinates() + tiles(_TILES) or tiles(_TILES_IF_HELD, holds_tiles)
    else:
        found = tiles(_TILES_IF_HELD, holds_tiles) or coordinates()
    found = list(dict.fromkeys(found))
    if not found:
        held = [] if cells else [name for name in names if holds_tiles(name)]
        if len(held) > 1:
            raise DataError(
                f"Columns that hold codes of the map: {listed(held)}; which are the two ends is not known. Hint: "
                f"{with_value('origin_tile', held[0])} {with_value('destination_tile', held[1])}{counts(held)}."
            )
        if _are_points(by_key):
            raise DataError(
                "These are points, not trips: each row has one place and a time. Hint: make trips of them first with "
                "`flowveil prepare gps INPUT --out trips.parquet`."
            )
        raise DataError(
            "The columns of the two ends are not recognised. "
            f"{header().described()} Recognised are names such as start_lat, start_lon, end_lat, "
            "end_lon, pickup_latitude, dropoff_latitude, o_lat, d_lat, start_h3, end_h3. Hint: name them "
            "with origin='lat,lon' and destination='lat,lon' (--origin, --destination), or origin_tile and "
            "destination_tile (--origin-tile, --destination-tile)."
        )
    if len(found) > 1:
        choices = "; ".join(f"{listed(f.ends)}" for f in found)
        raise DataError(
            f"Several columns could be the two ends: {choices}. Hint: say which with origin and "
            "destination (--origin, --destination), or origin_tile and destination_tile (--origin-tile, "
            "--destination-tile)."
        )
    return found[0]


def _are_points(by_key: Mapping[str, Sequence[str]]) -> bool:
    """Returns whether the columns are those of GPS points: one latitude, one longitude, and a time."""
    places = [sum(len(by_key.get(word, ())) for word in words) for words in (_LATITUDES, _LONGITUDES)]
    return places == [1, 1] and any(re.search("time|date|stamp|^ts$", key) for key in by_key)


def _recognise_one(role: str, known: Iterable[str], named: ColumnMap, names: Sequence[str]) -> str | None:
    used = named.names()
    found = [name for name in names if plain_name(name) in known and name not in used]
    if len(found) > 1:
        raise DataError(
            f"Several columns could be the {role}: {listed(found)}. "
            f"Hint: say which with {role} (--{role}); an empty text means none."
        )
    return found[0] if found else None


def _refuse_partitions(named: ColumnMap, partitions: Sequence[str]) -> None:
    roles: dict[str, tuple[str | None, ...]] = {
        "origin": named.ends[: len(named.ends) // 2],
        "destination": named.ends[len(named.ends) // 2 :],
    }
    roles |= {role: (getattr(named, role),) for role in ("person", *SUM_COLUMNS, "trips")}
    for role, columns in roles.items():
        wrong = [name for name in columns if name and name in partitions]
        if wrong:
            raise ParameterError(
                f"Column {listed(wrong)} comes from the path of the files and cannot be the {role}. "
                "Allowed: to slice trips by it (--by, --time)."
            )


def _refuse_doubles(named: ColumnMap, names: Sequence[str]) -> None:
    doubled = [name for name in dict.fromkeys(named.names()) if list(names).count(name) > 1]
    if doubled:
        raise DataError(f"Several columns are called {listed(doubled)}. Hint: give every column a different name.")


def _spelled(by_key: dict[str, list[str]], end: str, words: Iterable[str]) -> list[tuple[str, str]]:
    """Returns columns named after an end and one of the words, in either order, with the pattern of the name."""
    found: dict[str, str] = {}
    for word in words:
        for key, shape in ((end + word, f"end+{word}"), (word + end, f"{word}+end")):
            for name in by_key.get(key, ()):
                # `0` and `1` name an end only together with a word.
                if word or not end.isdigit():
                    found.setdefault(name, shape)
    return [(shape, name) for name, shape in found.items()]


def _coordinates(by_key: dict[str, list[str]], end: str) -> list[tuple[str, Pair]]:
    return [
        (f"{lat_shape},{lon_shape}", (lat, lon))
        for lat_shape, lat in _spelled(by_key, end, _LATITUDES)
        for lon_shape, lon in _spelled(by_key, end, _LONGITUDES)
    ]


def _alike(starts: list[tuple[str, _T]], ends: list[tuple[str, _T]]) -> list[tuple[_T, _T]]:
    """Returns pairs of columns whose names have the same pattern; all pairs if none have."""
    alike = [(o, d) for o_shape, o in starts for d_shape, d in ends if o_shape == d_shape]
    return alike or [(o, d) for _, o in starts for _, d in ends]
