"""What every attack of ``flowveil audit`` finds on public data, for every method and k 5, 10 and
20.

Made in parts: every figure is a row of ``benchmarks/results/attacks.csv``, and what is there is not
run again.

    python -m benchmarks.attacks published --sets Santiago     run what is missing of a part
    python -m benchmarks.attacks --print                       the tables so far, as Markdown

``default`` is what a user gets who gives k alone: LayerCut with secret thresholds on default trees,
people protected where persons are known. Of the other methods trips are protected, at most 10 % may
be suppressed, trees are not refined into halves, and thresholds are exactly k.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flowveil
from benchmarks.twincut_table import DATA, trips, zoned
from flowveil.analysis.shadow_releases import membership, minimality
from flowveil.publishing.publish import folder_content
from flowveil.verify.audit.published import PublishedRelease, published_release
from flowveil.verify.audit.single_release import dominance, homogeneity, linkage
from flowveil.verify.audit.trips import place_trips
from flowveil.zoning.restriction import refined, to_the_top

RESULTS = Path(__file__).parent / "results" / "attacks.csv"
FIELDS = ("part", "data", "method", "k", "figure", "value")
KS = (5, 10, 20)
LIMIT = 0.1
NODES = ("twincut", "paircut", "odkanon", "oigh", "suppression", "atg-dual", "atg-soft")
BOXES = ("mondrian", "glove", "curvecut")
DEFAULT = "default"
SETS: dict[str, Callable[[], flowveil.Flows]] = {
    "Montpellier, zones in sectors": zoned(
        "montpellier_emd/legs.parquet",
        "montpellier_emd/zone_hierarchy.csv",
        {"levels": "sector,zone"},
        person="person_id",
        skip_unknown=True,
        max_dropped=0.5,
    ),
    "San Francisco, resolution 8": trips(
        "cabspotting_sf/trips.parquet", resolution=8, person="cab_id"
    ),
    "Jersey City, resolution 9": trips("citibike_jc/trips.parquet", resolution=9, max_dropped=0.2),
    "Santiago, resolution 8": trips("santiago_taxi/trips.parquet", resolution=8),
}
Figures = dict[str, float]


def released(flows: flowveil.Flows, method: str, k: int) -> PublishedRelease:
    """What a reader would have, without writing it."""
    if method == DEFAULT:
        release = flowveil.anonymize(flows, k=k)
    else:
        how: dict[str, Any] = {} if method in BOXES else {"hierarchy": "h3"}
        if method == "paircut":
            how["secret_thresholds"] = False
        release = flowveil.anonymize(flows, method, k, "trips", LIMIT, **how)
    content = folder_content(release)
    return published_release(content.flows, content.zones, content.report)


def published(flows: flowveil.Flows, method: str, k: int) -> Figures:
    """What needs one run of the method: homogeneity, dominance and linkage."""
    release = released(flows, method, k)
    found: Figures = {"cells": len(release.matrices[0].trips)}
    for end in homogeneity(release):
        found |= {
            f"{end.end} {name}": value for name, value in end.to_dict().items() if name != "end"
        }
    if method in BOXES or flows.people is None:
        return found
    if method == DEFAULT:
        flows = to_the_top(refined(flows, release.report["parameters"]["hierarchy"])[0])
    placed = place_trips(release, flows)
    found |= {f"dominance {name}": value for name, value in dominance(placed).to_dict().items()}
    for one in linkage(release, placed):
        found |= {
            f"linkage {one.known} {name}": value
            for name, value in one.to_dict().items()
            if name != "known"
        }
    return found


def members(flows: flowveil.Flows, method: str, k: int) -> Figures:
    """Shadow releases of five persons."""
    return (
        {}
        if flows.people is None
        else dict(membership(released(flows, method, k), flows, shadows=8).to_dict())
    )


def choices(flows: flowveil.Flows, method: str, k: int) -> Figures:
    """What zones that were not divided say, by running the method for 20 of them."""
    found = minimality(released(flows, method, k), flows, tries=20)
    assert found is not None
    return {
        name: value
        for name, value in {**found.to_dict(), "share": found.share}.items()
        if value is not None
    }


PARTS: dict[str, tuple[Callable[[flowveil.Flows, str, int], Figures], tuple[str, ...]]] = {
    "published": (published, (*NODES, *BOXES, DEFAULT)),
    "minimality": (choices, NODES),
    "membership": (members, NODES),
}


def known() -> dict[tuple[str, ...], dict[str, str]]:
    """The figures there are, by part, set, method and k."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    if RESULTS.is_file():
        with RESULTS.open(encoding="utf-8", newline="") as lines:
            for part, data, method, k, figure, value in list(csv.reader(lines))[1:]:
                found.setdefault((part, data, method, k), {})[figure] = value
    return found


def fill(part: str, only: str, chosen: list[str]) -> None:
    """Run what is missing of a part, and add its rows."""
    run, methods = PARTS[part]
    if not RESULTS.is_file():
        RESULTS.write_text(",".join(FIELDS) + "\n", encoding="utf-8")
    for name, read in SETS.items():
        missing = [
            (m, k)
            for m in chosen or methods
            for k in KS
            if m in methods and (part, name, m, str(k)) not in known()
        ]
        if only not in name or not missing:
            continue
        flows = read()
        for method, k in missing:
            try:
                figures = run(flows, method, k)
            except flowveil.InfeasibleError:
                figures = {"infeasible": 1}
            except (flowveil.ParameterError, flowveil.DataError) as error:
                print(name, method, k, str(error)[:150])
                figures = {"not on this map": 1}
            with RESULTS.open("a", encoding="utf-8", newline="") as lines:
                rows = [
                    (part, name, method, k, figure, f"{value:g}")
                    for figure, value in figures.items()
                ]
                csv.writer(lines, lineterminator="\n").writerows(
                    rows or [(part, name, method, k, "nothing", "1")]
                )


def _share(figure: str) -> Callable[[dict[str, str]], str]:
    return lambda figures: f"{float(figures[figure]):.0%}"


# ---- tables --------------------------------------------------------------------------------------

#: For each page: the part, and its columns: how the entry of one k is made of figures.
TABLES: dict[str, tuple[str, dict[str, Callable[[dict[str, str]], str]]]] = {
    "homogeneity": (
        "published",
        {
            "origin zones above 90 %": lambda f: f"{f['origin above']} of {f['origin zones']}",
            "destination zones above 90 %": lambda f: (
                f"{f['destination above']} of {f['destination zones']}"
            ),
            "largest t, origins": lambda f: f"{abs(float(f['origin t'])):.2f}",
            "largest t, destinations": lambda f: f"{abs(float(f['destination t'])):.2f}",
        },
    ),
    "dominance": (
        "published",
        {
            "cells": lambda f: f"{int(float(f['cells'])):,}",
            "one > 50 %": lambda f: f["dominance one"],
            "two > 80 %": lambda f: f["dominance two"],
            "p% (15 %)": lambda f: f["dominance p_percent"],
            "(2, 85 %)": lambda f: f["dominance n_k"],
            "largest share": lambda f: f"{float(f['dominance largest']):.0%}",
        },
    ),
    "linkage": (
        "published",
        {
            **{f"alone, {m} known": _share(f"linkage {m} alone") for m in (1, 2, 3, 4)},
            "fewer than k, 4 known": _share("linkage 4 below_k"),
            "guessed": _share("linkage 1 guessed"),
            "from margins": _share("linkage 1 from_margin"),
        },
    ),
    "minimality": (
        "minimality",
        {
            "zones": lambda f: f"{int(float(f['units'])):,}",
            "with a short part": lambda f: f"{int(float(f['blocked'])):,}",
            "divided otherwise": lambda f: f"{f['divided']} of {f['tried']}",
            "of all zones": _share("share"),
        },
    ),
    "membership": (
        "membership",
        {
            "advantage": lambda f: f"{float(f['advantage']):.2f}",
            "95 %": lambda f: f"{float(f['low']):.2f} to {float(f['high']):.2f}",
        },
    ),
}


def tables(page: str) -> Iterator[str]:
    """The lines of a page's table: in each entry k 5, 10 and 20, one after the other."""
    part, columns = TABLES[page]
    found = known()
    yield f"| data | method | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 2) + "|"
    for name in SETS:
        for method in PARTS[part][1]:
            figures = [found.get((part, name, method, str(k)), {}) for k in KS]
            entries = [[_entry(entry, of_k) for of_k in figures] for entry in columns.values()]
            if all(any(text != "·" for text in texts) for texts in entries):
                yield (
                    f"| {name} | {method} | {' | '.join(' / '.join(texts) for texts in entries)} |"
                )


def _entry(entry: Callable[[dict[str, str]], str], figures: dict[str, str]) -> str:
    try:
        return entry(figures)
    except KeyError:
        return "infeasible" if "infeasible" in figures else "·"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=list(PARTS))
    parser.add_argument("--sets", default="", help="part of the names of the sets to run")
    parser.add_argument("--method", action="append", default=[], help="only these methods")
    parser.add_argument(
        "--print", action="store_true", help="print the tables so far, and run nothing"
    )
    options = parser.parse_args()
    if options.print:
        for page in TABLES:
            print(f"\n## {page}", *tables(page), sep="\n")
    elif not DATA.is_dir():
        print("The public data sets are not next to the repository.")
    else:
        for part in [options.part] if options.part else PARTS:
            fill(part, options.sets, options.method)


if __name__ == "__main__":
    main()
