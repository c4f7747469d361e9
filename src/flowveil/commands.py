"""A request as a command line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from flowveil.request import Request
from flowveil.settings import Setting, is_given


def command_line(request: Request, *, program: Sequence[str] = ("flowveil", "anonymize")) -> str:
    """The command line that makes the same request, quoted for a shell."""
    words = [*program, *([] if request.input.input is None else [request.input.input])]
    for one, value in request:
        if is_given(value) and one.name != "input":
            words += words_of(one, value)
    return " ".join(shlex.quote(word) for word in words)


def words_of(one: Setting, value: Any) -> list[str]:
    """The words that give a setting on the command line."""
    if one.kind == "pairs":
        return [word for name, part in value.items() for word in (one.flag, f"{name}={_word(part)}")]
    texts = list(value) if one.kind == "list" and not one.commas else [_word(value)]
    if one.tier == "recipe":
        return [word for text in texts for word in ("--set", f"{one.path}={text}")]
    return [one.flag] if one.kind == "flag" else [word for text in texts for word in (one.flag, text)]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
