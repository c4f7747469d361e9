"""``flowveil tabular``: mondrian, ipf and compare. Reads, calls, writes; errors pass to the program's one handler."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from flowveil.cli.from_request import options
from flowveil.cli.output import Output, with_output
from flowveil.errors import DataError, ParameterError
from flowveil.methods.epsilon import weakness

Taken = TypeVar("Taken")


def _numbers(kind: Callable[[str], Any]) -> Callable[[Any, Any, str], tuple[Any, ...]]:
    """Returns a callback that reads numbers separated by commas."""

    def read(_context: Any, _parameter: Any, value: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(part) for part in value.split(","))
        except ValueError:
            raise click.BadParameter(f"'{value}' is not a list of numbers separated by commas.") from None

    return read


def _budget(_context: Any, _parameter: Any, value: str) -> float | None:
    """Read a number, or none."""
    try:
        return None if value.lower() == "none" else float(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is neither a number nor none.") from None


_QUASI = "A quasi-identifier (repeatable)."
_IDENTIFIER = "A direct identifier: dropped (repeatable)."
_NO_IDENTIFIERS = "Say that the table has no direct identifiers."
_COLUMN = (
    "A setting of a quasi-identifier (repeatable): kind=numeric|ordered|unordered, order=A,B,C, hierarchy=FILE, "
    "grid=STEP, fine_grid=true, public_range=MIN:MAX."
)
_SET = (
    "Another setting (repeatable): positive, priorn (numbers with commas), repeats, classifier_k, classifier_epsilon, "
    "classifier_priorn, noise, delta, domains (FILE), bins (FILE), diagnostics (true)."
)
_MISSING = "A text that marks a missing value, such as '?' (repeatable)."
_VARIABLE = "A column to synthesise (repeatable); by default those of the margins, or all."
_MARGIN = "A margin to keep (repeatable); by default all pairs."
_DOMAINS = "JSON: the categories of each column; null among them allows missing values."
_BINS = "JSON: the edges of the bins of numeric columns."
_ALLOW = "Publish this column unchanged, although it identifies people (repeatable)."
_NOISE = "The distribution of the noise: laplace for epsilon, gaussian for epsilon and --delta."
_CHOOSE = "Cut the widest quasi-identifier, or the one with the most distinct values."


_columns = options(
    click.option("--choose", type=click.Choice(["width", "distinct"]), default="width", help=_CHOOSE),
    click.option("--quasi", multiple=True, required=True, metavar="COLUMN", help=_QUASI),
    click.option("--identifier", "identifiers", multiple=True, metavar="COLUMN", help=_IDENTIFIER),
    click.option("--no-identifiers", is_flag=True, help=_NO_IDENTIFIERS),
    click.option("--allow-identifier", "allowed", multiple=True, metavar="COLUMN", help=_ALLOW),
    click.option("--column", "settings", multiple=True, metavar="COLUMN.NAME=VALUE", help=_COLUMN),
    click.option("--missing", multiple=True, metavar="TEXT", help=_MISSING),
)


_noise = options(
    click.option("--noise", type=click.Choice(["laplace", "gaussian"]), default="laplace", help=_NOISE),
    click.option("--delta", type=float, help="δ with --noise gaussian, at most 1e-5."),
)


@dataclass(frozen=True)
class _Columns:
    """Roles and kinds of columns, as given on the command line."""

    choose: str
    quasi: Sequence[str]
    identifiers: Sequence[str]
    no_identifiers: bool
    allowed: Sequence[str]
    settings: Sequence[str]

    def roles(self) -> dict[str, Any]:
        """Return them as arguments of the library."""
        return {
            "quasi_identifiers": self._attributes(),
            "direct_identifiers": list(self.identifiers),
            "allow_identifiers": self.allowed,
            "choose": self.choose,
        }

    def check(self) -> None:
        """Raise ParameterError unless direct identifiers are named, or their absence is confirmed."""
        if bool(self.identifiers) == self.no_identifiers:
            raise ParameterError(
                "Direct identifiers must be named: give --identifier for each column to drop, or --no-identifiers."
            )

    def _attributes(self) -> list[Any]:
        given = _settings_of_columns(self.settings)
        strange = sorted(set(given) - set(self.quasi))
        if strange:
            raise ParameterError(f"Not among the quasi-identifiers: {', '.join(strange)}.")
        return [_attribute(name, given.get(name, {})) for name in self.quasi]


def _attribute(name: str, given: Mapping[str, str]) -> Any:
    from flowveil.tabular.records import Attribute, read_value_hierarchy

    return Attribute(
        name,
        kind=given.get("kind"),
        order=tuple(given["order"].split(",")) if "order" in given else None,
        hierarchy=read_value_hierarchy(given["hierarchy"]) if "hierarchy" in given else None,
        grid=given.get("grid"),
        fine_grid=given.get("fine_grid") == "true",
        public_range=_range(given["public_range"]) if "public_range" in given else None,
    )


#: COLUMN.NAME=VALUE; a column may have dots in its name.
_SETTING = re.compile(r"(?P<column>.+)\.(?P<name>kind|order|hierarchy|grid|fine_grid|public_range)=(?P<value>.+)")


def _settings_of_columns(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns the settings of each column."""
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        match = _SETTING.fullmatch(text)
        if match is None:
            raise ParameterError(f"--column needs COLUMN.NAME=VALUE, such as age.grid=5; found '{text}'.")
        found.setdefault(match["column"], {})[match["name"]] = match["value"].strip()
    return found


def _taken(kind: type[Taken], given: dict[str, Any]) -> Taken:
    """Take the fields of a dataclass out of what was given on the command line."""
    return kind(**{field.name: given.pop(field.name) for field in fields(kind)})  # type: ignore[arg-type]


def _range(text: str) -> tuple[str | None, str | None]:
    # The colon in the middle separates the ends: times contain colons too.
    parts = text.split(":")
    half = len(parts) // 2
    if len(parts) % 2 or text == ":":
        raise ParameterError(f"public_range needs MIN:MAX, either left out if not public; found '{text}'.")
    low, high = ":".join(parts[:half]), ":".join(parts[half:])
    return low.strip() or None, high.strip() or None


def _read_json(path: str | None, what: str) -> dict[str, list[Any]] | None:
    if path is None:
        return None
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(f"The {what} file '{path}' is not a readable JSON file.") from None
    if not isinstance(content, dict) or not all(isinstance(v, list) for v in content.values()):
        raise DataError(f"The {what} file '{path}' must hold one object: a list for each column.")
    return content


def _check_release(out: str) -> None:
    """Raise before any work if the table or its report cannot be written."""
    from flowveil.output import check_file
    from flowveil.tabular.records import check_output

    check_output(out)
    check_file(_report_path(out))


def _write_release(table: Any, report: dict[str, Any], out: str) -> Path:
    """Write the table and its report, both or neither; return the path of the report."""
    from flowveil.tabular.records import write_records

    beside = _report_path(out)
    write_records(table, out, beside={beside: json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False) + "\n"})
    return beside


def _report_path(out: str) -> Path:
    return Path(out).with_suffix(".report.json")


@click.group("tabular")
def tabular() -> None:
    """Tables of records: k-anonymity (mondrian), differential privacy (ipf), and both compared."""


@tabular.command("mondrian")
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, metavar="FILE", help="Output file (.csv or .parquet).")
@click.option("--k", type=int, required=True, help="Fewest records of a class.")
@_columns
@click.option("--sensitive", multiple=True, metavar="COLUMN", help="Published unchanged, protected by l and t.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Published unchanged, not protected.")
@click.option("--l", "diversity", type=int, help="Fewest distinct sensitive values of a class.")
@click.option("--t", "closeness", type=float, help="Largest distance of a class from the table, 0 to 1.")
@click.option("--strict/--relaxed", default=False, help="Classes whose regions do not overlap, or finer classes.")
@with_output
def mondrian_command(output: Output, source: str, out: str, k: int, **given: Any) -> None:
    """Generalise quasi-identifiers until every class of equal records has at least k.

    Every column needs a role; a column without one is an error.
    """
    from flowveil.tabular.domains import code_columns
    from flowveil.tabular.mondrian import CLASS_COLUMN, anonymize_records
    from flowveil.tabular.records import read_records
    from flowveil.tabular.risk import describe_classes

    columns, missing = _taken(_Columns, given), given.pop("missing")
    columns.check()
    _check_release(out)
    l, t = given.pop("diversity"), given.pop("closeness")  # noqa: E741
    records, roles = read_records(source, missing=missing), columns.roles()
    release = anonymize_records(records, k=k, l=l, t=t, **roles, **given)
    for name in code_columns(records, roles["quasi_identifiers"]):
        output.warn(
            f"Column '{name}' holds few whole numbers and is cut as a number, its lowest and highest values in open "
            f"ranges; 'tabular compare' takes it for categories. If they are codes: --column {name}.kind=ordered."
        )
    keys = [*release.quasi_identifiers, CLASS_COLUMN]
    classes = describe_classes(release.table, quasi_identifiers=keys, k=k)
    report = {
        "method": "mondrian",
        "partitioning": "strict" if given["strict"] else "relaxed",
        "guarantee": {name: value for name, value in (("k", k), ("l", l), ("t", t)) if value is not None},
        "quasi_identifiers": list(release.quasi_identifiers),
        "grids": {name: grid.to_dict() for name, grid in release.grids.items()},
        "sensitive": list(release.sensitive),
        "kept": list(release.kept),
        "measures": {
            "records": classes.n_records,
            "classes": classes.n_classes,
            "smallest_class": classes.k,
            "mean_class": classes.mean,
            "c_dm": classes.c_dm,
            "c_avg": classes.c_avg,
            "ncp": release.information_loss(),
        },
        "statement": release.statement(),
    }
    beside = _write_release(release.table, report, out)
    output.say(
        f"{classes.n_records:,} records in {classes.n_classes:,} classes of {classes.k:,} or more; C_DM "
        f"{classes.c_dm:,}."
    )
    output.result({"out": out, "report": str(beside), **report})


@tabular.command("ipf")
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, metavar="FILE", help="Output file (.csv or .parquet).")
@click.option("--epsilon", callback=_budget, required=True, help="The privacy budget, or none (not private).")
@click.option("--variable", "variables", multiple=True, metavar="COLUMN", help=_VARIABLE)
@click.option("--margin", "margins", multiple=True, metavar="A*B", help=_MARGIN)
@click.option("--priorn", type=float, default=0.0, help="Records spread evenly over each margin's cells.")
@_noise
@click.option("--domains", metavar="FILE", help=_DOMAINS)
@click.option("--bins", metavar="FILE", help=_BINS)
@click.option("--domains-from-data", is_flag=True, help="Take the categories in the data as public knowledge.")
@click.option("--records", "n_records", type=int, help="How many records to draw, as public knowledge.")
@click.option("--max-cells", type=int, default=10_000_000, show_default=True, help="Largest table of the fit.")
@click.option("--seed", type=int, help="For a repeatable synthesis; only with --epsilon none.")
@click.option("--missing", multiple=True, metavar="TEXT", help=_MISSING)
@with_output
def ipf_command(output: Output, source: str, out: str, epsilon: float | None, **given: Any) -> None:
    """Draw synthetic records from noisy margins: differentially private for one record added or removed."""
    from flowveil.tabular.ipf import synthesize_records
    from flowveil.tabular.records import read_records

    _check_release(out)
    records = read_records(source, missing=given.pop("missing"))
    made = synthesize_records(records, epsilon=epsilon, prior_count=given.pop("priorn"), **_fit(given), **given)
    beside = _write_release(made.table, made.report(), out)
    output.say(f"{made.n_records:,} synthetic records; gap {made.gap:.2g} after {made.cycles} rounds.")
    output.say(made.statement())
    weak = weakness(epsilon) if epsilon is not None else None
    if weak:
        output.warn(weak)
    output.result({"out": out, "report": str(beside), **made.report()})


def _fit(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of IPF's columns and return them as arguments."""
    fit: dict[str, Any] = {name: _read_json(given.pop(name), name) for name in ("domains", "bins")}
    fit["margins"] = [text.split("*") for text in given.pop("margins")] or None
    if "variables" in given:
        fit["variables"] = given.pop("variables") or None
    return fit


def _settings_of_comparison(texts: Sequence[str]) -> dict[str, Any]:
    """Returns the settings of a comparison without an option, with their defaults."""
    kinds: dict[str, tuple[Callable[[str], Any], Any]] = {
        "positive": (str, None),
        "priorn": (lambda text: tuple(float(part) for part in text.split(",")), (0.0, 0.1, 0.5, 1.0)),
        "repeats": (int, 15),
        "classifier_k": (int, 10),
        "classifier_epsilon": (float, 1.0),
        "classifier_priorn": (float, 0.1),
        "noise": (str, "laplace"),
        "delta": (float, None),
        "domains": (str, None),
        "bins": (str, None),
        "diagnostics": (lambda text: {"true": True, "false": False}[text], False),
    }
    found = {name: default for name, (_, default) in kinds.items()}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in kinds:
            raise ParameterError(f"--set is NAME=VALUE, with one of {', '.join(kinds)}; found '{text}'.")
        try:
            found[name] = kinds[name][0](value.strip())
        except (ValueError, KeyError):
            raise ParameterError(f"--set {name} cannot be '{value}'.") from None
    return found


@tabular.command("compare", context_settings={"show_default": True})
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, metavar="DIR", help="Folder for tables and figures. Not for publication.")
@_columns
@click.option("--sensitive", required=True, metavar="COLUMN", help="The sensitive column; what is predicted.")
@click.option("--k", "ks", callback=_numbers(int), default="2,5,10,15,20", help="The k to try.")
@click.option("--epsilon", "epsilons", callback=_numbers(float), default="0.2,0.5,1,2", help="The epsilon to try.")
@click.option("--margin", "margins", multiple=True, metavar="A*B", help=_MARGIN)
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help=_SET)
@with_output
def compare_command(output: Output, source: str, out: str, **given: Any) -> None:
    """Sweep k, ε and the prior count, and write tables and figures of privacy and utility."""
    from flowveil.tabular.compare import WARNING, Grid, Margins, Roles, check_folder, compare_records
    from flowveil.tabular.records import read_records

    check_folder(out)
    more = _settings_of_comparison(given.pop("changes"))
    columns, missing = _taken(_Columns, given), given.pop("missing")
    columns.check()
    records = read_records(source, missing=missing)
    roles = Roles(**columns.roles(), sensitive=given.pop("sensitive"), positive=more["positive"])
    files = {name: more[name] for name in ("domains", "bins")}
    fit = Margins(**_fit({**files, "margins": given.pop("margins")}), noise=more["noise"], delta=more["delta"])
    tried = ("repeats", "classifier_k", "classifier_epsilon")
    grid = Grid(
        ks=given.pop("ks"),
        epsilons=given.pop("epsilons"),
        priors=more["priorn"],
        classifier_prior=more["classifier_priorn"],
        **{name: more[name] for name in tried},
    )
    progress = None if output.quiet else lambda line: click.echo(line, err=True)
    comparison = compare_records(
        records, roles, grid=grid, fit=fit, progress=progress, diagnostics=more["diagnostics"], **given
    )
    comparison.write(out)
    for note in comparison.notes:
        output.warn(note)
    output.say(f"Tables and figures are in '{out}'. {WARNING}")
    output.result({"comparison": out, "warning": WARNING, "parameters": comparison.parameters})
