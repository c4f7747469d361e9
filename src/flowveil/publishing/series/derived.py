"""Longer periods of a series, derived from its published steps: months, quarters and the total.

A derived period adds up published cells, so it reveals nothing that its steps do not. Only complete
periods are derived: all days of a month, all months of a quarter. Each is a release folder in
``derived/``. Its ``derived_from`` is the SHA-256 of the manifest hashes of its steps, one a line in
their order.
"""

from __future__ import annotations

import hashlib
from calendar import monthrange
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.core.flows import Flows
from flowveil.core.times import TIME
from flowveil.published.derive import Derivation, Derived, derive_published
from flowveil.published.folder import MANIFEST
from flowveil.published.read_release import map_of_statement, read_published
from flowveil.publishing.anonymization import anonymize
from flowveil.release.folder import ReleaseFolder
from flowveil.release.statement import Published
from flowveil.release.zone_map import FrozenMap
from flowveil.verify.rebuild import compare_with
from flowveil.zoning.files import ZoneMap

DERIVED = "derived"
TOTAL = "total"
_MONTHS_OF_QUARTER = 3


class PeriodLoss(NamedTuple):
    """What a derived period loses. Private: measured on raw trips."""

    period: str  # its label
    published: float  # share of its trips that the derived release counts
    direct: float  # share that a release of the whole period over the same zones would count

    def __str__(self) -> str:
        return (
            f"{self.period}, derived: {self.published:.1%} of its trips; published directly over"
            f" the same zones it would be {self.direct:.1%}."
        )


def derive_periods(place: Path, steps: Mapping[str, Path], zones: ZoneMap | None) -> None:
    """Writes the derived releases of a series, from the newest release of each step and the
    operator's map.
    """
    for label, content in derived_releases(steps, zones).items():
        content.write(place / DERIVED / label, replace_stronger=True)


def check_derived(place: Path, steps: Mapping[str, Path], zones: ZoneMap | None) -> list[str]:
    """Returns one line for each derived release that does not follow from the steps."""
    made, findings = derived_releases(steps, zones), []
    found = (
        {path.name for path in (place / DERIVED).iterdir()} if (place / DERIVED).is_dir() else set()
    )
    if found != set(made):
        findings.append(f"{DERIVED}: has other periods than its steps allow")
    for label in sorted(found & set(made)):
        differing = compare_with(ReleaseFolder(place / DERIVED / label), made[label].published, [])
        findings += [f"{DERIVED}/{label}: {line}" for line in differing]
    return findings


def derived_releases(steps: Mapping[str, Path], zones: ZoneMap | None) -> dict[str, Derived]:
    """Returns the derived release of each complete period, none if zones overlap.

    ParameterError without the map.
    """
    periods = complete_periods(list(steps))
    folders = {label: ReleaseFolder(step) for label, step in steps.items()}
    if not periods or not all(folder.statement.homogeneous for folder in folders.values()):
        return {}
    given = map_of_statement(next(iter(folders.values())).statement, zones)
    parts = {label: read_published(folder, given) for label, folder in folders.items()}
    known = {label: part for label, part in parts.items() if part is not None}
    if len(known) < len(parts):
        return {}
    source, made = _as_slices(known), {}
    for period, members in periods.items():
        listed = "\n".join(folders[label].sha256(MANIFEST) for label in members).encode()
        how = Derivation(pick=tuple((TIME, label) for label in members), sum=(TIME,))
        sha256 = hashlib.sha256(listed).hexdigest()
        about = {"period": f"{days_of(members[0])[0]}/{days_of(members[-1])[1]}"}
        address = source.statement.about.get("base_url")
        if address is not None:
            first = next(iter(steps.values())).name
            base = address.rstrip("/").removesuffix(first)
            about["base_url"] = f"{base}{DERIVED}/{period}"
        made[period] = Derived(derive_published(source, how, manifest_sha256=sha256, about=about))
    return made


def complete_periods(labels: Sequence[str]) -> dict[str, list[str]]:
    """Returns the steps of each longer period of which every step is published, and of the total of
    all.
    """
    known = sorted(labels)
    if len(known) < 2:
        return {}
    by_month = {month: list(steps) for month, steps in groupby(known, key=lambda label: label[:7])}
    complete = {
        month: steps for month, steps in by_month.items() if _is_contiguous(steps, *days_of(month))
    }
    periods = {month: steps for month, steps in complete.items() if steps != [month]}
    for quarter, months in groupby(complete, key=_quarter):
        members = list(months)
        if len(members) == _MONTHS_OF_QUARTER:
            periods[quarter] = [label for month in members for label in complete[month]]
    # A total over gaps would state a period of which steps are missing.
    return (
        {**periods, TOTAL: known}
        if _is_contiguous(known, days_of(known[0])[0], days_of(known[-1])[1])
        else periods
    )


def _is_contiguous(labels: Sequence[str], first: date, last: date) -> bool:
    """Returns whether sorted days or months cover every day from the first to the last."""
    return (
        sum((days_of(label)[1] - days_of(label)[0]).days + 1 for label in labels)
        == (last - first).days + 1
    )


def period_losses(
    place: Path, sliced: Flows, frozen: FrozenMap, labels: Sequence[str]
) -> list[PeriodLoss]:
    """Returns what each derived period loses against a release of the whole period over the same
    zones.
    """
    losses, known = [], {key[0]: at for at, key in enumerate(sliced.slice_keys)}
    for period, members in complete_periods(labels).items():
        folder = place / DERIVED / period
        if not folder.is_dir() or not set(members) <= set(known):
            continue
        release, flows = ReleaseFolder(folder), sliced.together([known[label] for label in members])
        asked = {
            "k": release.statement.guarantee["k"],
            "protect": tuple(release.statement.guarantee["protect"]),
        }
        asked |= {
            "max_suppressed": float(np.nextafter(1, 0)),
            "allow_small_k": True,
            "population_only": True,
        }
        try:
            direct = anonymize(flows, zones_of=frozen, **asked).cells.trips
        except (InfeasibleError, ParameterError):
            continue
        counts = (pc.sum(release.flows["trips"]).as_py(), np.sum(direct))
        losses.append(PeriodLoss(period, *(float(n) / float(np.sum(flows.trips)) for n in counts)))
    return losses


def _as_slices(parts: Mapping[str, Published]) -> Published:
    """Returns the steps as one release with a slice for each."""
    first_label, first = next(iter(parts.items()))
    columns = [name for name in first.cells.column_names if name != "revised"]
    tables = [
        part.cells.select(columns).append_column(
            TIME, pa.array([label] * len(part.cells), pa.string())
        )
        for label, part in parts.items()
    ]
    stated = first.statement
    parameters = {name: value for name, value in stated.parameters.items() if name != "during"}
    every = "month" if len(first_label) == len("2024-01") else "day"
    parameters["slices"] = {"every": every, "common_zones": True}
    statement = replace(
        stated,
        parameters=parameters,
        slice_columns=(TIME,),
        shares=None,
        formats=(),
        ledger=None,
        revision_of=(),
        basemap=None,
    )
    return replace(first, cells=pa.concat_tables(tables).combine_chunks(), statement=statement)


def _quarter(month: str) -> str:
    return f"{month[:4]}-Q{(int(month[5:]) + 2) // _MONTHS_OF_QUARTER}"


def days_of(label: str) -> tuple[date, date]:
    """Returns the first and the last day of a month or day."""
    first = date.fromisoformat(f"{label}-01"[:10])
    return first, (
        first
        if len(label) > len("2024-01")
        else first.replace(day=monthrange(first.year, first.month)[1])
    )
