"""Roles of the columns of a zone table: named by users or recognised.

Errors list ambiguous candidates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flowveil.core.errors import DataError, ParameterError, option, with_value
from flowveil.core.headers import Header, listed, plain_name

#: Usual names of tile columns, without case and separators; the second group is a fallback for the
#: first. It has codes of British statistical areas: MSOA11CD, lsoa21cd, OA11; their names are
#: MSOA11NM and so on.
_TILES = (
    re.compile(
        "(tile|zone)(id|code)?|code|id|geocode|geoid|locationid|(cell|station|taz|stop)(id)?"
    ),
    re.compile(
        r"(code|dcom)?iris|(code)?insee|inseecom|geoid[123]0|block|(oa|lsoa|msoa)(\d\d)?(cd|code)?"
    ),
)
_PARENTS = re.compile("parent(zone)?(id|code)?|parenttile|(code|id)parent")
_NAMES = re.compile(
    "name|label|(zone|tile|geo|location|station|stop)name|nom|libelle|nomiris|(oa|lsoa|msoa)(\\d\\d)?(nm|name)"
)
_WHERE = "(center|centre|centroid|stop|station|point|tile|zone|intpt)?"
_LATITUDES = re.compile(f"{_WHERE}(lat|latitude){_WHERE}")
_LONGITUDES = re.compile(f"{_WHERE}(lon|lng|long|longitude){_WHERE}")
_NORTHINGS = re.compile(f"{_WHERE}(y|ycoord|northing){_WHERE}")
_EASTINGS = re.compile(f"{_WHERE}(x|xcoord|easting){_WHERE}")


@dataclass(frozen=True)
class ZoneColumns:
    """Roles of the columns of a zone table; an empty text or tuple for missing ones."""

    tile: str
    parent: str
    levels: tuple[str, ...]
    lat: str
    lon: str
    name: str

    @classmethod
    def choose(
        cls,
        header: Header,
        has_outlines: bool,
        *,
        levels: str | Sequence[str] | None,
        **named: str | None,
    ) -> ZoneColumns:
        """Checks the named columns (tile, parent, lat, lon, name) and recognises the others."""
        tile, parent, lat, lon, name = (
            named[role] for role in ("tile", "parent", "lat", "lon", "name")
        )
        nested = (
            [p.strip() for p in levels.split(",")]
            if isinstance(levels, str)
            else list(levels or ())
        )
        if nested and parent:
            raise ParameterError(
                "Both levels and parent are given; a map has one hierarchy. Hint: leave one out."
            )
        if (lat is None) != (lon is None) or bool(lat) != bool(lon):
            raise ParameterError(
                "lat and lon go together: name both, or neither, or '' for both to have none."
            )
        if tile and tile in nested[:-1]:
            raise ParameterError(f"The tiles '{tile}' must be the finest of levels, the last one.")
        if nested and not tile:
            tile = nested[-1]
        elif nested and tile and nested[-1] != tile:
            nested.append(tile)
        given = [c for c in (*nested, tile, parent, lat, lon, name) if c]
        header.refuse_missing(given)
        if len(set(nested)) < len(nested):
            raise ParameterError(f"A column is given twice in levels: {listed(nested)}.")
        free = [n for n in header.names if n not in given]
        if parent is None and not nested:
            parent = _only("parent", [n for n in free if _PARENTS.fullmatch(plain_name(n))])
        if lat is None and lon is None and not has_outlines:
            lat = _only("lat", [n for n in free if _LATITUDES.fullmatch(plain_name(n))])
            lon = _only("lon", [n for n in free if _LONGITUDES.fullmatch(plain_name(n))])
            if not (lat or lon or parent or nested):
                # Usual names of projected coordinates.
                lat = _first([n for n in free if _NORTHINGS.fullmatch(plain_name(n))])
                lon = _first([n for n in free if _EASTINGS.fullmatch(plain_name(n))])
            if not (lat and lon):
                lat = lon = ""
        if not tile:
            tile = _recognised_tile([n for n in free if n not in (parent, lat, lon)], header)
        if name is None:
            others = [n for n in free if n != tile]
            found = [n for n in others if _NAMES.fullmatch(plain_name(n))]
            # Next to the tiles that the user named, a column `zone` has the names of zones.
            found = found or [n for n in others if plain_name(n) == "zone"]
            # Names are optional: ambiguous columns are ignored.
            name = found[0] if len(found) == 1 else ""
        chosen = cls(tile, parent or "", tuple(nested), lat or "", lon or "", name)
        header.refuse_doubled((*chosen.textual(), chosen.lat, chosen.lon))
        return chosen

    def textual(self) -> tuple[str, ...]:
        """Returns the columns that are read as text."""
        return tuple(
            dict.fromkeys(c for c in (self.tile, self.parent, *self.levels, self.name) if c)
        )

    def as_recorded(self) -> dict[str, str]:
        """Returns column names by role."""
        roles = {"tile": self.tile, "parent": self.parent, "levels": ",".join(self.levels)}
        roles |= {"lat": self.lat, "lon": self.lon, "name": self.name}
        return {role: column for role, column in roles.items() if column}


def _recognised_tile(free: Sequence[str], header: Header) -> str:
    for usual in _TILES:
        found = [n for n in free if usual.fullmatch(plain_name(n))]
        if found:
            return _only("tile", found)
    raise DataError(
        f"The column with the zones' codes is not recognised. {header.described()} "
        "Recognised are names such as zone, code, id, geo_code, LocationID, MSOA11CD. "
        f"Hint: name it with {option_of_map('tile')}."
    )


def option_of_map(role: str) -> str:
    """Returns the name of the option for a column of the map, in the current interface."""
    return option(role, flag=option(f"zones_{role}"))


def column_of_map(role: str, names: str = "COLUMN") -> str:
    """Returns how a column of the map is named, in the current interface."""
    named = f"{'' if option(role) == role else 'zones_'}{role}"
    return with_value(named, names)


def _only(role: str, found: Sequence[str]) -> str:
    if len(found) > 1:
        raise DataError(
            f"Several columns could be the {role}: {listed(found)}. Hint: say which with"
            f" {option_of_map(role)}" + ("." if role == "tile" else "; an empty text means none.")
        )
    return found[0] if found else ""


def _first(found: Sequence[str]) -> str:
    return found[0] if len(found) == 1 else ""
