"""The internal report is marked, complete, and never inside a release."""

from __future__ import annotations

import stat

import pytest

from flowveil.analysis.pages.before_after import render_internal
from flowveil.core.errors import OutputError
from flowveil.published.document import number
from flowveil.system.output import check_place, write_private
from samples.releases import city_flows, region_flows, release_of


@pytest.fixture(scope="module")
def release():
    return release_of(city_flows(), budget="volume")


def test_it_is_never_written_into_a_release(release, tmp_path):
    out = release.write(tmp_path / "out")
    (tmp_path / "link").symlink_to(out, target_is_directory=True)
    (out / "deep").mkdir()
    for path in (
        out / "internal.html",
        out / "deep" / "i.html",
        tmp_path / "link" / "i.html",
        out / "report.html",
    ):
        with pytest.raises(OutputError, match="inside a release"):
            write_private(path, "raw counts")
        assert not path.exists() or path.name == "report.html"
    with pytest.raises(OutputError, match="inside a release"):
        check_place(tmp_path / "later" / ".." / "later.html", release=tmp_path)
    with pytest.raises(OutputError, match="is a folder"):
        check_place(tmp_path)


def test_it_is_for_its_owner_and_marked(release, tmp_path):
    path = write_private(tmp_path / "internal.html", render_internal(release))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text(encoding="utf-8")
    assert "NOT FOR PUBLICATION" in text
    assert 'class="internal"' in text
    assert "default-src 'none'" in text
    for part in (
        "Before and after",
        "What was suppressed, and where",
        "What suppressing more or less would give",
        "Suppressed flows, by trips",
    ):
        assert part in text


def test_it_does_without_a_map():
    assert "The tiles have no place on a map" in render_internal(
        release_of(region_flows(), budget="volume")
    )


def test_the_published_report_says_nothing_of_it(release, tmp_path):
    out = release.write(tmp_path / "out")
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "NOT FOR PUBLICATION" not in text
    assert "origin_tiles" not in text
    assert "suppressing more or less" not in text


def test_it_has_exact_measures(release):
    shown = render_internal(release)
    error = release.metrics()["trips"]["mean_generalization_error"]
    assert f">{number(error, digits=4)}</td>" in shown
