"""Mondrian against anonypy on Adult: both in one run, time as a ratio, discernibility side by side.

    python benchmarks/tabular.py [adult.csv] [--records 30000] [--k 10]

Without a file, a table of the same size and kinds of columns is drawn. anonypy cuts by numbers and by halves
of the categories present, without overlap; it is compared with our strict and our relaxed partitioning. Its
discernibility is taken from its own partitions, its time is that of partitioning alone (not of writing the
table); ours includes recoding, the published table and the independent recount.
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
from flowveil.tabular.records import read_records
from flowveil.tabular.risk import discernibility

QUASI_IDENTIFIERS = [
    "age",
    "workclass",
    "education-num",
    "marital-status",
    "occupation",
    "race",
    "sex",
    "native-country",
]
SENSITIVE = "salary-class"


def drawn(n: int) -> pa.Table:
    generator = np.random.default_rng(1)
    categories = {
        "workclass": 9,
        "marital-status": 7,
        "occupation": 15,
        "race": 5,
        "sex": 2,
        "native-country": 42,
    }
    columns: dict[str, object] = {
        "age": np.clip(generator.gamma(8, 5, n), 17, 90).astype(np.int64),
        "education-num": generator.binomial(16, 0.6, n),
    }
    for name, size in categories.items():
        shares = 1 / np.arange(1, size + 1) ** 1.5
        columns[name] = [f"{name} {i}" for i in generator.choice(size, n, p=shares / shares.sum())]
    columns[SENSITIVE] = generator.choice(["<=50K", ">50K"], n, p=[0.76, 0.24]).tolist()
    return pa.table(columns)


def run_ours(table: pa.Table, k: int, *, strict: bool) -> tuple[float, int, int]:
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        release = anonymize_records(
            table,
            quasi_identifiers=QUASI_IDENTIFIERS,
            sensitive=[SENSITIVE],
            direct_identifiers=[],
            k=k,
            strict=strict,
        )
        seconds.append(time.perf_counter() - begin)
    return min(seconds), discernibility(release.class_size), len(release.class_size)


def run_anonypy(table: pa.Table, k: int) -> tuple[float, int, int]:
    from anonypy.mondrian import Mondrian

    frame = table.to_pandas()
    for name in QUASI_IDENTIFIERS:
        if frame[name].dtype.kind not in "iuf":
            frame[name] = frame[name].astype("category")
    begin = time.perf_counter()
    partitions = Mondrian(frame, QUASI_IDENTIFIERS, SENSITIVE).partition(k)
    seconds = time.perf_counter() - begin
    size = np.array([len(p) for p in partitions])
    return seconds, discernibility(size), len(size)


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--k", type=int, action="append")
    arguments = parser.parse_args(words)
    if arguments.file is None:
        table = drawn(arguments.records)
    else:
        table = read_records(arguments.file).select([*QUASI_IDENTIFIERS, SENSITIVE]).slice(0, arguments.records)
    print(f"{table.num_rows:,} records, {len(QUASI_IDENTIFIERS)} quasi-identifiers")
    print(f"{'k':>4} {'method':<18} {'seconds':>8} {'times anonypy':>14} {'C_DM':>12} {'classes':>8}")
    for k in arguments.k or [10]:
        peer = run_anonypy(table, k)
        rows = {
            "anonypy": peer,
            "flowveil strict": run_ours(table, k, strict=True),
            "flowveil relaxed": run_ours(table, k, strict=False),
        }
        for name, (seconds, c_dm, classes) in rows.items():
            print(f"{k:>4} {name:<18} {seconds:>8.2f} {peer[0] / seconds:>14.1f} {c_dm:>12,} {classes:>8,}")


if __name__ == "__main__":
    main(sys.argv[1:])
