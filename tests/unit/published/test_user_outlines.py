"""Outlines of the publisher's own: what is taken of a file, how it is published, and lies about
it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from flowveil import anonymize
from flowveil.apps.cli import main
from flowveil.core.errors import DataError
from flowveil.published.user_outlines import CONTEXT, own_lines, read_own_lines
from samples.drafts import unchecked
from samples.releases import city_flows, edit_report, rehash
from samples.verified import findings_of

SQUARE = [[2.3, 48.8], [2.4, 48.8], [2.4, 48.9], [2.3, 48.9], [2.3, 48.8]]


def feature(geometry: dict, **properties) -> dict:
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def write(path: Path, *features: dict, **more) -> Path:
    path.write_text(
        json.dumps({"type": "FeatureCollection", "features": list(features), **more}), "utf-8"
    )
    return path


def test_a_named_point_is_a_place_of_the_page(tmp_path):
    point = {"type": "Point", "coordinates": [2.3500004, 48.85]}
    unnamed = feature({"type": "Point", "coordinates": [2.36, 48.86]})
    text = read_own_lines(write(tmp_path / "places.geojson", feature(point, name="Gare"), unnamed))
    (place,) = own_lines(text)
    assert (place.name, place.label, place.lines) == ("Gare", [2.35, 48.85], ())
    with pytest.raises(ValueError, match="not "):
        own_lines(text.replace("[2.35,48.85]", "null"))
    release = anonymize(city_flows(rows=4_000), method="layercut", k=5, protect="trips")
    with unchecked():
        folder = release.write(tmp_path / "out", context=tmp_path / "places.geojson")
    page = (folder / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="map-data">(.*?)</script>', page, re.DOTALL)[1])
    assert "Gare" in data["answer"]["places"]["name"]


@pytest.fixture
def districts(tmp_path):
    square = feature(
        {"type": "Polygon", "coordinates": [SQUARE]},
        name="Centre <b>",
        inhabitants=[3],
        owner="a name",
    )
    road = feature(
        {"type": "LineString", "coordinates": [[2.1, 48.7, 35.5], [2.123456789, 48.7, 36]]}
    )
    return write(tmp_path / "districts.geojson", square, road)


def test_a_table_of_places_is_taken(tmp_path):
    table = tmp_path / "places.csv"
    table.write_text("name,lat,lon,note\nGare,48.85,2.35,x\nHôpital,48.86,2.36,y\n", "utf-8")
    text = read_own_lines(table)
    assert [(one.name, one.label) for one in own_lines(text)] == [
        ("Gare", [2.35, 48.85]),
        ("Hôpital", [2.36, 48.86]),
    ]
    assert "note" not in text
    for wrong, said in (
        ("name,lat\na,1\n", "no column lon"),
        ("name,lat,lon\na,north,2\n", "cannot|can be read"),
        ("name,lat,lon\na,100,2\n", "longitude and latitude"),
    ):
        table.write_text(wrong, "utf-8")
        with pytest.raises(DataError, match=said):
            read_own_lines(table)


def test_lines_and_names_are_taken_and_nothing_else(districts):
    text = read_own_lines(districts)
    assert "inhabitants" not in text
    assert "owner" not in text
    square, road = own_lines(text)
    assert square.name == "Centre <b>"
    assert square.lines[0].tolist() == SQUARE
    assert (road.name, road.label, road.lines[0].tolist()) == (
        None,
        None,
        [[2.1, 48.7], [2.12346, 48.7]],
    )


def test_a_large_file_is_thinned_once(tmp_path, monkeypatch):
    # Thinning a line to 20,000 corners takes seconds.
    most = 2_000
    monkeypatch.setattr("flowveil.published.user_outlines.MAX_CORNERS", most)
    points = [[2 + i / 50_000, 48 + (i % 7) / 100_000] for i in range(3 * most)]
    path = write(tmp_path / "road.geojson", feature({"type": "LineString", "coordinates": points}))
    (road,) = own_lines(read_own_lines(path))
    assert 2 <= len(road.lines[0]) <= most


@pytest.mark.parametrize(
    "content",
    [
        "[1, 2]",
        "{",
        '{"type": "Point", "coordinates": [2, 48]}',
        '{"type": "LineString", "coordinates": [[652000, 6860000], [652001, 6860000]]}',
        '{"type": "LineString", "coordinates": [[2, 48], [2, NaN]]}',
        (
            '{"type": "LineString", "coordinates": [[2, 48], [3, 48]], "crs": {"properties":'
            ' {"name": "EPSG:2154"}}}'
        ),
        '{"type": "FeatureCollection", "features": []}',
        '{"type": "Feature", "geometry": {"type": "Polygon", "coordinates": "x"}}',
        (
            '{"type": "Feature", "properties": {"name": "a\\u202eb"}, '
            '"geometry": {"type": "LineString", "coordinates": [[2, 48], [3, 48]]}}'
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, content):
    (tmp_path / "odd.geojson").write_text(content, "utf-8")
    with pytest.raises(DataError, match=r"odd\.geojson"):
        read_own_lines(tmp_path / "odd.geojson")


def test_they_are_published_and_checked(districts, tmp_path):
    flows = city_flows()
    release = anonymize(flows, "odkanon", k=5)
    with unchecked():
        folder = release.write(tmp_path / "release", context=districts)
    assert findings_of(folder, flows) == []
    page = (folder / "report.html").read_text("utf-8")
    assert '"ownNames":[["' in page
    assert "Centre <b>" not in page
    published = (folder / CONTEXT).read_text("utf-8")
    # The published file gives the same release.
    with unchecked():
        again = release.write(tmp_path / "again", context=folder / CONTEXT)
    assert (again / CONTEXT).read_text("utf-8") == published
    assert (again / "report.html").read_bytes() == (folder / "report.html").read_bytes()

    for lie in (
        published.replace("2.3,", "2.31,", 1),
        published.replace('"name"', '"raw":3,"name"', 1),
        "{}",
    ):
        (folder / CONTEXT).write_text(lie, "utf-8")
        rehash(folder)
        assert findings_of(folder, flows) != []
    (folder / CONTEXT).write_text(published, "utf-8")
    edit_report(folder, lambda report: report["statement"].update(context=False))
    assert findings_of(folder, flows)
    edit_report(folder, lambda report: report["statement"].update(context=True))
    (folder / CONTEXT).unlink()
    rehash(folder)
    assert findings_of(folder, flows)


def test_the_command_names_it(districts, tmp_path):
    with unchecked():
        folder = anonymize(city_flows(), "odkanon", k=5).write(
            tmp_path / "release", context=districts
        )
    words = shlex.split(
        json.loads((folder / "report.json").read_text("utf-8"))["published"]["command"]
    )
    assert words[words.index("output.context=CONTEXT") - 1] == "--set"


def test_a_bad_file_is_refused_before_anything_is_read(tmp_path, capsys):
    (tmp_path / "odd.geojson").write_text("{", "utf-8")
    words = [
        "anonymize",
        "none.csv",
        "--out",
        str(tmp_path / "r"),
        "--set",
        f"output.context={tmp_path / 'odd.geojson'}",
    ]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "odd.geojson" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
