"""Pages of the site that are generated from the program, so that they cannot be out of date.

`mkdocs.yml` names this file as a hook. It adds to the site, without writing into `docs/`:

- reference/command-line.md, from `--help` of every command;
- changelog.md, contributing.md, the pages of benchmarks/results/ and the list of decisions;
- notebooks/, from the notebooks in examples/, which are run here, with what they print and draw;
- reference/report.schema.json, the schema that the package ships.

Links in the documents work in the repository, where readers see them first; those that leave `docs/` are rewritten to
the pages of the site.
"""

from __future__ import annotations

import base64
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Files outside docs/ that are pages of the site, and their paths in it.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "examples/README.md": "notebooks/index.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "src/flowveil/release/report.schema.json": "reference/report.schema.json",
}
NOTEBOOKS = ("quickstart", "choosing-k", "comparing-methods", "hourly-maps", "differential-privacy")
EXIT_CODES = """
| exit code | meaning |
|---|---|
| 0 | done |
| 1 | unexpected |
| 2 | bad usage or bad input |
| 3 | the guarantee cannot be met, or does not hold |
| 4 | an audit could not compare everything |
| 130 | interrupted |

Whenever the code is not 0, nothing was published and what was in the folder before is untouched. Exceptions: a `series`
keeps the steps that were published before the one that failed, and `audit --out` and `verify --certificate` write what
they found with code 3 too. (Killed outright in the instant between two renames, a run can leave the earlier release
under a hidden name next to the folder: the old release or none.)
"""
#: The page that a folder of docs/ opens with, where it is not README.md.
FIRST_PAGES = {"decisions": "index.md", "tabular": "mondrian.md"}
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#:]*)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are made."""
    from mkdocs.structure.files import File

    for name, content in made_pages():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrites links that leave docs/ to pages of the site."""
    source = ROOT / "docs" / page.file.src_uri
    return turned(markdown, source) if source.is_file() else markdown


def made_pages() -> Iterator[tuple[str, str | bytes]]:
    """Every page that is not in docs/: its place in the site, and what is in it."""
    for source, place in _pages().items():
        if place == "index.md":
            continue
        text = (ROOT / source).read_text(encoding="utf-8")
        yield place, turned(text, ROOT / source, place) if place.endswith(".md") else text
    yield "reference/command-line.md", command_line()
    yield "decisions/index.md", decisions()
    for name, book in notebooks().items():
        yield from notebook(name, book)


def _pages() -> dict[str, str]:
    results = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
    return PAGES | {f"benchmarks/results/{path.name}": f"results/{path.name}" for path in results}


def turned(markdown: str, source: Path, place: str | None = None) -> str:
    """Returns the text with its relative links rewritten for the site.

    A link to a file that is not a page becomes plain text: the site does not carry code.

    Args:
        markdown: the text of a document.
        source: path of the document in the repository.
        place: its path in the site, if that is not its path below docs/.
    """
    here = Path(place).parent if place else source.parent.relative_to(ROOT / "docs")

    def turn(match: re.Match[str]) -> str:
        path = match["path"]
        new = _place_of((source.parent / path).resolve()) if path else path
        if new is None:
            return f"`{match['text'].strip('`')}`"
        link = os.path.relpath(new, here).replace(os.sep, "/") if path else ""
        return f"[{match['text']}]({link}{match['anchor'] or ''})"

    return _LINK.sub(turn, markdown)


def _place_of(target: Path) -> str | None:
    """Returns the path in the site of a file of the repository; None if it is not a page."""
    path = target.relative_to(ROOT).as_posix()
    if path in (pages := _pages()):
        return pages[path]
    if target.suffix == ".ipynb":
        return f"notebooks/{target.stem}.md"
    if not path.startswith("docs/"):
        return None
    inside = path.removeprefix("docs/")
    return f"{inside}/{FIRST_PAGES.get(inside, 'README.md')}" if target.is_dir() else inside


def command_line() -> str:
    """`--help` of every command, from the program."""
    import click

    from flowveil.apps.cli import cli

    parts = ["# Command line", "", "Made from `--help` of every command.", "", EXIT_CODES, ""]
    for words, command in _commands(cli, ("flowveil",)):
        context = click.Context(
            command, info_name=" ".join(words), max_content_width=110, terminal_width=110
        )
        level = "##" if len(words) < 3 else "###"
        parts += [f"{level} {' '.join(words)}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    import click

    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _commands(command.get_command(context, name), (*words, name))


def decisions() -> str:
    """The decisions, by number, with their titles."""
    lines = ["# Decisions", "", "What was chosen, and why, by number.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def notebooks() -> dict[str, Any]:
    """The notebooks of examples/, run one after the other in one kernel: starting one takes longer than most cells.

    None finds what another has named.
    """
    # Where it is installed, jsonschema, which nbformat needs, imports this and compiles grammars for two seconds.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # how an import is refused
    import nbformat
    from nbclient import NotebookClient

    books = {
        name: nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4) for name in NOTEBOOKS
    }
    together = nbformat.v4.new_notebook()
    for book in books.values():
        together.cells += [nbformat.v4.new_code_cell("%reset -f"), *book.cells]
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(together, timeout=300, resources={"metadata": {"path": folder}}).execute()
    return books


def notebook(name: str, book: Any) -> Iterator[tuple[str, str | bytes]]:
    """A notebook that was run, as a page, and the pictures that it draws."""
    parts: list[str] = []
    pictures = 0
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts += [
                turned(cell.source, ROOT / "examples" / f"{name}.ipynb", f"notebooks/{name}.md"),
                "",
            ]
            continue
        parts += ["```python", cell.source, "```", ""]
        for output in cell.outputs:
            shown = output.get("data", {})
            if "image/png" in shown:
                pictures += 1
                yield f"notebooks/{name}-{pictures}.png", base64.b64decode(shown["image/png"])
                parts += [f"![what the cell draws]({name}-{pictures}.png)", ""]
            elif "text/html" in shown:
                # One line: Markdown would take its indented or empty lines for text.
                parts += [
                    '<div class="output">'
                    + re.sub(r"\s*\n\s*", "\n", shown["text/html"]).replace("\n", "&#10;")
                    + "</div>",
                    "",
                ]
            elif text := shown.get("text/plain") or output.get("text"):
                parts += ["```text", text.rstrip(), "```", ""]
    yield f"notebooks/{name}.md", "\n".join(parts)
