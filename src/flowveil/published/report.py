"""report.json and manifest.json: the statement, and figures that follow from the published
tables.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from flowveil import __version__
from flowveil.published.maps import (
    ENDS,
    floats,
    geometries,
    is_drawn,
    volume_of,
    zone_of_flow,
    zones_of,
)
from flowveil.published.sentences import sentences
from flowveil.published.tables import overview, split_slices
from flowveil.release.statement import Published, Statement
from flowveil.request.request import Derive, Request, command_line, find_setting, words_of
from flowveil.request.settings import section_settings
from flowveil.system.output import RELEASE_FORMAT
from flowveil.zoning.grids import is_on_file, stated_grid

#: Radii in metres that planners ask for.
RADII = (500, 1000, 2000, 5000)


def make_report(published: Published, zones: pa.Table) -> dict[str, Any]:
    """Returns the content of report.json; its form is that of report.schema.json."""
    report = {"version": __version__, **published.statement.to_report()}
    report["published"] = _figures(published.cells, zones, published.statement)
    # In the order of the file, so that a reader of the file finds the same.
    return dict(json.loads(json_text(report)))


def _figures(cells: pa.Table, zones: pa.Table, statement: Statement) -> dict[str, Any]:
    """Returns figures that follow from the tables, and texts that follow from the statement."""
    together = summed(cells, statement)
    overlapping = (
        count_overlaps(cells, zones, statement.slice_columns) if statement.homogeneous else None
    )
    radius = typical_radius_m(together, zones)
    within = {str(metres): share_known_within(together, zones, metres) for metres in RADII}
    figures: dict[str, Any] = {
        "cells": len(cells),
        **{f"{end}_zones": pc.count_distinct(cells[f"{end}_zone"]).as_py() for end in ENDS},
        "smallest_cell": pc.min(cells["trips"]).as_py(),
        "trips": pc.sum(together["trips"]).as_py(),
        "weight": pc.sum(together["weight"]).as_py() if "weight" in together.column_names else None,
        "overlapping_outlines": overlapping,
        "typical_radius_m": None if radius is None else float(f"{radius:.2g}"),
        "both_ends_within_m": {
            m: None if share is None else round(share, 4) for m, share in within.items()
        },
        "sentences": sentences(statement, overlapping=overlapping),
        "command": command(statement),
    }
    if statement.slice_columns:
        figures["slices"] = _slice_figures(cells, statement.slice_columns)
    return figures


def summed(cells: pa.Table, statement: Statement) -> pa.Table:
    """Returns one matrix: the cells, with slices, layers and folds added up."""
    if statement.slice_columns:
        return overview(cells)
    extra = [name for name in (*statement.fold_columns, "layer") if name in cells.column_names]
    return overview(cells) if extra else cells


def _slice_figures(cells: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the figures of each matrix, in the order of the table."""
    figures = [("trips", "count"), ("trips", "sum"), ("trips", "min")]
    figures += [(f"{end}_zone", "count_distinct") for end in ENDS]
    rows = cells.group_by(list(columns), use_threads=False).aggregate(figures).to_pylist()
    rows.sort(key=lambda row: [row[name] for name in columns])
    names = {"cells": "trips_count", "trips": "trips_sum", "smallest_cell": "trips_min"}
    names |= {f"{end}_zones": f"{end}_zone_count_distinct" for end in ENDS}
    return [
        {
            "slice": {name: row[name] for name in columns},
            **{name: row[column] for name, column in names.items()},
        }
        for row in rows
    ]


def command(statement: Statement) -> str:
    """Returns the command that makes this release again from the trips.

    Names of files are replaced by words.
    """
    parameters = statement.parameters
    if statement.derived_from is not None:
        return _derive_command(statement)
    on_map = parameters.get("zones")
    given: dict[str, Any] = {
        "input": "INPUT",
        "out": "DIR",
        "zones": "MAP" if is_on_file(on_map) else stated_grid(on_map),
        "formats": statement.formats,
        "basemap": statement.basemap,
        "context": "CONTEXT" if statement.context else None,
        "revision": ("EARLIER",) * len(statement.revision_of),
        **{name: "PLACES" for name in ("stricter", "l_places") if parameters.get(name) is not None},
        **statement.about,
    }
    if statement.ledger is not None:
        given |= {"ledger": "LEDGER", "epsilon_total": statement.ledger.get("epsilon_total")}
    if statement.zones_of:
        given |= {"zones_of": "EARLIER", "options": None}
    if (parameters.get("slices") or {}).get("common_zones"):
        # Common zones have no options: those listed are defaults.
        given["options"] = None
    given |= {find_setting(f"--{name}").name: True for name in statement.confirmed}
    if (parameters.get("columns") or {}).get("person") == "":
        given |= {"person": None, "no_person": True}
    # A method of the user is not known here, so its name is not checked.
    text = command_line(Request.from_report({"parameters": parameters}).with_values(**given))
    is_chosen = statement.zones_of is None
    return (
        text.replace(" INPUT", f" INPUT --method {shlex.quote(statement.method)}", 1)
        if is_chosen
        else text
    )


def _derive_command(statement: Statement) -> str:
    """Returns the command that computes this release again from its source."""
    how = statement.parameters.get("derive") or {}
    recorded: dict[str, Any] = {name: how.get(name) for name in ("level", "sum", "pick", "drop")}
    wishes = Derive(**recorded).given
    settings = [setting for setting in section_settings(Derive) if setting.name in wishes]
    chosen = [word for setting in settings for word in words_of(setting, wishes[setting.name])]
    given = {
        "out": "DIR",
        "zones": "MAP" if is_on_file(statement.parameters.get("zones")) else None,
        "zones_of": "RELEASE" if "zones_of" in how else None,
        "within": how.get("within"),
        "formats": statement.formats,
        **statement.about,
    }
    return command_line(Request.from_flat(given), program=("flowveil", "derive", "SOURCE", *chosen))


def manifest(report: Mapping[str, Any], sha256: Mapping[str, str]) -> dict[str, Any]:
    """Returns the content of manifest.json: the hash of every other file, and what is and is not
    protected.
    """
    return {
        "format": RELEASE_FORMAT,
        "version": report["version"],
        "about": dict(report["statement"]["about"]),
        "sha256": dict(sha256),
        "statement": list(report["published"]["sentences"]),
    }


def json_text(content: Mapping[str, Any]) -> str:
    """Returns the text of report.json or manifest.json; zero is written in one way."""
    return (
        json.dumps(
            _unsigned(content), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False
        )
        + "\n"
    )


def _unsigned(content: Any) -> Any:
    """Returns the same with 0.0 instead of -0.0."""
    if isinstance(content, float | np.floating):
        return float(content) + 0.0
    if isinstance(content, Mapping):
        return {name: _unsigned(value) for name, value in content.items()}
    return [_unsigned(value) for value in content] if isinstance(content, list | tuple) else content


#: Outlines that have no more than this share of the smaller one in common only touch.
SHARE = 1e-6


def count_overlaps(flows: pa.Table, zones: pa.Table, slice_columns: Sequence[str] = ()) -> int:
    """Pairs of zones of one role, in one matrix, whose outlines overlap by more than a millionth of
    the smaller one.
    """
    pairs = set()
    for end in ENDS:
        listed, column = zones_of(zones, end), f"{end}_zone"
        outlines = geometries(listed)
        used = (
            flows.select([*slice_columns, column]).group_by([*slice_columns, column]).aggregate([])
        )
        for _, cells in split_slices(used, slice_columns):
            of_matrix = np.sort(zone_of_flow(cells, listed, end))
            placed = of_matrix[is_drawn(outlines[of_matrix])]
            # Where all edges match there is nothing to intersect; older versions of the library
            # cannot know.
            if hasattr(shapely, "coverage_is_valid") and shapely.coverage_is_valid(
                outlines[placed]
            ):
                continue
            first, second = placed[
                shapely.STRtree(outlines[placed]).query(outlines[placed], predicate="intersects")
            ]
            first, second = first[first < second], second[first < second]
            common = shapely.area(shapely.intersection(outlines[first], outlines[second]))
            over = common > SHARE * np.minimum(
                shapely.area(outlines[first]), shapely.area(outlines[second])
            )
            pairs |= set(
                zip(
                    [end] * int(over.sum()),
                    first[over].tolist(),
                    second[over].tolist(),
                    strict=True,
                )
            )
    return len(pairs)


def _zone_radii(zones: pa.Table) -> list[tuple[str, pa.Table, NDArray[np.float64]]] | None:
    """Each end with its zones and the radius of circles as large, in metres.

    None where areas are not known.
    """
    ends = []
    for end in ENDS:
        listed = zones_of(zones, end)
        area = floats(listed, "area_km2")
        if np.isnan(area).all():
            return None
        # What lies outside the area is known to no distance.
        ends.append((end, listed, 1000 * np.sqrt(np.where(np.isnan(area), np.inf, area) / np.pi)))
    return ends


def typical_radius_m(flows: pa.Table, zones: pa.Table) -> float | None:
    """The radius in metres of a circle as large as the median zone of trip ends.

    None where areas are not known.
    """
    ends = _zone_radii(zones)
    if ends is None or pc.sum(flows["trips"]).as_py() <= 0:
        return None
    metres = np.concatenate([radius for _, _, radius in ends])
    order = np.argsort(metres, kind="stable")
    volume = np.concatenate([volume_of(flows, listed, end, "trips") for end, listed, _ in ends])
    reached = np.cumsum(volume[order])
    typical = float(metres[order][np.searchsorted(reached, reached[-1] / 2)])
    return typical if np.isfinite(typical) else None


def share_known_within(flows: pa.Table, zones: pa.Table, metres: float) -> float | None:
    """The share of the published trips whose zones, at both ends, are no larger than a circle of
    this radius.
    """
    ends, trips = _zone_radii(zones), flows["trips"].to_numpy().astype(np.float64)
    if ends is None or trips.sum() <= 0:
        return None
    within = np.all(
        [(radius <= metres)[zone_of_flow(flows, listed, end)] for end, listed, radius in ends],
        axis=0,
    )
    return float(trips[within].sum() / trips.sum())


def distance_in_words(metres: float) -> str:
    """Two digits: more would pretend to be known."""
    rounded = float(f"{metres:.2g}")
    if rounded < 1000:
        return f"{rounded:,.0f} m"
    return f"{rounded / 1000:,.1f} km" if rounded < 10_000 else f"{rounded / 1000:,.0f} km"
