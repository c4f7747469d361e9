"""The words and columns that all tables of a study share: what a run is called, and what stands for a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowveil.analysis.study import Study

NOT_FOR_PUBLICATION = "not for publication"

#: Who is protected. The papers speak of participants where they count trips; a participant is a person here.
_PROTECTED = {"people": "the participants", "population": "the population"}
#: What measures are counted in.
BASES = {"trips": "trips", "weight": "the population"}

_NAMES = {
    "odkanon": "ODkAnon", "atg-dual": "ATG-Dual", "atg-soft": "ATG-Soft", "oigh": "OIGH", "mondrian": "Mondrian",
    "glove": "Glove", "glove-sk": "Glove-sk", "twincut": "TwinCut", "suppression": "Suppression", "laplace": "Laplace",
    "paircut": "PairCut", "curvecut": "CurveCut",
}  # fmt: skip

HEADS = {
    "c_dm": "C_DM",
    "c_avg": "C_AVG",
    "mean_generalization_error": "G",
    "reconstruction_loss": "E",
    "distribution_distance": "D",
    "generalization_distance_m": "GDM (m)",
    "generalization_distance_median_m": "GDM median",
    "generalization_distance_std_m": "GDM std. dev.",
    "od_dimension": "OD dimension",
    "suppressed_share": "suppressed (%)",
    "seconds": "Time (s)",
}
#: Columns of a table that compares methods, where no paper says otherwise.
USUAL = (
    "c_dm",
    "c_avg",
    "mean_generalization_error",
    "reconstruction_loss",
    "generalization_distance_m",
    "generalization_distance_median_m",
    "generalization_distance_std_m",
    "od_dimension",
    "suppressed_share",
    "seconds",
)


def protected(protect: str) -> str:
    """Who is protected, in words."""
    return " and ".join(_PROTECTED.get(unit, unit) for unit in protect.split("+"))


def method_name(name: str) -> str:
    """A method as papers write it."""
    return _NAMES.get(name, name)


def rows_of(study: Study, **wanted: Any) -> list[dict[str, Any]]:
    """The rows that have these values."""
    return [row for row in study.rows if all(row[name] == value for name, value in wanted.items())]


def value_of(row: dict[str, Any], name: str, *, time_limit: float) -> Any:
    """What a table shows of one measure of one run."""
    if name == "seconds":
        late = row["status"] == "timeout"
        return f">{time_limit:,.1f}" if late else (row["seconds"] if row["seconds"] is not None else "-")
    if name == "od_dimension":
        ends = [row.get("n_origin_zones"), row.get("n_destination_zones")]
        return entry(row, None if None in ends else "×".join(f"{n:,}" for n in ends))
    if name == "suppressed_share":
        share = row.get(name)
        return entry(row, None if share is None else 100 * float(share), name)
    return entry(row, row.get(name), name)


def entry(row: dict[str, Any], value: Any, name: str = "") -> Any:
    """A value, or why there is none."""
    if row["status"] in ("timeout", "failed"):
        return "N/A"
    if row["status"] == "infeasible":
        return "none"
    if value is None:
        return "withheld" if name in row["withheld"] else "-"
    return value
