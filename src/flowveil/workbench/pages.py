"""The one page of the workbench, from its templates."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from flowveil.flows import SUM_COLUMNS
from flowveil.guarantee import UNITS
from flowveil.published.about import ENTRIES
from flowveil.published.exports import FORMATS
from flowveil.workbench.choices import page_settings
from flowveil.workbench.method_options import offers

#: Settings that scripts of the page set without a field: columns from the table, the area, options of the method.
_BY_SCRIPT = (
    "origin", "destination", "origin_tile", "destination_tile", "person", "trips", *SUM_COLUMNS, "within", "options",
)  # fmt: skip


@cache
def index() -> str:
    """The page; all that changes is fetched by its scripts. Settings without a field of the template get one."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files("flowveil.workbench") / "templates"
    made = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    known = {"offers": offers(), "units": UNITS, "formats": FORMATS, "entries": ENTRIES}
    page = made.get_template("index.html")
    placed = {*_BY_SCRIPT, *re.findall(r'data-choice="(\w+)"', page.render(**known, more=[]))}
    return page.render(**known, more=[one for one in page_settings() if one.name not in placed])
