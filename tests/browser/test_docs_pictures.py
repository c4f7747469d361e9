"""The pictures of README and documentation are made by a script, from a finished release."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "docs_pictures.py"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_map_and_before_and_after_are_drawn(chromium, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("docs_pictures", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "drawn_in", lambda: chromium)
    script.map_and_before_after(tmp_path, people=600)
    for name in ("map.png", "before-after.png"):
        content = (tmp_path / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert 20_000 < len(content) < 500_000
