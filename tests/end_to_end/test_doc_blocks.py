"""Every code block of the README and of the docs runs unchanged, or says why it does not.

The blocks of a page are run one after the other in one folder, which holds small files under the
names that the pages use (`samples.stage`). A block that cannot run here follows a comment: `<!--
not run: the reason -->`. Blocks of `text`, `json`, `toml`, `csv` and `dockerfile` are not programs.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from flowveil.apps.cli import main
from flowveil.methods.discrete_noise import repeatable_bits
from flowveil.tabular.compare import CompareGrid
from samples import stage
from samples.processes import in_this_process

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts),
]
NOT_PROGRAMS = {"text", "json", "toml", "csv", "dockerfile", "yaml"}
_BLOCK = re.compile(
    r"(?:^[ ]*<!-- not run:(?P<reason>[^>]*)-->\n)?^(?P<indent>["
    r" ]*)```(?P<language>\w*)\n(?P<code>.*?)^[ ]*```$",
    re.S | re.M,
)


class Block(NamedTuple):
    language: str
    code: str
    reason: str | None


def blocks(page: Path) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        lines = (line.removeprefix(match["indent"]) for line in match["code"].splitlines())
        found.append(Block(match["language"], "\n".join(lines), match["reason"]))
    return found


def to_run(page: Path) -> list[Block]:
    return [
        block
        for block in blocks(page)
        if block.reason is None and block.language not in NOT_PROGRAMS
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage")
    stage.build(folder)
    return folder


def run_commands(code: str) -> None:
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "flowveil", f"not a command of flowveil: {line}"
        code = 0
        try:
            main(words[1:])
        except SystemExit as left:
            code = left.code
        assert not code, f"exit {code}: {line}"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if to_run(p)], ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_the_blocks_of_a_page_run(
    page: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "stage"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    # Noise sometimes leaves nothing to publish, so it is fixed here: the same in every run.
    monkeypatch.setattr("flowveil.methods.discrete_noise.system_bits", repeatable_bits(0))
    # Fifteen syntheses of each setting make smooth curves; two are enough for a page to run.
    monkeypatch.setattr(
        CompareGrid, "__post_init__", lambda grid: object.__setattr__(grid, "repeats", 2)
    )
    names = stage.names(folder)
    with in_this_process():
        for block in to_run(page):
            if block.language == "python":
                exec(compile(block.code, page.name, "exec"), names)
            else:
                run_commands(block.code)


def test_the_readme_shows_what_the_demo_prints(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["demo", "--out", "demo-release"])
    (shown,) = (block.code for block in blocks(ROOT / "README.md") if block.reason == " output ")
    printed = capsys.readouterr().out
    assert len(shown.splitlines()) > 3
    assert [line for line in shown.splitlines() if line not in printed.splitlines()] == []


def test_python_in_the_readme_is_at_most_five_lines():
    (code,) = (b.code for b in blocks(ROOT / "README.md") if b.language == "python")
    assert len(code.strip().splitlines()) <= 5


def test_what_is_not_run_says_why():
    reasons = [block.reason for page in PAGES for block in blocks(page) if block.reason is not None]
    assert reasons
    assert all(len(reason.split()) >= 1 for reason in reasons)


def test_a_block_that_fails_is_noticed(files: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(files)
    with pytest.raises(AssertionError, match="exit 2"):
        run_commands("flowveil anonymize nosuch.csv --out release\n")
