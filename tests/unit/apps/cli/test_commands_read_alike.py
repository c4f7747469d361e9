"""Every command that reads trips takes the options of reading under the same flags."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from shapely import box
from shapely.geometry import mapping

from flowveil.apps.cli import COMMANDS, GROUPS, cli, main
from flowveil.apps.cli.command import READING
from flowveil.request.request import find_setting


@pytest.mark.parametrize("name", ["describe", "compare", "study", "series", "verify", "analyze"])
def test_options_of_reading_have_the_flags_of_anonymize(name):
    flags = {flag for one in cli.get_command(None, name).params for flag in one.opts}
    wanted = {find_setting(one).flag for one in READING}
    of_anonymize = {f for one in cli.get_command(None, "anonymize").params for f in one.opts}
    assert wanted <= of_anonymize
    assert wanted <= flags
    assert {"--matrix", "--zones-root", "--during", "--timezone", "--crs"} <= wanted
    assert "--help-all" in flags


def test_the_help_lists_every_command_in_one_group():
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    text = cli.get_help(click.Context(cli))
    assert all(f"{heading}:" in text for heading in GROUPS)


def test_named_columns_are_those_of_the_readers_areas(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"59.9{i % 9},10.7{i % 7},59.9{i % 5},10.7{i % 8}" for i in range(300)]
    Path("trips.csv").write_text("\n".join(["start_lat,start_lon,end_lat,end_lon", *rows]))
    squares = [
        {
            "type": "Feature",
            "properties": {"amt": f"D{i}", "kreis": "k"},
            "geometry": mapping(box(10.4 + i * 0.3, 59.7, 10.7 + i * 0.3, 60.1)),
        }
        for i in range(3)
    ]
    Path("areas.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": squares}))
    main(["anonymize", "trips.csv", "--k", "3", "--resolution", "7", "--out", "release"])
    for words in (
        ["reconstruct", "release", "--zones", "areas.geojson", "--out", "matrix.csv"],
        ["analyze", "release", "--against", "trips.csv", "--districts", "areas.geojson"],
    ):
        with pytest.raises(SystemExit):
            main(words)
        assert "--zones-tile" in capsys.readouterr().err
        main([*words, "--zones-tile", "amt"])
    assert Path("matrix.csv").exists()
