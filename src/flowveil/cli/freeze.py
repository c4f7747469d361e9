"""``flowveil freeze``: the zones of a release as a file, for releases that are to have the same ones."""

from __future__ import annotations

import click

from flowveil.cli.from_request import PLACE
from flowveil.cli.output import Output, with_output


@click.command()
@click.argument("release", type=PLACE, metavar="RELEASE")
@click.option("--out", type=PLACE, required=True, metavar="FILE", help="Parquet file of the frozen map.")
@with_output
def freeze(output: Output, release: str, out: str) -> None:
    """Write the zones of RELEASE into a file, without its counts, for `anonymize --zones-of`."""
    from flowveil.api import freeze as make

    frozen = make(release, out=out)
    ends = {end: len(frozen.zones(end)) for end in ("origin", "destination")}
    output.say(f"Frozen: {ends['origin']:,} origin zones and {ends['destination']:,} destination zones in {out}")
    output.result({"map": out, "sha256": frozen.sha256, **{f"n_{end}_zones": n for end, n in ends.items()}})
