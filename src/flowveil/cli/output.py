"""What a command prints: progress and prose for a person, one JSON object for a machine.

The program takes ``--json`` and ``--quiet`` anywhere on the line, so they mean the same for every command.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click


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
            from flowveil.progress import lines_every

            yield lines_every(label, lambda line: click.echo(line, err=True))
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda share: bar.update(task, total=1.0, completed=share)


def with_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Pass an `Output`; the program takes --json and --quiet with every command."""

    def wrapped(**arguments: Any) -> Any:
        from flowveil.methods.epsilon import WeakPromiseWarning
        from flowveil.release.confirmation import SmallKWarning

        chosen = click.get_current_context().find_root().params
        with warnings.catch_warnings():
            # Commands say it in their own words.
            warnings.simplefilter("ignore", WeakPromiseWarning)
            warnings.simplefilter("ignore", SmallKWarning)
            return command(Output(as_json=chosen["as_json"], quiet=chosen["quiet"]), **arguments)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    # Options declared below this decorator belong to the command as well.
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return wrapped
