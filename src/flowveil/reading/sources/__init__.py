"""Readers of known data sets: from their original files to one table of trips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.core.errors import DataError, ParameterError, did_you_mean
from flowveil.system.output import write_files

if TYPE_CHECKING:
    from flowveil.reading.sources.tables import Prepared

#: The data sets, by the name users give; ``nyc-tlc`` is made by ``nyc_tlc.prepare_nyc_tlc``.
SOURCES = ("netmob25", "porto", "nyc-tlc", "cdr", "gps")


_HINT = "are these the files of that data set?"
#: What to do where no trip is found, by data set.
_HINTS = {
    "gps": (
        "a shorter stay (--option dwell=120) finds more trips; points that are far apart in time"
        " are sightings, of which `flowveil prepare cdr` makes trips."
    ),
    "cdr": "a person needs records at two places; see --option gap=SECONDS.",
}


def prepare(name: str, source: Any, **options: Any) -> Prepared:
    """Makes trips from the files of a known data set (see `SOURCES`), with the options of its
    function.

    Raises ParameterError for an unknown data set or option, DataError if the files are not those of
    the data set.

    Examples:
        >>> prepared = flowveil.prepare("gps", "points.csv")
        >>> prepared.trips.num_rows
        2
    """
    if name not in SOURCES:
        raise ParameterError(
            f"Unknown source '{name}'; allowed: {', '.join(SOURCES)}.{did_you_mean(name, SOURCES)}"
        )
    module = name.replace("-", "_")
    place = import_module(f"flowveil.reading.sources.{module}")
    make: Callable[..., Prepared] = getattr(place, f"prepare_{module}")
    known = [
        *(make.__kwdefaults__ or ()),
        *([field.name for field in fields(place.Rules)] if name == "gps" else ()),
    ]
    for option in options:
        if option not in known:
            allowed = ", ".join(known) or "none"
            raise ParameterError(f"'{name}' has no option {option}; allowed: {allowed}.")
    prepared = make(source, **options)
    if prepared.trips.num_rows == 0:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in prepared.dropped.items())
        why = f" ({reasons})" if reasons else ""
        raise DataError(f"No trip was found{why}. Hint: {_HINTS.get(name, _HINT)}")
    return prepared


def write_trips(prepared: Prepared, path: str | PathLike[str]) -> Path:
    """Writes trips as Parquet; the file appears complete or not at all."""
    import pyarrow.parquet as pq

    write_files({path: lambda file: pq.write_table(prepared.trips, file, compression="zstd")})
    return Path(path)
