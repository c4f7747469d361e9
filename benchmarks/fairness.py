"""What it costs to bound the gap between segments: errors of segments that share a bound.

    python -m benchmarks fairness

Segments of the synthetic survey in central Paris, each a matrix by LayerCut, k = 10 trips; misplaced
trips between H3 cells of resolution 7. "Same zones": all segments have the zones of one plan
(`--common-zones`). "At most R": k is raised in the segments that are served best, until the largest
error is at most R times the smallest; the segment that is served worst keeps k = 10, because no
zones are finer than those it has.
"""

from __future__ import annotations

import warnings

import flowveil
from benchmarks.posterior import Truth, reconstructed_errors
from benchmarks.posterior_parts import PARIS
from flowveil.core.flows import Flows
from flowveil.reading.sources.synthetic import synthetic_survey

KS = (10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300)
BOUNDS = (2.0, 1.5)


def error(part: Flows, k: int) -> float:
    """Misplaced share of a segment alone."""
    release = flowveil.anonymize(part, "layercut", k=k, protect="trips")
    return reconstructed_errors(Truth.of(part), release, 0.0).misplaced


def line(name: str, errors: dict[str, float], trips: dict[str, int]) -> str:
    """Ratio, smallest, largest and mean error."""
    values = errors.values()
    mean = sum(errors[key] * trips[key] for key in errors) / sum(trips.values())
    return (
        f"| {name} | {max(values) / min(values):.2f} | {min(values):.1%} | {max(values):.1%}"
        f" | {mean:.1%} |"
    )


def main() -> None:
    warnings.simplefilter("ignore")
    survey = synthetic_survey()
    for column in ("sex", "age"):
        how = {"resolution": 9, "within": PARIS, "max_dropped": 1.0, "by_many": True}
        flows = flowveil.read_trips(survey, by=column, **how)
        parts = {key[0]: part for key, part in flows.split()}
        trips = {key: int(part.trips.sum()) for key, part in parts.items()}
        by_k = {key: {10: error(part, 10)} for key, part in parts.items()}
        common = flowveil.anonymize(flows, "layercut", k=10, protect="trips", common_zones=True)
        same = {
            key: reconstructed_errors(Truth.of(part), common[key], 0.0).misplaced
            for key, part in parts.items()
        }
        print(
            f"\n| by {column} | ratio | best served | worst served | all |\n|---|---:|---:|---:|---:|"
        )
        own = {key: errors[10] for key, errors in by_k.items()}
        print(line("each alone", own, trips))
        print(line("same zones", same, trips))
        for bound in BOUNDS:
            least = max(own.values()) / bound
            chosen = {}
            for key, part in parts.items():
                for k in KS:
                    if k not in by_k[key]:
                        by_k[key][k] = error(part, k)
                    chosen[key] = by_k[key][k]
                    if chosen[key] >= least:
                        break
            print(line(f"at most {bound:g}", chosen, trips), flush=True)


if __name__ == "__main__":
    main()
