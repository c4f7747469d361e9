"""An independent recount of a written release.

What it shares with whoever made the release is the reading, and nothing else: the flows as they were read (tile
numbers, trips, weights, persons, slices), the hierarchies with their codes, parents and places, and the map. If trips
were read wrongly, the recount is wrong in the same way. It also shares `flowveil.zoning.covering`, which finds the
points in boxes; and it calls the renderers of pages and text exports, but only to compare their bytes.

Not shared are the methods, plans and releases, the measures, the rules of what may be disclosed, and the writers. The
files are read with DuckDB, which tile lies in which zone is worked out anew in SQL, formulas are those of the
documentation, and binary exports are made again by code of this package. What a method believed to have published plays
no part.

The way of a folder, each step in a file of its own: ``files`` (nothing is parsed that the manifest does not list and
hash), ``parquet`` (every byte accounted for), ``claims`` (the report against ``report.schema.json`` and its guarantee
against the input), ``parameters``, ``tables``, ``carriers``, ``exports``, ``binaries``, then ``raw``, ``slices``,
``zones`` or ``boxes``, ``outlines``, ``frozen`` (zones of an earlier release), ``cells``, ``audits``, ``revision``,
``measures`` (with ``withholding``, ``losses`` and ``floor``),
``differences``; for noise ``noise`` and ``law``; last, ``rendering``, or ``structure`` for another version. ``order``
has their order. A step writes tables of its own, each once, and can change none of another: see ``database``.

Findings never quote a value below the guarantee: they count cells, flows and zones.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowveil.errors import GuaranteeError

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.slices import SlicedFlows
    from flowveil.zoning.places import Places


def check(folder: str | PathLike[str], flows: Flows | SlicedFlows) -> None:
    """Raise unless the release in a folder holds against the flows it was made from.

    Raises:
        GuaranteeError: the recount contradicts the release; ``findings`` has one line for each contradiction.
    """
    findings = verify_release(folder, flows)
    if findings:
        raise GuaranteeError(
            f"The release in '{folder}' does not hold against a recount:\n" + "\n".join(f"- {f}" for f in findings),
            findings=findings,
        )


def verify_release(
    folder: str | PathLike[str],
    flows: Flows | SlicedFlows,
    *,
    expect: Mapping[str, Any] | None = None,
    unread: list[str] | None = None,
    law: bool = True,
    strict: bool = False,
    zones_of: Any = None,
    stricter: Places | None = None,
    revision: Any = None,
) -> list[str]:
    """Recount a release, or a family of releases, from its files and the raw flows.

    Args:
        folder: the release.
        flows: the flows it was made from, at tile level; for a family the flows of its slices.
        expect: what the guarantee must be at the least (``k``, ``protect``, ``k_population``, ``l``); without it the
            release is held against the guarantee that it claims.
        unread: gets a line for each part of a file that could not be compared, because another version of a library
            wrote it; see `flowveil.verify.binaries.UNREAD`.
        law: whether the numbers of a noisy release are held against the law of its noise. Not while it is being
            published: a release that were refused for what its noise happens to be would not keep its promise.
        strict: whether it is a finding that something could not be compared: another version made the release, so that
            its page, its texts and its text exports cannot be made again, or there is a line for ``unread``.
        zones_of: the earlier release whose zones these are, where the report says so: its folder, or the frozen map as
            a file or a table. Without it, ``unread`` gets a line that says that the zones were not compared.
        stricter: the list of places around which more is asked, where the report says so, by the tiles of the input.
            Without it, ``unread`` gets a line that says that these cells were not recounted.
        revision: the releases that this one revises, where the report says so: their folders, the oldest first. Without
            them, ``unread`` gets a line that says that the cells that were kept were not compared.

    Returns:
        One plain line for each contradiction; empty when everything holds: the files are those of the
        manifest, each published cell is exactly the sum of the raw flows that belong to it and reaches the
        guarantee, outlines and measures are those of the recount, nothing has entries or metadata that no release
        has, and the page, the texts and the text exports are, to the byte, what the tables and the report come to.
        Of a noisy release, whose counts nobody can recount, the form is checked, that the report discloses nothing
        without noise, and that the counts can be noise of the stated law on the raw ones.
    """
    from flowveil.verify.order import Holder, recount
    from flowveil.verify.rendering import not_compared

    lines: list[str] = [] if unread is None else unread
    holder = Holder(zones_of, stricter, revision)
    findings = recount(Path(folder), flows, expect or {}, lines, law=law, holder=holder)
    if strict and not findings:
        reason = not_compared(Path(folder))
        findings = [*lines, *([] if reason is None else [reason])]
    return findings
