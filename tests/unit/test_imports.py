"""The house stays in order: who may import whom, and how light the front door is."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import flowveil

SOURCE = Path(flowveil.__file__).parent

#: The packages in the order of imports: each imports only those before it. Imports inside functions
#: count.
PACKAGES = (
    *(
        "core",
        "system",
        "request",
        "zoning",
        "reading",
        "release",
        "methods",
        "published",
        "verify",
    ),
    *("publishing", "analysis", "tabular", "apps"),
)
#: May import everything.
DOOR = ("__init__", "__main__")
#: Nothing that decides or checks depends on engines, plotting or other people's tables.
HEAVY = ("pyspark", "polars", "pandas", "matplotlib", "bokeh", "fastapi", "starlette", "uvicorn")


@cache
def rooms_of(path: Path) -> set[str]:
    """The rooms, and the foreign libraries, that a file imports at module level or inside
    functions."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import):
                found.update(_room(a.name) for a in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                names = (
                    [f"flowveil.{a.name}" for a in child.names]
                    if child.module == "flowveil"
                    else [child.module]
                )
                found.update(_room(name) for name in names)
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def _room(module: str) -> str:
    first, _, rest = module.partition(".")
    if first != "flowveil":
        return f"library {first}"
    room = rest.partition(".")[0]
    return room if (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").exists() else "__init__"


def files_of(room: str) -> list[Path]:
    place = SOURCE / room
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


def test_every_file_is_in_a_package():
    found = {p.stem for p in SOURCE.glob("*.py")} | {
        p.name for p in SOURCE.iterdir() if any(p.rglob("*.py"))
    }
    assert sorted([*PACKAGES, *DOOR]) == sorted(found)


@pytest.mark.parametrize("number", range(len(PACKAGES)), ids=PACKAGES)
def test_a_package_imports_only_packages_before_it(number):
    allowed = {*PACKAGES[: number + 1], "__init__"}
    bad = {
        f"{file.relative_to(SOURCE)} imports {room}"
        for file in files_of(PACKAGES[number])
        for room in rooms_of(file)
        if not room.startswith("library ") and room not in allowed
    }
    assert not bad, "\n".join(sorted(bad))


def test_the_recount_imports_nothing_of_flowveil():
    for file in files_of("verify/recount"):
        bad = {r for r in rooms_of(file) if not r.startswith("library ")}
        assert not bad, f"{file.relative_to(SOURCE)} imports {sorted(bad)}"


@pytest.mark.parametrize("room", ["core", "methods", "release", "verify/recount"])
def test_what_decides_and_checks_knows_no_heavy_library(room):
    for file in files_of(room):
        bad = {r for r in rooms_of(file) if r.removeprefix("library ") in HEAVY}
        assert not bad, f"{file.relative_to(SOURCE)} imports {sorted(bad)}"


def test_import_flowveil_stays_light():
    code = "import sys, flowveil; print('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "pyspark",
        "py4j",
        "matplotlib",
        "bokeh",
        "fastapi",
        "starlette",
        "uvicorn",
        "duckdb",
        "pandas",
        "polars",
        "geopandas",
        "scipy",
        "sklearn",
        "statsmodels",
        "rich",
        "click",
        "opendp",
        "jinja2",
        "jsonschema",
        "h5py",
    }
    assert not heavy & set(loaded)


@pytest.mark.parametrize("folder", ["benchmarks", "tools", "examples"])
def test_programs_outside_the_package_import_names_that_exist(folder: str):
    """Programs that no test runs would break unnoticed when a name moves."""
    programs = sorted((SOURCE.parents[1] / folder).rglob("*.py"))
    assert programs or folder == "examples"
    for program in programs:
        for node in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flowveil":
                module = importlib.import_module(node.module or "")
                missing = [
                    a.name
                    for a in node.names
                    if not hasattr(module, a.name) and not _is_module(node.module, a)
                ]
                assert not missing, f"{program.name}: {node.module} has no {', '.join(missing)}"


def _is_module(package: str | None, name: ast.alias) -> bool:
    return importlib.util.find_spec(f"{package}.{name.name}") is not None
