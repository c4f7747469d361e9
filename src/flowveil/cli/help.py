"""The help of a command with many options: those that are used most first, the others in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import click

#: Where an option goes that no group names: most are about reading.
REST = "Input"


class GroupedCommand(click.Command):
    """A command whose help lists its options in groups.

    Attributes:
        groups: options by the title of their group, in order; those of a group that no list names go to `REST`.
    """

    groups: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        records = {p: p.get_help_record(ctx) for p in self.get_params(ctx)}
        of_name = {option: p for p in records for option in p.opts}
        named = {option for options in self.groups.values() for option in options}
        for title, options in self.groups.items():
            listed = [of_name[option] for option in options if option in of_name]
            if title == REST:
                listed += [p for p in records if not named & set(p.opts)]
            rows = [record for p in listed if (record := records[p]) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
