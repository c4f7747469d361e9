"""Addresses of tables and queries in databases, without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from flowveil.core.errors import ParameterError

_SCHEMES = re.compile(r"(duckdb|sqlite):(?!//)|(postgresql|postgres)://")
_FORM = (
    "Allowed: duckdb:FILE?table=NAME, sqlite:FILE?query=SELECT ...,"
    " postgresql://host/db?table=NAME."
)


@dataclass(frozen=True)
class DatabaseAddress:
    """A table or the rows of a query in a database of kind ``duckdb``, ``sqlite`` or
    ``postgresql``.

    The place is a file, or host and database as ``postgresql://host/db``. A table may have its
    schema before a dot.
    """

    kind: str
    place: str
    table: str | None
    query: str | None

    @property
    def is_server(self) -> bool:
        """Whether the database is on a server, not in a file."""
        return self.kind == "postgresql"

    @property
    def text(self) -> str:
        """The address in the form that users write."""
        chosen = f"table={self.table}" if self.query is None else f"query={self.query}"
        return f"{self.place}?{chosen}" if self.is_server else f"{self.kind}:{self.place}?{chosen}"

    def moved(self, move: Callable[[str], str]) -> str:
        """Returns the address with the path of its file changed.

        The address of a server stays the same.
        """
        return self.text if self.is_server else replace(self, place=move(self.place)).text


def database_address(source: str) -> DatabaseAddress | None:
    """Returns the address in a text; None if it is a path or an address of files."""
    scheme = _SCHEMES.match(source)
    if scheme is None:
        return None
    place, _, chosen = source.partition("?")
    kind = "postgresql" if scheme[2] else scheme[1]
    if kind == "postgresql":
        if ":" in place.partition("://")[2].rpartition("@")[0]:
            raise ParameterError(
                "The address of the input holds a password, which would end up in logs and recipes."
                " Hint: leave it out and use the environment (PGPASSWORD) or the password file"
                " (~/.pgpass)."
            )
        place = f"postgresql://{place.partition('://')[2]}"
    else:
        place = place.partition(":")[2]
    name, _, value = chosen.partition("=")
    if (
        name not in ("table", "query")
        or not value.strip()
        or not place.removeprefix("postgresql://")
    ):
        raise ParameterError(
            f"The address of a database needs a place and a table or a query. {_FORM}"
        )
    if name == "query" and not re.match(r"\s*(select|with)\b", value, re.IGNORECASE):
        raise ParameterError("The query of an input must be a SELECT.")
    return DatabaseAddress(
        kind, place, value if name == "table" else None, value if name == "query" else None
    )
