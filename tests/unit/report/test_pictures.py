"""Static maps: from a release or from its folder alone, the same bytes each time."""

from __future__ import annotations

import sys

import pytest

import flowveil
from flowveil.errors import MissingExtraError, OutputError, ParameterError
from flowveil.report.pictures import SHOWS, class_limits
from unit.publish.releases import city_flows, region_flows, release_of

pytest.importorskip("matplotlib")

HEADS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture(scope="module")
def release():
    return release_of(city_flows(), budget="volume")


@pytest.mark.parametrize("show", SHOWS)
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_every_map_is_one_call(show, suffix, release, tmp_path):
    path = release.picture(tmp_path / f"map{suffix}", show=show, basis="weight", title="Paris & around")
    assert path.read_bytes().startswith(HEADS[suffix])
    assert path.stat().st_size > 2000


def test_the_published_folder_is_enough_and_bytes_are_stable(release, tmp_path):
    out = release.write(tmp_path / "out")
    for suffix in (".png", ".svg", ".pdf"):
        a = flowveil.picture(out, tmp_path / f"a{suffix}", show="both")
        b = flowveil.picture(release, tmp_path / f"b{suffix}", show="both")
        assert a.read_bytes() == b.read_bytes()


def test_wrong_arguments_are_said(release, tmp_path):
    with pytest.raises(ParameterError, match="Did you mean 'origins'"):
        release.picture(tmp_path / "a.png", show="orgins")
    with pytest.raises(ParameterError, match=r"\.png or \.svg"):
        release.picture(tmp_path / "a.jpg")
    with pytest.raises(ParameterError, match="no place on a map"):
        release_of(region_flows(), budget="volume").picture(tmp_path / "a.png")
    with pytest.raises(ParameterError, match="no release"):
        flowveil.picture(tmp_path, tmp_path / "a.png")
    with pytest.raises(OutputError, match="cannot be written"):
        release.picture(tmp_path / "no" / "a.png")


def test_a_missing_library_is_named_with_its_extra(release, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"flowveil\[pictures\]"):
        release.picture(tmp_path / "a.png")


def test_class_limits_are_round_and_cover_everything():
    import numpy as np

    limits = class_limits(np.array([11.0, 37.0, 99_000.0]))
    assert limits[0] == 11
    assert limits[-1] == 99_000
    assert len(limits) <= 7
    assert all(str(int(limit)).strip("0") in ("1", "2", "5") for limit in limits[1:-1])
    assert len(class_limits(np.array([5.0, 5.0]))) == 2
