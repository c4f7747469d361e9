"""Which measures must be withheld, and why.

A measure is computed from all trips, the suppressed ones included, so it may reveal what no cell shows. What each could
reveal stands beside it (`flowveil.measures.measure.Measure.reveals`); the rules here say when it would. One matrix is a
family of one: the rules of slices are those of a matrix, and where several are published, what follows from all of them
by subtraction is withheld besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from flowveil.disclosure.unlisted import n_unlisted_pairs, within_reach
from flowveil.flows import concat_cells
from flowveil.measures import MEASURES, combine, listed, of_published_table
from flowveil.measures.measure import Secret, Subject, Values
from flowveil.release.sliced import n_people
from flowveil.release.zones import NodeZones

if TYPE_CHECKING:
    from flowveil.flows import Cells
    from flowveil.guarantee import Guarantee
    from flowveil.release.noisy import NoisyRelease, NoisySlices
    from flowveil.release.release import Publishable, Release
    from flowveil.release.sliced import SlicedRelease

#: With fewer suppressed flows or cells than this, whoever knows one of them learns the other from the total.
FEWEST_SUPPRESSED = 3
#: With fewer cells than this that cover more than one pair of tiles, the losses are withheld; with fewer zones than
#: this that may hold more than one tile, the error.
FEWEST_MERGED = 10

# Why measures of one matrix are withheld.
REVEALS_VALUES = (
    "so little is suppressed, or so much for the few pairs of zones it can lie in, that the total would reveal "
    "single values"
)
EVEN_INSIDE = "cells are so even inside that the losses would reveal what is inside them"
FEW_MERGED = "so few cells cover more than one pair of tiles that the losses would reveal what is inside one"
FEW_COARSE = "so few zones may hold more than one tile that the error would reveal how many were seen in one"
# Why measures of slices are.
BESIDE_OTHERS = "other matrices of the same trips are published beside it, and could be subtracted from the total"
FROM_SUMS = "what single slices withhold, or slices that are not published hold, would follow from sums over all slices"
FROM_TOTAL = "what single slices withhold would follow from the total of all slices"
# Why measures of noisy counts are.
TRUE_COUNTS = (
    "they are computed from the true counts, which the noise is there to hide: published without noise of their "
    "own they would void the promise of differential privacy"
)
REVISED = (
    "values of the earlier release stand beside new ones, so that measures of the trips would reveal changes that are "
    "not published"
)
#: The measures of a revision that follow from its table.
OF_REVISION = frozenset(
    {"n_cells", "n_origin_zones", "n_destination_zones", "k_trips", "cells_under_k_trips", "k_population"}
)
REASONS = (
    REVEALS_VALUES,
    EVEN_INSIDE,
    FEW_MERGED,
    FEW_COARSE,
    BESIDE_OTHERS,
    FROM_SUMS,
    FROM_TOTAL,
    TRUE_COUNTS,
    REVISED,
)
#: Between two reasons for withholding; no reason has it inside.
AND = "; and "


def revealing(*secrets: Secret) -> set[str]:
    """The measures from which one of these could be computed."""
    return {m.key for m in MEASURES.values() if not m.reveals.isdisjoint(secrets)}


@dataclass(frozen=True)
class Withheld:
    """Which measures are withheld, by basis, and why.

    Attributes:
        hidden: their keys, by basis.
        reasons: none where nothing is withheld.
    """

    hidden: Mapping[str, set[str]]
    reasons: tuple[str, ...]

    def published(self, exact: Mapping[str, Values]) -> dict[str, Values]:
        """The measures as they may be published."""
        return {
            basis: {
                **{key: MEASURES[key].published(value) for key, value in values.items()},
                **dict.fromkeys(self.hidden[basis]),
            }
            for basis, values in exact.items()
        }

    def to_dict(self) -> dict[str, Any] | None:
        """Plain data for reports."""
        if not self.reasons:
            return None
        return {"measures": {b: sorted(names) for b, names in self.hidden.items()}, "reason": AND.join(self.reasons)}


@dataclass(frozen=True)
class Disclosed:
    """What may be said of a release.

    Attributes:
        measures: those of all matrices together, as they may be published.
        withheld: which of them are not.
        parts: the same for each matrix.
        guarantee: the thresholds, or the privacy loss.
        secret: the suppressed volume of some matrix is withheld.
    """

    measures: dict[str, Values]
    withheld: Withheld
    parts: Sequence[tuple[dict[str, Values], Withheld]]
    guarantee: dict[str, Any]
    secret: bool


def disclose(published: Publishable) -> Disclosed:
    """The measures of a release that may be published: everything that a report says of the input is from here."""
    release = cast("Release | NoisyRelease | NoisySlices | SlicedRelease", published)
    if release.kind == "noisy":
        withheld = Withheld({"trips": {m.key for m in listed(noisy=True) if m.of_noise == "true"}}, (TRUE_COUNTS,))
        # What is withheld is not even computed.
        parts = [({"trips": of_published_table(part)}, withheld) for _, part in release.parts]
        whole = parts[0][0] if not release.slice_columns else {"trips": of_tables_together(release, parts)}
        shown = parts if release.slice_columns else ()
        return Disclosed(whole, withheld, shown, release.guarantee.to_dict(), secret=False)
    if release.kind == "plain" and release.revision is not None:
        return _of_revision(release)
    matrices = _Matrices.of(release)
    exact = [part.metrics() for part in matrices.releases]
    reasons = [reason_to_withhold(part) for part in matrices.releases]
    reason = _reason_of_total(matrices, reasons)
    if reason == BESIDE_OTHERS:
        reasons = [own or reason for own in reasons]
    # Each slice would add an equation between the numbers of tiles seen in the same zones; see `few_coarse_zones`.
    few = any(few_coarse_zones([part]) for part in matrices.releases)
    few = few or few_coarse_zones(matrices.releases, errors=len(matrices.releases))
    parts = []
    for part, values, own in zip(matrices.releases, exact, reasons, strict=True):
        hidden = withhold([part], reason=own, few_coarse=few)
        parts.append((hidden.published(values), hidden))
    secret = reason is not None or any(own is not None for own in reasons)
    measured = [matrices.releases[i] for i in matrices.measured]
    overall = withhold(
        measured,
        reason=reason,
        few_coarse=few_coarse_zones(measured),
        terms_are_secret=secret or bool(matrices.absent),
    )
    together = exact[0]
    if release.kind == "sliced":
        together = combine(measured, matrices.absent, release.input.whole, release.guarantee)
    measures = overall.published(together)
    if secret:
        # Counted against the mean weight of all trips: one of them would reveal it for all.
        for said in [measures, *(values for values, _ in parts)]:
            for basis in said:
                said[basis].update(dict.fromkeys(_of_mean_weight(release.guarantee, basis)))
    return Disclosed(measures, overall, parts, _published_guarantee(release.guarantee, secret=secret), secret)


def of_tables_together(
    release: NoisyRelease | NoisySlices, parts: Sequence[tuple[dict[str, Values], Withheld]]
) -> Values:
    """The measures of noisy counts of several matrices: their rows, and the zones of all."""
    together: Values = dict.fromkeys(parts[0][0]["trips"])
    for name in ("n_cells", "published_trips"):
        together[name] = sum(int(measures["trips"][name] or 0) for measures, _ in parts)
    for end in ("origin", "destination"):
        together[f"n_{end}_zones"] = len(release.flows[f"{end}_zone"].unique())
    return together


def _of_revision(release: Release) -> Disclosed:
    """What follows from the published table: any other measure is of trips that are not all published."""
    own = listed(noisy=False)
    bases = ("trips",) if release.cells.weight is None else ("trips", "weight")
    measures: dict[str, Values] = {
        basis: {m.key: m.compute(Subject(release, basis)) if m.key in OF_REVISION else None for m in own}
        for basis in bases
    }
    withheld = Withheld({basis: {m.key for m in own} - OF_REVISION for basis in bases}, (REVISED,))
    return Disclosed(measures, withheld, [(measures, withheld)], release.guarantee.to_dict(), secret=True)


def _published_guarantee(guarantee: Guarantee, *, secret: bool) -> dict[str, Any]:
    """The thresholds; k times the mean weight is not a number where the suppressed volume is withheld.

    It would reveal the mean weight of all trips, suppressed ones included, and so tie the suppressed weight to the
    suppressed trips.
    """
    named = guarantee.to_dict()
    if secret and guarantee.population is not None and not guarantee.population_is_given:
        named["population"] = None
    return named


def withhold(
    releases: Sequence[Release], *, reason: str | None, few_coarse: bool, terms_are_secret: bool = False
) -> Withheld:
    """What is withheld of the measures of one matrix, or of several together.

    Args:
        releases: the matrices that are measured.
        reason: why the suppressed volume must not be disclosed, if it must not.
        few_coarse: whether too few zones are published that may hold several tiles to disclose the error.
        terms_are_secret: whether some matrices of them withhold theirs, or are not published at all.
    """
    guarantee = releases[0].guarantee
    hidden: dict[str, set[str]] = {basis: set() for basis in releases[0].metrics()}
    reasons = []

    def hide(why: str, secret: Secret) -> None:
        reasons.append(why)
        for names in hidden.values():
            names |= revealing(secret)

    if reason is not None:
        hide(reason, "suppressed")
        for basis, names in hidden.items():
            names |= _of_mean_weight(guarantee, basis)
    elif terms_are_secret:
        # Sums of squares and of losses have a term for each slice: with the total they are solved for the terms.
        hide(FROM_SUMS, "terms")
    inside = _reason_to_withhold_losses(releases)
    if inside is not None:
        hide(inside, "inside")
    if few_coarse:
        hide(FEW_COARSE, "seen")
    return Withheld(hidden, tuple(reasons))


def _of_mean_weight(guarantee: Guarantee, basis: str) -> set[str]:
    """The measures taken against k times the mean weight of a trip, which is over all trips, suppressed ones too."""
    if guarantee.population_is_given:
        return set()
    names = revealing("mean weight") if basis == "weight" else set()
    return names | revealing("mean weight if unprotected") if guarantee.population is None else names


# ---- the suppressed volume -----------------------------------------------------------------------------------


def reason_to_withhold(release: Release) -> str | None:
    """Why the suppressed volume must not be disclosed, or None where it may be.

    The total of what is suppressed is published like one more cell, so it must satisfy the guarantee like
    one; and it must not be the sum of one or two flows or cells, because whoever knows one would learn the other.
    Flows that were taken out of cells before these were counted are suppressed one by one, not cell by cell.
    Nor must it be so much that no pair it can lie in may be empty; see `flowveil.disclosure.unlisted`. That three cells
    are suppressed follows from disclosing it, so there must be a fourth pair. All reasons have the same words: which
    one holds would reveal the rest.
    """
    suppressed = release.cell_of_flow < 0
    if not suppressed.any():
        return None
    together, n_pairs = as_one_cell(release.input.select(suppressed)), n_unlisted_pairs(release)
    too_little = _n_terms(release) < FEWEST_SUPPRESSED or not _reaches(_asked_of_total(release), together)
    if too_little or n_pairs <= FEWEST_SUPPRESSED or within_reach(release.guarantee, together, n_pairs):
        return REVEALS_VALUES
    return None


def _asked_of_total(release: Release) -> Guarantee:
    """What the suppressed total must satisfy as one more cell: the highest that is asked around listed places, if any.

    Everything that is suppressed may be around one of them. Pairs that are not listed may hold more than k - 1 there;
    that each holds less (`flowveil.disclosure.unlisted`) withholds more than needed then, not less.
    """
    places = release.plan.stricter
    highest = None if places is None else places.highest["k"]
    return release.guarantee if highest is None else release.guarantee.raised(release.input, k=highest)


def _n_terms(release: Release) -> int:
    """How many values the suppressed total is the sum of: cells, or flows where these are suppressed one by one."""
    plan, flows = release.plan, release.cell_of_flow < 0
    if plan.suppression.rule != "short cells":
        return int(flows.sum())
    pair = plan.origin_zone[flows].astype(np.int64) * len(plan.destination_zones) + plan.destination_zone[flows]
    return len(np.unique_values(pair))


def as_one_cell(rows: Cells) -> Cells:
    """These rows taken as one cell."""
    nowhere = np.zeros(len(rows), np.int32)
    return rows.merge(nowhere, nowhere, 1, 1).cells


def _reaches(guarantee: Guarantee, cell: Cells) -> bool:
    """Whether a cell reaches all thresholds but that of locations."""
    return bool(replace(guarantee, locations=None).safe(cell).all())


@dataclass(frozen=True, eq=False)
class _Matrices:
    """What is published together.

    Attributes:
        releases: the matrices.
        measured: the places of those that the measures of all are of: the finest; all, where none is published.
        finest: the places of the finest.
        absent: the finest slices that are not published.
        sliced: whether they are slices at all.
    """

    releases: Sequence[Release]
    measured: Sequence[int]
    finest: Sequence[int]
    absent: Sequence[Cells]
    sliced: bool

    @classmethod
    def of(cls, release: Release | SlicedRelease) -> _Matrices:
        if release.kind != "sliced":
            return cls((release,), (0,), (0,), (), sliced=False)
        releases, place = release.releases, {key: i for i, key in enumerate(release.keys)}
        finest = [place[key] for key in release.input.keys if key in place]
        absent = [s for key, s in zip(release.input.keys, release.input.slices, strict=True) if key not in place]
        return cls(releases, finest or range(len(releases)), finest, absent, sliced=True)


def _reason_of_total(matrices: _Matrices, reasons: Sequence[str | None]) -> str | None:
    """Why the suppressed volume of all matrices must not be disclosed, or None where it may be.

    With it, what the slices that withhold theirs suppress, and all that unpublished slices hold, follows by
    subtraction: so the same is asked of that as of the total of one matrix, and, where persons are known, k of them
    like of any slice. Where coarser matrices are published too, a suppressed volume is a further number to subtract the
    cells of other matrices from; then none is disclosed, of any matrix, where anything is suppressed at all.
    """
    releases = matrices.releases
    if not matrices.sliced:
        return reasons[0]
    if len(releases) > len(matrices.finest):
        complete = not matrices.absent and all((r.cell_of_flow >= 0).all() for r in releases)
        return None if complete else BESIDE_OTHERS
    secret = [releases[i] for i in matrices.finest if reasons[i] is not None]
    parts = [*matrices.absent, *(r.input.select(r.cell_of_flow < 0) for r in secret)]
    if not parts:
        return None
    together, guarantee = concat_cells(parts), releases[0].guarantee
    cell, n_absent = as_one_cell(together), len(matrices.absent)
    enough = _reaches(guarantee, cell) and n_people(together) >= guarantee.k
    n_terms = sum(len(part) for part in matrices.absent) + sum(_n_terms(release) for release in secret)
    if not enough or n_terms < FEWEST_SUPPRESSED:
        return FROM_TOTAL
    if not secret and within_reach(guarantee, cell, n_absent + 1):
        # A slice is not published where it holds less than one cell needs, though a method may have other reasons: if
        # all of them hold more than that, nobody can be certain of any.
        return None
    n_pairs = n_absent + sum(n_unlisted_pairs(release) for release in secret)
    few_pairs = bool(secret) and n_pairs <= FEWEST_SUPPRESSED
    return FROM_TOTAL if few_pairs or within_reach(guarantee, cell, n_pairs) else None


# ---- the inside of cells -------------------------------------------------------------------------------------


def _reason_to_withhold_losses(releases: Iterable[Release]) -> str | None:
    """Why the losses must not be disclosed, or None where they may be.

    A cell of a single pair of tiles loses nothing, so the losses are those of the cells that cover more pairs. With one
    such cell, the loss times the volume is how its trips are spread over its tiles. And where hardly a trip is
    misplaced by spreading cells evenly, most cells *are* even, so that the share of each pair of tiles is known.
    Where few cells cover several pairs, none at all may do so: then one tile was seen in each zone.
    """
    few = [n for r in releases if (n := n_merged_cells(r)) < FEWEST_MERGED and n_coarse_cells(r) > 0]
    if few and sum(few) < FEWEST_MERGED:
        return FEW_MERGED
    return EVEN_INSIDE if any(is_even_inside(release) for release in releases) else None


def n_merged_cells(release: Release) -> int:
    """How many published cells cover more than one pair of tiles, or step: the terms that the losses are the sum of."""
    return int(np.count_nonzero(Subject(release, "trips").places > 1))


def is_even_inside(release: Release) -> bool:
    """Whether spreading cells evenly misplaces so few trips that most of them must be even inside."""
    total, published = int(release.input.trips.sum()), int(release.cells.trips.sum())
    misplaced = (release.metrics()["trips"]["reconstruction_loss"] or 0.0) * total - (total - published)
    merged = n_merged_cells(release)
    return merged > 0 and misplaced < max(merged, release.guarantee.k)


# ---- the tiles that were seen --------------------------------------------------------------------------------


def coarse_zones(release: Release) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which origin zones and which destination zones may hold more than one tile: by the map, not by what was seen."""
    masks = []
    zones_of_ends = (release.plan.origin_zones, release.plan.destination_zones)
    for zones, possible in zip(zones_of_ends, release.possible_tiles, strict=True):
        if possible is not None:
            masks.append(possible > 1)
        elif isinstance(zones, NodeZones):
            masks.append(~zones.hierarchy.is_leaf[zones.nodes])
        else:
            masks.append(np.ones(len(zones), np.bool_))
    return masks[0], masks[1]


def n_coarse_cells(release: Release) -> int:
    """How many published cells may cover more than one pair of tiles, or more than one step of time."""
    origins, destinations = coarse_zones(release)
    timed = release.plan.timed
    if timed is not None:
        origins = origins | ~timed.times.tree.is_leaf[timed.time]
    return int(np.count_nonzero(origins[release.cells.origin] | destinations[release.cells.destination]))


def few_coarse_zones(releases: Sequence[Release], *, errors: int = 1) -> bool:
    """Whether so few zones of a role may hold several tiles that mean generalisation errors reveal how many did.

    An error is one equation between the numbers of tiles seen in the zones; all else in it is published. So there must
    be ten unknown numbers for each equation. A role whose zones are all single tiles adds nothing to reveal.

    Args:
        releases: what is published together.
        errors: how many errors are disclosed of them.
    """
    for end, name in enumerate(("origin", "destination")):
        codes: set[str] = set()
        for release in releases:
            zones = (release.plan.origin_zones, release.plan.destination_zones)[end]
            used = np.unique_values(getattr(release.cells, name))
            codes.update(zones.codes(used[coarse_zones(release)[end][used]]).tolist())
        if 0 < len(codes) < FEWEST_MERGED * errors:
            return True
    return False
