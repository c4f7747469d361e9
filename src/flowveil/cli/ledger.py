"""``flowveil ledger``: which releases were made from a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flowveil.cli.from_request import PLACE
from flowveil.cli.output import Output, with_output


@click.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@click.option("--withdraw", metavar="NAME", help="Mark a release as withdrawn; it still counts, because it was public.")
@click.option("--backup", type=PLACE, metavar="FILE", help="Write a copy of the ledger into a tar file. Internal.")
@click.option("--accept-restored", is_flag=True, help="Acknowledge that the ledger was restored from a backup.")
@with_output
def ledger(output: Output, directory: str, withdraw: str | None, backup: str | None, accept_restored: bool) -> None:
    """List the releases in the ledger DIR, after checking that none was removed or changed."""
    from flowveil.series.ledger import list_entries
    from flowveil.series.ledger import withdraw as mark
    from flowveil.series.ledger_file import open_ledger

    with open_ledger(directory, create=False, accept_restored=accept_restored) as book:
        if withdraw is not None:
            number = mark(book, withdraw)
            output.say(f"Marked as withdrawn: number {number}. It still counts, because it was public.")
        if backup is not None:
            book.write_backup(Path(backup))
            output.say(f"Backup, NOT for publication: {backup}")
        rows = list_entries(book)
    output.say(f"{len(rows):,} releases; the chain is complete.", *(_line(row) for row in rows))
    output.result({"ledger": directory, "releases": rows})


def _line(row: dict[str, Any]) -> str:
    what = [row["kind"], row["method"]] + [f"by {','.join(row['columns'])}"] * bool(row["columns"])
    if row["epsilon"] is not None:
        what.append(f"ε = {row['epsilon']:g}")
    elif not row["from_trips"]:
        what.append("derived")
    elif not row["proves_disjointness"]:
        what.append("recorded by an earlier version: nothing can be proved to be disjoint from it")
    if row["withdrawn"]:
        what.append("withdrawn")
    date = (row["recorded"] or "")[:10]
    return f"  {row['number']:>3}  {date:10}  {row['name'] or '-'}: {', '.join(str(part) for part in what if part)}"
