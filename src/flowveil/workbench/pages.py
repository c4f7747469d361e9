"""The one page of the workbench, from its templates."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from flowveil.guarantee import UNITS
from flowveil.published.about import ENTRIES
from flowveil.published.exports import FORMATS
from flowveil.workbench.method_options import offers


@cache
def index() -> str:
    """The page; all that changes is fetched by its scripts."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files("flowveil.workbench") / "templates"
    made = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return made.get_template("index.html").render(offers=offers(), units=UNITS, formats=FORMATS, entries=ENTRIES)
