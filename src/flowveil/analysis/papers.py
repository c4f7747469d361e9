"""The papers: their set-ups, numbers and columns of tables, and measures as the ODkAnon authors
compute them.

Options override a preset. Tables have the papers' columns, with the planner's error before and the
suppressed share after them. The reading ``authors`` differs from the definitions here:

- G and E of ODkAnon: over trees of the tiles of published trips. Suppressed trips between other
  tiles are missing in the sum of E. Those of other methods are as here.
- C_DM: the penalty is, for ODkAnon, pairs of tiles left times pairs suppressed; for the others
  trips suppressed times the volume published.
- C_AVG: over all cells, also those below the threshold.
- The population's threshold: from the mean weight of all trips, before a study area is cut out. It
  also decides which cells count in C_DM and G on the population.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flowveil.analysis.covering import covering_cells
from flowveil.core.arrays import Floats
from flowveil.core.errors import DataError, ParameterError, did_you_mean
from flowveil.core.hierarchy import Hierarchy
from flowveil.publishing.release import Release
from flowveil.reading.engines import read_trips
from flowveil.release.plan import NodeZones

#: The trees of a segment: those of the whole data set, or of its tiles.
Trees = Literal["common", "own"]
#: A measure; None if it is not defined.
Value = float | int | None
TREES: tuple[Trees, ...] = ("common", "own")
#: How measures are defined: as here, or as in the program of the ODkAnon papers.
READINGS = ("ours", "authors")

#: Protections and bases in the order of the ODkAnon papers.
_PROTECTIONS, _BASES = ("trips", "population"), ("trips", "weight")
_REPORT_COLUMNS = ("c_dm", "c_avg", "mean_generalization_error", "reconstruction_loss")


@dataclass(frozen=True)
class Preset:
    """The set-up of one paper. Numbers of tables are None if there is no such table."""

    name: str  # value of ``--preset``
    paper: str  # authors and year
    methods: tuple[str, ...]  # that it compares
    by: tuple[str, ...] = ()  # the attributes of its segments
    max_suppressed: float = 0.1  # share that may be suppressed
    limits: Mapping[str, float] = field(
        default_factory=dict
    )  # the same by method, where it differs
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trees: Trees = "own"
    k: Any = 10
    columns: tuple[str, ...] = _REPORT_COLUMNS  # measures of its tables, in order
    chapter: str = ""  # prefix of all table numbers
    data: int | None = None  # the table of the data set
    cross_check: int | None = None  # of the k that is reached
    overview: int | None = None  # of all segments
    comparisons: int | None = None  # the first table that compares methods
    fewest_trips: int = (
        0  # smallest number of trips of a matrix, if there is one for each time step
    )
    city: str = ""  # the row of its data set, if the table has several
    tables_of_segments: bool = True  # False: one table, of the whole data set

    @property
    def is_of_matrices(self) -> bool:
        """Whether it compares methods over matrices instead of segments."""
        return self.fewest_trips > 0

    def label(self, kind: str) -> str | None:
        """Returns the number of a table that occurs once."""
        number = getattr(self, kind)
        return None if number is None else f"{self.chapter}{number}"

    def label_of_comparison(self, segmentation: int, protect: str, basis: str) -> str | None:
        """Returns the number of the table of a segmentation (0: the whole data set).

        None if the paper lacks it.
        """
        if self.comparisons is None or protect not in _PROTECTIONS or segmentation > 3:
            return None
        if not self.tables_of_segments and (segmentation, protect, basis) != (0, "trips", "trips"):
            return None
        place = 4 * segmentation + 2 * _PROTECTIONS.index(protect) + _BASES.index(basis)
        return f"{self.chapter}{self.comparisons + place}"


def _targets(v_target: float) -> dict[str, dict[str, float]]:
    return {method: {"v_target": v_target} for method in ("atg-soft", "atg-dual")}


_SURVEY: dict[str, Any] = {
    # ATG-Dual keeps the 10 %, as does the port that the papers call ATG-Soft; ATG-Soft of Matet et
    # al. does not.
    "methods": ("odkanon", "atg-dual", "oigh", "mondrian"),
    "by": ("sex", "age", "profession"),
    # OIGH of the papers suppresses nothing; the others may suppress 10 %.
    "limits": {"oigh": 0.0},
    # The thesis gives it for Paris and Porto, and 2,500 for Turin; the report's rows are the
    # thesis's.
    "options": _targets(1000.0),
}
_THESIS: dict[str, Any] = {
    "columns": (*_REPORT_COLUMNS, "generalization_distance_m"), "chapter": "5.", "data": 1,
}  # fmt: skip

_MATRICES: dict[str, Any] = {
    "trees": "common",
    "columns": ("mean_generalization_error", "reconstruction_loss", "distribution_distance"),
    "fewest_trips": 5001,
}
_LAST = ("mondrian", "suppression", "laplace")

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "odkanon-abstract",
            "Armenante et al., NetMob 2025 (abstract)",
            methods=("odkanon",),
            by=("sex",),
            columns=("od_dimension", "mean_generalization_error", "c_dm", "reconstruction_loss"),
            data=1,
            overview=2,
        ),
        Preset(
            "odkanon-report",
            "Armenante et al., NetMob 2025 (report)",
            **_SURVEY,
            data=2,
            cross_check=3,
            comparisons=4,
        ),
        Preset(
            "odkanon-thesis",
            "Armenante 2025 (thesis)",
            **_SURVEY,
            **_THESIS,
            cross_check=5,
            comparisons=6,
            city="paris",
        ),
        *(
            Preset(
                f"odkanon-{city.lower()}",
                f"Armenante 2025 (thesis), {city}",
                methods=_SURVEY["methods"],
                limits=_SURVEY["limits"],
                options=_targets(target),
                **_THESIS,
                comparisons=table,
                city=city.lower(),
                tables_of_segments=False,
            )
            for city, table, target in (("Turin", 3, 2500.0), ("Porto", 4, 1000.0))
        ),
        Preset(
            "matet-2023",
            "Matet et al. 2023",
            methods=("atg-dual", "atg-soft", "oigh", "glove-sk", "glove", *_LAST),
            options={"laplace": {"bound": 4}},
            **_MATRICES,
        ),
    )
}


def find_preset(name: str | None) -> Preset | None:
    """Returns the preset of a name, or refuses the name."""
    if name is None or name in PRESETS:
        return None if name is None else PRESETS[name]
    raise ParameterError(
        f"Unknown preset '{name}'; allowed: {', '.join(PRESETS)}." + did_you_mean(name, PRESETS)
    )


def segmented_by(preset: str | None, by: Sequence[str]) -> tuple[str, ...]:
    """Returns the attributes of segments: those named, empty for ``none``, or those of the
    preset.
    """
    if list(by) == ["none"]:
        return ()
    found = find_preset(preset)
    return tuple(by) or (() if found is None else found.by)


def authors_measures(
    release: Release, basis: str, k_population: float | None = None
) -> dict[str, Value]:
    """Returns the measures as the program of the ODkAnon authors computes them on a basis.

    C_AVG divides by the same number in every cell; C_DM, G and the number of cells below count
    cells of at least k trips, or of ``k_population``. G and E of ODkAnon are over trees of the
    published trips.
    """
    volume = release.cells.volume(basis).astype(np.float64)
    if not volume.sum():
        return {}
    unit = "trips" if basis == "trips" else "population"
    least = float(release.guarantee.asks(unit, release.input))
    if basis == "weight" and k_population is not None:
        least = k_population
    is_class = volume >= least
    measures: dict[str, Value] = {
        "c_dm": float(np.sum(volume[is_class] ** 2)) + _authors_penalty(release, basis),
        "c_avg": float(volume.sum()) / len(volume) / least,
        f"cells_under_k_{unit}": int(np.sum(~is_class)),
    }
    return measures | (
        _over_published_tiles(release, basis, volume, is_class)
        if release.method == "odkanon"
        else {}
    )


def _authors_penalty(release: Release, basis: str) -> float:
    """Returns what C_DM adds for suppression.

    For ODkAnon pairs of tiles left times pairs suppressed; for the other methods trips suppressed
    times the published volume. Both on either basis.
    """
    kept = release.cell_of_flow >= 0
    if release.method == "odkanon":
        return float(int(kept.sum()) * int((~kept).sum()))
    return float(release.input.trips[~kept].sum()) * float(release.cells.total(basis))


def _over_published_tiles(
    release: Release, basis: str, volume: Floats, is_class: NDArray[np.bool_]
) -> dict[str, Value]:
    """Returns G and E over trees of the tiles of published trips.

    Empty unless the cells are pairs of tree nodes that do not intersect.
    """
    covering = covering_cells(release)
    plan, flows, cells = release.plan, release.input, release.cells
    origins, destinations = plan.origin_zones, plan.destination_zones
    if (
        not isinstance(origins, NodeZones)
        or not isinstance(destinations, NodeZones)
        or covering.flow is not None
    ):
        return {}
    kept = release.cell_of_flow >= 0
    seen_o, size_o = _published_tiles(flows.origins, flows.origin[kept], origins)
    seen_d, size_d = _published_tiles(flows.destinations, flows.destination[kept], destinations)
    tiles_o, tiles_d = size_o[cells.origin], size_d[cells.destination]
    in_classes = float(volume[is_class].sum())
    error = (
        float(np.sum((volume * (tiles_o + tiles_d))[is_class])) / in_classes if in_classes else 0.0
    )
    in_trees = seen_o[flows.origin] & seen_d[flows.destination]
    cell, original = covering.cell[in_trees], flows.volume(basis)[in_trees].astype(np.float64)
    pairs = tiles_o * tiles_d
    each = volume / pairs
    empty = pairs - np.bincount(cell[cell >= 0], minlength=len(pairs))
    on_flows = np.abs(np.append(each, 0.0)[cell] - original).sum()
    return {
        "mean_generalization_error": error,
        "reconstruction_loss": float((on_flows + np.sum(empty * each)) / flows.total(basis)),
    }


def _published_tiles(tree: Hierarchy, tiles: Any, zones: NodeZones) -> tuple[Any, Floats]:
    """Returns which tiles have published trips, and the number of these tiles in each zone."""
    seen = np.zeros(tree.n_tiles, dtype=np.bool_)
    seen[tiles] = True
    return seen, tree.sum_over(seen)[zones.nodes].astype(np.float64)


def authors_threshold(source: Any, k: int, reading: Mapping[str, Any]) -> float | None:
    """Returns k times the mean weight of all trips, also those outside the study area.

    None without weights.
    """
    how = {
        name: value
        for name, value in reading.items()
        if name not in ("within", "outside", "every", "time")
    }
    if not reading.get("weight"):
        return None
    flows = read_trips(source, **how)
    if flows.weight is None or not flows.trips.sum():
        raise DataError("There are no trips with weights.")
    return float(k * flows.total("weight") / flows.trips.sum())
