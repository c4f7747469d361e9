"""Free memory is given back where that can be said, and nothing happens elsewhere."""

from __future__ import annotations

import ctypes
import sys

import pytest

from flowveil import memory


def test_free_memory_is_given_back_or_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    memory.give_back()

    def without(*_: object) -> object:
        return object()

    monkeypatch.setattr(ctypes, "CDLL", without)
    memory.give_back()

    def refused(*_: object) -> object:
        raise AssertionError("nothing is asked of another system")

    monkeypatch.setattr(ctypes, "CDLL", refused)
    monkeypatch.setattr(sys, "platform", "darwin")
    memory.give_back()
