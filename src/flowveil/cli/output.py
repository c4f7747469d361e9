"""What a command prints: progress and prose for a person, one JSON object for a machine.

Every command of the program takes ``--json`` and ``--quiet`` through `with_output`, so they mean the same everywhere.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from flowveil.progress import lines_every
from flowveil.reading.limits import limits


class Output:
    """Where a command prints.

    Attributes:
        as_json: print one JSON object and no prose.
        quiet: print no prose.
    """

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet or as_json

    def say(self, *lines: str) -> None:
        """Print lines for a person."""
        if not self.quiet:
            for line in lines:
                click.echo(line)

    def result(self, content: dict[str, Any]) -> None:
        """Print the result for a machine."""
        if self.as_json:
            click.echo(json.dumps(content, sort_keys=True))

    def complain(self, text: str) -> None:
        """Print a line for a person where errors go."""
        if not self.as_json:
            click.echo(text, err=True)

    def warn(self, text: str) -> None:
        """Print a warning where errors go; also with --json and --quiet, because it is about what was done."""
        click.echo(f"Warning: {text}", err=True)

    @contextmanager
    def working(self, label: str) -> Iterator[Callable[[float], None]]:
        """Show that something long is going on: a bar in a terminal, elsewhere a line every few seconds."""
        if self.quiet:
            yield lambda _: None
            return
        if not sys.stderr.isatty():
            yield lines_every(label, lambda line: click.echo(line, err=True))
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda share: bar.update(task, total=1.0, completed=share)


def with_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json and --quiet, and pass an Output."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of prose.")
    @click.option("--quiet", is_flag=True, help="Print nothing but errors.")
    @click.option("--memory-limit", metavar="SIZE", help="Most memory for the run, such as 4GB.")
    @click.option("--threads", type=int, help="Most threads that count at a time.")
    @click.option("--temp-dir", metavar="FOLDER", help="Where tables go that do not fit into the memory.")
    def wrapped(
        *,
        as_json: bool,
        quiet: bool,
        memory_limit: str | None,
        threads: int | None,
        temp_dir: str | None,
        **arguments: Any,
    ) -> Any:
        with limits(memory=memory_limit, threads=threads, temp_dir=temp_dir):
            return command(Output(as_json=as_json, quiet=quiet), **arguments)

    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    # Options declared below this decorator belong to the command as well.
    declared = getattr(command, "__click_params__", [])
    wrapped.__click_params__ = [*declared, *getattr(wrapped, "__click_params__", [])]  # type: ignore[attr-defined]
    return wrapped
