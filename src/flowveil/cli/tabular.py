"""``flowveil tabular``: mondrian, ipf and compare. Reads, calls, writes; errors pass to the program's one handler."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from flowveil.cli.talk import Talk, speaking
from flowveil.errors import DataError, ParameterError
from flowveil.methods.epsilon import weakness

Command = TypeVar("Command", bound=Callable[..., Any])


def _numbers(kind: Callable[[str], Any]) -> Callable[[Any, Any, str], tuple[Any, ...]]:
    """A callback that reads numbers separated by commas."""

    def read(_context: Any, _parameter: Any, value: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(part) for part in value.split(","))
        except ValueError:
            raise click.BadParameter(f"'{value}' is not a list of numbers separated by commas.") from None

    return read


def _budget(_context: Any, _parameter: Any, value: str) -> float | None:
    """A callback that reads a number, or none."""
    try:
        return None if value.lower() == "none" else float(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is neither a number nor none.") from None


_QUASI = "A quasi-identifier (repeatable)."
_IDENTIFIER = "A direct identifier: dropped (repeatable)."
_NO_IDENTIFIERS = "Say that the table has no direct identifiers."
_KIND = "numeric, ordered or unordered; the data decide otherwise (repeatable)."
_ORDER = "The categories of a column from lowest to highest (repeatable)."
_HIERARCHY = "Categories, a line each, from the category to the most general term (repeatable)."
_MISSING = "A text that stands for a missing value, such as '?' (repeatable)."
_VARIABLE = "A column to synthesise (repeatable); by default those of the margins, or all."
_MARGIN = "A margin to keep (repeatable); by default all pairs."
_DOMAINS = "JSON: the categories of each column; null among them allows missing values."
_BINS = "JSON: the edges of the bins of numeric columns."
_GRID = "Edges of its ranges are multiples of STEP: 1000, 0.5, 6h, 7d (repeatable) [default: a round step]."
_PUBLIC = "Numbers that anybody can have, as everybody knows; either may be left out (repeatable)."
_ALLOW = "Publish this column as it is, although it singles people out (repeatable)."
_CHOOSE = "Cut the widest quasi-identifier, or the one with the most distinct values."


def _columns_options(command: Command) -> Command:
    """The options that say what each column is, shared by the commands that cut classes."""
    for option in (
        click.option("--missing", multiple=True, metavar="TEXT", help=_MISSING),
        click.option("--hierarchy", "hierarchies", multiple=True, metavar="COLUMN=FILE", help=_HIERARCHY),
        click.option("--order", "orders", multiple=True, metavar="COLUMN=A,B,C", help=_ORDER),
        click.option("--kind", "kinds", multiple=True, metavar="COLUMN=KIND", help=_KIND),
        click.option("--public-range", "ranges", multiple=True, metavar="COLUMN=MIN:MAX", help=_PUBLIC),
        click.option("--grid", "grids", multiple=True, metavar="COLUMN=STEP", help=_GRID),
        click.option("--allow-identifier", "allowed", multiple=True, metavar="COLUMN", help=_ALLOW),
        click.option("--no-identifiers", is_flag=True, help=_NO_IDENTIFIERS),
        click.option("--identifier", "identifiers", multiple=True, metavar="COLUMN", help=_IDENTIFIER),
        click.option("--quasi", multiple=True, required=True, metavar="COLUMN", help=_QUASI),
        click.option("--choose", type=click.Choice(["width", "distinct"]), default="width", help=_CHOOSE),
    ):
        command = option(command)
    return command


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, value = text.rpartition("=") if option == "--kind" else text.partition("=")
        if not separator or not name or not value:
            raise ParameterError(f"{option} needs COLUMN=VALUE; found '{text}'.")
        pairs[name] = value
    return pairs


def _range(text: str) -> tuple[str | None, str | None]:
    # The colon in the middle: times have colons of their own.
    parts = text.split(":")
    half = len(parts) // 2
    if len(parts) % 2 or text == ":":
        raise ParameterError(f"--public-range needs COLUMN=MIN:MAX, either left out if not public; found '{text}'.")
    low, high = ":".join(parts[:half]), ":".join(parts[half:])
    return low.strip() or None, high.strip() or None


def _attributes(
    quasi: Sequence[str],
    kinds: Sequence[str],
    orders: Sequence[str],
    hierarchies: Sequence[str],
    grids: Sequence[str],
    ranges: Sequence[str],
) -> list[Any]:
    from flowveil.tabular.records import Attribute, read_value_hierarchy

    kind, order, tree = _pairs(kinds, "--kind"), _pairs(orders, "--order"), _pairs(hierarchies, "--hierarchy")
    grid = _pairs(grids, "--grid")
    public = {name: _range(text) for name, text in _pairs(ranges, "--public-range").items()}
    strange = sorted({*kind, *order, *tree, *grid, *public} - set(quasi))
    if strange:
        raise ParameterError(f"Not among the quasi-identifiers: {', '.join(strange)}.")
    return [
        Attribute(
            name,
            kind=kind.get(name),
            order=tuple(order[name].split(",")) if name in order else None,
            hierarchy=read_value_hierarchy(tree[name]) if name in tree else None,
            grid=grid.get(name),
            public_range=public.get(name),
        )
        for name in quasi
    ]


def _named_identifiers(identifiers: Sequence[str], none: bool) -> list[str]:
    if bool(identifiers) == none:
        raise ParameterError(
            "Direct identifiers must be named: give --identifier for each column to drop, or --no-identifiers."
        )
    return list(identifiers)


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


def _write_release(table: Any, report: dict[str, Any], out: str) -> Path:
    """Write the table and the report beside it, both or neither; return the report's path."""
    from flowveil.tabular.records import write_records

    text = json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    beside = _report_path(out)
    write_records(table, out, beside={beside: text})
    return beside


def _report_path(out: str) -> Path:
    return Path(out).with_suffix(".report.json")


def _margins(texts: Sequence[str]) -> list[list[str]] | None:
    return [text.split("*") for text in texts] or None


@click.group("tabular")
def tabular() -> None:
    """Tables of records: k-anonymity (mondrian), differential privacy (ipf), and both compared."""


@tabular.command("mondrian")
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, metavar="FILE", help="Where the release goes (.csv or .parquet).")
@click.option("--k", type=int, required=True, help="Fewest records of a class.")
@_columns_options
@click.option("--sensitive", multiple=True, metavar="COLUMN", help="Published as it is, protected by l and t.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Published as it is, not protected.")
@click.option("--l", "diversity", type=int, help="Fewest distinct sensitive values of a class.")
@click.option("--t", "closeness", type=float, help="Largest distance of a class from the table, 0 to 1.")
@click.option("--strict/--relaxed", default=False, help="Regions that do not overlap, or finer classes.")
@speaking
def mondrian_command(
    talk: Talk,
    source: str,
    out: str,
    k: int,
    quasi: tuple[str, ...],
    identifiers: tuple[str, ...],
    no_identifiers: bool,
    kinds: tuple[str, ...],
    orders: tuple[str, ...],
    hierarchies: tuple[str, ...],
    grids: tuple[str, ...],
    ranges: tuple[str, ...],
    allowed: tuple[str, ...],
    missing: tuple[str, ...],
    sensitive: tuple[str, ...],
    keep: tuple[str, ...],
    diversity: int | None,
    closeness: float | None,
    strict: bool,
    choose: str,
) -> None:
    """Generalise quasi-identifiers until every class of equal records has at least k.

    Every column needs a role; a column nobody names is an error, not a leak.
    """
    from flowveil.output import check_file
    from flowveil.tabular.mondrian import CLASS_COLUMN, anonymize_records
    from flowveil.tabular.records import check_output, read_records
    from flowveil.tabular.risk import describe_classes

    dropped = _named_identifiers(identifiers, no_identifiers)
    check_output(out)
    check_file(_report_path(out))
    release = anonymize_records(
        read_records(source, missing=missing),
        quasi_identifiers=_attributes(quasi, kinds, orders, hierarchies, grids, ranges),
        sensitive=sensitive,
        keep=keep,
        direct_identifiers=dropped,
        allow_identifiers=allowed,
        k=k,
        l=diversity,
        t=closeness,
        strict=strict,
        choose=choose,
    )
    keys = [*release.quasi_identifiers, CLASS_COLUMN]
    classes = describe_classes(release.table, quasi_identifiers=keys, k=k)
    report = {
        "method": "mondrian",
        "partitioning": "strict" if strict else "relaxed",
        "guarantee": {
            name: value for name, value in (("k", k), ("l", diversity), ("t", closeness)) if value is not None
        },
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
        },
        "statement": release.statement(),
    }
    beside = _write_release(release.table, report, out)
    talk.say(
        f"{classes.n_records:,} records in {classes.n_classes:,} classes of {classes.k:,} or more; C_DM "
        f"{classes.c_dm:,}."
    )
    talk.result({"out": out, "report": str(beside), **report})


@tabular.command("ipf")
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, metavar="FILE", help="Where the records go (.csv or .parquet).")
@click.option("--epsilon", callback=_budget, required=True, help="The privacy budget, or none (not private).")
@click.option("--variable", "variables", multiple=True, metavar="COLUMN", help=_VARIABLE)
@click.option("--margin", "margins", multiple=True, metavar="A*B", help=_MARGIN)
@click.option("--priorn", type=float, default=0.0, help="Records spread evenly over each margin's cells.")
@click.option("--domains", metavar="FILE", help=_DOMAINS)
@click.option("--bins", metavar="FILE", help=_BINS)
@click.option("--domains-from-data", is_flag=True, help="Take the categories in the data as public knowledge.")
@click.option("--records", "n_records", type=int, help="How many records to draw, as public knowledge.")
@click.option("--max-cells", type=int, default=10_000_000, show_default=True, help="Largest table of the fit.")
@click.option("--seed", type=int, help="For a repeatable synthesis; only with --epsilon none.")
@click.option("--missing", multiple=True, metavar="TEXT", help=_MISSING)
@speaking
def ipf_command(
    talk: Talk,
    source: str,
    out: str,
    epsilon: float | None,
    variables: tuple[str, ...],
    margins: tuple[str, ...],
    priorn: float,
    domains: str | None,
    bins: str | None,
    domains_from_data: bool,
    n_records: int | None,
    max_cells: int,
    seed: int | None,
    missing: tuple[str, ...],
) -> None:
    """Draw synthetic records from noisy margins: differentially private for one record added or removed."""
    from flowveil.output import check_file
    from flowveil.tabular.ipf import synthesize_records
    from flowveil.tabular.records import check_output, read_records

    check_output(out)
    check_file(_report_path(out))
    made = synthesize_records(
        read_records(source, missing=missing),
        epsilon=epsilon,
        variables=variables or None,
        margins=_margins(margins),
        prior_count=priorn,
        domains=_read_json(domains, "domains"),
        bins=_read_json(bins, "bins"),
        domains_from_data=domains_from_data,
        n_records=n_records,
        max_cells=max_cells,
        seed=seed,
    )
    beside = _write_release(made.table, made.report(), out)
    talk.say(f"{made.n_records:,} synthetic records; gap {made.gap:.2g} after {made.cycles} rounds.")
    talk.say(made.statement())
    weak = weakness(epsilon) if epsilon is not None else None
    if weak:
        talk.warn(weak)
    talk.result({"out": out, "report": str(beside), **made.report()})


@tabular.command("compare", context_settings={"show_default": True})
@click.argument("source", metavar="INPUT")
@click.option("--out", required=True, metavar="DIR", help="Folder for tables and figures. Not for publication.")
@_columns_options
@click.option("--sensitive", required=True, metavar="COLUMN", help="The sensitive column; what is predicted.")
@click.option("--positive", help="Its positive value; by default the first of two.")
@click.option("--k", "ks", callback=_numbers(int), default="2,5,10,15,20", help="The k to try.")
@click.option("--epsilon", "epsilons", callback=_numbers(float), default="0.2,0.5,1,2", help="The epsilon to try.")
@click.option("--priorn", "priors", callback=_numbers(float), default="0,0.1,0.5,1", help="Prior counts to try.")
@click.option("--repeats", type=int, default=15, help="Syntheses for each setting.")
@click.option("--classifier-k", type=int, default=10, help="The k of the release the classifier learns from.")
@click.option("--classifier-epsilon", type=float, default=1.0, help="The epsilon of the other one.")
@click.option("--classifier-priorn", type=float, default=0.1, help="And its prior count.")
@click.option("--margin", "margins", multiple=True, metavar="A*B", help=_MARGIN)
@click.option("--domains", metavar="FILE", help=_DOMAINS)
@click.option("--bins", metavar="FILE", help=_BINS)
@speaking
def compare_command(
    talk: Talk,
    source: str,
    out: str,
    quasi: tuple[str, ...],
    identifiers: tuple[str, ...],
    no_identifiers: bool,
    kinds: tuple[str, ...],
    orders: tuple[str, ...],
    hierarchies: tuple[str, ...],
    grids: tuple[str, ...],
    ranges: tuple[str, ...],
    allowed: tuple[str, ...],
    missing: tuple[str, ...],
    sensitive: str,
    positive: str | None,
    ks: tuple[int, ...],
    epsilons: tuple[float, ...],
    priors: tuple[float, ...],
    repeats: int,
    classifier_k: int,
    classifier_epsilon: float,
    classifier_priorn: float,
    choose: str,
    margins: tuple[str, ...],
    domains: str | None,
    bins: str | None,
) -> None:
    """Sweep k, ε and the prior count, and write the tables and figures that show what each costs."""
    from flowveil.tabular.compare import WARNING, check_folder, compare_records
    from flowveil.tabular.records import read_records

    check_folder(out)
    comparison = compare_records(
        read_records(source, missing=missing),
        quasi_identifiers=_attributes(quasi, kinds, orders, hierarchies, grids, ranges),
        sensitive=sensitive,
        direct_identifiers=_named_identifiers(identifiers, no_identifiers),
        allow_identifiers=allowed,
        ks=ks,
        epsilons=epsilons,
        priors=priors,
        repeats=repeats,
        chosen_k=classifier_k,
        chosen_epsilon=classifier_epsilon,
        chosen_prior=classifier_priorn,
        positive=positive,
        choose=choose,
        margins=_margins(margins),
        domains=_read_json(domains, "domains"),
        bins=_read_json(bins, "bins"),
        progress=None if talk.quiet else lambda line: click.echo(line, err=True),
    )
    comparison.write(out)
    talk.say(f"Tables and figures are in '{out}'. {WARNING}")
    talk.result({"comparison": out, "warning": WARNING, "parameters": comparison.parameters})
