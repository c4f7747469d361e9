"""The measures of a release: losses, distances, lower bounds, and the smallest cells.

Exact and private.

Every measure is computed on trips and, with weights, on weights too, whichever was protected. A
`Measure` has a key, a title and a meaning, computes its value from a `Subject`, and combines the
values of several `Slices`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from flowveil.analysis.covering import Covering, covering_cells
from flowveil.core.arrays import Floats, Ints
from flowveil.core.flows import Flows, Groups, group_pairs, to_fixed_point
from flowveil.core.guarantee import UNITS, Guarantee, Unit
from flowveil.core.hierarchy import Hierarchy
from flowveil.methods.pair_divisions import PairTable
from flowveil.methods.paircut import proven_score, settle_price
from flowveil.methods.pruning import dual_multiplier
from flowveil.methods.safe_pairs import safe_levels, sketch
from flowveil.release.facets import Facets
from flowveil.release.plan import NodeZones

if TYPE_CHECKING:
    from flowveil.core.flows import Cells
    from flowveil.publishing.release import NoisyRelease, Release
    from flowveil.release.counts import Matrix
    from flowveil.release.noisy import PrivacyLoss
    from flowveil.release.plan import Zones

Value = float | int | None
Values = dict[str, Value]
#: Largest number of flows times pairs of depths for which the bound is computed; more would take
#: minutes.
MOST_WORK = 2_000_000_000


class MeasuredRelease:
    """A release and its input: what does not depend on the basis."""

    def __init__(self, release: Release | NoisyRelease) -> None:
        self.release = release

    @property
    def guarantee(self) -> Guarantee:
        """The thresholds of cells; noisy counts have none."""
        if self.release.facets.is_noisy:
            raise TypeError("noisy counts have no threshold")
        return cast("Guarantee", self.release.guarantee)

    @cached_property
    def safe_sizes(self) -> Floats | None:
        """See `smallest_safe_sizes`."""
        return smallest_safe_sizes(self.release.input, self.guarantee)

    @cached_property
    def covering(self) -> Covering:
        """The cells that cover each flow."""
        return covering_cells(self.release)

    @cached_property
    def moved(self) -> list[tuple[Groups, Floats]]:
        """The distances of origins and of destinations, as `_metres` returns them.

        Empty without a map.
        """
        flows, plan, kept = self.release.input, self.release.plan, self.release.cell_of_flow >= 0
        trees, tiles = (flows.origins, flows.destinations), (flows.origin, flows.destination)
        zones, numbers = (
            (plan.origin_zones, plan.destination_zones),
            (
                plan.origin_zone,
                plan.destination_zone,
            ),
        )
        ends = [_metres(trees[i], tiles[i][kept], zones[i], numbers[i][kept]) for i in (0, 1)]
        return [] if None in ends else [end for end in ends if end is not None]


class Subject:
    """A release with its input, counted on one basis: trips or weight."""

    def __init__(
        self, release: Release | NoisyRelease, basis: str, comparison: MeasuredRelease | None = None
    ) -> None:
        cells, plan = release.cells, release.plan
        self.release, self.basis, self.comparison = (
            release,
            basis,
            comparison or MeasuredRelease(release),
        )
        self.total, self.published = release.input.total(basis), cells.total(basis)
        self.volume: Floats = cells.volume(basis).astype(np.float64)  # of each published cell
        self.is_class = _equivalence_classes(self.comparison, basis, self.volume)
        self.in_classes = float(self.volume[self.is_class].sum())
        # The tiles in the origin zone and in the destination zone of each published cell.
        zones = plan.origin_zones.size[cells.origin], plan.destination_zones.size[cells.destination]
        self.sizes: tuple[Floats, Floats] = zones[0].astype(np.float64), zones[1].astype(np.float64)

    def mean(self, values: Any) -> float | None:
        """Returns the mean over the published volume of a value of each cell."""
        return float(np.sum(self.volume * values) / self.published) if self.published else None

    @property
    def mean_error(self) -> float | None:
        """The tiles of both zones of a class, averaged over the volume of classes."""
        if not self.in_classes:
            return None
        tiles = (self.sizes[0] + self.sizes[1])[self.is_class]
        return float(np.sum(self.volume[self.is_class] * tiles) / self.in_classes)

    @property
    def time_width(self) -> float | None:
        """The hours of a cell's time interval, averaged over the published volume.

        None if time is not folded.
        """
        hours = None if self.release.plan.folded is None else self.release.plan.folded.hours
        return None if hours is None else self.mean(hours[self.release.cells.origin])

    @cached_property
    def floor(self) -> float | None:
        """The lower bound of the mean error.

        The limit of suppression is that of the release, or what it suppresses if that is more, so
        that the bound holds for every hierarchical method. For boxes it is a reference, and the
        ratio may be below 1.
        """
        allowed = self.release.parameters.get("max_suppressed")
        gone = 1 - self.in_classes / self.total if self.total else 0.0
        share = max(gone, float(allowed) if isinstance(allowed, int | float) else 0.0)
        return _floor(self.release.input, self.comparison.safe_sizes, share, self.basis)

    @cached_property
    def moved(self) -> tuple[Floats, Floats] | None:
        """Geodesic metres (WGS 84) of published trip ends, and the volume of each.

        None without a map.
        """
        ends = self.comparison.moved
        if not ends:
            return None
        volume = self.release.input.volume(self.basis)[self.release.cell_of_flow >= 0].astype(
            np.float64
        )
        metres = np.concatenate([metres for _, metres in ends])
        weight = np.concatenate([pairs.sum(volume) for pairs, _ in ends])
        # Ends outside the area have no place and are not counted.
        placed = ~np.isnan(metres)
        return None if weight[placed].sum() == 0 else (metres[placed], weight[placed])


def _equivalence_classes(
    comparison: MeasuredRelease, basis: str, volume: Floats
) -> NDArray[np.bool_]:
    """Returns which published cells are equivalence classes in the unit of this basis.

    The papers sum over classes with |Eq| >= k in the unit that is measured. On the protected basis
    these are all cells; noisy counts have no threshold.
    """
    release = comparison.release
    if release.facets.is_noisy or comparison.guarantee.basis == basis:
        return np.ones(len(volume), dtype=np.bool_)
    return volume >= comparison.guarantee.class_size(basis, release.input)


def _metres(tree: Hierarchy, tile: Ints, zones: Zones, zone: Ints) -> tuple[Groups, Floats] | None:
    """Returns the distinct (tile, zone) pairs and the distance of each, NaN outside the area.

    None without a map.
    """
    from pyproj import Geod

    pairs = group_pairs(tile, zone, tree.n_tiles, len(zones))
    used, position = np.unique(pairs.destination, return_inverse=True)
    center = zones.centers(used.astype(np.int32))
    if center is None or tree.geography is None:
        return None
    lat, lon = tree.geography.centers(tree.leaf_node[pairs.origin])
    metres = Geod(ellps="WGS84").inv(lon, lat, center[1][position], center[0][position])[2]
    return pairs, np.asarray(metres, np.float64)


@dataclass(frozen=True, eq=False)
class MeasuredSlices:
    """Slices that are measured together, on one basis."""

    releases: Sequence[Release | NoisyRelease]  # of the published slices
    own: Sequence[Values]  # the measures of each
    lost: Floats  # the volume of each unpublished slice
    class_size: float  # the volume of a cell of k, by all trips
    whole: Floats  # the input volume of each published slice
    shown: Floats  # the published volume of each
    in_classes: Floats  # the volume of the cells of each that reach k in the unit of the basis
    n_classes: Ints  # their number

    @property
    def total(self) -> float:
        """The input volume of all slices, published or not."""
        return float(self.whole.sum() + self.lost.sum())

    def each(self, key: str) -> list[Value]:
        """Returns a measure of each slice."""
        return [own[key] for own in self.own]

    def mean(self, values: Sequence[Value], volume: Floats | None = None) -> float | None:
        """Returns the mean over the slices with a value, weighted by published volume."""
        weights = self.shown if volume is None else volume
        known = [
            (float(v), w) for v, w in zip(values, weights, strict=True) if v is not None and w > 0
        ]
        return _mean(*np.array(known).T) if known else None


@dataclass(frozen=True)
class Measure:
    """A measure of a release."""

    key: str  # its name in JSON
    title: str  # for pages
    meaning: str
    compute: Callable[[Subject], Value]  # returns the exact value, or None if it does not exist
    # Returns the value of several slices together; None if it is not listed for them.
    combine: Callable[[MeasuredSlices, str], Value] | None = None
    # For noisy counts: compared with the true counts, None, or not listed.
    of_noise: Literal["defined", "void", "absent"] = "absent"
    listed: Literal["always", "folded", "never"] = (
        "always"  # for exact counts; ``folded``: only if time is folded
    )


def _averaged(slices: MeasuredSlices, key: str) -> float | None:
    return slices.mean(slices.each(key))


def _added(slices: MeasuredSlices, key: str) -> int | None:
    values = slices.each(key)
    return None if None in values else int(sum(v for v in values if v is not None))


def _smallest(slices: MeasuredSlices, key: str) -> Value:
    return min((v for v in slices.each(key) if v is not None), default=None)


def _n_zones(subject: Subject, end: str) -> int:
    """Returns the number of zones; a zone in several time intervals or layers counts once."""
    used = np.unique_values(getattr(subject.release.cells, end))
    zones = getattr(subject.release.plan, f"{end}_zones")
    return len(np.unique_values(zones.nodes[used])) if isinstance(zones, NodeZones) else len(used)


def _combined_zones(slices: MeasuredSlices, key: str) -> int:
    end, codes = key.removeprefix("n_").removesuffix("_zones"), set()
    for release in slices.releases:
        used = np.flatnonzero(np.bincount(getattr(release.cells, end))).astype(np.int32)
        codes.update(getattr(release.plan, f"{end}_zones").codes(used).tolist())
    return len(codes)


def _of_unit(unit: Unit) -> tuple[Measure, Measure]:
    """Returns the smallest value of a unit over cells, and the cells below k of it, whether it is
    protected or not.
    """

    def least(subject: Subject) -> Value:
        values = unit.value(subject.release.cells)
        return None if values is None else values.min().item()

    def n_under(subject: Subject) -> int | None:
        values = unit.value(subject.release.cells)
        if values is None:
            return None
        return int(
            np.sum(values < subject.comparison.guarantee.asks(unit.name, subject.release.input))
        )

    return (
        Measure(f"k_{unit.name}", *unit.smallest, least, _smallest, "void"),
        Measure(
            f"cells_under_k_{unit.name}", f"Cells under k {unit.name}", unit.short, n_under, _added
        ),
    )


def _of_moved(compute: Callable[[Floats, Floats], float]) -> Callable[[Subject], float | None]:
    """Returns a measure of the distances moved, given the distances and their volumes."""
    return lambda subject: None if subject.moved is None else compute(*subject.moved)


def _mean(values: Floats, weight: Floats) -> float:
    return float(np.average(values, weights=weight))


def weighted_quantile(values: Floats, weight: Floats, level: float = 0.5) -> float:
    """Returns the smallest value at which this share of the weight is reached.

    The median by default.
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reached, reached[-1] * level)])


def _deviation(values: Floats, weight: Floats) -> float:
    return float(np.average((values - _mean(values, weight)) ** 2, weights=weight) ** 0.5)


def _combined_spread(slices: MeasuredSlices, key: str) -> float | None:
    means = slices.each("generalization_distance_m")
    squares = [
        None if m is None or s is None else m**2 + s**2
        for m, s in zip(means, slices.each(key), strict=True)
    ]
    mean, second = slices.mean(means), slices.mean(squares)
    return None if mean is None or second is None else float(max(second - mean**2, 0.0) ** 0.5)


def _reconstruction_distance(subject: Subject, scale: float) -> float | None:
    """Returns the sum of abs(reconstructed / scale - original / volume) over all tile pairs, empty
    ones unlisted.
    """
    if subject.total == 0 or scale == 0:
        return None
    release, (size_o, size_d), folded = subject.release, subject.sizes, subject.release.plan.folded
    pairs = (
        size_o * size_d
        if folded is None
        else size_o * size_d * folded.n_values[release.cells.origin]
    )
    original = release.input.volume(subject.basis) / subject.total
    each = release.cells.volume(subject.basis) / scale / pairs
    on_flows = np.abs(subject.comparison.covering.rebuild(each, len(original)) - original).sum()
    return float(
        on_flows + np.sum((pairs - subject.comparison.covering.flows_in_cell(len(pairs))) * each)
    )


def _combined_loss(slices: MeasuredSlices, key: str) -> float | None:
    losses = slices.each(key)
    if not slices.total or None in losses:
        return None
    inside = sum(
        float(loss or 0) * volume for loss, volume in zip(losses, slices.whole, strict=True)
    )
    return float((inside + float(slices.lost.sum())) / slices.total)


def _average_class(subject: Subject) -> float | None:
    if not subject.in_classes:
        return None
    class_size = subject.comparison.guarantee.class_size(subject.basis, subject.release.input)
    return subject.in_classes / int(subject.is_class.sum()) / class_size


def _discernibility(subject: Subject) -> float:
    """Returns the sum of squared classes, and for the rest of the input its volume times all."""
    classes = subject.volume[subject.is_class]
    return float(np.sum(classes**2) + subject.total * (subject.total - subject.in_classes))


def _combined_average(slices: MeasuredSlices, _: str) -> float | None:
    in_classes, n_classes = float(slices.in_classes.sum()), int(slices.n_classes.sum())
    return in_classes / n_classes / slices.class_size if in_classes else None


def _averaged_over_classes(slices: MeasuredSlices, key: str) -> float | None:
    return slices.mean(slices.each(key), slices.in_classes)


_ALL = (
    Measure(
        "n_cells",
        "Published cells",
        "Rows of flows.parquet: pairs of an origin zone and a destination zone, where "
        "time is folded each with an interval of time.",
        lambda subject: len(subject.release.cells),
        _added,
        "defined",
    ),
    Measure(
        "n_origin_zones",
        "Origin zones",
        "Different areas where published trips start.",
        lambda subject: _n_zones(subject, "origin"),
        _combined_zones,
        "defined",
    ),
    Measure(
        "n_destination_zones",
        "Destination zones",
        "Different areas where published trips end.",
        lambda subject: _n_zones(subject, "destination"),
        _combined_zones,
        "defined",
    ),
    Measure(
        "suppressed_share",
        "Suppressed share",
        "The part of the input volume that is in no published cell.",
        # Noise may add trips, so that the share of noisy counts may be below 0.
        lambda subject: (
            (subject.total - subject.published) / subject.total if subject.total else 0.0
        ),
        lambda slices, _: 1 - float(slices.shown.sum()) / slices.total if slices.total else 0.0,
        "defined",
    ),
    *(one for unit in UNITS.values() for one in _of_unit(unit)),
    Measure(
        "mean_generalization_error",
        "Mean generalisation error",
        "Tiles seen in the origin zone plus tiles seen in "
        "the destination zone, averaged over the volume of the cells that reach k in this unit; 2 "
        "means that nothing was generalised.",
        lambda subject: subject.mean_error,
        _averaged_over_classes,
        "void",
    ),
    Measure(
        "mean_time_width_h",
        "Mean width of time (h)",
        "Length of the time interval of a cell, averaged over the published volume.",
        lambda subject: subject.time_width,
        listed="folded",
    ),
    Measure(
        "floor_generalization_error",
        "Lower bound of that error",
        "A bound for every method that merges along these "
        "hierarchies: every flow in the smallest safe cell that could contain it, the costliest "
        "flows suppressed up to "
        "the limit.",
        lambda subject: subject.floor,
    ),
    Measure(
        "floor_ratio",
        "Error over its lower bound",
        "The mean generalisation error divided by its lower bound.",
        lambda subject: (
            subject.mean_error / subject.floor if subject.floor and subject.mean_error else None
        ),
    ),
    Measure(
        "generalization_distance_m",
        "Distance moved (GDM), mean (m)",
        "Mean distance of the ends of published trips "
        "from the centre of their input tile to the centre of their zone. The size of tiles is "
        "not counted, nor are "
        "ends outside the area.",
        _of_moved(_mean),
        _averaged,
        "defined",
    ),
    Measure(
        "generalization_distance_median_m",
        "Distance moved (GDM), median (m)",
        "Half of the ends moved less than this.",
        _of_moved(weighted_quantile),
        lambda _, __: None,
        "defined",
    ),
    Measure(
        "generalization_distance_std_m",
        "Distance moved (GDM), standard deviation (m)",
        "Standard deviation of the distance moved.",
        _of_moved(_deviation),
        _combined_spread,
        "defined",
    ),
    Measure(
        "reconstruction_loss",
        "Reconstruction loss",
        "Difference between the input and the cells spread evenly over "
        "their tiles: 0 is perfect, 2 is the worst.",
        lambda subject: _reconstruction_distance(subject, subject.total),
        _combined_loss,
        "defined",
    ),
    Measure(
        "distribution_distance",
        "Distribution distance",
        "The same comparison of shares instead of volumes: 0 is perfect, 2 is the worst.",
        lambda subject: _reconstruction_distance(subject, subject.published),
        _averaged,
        "defined",
    ),
    Measure(
        "c_dm",
        "Discernibility (C_DM)",
        "Squared volumes of the cells that reach k in this unit, plus a penalty for all other "
        "volume; less is better.",
        _discernibility,
        lambda slices, key: (
            sum(float(v or 0) for v in slices.each(key)) + float(np.sum(slices.lost**2))
        ),
        "void",
    ),
    Measure(
        "c_avg",
        "Average cell over k (C_AVG)",
        "How many times larger the average cell is than it must be, of the cells that reach k in "
        "this unit; 1 is best.",
        _average_class,
        _combined_average,
        "void",
    ),
    Measure(
        "published_trips",
        "Published trips",
        "The sum of all published counts, noise included.",
        lambda subject: int(subject.release.cells.trips.sum()),
        None,
        "defined",
        "never",
    ),
)
#: All measures, in reading order.
MEASURES: dict[str, Measure] = {measure.key: measure for measure in _ALL}


def _listed(facets: Facets) -> list[Measure]:
    if facets.is_noisy:
        return [m for m in _ALL if m.of_noise != "absent"]
    return [m for m in _ALL if m.listed == "always" or (m.listed == "folded" and facets.folds)]


def measure(release: Matrix, keys: Collection[str] = ()) -> dict[str, Values]:
    """Returns all measures, or some, by basis: "trips" and, with weights, "weight".

    `Release.metrics` caches all.

    A noisy release is compared with the true counts of the whole input, including trips outside the
    region or beyond the bound, and pairs of tiles without trips. The value of a measure without a
    meaning for noise is None.
    """
    noisy, measures, made = release.facets.is_noisy, {}, cast("Release | NoisyRelease", release)
    own, comparison = (
        [m for m in _listed(release.facets) if not keys or m.key in keys],
        MeasuredRelease(made),
    )
    for basis in ("trips",) if release.cells.weight is None else ("trips", "weight"):
        subject = Subject(made, basis, comparison)
        measures[basis] = {
            m.key: None if noisy and m.of_noise == "void" else m.compute(subject) for m in own
        }
    return measures


def combine(
    releases: Sequence[Release | NoisyRelease],
    absent: Sequence[Cells],
    whole: Cells,
    guarantee: Guarantee | PrivacyLoss,
    keys: Collection[str] = (),
) -> dict[str, Values]:
    """Returns all measures, or some, of published slices, which share no trips, together, by basis.

    ``absent`` are unpublished slices, which count as suppressed; ``whole`` is the input of all
    slices.
    """
    exact = [measure(release, keys) if keys else release.metrics() for release in releases]
    noisy = releases[0].facets.is_noisy
    combined: dict[str, Values] = {}
    comparisons = [MeasuredRelease(release) for release in releases]
    for basis in exact[0]:
        subjects = [Subject(each.release, basis, each) for each in comparisons]
        slices = MeasuredSlices(
            releases=releases,
            own=[own[basis] for own in exact],
            lost=np.array([part.total(basis) for part in absent]),
            class_size=(
                guarantee.class_size(basis, whole)
                if isinstance(guarantee, Guarantee)
                else float("nan")
            ),
            whole=np.array([release.input.total(basis) for release in releases]),
            shown=np.array([subject.published for subject in subjects]),
            in_classes=np.array([subject.in_classes for subject in subjects]),
            n_classes=np.array([subject.is_class.sum() for subject in subjects], dtype=np.int32),
        )
        combined[basis] = {
            m.key: None if noisy and m.of_noise == "void" else m.combine(slices, m.key)
            for m in _listed(Facets(counts="noisy" if noisy else "exact"))
            if m.combine is not None and (not keys or m.key in keys)
        }
    return combined


def generalization_floor(
    flows: Flows, guarantee: Guarantee, *, max_suppressed: float
) -> float | None:
    """Returns a lower bound of the mean generalisation error of releases whose zones are nodes of
    the hierarchies.

    The mean over flows of their `smallest_safe_sizes`, without the costliest ``max_suppressed`` of
    the volume. None if nothing can be published within the limit, or if the trees are too deep.
    """
    return _floor(flows, smallest_safe_sizes(flows, guarantee), max_suppressed, guarantee.basis)


def _floor(flows: Flows, sizes: Floats | None, max_suppressed: float, basis: str) -> float | None:
    if sizes is None:
        return None
    volume = flows.volume(basis).astype(np.float64)
    if basis == "weight":
        volume = to_fixed_point(volume).astype(np.float64)
    order = np.argsort(sizes, kind="stable")
    size, volume = sizes[order], volume[order]
    # Sums of whole numbers are exact, so that equal inputs give equal bounds.
    before = np.cumsum(volume) - volume
    kept = np.clip(float(np.sum(volume)) * (1 - max_suppressed) - before, 0.0, volume)
    counted = kept > 0
    if not counted.any() or not np.isfinite(size[counted]).all():
        return None
    return float(np.sum(size[counted] * kept[counted]) / np.sum(kept[counted]))


def smallest_safe_sizes(flows: Flows, guarantee: Guarantee) -> Floats | None:
    """Returns each flow's smallest |o| + |d| over safe pairs around it, or infinity.

    None if the trees are too deep.
    """
    flows, guarantee = guarantee.to_fixed_point(flows)
    origins = sketch(flows.origins, flows.origin, flows, guarantee)
    destinations = sketch(flows.destinations, flows.destination, flows, guarantee)
    if len(flows) * (origins.tree.max_depth + 1) * (destinations.tree.max_depth + 1) > MOST_WORK:
        return None
    smallest = np.full(len(flows), np.inf)
    for level in safe_levels(flows, guarantee, origins, destinations):
        flow, pair = level.rows()
        size = origins.size[level.origin] + destinations.size[level.destination]
        smallest[flow] = np.minimum(smallest[flow], size[pair])
    return smallest


def division_floor(
    flows: Flows, guarantee: Guarantee, *, max_suppressed: float = 0.1
) -> float | None:
    """Returns a mean generalisation error that no division of (root, root) within the limit is
    below.

    The cells of ATG-Dual, ODkAnon, OIGH, TwinCut and PairCut are divisions. Proven by the best
    division at a price. None where nothing can be published within the limit, or where the trees
    are too deep to hold all their nodes.
    """
    table = PairTable.from_flows(flows, guarantee, "error")
    budget = max_suppressed * float(np.sum(flows.volume(guarantee.basis)))
    price = None if table is None or table.thinned else dual_multiplier(table, budget)
    if table is None or price is None:
        return None
    return proven_score(table, settle_price(table, price)[0], budget)
