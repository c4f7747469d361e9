"""The slices of a release: which raw slices each is made of, whether each may be named, and what is said of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from flowveil.errors import ParameterError
from flowveil.slices import Every, SlicedFlows
from flowveil.verify.claims import Claims
from flowveil.verify.database import Database, literal
from flowveil.verify.members import members_in
from flowveil.verify.raw import Raw, leaves


def load_slices(db: Database, claims: Claims, raw: Raw) -> Iterator[str]:
    """``slice`` (c0, c1, ..., s): the published slices; ``part`` (s, m): the raw slices that each is made of.

    ``finest`` (s, m) are those of one raw slice, by its own values; ``published`` is ``published_rows`` with s and i.
    A value of a slice column stands for the raw slices that have it, an empty one for all. The time of a longer step is
    how the times of its shorter steps begin. One matrix is a family of one slice without columns.
    """
    import pyarrow as pa

    names = [f"c{i}" for i in range(len(raw.columns))]
    if not names and not raw.folded:
        db.define("slice", "SELECT 0::BIGINT AS s")
        for name in ("part", "finest"):
            db.define(name, "SELECT 0::BIGINT AS s, 0::INTEGER AS m")
        db.define("raw_slice", "SELECT 0::INTEGER AS m")
        db.define("published", "SELECT *, 0::BIGINT AS s, 0::BIGINT AS i FROM published_rows")
        return
    keys = {name: pa.array([key[i] for key in raw.keys], pa.string()) for i, name in enumerate(names)}
    db.store("raw_slice", pa.table({**keys, "m": np.arange(len(raw.keys), dtype=np.int32)}))
    listed = ", ".join(names)
    order = ", ".join(f"{name} NULLS FIRST" for name in names) or "1"
    distinct = f"SELECT DISTINCT {listed} FROM published_rows" if names else "SELECT 0 AS nothing"
    db.create("slice", f"SELECT *, row_number() OVER (ORDER BY {order}) - 1 AS s FROM ({distinct})")
    matches = ["true"]
    for name, column in zip(names, raw.columns, strict=True):
        same = f"starts_with(m.{name}, p.{name})" if column == "time" else f"p.{name} = m.{name}"
        matches.append(f"(p.{name} IS NULL OR {same})")
    exact = " AND ".join(["true", *(f"p.{name} = m.{name}" for name in names)])
    either = " AND ".join(["true", *(f"p.{name} IS NOT DISTINCT FROM q.{name}" for name in names)])
    db.create("part", f"SELECT s, m FROM slice p JOIN raw_slice m ON {' AND '.join(matches)}")
    db.create("finest", f"SELECT s, m FROM slice p JOIN raw_slice m ON {exact}")
    # Where time folds, i is the interval of a cell.
    interval = "dense_rank() OVER (ORDER BY c0, c1)" if raw.folded else "0::BIGINT"
    db.create("published", f"SELECT p.*, s, {interval} AS i FROM published_rows p JOIN slice q ON {either}")
    strange = db.one("SELECT count(*) FROM slice ANTI JOIN part USING (s)")
    if strange:
        yield f"flows.parquet: {strange} slices are not in the input"
    if names:
        found = sorted(db.rows(f"SELECT {listed} FROM slice"), key=str)
        if found != sorted((key for key, _ in claims.slices), key=str):
            yield "report.json: its slices are not those of flows.parquet"


def check_slices(db: Database, claims: Claims, flows: SlicedFlows) -> Iterator[str]:
    """What is said of the slices as a whole, and that each may be named: where persons are known, k of them are in it.

    Args:
        db: with ``rows``, and persons, besides.
        claims: the report.
        flows: the raw slices.
    """
    if flows.whole.people is not None:
        counted = members_in(db, "people", "s", "(SELECT s, row FROM part JOIN rows USING (m))")
        enough = f"SELECT s FROM ({counted}) WHERE n >= {literal(claims.k)}"
        n = db.one(f"SELECT count(*) FROM slice ANTI JOIN ({enough}) USING (s)")
        if n:
            yield f"flows.parquet: {n} slices have fewer than k people"
    columns = set(claims.slice_columns)
    if any(set(part["slice"]) != columns for part in claims.report["slices"]):
        yield "report.json: a slice is not named by the slice columns"
    asked = claims.parameters["slices"]
    try:
        coarser = flows.coarser_keys([Every.parse(step) for step in asked["also_every"]], total=asked["total"])
    except ParameterError:
        yield "report.json: the steps of time that its slices have are not known"
        return
    keys = [key for key, _ in claims.slices]
    # Steps of time are known beforehand: how many are missing would say that those are not empty.
    missing = None if flows.every is not None else len(coarser) + len(flows.keys) - len(keys)
    if claims.report["unpublished_slices"] != missing:
        yield "report.json: the number of slices that are not published contradicts the recount"
    last = [len(key[-1] or "") if "time" in claims.slice_columns else 0 for key in keys]
    kinds = {(*(v is None for v in key), n) for key, n in zip(keys, last, strict=True)}
    said = claims.report["differencing"]
    if (said["comparisons"] > 0) != (len(kinds) > 1):
        yield "report.json: whether matrices of the same trips are published side by side contradicts the recount"
    elif not _can_be_counted(
        said, flows, coarser=len(set(keys) - set(flows.keys)), kinds=len(kinds), sums=claims.shared
    ):
        yield "report.json: its numbers of differences between matrices are none that these matrices can have"


def _can_be_counted(said: Mapping[str, int], flows: SlicedFlows, *, coarser: int, kinds: int, sums: bool) -> bool:
    """Whether so many comparisons and differences there can be.

    A coarser matrix is compared with each kind of finer ones and with all together; over common zones it is their sum,
    and nothing is left to settle. A difference is known of a region: tiles in a row, for each end.
    """
    if sums or kinds < 2:
        return said == {"comparisons": coarser if kinds > 1 else 0, "differences": 0, "short": 0, "unchecked": 0}
    runs = [n * (n + 1) // 2 for n in (len(leaves(tree)) for tree in (flows.origins, flows.destinations))]
    return (
        said["comparisons"] <= coarser * kinds
        and said["unchecked"] <= said["comparisons"] + coarser
        and said["short"] <= said["differences"] <= said["comparisons"] * runs[0] * runs[1]
    )
