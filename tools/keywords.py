"""Writes src/flowveil/request/keywords.py: the keywords of calls, from the settings of a request.

.venv/bin/python tools/keywords.py            writes it
.venv/bin/python tools/keywords.py --check    1 if it differs
"""

from __future__ import annotations

import sys
from pathlib import Path

from flowveil.published.about import ENTRIES
from flowveil.request.request import settings
from flowveil.request.settings import Setting

TARGET = Path(__file__).parents[1] / "src/flowveil/request/keywords.py"
TYPES = {
    "text": "str",
    "whole": "int",
    "number": "float",
    "flag": "bool",
    "list": "str | Iterable[str]",
    "pairs": "Mapping[str, Any]",
}
#: Python takes more than texts here: tables, maps, pairs of names.
OF_PYTHON = {
    **dict.fromkeys(("zones", "within"), "Any"),
    **dict.fromkeys(("origin", "destination"), "str | tuple[str, str] | None"),
    "every": "str | None",
}
#: Columns of the ends, and what all readers of trips share.
COLUMNS = ("resolution", "origin", "destination", "person", "weight")
TIMES = ("time", "every")
OF_FOLDERS = ("formats", "ledger", "replace_stronger")
HEAD = '''"""Keywords of calls, typed for editors and mypy.

Made by tools/keywords.py from the settings of `flowveil.request.request`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, TypedDict

'''
CLASSES: tuple[tuple[str, str, str, tuple[str, ...], tuple[tuple[str, str], ...]], ...] = (
    (
        "FurtherReading",
        "TypedDict, total=False",
        "How to read trips, besides ends, persons and times.",
        (),
        (),
    ),
    (
        "TimelessReading",
        "FurtherReading, total=False",
        "How to read trips, besides their times.",
        COLUMNS,
        (
            ("engine", "str"),
            ("progress", "Callable[[float], None] | None"),
            ("ask_person", "bool"),
        ),
    ),
    (
        "ReadingKeywords",
        "TimelessReading, total=False",
        "How to read trips: `flowveil.read_trips`.",
        TIMES,
        (),
    ),
    ("AboutKeywords", "TypedDict, total=False", "What a release is about.", tuple(ENTRIES), ()),
    (
        "FolderKeywords",
        "AboutKeywords, total=False",
        "How to write a folder: a derived release.",
        OF_FOLDERS,
        (("overwrite", "bool"),),
    ),
    (
        "WritingKeywords",
        "FolderKeywords, total=False",
        "How to write a release: `Release.write`.",
        ("basemap", "context", "accept_differencing", "epsilon_total"),
        (),
    ),
)


def type_of(one: Setting) -> str:
    """The type of a keyword; None means that it is not given."""
    if one.name in OF_PYTHON:
        return OF_PYTHON[one.name]
    text = "str | PathLike[str]" if one.form == "path" else TYPES[one.kind]
    in_words = isinstance(one.default, str) and one.default not in one.allowed
    optional = one.kind in ("text", "whole", "number") and (one.default is None or in_words)
    return f"{text} | None" if optional else text


def content() -> str:
    """The text of the module."""
    known = {one.name: one for one in settings(call=("reading", "write"))}
    parts = [HEAD]
    for name, bases, meaning, listed, further in CLASSES:
        others = [one.name for one in settings(call="reading")]
        names = listed or [n for n in others if n not in (*COLUMNS, *TIMES)]
        lines = [f"    {n}: {type_of(known[n])}" for n in names]
        lines += [f"    {n}: {kind}" for n, kind in further]
        body = "\n".join(lines)
        parts.append(f'\nclass {name}({bases}):\n    """{meaning}"""\n\n{body}\n\n')
    return "".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    made = content()
    if "--check" in sys.argv[1:]:
        sys.exit(TARGET.read_text("utf-8") != made)
    TARGET.write_text(made, "utf-8")
