"""Charts: readable scales, words for those who do not see them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from flowveil.published.charts import Line, apart, line_chart, size_histogram


def marks(drawing: str) -> list[str]:
    """What stands at the marks of the upright axis."""
    return re.findall(r'<text x="40" y="[\d.]+" text-anchor="end">([^<]+)</text>', drawing)


@pytest.mark.parametrize("value", [0.003, 0.0999, 1.0, 3.3, 37.0, 50.0, 826.0, 55_669.0, 2.5e7])
@pytest.mark.parametrize("log", [True, False])
def test_one_k_and_one_method_still_have_a_scale(value, log):
    drawing = line_chart(
        [Line("odkanon", ((10.0, value),))], title="Error", x_label="k", ticks=[10.0], log=log
    )
    assert len(set(marks(drawing))) >= 2
    (at,) = re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', drawing)
    assert 40 - 0.1 <= float(at) <= 220 + 0.1


def test_values_that_are_much_alike_have_a_scale_too():
    lines = [Line("a", ((5.0, 31.0), (10.0, 47.0))), Line("b", ((5.0, 33.0), (10.0, 0.0)))]
    for chosen in (lines[:1], lines):
        assert (
            len(marks(line_chart(chosen, title="t", x_label="k", ticks=[5.0, 10.0], log=True))) >= 2
        )


def test_classes_of_whole_numbers_share_no_number():
    assert size_histogram(np.array([5.0, 12.0]), threshold=5, name="k").labels == ("5–9", "10–24")


def test_labels_next_to_a_chart_do_not_overlap():
    assert apart([10, 12, 60]) == [10, 24, 60]
    assert apart([100, 216, 216, 216], lowest=216) == [100, 188, 202, 216]
    assert apart([230], lowest=216) == [230]
