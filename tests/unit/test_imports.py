"""The house stays in order: who may import whom, and how light the front door is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flowveil

SOURCE = Path(flowveil.__file__).parent
#: Engines, file formats, web and plotting: nothing that decides or checks may depend on them.
FORBIDDEN = (
    "flowveil.engines",
    "flowveil.sources",
    "flowveil.publish",
    "flowveil.report",
    "flowveil.web",
    "flowveil.cli",
    "pyarrow.parquet",
    "pyarrow.csv",
    "pyspark",
    "polars",
    "pandas",
    "matplotlib",
    "bokeh",
    "fastapi",
)
PURE = ["hierarchy.py", "flows.py", "guarantee.py", "verify.py", "verify_noisy.py", "methods", "metrics"]


def imports_of(path: Path) -> set[str]:
    """Modules imported at module level or inside functions, type checking aside."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import):
                found.update(a.name for a in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                found.add(child.module)
                found.update(f"{child.module}.{a.name}" for a in child.names)
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("room", PURE)
def test_what_decides_and_checks_knows_no_engine_and_no_format(room):
    place = SOURCE / room
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    for file in files:
        bad = {m for m in imports_of(file) if any(m == f or m.startswith(f + ".") for f in FORBIDDEN)}
        assert not bad, f"{file.relative_to(SOURCE)} imports {sorted(bad)}"


def test_verify_shares_no_code_with_the_methods():
    for room in ("verify.py", "verify_noisy.py"):
        assert not {m for m in imports_of(SOURCE / room) if m.startswith("flowveil.methods")}


def test_import_flowveil_stays_light():
    code = "import sys, flowveil; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {
        "pyspark", "matplotlib", "bokeh", "fastapi", "uvicorn", "duckdb", "pandas", "polars", "geopandas", "scipy",
        "sklearn", "rich", "click", "opendp",
    }  # fmt: skip
    assert not heavy & set(loaded)
