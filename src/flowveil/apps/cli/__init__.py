"""The command line: parses, calls the library, prints.

Exit codes: 0 done; 1 unexpected; 2 bad usage or bad input; 3 the guarantee cannot be met or does
not hold; 130 interrupted.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from flowveil import __version__
from flowveil.core.errors import FlowveilError, did_you_mean, speaking_of_flags

INTERRUPTED = 130
#: Commands in the order of the help: module below `flowveil.apps.cli`, and one line. Loaded when
#: they are used.
COMMANDS = {
    "demo": ("sources", "Publish a synthetic survey of Île-de-France, end to end."),
    "anonymize": ("anonymize", "Anonymise trips and publish them into a folder."),
    "run": ("anonymize", "Repeat a run from a recipe."),
    "describe": ("analysis", "Say what is in the data, and how much of it is safe already."),
    "compare": ("analysis", "Run several methods and k on the same trips."),
    "study": ("analysis", "Run the experiments of the papers."),
    "verify": ("verify", "Recount a release from the raw trips."),
    "analyze": ("analysis", "Compute the private measures of a release."),
    "audit": ("verify", "Attack published releases as a reader would."),
    "derive": ("published", "Compute a coarser table or sums from a published release."),
    "picture": ("published", "Draw a map of a release."),
    "reconstruct": ("published", "Spread the cells of a release over other areas."),
    "freeze": ("published", "Write the zones of a release into a file."),
    "series": ("series", "Publish one release for each month or day, over one map."),
    "ledger": ("series", "List the releases of a data set, withdraw one, make a backup."),
    "key": ("series", "Write a new secret key for secret thresholds."),
    "prepare": ("sources", "Make one table of trips from the files of a known data set."),
    "tabular": ("tabular", "Publish tables of records instead of trips."),
    "serve": ("serve", "Open the workbench in a browser."),
    "completion": ("serve", "Print a script that completes commands in a shell."),
}
#: The commands by what one wants to do.
GROUPS = {
    "Publish": ("demo", "describe", "anonymize", "run", "series", "prepare", "tabular"),
    "Check": ("verify", "audit", "analyze", "compare", "study"),
    "Read a release": ("derive", "reconstruct", "picture", "freeze"),
    "Operate": ("serve", "ledger", "key", "completion"),
}
#: The last line of every command's help.
EVERYWHERE = (
    "With every command: --json prints one JSON object, --quiet nothing but errors, --verbose more."
)
#: Flags that are taken anywhere on the line.
_ANYWHERE = ("--json", "--quiet", "-q", "--verbose", "-v")


def _help_all() -> click.Option:
    """Returns an option that is --help, for commands whose help lists every option."""

    def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    eager: dict[str, Any] = {"is_flag": True, "expose_value": False, "is_eager": True}
    return click.Option(["--help-all"], hidden=True, callback=show, **eager)


class Program(click.Group):
    """The program: loads a command when it is used, and takes flags of the output anywhere on the
    line.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Returns the commands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(f"flowveil.apps.cli.{COMMANDS[cmd_name][0]}"), cmd_name
        )
        for one in command.commands.values() if isinstance(command, click.Group) else [command]:
            one.epilog = EVERYWHERE
            if not any("--help-all" in option.opts for option in one.params):
                one.params.append(_help_all())
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command, or fail with the nearest name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'.{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without loading them."""
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move --json, --quiet and --verbose to the front."""
        end = args.index("--") if "--" in args else len(args)
        first = [word for word in args[:end] if word in _ANYWHERE]
        rest = [word for word in args[:end] if word not in _ANYWHERE] + args[end:]
        return super().parse_args(ctx, [*first, *rest])


@click.group(
    cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="flowveil")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object instead of prose; with every command.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors; with every command.")
@click.option("-v", "--verbose", is_flag=True, help="Print all that is published of a release.")
def cli(**_: Any) -> None:
    """Make origin-destination matrices publishable: every published cell hides at least k."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and turn errors into messages and exit codes."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not make a finished command fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        # SIGTERM is handled like an interrupt: the old release stays and the draft is removed.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Without its own error handling click returns the code of an Exit instead of raising it.
        with speaking_of_flags():
            code = cli.main(args=words, standalone_mode=False)
        if code:
            sys.exit(code)
    except click.ClickException as wrong:
        from flowveil.apps.cli.command import elsewhere

        hint = elsewhere(wrong) if isinstance(wrong, click.NoSuchOption) else None
        _fail(hint or wrong.format_message(), kind="UsageError", code=2, words=words)
    except (KeyboardInterrupt, click.Abort) as stopped:
        # click wraps the interrupt; the message of the command is inside.
        what = str(stopped.__cause__ or stopped) or "Nothing was written."
        _fail(f"Interrupted. {what}", kind="Interrupted", code=INTERRUPTED, words=words)
    except FlowveilError as error:
        _fail(str(error), kind=type(error).__name__, code=error.exit_code, words=words)
    except BrokenPipeError:
        # The reader of the output has closed it, which is not an error.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if _follows_interrupt(error):
            _fail(
                "Interrupted. Nothing was written.",
                kind="Interrupted",
                code=INTERRUPTED,
                words=words,
            )
        # The message of a foreign error may quote a row of the input: name its kind and nothing
        # else.
        if os.environ.get("FLOWVEIL_TRACEBACK"):
            raise
        name = type(error).__name__
        hint = "Hint: set FLOWVEIL_TRACEBACK=1 to see where (the trace may quote your data)."
        _fail(f"Unexpected {name}; nothing was written. {hint}", kind=name, code=1, words=words)


def _follows_interrupt(error: BaseException | None) -> bool:
    """Returns whether an interrupt led to an error.

    In the creation of a class, or while a database was closed.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _fail(message: str, *, kind: str, code: int, words: Sequence[str]) -> None:
    if "--json" in words:
        click.echo(json.dumps({"error": {"kind": kind, "message": message}}))
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)
