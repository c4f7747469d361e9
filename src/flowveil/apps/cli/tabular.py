"""``flowveil tabular``: mondrian, ipf and compare.

Reads, calls, writes; errors pass to the program's one handler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from flowveil.apps.cli.command import Output, named_values, numbers, options, several, with_output
from flowveil.core.errors import DataError, ParameterError
from flowveil.methods.epsilon import weakness


def _names(_context: Any, _parameter: Any, values: tuple[str, ...]) -> tuple[str, ...]:
    """Splits lists of columns: ``--quasi a,b`` and ``--quasi a --quasi b`` are the same."""
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _budget(_context: Any, _parameter: Any, value: str) -> float | None:
    """Read a number, or none."""
    try:
        return None if value.lower() == "none" else float(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is neither a number nor none.") from None


_COLUMN = (
    "A setting of a quasi-identifier (repeatable): kind=numeric|ordered|unordered, order=A,B,C,"
    " hierarchy=FILE, grid=STEP, fine_grid=true, public_range=MIN:MAX."
)
_SET = (
    "Another setting (repeatable): positive, priorn (numbers with commas), repeats, classifier_k,"
    " classifier_epsilon, classifier_priorn, domains (FILE), bins (FILE), diagnostics (true)."
)
_VARIABLE = "A column to synthesise (repeatable); by default those of the margins, or all."
_DOMAINS = "JSON: the categories of each column; null among them allows missing values."
_ALLOW = "Publish this column unchanged, although it identifies people (repeatable)."
_NOISE = "The distribution of the noise: laplace for epsilon, gaussian for epsilon and --delta."
_CHOOSE = "Cut the widest quasi-identifier, or the one with the most distinct values."


_missing = several(
    "--missing", "missing", "TEXT", "A text that marks a missing value, such as '?' (repeatable)."
)
_margins = several(
    "--margin", "margins", "A*B", "A margin to keep (repeatable); by default all pairs."
)
_columns = options(
    click.option(
        "--choose", type=click.Choice(["width", "distinct"]), default="width", help=_CHOOSE
    ),
    several(
        "--quasi",
        "quasi",
        "COLUMN,...",
        "A quasi-identifier (repeatable).",
        callback=_names,
    ),
    several(
        "--identifier",
        "identifiers",
        "COLUMN,...",
        "A direct identifier: dropped (repeatable).",
        callback=_names,
    ),
    click.option(
        "--no-identifiers", is_flag=True, help="Say that the table has no direct identifiers."
    ),
    several("--allow-identifier", "allowed", "COLUMN,...", _ALLOW, callback=_names),
    several("--column", "settings", "COLUMN.NAME=VALUE", _COLUMN),
    _missing,
)


def _roles(given: dict[str, Any], source: str) -> dict[str, Any]:
    """Removes the options of columns and returns them as arguments.

    ParameterError if no quasi-identifier is named, or identifiers are not declared.
    """
    from flowveil.tabular.records import (
        Attribute,
        read_records,
        read_value_hierarchy,
        refuse_unnamed_roles,
    )

    if not given["quasi"]:
        sensitive = given.get("sensitive") or ()
        named = [sensitive] if isinstance(sensitive, str) else list(sensitive)
        named += [*given.get("keep", ()), *given["identifiers"]]
        refuse_unnamed_roles(read_records(source), named)
    quasi, identifiers = given.pop("quasi"), list(given.pop("identifiers"))
    if bool(identifiers) == given.pop("no_identifiers"):
        raise ParameterError(
            "Direct identifiers must be named: give --identifier for each column to drop, or"
            " --no-identifiers."
        )
    parse: dict[str, Callable[[str], Any]] = {
        "kind": str,
        "order": lambda text: tuple(text.split(",")),
        "hierarchy": read_value_hierarchy,
        "grid": str,
        "fine_grid": lambda text: text == "true",
        "public_range": _range,
    }
    settings: dict[str, dict[str, Any]] = {name: {} for name in quasi}
    for text in given.pop("settings"):
        # COLUMN.NAME=VALUE; a column may have dots in its name.
        match = re.fullmatch(rf"(.+)\.({'|'.join(parse)})=(.+)", text)
        if match is None:
            raise ParameterError(
                f"--column needs COLUMN.NAME=VALUE, such as age.grid=5; found '{text}'."
            )
        column, name, value = match.groups()
        if column not in settings:
            raise ParameterError(f"Not among the quasi-identifiers: {column}.")
        settings[column][name] = parse[name](value.strip())
    return {
        "quasi_identifiers": [Attribute(name, **settings[name]) for name in quasi],
        "direct_identifiers": identifiers,
        "allow_identifiers": given.pop("allowed"),
        "choose": given.pop("choose"),
    }


def _range(text: str) -> tuple[str | None, str | None]:
    # The colon in the middle separates the ends: times contain colons too.
    parts = text.split(":")
    half = len(parts) // 2
    if len(parts) % 2 or text == ":":
        raise ParameterError(
            f"public_range needs MIN:MAX, either left out if not public; found '{text}'."
        )
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


def _check_release(out: str) -> Path:
    """Return the path of the report; raise before any work if it or the table cannot be written."""
    from flowveil.system.output import check_file
    from flowveil.tabular.records import check_output

    check_output(out)
    report = Path(out).with_suffix(".report.json")
    check_file(report)
    return report


def _write_release(
    output: Output, out: str, path: Path, table: Any, report: dict[str, Any]
) -> None:
    """Write the table and its report, both or neither, and print the report for a machine."""
    from flowveil.tabular.records import write_records

    write_records(
        table,
        out,
        beside={path: json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False) + "\n"},
    )
    output.result({"out": out, "report": str(path), **report})


@click.group("tabular")
def tabular() -> None:
    """Tables of records: k-anonymity (mondrian), differential privacy (ipf), and both compared."""


@tabular.command("mondrian")
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, metavar="FILE", help="Output file (.csv or .parquet).")
@click.option("--k", type=int, required=True, help="Fewest records of a class.")
@_columns
@several(
    "--sensitive",
    "sensitive",
    "COLUMN,...",
    "Published unchanged, protected by l and t.",
    callback=_names,
)
@several("--keep", "keep", "COLUMN,...", "Published unchanged, not protected.", callback=_names)
@click.option("--l", type=int, help="Fewest distinct sensitive values of a class.")
@click.option("--t", type=float, help="Largest distance of a class from the table, 0 to 1.")
@click.option(
    "--entropy-l", type=float, help="Fewest equally frequent sensitive values of such entropy."
)
@click.option(
    "--recursive-c", type=float, help="With --l: most frequent value over the rest, at most."
)
@click.option(
    "--stop-at-first",
    is_flag=True,
    help="A class whose widest (or most distinct) column has no allowed cut is final.",
)
@click.option(
    "--strict/--relaxed",
    default=False,
    help="Classes whose regions do not overlap, or finer classes.",
)
@with_output
def mondrian_command(output: Output, source: str, out: str, k: int, **given: Any) -> None:
    """Generalise quasi-identifiers until every class of equal records has at least k.

    Every column needs a role; a column without one is an error.
    """
    from flowveil.tabular.domains import code_columns
    from flowveil.tabular.mondrian import anonymize_records
    from flowveil.tabular.records import read_records

    roles, path = _roles(given, source), _check_release(out)
    records = read_records(source, missing=given.pop("missing"))
    release = anonymize_records(records, k=k, **roles, **given)
    for name in code_columns(records, roles["quasi_identifiers"]):
        output.warn(
            f"Column '{name}' holds few whole numbers and is cut as a number; 'tabular compare'"
            f" takes it for categories. If they are codes: --column {name}.kind=ordered."
        )
    _write_release(output, out, path, release.table, release.report())
    found = release.classes
    output.say(
        f"{found.n_records:,} records in {found.n_classes:,} classes of {found.k:,} or more; C_DM"
        f" {found.c_dm:,}."
    )


@tabular.command("ipf")
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, metavar="FILE", help="Output file (.csv or .parquet).")
@click.option(
    "--epsilon", callback=_budget, required=True, help="The privacy budget, or none (not private)."
)
@several("--variable", "variables", "COLUMN,...", _VARIABLE, callback=_names)
@_margins
@click.option(
    "--priorn", type=float, default=0.0, help="Records spread evenly over each margin's cells."
)
@click.option("--noise", type=click.Choice(["laplace", "gaussian"]), default="laplace", help=_NOISE)
@click.option("--delta", type=float, help="δ with --noise gaussian, at most 1e-5.")
@click.option("--domains", metavar="FILE", help=_DOMAINS)
@click.option("--bins", metavar="FILE", help="JSON: the edges of the bins of numeric columns.")
@click.option(
    "--domains-from-data", is_flag=True, help="Take the categories in the data as public knowledge."
)
@click.option(
    "--records", "n_records", type=int, help="How many records to draw, as public knowledge."
)
@click.option(
    "--max-cells", type=int, default=10_000_000, show_default=True, help="Largest table of the fit."
)
@click.option("--seed", type=int, help="For a repeatable synthesis; only with --epsilon none.")
@_missing
@with_output
def ipf_command(output: Output, source: str, out: str, epsilon: float | None, **given: Any) -> None:
    """Draw synthetic records from noisy margins.

    Differentially private for one record added or removed.
    """
    from flowveil.tabular.ipf import synthesize_records
    from flowveil.tabular.records import read_records

    path = _check_release(out)
    records = read_records(source, missing=given.pop("missing"))
    made = synthesize_records(
        records, epsilon=epsilon, prior_count=given.pop("priorn"), **_fit(given), **given
    )
    _write_release(output, out, path, made.table, made.report)
    gap, cycles = made.report["fit"]["gap"], made.report["fit"]["cycles"]
    output.say(f"{made.table.num_rows:,} synthetic records; gap {gap:.2g} after {cycles} rounds.")
    output.say(made.report["statement"])
    if epsilon is not None and (weak := weakness(epsilon)):
        output.warn(weak)


def _fit(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of IPF's columns and return them as arguments."""
    fit: dict[str, Any] = {name: _read_json(given.pop(name), name) for name in ("domains", "bins")}
    fit["margins"] = [text.split("*") for text in given.pop("margins")] or None
    if "variables" in given:
        fit["variables"] = given.pop("variables") or None
    return fit


#: Settings of a comparison without an option.
_KINDS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("positive", "domains", "bins"), str),
    **dict.fromkeys(("repeats", "classifier_k"), int),
    **dict.fromkeys(("classifier_epsilon", "classifier_priorn"), float),
    "priorn": lambda text: tuple(float(part) for part in text.split(",")),
    "diagnostics": lambda text: {"true": True, "false": False}[text],
}


@tabular.command("compare", context_settings={"show_default": True})
@click.argument("source", metavar="INPUT")
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    help="Folder for tables and figures. Not for publication.",
)
@_columns
@click.option(
    "--sensitive", required=True, metavar="COLUMN", help="The sensitive column; what is predicted."
)
@click.option("--k", "ks", callback=numbers(int), default="2,5,10,15,20", help="The k to try.")
@click.option(
    "--epsilon",
    "epsilons",
    callback=numbers(float),
    default="0.2,0.5,1,2",
    help="The epsilon to try.",
)
@click.option("--noise", type=click.Choice(["laplace", "gaussian"]), default="laplace", help=_NOISE)
@click.option("--delta", type=float, help="δ with --noise gaussian, at most 1e-5.")
@_margins
@several("--set", "changes", "NAME=VALUE", _SET)
@with_output
def compare_command(output: Output, source: str, out: str, **given: Any) -> None:
    """Sweep k, ε and the prior count, and write tables and figures of privacy and utility."""
    from flowveil.tabular.compare import WARNING, CompareGrid, Roles, check_folder, compare_records
    from flowveil.tabular.records import read_records

    check_folder(out)
    more = named_values("--set", given.pop("changes"), _KINDS)
    columns = _roles(given, source)
    records = read_records(source, missing=given.pop("missing"))
    roles = Roles(**columns, sensitive=given.pop("sensitive"), positive=more.pop("positive", None))
    files = {name: more.pop(name, None) for name in ("domains", "bins")}
    noise = {name: given.pop(name) for name in ("noise", "delta")}
    fit = _fit({**files, "margins": given.pop("margins")}) | noise
    how = {"fit": fit, "diagnostics": more.pop("diagnostics", False)}
    fields = {"priorn": "priors", "classifier_priorn": "classifier_prior"}
    grid = CompareGrid(**given, **{fields.get(name, name): value for name, value in more.items()})
    progress = None if output.quiet else lambda line: click.echo(line, err=True)
    comparison = compare_records(records, roles, grid=grid, progress=progress, **how)
    comparison.write(out)
    for note in comparison.notes:
        output.warn(note)
    output.say(f"Tables and figures are in '{out}'. {WARNING}")
    output.result({"comparison": out, "warning": WARNING, "parameters": comparison.parameters})
