"""Manual pages from the command line's own help: `python tools/manual.py FOLDER` writes a page a command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from flowveil import __version__
from flowveil.apps.cli import cli


def pages(
    command: click.Command, words: tuple[str, ...] = ("flowveil",)
) -> Iterator[tuple[str, str]]:
    """Name and text of the page of a command and of every command inside it."""
    yield "-".join(words) + ".1", page(command, words)
    for name, inner in _commands(command).items():
        yield from pages(inner, (*words, name))


def _commands(command: click.Command) -> dict[str, click.Command]:
    """The commands inside a group, which are loaded lazily."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {name: inner for name, inner in found.items() if inner is not None}


def page(command: click.Command, words: tuple[str, ...]) -> str:
    """One manual page, in the language of man."""
    context = click.Context(command, info_name=" ".join(words))
    lines = [
        f'.TH "{"-".join(words).upper()}" "1" "" "flowveil {__version__}" "flowveil"',
        ".SH NAME",
        f"{_plain('-'.join(words))} \\- {_plain(command.get_short_help_str(200))}",
        ".SH SYNOPSIS",
        f".B {_plain(' '.join(words))}",
        _plain(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *(f"{_plain(part)}\n.PP" for part in (command.help or "").split("\n\n")),
    ]
    records = [r for p in command.get_params(context) if (r := p.get_help_record(context))]
    if records:
        lines.append(".SH OPTIONS")
        lines += [f".TP\n.B {_plain(names)}\n{_plain(words_)}" for names, words_ in records]
    if commands := _commands(command):
        lines.append(".SH COMMANDS")
        lines += [
            f".TP\n.B {_plain(name)}\n{_plain(inner.get_short_help_str(200))}\nSee"
            f" {'-'.join((*words, name))}(1)."
            for name, inner in sorted(commands.items())
        ]
    lines += [
        ".SH EXIT STATUS",
        (
            "0 done; 1 unexpected; 2 bad usage or bad input; 3 the guarantee cannot be met or does"
            " not hold;"
        ),
        "130 interrupted.",
    ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text with the commands of man escaped."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(cli):
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(list(folder.glob('*.1')))} pages in {folder}")
