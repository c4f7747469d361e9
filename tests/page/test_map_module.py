"""The map's script, tested by node's own runner, and as the one text that pages hold."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flowveil.published.document import module

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def run_node(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(NODE), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


def test_its_parts_do_what_they_promise():
    done = run_node("--test", Path(__file__).parent / "map.test.mjs")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "# pass 0" not in done.stdout


@pytest.mark.parametrize(("folder", "exported"), [("flows", "mountPage"), ("map", "mount")])
def test_each_is_one_module_that_imports_nothing(folder, exported, tmp_path):
    (tmp_path / "map.mjs").write_text(module(folder), encoding="utf-8")
    (tmp_path / "ask.mjs").write_text(
        'import * as map from "./map.mjs"; console.log(Object.keys(map).join(), typeof'
        f" map.{exported});",
        encoding="utf-8",
    )
    done = run_node(tmp_path / "ask.mjs")
    assert (done.returncode, done.stdout.strip()) == (0, f"{exported} function"), done.stderr
    assert "import " not in module(folder)
