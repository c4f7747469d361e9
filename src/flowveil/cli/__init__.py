"""The command line: parses, calls the library, prints for people. No logic of its own.

Exit codes: 0 done; 1 unexpected; 2 bad usage or bad input; 3 the guarantee cannot be met or does not hold;
130 interrupted.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence

import click

from flowveil import __version__
from flowveil.cli import (
    analyze,
    anonymize,
    audit,
    compare,
    completion,
    demo,
    describe,
    freeze,
    picture,
    prepare,
    reconstruct,
    series,
    serve,
    study,
    tabular,
    verify,
)
from flowveil.disclosure.confirmation import SmallKWarning
from flowveil.errors import FlowveilError, speaking_of_flags
from flowveil.methods.epsilon import WeakPromiseWarning

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="flowveil")
def cli() -> None:
    """Make origin-destination matrices publishable: every published cell hides at least k."""


cli.add_command(demo.demo)
cli.add_command(anonymize.anonymize)
cli.add_command(describe.describe)
cli.add_command(compare.compare)
cli.add_command(study.study)
cli.add_command(verify.verify)
cli.add_command(analyze.analyze)
cli.add_command(audit.audit)
cli.add_command(picture.picture)
cli.add_command(reconstruct.reconstruct)
cli.add_command(freeze.freeze)
cli.add_command(series.series)
cli.add_command(prepare.prepare)
cli.add_command(tabular.tabular)
cli.add_command(serve.serve)
cli.add_command(completion.completion)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and turn errors into messages and exit codes."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        # A sign that the terminal cannot show must not turn a finished command into a failed one.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        # A polite kill is an interrupt: it must leave the old release in place and no draft behind.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Without its own error handling click returns the code of an Exit instead of raising it.
        with warnings.catch_warnings(), speaking_of_flags():
            # Commands say it in their own words.
            warnings.simplefilter("ignore", WeakPromiseWarning)
            warnings.simplefilter("ignore", SmallKWarning)
            code = cli.main(args=words, standalone_mode=False)
        if code:
            sys.exit(code)
    except click.ClickException as wrong:
        _fail(wrong.format_message(), kind="UsageError", code=2, words=words)
    except (KeyboardInterrupt, click.Abort) as stopped:
        # click wraps the interrupt; what a command has to say of it is inside.
        what = str(stopped.__cause__ or stopped) or "Nothing was written."
        _fail(f"Interrupted. {what}", kind="Interrupted", code=INTERRUPTED, words=words)
    except FlowveilError as error:
        _fail(str(error), kind=type(error).__name__, code=error.exit_code, words=words)
    except BrokenPipeError:
        # The reader of our output has gone, which is not our failure.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            # Python 3.11 wraps an interrupt that comes while a class is being made, as in an import.
            _fail("Interrupted. Nothing was written.", kind="Interrupted", code=INTERRUPTED, words=words)
        # The message of a foreign error may quote a row of the input: name its kind and nothing else.
        if os.environ.get("FLOWVEIL_TRACEBACK"):
            raise
        _fail(
            f"Unexpected {type(error).__name__}; nothing was written. "
            "Hint: set FLOWVEIL_TRACEBACK=1 to see where (the trace may quote your data).",
            kind=type(error).__name__,
            code=1,
            words=words,
        )


def _fail(message: str, *, kind: str, code: int, words: Sequence[str]) -> None:
    if "--json" in words:
        click.echo(json.dumps({"error": {"kind": kind, "message": message}}))
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)
