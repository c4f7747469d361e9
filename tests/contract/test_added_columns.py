"""A column that adds up is described once: a unit with a column of its own is added to a copy of the sources."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from samples.small_spark import QUICK

SOURCES = Path(__file__).resolve().parents[2] / "src" / "flowveil"
#: What is written by hand to protect the sum of a column: file, the line that it stands behind, and what it is.
BY_HAND = {
    "flows.py": (
        ("SUM_COLUMNS: dict[str, SumColumn] = {\n    column.name: column\n    for column in (\n", """\
        SumColumn("vehicles", one="number of vehicles", many="numbers of vehicles", about="Column of the vehicles."),
"""),
        ("    tiles: Tiles | None = None\n", "    vehicles: NDArray[Any] | None = None\n"),
    ),
    "reading/columns.py": (("    weight: str | None = None\n", "    vehicles: str | None = None\n"),),
    "request.py": (
        ('    """Trips and the columns that describe them."""\n\n', """\
    vehicles: str | None = setting("Column of the vehicles.", example="cars", **COLUMN)
"""),
    ),
    "guarantee.py": (
        ("    population: float | None = None\n", "    vehicles: int | None = None\n"),
        ("UNITS: dict[str, Unit] = {\n    unit.name: unit\n    for unit in (\n", """\
        Unit(
            "vehicles",
            "Vehicles",
            ("Fewest vehicles in a cell", "The smallest published cell, in vehicles."),
            "Published cells with fewer than k vehicles.",
            lambda cells: cells.vehicles,
            _k,
            lambda least: f"{least:,} vehicles",
            missing="Vehicles cannot be protected: the input has none. Hint: name the column with --vehicles.",
            caveat="Not protected: people. Vehicles were counted, not people.",
            column="vehicles",
        ),
"""),
    ),
    "verify/units.py": (
        ("UNITS: dict[str, Unit] = {\n", """\
    "vehicles": Unit(
        "vehicles", "have fewer than {least} vehicles", missing="vehicles, but the input has none to count"
    ),
"""),
    ),
}  # fmt: skip


def test_a_unit_with_a_column_of_its_own_needs_six_files(tmp_path: Path) -> None:
    """These five and a test, and the schema, which is written from them; docs/architecture.md says the same."""
    copy = tmp_path / "src" / "flowveil"
    # With what was compiled of them: it holds for every file that is not changed.
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("*.nb?"))
    for name, lines in BY_HAND.items():
        text = (copy / name).read_text(encoding="utf-8")
        for before, line in lines:
            assert text.count(before) == 1, f"{name} has changed: say where a column of a unit is written there"
            text = text.replace(before, before + line)
        (copy / name).write_text(text, encoding="utf-8")
    script = Path(__file__).with_name("second_column.py")
    _run("-W", "ignore", str(script), str(tmp_path), *(["spark"] if _has_spark() else []), sources=copy.parent)


def _run(*words: str, sources: Path) -> None:
    small = f"--master local[1] {QUICK}"
    settings = {"PYTHONPATH": str(sources), "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": small}
    done = subprocess.run(
        [sys.executable, *words], env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(done.stderr[-4000:])


def _has_spark() -> bool:
    has_java = shutil.which("java") is not None or bool(os.environ.get("JAVA_HOME"))
    return has_java and importlib.util.find_spec("pyspark") is not None
