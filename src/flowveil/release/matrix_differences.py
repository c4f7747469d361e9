"""Which matrices of one release can be subtracted from each other, and whether that is refused.

A release may have matrices of several kinds, finer and coarser ones of the same trips: a total and its segments, a
week, its days and their hours. `flowveil.release.subtraction` compares one of them with finer ones; this finds what
there is to compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowveil.errors import InfeasibleError
from flowveil.flows import Flows
from flowveil.release.release import Release
from flowveil.release.subtraction import Differencing, Layer, compare, too_deep
from flowveil.slices import Key, SlicedFlows, holds


def differences(
    flows: SlicedFlows, coarser: Sequence[Key], published: Mapping[Key, Release], *, common_zones: bool
) -> Differencing:
    """What subtraction reveals.

    Over common zones a coarser matrix is the sum of published cells of finer ones and reveals nothing new. Otherwise
    the differences of a matrix and one layer of finer ones are counted. Where anything is suppressed, what is missing
    from one matrix can follow from another and back, in more combinations than are looked at, and so with more than
    two layers: then no count settles it.
    """
    found = Differencing()
    requested = _kinds(flows, coarser)
    kinds = [kind for kind in requested if any(key in published for key in kind)]
    complete = len(published) == len(coarser) + len(flows.keys) and all(
        bool((release.cell_of_flow >= 0).all()) for release in published.values()
    )
    # Slices that are all missing are known to be short, and a total of short slices may reveal each.
    if len(requested) < 2 or not any(key in published for key in coarser):
        return found
    if any(release.plan.layer is not None for release in published.values()):
        return Differencing(comparisons=1, unchecked=1)
    for key in coarser:
        if key in published and common_zones:
            found += Differencing(comparisons=1)
        elif key in published:
            parts, subtracted = _finer_layers(flows, coarser, key, published)
            for layers in subtracted:
                found += compare(published[key], parts, layers)
            if not complete or len(kinds) > 2 or too_deep(flows.origins, flows.destinations):
                found += Differencing(unchecked=1)
    return found


def refuse_differences(found: Differencing, *, accepted: bool) -> None:
    """Refuse matrices that reveal by subtraction what the guarantee hides, or may.

    Raises:
        InfeasibleError: they do, and that is not accepted.
    """
    if accepted or found.harmless:
        return
    hint = (
        "Hint: --common-zones gives all matrices the same zones and makes the coarser ones sums of the finer ones, so "
        "that subtraction reveals nothing; or leave out the total (--total) or the longer step and compute it from the "
        "release (`flowveil derive DIR --sum COLUMN`); or publish nevertheless with --accept-differencing."
    )
    if found.short:
        raise InfeasibleError(
            "The matrices are safe one by one but not together: subtracting them from each other gives "
            f"{found.short:,} differences above zero that are short of the guarantee, known to any reader. "
            f"Nothing was published. {hint}"
        )
    raise InfeasibleError(
        "Matrices of the same trips are published together, and whether subtraction reveals something cannot be "
        "determined: something is suppressed in them, or there are more than two kinds, or their zones are layers or "
        "not nodes of one tree. "
        f"Nothing was published. {hint}"
    )


def _kinds(flows: SlicedFlows, coarser: Sequence[Key]) -> list[list[Key]]:
    """The keys by kind, coarsest first: keys of one kind are disjoint and together hold everything."""
    kinds: dict[tuple[int, ...], list[Key]] = {}
    for key in (*coarser, *flows.keys):
        # Labels of one step of time are equally long; of attributes, only whether one is given makes a kind.
        last = len(key[-1]) if key[-1] is not None and flows.every is not None else 0
        kinds.setdefault((*(int(value is None) for value in key), last), []).append(key)
    return list(kinds.values())


def _finer_layers(
    flows: SlicedFlows, coarser: Sequence[Key], key: Key, published: Mapping[Key, Release]
) -> tuple[list[Flows], list[list[Layer]]]:
    """Returns the matrices that can be subtracted from a coarser one.

    Returns:
        The finest slices that it is made of; and the layers to subtract: each kind of finer matrices alone, and
        all kinds at once, because a reader may mix them.
    """
    kinds = _kinds(flows, coarser)
    own = next(i for i, kind in enumerate(kinds) if key in kind)
    members = flows.members(key)
    layers: list[Layer] = []
    for kind in kinds[own + 1 :]:
        of_part: dict[int, Release | None] = {}
        for finer in kind:
            if holds(key, finer, columns=flows.columns):
                of_part |= dict.fromkeys(flows.members(finer), published.get(finer))
        layers.append([of_part[m] for m in members])
    subtracted = [[layer] for layer in layers]
    return [flows.slices[m] for m in members], [*subtracted, layers] if len(layers) > 1 else subtracted
