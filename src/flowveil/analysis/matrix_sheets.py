"""The tables of a study over many matrices: those of Matet et al., with quartiles, and ratios to ATG-Dual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.analysis.pages.ratios import Boxes
from flowveil.analysis.sheets import Sheet
from flowveil.analysis.study_columns import HEADS, method_name, protected, rows_of

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

#: What every method is compared with.
REFERENCE = "atg-dual"
#: Measures that are averaged over matrices.
_MEASURES = (
    "mean_generalization_error",
    "reconstruction_loss",
    "distribution_distance",
    "seconds",
    "suppressed_share",
)
#: Figure 12: measures whose ratio to the reference is drawn.
_RATIOS = {
    "mean_generalization_error": "Mean generalisation error G",
    "reconstruction_loss": "Reconstruction loss E",
    "distribution_distance": "Distribution distance D",
    "seconds": "Time",
}
_DATA = {
    "matrices": "#matrices",
    "matrices_run": "of them run",
    "tiles": "#tiles",
    "mean_od_pairs": "average #flows",
    "density": "density (%)",
    "mean_trips": "average volume",
    "safe_od_pairs": "anon. flows (%)",
    "safe_trips": "anon. vol. (%)",
}
_SHARES = ("density", "safe_od_pairs", "safe_trips", "suppressed_share")
_ABSENT = "-"


def matrix_sheets(study: Study) -> list[Sheet]:
    """Tables 2, 3, 5 and 6 of the paper, then quartiles and ratios; Table 4 is Table 3 of larger data."""
    protections = ["+".join(protect) for protect in study.protections]
    sheets = [replace(_data_set(study), label="2")]
    for place, protect in enumerate(protections):
        more = "" if place == 0 else f", {place + 1}"
        sheets += [
            replace(_means(study, protect), label=f"3{more}"),
            replace(_targets(study, protect), label=f"5{more}"),
            replace(_detailed(study, protect), label=f"6{more}"),
            replace(_quartiles(study, protect), label=f"A1{more}"),
            replace(_ratio_sheet(study, protect), label=f"A2{more}"),
        ]
    return [sheet for sheet in sheets if sheet.rows]


def ratios(study: Study) -> list[Boxes]:
    """For each measure, how many times the reference's value every other method has, matrix by matrix."""
    protect = "+".join(study.protections[0])
    return [
        Boxes(title, _reference(study), [(method_name(m), v) for m, v in _ratios(study, protect, measure).items()])
        for measure, title in _RATIOS.items()
    ]


def _reference(study: Study) -> str:
    return method_name(REFERENCE if REFERENCE in study.methods else study.methods[0])


def _values(study: Study, protect: str, method: str, measure: str) -> dict[str, float]:
    """The values of a measure by step, of the runs that are done and have one."""
    basis = "weight" if "population" in protect.split("+") else "trips"
    rows = rows_of(study, method=method, protect=protect, basis="trips" if method == "laplace" else basis)
    return {row["segment"]: float(row[measure]) for row in rows if row.get(measure) is not None}


def _mean(values: Sequence[float] | Any, measure: str) -> Any:
    if len(values) == 0:
        return _ABSENT
    return float(np.mean(values)) * (100 if measure in _SHARES else 1)


def _data_set(study: Study) -> Sheet:
    values = [study.data[name] * (100 if name in _SHARES else 1) for name in _DATA]
    return Sheet(tuple(_DATA.values()), (tuple(values),), f"The data set: matrices of {study.every}")


def _means(study: Study, protect: str) -> Sheet:
    """Table 3: means over all matrices, and the time of all together."""
    rows = []
    for method in study.methods:
        found = {measure: list(_values(study, protect, method, measure).values()) for measure in _MEASURES}
        total = sum(found["seconds"]) if found["seconds"] else _ABSENT
        means = [_mean(found[m], m) for m in ("mean_generalization_error", *_MEASURES[1:3])]
        gone = _mean(found["suppressed_share"], "suppressed_share")
        rows.append((method_name(method), *means, total, gone, len(found["seconds"])))
    head = ("solver", "G", "E", "D", "time (s)", "S (%)", "matrices")
    return Sheet(head, tuple(rows), f"Performance, means over matrices, protecting {protected(protect)}; time of all")


def _targets(study: Study, protect: str) -> Sheet:
    """Table 5: the v_target of each matrix; the paper searched for one that suits all."""
    rows = []
    for method in study.methods:
        values = list(_values(study, protect, method, "v_target").values())
        if values:
            quartiles = [float(q) for q in np.quantile(values, (0.25, 0.5, 0.75))]
            rows.append((method_name(method), study.k, *quartiles))
    head = ("solver", "k", "first quartile", "median", "third quartile")
    return Sheet(head, tuple(rows), f"v_target of the matrices, protecting {protected(protect)}")


def _detailed(study: Study, protect: str) -> Sheet:
    """Table 6: the same means with the time as a clock shows it."""
    rows = []
    for method in study.methods:
        found = {measure: list(_values(study, protect, method, measure).values()) for measure in _MEASURES}
        means = [_mean(found[m], m) for m in (*_MEASURES[:3], "suppressed_share")]
        rows.append((method_name(method), _clock(sum(found["seconds"])) if found["seconds"] else _ABSENT, *means))
    return Sheet(("solver", "time", "G", "E", "D", "S (%)"), tuple(rows), "Detailed results of this data set")


def _quartiles(study: Study, protect: str) -> Sheet:
    rows = []
    for measure in _MEASURES:
        for method in study.methods:
            values = np.array(list(_values(study, protect, method, measure).values()))
            if len(values):
                scale = 100 if measure in _SHARES else 1
                quartiles = [float(q) for q in scale * np.quantile(values, (0.25, 0.5, 0.75))]
                row = (method_name(method), len(values), float(scale * values.mean()), *quartiles)
                rows.append((HEADS[measure], *row))
    head = ("measure", "solver", "matrices", "mean", "first quartile", "median", "third quartile")
    return Sheet(head, tuple(rows), f"Means and quartiles over matrices, protecting {protected(protect)}")


def _ratios(study: Study, protect: str, measure: str) -> dict[str, list[float]]:
    """Each method's values over the reference's, on the matrices on which both have one above 0."""
    reference = REFERENCE if REFERENCE in study.methods else study.methods[0]
    base = _values(study, protect, reference, measure)
    found = {}
    for method in study.methods:
        own = _values(study, protect, method, measure)
        shared = [own[step] / base[step] for step in own if base.get(step, 0) > 0 and own[step] > 0]
        if method != reference and shared:
            found[method] = shared
    return found


def _ratio_sheet(study: Study, protect: str) -> Sheet:
    """The numbers of the box plots."""
    rows = []
    for measure, title in _RATIOS.items():
        for method, values in _ratios(study, protect, measure).items():
            quartiles = [float(q) for q in np.quantile(values, (0, 0.25, 0.5, 0.75, 1))]
            rows.append((title, method_name(method), len(values), *quartiles))
    head = ("measure", "solver", "matrices", "smallest", "first quartile", "median", "third quartile", "largest")
    title = f"Ratio to {_reference(study)}, matrix by matrix (figure 12), protecting {protected(protect)}"
    return Sheet(head, tuple(rows), title)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
