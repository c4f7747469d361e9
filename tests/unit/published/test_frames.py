"""The published tables as those of other libraries."""

from __future__ import annotations

import pytest

import flowveil
from conftest import trip_table


@pytest.fixture(scope="module")
def release():
    return flowveil.anonymize(flowveil.read_trips(trip_table(), resolution=7), k=5)


def test_pandas_and_polars_hold_the_published_rows(release):
    assert release.to_pandas().to_dict("list") == release.flows.to_pydict()
    assert release.to_polars().to_dict(as_series=False) == release.flows.to_pydict()
    assert release.to_polars("zones")["zone"].to_list() == release.zones["zone"].to_pylist()
    with pytest.raises(flowveil.ParameterError, match="flows and zones"):
        release.to_pandas("cells")


def test_geopandas_has_outlines_and_lines_and_their_reference_system(release):
    zones = release.to_geopandas()
    assert zones.crs.to_epsg() == 4326
    assert zones.geometry.to_wkb().tolist() == release.zones["geometry"].to_pylist()
    lines = release.to_geopandas("flows")
    assert lines["trips"].tolist() == release.flows["trips"].to_pylist()
    first = zones[(zones.zone == lines.origin_zone[0]) & (zones.role != "destination")].iloc[0]
    assert lines.geometry[0].coords[0] == (first.lon, first.lat)


def test_zones_without_a_place_have_no_geometry():
    from samples.releases import nested_release

    with pytest.raises(flowveil.ParameterError, match="no place"):
        nested_release().to_geopandas()
    assert len(nested_release().to_pandas()) > 0
