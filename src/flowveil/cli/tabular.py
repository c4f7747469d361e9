"""``flowveil tabular``: mondrian, ipf and compare. Reads, calls, writes; errors pass to the program's one handler."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from flowveil.cli.command import Output, named_values, numbers, options, with_output
from flowveil.errors import DataError, ParameterError
from flowveil.methods.epsilon import weakness


def _budget(_context: Any, _parameter: Any, value: str) -> float | None:
    """Read a number, or none."""
    try:
        return None if value.lower() == "none" else float(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is neither a number nor none.") from None


_IDENTIFIER = "A direct identifier: dropped (repeatable)."
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
_ALLOW = "Publish this column unchanged, although it identifies people (repeatable)."
_NOISE = "The distribution of the noise: laplace for epsilon, gaussian for epsilon and --delta."
_CHOOSE = "Cut the widest quasi-identifier, or the one with the most distinct values."


_columns = options(
    click.option("--choose", type=click.Choice(["width", "distinct"]), default="width", help=_CHOOSE),
    click.option("--quasi", multiple=True, required=True, metavar="COLUMN", help="A quasi-identifier (repeatable)."),
    click.option("--identifier", "identifiers", multiple=True, metavar="COLUMN", help=_IDENTIFIER),
    click.option("--no-identifiers", is_flag=True, help="Say that the table has no direct identifiers."),
    click.option("--allow-identifier", "allowed", multiple=True, metavar="COLUMN", help=_ALLOW),
    click.option("--column", "settings", multiple=True, metavar="COLUMN.NAME=VALUE", help=_COLUMN),
    click.option("--missing", multiple=True, metavar="TEXT", help=_MISSING),
)


_noise = options(
    click.option("--noise", type=click.Choice(["laplace", "gaussian"]), default="laplace", help=_NOISE),
    click.option("--delta", type=float, help="δ with --noise gaussian, at most 1e-5."),
)


def _roles(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of columns and return them as arguments of the library.

    Raises:
        ParameterError: direct identifiers are neither named nor said to be absent, or a setting is wrong.
    """
    from flowveil.tabular.records import Attribute, read_value_hierarchy

    quasi, identifiers = given.pop("quasi"), list(given.pop("identifiers"))
    if bool(identifiers) == given.pop("no_identifiers"):
        raise ParameterError(
            "Direct identifiers must be named: give --identifier for each column to drop, or --no-identifiers."
        )
    settings = _settings_of_columns(given.pop("settings"))
    strange = sorted(set(settings) - set(quasi))
    if strange:
        raise ParameterError(f"Not among the quasi-identifiers: {', '.join(strange)}.")
    attributes = []
    for name in quasi:
        own = settings.get(name, {})
        attributes.append(
            Attribute(
                name,
                kind=own.get("kind"),
                order=tuple(own["order"].split(",")) if "order" in own else None,
                hierarchy=read_value_hierarchy(own["hierarchy"]) if "hierarchy" in own else None,
                grid=own.get("grid"),
                fine_grid=own.get("fine_grid") == "true",
                public_range=_range(own["public_range"]) if "public_range" in own else None,
            )
        )
    return {
        "quasi_identifiers": attributes,
        "direct_identifiers": identifiers,
        "allow_identifiers": given.pop("allowed"),
        "choose": given.pop("choose"),
    }


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
    from flowveil.tabular.mondrian import anonymize_records
    from flowveil.tabular.records import read_records

    roles, missing = _roles(given), given.pop("missing")
    _check_release(out)
    l, t = given.pop("diversity"), given.pop("closeness")  # noqa: E741
    records = read_records(source, missing=missing)
    release = anonymize_records(records, k=k, l=l, t=t, **roles, **given)
    for name in code_columns(records, roles["quasi_identifiers"]):
        output.warn(
            f"Column '{name}' holds few whole numbers and is cut as a number, its lowest and highest values in open "
            f"ranges; 'tabular compare' takes it for categories. If they are codes: --column {name}.kind=ordered."
        )
    report, classes = release.report(), release.classes
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
@click.option("--bins", metavar="FILE", help="JSON: the edges of the bins of numeric columns.")
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
    beside, fitted = _write_release(made.table, made.report, out), made.report["fit"]
    output.say(
        f"{made.table.num_rows:,} synthetic records; gap {fitted['gap']:.2g} after {fitted['cycles']} rounds.\n"
        + made.report["statement"]
    )
    weak = weakness(epsilon) if epsilon is not None else None
    if weak:
        output.warn(weak)
    output.result({"out": out, "report": str(beside), **made.report})


def _fit(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of IPF's columns and return them as arguments."""
    fit: dict[str, Any] = {name: _read_json(given.pop(name), name) for name in ("domains", "bins")}
    fit["margins"] = [text.split("*") for text in given.pop("margins")] or None
    if "variables" in given:
        fit["variables"] = given.pop("variables") or None
    return fit


#: Settings of a comparison without an option, and their defaults.
_KINDS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("positive", "noise", "domains", "bins"), str),
    **dict.fromkeys(("repeats", "classifier_k"), int),
    **dict.fromkeys(("classifier_epsilon", "classifier_priorn", "delta"), float),
    "priorn": lambda text: tuple(float(part) for part in text.split(",")),
    "diagnostics": lambda text: {"true": True, "false": False}[text],
}
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("positive", "domains", "bins", "delta")),
    "priorn": (0.0, 0.1, 0.5, 1.0), "repeats": 15, "classifier_k": 10, "classifier_epsilon": 1.0,
    "classifier_priorn": 0.1, "noise": "laplace", "diagnostics": False,
}  # fmt: skip


@tabular.command("compare", context_settings={"show_default": True})
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, metavar="DIR", help="Folder for tables and figures. Not for publication.")
@_columns
@click.option("--sensitive", required=True, metavar="COLUMN", help="The sensitive column; what is predicted.")
@click.option("--k", "ks", callback=numbers(int), default="2,5,10,15,20", help="The k to try.")
@click.option("--epsilon", "epsilons", callback=numbers(float), default="0.2,0.5,1,2", help="The epsilon to try.")
@click.option("--margin", "margins", multiple=True, metavar="A*B", help=_MARGIN)
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help=_SET)
@with_output
def compare_command(output: Output, source: str, out: str, **given: Any) -> None:
    """Sweep k, ε and the prior count, and write tables and figures of privacy and utility."""
    from flowveil.tabular.compare import WARNING, Grid, Margins, Roles, check_folder, compare_records
    from flowveil.tabular.records import read_records

    check_folder(out)
    more = {**_DEFAULTS, **named_values("--set", given.pop("changes"), _KINDS)}
    columns, records = _roles(given), read_records(source, missing=given.pop("missing"))
    roles = Roles(**columns, sensitive=given.pop("sensitive"), positive=more["positive"])
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
