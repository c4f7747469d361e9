"""How a published measure is compared with the recounted one."""

from __future__ import annotations

import pytest

from flowveil.verify.losses import Between


@pytest.mark.parametrize("said", [10**400, -(10**400), 10**30, float("inf"), float("nan"), True, "2", [2.0]])
def test_whatever_stands_for_a_measure_is_compared_and_not_raised(said):
    assert not Between(2.0, 2.0).agrees(said, None)
    assert not Between(2.0, 2.0).agrees(said, 4)


def test_a_measure_agrees_with_itself():
    assert Between(2.0, 2.0).agrees(2, 4)
    assert Between(None, None).agrees(None, 4)
