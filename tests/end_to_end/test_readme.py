"""The README's quickstart runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from pyarrow import csv

from conftest import trip_table

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_five_lines_work(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"## Five lines of Python\n\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert len(code.strip().splitlines()) == 5
    csv.write_csv(trip_table(2000), tmp_path / "trips.csv")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert float(capsys.readouterr().out) >= 2
    assert (tmp_path / "release" / "report.html").is_file()
