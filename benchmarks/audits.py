"""What readers can compute from several releases of public data, without the rules for series and
with them.

``python -m benchmarks.audits [subtraction|quarter|times]``: one of them, or all of them.
Counts only; seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import calendar
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa

import flowveil
from benchmarks.twincut_table import DATA
from flowveil.verify.audit.published import read_release
from flowveil.verify.audit.subtraction import ReleaseGroups, confined_groups

K = 10
#: Quarters by their first day: the last days of their months.
QUARTERS = {"2016-01-01": (31, 29, 31), "2016-04-01": (30, 31, 30), "2017-01-01": (31, 28, 31)}
ENDS = {"origin": "o_lat,o_lon", "destination": "d_lat,d_lon"}


def main() -> None:
    parts: dict[str, Callable[[], None]] = {
        "subtraction": subtraction,
        "quarter": quarter,
        "times": times,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=list(parts))
    chosen = parser.parse_args().part
    if not DATA.is_dir():
        print("The public data sets are not next to the repository.")
        return
    for name, part in parts.items():
        if chosen in (None, name):
            print(f"\n## {name}\n", flush=True)
            part()


def said(found: ReleaseGroups) -> str:
    return (
        f"{len(found):,} | {found.single_cells:,} | {found.single_trips:,} |"
        f" {len(found.unchecked):,}"
    )


def audited(folders: list[Path]) -> tuple[ReleaseGroups, float]:
    begun = time.process_time()
    return flowveil.audit_releases(folders).groups, time.process_time() - begun


def santiago() -> flowveil.Flows:
    return flowveil.read_trips(str(DATA / "santiago_taxi" / "trips.parquet"), resolution=9, **ENDS)


def subtraction() -> None:
    """Two safe releases of the same trips by two methods.

    Then the second over the zones of the first.
    """
    flows = santiago()
    print("| Santiago, k = 10 | groups | single cells | single trips | not compared | seconds |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place) / name for name in ("twincut", "odkanon", "volume", "kept")}
        common = {"k": K, "protect": "trips", "hierarchy": "h3"}
        flowveil.anonymize(flows, "twincut", **common).write(folders["twincut"])
        flowveil.anonymize(flows, "odkanon", **common).write(folders["odkanon"])
        flowveil.anonymize(flows, "odkanon", budget="volume", **common).write(folders["volume"])
        kept = {"k": K, "protect": "trips", "max_suppressed": 0.9}
        flowveil.anonymize(flows, zones_of=folders["twincut"], **kept).write(folders["kept"])
        for title, name in (
            ("TwinCut and ODkAnon", "odkanon"),
            ("TwinCut and ODkAnon, budget=volume", "volume"),
            ("TwinCut, and again over its zones", "kept"),
        ):
            found, seconds = audited([folders["twincut"], folders[name]])
            print(f"| {title} | {said(found)} | {seconds:.1f} |", flush=True)
            exact = [
                group.absent
                for group in found.groups
                if group.kind == "remainder" and group.low == group.high
            ]
            print(
                f"| ... by plain subtraction: {exact.count(0)} of the first, {exact.count(1)} of"
                " the second | | | | | |"
            )
        # What a reader gets who takes every cell for whole, although hopeless flows were taken out
        # of ODkAnon's.
        careless = [
            replace(read_release(folders[name]), whole_cells=True)
            for name in ("twincut", "odkanon")
        ]
        found = confined_groups(careless)
        print(
            f"| TwinCut and ODkAnon, as if no flow were taken out of cells | {said(found)} | |",
            flush=True,
        )


def bikes(first: str, months: int) -> pa.Table:
    """The trips of Jersey City from a day on, whose places are known."""
    path = str(DATA / "citibike_jc" / "trips.parquet")
    query = (
        f"SELECT o_lat, o_lon, d_lat, d_lon, start_time FROM '{path}' WHERE o_lat > 1 AND d_lat > 1"
        f" AND start_time >= TIMESTAMP '{first}' AND start_time < TIMESTAMP '{first}' + INTERVAL"
        f" {months} MONTH ORDER BY ALL"
    )
    return duckdb.sql(query).to_arrow_table()


def quarter() -> None:
    """A quarter and each of its months over the same zones.

    And the same months as a series with its sums.
    """
    print(
        "| Jersey City, k = 10 | groups | single cells | single trips | not compared"
        " |\n|---|---|---|---|---|"
    )
    asked = {"k": K, "protect": "trips", "max_suppressed": 0.9}
    for first, days in QUARTERS.items():
        year, month = first[:4], int(first[5:7])
        trips = bikes(first, 3)
        with tempfile.TemporaryDirectory() as place:
            whole, series, ledger = (Path(place) / name for name in ("quarter", "series", "ledger"))
            flows = flowveil.read_trips(trips, resolution=9, **ENDS)
            period = f"{first}/{year}-{month + 2:02d}-{days[2]}"
            flowveil.anonymize(flows, "twincut", K, "trips", hierarchy="h3").write(
                whole, period=period, ledger=ledger
            )
            refused = 0
            for n, last in enumerate(days):
                begins = f"{year}-{month + n:02d}-01"
                own = flowveil.read_trips(bikes(begins, 1), resolution=9, **ENDS)
                release = flowveil.anonymize(own, zones_of=whole, **asked)
                folder, of_month = Path(place) / begins, f"{begins}/{begins[:8]}{last}"
                release.write(folder, period=of_month)
                found = said(audited([whole, folder])[0])
                print(f"| the quarter from {first}, and {begins[:7]} over its zones | {found} |")
                try:
                    release.write(Path(place) / f"{begins}-again", period=of_month, ledger=ledger)
                except flowveil.InfeasibleError:
                    refused += 1
            print(f"| with a ledger {refused} of the 3 months are refused | | | | |")
            how = {"time": "start_time", "resolution": 9, "zones_of": whole, **ENDS}
            flowveil.publish_series(trips, series, asked=asked, **how)
            steps = sorted(step for step in series.iterdir() if step.is_dir())
            print(
                f"| {len(steps)} months as a series, totals as their sums |"
                f" {said(audited(steps)[0])} |",
                flush=True,
            )


def times() -> None:
    """How long it takes to compare two releases, and the twelve months of a year with the year."""
    flows = santiago()
    print(
        "| Santiago, resolution 9, H3 | cells of each | groups | solved exactly | seconds"
        " |\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as place:
        made = {}
        for method in ("twincut", "paircut"):
            for limit in (0.05, 0.1):
                folder = Path(place) / f"{method}-{limit}"
                flowveil.anonymize(flows, method, K, "trips", limit, hierarchy="h3").write(folder)
                made[method, limit] = read_release(folder)
    few, many = made["twincut", 0.05], made["twincut", 0.1]
    # As if every month had the same trips: more can be compared than in any real year.
    months = [
        replace(many, period=(date(2023, m, 1), date(2023, m, calendar.monthrange(2023, m)[1])))
        for m in range(1, 13)
    ]
    matrix = few.matrices[0]
    year = replace(
        few,
        period=(date(2023, 1, 1), date(2023, 12, 31)),
        matrices=(replace(matrix, trips=matrix.trips * 12),),
    )
    for title, releases in (
        ("TwinCut, limits 5 % and 10 %", [few, many]),
        ("PairCut, limits 5 % and 10 %", [made["paircut", 0.05], made["paircut", 0.1]]),
        ("twelve TwinCut of the same trips", [few, *[many] * 11]),
        ("twelve months", months),
        ("twelve months and their year", [*months, year]),
    ):
        begun = time.process_time()
        found = confined_groups(releases)
        cells = " and ".join(f"{n:,}" for n in sorted({len(r.matrices[0].trips) for r in releases}))
        seconds = time.process_time() - begun
        print(
            f"| {title} | {cells} | {len(found):,} | {found.solved:,} | {seconds:.1f} |", flush=True
        )


if __name__ == "__main__":
    main()
