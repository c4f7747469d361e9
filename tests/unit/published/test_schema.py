"""The form of report.json: shipped, made from the registries, and that of every kind of release."""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from dataclasses import replace
from functools import cache
from importlib.resources import files

import pytest

from flowveil import anonymize
from flowveil.analysis.measures import MEASURES
from flowveil.anonymization import anonymize_slices
from flowveil.disclosure.withholding import revealing
from flowveil.guarantee import UNITS
from flowveil.methods import K_METHODS
from flowveil.published.report import json_text, summarize
from flowveil.published.schema import KINDS, schema_text
from flowveil.slices import Every, SlicedFlows
from flowveil.verify import units as recounted
from flowveil.verify.measures import DIGITS, REVEAL_INSIDE, REVEAL_SEEN, REVEAL_SUPPRESSED
from samples.releases import city_flows, release_of

SHIPPED = (files("flowveil") / "verify" / "report.schema.json").read_text(encoding="utf-8")


@cache
def form():
    """The schema, to hold reports against.

    Where it is installed, jsonschema imports a library that compiles grammars of addresses for two seconds, in every
    process that looks for tests; the schema speaks of none.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)
        from jsonschema import Draft202012Validator
    return Draft202012Validator(json.loads(SHIPPED))


def test_the_shipped_schema_is_that_of_the_registries():
    assert schema_text() == SHIPPED, "python -m flowveil.published.schema > src/flowveil/verify/report.schema.json"
    form().check_schema(json.loads(SHIPPED))


def test_verify_has_the_same_units_in_a_list_of_its_own():
    assert list(recounted.UNITS) == list(UNITS)
    flows, bare = city_flows(), city_flows(weights=False, persons=False)
    for name, unit in UNITS.items():
        assert recounted.UNITS[name].weighed == (not unit.asks_k)
        for given in (flows, bare):
            assert recounted.UNITS[name].known(given) == (unit.value(given) is not None)


def test_verify_has_the_same_measures_in_a_list_of_its_own():
    assert {key: m.digits for key, m in MEASURES.items() if m.digits is not None} == DIGITS
    assert revealing("suppressed") == REVEAL_SUPPRESSED
    assert revealing("inside") == REVEAL_INSIDE
    assert revealing("seen") == REVEAL_SEEN


@cache
def report_of(kind):
    flows = city_flows()
    match kind:
        case "plain":
            release = release_of(flows, budget="volume")
        case "boxed":
            release = anonymize(flows, "mondrian", 5)
        case "noisy":
            release = anonymize(flows, "laplace", epsilon=1, bound=3, region="observed", unsafe_seed_for_tests=1)
        case "folded":
            parts = tuple(city_flows(seed=seed, rows=900) for seed in (0, 1))
            parts = tuple(replace(part, origins=flows.origins, destinations=flows.destinations) for part in parts)
            hours = (("07:00",), ("08:00",))
            timed = SlicedFlows(columns=("time",), keys=hours, slices=parts, every=Every.parse("hour"))
            release = anonymize(timed.folded(), "paircut", 5)
        case "sliced":
            parts = tuple(city_flows(seed=seed, rows=900) for seed in (0, 1))
            parts = tuple(replace(part, origins=flows.origins, destinations=flows.destinations) for part in parts)
            release = anonymize_slices(SlicedFlows(columns=("sex",), keys=(("f",), ("m",)), slices=parts), "odkanon", 5)
    assert release.kind == kind
    return json.loads(json_text(summarize(release)))


def _at(content, *path):
    for step in path:
        content = content[step]
    return content


@pytest.mark.parametrize("kind", KINDS)
def test_reports_have_that_form_and_no_other(kind):
    report = report_of(kind)
    assert report["kind"] == kind
    form().validate(report)
    spoilt = [{**report, "kind": other} for other in ("other", *KINDS) if other != kind]
    spoilt += [{**report, "more": 1}, {key: value for key, value in report.items() if key != "kind"}]
    own = ("slices", 0) if kind == "sliced" else ()
    for key in _at(report, *own, "measures", "trips"):
        lacking = deepcopy(report)
        del _at(lacking, *own, "measures", "trips")[key]
        spoilt.append(lacking)
    for path in (("measures", "trips"), ("guarantee",), ("parameters",), ("suppression",)):
        carrier = deepcopy(report)
        _at(carrier, *path)["Bob"] = 1
        spoilt.append(carrier)
    assert not any(form().is_valid(wrong) for wrong in spoilt)


@pytest.mark.parametrize("method", K_METHODS)
def test_options_and_notes_are_those_of_the_method(method):
    options = {"lambda_": 20.0} if method == "atg-soft" else {}
    report = json.loads(json_text(summarize(anonymize(city_flows(), method, 3, **options))))
    form().validate(report)
    assert not form().is_valid({**report, "notes": {**report["notes"], "Bob": 1}})
    report["parameters"]["options"]["Bob"] = 1
    assert not form().is_valid(report)


def test_there_is_one_way_to_write_zero():
    """A changed sign of a zero would say the same in other bytes."""
    assert json_text({"share": -0.0, "list": [-0.0, 1]}) == json_text({"share": 0.0, "list": [0.0, 1]})
