"""Every command that reads trips takes the options of reading under the same flags."""

from __future__ import annotations

import click
import pytest

from flowveil.apps.cli import COMMANDS, GROUPS, cli
from flowveil.apps.cli.command import READING
from flowveil.request.request import find_setting


@pytest.mark.parametrize("name", ["describe", "compare", "study", "series", "verify", "analyze"])
def test_options_of_reading_have_the_flags_of_anonymize(name):
    flags = {flag for one in cli.get_command(None, name).params for flag in one.opts}
    wanted = {find_setting(one).flag for one in READING}
    of_anonymize = {f for one in cli.get_command(None, "anonymize").params for f in one.opts}
    assert wanted <= of_anonymize
    assert wanted <= flags
    assert {"--matrix", "--zones-root", "--during", "--timezone", "--crs"} <= wanted
    assert "--help-all" in flags


def test_the_help_lists_every_command_in_one_group():
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    text = cli.get_help(click.Context(cli))
    assert all(f"{heading}:" in text for heading in GROUPS)
