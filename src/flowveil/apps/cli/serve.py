"""``flowveil serve``: the workbench in a browser.

``completion``: commands and options completed in a shell.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flowveil.apps.cli.command import Output, place, with_output
from flowveil.core.errors import MissingExtraError, ParameterError


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    help="Port to listen on.",
)
@click.option("--no-open", is_flag=True, help="Do not open the page in a browser.")
@click.option(
    "--max-upload",
    default="2GB",
    show_default=True,
    metavar="SIZE",
    help="Largest file that is taken.",
)
@place(
    "--ledger",
    "DIR",
    "Compare with all earlier releases of this data set, which DIR lists, and record new ones.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--i-know-this-exposes-raw-data",
    "exposed",
    is_flag=True,
    help="Confirm a --host that other machines can reach: anyone with the address sees raw trips.",
)
@with_output
def serve(
    output: Output, *, no_open: bool, max_upload: str, ledger: str | None, **listening: Any
) -> None:
    """Open the workbench in a browser, on this machine only, until it is stopped.

    Files below the folder that it is started in can be picked in the page; others are dropped onto
    it.
    """
    from flowveil.system.limits import size_in_bytes

    try:
        from flowveil.apps.workbench.server import serve as run
    except ImportError:
        raise MissingExtraError(
            "The workbench needs its web server. Hint: pip install 'flowveil[web]'."
        ) from None

    def ready(address: str) -> None:
        output.result({"address": address})
        if not output.as_json:
            # The workbench cannot be used without the address, so it is printed with --quiet too.
            click.echo(f"The workbench is open at {address}")

    folder = None if ledger is None else Path(ledger).absolute()
    size = size_in_bytes(max_upload)
    if not size:
        raise ParameterError(f"--max-upload is a size such as 500MB or 2GB; found {max_upload!a}.")
    run(
        Path.cwd(),
        max_upload=size,
        ledger=folder,
        ready=ready,
        open_browser=not no_open,
        **listening,
    )


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
@with_output
def completion(output: Output, shell: str) -> None:
    """Print a script that completes commands and options in SHELL: bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, "click knows the three shells that are offered"
    script = complete(
        click.get_current_context().find_root().command, {}, "flowveil", "_FLOWVEIL_COMPLETE"
    ).source()
    output.say(script)
    output.result({"shell": shell, "script": script})
