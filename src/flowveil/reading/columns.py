"""Roles of the columns of a trip table (docs/reading.md).

Users name columns, or usual names are recognised: for ends and persons, never for counts and
weights, because a wrong guess of these would change every cell. A column that looks like persons
must be confirmed or denied (`refuse_unnamed_persons`): persons who are not counted are not
protected. Ambiguous names are not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from flowveil.core.errors import DataError, ParameterError, option, with_value, without_value
from flowveil.core.flows import SUM_COLUMNS
from flowveil.core.headers import Header, listed, plain_name
from flowveil.core.unit_names import VEHICLES, names_vehicles
from flowveil.core.values import STATISTICS
from flowveil.reading.formats import refuse_known_layout
from flowveil.reading.sql import MISSING
from flowveil.zoning.gazetteer import projected as metres_hint
from flowveil.zoning.grids import proposed_grid

Pair = tuple[str, str]
#: Some values of a column, spread over the table.
Sample = Callable[[str], list[Any]]

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
_LATITUDES, _LONGITUDES = ("lat", "latitude"), ("lon", "lng", "long", "longitude")
_AXES = (_LATITUDES, _LONGITUDES)
#: Projected coordinates, recognised only with a reference system.
_NORTHINGS, _EASTINGS = ("y", "northing", "ycoord"), ("x", "easting", "xcoord")
_TILES = ("h3", "hex", "h3cell", "h3index")
#: Columns of the one place of a sighting.
_SIGHTED = ("antenna", "antennaid", "cellid", "siteid", "bts", "btsid", "tower", "towerid", "lac")
#: What a table of sightings is answered with.
SIGHTINGS = (
    "These are sightings, not trips: each row has one antenna or stop and a time. Hint: make trips"
    " of them first with `flowveil prepare cdr INPUT --antennas PLACES --out trips.parquet`."
)
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
    *("geohash", "quadkey", "s2", "s2cell", "s2token", "grid", "gridid", "gridcell"),
)
PERSONS = (
    "person", "personid", "idperson", "uid", "user", "userid", "participant", "participantid",
    "respondent", "respondentid", "traveler", "travelerid", "traveller", "travellerid",
)  # fmt: skip
#: Names of counts, for hints only.
TRIPS = (
    "trips",
    "ntrips",
    "numtrips",
    "tripcount",
    "count",
    "counts",
    "flow",
    "flows",
    "volume",
    "s000",
)
#: Names of counts in tables of pairs, without case and separators, also in other languages.
_COUNTS = frozenset(TRIPS) | frozenset(
    [
        *("n", "num", "number", "total", "all", "allcategories", "workers", "jobs", "commuters"),
        *("viajes", "flujo", "personas", "trajets", "deplacements", "effectif", "fahrten", "wege"),
        *("pendler", "viaggi", "spostamenti", "viagens", "nombre", "numero", "anzahl"),
    ]
)
#: Words in names of columns that identify persons, or what only one person or household uses.
_PERSONS = frozenset(
    [
        "person",
        "pers",
        "user",
        "rider",
        "customer",
        "cust",
        "client",
        "member",
        "subscriber",
        "passenger",
        "pax",
        "participant",
        "respondent",
        "resp",
        "traveller",
        "traveler",
        "commuter",
        "individual",
        "indiv",
        "resident",
        "citizen",
        "employee",
        "worker",
        "student",
        "patient",
        "driver",
        "cardholder",
        "household",
        "hh",
        "device",
        "phone",
        "mobile",
        "imei",
        "imsi",
        "msisdn",
        "iccid",
        "sim",
        "card",
        "smartcard",
        "account",
        "acct",
        "token",
        "uid",
        "pid",
        "ssn",
        "passport",
        "licence",
        "license",
        "plate",
        "tag",
        "transponder",
        "email",
        "surname",
        "visitor",
        "mac",
        "idfa",
        "gaid",
        "maid",
        # Abbreviations of surveys, and German, French, Spanish, Italian, Portuguese, Dutch, Nordic.
        "per",
        "perno",
        "persno",
        "pno",
        "hhno",
        "hid",
        "samn",
        "sampno",
        "abo",
        "kunde",
        "kunden",
        "nutzer",
        "benutzer",
        "fahrgast",
        "teilnehmer",
        "haushalt",
        "karte",
        "karten",
        "kundennummer",
        "kundennr",
        "personennummer",
        "usager",
        "utilisateur",
        "voyageur",
        "abonne",
        "abonné",
        "carte",
        "enquete",
        "enquêté",
        "individu",
        "menage",
        "ménage",
        "conducteur",
        "passager",
        "usuario",
        "usuaria",
        "viajero",
        "viajera",
        "persona",
        "hogar",
        "tarjeta",
        "abonado",
        "cliente",
        "utente",
        "viaggiatore",
        "famiglia",
        "tessera",
        "usuário",
        "utilizador",
        "pessoa",
        "cartao",
        "cartão",
        "domicilio",
        "gebruiker",
        "reiziger",
        "persoon",
        "huishouden",
        "kaart",
        "klant",
        "bruker",
        "kund",
        "kunde",
        "resenär",
        "hushall",
        "hushåll",
    ]
)  # a list of a word a line would be longer than the file
#: Words of identifiers: ``cab_id`` identifies, ``user_type`` does not.
_IDENTIFIERS = frozenset(
    [
        "id",
        "ids",
        "no",
        "nr",
        "num",
        "number",
        "code",
        "key",
        "hash",
        "ident",
        "identifier",
        "nummer",
        "numero",
        "número",
        "numéro",
    ]
)
#: Words of properties and amounts, which no other word overrides.
_PROPERTIES = frozenset(
    [
        "type",
        "kind",
        "class",
        "category",
        "categories",
        "group",
        "segment",
        "status",
        "casual",
        "age",
        "sex",
        "gender",
        "birth",
        "year",
        "income",
        "size",
        "count",
        "counts",
        "total",
        "share",
        "rate",
        "weight",
        "factor",
        "model",
        "make",
        "brand",
        "agent",
        "cost",
        "fare",
        "price",
        "plan",
        "os",
        "label",
        "time",
        "date",
        "day",
    ]
)
#: Words of identifiers of places or single trips.
_OTHER_IDENTIFIERS = frozenset(
    [
        "station",
        "stop",
        "dock",
        "hub",
        "zone",
        "tile",
        "cell",
        "h3",
        "hex",
        "geohash",
        "route",
        "line",
        "street",
        "area",
        "tract",
        "block",
        "node",
        "link",
        "edge",
        "region",
        "origin",
        "destination",
        "start",
        "end",
        "from",
        "to",
        "pickup",
        "dropoff",
        "trip",
        "ride",
        "journey",
        "tour",
        "order",
        "booking",
        "record",
        "row",
        "event",
        "session",
        "file",
    ]
)
_WORDS = re.compile(r"[A-ZÀ-Þ]+(?![a-zß-ÿ])|[A-ZÀ-Þ]?[a-zß-ÿ]+")
#: A hash or another generated identifier.
_HASHED = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[0-9A-Za-z+/=_-]{8,}")
_DECIMAL = re.compile(r"[+-]?[0-9]*[.][0-9]*[1-9][0-9]*")
#: Fewer values are not judged.
_FEWEST_VALUES = 20
#: Distinct values of a column of identifiers.
_FEWEST_IDENTIFIED = 10
#: Repetitions in a sample that exclude row numbers.
_FEWEST_REPEATED = 3
#: At least one value in ten is 0 where numbers are counts.
_ZEROS_OF_COUNTS = 10
#: Columns that are checked, and that are named in one hint.
_MOST_COLUMNS, _MOST_NAMED = 60, 8

_T = TypeVar("_T")


@dataclass(frozen=True)
class ColumnMap:
    """Column names by role.

    None if not named, an empty text if the user says that there is no such column.

    Ends are a latitude and a longitude each, or tiles. A weight is that of all trips of a row.
    `flowveil.request.request` describes the roles.
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
    mean: tuple[str, ...] = ()
    total_of: tuple[str, ...] = ()
    median: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        pairs = (
            ("origin", "destination", "coordinates"),
            (
                "origin_tile",
                "destination_tile",
                "tiles",
            ),
        )
        for one, other, what in pairs:
            given, lacking = (one, other) if getattr(self, one) is not None else (other, one)
            if getattr(self, given) is not None and getattr(self, lacking) is None:
                raise ParameterError(
                    f"{given!r} is given without {lacking!r}; {what} are needed for both ends, or"
                    " for neither: then known column names are recognised."
                )
        if self.origin is not None and self.origin_tile is not None:
            raise ParameterError(
                "The ends are given both as coordinates and as tiles; give one of the two."
            )
        if len(set(self.ends)) < len(self.ends):
            raise ParameterError(
                f"One column is named twice for the ends of a trip: {listed(self.ends)}. "
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
        **others: Any,
    ) -> ColumnMap:
        """Makes a map from the arguments of users: pairs and lists may be texts with commas."""
        return cls(
            origin=parse_pair(origin, role="origin"),
            destination=parse_pair(destination, role="destination"),
            origin_tile=origin_tile or None,
            destination_tile=destination_tile or None,
            **{
                name: list_names(value) if name in LISTS else value
                for name, value in others.items()
            },  # type: ignore[arg-type]
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
        return (
            *self.ends,
            *(name for name in counted if name),
            *self.value_names(),
            *self.slice_names(),
        )

    @property
    def added(self) -> dict[str, str]:
        """The named columns of `flowveil.core.flows.SUM_COLUMNS`, by role."""
        return {role: name for role in SUM_COLUMNS if (name := getattr(self, role))}

    def value_names(self) -> tuple[str, ...]:
        """Returns the columns of numbers that cells publish."""
        return tuple(name for role in STATISTICS for name in getattr(self, role))

    def slice_names(self) -> tuple[str, ...]:
        """Returns the columns by which trips are sliced, the time last."""
        return (*self.by, self.time) if self.time else self.by

    def as_recorded(self) -> dict[str, str]:
        """Returns column names by role, for `ReadSummary.columns`."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            role: name if isinstance(name, str) else ",".join(name)
            for role, name in given.items()
            if name is not None and name != () and (role, name) != ("trips", "")
        }


#: The roles of columns, under the names of the arguments.
ROLES = tuple(role.name for role in fields(ColumnMap))
#: Roles of several columns.
LISTS = ("by", *STATISTICS)


def list_names(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Returns column names from a list, or from a text with commas."""
    return (
        tuple(n.strip() for n in value.split(",") if n.strip())
        if isinstance(value, str)
        else tuple(value or ())
    )


def parse_pair(value: str | Sequence[str] | None, *, role: str) -> Pair | None:
    """Returns latitude and longitude column from ``"lat,lon"`` or from a pair of names."""
    if value is None:
        return None
    parts = [p.strip() for p in value.split(",")] if isinstance(value, str) else list(value)
    if len(parts) != 2 or not all(isinstance(p, str) and p for p in parts):
        raise ParameterError(
            f"{role!r} must name a latitude and a longitude column, found {len(parts)}"
            f" name{'' if len(parts) == 1 else 's'}. Allowed: 'lat_column,lon_column' or a pair of"
            f" names. Hint: for a column of H3 cells use '{role}_tile' (--{role}-tile)."
        )
    return (parts[0], parts[1])


def complete(
    wanted: ColumnMap,
    names: Sequence[str],
    *,
    holds_tiles: Callable[[str], bool],
    cells: bool = True,
    projected: bool = False,
    partitions: Sequence[str] = (),
    sample: Sample = lambda _: [],
) -> ColumnMap:
    """Checks the named columns and recognises both ends and the person among the others.

    ``holds_tiles`` says whether a column's first values are tiles, for ambiguous names only. If
    tiles are not H3 ``cells``, their columns are recognised by content, before coordinates. Only
    slices may use ``partitions``, from paths of files. Names that recur in a ``sample`` of the
    values are not quoted.
    """
    header = Header(names, below=map(sample, names))
    named = _resolve(wanted, header)
    _refuse_partitions(named, partitions)
    in_files = [name for name in names if name not in partitions]
    if not named.ends:
        named = _recognise_ends(
            named, in_files, holds_tiles, header, cells=cells, projected=projected, sample=sample
        )
    if named.person is None:
        found = [
            name for name in in_files if plain_name(name) in PERSONS and name not in named.names()
        ]
        if len(found) > 1:
            raise DataError(
                f"Several columns could be the person: {listed(found)}. "
                "Hint: say which with person (--person); an empty text means none."
            )
        named = replace(named, person=found[0] if found else None)
    header.refuse_doubled(named.names())
    other_roles = {
        *named.ends,
        *named.added.values(),
        named.person,
        named.trips,
        named.time,
    }
    twice = [name for name in named.value_names() if name in other_roles]
    if twice:
        raise ParameterError(
            f"Column {listed(twice)} says where, when or how much a trip is, or who made it; means,"
            " totals and medians of it would reveal more than cells may. Allowed: other columns."
        )
    persons = [n for n in named.slice_names() if n == named.person or plain_name(n) in PERSONS]
    if persons:
        raise ParameterError(
            f"Column {listed(persons)} identifies persons; trips cannot be sliced by it. "
            "Allowed: attributes that many people share."
        )
    return named


def _resolve(wanted: ColumnMap, header: Header) -> ColumnMap:
    """Replaces every given name by the spelling in the table, which may have outer blanks."""
    names = header.names
    by_stripped = {name.strip(): name for name in reversed(names)}

    def spelled(name: str) -> str:
        return name if name in names or not name else by_stripped.get(name.strip(), name)

    header.refuse_missing(map(spelled, wanted.names()))
    given = {role: getattr(wanted, role) for role in ROLES if getattr(wanted, role) is not None}
    changes: dict[str, Any] = {
        role: spelled(value) if isinstance(value, str) else tuple(map(spelled, value))
        for role, value in given.items()
    }
    return replace(wanted, **changes)


def _recognise_ends(
    named: ColumnMap,
    names: Sequence[str],
    holds_tiles: Callable[[str], bool],
    header: Header,
    *,
    cells: bool,
    projected: bool,
    sample: Sample,
) -> ColumnMap:
    axes = (_LATITUDES + _NORTHINGS, _LONGITUDES + _EASTINGS) if projected else _AXES
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(plain_name(name), []).append(name)

    def coordinates(axes: Any = axes) -> list[ColumnMap]:
        return [
            replace(named, origin=o, destination=d)
            for start, end in _ENDS
            for o, d in _alike(_coordinates(by_key, start, axes), _coordinates(by_key, end, axes))
        ]

    def tiles(
        words: Iterable[str], holds: Callable[[str], bool] = lambda _: True
    ) -> list[ColumnMap]:
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
        refuse_known_layout(names)
        # A blank name and one that occurs twice name no column.
        nameable = [name for name in names if name.strip() and names.count(name) == 1]
        if cells:
            refuse_grid_codes(nameable, sample)
        if not projected:
            _refuse_metres(coordinates((_NORTHINGS, _EASTINGS)), sample)
        held = [] if cells else [name for name in nameable if holds_tiles(name)]
        if len(held) > 1:
            numbers = [
                name
                for name in nameable
                if plain_name(name) in _COUNTS and _are_numbers_of_trips(sample(name))
            ]
            unnamed = named.trips is None and named.weight is None and not named.person
            counts = f" {with_value('trips', numbers[0])}" if numbers and unnamed else ""
            raise DataError(
                f"Columns that hold codes of the map: {listed(held)}; which are the two ends is not"
                f" known. Hint: {with_value('origin_tile', held[0])}"
                f" {with_value('destination_tile', held[1])}{counts}."
            )
        if _are_points(by_key):
            raise DataError(
                "These are points, not trips: each row has one place and a time. Hint: make trips"
                " of them first with `flowveil prepare gps INPUT --out trips.parquet`."
            )
        if are_sightings(names):
            raise DataError(SIGHTINGS)
        raise DataError(
            f"The columns of the two ends are not recognised. {header.described()} Recognised are"
            " names such as start_lat, start_lon, end_lat, end_lon, pickup_latitude,"
            " dropoff_latitude, o_lat, d_lat, start_h3, end_h3. Hint: name them with"
            " origin='lat,lon' and destination='lat,lon' (--origin, --destination), or origin_tile"
            " and destination_tile (--origin-tile, --destination-tile)."
        )
    if len(found) > 1:
        choices = "; ".join(f"{listed(f.ends)}" for f in found)
        raise DataError(
            f"Several columns could be the two ends: {choices}. Hint: say which with origin and"
            " destination (--origin, --destination), or origin_tile and destination_tile"
            " (--origin-tile, --destination-tile)."
        )
    return found[0]


def _refuse_metres(found: Sequence[ColumnMap], sample: Sample) -> None:
    """Raises DataError with the reference system to name if the ends are called x and y and are no
    degrees.
    """
    if not found or found[0].origin is None:
        return
    north, east = (_numbers(sample(name)) for name in found[0].origin)
    hint = metres_hint(list(zip(north, east, strict=False)))
    if hint is not None:
        raise DataError(f"The ends are in columns {listed(found[0].ends)}. Hint: {hint}")


def _numbers(values: Iterable[Any]) -> list[float]:
    numbers = []
    for value in values:
        try:
            numbers.append(float(value))
        except (TypeError, ValueError):
            numbers.append(float("nan"))
    return numbers


def refuse_grid_codes(names: Sequence[str], sample: Sample, *, ends_named: bool = False) -> None:
    """Raises DataError with the map to name if two columns hold codes of one grid."""
    texts = {name: [str(one) for one in sample(name) if one is not None] for name in names}
    by_grid: dict[tuple[str, str], list[str]] = {}
    for name, values in texts.items():
        found = proposed_grid(values)
        if found is not None:
            by_grid.setdefault((found.grid, found.size), []).append(name)
    ends = next((held for held in by_grid.values() if len(held) > 1), None)
    if ends is None:
        return
    map_of_both = proposed_grid([*texts[ends[0]], *texts[ends[1]]])
    if map_of_both is None:
        return
    both = zip(("origin_tile", "destination_tile"), ends, strict=False)
    which = "" if ends_named else "".join(f" {with_value(role, name)}" for role, name in both)
    raise DataError(
        f"Columns {listed(ends)} hold codes of the grid {map_of_both.grid}. Hint:"
        f" {with_value('zones', map_of_both.text)}{which} reads them; the numbers are west, south,"
        " east and north of your area."
    )


def _are_points(by_key: Mapping[str, Sequence[str]]) -> bool:
    """Returns whether the columns are those of GPS points.

    One latitude, one longitude, and a time.
    """
    places = [
        sum(len(by_key.get(word, ())) for word in words) for words in (_LATITUDES, _LONGITUDES)
    ]
    return places == [1, 1] and any(re.search("time|date|stamp|^ts$", key) for key in by_key)


def are_sightings(names: Iterable[str]) -> bool:
    """Returns whether the columns are those of sightings of a phone or card: one place by its code,
    and a time.
    """
    plain = [plain_name(name) for name in names]
    places = sum(name in _SIGHTED for name in plain)
    return places == 1 and any(re.search("time|date|stamp|^ts$", name) for name in plain)


def _refuse_partitions(named: ColumnMap, partitions: Sequence[str]) -> None:
    for role in ROLES:
        columns = getattr(named, role) or ()
        wrong = [
            name
            for name in ((columns,) if isinstance(columns, str) else columns)
            if name in partitions
        ]
        if wrong and role not in ("by", "time"):
            raise ParameterError(
                f"Column {listed(wrong)} comes from the path of the files and cannot be the "
                f"{role.removesuffix('_tile')}. "
                "Allowed: to slice trips by it (--by, --time)."
            )


def _spelled(by_key: dict[str, list[str]], end: str, words: Iterable[str]) -> list[tuple[str, str]]:
    """Returns columns named after an end and one of the words, in either order, with the pattern of
    the name.
    """
    found: dict[str, str] = {}
    for word in words:
        for key, shape in ((end + word, f"end+{word}"), (word + end, f"{word}+end")):
            for name in by_key.get(key, ()):
                # `0` and `1` name an end only together with a word.
                if word or not end.isdigit():
                    found.setdefault(name, shape)
    return [(shape, name) for name, shape in found.items()]


def _coordinates(
    by_key: dict[str, list[str]], end: str, axes: tuple[Sequence[str], Sequence[str]]
) -> list[tuple[str, Pair]]:
    return [
        (f"{lat_shape},{lon_shape}", (lat, lon))
        for lat_shape, lat in _spelled(by_key, end, axes[0])
        for lon_shape, lon in _spelled(by_key, end, axes[1])
    ]


def _alike(starts: list[tuple[str, _T]], ends: list[tuple[str, _T]]) -> list[tuple[_T, _T]]:
    """Returns pairs of columns whose names have the same pattern; all pairs if none have."""
    alike = [(o, d) for o_shape, o in starts for d_shape, d in ends if o_shape == d_shape]
    return alike or [(o, d) for _, o in starts for _, d in ends]


def refuse_unnamed_persons(used: ColumnMap, names: Sequence[str], *, sample: Sample) -> None:
    """Raises ParameterError if a column looks like persons and the user said nothing about
    persons.
    """
    found = [
        name
        for name in _free(used, names)
        if used.person is None and _looks_like_persons(name, sample)
    ]
    if not found:
        return
    name = found[0] if found[0] in _header(names, sample).quotable else "COLUMN"
    raise ParameterError(
        f"{'Columns look' if len(found) > 1 else 'A column looks'} like persons"
        f" ({_named(found, names, sample)}), and no person is named, so people would not be"
        f" protected. Say which: {with_value('person', name)} protects"
        f" {'vehicles, not the people in them' if names_vehicles(found[0]) else 'people'};"
        f" {without_value('person')} says that no column identifies persons."
    )


def refuse_unnamed_counts(used: ColumnMap, names: Sequence[str], *, sample: Sample) -> None:
    """Raises ParameterError if a column has the name and the values of a number of trips, and the
    user said nothing about trips, weights and persons: every row would count as one trip.

    Between coordinates only the usual names of trips are counts.
    """
    if used.trips is not None or used.weight is not None or used.person:
        return
    usual = _COUNTS if used.has_tiles else frozenset(TRIPS)
    found = [
        name
        for name in _free(used, names)
        if plain_name(name) in usual and _are_numbers_of_trips(sample(name))
    ]
    if found:
        name = found[0] if found[0] in _header(names, sample).quotable else "COLUMN"
        raise ParameterError(
            f"A column looks like the number of trips of each row ({_named(found, names, sample)}),"
            " and none is named, so every row would count as one trip. Say which:"
            f" {with_value('trips', name)} counts its numbers; {with_value('weight', name)}, if it"
            f" is an expansion factor; {with_value('trips', '')} says that a row is one trip."
        )


@dataclass(frozen=True)
class Suggestions:
    """Unused columns by what they look like."""

    persons: tuple[str, ...]
    vehicles: tuple[str, ...]
    counts: tuple[str, ...]  # numbers that may be trips or weights


def suggestions(used: ColumnMap, names: Sequence[str], *, sample: Sample) -> Suggestions:
    """Returns which unused columns look like persons, vehicles and counts.

    Arguments as for `refuse_unnamed_persons`.
    """
    free = _free(used, names)
    persons = [n for n in free if plain_name(n) in PERSONS or _looks_like_persons(n, sample)]
    vehicles = [n for n in free if _identifies(n, sample, VEHICLES) and n not in persons]
    vehicles += [name for name in persons if names_vehicles(name)]
    counts = [name for name in free if plain_name(name) in TRIPS]
    identifiers = {*persons, *vehicles, *counts}
    others = [n for n in free if n not in identifiers and not _words_of(n) & _IDENTIFIERS]
    counts += [name for name in others if _are_counts(sample(name))]
    people = [name for name in persons if name not in vehicles]
    return Suggestions(tuple(people), tuple(vehicles), tuple(counts))


def hints(used: ColumnMap, names: Sequence[str], *, sample: Sample) -> Iterator[str]:
    """Yields sentences on unused columns that may be needed.

    Arguments as for `refuse_unnamed_persons`.
    """
    free = _free(used, names)
    for role, column in SUM_COLUMNS.items():
        found = [name for name in free if plain_name(name) in column.usual]
        if found and getattr(used, role) is None:
            yield (
                f"No {column.one} is used, because none was named; columns that may hold one: "
                f"{_named(found, names, sample)}. Hint: {option(role)} names it."
            )
    # Rows with a weight are sampled trips. Among coordinates, only a usual name may be a count.
    if used.trips is None and used.weight is None:
        summed = {name for column in SUM_COLUMNS.values() for name in column.usual}
        others = [
            name for name in free if plain_name(name) not in summed and not _may_identify(name)
        ]
        found = [name for name in free if plain_name(name) in TRIPS]
        if used.has_tiles and not found:
            found = [name for name in others if _are_counts(sample(name))]
        if found:
            yield (
                "Every row is counted as one trip, because no column with the number of trips was"
                f" named; columns that hold numbers: {_named(found, names, sample)}. Hint:"
                f" {option('trips')} names it; {option('weight')}, if it is an expansion factor."
            )
    if used.person is None:
        found = [
            name
            for name in free
            if plain_name(name) in PERSONS
            or _looks_like_persons(name, sample)
            or _identifies(name, sample, VEHICLES)
        ]
        listed = f" Columns that look like one: {_named(found, names, sample)}." if found else ""
        yield (
            f"No person column was recognised, so people are not counted.{listed} Hint:"
            f" {option('person')} names one."
            + " A column of vehicles protects vehicles, not people."
            * any(map(names_vehicles, found))
        )


def _free(used: ColumnMap, names: Sequence[str]) -> list[str]:
    """Returns the unused columns; not those whose name occurs twice."""
    taken = {*used.names(), *(name for name in names if list(names).count(name) > 1)}
    free = [name for name in names if name not in taken]
    # In a wide table, columns with words of persons are checked first.
    return sorted(free, key=lambda name: not _words_of(name) & _PERSONS)[:_MOST_COLUMNS]


def _header(names: Sequence[str], sample: Sample) -> Header:
    """Returns the header of a table whose ends were found by name.

    So it is one, unless a name looks like a value.
    """
    return Header(names, declared=not Header(names, below=map(sample, names)).has_values)


def _named(found: Sequence[str], names: Sequence[str], sample: Sample) -> str:
    shown = _header(names, sample).listed(found[:_MOST_NAMED])
    return f"{shown} and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else shown


def _words_of(name: str) -> set[str]:
    """Returns the words of a name; splits compounds such as ``userid``."""
    words = {part.casefold() for part in _WORDS.findall(name)}
    for word in tuple(words):
        stem = next(
            (
                end
                for end in ("id", "no", "nr", "nummer", "hash")
                if word.endswith(end) and word != end
            ),
            None,
        )
        if stem and word.removesuffix(stem) in _PERSONS | VEHICLES:
            words |= {word.removesuffix(stem), stem}
        if word.startswith("id") and word[2:] in _PERSONS | VEHICLES:
            words |= {word[2:], "id"}
    return words


def _texts(values: Sequence[Any]) -> list[str]:
    """Returns the values that are not missing, as text."""
    texts = (str(value).strip() for value in values)
    return [text for text in texts if text.casefold() not in MISSING]


def _are_numbers_of_trips(values: Sequence[Any]) -> bool:
    """Returns whether all values are numbers from 0 on, written in any way, and not all are 1."""
    texts = _texts(values)
    numbers = all(re.fullmatch(r"\d[\d.,' \u00a0\u202f]{0,20}", text) for text in texts)
    return numbers and bool({text.rstrip("0").rstrip(".") for text in texts} - {"1"})


def _are_counts(values: Sequence[Any]) -> bool:
    """Returns whether the values are numbers from 0 on, neither all equal nor all distinct."""
    texts = _texts(values)
    if not texts or not all(re.fullmatch(r"\d{1,12}(\.\d+)?", text) for text in texts):
        return False
    return len(set(texts)) > 1 and (len(set(texts)) < len(texts) or len(texts) < _FEWEST_VALUES)


def _looks_like_persons(name: str, sample: Sample) -> bool:
    """Returns whether a column identifies persons, by its name or by hashes that recur under a
    neutral name.
    """
    words = _words_of(name)
    if words & _PERSONS:
        return _identifies(name, sample, _PERSONS)
    if words & (_OTHER_IDENTIFIERS | VEHICLES | _PROPERTIES):
        return False
    texts = _texts(sample(name))
    distinct = set(texts)
    if len(distinct) < _FEWEST_IDENTIFIED or len(texts) - len(distinct) < _FEWEST_REPEATED:
        return False
    return plain_name(name) == "id" or all(_HASHED.fullmatch(text) for text in distinct)


def _may_identify(name: str) -> bool:
    """Returns whether a name such as ``household_id`` is one of identifiers, whose numbers are
    never counts.
    """
    words = _words_of(name)
    return bool(words & _IDENTIFIERS or (words & _PERSONS and not words & _PROPERTIES))


def _identifies(name: str, sample: Sample, of: frozenset[str]) -> bool:
    """Returns whether a column with such a word in its name holds identifiers, not a property."""
    words = _words_of(name)
    if not words & of or words & _PROPERTIES:
        return False
    texts = _texts(sample(name))
    if len(texts) < _FEWEST_VALUES or any(_DECIMAL.fullmatch(text) for text in texts):
        return False
    if words & _IDENTIFIERS:
        return len(set(texts)) >= 2
    # Small numbers with many zeros under a name such as ``car_driver`` are counts of a mode. A
    # person numbered 0 is one of many.
    if texts.count("0") * _ZEROS_OF_COUNTS >= len(texts) and all(
        re.fullmatch(r"\d{1,5}", text) for text in texts
    ):
        return False
    return len(set(texts)) >= _FEWEST_IDENTIFIED
