"""Readers of known data sets: from their original files to one table of trips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.errors import ParameterError, did_you_mean
from flowveil.output import write_files

if TYPE_CHECKING:
    from flowveil.sources.tables import Prepared

#: The module and the function of each data set, by the name users give.
SOURCES: dict[str, tuple[str, str]] = {
    "netmob25": ("flowveil.sources.netmob25", "prepare_netmob25"),
    "porto": ("flowveil.sources.porto", "prepare_porto"),
    "nyc-tlc": ("flowveil.sources.nyc_tlc", "prepare_nyc_tlc"),
    "cdr": ("flowveil.sources.cdr", "prepare_cdr"),
    "gps": ("flowveil.sources.gps", "prepare_gps"),
}


def prepare(name: str, source: Any, **options: Any) -> Prepared:
    """Makes trips from the files of a known data set (see `SOURCES`), with the options of its function.

    Raises ParameterError for an unknown data set or option, DataError if the files are not those of the data set.
    """
    if name not in SOURCES:
        raise ParameterError(f"Unknown source '{name}'; allowed: {', '.join(SOURCES)}.{did_you_mean(name, SOURCES)}")
    module, function = SOURCES[name]
    place = import_module(module)
    make: Callable[..., Prepared] = getattr(place, function)
    rules = getattr(place, "Rules", None)
    known = [*(make.__kwdefaults__ or ()), *([] if rules is None else [field.name for field in fields(rules)])]
    for option in options:
        if option not in known:
            allowed = ", ".join(f"--{o.replace('_', '-')}" for o in known) or "none"
            raise ParameterError(f"'{name}' has no option --{option.replace('_', '-')}; allowed: {allowed}.")
    return make(source, **options)


def write_trips(prepared: Prepared, path: str | PathLike[str]) -> Path:
    """Writes trips as Parquet; the file appears complete or not at all."""
    import pyarrow.parquet as pq

    write_files({path: lambda file: pq.write_table(prepared.trips, file, compression="zstd")})
    return Path(path)
