"""How well people are hidden: the k a release reaches in every unit, protected or not.

Units that are not protected are held against what k would ask of them, so that a reader sees what protecting trips does
for people and for the population.
"""

from __future__ import annotations

import numpy as np

from flowveil.guarantee import UNITS, Unit
from flowveil.measures.measure import Measure, Subject, added, smallest


def _of(unit: Unit) -> tuple[Measure, Measure]:
    def least(subject: Subject) -> float | int | None:
        values = unit.value(subject.release.cells)
        return None if values is None else values.min().item()

    def n_under(subject: Subject) -> int | None:
        values = unit.value(subject.release.cells)
        if values is None:
            return None
        return int(np.sum(values < subject.guarantee.asks(unit.name, subject.release.input)))

    title, meaning = unit.smallest
    by_weight = unit.basis == "weight"
    return (
        Measure(
            key=f"k_{unit.name}",
            title=title,
            meaning=meaning,
            compute=least,
            combine=smallest,
            of_noise="void",
            whole=not unit.column,
        ),
        Measure(
            key=f"cells_under_k_{unit.name}",
            title=f"Cells under k {unit.name}",
            meaning=unit.short,
            compute=n_under,
            combine=added,
            reveals=frozenset({"mean weight if unprotected"}) if by_weight else frozenset(),
            whole=True,
        ),
    )


MEASURES = tuple(measure for unit in UNITS.values() for measure in _of(unit))
