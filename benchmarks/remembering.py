"""Verify that asks the same question once: what `benchmarks.fuzz_verify` needs to try many folders.

Of a changed folder most files are as they were, and so is most of what verify works out. Here every answer of DuckDB is
kept under all that it can depend on: the statements before it in the same recount, its own text and values, and the
bytes of the files that it names. The same holds for the few other steps that take long. What has not been asked before
is worked out by verify as ever, after the statements so far; in a database that is opened once and emptied after each
folder, because opening one takes longer than all that is asked of it. Nothing is left out, and a test holds that the
findings are those of verify alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from glob import escape
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from flowveil.paths import read_json
from flowveil.published import html
from flowveil.verify import binaries, database, parquet, recount
from flowveil.verify.database import Database

#: Before the name of a view among those of tables.
_VIEW = "view "
_TABLES = ("flows.parquet", "zones.parquet")


class Memory:
    """What is known of the folders that were in one place.

    Args:
        place: the folder that is verified, whatever is in it.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.known: dict[Any, Any] = {}
        self._open = ExitStack()
        self._database: Database | None = None
        self._left_out: Callable[[], Any] | None = None

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within the block verify looks up what is known, and adds to it."""
        with ExitStack() as stack:
            for module, name, instead in (
                (recount, "opened", self.opened),
                (recount, "read_report", self.report),
                (recount, "check_layouts", self.layouts),
                (recount, "on_halves", self.by_objects(_ON_HALVES)),
                (recount, "to_the_top", self.by_objects(_TO_THE_TOP)),
                (recount, "check_outlines", self.outlines),
                (recount, "check_rewriting", self.rewriting),
                (recount, "_count", self.count),
                (recount, "_check_counted", self.counted),
                (parquet, "read_layout", self.layout),
                (recount, "read_layout", self.layout),
                (html, "render", self.page),
            ):
                stack.enter_context(patch.object(module, name, instead))
            of_binaries = {suffix: self.binary(check) for suffix, check in binaries._CHECKS.items()}
            stack.enter_context(patch.object(binaries, "_CHECKS", of_binaries))
            yield

    def database(self) -> Database:
        """The one that is opened; empty, or with the tables of the folder that is being verified."""
        if self._database is None:
            # Files of the same name change all the time.
            settings = {"enable_external_file_cache": False, "threads": 1}
            with patch.object(database, "duckdb_settings", lambda: settings):
                self._database = self._open.enter_context(database.opened(self.place))
        return self._database

    def empty(self, names: Sequence[str]) -> None:
        """Drop tables and views; where that fails, the next folder gets a new database."""
        import duckdb

        try:
            if self._database is not None:
                for name in reversed(names):
                    kind = "VIEW" if name.startswith(_VIEW) else "TABLE"
                    self._database._connection.execute(f"DROP {kind} IF EXISTS {name.removeprefix(_VIEW)}")
        except duckdb.Error:
            self.close()

    def close(self) -> None:
        """Close the database."""
        self._database = None
        self._open.close()

    def bytes_of(self, *names: str) -> bytes:
        return b"".join(_digest((self.place / name).read_bytes()) for name in names)

    def found(self, key: Any, work: Callable[[], Any]) -> Any:
        if key not in self.known:
            self.known[key] = work()
        return self.known[key]

    @contextmanager
    def opened(self, place: Path) -> Iterator[Database]:
        assert place == self.place
        db = _Remembered(self)
        try:
            yield db
        finally:
            self.empty(db.there)

    def report(self, place: Path) -> Any:
        """Only what the schema says: nobody else gets the same report to change."""
        key = ("report", self.bytes_of("report.json"))
        if key not in self.known:
            report, findings = _READ_REPORT(place)
            self.known[key] = report is None, findings
            return report, list(findings)
        none, findings = self.known[key]
        return (None if none else read_json(place / "report.json")), list(findings)

    def layouts(self, place: Path, *, most_rows: int | None) -> list[str]:
        key = ("layouts", self.bytes_of(*_TABLES), most_rows)
        return list(self.found(key, lambda: _CHECK_LAYOUTS(place, most_rows=most_rows)))

    def by_objects(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Of the holder's own flows, which stay the same objects; they are kept, so that no other takes their place."""

        def remembered(flows: Any, **options: Any) -> Any:
            key = (work.__name__, id(flows), tuple(options.items()))
            return self.found(key, lambda: (work(flows, **options), flows))[0]

        return remembered

    def outlines(self, zones: Any, flows: Any, kind: str) -> list[str]:
        key = ("outlines", _digest(_packed(zones)), id(flows), kind)
        return list(self.found(key, lambda: (list(_CHECK_OUTLINES(zones, flows, kind)), flows))[0])

    def rewriting(self, db: Any, place: Path, zones: Any, unread: list[str]) -> list[str]:
        def work() -> Any:
            lines: list[str] = []
            return list(_CHECK_REWRITING(db, place, zones, lines)), lines

        findings, lines = self.found(("rewriting", self.bytes_of(*_TABLES)), work)
        unread += lines
        return list(findings)

    def count(self, db: Any, zones: Any, report: Any, flows: Any, held_against: Any) -> list[str]:
        """No other file plays a part in what is counted."""
        expect, holder, unread = held_against
        key = ("count", self.bytes_of(*_TABLES, "report.json"), id(flows), repr(holder.earlier))

        def work() -> Any:
            lines: list[str] = []
            return _COUNT(db, zones, report, flows, (expect, holder, lines)), lines, flows

        # What follows from the counts may have to be asked for, though they are known: then they are counted after all.
        self._left_out = work if key in self.known else None
        findings, lines, _ = self.found(key, work)
        unread += lines
        return list(findings)

    def counted(self, db: Any, report: Any, flows: Any, holder: Any, unread: list[str], *, sound: bool) -> list[str]:
        """Nor in what follows from it."""
        key = ("counted", self.bytes_of(*_TABLES, "report.json"), id(flows), repr(holder.earlier), sound)

        def work() -> Any:
            if self._left_out is not None:
                self._left_out()
            lines: list[str] = []
            return _CHECK_COUNTED(db, report, flows, holder, lines, sound=sound), lines, flows

        findings, lines, _ = self.found(key, work)
        unread += lines
        return list(findings)

    def layout(self, path: Path) -> Any:
        return self.found(("layout", self.bytes_of(path.name)), lambda: _READ_LAYOUT(path))

    def page(self, report: Any, flows: Any, zones: Any, **further: Any) -> str:
        key = ("page", self.bytes_of("report.json"), _digest(_packed(flows)), _digest(_packed(zones)), repr(further))
        return str(self.found(key, lambda: _RENDER(report, flows, zones, **further)))

    def binary(self, check: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(path: Path, tables: Any) -> list[str]:
            def work() -> Any:
                lines: list[str] = []
                asked = binaries.Tables(tables.flows, tables.zones, tables.written_by, lines, tables.about)
                return list(check(path, asked)), lines

            key = ("binary", path.name, self.bytes_of(path.name, *_TABLES), repr(tables.about))
            findings, lines = self.found(key, work)
            tables.unread.extend(lines)
            return list(findings)

        return remembered


class _Remembered(Database):
    """What one recount sees: statements are run when something new is asked after them.

    Attributes:
        there: the tables and views that are in the real database.
    """

    def __init__(self, memory: Memory) -> None:
        # Without a connection: whatever is asked here is looked up, or asked of the memory's own database.
        super().__init__(None)
        self._memory = memory
        self._state = b""
        self._waiting: list[tuple[str, Callable[[Database], None]]] = []
        self.there: list[str] = []

    def create(self, name: str, query: str, values: Any = ()) -> None:
        self._write(name, ("create", name, query), values, lambda db: db.create(name, query, values))

    def define(self, name: str, query: str) -> None:
        self._write(_VIEW + name, ("define", name, query), (), lambda db: db.define(name, query))

    def store(self, name: str, table: Any) -> None:
        self._write(name, ("store", name, _digest(_packed(table))), (), lambda db: db.store(name, table))

    def rows(self, query: str, values: Any = ()) -> list[tuple[Any, ...]]:
        return list(self._ask(("rows", query), values, lambda db: db.rows(query, values)))

    def masked(self, query: str, values: Any = ()) -> dict[str, Any]:
        found = self._ask(("masked", query), values, lambda db: db.masked(query, values))
        return {name: column.copy() for name, column in found.items()}

    @contextmanager
    def batches(self, path: Path, rows: int) -> Iterator[Any]:
        key = ("batches", self._memory.bytes_of(path.name), rows)
        if key in self._memory.known:
            schema, batches = self._memory.known[key]
            yield pa.RecordBatchReader.from_batches(schema, batches)
            return
        with self._memory.database().batches(path, rows) as reader:
            read: list[Any] = []
            yield _Noted(reader, read)
            # Only what was read to its end is known.
            if read and read[-1] is None:
                self._memory.known[key] = reader.schema, read[:-1]

    def _asked(self) -> Database:
        """The real database, with all that was written so far."""
        db = self._memory.database()
        for name, write in self._waiting:
            self.there.append(name)
            write(db)
        self._waiting.clear()
        return db

    def _write(self, name: str, what: Any, values: Any, work: Callable[[Database], None]) -> None:
        key = self._key(what, values)
        outcome = self._memory.known.get(key)
        if outcome is None:
            self.there.append(name)
            outcome = self._memory.known[key] = self._tried(work)
        elif outcome[0]:
            # Answers that are known need no table; what is asked next may.
            self._waiting.append((name, work))
        self._state = _digest(repr(key).encode())
        _result(outcome)

    def _ask(self, what: Any, values: Any, work: Callable[[Database], Any]) -> Any:
        key = self._key(what, values)
        if key not in self._memory.known:
            self._memory.known[key] = self._tried(work)
        return _result(self._memory.known[key])

    def _tried(self, work: Callable[[Database], Any]) -> tuple[bool, Any]:
        import duckdb

        try:
            return True, work(self._asked())
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error as problem:
            return False, problem.with_traceback(None)

    def _key(self, what: Any, values: Any) -> Any:
        inside = escape(str(self._memory.place))
        named = [str(value) for value in values if str(value).startswith(inside)]
        files = self._memory.bytes_of(*(name.removeprefix(inside).lstrip("/") for name in named))
        assert inside not in repr(what)
        return (self._state, what, repr(values), files)


class _Noted:
    """A reader of batches that notes what it hands out, and None at its end."""

    def __init__(self, reader: Any, read: list[Any]) -> None:
        self.schema = reader.schema
        self._reader = reader
        self._read = read

    def __iter__(self) -> Iterator[Any]:
        for batch in self._reader:
            self._read.append(batch)
            yield batch
        self._read.append(None)


def _result(outcome: tuple[bool, Any]) -> Any:
    done, found = outcome
    if not done:
        raise type(found)(*found.args)
    return found


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _packed(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


#: What is asked where nothing is known.
_READ_REPORT, _CHECK_OUTLINES, _CHECK_REWRITING = recount.read_report, recount.check_outlines, recount.check_rewriting
_ON_HALVES, _TO_THE_TOP, _CHECK_LAYOUTS = recount.on_halves, recount.to_the_top, recount.check_layouts
_COUNT, _CHECK_COUNTED = recount._count, recount._check_counted
_READ_LAYOUT, _RENDER = parquet.read_layout, html.render
