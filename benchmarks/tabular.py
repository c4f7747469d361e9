"""Mondrian against anonypy on Adult: time, discernibility and information loss (NCP) in one run.

    python benchmarks/tabular.py [adult.csv] [--records 30000] [--k 10] [--hierarchies FOLDER]

Without a file, a table of the same size and kinds of columns is drawn. anonypy splits numbers at
the median and categories by halves of the values present, and has no hierarchies. Its time is that
of partitioning alone; ours includes recoding, the published table and the independent recount. NCP
(Xu et al. 2006): a set of categories costs its share of all categories (0 for one), a range its
share of the column's range; mean over records and columns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from flowveil.tabular.mondrian import anonymize_records
from flowveil.tabular.records import Attribute, read_records, read_value_hierarchy
from flowveil.tabular.risk import discernibility

#: Quasi-identifiers, and the file of each hierarchy.
QUASI_IDENTIFIERS = {
    "age": None,
    "workclass": "workclass",
    "education": "education",
    "marital-status": "marital",
    "occupation": "occupation",
    "race": "race",
    "sex": "sex",
    "native-country": "country",
}
SENSITIVE = "salary-class"

Row = tuple[float, int, int, float]


def draw_table(n: int) -> pa.Table:
    generator = np.random.default_rng(1)
    categories = {
        "workclass": 9,
        "education": 16,
        "marital-status": 7,
        "occupation": 15,
        "race": 5,
        "sex": 2,
        "native-country": 42,
    }
    columns: dict[str, object] = {"age": np.clip(generator.gamma(8, 5, n), 17, 90).astype(np.int64)}
    for name, size in categories.items():
        shares = 1 / np.arange(1, size + 1) ** 1.5
        columns[name] = [f"{name} {i}" for i in generator.choice(size, n, p=shares / shares.sum())]
    columns[SENSITIVE] = generator.choice(["<=50K", ">50K"], n, p=[0.76, 0.24]).tolist()
    return pa.table(columns)


def run_flowveil(table: pa.Table, k: int, *, strict: bool, hierarchies: Path | None) -> Row:
    attributes = [
        Attribute(
            name,
            hierarchy=(
                read_value_hierarchy(hierarchies / f"{file}.csv") if hierarchies and file else None
            ),
        )
        for name, file in QUASI_IDENTIFIERS.items()
    ]
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        release = anonymize_records(
            table,
            quasi_identifiers=attributes,
            sensitive=[SENSITIVE],
            direct_identifiers=[],
            k=k,
            strict=strict,
        )
        seconds.append(time.perf_counter() - begin)
    return (
        min(seconds),
        discernibility(release.class_size),
        len(release.class_size),
        release.information_loss(),
    )


def run_anonypy(table: pa.Table, k: int) -> Row:
    from anonypy.mondrian import Mondrian

    frame = table.to_pandas()
    for name in QUASI_IDENTIFIERS:
        if frame[name].dtype.kind not in "iuf":
            frame[name] = frame[name].astype("category")
    begin = time.perf_counter()
    partitions = Mondrian(frame, list(QUASI_IDENTIFIERS), SENSITIVE).partition(k)
    seconds = time.perf_counter() - begin
    size = np.array([len(p) for p in partitions])
    losses = []
    for name in QUASI_IDENTIFIERS:
        values = frame[name].cat.codes if frame[name].dtype.name == "category" else frame[name]
        for members in partitions:
            here = values.loc[members]
            if values is frame[name]:
                losses.append(
                    len(members) * (here.max() - here.min()) / (values.max() - values.min())
                )
            elif here.nunique() > 1:
                losses.append(len(members) * here.nunique() / values.nunique())
    return (
        seconds,
        discernibility(size),
        len(size),
        sum(losses) / len(frame) / len(QUASI_IDENTIFIERS),
    )


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--k", type=int, action="append")
    parser.add_argument("--hierarchies", type=Path)
    parser.add_argument("--without-anonypy", action="store_true")
    arguments = parser.parse_args(words)
    if arguments.file is None:
        table = draw_table(arguments.records)
    else:
        table = (
            read_records(arguments.file)
            .select([*QUASI_IDENTIFIERS, SENSITIVE])
            .slice(0, arguments.records)
        )
    print(f"{table.num_rows:,} records, {len(QUASI_IDENTIFIERS)} quasi-identifiers")
    print(
        f"{'k':>4} {'method':<30} {'seconds':>8} {'faster':>8} {'C_DM':>12} {'classes':>8}"
        f" {'NCP':>7}"
    )
    for k in arguments.k or [10]:
        rows: dict[str, Row] = (
            {} if arguments.without_anonypy else {"anonypy": run_anonypy(table, k)}
        )
        for folder in [None] + ([arguments.hierarchies] if arguments.hierarchies else []):
            for strict in (True, False):
                name = (
                    "flowveil"
                    f" {'strict' if strict else 'relaxed'}{', hierarchies' if folder else ''}"
                )
                rows[name] = run_flowveil(table, k, strict=strict, hierarchies=folder)
        peer = rows.get("anonypy")
        for name, (seconds, c_dm, classes, loss) in rows.items():
            faster = f"{peer[0] / seconds:.0f}" if peer else "-"
            print(
                f"{k:>4} {name:<30} {seconds:>8.2f} {faster:>8} {c_dm:>12,} {classes:>8,}"
                f" {loss:>7.4f}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
