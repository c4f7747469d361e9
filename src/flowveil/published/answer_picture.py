"""A static picture of an answer: the page's own script draws it, matplotlib writes the file.

The script runs in QuickJS, which has no window, no files and no network. It notes what it draws;
the colours are those of the page's style sheet. The same page gives the same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from os import PathLike
from pathlib import Path
from typing import Any

from flowveil.core.errors import DataError, MissingExtraError, ParameterError
from flowveil.published.document import asset, module
from flowveil.published.language import number
from flowveil.published.pictures import SUFFIXES, load_matplotlib, rendered
from flowveil.system.output import check_file, write_files

#: Pixels of the picture, and of one inch of it.
_WIDTH, _HEIGHT, _PER_INCH = 1100, 860, 110
_POINT = 72 / _PER_INCH
#: Memory of the script in bytes.
_MEMORY = 4 << 30
_COLOUR = re.compile(r"--([a-z0-9-]+): (#[0-9a-f]{6});")
#: What a browser has and QuickJS has not, as far as the script needs it.
_BROWSER = """
globalThis.Intl = { NumberFormat: class {
  constructor(language) { this.language = language; }
  format(v) { return numberInWords(v, this.language); }
} };
globalThis.URLSearchParams = class {
  constructor(text) {
    const word = (v) => decodeURIComponent(v.replace(/\\+/g, " "));
    this.rows = text.split("&").filter(Boolean).map((row) => row.split("=").map(word));
  }
  getAll(name) { return this.rows.filter(([key]) => key === name).map(([, value]) => value ?? ""); }
  get(name) { return this.getAll(name)[0] ?? null; }
};
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const SIXES = new Map([...LETTERS].map((letter, i) => [letter, i]));
globalThis.atob = (text) => {
  const parts = [];
  let bits = 0, held = 0;
  for (const letter of text) {
    if (letter === "=") break;
    bits = (bits << 6) | SIXES.get(letter);
    held += 6;
    if (held >= 8) { held -= 8; parts.push(String.fromCharCode((bits >> held) & 255)); }
  }
  return parts.join("");
};
"""


def draw_answer(
    page: str, path: str | PathLike[str], *, question: str = "", dpi: int = 200
) -> Path:
    """Draws the answer to a question into a ``.png``, ``.svg`` or ``.pdf`` file.

    ``page`` is the text of report.html, and ``question`` what its link has behind the ``#``, like
    ``from=Providencia&hour=8``.

    Raises ParameterError for a page without an estimate, MissingExtraError without quickjs or
    matplotlib.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ParameterError(f"A picture is a file {' or '.join(SUFFIXES)}; found '{target.name}'.")
    check_file(path)
    data = data_of(page)
    if data is None:
        raise ParameterError(
            "The page of this release has no estimate to draw. Hint: choose origins, destinations"
            " or flows with --show."
        )
    matplotlib, figure_of = load_matplotlib()
    look = {"svg.hashsalt": "flowveil", "svg.fonttype": "none", "path.simplify": False}
    with matplotlib.rc_context(look):
        drawn = _recorded(data, question.removeprefix("#"))
        figure = figure_of(figsize=(_WIDTH / _PER_INCH, _HEIGHT / _PER_INCH), dpi=dpi)
        place = figure.add_axes((0, 0, 1, 1))
        place.set(xlim=(0, _WIDTH), ylim=(_HEIGHT, 0))
        place.axis("off")
        _paint(place, drawn["marks"])
        content = rendered(figure, target.suffix.lower(), *drawn["lines"])
    write_files({path: lambda file: file.write_bytes(content)})
    return target


def data_of(page: str) -> str | None:
    """Returns what a page answers from, as JSON; None for a page that does not answer."""
    data = _Data()
    data.feed(page)
    held = "".join(data.parts)
    return held if held and json.loads(held).get("answer") else None


class _Data(HTMLParser):
    """Collects the data of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "script" and ("id", "map-data") in attrs

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.parts.append(data)


def palette() -> dict[str, Any]:
    """Returns the light colours of the page's style sheet."""
    sheet = asset("release.css").partition("@media")[0]
    colours: dict[str, Any] = dict(_COLOUR.findall(sheet))
    return {**colours, "flow": [colours[f"flow-{i}"] for i in range(1, 7)]}


def _recorded(data: str, question: str) -> dict[str, Any]:
    """Runs the page's script; returns its two lines of text and what it draws."""
    try:
        import quickjs
    except ImportError:
        raise MissingExtraError(
            "quickjs is not installed. Hint: pip install 'flowveil[pictures]'."
        ) from None
    context = quickjs.Context()
    context.set_memory_limit(_MEMORY)
    context.add_callable("numberInWords", lambda v, language: number(v, language, digits=15))
    context.add_callable("widthOf", _width_of)
    context.eval(_BROWSER + module("flows").rpartition("\nexport {")[0])
    context.set("held", data)
    call = (
        f"recordedPicture(JSON.parse(held), {json.dumps(palette())}, {json.dumps(question)},"
        f" {_WIDTH}, {_HEIGHT}, widthOf)"
    )
    try:
        return dict(json.loads(context.eval(call)))
    except quickjs.JSException:
        raise DataError("The data in report.html are not those of a release.") from None


def _width_of(words: str, size: float = 12, bold: bool = False) -> float:
    """Returns the width of a text in pixels."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(weight="bold" if bold else "normal", size=size)
    return float(text_to_path.get_text_width_height_descent(words, font, ismath=False)[0])


def _paint(place: Any, marks: Sequence[Sequence[Any]]) -> None:
    """Draws what the pen noted, in its order."""
    from matplotlib.patches import Circle, Polygon, Rectangle

    clip = None
    for order, (kind, *given) in enumerate(marks):
        if kind == "clip":
            clip = None
            if given:
                x, y, wide, high = given
                clip = Rectangle((x, y), wide, high, transform=place.transData)
            continue
        if kind == "text":
            artist = _text(place, *given)
        elif kind == "rect":
            x, y, wide, high, style = given
            artist = place.add_patch(Rectangle((x, y), wide, high, **_look(style)))
        elif kind == "circle":
            x, y, radius, style = given
            artist = place.add_patch(Circle((x, y), radius, **_look(style)))
        elif kind == "rings":
            artist = place.add_patch(_outline(*given))
        else:
            points, style = given
            closed = kind == "polygon"
            artist = place.add_patch(Polygon(points, closed=closed, **_look(style)))
        artist.set_zorder(order)
        if clip is not None:
            artist.set_clip_path(clip)


def _outline(rings: Sequence[Any], style: dict[str, Any], closed: bool) -> Any:
    """Returns the patch of an outline with holes, or of lines."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    points, codes = [], []
    for ring in rings:
        points += [*ring, *([ring[0]] if closed else [])]
        codes += [1, *[2] * (len(ring) - 1), *([79] if closed else [])]
    return PathPatch(Outline(points, codes), **_look(style))


def _look(style: dict[str, Any]) -> dict[str, Any]:
    """Returns colours and lines as matplotlib names them."""
    dash = style.get("dash") or []
    return {
        "facecolor": style.get("fill") or "none",
        "edgecolor": style.get("stroke") or "none",
        "linewidth": style.get("width", 1) * _POINT if style.get("stroke") else 0,
        "linestyle": (0, dash) if dash else "solid",
        "alpha": style.get("alpha"),
        "joinstyle": "round",
    }


def _text(place: Any, x: float, y: float, words: str, style: dict[str, Any]) -> Any:
    """Writes a text, with a halo where it lies on the map."""
    from matplotlib.patheffects import withStroke

    anchor = {"start": "left", "middle": "center", "end": "right"}[style.get("anchor", "start")]
    text = place.text(
        x,
        y,
        words,
        size=style.get("size", 12) * _POINT,
        weight="bold" if style.get("bold") else "normal",
        color=style["fill"],
        ha=anchor,
        va="center",
        parse_math=False,
    )
    if style.get("halo"):
        text.set_path_effects([withStroke(linewidth=3 * _POINT, foreground=style["halo"])])
    return text
