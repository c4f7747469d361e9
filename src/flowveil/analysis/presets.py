"""The set-ups of the papers: methods, limits, trees, and the numbers and columns of their tables.

Options override a preset. Tables have the papers' columns, with the planner's error before and the suppressed share
after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from flowveil.errors import ParameterError, did_you_mean

#: The trees of a segment: those of the whole data set, or of its tiles.
Trees = Literal["common", "own"]
TREES: tuple[Trees, ...] = ("common", "own")
#: How measures are defined. ``authors``: as in the program of the ODkAnon papers, where it differs from the papers and
#: from ours: G and E over trees of the published trips, C_DM by rows, mean weight before a study area is cut out.
READINGS = ("ours", "authors")

#: Protections and bases in the order of the ODkAnon papers.
_PROTECTIONS, _BASES = ("trips", "population"), ("trips", "weight")
_REPORT_COLUMNS = ("c_dm", "c_avg", "mean_generalization_error", "reconstruction_loss")


@dataclass(frozen=True)
class Preset:
    """The set-up of one paper.

    Attributes:
        name: value of ``--preset``.
        paper: its authors and year.
        methods: the methods it compares.
        by: the attributes of its segments.
        max_suppressed, limits: share that may be suppressed, and by method where it differs.
        options: options by method.
        trees: see `TREES`.
        k: the k.
        columns: measures of its tables, in order.
        chapter: prefix of all table numbers.
        data, cross_check, overview, comparisons: numbers of its tables: the data set, the k that is reached, one table
            of all segments, and the first table that compares methods; None if there is no such table.
        fewest_trips: smallest number of trips of a matrix, if there is one for each time step.
        published: preset, table and data set of the published means over matrices, see `published_results`.
    """

    name: str
    paper: str
    methods: tuple[str, ...]
    by: tuple[str, ...] = ()
    max_suppressed: float = 0.1
    limits: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    trees: Trees = "own"
    k: int = 10
    columns: tuple[str, ...] = _REPORT_COLUMNS
    chapter: str = ""
    data: int | None = None
    cross_check: int | None = None
    overview: int | None = None
    comparisons: int | None = None
    fewest_trips: int = 0
    published: tuple[str, str, str] | None = None

    @property
    def is_of_matrices(self) -> bool:
        """Whether it compares methods over matrices instead of segments."""
        return self.fewest_trips > 0

    def label(self, kind: str) -> str | None:
        """Returns the number of a table that occurs once."""
        number = getattr(self, kind)
        return None if number is None else f"{self.chapter}{number}"

    def label_of_comparison(self, segmentation: int, protect: str, basis: str) -> str | None:
        """Returns the number of a table that compares methods; None if the paper lacks it.

        Args:
            segmentation: 0 for the whole data set, then the attributes in their order.
            protect: the protection.
            basis: of the measures.
        """
        if self.comparisons is None or protect not in _PROTECTIONS or segmentation > 3:
            return None
        place = 4 * segmentation + 2 * _PROTECTIONS.index(protect) + _BASES.index(basis)
        return f"{self.chapter}{self.comparisons + place}"


_SURVEY: dict[str, Any] = {
    # ATG-Dual keeps the 10 %, as does the port that the papers call ATG-Soft; ATG-Soft of Matet et al. does not.
    "methods": ("odkanon", "atg-dual", "oigh", "mondrian"),
    "by": ("sex", "age", "profession"),
    # OIGH of the papers suppresses nothing; the others may suppress 10 %.
    "limits": {"oigh": 0.0},
    # The thesis gives it for Paris and Porto, and 2,500 for Turin; the report's rows are the thesis's.
    "options": {"atg-soft": {"v_target": 1000.0}, "atg-dual": {"v_target": 1000.0}},
}

_MATRICES: dict[str, Any] = {
    "trees": "common",
    "columns": ("mean_generalization_error", "reconstruction_loss", "distribution_distance"),
    "fewest_trips": 5001,
}

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
            columns=(*_REPORT_COLUMNS, "generalization_distance_m"),
            chapter="5.",
            data=1,
            cross_check=5,
            comparisons=6,
        ),
        *(
            Preset(
                name,
                f"Armenante 2025 (thesis), {name.split('-')[1].capitalize()}",
                methods=_SURVEY["methods"],
                limits=_SURVEY["limits"],
                options={"atg-soft": {"v_target": target}, "atg-dual": {"v_target": target}},
                columns=(*_REPORT_COLUMNS, "generalization_distance_m"),
                chapter="5.",
                data=1,
                comparisons=table,
            )
            for name, table, target in (("odkanon-turin", 3, 2500.0), ("odkanon-porto", 4, 1000.0))
        ),
        Preset(
            "matet-2023",
            "Matet et al. 2023",
            methods=("atg-dual", "atg-soft", "oigh", "glove-sk", "glove", "mondrian", "suppression", "laplace"),
            options={"laplace": {"bound": 4}},
            published=("matet-2023", "3", ""),
            **_MATRICES,
        ),
        # Table 4: the large data sets, on which GLOVE took too long; v_target is that of Table 5.
        *(
            Preset(
                name,
                f"Matet et al. 2023, {name}",
                methods=("atg-dual", "atg-soft", "oigh", "glove-sk", "mondrian", "suppression", "laplace"),
                options={
                    "laplace": {"bound": 4},
                    "atg-dual": {"v_target": target},
                    "atg-soft": {"v_target": target},
                },
                published=("matet-2023", "6", name),
                **_MATRICES,
            )
            for name, target in (("senegal_big", 400.0), ("senegal_split", 500.0))
        ),
    )
}


def find_preset(name: str | None) -> Preset | None:
    """Returns the preset of a name.

    Raises:
        ParameterError: the name is unknown.
    """
    if name is None or name in PRESETS:
        return None if name is None else PRESETS[name]
    raise ParameterError(f"Unknown preset '{name}'; allowed: {', '.join(PRESETS)}." + did_you_mean(name, PRESETS))


def segmented_by(preset: str | None, by: Sequence[str]) -> tuple[str, ...]:
    """Returns the attributes of segments: those named, empty for ``none``, or those of the preset."""
    if list(by) == ["none"]:
        return ()
    found = find_preset(preset)
    return tuple(by) or (() if found is None else found.by)
