"""Longer periods of a series, derived from its published steps: months, quarters and the total.

A derived period adds up published cells, so it reveals nothing that its steps do not. Only complete periods are
derived: all days of a month, all months of a quarter. Each is a release folder in ``derived/``. Its ``derived_from`` is
the SHA-256 of the manifest hashes of its steps, one a line in their order.
"""

from __future__ import annotations

import hashlib
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa

from flowveil.anonymization import anonymize
from flowveil.errors import InfeasibleError, ParameterError
from flowveil.published.derive import Derivation, Derived, derive_published
from flowveil.published.folder import MANIFEST
from flowveil.published.read_release import map_of_statement, read_published
from flowveil.release.folder import ReleaseFolder
from flowveil.release.release import Release
from flowveil.release.statement import Published
from flowveil.release.zone_map import FrozenMap
from flowveil.slices import SlicedFlows
from flowveil.times import TIME
from flowveil.verify.rebuild import compare_with
from flowveil.zoning.files import ZoneMap

DERIVED = "derived"
TOTAL = "total"
_MONTHS_OF_QUARTER = 3


@dataclass(frozen=True)
class PeriodLoss:
    """What a derived period loses. Private: measured on raw trips.

    Attributes:
        period: its label.
        published: share of its trips that the derived release counts.
        direct: share that a release of the whole period over the same zones would count.
    """

    period: str
    published: float
    direct: float

    def __str__(self) -> str:
        return (
            f"{self.period}, derived: {self.published:.1%} of its trips; published directly over the same zones it "
            f"would be {self.direct:.1%}."
        )


def derive_periods(place: Path, steps: Sequence[Path], labels: Sequence[str], zones: ZoneMap | None) -> list[str]:
    """Writes the derived releases of a series and returns their labels.

    Args:
        place: the folder of the series.
        steps: the newest release of each step.
        labels: the label of each step.
        zones: the operator's map, where the releases are on one.
    """
    made = derived_releases(steps, labels, zones)
    for label, content in made.items():
        content.write(place / DERIVED / label, replace_stronger=True)
    return list(made)


def check_derived(place: Path, steps: Sequence[Path], labels: Sequence[str], zones: ZoneMap | None) -> list[str]:
    """Returns one line for each derived release that does not follow from the steps."""
    made, findings = derived_releases(steps, labels, zones), []
    found = {path.name for path in (place / DERIVED).iterdir()} if (place / DERIVED).is_dir() else set()
    if found != set(made):
        findings.append(f"{DERIVED}: has other periods than its steps allow")
    for label in sorted(found & set(made)):
        differing = compare_with(ReleaseFolder(place / DERIVED / label), made[label].published, [])
        findings += [f"{DERIVED}/{label}: {line}" for line in differing]
    return findings


def derived_releases(steps: Sequence[Path], labels: Sequence[str], zones: ZoneMap | None) -> dict[str, Derived]:
    """Returns the derived release of each complete period; none if the zones of the steps overlap.

    Raises:
        ParameterError: the releases are on the operator's map, and it is not given.
    """
    periods = complete_periods(labels)
    folders = [ReleaseFolder(step) for step in steps]
    if not periods or not all(folder.statement.homogeneous for folder in folders):
        return {}
    given = map_of_statement(folders[0].statement, zones)
    parts = [read_published(folder, given) for folder in folders]
    manifests = dict(zip(labels, (folder.sha256(MANIFEST) for folder in folders), strict=True))
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return {}
    source = _as_slices(known, labels)
    made = {}
    for period, members in periods.items():
        listed = "\n".join(manifests[label] for label in members)
        how = Derivation(pick=tuple((TIME, label) for label in members), sum=(TIME,))
        made[period] = Derived(
            derive_published(
                source,
                how,
                manifest_sha256=hashlib.sha256(listed.encode()).hexdigest(),
                about={"period": f"{_first_day(members[0])}/{_last_day(members[-1])}"},
            )
        )
    return made


def complete_periods(labels: Sequence[str]) -> dict[str, list[str]]:
    """Returns the steps of each longer period of which every step is published, and of the total of all."""
    known, periods = sorted(labels), dict[str, list[str]]()
    if len(known) < 2:
        return {}
    of_days = len(known[0]) == len("2024-01-31")
    months = sorted({label[:7] for label in known})
    if of_days:
        by_month = {month: [label for label in known if label.startswith(month)] for month in months}
        complete = [m for m, days in by_month.items() if len(days) == monthrange(int(m[:4]), int(m[5:]))[1]]
        periods |= {month: by_month[month] for month in complete}
    else:
        complete = months
    for quarter in sorted({_quarter(month) for month in complete}):
        members = [month for month in complete if _quarter(month) == quarter]
        if len(members) == _MONTHS_OF_QUARTER:
            periods[quarter] = [label for label in known if label[:7] in members]
    # A total over gaps would state a period of which steps are missing.
    return {**periods, TOTAL: known} if _is_contiguous(known) else periods


def _is_contiguous(labels: Sequence[str]) -> bool:
    """Returns whether sorted days or months follow each other without a gap."""
    numbers = [
        date.fromisoformat(label).toordinal() if len(label) > len("2024-01") else 12 * int(label[:4]) + int(label[5:7])
        for label in labels
    ]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def period_losses(place: Path, sliced: SlicedFlows, frozen: FrozenMap, labels: Sequence[str]) -> list[PeriodLoss]:
    """Returns what each derived period loses against a release of the whole period over the same zones."""
    losses, known = [], {key[0]: at for at, key in enumerate(sliced.keys)}
    for period, members in complete_periods(labels).items():
        folder = place / DERIVED / period
        if not folder.is_dir() or not set(members) <= set(known):
            continue
        release = ReleaseFolder(folder)
        flows, guarantee = sliced.together([known[label] for label in members]), release.statement.guarantee
        whole = float(np.sum(flows.trips))
        try:
            direct: Release = anonymize(
                flows,
                zones_of=frozen,
                k=guarantee["k"],
                protect=tuple(guarantee["protect"]),
                max_suppressed=float(np.nextafter(1, 0)),
                allow_small_k=True,
                population_only=True,
            )
        except (InfeasibleError, ParameterError):
            continue
        published = float(sum(release.flows["trips"].to_pylist()))
        losses.append(PeriodLoss(period, published / whole, float(np.sum(direct.cells.trips)) / whole))
    return losses


def _as_slices(parts: Sequence[Published], labels: Sequence[str]) -> Published:
    """Returns the steps as one release with a slice for each."""
    columns = [name for name in parts[0].cells.column_names if name != "revised"]
    tables = [
        part.cells.select(columns).append_column(TIME, pa.array([label] * len(part.cells), pa.string()))
        for part, label in zip(parts, labels, strict=True)
    ]
    stated = parts[0].statement
    parameters = {name: value for name, value in stated.parameters.items() if name != "during"}
    every = "day" if len(labels[0]) == len("2024-01-31") else "month"
    parameters["slices"] = {"every": every, "also_every": [], "total": False, "common_zones": True}
    statement = replace(
        stated, kind="sliced", parameters=parameters, slice_columns=(TIME,), shares=None, formats=(), ledger=None,
        revision_of=(), basemap=None,
    )  # fmt: skip
    return replace(parts[0], cells=pa.concat_tables(tables).combine_chunks(), statement=statement)


def _quarter(month: str) -> str:
    return f"{month[:4]}-Q{(int(month[5:]) + 2) // _MONTHS_OF_QUARTER}"


def _first_day(label: str) -> str:
    return label if len(label) > len("2024-01") else f"{label}-01"


def _last_day(label: str) -> str:
    return label if len(label) > len("2024-01") else f"{label}-{monthrange(int(label[:4]), int(label[5:]))[1]:02d}"
