"""``flowveil series``: one release for each month or day.

``ledger``: which releases were made from a data set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flowveil.apps.cli.command import (
    PLACE,
    READING,
    Output,
    RequestCommand,
    with_output,
    with_request,
)
from flowveil.core.errors import ParameterError
from flowveil.request.request import Request

#: What the steps of a series declare; the rest belongs to a single release.
_ABOUT = {"title", "source", "licence", "publisher", "contact", "base_url", "language"}


@click.command(cls=RequestCommand)
@click.argument("source", type=PLACE, metavar="FOLDER")
@click.option("--every", metavar="month|day", help="Length of a step [default: month].")
@click.option(
    "--revision",
    is_flag=True,
    help="Publish a revision of a published step whose trips have changed.",
)
@with_request(
    *(
        "out",
        "rule",
        "k",
        "protect",
        "max_suppressed",
        "method",
        "zones_of",
        "formats",
        "title",
        "ledger",
        *READING,
    ),
    required=("out",),
)
@with_output
def series(
    output: Output, source: str, every: str | None, revision: bool, request: Request
) -> None:
    """Publish the trips of FOLDER (or a file) step by step over one map.

    Run it again as trips are added.

    Steps that are published already are verified against the trips and left alone. A published step
    whose trips have changed is refused, unless --revision is given.
    """
    from flowveil.publishing.run import anonymize_arguments, reading_arguments, resources
    from flowveil.publishing.series.steps import publish_series, refusal_of

    if request.slices.time is None:
        raise ParameterError("A series needs the column of the time. Hint: --time COLUMN.")
    folds = [name for name in ("fold", "fold_time") if name in request.given]
    if folds:
        raise ParameterError(refusal_of(folds))
    # The map of a series is that of its first step, or the one that is given: its steps choose
    # nothing themselves.
    asked = anonymize_arguments(request.with_values(zones_of=None, revision=None))
    # Steps are compared zone by zone, which needs one map; layers are kept on request.
    asked["method"] = request.method.method or "twincut"
    with resources(request):
        made = publish_series(
            source,
            str(request.output.out),
            every=every or next(iter(request.slices.every), "month"),
            zones_of=request.method.zones_of,
            asked=asked,
            on_step=lambda step: output.say(f"Publishing {step}"),
            formats=request.output.formats,
            about={name: request.output.given[name] for name in _ABOUT & set(request.output.given)},
            ledger=request.output.ledger,
            accept_differencing=request.output.accept_differencing,
            revision=revision,
            **reading_arguments(request),
            **request.numbers.given,
        )
    n, new = len(made.index["steps"]), len(made.published)
    output.say(
        f"{n:,} steps are published over one map, {new:,} of them now. Page:"
        f" {made.place / 'index.html'}"
    )
    for loss in made.losses:
        # A measure of raw trips, for the operator.
        click.echo(str(loss), err=True)
    if made.unpublished:
        output.say("Steps that hold too little are not published.")
    output.result({"series": str(made.place), "published": list(made.published), **made.index})


@click.command()
@click.argument("file", type=PLACE, metavar="FILE")
@with_output
def key(output: Output, file: str) -> None:
    """Write a new secret key into FILE, for secret thresholds (--key-file).

    The key reveals the thresholds of its releases.
    """
    from flowveil.core.secret_key import create_key
    from flowveil.system.output import check_place

    check_place(file)
    made = create_key(file)
    output.say(
        f"Secret key, NOT for publication: {file}",
        f"Fingerprint: {made.fingerprint}",
    )
    output.result({"key_file": file, "fingerprint": made.fingerprint})


@click.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@click.option(
    "--withdraw",
    metavar="NAME",
    help="Mark a release as withdrawn; it still counts, because it was public.",
)
@click.option(
    "--backup",
    type=PLACE,
    metavar="FILE",
    help="Write a copy of the ledger into a tar file. Internal.",
)
@click.option(
    "--accept-restored",
    is_flag=True,
    help="Acknowledge that the ledger was restored from a backup.",
)
@with_output
def ledger(
    output: Output, directory: str, withdraw: str | None, backup: str | None, accept_restored: bool
) -> None:
    """List the releases in the ledger DIR, after checking that none was removed or changed."""
    from flowveil.publishing.ledger.ledger import list_entries
    from flowveil.publishing.ledger.ledger import withdraw as mark
    from flowveil.publishing.ledger.ledger_file import open_ledger

    with open_ledger(directory, create=False, accept_restored=accept_restored) as book:
        if withdraw is not None:
            number = mark(book, withdraw)
            output.say(
                f"Marked as withdrawn: number {number}. It still counts, because it was public."
            )
        if backup is not None:
            book.write_backup(Path(backup))
            output.say(f"Backup, NOT for publication: {backup}")
        rows = list_entries(book)
    output.say(
        f"{len(rows):,} release{'s' * (len(rows) != 1)}; the chain is complete.",
        *(_line(row) for row in rows),
    )
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
    return (
        f"  {row['number']:>3}  {date:10}  {row['name'] or '-'}:"
        f" {', '.join(str(part) for part in what if part)}"
    )
