"""report.json: the statement, figures that follow from the tables, and sentences."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest

from flowveil import anonymize
from flowveil.core.errors import ParameterError
from flowveil.release.statement import Statement, check_report, report_schema
from samples.releases import city_flows, nested_release, release_of, tile_release


def sentences(release) -> list[str]:
    return release.summary()["published"]["sentences"]


def test_the_report_is_strict_json_of_the_schema_and_states_itself():
    report = release_of(city_flows(), budget="volume").summary()
    assert sorted(report) == [
        "guarantee",
        "kind",
        "method",
        "parameters",
        "published",
        "statement",
        "version",
    ]
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    check_report(report)
    again = Statement.from_report(report).to_report()
    assert {name: report[name] for name in again} == again


@pytest.mark.parametrize(
    "method", ["odkanon", "twincut", "paircut", "mondrian", "glove", "curvecut", "suppression"]
)
def test_the_report_of_every_method_fits_the_schema(method):
    check_report(anonymize(city_flows(), method, k=3, protect="trips").summary())


def test_a_field_that_is_not_in_the_closed_list_is_refused():
    report = release_of(city_flows(), budget="volume").summary()
    for place in (report, report["statement"], report["published"]):
        place["extra"] = 12345
        with pytest.raises(ParameterError, match="form of a release"):
            Statement.from_report(report)
        del place["extra"]


def changed_reports(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The report with one value replaced, removed or added, at every place."""

    def places(value: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        yield way
        inner = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        )
        for name, one in inner:
            yield from places(one, (*way, name))

    for *way, last in (way for way in places(report, ()) if way):
        for other in (
            None,
            True,
            -1,
            0,
            0.5,
            2,
            "x",
            "x" * 5000,
            [],
            ["x"],
            {},
            {"x": 1},
            "removed",
            "added",
        ):
            again = copy.deepcopy(report)
            inner = again
            for step in way:
                inner = inner[step]
            if other == "removed":
                del inner[last]
            elif other == "added":
                inner.update({"x": 1}) if isinstance(inner, dict) else inner.append("x")
            else:
                inner[last] = other
            yield again


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mondrian", "laplace"])
def test_the_form_is_checked_like_a_complete_validator_of_the_schema_does(method):
    given = (
        {"epsilon": 5.0, "region": "observed", "level": 6, "bound": 4}
        if method == "laplace"
        else {"k": 3, "protect": "trips"}
    )
    report = json.loads(json.dumps(anonymize(city_flows(), method, **given).summary()))
    validator = jsonschema.Draft202012Validator(dict(report_schema()))
    valid = 0
    for changed in changed_reports(report):
        try:
            check_report(changed)
            holds = True
        except ParameterError:
            holds = False
        assert holds == validator.is_valid(changed)
        valid += holds
    assert valid > 50


def test_a_report_of_an_earlier_version_names_the_version_that_reads_it():
    with pytest.raises(ParameterError, match=r"written by flowveil 0\.2.*flowveil==0\.2"):
        Statement.from_report({"version": "0.2.0", "measures": {}})


def test_figures_follow_from_the_tables():
    release = release_of(city_flows(), budget="volume")
    published = release.summary()["published"]
    assert published["cells"] == len(release.flows)
    assert published["trips"] == sum(release.flows["trips"].to_pylist())
    assert published["smallest_cell"] == min(release.flows["trips"].to_pylist())
    assert published["origin_zones"] == len(set(release.flows["origin_zone"].to_pylist()))


def test_trips_are_not_people():
    lines = sentences(release_of(city_flows(), protect="trips", budget="volume"))
    assert lines[0] == "Protected: every published cell holds at least 5 trips."
    assert any(line.startswith("Not protected: people.") for line in lines)


def test_people_are_people():
    lines = sentences(release_of(city_flows(), protect=["trips", "people"], budget="volume"))
    assert lines[0].endswith("at least 5 trips and 5 people.")
    assert not any(line.startswith("Not protected: people.") for line in lines)


def test_a_population_is_stated_as_the_rule_and_may_be_one_participant():
    release = release_of(city_flows(), protect="population", budget="volume")
    assert release.guarantee.population is not None
    assert release.summary()["guarantee"]["population"] is None
    assert any("single participant" in line for line in sentences(release))


def test_locations_and_nesting():
    assert any(
        "at least 2 different tiles" in line
        for line in sentences(release_of(city_flows(), l=2, budget="volume"))
    )
    assert any(line.startswith("Zones are nested") for line in sentences(nested_release()))


def test_paths_and_odd_values_in_parameters(tmp_path):
    parameters = {
        "zones": tmp_path / "z.csv",
        "input": "C:\\data\\trips.csv",
        "share": np.float32(0.5),
        "nothing": float("inf"),
        "levels": np.arange(2),
        "by": ("sex", "age"),
        "columns": {"origin": "from/lat,from/lon"},
        "options": {"map": str(tmp_path), "levels": 3},
    }
    assert tile_release([9, 8, 7], parameters=parameters).summary()["parameters"] == {
        "zones": "(a path; not published)",
        "input": "(a path; not published)",
        "share": 0.5,
        "nothing": None,
        "levels": [0, 1],
        "by": ["sex", "age"],
        "columns": {"origin": "from/lat,from/lon"},
        "options": {"map": "(a path; not published)", "levels": 3},
    }
