"""One description of all options: what is declared once is found in every interface, and recipes
lose nothing."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st

from flowveil.core.errors import DataError, ParameterError
from flowveil.reading.engines import read_trips
from flowveil.request.recipe import changed, read_recipe, recipe_text, write_recipe
from flowveil.request.request import (
    SECTIONS,
    ProtectionSection,
    Request,
    find_setting,
    refuse_unknown,
    settings,
)
from flowveil.request.settings import setting

ROOT = Path(__file__).parents[3]


def test_names_and_flags_are_unique_and_every_setting_is_complete():
    names = [one.name for one in settings()]
    flags = [one.flag for one in settings()]
    assert len(set(names)) == len(names)
    assert len(set(flags)) == len(flags)
    for one in settings():
        assert one.meaning.endswith("."), one.name
        assert one.kind == "flag" or one.example, one.name
        if one.example and one.kind != "pairs":
            one.parse(one.example)
        assert not one.allowed or one.choices


def value_of(one):
    """Values that a setting allows."""
    texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
    if one.allowed:
        texts = st.sampled_from(one.choices)
    low = 0 if one.low is None else one.low
    high = 10**6 if one.high is None else one.high
    return {
        "text": texts,
        "whole": st.integers(int(low), int(high)),
        "number": st.floats(low, high, allow_nan=False),
        "flag": st.booleans(),
        "list": st.lists(texts, max_size=1 if one.name == "every" else 3),
        "pairs": st.dictionaries(texts, texts | st.integers() | st.booleans(), max_size=3),
    }[one.kind]


def without_conflict(values):
    """A named rule sets k and unit itself."""
    ruled = ("k", "protect") if values.get("rule") else ()
    return {name: value for name, value in values.items() if name not in ruled}


requests = (
    st.fixed_dictionaries({}, optional={one.name: value_of(one) for one in settings()})
    .map(without_conflict)
    .map(Request.from_flat)
)


@trials(max_examples=30)
@given(requests)
def test_a_recipe_says_all_of_a_request(request):
    content = tomllib.loads(recipe_text(request, version="1"))
    content.pop("flowveil")
    assert Request.from_sections(content) == request
    assert Request.from_flat(request.given) == request


def test_a_recipe_moves_with_its_files(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("area.geojson").touch()
    asked = {
        "input": "trips.csv",
        "zones": str(tmp_path / "map.csv"),
        "within": "area.geojson",
        "revision": ["a", "b"],
    }
    request = Request.from_flat({**asked, "out": "made", "temp_dir": "/scratch"})
    write_recipe(request, "kept/r.toml", version="1")
    content = tomllib.loads(Path("kept/r.toml").read_text(encoding="utf-8"))
    assert content["input"]["input"] == "../trips.csv"
    assert content["zones"] == {"zones": "../../map.csv", "within": "../area.geojson"}
    assert content["resources"]["temp_dir"] == "/scratch"
    again = read_recipe("kept/r.toml")
    assert again.given == {**request.given, "zones": "../map.csv"}
    database = Request.from_flat({"input": "duckdb:a.db?query=SELECT a/b FROM t"})
    assert tomllib.loads(
        write_recipe(database, "kept/d.toml", version="1").read_text(encoding="utf-8")
    )["input"] == {"input": "duckdb:../a.db?query=SELECT a/b FROM t"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[protecton]\nk = 3", r"no section \[protecton\]. Did you mean 'protection'"),
        (
            "[protection]\nmax_supressed = 0.1",
            "'protection.max_supressed'. Did you mean 'max_suppressed'",
        ),
        ("[input]\nk = 3", "no setting 'input.k'"),
        ("[protection]\nk = '3'", "k must be a whole number; found '3'"),
        ("[protection]\nk = true", "k must be a whole number"),
        ("[protection]\nk = 0", "k must be at least 1; found 0"),
        (
            "[protection]\nprotect = ['peple']",
            "protect must be one of trips, people.*Did you mean 'people'",
        ),
        ("protection = 3", r"\[protection\] must be a section"),
    ],
)
def test_a_wrong_recipe_is_refused_with_a_hint(tmp_path, text, message):
    (tmp_path / "r.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ParameterError, match=message):
        read_recipe(tmp_path / "r.toml")


def test_a_recipe_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"no recipe 'r.toml'"):
        read_recipe(tmp_path / "r.toml")
    (tmp_path / "r.toml").write_text("[", encoding="utf-8")
    with pytest.raises(DataError, match="not TOML"):
        read_recipe(tmp_path / "r.toml")
    (tmp_path / "r.toml").write_text("a = " + "[" * 100_000, encoding="utf-8")
    with pytest.raises(DataError, match="nested too deeply"):
        read_recipe(tmp_path / "r.toml")


def test_settings_are_changed_by_text():
    request = changed(
        Request.from_flat({"k": 5, "title": "T"}),
        [
            "protection.k=20",
            "by=sex,age",
            "method.options.effort=2",
            "slices.common_zones=true",
            "output.title=",
        ],
    )
    assert request.given == {
        "k": 20,
        "by": ("sex", "age"),
        "options": {"effort": "2"},
        "common_zones": True,
    }
    with pytest.raises(ParameterError, match="NAME=VALUE"):
        changed(request, ["k"])
    with pytest.raises(ParameterError, match=r"Did you mean 'protection\.k'"):
        changed(request, ["protection.kk=3"])
    with pytest.raises(ParameterError, match=r"slices\.total'\. Slices next to a total"):
        changed(request, ["slices.total=true"])
    with pytest.raises(ParameterError, match=r"can be given once\. Slices next to a total"):
        changed(request, ["every=1h,day"])
    with pytest.raises(ParameterError, match="max_suppressed must be a number; found 'x'"):
        changed(request, ["max_suppressed=x"])


def test_a_request_is_read_from_a_report():
    report = {
        "method": "odkanon",
        "parameters": {
            "k": 4,
            "protect": ["people"],
            "max_suppressed": 0.1,
            "k_population": None,
            "resolution": None,
            "columns": {
                "origin_tile": "o",
                "destination_tile": "d",
                "person": "",
                "by": "sex,age",
                "time": "t",
            },
            "zones": {"tile": "code", "levels": ["row", "code"]},
            "within": None,
            "matrix": [],
            "wide": False,
            "slices": {"every": "1h", "common_zones": True, "by_many": False},
            "options": {"beta": 0.1, "level": None},
            "stricter": {"places": 3},
            "person_case": "keep",
        },
    }
    assert Request.from_report(report).given == {
        "method": "odkanon",
        "k": 4,
        "protect": ("people",),
        "max_suppressed": 0.1,
        "origin_tile": "o",
        "destination_tile": "d",
        "person": "",
        "by": ("sex", "age"),
        "time": "t",
        "zones_tile": "code",
        "zones_levels": ("row", "code"),
        "every": ("1h",),
        "common_zones": True,
        "options": {"beta": 0.1},
        "person_case": "keep",
    }


def test_unknown_keyword_arguments_are_refused_with_the_nearest_name():
    refuse_unknown(["origin", "by"], call="reading")
    with pytest.raises(TypeError, match=r"'orgin'. Did you mean 'origin'"):
        refuse_unknown(["orgin"], call="reading")
    with pytest.raises(TypeError, match="Unknown argument 'k'"):
        refuse_unknown(["k"], call="reading")


def test_a_new_option_is_one_field(monkeypatch, tmp_path):
    @dataclass(frozen=True)
    class Stronger(ProtectionSection, key="protection", heading="Protection", call="anonymize"):
        """What every published cell must satisfy."""

        t_closeness: float | None = setting("Largest distance.", between=(0, 1), example="0.2")

    monkeypatch.setitem(SECTIONS, "protection", Stronger)
    # Annotations are read in the module of the class.
    assert find_setting("t_closeness").flag == "--t-closeness"
    assert "t_closeness" in options_page()
    request = changed(Request.from_flat({"k": 5}), ["protection.t_closeness=0.3"])
    assert request.arguments("anonymize") == {"k": 5, "t_closeness": 0.3}
    assert read_recipe(write_recipe(request, tmp_path / "r.toml", version="1")) == request
    refuse_unknown(["t_closeness"], call="anonymize")


def test_a_list_of_texts_with_commas_is_set_one_text_at_a_time():
    words = [
        "slices.values=sex=f,m",
        "method.revision=a",
        "slices.values=age=1,2",
        "method.revision=b",
    ]
    request = changed(Request.from_flat({"values": ("sex=x",)}), words)
    assert request.slices.values == ("sex=f,m", "age=1,2")
    assert request.method.revision == ("a", "b")


#: Options of other commands that are called like a setting without an option.
OTHER_OPTIONS = {("apps/cli/tabular.py", "--t")}


def test_no_text_names_a_setting_by_an_option_that_it_does_not_have():
    flags = {one.flag for one in settings(tier=("recipe",))}
    source = ROOT / "src" / "flowveil"
    named = {
        (path.relative_to(source).as_posix(), flag)
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", node.value)
        if flag in flags
    }
    assert named == OTHER_OPTIONS


def options_page() -> str:
    return runpy.run_path(str(ROOT / "tools" / "options_page.py"))["options_page"]()


def test_the_reference_page_is_the_generated_one():
    assert (ROOT / "docs" / "reference" / "options.md").read_text(
        encoding="utf-8"
    ) == options_page()


def test_the_reference_page_names_options_that_exist():
    page = options_page()
    for one in settings():
        shown = f"--set {one.path}=" if one.tier == "recipe" else one.flag
        assert f"| `{one.name}`<br>`{shown}` |" in page


@pytest.mark.parametrize("name", ["engine", "hierarchy", "outside"])
def test_an_empty_text_is_no_choice(name):
    with pytest.raises(ParameterError, match="must be one of"):
        find_setting(name).check("")


def test_no_engine_is_the_usual_one():
    trips = pa.table({"start_lat": [48.8], "start_lon": [2.3], "end_lat": [48.9], "end_lon": [2.4]})
    assert len(read_trips(trips, engine=None)) == 1
