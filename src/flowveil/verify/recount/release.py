"""The folder of a release: its report, its tables, and the guarantee that it states."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from . import spans
from .table import Counts, Trips

UNITS = ("trips", "people", "population")
_KINDS = ("plain", "layered", "boxed", "folded", "sliced", "noisy")
_MILLION = 1_000_000
#: Columns of flows.parquet besides slice columns, with the Arrow types they may have.
_COLUMNS = {
    "origin_zone": (pa.string(), pa.large_string()),
    "destination_zone": (pa.string(), pa.large_string()),
    "trips": (pa.int64(), pa.float64()),
    "weight": (pa.float64(),),
    "revised": (pa.bool_(),),
    "layer": (pa.int8(),),
}
#: A release has no more cells than flows, for each level of its slices; small inputs get this many for free.
_FEWEST_ROWS, _LEVELS = 1_000, 64


class FolderError(ValueError):
    """The folder contradicts itself; the message is a finding."""


@dataclass(frozen=True, eq=False)
class Release:
    """A release folder, and the thresholds that hold for its cells.

    Attributes:
        report: content of report.json.
        flows: flows.parquet.
        least: threshold of each protected unit; ``locations`` too. The population is in millionths, as a number that
            may have a fraction.
        unit: what one trip is counted as; see `Trips`.
    """

    report: Mapping[str, Any]
    flows: pa.Table
    least: dict[str, float]
    unit: int = 1

    @classmethod
    def read(cls, folder: Path, trips: Trips) -> Release:
        """Read the folder and check its form.

        Raises:
            FolderError: tables have other columns, rows or zones than the report says.
        """
        report = json.loads((folder / "report.json").read_text("utf-8"))
        if report["kind"] not in _KINDS:
            raise FolderError("report.json: releases of this kind cannot be recounted")
        statement = report["statement"]
        bool(statement["homogeneous"]), str(statement["suppression"]["rule"]), report["parameters"].get("k")
        folded = report["kind"] == "folded"
        slices = list(spans.COLUMNS) if folded else list(statement.get("slice_columns") or ())
        if not folded and tuple(slices) != tuple(trips.slice_columns):
            raise FolderError("report.json: its slice columns are not those of the input as it was read")
        path = folder / "flows.parquet"
        most = _FEWEST_ROWS + _LEVELS * len(trips) * (2 ** len(slices))
        if report["kind"] != "noisy" and pq.read_metadata(path).num_rows > most:
            raise FolderError("flows.parquet: has more rows than the input can fill")
        flows = pq.read_table(path, partitioning=None)
        _check_columns(flows, slices)
        zones = pq.read_table(folder / "zones.parquet", columns=["zone", "role"], partitioning=None)
        _check_listed(flows, zones, same_zones=report["parameters"].get("same_zones") is True)
        release = cls(report, flows, {}, trips.unit)
        release.least.update(_thresholds(report["guarantee"], trips))
        return release

    def __len__(self) -> int:
        return int(self.flows.num_rows)

    @property
    def kind(self) -> str:
        """One of the kinds of release."""
        return str(self.report["kind"])

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.report["method"])

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What was asked for."""
        found: Mapping[str, Any] = self.report["parameters"]
        return found

    @property
    def statement(self) -> Mapping[str, Any]:
        """What the release says of itself."""
        found: Mapping[str, Any] = self.report["statement"]
        return found

    @property
    def protected(self) -> tuple[str, ...]:
        """The protected units."""
        return tuple(unit for unit in UNITS if unit in self.least)

    @property
    def k(self) -> int:
        """The k that is claimed, or the one that was asked for."""
        return int(self.report["guarantee"].get("k") or self.parameters.get("k") or 1)

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Names of the slice columns."""
        return tuple(self.statement.get("slice_columns") or ()) if self.kind != "folded" else ()

    @property
    def common_zones(self) -> bool:
        """Whether coarser matrices are sums of published cells of the finest slices."""
        return self.kind == "sliced" and (self.parameters.get("slices") or {}).get("common_zones") is True

    @property
    def overlapping(self) -> bool:
        """Whether a trip may lie in several boxes."""
        return self.kind == "boxed" and not self.statement["boxes"]["disjoint"]

    @property
    def is_revision(self) -> bool:
        """Whether cells may have the values of an earlier release."""
        return bool(self.statement.get("revision_of"))

    def numbers(self, name: str) -> NDArray[Any]:
        """A column of numbers."""
        found: NDArray[Any] = self.flows[name].to_numpy()
        if name == "trips" and self.unit != 1:
            scaled = np.rint(found * self.unit)
            return np.where(scaled / self.unit == found, scaled, -1).astype(np.int64)
        return found

    def weight(self) -> Counts | None:
        """Published weights in millionths; None without weights. -1 where a weight is not a sum of millionths."""
        if "weight" not in self.flows.column_names:
            return None
        weight = np.nan_to_num(self.numbers("weight"), nan=-1.0, posinf=-1.0, neginf=-1.0).clip(-1.0, 2.0**33)
        whole = np.rint(weight * _MILLION).astype(np.int64)
        return np.where(whole / _MILLION == self.numbers("weight"), whole, -1)


def _check_columns(flows: pa.Table, slices: Sequence[str]) -> None:
    needed = {"origin_zone", "destination_zone", "trips", *slices}
    found = set(flows.column_names)
    if not needed <= found <= needed | set(_COLUMNS) or len(found) < len(flows.column_names):
        raise FolderError("flows.parquet: has other columns than a release")
    texts = _COLUMNS["origin_zone"]
    if any(flows.schema.field(name).type not in _COLUMNS.get(name, texts) for name in flows.column_names):
        raise FolderError("flows.parquet: a column has the wrong type")
    if flows.num_rows == 0:
        raise FolderError("flows.parquet: has no rows")
    if any(flows[name].null_count for name in flows.column_names if name not in slices):
        raise FolderError("flows.parquet: values are missing")
    if pc.min(flows["trips"]).as_py() < 1:
        raise FolderError("flows.parquet: cells have fewer than one trip")
    if "layer" in found and pc.min(flows["layer"]).as_py() < 1:
        raise FolderError("flows.parquet: layers are not numbered from 1")


def _check_listed(flows: pa.Table, zones: pa.Table, *, same_zones: bool) -> None:
    """zones.parquet lists the zones that flows.parquet uses, by role, each once.

    If both ends have the same zones, every role is ``both``.
    """
    roles = zones["role"].to_pylist()
    listed = list(zip(zones["zone"].to_pylist(), roles, strict=True))
    if len(set(listed)) < len(listed):
        raise FolderError("zones.parquet: zones are listed twice")
    ends = {role: set(pc.unique(flows[f"{role}_zone"]).to_pylist()) for role in ("origin", "destination")}
    for role, own in ends.items():
        named = {zone for zone, of in listed if of in (role, "both")}
        used = ends["origin"] | ends["destination"] if same_zones else own
        if named != used:
            raise FolderError(f"zones.parquet: {len(named ^ used)} {role} zones are listed and not used, or not listed")


def mean_population(trips: Trips, k: float) -> int | None:
    """The k-fold mean weight of a trip in millionths, rounded up; None without weights."""
    n = Fraction(int(trips.trips.sum()), trips.unit)
    return None if trips.weight is None or n == 0 else math.ceil(Fraction(k) * int(trips.weight.sum()) / n)


def _thresholds(guarantee: Mapping[str, Any], trips: Trips) -> dict[str, float]:
    least: dict[str, float] = {}
    for unit in (*UNITS, "locations"):
        if unit in guarantee and (guarantee[unit] is not None or unit == "population"):
            value = guarantee[unit]
            if value is not None and (isinstance(value, bool) or not math.isfinite(value) or value <= 0):
                raise FolderError("report.json: a threshold of the guarantee is not a number above 0")
            if unit == "population":
                value = mean_population(trips, guarantee["k"]) if value is None else float(value) * _MILLION
            scale = trips.unit if unit == "trips" else 1
            least[unit] = math.inf if value is None else value * scale
    return least


# ---- the guarantee as it is stated -----------------------------------------------------------------------------------


def check_guarantee(release: Release, trips: Trips) -> Iterator[str]:
    """Section 5: the guarantee agrees with itself, with the parameters, and with what the input can count."""
    stated, asked = release.report["guarantee"], release.parameters
    units = asked.get("protect") or ()
    units = {units} if isinstance(units, str) else set(units)
    if not release.protected:
        yield "report.json: the guarantee protects no unit"
    if not set(stated.get("protect", ())) == units == set(release.protected):
        yield "report.json: the guarantee, its thresholds and the parameters protect different units"
    if "people" in release.least and trips.persons is None:
        yield "report.json: the guarantee protects people, but the input has no persons to count"
    if "population" in release.least and trips.weight is None:
        yield "report.json: the guarantee protects the population, but the input has no weights to count"
        return
    k, given = max(stated.get("k") or 0, asked.get("k") or 0), asked.get("k_population")
    if release.protected == ("population",) and given is not None:
        if stated.get("k") is not None:
            yield "report.json: the guarantee calls k what is a population given as a number"
    elif (stated.get("k") or 0) < 1 or stated["k"] != asked.get("k", stated["k"]):
        yield "report.json: the guarantee has no k of at least 1, or another one than the parameters"
    least = {"trips": k, "people": k, "locations": asked.get("l") or 0}
    least["population"] = given * _MILLION if given is not None else mean_population(trips, k) or 0
    for unit, value in release.least.items():
        if value < least[unit]:
            yield f"report.json: the guarantee in {unit} is weaker than the parameters require"
    if asked.get("l") is not None and "locations" not in release.least:
        yield "report.json: the guarantee in locations is weaker than the parameters require"
    if "weight" in release.flows.column_names and trips.weight is None:
        yield "flows.parquet: has weights, but the input has none"
    if trips.weight is not None and "weight" not in release.flows.column_names:
        yield "flows.parquet: has no weights, though the input has some"
    rule = release.statement["suppression"]
    if rule["rule"] not in ("short cells", "hopeless flows"):
        yield "report.json: the suppression rule is unknown"
    elif rule["rule"] == "hopeless flows" and (not 0 <= rule["beta"] < 1 or release.common_zones or rule["levels"] < 0):
        yield "report.json: the suppression rule 'hopeless flows' cannot have these values"


def check_expected(release: Release, trips: Trips, expect: Mapping[str, Any]) -> Iterator[str]:
    """Compare the guarantee with the one that the reader requires."""
    k, named = expect.get("k"), tuple(expect.get("protect") or ())
    for unit in named:
        if unit not in release.least:
            yield f"report.json: the release does not protect {unit}"
    if k is not None:
        given = expect.get("k_population")
        population = given * _MILLION if given else mean_population(trips, k) or math.inf
        claimed = [unit for unit in named or UNITS if unit in release.least]
        weak = [unit for unit in claimed if release.least[unit] < (population if unit == "population" else k)]
        if weak and (named or weak == claimed):
            yield f"report.json: the release claims a k of less than {k} in {', '.join(weak)}"
    for unit, name, scale in (("population", "k_population", _MILLION), ("locations", "l", 1)):
        least = expect.get(name)
        if least is not None and release.least.get(unit, 0) < least * scale:
            yield f"report.json: the release claims less than {least} in {unit}"
