"""What commands share: options generated from `flowveil.request.request`, and what a command
prints.

A command prints progress and prose for a person, or one JSON object for a machine. The program
takes ``--json``, ``--quiet`` and ``--verbose`` anywhere on the line: they mean the same for every
command.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click

from flowveil.core.errors import ParameterError, speaking_of_flags
from flowveil.request.recipe import given_by_hand
from flowveil.request.request import REMOVED, SECTIONS, Request, find_setting, settings
from flowveil.request.settings import Section, Setting, section_settings

Command = Callable[..., Any]

#: Prefix of settings among the parameters of a command, which has an argument called source.
_PREFIX = "setting_"
#: Options of every command that reads trips: what has a flag for `anonymize`. Commands that
#: recount a release read its trips as it states, and take them to read them otherwise.
READING = tuple(
    one.name
    for one in settings(call=("reading", "map"), tier=("common", "all"))
    if one.section != "numbers"
    and one.name not in ("input", "by", "by_many", "every", "key_file", "record_id")
)
#: Removed options, and what to do instead.
_GONE = dict.fromkeys(
    ("--internal-report", "--internal-profile"),
    "`flowveil analyze RELEASE --against INPUT --out DIR` writes the private pages",
)


class Output:
    """Where a command prints: prose unless it is quiet, one JSON object if a machine reads."""

    def __init__(self, *, as_json: bool, quiet: bool, verbose: bool = False) -> None:
        self.as_json = as_json
        self.verbose = verbose
        self.quiet = quiet or as_json

    def say(self, *lines: str) -> None:
        """Print lines for a person."""
        for line in () if self.quiet else lines:
            click.echo(line)

    def result(self, content: dict[str, Any]) -> None:
        """Print the result for a machine."""
        if self.as_json:
            click.echo(json.dumps(content, sort_keys=True))

    def complain(self, *lines: str) -> None:
        """Print lines for a person where errors go."""
        for line in () if self.as_json else lines:
            click.echo(line, err=True)

    def warn(self, text: str) -> None:
        """Print a warning where errors go.

        Also with --json and --quiet, because it is about what was done.
        """
        click.echo(f"Warning: {text}", err=True)

    @contextmanager
    def working(self, label: str) -> Iterator[Callable[[float], None]]:
        """Show that something long is going on: a bar in a terminal, elsewhere a line every few
        seconds.
        """
        if self.quiet:
            yield lambda _: None
            return
        if not sys.stderr.isatty():
            from flowveil.system.progress import lines_every

            yield lines_every(label, lambda line: click.echo(line, err=True))
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda share: bar.update(task, total=1.0, completed=share)


def with_output(command: Command) -> Command:
    """Pass an `Output`; the program takes --json and --quiet with every command."""

    @wraps(command)
    def wrapped(**arguments: Any) -> Any:
        from flowveil.core.guarantee import SmallKWarning
        from flowveil.methods.epsilon import WeakPromiseWarning

        chosen = click.get_current_context().find_root().params
        with warnings.catch_warnings():
            # Commands say it in their own words.
            warnings.simplefilter("ignore", WeakPromiseWarning)
            warnings.simplefilter("ignore", SmallKWarning)
            output = Output(**{name: chosen[name] for name in ("as_json", "quiet", "verbose")})
            return command(output, **arguments)

    return wrapped


class _Place(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A path; an empty one is refused at once."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        from flowveil.system.paths import named_path

        called = (
            "a file"
            if param is None
            else param.metavar
            if isinstance(param, click.Argument)
            else param.opts[0]
        )
        named_path(value, what=str(called))
        return str(value)


PLACE = _Place()


def numbers(
    kind: Callable[[str], Any], count: int | None = None
) -> Callable[[Any, Any, str | None], Any]:
    """Returns a callback that reads numbers separated by commas, ``count`` of them."""

    def read(_context: Any, _parameter: Any, value: str | None) -> tuple[Any, ...] | None:
        try:
            found = (
                None
                if value is None
                else tuple(kind(part) for part in value.split(",") if part.strip())
            )
        except ValueError:
            found = ()
        if found is not None and (not found or len(found) != (count or len(found))):
            of = "whole numbers" if kind is int else "numbers"
            raise click.BadParameter(
                f"'{value}' must be {count or ''} {of}, comma-separated.".replace("  ", " ")
            )
        return found

    return read


def named_values(
    flag: str, texts: Sequence[str], kinds: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    """Returns the values of texts NAME=VALUE.

    Refuses other names, and values that cannot be read.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in kinds:
            raise ParameterError(
                f"{flag} is NAME=VALUE, with one of {', '.join(kinds)}; found '{text}'."
            )
        try:
            found[name] = kinds[name](value.strip())
        except (ValueError, KeyError):
            raise ParameterError(f"{flag} {name} cannot be '{value}'.") from None
    return found


def options(*declared: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Add options to a command, in the order in which its help lists them."""

    def add(command: Command) -> Command:
        for option in reversed(declared):
            command = option(command)
        return command

    return add


def several(flag: str, name: str, metavar: str, meaning: str, **more: Any) -> Callable[[Any], Any]:
    """Returns an option that may be given several times."""
    return click.option(flag, name, multiple=True, metavar=metavar, help=meaning, **more)


def place(flag: str, metavar: str | None, meaning: str, **more: Any) -> Callable[[Any], Any]:
    """Returns an option that is a path."""
    return click.option(flag, type=PLACE, metavar=metavar, help=meaning, **more)


def setting_option(
    one: Setting, *, required: bool = False, meaning: str | None = None
) -> Callable[[Any], Any]:
    """The click option of a setting."""
    kinds: dict[str, Any] = {"whole": int, "number": float}
    text = meaning or help_text(one)
    if one.is_flag:
        return click.option(one.flag, _PREFIX + one.name, is_flag=True, default=None, help=text)
    return click.option(
        one.flag,
        _PREFIX + one.name,
        type=PLACE if one.form == "path" else kinds.get(one.kind),
        required=required,
        multiple=one.is_list or one.is_pairs,
        metavar=one.metavar,
        help=text,
    )


def help_text(one: Setting, *, brief: bool = False) -> str:
    """The help of a setting: meaning, allowed values, default.

    Brief without long lists and sentences as defaults.
    """
    listed = one.allowed and (isinstance(one.allowed, str) or "|" not in one.metavar)
    choices = (
        f" One of: {', '.join(one.choices)}."
        if listed and not (brief and len(one.choices) > 4)
        else ""
    )
    words = isinstance(one.default, str) and one.default not in one.allowed
    default = "" if one.default is None or (brief and words) else f" [default: {one.default}]"
    return f"{one.meaning}{choices}{default}"


_ANY_SETTING = (
    "Any setting of docs/reference/options.md, such as people.person_case=keep (repeatable)."
)
set_option = several("--set", "changes", "NAME=VALUE", _ANY_SETTING)
_recipe_option = place("--recipe", "FILE", "Take settings from a recipe; options win over it.")


def with_request(
    *names: str, required: Sequence[str] = (), **meanings: str
) -> Callable[[Command], Command]:
    """Give a command options of settings, some with another meaning, --recipe and --set.

    It gets a `Request`.
    """

    def add(command: Command) -> Command:
        @wraps(command)
        def wrapped(*arguments: Any, **given: Any) -> Any:
            recipe, changes = given.pop("recipe"), given.pop("changes")
            request = request_from(
                {name: given.pop(_PREFIX + name) for name in names}, recipe, changes
            )
            return command(*arguments, request=request, **given)

        declared = [
            setting_option(
                find_setting(name), required=name in required, meaning=meanings.get(name)
            )
            for name in names
        ]
        return options(*declared, _recipe_option, set_option)(wrapped)

    return add


def with_section(section: type[Section]) -> Callable[[Command], Command]:
    """Give a command the options of a section outside the request.

    It gets the section as ``wishes``.
    """

    def add(command: Command) -> Command:
        described = section_settings(section)

        @wraps(command)
        def wrapped(*arguments: Any, **given: Any) -> Any:
            wishes = section(
                **{one.name: _value(one, given.pop(_PREFIX + one.name)) for one in described}
            )
            return command(*arguments, wishes=wishes, **given)

        return options(*(setting_option(one) for one in described))(wrapped)

    return add


def request_from(given: Mapping[str, Any], recipe: str | None, changes: Sequence[str]) -> Request:
    """Returns the request of options, a recipe and changes.

    Options override the recipe, changes both.
    """
    values = {name: _value(find_setting(name), value) for name, value in given.items()}
    return given_by_hand(Request.from_flat(values), recipe, changes)


def _value(one: Setting, given: Any) -> Any:
    if one.is_list:
        return tuple(part for text in given for part in one.parse(text))
    if one.is_pairs:
        for text in given:
            if "=" not in text:
                raise ParameterError(f"{one.flag} must be NAME=VALUE; found '{text}'.")
        pairs = (text.partition("=") for text in given)
        return {name.strip(): value.strip() for name, _, value in pairs}
    return given


class RequestCommand(click.Command):
    """A command with many options: ``--help`` lists the common ones, ``--help-all`` every setting
    by topic.
    """

    #: Whether the short help lists the options that are no settings.
    shows_own = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        show: dict[str, Any] = {
            "is_flag": True,
            "expose_value": False,
            "is_eager": True,
            "callback": _show_all,
        }
        self.params.append(click.Option(["--help-all"], help="Show every setting.", **show))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options, or all of them by topic."""
        records = {
            p.opts[0]: p.get_help_record(ctx)
            for p in self.get_params(ctx)
            if isinstance(p, click.Option)
        }
        rows = {flag: record for flag, record in records.items() if record is not None}
        known = {one.flag: one for one in settings()}
        own = [row for flag, row in rows.items() if flag not in known]
        if not ctx.meta.get("flowveil.help_all"):
            first = ("out", "k", "protect")
            common = {one.name: one for one in settings() if one.tier == "common"}
            order = [*first, *(name for name in common if name not in first)]
            brief = [
                (rows[common[n].flag][0], help_text(common[n], brief=True))
                for n in order
                if common[n].flag in rows
            ]
            with formatter.section("Options"):
                formatter.write_dl([*(own if self.shows_own else []), *brief])
            return
        for section in SECTIONS.values():
            described = [one for one in section_settings(section) if one.name != "input"]
            usual = {
                one.flag: (f"--set {one.path}={one.metavar or 'true'}", help_text(one))
                for one in described
            }
            with formatter.section(section.heading):
                formatter.write_dl([rows.get(flag, row) for flag, row in usual.items()])
        with formatter.section("This command"):
            formatter.write_dl(own)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write where to find all settings."""
        if not ctx.meta.get("flowveil.help_all"):
            formatter.write_paragraph()
            formatter.write_text(
                "More: --help-all lists every setting by topic."
                + ("" if self.shows_own else " --save-recipe FILE keeps a run.")
            )
        super().format_epilog(ctx, formatter)


class PublishCommand(RequestCommand):
    """The command whose short help fits on a screen."""

    shows_own = False


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta["flowveil.help_all"] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def elsewhere(wrong: click.NoSuchOption) -> str | None:
    """Returns how to give a setting without an option in the command.

    None for an unknown setting.
    """
    flag = wrong.option_name
    if flag in _GONE:
        return f"The option {flag} was removed: {_GONE[flag]}."
    for one in settings():
        if one.flag == flag:
            if wrong.ctx is not None and wrong.ctx.command.name == "series":
                from flowveil.publishing.series.steps import REFUSED, refusal_of

                if one.name in REFUSED:
                    with speaking_of_flags():
                        return refusal_of([one.name])
            return (
                f"This command has no option {flag}. Hint: --set"
                f" {one.path}={one.metavar or 'true'}, or a recipe."
            )
    reason = REMOVED.get(flag.removeprefix("--").replace("-", "_"))
    return None if reason is None else f"The option {flag} was removed. {reason}"
