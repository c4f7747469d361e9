"""Pages that need nothing but themselves: style, script and data are inside.

The content security policy of every page forbids requests, whatever stands in it. The one exception is a tile server
that the page was made for, and the reader is asked before it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Part:
    """A section of a page.

    Attributes:
        name: its anchor.
        title: its heading.
        content: HTML.
        map_data: what its maps draw, see `flowveil.report.maps`; at most one part of a page has it.
    """

    name: str
    title: str
    content: str
    map_data: Mapping[str, Any] | None = None


def page(
    *,
    title: str,
    heading: str,
    lead: str,
    parts: Sequence[Part],
    notice: str = "",
    figures: str = "",
    footer: str = "",
    basemap: str | None = None,
    internal: str | None = None,
    compact: bool = False,
) -> str:
    """Put sections together into one document.

    Args:
        title, heading: plain text.
        lead, notice, figures, footer: HTML.
        parts: the sections, in order.
        basemap: address of the tile server that may be asked, if any.
        internal: why this page must not be published; shown at the top of the screen and of every printed page.
        compact: for a notebook's frame: less room around, no contents.
    """
    maps = [part.map_data for part in parts if part.map_data is not None]
    banner = f'<div class="internal-mark" role="note">NOT FOR PUBLICATION: {text(internal)}</div>' if internal else ""
    return Template(asset("page.html")).substitute(
        title=text(title),
        style=asset("page.css"),
        images=f"https://{host(basemap)}" if basemap else "'none'",
        # A tile server that is asked may want to know the page; otherwise nobody learns anything.
        referrer="strict-origin-when-cross-origin" if basemap else "no-referrer",
        kind=' class="internal"' if internal else ' class="compact"' if compact else "",
        banner=banner,
        heading=text(heading),
        lead=lead,
        notice=notice,
        figures=figures,
        contents="\n".join(f'<li><a href="#{part.name}">{text(part.title)}</a></li>' for part in parts),
        sections="\n".join(_section(part) for part in parts),
        footer=footer,
        scripts=_scripts(maps[0]) if maps else "",
    )


def _section(part: Part) -> str:
    return (
        f'<section aria-labelledby="{part.name}">\n<h2 id="{part.name}">{text(part.title)}</h2>\n'
        f"{part.content}\n</section>"
    )


def _scripts(map_data: Mapping[str, Any]) -> str:
    embedded = json.dumps(map_data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    # '<' could end the script element wherever it stands.
    embedded = embedded.replace("<", "\\u003c")
    return f'<script type="application/json" id="map-data">{embedded}</script>\n<script>\n{asset("map.js")}</script>'


@cache
def asset(name: str) -> str:
    """A file of the folder ``page`` beside this module."""
    return (files("flowveil.report") / "page" / name).read_text(encoding="utf-8")


def host(url: str) -> str:
    """Whom a page asks for its background map."""
    return urlsplit(url).netloc


def frame(document: str, *, height: int = 800) -> str:
    """A whole page inside another, as a notebook shows it: it can neither reach the notebook nor be reached."""
    return (
        f'<iframe srcdoc="{text(document)}" sandbox="allow-scripts" title="flowveil" '
        f'style="width:100%;height:{height}px;border:1px solid #d6dce4;border-radius:8px"></iframe>'
    )


# ---- pieces of HTML ----------------------------------------------------------------------------------------------


def text(value: Any) -> str:
    """Anything as text that cannot be taken for HTML."""
    return escape(str(value), quote=True)


def number(value: Any) -> str:
    """A measure for people: thousands separated, no false digits."""
    if value is None:
        return "not known"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def figure_cards(entries: Sequence[tuple[str, str, str]]) -> str:
    """The numbers at the top of a page: name, value, and what it means; plain text."""
    cards = (f"<div><dt>{text(n)}</dt><dd>{text(v)}<small>{text(s)}</small></dd></div>" for n, v, s in entries)
    return f'<dl class="figures">{"".join(cards)}</dl>'


def map_figure(layer: str, title: str, note: str, *, hue: str | None = None, wide: bool = False) -> str:
    """A map that the page's script draws; the note is HTML."""
    dot = f'<span class="dot" style="background:var(--{hue})"></span>' if hue else ""
    return (
        f'<figure class="map{" wide" if wide else ""}" data-layer="{layer}">'
        f'<figcaption><strong>{dot}{text(title)}</strong><span class="soft">{note}</span></figcaption>'
        '<div class="canvas"><canvas tabindex="0" role="application" aria-roledescription="map" '
        f'aria-label="{text(title)}"></canvas></div></figure>'
    )


def chart_figure(title: str, note: str, drawing: str) -> str:
    """A chart with its caption; the drawing is SVG or HTML."""
    caption = f"<figcaption><strong>{text(title)}</strong><small>{text(note)}</small></figcaption>"
    return f'<figure class="chart">{caption}{drawing}</figure>'
