"""What the estimate's constants cost where they were not chosen: every public set held out once.

    python -m benchmarks held_out

The constants of `flowveil.published.disaggregation` were chosen on the public sets, so their errors
there are favourable. Here each set is LayerCut's release (k = 10 trips) and the planner's error of
`benchmarks.planner`. Each constant takes the value of `VALUES` with the least error on the *other*
sets (the mean of the logarithms), one constant after the other; the set itself is measured with
these. The last column is how many times the error of the constants in use that is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import flowveil
from benchmarks.planner import ENDS, SETS, Areas, K, estimated, misplaced
from flowveil.published import disaggregation
from flowveil.published.tables import lookup_table, zones_table
from flowveil.release.boundary import to_published

VALUES = {
    "ACTIVITY": (0.6, 0.8, 1.0),
    "VAGUENESS": (0.25, 0.5, 0.75),
    "DECAY": (0.7, 0.85, 1.0),
    "COVERED": (-0.4, -0.2, 0.0),
    "LATER": (0.5, 0.75, 1.0),
}
#: Nothing is lost on it, so no constant matters.
LOSSLESS = "Bristol commuters, MSOA"


def error_of(name: str) -> Callable[[dict[str, float]], float]:
    """Returns the planner's error of a set as a function of the constants."""
    areas = Areas.of(name, replace(SETS[name](), people=None))
    true = areas.true()
    release = flowveil.anonymize(areas.flows, "layercut", k=K, protect="trips")
    published = to_published(release)
    zones = zones_table(published)
    lookup = lookup_table(published, zones)
    ends = [areas.overlap(zones, lookup, end) for end in ENDS]

    def error(constants: dict[str, float]) -> float:
        used = {key: getattr(disaggregation, key) for key in VALUES}
        for key, value in constants.items():
            setattr(disaggregation, key, value)
        try:
            return misplaced(true, estimated(published.cells, ends))
        finally:
            for key, value in used.items():
                setattr(disaggregation, key, value)

    return error


def main() -> None:
    used = {key: getattr(disaggregation, key) for key in VALUES}
    errors: dict[str, Callable[[dict[str, float]], float]] = {}
    table: dict[str, dict[tuple[str, float], float]] = {}
    for name in SETS:
        if name == LOSSLESS:
            continue
        errors[name] = error_of(name)
        table[name] = {
            (key, value): errors[name]({key: value})
            for key, values in VALUES.items()
            for value in values
        }
        print(f"measured {name}", file=sys.stderr, flush=True)
    print(
        "| data | constants in use | chosen on the other sets | error in use | held out | times |"
    )
    print("|---|---|---|---:|---:|---:|")
    in_use = ", ".join(f"{value:g}" for value in used.values())
    for name, error in errors.items():
        others = [table[other] for other in errors if other != name]
        chosen = {
            key: min(
                values,
                key=lambda value, key=key: float(
                    np.mean([np.log(one[key, value]) for one in others])
                ),
            )
            for key, values in VALUES.items()
        }
        here, held = error({}), error(chosen)
        constants = ", ".join(f"{value:g}" for value in chosen.values())
        print(
            f"| {name} | {in_use} | {constants} | {here:.2%} | {held:.2%} | {held / here:.2f} |",
            flush=True,
        )
