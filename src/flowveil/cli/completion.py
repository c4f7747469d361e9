"""``flowveil completion``: a script that completes commands and options in a shell."""

from __future__ import annotations

import click

from flowveil.cli.output import Output, with_output

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@with_output
def completion(output: Output, shell: str) -> None:
    """Print a script that completes commands and options in SHELL: bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, "click knows the three shells that are offered"
    script = complete(click.get_current_context().find_root().command, {}, "flowveil", "_FLOWVEIL_COMPLETE").source()
    output.say(script)
    output.result({"shell": shell, "script": script})
