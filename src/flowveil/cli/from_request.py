"""Options of commands, generated from `flowveil.request`; a command gets the `Request` that they make up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import click

from flowveil.recipe import given_by_hand
from flowveil.request import SECTIONS, Request, find_setting, settings
from flowveil.settings import Section, Setting, section_settings

Command = Callable[..., Any]

#: Prefix of settings among the parameters of a command, which has an argument called source.
_PREFIX = "setting_"
#: Options of commands that read trips, except those whose release says how its trips were read.
READING = (
    "origin", "destination", "origin_tile", "destination_tile", "person", "trips", "weight", "zones", "resolution",
    "time",
)  # fmt: skip
#: Removed options, and what to do instead.
_GONE = {
    "--internal-report": "`flowveil analyze RELEASE --against INPUT --out DIR` writes the private pages",
    "--internal-profile": "`flowveil analyze RELEASE --against INPUT --out DIR` writes the private pages",
}
#: Settings that the short help shows.
_COMMON: tuple[Literal["common"]] = ("common",)


class _Place(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A path; an empty one is refused at once."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        from flowveil.paths import named_path

        called = "a file" if param is None else param.metavar if isinstance(param, click.Argument) else param.opts[0]
        named_path(value, what=str(called))
        return str(value)


PLACE = _Place()


def options(*declared: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Add options to a command, in the order in which its help lists them."""

    def add(command: Command) -> Command:
        for option in reversed(declared):
            command = option(command)
        return command

    return add


def request_option(name: str, *, required: bool = False, meaning: str | None = None) -> Callable[[Any], Any]:
    """The click option of a setting of a request."""
    return setting_option(find_setting(name), required=required, meaning=meaning)


def setting_option(one: Setting, *, required: bool = False, meaning: str | None = None) -> Callable[[Any], Any]:
    """The click option of a setting."""
    kinds: dict[str, Any] = {"whole": int, "number": float}
    kind = PLACE if one.form == "path" else kinds.get(one.kind)
    if one.kind == "flag":
        return click.option(one.flag, _PREFIX + one.name, is_flag=True, default=None, help=meaning or help_text(one))
    return click.option(
        one.flag,
        _PREFIX + one.name,
        type=kind,
        required=required,
        multiple=one.kind in ("list", "pairs"),
        metavar=one.metavar,
        help=meaning or help_text(one),
    )


def help_text(one: Setting, *, brief: bool = False) -> str:
    """The help of a setting: meaning, allowed values where the metavar does not list them, default.

    Args:
        one: the setting.
        brief: omit long lists and defaults that are sentences.
    """
    listed = one.allowed and (isinstance(one.allowed, str) or "|" not in one.metavar)
    choices = f" One of: {', '.join(one.choices)}." if listed and not (brief and len(one.choices) > 4) else ""
    words = isinstance(one.default, str) and one.default not in one.allowed
    default = "" if one.default is None or (brief and words) else f" [default: {one.default}]"
    return f"{one.meaning}{choices}{default}"


set_option = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any setting of docs/reference/options.md, such as people.person_case=keep (repeatable).",
)
recipe_options = options(
    click.option("--recipe", type=PLACE, metavar="FILE", help="Take settings from a recipe; options win over it."),
    set_option,
)


def with_request(*names: str, required: Sequence[str] = (), **meanings: str) -> Callable[[Command], Command]:
    """Give a command the options of settings, --recipe and --set; it gets the `Request` as ``request``.

    Args:
        names: of the settings.
        required: those that must be given.
        **meanings: help of settings that mean something else in this command.
    """

    def add(command: Command) -> Command:
        def wrapped(*arguments: Any, **given: Any) -> Any:
            recipe, changes = given.pop("recipe"), given.pop("changes")
            request = request_from({name: given.pop(_PREFIX + name) for name in names}, recipe, changes)
            return command(*arguments, request=request, **given)

        wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
        wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
        declared = [request_option(name, required=name in required, meaning=meanings.get(name)) for name in names]
        return options(*declared, recipe_options)(wrapped)

    return add


def with_section(section: type[Section]) -> Callable[[Command], Command]:
    """Give a command the options of a section outside the request; it gets the section as ``wishes``."""

    def add(command: Command) -> Command:
        described = section_settings(section)

        def wrapped(*arguments: Any, **given: Any) -> Any:
            wishes = section(**{one.name: _value(one, given.pop(_PREFIX + one.name)) for one in described})
            return command(*arguments, wishes=wishes, **given)

        wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
        wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
        return options(*(setting_option(one) for one in described))(wrapped)

    return add


def request_from(given: Mapping[str, Any], recipe: str | None, changes: Sequence[str]) -> Request:
    """Returns the request of options, a recipe and changes; options override the recipe, changes both."""
    values = {name: _value(find_setting(name), value) for name, value in given.items()}
    return given_by_hand(Request.from_flat(values), recipe, changes)


def _value(one: Setting, given: Any) -> Any:
    from flowveil.errors import ParameterError

    if one.kind == "list":
        return tuple(part for text in given for part in one.parse(text))
    if one.kind == "pairs":
        for text in given:
            if "=" not in text:
                raise ParameterError(f"{one.flag} must be NAME=VALUE; found '{text}'.")
        pairs = (text.partition("=") for text in given)
        return {name.strip(): value.strip() for name, _, value in pairs}
    return given


class RequestCommand(click.Command):
    """A command with many options: ``--help`` lists the common ones, ``--help-all`` every setting by topic."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(_help_all())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options, or all of them by topic."""
        records = {p.opts[0]: p.get_help_record(ctx) for p in self.get_params(ctx) if isinstance(p, click.Option)}
        rows = {flag: record for flag, record in records.items() if record is not None}
        everything = bool(ctx.meta.get("flowveil.help_all"))
        if not everything:
            first = ("out", "k", "protect")
            common = {one.name: one for one in settings(tier=_COMMON)}
            order = [*first, *(name for name in common if name not in first)]
            with formatter.section("Options"):
                formatter.write_dl([(rows[common[n].flag][0], help_text(common[n], brief=True)) for n in order])
            return
        for section in SECTIONS.values():
            described = [_row(one, rows) for one in section_settings(section) if one.name != "input"]
            with formatter.section(section.heading):
                formatter.write_dl(described)
        named = {one.flag for one in settings()}
        with formatter.section("This command"):
            formatter.write_dl([row for flag, row in rows.items() if flag not in named])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write where to find all settings."""
        if not ctx.meta.get("flowveil.help_all"):
            formatter.write_paragraph()
            formatter.write_text("More: --help-all lists every setting by topic. --save-recipe FILE keeps a run.")
        super().format_epilog(ctx, formatter)


def _row(one: Setting, rows: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    if one.flag in rows:
        return rows[one.flag]
    return f"--set {one.path}={one.metavar or 'true'}", help_text(one)


def elsewhere(flag: str) -> str | None:
    """Returns how to give a setting without an option in the command; None for an unknown setting."""
    if flag in _GONE:
        return f"The option {flag} was removed: {_GONE[flag]}."
    known = {one.flag: one for one in settings()}
    if flag not in known:
        return None
    one = known[flag]
    return f"This command has no option {flag}. Hint: --set {one.path}={one.metavar or 'true'}, or a recipe."


def _help_all() -> click.Option:
    def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            ctx.meta["flowveil.help_all"] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    return click.Option(
        ["--help-all"], is_flag=True, expose_value=False, is_eager=True, callback=show, help="Show every setting."
    )
