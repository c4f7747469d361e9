"""The table of features: complete, documented, and the only source of its refusals."""

from __future__ import annotations

import ast
import re
from itertools import product
from pathlib import Path

import pytest

import flowveil
from flowveil.core.errors import ParameterError, speaking_of_flags
from flowveil.request import support
from flowveil.request.request import find_setting
from flowveil.request.support import FEATURES, Expected

SOURCE = Path(flowveil.__file__).parent
PAGE = Path(__file__).parents[3] / "docs/reference/combinations.md"


def test_every_name_is_a_setting():
    for feature in FEATURES.values():
        for name in (feature.name, *feature.without, *feature.needs):
            assert find_setting(name).name == name


def test_the_page_has_the_table():
    assert support.table() in PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_is_refused_exactly_where_its_row_says(name):
    feature = FEATURES[name]
    booleans = False, True
    for counts, zones, dimensions, overlap, whole, offered in product(
        ("exact", "noisy"), ("nodes", "boxes"), ("none", "separate", "fold"), *[booleans] * 3
    ):
        fits = (
            counts in feature.counts
            and zones in feature.zones
            and dimensions in feature.dimensions
            and (feature.overlap or not overlap)
            and (whole or not feature.whole_cells)
            and (offered or not feature.by_method)
        )
        offers = frozenset({name} if offered else ())
        expected = Expected(counts, zones, dimensions, overlap, whole, "any", offers)
        assert (not list(support.refusals([name], expected))) == fits
    for other in feature.without:
        assert list(support.refusals([name, other], Expected(dimensions=feature.dimensions[0])))


def test_a_refusal_names_both_and_the_reason():
    with (
        speaking_of_flags(),
        pytest.raises(
            ParameterError,
            match=r"--mean cannot be combined with boxes \(method 'mondrian'\): a difference could",
        ),
    ):
        support.check(["mean"], Expected(zones="boxes", overlap=True, method="mondrian"))


@pytest.mark.parametrize("name", [name for name in FEATURES if FEATURES[name].needs])
def test_a_feature_needs_one_of_the_settings_of_its_row(name):
    feature = FEATURES[name]
    for needed in feature.needs:
        support.check_needs({name, needed})
    with (
        speaking_of_flags(),
        pytest.raises(ParameterError, match=f"is given without .*: {feature.reason}"),
    ):
        support.check_needs({name})


def test_values_that_ask_for_nothing_are_no_features():
    given = {"outside": "drop", "engine": "duckdb", "hierarchy": "h3", "by": (), "k": 10}
    assert support.asked_of(given) == {"k"}
    given = {"outside": "keep", "engine": "spark", "secret_thresholds": "False", "t": 0.5}
    assert support.asked_of(given) == {*given}


#: Words of a refusal of two features.
REFUSES = re.compile(
    "cannot be combined|exclude each other|is given without|weighed against|both choose|belongs to"
    " the pre-filter|that fold|weighs where|without slices|without folds|leave the folds out"
)


def test_few_places_outside_of_the_table_refuse_a_combination():
    """Options of one method, of one command, and what only a list of places shows."""
    places = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name == "support.py" or path.parent.name == "tabular":
            continue
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "ParameterError":
                texts = [part.value for part in ast.walk(call) if isinstance(part, ast.Constant)]
                if REFUSES.search("".join(str(text) for text in texts)):
                    places.append(f"{path.relative_to(SOURCE)}:{call.lineno}")
    assert 0 < len(places) <= 10, places
