"""Addresses of tables in databases: ``duckdb:FILE?table=NAME``, ``sqlite:FILE?query=SELECT ...``, ``postgresql://...``.

An address never holds a secret: passwords come from the environment or the password file of PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from flowveil.errors import ParameterError

_SCHEMES = re.compile(r"(duckdb|sqlite):(?!//)|(postgresql|postgres)://")
_FORM = "Allowed: duckdb:FILE?table=NAME, sqlite:FILE?query=SELECT ..., postgresql://host/db?table=NAME."


@dataclass(frozen=True)
class DatabaseAddress:
    """A table or the rows of a query in a database.

    Attributes:
        kind: ``duckdb``, ``sqlite`` or ``postgresql``.
        place: the file, or host and database as ``postgresql://host/db``.
        table: name of a table or view, with its schema before a dot if it has one; None for a query.
        query: a SELECT; None for a table.
    """

    kind: str
    place: str
    table: str | None
    query: str | None

    @property
    def text(self) -> str:
        """The address as users write it."""
        chosen = f"table={self.table}" if self.query is None else f"query={self.query}"
        return f"{self.place}?{chosen}" if self.kind == "postgresql" else f"{self.kind}:{self.place}?{chosen}"

    @property
    def sql(self) -> str:
        """The SELECT that reads it."""
        if self.query is not None:
            return self.query
        assert self.table is not None
        return "SELECT * FROM " + ".".join('"' + part.replace('"', '""') + '"' for part in self.table.split("."))

    def moved(self, move: Callable[[str], str]) -> str:
        """The address with the path of its file changed; that of a server stays."""
        if self.kind == "postgresql":
            return self.text
        return DatabaseAddress(self.kind, move(self.place), self.table, self.query).text


def database_address(source: str) -> DatabaseAddress | None:
    """The address in a text; None if it is a path or an address of files.

    Raises:
        ParameterError: it names neither a table nor a query, or holds a password. The message never repeats it.
    """
    scheme = _SCHEMES.match(source)
    if scheme is None:
        return None
    place, _, chosen = source.partition("?")
    kind = "postgresql" if scheme[2] else scheme[1]
    if kind == "postgresql":
        if ":" in place.partition("://")[2].rpartition("@")[0]:
            raise ParameterError(
                "The address of the input holds a password, which would end up in logs and recipes. Hint: leave it "
                "out and use the environment (PGPASSWORD) or the password file (~/.pgpass)."
            )
        place = f"postgresql://{place.partition('://')[2]}"
    else:
        place = place.partition(":")[2]
    name, _, value = chosen.partition("=")
    if name not in ("table", "query") or not value.strip() or not place.removeprefix("postgresql://"):
        raise ParameterError(f"The address of a database needs a place and a table or a query. {_FORM}")
    if name == "query" and not re.match(r"\s*(select|with)\b", value, re.IGNORECASE):
        raise ParameterError("The query of an input must be a SELECT.")
    return DatabaseAddress(kind, place, value if name == "table" else None, value if name == "query" else None)
