"""Public functions: their examples run, their arguments are typed, and results show sizes only."""

from __future__ import annotations

import doctest
import inspect
import re
import typing
from pathlib import Path

import pyarrow.csv as pacsv
import pytest

import flowveil
from samples.segmented import survey

FUNCTIONS = {
    name: value for name in flowveil.__all__ if inspect.isroutine(value := getattr(flowveil, name))
}
#: Names of earlier versions, and a cluster, which needs one.
WITHOUT_EXAMPLE = {"anonymize_slices", "read_slices", "cluster", "run_study"}


def make_folder(place: Path) -> Path:
    """The files that the examples name: trips, points, a map with counts, and a release."""
    pacsv.write_csv(survey(), place / "trips.csv")
    points = [
        f"a,2024-03-04T{8 + i // 60:02d}:{i % 60:02d}:00,{48 + 0.003 * max(0, i % 40 - 25)},2.0"
        for i in range(80)
    ]
    (place / "points.csv").write_text("\n".join(["id,time,lat,lon", *points]) + "\n")
    zones = [f"{name},all,{48 + i / 10},2.0" for i, name in enumerate(("A1", "A2", "B1"))]
    (place / "map.csv").write_text("\n".join(["code,parent,lat,lon", *zones]) + "\n")
    (place / "counts.csv").write_text("origin,destination,count\nA1,B1,40\nA2,B1,25\n")
    flows = flowveil.read_trips(place / "trips.csv", resolution=7, person="person_id")
    flowveil.anonymize(flows, "twincut", k=10).write(place / "release")
    return place


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - WITHOUT_EXAMPLE))
def test_examples_run(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = {"flowveil": flowveil}
    (example,) = doctest.DocTestFinder(recurse=False).find(FUNCTIONS[name], name, globs=names)
    assert example.examples
    lines: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=lines.append)
    assert not lines, "".join(lines)


def _parts(name: str) -> typing.Iterator[tuple[str, typing.Any]]:
    """A public function, or the public methods of a public class."""
    value = getattr(flowveil, name)
    if inspect.isroutine(value):
        yield name, value
    for part, function in vars(value).items() if inspect.isclass(value) else ():
        if not part.startswith("_") and inspect.isfunction(function):
            yield f"{name}.{part}", function


#: Options of a method, whose names only the method knows; builders for methods and tests.
OPEN = {
    *("anonymize", "prepare", "run_study", "Flows.reordered", "Flows.of_cells"),
    *("anonymize_slices", "Comparison.picture", "SlicedFlows.reordered"),
}


def test_keywords_of_public_functions_are_typed():
    untyped = [
        where
        for name in flowveil.__all__
        for where, function in _parts(name)
        if any(p.kind is p.VAR_KEYWORD and p.annotation == "Any" for p in _parameters(function))
    ]
    assert set(untyped) <= OPEN


def _parameters(function: typing.Any) -> typing.Any:
    return inspect.signature(function).parameters.values()


def test_types_of_public_functions_are_public():
    """Of what flowveil defines: keyword types are for editors, arrays and keys are plain types."""
    used = set()
    for function in FUNCTIONS.values():
        texts = [str(p.annotation) for p in _parameters(function)]
        texts.append(str(inspect.signature(function).return_annotation))
        used |= {word for text in texts for word in re.findall(r"(?<![.\w])[A-Z]\w+", text)}
    defined = {
        name
        for path in Path(flowveil.__file__).parent.rglob("*.py")
        for name in re.findall(r"^class ([A-Z]\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    keywords = {name for name in defined if name.endswith(("Keywords", "Reading"))}
    assert (used & defined) - keywords - set(flowveil.__all__) == set()


def test_results_show_sizes_never_codes_rows_or_measures(folder):
    reading = {"resolution": 7, "person": "person_id"}
    trips, release = folder / "trips.csv", folder / "release"
    flows = flowveil.read_trips(trips, by="sex", **reading)
    made = flowveil.anonymize(flows, "odkanon", k=5)
    one = next(part for _, part in made.parts)
    shown = [
        *(flows, flows.origins, flows.dimensions[0], flows.intake, flows.people, made, one),
        *(one.plan, one.cells, one.private, one.guarantee),
        flowveil.verify_release(release, against=trips),
        flowveil.analyze(release, against=trips),
        flowveil.audit_releases([release], against=trips),
        flowveil.read_release(release),
        flowveil.freeze(release),
        flowveil.derive(release, level=5),
        flowveil.describe(trips, **reading),
        flowveil.compare(trips, methods="odkanon", k=10, **reading),
    ]
    for result in shown:
        text = repr(result)
        assert len(text) < 200, text
        assert not re.search(r"8[0-9a-f]{14}|\d{17}|0\.\d", text), text
