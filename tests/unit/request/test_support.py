"""The table of features: complete, documented, and the only source of its refusals."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from flowveil.core.errors import ParameterError, speaking_of_flags
from flowveil.request import support
from flowveil.request.request import find_setting
from flowveil.request.support import FEATURES, Facets

PAGE = Path(__file__).parents[3] / "docs/reference/combinations.md"


def test_every_name_is_a_setting():
    for feature in FEATURES.values():
        for name in (feature.name, *feature.without):
            assert find_setting(name).name == name


def test_the_page_has_the_table():
    assert support.table() in PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_is_refused_exactly_where_its_row_says(name):
    feature = FEATURES[name]
    for counts, zones, dimensions, overlap in product(
        ("exact", "noisy"), ("nodes", "boxes"), ("none", "separate", "fold"), (False, True)
    ):
        fits = (
            counts in feature.counts
            and zones in feature.zones
            and dimensions in feature.dimensions
            and (feature.overlap or not overlap)
        )
        facets = Facets(counts, zones, dimensions, overlap)
        assert (not list(support.refusals([name], facets))) == fits
    for other in feature.without:
        assert list(support.refusals([name, other], Facets(dimensions=feature.dimensions[0])))


def test_a_refusal_names_both_and_the_reason():
    with (
        speaking_of_flags(),
        pytest.raises(
            ParameterError,
            match=r"--mean cannot be combined with boxes \(method 'mondrian'\): a difference could",
        ),
    ):
        support.check(["mean"], Facets(zones="boxes", overlap=True, method="mondrian"))
